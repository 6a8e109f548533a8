//! Requests to a store as data, and the store's answers.
use crate::Fixture;
use futures_util::FutureExt;
use futures_util::future::join_all;
use outlast_ports::filed::Condemn;
use outlast_ports::outbox::{Attempt, Collect, Subscription};
use outlast_ports::page::Page;
use outlast_ports::search::Find;
use outlast_ports::sink::Moment;
use outlast_ports::store::{Accept, After, Commit, FeedCursor, Fork, Lease, Store, Taker, Target};
use outlast_vocab::budget::{Budget, Purse};
use outlast_vocab::effect::Place;
use outlast_vocab::id::{AttachmentId, CallId, DeliveryId, SessionId, TurnId, WorkerId};
use outlast_vocab::record::{NodeRef, Seq, Verdict};
use outlast_vocab::wait::{Resolution, WaitKind};
use outlast_vocab::words::Wanted;
use outlast_vocab::{Error, Failure, Hash, Kind, Millis, ReplayKey};
use std::fmt::Debug;
use std::panic::AssertUnwindSafe;

/// One request to a store.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Accept(Accept),
    Open(Target, Millis),
    Cancel(TurnId, String, Millis),
    Abort(TurnId, String, Millis),
    Resolve(TurnId, ReplayKey, Resolution, Millis),
    Claim(Taker, Millis, usize),
    Renew(Taker),
    Commit(Commit),
    HandBack(Lease, Millis),
    ClaimSuspect(Taker, Millis),
    BeginTrial(Lease),
    EndTrial(Lease),
    ReportHang(Lease),
    Fork(Fork),
    Rewind(SessionId, String, Option<Seq>, Millis),
    Delete(SessionId, Millis),
    Settle(CallId, Verdict, Millis),
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
    Said(TurnId),
    Sweeps,
    Left(usize),
    Condemn(Condemn),
    Acquit(Condemn),
    Forget(Vec<Hash>, WorkerId),
    Subscribe(Subscription, Millis),
    Collect(Collect),
    Delivered(Attempt),
    Undelivered(Attempt, Option<Millis>),
    Redeliver(String, Option<DeliveryId>, Millis),
    Outlook(String, Millis),
    Sinks,
    Deliveries(String, usize),
    Find(Wanted, Option<SessionId>, usize),
    SetBudget(Purse, Option<Budget>, Millis),
    Budgets(usize),
    Rates(usize),
    Value(SessionId, String),
    ValueNames(SessionId, String, usize),
    /// Checks that the secret is the same on a second read. Every store has a different secret.
    Secret,
}

/// The answer of a store.
pub(super) struct Answer {
    /// The name of the operation.
    pub(super) name: &'static str,
    /// `ok`, or the code of the error.
    pub(super) how: &'static str,
    /// The full answer as text.
    pub(super) said: String,
    /// The leases that the answer granted.
    pub(super) leases: Vec<Lease>,
    /// The positions of the records that were written.
    pub(super) written: Option<(SessionId, Vec<Place>)>,
    /// Whether the turn continues under the lease of the write.
    pub(super) goes_on: bool,
    /// The outputs that were collected.
    pub(super) told: Vec<(TurnId, Moment)>,
}

impl Answer {
    fn new(name: &'static str, how: &'static str, said: String) -> Self {
        Self { name, how, said, leases: Vec::new(), written: None, goes_on: false, told: Vec::new() }
    }

    fn of<T: Debug>(name: &'static str, answer: Result<T, Error>) -> Self {
        Self::learning(name, answer, |_, _| ())
    }

    fn learning<T: Debug>(
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
        self.how == PANICKED || broken.iter().any(|kind| kind.code() == self.how)
    }
}

/// The result of a request that succeeds.
pub(super) const OK: &str = "ok";

const PANICKED: &str = "panicked";

