//! Policy decisions at points of a turn other than tool calls: its start, a model call, the output of the model.
//!
//! A decision is recorded together with what it applies to. A resumed turn reads it instead of evaluating the policy
//! again. An approval is bound to the facts and to the policy version, so changed facts need a new approval. Decisions
//! about tool calls are in `gate`.
use crate::drive::{Turn, TurnInput};
use crate::hooks::{Shaped, reworded};
use crate::host::{Host, Tier};
use crate::inline::not_durable;
use crate::output::value_of;
use crate::validation::redacted;
use outlast_kernel::policy::changed;
use outlast_kernel::step::{AtCheckpoint, CallModel};
use outlast_vocab::effect::{
    AwaitEvent, Effect, Generation, ModelCall, ModelOutcome, Reply, Sleep, Slept, StopReason,
};
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::message::{ModelName, Part, text_of};
use outlast_vocab::policy::{
    Approval, Decision, Facts, Point, Redaction, Resume, Ruling, TEMPERATURE, TEXT, TOKENS_MOST, VARIANT,
    Verdict, approved_facts,
};
use outlast_vocab::record::{Fact, Performed, Ruled};
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Kind, ReplayKey};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Replaces an answer that a rule withholds. The model is told why, and the correction needs an answer to refer to.
const LEFT_OUT: &str = "[left out: a rule does not let this be said]";

/// The outcome of a policy decision.
pub(crate) enum Word {
    /// Proceed.
    Go,
    /// Do not proceed.
    No(Error),
    /// Park the turn on this wait.
    Wait(Wait),
}

/// The subject of a policy decision.
struct About {
    at: Point,
    key: ReplayKey,
    facts: Value,
    labels: Labels,
    /// Whether the turn continues regardless of the decision. Then the decision cannot wait for an approval.
    aside: bool,
}

/// Decides whether a turn may start. A turn that has started proceeds.
pub(crate) async fn at_turn<H: Host>(
    turn: &Turn<'_>,
    input: &TurnInput,
    host: &mut H,
) -> Result<Word, Error> {
    let key = ReplayKey::turn(turn.index);
    let begun = host.history().started().is_some() && host.ruled(&key).is_none();
    if begun || turn.cancel.reason().is_some() || !turn.outfit.decides_at(Point::Turn) {
        return Ok(Word::Go);
    }
    let attachments = input.parts.iter().filter(|part| matches!(part, Part::Attachment { .. })).count();
    let facts = json!({ "input": text_of(&input.parts), "attachments": attachments });
    let about = About { at: Point::Turn, key, facts, labels: turn.labels.clone(), aside: false };
    judged(turn, &about, host).await.map(|(_, word)| word)
}

/// Decides whether a model may be called, and with which options.
pub(crate) async fn at_model<H: Host>(
    turn: &Turn<'_>,
    ask: &CallModel,
    shaped: &mut Shaped<'_>,
    host: &mut H,
) -> Result<Word, Error> {
    if !turn.outfit.decides_at(Point::Model) {
        return Ok(Word::Go);
    }
    let call = shaped.effect(ask, None);
    let facts = model_facts(&call, ask.number());
    let labels = turn.labels_after(ask.messages());
    let about = About { at: Point::Model, key: ask.key().clone(), facts, labels, aside: false };
    let (ruling, word) = judged(turn, &about, host).await?;
    if let Some((set, _)) = ruling.as_ref().and_then(Ruling::change) {
        shaped.options = with_options(call.options, set);
    }
    Ok(word)
}

/// Decides whether a fallback model may be called, and with which options. If a rule denies the call or wants an
/// approval, the model is skipped.
pub(crate) async fn may_fall_back<H: Host>(
    turn: &Turn<'_>,
    ask: &CallModel,
    (number, model): (usize, &ModelName),
    shaped: &mut Shaped<'_>,
    host: &mut H,
) -> Result<bool, Error> {
    if !turn.outfit.decides_at(Point::Model) {
        return Ok(true);
    }
    let call = ModelCall { model: model.clone(), ..shaped.effect(ask, None) };
    let facts = model_facts(&call, ask.number());
    let labels = turn.labels_after(ask.messages());
    let key = ask.key().fallback(number);
    let about = About { at: Point::Model, key, facts, labels, aside: false };
    let (ruling, word) = judged(turn, &about, host).await?;
    if let Some((set, _)) = ruling.as_ref().and_then(Ruling::change) {
        shaped.options = with_options(call.options, set);
    }
    Ok(matches!(word, Word::Go))
}

