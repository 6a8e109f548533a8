//! Tracks the running calls of one client, so that it can cancel them.
use outlast_runtime::Runtime;
use outlast_vocab::TurnId;
use rmcp::model::RequestId;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The running calls.
#[derive(Default)]
pub(crate) struct RunningCalls(Mutex<HashMap<RequestId, RunningCallState>>);

/// The state of a call.
enum RunningCallState {
    /// It has no turn yet.
    Starting,
    /// It was cancelled before it had a turn.
    Cancelled(String),
    /// It follows its turn.
    Running(Box<Runtime>, TurnId),
}

impl RunningCalls {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, RunningCallState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a new call.
    pub(crate) fn begin(&self, id: &RequestId) {
        self.lock().insert(id.clone(), RunningCallState::Starting);
    }

    /// Sets the turn of a call. If the call was cancelled in the meantime, returns the reason.
    pub(crate) fn set_turn(&self, id: &RequestId, runtime: &Runtime, turn: TurnId) -> Option<String> {
        match self.lock().insert(id.clone(), RunningCallState::Running(Box::new(runtime.clone()), turn)) {
            Some(RunningCallState::Cancelled(reason)) => Some(reason),
            _ => None,
        }
    }

    /// Removes an answered call. A call whose caller stopped waiting stays, because the reason may still arrive.
    pub(crate) fn end(&self, id: &RequestId) {
        self.lock().remove(id);
    }

    /// Cancels a call. Returns the turn to stop, if it has one.
    pub(crate) fn cancel(&self, id: &RequestId, reason: &str) -> Option<(Runtime, TurnId)> {
        let mut calls = self.lock();
        match calls.remove(id)? {
            RunningCallState::Running(runtime, turn) => Some((*runtime, turn)),
            RunningCallState::Starting | RunningCallState::Cancelled(_) => {
                calls.insert(id.clone(), RunningCallState::Cancelled(reason.to_owned()));
                None
            }
        }
    }
}
