//! What a turn may use, counted while it is driven (R11.5).
//!
//! A token has at least one byte, so the bytes of a request bound the tokens that a model reads of it
//! ([`ModelRequest::bytes_most`]); what it says is bounded by what it is told ([`bounded`]).
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

/// The books of one turn under one lease.
#[derive(Debug)]
pub(crate) struct Meter {
    agent: String,
    budgets: Arc<Budgets>,
    /// Whether anything was ever counted here. It is settled what was reserved, also if nobody counts any more.
    counts: bool,
    /// The budgets of which little was left when the turn was taken in.
    low: Vec<Short>,
    /// What did not fit where turns hold still for it.
    unfit: Vec<Hold>,
    /// What is reserved for an effect that has not begun.
    ready: Option<Hold>,
    settled: Vec<Settlement>,
    /// What it takes at most to read the conversation once more, when the turn ends.
    standing: Option<Amount>,
    info: Option<ModelInfo>,
    since: Millis,
}

impl Meter {
    /// The books of a turn under these budgets. Where nobody knows the outfit that answers it, what is reserved can still be given
    /// back.
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

    /// Whether anything is counted: the agent brings a budget, or an operator has set one, be it a moment ago.
    pub(crate) fn counts(&self, world: &World) -> bool {
        self.counts || world.budgets_are_set()
    }

    /// What is reserved when an input is taken in, for the model call that follows.
    pub(crate) fn first(outfit: &Outfit, world: &World, parts: &[Part], files: u64) -> Option<FirstCall> {
        if outfit.budgets.is_empty() && !world.budgets_are_set() {
            return None;
        }
        let mut meter = Self::of(Some(outfit), Some(outfit.budgets.clone()), world, None, 0);
        let info = meter.info?;
        let said = Message::User { parts: parts.to_vec() }.sent_most();
        let attached = parts.iter().filter(|part| matches!(part, Part::Attachment { .. })).count();
        // In base64 they are a third larger.
        let files = usize::try_from(files).unwrap_or(usize::MAX).saturating_mul(3) / 2;
        let bytes = (outfit.told_bytes() + said + attached * ATTACHMENT_TOKENS).saturating_add(files);
        let most = most(info, bytes, outfit.reply_tokens(world));
        Some(FirstCall { metering: meter.take(world.clock.now()), most, price: price_of(info) })
    }

    /// Uses what is reserved for an effect, if that is enough.
    pub(crate) fn begin(&mut self, hold: &Hold) -> bool {
        let ready = self.ready.take_if(|ready| ready.key == hold.key && ready.most.covers(hold.most));
        ready.is_some()
    }

    /// Whether something is reserved for an effect that has not begun.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.is_some()
    }

    /// Notes what is reserved for an effect that will begin soon.
    pub(crate) fn is_held(&mut self, hold: Hold) {
        self.ready = Some(hold);
    }

    /// The budgets of which little was left when the turn was taken in; they are told of once.
    pub(crate) fn take_low(&mut self) -> Vec<Short> {
        std::mem::take(&mut self.low)
    }

    /// Notes what turns hold still for.
    pub(crate) fn does_not_fit(&mut self, hold: Hold) {
        self.unfit.push(hold);
    }

    /// What the turn would reserve, of what it is about to hold still for.
    pub(crate) fn wishes(&self, waits: &[Wait]) -> Vec<Wish> {
        let wish = |wait: &Wait| {
            let of = self.unfit.iter().filter(|hold| wait.key.is_under(&hold.key));
            let hold = of.max_by_key(|hold| hold.key.as_str().len())?.clone();
            Some(Wish { wait: wait.key.clone(), hold })
        };
        waits.iter().filter(|wait| wait.kind == WaitKind::Budget).filter_map(wish).collect()
    }

    /// Notes that an effect is over.
    pub(crate) fn settle(&mut self, key: &ReplayKey, used: Option<Amount>) {
        self.settled.push(Settlement::new(key.clone(), used));
    }

    /// Leaves out time that went by because a provider did not answer.
    pub(crate) fn leave_out(&mut self, time: Duration) {
        self.since = self.since.after(time);
    }

    /// Notes that calls were cut short, and what of them nobody knows.
    pub(crate) fn cut_short(&mut self, key: &ReplayKey, used: Amount, lost: Amount) {
        self.settled.push(Settlement { key: key.clone(), used: Some(used), lost });
    }

    /// Gives back what is reserved for an effect that will not begin under this lease.
    pub(crate) fn let_go(&mut self) {
        if let Some(Hold { key, .. }) = self.ready.take() {
            self.settle(&key, Some(Amount::ZERO));
        }
    }

    /// Notes what the session's next turn has to read besides its input.
    pub(crate) fn stands_at(&mut self, before: &Conversation, messages: &[Message]) {
        if let (Some(info), false) = (self.info, messages.is_empty()) {
            let messages = before.messages().iter().chain(messages);
            let bytes = messages.map(Message::sent_most).sum::<usize>();
            self.standing = Some(Amount { calls: 0, ..most(info, bytes, 0) });
        }
    }

    /// What the next write does to the books.
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

