//! The calls of one client that are under way, so that it can cancel them.
use outlast_runtime::Runtime;
use outlast_vocab::TurnId;
use rmcp::model::RequestId;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The calls that are under way.
#[derive(Default)]
pub(crate) struct Calls(Mutex<HashMap<RequestId, State>>);

/// How far a call is.
enum State {
    /// It has no turn yet.
    Beginning,
    /// It was cancelled before it had one.
    Cancelled(String),
    /// It follows its turn.
    Running(Box<Runtime>, TurnId),
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call comes in.
    pub(crate) fn begin(&self, id: &RequestId) {
        self.lock().insert(id.clone(), State::Beginning);
    }

    /// It has its turn. Gives why it was cancelled, if it was in the meantime.
    pub(crate) fn follow(&self, id: &RequestId, runtime: &Runtime, turn: TurnId) -> Option<String> {
        match self.lock().insert(id.clone(), State::Running(Box::new(runtime.clone()), turn)) {
            Some(State::Cancelled(reason)) => Some(reason),
            _ => None,
        }
    }

    /// It is answered. One that nobody waits for any more stays: the reason may still be on its way.
    pub(crate) fn end(&self, id: &RequestId) {
        self.lock().remove(id);
    }

    /// It is cancelled. Gives the turn that is to stop, if it has one.
    pub(crate) fn cancel(&self, id: &RequestId, reason: &str) -> Option<(Runtime, TurnId)> {
        let mut calls = self.lock();
        match calls.remove(id)? {
            State::Running(runtime, turn) => Some((*runtime, turn)),
            State::Beginning | State::Cancelled(_) => {
                calls.insert(id.clone(), State::Cancelled(reason.to_owned()));
                None
            }
        }
    }
}
