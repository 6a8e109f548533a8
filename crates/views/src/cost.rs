//! Costs of model calls and priced tool calls, and payments that are not settled.
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::Usage;
use outlast_vocab::id::{SessionId, TurnId};
use outlast_vocab::payment::Payment;
use outlast_vocab::{Failure, Millis};

/// How costs are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostDimension {
    /// Each session.
    Session,
    /// Each agent.
    Agent,
    /// Each model.
    Model,
    /// The conversation, its summaries, and each tool that calls models or has a price.
    Source,
    /// Each tool that calls models or has a price, and nothing else.
    Tool,
    /// Each day, in UTC.
    Day,
    /// Each turn.
    Turn,
}

impl CostDimension {
    /// All groupings.
    pub const ALL: [Self; 7] =
        [Self::Session, Self::Agent, Self::Model, Self::Source, Self::Tool, Self::Day, Self::Turn];

    /// Returns the name used in APIs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Agent => "agent",
            Self::Model => "model",
            Self::Source => "source",
            Self::Tool => "tool",
            Self::Day => "day",
            Self::Turn => "turn",
        }
    }
}

/// The spending of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CostTotals {
    /// Replies.
    pub replies: u64,
    /// Tokens.
    pub usage: Usage,
    /// Money, for calls with a known price.
    pub cost: Cost,
    /// Replies without a known price.
    pub unpriced: u64,
    /// The estimated part of `cost`, for requests whose usage the provider did not report.
    pub estimated: Cost,
    /// The estimated part of `usage`.
    pub estimated_usage: Usage,
}

impl CostTotals {
    /// Adds the spending of another group.
    pub fn add(&mut self, more: &Self) {
        self.replies += more.replies;
        self.usage = self.usage + more.usage;
        self.cost = self.cost + more.cost;
        self.unpriced += more.unpriced;
        self.estimated = self.estimated + more.estimated;
        self.estimated_usage = self.estimated_usage + more.estimated_usage;
    }
}

/// A payment whose decision is to be sent to its authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingPayment {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The payment, with the decision on it.
    pub payment: Payment,
    /// When the decision was made.
    pub since: Millis,
    /// How often the decision was sent to the authority.
    pub attempts: u32,
    /// When the decision is sent next.
    pub due_at: Millis,
    /// Why the authority did not accept it the last time.
    pub failure: Option<Failure>,
}
