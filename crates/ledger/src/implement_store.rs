//! The implementation of the store traits: each method runs one rule as one unit of work of a [`Backend`].
//!
//! It is a macro, because the store traits are in `outlast-ports`, which does not know the rules. A blanket implementation
//! for every backend is only possible in the crate of the traits.
//!
//! [`Backend`]: crate::Backend

/// The names that [`implement_store!`](crate::implement_store) uses.
#[doc(hidden)]
pub mod prelude {
    pub use crate::backend::Backend;
    pub use crate::rules;
    pub use crate::scoped::ScopedStore;
    pub use outlast_ports::ResultFuture;
    pub use outlast_ports::archive::{
        ArchiveStore, ExportedRecords, ImportRequest, ImportResult, RecordPage, RerunAudit, SessionOutline,
    };
    pub use outlast_ports::attachment_upload::{DeletionRequest, ExternalContentStore, SweepCounter};
    pub use outlast_ports::branches::{BranchStore, ForkRequest};
    pub use outlast_ports::budget::{AwaitedBudget, BudgetStore, OpenReservation};
    pub use outlast_ports::configs::ConfigStore;
    pub use outlast_ports::content_queries::ContentQueries;
    pub use outlast_ports::inbox::{AcceptReceipt, AcceptRequest, Inbox, RetryRequest, SessionTarget};
    pub use outlast_ports::journal::{FeedCursor, FeedRecord, Journal};
    pub use outlast_ports::orgs::{OrgStore, SealedApiKey};
    pub use outlast_ports::outbox::{
        CollectRequest, DeliveryAttempt, DeliveryPosition, DeliverySchedule, DueDelivery, SinkOutbox,
        SinkSubscription,
    };
    pub use outlast_ports::page::Page;
    pub use outlast_ports::payment_outbox::{PaymentBackoff, PaymentOutbox};
    pub use outlast_ports::queries::{Queries, StoreLoad, WorkerAgenda};
    pub use outlast_ports::rate::RateStore;
    pub use outlast_ports::search::{MessageMatch, MessageSearch, SearchQuery};
    pub use outlast_ports::store::{Store, StoreStatus};
    pub use outlast_ports::turns::{
        ClaimedTurn, Commit, CommitReceipt, Fence, Lease, LeaseRequest, PartialReplyText, Turns,
    };
    pub use outlast_ports::votes::{SentNotice, VoteRequest, VoteStore};
    pub use outlast_views::{
        ApprovalProgress, AttachmentView, AuditRange, AuditRow, BudgetAccountView, CancelOutcome, ConfigKind,
        DeliveryView, HistoryTurn, KeyView, Org, PendingPayment, RateView, ResolveResult, SessionGrant,
        SessionView, SinkView, StoredConfig, TurnView, UnknownCall, VoteOutcome, WaitingTurn,
    };
    pub use outlast_vocab::access::{Access, ApiKey};
    pub use outlast_vocab::budget::{Budget, BudgetAccount};
    pub use outlast_vocab::id::{
        AttachmentId, CallId, DeliveryId, GrantId, KeyId, OrgId, SessionId, WorkerId,
    };
    pub use outlast_vocab::message::Part;
    pub use outlast_vocab::payment::Payment;
    pub use outlast_vocab::record::{NodeRef, OutcomeVerdict, Record, Seq};
    pub use outlast_vocab::wait::{CompletionKey, Resolution, WaitKind};
    pub use outlast_vocab::{Failure, Hash, Millis, ReplayKey, TurnId};
    pub use serde_json::Value;
    pub use std::collections::BTreeSet;
    pub use std::ops::Range;
    pub use std::sync::Arc;
    pub use std::time::Duration;
}

