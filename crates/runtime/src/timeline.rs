//! What a turn asked of the world, effect by effect: request, outcome, ruling, labels, attempts, times.
//!
//! A fold over the turn's records. A call of a batch is an effect of its own, under its claim.
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{
    BatchCall, Command, DirectOutcome, EffectKind, ModelOutcome, Outcome, RefusedCall, Reply, StepOutcome,
    ToolOutcome, Usage,
};
use outlast_vocab::label::Labels;
use outlast_vocab::message::{HookName, ToolResult};
use outlast_vocab::payment::Payment;
use outlast_vocab::policy::Ruling;
use outlast_vocab::rate::Paced;
use outlast_vocab::record::{
    Answered, Asked, ClaimRef, Fact, Hooked, Performed, Record, Ruled, Seq, Verdict,
};
use outlast_vocab::tool::EffectClass;
use outlast_vocab::wait::{Resolution, Wait};
use outlast_vocab::{CallId, Error, Failure, Millis, ReplayKey};
use serde_json::{Value, json};

/// One request to the world, as people look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectView {
    /// Its path in the turn.
    pub key: ReplayKey,
    /// What kind of request it is.
    pub kind: EffectKind,
    /// The record that asked; for one that was asked and answered in one write, that.
    pub seq: Seq,
    /// The record with its outcome.
    pub answered: Option<Seq>,
    /// When it was asked; for one that was asked and answered in one write, when the record before was written.
    pub from: Millis,
    /// When its outcome became durable.
    pub until: Option<Millis>,
    /// How it stands.
    pub state: EffectState,
    /// The attempt that gave the outcome, or runs; counted from 1.
    pub attempts: u32,
    /// What was asked.
    pub request: Value,
    /// What came of it.
    pub outcome: Option<Value>,
    /// What is known of a call of a tool beside that.
    pub call: Option<CallView>,
    /// What it cost, where a model was asked.
    pub spent: Option<(Usage, Option<Cost>)>,
    /// The hooks that changed it, in order.
    pub hooks: Vec<HookName>,
    /// What it holds still for.
    pub waits: Vec<Wait>,
    /// What befell it on the way to its outcome, in order.
    pub incidents: Vec<Incident>,
}

/// Something that befell an effect on the way to its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// The record of it.
    pub seq: Seq,
    /// When it was written.
    pub at: Millis,
    /// What it was.
    pub what: Befell,
}

/// What can befall an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Befell {
    /// It was begun again: after a failure, or after the process died.
    Again {
        /// Which attempt began, counted from 1.
        attempt: u32,
    },
    /// A rate made it wait, let it go then, or refused it.
    Paced(Paced),
    /// A payment of it came this far.
    Payment(Payment),
    /// The turn could not go on here, and waited for a person or a deploy.
    Stuck(Failure),
}

impl Befell {
    /// One word for it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Again { .. } => "again",
            Self::Paced(_) => "paced",
            Self::Payment(_) => "payment",
            Self::Stuck(_) => "stuck",
        }
    }
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallView {
    /// Our id of it.
    pub id: Option<CallId>,
    /// The tool.
    pub tool: String,
    /// What may happen to it when it is interrupted.
    pub class: Option<EffectClass>,
    /// What the policy decided, where a rule fits.
    pub ruling: Option<Ruling>,
    /// The untrusted sources that may have asked for it.
    pub labels: Labels,
}

/// How an effect stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectState {
    /// It was asked for and has no outcome.
    Open,
    /// It holds still for something outside.
    Waits,
    /// It has its outcome.
    Done,
    /// Its outcome is an error.
    Failed,
    /// It was refused before it could run.
    Refused,
    /// Nobody knows whether it happened.
    Unknown,
}

