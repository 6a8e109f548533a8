//! The view types: what queries return, and what the HTTP API, the client and the console show.
//!
//! They are plain data about sessions, turns, waits, approvals, budgets and sinks. This crate knows neither the traits
//! that return them nor how they are stored or sent. Add a type here if a client needs it. The ports return these
//! types, and the runtime builds those that combine several queries.
mod approval;
mod attachment;
mod config;
mod cost;
mod limits;
mod org;
mod session;
mod sink;
mod turn;
mod wait;

pub use approval::{ApprovalProgress, ApprovalQuestion, SessionGrant, Vote, VoteOutcome};
pub use attachment::{AttachmentView, BlobLocation};
pub use config::{ConfigKind, StoredConfig};
pub use cost::{CostDimension, CostTotals, PendingPayment};
pub use limits::{BudgetAccountView, BudgetSetBy, EffectiveBudget, RateView};
pub use org::{AuditRange, AuditRow, KeyView, Org};
pub use session::{
    ForkTo, HistoryTurn, LastEnd, LastTurn, SessionFilter, SessionPage, SessionState, SessionView,
    TitledSession,
};
pub use sink::{DeliveryView, SinkTopic, SinkView};
pub use turn::{
    CancelOutcome, RetryOutcome, RetryPlace, TurnDurabilityCost, TurnState, TurnView, WriteCount,
};
pub use wait::{
    BlockingWait, ResolveResult, TurnProgress, Unblocker, UnknownCall, WaitExplanation, WaitingTurn,
};
