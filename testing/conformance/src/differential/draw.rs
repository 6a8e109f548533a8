//! Draws the next requests: mostly valid requests of workers and clients, and sometimes invalid ones.
use super::ask::Ask;
use super::commit;
use super::dice::Dice;
use super::known::Known;
use super::things::{
    INPUT_KEYS, LIMITS, LONGEST, PREFIXES, SESSION_KEYS, amount, blob, budget, call, contents, filed, head,
    later, metering, node, resolution, seq, session, sink, taker, text, turn, upload, value_name, verdict,
    wait_key, worker,
};
use crate::scene::ALL;
use outlast_ports::budget::{FirstCall, Price};
use outlast_ports::filed::Condemn;
use outlast_ports::outbox::{Attempt, Begins, Collect, Subscription};
use outlast_ports::sink::{Moment, Topic};
use outlast_ports::store::{Accept, Fork, ForkTo, Taker, Target};
use outlast_vocab::budget::Purse;
use outlast_vocab::id::{OrgId, SessionId, TurnId, WorkerId};
use outlast_vocab::message::Part;
use outlast_vocab::record::{Delivery, NodeRef, Seq};
use outlast_vocab::wait::WaitKind;
use outlast_vocab::words::Wanted;
use outlast_vocab::{Hash, Millis};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// Draws the next operation: one request, or several simultaneous writes.
pub(super) fn asks(known: &mut Known, dice: &mut Dice) -> Vec<Ask> {
    if dice.percent(50) {
        known.now = Millis(known.now.0 + dice.below(known.mood.pace));
    }
    match dice.below(100) {
        0 => vec![bury(known, dice)],
        1..=20 => vec![look(known, dice)],
        21..=30 => (0..2 + dice.below(3)).map(|_| write(known, dice)).collect(),
        _ => vec![write(known, dice)],
    }
}

/// Claims at later and later times, by a worker that keeps its leases.
pub(super) fn claims_until_nothing_is_left(known: &Known) -> impl Iterator<Item = Ask> + use<> {
    let taker = Taker { worker: WorkerId::from_u128(2), until: Millis(u64::MAX) };
    let now = known.now.0;
    // The steps are so large that several leases expire in between.
    (0..=LONGEST / 500).map(move |step| Ask::Claim(taker, Millis(now + step * 500), ALL))
}

/// Draws one request.
type Draw = fn(&mut Known, &mut Dice) -> Ask;

/// The writes with their weights. A mood multiplies the weights.
pub(super) const WRITES: &[(u64, Draw)] = &[
    (22, |known, dice| Ask::Accept(accept(known, dice))),
    (32, |known, dice| match commit::draw(known, dice) {
        Some(commit) => Ask::Commit(commit),
        // Without a lease, nothing can be committed, so an input is needed first.
        None => Ask::Accept(accept(known, dice)),
    }),
    (2, |known, dice| {
        let agent = Purse::Agent("clerk".to_owned());
        let purse = match dice.below(4) {
            0 => Purse::Turn(turn(known, dice)),
            1 => Purse::Session(session(known, dice)),
            2 => Purse::Org(OrgId::from_u128(0)),
            _ => agent,
        };
        Ask::SetBudget(purse, dice.percent(70).then(|| budget(dice)), known.now)
    }),
    (7, |known, dice| Ask::Claim(taker(known, dice), known.now, dice.one_of(LIMITS))),
    (3, |known, dice| Ask::Open(target(known, dice), known.now)),
    (5, renew),
    (3, |known, dice| match commit::lease(known, dice) {
        Some(lease) => Ask::HandBack(lease, known.now),
        None => Ask::Accept(accept(known, dice)),
    }),
    (2, |known, dice| Ask::ClaimSuspect(taker(known, dice), Millis(known.now.0 + 1_000_000))),
    (2, |known, dice| match commit::lease(known, dice) {
        Some(lease) => match dice.below(3) {
            0 => Ask::BeginTrial(lease),
            1 => Ask::EndTrial(lease),
            _ => Ask::ReportHang(lease),
        },
        None => Ask::Accept(accept(known, dice)),
    }),
    (8, |known, dice| Ask::Resolve(turn(known, dice), wait_key(dice), resolution(known, dice), known.now)),
    (4, |known, dice| Ask::Cancel(turn(known, dice), dice.one_of(&["enough", "stop"]).to_owned(), known.now)),
    (1, |known, dice| Ask::Abort(turn(known, dice), "stop".to_owned(), known.now)),
    (5, |known, dice| Ask::Fork(fork(known, dice))),
    (3, rewind),
    (1, |known, dice| Ask::Delete(session(known, dice), known.now)),
    (1, condemn),
    (1, |known, dice| Ask::Forget(contents(dice), worker(known, dice))),
    (3, deliver),
    (4, |known, dice| Ask::Delete(node(known, dice).session, known.now)),
    (5, |known, dice| Ask::Settle(call(known, dice), verdict(known, dice), known.now)),
];