/// Sends all requests to a store concurrently, in this order.
pub(super) fn put(on: &dyn Fixture, asks: &[Ask]) -> Vec<Answer> {
    let mut answers = Vec::new();
    on.run(Box::pin(async {
        let store = on.store();
        let all = asks.iter().map(|ask| {
            let answer = AssertUnwindSafe(answer(on, store, ask.clone())).catch_unwind();
            answer.map(|answer| {
                answer.unwrap_or_else(|panic| {
                    let said = panic.downcast_ref::<String>().cloned();
                    let said = said.or_else(|| panic.downcast_ref().map(|said: &&str| (*said).to_owned()));
                    Answer::new(PANICKED, PANICKED, format!("panicked: {said:?}"))
                })
            })
        });
        answers = join_all(all).await;
    }));
    answers
}

async fn answer(on: &dyn Fixture, store: &dyn Store, ask: Ask) -> Answer {
    match ask {
        Ask::Accept(accept) => Answer::learning("accept", store.accept(accept).await, |accepted, answer| {
            answer.leases.extend(accepted.work.map(|work| work.lease));
            answer.written = Some((accepted.session, vec![accepted.place]));
        }),
        Ask::Open(target, now) => Answer::of("open", store.open(target, now).await),
        Ask::Cancel(turn, reason, now) => Answer::of("cancel", store.cancel(turn, reason, now).await),
        Ask::Abort(turn, reason, now) => Answer::of("abort", store.abort(turn, reason, now).await),
        Ask::Resolve(turn, key, resolution, now) => {
            Answer::of("resolve", store.resolve(turn, key, resolution, now).await)
        }
        Ask::Claim(taker, now, limit) => {
            Answer::learning("claim", store.claim(taker, now, limit).await, |works, answer| {
                answer.leases.extend(works.into_iter().map(|work| work.lease));
            })
        }
        Ask::Renew(taker) => Answer::of("renew", store.renew(taker).await),
        Ask::Commit(commit) => {
            let session = commit.lease.session;
            Answer::learning("commit", store.commit(commit).await, |receipt, answer| {
                answer.written = Some((session, receipt.places));
                match receipt.after {
                    After::GoesOn | After::Ready => answer.goes_on = true,
                    After::Next(work) => answer.leases.push(work.lease),
                    After::Parked | After::Ended => {}
                }
            })
        }
        Ask::HandBack(lease, now) => Answer::of("hand_back", store.hand_back(lease, now).await),
        Ask::ClaimSuspect(taker, due) => {
            let old_enough = std::time::Duration::from_hours(1);
            let claimed = store.claim_suspect(taker, old_enough, due).await;
            Answer::learning("claim_suspect", claimed, |work, answer| {
                answer.leases.extend(work.map(|work| work.lease));
            })
        }
        Ask::BeginTrial(lease) => Answer::of("begin_trial", store.begin_trial(lease).await),
        Ask::EndTrial(lease) => Answer::of("end_trial", store.end_trial(lease).await),
        Ask::ReportHang(lease) => Answer::of("report_hang", store.report_hang(lease).await),
        Ask::Fork(fork) => Answer::of("fork", store.fork(fork).await),
        Ask::Rewind(session, head, to, now) => {
            Answer::of("rewind", store.rewind(session, head, to, now).await)
        }
        Ask::Delete(session, now) => Answer::of("delete", store.delete(session, now).await),
        Ask::Settle(call, verdict, now) => Answer::of("settle", store.settle(call, verdict, now).await),
        Ask::Bury(worker) => {
            on.bury(worker);
            Answer::of("bury", Ok(()))
        }
        Ask::Subscribe(subscription, now) => {
            Answer::of("subscribe", store.subscribe(vec![subscription], now).await)
        }
        Ask::Collect(collect) => Answer::learning("collect", store.collect(collect).await, |due, learnt| {
            learnt.told = due.iter().map(|due| (due.output.turn, due.output.moment)).collect();
        }),
        Ask::Delivered(attempt) => Answer::of("delivered", store.delivered(attempt).await),
        Ask::Undelivered(attempt, again) => {
            let failure = Failure::new(Kind::DeliveryFailed, "no");
            Answer::of("undelivered", store.undelivered(attempt, failure, again).await)
        }
        Ask::Redeliver(sink, only, now) => Answer::of("redeliver", store.redeliver(sink, only, now).await),
        ask => look(store, ask).await,
    }
}

