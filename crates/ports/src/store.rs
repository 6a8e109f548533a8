//! The store interface: everything that the runtime expects from a database.
//!
//! [`Store`] combines small traits, such as [`Inbox`], [`Turns`] and [`Journal`]. Each is defined beside its types, in the
//! module of its concern. One object implements all of them. Each method that writes is one transaction: its effects
//! become visible together or not at all. They are durable when the method returns.
//!
//! This module knows neither SQL nor a particular engine. `outlast-ledger` holds the rules, and implements these traits
//! for everything that can run a unit of work as one transaction.
use crate::archive::ArchiveStore;
use crate::attachment_upload::ExternalContentStore;
use crate::branches::BranchStore;
use crate::budget::BudgetStore;
use crate::configs::ConfigStore;
use crate::content_queries::ContentQueries;
use crate::inbox::Inbox;
use crate::journal::Journal;
use crate::metrics::HistogramValue;
use crate::orgs::OrgStore;
use crate::outbox::SinkOutbox;
use crate::payment_outbox::PaymentOutbox;
use crate::queries::Queries;
use crate::rate::RateStore;
use crate::search::MessageSearch;
use crate::turns::Turns;
use crate::votes::VoteStore;
use outlast_vocab::access::Access;
use std::sync::Arc;

/// All traits of a store.
pub trait Store:
    Inbox
    + Turns
    + Journal
    + Queries
    + BranchStore
    + ContentQueries
    + ExternalContentStore
    + SinkOutbox
    + OrgStore
    + BudgetStore
    + RateStore
    + PaymentOutbox
    + ConfigStore
    + VoteStore
    + ArchiveStore
    + MessageSearch
{
    /// Returns a handle on the same data with this access. The new handle never has more access than this one.
    fn serving(self: Arc<Self>, access: Access) -> Arc<dyn Store>;
}

/// A database's status.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreStatus {
    /// The engine and its version.
    pub engine: String,
    /// The location of the database.
    pub place: String,
    /// The version of its schema.
    pub schema: u32,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// The size in bytes.
    pub bytes: u64,
    /// How long this process waited for writes to become durable. `None` if that takes no time.
    pub syncs: Option<HistogramValue>,
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A power failure.
    PowerLoss,
    /// The death of the process, but not a power failure. Requires an explicit unsafe setting.
    ProcessDeath,
    /// Nothing: the data is gone when the process ends.
    None,
}

impl Durability {
    /// Returns the description that people see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PowerLoss => "survives power loss",
            Self::ProcessDeath => "UNSAFE: lost with power",
            Self::None => "nothing is kept",
        }
    }
}
