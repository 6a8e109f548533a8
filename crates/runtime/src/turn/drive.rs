//! Drives a turn to its end. The only module that advances a `Step`.
use crate::agents::resolved_agent::{ResolvedAgent, RuntimeServices};
use crate::attachments::attachment_references::AttachmentResolver;
use crate::calls::catalogue::Caller;
use crate::calls::tools;
use crate::policy::hooks::{HookLabels, at_checkpoint};
use crate::policy::policy_points::{self, PolicyOutcome};
use crate::turn::cancel::CancelSignal;
use crate::turn::host::{DriveOutcome, Host, HostTier, TurnJournal, TurnProgress};
use crate::turn::inline_host::not_durable;
use crate::turn::provenance::EarlierText;
use crate::turn::{model, output_schema, undo};
use outlast_kernel::label::{of_definitions, of_messages};
use outlast_kernel::step::{self, CheckpointStep, EndedTurn, Step, TurnParameters};
use outlast_vocab::effect::CheckpointOutcome;
use outlast_vocab::envelope::effect_id;
use outlast_vocab::event::{LiveEvent, LiveEventKind};
use outlast_vocab::label::Labels;
use outlast_vocab::message::{Message, Part};
use outlast_vocab::record::{EffectPerformed, Fact, TurnEnd};
use outlast_vocab::{EffectId, Error, ErrorPlace, Failure, Kind, OrgId};
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::watch;

/// A turn and everything it works with, borrowed by the code that performs its effects.
pub struct ActiveTurn<'a> {
    /// The services of this process.
    pub services: &'a Arc<RuntimeServices>,
    /// The agent, as resolved for this turn.
    pub resolved_agent: &'a Arc<ResolvedAgent>,
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
    pub hook_labels: HookLabels,
    /// Cancellation of the turn.
    pub cancel: CancelSignal,
    /// Whether the worker shuts down. If so, the turn is handed back before its next model call.
    pub stopping: watch::Receiver<bool>,
}

