//! One conformance suite per port. Every rule is a test that every implementation runs.
//!
//! A test file provides a function that creates a fresh implementation. It gets one test per rule, named after the
//! rule:
//!
//! ```
//! use outlast_conformance::Fixture;
//! use outlast_ledger::memory::MemoryStore;
//! use outlast_ports::store::Store;
//! use outlast_vocab::WorkerId;
//!
//! #[derive(Default)]
//! struct Fresh(MemoryStore);
//!
//! impl Fixture for Fresh {
//!     fn store(&self) -> &dyn Store {
//!         &self.0
//!     }
//!
//!     fn bury(&self, worker: WorkerId) {
//!         self.0.bury(worker);
//!     }
//! }
//!
//! outlast_conformance::store_conformance!(Fresh::default);
//! ```
//!
//! The rules use only the port. How an engine stores its rows, handles damaged files and performs is tested in the
//! engine's own crate.
//!
//! [`differential`] covers cases that no rule describes: it compares two stores under random operations.
mod budgets;
mod calls;
mod cancels;
mod clock;
mod configs;
mod content;
mod contents;
mod crash_guard;
mod differential;
mod external_content;
mod history;
mod inbox;
mod journal;
mod leases;
mod limiter;
mod model;
mod notices;
mod orgs;
mod outbox;
mod payment_outbox;
mod payments;
mod queue;
mod search;
mod shared;
mod store_under_test;
mod tool;
mod tree;
mod views;
mod votes;
mod waits;

pub use clock::ClockFixture;
pub use contents::ContentsFixture;
pub use differential::{AnswerCounts, Difference, differential};
pub use limiter::LimiterFixture;
pub use model::{ModelFixture, ToolRequest};
pub use payments::PaymentsFixture;
pub use tool::ToolFixture;

use outlast_ports::store::Store;
use outlast_vocab::{Error, WorkerId};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

/// A rule that runs.
pub type RuleFuture<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The result of a rule. An unexpected error fails the rule.
type RuleResult = Result<(), Error>;

/// A fresh store. The fixture owns the resources that the store needs, such as a directory or a database.
pub trait Fixture: Sync {
    /// Returns the store, which is empty at first.
    fn store(&self) -> &dyn Store;

    /// Returns a new worker that the store does not consider dead.
    fn worker(&self) -> WorkerId {
        WorkerId::from_u128(fresh())
    }

    /// Makes the store consider this worker dead.
    fn bury(&self, worker: WorkerId);

    /// Runs a rule to completion. Override this if the store works only inside a certain runtime.
    fn run(&self, rule: RuleFuture<'_>) {
        block_on(rule);
    }
}

/// A fresh store whose data several processes can open at once.
pub trait SharedFixture: Fixture {
    /// Opens the same data again, as another process would.
    fn open_again(&self) -> Arc<dyn Store>;
}

/// Returns a number that no id in this program has yet. Numbers increase, so ids sort by age.
fn fresh() -> u128 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    u128::from(LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

/// How long a rule may make no progress before it fails.
const STUCK: Duration = Duration::from_mins(1);

/// Blocks this thread until the future completes.
///
/// # Panics
/// If nothing wakes the future for a minute.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    #[derive(Default)]
    struct Bell {
        rung: Mutex<bool>,
        rung_changed: Condvar,
    }

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.rung_changed.notify_one();
        }
    }

    let bell = Arc::new(Bell::default());
    let waker = bell.clone().into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return answer;
        }
        let rung = bell.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut rung, waited) = bell
            .rung_changed
            .wait_timeout_while(rung, STUCK, |rung| !*rung)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "nothing has happened for {STUCK:?}");
        *rung = false;
    }
}