/// What a model call may use at most.
pub(crate) fn most(info: ModelInfo, bytes: usize, reply_tokens: u32) -> Amount {
    let read = u64::try_from(bytes).unwrap_or(u64::MAX);
    let said = u64::from(reply_tokens);
    let money = info.prices.map(|prices| prices.most(read, said)).unwrap_or_default();
    Amount { tokens: read.saturating_add(said), money, calls: 1, millis: 0 }
}

/// What a request may use at most.
pub(crate) fn most_of(world: &World, info: ModelInfo, request: &ModelRequest<'_>) -> Amount {
    let reply = request.call.options.tokens_most.unwrap_or(world.limits.reply_tokens);
    most(info, request.bytes_most(), reply)
}

/// Options with a bound for the reply, if they have none: what is reserved for it is what it may say.
pub(crate) fn bounded(options: Generation, outfit: &Outfit, world: &World) -> Generation {
    Generation { tokens_most: options.tokens_most.or_else(|| Some(outfit.reply_tokens(world))), ..options }
}

/// Whether it is known what a model costs.
pub(crate) fn price_of(info: ModelInfo) -> Price {
    if info.prices.is_some() { Price::Known } else { Price::Unknown }
}

/// What a reply used; nothing if the provider did not say, and then nobody knows.
pub(crate) fn used_by(reply: &Reply) -> Option<Amount> {
    if reply.usage == Usage::default() {
        return None;
    }
    let Usage { input, cache_read, cache_write, output, reasoning } = reply.usage;
    let tokens = [input, cache_read, cache_write, output, reasoning].into_iter().fold(0, u64::saturating_add);
    Some(Amount { tokens, money: reply.cost.unwrap_or_default(), calls: 1, millis: 0 })
}

/// How a budget that is short is named to people.
pub(crate) fn named(short: &Short) -> String {
    format!("{} of {}", short.lacks.measure().name(), short.purse)
}

/// What whoever cannot wait for a budget is told.
pub(crate) fn short_of(short: &Short) -> Error {
    Error::new(Kind::BudgetExceeded, format!("not enough is left of the {}: {}", named(short), short.lacks))
}

/// What calls of tools may use at most, and what they used once they have these results.
pub(crate) fn calls<'a>(prices: impl Iterator<Item = Option<&'a Contract>>) -> Amount {
    prices.fold(Amount::ZERO, |sum, contract| {
        let money = contract.and_then(|contract| contract.price).unwrap_or_default();
        sum + Amount { calls: 1, money, ..Amount::ZERO }
    })
}

/// What is reserved for calls of tools: once for all attempts, over every lease.
pub(crate) fn hold_calls(key: ReplayKey, most: Amount) -> Hold {
    Hold { key, most, if_held: IfHeld::Stands, price: Price::Known }
}

/// How a turn holds still until a budget has more in it: somebody raises it, something is given back, or it begins anew.
pub(crate) fn wait_for(key: ReplayKey, short: &Short) -> Wait {
    Wait { key, kind: WaitKind::Budget, deadline: short.until }
}
