//! Requests to a store as data, and the store's answers.
use crate::Fixture;
use futures_util::FutureExt;
use futures_util::future::join_all;
use outlast_ports::attachment_upload::DeletionRequest;
use outlast_ports::branches::ForkRequest;
use outlast_ports::inbox::{AcceptRequest, SessionTarget};
use outlast_ports::journal::FeedCursor;
use outlast_ports::outbox::{CollectRequest, DeliveryAttempt, SinkSubscription};
use outlast_ports::page::Page;
use outlast_ports::search::SearchQuery;
use outlast_ports::sink::OutputPosition;
use outlast_ports::store::Store;
use outlast_ports::turns::{Commit, Lease, LeaseRequest, TurnAfterCommit};
use outlast_vocab::budget::{Budget, BudgetAccount};
use outlast_vocab::effect::JournalPosition;
use outlast_vocab::id::{AttachmentId, CallId, DeliveryId, SessionId, TurnId, WorkerId};
use outlast_vocab::record::{NodeRef, OutcomeVerdict, Seq};
use outlast_vocab::search_terms::SearchTerms;
use outlast_vocab::wait::{Resolution, WaitKind};
use outlast_vocab::{Error, Failure, Hash, Kind, Millis, ReplayKey};
use std::fmt::Debug;
use std::panic::AssertUnwindSafe;

/// One request to a store.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "most requests of a run are inputs and commits, the large ones"
)]
pub(super) enum StoreRequest {
    Accept(AcceptRequest),
    Open(SessionTarget, Millis),
    Cancel(TurnId, String, Millis),
    Abort(TurnId, String, Millis),
    Resolve(TurnId, ReplayKey, Resolution, Millis),
    Claim(LeaseRequest, Millis, usize),
    Renew(LeaseRequest),
    Commit(Commit),
    HandBack(Lease, Millis),
    ClaimSuspect(LeaseRequest, Millis),
    BeginTrial(Lease),
    EndTrial(Lease),
    ReportHang(Lease),
    Fork(ForkRequest),
    Rewind(SessionId, String, Option<Seq>, Millis),
    Delete(SessionId, Millis),
    Settle(CallId, OutcomeVerdict, Millis),
    /// Marks the worker as dead.
    Bury(WorkerId),
    Records(SessionId, Seq, usize),
    TurnRecords(TurnId),
    /// Reads the feed after this many records. Cursors differ between stores, so they are not compared.
    Feed(usize, usize),
    History(NodeRef, usize),
    Joinable(SessionId),
    Verify(SessionId),
    Sessions(Option<SessionId>, usize),
    Session(SessionId),
    SessionByKey(String),
    Turn(TurnId),
    Turns(SessionId, u32, usize),
    Unknown(usize),
    Waiting(WaitKind, usize),
    CancelReason(TurnId),
    HasWork(WorkerId, Millis),
    NextWake,
    Agenda(WorkerId, Millis),
    Blob(Hash),
    Attachment(SessionId, AttachmentId),
    Attachments(SessionId, usize),
    PartialReply(TurnId),
    Sweeps,
    Left(usize),
    MarkForDeletion(DeletionRequest),
    UnmarkForDeletion(DeletionRequest),
    Forget(Vec<Hash>, WorkerId),
    Subscribe(SinkSubscription, Millis),
    Collect(CollectRequest),
    Delivered(DeliveryAttempt),
    Undelivered(DeliveryAttempt, Option<Millis>),
    Redeliver(String, Option<DeliveryId>, Millis),
    Outlook(String, Millis),
    Sinks,
    Deliveries(String, usize),
    Find(SearchTerms, Option<SessionId>, usize),
    SetBudget(BudgetAccount, Option<Budget>, Millis),
    Budgets(usize),
    Rates(usize),
    Value(SessionId, String),
    ValueNames(SessionId, String, usize),
    /// Checks that the secret is the same on a second read. Every store has a different secret.
    Secret,
}

/// The answer of a store.
pub(super) struct StoreAnswer {
    /// The name of the operation.
    pub(super) name: &'static str,
    /// `ok`, or the code of the error.
    pub(super) result_code: &'static str,
    /// The full answer as text.
    pub(super) text: String,
    /// The leases that the answer granted.
    pub(super) leases: Vec<Lease>,
    /// The positions of the records that were written.
    pub(super) written: Option<(SessionId, Vec<JournalPosition>)>,
    /// Whether the turn continues under the lease of the write.
    pub(super) turn_continues: bool,
    /// The outputs that were collected.
    pub(super) collected_outputs: Vec<(TurnId, OutputPosition)>,
}