impl EffectState {
    /// One word for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Waits => "waits",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

/// The effects of a turn, in the order they were asked for.
pub fn of_turn(records: &[Record]) -> Vec<EffectView> {
    let mut timeline = Timeline::default();
    let mut before = records.first().map_or(Millis(0), |record| record.at);
    for record in records {
        timeline.take(record, before);
        before = record.at;
    }
    timeline.effects
}

#[derive(Default)]
struct Timeline {
    effects: Vec<EffectView>,
    /// Where the effect of each claim stands.
    claims: Vec<(ClaimRef, usize)>,
    /// What hooks changed of effects that have no record yet.
    hooked: Vec<(ReplayKey, HookName)>,
    /// What was decided of calls that calls make, and that have no record yet.
    ruled: Vec<Ruled>,
    /// What befell effects that have no record yet; with no key it was the next one, whichever that is.
    ahead: Vec<(Option<ReplayKey>, Incident)>,
}

impl Timeline {
    fn take(&mut self, record: &Record, before: Millis) {
        match &record.fact {
            Fact::Asked(Asked { key, command: Command::ToolBatch(batch) }) => {
                for (child, call) in (0..).zip(&batch.calls) {
                    let place = key.child(child as usize, call.model_id().as_str());
                    self.claims.push((ClaimRef { asked: record.seq, child }, self.effects.len()));
                    self.add(EffectView { from: record.at, ..claimed(place, record, call) });
                }
            }
            Fact::Asked(Asked { key, command }) => {
                self.claims.push((ClaimRef { asked: record.seq, child: 0 }, self.effects.len()));
                self.add(EffectView { from: record.at, ..asked(key.clone(), record, command) });
            }
            Fact::Performed(Performed { key, command, outcome }) => {
                let mut effect = EffectView { from: before, ..asked(key.clone(), record, command) };
                effect.settle(record, outcome);
                self.complete(key, record, outcome);
                self.add(effect);
            }
            Fact::Answered(Answered { claim, outcome }) => {
                if let Some(effect) = self.claim(*claim) {
                    effect.settle(record, outcome);
                }
            }
            Fact::Settled(settled) => {
                if let Some(effect) = self.claim(settled.claim) {
                    let (state, result) = match &settled.verdict {
                        Verdict::Happened(result) => (state_of(result), json(result)),
                        Verdict::DidNotHappen => (EffectState::Failed, Value::from("it did not happen")),
                    };
                    (effect.state, effect.outcome) = (state, Some(result));
                    (effect.answered, effect.until) = (Some(record.seq), Some(record.at));
                }
            }
            Fact::Reclaimed(reclaimed) => {
                if let Some(effect) = self.claim(reclaimed.claim) {
                    // A claim that was only renewed, because its call was at rest, has the same number.
                    if reclaimed.attempt > effect.attempts {
                        effect.incidents.push(incident(record, Befell::Again { attempt: reclaimed.attempt }));
                    }
                    effect.attempts = reclaimed.attempt;
                }
            }
            Fact::Paced(paced) => self.befall(&paced.key, incident(record, Befell::Paced(paced.clone()))),
            Fact::Payment(payment) => {
                self.befall(&payment.key, incident(record, Befell::Payment(payment.clone())));
            }
            Fact::Stuck { failure } => {
                let stuck = incident(record, Befell::Stuck(failure.clone()));
                match self.effects.iter_mut().rev().find(|effect| effect.state == EffectState::Open) {
                    Some(effect) => effect.incidents.push(stuck),
                    None => self.ahead.push((None, stuck)),
                }
            }
            Fact::Parked { waits } => self.park(waits),
            Fact::Resolved { key, .. } => {
                for effect in &mut self.effects {
                    effect.waits.retain(|wait| wait.key != *key);
                    if effect.state == EffectState::Waits && effect.waits.is_empty() {
                        effect.state = EffectState::Open;
                    }
                }
            }
            Fact::Hooked(Hooked { key, hook, .. }) => {
                match self.effects.iter_mut().rev().find(|effect| effect.key == *key) {
                    Some(effect) => effect.hooks.push(hook.clone()),
                    None => self.hooked.push((key.clone(), hook.clone())),
                }
            }
            Fact::Ruled(ruled @ Ruled { tool: Some(_), .. }) => match ruled.ruling.refusal() {
                Some(refusal) => self.add(refused_within(ruled, record, &refusal)),
                None => self.ruled.push(ruled.clone()),
            },
            _ => {}
        }
    }

    fn add(&mut self, mut effect: EffectView) {
        let (own, others) =
            std::mem::take(&mut self.hooked).into_iter().partition(|(key, _)| *key == effect.key);
        self.hooked = others;
        let own: Vec<(ReplayKey, HookName)> = own;
        effect.hooks.extend(own.into_iter().map(|(_, hook)| hook));
        if let Some(at) = self.ruled.iter().rposition(|ruled| ruled.key == effect.key) {
            let ruled = self.ruled.swap_remove(at);
            effect.call = made_within(&ruled);
            // It ran with these, whatever the call wanted to pass.
            if let (Some(input), Some(arguments)) = (effect.request.get_mut("input"), ruled.facts) {
                *input = arguments;
            }
        }
        let (own, others) = std::mem::take(&mut self.ahead)
            .into_iter()
            .partition(|(key, _)| key.as_ref().is_none_or(|key| is_of(key, &effect)));
        self.ahead = others;
        let own: Vec<(Option<ReplayKey>, Incident)> = own;
        effect.incidents.extend(own.into_iter().map(|(_, incident)| incident));
        self.effects.push(effect);
    }

    /// Adds an incident to the effect at this place, or to the one around it.
    fn befall(&mut self, key: &ReplayKey, incident: Incident) {
        match self.effects.iter_mut().rev().find(|effect| is_of(key, effect)) {
            Some(effect) => effect.incidents.push(incident),
            None => self.ahead.push((Some(key.clone()), incident)),
        }
    }

