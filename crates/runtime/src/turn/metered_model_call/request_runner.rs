//! Runs the model request of a metered call: attempts, backoff, stall detection, and text kept from broken attempts.
use super::attempts::{AttemptProgress, FailedAttempts, PastAttempts};
use super::{MeteredModelCall, ModelCallHost, interrupted};
use crate::delivery::live::ReplyPublisher;
use crate::limits::budget_meter::{estimate_charge, price_of, used_by};
use crate::limits::provider_health::{Permit, PermitRequest, ProviderPause};
use crate::limits::provider_limits::ProviderRejection;
use crate::turn::host::{BudgetReservations, HostTier, PartialReplies};
use crate::turn::model_client::ModelClient;
use crate::turn::model_request::{ModelRequestResult, ReplyAudience, failed, jittered, provider_of};
use crate::turn::partial_reply::ReplyRecorder;
use crate::views::metrics::RetryKind;
use futures_util::StreamExt;
use futures_util::future::{Either, poll_immediate, select};
use outlast_ports::BoxFuture;
use outlast_ports::budget::BudgetReservation;
use outlast_ports::model::{EventStream, ModelProvider, ModelRequest, ProviderRate};
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::effect::{ModelFailure, ModelOutcome, Reply, Usage};
use outlast_vocab::event::LiveEventKind;
use outlast_vocab::message::{Message, ModelName};
use outlast_vocab::record::{FailedAttempt, InterruptedReply, ReplyInterruption};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Class, Error, Failure, Kind, Limits, ReplayKey};
use std::time::Duration;

/// Approximate bytes per token.
const TOKEN_BYTES: usize = 4;

/// The request of one metered call.
pub(super) struct ModelRequestRunner<'a> {
    pub(super) call: &'a MeteredModelCall<'a>,
    /// Asks the provider, and keeps the text that has arrived.
    pub(super) provider: &'a ReplyRecorder<'a>,
    /// Earlier attempts, including those of this request.
    pub(super) past: PastAttempts,
    /// How long the turn waits for a provider that is down.
    pub(super) patience: Duration,
    /// The most that one attempt may use.
    pub(super) most: UsageAmount,
}

