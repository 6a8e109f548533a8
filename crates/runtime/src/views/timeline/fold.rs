//! Folds the records of a turn into its timeline, one record at a time.
use super::{
    CallView, DecisionView, EffectIncident, EffectState, EffectView, IncidentKind, Timeline, TurnResume,
};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{
    BatchCall, Command, DirectOutcome, EffectKind, ModelCharge, ModelOutcome, Outcome, RefusedCall,
    StepOutcome, ToolOutcome, Usage,
};
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::message::{HookName, ToolName, ToolResult};
use outlast_vocab::policy::{PolicyPoint, RecordedDecision};
use outlast_vocab::record::{
    AttemptsFailed, ClaimRef, EffectAnswered, EffectPerformed, EffectRequested, Fact, FailedAttempt,
    HookApplied, InterruptedReply, OutcomeVerdict, PolicyDecided, Record, ReplyInterruption, Seq,
};
use outlast_vocab::wait::{Resolution, Wait};
use outlast_vocab::{Error, Failure, Millis, ReplayKey};
use serde_json::{Value, json};

/// The number and the time of a record.
#[derive(Clone, Copy)]
struct RecordStamp {
    seq: Seq,
    at: Millis,
}

#[derive(Default)]
pub(super) struct TimelineFold {
    effects: Vec<EffectView>,
    /// The index of the effect of each claim.
    claims: Vec<(ClaimRef, usize)>,
    /// Hooks that changed effects without a record so far.
    hooked: Vec<(ReplayKey, HookName)>,
    /// Decisions about nested calls without a record so far.
    ruled: Vec<PolicyDecided>,
    /// Incidents of effects without a record so far. Without a key, it belongs to the next effect.
    ahead: Vec<(Option<ReplayKey>, EffectIncident)>,
    /// Decisions about anything other than tool calls and model calls of the turn.
    decided: Vec<DecisionView>,
    resumes: Vec<TurnResume>,
}

impl TimelineFold {
    /// Builds the timeline. What is left over belongs to the enclosing effect, or else to the turn.
    pub(super) fn timeline(mut self) -> Timeline {
        for (key, incident) in std::mem::take(&mut self.ahead) {
            if let Some(effect) = key.and_then(|key| self.around(&key)) {
                effect.incidents.push(incident);
            }
        }
        let mut decisions = Vec::new();
        for decided in std::mem::take(&mut self.decided) {
            match self.around(&decided.key) {
                Some(effect) => effect.decisions.push(decided),
                None => decisions.push(decided),
            }
        }
        Timeline { effects: self.effects, decisions, resumes: self.resumes }
    }

