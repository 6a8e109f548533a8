//! Answers the model calls of a turn: from the journal if recorded, otherwise from a provider.
use crate::attachments::attachment_access::AttachmentAccess;
use crate::limits::budget_meter::{named, wait_for};
use crate::limits::reply_bound::reply_bound;
use crate::policy::hooks::{EffectHooks, HookedModelRequest, after_model, before_model};
use crate::policy::policy_points::{PolicyOutcome, PolicyPoints, as_ruled};
use crate::turn::cancel::CancelSignal;
use crate::turn::compaction::{Compactor, ContextFit};
use crate::turn::context_window::{RejectedRequest, RequestSize, WindowEstimate};
use crate::turn::host::{Host, TurnBudget, TurnJournal};
use crate::turn::metered_model_call::{FailedAttempts, MeteredModelCall, ModelCallEnd, PastAttempts};
use crate::turn::model_client::ModelClient;
use crate::turn::model_request::{ModelRequestResult, ReplyAudience, failed, provider_of};
use crate::turn::provenance::TextSources;
use crate::turn::turn_run::TurnRun;
use crate::views::metrics::TurnPhase;
use outlast_kernel::conversation::WindowDemand;
use outlast_kernel::retry::ReusableReply;
use outlast_kernel::step::{CallModelStep, Step};
use outlast_ports::budget::BudgetShortfall;
use outlast_ports::hook::AfterModel;
use outlast_ports::model::{ModelCapabilities, ModelProvider, ModelRequest, TOKEN_BYTES};
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::effect::{EffectKind, Generation, ModelCall, ModelFailure, ModelOutcome};
use outlast_vocab::event::LiveEventKind;
use outlast_vocab::message::{ModelName, json_size, text_of};
use outlast_vocab::policy::PolicyPoint;
use outlast_vocab::record::{EffectPerformed, Fact};
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Failure, ReplayKey};
use std::time::Duration;

/// How much more of the conversation is read than fits into the window, because compaction may leave out most
/// of it.
const READ_AHEAD: usize = 4;

/// Answers the model calls of one turn.
pub(crate) struct ModelCaller<'a> {
    pub(crate) client: &'a ModelClient,
    pub(crate) attachments: &'a AttachmentAccess,
    pub(crate) run: TurnRun<'a>,
    pub(crate) sources: &'a TextSources,
    /// Cancels the call.
    pub(crate) cancel: &'a CancelSignal,
}

