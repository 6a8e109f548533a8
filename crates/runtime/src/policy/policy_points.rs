//! Policy decisions at points of a turn other than tool calls: its start, a model call, the output of the model.
//!
//! A decision is recorded together with what it applies to. A resumed turn reads it instead of evaluating the policy
//! again. An approval is bound to the facts and to the policy version, so changed facts need a new approval. Decisions
//! about tool calls are in `policy_evaluator`.
use crate::delivery::live::LiveHub;
use crate::limits::fair_permits::WorkOwner;
use crate::limits::validation::redacted;
use crate::policy::hooks::{HookedModelRequest, reworded};
use crate::turn::host::{HostTier, TurnJournal};
use crate::turn::inline_host::not_durable;
use crate::turn::output_schema::value_of;
use crate::turn::provenance::TextSources;
use crate::turn::turn_run::TurnRun;
use outlast_kernel::policy::with_values_set;
use outlast_kernel::step::{CallModelStep, CheckpointStep};
use outlast_vocab::effect::{
    AwaitEvent, Effect, Generation, ModelCall, ModelOutcome, Reply, Sleep, SleepOutcome, StopReason,
};
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::message::{ModelName, Part, text_of};
use outlast_vocab::policy::{
    AfterDeferral, Approval, ApprovalVerdict, PolicyDecision, PolicyFacts, PolicyPoint, RecordedDecision,
    Redaction, TEMPERATURE, TEXT, TOKENS_MOST, VARIANT, approved_facts_fingerprint,
};
use outlast_vocab::record::{EffectPerformed, Fact, PolicyDecided};
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Kind, ReplayKey};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Replaces an answer that a rule withholds. The model is told why, and the correction needs an answer to refer to.
const WITHHELD_ANSWER: &str = "[left out: a rule does not let this be said]";

/// The outcome of a policy decision.
pub(crate) enum PolicyOutcome {
    /// Proceed.
    Continue,
    /// Do not proceed.
    Refuse(Error),
    /// Park the turn on this wait.
    Wait(Wait),
}

/// The subject of a policy decision.
struct PolicySubject {
    at: PolicyPoint,
    key: ReplayKey,
    facts: Value,
    labels: Labels,
    /// Whether the turn continues regardless of the decision. Then the decision cannot wait for an approval.
    aside: bool,
}

/// Asks the policy of an agent at the points of one turn.
#[derive(Clone, Copy)]
pub(crate) struct PolicyPoints<'a> {
    pub(crate) run: TurnRun<'a>,
    /// Where the text comes from that the model has read.
    pub(crate) sources: &'a TextSources,
}

