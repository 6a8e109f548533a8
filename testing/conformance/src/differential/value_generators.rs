//! Draws the parts of requests: names, times and texts, mostly known ones.
use super::known_ids::KnownIds;
use crate::store_under_test::{self, ALL};
use outlast_ports::attachment_upload::{AttachmentUpload, ExternalUpload, SweepCounter, Upload};
use outlast_ports::branches::MAIN_HEAD;
use outlast_ports::budget::{
    BudgetReservation, BudgetSettlement, BudgetUpdate, BudgetWait, ExistingReservation, PriceKnowledge,
};
use outlast_ports::rate::AdmissionRequest;
use outlast_ports::turns::LeaseRequest;
use outlast_random::SeededRandom;
use outlast_vocab::budget::{Budget, Budgets, Percent, Period, UsageAmount};
use outlast_vocab::id::{CallId, SessionId, TurnId, WorkerId};
use outlast_vocab::message::{MediaType, ToolResult};
use outlast_vocab::rate::{AdmissionAttempt, RateLimit, RatePeriod, WhenFull};
use outlast_vocab::record::{NodeRef, OutcomeVerdict, Seq};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Failure, Hash, Kind, Millis, ReplayKey};
use serde_json::json;
use std::num::NonZeroU32;
use std::time::Duration;

pub(super) const SESSION_KEYS: &[&str] = &["me", "you", "ünï", "", "a\0b"];
pub(super) const INPUT_KEYS: &[&str] = &["k1", "k2", "K2", ""];
pub(super) const WAITS: &[&str] = &["a", "b", "c"];
pub(super) const VALUES: &[&str] = &["a", "a/b", "a/c", "A", "ä", "%", "a%"];
pub(super) const PREFIXES: &[&str] = &["", "a", "a/", "%", "zz"];
/// Texts that do not fit into a row, as a word and its number of repetitions.
pub(super) const LONG: &[(&str, usize)] = &[("long ", 4_000), ("länger ", 5_000)];
/// The longest finite time in milliseconds that a wait or lease lasts.
pub(super) const LONGEST: u64 = 5_000;
pub(super) const LIMITS: &[usize] = &[0, 1, 2, 5, ALL];
/// Content that inputs and facts may refer to.
pub(super) const BLOBS: &[&[u8]] = &[b"one", b"two", b"", b"\xff\x00"];

pub(super) fn session(known: &KnownIds, random: &mut SeededRandom) -> SessionId {
    let unknown = SessionId::from_u128(1);
    if random.percent(3) { unknown } else { random.recent(&known.sessions).unwrap_or(unknown) }
}

pub(super) fn turn(known: &KnownIds, random: &mut SeededRandom) -> TurnId {
    let unknown = TurnId::from_u128(1);
    if random.percent(3) { unknown } else { random.recent(&known.turns).unwrap_or(unknown) }
}

pub(super) fn node(known: &KnownIds, random: &mut SeededRandom) -> NodeRef {
    let nowhere = NodeRef { session: session(known, random), seq: seq(known, random) };
    if random.percent(15) { nowhere } else { random.recent(&known.nodes).unwrap_or(nowhere) }
}

pub(super) fn seq(known: &KnownIds, random: &mut SeededRandom) -> Seq {
    let odd = random.one_of(&[0, 1, 2, 5, u64::MAX]);
    let usual = random.recent(&known.nodes).map_or(odd, |node| node.seq.0);
    Seq(if random.percent(30) { odd } else { usual })
}

pub(super) fn call(known: &KnownIds, random: &mut SeededRandom) -> CallId {
    let open: Vec<CallId> = known.claims.iter().map(|claim| claim.call).collect();
    random.likely_or_other(&known.unknown, &open).unwrap_or(CallId::from_u128(1))
}

pub(super) fn worker(known: &KnownIds, random: &mut SeededRandom) -> WorkerId {
    random.recent(&known.workers).unwrap_or(WorkerId::from_u128(1))
}

pub(super) fn lease_request(known: &KnownIds, random: &mut SeededRandom) -> LeaseRequest {
    let until = if random.percent(70) { Millis(known.now.0 + LONGEST) } else { later(known, random) };
    LeaseRequest { worker: worker(known, random), until }
}

/// Draws a time: just passed, soon, or never.
pub(super) fn later(known: &KnownIds, random: &mut SeededRandom) -> Millis {
    let now = known.now.0;
    match random.below(10) {
        0 => Millis(now - random.below(2)),
        1 => Millis(u64::MAX),
        _ => Millis(now + random.below(LONGEST)),
    }
}

pub(super) fn head(random: &mut SeededRandom) -> String {
    let other = random.one_of(&["draft", "draft", "no/such"]);
    if random.percent(85) { MAIN_HEAD.to_owned() } else { other.to_owned() }
}

pub(super) fn wait_key(random: &mut SeededRandom) -> ReplayKey {
    store_under_test::wait_key(random.one_of(WAITS))
}

pub(super) fn sink(random: &mut SeededRandom) -> String {
    random.one_of(&["one", "one", "one", "two", "nobody"]).to_owned()
}

pub(super) fn value_name(random: &mut SeededRandom) -> String {
    random.one_of(VALUES).to_owned()
}

pub(super) fn resolution(known: &KnownIds, random: &mut SeededRandom) -> Resolution {
    match random.below(5) {
        0 => Resolution::Ok(json!({ "big": u64::MAX, "small": 1e-300, "text": text(known, random) })),
        1 => Resolution::Ok(json!("yes")),
        2 => Resolution::Err(Failure::new(Kind::ToolFailed, "no")),
        3 => Resolution::Timeout,
        _ => Resolution::Cancelled,
    }
}