impl ActiveTurn<'_> {
    /// The context for errors of this turn.
    pub fn at(&self) -> ErrorPlace {
        let Caller { session, turn } = self.caller;
        ErrorPlace { org: self.org, session: Some(session), turn: Some(turn), ..ErrorPlace::default() }
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
    pub(crate) fn held<H: TurnJournal>(&self, host: &H) -> AttachmentResolver {
        let (session, bytes) = (self.caller.session, self.services.limits.projected_bytes);
        let attachments = host.store().map(|store| self.services.attachments(store));
        AttachmentResolver { attachments, session, bytes }
    }

    /// Returns the labels of calls that the model makes after reading these messages of this turn.
    pub(crate) fn labels_after(&self, read: &[Message]) -> Labels {
        if !self.resolved_agent.keeps_labels() || read.is_empty() {
            return Labels::default();
        }
        let mut labels = of_messages(read, &self.resolved_agent.contracts);
        labels.extend(self.labels.clone());
        labels.extend(self.hook_labels.labels());
        labels.extend(self.definitions());
        labels
    }

    /// Returns the labels of the tool definitions that the model is shown.
    pub(crate) fn definitions(&self) -> Labels {
        of_definitions(&self.resolved_agent.shown)
    }

    /// Sends a live event to everyone who watches the session.
    pub(crate) fn tell(&self, what: impl FnOnce() -> LiveEventKind) {
        let Caller { session, turn } = self.caller;
        self.services.hub.tell(session, || LiveEvent { turn, what: what() });
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
pub async fn drive<H: Host>(
    turn: &ActiveTurn<'_>,
    input: TurnInput,
    host: &mut H,
) -> Result<DriveOutcome, Error> {
    if host.tier() == HostTier::Ephemeral
        && let Some(tool) = turn.resolved_agent.contracts.iter().find(|contract| contract.durable)
    {
        return Err(not_durable(&format!("the tool `{}`", tool.name)).at(turn.at()));
    }
    match policy_points::at_turn(turn, &input, host).await? {
        PolicyOutcome::Continue => {}
        PolicyOutcome::Refuse(error) => {
            return host.finish(TurnEnd::Failed { failure: Failure::from(&error) }.into()).await;
        }
        PolicyOutcome::Wait(wait) => return host.park(vec![wait]).await,
    }
    let TurnInput { before, parts, output } = input;
    if let Some(Err(error)) = output.as_ref().map(output_schema::check_size) {
        return host.finish(TurnEnd::Failed { failure: Failure::from(&error) }.into()).await;
    }
    let mut step = step::begin_turn(plan(turn, output), before, parts);
    loop {
        let effect = turn.effect_of(&step);
        let next = match step {
            Step::CallModel(_) if *turn.stopping.borrow() => return host.hand_back().await,
            Step::CallModel(ask) => model::ask(turn, ask, host).await,
            Step::RunTools(batch) => tools::run(turn, batch, host).await,
            Step::Checkpoint(at) => checkpoint(turn, at, host).await,
            Step::Wait(waiting) => return host.park(waiting.waits).await,
            Step::Done(EndedTurn { end: TurnEnd::Cancelled { reason }, .. }) => {
                return undo::stop(turn, reason, host).await;
            }
            Step::Done(done) => return host.finish(done).await,
        };
        step = next.map_err(|error| error.at(ErrorPlace { effect, ..turn.at() }))?;
    }
}

/// Collects what joins the turn at a checkpoint: inputs, corrections of its answer, and messages from hooks.
async fn checkpoint<H: TurnJournal + TurnProgress>(
    turn: &ActiveTurn<'_>,
    at: CheckpointStep,
    host: &mut H,
) -> Result<Step, Error> {
    let history = host.history();
    let was_passed =
        history.was_reached(&at.next_model()) || history.answer(at.key(), &at.effect())?.is_some();
    let reused = history.reusable().joined(at.key()).filter(|_| !was_passed).cloned();
    if let Some(joined) = reused {
        let performed = EffectPerformed::new(at.key().clone(), at.effect(), joined.clone());
        host.buffer_fact(Fact::Performed(EffectPerformed { reused: true, ..performed }));
        host.flush().await?;
        return Ok(at.resume(joined));
    }
    let correction = match at.contract() {
        Some((answer, schema)) if !policy_points::is_answer_withheld(&at, host) => {
            tokio::select! {
                biased;
                correction = Box::pin(output_schema::correction(&answer, schema)) => Ok(correction?),
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
    let mut ours = CheckpointOutcome { correction, ..CheckpointOutcome::default() };
    // An answer that is sent back anyway is not judged.
    if !was_passed && ours.is_empty() && at.answer().is_some() {
        match policy_points::at_output(turn, &at, host)? {
            PolicyOutcome::Continue => {}
            PolicyOutcome::Refuse(error) if error.kind() == Kind::PolicyInterrupted => {
                return Ok(at.fail(Failure::from(&error)));
            }
            PolicyOutcome::Refuse(error) => ours.refused = Some(Failure::from(&error)),
            PolicyOutcome::Wait(wait) => {
                return Ok(match turn.cancel.reason() {
                    Some(reason) => at.cancel(reason),
                    None => at.wait(wait),
                });
            }
        }
    }
    if !was_passed && ours.is_empty() {
        match at_checkpoint(turn, &at, host).await {
            Ok(messages) => ours.told = messages,
            Err(error) => return Ok(at.fail(Failure::from(&error))),
        }
    }
    let joined = host.checkpoint(&at, ours).await?;
    Ok(at.resume(joined))
}

fn plan(turn: &ActiveTurn<'_>, output: Option<Value>) -> TurnParameters {
    TurnParameters {
        index: turn.index,
        model: turn.resolved_agent.package.model.clone(),
        tools: turn.resolved_agent.tools,
        model_calls: turn.resolved_agent.package.model_calls,
        tools_per_reply: turn.services.limits.tools_per_reply,
        output,
        output_repairs: turn.services.limits.output_repairs,
        // Only pinned settings may shape the request. Budgets that an operator sets later may not.
        reply_tokens: (!turn.resolved_agent.budgets.is_empty())
            .then(|| turn.resolved_agent.reply_tokens(turn.services)),
    }
}