impl StoreAnswer {
    fn new(name: &'static str, result_code: &'static str, text: String) -> Self {
        Self {
            name,
            result_code,
            text,
            leases: Vec::new(),
            written: None,
            turn_continues: false,
            collected_outputs: Vec::new(),
        }
    }

    fn of<T: Debug>(name: &'static str, answer: Result<T, Error>) -> Self {
        Self::with_learned(name, answer, |_, _| ())
    }

    fn with_learned<T: Debug>(
        name: &'static str,
        answer: Result<T, Error>,
        learn: impl FnOnce(T, &mut Self),
    ) -> Self {
        match answer {
            Ok(value) => {
                let mut answer = Self::new(name, OK, format!("{value:?}"));
                learn(value, &mut answer);
                answer
            }
            Err(error) => Self::new(name, error.kind().code(), error.to_string()),
        }
    }

    /// Returns whether no store may ever give this answer.
    pub(super) fn is_broken(&self) -> bool {
        let broken = [Kind::Internal, Kind::StoreCorrupt, Kind::StoreFailed, Kind::RecordCorrupt];
        self.result_code == PANICKED || broken.iter().any(|kind| kind.code() == self.result_code)
    }
}

/// The result of a request that succeeds.
pub(super) const OK: &str = "ok";

const PANICKED: &str = "panicked";

/// Sends all requests to a store concurrently, in this order.
pub(super) fn send_all(on: &dyn Fixture, asks: &[StoreRequest]) -> Vec<StoreAnswer> {
    let mut answers = Vec::new();
    on.run(Box::pin(async {
        let store = on.store();
        let all = asks.iter().map(|ask| {
            let answer = AssertUnwindSafe(answer(on, store, ask.clone())).catch_unwind();
            answer.map(|answer| {
                answer.unwrap_or_else(|panic| {
                    let said = panic.downcast_ref::<String>().cloned();
                    let said = said.or_else(|| panic.downcast_ref().map(|said: &&str| (*said).to_owned()));
                    StoreAnswer::new(PANICKED, PANICKED, format!("panicked: {said:?}"))
                })
            })
        });
        answers = join_all(all).await;
    }));
    answers
}

async fn answer(on: &dyn Fixture, store: &dyn Store, ask: StoreRequest) -> StoreAnswer {
    match ask {
        StoreRequest::Accept(accept) => {
            StoreAnswer::with_learned("accept", store.accept(accept).await, |accepted, answer| {
                answer.leases.extend(accepted.work.map(|work| work.lease));
                answer.written = Some((accepted.session, vec![accepted.place]));
            })
        }
        StoreRequest::Open(target, now) => StoreAnswer::of("open", store.open(target, now).await),
        StoreRequest::Cancel(turn, reason, now) => {
            StoreAnswer::of("cancel", store.cancel(turn, reason, now).await)
        }
        StoreRequest::Abort(turn, reason, now) => {
            StoreAnswer::of("abort", store.abort(turn, reason, now).await)
        }
        StoreRequest::Resolve(turn, key, resolution, now) => {
            StoreAnswer::of("resolve", store.resolve(turn, key, resolution, now).await)
        }
        StoreRequest::Claim(lease_request, now, limit) => StoreAnswer::with_learned(
            "claim",
            store.claim(lease_request, now, limit).await,
            |works, answer| {
                answer.leases.extend(works.into_iter().map(|work| work.lease));
            },
        ),
        StoreRequest::Renew(lease_request) => StoreAnswer::of("renew", store.renew(lease_request).await),
        StoreRequest::Commit(commit) => {
            let session = commit.lease.session;
            StoreAnswer::with_learned("commit", store.commit(commit).await, |receipt, answer| {
                answer.written = Some((session, receipt.places));
                match receipt.after {
                    TurnAfterCommit::Continues | TurnAfterCommit::Ready => answer.turn_continues = true,
                    TurnAfterCommit::Next(work) => answer.leases.push(work.lease),
                    TurnAfterCommit::Parked | TurnAfterCommit::Ended => {}
                }
            })
        }
        StoreRequest::HandBack(lease, now) => {
            StoreAnswer::of("hand_back", store.release_lease(lease, now).await)
        }
        StoreRequest::ClaimSuspect(lease_request, due) => {
            let old_enough = std::time::Duration::from_hours(1);
            let claimed = store.claim_suspect(lease_request, old_enough, due).await;
            StoreAnswer::with_learned("claim_suspect", claimed, |work, answer| {
                answer.leases.extend(work.map(|work| work.lease));
            })
        }
        StoreRequest::BeginTrial(lease) => StoreAnswer::of("begin_trial", store.begin_trial(lease).await),
        StoreRequest::EndTrial(lease) => StoreAnswer::of("end_trial", store.end_trial(lease).await),
        StoreRequest::ReportHang(lease) => StoreAnswer::of("report_hang", store.report_hang(lease).await),
        StoreRequest::Fork(fork) => StoreAnswer::of("fork", store.fork(fork).await),
        StoreRequest::Rewind(session, head, to, now) => {
            StoreAnswer::of("rewind", store.rewind(session, head, to, now).await)
        }
        StoreRequest::Delete(session, now) => StoreAnswer::of("delete", store.delete(session, now).await),
        StoreRequest::Settle(call, verdict, now) => {
            StoreAnswer::of("settle", store.settle(call, verdict, now).await)
        }
        StoreRequest::Bury(worker) => {
            on.bury(worker);
            StoreAnswer::of("bury", Ok(()))
        }
        StoreRequest::Subscribe(subscription, now) => {
            StoreAnswer::of("subscribe", store.subscribe(vec![subscription], now).await)
        }
        StoreRequest::Collect(collect) => {
            StoreAnswer::with_learned("collect", store.collect(collect).await, |due, learnt| {
                learnt.collected_outputs =
                    due.iter().map(|due| (due.output.turn, due.output.position)).collect();
            })
        }
        StoreRequest::Delivered(attempt) => StoreAnswer::of("delivered", store.delivered(attempt).await),
        StoreRequest::Undelivered(attempt, again) => {
            let failure = Failure::new(Kind::DeliveryFailed, "no");
            StoreAnswer::of("undelivered", store.undelivered(attempt, failure, again).await)
        }
        StoreRequest::Redeliver(sink, only, now) => {
            StoreAnswer::of("redeliver", store.redeliver(sink, only, now).await)
        }
        ask => send_read(store, ask).await,
    }
}

