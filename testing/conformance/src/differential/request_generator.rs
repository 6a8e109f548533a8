//! Draws the next requests: mostly valid requests of workers and clients, and sometimes invalid ones.
use super::commit_generator;
use super::known_ids::KnownIds;
use super::store_request::StoreRequest;
use super::value_generators::{
    INPUT_KEYS, LIMITS, LONGEST, PREFIXES, SESSION_KEYS, amount, blob, budget, call, contents, filed, head,
    later, lease_request, metering, node, resolution, seq, session, sink, text, turn, upload, value_name,
    verdict, wait_key, worker,
};
use crate::store_under_test::ALL;
use outlast_ports::attachment_upload::DeletionRequest;
use outlast_ports::branches::ForkRequest;
use outlast_ports::budget::{FirstCallReservation, PriceKnowledge};
use outlast_ports::inbox::{AcceptRequest, SessionTarget};
use outlast_ports::outbox::{CollectRequest, DeliveryAttempt, FeedStart, SinkSubscription};
use outlast_ports::sink::OutputPosition;
use outlast_ports::turns::LeaseRequest;
use outlast_random::SeededRandom;
use outlast_views::{ForkTo, SinkTopic};
use outlast_vocab::budget::BudgetAccount;
use outlast_vocab::id::{OrgId, SessionId, TurnId, WorkerId};
use outlast_vocab::message::Part;
use outlast_vocab::record::{InputDelivery, NodeRef, Seq, TurnAccepted};
use outlast_vocab::search_terms::SearchTerms;
use outlast_vocab::wait::WaitKind;
use outlast_vocab::{Hash, Millis};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// Draws the next operation: one request, or several simultaneous writes.
pub(super) fn draw_requests(known: &mut KnownIds, random: &mut SeededRandom) -> Vec<StoreRequest> {
    if random.percent(50) {
        known.now = Millis(known.now.0 + random.below(known.mood.step_ms_max));
    }
    match random.below(100) {
        0 => vec![bury(known, random)],
        1..=20 => vec![draw_read(known, random)],
        21..=30 => (0..2 + random.below(3)).map(|_| write(known, random)).collect(),
        _ => vec![write(known, random)],
    }
}

/// Claims at later and later times, by a worker that keeps its leases.
pub(super) fn claims_until_nothing_is_left(known: &KnownIds) -> impl Iterator<Item = StoreRequest> + use<> {
    let lease_request = LeaseRequest { worker: WorkerId::from_u128(2), until: Millis(u64::MAX) };
    let now = known.now.0;
    // The steps are so large that several leases expire in between.
    (0..=LONGEST / 500).map(move |step| StoreRequest::Claim(lease_request, Millis(now + step * 500), ALL))
}

/// Draws one request.
type RequestGenerator = fn(&mut KnownIds, &mut SeededRandom) -> StoreRequest;

/// The writes with their weights. A mood multiplies the weights.
pub(super) const WRITES: &[(u64, RequestGenerator)] = &[
    (22, |known, random| StoreRequest::Accept(accept(known, random))),
    (32, |known, random| match commit_generator::draw(known, random) {
        Some(commit) => StoreRequest::Commit(commit),
        // Without a lease, nothing can be committed, so an input is needed first.
        None => StoreRequest::Accept(accept(known, random)),
    }),
    (2, |known, random| {
        let agent = BudgetAccount::Agent("clerk".to_owned());
        let account = match random.below(4) {
            0 => BudgetAccount::Turn(turn(known, random)),
            1 => BudgetAccount::Session(session(known, random)),
            2 => BudgetAccount::Org(OrgId::from_u128(0)),
            _ => agent,
        };
        StoreRequest::SetBudget(account, random.percent(70).then(|| budget(random)), known.now)
    }),
    (7, |known, random| StoreRequest::Claim(lease_request(known, random), known.now, random.one_of(LIMITS))),
    (3, |known, random| StoreRequest::Open(target(known, random), known.now)),
    (5, renew),
    (3, |known, random| match commit_generator::lease(known, random) {
        Some(lease) => StoreRequest::HandBack(lease, known.now),
        None => StoreRequest::Accept(accept(known, random)),
    }),
    (2, |known, random| {
        StoreRequest::ClaimSuspect(lease_request(known, random), Millis(known.now.0 + 1_000_000))
    }),
    (2, |known, random| match commit_generator::lease(known, random) {
        Some(lease) => match random.below(3) {
            0 => StoreRequest::BeginTrial(lease),
            1 => StoreRequest::EndTrial(lease),
            _ => StoreRequest::ReportHang(lease),
        },
        None => StoreRequest::Accept(accept(known, random)),
    }),
    (8, |known, random| {
        StoreRequest::Resolve(turn(known, random), wait_key(random), resolution(known, random), known.now)
    }),
    (4, |known, random| {
        StoreRequest::Cancel(turn(known, random), random.one_of(&["enough", "stop"]).to_owned(), known.now)
    }),
    (1, |known, random| StoreRequest::Abort(turn(known, random), "stop".to_owned(), known.now)),
    (5, |known, random| StoreRequest::Fork(fork(known, random))),
    (3, rewind),
    (1, |known, random| StoreRequest::Delete(session(known, random), known.now)),
    (1, deletion_mark),
    (1, |known, random| StoreRequest::Forget(contents(random), worker(known, random))),
    (3, deliver),
    (4, |known, random| StoreRequest::Delete(node(known, random).session, known.now)),
    (5, |known, random| StoreRequest::Settle(call(known, random), verdict(known, random), known.now)),
];

