//! Costs, budgets, rate limits, API keys, audit log, attachments, packages and stored configurations.
use super::CommandBackend;
use outlast::budget::BudgetAccountView;
use outlast::clock::Clock;
use outlast::configs::{ConfigKind, StoredConfig};
use outlast::orgs::{AuditRange, KeyView};
use outlast::rate::RateView;
use outlast::runtime::views::costs;
use outlast::runtime::worker::system::SystemClock;
use outlast::store::AttachmentView;
use outlast::views::AuditRow;
use outlast::views::{CostDimension, CostTotals};
use outlast::vocab::budget::{Budget, BudgetAccount};
use outlast::vocab::id::KeyId;
use outlast::vocab::package::PinnedPackage;
use outlast::{Error, Kind, SessionId, TurnId};
use serde_json::Value;
use std::collections::BTreeMap;

impl CommandBackend {
    /// Returns the costs of models and tools, grouped by `by`.
    pub(crate) async fn spent(
        &self,
        session: Option<SessionId>,
        by: CostDimension,
    ) -> Result<BTreeMap<String, CostTotals>, Error> {
        match self {
            Self::File(store) => costs::spent(store.as_ref(), session, by).await,
            Self::Server(client) => client.spending(session, by).await,
        }
    }

    /// Returns all budgets that were ever used or set, by name.
    pub(crate) async fn budgets(&self) -> Result<Vec<BudgetAccountView>, Error> {
        match self {
            Self::File(store) => store.budgets(usize::MAX).await,
            Self::Server(client) => client.budgets().await,
        }
    }

    /// Returns all rate limits that ever applied to a call, by name.
    pub(crate) async fn rates(&self) -> Result<Vec<RateView>, Error> {
        match self {
            Self::File(store) => store.rates(usize::MAX).await,
            Self::Server(client) => client.rates().await,
        }
    }

    /// Sets a budget. `None` restores the budget of the agent.
    pub(crate) async fn set_budget(&self, of: &BudgetAccount, budget: Option<Budget>) -> Result<(), Error> {
        match (self, budget) {
            (Self::File(store), budget) => store.set_budget(of.clone(), budget, SystemClock.now()).await,
            (Self::Server(client), Some(budget)) => client.set_budget(of, budget).await,
            (Self::Server(client), None) => client.clear_budget(of).await,
        }
    }

    /// Returns the API keys of the organisation.
    pub(crate) async fn keys(&self) -> Result<Vec<KeyView>, Error> {
        match self {
            Self::File(store) => store.keys().await,
            Self::Server(client) => client.keys().await,
        }
    }

    pub(crate) async fn revoke_key(&self, key: KeyId) -> Result<KeyView, Error> {
        match self {
            Self::File(store) => store.revoke_key(key, SystemClock.now()).await,
            Self::Server(client) => client.revoke_key(key).await,
        }
    }

    /// Returns a page of the audit log.
    pub(crate) async fn audit(&self, range: AuditRange) -> Result<Vec<AuditRow>, Error> {
        match self {
            Self::File(store) => store.audit(range).await,
            Self::Server(client) => client.audit(range).await,
        }
    }

    /// Returns the session's own attachments.
    pub(crate) async fn attachments(&self, session: SessionId) -> Result<Vec<AttachmentView>, Error> {
        match self {
            Self::File(store) => store.attachments(session, usize::MAX).await,
            Self::Server(client) => client.attachments(session).await,
        }
    }

    /// Returns the package that a turn was accepted for or started with.
    pub(crate) async fn package(&self, turn: TurnId) -> Result<PinnedPackage, Error> {
        match self {
            Self::File(store) => serde_json::from_slice(&store.package(turn).await?).map_err(|cause| {
                Error::new(Kind::RecordCorrupt, format!("the package of {turn} does not decode"))
                    .because(cause)
            }),
            Self::Server(client) => client.package(turn).await,
        }
    }

    /// Returns every version of a configuration, newest first.
    pub(crate) async fn config_versions(
        &self,
        kind: ConfigKind,
        name: &str,
    ) -> Result<Vec<StoredConfig>, Error> {
        match self {
            Self::File(store) => store.config_versions(kind, name.to_owned(), usize::MAX).await,
            Self::Server(client) => client.config_versions(kind, name).await,
        }
    }

    /// Stores a new version of a configuration.
    pub(crate) async fn put_config(
        &self,
        kind: ConfigKind,
        name: &str,
        body: Value,
    ) -> Result<StoredConfig, Error> {
        match self {
            Self::File(store) => store.put_config(kind, name.to_owned(), body, SystemClock.now()).await,
            Self::Server(client) => client.put_config(kind, name, &body).await,
        }
    }

    pub(crate) async fn delete_config(&self, kind: ConfigKind, name: &str) -> Result<(), Error> {
        match self {
            Self::File(store) => {
                store.delete_config(kind, name.to_owned(), None, SystemClock.now()).await.map(drop)
            }
            Self::Server(client) => client.delete_config(kind, name).await,
        }
    }
}
