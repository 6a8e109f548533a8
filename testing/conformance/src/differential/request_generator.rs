//! Draws the next requests: mostly valid requests of workers and clients, and sometimes invalid ones.
use super::commit_generator;
use super::known_ids::KnownIds;
use super::seeded_random::SeededRandom;
use super::store_request::StoreRequest;
use super::value_generators::{
    INPUT_KEYS, LIMITS, LONGEST, PREFIXES, SESSION_KEYS, amount, blob, budget, call, contents, filed, head,
    later, metering, node, resolution, seq, session, sink, taker, text, turn, upload, value_name, verdict,
    wait_key, worker,
};
use crate::store_under_test::ALL;
use outlast_ports::attachment_upload::DeletionRequest;
use outlast_ports::budget::{FirstCallReservation, PriceKnowledge};
use outlast_ports::outbox::{CollectRequest, DeliveryAttempt, FeedStart, SinkSubscription};
use outlast_ports::sink::{OutputPosition, SinkTopic};
use outlast_ports::store::{AcceptRequest, ForkRequest, ForkTo, LeaseRequest, SessionTarget};
use outlast_vocab::budget::BudgetAccount;
use outlast_vocab::id::{OrgId, SessionId, TurnId, WorkerId};
use outlast_vocab::message::Part;
use outlast_vocab::record::{InputDelivery, NodeRef, Seq};
use outlast_vocab::search_terms::SearchTerms;
use outlast_vocab::wait::WaitKind;
use outlast_vocab::{Hash, Millis};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// Draws the next operation: one request, or several simultaneous writes.
pub(super) fn draw_requests(known: &mut KnownIds, dice: &mut SeededRandom) -> Vec<StoreRequest> {
    if dice.percent(50) {
        known.now = Millis(known.now.0 + dice.below(known.mood.step_ms_max));
    }
    match dice.below(100) {
        0 => vec![bury(known, dice)],
        1..=20 => vec![draw_read(known, dice)],
        21..=30 => (0..2 + dice.below(3)).map(|_| write(known, dice)).collect(),
        _ => vec![write(known, dice)],
    }
}

/// Claims at later and later times, by a worker that keeps its leases.
pub(super) fn claims_until_nothing_is_left(known: &KnownIds) -> impl Iterator<Item = StoreRequest> + use<> {
    let taker = LeaseRequest { worker: WorkerId::from_u128(2), until: Millis(u64::MAX) };
    let now = known.now.0;
    // The steps are so large that several leases expire in between.
    (0..=LONGEST / 500).map(move |step| StoreRequest::Claim(taker, Millis(now + step * 500), ALL))
}

/// Draws one request.
type RequestGenerator = fn(&mut KnownIds, &mut SeededRandom) -> StoreRequest;

/// The writes with their weights. A mood multiplies the weights.
pub(super) const WRITES: &[(u64, RequestGenerator)] = &[
    (22, |known, dice| StoreRequest::Accept(accept(known, dice))),
    (32, |known, dice| match commit_generator::draw(known, dice) {
        Some(commit) => StoreRequest::Commit(commit),
        // Without a lease, nothing can be committed, so an input is needed first.
        None => StoreRequest::Accept(accept(known, dice)),
    }),
    (2, |known, dice| {
        let agent = BudgetAccount::Agent("clerk".to_owned());
        let purse = match dice.below(4) {
            0 => BudgetAccount::Turn(turn(known, dice)),
            1 => BudgetAccount::Session(session(known, dice)),
            2 => BudgetAccount::Org(OrgId::from_u128(0)),
            _ => agent,
        };
        StoreRequest::SetBudget(purse, dice.percent(70).then(|| budget(dice)), known.now)
    }),
    (7, |known, dice| StoreRequest::Claim(taker(known, dice), known.now, dice.one_of(LIMITS))),
    (3, |known, dice| StoreRequest::Open(target(known, dice), known.now)),
    (5, renew),
    (3, |known, dice| match commit_generator::lease(known, dice) {
        Some(lease) => StoreRequest::HandBack(lease, known.now),
        None => StoreRequest::Accept(accept(known, dice)),
    }),
    (2, |known, dice| StoreRequest::ClaimSuspect(taker(known, dice), Millis(known.now.0 + 1_000_000))),
    (2, |known, dice| match commit_generator::lease(known, dice) {
        Some(lease) => match dice.below(3) {
            0 => StoreRequest::BeginTrial(lease),
            1 => StoreRequest::EndTrial(lease),
            _ => StoreRequest::ReportHang(lease),
        },
        None => StoreRequest::Accept(accept(known, dice)),
    }),
    (8, |known, dice| {
        StoreRequest::Resolve(turn(known, dice), wait_key(dice), resolution(known, dice), known.now)
    }),
    (4, |known, dice| {
        StoreRequest::Cancel(turn(known, dice), dice.one_of(&["enough", "stop"]).to_owned(), known.now)
    }),
    (1, |known, dice| StoreRequest::Abort(turn(known, dice), "stop".to_owned(), known.now)),
    (5, |known, dice| StoreRequest::Fork(fork(known, dice))),
    (3, rewind),
    (1, |known, dice| StoreRequest::Delete(session(known, dice), known.now)),
    (1, condemn),
    (1, |known, dice| StoreRequest::Forget(contents(dice), worker(known, dice))),
    (3, deliver),
    (4, |known, dice| StoreRequest::Delete(node(known, dice).session, known.now)),
    (5, |known, dice| StoreRequest::Settle(call(known, dice), verdict(known, dice), known.now)),
];