fn write(known: &mut KnownIds, random: &mut SeededRandom) -> StoreRequest {
    let mut at = random.below(known.mood.writes.iter().sum());
    for ((_, draw), weight) in WRITES.iter().zip(&known.mood.writes) {
        if at < *weight {
            return draw(known, random);
        }
        at -= weight;
    }
    unreachable!("the number is below the sum of the weights")
}

fn renew(known: &mut KnownIds, random: &mut SeededRandom) -> StoreRequest {
    // Mostly by a worker that has a lease.
    let holder = random.recent(&known.leases).filter(|_| random.percent(80)).map(|lease| lease.worker);
    let lease_request = lease_request(known, random);
    StoreRequest::Renew(LeaseRequest { worker: holder.unwrap_or(lease_request.worker), ..lease_request })
}

fn deletion_mark(known: &mut KnownIds, random: &mut SeededRandom) -> StoreRequest {
    let (contents, worker, now) = (contents(random), worker(known, random), known.now);
    let request = DeletionRequest { contents, worker, now, lasts: Duration::from_millis(50) };
    if random.percent(20) {
        StoreRequest::UnmarkForDeletion(request)
    } else {
        StoreRequest::MarkForDeletion(request)
    }
}

/// Draws a request of a worker that delivers outputs.
fn deliver(known: &mut KnownIds, random: &mut SeededRandom) -> StoreRequest {
    let name = sink(random);
    match random.below(10) {
        0 => StoreRequest::Redeliver(name, None, known.now),
        1..=2 => StoreRequest::Subscribe(subscription(name, random), known.now),
        3..=4 => StoreRequest::Delivered(attempt(name, known, random)),
        5..=6 => {
            let again = random.percent(70).then(|| later(known, random));
            StoreRequest::Undelivered(attempt(name, known, random), again)
        }
        _ => {
            let LeaseRequest { worker, until } = lease_request(known, random);
            let (now, limit) = (known.now, random.one_of(LIMITS));
            StoreRequest::Collect(CollectRequest {
                subscription: subscription(name, random),
                worker,
                now,
                until,
                limit,
                attempts: 2,
            })
        }
    }
}

fn subscription(name: String, random: &mut SeededRandom) -> SinkSubscription {
    let ends = random.percent(20).then(|| vec!["answered".to_owned(), "cancelled".to_owned()]);
    let on = if random.percent(30) { SinkTopic::ALL.into() } else { BTreeSet::from([SinkTopic::TurnEnded]) };
    SinkSubscription { name, on, ends, begins: random.one_of(&[FeedStart::Now, FeedStart::Beginning]) }
}

fn attempt(sink: String, known: &KnownIds, random: &mut SeededRandom) -> DeliveryAttempt {
    let (turn, moment) = match random.recent(&known.collected_outputs).filter(|_| random.percent(80)) {
        Some(known_turn) => known_turn,
        None => (turn(known, random), OutputPosition { seq: Seq(2), nth: 0 }),
    };
    DeliveryAttempt { sink, turn, position: moment, attempt: random.one_of(&[1, 1, 1, 2, 3]) }
}

fn rewind(known: &mut KnownIds, random: &mut SeededRandom) -> StoreRequest {
    let NodeRef { session, seq } = node(known, random);
    let to = random.percent(80).then_some(seq);
    StoreRequest::Rewind(session, head(random), to, known.now)
}