/// Implements `outlast_ports::store::Store`, and all traits that it consists of, for a [`Backend`](crate::Backend).
///
/// ```text
/// implement_store!(SqliteStore);
/// implement_store!(CrashingStore<B>, B: Backend);
/// ```
#[macro_export]
macro_rules! implement_store {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::prelude::*;

            impl$(<$param: $bound>)? Inbox for $store {
                fn accept(&self, accept: AcceptRequest) -> ResultFuture<'_, AcceptReceipt> {
                    self.write(move |rows| rules::accept(rows, accept))
                }

                fn retry(&self, retry: RetryRequest) -> ResultFuture<'_, AcceptReceipt> {
                    self.write(move |rows| rules::retry(rows, retry))
                }

                fn open(&self, target: SessionTarget, now: Millis) -> ResultFuture<'_, SessionId> {
                    self.write(move |rows| rules::open(rows, target, now))
                }

                fn cancel(
                    &self,
                    turn: TurnId,
                    reason: String,
                    now: Millis,
                ) -> ResultFuture<'_, CancelOutcome> {
                    self.write(move |rows| {
                        rules::cancel(rows, turn, rules::StopRequest { reason, undo: false }, now)
                    })
                }

                fn abort(
                    &self,
                    turn: TurnId,
                    reason: String,
                    now: Millis,
                ) -> ResultFuture<'_, CancelOutcome> {
                    self.write(move |rows| {
                        rules::cancel(rows, turn, rules::StopRequest { reason, undo: true }, now)
                    })
                }

                fn resolve(
                    &self,
                    turn: TurnId,
                    key: ReplayKey,
                    resolution: Resolution,
                    now: Millis,
                ) -> ResultFuture<'_, ResolveResult> {
                    self.write(move |rows| rules::resolve(rows, turn, &key, resolution, now))
                }

                fn completion_key(&self, turn: TurnId, wait: ReplayKey) -> ResultFuture<'_, CompletionKey> {
                    self.read(move |rows| rules::completion_key(rows, turn, wait))
                }
            }

            impl$(<$param: $bound>)? Turns for $store {
                fn claim(
                    &self,
                    lease_request: LeaseRequest,
                    now: Millis,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<ClaimedTurn>> {
                    self.write(move |rows| rules::claim(rows, lease_request, now, limit))
                }

                fn renew(&self, lease_request: LeaseRequest) -> ResultFuture<'_, Vec<(SessionId, Fence)>> {
                    self.write(move |rows| rules::renew(rows, lease_request))
                }

                fn commit(&self, mut commit: Commit) -> ResultFuture<'_, CommitReceipt> {
                    let drafts =
                        std::mem::take(&mut commit.facts).into_iter().map(rules::EncodedFact::from).collect();
                    self.write(move |rows| rules::commit(rows, commit, drafts))
                }

                fn release_lease(&self, lease: Lease, now: Millis) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::release_lease(rows, &lease, now))
                }

                fn claim_suspect(
                    &self,
                    lease_request: LeaseRequest,
                    lived: Duration,
                    due: Millis,
                ) -> ResultFuture<'_, Option<ClaimedTurn>> {
                    self.write(move |rows| rules::claim_suspect(rows, lease_request, lived, due))
                }

                fn begin_trial(&self, lease: Lease) -> ResultFuture<'_, bool> {
                    self.write(move |rows| rules::begin_trial(rows, &lease))
                }

                fn end_trial(&self, lease: Lease) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::end_trial(rows, &lease))
                }

                fn report_hang(&self, lease: Lease) -> ResultFuture<'_, bool> {
                    self.write(move |rows| rules::report_hang(rows, &lease))
                }
            }

            impl$(<$param: $bound>)? Journal for $store {
                fn records(
                    &self,
                    session: SessionId,
                    after: Seq,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<Record>> {
                    self.read(move |rows| rules::records(rows, session, after, limit))
                }

                fn turn_records(&self, turn: TurnId) -> ResultFuture<'_, Vec<Record>> {
                    self.read(move |rows| rules::turn_records(rows, turn))
                }

                fn feed(&self, after: FeedCursor, limit: usize) -> ResultFuture<'_, Vec<FeedRecord>> {
                    self.read(move |rows| rules::feed(rows, after, limit))
                }

                fn feed_end(&self) -> ResultFuture<'_, FeedCursor> {
                    self.read(|rows| rows.feed_end().map(FeedCursor))
                }

                fn history(&self, node: NodeRef, bytes: usize) -> ResultFuture<'_, Vec<HistoryTurn>> {
                    self.read(move |rows| rules::history(rows, node, bytes))
                }

                fn joinable(&self, session: SessionId) -> ResultFuture<'_, Vec<(TurnId, Vec<Part>)>> {
                    self.read(move |rows| rules::joinable(rows, session))
                }

                fn verify(&self, session: SessionId) -> ResultFuture<'_, u64> {
                    self.read(move |rows| rules::verify(rows, session))
                }
            }

            impl$(<$param: $bound>)? Queries for $store {
                fn sessions(
                    &self,
                    before: Option<SessionId>,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<SessionView>> {
                    self.read(move |rows| rules::sessions(rows, before, limit))
                }

                fn session(&self, id: SessionId) -> ResultFuture<'_, SessionView> {
                    self.read(move |rows| rules::session(rows, id))
                }

                fn session_by_key(&self, key: String) -> ResultFuture<'_, SessionView> {
                    self.read(move |rows| rules::session_by_key(rows, &key))
                }

                fn turn(&self, id: TurnId) -> ResultFuture<'_, TurnView> {
                    self.read(move |rows| rules::turn(rows, id))
                }

                fn turns(
                    &self,
                    session: SessionId,
                    from: u32,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<TurnView>> {
                    self.read(move |rows| rules::turns(rows, session, from, limit))
                }

                fn unknown(&self, limit: usize) -> ResultFuture<'_, Vec<UnknownCall>> {
                    self.read(move |rows| Ok(rules::unknown(rows, None, limit)?.items))
                }

                fn unknown_after(
                    &self,
                    after: Option<(Millis, CallId)>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<UnknownCall, (Millis, CallId)>> {
                    self.read(move |rows| rules::unknown(rows, after, limit))
                }

                fn waiting(&self, kind: WaitKind, limit: usize) -> ResultFuture<'_, Vec<WaitingTurn>> {
                    self.read(move |rows| rules::waiting(rows, kind, limit))
                }

                fn cancel_reason(&self, turn: TurnId) -> ResultFuture<'_, Option<String>> {
                    self.read(move |rows| rules::cancel_reason(rows, turn))
                }

                fn has_work(&self, worker: WorkerId, now: Millis) -> ResultFuture<'_, bool> {
                    self.read(move |rows| rules::has_work(rows, worker, now))
                }

                fn next_wake(&self) -> ResultFuture<'_, Option<Millis>> {
                    self.read(|rows| rules::next_wake(rows))
                }

                fn agenda(&self, worker: WorkerId, now: Millis) -> ResultFuture<'_, WorkerAgenda> {
                    self.read(move |rows| {
                        let (has_work, next_wake) =
                            (rules::has_work(rows, worker, now)?, rules::next_wake(rows)?);
                        let has_suspect = rules::has_suspect(rows, now)?;
                        Ok(WorkerAgenda {
                            has_work,
                            has_suspect,
                            next_wake,
                            next_notice: rows.next_notice()?,
                        })
                    })
                }

                fn load(&self) -> ResultFuture<'_, StoreLoad> {
                    self.read(|rows| rules::load(rows))
                }

                fn changes(&self) -> ResultFuture<'_, u64> {
                    Backend::changes(self)
                }

                fn status(&self) -> ResultFuture<'_, StoreStatus> {
                    Backend::status(self)
                }
            }

            impl$(<$param: $bound>)? BranchStore for $store {
                fn fork(&self, fork: ForkRequest) -> ResultFuture<'_, SessionId> {
                    self.write(move |rows| rules::fork(rows, fork))
                }

                fn rewind(
                    &self,
                    session: SessionId,
                    head: String,
                    to: Option<Seq>,
                    now: Millis,
                ) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::rewind(rows, session, &head, to, now))
                }

                fn delete(&self, session: SessionId, now: Millis) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::delete(rows, session, now))
                }

                fn forks(&self, session: SessionId) -> ResultFuture<'_, Vec<SessionId>> {
                    self.read(move |rows| rules::forks(rows, session))
                }

                fn settle(
                    &self,
                    call: CallId,
                    verdict: OutcomeVerdict,
                    now: Millis,
                ) -> ResultFuture<'_, SessionId> {
                    self.write(move |rows| rules::settle(rows, call, &verdict, now))
                }
            }

            impl$(<$param: $bound>)? ContentQueries for $store {
                fn blob(&self, hash: Hash) -> ResultFuture<'_, Vec<u8>> {
                    self.read(move |rows| rules::blob(rows, hash))
                }

                fn package(&self, turn: TurnId) -> ResultFuture<'_, Vec<u8>> {
                    self.read(move |rows| rules::package(rows, turn))
                }

                fn attached(
                    &self,
                    session: SessionId,
                    id: AttachmentId,
                    range: Range<u64>,
                ) -> ResultFuture<'_, Vec<u8>> {
                    self.read(move |rows| rules::attached(rows, session, id, range))
                }

                fn attachment(
                    &self,
                    session: SessionId,
                    id: AttachmentId,
                ) -> ResultFuture<'_, AttachmentView> {
                    self.read(move |rows| rules::attachment(rows, session, id))
                }

                fn attachments(
                    &self,
                    session: SessionId,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<AttachmentView>> {
                    self.read(move |rows| Ok(rules::attachments(rows, session, None, limit)?.items))
                }

                fn attachments_after(
                    &self,
                    session: SessionId,
                    after: Option<AttachmentId>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<AttachmentView, AttachmentId>> {
                    self.read(move |rows| rules::attachments(rows, session, after, limit))
                }

                fn said(&self, turn: TurnId) -> ResultFuture<'_, Option<PartialReplyText>> {
                    self.read(move |rows| rules::said(rows, turn))
                }

                fn value(&self, session: SessionId, name: String) -> ResultFuture<'_, Option<Value>> {
                    self.read(move |rows| rules::value(rows, session, &name))
                }

                fn value_names(
                    &self,
                    session: SessionId,
                    prefix: String,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<String>> {
                    self.read(move |rows| rules::value_names(rows, session, &prefix, limit))
                }

                fn secret(&self) -> ResultFuture<'_, [u8; 32]> {
                    self.read(|rows| rows.secret())
                }
            }

            impl$(<$param: $bound>)? ExternalContentStore for $store {
                fn sweeps(&self) -> ResultFuture<'_, SweepCounter> {
                    self.read(|rows| rows.sweeps())
                }

                fn unreferenced(&self, limit: usize) -> ResultFuture<'_, Vec<Hash>> {
                    self.read(move |rows| rules::unreferenced(rows, limit))
                }

                fn filter_unreferenced(&self, contents: Vec<Hash>) -> ResultFuture<'_, Vec<Hash>> {
                    self.read(move |rows| rules::filter_unreferenced(rows, contents))
                }

                fn mark_for_deletion(&self, condemn: DeletionRequest) -> ResultFuture<'_, Vec<Hash>> {
                    self.write(move |rows| rules::mark_for_deletion(rows, &condemn))
                }

                fn acquit(&self, condemn: DeletionRequest) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::acquit(rows, &condemn))
                }

                fn forget_deleted(&self, contents: Vec<Hash>, worker: WorkerId) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::forget_deleted(rows, &contents, worker))
                }
            }

            impl$(<$param: $bound>)? BudgetStore for $store {
                fn budgets(&self, limit: usize) -> ResultFuture<'_, Vec<BudgetAccountView>> {
                    self.read(move |rows| Ok(rules::budgets(rows, None, limit)?.items))
                }

                fn budgets_after(
                    &self,
                    after: Option<(OrgId, String)>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<BudgetAccountView, (OrgId, String)>> {
                    self.read(move |rows| rules::budgets(rows, after.as_ref(), limit))
                }

                fn budgets_are_set(&self) -> ResultFuture<'_, bool> {
                    self.read(|rows| rows.budgets_are_set())
                }

                fn awaited_budgets(&self, turn: TurnId) -> ResultFuture<'_, Vec<AwaitedBudget>> {
                    self.read(move |rows| rules::awaited_budgets(rows, turn))
                }

                fn open_reservations(&self, turn: TurnId) -> ResultFuture<'_, Vec<OpenReservation>> {
                    self.read(move |rows| rules::open_reservations(rows, turn))
                }

                fn set_budget(
                    &self,
                    purse: BudgetAccount,
                    budget: Option<Budget>,
                    now: Millis,
                ) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::set_budget(rows, &purse, budget, now))
                }
            }

            impl$(<$param: $bound>)? RateStore for $store {
                fn rates(&self, limit: usize) -> ResultFuture<'_, Vec<RateView>> {
                    self.read(move |rows| Ok(rules::rates(rows, None, limit)?.items))
                }

                fn rates_after(
                    &self,
                    after: Option<(OrgId, String)>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<RateView, (OrgId, String)>> {
                    self.read(move |rows| rules::rates(rows, after.as_ref(), limit))
                }
            }

            impl$(<$param: $bound>)? PaymentOutbox for $store {
                fn owed(&self, limit: usize) -> ResultFuture<'_, Vec<PendingPayment>> {
                    self.read(move |rows| rules::owed(rows, limit))
                }

                fn next_payment_due(&self) -> ResultFuture<'_, Option<Millis>> {
                    self.read(|rows| rules::next_payment_due(rows))
                }

                fn take_due_payments(
                    &self,
                    pauses: PaymentBackoff,
                    now: Millis,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<PendingPayment>> {
                    self.write(move |rows| rules::take_due_payments(rows, pauses, now, limit))
                }

                fn told(&self, turn: TurnId, payment: Payment, now: Millis) -> ResultFuture<'_, Option<Seq>> {
                    self.write(move |rows| rules::told(rows, turn, payment, now))
                }

                fn record_payment_failure(
                    &self,
                    turn: TurnId,
                    payment: ReplayKey,
                    failure: Failure,
                ) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::record_payment_failure(rows, turn, &payment, failure))
                }
            }

            impl$(<$param: $bound>)? SinkOutbox for $store {
                fn subscribe(
                    &self,
                    subscriptions: Vec<SinkSubscription>,
                    now: Millis,
                ) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::subscribe(rows, &subscriptions, now))
                }

                fn delivery_schedule(&self, sink: String, now: Millis) -> ResultFuture<'_, DeliverySchedule> {
                    self.read(move |rows| rules::delivery_schedule(rows, &sink, now))
                }

                fn collect(&self, collect: CollectRequest) -> ResultFuture<'_, Vec<DueDelivery>> {
                    self.write(move |rows| rules::collect(rows, &collect))
                }

                fn delivered(&self, attempt: DeliveryAttempt) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::delivered(rows, &attempt))
                }

                fn undelivered(
                    &self,
                    attempt: DeliveryAttempt,
                    failure: Failure,
                    again: Option<Millis>,
                ) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::undelivered(rows, &attempt, failure, again))
                }

                fn sinks(&self) -> ResultFuture<'_, Vec<SinkView>> {
                    self.read(|rows| rules::sinks(rows))
                }

                fn deliveries(&self, sink: String, limit: usize) -> ResultFuture<'_, Vec<DeliveryView>> {
                    self.read(move |rows| Ok(rules::deliveries(rows, &sink, None, limit)?.items))
                }

                fn deliveries_after(
                    &self,
                    sink: String,
                    after: Option<DeliveryPosition>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<DeliveryView, DeliveryPosition>> {
                    self.read(move |rows| rules::deliveries(rows, &sink, after, limit))
                }

                fn redeliver(
                    &self,
                    sink: String,
                    only: Option<DeliveryId>,
                    now: Millis,
                ) -> ResultFuture<'_, u64> {
                    self.write(move |rows| rules::redeliver(rows, &sink, only, now))
                }
            }

            impl$(<$param: $bound>)? ConfigStore for $store {
                fn put_config(
                    &self,
                    kind: ConfigKind,
                    name: String,
                    body: Value,
                    now: Millis,
                ) -> ResultFuture<'_, StoredConfig> {
                    self.write(move |rows| rules::put_config(rows, kind, &name, &body, now))
                }

                fn replace_config(
                    &self,
                    kind: ConfigKind,
                    name: String,
                    body: Value,
                    last: u32,
                    now: Millis,
                ) -> ResultFuture<'_, StoredConfig> {
                    self.write(move |rows| rules::replace_config(rows, kind, &name, &body, last, now))
                }

                fn delete_config(
                    &self,
                    kind: ConfigKind,
                    name: String,
                    last: Option<u32>,
                    now: Millis,
                ) -> ResultFuture<'_, StoredConfig> {
                    self.write(move |rows| rules::delete_config(rows, kind, &name, last, now))
                }

                fn config(&self, kind: ConfigKind, name: String) -> ResultFuture<'_, Option<StoredConfig>> {
                    self.read(move |rows| rules::config(rows, kind, &name))
                }

                fn configs(&self, kind: ConfigKind, limit: usize) -> ResultFuture<'_, Vec<StoredConfig>> {
                    self.read(move |rows| Ok(rules::configs(rows, kind, None, limit)?.items))
                }

                fn configs_after(
                    &self,
                    kind: ConfigKind,
                    after: Option<String>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<StoredConfig, String>> {
                    self.read(move |rows| rules::configs(rows, kind, after.as_deref(), limit))
                }

                fn config_versions(
                    &self,
                    kind: ConfigKind,
                    name: String,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<StoredConfig>> {
                    self.read(move |rows| Ok(rules::config_versions(rows, (kind, &name), None, limit)?.items))
                }

                fn config_versions_before(
                    &self,
                    kind: ConfigKind,
                    name: String,
                    before: Option<u32>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<StoredConfig, u32>> {
                    self.read(move |rows| rules::config_versions(rows, (kind, &name), before, limit))
                }
            }

            impl$(<$param: $bound>)? OrgStore for $store {
                fn create_org(&self, org: Org) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::create_org(rows, &org))
                }

                fn org(&self, id: OrgId) -> ResultFuture<'_, Org> {
                    self.read(move |rows| rules::org(rows, id))
                }

                fn org_by_name(&self, name: String) -> ResultFuture<'_, Org> {
                    self.read(move |rows| rules::org_by_name(rows, &name))
                }

                fn orgs(&self) -> ResultFuture<'_, Vec<Org>> {
                    self.read(|rows| rows.orgs(None, usize::MAX))
                }

                fn orgs_after(
                    &self,
                    after: Option<String>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<Org, String>> {
                    self.read(move |rows| rules::orgs_after(rows, after.as_deref(), limit))
                }

                fn create_key(&self, key: SealedApiKey, now: Millis) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::create_key(rows, key, now))
                }

                fn revoke_key(&self, id: KeyId, now: Millis) -> ResultFuture<'_, KeyView> {
                    self.write(move |rows| rules::revoke_key(rows, id, now))
                }

                fn keys(&self) -> ResultFuture<'_, Vec<KeyView>> {
                    self.read(|rows| Ok(rules::keys(rows, None, usize::MAX)?.items))
                }

                fn keys_after(
                    &self,
                    after: Option<KeyId>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<KeyView, KeyId>> {
                    self.read(move |rows| rules::keys(rows, after, limit))
                }

                fn authenticate(&self, key: ApiKey, now: Millis) -> ResultFuture<'_, Access> {
                    self.read(move |rows| rules::authenticate(rows, &key, now))
                }

                fn audit(&self, range: AuditRange) -> ResultFuture<'_, Vec<AuditRow>> {
                    self.read(move |rows| rules::audit(rows, range))
                }
            }

            impl$(<$param: $bound>)? VoteStore for $store {
                fn vote(&self, ballot: VoteRequest) -> ResultFuture<'_, VoteOutcome> {
                    self.write(move |rows| rules::vote(rows, ballot))
                }

                fn approval_progress(
                    &self,
                    turn: TurnId,
                    key: ReplayKey,
                ) -> ResultFuture<'_, ApprovalProgress> {
                    self.read(move |rows| rules::approval_progress(rows, turn, &key))
                }

                fn send_due_notices(
                    &self,
                    now: Millis,
                    reminders_most: u32,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<SentNotice>> {
                    self.write(move |rows| rules::send_due_notices(rows, now, reminders_most, limit))
                }

                fn session_grants(&self, session: SessionId) -> ResultFuture<'_, Vec<SessionGrant>> {
                    self.read(move |rows| rules::session_grants(rows, session))
                }

                fn grants(&self, limit: usize) -> ResultFuture<'_, Vec<SessionGrant>> {
                    self.read(move |rows| Ok(rules::grants(rows, None, limit)?.items))
                }

                fn grants_after(
                    &self,
                    after: Option<(Millis, GrantId)>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<SessionGrant, (Millis, GrantId)>> {
                    self.read(move |rows| rules::grants(rows, after, limit))
                }

                fn revoke_grant(&self, id: GrantId, now: Millis) -> ResultFuture<'_, SessionGrant> {
                    self.write(move |rows| rules::revoke_grant(rows, id, now))
                }
            }

            impl$(<$param: $bound>)? ArchiveStore for $store {
                fn outlines(&self, session: SessionId) -> ResultFuture<'_, Vec<SessionOutline>> {
                    self.read(move |rows| rules::outlines(rows, session))
                }

                fn export_records(
                    &self,
                    page: RecordPage,
                    known: BTreeSet<Hash>,
                ) -> ResultFuture<'_, ExportedRecords> {
                    self.read(move |rows| rules::export_records(rows, page, &known))
                }

                fn import(&self, import: ImportRequest) -> ResultFuture<'_, ImportResult> {
                    self.write(move |rows| rules::import(rows, import))
                }

                fn note_rerun(&self, rerun: RerunAudit) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::note_rerun(rows, rerun))
                }
            }

            impl$(<$param: $bound>)? MessageSearch for $store {
                fn find(&self, find: SearchQuery) -> ResultFuture<'_, Vec<MessageMatch>> {
                    self.read(move |rows| rules::find(rows, &find))
                }
            }

            impl$(<$param: $bound>)? Store for $store {
                fn serving(self: Arc<Self>, access: Access) -> Arc<dyn Store> {
                    Arc::new(ScopedStore::restrict(self, access))
                }
            }
        };
    };
}
