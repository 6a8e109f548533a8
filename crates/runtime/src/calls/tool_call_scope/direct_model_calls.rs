//! Model calls by a running tool call, outside the conversation.
use super::ToolCallScope;
use crate::attachments::attachment_cache;
use crate::calls::call_journal::CallJournal;
use crate::turn::host::{BudgetReservations, HostTier, PartialReplies, ReservationOutcome};
use crate::turn::metered_model_call::{FailedAttempts, MeteredModelCall, ModelCallHost, PastAttempts};
use crate::turn::model_request::{ModelRequestResult, ReplyAudience, backoff, provider_of};
use crate::turn::output_schema::{OutputSchema, value_of};
use outlast_ports::budget::BudgetReservation;
use outlast_ports::model::{AttachmentContents, ModelRequest};
use outlast_ports::turns::PartialReplyText;
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::effect::{
    DirectCall, DirectOutcome, JournalPosition, ModelCall, ModelOutcome, Reply, ToolChoice,
};
use outlast_vocab::event::LiveEventKind;
use outlast_vocab::message::{Message, Part, text_of};
use outlast_vocab::record::{EffectPerformed, InterruptedReply, Seq};
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Failure, Hash, Kind, Limits, ReplayKey};
use std::time::Duration;

impl ToolCallScope {
    /// Calls a model until its answer matches the output schema, if there is one. Each attempt is a separate effect.
    pub(super) async fn ask_until_it_fits(&self, mut call: DirectCall) -> Result<Reply, Error> {
        let schema = call.output.as_ref().map(OutputSchema::new).transpose()?;
        let mut repairs = 0;
        loop {
            let reply = self.ask_once(&call).await?;
            let Some(schema) = &schema else { return Ok(reply) };
            let answer = text_of(&reply.parts);
            let Some(correction) = schema.correction(&answer, self.call.org).await? else {
                let whole = value_of(&answer)?.to_string();
                return Ok(Reply { parts: vec![Part::text(whole)], ..reply });
            };
            repairs += 1;
            if repairs > self.services.models.limits.output_repairs {
                return Err(Error::new(Kind::OutputInvalid, correction));
            }
            call.messages.push(Message::Assistant { parts: reply.parts, calls: Vec::new() });
            call.messages.push(Message::user(correction));
        }
    }

    async fn ask_once(&self, call: &DirectCall) -> Result<Reply, Error> {
        let key = self.call.key.direct(self.count_nested()?);
        if let Some(DirectOutcome(outcome)) = self.journal.answered(&key, call)? {
            self.tell(&key, |key| LiveEventKind::Replayed { key });
            return reply_of(outcome);
        }
        self.services.models.catalogue.learn_window(&call.model).await;
        let (provider, info) = self.services.models.catalogue.find(&call.model)?;
        let effect = ModelCall {
            model: call.model.clone(),
            at: None,
            tools: Hash::ZERO,
            choice: ToolChoice::None,
            options: call.options.clone(),
            output: call.output.clone(),
        };
        let effect = ModelCall { options: self.may_ask(&key, &effect).await?, ..effect };
        let files = self.contents_for(&call.messages).await?;
        let request = ModelRequest {
            system: &call.system,
            turn: &call.messages,
            session: self.call.caller.session,
            files: &files,
            ..ModelRequest::empty(&effect)
        };
        let history = &self.journal.history;
        let metered = MeteredModelCall {
            client: &self.services.models,
            resolved_agent: &self.resolved_agent,
            caller: self.call.caller,
            lease: self.call.lease,
            cancel: &self.cancel,
            key: &key,
            waits_for: &key,
            provider,
            info,
            past: PastAttempts::of(history, &key),
            recovered: history.provider_has_recovered(&key, provider_of(&call.model)),
            tier: self.journal.tier,
            audience: ReplyAudience::None,
            // Model calls of a tool are not part of the conversation.
            keeps_cancelled_text: false,
        };
        let mut tries = FailedAttempts::default();
        let host = &mut CallModelHost(&self.journal);
        let asked = metered.ask(request, String::new(), host, &mut tries).await?.result;
        let has_outcome =
            matches!(asked, Some(ModelRequestResult::Outcome(_) | ModelRequestResult::GaveUp(_)));
        if !has_outcome && let Some(fact) = std::mem::take(&mut tries).fact(&key) {
            self.journal.note(fact).await;
        }
        let outcome = match asked {
            Some(ModelRequestResult::Outcome(outcome)) => outcome,
            Some(ModelRequestResult::GaveUp(failure)) => ModelOutcome::Failed(failure),
            Some(ModelRequestResult::BudgetExhausted(short)) => {
                return self.journal.out_of_budget(&key, &short).await;
            }
            Some(ModelRequestResult::Wait { key, pause }) => return self.wait_for_provider(key, pause).await,
            Some(ModelRequestResult::Stuck(error)) => return self.get_stuck(&key, error).await,
            None => {
                self.journal.send_settlements().await;
                return Err(Error::new(Kind::ToolCancelled, self.cancel.requested().await));
            }
        };
        let performed = EffectPerformed::new(key, call.clone(), DirectOutcome(outcome.clone()));
        let performed = EffectPerformed { tried: tries.before(&outcome, &call.model), ..performed };
        let fact = self.journal.keep(performed);
        match self.journal.tier {
            HostTier::Durable => self.journal.record(fact).await,
            HostTier::Ephemeral => self.journal.note(fact).await,
        }
        reply_of(outcome)
    }

