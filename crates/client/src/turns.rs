//! Turns: show, cancel and retry them, and explain why they do not progress.
use crate::Client;
use outlast_api::turns::{CancelRequest, CancelResult, TurnDetails, TurnRetryRequest, TurnRetryResult};
use outlast_api::why::WhyResource;
use outlast_views::{CancelOutcome, RetryOutcome, RetryPlace, TurnDurabilityCost, TurnView, WaitExplanation};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::Usage;
use outlast_vocab::package::PinnedPackage;
use outlast_vocab::{Error, Hash, SessionId, TurnId};

/// A turn with its agent and its usage.
#[derive(Clone, Debug)]
pub struct TurnReport {
    /// Its state.
    pub view: TurnView,
    /// Its agent; `None` before it started.
    pub agent: Option<String>,
    /// The tokens of its models.
    pub usage: Usage,
    /// Their cost, where prices are known.
    pub cost: Cost,
    /// The cost of its durability.
    pub durability: TurnDurabilityCost,
}

impl Client {
    /// Returns a turn.
    pub async fn turn(&self, turn: TurnId) -> Result<TurnReport, Error> {
        let details: TurnDetails = self.get(&["v1", "turns", &turn.to_string()], &()).await?;
        let TurnDetails { turn, agent, usage, cost, durability, .. } = details;
        Ok(TurnReport { view: turn.try_into()?, agent, usage, cost, durability: durability.into() })
    }

    /// Returns the package that the turn is pinned to.
    pub async fn package(&self, turn: TurnId) -> Result<PinnedPackage, Error> {
        self.get(&["v1", "turns", &turn.to_string(), "package"], &()).await
    }

    /// Returns a package by its fingerprint, from an agent of the server or one of the newest turns.
    pub async fn package_by_fingerprint(&self, fingerprint: Hash) -> Result<PinnedPackage, Error> {
        self.get(&["v1", "packages", &fingerprint.to_string()], &()).await
    }

    /// Asks a turn to stop.
    pub async fn cancel(&self, turn: TurnId, reason: &str) -> Result<CancelOutcome, Error> {
        self.request_cancel(turn, reason, false).await
    }

    /// Asks a turn to stop and to undo its calls.
    pub async fn abort(&self, turn: TurnId, reason: &str) -> Result<CancelOutcome, Error> {
        self.request_cancel(turn, reason, true).await
    }

    async fn request_cancel(&self, turn: TurnId, reason: &str, undo: bool) -> Result<CancelOutcome, Error> {
        let body = CancelRequest { reason: Some(reason.to_owned()), undo };
        let result: CancelResult = self.post(&["v1", "turns", &turn.to_string(), "cancel"], &body).await?;
        result.try_into()
    }

    /// Retries a turn. A stuck turn continues; a turn that has ended is retried as a new turn.
    pub async fn retry(&self, turn: TurnId, place: RetryPlace) -> Result<RetryOutcome, Error> {
        let body = TurnRetryRequest { fork: place == RetryPlace::Fork };
        let result: TurnRetryResult = self.post(&["v1", "turns", &turn.to_string(), "retry"], &body).await?;
        result.try_into()
    }

    /// Explains why a session does not progress.
    pub async fn why(&self, session: SessionId) -> Result<WaitExplanation, Error> {
        let answer: WhyResource = self.get(&["v1", "sessions", &session.to_string(), "why"], &()).await?;
        answer.try_into()
    }

    /// Explains why a turn does not progress.
    pub async fn why_turn(&self, turn: TurnId) -> Result<WaitExplanation, Error> {
        let answer: WhyResource = self.get(&["v1", "turns", &turn.to_string(), "why"], &()).await?;
        answer.try_into()
    }
}