fn write(known: &mut Known, dice: &mut Dice) -> Ask {
    let mut at = dice.below(known.mood.writes.iter().sum());
    for ((_, draw), weight) in WRITES.iter().zip(&known.mood.writes) {
        if at < *weight {
            return draw(known, dice);
        }
        at -= weight;
    }
    unreachable!("the number is below the sum of the weights")
}

fn renew(known: &mut Known, dice: &mut Dice) -> Ask {
    // Mostly by a worker that has a lease.
    let holder = dice.recent(&known.leases).filter(|_| dice.percent(80)).map(|lease| lease.worker);
    let taker = taker(known, dice);
    Ask::Renew(Taker { worker: holder.unwrap_or(taker.worker), ..taker })
}

fn condemn(known: &mut Known, dice: &mut Dice) -> Ask {
    let (contents, worker, now) = (contents(dice), worker(known, dice), known.now);
    let condemn = Condemn { contents, worker, now, lasts: Duration::from_millis(50) };
    if dice.percent(20) { Ask::Acquit(condemn) } else { Ask::Condemn(condemn) }
}

/// Draws a request of a worker that delivers outputs.
fn deliver(known: &mut Known, dice: &mut Dice) -> Ask {
    let name = sink(dice);
    match dice.below(10) {
        0 => Ask::Redeliver(name, None, known.now),
        1..=2 => Ask::Subscribe(subscription(name, dice), known.now),
        3..=4 => Ask::Delivered(attempt(name, known, dice)),
        5..=6 => {
            let again = dice.percent(70).then(|| later(known, dice));
            Ask::Undelivered(attempt(name, known, dice), again)
        }
        _ => {
            let Taker { worker, until } = taker(known, dice);
            let (now, limit) = (known.now, dice.one_of(LIMITS));
            Ask::Collect(Collect {
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

fn subscription(name: String, dice: &mut Dice) -> Subscription {
    let ends = dice.percent(20).then(|| vec!["answered".to_owned(), "cancelled".to_owned()]);
    let on = if dice.percent(30) { Topic::ALL.into() } else { BTreeSet::from([Topic::TurnEnded]) };
    Subscription { name, on, ends, begins: dice.one_of(&[Begins::Now, Begins::Beginning]) }
}

fn attempt(sink: String, known: &Known, dice: &mut Dice) -> Attempt {
    let (turn, moment) = match dice.recent(&known.told).filter(|_| dice.percent(80)) {
        Some(told) => told,
        None => (turn(known, dice), Moment { seq: Seq(2), nth: 0 }),
    };
    Attempt { sink, turn, moment, attempt: dice.one_of(&[1, 1, 1, 2, 3]) }
}

fn rewind(known: &mut Known, dice: &mut Dice) -> Ask {
    let NodeRef { session, seq } = node(known, dice);
    let to = dice.percent(80).then_some(seq);
    Ask::Rewind(session, head(dice), to, known.now)
}

fn look(known: &mut Known, dice: &mut Dice) -> Ask {
    let limit = dice.one_of(LIMITS);
    match dice.below(29) {
        0 => Ask::Records(session(known, dice), seq(known, dice), limit),
        1 => Ask::TurnRecords(turn(known, dice)),
        2 => Ask::Feed(usize::try_from(dice.below(40)).unwrap_or(0), limit),
        3 => Ask::History(node(known, dice), dice.one_of(&[0, 1, 1_000, 20_000, ALL])),
        4 => Ask::Joinable(session(known, dice)),
        5 => Ask::Verify(session(known, dice)),
        6 => Ask::Sessions(dice.percent(50).then(|| session(known, dice)), limit),
        7 => Ask::Session(session(known, dice)),
        8 => Ask::SessionByKey(dice.one_of(SESSION_KEYS).to_owned()),
        9 => Ask::Turn(turn(known, dice)),
        10 => Ask::Turns(session(known, dice), dice.one_of(&[0, 1, 3, u32::MAX]), limit),
        11 if dice.percent(50) => Ask::Waiting(dice.one_of(&[WaitKind::Event, WaitKind::Sleep]), limit),
        11 => Ask::Unknown(limit),
        12 => Ask::CancelReason(turn(known, dice)),
        13 => Ask::HasWork(worker(known, dice), known.now),
        14 => Ask::NextWake,
        15 => Ask::Agenda(worker(known, dice), known.now),
        16 => Ask::Blob(Hash::of(&blob(dice))),
        17 => Ask::Value(session(known, dice), value_name(dice)),
        19 => Ask::Attachment(session(known, dice), upload(dice).attachment.id),
        20 => Ask::Attachments(session(known, dice), limit),
        25 => Ask::Outlook(sink(dice), known.now),
        26 => Ask::Sinks,
        27 => Ask::Deliveries(sink(dice), limit),
        28 => {
            let said = text(known, dice);
            let within = dice.percent(50).then(|| session(known, dice));
            Ask::Find(
                Wanted::parse(&said).or_else(|_| Wanted::parse("a")).expect("a letter is a word"),
                within,
                limit,
            )
        }
        22 => Ask::Sweeps,
        23 => Ask::Left(limit),
        21 => Ask::Said(turn(known, dice)),
        18 => Ask::ValueNames(session(known, dice), dice.one_of(PREFIXES).to_owned(), limit),
        _ => Ask::Secret,
    }
}

fn accept(known: &mut Known, dice: &mut Dice) -> Accept {
    let blobs = if dice.percent(10) { vec![blob(dice)] } else { Vec::new() };
    let fresh = TurnId::from_u128(known.fresh());
    Accept {
        target: target(known, dice),
        turn: if dice.percent(96) { fresh } else { turn(known, dice) },
        parts: dice.some(2, |dice| Part::text(text(known, dice))),
        key: dice.percent(25).then(|| dice.one_of(INPUT_KEYS).to_owned()),
        delivery: dice.one_of(&[Delivery::Next, Delivery::Join]),
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
        first: dice.percent(30).then(|| FirstCall {
            metering: metering(dice),
            most: amount(dice),
            price: Price::Known,
        }),
        queued_most: dice.one_of(&[0, 2, 100, 100, 100]),
        request: dice.percent(20).then(|| Hash::of(dice.one_of(&[b"one", b"two"]))),
        index: dice.percent(20).then(|| dice.one_of(&[0, 1, 2, 3])),
    }
}

fn target(known: &mut Known, dice: &mut Dice) -> Target {
    let fresh = SessionId::from_u128(known.fresh());
    // A new session may be requested with an id that is taken.
    let fresh = if dice.percent(85) { fresh } else { session(known, dice) };
    match dice.below(10) {
        0..=1 => Target::New(fresh),
        2..=3 => Target::Key { key: dice.one_of(SESSION_KEYS).to_owned(), fresh },
        _ if known.sessions.is_empty() => Target::New(fresh),
        _ => Target::Id(session(known, dice)),
    }
}

fn fork(known: &mut Known, dice: &mut Dice) -> Fork {
    let NodeRef { session: from, seq } = node(known, dice);
    let fresh = SessionId::from_u128(known.fresh());
    let to = if dice.percent(40) {
        ForkTo::Head("draft".to_owned())
    } else {
        let fresh = if dice.percent(94) { fresh } else { session(known, dice) };
        ForkTo::Session { fresh, key: dice.percent(40).then(|| dice.one_of(SESSION_KEYS).to_owned()) }
    };
    Fork { from, at: dice.percent(60).then_some(seq), to, now: known.now }
}

fn bury(known: &mut Known, dice: &mut Dice) -> Ask {
    let dead = worker(known, dice);
    // A dead worker may still send requests, but a new one must continue the work.
    let fresh = known.fresh();
    known.workers.push(WorkerId::from_u128(fresh));
    Ask::Bury(dead)
}