/// Sends a read-only request.
async fn send_read(store: &dyn Store, ask: StoreRequest) -> StoreAnswer {
    match ask {
        StoreRequest::Records(session, after, limit) => {
            StoreAnswer::of("records", store.records(session, after, limit).await)
        }
        StoreRequest::TurnRecords(turn) => StoreAnswer::of("turn_records", store.turn_records(turn).await),
        StoreRequest::Feed(skip, limit) => StoreAnswer::of("feed", feed(store, skip, limit).await),
        StoreRequest::History(node, bytes) => StoreAnswer::of("history", store.history(node, bytes).await),
        StoreRequest::Joinable(session) => StoreAnswer::of("joinable", store.joinable(session).await),
        StoreRequest::Verify(session) => StoreAnswer::of("verify", store.verify(session).await),
        StoreRequest::Sessions(before, limit) => {
            StoreAnswer::of("sessions", store.sessions(before, limit).await)
        }
        StoreRequest::Session(id) => StoreAnswer::of("session", store.session(id).await),
        StoreRequest::SessionByKey(key) => StoreAnswer::of("session_by_key", store.session_by_key(key).await),
        StoreRequest::Turn(id) => StoreAnswer::of("turn", store.turn(id).await),
        StoreRequest::Turns(session, from, limit) => {
            StoreAnswer::of("turns", store.turns(session, from, limit).await)
        }
        StoreRequest::Unknown(limit) => StoreAnswer::of(
            "unknown",
            read_all_pages(limit, |after, limit| store.unknown_after(after, limit)).await,
        ),
        StoreRequest::Waiting(kind, limit) => StoreAnswer::of("waiting", store.waiting(kind, limit).await),
        StoreRequest::CancelReason(turn) => StoreAnswer::of("cancel_reason", store.cancel_reason(turn).await),
        StoreRequest::HasWork(worker, now) => StoreAnswer::of("has_work", store.has_work(worker, now).await),
        StoreRequest::NextWake => StoreAnswer::of("next_wake", store.next_wake().await),
        StoreRequest::Agenda(worker, now) => StoreAnswer::of("agenda", store.agenda(worker, now).await),
        StoreRequest::Blob(hash) => StoreAnswer::of("blob", store.blob(hash).await),
        StoreRequest::Attachment(session, id) => {
            StoreAnswer::of("attachment", store.attachment(session, id).await)
        }
        StoreRequest::Attachments(session, limit) => {
            let page = |after, limit| store.attachments_after(session, after, limit);
            StoreAnswer::of("attachments", read_all_pages(limit, page).await)
        }
        StoreRequest::Sweeps => StoreAnswer::of("sweeps", store.sweeps().await),
        StoreRequest::Left(limit) => StoreAnswer::of("left", store.unreferenced(limit).await),
        StoreRequest::MarkForDeletion(request) => {
            StoreAnswer::of("mark_for_deletion", store.mark_for_deletion(request).await)
        }
        StoreRequest::UnmarkForDeletion(request) => {
            StoreAnswer::of("unmark_for_deletion", store.unmark_for_deletion(request).await)
        }
        StoreRequest::Forget(contents, worker) => {
            StoreAnswer::of("forget", store.forget_deleted(contents, worker).await)
        }
        StoreRequest::Outlook(sink, now) => {
            StoreAnswer::of("outlook", store.delivery_schedule(sink, now).await)
        }
        StoreRequest::Sinks => StoreAnswer::of("sinks", store.sinks().await),
        StoreRequest::SetBudget(account, budget, now) => {
            StoreAnswer::of("set_budget", store.set_budget(account, budget, now).await)
        }
        StoreRequest::Rates(limit) => StoreAnswer::of(
            "rates",
            read_all_pages(limit, |after, limit| store.rates_after(after, limit)).await,
        ),
        StoreRequest::Budgets(limit) => StoreAnswer::of(
            "budgets",
            read_all_pages(limit, |after, limit| store.budgets_after(after, limit)).await,
        ),
        StoreRequest::Deliveries(sink, limit) => {
            let page = |after, limit| store.deliveries_after(sink.clone(), after, limit);
            StoreAnswer::of("deliveries", read_all_pages(limit, page).await)
        }
        StoreRequest::PartialReply(turn) => StoreAnswer::of("partial_reply", store.partial_reply(turn).await),
        StoreRequest::Find(wanted, session, limit) => {
            StoreAnswer::of("find", find(store, wanted, session, limit).await)
        }
        StoreRequest::Value(session, name) => StoreAnswer::of("value", store.value(session, name).await),
        StoreRequest::ValueNames(session, prefix, limit) => {
            StoreAnswer::of("value_names", store.value_names(session, prefix, limit).await)
        }
        StoreRequest::Secret => StoreAnswer::of("secret", same_secret(store).await),
        write => unreachable!("{write:?} is answered before what only reads"),
    }
}

