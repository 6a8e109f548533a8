//! Compaction: shortens a conversation that does not fit into the context window of its model.
//!
//! The kernel plans what to shorten ([`outlast_kernel::conversation`]). The model itself writes the summaries.
use crate::limits::budget_meter::short_of;
use crate::turn::host::{ConversationHost, PartialReplies, TurnBudget, TurnJournal};
use crate::turn::metered_model_call::{FailedAttempts, MeteredModelCall, ModelCallEnd, PastAttempts};
use crate::turn::model::ModelCaller;
use crate::turn::model_request::{ModelRequestResult, ReplyAudience, provider_of};
use outlast_kernel::conversation::{CompactionPlan, PlannedMethod, WindowDemand};
use outlast_kernel::step::CallModelStep;
use outlast_ports::model::{ModelCapabilities, ModelProvider, ModelRequest};
use outlast_vocab::effect::{Generation, ModelCall, ModelOutcome, Reply, ToolChoice};
use outlast_vocab::message::{Message, ModelName, text_of};
use outlast_vocab::record::{CompactionMethod, CompactionRecord};
use outlast_vocab::{Error, Hash, Kind, ReplayKey};
use std::fmt::Write;

/// The system prompt for writing a summary.
const SUMMARISE: &str = "You write the summary that takes the place of the beginning of a conversation between a user and an \
                         assistant with tools. Whoever reads it goes on with the conversation and sees nothing else of that \
                         beginning. Keep what was asked for and decided, names, numbers, ids, paths, what was done with \
                         which result, what is open. Leave out pleasantries. Answer with the summary alone.";

/// A model and what has to fit into its context window.
pub(crate) struct Compactor<'a> {
    pub(crate) model: &'a ModelName,
    pub(crate) provider: &'a dyn ModelProvider,
    pub(crate) info: ModelCapabilities,
    pub(crate) demand: WindowDemand,
}

/// The result of making a conversation fit.
pub(crate) enum ContextFit {
    /// It fits, or nothing more can be left out.
    Fits,
    /// The model rejected the text to summarise as too long.
    SummaryRejected {
        /// The size of the text.
        bytes: usize,
    },
    /// The model cannot write a summary.
    SummaryFailed,
    /// The provider cannot write a summary now. The model call waits for it, or is stuck.
    Blocked(ModelRequestResult),
}

/// Why there is no summary.
enum SummaryFailure {
    Failed(Error),
    Blocked(ModelRequestResult),
}