/// Lists the rules of a suite once. Generates a callable function per rule, and the macro that turns each rule into a
/// test. The compiler reports a rule that is not listed as dead code.
macro_rules! suite {
    ($dollar:tt $(#[$doc:meta])* $name:ident = $rules:ident on $fixture:ident { $($facet:ident { $($rule:ident,)* })* }) => {
        #[doc(hidden)]
        #[allow(missing_docs, reason = "the name of a rule says all")]
        pub mod $rules {$(
            pub mod $facet {$(
                pub fn $rule(on: &dyn crate::$fixture) {
                    on.run(Box::pin(async {
                        let result = crate::$facet::$rule(&on.into()).await;
                        result.unwrap_or_else(|error| panic!("{error}"));
                    }));
                }
            )*}
        )*}

        $(#[$doc])*
        #[macro_export]
        macro_rules! $name {
            ($dollar make:expr) => {$(
                mod $facet {
                    #[allow(unused_imports, reason = "the maker may name what its file imports")]
                    use super::*;
                    $(
                        #[test]
                        fn $rule() {
                            $crate::$rules::$facet::$rule(&($dollar make)());
                        }
                    )*
                }
            )*};
        }
    };
}

suite! { $
    /// Makes one test of every rule that a store keeps to. Takes how to make a [`Fixture`].
    store_conformance = store_rules on Fixture {
        inbox {
            repeated_key_returns_first_turn_as_duplicate,
            repeated_key_with_different_input_is_refused,
            a_key_belongs_to_its_session,
            inputs_without_a_key_are_never_duplicates,
            duplicate_input_starts_no_second_turn,
            concurrent_equal_inputs_are_accepted_once,
            opening_by_key_twice_gives_the_same_session,
            input_opens_its_session_by_key,
            opening_an_unknown_id_is_refused,
            new_session_cannot_reuse_a_session_id,
            new_turn_cannot_reuse_a_turn_id,
            turns_of_requests_are_listed_in_order,
            only_requests_without_a_key_are_listed,
            turn_of_a_request_tells_its_acceptor_and_end,
            input_receipt_is_the_position_of_its_record,
            an_input_reads_back_as_it_was_given,
            accepting_input_leases_an_idle_session_atomically,
            unclaimed_input_waits_for_a_worker,
            an_input_for_a_busy_session_is_queued,
            new_input_does_not_overtake_queued_ones,
            a_refused_input_opens_no_session,
            queued_inputs_are_limited,
            input_for_a_taken_position_is_refused,
            idempotency_key_is_bound_to_its_request,
            concurrent_inputs_get_positions_without_gaps,
            refused_write_leaves_concurrent_writes_intact,
        }
        queue {
            ended_turn_leaves_the_session_idle,
            ended_turn_moves_head_to_last_message,
            silent_turn_leaves_its_input_in_history,
            every_turn_end_round_trips,
            end_of_a_turn_never_changes,
            next_turn_keeps_worker_and_raises_fence,
            queued_inputs_become_turns_in_arrival_order,
            turn_continues_while_an_input_waits_to_join,
            turn_ends_when_no_joining_input_waits,
            joining_inputs_are_listed_in_order,
            joined_input_never_becomes_a_turn,
            dequeued_inputs_free_queue_capacity,
            an_input_joins_only_once,
            an_input_for_another_head_does_not_join,
            inputs_wait_while_the_session_is_parked,
            a_cancelled_input_is_skipped,
            interleaved_writers_leave_no_gaps,
        }
        leases {
            a_claim_raises_the_fence,
            only_one_of_two_workers_claims_a_session,
            a_claim_takes_no_more_than_its_limit,
            claim_limit_covers_expired_due_and_ready_turns,
            expired_leases_are_claimed_despite_many_live_ones,
            claim_returns_every_record_of_the_turn,
            lease_is_claimable_only_after_it_expires,
            a_dead_workers_lease_is_claimable_at_once,
            worker_does_not_claim_its_own_leased_session,
            checking_for_work_claims_nothing,
            renewal_extends_only_own_leases,
            renewal_lists_the_remaining_leases,
            released_session_is_claimable_at_once,
            only_interrupted_turns_are_marked_as_resumed,
            releasing_a_lease_counts_no_death,
            deaths_without_progress_are_counted,
            recorded_outcome_resets_the_death_count,
            next_turn_starts_with_zero_deaths,
            write_with_an_old_fence_changes_nothing,
            released_lease_rejects_writes,
            fence_is_valid_only_for_worker_and_turn,
            expired_lease_can_write_until_claimed,
            one_refused_fact_rejects_the_whole_write,
            commit_rejects_facts_that_the_store_records,
        }
        crash_guard {
            turn_whose_workers_died_is_held,
            suspect_waits_for_pause_and_old_worker,
            one_suspect_turn_is_tried_at_a_time,
            worker_with_a_suspect_claims_no_other_turn,
            death_before_the_trial_is_not_counted,
            repeated_deaths_alone_seal_the_turn,
            progress_resets_the_death_count,
            released_suspect_is_held_without_counting_a_death,
            surviving_the_trial_resets_deaths_alone,
            hung_turn_becomes_suspect_after_one_death,
            turn_that_hangs_alone_is_returned_for_sealing,
            cancelled_held_turn_is_due_at_once,
        }
        calls {
            a_batch_claims_every_call_that_will_run,
            calls_of_a_batch_settle_in_any_order,
            a_call_is_settled_once,
            one_write_cannot_settle_a_call_twice,
            unclaimed_call_cannot_be_settled,
            call_of_an_earlier_lease_needs_reclaim_first,
            next_worker_finds_calls_already_started,
            turn_cannot_end_with_an_unsettled_call,
            a_turn_can_park_while_a_call_runs,
            externally_completed_call_settles_as_pending,
            unknown_call_is_listed_with_its_request,
            calls_of_unknown_outcome_are_listed_oldest_first,
            an_unknown_outcome_is_final_for_the_turn,
            an_operator_settles_an_unknown_outcome_once,
            operator_settles_only_the_named_call,
            operator_settles_calls_of_a_running_turn,
            operator_settles_only_unknown_outcomes,
        }
        search {
            search_matches_all_words_newest_first,
            search_pages_continue_without_gaps,
            search_omits_deleted_sessions,
            old_messages_remain_searchable_and_deletable,
        }
        payment_outbox {
            decided_payment_is_pending_until_authority_confirms,
            payment_report_is_retried_with_backoff,
            operator_verdict_on_unknown_call_decides_its_payments,
            session_with_pending_payments_cannot_be_deleted,
        }
        notices {
            each_due_reminder_is_sent_once,
            missed_reminders_collapse_into_one,
            reminders_stop_at_their_limit,
            escalation_contacts_can_approve_only_after_escalation,
            reminders_pause_while_the_turn_runs,
            sink_gets_each_approval_once_and_every_notice,
            cancelled_turn_leaves_no_open_approval,
        }
        votes {
            last_required_vote_decides_the_approval,
            each_person_has_one_vote,
            one_denial_denies_the_call,
            edit_discards_earlier_votes_and_counts_as_one,
            unlisted_person_cannot_vote,
            vote_without_open_approval_is_refused,
            resolving_directly_cannot_bypass_the_votes,
            expired_approval_drops_its_votes,
            a_vote_after_the_deadline_is_too_late,
            only_call_approvals_accept_changed_arguments,
            session_approval_is_bound_to_its_requirement,
            session_approval_needs_every_voter_to_choose_it,
            each_time_requirement_rejects_session_approval,
            session_approval_excludes_a_redefined_tool,
            claim_requires_a_valid_approval_of_its_session,
            session_approval_excludes_calls_with_more_labels,
            session_approvals_are_limited,
            deleting_a_session_removes_its_approvals,
        }
        budgets {
            raised_budget_prevents_parking,
            released_budget_wakes_turns_that_now_fit,
            open_reservations_are_listed_until_settled,
            woken_turn_stays_ready_after_another_budget_change,
            agent_budget_raise_wakes_waiting_turns,
            daily_budget_reports_its_renewal_time,
            unknown_price_is_refused_under_a_money_limit,
            effective_limit_is_listed_with_its_source,
        }
        waits {
            parked_turn_has_no_lease_or_worker,
            resolving_a_wait_makes_its_turn_claimable,
            already_resolved_wait_does_not_park,
            resolution_is_kept_for_a_queued_turn,
            resolving_twice_is_answered_with_the_first_resolution,
            concurrent_resolutions_count_once,
            every_resolution_reads_back,
            resolution_wakes_only_its_own_wait,
            a_wait_of_an_ended_turn_is_cancelled,
            wait_of_an_unknown_turn_is_not_found,
            parked_turn_is_claimable_only_from_its_deadline,
            next_wake_is_the_earliest_deadline,
            longest_overdue_turn_is_claimed_first,
            later_wait_replaces_one_with_same_key,
            a_deadline_that_has_passed_does_not_park,
            maximum_deadline_never_expires,
            a_resolution_does_not_end_a_sleep,
            wait_outcome_must_match_its_resolution,
            recorded_wait_outcome_beats_later_resolution,
            turn_can_park_many_times,
            signing_secret_stays_the_same,
        }
        cancels {
            a_queued_turn_that_is_cancelled_never_begins,
            cancelling_one_queued_turn_leaves_the_others,
            cancelling_a_queued_turn_leaves_the_running_one,
            running_turn_sees_cancel_at_next_write,
            next_worker_sees_an_earlier_cancel,
            cancelled_parked_turn_is_claimable_at_once,
            a_cancelled_turn_does_not_park,
            cancelling_twice_is_one_request,
            abort_is_a_cancel_with_undo,
            a_cancel_after_the_end_is_too_late,
            late_cancel_does_not_affect_the_next_turn,
            unknown_turn_cannot_be_cancelled,
        }
        journal {
            facts_round_trip_unchanged,
            turn_counts_its_writes_and_wait_time,
            records_form_a_hash_chain,
            a_healthy_session_verifies,
            records_are_read_from_any_cursor,
            reading_past_the_last_record_returns_nothing,
            turn_records_exclude_other_turns,
            feed_lists_every_record_in_commit_order,
            reading_the_feed_in_pages_gives_the_same,
            feed_continues_after_session_deletion,
            refused_writes_are_not_in_the_feed,
            each_fork_has_its_own_hash_chain,
        }
        history {
            history_is_read_newest_first,
            history_lists_messages_of_each_turn_in_order,
            history_fits_its_budget_except_newest_turn,
            large_messages_count_their_full_size,
            history_of_a_fork_includes_parent_sessions,
            mid_turn_history_reports_its_last_record,
            running_turn_has_a_history,
            operator_verdict_becomes_part_of_history,
            history_of_a_non_message_is_not_found,
        }
        tree {
            fork_sees_earlier_messages_without_copying_records,
            fork_and_parent_continue_independently,
            retry_replaces_its_original_turn,
            retry_of_an_earlier_turn_needs_a_fork,
            a_fork_can_be_forked,
            fork_starts_at_the_main_head_by_default,
            fork_can_start_in_the_middle_of_turn,
            fork_cannot_settle_claims_of_its_parent,
            unknown_call_is_listed_once_despite_forks,
            fork_key_must_be_new_and_finds_it,
            head_names_and_fork_keys_are_bounded,
            fork_cannot_reuse_a_session_id,
            fork_point_must_be_a_message,
            input_that_never_began_is_not_a_node,
            fork_into_a_head_stays_in_its_session,
            head_name_can_be_created_once,
            rewind_moves_a_head_and_keeps_records,
            rewind_before_the_first_message_empties_the_head,
            rewinding_one_head_leaves_the_others,
            a_busy_session_is_neither_rewound_nor_deleted,
            a_session_is_deleted_with_everything_in_it,
            session_can_be_deleted_only_after_its_forks,
            session_with_extra_heads_can_be_deleted,
            deleting_a_session_removes_its_unshared_content,
        }
        content {
            a_large_input_reads_back_whole,
            content_above_the_inline_limit_becomes_blobs,
            equal_content_is_stored_once,
            forks_share_their_common_content,
            committed_content_is_found_by_its_hash,
            attachments_are_found_in_their_session,
            content_range_read_returns_only_its_bytes,
            fork_has_the_attachments_of_its_parent,
            attachment_is_deleted_with_its_last_session,
            package_survives_deletion_of_an_equal_attachment,
            partial_reply_is_kept_until_cleared,
            values_change_with_the_commit,
            values_do_not_change_without_the_commit,
            a_value_reads_back_as_it_was_set,
            values_belong_to_their_session,
            values_outlive_the_turn_that_set_them,
            fork_at_a_head_copies_current_values,
            fork_before_the_values_has_none,
            values_are_listed_by_prefix_and_name,
            store_status_reports_engine_place_and_schema,
        }
        external_content {
            attachment_reports_its_content_location,
            external_content_is_unreferenced_after_last_session_deletion,
            referenced_content_is_not_marked_for_deletion,
            content_that_is_being_deleted_cannot_be_attached,
            content_uploaded_before_deletion_cannot_be_attached,
            only_the_marking_worker_finishes_a_deletion,
            another_worker_finishes_deletion_of_dead_worker,
            new_use_cancels_deletion_of_dead_worker,
        }
        outbox {
            new_sink_starts_with_later_outputs,
            output_reports_how_its_turn_ended,
            sink_gets_subscribed_turn_ends_without_joined_inputs,
            collected_delivery_is_reserved_until_its_lease_expires,
            another_worker_takes_deliveries_of_dead_worker,
            delivered_output_is_never_due_again,
            failed_delivery_is_due_at_its_retry_time,
            dead_delivery_is_listed_until_redelivered,
            delivery_that_kills_workers_becomes_dead,
            deleting_a_session_removes_its_deliveries,
        }
        configs {
            agent_versions_are_kept_and_latest_applies,
            deleted_config_keeps_its_versions,
            config_replace_requires_the_current_version,
            each_config_kind_is_listed_by_name,
            invalid_agent_config_is_refused,
        }
        views {
            session_view_reports_its_state,
            sessions_are_paged_newest_first,
            turns_are_listed_in_acceptance_order,
            unknown_ids_and_keys_are_not_found,
            empty_store_has_no_work,
        }
    }
}

suite! { $
    /// Makes one test of every rule that a store keeps to whose data several processes open at once. Takes how to make a
    /// [`SharedFixture`].
    shared_store_conformance = shared_rules on SharedFixture {
        shared {
            one_process_reads_writes_of_the_other,
            idempotency_keys_are_shared_between_processes,
            only_one_of_two_processes_gets_a_session,
            a_process_that_lost_its_lease_writes_nothing,
            other_process_can_resolve_a_wait,
            wait_resolved_by_other_process_does_not_park,
            other_process_can_cancel_a_turn,
            concurrent_process_writes_leave_no_gaps,
            write_advances_change_counter_of_other_process,
            other_process_finds_parked_turn_due,
        }
        orgs {
            session_belongs_to_organisation_of_its_opener,
            session_keys_are_separate_per_organisation,
            agents_are_separate_per_organisation_and_scope_limited,
            items_of_other_organisations_are_not_found,
            access_matrix_covers_every_store_method,
            lists_and_the_feed_show_one_organisation,
            content_is_accessible_by_reference_not_by_hash,
            fork_belongs_to_the_organisation_of_its_parent,
            worker_operations_require_operator_access,
            handle_access_is_never_widened,
            handle_without_scope_changes_nothing,
            agents_cannot_approve_and_people_cannot_impersonate,
            records_name_the_acting_principal,
            audit_cursors_work_despite_clock_moving_back,
            paging_returns_the_whole_list_of_one_organisation,
            changes_between_pages_hide_or_duplicate_no_item,
            audit_omits_calls_without_effect,
            organisation_names_are_unique,
            api_key_works_until_expired_or_revoked,
            every_wrong_api_key_gets_the_same_error,
            api_key_scopes_never_exceed_its_creator,
        }
    }
}

suite! { $
    /// Makes one test of every rule that a clock keeps to. Takes how to make a
    /// [`ClockFixture`].
    clock_conformance = clock_rules on ClockFixture {
        clock {
            a_sleep_is_never_over_early,
            sleep_until_past_time_ends_at_once,
            every_sleeper_wakes_at_its_time,
            sleep_can_be_cancelled,
        }
    }
}

suite! { $
    /// Makes one test of every rule that a place for contents keeps to. Takes how to make a
    /// [`ContentsFixture`].
    contents_conformance = contents_rules on ContentsFixture {
        contents {
            content_reads_back_under_its_hash,
            large_content_reads_back_under_its_hash,
            range_read_returns_only_its_bytes,
            oversized_upload_is_refused_and_leaves_nothing,
            broken_upload_stream_stores_nothing,
            missing_content_is_not_found,
            info_and_list_return_metadata_only,
            deleted_content_can_be_put_again,
            concurrent_puts_store_content_once,
            corrupt_content_is_detected_and_repaired_by_put,
            removing_partial_uploads_keeps_complete_contents,
        }
    }
}

suite! { $
    /// Makes one test of every rule that a payment authority keeps to. Takes how to make a
    /// [`PaymentsFixture`].
    payments_conformance = payments_rules on PaymentsFixture {
        payments {
            reserving_a_payment_id_is_idempotent,
            payment_id_with_another_order_is_refused,
            settled_payment_stays_settled_with_its_receipt,
            released_payment_is_never_paid,
            unreserved_payment_is_refused,
            payment_above_the_limit_is_refused,
        }
    }
}

suite! { $
    /// Makes one test of every rule that a limiter keeps to. Takes how to make a
    /// [`LimiterFixture`].
    limiter_conformance = limiter_rules on LimiterFixture {
        limiter {
            burst_is_admitted_then_calls_are_queued,
            rate_is_never_exceeded_by_any_attempts,
            call_consumes_all_its_rates_or_none,
            organisations_share_no_rate_limits,
        }
    }
}

suite! { $
    /// Makes one test of every rule that a model provider keeps to. Takes how to make a
    /// [`ModelFixture`].
    model_conformance = model_rules on ModelFixture {
        model {
            served_model_has_a_context_window,
            unserved_model_has_no_capabilities,
            request_to_unserved_model_fails_permanently,
            model_answers_with_text_and_one_end,
            tool_call_is_complete_before_the_end,
            dropped_answer_does_not_affect_others,
            concurrent_requests_get_separate_answers,
        }
    }
}

suite! { $
    /// Makes one test of every rule that a set of tools keeps to. Takes how to make a
    /// [`ToolFixture`].
    tool_conformance = tool_rules on ToolFixture {
        tool {
            every_listed_tool_matches_its_contract,
            tool_names_are_unique_and_stably_ordered,
            tool_input_schema_is_an_object,
            every_tool_has_a_description,
            missing_tool_is_reported_as_unknown,
        }
    }
}
