//! Model calls by a running tool call, outside the conversation.
use super::ToolCallScope;
use crate::attachments::attachment_cache;
use crate::calls::catalogue::Caller;
use crate::limits::budget_meter::{bounded, most_of, price_of, short_of};
use crate::turn::host::{BudgetReservations, HostTier, PartialReplies, ReservationOutcome};
use crate::turn::model_request::{
    FailedAttempts, ModelRequestResult, ModelRequestRunner, PastAttempts, ReplyAudience, backoff, provider_of,
};
use crate::turn::output_schema::{correction, value_of};
use crate::turn::partial_reply::{PartialReply, ReplyRecorder};
use outlast_ports::budget::BudgetReservation;
use outlast_ports::model::{AttachmentContents, ModelCapabilities, ModelRequest};
use outlast_ports::turns::PartialReplyText;
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::effect::{DirectCall, DirectOutcome, ModelCall, ModelOutcome, Reply, ToolChoice};
use outlast_vocab::event::LiveEventKind;
use outlast_vocab::message::{Message, Part, text_of};
use outlast_vocab::record::{EffectPerformed, Fact, Seq};
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Hash, Kind, Limits, ReplayKey};
use std::time::Duration;

impl ToolCallScope {
    /// Calls a model until its answer matches the output schema, if there is one. Each attempt is a separate effect.
    pub(super) async fn ask_until_it_fits(&self, mut call: DirectCall) -> Result<Reply, Error> {
        let mut repairs = 0;
        loop {
            let reply = self.ask_once(&call).await?;
            let Some(schema) = &call.output else { return Ok(reply) };
            let answer = text_of(&reply.parts);
            let Some(correction) = correction(&answer, schema).await? else {
                let whole = value_of(&answer)?.to_string();
                return Ok(Reply { parts: vec![Part::text(whole)], ..reply });
            };
            repairs += 1;
            if repairs > self.services.limits.output_repairs {
                return Err(Error::new(Kind::OutputInvalid, correction));
            }
            call.messages.push(Message::Assistant { parts: reply.parts.clone(), calls: Vec::new() });
            call.messages.push(Message::user(correction));
        }
    }

    async fn ask_once(&self, call: &DirectCall) -> Result<Reply, Error> {
        let key = self.key.direct(self.count_nested()?);
        if let Some(DirectOutcome(outcome)) = self.answered(&key, call)? {
            self.tell(LiveEventKind::Replayed { key });
            return reply_of(outcome);
        }
        let (provider, info) = self.services.model(&call.model)?;
        let effect = ModelCall {
            model: call.model.clone(),
            at: None,
            tools: Hash::ZERO,
            choice: ToolChoice::None,
            options: call.options.clone(),
            output: call.output.clone(),
        };
        let options = self.may_ask(&key, &effect).await?;
        let metered = self.is_metered();
        let options = if metered { bounded(options, &self.resolved_agent, &self.services) } else { options };
        let effect = ModelCall { options, ..effect };
        let caller = Caller { session: self.session, turn: self.turn };
        let files = self.contents_for(&call.messages).await?;
        let request = ModelRequest {
            system: &call.system,
            turn: &call.messages,
            session: self.session,
            files: &files,
            ..ModelRequest::empty(&effect)
        };
        let most = if metered { most_of(&self.services, info, &request) } else { UsageAmount::ZERO };
        if metered {
            self.reserve(BudgetReservation::new(key.clone(), most, price_of(info))).await?;
        }
        let recorder = ReplyRecorder::new(provider);
        let runner = ModelRequestRunner {
            services: &self.services,
            caller,
            key: &key,
            provider: &recorder,
            info,
            lease: self.lease,
            past: PastAttempts::of(&self.history, &key),
            recovered: self.history.provider_has_recovered(&key, provider_of(&call.model)),
            patience: self.resolved_agent.provider_wait(&self.services.limits),
            tier: self.tier,
            audience: ReplyAudience::Nobody,
            most,
        };
        let mut tries = FailedAttempts::default();
        let mut aside = CallModelHost(self);
        let asked = tokio::select! {
            biased;
            asked = runner.ask(request, String::new(), (&mut aside, &mut tries)) => asked?,
            reason = self.cancel.requested() => {
                self.note_tries(tries, &key).await;
                self.note_interrupted(&key, (info, &request), recorder.partial()).await;
                return Err(Error::new(Kind::ToolCancelled, reason));
            }
        };
        let outcome = match asked {
            ModelRequestResult::Outcome(outcome) => outcome,
            ModelRequestResult::BudgetExhausted(short) => {
                self.note_tries(tries, &key).await;
                return Err(short_of(&short));
            }
            ModelRequestResult::GaveUp(failure) => ModelOutcome::Failed(failure),
            ModelRequestResult::Wait { key: wait, pause } => {
                self.note_tries(tries, &key).await;
                let deadline = Some(self.services.clock.now().after(pause));
                return self.park_call(Wait { key: wait, kind: WaitKind::Provider, deadline }).await;
            }
            // A running call cannot get stuck on its own, so its turn waits for the provider until a person has fixed
            // it.
            ModelRequestResult::Stuck(error) => {
                let Limits { stuck_first, stuck_most, .. } = self.services.limits;
                let waits = self.history.provider_wait_count(&key);
                tracing::error!(%error, "the provider refuses a call of a tool");
                self.note_tries(tries, &key).await;
                let deadline =
                    Some(self.services.clock.now().after(backoff(stuck_first, stuck_most, waits + 1)));
                let wait = key.provider(waits, provider_of(&call.model));
                return self.park_call(Wait { key: wait, kind: WaitKind::Provider, deadline }).await;
            }
        };
        let performed = EffectPerformed::new(key, call.clone(), DirectOutcome(outcome.clone()));
        let fact = self.keep(EffectPerformed { tried: tries.before(&outcome, &call.model), ..performed });
        match self.tier {
            HostTier::Durable => self.record(fact).await,
            HostTier::Ephemeral => self.note(fact).await,
        }
        reply_of(outcome)
    }

