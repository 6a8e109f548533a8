//! Draws the parts of requests: names, times and texts, mostly known ones.
use super::known_ids::KnownIds;
use super::seeded_random::SeededRandom;
use crate::store_under_test::{self, ALL};
use outlast_ports::attachment_upload::{AttachmentUpload, ExternalUpload, SweepCounter};
use outlast_ports::budget::{
    BudgetReservation, BudgetSettlement, BudgetUpdate, BudgetWait, ExistingReservation, PriceKnowledge,
};
use outlast_ports::rate::AdmissionRequest;
use outlast_ports::store::{LeaseRequest, MAIN_HEAD, Upload};
use outlast_vocab::budget::{Budget, Budgets, Percent, Period, UsageAmount};
use outlast_vocab::id::{CallId, SessionId, TurnId, WorkerId};
use outlast_vocab::message::{MediaType, ToolResult};
use outlast_vocab::rate::{AdmissionAttempt, RateLimit, RatePeriod, WhenFull};
use outlast_vocab::record::{NodeRef, OutcomeVerdict, Seq};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Failure, Hash, Kind, Millis, ReplayKey};
use serde_json::json;
use std::num::NonZeroU32;
use std::sync::Arc;
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

pub(super) fn session(known: &KnownIds, dice: &mut SeededRandom) -> SessionId {
    let nobody = SessionId::from_u128(1);
    if dice.percent(3) { nobody } else { dice.recent(&known.sessions).unwrap_or(nobody) }
}

pub(super) fn turn(known: &KnownIds, dice: &mut SeededRandom) -> TurnId {
    let nobody = TurnId::from_u128(1);
    if dice.percent(3) { nobody } else { dice.recent(&known.turns).unwrap_or(nobody) }
}

pub(super) fn node(known: &KnownIds, dice: &mut SeededRandom) -> NodeRef {
    let nowhere = NodeRef { session: session(known, dice), seq: seq(known, dice) };
    if dice.percent(15) { nowhere } else { dice.recent(&known.nodes).unwrap_or(nowhere) }
}

pub(super) fn seq(known: &KnownIds, dice: &mut SeededRandom) -> Seq {
    let odd = dice.one_of(&[0, 1, 2, 5, u64::MAX]);
    let usual = dice.recent(&known.nodes).map_or(odd, |node| node.seq.0);
    Seq(if dice.percent(30) { odd } else { usual })
}

pub(super) fn call(known: &KnownIds, dice: &mut SeededRandom) -> CallId {
    let open: Vec<CallId> = known.claims.iter().map(|claim| claim.call).collect();
    dice.likely_or_other(&known.unknown, &open).unwrap_or(CallId::from_u128(1))
}

pub(super) fn worker(known: &KnownIds, dice: &mut SeededRandom) -> WorkerId {
    dice.recent(&known.workers).unwrap_or(WorkerId::from_u128(1))
}

pub(super) fn taker(known: &KnownIds, dice: &mut SeededRandom) -> LeaseRequest {
    let until = if dice.percent(70) { Millis(known.now.0 + LONGEST) } else { later(known, dice) };
    LeaseRequest { worker: worker(known, dice), until }
}

/// Draws a time: just passed, soon, or never.
pub(super) fn later(known: &KnownIds, dice: &mut SeededRandom) -> Millis {
    let now = known.now.0;
    match dice.below(10) {
        0 => Millis(now - dice.below(2)),
        1 => Millis(u64::MAX),
        _ => Millis(now + dice.below(LONGEST)),
    }
}

pub(super) fn head(dice: &mut SeededRandom) -> String {
    let other = dice.one_of(&["draft", "draft", "no/such"]);
    if dice.percent(85) { MAIN_HEAD.to_owned() } else { other.to_owned() }
}

pub(super) fn wait_key(dice: &mut SeededRandom) -> ReplayKey {
    store_under_test::wait_key(dice.one_of(WAITS))
}

pub(super) fn sink(dice: &mut SeededRandom) -> String {
    dice.one_of(&["one", "one", "one", "two", "nobody"]).to_owned()
}

pub(super) fn value_name(dice: &mut SeededRandom) -> String {
    dice.one_of(VALUES).to_owned()
}

pub(super) fn resolution(known: &KnownIds, dice: &mut SeededRandom) -> Resolution {
    match dice.below(5) {
        0 => Resolution::Ok(json!({ "big": u64::MAX, "small": 1e-300, "text": text(known, dice) })),
        1 => Resolution::Ok(json!("yes")),
        2 => Resolution::Err(Failure::new(Kind::ToolFailed, "no")),
        3 => Resolution::Timeout,
        _ => Resolution::Cancelled,
    }
}

pub(super) fn verdict(known: &KnownIds, dice: &mut SeededRandom) -> OutcomeVerdict {
    if dice.percent(50) {
        OutcomeVerdict::DidNotHappen
    } else {
        OutcomeVerdict::Happened(ToolResult::Ok(json!(text(known, dice))))
    }
}

/// Draws a short text, or rarely one of [`LONG`].
pub(super) fn text(known: &KnownIds, dice: &mut SeededRandom) -> String {
    if dice.percent(known.mood.long) {
        let (word, times) = dice.one_of(LONG);
        return word.repeat(times);
    }
    dice.one_of(&["hi", "ho", "", "\0", "\"quoted\\\"", "zwölf 🦀"]).to_owned()
}