/// Returns the facts about a model call that rules can match.
pub(crate) fn model_facts(call: &ModelCall, number: u32) -> Value {
    json!({ "model": call.model, "call": number, "options": call.options })
}

/// Applies the changes of a rule to the options of a model call.
pub(crate) fn with_options(options: Generation, set: &BTreeMap<String, Value>) -> Generation {
    let number =
        |path: &str| set.get(path).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    let variant = set.get(VARIANT).and_then(Value::as_str).map(str::to_owned);
    Generation {
        tokens_most: number(TOKENS_MOST).or(options.tokens_most),
        temperature_milli: number(TEMPERATURE).or(options.temperature_milli),
        variant: variant.or(options.variant),
    }
}

/// Returns a request with the changes of the recorded decision applied.
pub(crate) fn as_ruled<H: Host>(effect: ModelCall, key: &ReplayKey, host: &H) -> ModelCall {
    let again = (1..).map_while(|number| host.ruled(&key.again(number))).last();
    match again.or_else(|| host.ruled(key)).and_then(|ruled| ruled.ruling.change()) {
        Some((set, _)) => ModelCall { options: with_options(effect.options, set), ..effect },
        None => effect,
    }
}

/// Evaluates the policy for a reply and returns the reply to record. The decision is recorded with it.
///
/// [`at_output`] reads it later to decide whether an answer completes the turn, and [`at_reply`] to handle a refusal.
/// Text that is denied is removed. Text that needs an approval stays, for the approver. Subscribers get the text now,
/// unless it is withheld.
pub(crate) async fn of_reply<H: Host>(
    turn: &Turn<'_>,
    ask: &CallModel,
    outcome: ModelOutcome,
    host: &mut H,
) -> Result<ModelOutcome, Error> {
    let mut reply = match outcome {
        ModelOutcome::Reply(reply) if turn.outfit.decides_at(Point::Output) => reply,
        outcome => return Ok(outcome),
    };
    let (text, aside) = (text_of(&reply.parts).into_owned(), is_aside(&reply));
    if aside && text.is_empty() {
        return Ok(ModelOutcome::Reply(reply));
    }
    let (key, facts, labels) = (ask.key().output(), answer_facts(&text), turn.labels_after(ask.messages()));
    let mut about = About { at: Point::Output, key, facts, labels, aside };
    let ruling = decided(turn, &mut about, host).await?;
    if let Some((set, redact)) = ruling.as_ref().and_then(Ruling::change) {
        // Reasoning that led to tool calls must stay with them.
        let is_other = set.contains_key(TEXT) && !aside;
        reply.parts = without_thoughts(reply.parts, is_other, redact).await?;
        reply = reworded(turn, ask.key(), reply, with_text(&text, set, redact).await?);
    }
    if let Some(ruling) = ruling.filter(Ruling::holds_back) {
        if ruling.refusal().is_some() && is_answer(&reply) {
            let parts = without_thoughts(reply.parts, true, &[]).await?;
            reply = reworded(turn, ask.key(), Reply { parts, ..reply }, LEFT_OUT.to_owned());
        } else if ruling.refusal().is_some() {
            reply.parts.retain(|part| part.as_text().is_none());
        }
        return Ok(ModelOutcome::Reply(reply));
    }
    let text = text_of(&reply.parts);
    if !text.is_empty() {
        let speaker = turn.world.hub.speaker(turn.caller.session, turn.caller.turn);
        speaker.say(ask.key(), reply.attempt, 0, &text);
    }
    Ok(ModelOutcome::Reply(reply))
}

