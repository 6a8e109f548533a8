//! The ports whose methods return view types, each together with these types.

/// Attachments before they enter a session, and the deletion of unused content outside the database.
pub mod attachment_upload {
    pub use outlast_ports::attachment_upload::*;
    pub use outlast_views::BlobLocation;
}

/// Budget accounts: amounts are reserved before an effect and settled after it.
pub mod budget {
    pub use outlast_ports::budget::*;
    pub use outlast_views::{BudgetAccountView, BudgetSetBy, EffectiveBudget};
}

/// Agents, harnesses and capabilities in the database, with their version history.
pub mod configs {
    pub use outlast_ports::configs::*;
    pub use outlast_views::{ConfigKind, StoredConfig};
}

/// Organisations, API keys, and the audit log.
pub mod orgs {
    pub use outlast_ports::orgs::*;
    pub use outlast_views::{AuditRange, AuditRow, KeyView, Org};
}

/// The outbox: outputs that are to be delivered to sinks.
pub mod outbox {
    pub use outlast_ports::outbox::*;
    pub use outlast_views::{DeliveryView, SinkView};
}

/// The payment outbox: decisions on payments that the payment authority has not yet accepted.
pub mod payment_outbox {
    pub use outlast_ports::payment_outbox::*;
    pub use outlast_views::PendingPayment;
}

/// Rate limits for outgoing calls.
pub mod rate {
    pub use outlast_ports::rate::*;
    pub use outlast_views::RateView;
}

/// Destinations for outputs: ended turns and approval requests.
pub mod sink {
    pub use outlast_ports::sink::*;
    pub use outlast_views::SinkTopic;
}

/// The store interface: the traits that the runtime uses to read and write a database.
pub mod store {
    pub use outlast_ledger::Backend;
    pub use outlast_ports::{
        branches::*, content_queries::*, inbox::*, journal::*, queries::*, store::*, turns::*,
    };
    pub use outlast_views::{
        AttachmentView, CancelOutcome, ForkTo, HistoryTurn, LastEnd, LastTurn, ResolveResult, SessionState,
        SessionView, TurnState, TurnView, UnknownCall, WaitingTurn, WriteCount,
    };
}

/// Approval requests: votes, notices to the people who are asked, and approvals for the rest of a session.
pub mod votes {
    pub use outlast_ports::votes::*;
    pub use outlast_views::{ApprovalProgress, SessionGrant, Vote, VoteOutcome};
}