    /// Returns the bytes of the attachments in these messages. They must be attachments of the session or of this call,
    /// because a content hash alone does not give access to a content.
    async fn contents_for(&self, messages: &[Message]) -> Result<AttachmentContents, Error> {
        let unsaved = self.used().files.clone();
        if let Some(store) = &self.store {
            for attachment in messages.iter().flat_map(attachment_cache::attachments) {
                if unsaved.iter().any(|file| file.attachment.content == attachment.content) {
                    continue;
                }
                let stored =
                    self.services.attachments(store).info(self.session, attachment.id).await?.attachment;
                if stored.content != attachment.content {
                    let detail = format!(
                        "expected the content {} for {}, found {}",
                        stored.content, attachment.id, attachment.content
                    );
                    return Err(Error::new(Kind::InputInvalid, detail));
                }
            }
        }
        attachment_cache::contents_of(&self.services, self.store.as_ref(), &unsaved, messages.iter()).await
    }

    /// Records a cancelled model call, counted as its maximum usage.
    async fn note_interrupted(
        &self,
        key: &ReplayKey,
        (info, request): (ModelCapabilities, &ModelRequest<'_>),
        partial: PartialReply,
    ) {
        if partial.charged == 0 {
            return self.settle(key.clone(), Some(UsageAmount::ZERO));
        }
        let most = most_of(&self.services, info, request);
        self.settle(key.clone(), None);
        // Model calls of a tool are not part of the conversation.
        let partial = PartialReply { text: String::new(), ..partial };
        self.note(Fact::Interrupted(partial.interrupted(key, (info, request), most))).await;
    }

    async fn note_tries(&self, tries: FailedAttempts, key: &ReplayKey) {
        if let Some(fact) = tries.fact(key) {
            self.note(fact).await;
        }
    }
}

/// Makes model calls on behalf of a tool call. Stores no partial replies.
struct CallModelHost<'a>(&'a ToolCallScope);

impl PartialReplies for CallModelHost<'_> {
    async fn persist_partial_reply(&mut self, _: PartialReplyText) -> Result<(), Error> {
        Ok(())
    }
}

impl BudgetReservations for CallModelHost<'_> {
    async fn reserve(&mut self, reservation: BudgetReservation) -> Result<ReservationOutcome, Error> {
        Ok(ReservationOutcome { last: Seq(0), short: self.0.try_to_reserve(reservation).await })
    }

    fn settle(&mut self, key: &ReplayKey, used: Option<UsageAmount>) {
        self.0.settle(key.clone(), used);
    }

    fn exclude_provider_wait(&mut self, time: Duration) {
        self.0.waited_for_provider(time);
    }
}

fn reply_of(outcome: ModelOutcome) -> Result<Reply, Error> {
    match outcome {
        ModelOutcome::Reply(reply) => Ok(reply),
        ModelOutcome::Failed(failed) => Err(failed.failure.into()),
    }
}