impl ModelCaller<'_> {
    pub(super) fn policy(&self) -> PolicyPoints<'_> {
        PolicyPoints { run: self.run, sources: self.sources }
    }

    /// Publishes a live event of the turn.
    fn tell(&self, key: &ReplayKey, what: impl FnOnce(ReplayKey) -> LiveEventKind) {
        self.client.hub.publish_effect(self.run.caller, key, what);
    }

    /// Runs the hooks on the outcome. Watchers who saw text that a hook replaced get a retraction and the new text.
    async fn after_hooks<H: TurnJournal>(
        &self,
        ask: &CallModelStep,
        outcome: ModelOutcome,
        host: &mut H,
    ) -> ModelOutcome {
        let attempt_of = |outcome: &ModelOutcome| match outcome {
            ModelOutcome::Reply(reply) => Some(reply.attempt),
            ModelOutcome::Failed(_) => None,
        };
        let seen = attempt_of(&outcome);
        let outcome = after_model(&self.run, &self.sources.hooks, ask.key(), outcome, host).await;
        if let (Some(seen), ModelOutcome::Reply(reply)) = (seen, &outcome)
            && reply.attempt != seen
        {
            let (key, attempt) = (ask.key(), reply.attempt);
            self.tell(key, |key| LiveEventKind::Retracted { key, attempt: seen });
            let text = || text_of(&reply.parts).into_owned();
            self.tell(key, |key| LiveEventKind::Text { key, attempt, offset: 0, text: text() });
        }
        outcome
    }

    /// Answers the step from the journal, or requests a reply now.
    pub(crate) async fn ask<H: Host>(&self, ask: CallModelStep, host: &mut H) -> Result<Step, Error> {
        host.begin_effect(ask.key(), EffectKind::ModelCall)?;
        let history = host.history().clone();
        let store = host.store().cloned();
        let hooks = EffectHooks::of(&self.run, &self.sources.hooks, &history, store.as_ref(), ask.key());
        let as_recorded = |at| {
            let effect = hooks.as_recorded(ask.effect(Some(at)));
            let effect = self.answered_by(effect, history.model_of(ask.key()), ask.key(), host);
            // The bound depends on what is known of the model's window. The recorded one applies, so that the
            // request matches.
            let tokens_most = history.reply_token_limit(ask.key());
            ModelCall { options: Generation { tokens_most, ..effect.options }, ..effect }
        };
        if let Some(at) = history.conversation_end_at(ask.key())
            && let Some(outcome) = history.answer(ask.key(), &as_recorded(at))?
        {
            self.tell(ask.key(), |key| LiveEventKind::Replayed { key });
            return self.go_on(ask, outcome, host);
        }
        if let Some(reason) = self.cancel.reason() {
            return Ok(ask.cancel(reason));
        }
        if let Some(reply) = history.reusable().reply(ask.key()) {
            return Box::pin(self.reuse(ask, reply.clone(), host)).await;
        }
        // If budgets are tracked, the buffered facts are written together with the reservation for the call.
        if !host.is_metered() {
            host.flush().await?;
        }
        let mut shaped = match before_model(&self.run, &self.sources.hooks, &ask, host).await {
            Ok(shaped) => shaped,
            Err(error) => {
                hooks.on_error(&Failure::from(&error)).await;
                return Ok(ask.resume(failed(&error, false)));
            }
        };
        let hooked = shaped.options.clone();
        match self.policy().at_model(&ask, &mut shaped, host).await? {
            PolicyOutcome::Continue => {}
            PolicyOutcome::Refuse(error) => return Ok(ask.resume(failed(&error, false))),
            PolicyOutcome::Wait(wait) => return Ok(ask.wait(wait)),
        }
        let mut tries = FailedAttempts::default();
        let began = self.client.clock.elapsed();
        let verdict = self.ask_models(&ask, &mut shaped, hooked, &mut *host, &mut tries).await?;
        self.client.metrics.passed(TurnPhase::Model, self.client.clock.elapsed().saturating_sub(began));
        if !matches!(verdict, ModelCallDecision::Outcome(..)) {
            tries.note(ask.key(), host);
            tries = FailedAttempts::default();
        }
        let (effect, outcome) = match verdict {
            ModelCallDecision::Outcome(effect, outcome) => (effect, outcome),
            ModelCallDecision::Unknown(error) => return Ok(ask.resume(failed(&error, false))),
            ModelCallDecision::Cancelled => return Ok(ask.cancel(self.cancel.requested().await)),
            ModelCallDecision::BudgetExhausted(short) if !short.pauses_turns => {
                return Ok(ask.exhaust_budget(named(&short), short.reason.to_string()));
            }
            ModelCallDecision::BudgetExhausted(short) => {
                let key = ask.key().budget(host.history().budget_wait_count(ask.key()));
                return Ok(ask.wait(wait_for(key, &short)));
            }
            ModelCallDecision::Wait(waits) => {
                let now = self.client.clock.now();
                let wait = |ProviderWait { key, pause }| {
                    let deadline = Some(now.after(pause));
                    Wait { key, kind: WaitKind::Provider, deadline }
                };
                return Ok(ask.wait_for_any(waits.into_iter().map(wait).collect()));
            }
            ModelCallDecision::Stuck(error) => {
                host.flush().await?;
                return Err(error);
            }
        };
        let failed = tries.before(&outcome, &effect.model);
        let outcome = self.after_hooks(&ask, outcome, host).await;
        let outcome = self.policy().of_reply(&ask, outcome, &self.client.hub, host).await?;
        let performed = EffectPerformed::new(ask.key().clone(), effect, outcome.clone());
        host.buffer_fact(Fact::Performed(EffectPerformed { tried: failed, ..performed }));
        self.go_on(ask, outcome, host)
    }

    /// Asks the agent's models in order until one answers. `options` are the options before rules changed them.
    async fn ask_models<H: Host>(
        &self,
        ask: &CallModelStep,
        shaped: &mut HookedModelRequest<'_>,
        options: Generation,
        host: &mut H,
        tries: &mut FailedAttempts,
    ) -> Result<ModelCallDecision, Error> {
        let mut unavailable = UnavailableModels::default();
        for (number, model) in self.run.agent.package.models().enumerate() {
            self.client.catalogue.learn_window(model).await;
            let (provider, info) = match self.client.catalogue.find(model) {
                Ok(found) => found,
                Err(error) if number == 0 => return Ok(ModelCallDecision::Unknown(error)),
                Err(error) => {
                    tracing::warn!(%error, "a fallback model is skipped");
                    continue;
                }
            };
            if number > 0 {
                shaped.options = options.clone();
                if !self.policy().may_fall_back(ask, number, model, shaped, host).await? {
                    continue;
                }
            }
            let candidate = ModelCandidate { model, provider, info };
            let asked = Box::pin(self.ask_one(ask, &candidate, shaped, host, tries)).await?;
            let Some((effect, asked)) = asked else { return Ok(ModelCallDecision::Cancelled) };
            match asked {
                ModelRequestResult::Wait { key, pause } => unavailable.waits(key, pause),
                ModelRequestResult::Stuck(error) => unavailable.refuses(error),
                ModelRequestResult::GaveUp(failure) => unavailable.gave_up(effect, failure),
                // If a fallback model cannot answer, an earlier model may once its provider returns.
                ModelRequestResult::BudgetExhausted(_)
                | ModelRequestResult::Outcome(ModelOutcome::Failed(_))
                    if number > 0 => {}
                ModelRequestResult::BudgetExhausted(short) => {
                    return Ok(ModelCallDecision::BudgetExhausted(short));
                }
                ModelRequestResult::Outcome(outcome) => {
                    return Ok(ModelCallDecision::Outcome(effect, outcome));
                }
            }
        }
        Ok(unavailable.verdict())
    }

    /// Asks one model, with as much of the conversation as fits its window. Returns `None` if the turn was
    /// cancelled.
    async fn ask_one<H: Host>(
        &self,
        ask: &CallModelStep,
        candidate: &ModelCandidate<'_>,
        shaped: &HookedModelRequest<'_>,
        host: &mut H,
        tries: &mut FailedAttempts,
    ) -> Result<Option<(ModelCall, ModelRequestResult)>, Error> {
        let ModelCandidate { model, provider, info } = *candidate;
        let limits = &self.client.limits;
        host.load_conversation(info.window_bytes.min(limits.view_bytes).saturating_mul(READ_AHEAD)).await?;
        let mut window = WindowEstimate::new(info, limits.context_rounds);
        let mut rejected: Option<RejectedRequest> = None;
        loop {
            let candidate = ModelCandidate { info: window.info, ..*candidate };
            let reply_tokens = reply_bound(&shaped.options, self.run.agent, limits, window.info);
            let demand = self.demand(shaped, &window, reply_tokens);
            if !window.can_summarise {
                host.conversation().drop_oldest_turns(ask.messages(), demand);
            }
            let compactor = Compactor { model, provider, info: window.info, demand };
            match compactor.fit(self, ask, host).await? {
                ContextFit::Fits => {}
                ContextFit::SummaryRejected { bytes } if window.lower(provider.info(model), bytes) => {
                    continue;
                }
                ContextFit::SummaryRejected { .. } | ContextFit::SummaryFailed => {
                    window.can_summarise = false;
                    continue;
                }
                ContextFit::Blocked(blocked) => {
                    let call = ModelCall { model: model.clone(), ..shaped.effect(ask, None) };
                    return Ok(Some((call, blocked)));
                }
            }
            if self.cancel.reason().is_some() {
                return Ok(None);
            }
            let bytes = demand.overhead_bytes + host.conversation().size_with(ask.messages());
            let size = RequestSize { bytes, reply_tokens };
            if let Some(same) = rejected.take_if(|rejected| rejected.size == size) {
                if !window.lower(None, bytes) {
                    return Ok(Some(same.explained(&candidate)));
                }
                rejected = Some(same);
                continue;
            }
            let shown = self.show(ask, &candidate, shaped, host, tries).await?;
            let Some((effect, result)) = shown else { return Ok(None) };
            if !result.is_too_long() {
                return Ok(Some((effect, result)));
            }
            // The conversation is compacted and sent again, as long as that makes it shorter.
            let too_long = RejectedRequest { size, effect, result };
            if !window.lower(provider.info(model), bytes) {
                return Ok(Some(too_long.explained(&candidate)));
            }
            rejected = Some(too_long);
        }
    }

    /// Returns what has to fit into the context window.
    fn demand(
        &self,
        shaped: &HookedModelRequest<'_>,
        window: &WindowEstimate,
        reply_tokens: u32,
    ) -> WindowDemand {
        let agent = self.run.agent;
        let tools: usize =
            agent.shown.iter().map(|tool| tool.description.len() + json_size(&tool.input)).sum();
        let system = &agent.package.system;
        let overhead_bytes = system.len() + tools + shaped.bytes_over(system);
        let WindowEstimate { info, can_summarise, .. } = *window;
        let reply_bytes = usize::try_from(reply_tokens).unwrap_or(usize::MAX).saturating_mul(TOKEN_BYTES);
        let window = info.window_bytes.saturating_sub(reply_bytes).min(self.client.limits.view_bytes);
        WindowDemand { window, model_window: info.window_bytes, overhead_bytes, can_summarise }
    }

    /// Rebuilds the request to the model that answered, with the changes of rules. A model that is not a fallback
    /// counts as the agent's own.
    fn answered_by<H: TurnJournal>(
        &self,
        effect: ModelCall,
        answered: Option<&ModelName>,
        key: &ReplayKey,
        host: &H,
    ) -> ModelCall {
        let mut fallbacks = (1..).zip(&self.run.agent.package.fallback_models);
        match fallbacks.find(|(_, model)| Some(*model) == answered) {
            Some((number, model)) => {
                as_ruled(ModelCall { model: model.clone(), ..effect }, &key.fallback(number), host)
            }
            None => as_ruled(effect, key, host),
        }
    }

    /// Answers the step with the reply of the turn that this one retries. Hooks have seen it; rules decide on it
    /// again.
    async fn reuse<H: TurnJournal + TurnBudget>(
        &self,
        ask: CallModelStep,
        ReusableReply { model, reply }: ReusableReply,
        host: &mut H,
    ) -> Result<Step, Error> {
        // The reservation for the call is not needed.
        host.settle(ask.key(), UsageAmount::ZERO);
        // The position of the call is known once the buffered facts are written.
        host.flush().await?;
        let outcome =
            self.policy().of_reply(&ask, ModelOutcome::Reply(reply), &self.client.hub, host).await?;
        let effect = self.answered_by(ask.effect(host.place()), Some(&model), ask.key(), host);
        let performed = EffectPerformed::new(ask.key().clone(), effect, outcome.clone());
        host.buffer_fact(Fact::Performed(EffectPerformed { reused: true, ..performed }));
        self.tell(ask.key(), |key| LiveEventKind::Replayed { key });
        self.go_on(ask, outcome, host)
    }

    /// Continues with the outcome of a call, if the policy allows what the model said.
    fn go_on<H: TurnJournal>(
        &self,
        ask: CallModelStep,
        outcome: ModelOutcome,
        host: &mut H,
    ) -> Result<Step, Error> {
        Ok(match (self.policy().at_reply(ask.key(), &outcome, host)?, self.cancel.reason()) {
            (PolicyOutcome::Continue, _) => ask.resume(outcome),
            (PolicyOutcome::Refuse(error), _) => ask.fail(Failure::from(&error)),
            (PolicyOutcome::Wait(_), Some(reason)) => ask.cancel(reason),
            (PolicyOutcome::Wait(wait), None) => ask.wait(wait),
        })
    }

    /// Sends the conversation to the model and reads the reply, until it is complete or the turn is cancelled.
    async fn show<H: Host>(
        &self,
        ask: &CallModelStep,
        candidate: &ModelCandidate<'_>,
        shaped: &HookedModelRequest<'_>,
        host: &mut H,
        tries: &mut FailedAttempts,
    ) -> Result<Option<(ModelCall, ModelRequestResult)>, Error> {
        let ModelCandidate { model, provider, info } = *candidate;
        let history = host.conversation().messages().clone();
        let mut now = host.conversation().shown(ask.messages());
        if !shaped.added.is_empty() {
            now.to_mut().extend_from_slice(&shaped.added);
        }
        let shown = history.iter().chain(now.iter());
        let files = self.attachments.contents_of(host.store(), &[], shown).await?;
        let judged = self.run.agent.decides_at(PolicyPoint::Output);
        let changes_replies =
            EffectHooks::of(&self.run, &self.sources.hooks, host.history(), host.store(), ask.key())
                .any::<AfterModel>();
        // The store does not name the model that wrote the text, and no model continues the text of another one.
        let may_continue = info.can_continue && !judged && self.run.agent.package.fallback_models.is_empty();
        let partial_text = if may_continue { host.persisted_partial_reply(ask.key()).await? } else { None };
        let draft = ModelCall { model: model.clone(), ..shaped.effect(ask, None) };
        let request = ModelRequest {
            system: &shaped.system,
            history: &history,
            turn: &now,
            tools: &self.run.agent.shown,
            session: self.run.caller.session,
            files: &files,
            ..ModelRequest::empty(&draft)
        };
        let metered = MeteredModelCall {
            client: self.client,
            resolved_agent: self.run.agent,
            caller: self.run.caller,
            lease: self.run.lease,
            cancel: self.cancel,
            key: ask.key(),
            waits_for: ask.key(),
            provider,
            info,
            past: PastAttempts::of(host.history(), ask.key())
                .after(tries)
                .by_models(self.run.agent.package.models().count()),
            recovered: host.history().provider_has_recovered(ask.key(), provider_of(model)),
            tier: host.tier(),
            audience: if judged { ReplyAudience::SubscribersAfterPolicy } else { ReplyAudience::Subscribers },
            keeps_cancelled_text: !judged && !changes_replies,
        };
        let partial_text = partial_text.unwrap_or_default();
        let ModelCallEnd { call, result } = metered.ask(request, partial_text, host, tries).await?;
        Ok(result.map(|result| (call, result)))
    }
}

