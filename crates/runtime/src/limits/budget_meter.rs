//! Budget accounting of a turn while it is driven.
//!
//! A token has at least one byte, so the bytes of a request bound its input tokens
//! ([`ModelRequest::bytes_max`]). The output tokens are bounded by the request's options ([`bounded`]).
use crate::agents::resolved_agent::ResolvedAgent;
use crate::limits::operator_budgets::OperatorBudgets;
use crate::turn::model_client::ModelCatalogue;
use outlast_kernel::conversation::Conversation;
use outlast_ports::budget::{
    BudgetReservation, BudgetSettlement, BudgetShortfall, BudgetUpdate, BudgetWait, ExistingReservation,
    FirstCallReservation, OpenReservation, PriceKnowledge, ReservationResult,
};
use outlast_ports::model::{ATTACHMENT_TOKENS, ModelCapabilities, ModelRequest};
use outlast_vocab::budget::{Budgets, UsageAmount};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{ModelCharge, Reply, Usage};
use outlast_vocab::message::{Message, ModelName, Part};
use outlast_vocab::record::{InterruptedReply, ReplyInterruption};
use outlast_vocab::tool::ToolContract;
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Kind, Limits, Millis, ReplayKey};
use std::time::Duration;

/// The budget accounting of one turn under one lease.
#[derive(Debug)]
pub(crate) struct BudgetMeter {
    agent: String,
    budgets: Budgets,
    /// Whether anything was ever counted here. Reservations are settled even if all budgets were removed
    /// since.
    counts: bool,
    /// Budgets that were running low when the turn was accepted.
    low: Vec<BudgetShortfall>,
    /// Reservations that did not fit into budgets that park turns.
    unfit: Vec<BudgetReservation>,
    /// The reservation for an effect that has not begun.
    ready: Option<BudgetReservation>,
    settled: Vec<BudgetSettlement>,
    /// The most that reading the conversation once more costs, set when the turn ends.
    next_turn_usage: Option<UsageAmount>,
    info: Option<ModelCapabilities>,
    /// The agent's first model.
    model: Option<ModelName>,
    since: Millis,
}

impl BudgetMeter {
    /// Starts the accounting of a turn under these budgets. Without a resolved agent, reservations can still
    /// be returned.
    pub(crate) fn of(
        resolved_agent: Option<&ResolvedAgent>,
        budgets: Option<Budgets>,
        models: &ModelCatalogue,
        held: Option<&ReservationResult>,
        index: u32,
        now: Millis,
    ) -> Self {
        let info = resolved_agent
            .and_then(|resolved_agent| models.find(&resolved_agent.package.model).ok())
            .map(|(_, info)| info);
        let price = info.map_or(PriceKnowledge::Known, price_of);
        let key = || ReplayKey::turn(index).model(0);
        let (ready, low) = match held {
            Some(ReservationResult::Reserved { most, low }) => {
                (Some(BudgetReservation::new(key(), *most, price)), low.clone())
            }
            Some(ReservationResult::Exhausted(_)) | None => (None, Vec::new()),
        };
        let budgets = budgets.unwrap_or_default();
        let brings = resolved_agent.is_some_and(|resolved_agent| !resolved_agent.budgets.is_empty())
            || !budgets.is_empty();
        Self {
            agent: resolved_agent
                .map(|resolved_agent| resolved_agent.package.agent.clone())
                .unwrap_or_default(),
            budgets,
            counts: brings || ready.is_some(),
            low,
            unfit: Vec::new(),
            ready,
            settled: Vec::new(),
            next_turn_usage: None,
            info,
            model: resolved_agent.map(|agent| agent.package.model.clone()),
            since: now,
        }
    }

    /// Whether budgets are tracked: the agent has one, or an operator has set one, even during the turn.
    pub(crate) fn counts(&self, operator_budgets: &OperatorBudgets) -> bool {
        self.counts || operator_budgets.are_set()
    }