impl<'a> ModelRequestRunner<'a> {
    /// Runs attempts until there is a complete reply, a permanent error, or a reason to wait.
    ///
    /// If an attempt breaks off, its streamed text is retracted. If the model can continue a cut reply, the
    /// next attempt starts with that text. `partial_text` is the text that a dead process had persisted. Failed
    /// attempts are added to `tries`, even if this future is dropped.
    pub(super) async fn ask<A: ModelCallHost>(
        mut self,
        request: ModelRequest<'_>,
        mut partial_text: String,
        asker: &mut A,
        tries: &mut FailedAttempts,
    ) -> Result<ModelRequestResult, Error> {
        let (limits, began) = (&self.call.client.limits, self.call.client.clock.elapsed());
        let rate = self.provider.rate(&request.call.model);
        let live_reply = self.call.begin_reply();
        let mut tried_now = 0;
        loop {
            let permit = match self.admitted(&rate, &request, began, asker).await {
                Ok(permit) => permit,
                Err(waits) => {
                    asker.settle(self.call.key, UsageAmount::ZERO);
                    return Ok(waits);
                }
            };
            (self.past.tried, tried_now) = (self.past.tried + 1, tried_now + 1);
            let attempt = self.attempt_number();
            let from = self.call.client.clock.now();
            let mut progress = AttemptProgress::begin(&partial_text, from);
            if !partial_text.is_empty() {
                self.tell_text(&live_reply, attempt, 0, &partial_text);
                progress.building.push(ModelEvent::Text(partial_text.clone()), limits.reply_bytes)?;
            }
            let stream = self.provider.stream(ModelRequest { partial_text: &partial_text, ..request });
            let error = match self.listen(attempt, &live_reply, stream, &mut progress, asker).await {
                Ok(()) => match progress.building.finish(attempt, self.call.info.prices.as_ref()) {
                    Ok(reply) => {
                        self.provider_answered(&request.call.model, permit);
                        let reply = self.booked(reply, &request, asker);
                        return Ok(self.outcome(&request, began, ModelOutcome::Reply(reply)));
                    }
                    Err(error) => error,
                },
                Err(StreamError::Store(error)) => return Err(error),
                Err(StreamError::Model(error)) => error,
            };
            let (until, failure) = (self.call.client.clock.now(), Failure::from(&error));
            let model = (self.past.models > 1).then(|| request.call.model.clone());
            tries.failed(FailedAttempt { attempt, from, until, failure: failure.clone(), model });
            asker.exclude_provider_wait(from.until(until));
            self.past.down_since.get_or_insert(until);
            if let (Kind::ModelUnavailable, Some(asked_for)) = (error.kind(), error.pause()) {
                let rejection = ProviderRejection { pause: asked_for, failure: failure.clone() };
                self.call.client.catalogue.rate_limiter.record_rejection(&rate, rejection, until);
            }
            let streamed = progress.bytes > 0 && self.call.audience != ReplyAudience::SubscribersAfterPolicy;
            self.past.streamed = streamed;
            if streamed {
                live_reply.discard();
                self.tell(|key| LiveEventKind::Retracted { key, attempt });
            }
            // An attempt that broke off may be charged; a rejected one is not.
            let broke_off = progress.began || error.kind() == Kind::ModelStalled;
            if broke_off {
                let cancelled = interrupted(self.call.key, &request, self.call.info, self.most);
                let broken = InterruptedReply { cause: ReplyInterruption::BrokeOff, ..cancelled };
                asker.charge(broken, self.most).await;
            }
            self.provider.end_attempt();
            // Returns the reservation of a rejected attempt. That of a broken one is settled already.
            let unused = UsageAmount::ZERO;
            let entropy = self.call.client.entropy.as_ref();
            let down = match error.class() {
                // A provider that began to answer is up, whatever broke the stream. A probe that breaks off
                // has failed.
                Class::Retry if progress.began && !permit.as_ref().is_some_and(Permit::is_probe) => None,
                Class::Retry => {
                    let failure = failure.clone();
                    permit.and_then(|permit| permit.failed(failure, error.pause(), limits, entropy, until))
                }
                // A provider that refuses a request is up.
                Class::Park | Class::Reject | Class::Bug => {
                    self.provider_answered(&request.call.model, permit);
                    asker.settle(self.call.key, unused);
                    return Ok(match error.class() {
                        Class::Park if self.fails_if_refused() => self.give_up(failure, &request, began),
                        Class::Park => ModelRequestResult::Stuck(error),
                        _ => self.outcome(&request, began, failed(&error, streamed)),
                    });
                }
            };
            let pause = match self.next_attempt(&error, tried_now, down) {
                NextAttempt::Soon(pause) => pause,
                NextAttempt::Later(pause) => {
                    asker.settle(self.call.key, unused);
                    tracing::warn!(%error, attempt, "the turn waits for its model provider");
                    let blocked = ProviderPause { pause, last_failure: Some(Failure::from(&error)) };
                    return Ok(self.wait_for_provider(blocked, &request, began));
                }
                NextAttempt::Never => {
                    asker.settle(self.call.key, unused);
                    return Ok(self.give_up(Failure::from(&error), &request, began));
                }
            };
            tracing::warn!(%error, attempt, "the model call is tried again");
            self.call.client.metrics.tried_again(RetryKind::Model);
            partial_text = if progress.only_text { progress.text } else { String::new() };
            self.call.client.clock.sleep(pause).await;
            asker.exclude_provider_wait(pause);
            if broke_off
                && asker.is_metered()
                && let Some(short) = asker.reserve(self.reservation()).await?.short
            {
                return Ok(ModelRequestResult::BudgetExhausted(short));
            }
        }
    }

    /// Whether the call fails if the provider refuses the key or the account. Otherwise, the turn gets stuck.
    fn fails_if_refused(&self) -> bool {
        self.call.resolved_agent.fails_if_refused(&self.call.client.limits)
    }

    /// Returns the number of the next attempt, larger than that of any attempt under an earlier lease.
    fn attempt_number(&self) -> u32 {
        let each = self.call.client.limits.model_attempts.saturating_mul(self.past.models);
        let before = self.call.lease.saturating_sub(1).saturating_mul(u64::from(each));
        u32::try_from(before + u64::from(self.past.tried)).unwrap_or(u32::MAX)
    }

