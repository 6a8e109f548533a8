//! What a turn may use, counted while it is driven (R11.5).
//!
//! A token has at least one byte, so the bytes of a request bound the tokens that a model reads of it.
use crate::outfit::{Outfit, World};
use outlast_kernel::conversation::Conversation;
use outlast_ports::budget::{FirstCall, Held, Hold, IfHeld, Metering, Settlement, Short};
use outlast_ports::model::{ModelInfo, ModelRequest};
use outlast_vocab::budget::{Amount, Budgets};
use outlast_vocab::effect::{Reply, Usage};
use outlast_vocab::message::{Message, Part, json_size};
use outlast_vocab::tool::Contract;
use outlast_vocab::{Error, Kind, Millis, ReplayKey};
use std::sync::Arc;
use std::time::Duration;

/// Bytes that a provider's own words around a request come to, at most.
const FRAME_BYTES: usize = 1_024;

/// The books of one turn under one lease.
#[derive(Debug)]
pub(crate) struct Meter {
    agent: String,
    budgets: Arc<Budgets>,
    /// What is reserved for an effect that has not begun.
    ready: Option<Hold>,
    settled: Vec<Settlement>,
    /// What it takes at most to read the conversation once more, when the turn ends.
    standing: Option<Amount>,
    info: Option<ModelInfo>,
    since: Millis,
}

impl Meter {
    /// The books of a turn, if anything is counted or reserved. Where nobody knows the outfit that answers it, what is
    /// reserved can still be given back.
    pub(crate) fn of(
        outfit: Option<&Outfit>,
        world: &World,
        held: Option<&Held>,
        index: u32,
    ) -> Option<Self> {
        let brings = outfit.is_some_and(|outfit| !outfit.budgets.is_empty());
        let ready = match held {
            Some(Held::Yes { most, .. }) => Some(Hold::new(ReplayKey::turn(index).model(0), *most)),
            Some(Held::No(_)) | None => None,
        };
        let counts = brings || world.budgets_are_set() || ready.is_some();
        counts.then(|| Self {
            agent: outfit.map(|outfit| outfit.package.agent.clone()).unwrap_or_default(),
            budgets: outfit.map(|outfit| outfit.budgets.clone()).unwrap_or_default(),
            ready,
            settled: Vec::new(),
            standing: None,
            info: outfit.and_then(|outfit| world.model(&outfit.package.model).ok()).map(|(_, info)| info),
            since: world.clock.now(),
        })
    }

    /// What is reserved when an input is taken in, for the model call that follows.
    pub(crate) fn first(outfit: &Outfit, world: &World, parts: &[Part], files: u64) -> Option<FirstCall> {
        let mut meter = Self::of(Some(outfit), world, None, 0)?;
        let info = meter.info?;
        let said = Message::User { parts: parts.to_vec() }.size();
        let bytes = outfit.told_bytes() + said + usize::try_from(files).unwrap_or(usize::MAX);
        let most = most(info, bytes, outfit.reply_tokens(world));
        Some(FirstCall { metering: meter.take(world.clock.now()), most })
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

    /// Notes that an effect is over.
    pub(crate) fn settle(&mut self, key: &ReplayKey, used: Option<Amount>) {
        self.settled.push(Settlement { key: key.clone(), used });
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
            let bytes = before.size() + messages.iter().map(Message::size).sum::<usize>();
            self.standing = Some(Amount { calls: 0, ..most(info, bytes, 0) });
        }
    }

    /// What the next write does to the books.
    pub(crate) fn take(&mut self, now: Millis) -> Metering {
        let driven = if now < self.since { Duration::ZERO } else { self.since.until(now) };
        self.since = now;
        Metering {
            agent: self.agent.clone(),
            budgets: self.budgets.clone(),
            settled: std::mem::take(&mut self.settled),
            hold: None,
            driven,
            standing: self.standing.take(),
        }
    }
}

/// What a model call may use at most.
pub(crate) fn most(info: ModelInfo, bytes: usize, reply_tokens: u32) -> Amount {
    let read = u64::try_from(bytes.saturating_add(FRAME_BYTES)).unwrap_or(u64::MAX);
    let said = u64::from(reply_tokens);
    let money = info.prices.map(|prices| prices.most(read, said)).unwrap_or_default();
    Amount { tokens: read.saturating_add(said), money, calls: 1, millis: 0 }
}

/// What a request may use at most.
pub(crate) fn most_of(world: &World, info: ModelInfo, request: &ModelRequest<'_>) -> Amount {
    let messages: usize = request.messages().map(Message::size).sum();
    let schema = request.call.output.as_ref().map_or(0, json_size);
    let bytes = request.system.len()
        + told_of(request.tools)
        + messages
        + request.files.bytes()
        + schema
        + request.said.len();
    let reply = request.call.options.tokens_most.unwrap_or(world.limits.reply_tokens);
    most(info, bytes, reply)
}

/// Bytes that a model is told of its tools.
pub(crate) fn told_of(tools: &[Contract]) -> usize {
    tools.iter().map(|tool| tool.name.as_str().len() + tool.description.len() + json_size(&tool.input)).sum()
}

/// What a reply used.
pub(crate) fn used_by(reply: &Reply) -> Amount {
    let Usage { input, cache_read, cache_write, output, reasoning } = reply.usage;
    let tokens = [input, cache_read, cache_write, output, reasoning].into_iter().fold(0, u64::saturating_add);
    Amount { tokens, money: reply.cost.unwrap_or_default(), calls: 1, millis: 0 }
}

/// How a budget that is short is named to people.
pub(crate) fn named(short: &Short) -> String {
    format!("{} of {}", short.measure.name(), short.purse)
}

/// What whoever cannot wait for a budget is told.
pub(crate) fn short_of(short: &Short) -> Error {
    Error::new(Kind::BudgetExceeded, format!("not enough is left of the {}", named(short)))
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
    Hold { key, most, if_held: IfHeld::Stands }
}
