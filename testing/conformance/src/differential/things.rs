//! Draws the parts of requests: names, times and texts, mostly known ones.
use super::dice::Dice;
use super::known::Known;
use crate::scene::{ALL, place};
use outlast_ports::budget::{Hold, IfHeld, Metering, Price, Settlement, Wish};
use outlast_ports::filed::{Filed, Outside, Sweeps};
use outlast_ports::rate::Want;
use outlast_ports::store::{MAIN, Taker, Upload};
use outlast_vocab::budget::{Amount, Budget, Budgets, Percent, Period};
use outlast_vocab::id::{CallId, SessionId, TurnId, WorkerId};
use outlast_vocab::message::{MediaType, ToolResult};
use outlast_vocab::rate::{Asks, Rate, Span, WhenFull};
use outlast_vocab::record::{NodeRef, Seq, Verdict};
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

pub(super) fn session(known: &Known, dice: &mut Dice) -> SessionId {
    let nobody = SessionId::from_u128(1);
    if dice.percent(3) { nobody } else { dice.recent(&known.sessions).unwrap_or(nobody) }
}

pub(super) fn turn(known: &Known, dice: &mut Dice) -> TurnId {
    let nobody = TurnId::from_u128(1);
    if dice.percent(3) { nobody } else { dice.recent(&known.turns).unwrap_or(nobody) }
}

pub(super) fn node(known: &Known, dice: &mut Dice) -> NodeRef {
    let nowhere = NodeRef { session: session(known, dice), seq: seq(known, dice) };
    if dice.percent(15) { nowhere } else { dice.recent(&known.nodes).unwrap_or(nowhere) }
}

pub(super) fn seq(known: &Known, dice: &mut Dice) -> Seq {
    let odd = dice.one_of(&[0, 1, 2, 5, u64::MAX]);
    let usual = dice.recent(&known.nodes).map_or(odd, |node| node.seq.0);
    Seq(if dice.percent(30) { odd } else { usual })
}

pub(super) fn call(known: &Known, dice: &mut Dice) -> CallId {
    let open: Vec<CallId> = known.claims.iter().map(|claim| claim.call).collect();
    dice.mostly(&known.unknown, &open).unwrap_or(CallId::from_u128(1))
}

pub(super) fn worker(known: &Known, dice: &mut Dice) -> WorkerId {
    dice.recent(&known.workers).unwrap_or(WorkerId::from_u128(1))
}

pub(super) fn taker(known: &Known, dice: &mut Dice) -> Taker {
    let until = if dice.percent(70) { Millis(known.now.0 + LONGEST) } else { later(known, dice) };
    Taker { worker: worker(known, dice), until }
}

/// Draws a time: just passed, soon, or never.
pub(super) fn later(known: &Known, dice: &mut Dice) -> Millis {
    let now = known.now.0;
    match dice.below(10) {
        0 => Millis(now - dice.below(2)),
        1 => Millis(u64::MAX),
        _ => Millis(now + dice.below(LONGEST)),
    }
}

pub(super) fn head(dice: &mut Dice) -> String {
    let other = dice.one_of(&["draft", "draft", "no/such"]);
    if dice.percent(85) { MAIN.to_owned() } else { other.to_owned() }
}

pub(super) fn wait_key(dice: &mut Dice) -> ReplayKey {
    place(dice.one_of(WAITS))
}

pub(super) fn sink(dice: &mut Dice) -> String {
    dice.one_of(&["one", "one", "one", "two", "nobody"]).to_owned()
}

pub(super) fn value_name(dice: &mut Dice) -> String {
    dice.one_of(VALUES).to_owned()
}

pub(super) fn resolution(known: &Known, dice: &mut Dice) -> Resolution {
    match dice.below(5) {
        0 => Resolution::Ok(json!({ "big": u64::MAX, "small": 1e-300, "text": text(known, dice) })),
        1 => Resolution::Ok(json!("yes")),
        2 => Resolution::Err(Failure::new(Kind::ToolFailed, "no")),
        3 => Resolution::Timeout,
        _ => Resolution::Cancelled,
    }
}

pub(super) fn verdict(known: &Known, dice: &mut Dice) -> Verdict {
    if dice.percent(50) {
        Verdict::DidNotHappen
    } else {
        Verdict::Happened(ToolResult::Ok(json!(text(known, dice))))
    }
}