    pub(super) fn take(&mut self, record: Record, before: Millis) {
        let Record { seq, at, fact, .. } = record;
        let record = RecordStamp { seq, at };
        match fact {
            Fact::Asked(EffectRequested { key, command: Command::ToolBatch(batch) }) => {
                for (child, call) in (0..).zip(batch.calls) {
                    let place = key.child(child as usize, call.model_id().as_str());
                    self.claims.push((ClaimRef { asked: record.seq, child }, self.effects.len()));
                    self.add(EffectView { from: record.at, ..claimed(place, record, call) });
                }
            }
            Fact::Asked(EffectRequested { key, command }) => {
                self.claims.push((ClaimRef { asked: record.seq, child: 0 }, self.effects.len()));
                self.add(EffectView { from: record.at, ..asked(key, record, command) });
            }
            Fact::Performed(performed) => self.perform(record, before, performed),
            Fact::Answered(EffectAnswered { claim, outcome, cost }) => {
                if let Some(effect) = self.claim(claim) {
                    effect.settle(record, &outcome);
                    effect.charge(cost);
                }
            }
            Fact::Settled(settled) => {
                if let Some(effect) = self.claim(settled.claim) {
                    effect.settle_by_word(record, &settled.verdict);
                }
            }
            Fact::Reclaimed(reclaimed) => {
                if let Some(effect) = self.claim(reclaimed.claim) {
                    // A claim that was only renewed, because its call was parked, keeps its number.
                    if reclaimed.attempt > effect.attempts {
                        let again = IncidentKind::Again { attempt: reclaimed.attempt };
                        effect.incidents.push(incident(record, again));
                    }
                    effect.attempts = reclaimed.attempt;
                }
            }
            Fact::Paced(paced) => {
                self.add_incident(paced.key.clone(), incident(record, IncidentKind::Paced(paced)));
            }
            Fact::Payment(payment) => {
                self.add_incident(payment.key.clone(), incident(record, IncidentKind::Payment(payment)));
            }
            Fact::Stuck { failure } => {
                let stuck = incident(record, IncidentKind::Stuck(failure));
                match self.effects.iter_mut().rev().find(|effect| effect.state == EffectState::Open) {
                    Some(effect) => effect.incidents.push(stuck),
                    None => self.ahead.push((None, stuck)),
                }
            }
            Fact::Resumed(resumed) => {
                let answered = self.effects.iter_mut().filter(|effect| effect.answered.is_some());
                let replayed = answered.map(|effect| effect.replays += 1).count();
                self.resumes.push(TurnResume { seq: record.seq, by: resumed, replayed });
            }
            Fact::Tried(tried) => self.try_again(tried, record, before),
            Fact::Interrupted(interrupted) => {
                if let Some(call) = self.model_call(&interrupted.key, record, before) {
                    call.interrupt(record, &interrupted);
                }
            }
            Fact::Parked { waits } => {
                for wait in &waits {
                    self.model_call(&wait.key, record, before);
                }
                self.park(&waits);
            }
            Fact::Resolved { key, .. } => {
                for effect in &mut self.effects {
                    effect.waits.retain(|wait| wait.key != key);
                    if effect.state == EffectState::Waits && effect.waits.is_empty() {
                        effect.state = EffectState::Open;
                    }
                }
            }
            Fact::Hooked(HookApplied { key, hook, .. }) => {
                match self.effects.iter_mut().rev().find(|effect| effect.key == key) {
                    Some(effect) => effect.hooks.push(hook),
                    None => self.hooked.push((key, hook)),
                }
            }
            Fact::Ruled(ruled @ PolicyDecided { tool: Some(_), .. }) => match ruled.ruling.refusal() {
                Some(refusal) => self.add(refused_within(ruled, record, &refusal)),
                None => self.ruled.push(ruled),
            },
            Fact::Ruled(ruled) => self.decide(ruled, record, before),
            Fact::Ended { .. } => {
                let never_asked = |effect: &&mut EffectView| effect.is_open_model_call();
                for effect in self.effects.iter_mut().filter(never_asked) {
                    (effect.state, effect.until) = (EffectState::Failed, Some(record.at));
                }
            }
            _ => {}
        }
    }

    /// Adds failed attempts to their model call, or keeps them until it is known.
    fn try_again(&mut self, tried: AttemptsFailed, record: RecordStamp, before: Millis) {
        let AttemptsFailed { key, attempts } = tried;
        if let Some(call) = self.model_call(&key, record, before) {
            call.add_failed_attempts(record, attempts);
            return;
        }
        // The record of a nested model call comes later. A summary belongs to the model call after it.
        let key = self.around(&key).is_some().then_some(key);
        let failed = (1..).zip(attempts);
        let failed = failed.map(|(number, failed)| (key.clone(), in_vain(record, failed, number)));
        self.ahead.extend(failed);
    }

    /// Adds an effect whose request and outcome were written together.
    fn perform(&mut self, record: RecordStamp, before: Millis, performed: EffectPerformed) {
        let EffectPerformed { key, command, outcome, tried, cost, .. } = performed;
        let mut effect = EffectView { from: before, ..asked(key.clone(), record, command) };
        effect.settle(record, &outcome);
        effect.charge(cost);
        self.complete(&key, record, &outcome);
        match self.effects.iter_mut().find(|begun| begun.key == key) {
            Some(begun) => begun.goes_on_as(effect),
            None => self.add(effect),
        }
        if let Some(effect) = self.effects.iter_mut().find(|effect| effect.key == key) {
            effect.add_failed_attempts(record, tried);
        }
    }

    /// Adds a decision to its model call, or keeps it until the effect that it belongs to is known.
    fn decide(&mut self, ruled: PolicyDecided, record: RecordStamp, before: Millis) {
        let PolicyDecided { key, at: point, ruling, labels, .. } = ruled;
        let RecordStamp { seq, at } = record;
        let decided = DecisionView { key, seq, at, point, ruling, labels };
        let Some(call) = self.model_call(&decided.key, record, before) else {
            self.decided.push(decided);
            return;
        };
        if let (PolicyPoint::Model, Some(refusal)) = (point, decided.ruling.refusal()) {
            call.outcome = Some(json(&Failure::from(&refusal)));
            (call.state, call.until) = (EffectState::Refused, Some(record.at));
            call.answered = Some(record.seq);
        }
        call.decisions.push(decided);
    }