    /// Returns the reservation for the first model call, made when the input is accepted.
    pub(crate) fn first(
        resolved_agent: &ResolvedAgent,
        models: &ModelCatalogue,
        limits: &Limits,
        parts: &[Part],
        files: u64,
        now: Millis,
    ) -> Option<FirstCallReservation> {
        let budgets = Some(resolved_agent.budgets);
        let mut meter = Self::of(Some(resolved_agent), budgets, models, None, 0, now);
        let info = meter.info?;
        let message_bytes = Message::User { parts: parts.to_vec() }.request_bytes_max();
        let attached = parts.iter().filter(|part| part.is_file()).count();
        // Base64 makes files a third larger. This leaves a margin.
        let files = usize::try_from(files).unwrap_or(usize::MAX).saturating_mul(3) / 2;
        let bytes = (resolved_agent.prompt_bytes_most() + message_bytes + attached * ATTACHMENT_TOKENS)
            .saturating_add(files);
        let most = most(info, bytes, resolved_agent.reply_tokens(limits));
        Some(FirstCallReservation { budget_update: meter.take(now), amount_max: most, price: price_of(info) })
    }

    /// Uses the reservation for this effect if it is large enough.
    pub(crate) fn begin(&mut self, reservation: &BudgetReservation) -> bool {
        let ready = self
            .ready
            .take_if(|ready| ready.key == reservation.key && ready.amount_max.covers(reservation.amount_max));
        ready.is_some()
    }

    /// Whether there is a reservation for an effect that has not begun.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.is_some()
    }

    /// Stores the reservation for an upcoming effect.
    pub(crate) fn hold_ahead(&mut self, reservation: BudgetReservation) {
        self.ready = Some(reservation);
    }

    /// Takes the budgets that were running low when the turn was accepted. They are reported once.
    pub(crate) fn take_low(&mut self) -> Vec<BudgetShortfall> {
        std::mem::take(&mut self.low)
    }

    /// Stores a reservation that did not fit and that parks the turn.
    pub(crate) fn add_unfit(&mut self, reservation: BudgetReservation) {
        self.unfit.push(reservation);
    }

    /// Returns the reservations that belong to these budget waits.
    pub(crate) fn reservations_of_waits(&self, waits: &[Wait]) -> Vec<BudgetWait> {
        let wait_reservation = |wait: &Wait| {
            let of = self.unfit.iter().filter(|reservation| wait.key.is_under(&reservation.key));
            let reservation = of.max_by_key(|reservation| reservation.key.as_str().len())?.clone();
            Some(BudgetWait { wait: wait.key.clone(), reservation })
        };
        waits.iter().filter(|wait| wait.kind == WaitKind::Budget).filter_map(wait_reservation).collect()
    }

    /// Settles an effect that is over. `assumed` is the part of `used` that is assumed, not known.
    pub(crate) fn settle(&mut self, key: &ReplayKey, used: UsageAmount, assumed: UsageAmount) {
        self.settled.push(BudgetSettlement { key: key.clone(), used, lost: assumed });
    }

    /// Excludes time spent waiting for a provider.
    pub(crate) fn exclude(&mut self, time: Duration) {
        self.since = self.since.after(time);
    }

    /// Returns the reservation for an effect that will not begin under this lease, and the key of the effect.
    pub(crate) fn release_reservation(&mut self) -> Option<ReplayKey> {
        let BudgetReservation { key, .. } = self.ready.take()?;
        self.settle(&key, UsageAmount::ZERO, UsageAmount::ZERO);
        Some(key)
    }

    /// Sets what the session's next turn has to read in addition to its input.
    pub(crate) fn set_next_turn_usage(&mut self, before: &Conversation, messages: &[Message]) {
        if let (Some(info), false) = (self.info, messages.is_empty()) {
            let messages = before.messages().iter().chain(messages);
            let bytes = messages.map(Message::request_bytes_max).sum::<usize>();
            self.next_turn_usage = Some(UsageAmount { calls: 0, ..most(info, bytes, 0) });
        }
    }

    /// Whether a settlement of this effect is not written yet.
    pub(crate) fn settles(&self, key: &ReplayKey) -> bool {
        self.settled.iter().any(|settled| settled.key == *key)
    }

    /// Returns the record of a model request whose reservation is lost, because its worker died. A reservation does not
    /// name its model, so the record names the agent's first one. `None` if the agent is not known.
    pub(crate) fn lost_request(&self, lost: OpenReservation) -> Option<InterruptedReply> {
        let OpenReservation { key, amount_max: UsageAmount { tokens, money, .. } } = lost;
        // A fallback model may have a price even if the first one has none.
        let has_price = money != Cost::ZERO || self.info.is_some_and(|info| info.prices.is_some());
        let cost = has_price.then_some(money);
        let usage = Usage { input: tokens, ..Usage::default() };
        let (model, cause) = (self.model.clone()?, ReplyInterruption::Lost);
        Some(InterruptedReply { key, cause, model, text: String::new(), usage, cost })
    }

    /// Takes the changes that the next write applies to the budgets.
    pub(crate) fn take(&mut self, now: Millis) -> BudgetUpdate {
        let driven = if now < self.since { Duration::ZERO } else { self.since.until(now) };
        (self.since, self.counts) = (now, true);
        BudgetUpdate {
            agent: self.agent.clone(),
            budgets: self.budgets,
            settled: std::mem::take(&mut self.settled),
            reservation: None,
            waits: Vec::new(),
            run_time: driven,
            conversation_cost: self.next_turn_usage.take(),
        }
    }
}

