//! Calls that are in progress at a server.
//!
//! A server may ask the user a question during a call (elicitation). The turn then parks, which drops the tool's
//! future. The call stays in flight here, and the tool picks it up again when the turn resumes.
//!
//! A question does not name its call. Therefore a server that may ask works on one call at a time. The current call
//! holds the floor ([`OwnedSemaphorePermit`]). It releases the floor when the server asks, and takes it again with the
//! answer.
use crate::elicitation::ElicitationForm;
use crate::lock;
use outlast_vocab::CallId;
use rmcp::model::{CallToolResult, ElicitResult};
use rmcp::service::ServiceError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::task::AbortHandle;

/// A call in progress at a server.
#[derive(Default)]
pub(crate) struct InFlightCall {
    state: Mutex<InFlightState>,
    changed: Notify,
}

#[derive(Default)]
struct InFlightState {
    result: Option<Result<CallToolResult, ServiceError>>,
    questions: Vec<ServerQuestion>,
    work: Option<AbortHandle>,
    exclusive_permit: Option<OwnedSemaphorePermit>,
}

struct ServerQuestion {
    form: ElicitationForm,
    /// The channel for the answer; `None` once answered.
    answer: Option<oneshot::Sender<ElicitResult>>,
}

/// The next event of a call.
pub(crate) enum InFlightEvent {
    Finished(Result<CallToolResult, ServiceError>),
    Question(ElicitationForm),
}

impl InFlightCall {
    /// Creates a call that holds the floor.
    pub(crate) fn with(floor: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            state: Mutex::new(InFlightState { exclusive_permit: floor, ..InFlightState::default() }),
            changed: Notify::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, InFlightState> {
        lock(&self.state)
    }

    pub(crate) fn finish(&self, result: Result<CallToolResult, ServiceError>) {
        let mut state = self.state();
        state.result.get_or_insert(result);
        state.exclusive_permit = None;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Aborts a call whose question will not be answered.
    pub(crate) fn abort_unanswered(&self) {
        let work = self.state().work.take();
        if let Some(work) = work {
            work.abort();
        }
        self.finish(Err(ServiceError::Cancelled {
            reason: Some("its question was not answered".to_owned()),
        }));
    }

    /// Returns whether the server is working on this call.
    pub(crate) fn is_active(&self) -> bool {
        self.state().exclusive_permit.is_some()
    }

    /// Adds a question of the server. The returned channel receives the answer.
    pub(crate) fn add_question(&self, form: ElicitationForm) -> oneshot::Receiver<ElicitResult> {
        let (answer, answered) = oneshot::channel();
        let mut state = self.state();
        state.questions.push(ServerQuestion { form, answer: Some(answer) });
        state.exclusive_permit = None;
        drop(state);
        self.changed.notify_waiters();
        answered
    }

    /// Returns whether a question is still open.
    pub(crate) fn is_question_open(&self, number: usize) -> bool {
        self.state().questions.get(number).is_some_and(|asked| asked.answer.is_some())
    }

    /// Answers a question, unless it is already answered. The server then resumes the call, which takes the floor.
    pub(crate) fn answer(&self, number: usize, answer: ElicitResult, floor: OwnedSemaphorePermit) {
        let mut state = self.state();
        let sender = state.questions.get_mut(number).and_then(|asked| asked.answer.take());
        if let Some(sender) = sender {
            state.exclusive_permit = Some(floor);
            // The server may have stopped waiting.
            let _sent = sender.send(answer);
        }
    }

    /// Waits for the event after this many questions.
    pub(crate) async fn next(&self, questions: usize) -> InFlightEvent {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before reading the state, so that no change is missed.
            changed.as_mut().enable();
            {
                let mut state = self.state();
                if let Some(asked) = state.questions.get(questions) {
                    return InFlightEvent::Question(asked.form.clone());
                }
                if let Some(result) = state.result.take() {
                    return InFlightEvent::Finished(result);
                }
            }
            changed.await;
        }
    }

    fn has_open_question(&self) -> bool {
        self.state().questions.iter().any(|asked| asked.answer.is_some())
    }
}

/// The calls to one server that are in flight in this process.
#[derive(Default)]
pub(crate) struct InFlightCalls {
    calls: Mutex<BTreeMap<CallId, Arc<InFlightCall>>>,
    started: Mutex<BTreeSet<CallId>>,
}

impl InFlightCalls {
    pub(crate) fn find(&self, call: CallId) -> Option<Arc<InFlightCall>> {
        lock(&self.calls).get(&call).cloned()
    }

    /// Returns whether this process started a call.
    pub(crate) fn was_started(&self, call: CallId) -> bool {
        lock(&self.started).contains(&call)
    }

    pub(crate) fn begin(&self, call: CallId, flight: Arc<InFlightCall>, work: AbortHandle) {
        flight.state().work = Some(work);
        lock(&self.started).insert(call);
        lock(&self.calls).insert(call, flight);
    }

    /// Returns a guard that keeps the call alive while the caller waits for it.
    pub(crate) fn guard(self: &Arc<Self>, call: CallId) -> CallGuard {
        CallGuard { flights: Arc::clone(self), call }
    }
}

/// A guard for a call that a caller waits for. Dropping it ends the call, unless the call waits for an answer.
pub(crate) struct CallGuard {
    flights: Arc<InFlightCalls>,
    call: CallId,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut flying = lock(&self.flights.calls);
        if flying.get(&self.call).is_some_and(|flight| flight.has_open_question()) {
            return;
        }
        if let Some(flight) = flying.remove(&self.call) {
            let mut state = flight.state();
            state.exclusive_permit = None;
            if let Some(work) = state.work.take() {
                work.abort();
            }
        }
        lock(&self.flights.started).remove(&self.call);
    }
}
