//! Budget accounting of a turn while it is driven.
//!
//! A token has at least one byte, so the bytes of a request bound its input tokens
//! ([`ModelRequest::bytes_most`]). The output tokens are bounded by the request's options ([`bounded`]).
use crate::outfit::{Outfit, World};
use outlast_kernel::conversation::Conversation;
use outlast_ports::budget::{FirstCall, Held, Hold, IfHeld, Metering, Price, Settlement, Short, Wish};
use outlast_ports::model::{ATTACHMENT_TOKENS, ModelInfo, ModelRequest};
use outlast_vocab::budget::{Amount, Budgets};
use outlast_vocab::effect::{Generation, Reply, Usage};
use outlast_vocab::message::{Message, Part};
use outlast_vocab::tool::Contract;
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Kind, Millis, ReplayKey};
use std::sync::Arc;
use std::time::Duration;

/// The budget accounting of one turn under one lease.
#[derive(Debug)]
pub(crate) struct Meter {
    agent: String,
    budgets: Arc<Budgets>,
    /// Whether anything was ever counted here. Reservations are settled even if all budgets were removed
    /// since.
    counts: bool,
    /// Budgets that were running low when the turn was accepted.
    low: Vec<Short>,
    /// Reservations that did not fit into budgets that park turns.
    unfit: Vec<Hold>,
    /// The reservation for an effect that has not begun.
    ready: Option<Hold>,
    settled: Vec<Settlement>,
    /// The most that reading the conversation once more costs, set when the turn ends.
    standing: Option<Amount>,
    info: Option<ModelInfo>,
    since: Millis,
}

impl Meter {
    /// Starts the accounting of a turn under these budgets. Without a resolved agent, reservations can still
    /// be returned.
    pub(crate) fn of(
        outfit: Option<&Outfit>,
        budgets: Option<Arc<Budgets>>,
        world: &World,
        held: Option<&Held>,
        index: u32,
    ) -> Self {
        let info = outfit.and_then(|outfit| world.model(&outfit.package.model).ok()).map(|(_, info)| info);
        let price = info.map_or(Price::Known, price_of);
        let key = || ReplayKey::turn(index).model(0);
        let (ready, low) = match held {
            Some(Held::Yes { most, low }) => (Some(Hold::new(key(), *most, price)), low.clone()),
            Some(Held::No(_)) | None => (None, Vec::new()),
        };
        let budgets = budgets.unwrap_or_default();
        let brings = outfit.is_some_and(|outfit| !outfit.budgets.is_empty()) || !budgets.is_empty();
        Self {
            agent: outfit.map(|outfit| outfit.package.agent.clone()).unwrap_or_default(),
            budgets,
            counts: brings || ready.is_some(),
            low,
            unfit: Vec::new(),
            ready,
            settled: Vec::new(),
            standing: None,
            info,
            since: world.clock.now(),
        }
    }

    /// Whether budgets are tracked: the agent has one, or an operator has set one, even during the turn.
    pub(crate) fn counts(&self, world: &World) -> bool {
        self.counts || world.budgets_are_set()
    }

    /// Returns the reservation for the first model call, made when the input is accepted.
    pub(crate) fn first(outfit: &Outfit, world: &World, parts: &[Part], files: u64) -> Option<FirstCall> {
        if outfit.budgets.is_empty() && !world.budgets_are_set() {
            return None;
        }
        let mut meter = Self::of(Some(outfit), Some(outfit.budgets.clone()), world, None, 0);
        let info = meter.info?;
        let said = Message::User { parts: parts.to_vec() }.sent_most();
        let attached = parts.iter().filter(|part| matches!(part, Part::Attachment { .. })).count();
        // Base64 makes files a third larger. This leaves a margin.
        let files = usize::try_from(files).unwrap_or(usize::MAX).saturating_mul(3) / 2;
        let bytes = (outfit.told_bytes() + said + attached * ATTACHMENT_TOKENS).saturating_add(files);
        let most = most(info, bytes, outfit.reply_tokens(world));
        Some(FirstCall { metering: meter.take(world.clock.now()), most, price: price_of(info) })
    }

    /// Uses the reservation for this effect if it is large enough.
    pub(crate) fn begin(&mut self, hold: &Hold) -> bool {
        let ready = self.ready.take_if(|ready| ready.key == hold.key && ready.most.covers(hold.most));
        ready.is_some()
    }