    fn claim(&mut self, claim: ClaimRef) -> Option<&mut EffectView> {
        let (_, at) = self.claims.iter().find(|(of, _)| *of == claim)?;
        self.effects.get_mut(*at)
    }

    /// A call that somebody outside finished has its outcome with the completion.
    fn complete(&mut self, key: &ReplayKey, record: &Record, outcome: &Outcome) {
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
                open && (wait.key.is_under(&effect.key) || wait.key.admits(&effect.key))
            };
            let held: Vec<Wait> = waits.iter().filter(holds).cloned().collect();
            if !held.is_empty() {
                (effect.state, effect.waits) = (EffectState::Waits, held);
            }
        }
    }
}

/// Whether a place is that of an effect, or within it.
fn is_of(key: &ReplayKey, effect: &EffectView) -> bool {
    *key == effect.key || key.is_under(&effect.key)
}

fn incident(record: &Record, what: Befell) -> Incident {
    Incident { seq: record.seq, at: record.at, what }
}

fn asked(key: ReplayKey, record: &Record, command: &Command) -> EffectView {
    EffectView {
        key,
        kind: command.kind(),
        seq: record.seq,
        answered: None,
        from: record.at,
        until: None,
        state: EffectState::Open,
        attempts: 1,
        request: content(json(command)),
        outcome: None,
        call: match command {
            Command::ToolCall(call) => Some(view(&BatchCall::Run(call.call.clone()))),
            _ => None,
        },
        spent: None,
        hooks: Vec::new(),
        waits: Vec::new(),
        incidents: Vec::new(),
    }
}

/// A call that a call wanted to make and a policy did not let it.
fn refused_within(ruled: &Ruled, record: &Record, refusal: &Error) -> EffectView {
    EffectView {
        key: ruled.key.clone(),
        kind: EffectKind::DurableStep,
        seq: record.seq,
        answered: Some(record.seq),
        from: record.at,
        until: Some(record.at),
        state: EffectState::Refused,
        attempts: 1,
        request: json!({ "name": ruled.key, "input": ruled.facts }),
        outcome: Some(json(&Failure::from(refusal))),
        call: made_within(ruled),
        spent: None,
        hooks: Vec::new(),
        waits: Vec::new(),
        incidents: Vec::new(),
    }
}

fn made_within(ruled: &Ruled) -> Option<CallView> {
    let (ruling, labels) = (Some(ruled.ruling.clone()), ruled.labels.clone());
    Some(CallView { id: None, tool: ruled.tool.as_ref()?.to_string(), class: None, ruling, labels })
}

/// One call of a batch.
fn claimed(key: ReplayKey, record: &Record, call: &BatchCall) -> EffectView {
    let effect = EffectView {
        key,
        kind: EffectKind::ToolCall,
        seq: record.seq,
        answered: None,
        from: record.at,
        until: None,
        state: EffectState::Open,
        attempts: 1,
        request: content(json(call)),
        outcome: None,
        call: Some(view(call)),
        spent: None,
        hooks: Vec::new(),
        waits: Vec::new(),
        incidents: Vec::new(),
    };
    match call {
        BatchCall::Run(_) => effect,
        BatchCall::Refused(refused) => EffectView {
            state: EffectState::Refused,
            outcome: Some(json(&refused.failure)),
            answered: Some(record.seq),
            until: Some(record.at),
            ..effect
        },
    }
}

fn view(call: &BatchCall) -> CallView {
    let tool = call.tool().to_string();
    match call {
        BatchCall::Run(call) => CallView {
            id: Some(call.id),
            tool,
            class: Some(call.class),
            ruling: call.ruling.clone(),
            labels: call.labels.clone(),
        },
        BatchCall::Refused(RefusedCall { ruling, labels, .. }) => {
            let (ruling, labels) = (ruling.as_deref().cloned(), labels.clone());
            CallView { id: None, tool, class: None, ruling, labels }
        }
    }
}

impl EffectView {
    fn settle(&mut self, record: &Record, outcome: &Outcome) {
        self.outcome = Some(content(json(outcome)));
        (self.answered, self.until) = (Some(record.seq), Some(record.at));
        self.state = match outcome {
            Outcome::ModelCall(outcome) | Outcome::DirectCall(DirectOutcome(outcome)) => {
                if let ModelOutcome::Reply(Reply { usage, cost, attempt, .. }) = outcome {
                    (self.spent, self.attempts) = (Some((*usage, *cost)), *attempt);
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

/// Requests and outcomes are plain data.
fn json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// What a tagged value says, without its tag.
fn content(tagged: Value) -> Value {
    match tagged {
        Value::Object(members) if members.len() == 1 => {
            members.into_iter().next().map_or(Value::Null, |(_, content)| content)
        }
        other => other,
    }
}