    /// Admits the call, or returns what the turn must wait for: the provider's rate limit or the provider
    /// itself.
    async fn admitted<'r, A: BudgetReservations>(
        &self,
        rate: &ProviderRate,
        request: &ModelRequest<'r>,
        began: Duration,
        asker: &mut A,
    ) -> Result<Option<Permit<'r>>, ModelRequestResult>
    where
        'a: 'r,
    {
        let Some(pause) = self.wait_for_provider_rate(rate, request, asker).await else {
            return self.paced_permit(request, began, asker).await;
        };
        let rejected = self.call.client.catalogue.rate_limiter.closed_by(rate, self.call.client.clock.now());
        if rejected.is_some() {
            let blocked = ProviderPause { pause, last_failure: rejected };
            return Err(self.wait_for_provider(blocked, request, began));
        }
        Err(self.wait_in_line(pause))
    }

    /// Admits the call unless its provider is down. Turns that have waited for the provider call it one after the
    /// other.
    async fn paced_permit<'r, A: BudgetReservations>(
        &self,
        request: &ModelRequest<'r>,
        began: Duration,
        asker: &mut A,
    ) -> Result<Option<Permit<'r>>, ModelRequestResult>
    where
        'a: 'r,
    {
        let ModelClient { catalogue, limits, clock, .. } = self.call.client;
        let (provider, session) = (provider_of(&request.call.model), self.call.caller.session);
        let PastAttempts { provider_waits, forced, is_retry, .. } = self.past;
        let mut is_due = forced || is_retry || self.call.recovered;
        loop {
            let permit = self.permit(request, is_due);
            let permit = permit.map_err(|blocked| self.wait_for_provider(blocked, request, began))?;
            if provider_waits == 0 || forced {
                return Ok(permit);
            }
            let pause = catalogue.health.pace(provider, session, limits, clock.elapsed());
            if pause.is_zero() {
                return Ok(permit);
            }
            if pause > limits.wait_in_memory {
                return Err(self.wait_in_line(pause));
            }
            clock.sleep(pause).await;
            asker.exclude_provider_wait(pause);
            // The provider may have failed again.
            is_due = false;
        }
    }

    /// Waits in the queue of the provider.
    fn wait_in_line(&self, pause: Duration) -> ModelRequestResult {
        ModelRequestResult::Wait { key: self.call.waits_for.provider_queue(self.past.in_line), pause }
    }

    /// Admits the call unless its provider is down. An ephemeral host always admits it, because it cannot
    /// park the turn. A call that is due may probe early.
    fn permit<'r>(
        &self,
        request: &ModelRequest<'r>,
        is_due: bool,
    ) -> Result<Option<Permit<'r>>, ProviderPause>
    where
        'a: 'r,
    {
        let ModelClient { catalogue, limits, clock, .. } = self.call.client;
        let now = clock.now();
        // A turn that may not wait any longer calls the provider once more before it fails.
        let is_last = self.past.down_since.unwrap_or(now).after(self.patience) <= now;
        let request = PermitRequest {
            provider: provider_of(&request.call.model),
            model: &request.call.model,
            session: self.call.caller.session,
            waited: self.past.provider_waits,
            is_due: is_due || is_last,
        };
        match catalogue.health.admit(request, limits, now) {
            Err(blocked) if self.call.tier == HostTier::Durable && !is_last => Err(blocked),
            permit => Ok(permit.ok()),
        }
    }

    /// Marks the provider as up and wakes the turns that wait for it.
    fn provider_answered(&self, model: &ModelName, permit: Option<Permit<'_>>) {
        if permit.is_some_and(Permit::answered) {
            let provider = provider_of(model);
            tracing::info!(provider, "the provider answers again");
            self.call.client.catalogue.health.recover(provider);
        }
    }

    /// Decides when to retry after a transient error. If the provider counts as down, `down` is the pause
    /// until the next probe.
    fn next_attempt(&self, error: &Error, tried_now: u32, down: Option<Duration>) -> NextAttempt {
        let Limits { model_attempts, backoff_first, backoff_most, wait_in_memory, .. } =
            *self.call.client.limits;
        let entropy = self.call.client.entropy.as_ref();
        let soon = error.pause().unwrap_or_else(|| jittered(backoff_first, backoff_most, tried_now, entropy));
        if self.call.tier == HostTier::Ephemeral {
            return if tried_now < model_attempts { NextAttempt::Soon(soon) } else { NextAttempt::Never };
        }
        let is_quick = self.past.provider_waits == 0 && tried_now < model_attempts;
        match down {
            Some(pause) => NextAttempt::Later(pause),
            None if is_quick && soon <= wait_in_memory => NextAttempt::Soon(soon),
            None => {
                let Limits { provider_pause_first: first, provider_pause_most: most, .. } =
                    *self.call.client.limits;
                NextAttempt::Later(soon.max(jittered(first, most, self.past.provider_waits + 1, entropy)))
            }
        }
    }

    /// Waits for the provider, or gives up if the turn has waited as long as it may.
    fn wait_for_provider(
        &self,
        blocked: ProviderPause,
        request: &ModelRequest<'_>,
        began: Duration,
    ) -> ModelRequestResult {
        let provider = provider_of(&request.call.model);
        let now = self.call.client.clock.now();
        let gives_up = self.past.down_since.unwrap_or(now).after(self.patience);
        if now >= gives_up {
            let silent = || Failure::new(Kind::ModelUnavailable, format!("`{provider}` does not answer"));
            let mut failure = blocked.last_failure.unwrap_or_else(silent);
            if !self.patience.is_zero() {
                let waited = format!("; the turn has waited {} s for its provider", self.patience.as_secs());
                failure.detail.push_str(&waited);
            }
            return self.give_up(failure, request, began);
        }
        let key = self.call.waits_for.provider(self.past.provider_waits, provider);
        ModelRequestResult::Wait { key, pause: blocked.pause.min(now.until(gives_up)) }
    }

    /// Ends the call for this model. Another model may still answer it.
    fn give_up(&self, failure: Failure, request: &ModelRequest<'_>, began: Duration) -> ModelRequestResult {
        let failure = ModelFailure { failure, streamed: self.past.streamed };
        let took = self.call.client.clock.elapsed().saturating_sub(began);
        self.call.client.metrics.asked(&request.call.model, took, &ModelOutcome::Failed(failure.clone()));
        ModelRequestResult::GaveUp(failure)
    }

    /// The budget reservation for one attempt.
    fn reservation(&self) -> BudgetReservation {
        BudgetReservation::new(self.call.key.clone(), self.most, price_of(self.call.info))
    }

    /// Settles a complete reply. If the provider did not report its usage, an estimate is added and settled. Usage above
    /// the reservation is booked too, because it will be charged.
    fn booked<A: ModelCallHost>(&self, reply: Reply, request: &ModelRequest<'_>, asker: &mut A) -> Reply {
        let is_unknown = reply.usage == Usage::default();
        let info = self.call.info;
        let estimate = || Box::new(estimate_charge(info, request, &reply));
        let estimate = is_unknown.then(estimate);
        let reply = Reply { estimate, ..reply };
        let (used, most) = (used_by(&reply), self.most);
        if asker.is_metered() && !most.covers(used) {
            tracing::warn!(?used, ?most, "a model used more than was reserved; the budget may be exceeded");
        }
        asker.settle_assumed(self.call.key, used, if is_unknown { used } else { UsageAmount::ZERO });
        reply
    }

    /// Counts the outcome in the metrics and returns it.
    fn outcome(
        &self,
        request: &ModelRequest<'_>,
        began: Duration,
        outcome: ModelOutcome,
    ) -> ModelRequestResult {
        let took = self.call.client.clock.elapsed().saturating_sub(began);
        self.call.client.metrics.asked(&request.call.model, took, &outcome);
        ModelRequestResult::Outcome(outcome)
    }

    /// Waits for the rate limiter. Returns the wait if it is too long for memory.
    async fn wait_for_provider_rate<A: BudgetReservations>(
        &self,
        rate: &ProviderRate,
        request: &ModelRequest<'_>,
        asker: &mut A,
    ) -> Option<Duration> {
        if self.past.forced {
            return None;
        }
        let tokens = match rate.tokens_per_minute {
            Some(_) => {
                let messages: usize = request.messages().map(Message::size).sum();
                u64::try_from((request.system.len() + messages) / TOKEN_BYTES).unwrap_or(u64::MAX)
            }
            None => 0,
        };
        loop {
            let now = self.call.client.clock.now();
            let wait = self
                .call
                .client
                .catalogue
                .rate_limiter
                .admit(self.call.caller.session, rate, tokens, now)
                .err()?;
            if wait > self.call.client.limits.wait_in_memory && self.call.tier == HostTier::Durable {
                return Some(wait);
            }
            let is_closed = self.call.client.catalogue.rate_limiter.closed_by(rate, now).is_some();
            self.call.client.clock.sleep(wait).await;
            if is_closed {
                asker.exclude_provider_wait(wait);
            }
        }
    }

    /// Reads one stream to its end.
    async fn listen<A: PartialReplies>(
        &self,
        attempt: u32,
        live_reply: &ReplyPublisher<'_>,
        mut stream: EventStream<'_>,
        progress: &mut AttemptProgress,
        asker: &mut A,
    ) -> Result<(), StreamError> {
        // The idle timer: starts at the first keep-alive, and stops at the next event that makes progress.
        let mut idle: Option<BoxFuture<'_, ()>> = None;
        while let Some(event) = self.next_or_stalled(&mut stream).await? {
            let event = event?;
            progress.began = true;
            match &event {
                ModelEvent::KeepAlive => {
                    let patience = self.call.client.limits.model_idle;
                    let waiting = idle.get_or_insert_with(|| self.call.client.clock.sleep(patience));
                    if poll_immediate(waiting).await.is_some() {
                        let detail =
                            format!("the stream returned nothing new for {} ms", patience.as_millis());
                        return Err(Error::new(Kind::ModelStalled, detail).into());
                    }
                }
                ModelEvent::Text(text) => {
                    idle = None;
                    self.tell_text(live_reply, attempt, progress.bytes, text);
                    progress.bytes += text.len();
                    if self.call.info.can_continue {
                        progress.text.push_str(text);
                    }
                }
                ModelEvent::PromptChanged(at) => {
                    self.tell(|key| LiveEventKind::PromptChanged { key, at: at.clone() });
                }
                ModelEvent::HiddenProgress | ModelEvent::Usage(_) | ModelEvent::End(_) => idle = None,
                ModelEvent::Reasoning { .. } | ModelEvent::Sealed { .. } | ModelEvent::Call(_) => {
                    idle = None;
                    progress.only_text = false;
                }
            }
            progress.building.push(event, self.call.client.limits.reply_bytes)?;
            let keeps = self.call.info.can_continue && self.call.audience == ReplyAudience::Subscribers;
            if keeps && progress.is_due(&self.call.client.limits, self.call.client.clock.now()) {
                let partial_text = progress.take_new(self.call.key, attempt, self.call.client.clock.now());
                asker.persist_partial_reply(partial_text).await.map_err(StreamError::Store)?;
            }
        }
        Ok(())
    }

    /// Returns the next event, or an error if the stream is silent for too long.
    async fn next_or_stalled(
        &self,
        stream: &mut EventStream<'_>,
    ) -> Result<Option<Result<ModelEvent, Error>>, Error> {
        // Most events are ready when polled. Only real silence needs a timer.
        if let Some(next) = poll_immediate(stream.next()).await {
            return Ok(next);
        }
        let patience = self.call.client.limits.model_stall;
        match select(stream.next(), self.call.client.clock.sleep(patience)).await {
            Either::Left((next, _)) => Ok(next),
            Either::Right(_) => {
                let detail = format!("the stream sent no data for {} ms", patience.as_millis());
                Err(Error::new(Kind::ModelStalled, detail))
            }
        }
    }

    fn tell_text(&self, live_reply: &ReplyPublisher<'_>, attempt: u32, offset: usize, text: &str) {
        if self.call.audience == ReplyAudience::Subscribers {
            live_reply.publish(self.call.key, attempt, offset, text);
        }
    }

    fn tell(&self, what: impl FnOnce(ReplayKey) -> LiveEventKind) {
        if self.call.audience != ReplyAudience::None {
            self.call.client.hub.publish_effect(self.call.caller, self.call.key, what);
        }
    }
}

/// When to retry a model call.
enum NextAttempt {
    /// After a pause in memory.
    Soon(Duration),
    /// After a wait for the provider.
    Later(Duration),
    Never,
}

/// Why reading the stream ended early. A store error is not an error of the model.
enum StreamError {
    Model(Error),
    Store(Error),
}

impl From<Error> for StreamError {
    fn from(error: Error) -> Self {
        Self::Model(error)
    }
}
