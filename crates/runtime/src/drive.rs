//! Drives a turn to its end. The only module that advances a `Step`.
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

/// A turn and everything it works with, borrowed by the code that performs its effects.
pub struct Turn<'a> {
    /// The services of this process.
    pub world: &'a Arc<World>,
    /// The agent, as resolved for this turn.
    pub outfit: &'a Arc<Outfit>,
    /// The session and the turn.
    pub caller: Caller,
    /// The number of the turn in the session, counted from 0.
    pub index: u32,
    /// The number of the lease, which grows with every claim. 1 if the host has no leases.
    pub lease: u64,
    /// The organisation of the session. `None` on a host that keeps nothing.
    pub org: Option<OrgId>,
    /// The untrusted sources of the text before this turn. Empty if labels are not tracked.
    pub labels: &'a Labels,
    /// Text that the user typed in earlier turns.
    pub earlier: &'a EarlierText,
    /// Collects the untrusted hooks that send text to the model.
    pub heard: Heard,
    /// Cancellation of the turn.
    pub cancel: Cancel,
    /// Whether the worker shuts down. If so, the turn is handed back before its next model call.
    pub stopping: watch::Receiver<bool>,
}

impl Turn<'_> {
    /// The context for errors of this turn.
    pub fn at(&self) -> At {
        let Caller { session, turn } = self.caller;
        At { org: self.org, session: Some(session), turn: Some(turn), ..At::default() }
    }

    /// The context for errors of one of its effects.
    pub(crate) fn at_effect(&self, key: &ReplayKey) -> At {
        At { effect: Some(effect_id(self.caller.turn, key)), ..self.at() }
    }

    /// The effect that a step requests.
    fn effect_of(&self, step: &Step) -> Option<EffectId> {
        let key = match step {
            Step::CallModel(ask) => ask.key(),
            Step::RunTools(batch) => batch.key(),
            Step::Checkpoint(at) => at.key(),
            Step::Wait(_) | Step::Done(_) => return None,
        };
        Some(effect_id(self.caller.turn, key))
    }

    /// Returns the attachments that arguments of its calls may refer to.
    pub(crate) fn held<H: Host>(&self, host: &H) -> Held {
        let (session, bytes) = (self.caller.session, self.world.limits.projected_bytes);
        let attachments = host.store().map(|store| self.world.attachments(store));
        Held { attachments, session, bytes }
    }

    /// Returns the labels of calls that the model makes after reading these messages of this turn.
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

    /// Returns the labels of the tool definitions that the model is shown.
    pub(crate) fn definitions(&self) -> Labels {
        of_definitions(&self.outfit.shown)
    }

    /// Sends a live event to everyone who watches the session.
    pub(crate) fn tell(&self, what: impl FnOnce() -> LiveKind) {
        let Caller { session, turn } = self.caller;
        self.world.hub.tell(session, || Live { turn, what: what() });
    }
}

/// The input of a turn.
#[derive(Clone, Debug)]
pub struct TurnInput {
    /// Earlier messages that the sender brings along.
    pub before: Vec<Message>,
    /// The input itself.
    pub parts: Vec<Part>,
    /// A JSON Schema that the answer must match.
    pub output: Option<Value>,
}

impl TurnInput {
    /// An input of plain text, without an output schema.
    pub fn text(text: impl Into<String>) -> Self {
        Self { before: Vec::new(), parts: vec![Part::text(text)], output: None }
    }
}

/// Drives a turn until it ends or parks.
///
/// After a crash, call it again with the same journal: recorded effects are answered from there, and the turn
/// continues where it stopped.
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

/// Collects what joins the turn at a checkpoint: inputs, corrections of its answer, and messages from hooks.
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
                // A recorded outcome is replayed as it was, even if the turn is cancelled meanwhile.
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
    // An answer that is sent back anyway is not judged.
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
        // Only pinned settings may shape the request. Budgets that an operator sets later may not.
        reply_tokens: (!turn.outfit.budgets.is_empty()).then(|| turn.outfit.reply_tokens(turn.world)),
    }
}