impl PolicyPoints<'_> {
    /// Decides whether a turn may start. A turn that has started proceeds.
    pub(crate) async fn at_turn<H: TurnJournal>(
        &self,
        input: &[Part],
        host: &mut H,
    ) -> Result<PolicyOutcome, Error> {
        let key = ReplayKey::turn(self.run.index);
        let begun = host.history().started().is_some() && host.policy_ruling(&key).is_none();
        if begun || !self.run.agent.decides_at(PolicyPoint::Turn) {
            return Ok(PolicyOutcome::Continue);
        }
        let attachments = input.iter().filter(|part| part.is_file()).count();
        let facts = json!({ "input": text_of(input), "attachments": attachments });
        let labels = self.sources.before().clone();
        let about = PolicySubject { at: PolicyPoint::Turn, key, facts, labels, aside: false };
        self.judged(&about, host).await.map(|(_, outcome)| outcome)
    }

    /// Decides whether a model may be called, and with which options.
    pub(crate) async fn at_model<H: TurnJournal>(
        &self,
        ask: &CallModelStep,
        shaped: &mut HookedModelRequest<'_>,
        host: &mut H,
    ) -> Result<PolicyOutcome, Error> {
        if !self.run.agent.decides_at(PolicyPoint::Model) {
            return Ok(PolicyOutcome::Continue);
        }
        let call = shaped.effect(ask, None);
        let facts = model_facts(&call, ask.number());
        let labels = self.sources.labels_after(self.run.agent, ask.messages());
        let about =
            PolicySubject { at: PolicyPoint::Model, key: ask.key().clone(), facts, labels, aside: false };
        let (ruling, outcome) = self.judged(&about, host).await?;
        if let Some((set, _)) = ruling.as_ref().and_then(RecordedDecision::change) {
            shaped.options = with_options(call.options, set);
        }
        Ok(outcome)
    }

    /// Decides whether a fallback model may be called, and with which options. If a rule denies the call or wants an
    /// approval, the model is skipped.
    pub(crate) async fn may_fall_back<H: TurnJournal>(
        &self,
        ask: &CallModelStep,
        number: usize,
        model: &ModelName,
        shaped: &mut HookedModelRequest<'_>,
        host: &mut H,
    ) -> Result<bool, Error> {
        if !self.run.agent.decides_at(PolicyPoint::Model) {
            return Ok(true);
        }
        let call = ModelCall { model: model.clone(), ..shaped.effect(ask, None) };
        let facts = model_facts(&call, ask.number());
        let labels = self.sources.labels_after(self.run.agent, ask.messages());
        let key = ask.key().fallback(number);
        let about = PolicySubject { at: PolicyPoint::Model, key, facts, labels, aside: false };
        let (ruling, outcome) = self.judged(&about, host).await?;
        if let Some((set, _)) = ruling.as_ref().and_then(RecordedDecision::change) {
            shaped.options = with_options(call.options, set);
        }
        Ok(matches!(outcome, PolicyOutcome::Continue))
    }

    /// Evaluates the policy for a reply and returns the reply to record. The decision is recorded with it.
    ///
    /// [`at_output`] reads it later to decide whether an answer completes the turn, and [`at_reply`] to handle a refusal.
    /// Text that is denied is removed. Text that needs an approval stays, for the approver. Subscribers get the text now,
    /// unless it is withheld.
    pub(crate) async fn of_reply<H: TurnJournal>(
        &self,
        ask: &CallModelStep,
        outcome: ModelOutcome,
        hub: &LiveHub,
        host: &mut H,
    ) -> Result<ModelOutcome, Error> {
        let mut reply = match outcome {
            ModelOutcome::Reply(reply) if self.run.agent.decides_at(PolicyPoint::Output) => reply,
            outcome => return Ok(outcome),
        };
        let (text, aside) = (text_of(&reply.parts).into_owned(), is_aside(&reply));
        if aside && text.is_empty() {
            return Ok(ModelOutcome::Reply(reply));
        }
        let (key, facts, labels) = (
            ask.key().output(),
            answer_facts(&text),
            self.sources.labels_after(self.run.agent, ask.messages()),
        );
        let mut about = PolicySubject { at: PolicyPoint::Output, key, facts, labels, aside };
        let ruling = self.decided(&mut about, host).await?;
        if let Some((set, redact)) = ruling.as_ref().and_then(RecordedDecision::change) {
            // Reasoning that led to tool calls must stay with them.
            let is_other = set.contains_key(TEXT) && !aside;
            reply.parts = without_thoughts(reply.parts, is_other, redact, self.run.org).await?;
            reply = reworded(reply, with_text(&text, set, redact, self.run.org).await?);
        }
        if let Some(ruling) = ruling.filter(RecordedDecision::prevents_action) {
            if ruling.refusal().is_some() && is_answer(&reply) {
                let parts = without_thoughts(reply.parts, true, &[], self.run.org).await?;
                reply = reworded(Reply { parts, ..reply }, WITHHELD_ANSWER.to_owned());
            } else if ruling.refusal().is_some() {
                reply.parts.retain(|part| part.as_text().is_none());
            }
            return Ok(ModelOutcome::Reply(reply));
        }
        let text = text_of(&reply.parts);
        if !text.is_empty() {
            hub.reply(self.run.caller).publish(ask.key(), reply.attempt, 0, &text);
        }
        Ok(ModelOutcome::Reply(reply))
    }

    /// Decides whether the model may be called for a summary, and with which options. No turn waits for a summary, so a
    /// decision that would wait denies it.
    pub(crate) async fn at_summary<H: TurnJournal>(
        &self,
        ask: &CallModelStep,
        key: &ReplayKey,
        call: &ModelCall,
        host: &mut H,
    ) -> Result<Generation, Error> {
        let options = call.options.clone();
        if !self.run.agent.decides_at(PolicyPoint::Model) {
            return Ok(options);
        }
        let (facts, labels) =
            (model_facts(call, ask.number()), self.sources.labels_after(self.run.agent, ask.messages()));
        let mut about =
            PolicySubject { at: PolicyPoint::Model, key: key.clone(), facts, labels, aside: false };
        let Some(ruling) = self.decided(&mut about, host).await? else { return Ok(options) };
        if let Some(refusal) = ruling.refusal() {
            return Err(refusal);
        }
        if let PolicyDecision::Ask(_) | PolicyDecision::Defer { .. } = ruling.decision {
            let detail =
                format!("the rule `{}` pauses the summary, but summaries cannot be paused", ruling.rule);
            return Err(Error::new(Kind::PolicyDenied, detail));
        }
        Ok(match ruling.change() {
            Some((set, _)) => with_options(options, set),
            None => options,
        })
    }

    /// Returns whether an answer completes its turn, from the decision recorded with it.
    pub(crate) fn at_output<H: TurnJournal>(
        &self,
        at: &CheckpointStep,
        host: &mut H,
    ) -> Result<PolicyOutcome, Error> {
        let key = at.answered_by().output();
        let (Some(answer), Some(ruled_then)) = (at.answer(), host.policy_ruling(&key).cloned()) else {
            return Ok(PolicyOutcome::Continue);
        };
        self.carry_out_ruling(&PolicySubject::said(key, &answer), Some(&ruled_then.ruling), host)
    }

    /// Returns whether a turn continues after a reply that is not an answer, from the decision recorded with it.
    pub(crate) fn at_reply<H: TurnJournal>(
        &self,
        call: &ReplayKey,
        outcome: &ModelOutcome,
        host: &mut H,
    ) -> Result<PolicyOutcome, Error> {
        let key = call.output();
        let (ModelOutcome::Reply(reply), Some(ruled_then)) = (outcome, host.policy_ruling(&key).cloned())
        else {
            return Ok(PolicyOutcome::Continue);
        };
        let ends = matches!(ruled_then.ruling.decision, PolicyDecision::Interrupt { .. });
        if is_answer(reply) || (is_aside(reply) && !ends) {
            return Ok(PolicyOutcome::Continue);
        }
        self.carry_out_ruling(
            &PolicySubject::said(key, &text_of(&reply.parts)),
            Some(&ruled_then.ruling),
            host,
        )
    }

    /// Returns the latest decision and its outcome.
    ///
    /// A rule may defer and then decide again. Each time is a separate decision with its own key. If no rule matches after
    /// a deferral, an `allow` is recorded, so that the turn is not deferred again when it is resumed.
    async fn judged<H: TurnJournal>(
        &self,
        about: &PolicySubject,
        host: &mut H,
    ) -> Result<(Option<RecordedDecision>, PolicyOutcome), Error> {
        let mut number = 0;
        let mut put_off: Option<RecordedDecision> = None;
        loop {
            let key = if number == 0 { about.key.clone() } else { about.key.decision_after_deferral(number) };
            let PolicySubject { at, facts, labels, aside, .. } = about;
            let mut now =
                PolicySubject { at: *at, key, facts: facts.clone(), labels: labels.clone(), aside: *aside };
            let ruling = match (self.decided(&mut now, host).await?, put_off) {
                (None, Some(RecordedDecision { rule, .. })) => {
                    let goes = RecordedDecision::new(rule, self.run.agent.policy, PolicyDecision::Allow);
                    let noted = PolicyDecided::new(
                        now.key.clone(),
                        now.at,
                        goes.clone(),
                        &now.facts,
                        now.labels.clone(),
                    );
                    host.buffer_fact(Fact::Ruled(noted));
                    Some(goes)
                }
                (ruling, _) => ruling,
            };
            let outcome = self.carry_out_ruling(&now, ruling.as_ref(), host)?;
            let is_again = |ruling: &&RecordedDecision| {
                matches!(ruling.decision, PolicyDecision::Defer { resume: AfterDeferral::Judge, .. })
            };
            let (PolicyOutcome::Continue, Some(again)) = (&outcome, ruling.as_ref().filter(is_again)) else {
                return Ok((ruling, outcome));
            };
            number += 1;
            // A recorded decision stays valid, even if the limit is lower now.
            if number > self.run.agent.evaluator.deferrals_max
                && host.policy_ruling(&about.key.decision_after_deferral(number)).is_none()
            {
                let detail =
                    format!("the rule `{}` put it off {number} times, and its time did not come", again.rule);
                let denied = Error::new(Kind::PolicyDenied, detail).decided_by(again.to_string());
                return Ok((None, PolicyOutcome::Refuse(denied)));
            }
            put_off = ruling;
        }
    }

    /// Returns the recorded decision, or evaluates and records a new one. Applies its changes to the facts of `about`, so
    /// that an approver sees what will happen.
    async fn decided<H: TurnJournal>(
        &self,
        about: &mut PolicySubject,
        host: &mut H,
    ) -> Result<Option<RecordedDecision>, Error> {
        let PolicySubject { at, key, facts, labels, aside } = about;
        let (known, at) = (host.policy_ruling(key).map(|ruled| ruled.ruling.clone()), *at);
        let is_known = known.is_some();
        let ruling = if let Some(ruling) = known {
            ruling
        } else {
            let around = self.run.agent.circumstances(self.run.org, host.spending());
            let provenance = &Provenance::default();
            let asked =
                PolicyFacts { at, tool: None, value: facts, labels, provenance, circumstances: &around };
            match self.run.agent.rule(&asked).await {
                Some(ruling) if *aside && matches!(ruling.decision, PolicyDecision::Ask(_)) => {
                    let reason = "nobody is asked about what is said beside calls".to_owned();
                    RecordedDecision { decision: PolicyDecision::Deny { reason }, ..ruling }
                }
                Some(ruling) => ruling,
                None => return Ok(None),
            }
        };
        if let Some((set, redact)) = ruling.change() {
            *facts = match facts.get("text").and_then(Value::as_str) {
                Some(text) if at == PolicyPoint::Output => {
                    answer_facts(&with_text(text, set, redact, self.run.org).await?)
                }
                _ => with_values_set(facts, set),
            };
        }
        if !is_known {
            let ruled = PolicyDecided::new(key.clone(), at, ruling.clone(), facts, labels.clone());
            host.buffer_fact(Fact::Ruled(ruled));
        }
        Ok(Some(ruling))
    }

    /// Carries out a decision: proceed, refuse, or wait for an approval or a deferral.
    fn carry_out_ruling<H: TurnJournal>(
        &self,
        about: &PolicySubject,
        ruling: Option<&RecordedDecision>,
        host: &mut H,
    ) -> Result<PolicyOutcome, Error> {
        let Some(ruling) = ruling else { return Ok(PolicyOutcome::Continue) };
        if let Some(refusal) = ruling.refusal() {
            return Ok(PolicyOutcome::Refuse(refusal));
        }
        let now = self.run.agent.evaluator.now();
        match &ruling.decision {
            PolicyDecision::Ask(ask) => {
                let key = about.key.approval(&approved_facts_fingerprint(
                    about.at,
                    &about.facts,
                    self.run.agent.policy,
                ));
                if host.tier() == HostTier::Ephemeral {
                    return Ok(PolicyOutcome::Refuse(not_durable("asking for an approval")));
                }
                let deadline = match host.history().wait(&key) {
                    Some(wait) => wait.deadline,
                    None => ask.expires.map(|expires| now.after(expires)),
                };
                let effect = AwaitEvent { key: key.clone(), deadline };
                let over = deadline.is_some_and(|deadline| deadline <= now).then_some(Resolution::Timeout);
                match awaited(&key, effect, over, host)? {
                    Some(resolution) => {
                        Ok(approved(resolution)
                            .map_or_else(PolicyOutcome::Refuse, |()| PolicyOutcome::Continue))
                    }
                    None => Ok(PolicyOutcome::Wait(Wait { key, kind: WaitKind::Approval, deadline })),
                }
            }
            PolicyDecision::Defer { pause, .. } => {
                let key = about.key.deferred();
                if host.tier() == HostTier::Ephemeral {
                    return Ok(PolicyOutcome::Refuse(not_durable("deferring")));
                }
                let pinned = host.history().wait(&key).and_then(|wait| wait.deadline);
                let until = pinned.unwrap_or_else(|| now.after(*pause));
                match awaited(&key, Sleep { until }, (until <= now).then_some(SleepOutcome {}), host)? {
                    Some(SleepOutcome {}) => Ok(PolicyOutcome::Continue),
                    None => {
                        Ok(PolicyOutcome::Wait(Wait { key, kind: WaitKind::Sleep, deadline: Some(until) }))
                    }
                }
            }
            PolicyDecision::Allow
            | PolicyDecision::Modify { .. }
            | PolicyDecision::Deny { .. }
            | PolicyDecision::Interrupt { .. } => Ok(PolicyOutcome::Continue),
        }
    }
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
        ..options
    }
}

