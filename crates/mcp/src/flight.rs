//! Calls that are in progress at a server.
//!
//! A server may ask the user a question during a call (elicitation). The turn then parks, which drops the tool's
//! future. The call stays in flight here, and the tool picks it up again when the turn resumes.
//!
//! A question does not name its call. Therefore a server that may ask works on one call at a time. The current call
//! holds the floor ([`OwnedSemaphorePermit`]). It releases the floor when the server asks, and takes it again with the
//! answer.
use crate::form::Form;
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
pub(crate) struct Flight {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    landed: Option<Result<CallToolResult, ServiceError>>,
    asked: Vec<Asked>,
    work: Option<AbortHandle>,
    floor: Option<OwnedSemaphorePermit>,
}

struct Asked {
    form: Form,
    /// The channel for the answer; `None` once answered.
    answer: Option<oneshot::Sender<ElicitResult>>,
}

/// The next event of a call.
pub(crate) enum Next {
    Landed(Result<CallToolResult, ServiceError>),
    Asks(Form),
}

impl Flight {
    /// Creates a call that holds the floor.
    pub(crate) fn with(floor: Option<OwnedSemaphorePermit>) -> Self {
        Self { state: Mutex::new(State { floor, ..State::default() }), changed: Notify::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn land(&self, result: Result<CallToolResult, ServiceError>) {
        let mut state = self.state();
        state.landed.get_or_insert(result);
        state.floor = None;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Aborts a call whose question will not be answered.
    pub(crate) fn give_up(&self) {
        let work = self.state().work.take();
        if let Some(work) = work {
            work.abort();
        }
        self.land(Err(ServiceError::Cancelled { reason: Some("nobody answered its question".to_owned()) }));
    }

    /// Returns whether the server is working on this call.
    pub(crate) fn has_the_floor(&self) -> bool {
        self.state().floor.is_some()
    }

    /// Adds a question of the server. The returned channel receives the answer.
    pub(crate) fn ask(&self, form: Form) -> oneshot::Receiver<ElicitResult> {
        let (answer, answered) = oneshot::channel();
        let mut state = self.state();
        state.asked.push(Asked { form, answer: Some(answer) });
        state.floor = None;
        drop(state);
        self.changed.notify_waiters();
        answered
    }

    /// Returns whether a question is still open.
    pub(crate) fn waits_for(&self, number: usize) -> bool {
        self.state().asked.get(number).is_some_and(|asked| asked.answer.is_some())
    }

    /// Answers a question, unless it is already answered. The server then resumes the call, which takes the floor.
    pub(crate) fn answer(&self, number: usize, answer: ElicitResult, floor: OwnedSemaphorePermit) {
        let mut state = self.state();
        let sender = state.asked.get_mut(number).and_then(|asked| asked.answer.take());
        if let Some(sender) = sender {
            state.floor = Some(floor);
            // The server may have stopped waiting.
            let _sent = sender.send(answer);
        }
    }

    /// Waits for the event after this many questions.
    pub(crate) async fn next(&self, questions: usize) -> Next {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before reading the state, so that no change is missed.
            changed.as_mut().enable();
            {
                let mut state = self.state();
                if let Some(asked) = state.asked.get(questions) {
                    return Next::Asks(asked.form.clone());
                }
                if let Some(result) = state.landed.take() {
                    return Next::Landed(result);
                }
            }
            changed.await;
        }
    }

    fn has_open_question(&self) -> bool {
        self.state().asked.iter().any(|asked| asked.answer.is_some())
    }
}

/// The calls to one server that are in flight in this process.
#[derive(Default)]
pub(crate) struct Flights {
    flying: Mutex<BTreeMap<CallId, Arc<Flight>>>,
    begun: Mutex<BTreeSet<CallId>>,
}

impl Flights {
    pub(crate) fn find(&self, call: CallId) -> Option<Arc<Flight>> {
        lock(&self.flying).get(&call).cloned()
    }

    /// Returns whether this process started a call.
    pub(crate) fn was_begun(&self, call: CallId) -> bool {
        lock(&self.begun).contains(&call)
    }

    pub(crate) fn begin(&self, call: CallId, flight: Arc<Flight>, work: AbortHandle) {
        flight.state().work = Some(work);
        lock(&self.begun).insert(call);
        lock(&self.flying).insert(call, flight);
    }

    /// Returns a guard that keeps the call alive while the caller waits for it.
    pub(crate) fn held(self: &Arc<Self>, call: CallId) -> Held {
        Held { flights: Arc::clone(self), call }
    }
}

/// A guard for a call that a caller waits for. Dropping it ends the call, unless the call waits for an answer.
pub(crate) struct Held {
    flights: Arc<Flights>,
    call: CallId,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut flying = lock(&self.flights.flying);
        if flying.get(&self.call).is_some_and(|flight| flight.has_open_question()) {
            return;
        }
        if let Some(flight) = flying.remove(&self.call) {
            let mut state = flight.state();
            state.floor = None;
            if let Some(work) = state.work.take() {
                work.abort();
            }
        }
        lock(&self.flights.begun).remove(&self.call);
    }
}
