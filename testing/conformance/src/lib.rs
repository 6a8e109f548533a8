//! One conformance suite per port. Every rule is a test that every implementation runs.
//!
//! A test file provides a function that creates a fresh implementation. It gets one test per rule, named after the
//! rule:
//!
//! ```
//! use outlast_conformance::Fixture;
//! use outlast_ports::{memory::Memory, store::Store};
//! use outlast_vocab::WorkerId;
//!
//! #[derive(Default)]
//! struct Fresh(Memory);
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
        heard: Condvar,
    }

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.heard.notify_one();
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
        let (mut rung, waited) =
            bell.heard.wait_timeout_while(rung, STUCK, |rung| !*rung).unwrap_or_else(PoisonError::into_inner);
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
                        let kept = crate::$facet::$rule(&on.into()).await;
                        kept.unwrap_or_else(|error| panic!("{error}"));
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
            the_same_key_again_gives_the_first_turn_and_says_duplicate,
            the_same_key_with_another_input_is_refused_and_writes_nothing,
            a_key_belongs_to_its_session,
            inputs_without_a_key_are_never_duplicates,
            a_duplicate_is_not_driven_again,
            of_equal_inputs_at_the_same_time_one_is_taken_in,
            opening_by_key_twice_gives_the_same_session,
            an_input_opens_the_session_it_names_by_key,
            opening_by_id_finds_only_what_exists,
            a_new_session_never_takes_the_id_of_another,
            a_new_turn_never_takes_the_id_of_another,
            the_receipt_of_an_input_is_the_place_of_its_record,
            an_input_reads_back_as_it_was_given,
            an_input_for_an_idle_session_is_leased_to_its_taker_in_the_same_write,
            an_input_without_a_taker_waits_for_a_worker,
            an_input_for_a_busy_session_is_queued,
            an_input_does_not_overtake_those_that_wait,
            a_refused_input_opens_no_session,
            queued_inputs_are_limited,
            an_input_for_a_place_is_refused_if_another_came_first,
            a_key_covers_the_request_that_brought_its_input,
            inputs_at_the_same_time_get_places_without_gaps,
            a_refused_write_does_not_spoil_its_neighbours,
        }
        queue {
            a_turn_that_ends_lets_the_session_rest,
            a_turn_that_ends_moves_its_head_to_its_last_message,
            a_turn_that_said_nothing_leaves_its_input,
            every_way_to_end_reads_back,
            the_end_of_a_turn_is_sealed,
            the_next_turn_begins_under_the_same_worker_and_a_raised_fence,
            queued_inputs_become_turns_in_the_order_they_came,
            a_turn_goes_on_while_an_input_waits_to_join_it,
            a_turn_ends_when_no_input_waits_to_join_it,
            inputs_that_want_to_join_are_listed_in_order,
            an_input_that_joined_is_over_and_never_becomes_a_turn,
            what_left_the_queue_makes_room_in_it,
            an_input_joins_only_once,
            an_input_for_another_head_does_not_join,
            inputs_for_a_parked_session_wait_for_its_turn,
            a_cancelled_input_is_skipped,
            places_have_no_gaps_whoever_writes_between,
        }
        leases {
            a_claim_raises_the_fence,
            of_two_takers_one_gets_the_session,
            a_claim_takes_no_more_than_its_limit,
            whatever_wants_to_be_driven_counts_towards_the_limit,
            expired_leases_are_claimed_however_many_live_ones_there_are,
            a_claim_hands_over_all_that_the_journal_knows_of_the_turn,
            a_lease_is_claimable_when_it_has_expired_and_not_before,
            a_dead_workers_lease_is_claimable_at_once,
            a_worker_does_not_claim_what_it_drives,
            asking_whether_there_is_work_takes_none,
            renewing_extends_ones_own_leases_and_no_others,
            renewing_says_which_leases_are_left,
            a_session_that_was_handed_back_is_claimable_at_once,
            a_turn_that_was_left_in_its_middle_is_resumed_and_one_that_parked_is_not,
            handing_back_does_not_count_as_an_attempt,
            deaths_without_progress_are_counted,
            an_outcome_is_progress,
            the_next_turn_begins_with_a_count_of_its_own,
            a_write_with_an_old_fence_changes_nothing,
            a_lease_that_was_given_up_writes_nothing,
            a_fence_counts_only_with_its_worker_and_its_turn,
            an_expired_lease_still_writes_until_somebody_takes_it,
            a_refused_fact_takes_the_whole_write_with_it,
            a_commit_says_nothing_that_is_for_the_store_to_say,
        }
        crash_guard {
            a_turn_whose_workers_died_is_held_back,
            a_suspect_waits_for_its_pause_and_for_an_old_worker,
            one_suspect_is_tried_at_a_time,
            a_worker_with_a_suspect_takes_nothing_else,
            a_death_before_the_trial_begins_counts_nothing,
            deaths_alone_are_counted_and_then_the_turn_is_taken_to_be_sealed,
            progress_clears_a_suspect,
            a_suspect_that_is_handed_back_is_held_and_nothing_is_counted,
            a_suspect_that_outlives_its_window_starts_again_from_zero,
            a_turn_that_hangs_in_company_is_a_suspect_after_one_death,
            a_turn_that_hangs_alone_is_given_back_to_be_sealed,
            a_held_turn_that_is_cancelled_is_due_at_once,
        }
        calls {
            a_batch_claims_every_call_that_will_run,
            calls_have_their_places_when_asked_and_answers_come_in_any_order,
            a_call_is_settled_once,
            a_call_is_not_settled_twice_in_one_write,
            what_was_not_claimed_is_not_settled,
            a_call_that_another_lease_began_is_taken_over_before_it_is_settled,
            a_call_that_was_begun_is_found_by_who_takes_the_turn_over,
            a_turn_cannot_end_while_a_call_has_no_outcome,
            a_turn_can_park_while_a_call_runs,
            a_call_that_will_be_finished_outside_is_settled_as_pending,
            a_call_of_unknown_outcome_is_listed_with_what_was_asked,
            calls_of_unknown_outcome_are_listed_oldest_first,
            an_unknown_outcome_is_final_for_the_turn,
            an_operator_settles_an_unknown_outcome_once,
            an_operator_settles_the_call_they_name,
            an_operator_settles_while_the_turn_goes_on,
            only_an_unknown_outcome_can_be_settled_by_an_operator,
        }
        search {
            messages_are_found_by_all_their_words_the_newest_first,
            a_page_of_what_is_found_goes_on_where_the_one_before_ended,
            what_is_deleted_is_not_found_any_more,
            messages_are_found_and_deleted_however_much_was_said_since,
        }
        payment_outbox {
            what_is_decided_of_a_payment_is_owed_until_its_authority_took_it,
            an_authority_is_told_again_after_growing_pauses,
            a_word_on_a_call_of_unknown_outcome_decides_its_payments,
            a_session_that_owes_is_not_deleted,
        }
        notices {
            people_are_reminded_when_it_is_due_and_each_time_once,
            what_fell_due_while_nobody_worked_is_one_reminder,
            there_are_no_more_reminders_than_the_limit,
            others_may_approve_once_it_is_escalated_and_not_before,
            nobody_is_told_while_nobody_waits_and_what_fell_due_comes_after,
            a_sink_is_told_of_a_question_once_and_of_every_notice,
            a_turn_that_was_stopped_leaves_no_question_behind,
        }
        votes {
            a_question_takes_as_many_votes_as_it_says_and_the_last_one_decides,
            each_person_has_one_vote,
            one_denial_denies,
            an_edit_voids_the_votes_before_it_and_is_the_first_for_what_it_says,
            who_is_not_named_has_no_vote,
            nobody_approves_what_nobody_asks_about,
            a_completion_key_is_no_way_around_the_votes,
            votes_on_a_question_whose_time_is_over_are_gone,
            a_vote_after_the_deadline_is_too_late,
            what_is_no_call_has_no_arguments_to_change,
            what_an_engine_asks_is_approved_for_the_session_as_it_was_asked,
            an_approval_for_the_session_takes_the_votes_of_all,
            what_is_asked_each_time_is_not_approved_for_the_session,
            a_tool_that_is_defined_anew_is_not_approved_for_the_session,
            a_call_is_claimed_under_an_approval_of_its_own_session_that_still_counts,
            an_approval_for_the_session_covers_no_call_with_more_labels,
            a_session_has_no_more_approvals_than_the_limit,
            what_is_approved_for_a_session_goes_with_it,
        }
        budgets {
            a_budget_that_is_raised_before_a_turn_holds_still_for_it_keeps_it_awake,
            what_is_given_back_wakes_whom_it_is_enough_for,
            open_reservations_are_listed_until_settled,
            a_budget_may_be_set_again_before_who_waits_for_it_goes_on,
            a_budget_that_its_agent_raises_wakes_who_waits_for_it,
            a_budget_of_a_day_says_when_it_begins_anew,
            what_nobody_knows_the_price_of_does_not_fit_where_money_is_bounded,
            the_limit_that_counts_is_listed_with_who_said_it,
        }
        waits {
            a_parked_turn_holds_no_lease_and_is_not_driven,
            resolving_a_wait_makes_its_turn_claimable,
            a_wait_that_was_resolved_before_does_not_park,
            a_resolution_waits_for_a_turn_that_has_not_begun,
            resolving_twice_is_answered_with_the_first_resolution,
            of_resolutions_at_the_same_time_one_counts,
            every_resolution_reads_back,
            a_resolution_wakes_only_who_waits_for_it,
            a_wait_of_an_ended_turn_is_cancelled,
            a_wait_of_a_turn_that_does_not_exist_is_not_found,
            a_parked_turn_is_claimable_at_its_deadline_and_not_before,
            the_next_wake_is_the_earliest_deadline_of_all_sessions,
            of_what_is_due_the_longest_due_is_taken_first,
            one_place_has_one_wait,
            a_deadline_that_has_passed_does_not_park,
            a_deadline_at_the_end_of_time_never_comes,
            a_resolution_does_not_end_a_sleep,
            what_a_wait_read_must_be_what_was_resolved,
            what_a_wait_read_counts_from_then_on,
            a_turn_parks_as_often_as_it_needs,
            the_secret_that_signs_keys_stays_the_same,
        }
        cancels {
            a_queued_turn_that_is_cancelled_never_begins,
            cancelling_one_queued_turn_leaves_the_others,
            cancelling_a_queued_turn_leaves_the_running_one,
            a_running_turn_is_told_with_its_next_write,
            a_cancel_is_found_by_who_takes_the_turn_over,
            a_parked_turn_that_is_cancelled_is_claimable_at_once,
            a_cancelled_turn_does_not_park,
            cancelling_twice_is_one_request,
            an_abort_is_a_cancel_that_wants_things_taken_back,
            a_cancel_after_the_end_is_too_late,
            a_late_cancel_does_not_hit_the_next_turn,
            a_turn_that_does_not_exist_cannot_be_cancelled,
        }
        journal {
            facts_read_back_as_they_were_written,
            a_turn_counts_its_writes_and_how_long_it_waited_for_them_r14_8,
            records_form_a_chain,
            a_healthy_session_verifies,
            records_are_read_from_any_cursor,
            beyond_the_last_record_there_is_nothing,
            the_records_of_a_turn_are_its_own,
            the_feed_has_every_record_in_the_order_it_became_durable,
            reading_the_feed_in_pages_gives_the_same,
            the_feed_goes_on_after_a_session_is_deleted,
            what_was_refused_is_not_in_the_feed,
            forks_have_chains_of_their_own,
        }
        history {
            history_is_read_newest_first,
            history_is_the_messages_of_each_turn_in_order,
            history_stops_at_its_budget_but_has_one_turn_at_least,
            large_messages_count_in_full,
            history_crosses_into_the_sessions_it_was_forked_from,
            a_cut_in_the_middle_of_a_turn_says_where,
            a_turn_that_runs_has_a_history,
            an_operators_word_is_part_of_history_from_then_on,
            what_is_no_message_has_no_history,
        }
        tree {
            a_fork_begins_with_the_messages_before_it_and_copies_nothing,
            a_fork_and_its_parent_go_on_apart,
            retry_takes_the_place_of_its_original,
            retry_of_an_earlier_turn_needs_a_fork,
            a_fork_can_be_forked,
            a_fork_begins_at_the_main_head_unless_told_otherwise,
            a_fork_can_begin_in_the_middle_of_a_turn,
            claims_do_not_fork,
            an_unknown_outcome_is_listed_once_however_often_it_is_forked,
            a_fork_is_found_by_its_key_which_must_be_new,
            the_names_of_branches_are_bounded,
            a_fork_never_takes_the_id_of_another_session,
            a_fork_needs_a_message_to_begin_at,
            an_input_that_never_began_is_no_message_of_the_tree,
            a_fork_into_a_head_stays_in_its_session,
            a_head_is_made_once,
            rewinding_moves_a_head_and_keeps_the_rest,
            rewinding_to_before_the_first_message_begins_anew,
            rewinding_one_head_leaves_the_others,
            a_busy_session_is_neither_rewound_nor_deleted,
            a_session_is_deleted_with_everything_in_it,
            a_session_with_forks_is_deleted_after_them,
            a_session_with_heads_of_its_own_can_be_deleted,
            deleting_a_session_removes_content_that_only_it_used,
        }
        content {
            a_large_input_reads_back_whole,
            content_goes_to_the_blobs_above_the_inline_limit,
            equal_content_is_kept_once,
            forks_share_what_they_have_in_common,
            content_of_a_commit_is_found_by_its_hash,
            what_an_input_or_a_commit_attaches_is_found_in_its_session,
            a_range_of_content_is_read_alone,
            a_fork_has_the_attachments_of_its_parent,
            an_attachment_goes_with_the_last_session_that_uses_it,
            a_package_stays_when_an_attachment_of_the_same_bytes_goes,
            what_was_said_of_a_reply_is_kept_until_it_is_forgotten,
            values_change_with_the_commit,
            values_do_not_change_without_the_commit,
            a_value_reads_back_as_it_was_set,
            values_belong_to_their_session,
            values_outlive_the_turn_that_set_them,
            a_fork_where_a_head_stands_begins_with_the_values_as_they_are,
            a_fork_before_that_begins_without_values,
            values_are_listed_by_prefix_and_name,
            the_store_says_what_it_is,
        }
        external_content {
            an_attachment_says_where_its_content_lies,
            content_outside_is_left_when_its_last_session_goes,
            content_that_is_used_is_not_condemned,
            content_that_is_being_deleted_cannot_be_attached,
            what_was_put_before_a_deletion_is_not_attached_after_it,
            a_deletion_is_finished_by_who_began_it,
            a_deletion_of_a_dead_worker_is_finished_by_another_one_later,
            a_deletion_of_a_dead_worker_is_taken_back_by_who_needs_the_content,
        }
        outbox {
            a_new_sink_begins_with_what_ends_from_then_on,
            an_output_says_how_its_turn_ended,
            a_sink_gets_the_ends_it_wants_and_no_input_that_joined,
            who_takes_a_delivery_has_it_for_a_time,
            a_delivery_of_a_dead_worker_is_taken_by_another_at_once,
            what_was_delivered_is_never_due_again,
            what_was_not_taken_is_due_when_it_is_said_to_be,
            what_was_given_up_is_listed_until_somebody_tries_it_again,
            what_kills_its_workers_is_given_up,
            a_delivery_goes_with_its_session,
        }
        configs {
            every_version_of_an_agent_is_kept_and_the_last_counts,
            what_was_deleted_is_gone_and_its_versions_stay,
            a_version_takes_the_place_of_the_one_it_names_or_of_none,
            agents_harnesses_and_capabilities_are_listed_by_name_each_for_itself,
            what_is_no_agent_is_not_kept,
        }
        views {
            a_session_shows_how_it_stands,
            sessions_are_listed_newest_first_page_by_page,
            turns_are_listed_in_the_order_they_were_accepted,
            what_is_not_there_is_not_found,
            an_empty_store_has_nothing_to_do,
        }
    }
}

