//! Waits of turns for something outside: completions, approvals and unknown outcomes; and approvals for whole sessions.
use crate::Client;
use outlast_api::waits::{
    ApprovalResource, CompletionRequest, CompletionResult, DecisionRequest, GrantResource, OutcomeRequest,
    SettledCallResource, UnknownCallResource, VoteResult,
};
use outlast_views::{ResolveResult, VoteOutcome};
use outlast_vocab::id::{ApprovalId, CallId, GrantId};
use outlast_vocab::policy::ApprovalVerdict;
use outlast_vocab::record::OutcomeVerdict;
use outlast_vocab::wait::{CompletionKey, Resolution};
use outlast_vocab::{Error, SessionId};

impl Client {
    /// Resolves a current or future wait of a turn.
    pub async fn resolve(&self, key: &CompletionKey, how: Resolution) -> Result<ResolveResult, Error> {
        let body = CompletionRequest::from(how);
        let result: CompletionResult = self.post(&["v1", "completions", &key.to_string()], &body).await?;
        Ok(result.into())
    }

    /// Lists the calls that wait for approval, oldest first.
    pub async fn approvals(&self, most: usize) -> Result<Vec<ApprovalResource>, Error> {
        self.list(&["v1", "approvals"], &(), most).await
    }

    /// Votes on an approval, on behalf of `by` or of the caller.
    pub async fn decide(
        &self,
        id: ApprovalId,
        by: Option<&str>,
        verdict: ApprovalVerdict,
    ) -> Result<VoteOutcome, Error> {
        let body = DecisionRequest::new(verdict, by.map(ToOwned::to_owned));
        let result: VoteResult = self.post(&["v1", "approvals", &id.to_string()], &body).await?;
        result.try_into()
    }

    /// Lists the approvals for the rest of sessions.
    pub async fn grants(&self, most: usize) -> Result<Vec<GrantResource>, Error> {
        self.list(&["v1", "grants"], &(), most).await
    }

    /// Revokes one of them.
    pub async fn revoke_grant(&self, id: GrantId) -> Result<GrantResource, Error> {
        self.delete(&["v1", "grants", &id.to_string()]).await
    }

    /// Lists the calls with an unknown outcome, oldest first.
    pub async fn unknown_calls(&self, most: usize) -> Result<Vec<UnknownCallResource>, Error> {
        self.list(&["v1", "unknown"], &(), most).await
    }

    /// Records the outcome of such a call.
    pub async fn settle(&self, call: CallId, verdict: OutcomeVerdict) -> Result<SessionId, Error> {
        let body = OutcomeRequest::from(verdict);
        let SettledCallResource { session } = self.post(&["v1", "unknown", &call.to_string()], &body).await?;
        Ok(session)
    }
}