/// Removes reasoning that contains redacted text. Reasoning is signed, so it is removed as a whole. If the answer is
/// replaced, all reasoning is removed.
async fn without_thoughts(
    parts: Vec<Part>,
    is_other: bool,
    redact: &[Redaction],
) -> Result<Vec<Part>, Error> {
    let mut left = Vec::new();
    for part in parts {
        let stays = match &part {
            Part::Reasoning { text, .. } => !is_other && redacted(text, redact).await? == *text,
            _ => true,
        };
        left.extend(stays.then_some(part));
    }
    Ok(left)
}

/// Returns the text with the changes of a rule applied.
async fn with_text(text: &str, set: &BTreeMap<String, Value>, redact: &[Redaction]) -> Result<String, Error> {
    redacted(set.get(TEXT).and_then(Value::as_str).unwrap_or(text), redact).await
}

/// Decides whether the model may be called for a summary, and with which options. No turn waits for a summary, so a
/// decision that would wait denies it.
pub(crate) async fn at_summary<H: Host>(
    turn: &Turn<'_>,
    ask: &CallModel,
    (key, call): (&ReplayKey, &ModelCall),
    host: &mut H,
) -> Result<Generation, Error> {
    let options = call.options.clone();
    if !turn.outfit.decides_at(Point::Model) {
        return Ok(options);
    }
    let (facts, labels) = (model_facts(call, ask.number()), turn.labels_after(ask.messages()));
    let mut about = About { at: Point::Model, key: key.clone(), facts, labels, aside: false };
    let Some(ruling) = decided(turn, &mut about, host).await? else { return Ok(options) };
    if let Some(refusal) = ruling.refusal() {
        return Err(refusal);
    }
    if let Decision::Ask(_) | Decision::Defer { .. } = ruling.decision {
        let detail = format!("the rule `{}` holds the summary up, which no turn waits for", ruling.rule);
        return Err(Error::new(Kind::PolicyDenied, detail));
    }
    Ok(match ruling.change() {
        Some((set, _)) => with_options(options, set),
        None => options,
    })
}

/// Returns whether the answer was denied. Then it was replaced, and no other check of it matters.
pub(crate) fn is_left_out<H: Host>(at: &AtCheckpoint, host: &H) -> bool {
    host.ruled(&at.answered_by().output()).is_some_and(|ruled| ruled.ruling.refusal().is_some())
}

/// Returns whether an answer completes its turn, from the decision recorded with it.
pub(crate) fn at_output<H: Host>(turn: &Turn<'_>, at: &AtCheckpoint, host: &mut H) -> Result<Word, Error> {
    let key = at.answered_by().output();
    let (Some(answer), Some(ruled_then)) = (at.answer(), host.ruled(&key).cloned()) else {
        return Ok(Word::Go);
    };
    ruled(turn, &About::said(key, &answer), Some(ruled_then.ruling), host)
}

/// Returns whether a turn continues after a reply that is not an answer, from the decision recorded with it.
pub(crate) fn at_reply<H: Host>(
    turn: &Turn<'_>,
    call: &ReplayKey,
    outcome: &ModelOutcome,
    host: &mut H,
) -> Result<Word, Error> {
    let key = call.output();
    let (ModelOutcome::Reply(reply), Some(ruled_then)) = (outcome, host.ruled(&key).cloned()) else {
        return Ok(Word::Go);
    };
    let ends = matches!(ruled_then.ruling.decision, Decision::Interrupt { .. });
    if is_answer(reply) || (is_aside(reply) && !ends) {
        return Ok(Word::Go);
    }
    ruled(turn, &About::said(key, &text_of(&reply.parts)), Some(ruled_then.ruling), host)
}

impl About {
    /// Describes output that was already decided on.
    fn said(key: ReplayKey, text: &str) -> Self {
        Self { at: Point::Output, key, facts: answer_facts(text), labels: Labels::default(), aside: false }
    }
}

/// Returns whether the text of a reply is neither an answer nor a refusal: it accompanies tool calls or was truncated.
fn is_aside(reply: &Reply) -> bool {
    !reply.calls.is_empty() || reply.stop == StopReason::Length
}