    /// Parks the call until its provider is asked again.
    async fn wait_for_provider<T>(&self, key: ReplayKey, pause: Duration) -> T {
        let deadline = Some(self.services.models.clock.now().after(pause));
        self.journal.park(Wait { key, kind: WaitKind::Provider, deadline }).await
    }

    /// Parks the call, and so its turn, until a person has fixed what the provider refuses. Fails if the turn cannot
    /// park.
    async fn get_stuck<T>(&self, key: &ReplayKey, error: Error) -> Result<T, Error> {
        if self.journal.tier == HostTier::Ephemeral {
            return Err(error);
        }
        tracing::error!(%error, "the provider refuses the model call of a tool");
        let Limits { stuck_first, stuck_most, .. } = *self.services.models.limits;
        let times = self.journal.history.stuck_wait_count(key);
        let deadline =
            Some(self.services.models.clock.now().after(backoff(stuck_first, stuck_most, times + 1)));
        let wait = Wait { key: key.stuck(times), kind: WaitKind::Event, deadline };
        self.journal.park_stuck(Failure::from(&error), wait).await
    }

    /// Returns the bytes of the attachments in these messages. They must be attachments of the session or of this call,
    /// because a content hash alone does not give access to a content.
    async fn contents_for(&self, messages: &[Message]) -> Result<AttachmentContents, Error> {
        let unsaved = self.storage.unsaved_files();
        if let Some(store) = self.storage.store() {
            for attachment in messages.iter().flat_map(attachment_cache::attachments) {
                if unsaved.iter().any(|file| file.attachment.content == attachment.content) {
                    continue;
                }
                let stored = self
                    .services
                    .attachments
                    .in_store(store)
                    .info(self.call.caller.session, attachment.id)
                    .await?
                    .attachment;
                if stored.content != attachment.content {
                    let detail = format!(
                        "expected the content {} for {}, found {}",
                        stored.content, attachment.id, attachment.content
                    );
                    return Err(Error::new(Kind::InputInvalid, detail));
                }
            }
        }
        self.services.attachments.contents_of(self.storage.store(), &unsaved, messages.iter()).await
    }
}

/// Makes model calls on behalf of a tool call. Stores no partial replies.
struct CallModelHost<'a>(&'a CallJournal);

impl PartialReplies for CallModelHost<'_> {
    async fn persist_partial_reply(&mut self, _: PartialReplyText) -> Result<(), Error> {
        Ok(())
    }
}

impl BudgetReservations for CallModelHost<'_> {
    async fn reserve(&mut self, reservation: BudgetReservation) -> Result<ReservationOutcome, Error> {
        Ok(ReservationOutcome { last: Seq(0), short: self.0.try_to_reserve(reservation).await })
    }

    fn settle_assumed(&mut self, key: &ReplayKey, used: UsageAmount, assumed: UsageAmount) {
        self.0.settle(key, used, assumed);
    }

    fn exclude_provider_wait(&mut self, time: Duration) {
        self.0.waited_for_provider(time);
    }
}

impl ModelCallHost for CallModelHost<'_> {
    fn is_metered(&self) -> bool {
        self.0.is_metered()
    }

    fn place(&self) -> Option<JournalPosition> {
        None
    }

    async fn charge(&mut self, interrupted: InterruptedReply, most: UsageAmount) {
        self.0.charge(interrupted, most).await;
    }
}

fn reply_of(outcome: ModelOutcome) -> Result<Reply, Error> {
    match outcome {
        ModelOutcome::Reply(reply) => Ok(reply),
        ModelOutcome::Failed(failed) => Err(failed.failure.into()),
    }
}
