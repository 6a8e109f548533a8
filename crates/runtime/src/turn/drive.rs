//! Drives a turn to its end. The only module that advances a `Step`.
use crate::attachments::attachment_access::AttachmentAccess;
use crate::calls::payments::PaymentClient;
use crate::calls::tool_runner::{ToolRunner, ToolServices};
use crate::calls::tools;
use crate::delivery::live::LiveHub;
use crate::policy::hooks::at_checkpoint;
use crate::policy::policy_points::{self, PolicyOutcome, PolicyPoints};
use crate::turn::cancel::{CancelSignal, StopSignals};
use crate::turn::host::{DriveOutcome, Host, HostTier, TurnJournal, TurnLifecycle};
use crate::turn::inline_host::not_durable;
use crate::turn::model::ModelCaller;
use crate::turn::model_client::{ModelCatalogue, ModelClient};
use crate::turn::output_schema::OutputSchema;
use crate::turn::provenance::TextSources;
use crate::turn::turn_run::TurnRun;
use crate::turn::undo;
use crate::views::metrics::WorkerMetrics;
use outlast_kernel::step::{self, CheckpointStep, EndedTurn, Step, TurnParameters};
use outlast_ports::clock::{Clock, Entropy};
use outlast_vocab::effect::CheckpointOutcome;
use outlast_vocab::envelope::effect_id;
use outlast_vocab::record::{EffectPerformed, Fact, TurnAccepted, TurnEnd};
use outlast_vocab::{Error, ErrorPlace, Failure, Kind, Limits};
use serde_json::Value;
use std::sync::Arc;

/// Drives turns: performs the effects that their steps request, with the models and tools of this process.
pub struct TurnDriver {
    services: Arc<ToolServices>,
}

impl TurnDriver {
    /// Creates a driver for hosts that store nothing. It has no payment authority.
    pub fn new(
        catalogue: Arc<ModelCatalogue>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        limits: impl Into<Arc<Limits>>,
    ) -> Self {
        let limits = limits.into();
        let models = Arc::new(ModelClient {
            catalogue,
            clock: clock.clone(),
            entropy,
            hub: Arc::new(LiveHub::new(limits.live_frames)),
            metrics: Arc::new(WorkerMetrics::since(clock.now())),
            limits: limits.clone(),
        });
        let attachments = AttachmentAccess::new(None, limits.clone());
        let payments = PaymentClient { authority: None, clock, limits };
        Self::with(ToolServices { models, attachments, payments, budgets: Arc::default() })
    }

    /// Creates a driver whose tool calls use these services.
    pub(crate) fn with(services: ToolServices) -> Self {
        Self { services: Arc::new(services) }
    }

    /// Returns the services of its tool calls.
    pub(crate) fn services(&self) -> &ToolServices {
        &self.services
    }