fn is_answer(reply: &Reply) -> bool {
    reply.calls.is_empty() && matches!(reply.stop, StopReason::End | StopReason::ToolUse)
}

fn answer_facts(text: &str) -> Value {
    match value_of(text) {
        Ok(value) => json!({ "text": text, "value": value }),
        Err(_) => json!({ "text": text }),
    }
}

/// Returns the latest decision and its outcome.
///
/// A rule may defer and then decide again. Each time is a separate decision with its own key. If no rule matches after
/// a deferral, an `allow` is recorded, so that the turn is not deferred again when it is resumed.
async fn judged<H: Host>(
    turn: &Turn<'_>,
    about: &About,
    host: &mut H,
) -> Result<(Option<Ruling>, Word), Error> {
    let mut number = 0;
    let mut put_off: Option<Ruling> = None;
    loop {
        let key = if number == 0 { about.key.clone() } else { about.key.again(number) };
        let About { at, facts, labels, aside, .. } = about;
        let mut now = About { at: *at, key, facts: facts.clone(), labels: labels.clone(), aside: *aside };
        let ruling = match (decided(turn, &mut now, host).await?, put_off) {
            (None, Some(Ruling { rule, .. })) => {
                let goes = Ruling::new(rule, turn.outfit.policy, Decision::Allow);
                let noted = Ruled::new(now.key.clone(), now.at, goes.clone(), &now.facts, now.labels.clone());
                host.note(Fact::Ruled(noted));
                Some(goes)
            }
            (ruling, _) => ruling,
        };
        let word = ruled(turn, &now, ruling.clone(), host)?;
        let is_again =
            |ruling: &&Ruling| matches!(ruling.decision, Decision::Defer { resume: Resume::Judge, .. });
        let (Word::Go, Some(again)) = (&word, ruling.as_ref().filter(is_again)) else {
            return Ok((ruling, word));
        };
        number += 1;
        // A recorded decision stays valid, even if the limit is lower now.
        if number > turn.world.limits.judged_again && host.ruled(&about.key.again(number)).is_none() {
            let detail =
                format!("the rule `{}` put it off {number} times, and its time did not come", again.rule);
            let denied = Error::new(Kind::PolicyDenied, detail).decided_by(again.to_string());
            return Ok((None, Word::No(denied)));
        }
        put_off = ruling;
    }
}

/// Returns the recorded decision, or evaluates and records a new one. Applies its changes to the facts of `about`, so
/// that an approver sees what will happen.
async fn decided<H: Host>(turn: &Turn<'_>, about: &mut About, host: &mut H) -> Result<Option<Ruling>, Error> {
    let About { at, key, facts, labels, aside } = about;
    let (known, at) = (host.ruled(key).map(|ruled| ruled.ruling.clone()), *at);
    let is_known = known.is_some();
    let ruling = if let Some(ruling) = known {
        ruling
    } else {
        let around = turn.outfit.circumstances(turn.org, host.spending());
        let provenance = &Provenance::default();
        let asked = Facts { at, tool: None, value: facts, labels, provenance, around: &around };
        match turn.outfit.rule(&asked).await {
            Some(ruling) if *aside && matches!(ruling.decision, Decision::Ask(_)) => {
                let reason = "nobody is asked about what is said beside calls".to_owned();
                Ruling { decision: Decision::Deny { reason }, ..ruling }
            }
            Some(ruling) => ruling,
            None => return Ok(None),
        }
    };
    if let Some((set, redact)) = ruling.change() {
        *facts = match facts.get("text").and_then(Value::as_str) {
            Some(text) if at == Point::Output => answer_facts(&with_text(text, set, redact).await?),
            _ => changed(facts, set),
        };
    }
    if !is_known {
        let ruled = Ruled::new(key.clone(), at, ruling.clone(), facts, labels.clone());
        host.note(Fact::Ruled(ruled));
    }
    Ok(Some(ruling))
}