/// Returns the most that a model call may use.
pub(crate) fn most(info: ModelCapabilities, bytes: usize, reply_tokens: u32) -> UsageAmount {
    let read = u64::try_from(bytes).unwrap_or(u64::MAX);
    let output_tokens = u64::from(reply_tokens);
    let money = info.prices.map(|prices| prices.most(read, output_tokens)).unwrap_or_default();
    UsageAmount { tokens: read.saturating_add(output_tokens), money, calls: 1, millis: 0 }
}

/// Whether the price of a model is known.
pub(crate) fn price_of(info: ModelCapabilities) -> PriceKnowledge {
    if info.prices.is_some() { PriceKnowledge::Known } else { PriceKnowledge::Unknown }
}

/// Returns what a reply is charged.
pub(crate) fn used_by(reply: &Reply) -> UsageAmount {
    let ModelCharge { usage, cost } = reply.charge();
    let Usage { input, cache_read, cache_write, output, reasoning } = usage;
    let tokens = [input, cache_read, cache_write, output, reasoning].into_iter().fold(0, u64::saturating_add);
    UsageAmount { tokens, money: cost.unwrap_or_default(), calls: 1, millis: 0 }
}

/// Estimates the charge for a complete reply whose provider did not report the usage: one token per byte of the request
/// and of the reply, because a token has at least one byte. The reply counts at most the limit of the request.
pub(crate) fn estimate_charge(
    info: ModelCapabilities,
    request: &ModelRequest<'_>,
    reply: &Reply,
) -> ModelCharge {
    let tokens = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
    let input = tokens(request.bytes_max());
    let reply_tokens = request.call.options.tokens_most.map_or(u64::MAX, u64::from);
    let output = tokens(reply.received_bytes()).min(reply_tokens);
    let cost = info.prices.map(|prices| prices.most(input, output));
    ModelCharge { usage: Usage { input, output, ..Usage::default() }, cost }
}

/// Names a budget for people.
pub(crate) fn named(short: &BudgetShortfall) -> String {
    format!("{} of {}", short.reason.measure().name(), short.account)
}

/// The error for a caller that cannot wait for a budget.
pub(crate) fn short_of(short: &BudgetShortfall) -> Error {
    Error::new(Kind::BudgetExceeded, format!("not enough is left of the {}: {}", named(short), short.reason))
}

/// Returns the most that tool calls may use, or what they used if these are the finished ones.
pub(crate) fn calls<'a>(prices: impl Iterator<Item = Option<&'a ToolContract>>) -> UsageAmount {
    prices.fold(UsageAmount::ZERO, |sum, contract| {
        let money = contract.and_then(|contract| contract.price).unwrap_or_default();
        sum + UsageAmount { calls: 1, money, ..UsageAmount::ZERO }
    })
}

/// The reservation for tool calls: one for all attempts, under every lease.
pub(crate) fn hold_calls(key: &ReplayKey, most: UsageAmount) -> BudgetReservation {
    BudgetReservation {
        key: key.clone(),
        amount_max: most,
        existing: ExistingReservation::Reused,
        price: PriceKnowledge::Known,
    }
}

/// The wait for a budget to be raised, refunded or renewed.
pub(crate) fn wait_for(key: ReplayKey, short: &BudgetShortfall) -> Wait {
    Wait { key, kind: WaitKind::Budget, deadline: short.renewed_at }
}