    /// Returns the model call that this key is part of. Adds it if this is the first record about it.
    fn model_call(
        &mut self,
        key: &ReplayKey,
        record: RecordStamp,
        before: Millis,
    ) -> Option<&mut EffectView> {
        let key = key.model_call()?;
        if !self.effects.iter().any(|effect| effect.key == key) {
            self.add(EffectView { from: before, ..bare(key.clone(), EffectKind::ModelCall, record) });
        }
        self.effects.iter_mut().find(|effect| effect.key == key)
    }

    /// Returns the innermost effect that contains this key.
    fn around(&mut self, key: &ReplayKey) -> Option<&mut EffectView> {
        let around = self.effects.iter_mut().filter(|effect| is_of(key, effect));
        around.max_by_key(|effect| effect.key.as_str().len())
    }

    fn add(&mut self, mut effect: EffectView) {
        let (own, others) =
            std::mem::take(&mut self.hooked).into_iter().partition(|(key, _)| *key == effect.key);
        self.hooked = others;
        let own: Vec<(ReplayKey, HookName)> = own;
        effect.hooks.extend(own.into_iter().map(|(_, hook)| hook));
        if let Some(at) = self.ruled.iter().rposition(|ruled| ruled.key == effect.key) {
            let ruled = self.ruled.swap_remove(at);
            let PolicyDecided { tool, ruling, labels, facts, .. } = ruled;
            effect.call = tool.map(|tool| made_within(&tool, ruling, labels));
            // Show the arguments that it ran with, which a rule may have changed.
            if let (Some(input), Some(arguments)) = (effect.request.get_mut("input"), facts) {
                *input = arguments;
            }
        }
        let (own, others) = std::mem::take(&mut self.ahead)
            .into_iter()
            .partition(|(key, _)| key.as_ref().is_none_or(|key| is_of(key, &effect)));
        self.ahead = others;
        let mut own: Vec<(Option<ReplayKey>, EffectIncident)> = own;
        for (key, incident) in &mut own {
            if let (Some(key), IncidentKind::Failed(failed)) = (key, &mut incident.what)
                && *key == effect.key
            {
                failed.attempt = effect.attempts;
                effect.attempts = effect.attempts.saturating_add(1);
            }
        }
        effect.incidents.splice(..0, own.into_iter().map(|(_, incident)| incident));
        effect.begin_with_first_attempt();
        let (own, others) =
            std::mem::take(&mut self.decided).into_iter().partition(|decided| is_of(&decided.key, &effect));
        self.decided = others;
        let own: Vec<DecisionView> = own;
        effect.decisions.extend(own);
        self.effects.push(effect);
    }

    /// Adds an incident to the effect with this key, or to the enclosing one.
    fn add_incident(&mut self, key: ReplayKey, incident: EffectIncident) {
        match self.effects.iter_mut().rev().find(|effect| is_of(&key, effect)) {
            Some(effect) => effect.incidents.push(incident),
            None => self.ahead.push((Some(key), incident)),
        }
    }

    fn claim(&mut self, claim: ClaimRef) -> Option<&mut EffectView> {
        let (_, at) = self.claims.iter().find(|(of, _)| *of == claim)?;
        self.effects.get_mut(*at)
    }

    /// Settles a call that was completed externally. Its outcome is in the record of the completion.
    fn complete(&mut self, key: &ReplayKey, record: RecordStamp, outcome: &Outcome) {
        let Outcome::AwaitEvent(resolution) = outcome else { return };
        if let Some(call) = self.effects.iter_mut().find(|effect| effect.key.completion() == *key) {
            call.state = resolved(resolution);
            call.outcome = Some(json(resolution));
            (call.answered, call.until) = (Some(record.seq), Some(record.at));
        }
    }

    fn park(&mut self, waits: &[Wait]) {
        for effect in &mut self.effects {
            let holds = |wait: &&Wait| {
                let open = matches!(effect.state, EffectState::Open | EffectState::Waits);
                open && (wait.key.is_under(&effect.key) || wait.key.blocks_start_of(&effect.key))
            };
            let held: Vec<Wait> = waits.iter().filter(holds).cloned().collect();
            if !held.is_empty() {
                (effect.state, effect.waits) = (EffectState::Waits, held);
            }
        }
    }
}