/// Reads a page of this size, and everything after it. Keys differ between stores, so they are not compared.
async fn read_all_pages<'a, T, K>(
    limit: usize,
    page: impl Fn(Option<K>, usize) -> outlast_ports::ResultFuture<'a, Page<T, K>>,
) -> Result<Vec<T>, Error> {
    let Page { mut items, next } = page(None, limit.max(1)).await?;
    if next.is_some() {
        items.extend(page(next, usize::MAX).await?.items);
    }
    Ok(items)
}

/// Returns the messages with these words, without positions. Checks that the positions decrease.
async fn find(
    store: &dyn Store,
    wanted: SearchTerms,
    session: Option<SessionId>,
    limit: usize,
) -> Result<Vec<(SessionId, Seq, String)>, Error> {
    let found = store.find(SearchQuery { terms: wanted, session, before: None, limit }).await?;
    assert!(found.is_sorted_by(|one, next| one.position > next.position), "the newest is the first");
    Ok(found.into_iter().map(|found| (found.session, found.seq, found.text)).collect())
}

/// Returns the feed after its first records, without cursors. Checks that the cursors increase.
async fn feed(store: &dyn Store, skip: usize, limit: usize) -> Result<impl Debug, Error> {
    let before = store.feed(FeedCursor(0), skip).await?;
    let after = before.last().map_or(FeedCursor(0), |record| record.cursor);
    let read = store.feed(after, limit).await?;
    let cursors: Vec<FeedCursor> = before.iter().chain(&read).map(|record| record.cursor).collect();
    assert!(cursors.is_sorted_by(|a, b| a < b), "the cursors of the feed rise: {cursors:?}");
    Ok(read.into_iter().map(|record| (record.session, record.record)).collect::<Vec<_>>())
}

async fn same_secret(store: &dyn Store) -> Result<bool, Error> {
    Ok(store.secret().await? == store.secret().await?)
}