suite! { $
    /// Makes one test of every rule that a store keeps to whose data several processes open at once. Takes how to make a
    /// [`SharedFixture`].
    shared_store_conformance = shared_rules on SharedFixture {
        shared {
            what_one_process_wrote_the_other_reads,
            a_key_is_known_to_both,
            only_one_of_two_processes_gets_a_session,
            a_process_that_lost_its_lease_writes_nothing,
            a_wait_is_resolved_from_the_other_process,
            a_wait_that_was_resolved_by_the_other_process_does_not_park,
            a_cancel_comes_from_the_other_process,
            writes_of_both_at_once_leave_no_gap,
            a_write_of_one_process_is_a_change_for_the_other,
            what_one_process_parked_the_other_finds_due,
        }
        orgs {
            a_session_belongs_to_the_organisation_of_the_handle_that_opened_it,
            every_organisation_has_keys_of_sessions_of_its_own,
            every_organisation_has_agents_of_its_own_and_who_may_only_read_keeps_none,
            what_belongs_to_another_organisation_answers_as_what_was_never_there,
            every_method_of_a_store_is_asked_for_what_belongs_to_others,
            lists_and_the_feed_show_one_organisation,
            content_is_reached_by_what_refers_to_it_and_not_by_its_hash,
            a_fork_belongs_to_whom_its_messages_belong_to,
            what_workers_do_is_for_the_operator,
            a_handle_is_never_widened,
            who_lacks_a_scope_changes_nothing,
            an_agent_never_approves_and_nobody_does_in_the_name_of_another,
            whoever_acts_is_written_down_with_the_act,
            the_audit_is_read_on_behind_a_number_and_from_a_time_on_though_a_clock_went_back,
            a_list_read_page_by_page_is_the_whole_list_of_one_organisation,
            what_goes_and_comes_between_two_pages_hides_and_doubles_no_other,
            what_changes_nothing_is_not_written_down,
            an_organisation_has_a_name_of_its_own,
            an_api_key_opens_its_organisation_until_it_expires_or_is_revoked,
            every_bit_of_an_api_key_counts_and_every_wrong_one_gets_the_same_answer,
            an_api_key_may_do_no_more_than_who_makes_it,
        }
    }
}