pub(super) fn verdict(known: &KnownIds, random: &mut SeededRandom) -> OutcomeVerdict {
    if random.percent(50) {
        OutcomeVerdict::DidNotHappen
    } else {
        OutcomeVerdict::Happened(ToolResult::Ok(json!(text(known, random))))
    }
}

/// Draws a short text, or rarely one of [`LONG`].
pub(super) fn text(known: &KnownIds, random: &mut SeededRandom) -> String {
    if random.percent(known.mood.long) {
        let (word, times) = random.one_of(LONG);
        return word.repeat(times);
    }
    random.one_of(&["hi", "ho", "", "\0", "\"quoted\\\"", "zwölf 🦀"]).to_owned()
}

/// Shortens the long texts in a text.
pub(super) fn abridged(text: &str) -> String {
    LONG.iter().fold(text.to_owned(), |text, (word, times)| {
        text.replace(&word.repeat(*times), &format!("{word}({times} times)"))
    })
}

pub(super) fn upload(random: &mut SeededRandom) -> Upload {
    let media_type = MediaType::try_from("text/plain".to_owned()).expect("a media type");
    Upload::new(media_type, None, random.one_of(&BLOBS[..2])).expect("it has bytes")
}

/// Draws an attachment to upload. Content outside the database was stored before the first sweep or after the first
/// few.
pub(super) fn filed(random: &mut SeededRandom) -> AttachmentUpload {
    let Upload { attachment, bytes } = upload(random);
    match random.below(3) {
        0 => AttachmentUpload::Inline(Upload { attachment, bytes }),
        _ => AttachmentUpload::Outside(ExternalUpload {
            attachment,
            bytes: bytes.len() as u64,
            sweeps: SweepCounter(random.one_of(&[0, 0, 1, 2])),
        }),
    }
}

/// Draws contents that may be stored outside the database.
pub(super) fn contents(random: &mut SeededRandom) -> Vec<Hash> {
    random.up_to(2, |random| upload(random).attachment.content)
}

pub(super) fn blob(random: &mut SeededRandom) -> Vec<u8> {
    random.one_of(BLOBS).to_vec()
}

/// Draws the budget changes of a write: effects at a few positions that start, end or are abandoned.
pub(super) fn metering(random: &mut SeededRandom) -> BudgetUpdate {
    let key = |random: &mut SeededRandom| ReplayKey::turn(0).model(random.one_of(&[0, 1]));
    let settled = |random: &mut SeededRandom| BudgetSettlement {
        key: key(random),
        used: amount(random),
        lost: if random.percent(10) { amount(random) } else { UsageAmount::ZERO },
    };
    let if_held = random.one_of(&[ExistingReservation::Lost, ExistingReservation::Reused]);
    let price = random.one_of(&[PriceKnowledge::Known, PriceKnowledge::Known, PriceKnowledge::Unknown]);
    BudgetUpdate {
        agent: "clerk".to_owned(),
        budgets: Budgets {
            turn: random.percent(40).then(|| budget(random)),
            session: random.percent(40).then(|| budget(random)),
            agent: random.percent(40).then(|| budget(random)),
            reply_tokens: None,
        },
        settled: random.up_to(2, settled),
        reservation: random.percent(60).then(|| BudgetReservation {
            key: key(random),
            amount_max: amount(random),
            existing: if_held,
            price,
        }),
        waits: random.up_to(1, |random| BudgetWait {
            wait: key(random).budget(0),
            reservation: BudgetReservation {
                key: key(random),
                amount_max: amount(random),
                existing: if_held,
                price,
            },
        }),
        run_time: Duration::from_millis(random.one_of(&[0, 0, 7])),
        conversation_cost: random.percent(20).then(|| amount(random)),
    }
}

/// Draws a call that waits for admission, under one of two rates or both.
pub(super) fn want(random: &mut SeededRandom) -> AdmissionRequest {
    let rate = |name: &str, random: &mut SeededRandom| {
        let (name, calls) = (name.parse().expect("a rate's name"), random.one_of(&[1, 3, 60]));
        let rate =
            RateLimit::new(name, "*", NonZeroU32::new(calls).expect("at least one"), RatePeriod::Second);
        let when_full = random.one_of(&[WhenFull::Deny, WhenFull::default()]);
        RateLimit { burst: NonZeroU32::new(random.one_of(&[1, 2])).expect("at least one"), when_full, ..rate }
    };
    let mut rates = vec![rate("mail", random)];
    if random.percent(30) {
        rates.push(rate("slow", random));
    }
    let key = ReplayKey::turn(0).tools(0).child(random.one_of(&[0, 1]), "c");
    let asks = random.one_of(&[AdmissionAttempt::First, AdmissionAttempt::First, AdmissionAttempt::Again]);
    AdmissionRequest { key, rates, attempt: asks, wait_most: Duration::from_secs(2) }
}

pub(super) fn amount(random: &mut SeededRandom) -> UsageAmount {
    UsageAmount { tokens: random.below(40), calls: 1, ..UsageAmount::ZERO }
}

pub(super) fn budget(random: &mut SeededRandom) -> Budget {
    let percent = |random: &mut SeededRandom| Percent::try_from(random.one_of(&[50, 80])).ok();
    Budget {
        tokens: Some(random.one_of(&[0, 30, 100, 1_000])),
        warn_at: percent(random),
        pause_at: if random.percent(30) { percent(random) } else { None },
        per: random.one_of(&[None, None, Some(Period::Day)]),
        time: random.percent(30).then(|| Duration::from_millis(20)),
        ..Budget::default()
    }
}