fn write(known: &mut KnownIds, dice: &mut SeededRandom) -> StoreRequest {
    let mut at = dice.below(known.mood.writes.iter().sum());
    for ((_, draw), weight) in WRITES.iter().zip(&known.mood.writes) {
        if at < *weight {
            return draw(known, dice);
        }
        at -= weight;
    }
    unreachable!("the number is below the sum of the weights")
}

fn renew(known: &mut KnownIds, dice: &mut SeededRandom) -> StoreRequest {
    // Mostly by a worker that has a lease.
    let holder = dice.recent(&known.leases).filter(|_| dice.percent(80)).map(|lease| lease.worker);
    let taker = taker(known, dice);
    StoreRequest::Renew(LeaseRequest { worker: holder.unwrap_or(taker.worker), ..taker })
}

fn condemn(known: &mut KnownIds, dice: &mut SeededRandom) -> StoreRequest {
    let (contents, worker, now) = (contents(dice), worker(known, dice), known.now);
    let condemn = DeletionRequest { contents, worker, now, lasts: Duration::from_millis(50) };
    if dice.percent(20) { StoreRequest::Acquit(condemn) } else { StoreRequest::Condemn(condemn) }
}

/// Draws a request of a worker that delivers outputs.
fn deliver(known: &mut KnownIds, dice: &mut SeededRandom) -> StoreRequest {
    let name = sink(dice);
    match dice.below(10) {
        0 => StoreRequest::Redeliver(name, None, known.now),
        1..=2 => StoreRequest::Subscribe(subscription(name, dice), known.now),
        3..=4 => StoreRequest::Delivered(attempt(name, known, dice)),
        5..=6 => {
            let again = dice.percent(70).then(|| later(known, dice));
            StoreRequest::Undelivered(attempt(name, known, dice), again)
        }
        _ => {
            let LeaseRequest { worker, until } = taker(known, dice);
            let (now, limit) = (known.now, dice.one_of(LIMITS));
            StoreRequest::Collect(CollectRequest {
                subscription: subscription(name, dice),
                worker,
                now,
                until,
                limit,
                attempts: 2,
            })
        }
    }
}

fn subscription(name: String, dice: &mut SeededRandom) -> SinkSubscription {
    let ends = dice.percent(20).then(|| vec!["answered".to_owned(), "cancelled".to_owned()]);
    let on = if dice.percent(30) { SinkTopic::ALL.into() } else { BTreeSet::from([SinkTopic::TurnEnded]) };
    SinkSubscription { name, on, ends, begins: dice.one_of(&[FeedStart::Now, FeedStart::Beginning]) }
}

fn attempt(sink: String, known: &KnownIds, dice: &mut SeededRandom) -> DeliveryAttempt {
    let (turn, moment) = match dice.recent(&known.collected_outputs).filter(|_| dice.percent(80)) {
        Some(told) => told,
        None => (turn(known, dice), OutputPosition { seq: Seq(2), nth: 0 }),
    };
    DeliveryAttempt { sink, turn, position: moment, attempt: dice.one_of(&[1, 1, 1, 2, 3]) }
}

fn rewind(known: &mut KnownIds, dice: &mut SeededRandom) -> StoreRequest {
    let NodeRef { session, seq } = node(known, dice);
    let to = dice.percent(80).then_some(seq);
    StoreRequest::Rewind(session, head(dice), to, known.now)
}

