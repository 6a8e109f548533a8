//! Drives a turn to its end. The only place that advances a `Step`.
use crate::cancel::Cancel;
use crate::catalogue::Caller;
use crate::hooks::{Heard, at_checkpoint};
use crate::host::{Driven, Host, Tier};
use crate::inline::not_durable;
use crate::outfit::{Outfit, World};
use crate::projection::Held;
use crate::provenance::EarlierText;
use crate::ruling::{self, Word};
use crate::{model, output, tools, undo};
use outlast_kernel::label::{of_definitions, of_messages};
use outlast_kernel::step::{self, AtCheckpoint, Done, Plan, Step};
use outlast_vocab::effect::Joined;
use outlast_vocab::envelope::effect_id;
use outlast_vocab::event::{Live, LiveKind};
use outlast_vocab::label::Labels;
use outlast_vocab::message::{Message, Part};
use outlast_vocab::record::{End, Fact, Performed};
use outlast_vocab::{At, EffectId, Error, Failure, Kind, OrgId, ReplayKey};
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::watch;

/// One turn with all it works with. Borrowed by everything that performs its effects.
pub struct Turn<'a> {
    /// The ports of this process.
    pub world: &'a Arc<World>,
    /// The configuration it runs under.
    pub outfit: &'a Arc<Outfit>,
    /// The session and the turn.
    pub caller: Caller,
    /// Which turn of the session, counted from 0.
    pub index: u32,
    /// The number of the lease it is driven under, which grows with every claim; 1 where nobody claims.
    pub lease: u64,
    /// Whose session it is; nobody knows where nothing is kept.
    pub org: Option<OrgId>,
    /// The untrusted sources of what was said before it; nothing where no labels are kept.
    pub labels: &'a Labels,
    /// What the user typed in earlier turns.
    pub earlier: &'a EarlierText,
    /// What hooks tell the model while it is driven.
    pub heard: Heard,
    /// The wish that it stops.
    pub cancel: Cancel,
    /// Whether the worker shuts down; the turn is handed back at the next model call then (R4.4).
    pub stopping: watch::Receiver<bool>,
}

impl Turn<'_> {
    /// Where errors of this turn are placed.
    pub fn at(&self) -> At {
        let Caller { session, turn } = self.caller;
        At { org: self.org, session: Some(session), turn: Some(turn), ..At::default() }
    }

    /// Where errors of one of its effects are placed.
    pub(crate) fn at_effect(&self, key: &ReplayKey) -> At {
        At { effect: Some(effect_id(self.caller.turn, key)), ..self.at() }
    }

    /// The effect that a step asks for.
    fn effect_of(&self, step: &Step) -> Option<EffectId> {
        let key = match step {
            Step::CallModel(ask) => ask.key(),
            Step::RunTools(batch) => batch.key(),
            Step::Checkpoint(at) => at.key(),
            Step::Wait(_) | Step::Done(_) => return None,
        };
        Some(effect_id(self.caller.turn, key))
    }

    /// What arguments of its calls may refer to.
    pub(crate) fn held<H: Host>(&self, host: &H) -> Held {
        let (session, bytes) = (self.caller.session, self.world.limits.projected_bytes);
        let attachments = host.store().map(|store| self.world.attachments(store));
        Held { attachments, session, bytes }
    }

    /// The labels of what the model asks for after it has read these messages of this turn (R11.4).
    pub(crate) fn labels_after(&self, read: &[Message]) -> Labels {
        if !self.outfit.keeps_labels() || read.is_empty() {
            return Labels::default();
        }
        let mut labels = of_messages(read, &self.outfit.contracts);
        labels.extend(self.labels.clone());
        labels.extend(self.heard.labels());
        labels.extend(self.definitions());
        labels
    }

    /// Returns the labels of what the model is told of its tools.
    pub(crate) fn definitions(&self) -> Labels {
        of_definitions(&self.outfit.shown)
    }

    /// Tells those who watch the session.
    pub(crate) fn tell(&self, what: impl FnOnce() -> LiveKind) {
        let Caller { session, turn } = self.caller;
        self.world.hub.tell(session, || Live { turn, what: what() });
    }
}

/// What a turn answers.
#[derive(Clone, Debug)]
pub struct TurnInput {
    /// What was said elsewhere before it.
    pub before: Vec<Message>,
    /// What it says.
    pub parts: Vec<Part>,
    /// JSON Schema that the answer must fit.
    pub output: Option<Value>,
}

impl TurnInput {
    /// A text that any answer fits.
    pub fn text(text: impl Into<String>) -> Self {
        Self { before: Vec::new(), parts: vec![Part::text(text)], output: None }
    }
}