fn draw_read(known: &mut KnownIds, random: &mut SeededRandom) -> StoreRequest {
    let limit = random.one_of(LIMITS);
    match random.below(29) {
        0 => StoreRequest::Records(session(known, random), seq(known, random), limit),
        1 => StoreRequest::TurnRecords(turn(known, random)),
        2 => StoreRequest::Feed(usize::try_from(random.below(40)).unwrap_or(0), limit),
        3 => StoreRequest::History(node(known, random), random.one_of(&[0, 1, 1_000, 20_000, ALL])),
        4 => StoreRequest::Joinable(session(known, random)),
        5 => StoreRequest::Verify(session(known, random)),
        6 => StoreRequest::Sessions(random.percent(50).then(|| session(known, random)), limit),
        7 => StoreRequest::Session(session(known, random)),
        8 => StoreRequest::SessionByKey(random.one_of(SESSION_KEYS).to_owned()),
        9 => StoreRequest::Turn(turn(known, random)),
        10 => StoreRequest::Turns(session(known, random), random.one_of(&[0, 1, 3, u32::MAX]), limit),
        11 if random.percent(50) => {
            StoreRequest::Waiting(random.one_of(&[WaitKind::Event, WaitKind::Sleep]), limit)
        }
        11 => StoreRequest::Unknown(limit),
        12 => StoreRequest::CancelReason(turn(known, random)),
        13 => StoreRequest::HasWork(worker(known, random), known.now),
        14 => StoreRequest::NextWake,
        15 => StoreRequest::Agenda(worker(known, random), known.now),
        16 => StoreRequest::Blob(Hash::of(&blob(random))),
        17 => StoreRequest::Value(session(known, random), value_name(random)),
        19 => StoreRequest::Attachment(session(known, random), upload(random).attachment.id),
        20 => StoreRequest::Attachments(session(known, random), limit),
        25 => StoreRequest::Outlook(sink(random), known.now),
        26 => StoreRequest::Sinks,
        27 => StoreRequest::Deliveries(sink(random), limit),
        28 => {
            let said = text(known, random);
            let within = random.percent(50).then(|| session(known, random));
            StoreRequest::Find(
                SearchTerms::parse(&said).or_else(|_| SearchTerms::parse("a")).expect("a letter is a word"),
                within,
                limit,
            )
        }
        22 => StoreRequest::Sweeps,
        23 => StoreRequest::Left(limit),
        21 => StoreRequest::PartialReply(turn(known, random)),
        18 => StoreRequest::ValueNames(session(known, random), random.one_of(PREFIXES).to_owned(), limit),
        _ => StoreRequest::Secret,
    }
}

fn accept(known: &mut KnownIds, random: &mut SeededRandom) -> AcceptRequest {
    let blobs = if random.percent(10) { vec![blob(random)] } else { Vec::new() };
    let fresh = TurnId::from_u128(known.fresh());
    AcceptRequest {
        target: target(known, random),
        turn: if random.percent(96) { fresh } else { turn(known, random) },
        accepted: TurnAccepted {
            parts: random.up_to(2, |random| Part::text(text(known, random))),
            key: random.percent(25).then(|| random.one_of(INPUT_KEYS).to_owned()),
            delivery: random.one_of(&[InputDelivery::Next, InputDelivery::Join]),
            output: random.percent(10).then(|| json!({ "type": "object" })),
            package: random.percent(30).then(|| Hash::of(b"package")),
            ..TurnAccepted::text("")
        },
        head: head(random),
        blobs,
        files: if random.percent(10) { vec![filed(random)] } else { Vec::new() },
        now: known.now,
        lease_request: random.percent(60).then(|| lease_request(known, random)),
        first: random.percent(30).then(|| FirstCallReservation {
            budget_update: metering(random),
            amount_max: amount(random),
            price: PriceKnowledge::Known,
        }),
        queued_most: random.one_of(&[0, 2, 100, 100, 100]),
        request: random.percent(20).then(|| Hash::of(random.one_of(&[b"one", b"two"]))),
        index: random.percent(20).then(|| random.one_of(&[0, 1, 2, 3])),
    }
}

fn target(known: &mut KnownIds, random: &mut SeededRandom) -> SessionTarget {
    let fresh = SessionId::from_u128(known.fresh());
    // A new session may be requested with an id that is taken.
    let fresh = if random.percent(85) { fresh } else { session(known, random) };
    match random.below(10) {
        0..=1 => SessionTarget::New(fresh),
        2..=3 => SessionTarget::Key { key: random.one_of(SESSION_KEYS).to_owned(), fresh },
        _ if known.sessions.is_empty() => SessionTarget::New(fresh),
        _ => SessionTarget::Id(session(known, random)),
    }
}

fn fork(known: &mut KnownIds, random: &mut SeededRandom) -> ForkRequest {
    let NodeRef { session: from, seq } = node(known, random);
    let fresh = SessionId::from_u128(known.fresh());
    let to = if random.percent(40) {
        ForkTo::Head("draft".to_owned())
    } else {
        let fresh = if random.percent(94) { fresh } else { session(known, random) };
        ForkTo::Session { fresh, key: random.percent(40).then(|| random.one_of(SESSION_KEYS).to_owned()) }
    };
    ForkRequest { from, at: random.percent(60).then_some(seq), to, now: known.now }
}

fn bury(known: &mut KnownIds, random: &mut SeededRandom) -> StoreRequest {
    let dead = worker(known, random);
    // A dead worker may still send requests, but a new one must continue the work.
    let fresh = known.fresh();
    known.workers.push(WorkerId::from_u128(fresh));
    StoreRequest::Bury(dead)
}