suite! { $
    /// Makes one test of every rule that a clock keeps to. Takes how to make a
    /// [`ClockFixture`].
    clock_conformance = clock_rules on ClockFixture {
        clock {
            a_sleep_is_never_over_early,
            a_sleep_until_now_or_before_is_over_at_once,
            who_sleeps_is_woken,
            a_sleep_can_be_given_up,
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
            a_range_is_read_alone,
            more_than_the_limit_is_refused_and_leaves_nothing,
            a_stream_that_breaks_leaves_nothing,
            what_is_not_there_is_not_found,
            information_comes_without_bytes,
            deleted_content_is_gone_and_can_be_put_again,
            the_same_content_is_there_once_whoever_puts_it,
            changed_content_is_found_by_its_hash_and_mended_by_a_put,
            tidying_leaves_contents_alone,
        }
    }
}

suite! { $
    /// Makes one test of every rule that a payment authority keeps to. Takes how to make a
    /// [`PaymentsFixture`].
    payments_conformance = payments_rules on PaymentsFixture {
        payments {
            what_is_reserved_is_found_and_the_same_id_gives_it_again,
            the_same_id_with_another_order_is_refused,
            what_is_settled_stays_settled_with_its_receipt,
            what_is_released_is_never_paid,
            what_was_never_reserved_is_not_paid,
            more_than_it_will_pay_is_refused,
        }
    }
}