/// Drives a turn on this input until it ends or holds still. After a crash the same call with the same journal goes on
/// where it stood: every effect that was answered is answered from there.
pub async fn drive<H: Host>(turn: &Turn<'_>, input: TurnInput, host: &mut H) -> Result<Driven, Error> {
    if host.tier() == Tier::Ephemeral
        && let Some(tool) = turn.outfit.contracts.iter().find(|contract| contract.durable)
    {
        return Err(not_durable(&format!("the tool `{}`", tool.name)).at(turn.at()));
    }
    match ruling::at_turn(turn, &input, host).await? {
        Word::Go => {}
        Word::No(error) => return host.finish(End::Failed { failure: Failure::from(&error) }.into()).await,
        Word::Wait(wait) => return host.park(vec![wait]).await,
    }
    let TurnInput { before, parts, output } = input;
    if let Some(Err(error)) = output.as_ref().map(output::check_size) {
        return host.finish(End::Failed { failure: Failure::from(&error) }.into()).await;
    }
    let mut step = step::begin(plan(turn, output), before, parts);
    loop {
        let effect = turn.effect_of(&step);
        let next = match step {
            Step::CallModel(_) if *turn.stopping.borrow() => return host.hand_back().await,
            Step::CallModel(ask) => model::ask(turn, ask, host).await,
            Step::RunTools(batch) => tools::run(turn, batch, host).await,
            Step::Checkpoint(at) => checkpoint(turn, at, host).await,
            Step::Wait(waiting) => return host.park(waiting.waits).await,
            Step::Done(Done { end: End::Cancelled { reason }, .. }) => {
                return undo::stop(turn, reason, host).await;
            }
            Step::Done(done) => return host.finish(done).await,
        };
        step = next.map_err(|error| error.at(At { effect, ..turn.at() }))?;
    }
}

/// Takes in what joins the turn here: inputs, what is wrong with its answer, what hooks tell the model.
async fn checkpoint<H: Host>(turn: &Turn<'_>, at: AtCheckpoint, host: &mut H) -> Result<Step, Error> {
    let history = host.history();
    let was_passed =
        history.went_on_to(&at.next_model()) || history.answer(at.key(), &at.effect())?.is_some();
    let reused = history.reusable().joined(at.key()).filter(|_| !was_passed).cloned();
    if let Some(joined) = reused {
        let performed = Performed::new(at.key().clone(), at.effect(), joined.clone());
        host.note(Fact::Performed(Performed { reused: true, ..performed }));
        host.flush().await?;
        return Ok(at.resume(joined));
    }
    let correction = match at.contract() {
        Some((answer, schema)) if !ruling::is_left_out(&at, host) => {
            tokio::select! {
                biased;
                correction = Box::pin(output::correction(&answer, schema)) => Ok(correction?),
                // A recorded outcome is replayed as it was, even if somebody cancels meanwhile.
                reason = turn.cancel.requested(), if !was_passed => Err(reason),
            }
        }
        Some(_) | None => Ok(None),
    };
    let correction = match correction {
        Ok(correction) => correction,
        Err(reason) => return Ok(at.cancel(reason)),
    };
    let mut ours = Joined { correction, ..Joined::default() };
    // An answer that goes back anyway is not looked at.
    if !was_passed && ours.is_empty() && at.answer().is_some() {
        match ruling::at_output(turn, &at, host)? {
            Word::Go => {}
            Word::No(error) if error.kind() == Kind::PolicyInterrupted => {
                return Ok(at.fail(Failure::from(&error)));
            }
            Word::No(error) => ours.refused = Some(Failure::from(&error)),
            Word::Wait(wait) => {
                return Ok(match turn.cancel.reason() {
                    Some(reason) => at.cancel(reason),
                    None => at.wait(wait),
                });
            }
        }
    }
    if !was_passed && ours.is_empty() {
        match at_checkpoint(turn, &at, host).await {
            Ok(told) => ours.told = told,
            Err(error) => return Ok(at.fail(Failure::from(&error))),
        }
    }
    let joined = host.checkpoint(&at, ours).await?;
    Ok(at.resume(joined))
}

fn plan(turn: &Turn<'_>, output: Option<Value>) -> Plan {
    Plan {
        index: turn.index,
        model: turn.outfit.package.model.clone(),
        tools: turn.outfit.tools,
        model_calls: turn.outfit.package.model_calls,
        tools_per_reply: turn.world.limits.tools_per_reply,
        output,
        output_repairs: turn.world.limits.output_repairs,
        // Only what the turn is pinned to may decide what is asked; what an operator sets later may not.
        reply_tokens: (!turn.outfit.budgets.is_empty()).then(|| turn.outfit.reply_tokens(turn.world)),
    }
}