impl From<Error> for SummaryFailure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Compactor<'_> {
    /// Compacts the conversation until it fits, or until a compaction no longer makes it shorter.
    pub(crate) async fn fit<H: TurnJournal + TurnBudget + PartialReplies + ConversationHost>(
        &self,
        caller: &ModelCaller<'_>,
        ask: &CallModelStep,
        host: &mut H,
    ) -> Result<ContextFit, Error> {
        let mut size = usize::MAX;
        while host.conversation().size_with(ask.messages()) < size {
            let conversation = host.conversation();
            size = conversation.size_with(ask.messages());
            let Some(plan) = conversation.plan(ask.messages(), self.demand) else { break };
            let key = ReplayKey::turn(caller.run.index).compact(conversation.compactions());
            let CompactionPlan { last_turn: through, turn_messages: here, method } = plan;
            let shorter = match method {
                PlannedMethod::Results => CompactionMethod::Results,
                PlannedMethod::Texts { most } => CompactionMethod::Texts { most },
                PlannedMethod::Summary(messages) => {
                    let text = text_to_summarise(&messages, self.demand.window / 10 * 7);
                    let bytes = text.len();
                    match self.summarise(caller, ask, &key, text, host).await? {
                        Ok(Reply { parts, usage, cost, estimate, .. }) => CompactionMethod::Summary {
                            text: text_of(&parts).into_owned(),
                            usage,
                            cost,
                            estimate,
                        },
                        Err(SummaryFailure::Blocked(blocked)) => return Ok(ContextFit::Blocked(blocked)),
                        Err(SummaryFailure::Failed(error)) if error.kind() == Kind::ModelContextExceeded => {
                            return Ok(ContextFit::SummaryRejected { bytes });
                        }
                        Err(SummaryFailure::Failed(error)) => {
                            tracing::warn!(%error, "the conversation could not be summarised; its oldest turns are omitted");
                            return Ok(ContextFit::SummaryFailed);
                        }
                    }
                }
            };
            host.compact(CompactionRecord { key, through, here, shorter }).await?;
        }
        Ok(ContextFit::Fits)
    }

    /// Asks the model for a summary. The inner error says why it has no summary.
    ///
    /// If the summary has to wait for the provider, the model call does: it parks with the failed attempts of the
    /// summary, and asks for a summary again when it wakes.
    async fn summarise<H: TurnJournal + TurnBudget + PartialReplies>(
        &self,
        caller: &ModelCaller<'_>,
        ask: &CallModelStep,
        key: &ReplayKey,
        text: String,
        host: &mut H,
    ) -> Result<Result<Reply, SummaryFailure>, Error> {
        let text = [Message::user(text)];
        let effect = ModelCall {
            model: self.model.clone(),
            at: None,
            tools: Hash::ZERO,
            choice: ToolChoice::None,
            options: Generation::default(),
            output: None,
        };
        let effect = match caller.policy().at_summary(ask, key, &effect, host).await {
            Ok(options) => ModelCall { options, ..effect },
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        let request = ModelRequest {
            system: SUMMARISE,
            turn: &text,
            session: caller.run.caller.session,
            ..ModelRequest::empty(&effect)
        };
        let metered = MeteredModelCall {
            client: caller.client,
            resolved_agent: caller.run.agent,
            caller: caller.run.caller,
            lease: caller.run.lease,
            cancel: caller.cancel,
            key,
            waits_for: ask.key(),
            provider: self.provider,
            info: self.info,
            past: PastAttempts::of(host.history(), ask.key())
                .by_models(caller.run.agent.package.models().count()),
            recovered: host.history().provider_has_recovered(ask.key(), provider_of(self.model)),
            tier: host.tier(),
            audience: ReplyAudience::None,
            // A summary is not part of the conversation.
            keeps_cancelled_text: false,
        };
        let mut tries = FailedAttempts::default();
        let ModelCallEnd { result, .. } = metered.ask(request, String::new(), &mut *host, &mut tries).await?;
        let is_blocked =
            matches!(result, Some(ModelRequestResult::Wait { .. } | ModelRequestResult::Stuck(_)));
        tries.note(if is_blocked { ask.key() } else { key }, host);
        let Some(asked) = result else {
            return Ok(Err(Error::new(Kind::TurnCancelled, caller.cancel.requested().await).into()));
        };
        Ok(match asked {
            ModelRequestResult::Outcome(ModelOutcome::Reply(reply))
                if !text_of(&reply.parts).trim().is_empty() =>
            {
                Ok(reply)
            }
            ModelRequestResult::Outcome(ModelOutcome::Reply(_)) => {
                Err(Error::new(Kind::ModelRejected, "the model returned no summary").into())
            }
            ModelRequestResult::Outcome(ModelOutcome::Failed(failed))
            | ModelRequestResult::GaveUp(failed) => Err(Error::from(failed.failure).into()),
            blocked @ (ModelRequestResult::Wait { .. } | ModelRequestResult::Stuck(_)) => {
                Err(SummaryFailure::Blocked(blocked))
            }
            ModelRequestResult::BudgetExhausted(short) => Err(short_of(&short).into()),
        })
    }
}

/// Returns the messages as one text of at most `most` bytes. Keeps the first message, which may be a summary, and the
/// newest ones. Of a message that is longer than half of the text, it keeps the beginning.
fn text_to_summarise(messages: &[Message], most: usize) -> String {
    let half = |message: &Message| {
        let mut piece = piece(message);
        piece.truncate(piece.floor_char_boundary(most / 2));
        piece
    };
    let mut pieces: Vec<String> = messages.iter().map(half).collect();
    let mut size: usize = pieces.iter().map(String::len).sum();
    // Keep the first message, which can summarise everything before it.
    while size > most && pieces.len() > 2 {
        size -= pieces.remove(1).len();
    }
    let mut text = pieces.concat();
    text.truncate(text.floor_char_boundary(most));
    text
}

fn piece(message: &Message) -> String {
    let (who, calls) = match message {
        Message::User { .. } => ("user", &[][..]),
        Message::Assistant { calls, .. } => ("assistant", calls.as_slice()),
        Message::Tool { tool, .. } => (tool.as_str(), &[][..]),
    };
    let mut piece = format!("{who}: {}\n", message.text());
    for call in calls {
        let arguments = match &call.arguments {
            outlast_vocab::message::CallArguments::Json(value) => value.to_string(),
            outlast_vocab::message::CallArguments::Broken(text) => text.clone(),
        };
        writeln!(piece, "assistant calls {} with {arguments}", call.tool)
            .expect("a String takes every write");
    }
    piece
}
