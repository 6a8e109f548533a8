//! What callers do with a turn that was accepted: wait for its end, cancel, resolve its waits, approve, settle, retry.
use super::Runtime;
use crate::policy::approvals::Approvals;
use outlast_ports::inbox::{AcceptReceipt, RetryRequest};
use outlast_views::{CancelOutcome, ResolveResult, RetryOutcome, RetryPlace, TurnState, VoteOutcome};
use outlast_vocab::budget::{Budget, BudgetAccount};
use outlast_vocab::id::{ApprovalId, CallId};
use outlast_vocab::policy::Approval;
use outlast_vocab::record::{OutcomeVerdict, TurnEnd};
use outlast_vocab::wait::{CompletionKey, Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Kind, ReplayKey, SessionId, TurnId};
use serde_json::Value;
use std::time::Duration;

/// How often [`Runtime::outcome`] checks a turn that is parked or driven by another worker.
const LOOK_FOR_END: Duration = Duration::from_millis(100);

impl Runtime {
    /// Waits until a turn has ended and returns how. An input that joined another turn ends as that one does.
    pub async fn outcome(&self, turn: TurnId) -> Result<TurnEnd, Error> {
        let mut turn = turn;
        loop {
            // Most turns are driven here and publish their end. The store knows the others.
            let end = match self.state.journal.hub.end_of(turn, self.access.visibility).await {
                Some(end) => Some(end),
                None => self.store.turn(turn).await?.end,
            };
            match end {
                Some(TurnEnd::Joined { into }) => turn = into,
                Some(end) => return Ok(end),
                None => self.state.journal.clock.sleep(LOOK_FOR_END).await,
            }
        }
    }

    /// Cancels a turn. The request is durable when this returns.
    pub async fn cancel(&self, turn: TurnId, reason: &str) -> Result<CancelOutcome, Error> {
        let cancelled = self.store.cancel(turn, reason.to_owned(), self.now()).await?;
        self.stop(turn, reason);
        Ok(cancelled)
    }

    /// Cancels a turn and undoes its calls, newest first. The request is durable when this returns.
    pub async fn abort(&self, turn: TurnId, reason: &str) -> Result<CancelOutcome, Error> {
        let aborted = self.store.abort(turn, reason.to_owned(), self.now()).await?;
        self.stop(turn, reason);
        Ok(aborted)
    }

    fn stop(&self, turn: TurnId, reason: &str) {
        self.state.drives.cancel(turn, reason);
        // A turn that had not begun has ended now.
        self.state.deliveries.wake_sinks();
        self.state.drives.wake();
    }

    /// Resolves a wait with its completion key. The first resolution wins.
    pub async fn resolve(&self, key: &CompletionKey, resolution: Resolution) -> Result<ResolveResult, Error> {
        key.check(&self.state.secret)?;
        let resolved = self.store.resolve(key.turn, key.key.clone(), resolution, self.now()).await?;
        self.state.drives.wake();
        Ok(resolved)
    }

    /// Returns the questions for approval in all sessions.
    pub fn approvals(&self) -> Approvals<'_> {
        Approvals::new(self.store.as_ref())
    }

    /// Approves, denies or edits the call of a question.
    pub async fn approve(&self, id: ApprovalId, approval: Approval) -> Result<VoteOutcome, Error> {
        let voted = self.approvals().decide(id, approval, self.now()).await?;
        self.state.drives.wake();
        Ok(voted)
    }

    /// Overrides the budget of an agent, or removes the override. Turns that wait for a budget try again.
    pub async fn set_budget(&self, account: BudgetAccount, budget: Option<Budget>) -> Result<(), Error> {
        self.store.set_budget(account, budget, self.now()).await?;
        self.state.operator_budgets.refresh(self.state.journal.store.as_ref()).await?;
        self.state.drives.wake();
        Ok(())
    }

    /// Settles a call of unknown outcome. Its payments are settled or released.
    pub async fn settle(&self, call: CallId, verdict: OutcomeVerdict) -> Result<SessionId, Error> {
        let session = self.store.settle(call, verdict, self.now()).await?;
        self.state.deliveries.wake_sinks();
        Ok(session)
    }

    /// Returns the completion key of a wait.
    pub async fn key_of(&self, turn: TurnId, wait: &ReplayKey) -> Result<CompletionKey, Error> {
        self.store.completion_key(turn, wait.clone()).await
    }

    /// Wakes a turn that is stuck or waits for its provider, so that it tries again now.
    pub async fn retry(&self, turn: TurnId) -> Result<(), Error> {
        let view = self.store.turn(turn).await?;
        let session = self.store.session(view.session).await?;
        let wakes = |wait: &Wait| match wait.kind {
            WaitKind::Event => wait.key.is_stuck(),
            WaitKind::Provider => true,
            _ => false,
        };
        let mut waits = session.waits.into_iter().filter(wakes);
        let Some(first) = waits.next().filter(|_| session.active == Some(turn)) else {
            let detail = format!("{turn} is neither stuck nor waiting for its provider");
            return Err(Error::new(Kind::WaitNotFound, detail));
        };
        let now = self.now();
        self.store.resolve(turn, first.key, Resolution::Ok(Value::Null), now).await?;
        // Parallel calls of tools may each wait.
        for wait in waits {
            match self.store.resolve(turn, wait.key, Resolution::Ok(Value::Null), now).await {
                // The turn may have woken meanwhile.
                Err(error) if error.kind() != Kind::WaitNotFound => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        self.state.drives.wake();
        Ok(())
    }

    /// Retries a turn. A turn that is stuck or waits for its provider continues immediately.
    ///
    /// A turn that failed, was cancelled, was sealed or ran out of budget is retried as a new turn with the same input
    /// and agent. Answers of the original are reused, and calls of unknown outcome stay unknown. Calling this again
    /// returns the same retry while it is running or if it has an answer.
    ///
    /// # Errors
    /// `turn.superseded` if later turns follow on its head and `place` is not a fork, `turn.not_retryable` if it ended
    /// otherwise, `wait.not_found` if it is running and not stuck.
    pub async fn retry_turn(&self, turn: TurnId, place: RetryPlace) -> Result<RetryOutcome, Error> {
        let view = self.store.turn(turn).await?;
        if view.state != TurnState::Ended {
            self.retry(turn).await?;
            return Ok(RetryOutcome::Woken);
        }
        let state = &self.state;
        let now = self.now();
        let _claim = state.drives.claim();
        let fork = (place == RetryPlace::Fork).then(|| self.fresh_session());
        let fresh = TurnId::fresh(now, state.entropy.random_id_bytes());
        let (lease_request, queued_most) =
            (state.drives.lease_request(now), state.journal.limits.queued_inputs);
        let accepted =
            self.store.retry(RetryRequest { turn, fresh, fork, now, lease_request, queued_most }).await?;
        let AcceptReceipt { session, turn: retry, duplicate, place, work } = accepted;
        tracing::info!(%session, %turn, %retry, duplicate, "a turn is retried");
        if !duplicate {
            state.journal.metrics.accepted();
        }
        state.journal.hub.committed(session, place.seq);
        match work {
            Some(work) => state.sessions.spawn(work),
            None => state.drives.wake(),
        }
        Ok(RetryOutcome::NewTurn { session, turn: retry, duplicate })
    }
}