/// Sends a read-only request.
async fn look(store: &dyn Store, ask: Ask) -> Answer {
    match ask {
        Ask::Records(session, after, limit) => {
            Answer::of("records", store.records(session, after, limit).await)
        }
        Ask::TurnRecords(turn) => Answer::of("turn_records", store.turn_records(turn).await),
        Ask::Feed(skip, limit) => Answer::of("feed", feed(store, skip, limit).await),
        Ask::History(node, bytes) => Answer::of("history", store.history(node, bytes).await),
        Ask::Joinable(session) => Answer::of("joinable", store.joinable(session).await),
        Ask::Verify(session) => Answer::of("verify", store.verify(session).await),
        Ask::Sessions(before, limit) => Answer::of("sessions", store.sessions(before, limit).await),
        Ask::Session(id) => Answer::of("session", store.session(id).await),
        Ask::SessionByKey(key) => Answer::of("session_by_key", store.session_by_key(key).await),
        Ask::Turn(id) => Answer::of("turn", store.turn(id).await),
        Ask::Turns(session, from, limit) => Answer::of("turns", store.turns(session, from, limit).await),
        Ask::Unknown(limit) => {
            Answer::of("unknown", walked(limit, |after, limit| store.unknown_after(after, limit)).await)
        }
        Ask::Waiting(kind, limit) => Answer::of("waiting", store.waiting(kind, limit).await),
        Ask::CancelReason(turn) => Answer::of("cancel_reason", store.cancel_reason(turn).await),
        Ask::HasWork(worker, now) => Answer::of("has_work", store.has_work(worker, now).await),
        Ask::NextWake => Answer::of("next_wake", store.next_wake().await),
        Ask::Agenda(worker, now) => Answer::of("agenda", store.agenda(worker, now).await),
        Ask::Blob(hash) => Answer::of("blob", store.blob(hash).await),
        Ask::Attachment(session, id) => Answer::of("attachment", store.attachment(session, id).await),
        Ask::Attachments(session, limit) => {
            let page = |after, limit| store.attachments_after(session, after, limit);
            Answer::of("attachments", walked(limit, page).await)
        }
        Ask::Sweeps => Answer::of("sweeps", store.sweeps().await),
        Ask::Left(limit) => Answer::of("left", store.left(limit).await),
        Ask::Condemn(condemn) => Answer::of("condemn", store.condemn(condemn).await),
        Ask::Acquit(condemn) => Answer::of("acquit", store.acquit(condemn).await),
        Ask::Forget(contents, worker) => Answer::of("forget", store.forget(contents, worker).await),
        Ask::Outlook(sink, now) => Answer::of("outlook", store.outlook(sink, now).await),
        Ask::Sinks => Answer::of("sinks", store.sinks().await),
        Ask::SetBudget(purse, budget, now) => {
            Answer::of("set_budget", store.set_budget(purse, budget, now).await)
        }
        Ask::Rates(limit) => {
            Answer::of("rates", walked(limit, |after, limit| store.rates_after(after, limit)).await)
        }
        Ask::Budgets(limit) => {
            Answer::of("budgets", walked(limit, |after, limit| store.budgets_after(after, limit)).await)
        }
        Ask::Deliveries(sink, limit) => {
            let page = |after, limit| store.deliveries_after(sink.clone(), after, limit);
            Answer::of("deliveries", walked(limit, page).await)
        }
        Ask::Said(turn) => Answer::of("said", store.said(turn).await),
        Ask::Find(wanted, session, limit) => Answer::of("find", find(store, wanted, session, limit).await),
        Ask::Value(session, name) => Answer::of("value", store.value(session, name).await),
        Ask::ValueNames(session, prefix, limit) => {
            Answer::of("value_names", store.value_names(session, prefix, limit).await)
        }
        Ask::Secret => Answer::of("secret", same_secret(store).await),
        write => unreachable!("{write:?} is answered before what only reads"),
    }
}

/// Reads a page of this size, and everything after it. Keys differ between stores, so they are not compared.
async fn walked<'a, T, K>(
    limit: usize,
    page: impl Fn(Option<K>, usize) -> outlast_ports::Answer<'a, Page<T, K>>,
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
    wanted: Wanted,
    session: Option<SessionId>,
    limit: usize,
) -> Result<Vec<(SessionId, Seq, String)>, Error> {
    let found = store.find(Find { wanted, session, before: None, limit }).await?;
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