    /// Whether there is a reservation for an effect that has not begun.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.is_some()
    }

    /// Stores the reservation for an upcoming effect.
    pub(crate) fn is_held(&mut self, hold: Hold) {
        self.ready = Some(hold);
    }

    /// Takes the budgets that were running low when the turn was accepted. They are reported once.
    pub(crate) fn take_low(&mut self) -> Vec<Short> {
        std::mem::take(&mut self.low)
    }

    /// Stores a reservation that did not fit and that parks the turn.
    pub(crate) fn does_not_fit(&mut self, hold: Hold) {
        self.unfit.push(hold);
    }

    /// Returns the reservations that belong to these budget waits.
    pub(crate) fn wishes(&self, waits: &[Wait]) -> Vec<Wish> {
        let wish = |wait: &Wait| {
            let of = self.unfit.iter().filter(|hold| wait.key.is_under(&hold.key));
            let hold = of.max_by_key(|hold| hold.key.as_str().len())?.clone();
            Some(Wish { wait: wait.key.clone(), hold })
        };
        waits.iter().filter(|wait| wait.kind == WaitKind::Budget).filter_map(wish).collect()
    }

    /// Settles an effect that is over.
    pub(crate) fn settle(&mut self, key: &ReplayKey, used: Option<Amount>) {
        self.settled.push(Settlement::new(key.clone(), used));
    }

    /// Excludes time spent waiting for a provider.
    pub(crate) fn leave_out(&mut self, time: Duration) {
        self.since = self.since.after(time);
    }

    /// Settles calls that were cut short. `lost` is the part of `used` that is assumed, not known.
    pub(crate) fn cut_short(&mut self, key: &ReplayKey, used: Amount, lost: Amount) {
        self.settled.push(Settlement { key: key.clone(), used: Some(used), lost });
    }

    /// Returns the reservation for an effect that will not begin under this lease.
    pub(crate) fn let_go(&mut self) {
        if let Some(Hold { key, .. }) = self.ready.take() {
            self.settle(&key, Some(Amount::ZERO));
        }
    }

    /// Sets what the session's next turn has to read in addition to its input.
    pub(crate) fn stands_at(&mut self, before: &Conversation, messages: &[Message]) {
        if let (Some(info), false) = (self.info, messages.is_empty()) {
            let messages = before.messages().iter().chain(messages);
            let bytes = messages.map(Message::sent_most).sum::<usize>();
            self.standing = Some(Amount { calls: 0, ..most(info, bytes, 0) });
        }
    }

    /// Takes the changes that the next write applies to the budgets.
    pub(crate) fn take(&mut self, now: Millis) -> Metering {
        let driven = if now < self.since { Duration::ZERO } else { self.since.until(now) };
        (self.since, self.counts) = (now, true);
        Metering {
            agent: self.agent.clone(),
            budgets: self.budgets.clone(),
            settled: std::mem::take(&mut self.settled),
            hold: None,
            wishes: Vec::new(),
            driven,
            standing: self.standing.take(),
        }
    }
}

/// Returns the most that a model call may use.
pub(crate) fn most(info: ModelInfo, bytes: usize, reply_tokens: u32) -> Amount {
    let read = u64::try_from(bytes).unwrap_or(u64::MAX);
    let said = u64::from(reply_tokens);
    let money = info.prices.map(|prices| prices.most(read, said)).unwrap_or_default();
    Amount { tokens: read.saturating_add(said), money, calls: 1, millis: 0 }
}

/// Returns the most that a request may use.
pub(crate) fn most_of(world: &World, info: ModelInfo, request: &ModelRequest<'_>) -> Amount {
    let reply = request.call.options.tokens_most.unwrap_or(world.limits.reply_tokens);
    most(info, request.bytes_most(), reply)
}

/// Adds a limit on output tokens if the options have none. That limit is what is reserved.
pub(crate) fn bounded(options: Generation, outfit: &Outfit, world: &World) -> Generation {
    Generation { tokens_most: options.tokens_most.or_else(|| Some(outfit.reply_tokens(world))), ..options }
}

/// Whether the price of a model is known.
pub(crate) fn price_of(info: ModelInfo) -> Price {
    if info.prices.is_some() { Price::Known } else { Price::Unknown }
}

/// Returns what a reply used, or `None` if the provider did not report it.
pub(crate) fn used_by(reply: &Reply) -> Option<Amount> {
    if reply.usage == Usage::default() {
        return None;
    }
    let Usage { input, cache_read, cache_write, output, reasoning } = reply.usage;
    let tokens = [input, cache_read, cache_write, output, reasoning].into_iter().fold(0, u64::saturating_add);
    Some(Amount { tokens, money: reply.cost.unwrap_or_default(), calls: 1, millis: 0 })
}

/// Names a budget for people.
pub(crate) fn named(short: &Short) -> String {
    format!("{} of {}", short.lacks.measure().name(), short.purse)
}

/// The error for a caller that cannot wait for a budget.
pub(crate) fn short_of(short: &Short) -> Error {
    Error::new(Kind::BudgetExceeded, format!("not enough is left of the {}: {}", named(short), short.lacks))
}

/// Returns the most that tool calls may use, or what they used if these are the finished ones.
pub(crate) fn calls<'a>(prices: impl Iterator<Item = Option<&'a Contract>>) -> Amount {
    prices.fold(Amount::ZERO, |sum, contract| {
        let money = contract.and_then(|contract| contract.price).unwrap_or_default();
        sum + Amount { calls: 1, money, ..Amount::ZERO }
    })
}

/// The reservation for tool calls: one for all attempts, under every lease.
pub(crate) fn hold_calls(key: ReplayKey, most: Amount) -> Hold {
    Hold { key, most, if_held: IfHeld::Stands, price: Price::Known }
}

/// The wait for a budget to be raised, refunded or renewed.
pub(crate) fn wait_for(key: ReplayKey, short: &Short) -> Wait {
    Wait { key, kind: WaitKind::Budget, deadline: short.until }
}