/// Shortens the long texts in a text.
pub(super) fn abridged(text: &str) -> String {
    LONG.iter().fold(text.to_owned(), |text, (word, times)| {
        text.replace(&word.repeat(*times), &format!("{word}({times} times)"))
    })
}

pub(super) fn upload(dice: &mut SeededRandom) -> Upload {
    let media_type = MediaType::try_from("text/plain".to_owned()).expect("a media type");
    Upload::new(media_type, None, dice.one_of(&BLOBS[..2])).expect("it has bytes")
}

/// Draws an attachment to upload. Content outside the database was stored before the first sweep or after the first
/// few.
pub(super) fn filed(dice: &mut SeededRandom) -> AttachmentUpload {
    let Upload { attachment, bytes } = upload(dice);
    match dice.below(3) {
        0 => AttachmentUpload::Inline(Upload { attachment, bytes }),
        _ => AttachmentUpload::Outside(ExternalUpload {
            attachment,
            bytes: bytes.len() as u64,
            sweeps: SweepCounter(dice.one_of(&[0, 0, 1, 2])),
        }),
    }
}

/// Draws contents that may be stored outside the database.
pub(super) fn contents(dice: &mut SeededRandom) -> Vec<Hash> {
    dice.up_to(2, |dice| upload(dice).attachment.content)
}

pub(super) fn blob(dice: &mut SeededRandom) -> Vec<u8> {
    dice.one_of(BLOBS).to_vec()
}

/// Draws the budget changes of a write: effects at a few positions that start, end or are abandoned.
pub(super) fn metering(dice: &mut SeededRandom) -> BudgetUpdate {
    let key = |dice: &mut SeededRandom| ReplayKey::turn(0).model(dice.one_of(&[0, 1]));
    let settled = |dice: &mut SeededRandom| BudgetSettlement {
        key: key(dice),
        used: dice.percent(70).then(|| amount(dice)),
        lost: if dice.percent(10) { amount(dice) } else { UsageAmount::ZERO },
    };
    let if_held = dice.one_of(&[ExistingReservation::Lost, ExistingReservation::Reused]);
    let price = dice.one_of(&[PriceKnowledge::Known, PriceKnowledge::Known, PriceKnowledge::Unknown]);
    BudgetUpdate {
        agent: "clerk".to_owned(),
        budgets: Arc::new(Budgets {
            turn: dice.percent(40).then(|| budget(dice)),
            session: dice.percent(40).then(|| budget(dice)),
            agent: dice.percent(40).then(|| budget(dice)),
            reply_tokens: None,
        }),
        settled: dice.up_to(2, settled),
        reservation: dice.percent(60).then(|| BudgetReservation {
            key: key(dice),
            amount_max: amount(dice),
            existing: if_held,
            price,
        }),
        waits: dice.up_to(1, |dice| BudgetWait {
            wait: key(dice).budget(0),
            reservation: BudgetReservation {
                key: key(dice),
                amount_max: amount(dice),
                existing: if_held,
                price,
            },
        }),
        run_time: Duration::from_millis(dice.one_of(&[0, 0, 7])),
        conversation_cost: dice.percent(20).then(|| amount(dice)),
    }
}

/// Draws a call that waits for admission, under one of two rates or both.
pub(super) fn want(dice: &mut SeededRandom) -> AdmissionRequest {
    let rate = |name: &str, dice: &mut SeededRandom| {
        let (name, calls) = (name.parse().expect("a rate's name"), dice.one_of(&[1, 3, 60]));
        let rate =
            RateLimit::new(name, "*", NonZeroU32::new(calls).expect("at least one"), RatePeriod::Second);
        let when_full = dice.one_of(&[WhenFull::Deny, WhenFull::default()]);
        RateLimit { burst: NonZeroU32::new(dice.one_of(&[1, 2])).expect("at least one"), when_full, ..rate }
    };
    let mut rates = vec![rate("mail", dice)];
    if dice.percent(30) {
        rates.push(rate("slow", dice));
    }
    let key = ReplayKey::turn(0).tools(0).child(dice.one_of(&[0, 1]), "c");
    let asks = dice.one_of(&[AdmissionAttempt::First, AdmissionAttempt::First, AdmissionAttempt::Again]);
    AdmissionRequest { key, rates, attempt: asks, wait_most: Duration::from_secs(2) }
}

pub(super) fn amount(dice: &mut SeededRandom) -> UsageAmount {
    UsageAmount { tokens: dice.below(40), calls: 1, ..UsageAmount::ZERO }
}

pub(super) fn budget(dice: &mut SeededRandom) -> Budget {
    let percent = |dice: &mut SeededRandom| Percent::try_from(dice.one_of(&[50, 80])).ok();
    Budget {
        tokens: Some(dice.one_of(&[0, 30, 100, 1_000])),
        warn_at: percent(dice),
        pause_at: if dice.percent(30) { percent(dice) } else { None },
        per: dice.one_of(&[None, None, Some(Period::Day)]),
        time: dice.percent(30).then(|| Duration::from_millis(20)),
        ..Budget::default()
    }
}