fn draw_read(known: &mut KnownIds, dice: &mut SeededRandom) -> StoreRequest {
    let limit = dice.one_of(LIMITS);
    match dice.below(29) {
        0 => StoreRequest::Records(session(known, dice), seq(known, dice), limit),
        1 => StoreRequest::TurnRecords(turn(known, dice)),
        2 => StoreRequest::Feed(usize::try_from(dice.below(40)).unwrap_or(0), limit),
        3 => StoreRequest::History(node(known, dice), dice.one_of(&[0, 1, 1_000, 20_000, ALL])),
        4 => StoreRequest::Joinable(session(known, dice)),
        5 => StoreRequest::Verify(session(known, dice)),
        6 => StoreRequest::Sessions(dice.percent(50).then(|| session(known, dice)), limit),
        7 => StoreRequest::Session(session(known, dice)),
        8 => StoreRequest::SessionByKey(dice.one_of(SESSION_KEYS).to_owned()),
        9 => StoreRequest::Turn(turn(known, dice)),
        10 => StoreRequest::Turns(session(known, dice), dice.one_of(&[0, 1, 3, u32::MAX]), limit),
        11 if dice.percent(50) => {
            StoreRequest::Waiting(dice.one_of(&[WaitKind::Event, WaitKind::Sleep]), limit)
        }
        11 => StoreRequest::Unknown(limit),
        12 => StoreRequest::CancelReason(turn(known, dice)),
        13 => StoreRequest::HasWork(worker(known, dice), known.now),
        14 => StoreRequest::NextWake,
        15 => StoreRequest::Agenda(worker(known, dice), known.now),
        16 => StoreRequest::Blob(Hash::of(&blob(dice))),
        17 => StoreRequest::Value(session(known, dice), value_name(dice)),
        19 => StoreRequest::Attachment(session(known, dice), upload(dice).attachment.id),
        20 => StoreRequest::Attachments(session(known, dice), limit),
        25 => StoreRequest::Outlook(sink(dice), known.now),
        26 => StoreRequest::Sinks,
        27 => StoreRequest::Deliveries(sink(dice), limit),
        28 => {
            let said = text(known, dice);
            let within = dice.percent(50).then(|| session(known, dice));
            StoreRequest::Find(
                SearchTerms::parse(&said).or_else(|_| SearchTerms::parse("a")).expect("a letter is a word"),
                within,
                limit,
            )
        }
        22 => StoreRequest::Sweeps,
        23 => StoreRequest::Left(limit),
        21 => StoreRequest::Said(turn(known, dice)),
        18 => StoreRequest::ValueNames(session(known, dice), dice.one_of(PREFIXES).to_owned(), limit),
        _ => StoreRequest::Secret,
    }
}

fn accept(known: &mut KnownIds, dice: &mut SeededRandom) -> AcceptRequest {
    let blobs = if dice.percent(10) { vec![blob(dice)] } else { Vec::new() };
    let fresh = TurnId::from_u128(known.fresh());
    AcceptRequest {
        target: target(known, dice),
        turn: if dice.percent(96) { fresh } else { turn(known, dice) },
        parts: dice.up_to(2, |dice| Part::text(text(known, dice))),
        key: dice.percent(25).then(|| dice.one_of(INPUT_KEYS).to_owned()),
        delivery: dice.one_of(&[InputDelivery::Next, InputDelivery::Join]),
        head: head(dice),
        output: dice.percent(10).then(|| json!({ "type": "object" })),
        plugins: std::collections::BTreeMap::new(),
        traceparent: None,
        before: Vec::new(),
        note: None,
        package: dice.percent(30).then(|| Hash::of(b"package")),
        blobs,
        files: if dice.percent(10) { vec![filed(dice)] } else { Vec::new() },
        now: known.now,
        taker: dice.percent(60).then(|| taker(known, dice)),
        first: dice.percent(30).then(|| FirstCallReservation {
            budget_update: metering(dice),
            amount_max: amount(dice),
            price: PriceKnowledge::Known,
        }),
        queued_most: dice.one_of(&[0, 2, 100, 100, 100]),
        request: dice.percent(20).then(|| Hash::of(dice.one_of(&[b"one", b"two"]))),
        index: dice.percent(20).then(|| dice.one_of(&[0, 1, 2, 3])),
    }
}

fn target(known: &mut KnownIds, dice: &mut SeededRandom) -> SessionTarget {
    let fresh = SessionId::from_u128(known.fresh());
    // A new session may be requested with an id that is taken.
    let fresh = if dice.percent(85) { fresh } else { session(known, dice) };
    match dice.below(10) {
        0..=1 => SessionTarget::New(fresh),
        2..=3 => SessionTarget::Key { key: dice.one_of(SESSION_KEYS).to_owned(), fresh },
        _ if known.sessions.is_empty() => SessionTarget::New(fresh),
        _ => SessionTarget::Id(session(known, dice)),
    }
}

fn fork(known: &mut KnownIds, dice: &mut SeededRandom) -> ForkRequest {
    let NodeRef { session: from, seq } = node(known, dice);
    let fresh = SessionId::from_u128(known.fresh());
    let to = if dice.percent(40) {
        ForkTo::Head("draft".to_owned())
    } else {
        let fresh = if dice.percent(94) { fresh } else { session(known, dice) };
        ForkTo::Session { fresh, key: dice.percent(40).then(|| dice.one_of(SESSION_KEYS).to_owned()) }
    };
    ForkRequest { from, at: dice.percent(60).then_some(seq), to, now: known.now }
}

fn bury(known: &mut KnownIds, dice: &mut SeededRandom) -> StoreRequest {
    let dead = worker(known, dice);
    // A dead worker may still send requests, but a new one must continue the work.
    let fresh = known.fresh();
    known.workers.push(WorkerId::from_u128(fresh));
    StoreRequest::Bury(dead)
}