/// Returns a request with the changes of the recorded decision applied.
pub(crate) fn as_ruled<H: TurnJournal>(effect: ModelCall, key: &ReplayKey, host: &H) -> ModelCall {
    let again = (1..).map_while(|number| host.policy_ruling(&key.decision_after_deferral(number))).last();
    match again.or_else(|| host.policy_ruling(key)).and_then(|ruled| ruled.ruling.change()) {
        Some((set, _)) => ModelCall { options: with_options(effect.options, set), ..effect },
        None => effect,
    }
}

/// Removes reasoning that contains redacted text. Reasoning is signed, so it is removed as a whole. If the answer is
/// replaced, all reasoning is removed.
async fn without_thoughts(
    parts: Vec<Part>,
    is_other: bool,
    redact: &[Redaction],
    owner: WorkOwner,
) -> Result<Vec<Part>, Error> {
    let mut left = Vec::new();
    for part in parts {
        let stays = match &part {
            Part::Reasoning { text, .. } => !is_other && redacted(text, redact, owner).await? == *text,
            _ => true,
        };
        left.extend(stays.then_some(part));
    }
    Ok(left)
}

/// Returns the text with the changes of a rule applied.
async fn with_text(
    text: &str,
    set: &BTreeMap<String, Value>,
    redact: &[Redaction],
    owner: WorkOwner,
) -> Result<String, Error> {
    redacted(set.get(TEXT).and_then(Value::as_str).unwrap_or(text), redact, owner).await
}

