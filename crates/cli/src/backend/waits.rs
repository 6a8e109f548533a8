//! Waits that people resolve: approvals, grants, calls with unknown outcomes, completions.
use super::CommandBackend;
use outlast::clock::Clock;
use outlast::runtime::policy::approvals::Approvals;
use outlast::runtime::worker::system::SystemClock;
use outlast::store::ResolveResult;
use outlast::vocab::CallId;
use outlast::vocab::id::{ApprovalId, GrantId};
use outlast::vocab::policy::{Approval, ApprovalVerdict};
use outlast::vocab::record;
use outlast::vocab::wait::{CompletionKey, Resolution};
use outlast::votes::VoteOutcome;
use outlast::{Error, Limits, SessionId};
use outlast_client::api::waits::{ApprovalResource, GrantResource, UnknownCallResource};
use serde_json::Value;

impl CommandBackend {
    /// Returns the calls that wait for an approval, oldest first.
    pub(crate) async fn pending(&self) -> Result<Vec<ApprovalResource>, Error> {
        let most = Limits::default().page_rows;
        match self {
            Self::File(store) => {
                let questions = Approvals::new(store.as_ref()).pending(most, SystemClock.now()).await?;
                Ok(questions.into_iter().map(ApprovalResource::from).collect())
            }
            Self::Server(client) => client.approvals(most).await,
        }
    }

    /// Votes on an approval in the name of `by`. A server with a key identifies the caller by the key
    /// instead.
    pub(crate) async fn decide(
        &self,
        id: ApprovalId,
        by: &str,
        verdict: ApprovalVerdict,
    ) -> Result<VoteOutcome, Error> {
        match self {
            Self::File(store) => {
                let approval = Approval::new(by.to_owned(), verdict);
                Approvals::new(store.as_ref()).decide(id, approval, SystemClock.now()).await
            }
            Self::Server(client) => {
                let by = (!client.has_key()).then_some(by);
                client.decide(id, by, verdict).await
            }
        }
    }

    /// Checks whether a call accepts these arguments. A server checks them when they are approved.
    pub(crate) async fn takes(&self, id: ApprovalId, arguments: &Value) -> Result<(), Error> {
        match self {
            Self::File(store) => {
                let approvals = Approvals::new(store.as_ref());
                approvals.check_edited_input(&approvals.find(id).await?, arguments).await
            }
            Self::Server(_) => Ok(()),
        }
    }

    /// Returns the approvals for the rest of sessions.
    pub(crate) async fn grants(&self) -> Result<Vec<GrantResource>, Error> {
        let most = Limits::default().page_rows;
        match self {
            Self::File(store) => {
                let grants = Approvals::new(store.as_ref()).grants(most).await?;
                Ok(grants.into_iter().map(GrantResource::from).collect())
            }
            Self::Server(client) => client.grants(most).await,
        }
    }

    pub(crate) async fn revoke_grant(&self, id: GrantId) -> Result<GrantResource, Error> {
        match self {
            Self::File(store) => {
                Ok(Approvals::new(store.as_ref()).revoke(id, SystemClock.now()).await?.into())
            }
            Self::Server(client) => client.revoke_grant(id).await,
        }
    }

    /// Returns the calls with an unknown outcome, oldest first.
    pub(crate) async fn unknown(&self) -> Result<Vec<UnknownCallResource>, Error> {
        let most = Limits::default().page_rows;
        match self {
            Self::File(store) => {
                Ok(store.unknown(most).await?.into_iter().map(UnknownCallResource::from).collect())
            }
            Self::Server(client) => client.unknown_calls(most).await,
        }
    }

    /// Records what happened to a call with an unknown outcome.
    pub(crate) async fn settle(
        &self,
        call: CallId,
        verdict: record::OutcomeVerdict,
    ) -> Result<SessionId, Error> {
        match self {
            Self::File(store) => store.settle(call, verdict, SystemClock.now()).await,
            Self::Server(client) => client.settle(call, verdict).await,
        }
    }

    /// Completes a wait of a turn. For a database file, the caller must have checked the key.
    pub(crate) async fn resolve(&self, key: &CompletionKey, how: Resolution) -> Result<ResolveResult, Error> {
        match self {
            Self::File(store) => store.resolve(key.turn, key.key.clone(), how, SystemClock.now()).await,
            Self::Server(client) => client.resolve(key, how).await,
        }
    }
}