/// Draws a short text, or rarely one of [`LONG`].
pub(super) fn text(known: &Known, dice: &mut Dice) -> String {
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

pub(super) fn upload(dice: &mut Dice) -> Upload {
    let media_type = MediaType::try_from("text/plain".to_owned()).expect("a media type");
    Upload::new(media_type, None, dice.one_of(&BLOBS[..2])).expect("it has bytes")
}

/// Draws an attachment to upload. Content outside the database was stored before the first sweep or after the first
/// few.
pub(super) fn filed(dice: &mut Dice) -> Filed {
    let Upload { attachment, bytes } = upload(dice);
    match dice.below(3) {
        0 => Filed::Here(Upload { attachment, bytes }),
        _ => Filed::Outside(Outside {
            attachment,
            bytes: bytes.len() as u64,
            sweeps: Sweeps(dice.one_of(&[0, 0, 1, 2])),
        }),
    }
}

/// Draws contents that may be stored outside the database.
pub(super) fn contents(dice: &mut Dice) -> Vec<Hash> {
    dice.some(2, |dice| upload(dice).attachment.content)
}

pub(super) fn blob(dice: &mut Dice) -> Vec<u8> {
    dice.one_of(BLOBS).to_vec()
}

/// Draws the budget changes of a write: effects at a few positions that start, end or are abandoned.
pub(super) fn metering(dice: &mut Dice) -> Metering {
    let key = |dice: &mut Dice| ReplayKey::turn(0).model(dice.one_of(&[0, 1]));
    let settled = |dice: &mut Dice| Settlement {
        key: key(dice),
        used: dice.percent(70).then(|| amount(dice)),
        lost: if dice.percent(10) { amount(dice) } else { Amount::ZERO },
    };
    let if_held = dice.one_of(&[IfHeld::Lost, IfHeld::Stands]);
    let price = dice.one_of(&[Price::Known, Price::Known, Price::Unknown]);
    Metering {
        agent: "clerk".to_owned(),
        budgets: Arc::new(Budgets {
            turn: dice.percent(40).then(|| budget(dice)),
            session: dice.percent(40).then(|| budget(dice)),
            agent: dice.percent(40).then(|| budget(dice)),
            reply_tokens: None,
        }),
        settled: dice.some(2, settled),
        hold: dice.percent(60).then(|| Hold { key: key(dice), most: amount(dice), if_held, price }),
        wishes: dice.some(1, |dice| Wish {
            wait: key(dice).budget(0),
            hold: Hold { key: key(dice), most: amount(dice), if_held, price },
        }),
        driven: Duration::from_millis(dice.one_of(&[0, 0, 7])),
        standing: dice.percent(20).then(|| amount(dice)),
    }
}

/// Draws a call that waits for admission, under one of two rates or both.
pub(super) fn want(dice: &mut Dice) -> Want {
    let rate = |name: &str, dice: &mut Dice| {
        let (name, calls) = (name.parse().expect("a rate's name"), dice.one_of(&[1, 3, 60]));
        let rate = Rate::new(name, "*", NonZeroU32::new(calls).expect("at least one"), Span::Second);
        let when_full = dice.one_of(&[WhenFull::Deny, WhenFull::default()]);
        Rate { burst: NonZeroU32::new(dice.one_of(&[1, 2])).expect("at least one"), when_full, ..rate }
    };
    let mut rates = vec![rate("mail", dice)];
    if dice.percent(30) {
        rates.push(rate("slow", dice));
    }
    let key = ReplayKey::turn(0).tools(0).child(dice.one_of(&[0, 1]), "c");
    let asks = dice.one_of(&[Asks::First, Asks::First, Asks::Again]);
    Want { key, rates, asks, wait_most: Duration::from_secs(2) }
}

pub(super) fn amount(dice: &mut Dice) -> Amount {
    Amount { tokens: dice.below(40), calls: 1, ..Amount::ZERO }
}

pub(super) fn budget(dice: &mut Dice) -> Budget {
    let percent = |dice: &mut Dice| Percent::try_from(dice.one_of(&[50, 80])).ok();
    Budget {
        tokens: Some(dice.one_of(&[0, 30, 100, 1_000])),
        warn_at: percent(dice),
        pause_at: if dice.percent(30) { percent(dice) } else { None },
        per: dice.one_of(&[None, None, Some(Period::Day)]),
        time: dice.percent(30).then(|| Duration::from_millis(20)),
        ..Budget::default()
    }
}