/// Returns whether the answer was denied. Then it was replaced, and no other check of it matters.
pub(crate) fn is_answer_withheld<H: TurnJournal>(at: &CheckpointStep, host: &H) -> bool {
    host.policy_ruling(&at.answered_by().output()).is_some_and(|ruled| ruled.ruling.refusal().is_some())
}

impl PolicySubject {
    /// Describes output that was already decided on.
    fn said(key: ReplayKey, text: &str) -> Self {
        Self {
            at: PolicyPoint::Output,
            key,
            facts: answer_facts(text),
            labels: Labels::default(),
            aside: false,
        }
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

/// Returns how a wait ended: as recorded, as resolved, or because its deadline has passed. The last two are recorded.
fn awaited<E: Effect, H: TurnJournal>(
    key: &ReplayKey,
    effect: E,
    over: Option<E::Outcome>,
    host: &mut H,
) -> Result<Option<E::Outcome>, Error>
where
    E::Outcome: Clone,
{
    if let Some(outcome) = host.history().answer(key, &effect)? {
        return Ok(Some(outcome));
    }
    let resolved = host.history().resolution(key).cloned().map(outlast_vocab::effect::Outcome::from);
    let resolved = resolved.map(|outcome| outcome.of::<E>(key)).transpose()?;
    let Some(outcome) = resolved.or(over) else { return Ok(None) };
    host.buffer_fact(Fact::Performed(EffectPerformed::new(key.clone(), effect, outcome.clone())));
    Ok(Some(outcome))
}

/// Checks whether a resolved approval lets something other than a tool call proceed.
pub(crate) fn approved(resolution: Resolution) -> Result<(), Error> {
    let denied = |why: String| Err(Error::new(Kind::ApprovalDenied, why));
    match resolution {
        Resolution::Ok(value) => match serde_json::from_value::<Approval>(value) {
            Ok(Approval {
                verdict: ApprovalVerdict::Approve | ApprovalVerdict::ApproveForSession, ..
            }) => Ok(()),
            Ok(Approval { by, verdict: ApprovalVerdict::Deny { reason }, .. }) => {
                denied(format!("{by} said no: {reason}"))
            }
            Ok(Approval { verdict: ApprovalVerdict::Edit { .. }, .. }) => {
                denied("only the arguments of a call can be changed by who approves".to_owned())
            }
            Err(_) => denied("the answer was no approval".to_owned()),
        },
        Resolution::Err(failure) => denied(failure.detail),
        Resolution::Timeout => denied("the approval did not arrive in time".to_owned()),
        Resolution::Cancelled => denied("the question was withdrawn".to_owned()),
    }
}