    /// Drives a turn until it ends or parks.
    ///
    /// After a crash, call it again with the same journal: recorded effects are answered from there, and the turn
    /// continues where it stopped.
    pub async fn drive<H: Host>(
        &self,
        run: TurnRun<'_>,
        sources: &TextSources,
        signals: &StopSignals,
        input: TurnAccepted,
        host: &mut H,
    ) -> Result<DriveOutcome, Error> {
        if host.tier() == HostTier::Ephemeral
            && let Some(tool) = run.agent.contracts.iter().find(|contract| contract.durable)
        {
            return Err(not_durable(&format!("the tool `{}`", tool.name)).at(run.place()));
        }
        let (policy, cancel) = (PolicyPoints { run, sources }, &signals.cancel);
        let permitted = match cancel.reason() {
            Some(_) => PolicyOutcome::Continue,
            None => policy.at_turn(&input.parts, host).await?,
        };
        match permitted {
            PolicyOutcome::Continue => {}
            PolicyOutcome::Refuse(error) => {
                return host.finish(TurnEnd::Failed { failure: Failure::from(&error) }.into()).await;
            }
            PolicyOutcome::Wait(wait) => return host.park(vec![wait]).await,
        }
        let TurnAccepted { before, parts, output, .. } = input;
        let answer_schema = match output.as_ref().map(OutputSchema::new).transpose() {
            Ok(schema) => schema,
            Err(error) => {
                return host.finish(TurnEnd::Failed { failure: Failure::from(&error) }.into()).await;
            }
        };
        let ToolServices { models: client, attachments, .. } = &*self.services;
        let models = ModelCaller { client, attachments, run, sources, cancel };
        let tools = ToolRunner { services: &self.services, run, sources, cancel: cancel.clone() };
        let mut step = step::begin_turn(self.parameters(run, output), before, parts);
        loop {
            let key = match &step {
                Step::CallModel(ask) => Some(ask.key()),
                Step::RunTools(batch) => Some(batch.key()),
                Step::Checkpoint(at) => Some(at.key()),
                Step::Wait(_) | Step::Done(_) => None,
            };
            let effect = key.map(|key| effect_id(run.caller.turn, key));
            let next = match step {
                Step::CallModel(_) if *signals.stopping.borrow() => return host.hand_back().await,
                Step::CallModel(ask) => models.ask(ask, host).await,
                Step::RunTools(batch) => tools::run(&tools, batch, host).await,
                Step::Checkpoint(at) => checkpoint(policy, cancel, at, answer_schema.as_ref(), host).await,
                Step::Wait(waiting) => return host.park(waiting.waits).await,
                Step::Done(EndedTurn { end: TurnEnd::Cancelled { reason }, .. }) => {
                    return undo::stop(&tools, reason, host).await;
                }
                Step::Done(done) => return host.finish(done).await,
            };
            step = next.map_err(|error| error.at(ErrorPlace { effect, ..run.place() }))?;
        }
    }

    fn parameters(&self, TurnRun { agent, index, .. }: TurnRun<'_>, output: Option<Value>) -> TurnParameters {
        let limits = &self.services.models.limits;
        TurnParameters {
            index,
            model: agent.package.model.clone(),
            tools: agent.tools,
            model_calls: agent.package.model_calls,
            tools_per_reply: limits.tools_per_reply,
            output,
            output_repairs: limits.output_repairs,
        }
    }
}

/// Collects what joins the turn at a checkpoint: inputs, corrections of its answer, and messages from hooks.
async fn checkpoint<H: TurnJournal + TurnLifecycle>(
    policy: PolicyPoints<'_>,
    cancel: &CancelSignal,
    at: CheckpointStep,
    schema: Option<&OutputSchema>,
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
    let correction = match at.contract().zip(schema) {
        Some(((answer, _), schema)) if !policy_points::is_answer_withheld(&at, host) => {
            tokio::select! {
                biased;
                correction = Box::pin(schema.correction(&answer, policy.run.org)) => Ok(correction?),
                // A recorded outcome is replayed as it was, even if the turn is cancelled meanwhile.
                reason = cancel.requested(), if !was_passed => Err(reason),
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
        match policy.at_output(&at, host)? {
            PolicyOutcome::Continue => {}
            PolicyOutcome::Refuse(error) if error.kind() == Kind::PolicyInterrupted => {
                return Ok(at.fail(Failure::from(&error)));
            }
            PolicyOutcome::Refuse(error) => ours.refused = Some(Failure::from(&error)),
            PolicyOutcome::Wait(wait) => {
                return Ok(match cancel.reason() {
                    Some(reason) => at.cancel(reason),
                    None => at.wait(wait),
                });
            }
        }
    }
    if !was_passed && ours.is_empty() {
        match at_checkpoint(&policy.run, &policy.sources.hooks, &at, host).await {
            Ok(messages) => ours.messages = messages,
            Err(error) => return Ok(at.fail(Failure::from(&error))),
        }
    }
    let joined = host.checkpoint(&at, ours).await?;
    Ok(at.resume(joined))
}