suite! { $
    /// Makes one test of every rule that a limiter keeps to. Takes how to make a
    /// [`LimiterFixture`].
    limiter_conformance = limiter_rules on LimiterFixture {
        limiter {
            a_burst_goes_and_the_next_is_told_when_to_ask_again,
            a_rate_is_never_exceeded_whatever_they_were_told,
            a_call_takes_from_all_of_its_rates_or_from_none,
            organisations_share_nothing,
        }
    }
}

suite! { $
    /// Makes one test of every rule that a model provider keeps to. Takes how to make a
    /// [`ModelFixture`].
    model_conformance = model_rules on ModelFixture {
        model {
            a_model_that_is_served_has_a_window,
            nothing_is_known_of_a_model_that_is_not_served,
            asking_a_model_that_is_not_served_is_refused_for_good,
            a_question_is_answered_with_text_and_one_end,
            a_tool_call_is_whole_before_the_end,
            an_answer_that_is_given_up_midway_harms_no_other,
            questions_at_the_same_time_are_answered_apart,
        }
    }
}

suite! { $
    /// Makes one test of every rule that a set of tools keeps to. Takes how to make a
    /// [`ToolFixture`].
    tool_conformance = tool_rules on ToolFixture {
        tool {
            every_listed_tool_has_a_contract_that_says_the_same,
            names_are_unique_and_listed_in_the_same_order,
            arguments_are_an_object,
            a_model_is_told_what_a_tool_does,
            a_tool_that_is_not_there_is_unknown,
        }
    }
}