/// Returns the sum of two amounts that may be unknown.
fn sum<T: std::ops::Add<Output = T>>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    }
}

/// Returns whether a key is that of an effect, or inside it.
fn is_of(key: &ReplayKey, effect: &EffectView) -> bool {
    *key == effect.key || key.is_under(&effect.key)
}

fn incident(record: RecordStamp, what: IncidentKind) -> EffectIncident {
    EffectIncident { seq: record.seq, at: record.at, what }
}

fn in_vain(record: RecordStamp, failed: FailedAttempt, attempt: u32) -> EffectIncident {
    let failed = FailedAttempt { attempt, ..failed };
    EffectIncident { at: failed.until, ..incident(record, IncidentKind::Failed(failed)) }
}

/// Creates an effect without details.
fn bare(key: ReplayKey, kind: EffectKind, record: RecordStamp) -> EffectView {
    EffectView {
        key,
        kind,
        seq: record.seq,
        answered: None,
        from: record.at,
        until: None,
        state: EffectState::Open,
        attempts: 1,
        request: json!({}),
        outcome: None,
        call: None,
        decisions: Vec::new(),
        usage: None,
        cost: None,
        hooks: Vec::new(),
        waits: Vec::new(),
        incidents: Vec::new(),
        replays: 0,
    }
}

fn asked(key: ReplayKey, record: RecordStamp, command: Command) -> EffectView {
    let effect = EffectView { request: content(json(&command)), ..bare(key, command.kind(), record) };
    match command {
        Command::ToolCall(call) => EffectView { call: Some(view(BatchCall::Run(call.call))), ..effect },
        _ => effect,
    }
}

/// Creates the effect of a nested call that a policy denied.
fn refused_within(ruled: PolicyDecided, record: RecordStamp, refusal: &Error) -> EffectView {
    let PolicyDecided { key, tool, ruling, labels, facts, .. } = ruled;
    EffectView {
        answered: Some(record.seq),
        until: Some(record.at),
        state: EffectState::Refused,
        request: json!({ "name": key, "input": facts }),
        outcome: Some(json(&Failure::from(refusal))),
        call: tool.map(|tool| made_within(&tool, ruling, labels)),
        ..bare(key, EffectKind::DurableStep, record)
    }
}

fn made_within(tool: &ToolName, ruling: RecordedDecision, labels: Labels) -> CallView {
    let (tool, ruling, provenance) = (tool.to_string(), Some(ruling), Provenance::default());
    CallView { id: None, tool, class: None, ruling, labels, provenance }
}

/// Creates the effect of one call of a batch.
fn claimed(key: ReplayKey, record: RecordStamp, call: BatchCall) -> EffectView {
    let mut effect = EffectView { request: content(json(&call)), ..bare(key, EffectKind::ToolCall, record) };
    if let BatchCall::Refused(refused) = &call {
        effect.state = EffectState::Refused;
        effect.outcome = Some(json(&refused.failure));
        (effect.answered, effect.until) = (Some(record.seq), Some(record.at));
    }
    EffectView { call: Some(view(call)), ..effect }
}

fn view(call: BatchCall) -> CallView {
    let tool = call.tool().to_string();
    match call {
        BatchCall::Run(call) => CallView {
            id: Some(call.id),
            tool,
            class: Some(call.class),
            ruling: call.ruling,
            labels: call.labels,
            provenance: call.provenance,
        },
        BatchCall::Refused(RefusedCall { ruling, labels, provenance, .. }) => {
            let ruling = ruling.map(|ruling| *ruling);
            CallView { id: None, tool, class: None, ruling, labels, provenance }
        }
    }
}

impl EffectView {
    fn is_open_model_call(&self) -> bool {
        let open = matches!(self.state, EffectState::Open | EffectState::Waits);
        open && self.kind == EffectKind::ModelCall
    }

    /// Adds the usage and cost of an incomplete reply. A cancellation ends the call, with the text.
    fn interrupt(&mut self, record: RecordStamp, interrupted: &InterruptedReply) {
        let InterruptedReply { cause, text, usage, cost, .. } = interrupted;
        if *cause == ReplyInterruption::Cancelled {
            (self.state, self.answered, self.until) =
                (EffectState::Failed, Some(record.seq), Some(record.at));
            self.outcome = Some(json!({ "interrupted": { "text": text } }));
        }
        self.add_usage(Some(*usage), *cost);
    }