/// A model that may answer, and its provider.
#[derive(Clone, Copy)]
pub(super) struct ModelCandidate<'a> {
    pub(super) model: &'a ModelName,
    pub(super) provider: &'a dyn ModelProvider,
    pub(super) info: ModelCapabilities,
}

/// A wait for a provider that is down, or for its rate limit.
struct ProviderWait {
    key: ReplayKey,
    pause: Duration,
}

/// Why no model has answered yet.
#[derive(Default)]
struct UnavailableModels {
    /// The waits for providers that are down, one per provider.
    waits: Vec<ProviderWait>,
    /// The first refusal that a person has to fix.
    refusal: Option<Error>,
    /// The first provider that was down for as long as the turn may wait.
    gave_up: Option<(ModelCall, ModelFailure)>,
}

impl UnavailableModels {
    fn waits(&mut self, key: ReplayKey, pause: Duration) {
        match self.waits.iter_mut().find(|wait| wait.key == key) {
            Some(wait) => wait.pause = wait.pause.min(pause),
            None => self.waits.push(ProviderWait { key, pause }),
        }
    }

    fn refuses(&mut self, error: Error) {
        self.refusal.get_or_insert(error);
    }

    fn gave_up(&mut self, effect: ModelCall, failure: ModelFailure) {
        self.gave_up.get_or_insert((effect, failure));
    }

    /// Decides what the turn does. Waiting for providers comes first, then failing, then waiting for a
    /// person.
    fn verdict(mut self) -> ModelCallDecision {
        if !self.waits.is_empty() {
            self.waits.sort_by_key(|wait| wait.pause);
            return ModelCallDecision::Wait(self.waits);
        }
        match self {
            Self { gave_up: Some((effect, failure)), .. } => {
                ModelCallDecision::Outcome(effect, ModelOutcome::Failed(failure))
            }
            Self { refusal: Some(error), .. } => ModelCallDecision::Stuck(error),
            Self { .. } => unreachable!("an agent has a model"),
        }
    }
}

/// The next action of a turn after its models were asked.
#[expect(clippy::large_enum_variant, reason = "a decision is made once for each model call and not stored")]
enum ModelCallDecision {
    /// A model answered, or failed in a way that a retry cannot fix.
    Outcome(ModelCall, ModelOutcome),
    /// No provider here serves the model.
    Unknown(Error),
    Cancelled,
    /// A budget is too low.
    BudgetExhausted(BudgetShortfall),
    /// Every provider is down. The turn waits for the first that is back; the shortest wait comes first.
    Wait(Vec<ProviderWait>),
    /// A person has to fix something.
    Stuck(Error),
}