/// Carries out a decision: proceed, refuse, or wait for an approval or a deferral.
fn ruled<H: Host>(
    turn: &Turn<'_>,
    about: &About,
    ruling: Option<Ruling>,
    host: &mut H,
) -> Result<Word, Error> {
    let Some(ruling) = ruling else { return Ok(Word::Go) };
    if let Some(refusal) = ruling.refusal() {
        return Ok(Word::No(refusal));
    }
    let now = turn.world.clock.now();
    match ruling.decision {
        Decision::Ask(ask) => {
            let key = about.key.approval(&approved_facts(about.at, &about.facts, turn.outfit.policy));
            if host.tier() == Tier::Ephemeral {
                return Ok(Word::No(not_durable("asking for an approval")));
            }
            let deadline = match host.history().wait(&key) {
                Some(wait) => wait.deadline,
                None => ask.expires.map(|expires| now.after(expires)),
            };
            let effect = AwaitEvent { key: key.clone(), deadline };
            let over = deadline.is_some_and(|deadline| deadline <= now).then_some(Resolution::Timeout);
            match awaited(key.clone(), effect, over, host)? {
                Some(resolution) => Ok(approved(resolution).map_or_else(Word::No, |()| Word::Go)),
                None => Ok(Word::Wait(Wait { key, kind: WaitKind::Approval, deadline })),
            }
        }
        Decision::Defer { pause, .. } => {
            let key = about.key.deferred();
            if host.tier() == Tier::Ephemeral {
                return Ok(Word::No(not_durable("deferring")));
            }
            let pinned = host.history().wait(&key).and_then(|wait| wait.deadline);
            let until = pinned.unwrap_or_else(|| now.after(pause));
            match awaited(key.clone(), Sleep { until }, (until <= now).then_some(Slept {}), host)? {
                Some(Slept {}) => Ok(Word::Go),
                None => Ok(Word::Wait(Wait { key, kind: WaitKind::Sleep, deadline: Some(until) })),
            }
        }
        Decision::Allow | Decision::Modify { .. } | Decision::Deny { .. } | Decision::Interrupt { .. } => {
            Ok(Word::Go)
        }
    }
}

/// Returns how a wait ended: as recorded, as resolved, or because its deadline has passed. The last two are recorded.
fn awaited<E: Effect, H: Host>(
    key: ReplayKey,
    effect: E,
    over: Option<E::Outcome>,
    host: &mut H,
) -> Result<Option<E::Outcome>, Error>
where
    E::Outcome: Clone,
{
    if let Some(outcome) = host.history().answer(&key, &effect)? {
        return Ok(Some(outcome));
    }
    let resolved = host.history().resolution(&key).cloned().map(outlast_vocab::effect::Outcome::from);
    let resolved = resolved.map(|outcome| outcome.of::<E>(&key)).transpose()?;
    let Some(outcome) = resolved.or(over) else { return Ok(None) };
    host.note(Fact::Performed(Performed::new(key, effect, outcome.clone())));
    Ok(Some(outcome))
}

/// Checks whether a resolved approval lets something other than a tool call proceed.
pub(crate) fn approved(resolution: Resolution) -> Result<(), Error> {
    let denied = |why: String| Err(Error::new(Kind::ApprovalDenied, why));
    match resolution {
        Resolution::Ok(value) => match serde_json::from_value::<Approval>(value) {
            Ok(Approval { verdict: Verdict::Approve | Verdict::ApproveForSession, .. }) => Ok(()),
            Ok(Approval { by, verdict: Verdict::Deny { reason }, .. }) => {
                denied(format!("{by} said no: {reason}"))
            }
            Ok(Approval { verdict: Verdict::Edit { .. }, .. }) => {
                denied("only the arguments of a call can be changed by who approves".to_owned())
            }
            Err(_) => denied("the answer was no approval".to_owned()),
        },
        Resolution::Err(failure) => denied(failure.detail),
        Resolution::Timeout => denied("nobody approved it in time".to_owned()),
        Resolution::Cancelled => denied("the question was withdrawn".to_owned()),
    }
}