    /// Adds what an attempt used.
    fn add_usage(&mut self, usage: Option<Usage>, cost: Option<Cost>) {
        self.usage = sum(self.usage, usage);
        self.cost = sum(self.cost, cost);
    }

    /// Adds failed attempts before the outcome, or before the turn parked.
    fn add_failed_attempts(&mut self, record: RecordStamp, failed: Vec<FailedAttempt>) {
        for failed in failed {
            self.incidents.push(in_vain(record, failed, self.attempts));
            self.attempts = self.attempts.saturating_add(1);
        }
        self.begin_with_first_attempt();
    }

    fn begin_with_first_attempt(&mut self) {
        let began = |incident: &EffectIncident| match &incident.what {
            IncidentKind::Failed(failed) => Some(failed.from),
            _ => None,
        };
        self.from = self.incidents.iter().filter_map(began).fold(self.from, Ord::min);
    }

    /// Replaces this effect with the answered one, and keeps what earlier records said.
    fn goes_on_as(&mut self, answered: Self) {
        let Self { from, attempts, mut incidents, mut decisions, mut hooks, usage, cost, .. } =
            std::mem::replace(self, answered);
        self.add_usage(usage, cost);
        self.attempts = self.attempts.max(attempts);
        incidents.append(&mut self.incidents);
        decisions.append(&mut self.decisions);
        hooks.append(&mut self.hooks);
        (self.from, self.incidents) = (from, incidents);
        (self.decisions, self.hooks) = (decisions, hooks);
    }

    /// Settles a call of unknown outcome by the verdict of a person.
    fn settle_by_word(&mut self, record: RecordStamp, verdict: &OutcomeVerdict) {
        let (state, result) = match verdict {
            OutcomeVerdict::Happened(result) => (state_of(result), json(result)),
            OutcomeVerdict::DidNotHappen => (EffectState::Failed, Value::from("it did not happen")),
        };
        (self.state, self.outcome) = (state, Some(result));
        (self.answered, self.until) = (Some(record.seq), Some(record.at));
    }

    /// Sets the cost, if there is one.
    fn charge(&mut self, cost: Option<Cost>) {
        self.cost = cost.or(self.cost);
    }

    fn settle(&mut self, record: RecordStamp, outcome: &Outcome) {
        self.outcome = Some(content(json(outcome)));
        (self.answered, self.until) = (Some(record.seq), Some(record.at));
        self.state = match outcome {
            Outcome::ModelCall(outcome) | Outcome::DirectCall(DirectOutcome(outcome)) => {
                if let ModelOutcome::Reply(reply) = outcome {
                    let ModelCharge { usage, cost } = reply.charge();
                    (self.usage, self.cost) = (Some(usage), cost);
                }
                match outcome {
                    ModelOutcome::Reply(_) => EffectState::Done,
                    ModelOutcome::Failed(_) => EffectState::Failed,
                }
            }
            Outcome::ToolCall(ToolOutcome::Done(result)) => state_of(result),
            Outcome::ToolCall(ToolOutcome::Unknown) => EffectState::Unknown,
            Outcome::ToolCall(ToolOutcome::Pending) => {
                (self.answered, self.until) = (None, None);
                EffectState::Waits
            }
            Outcome::DurableStep(StepOutcome::Failed(_)) => EffectState::Failed,
            Outcome::AwaitEvent(resolution) => resolved(resolution),
            _ => EffectState::Done,
        };
    }
}

fn state_of(result: &ToolResult) -> EffectState {
    match result {
        ToolResult::Ok(_) => EffectState::Done,
        ToolResult::Err(_) => EffectState::Failed,
    }
}

fn resolved(resolution: &Resolution) -> EffectState {
    match resolution {
        Resolution::Ok(_) => EffectState::Done,
        Resolution::Err(_) | Resolution::Timeout | Resolution::Cancelled => EffectState::Failed,
    }
}

/// Serializes plain data, which cannot fail.
fn json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Returns the content of an externally tagged value.
fn content(tagged: Value) -> Value {
    match tagged {
        Value::Object(members) if members.len() == 1 => {
            members.into_iter().next().map_or(Value::Null, |(_, content)| content)
        }
        other => other,
    }
}
