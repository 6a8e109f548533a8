//! Calls that a server works on.
//!
//! A server may ask the user in the middle of a call. The turn then parks, which drops the tool's run; the call stays in
//! flight here and is met again when the turn goes on.
//!
//! A question does not say which call it belongs to. So a server that may ask works on one call at a time: whoever it works
//! for holds the floor ([`OwnedSemaphorePermit`]), gives it up with a question, and takes it again with the answer.
use crate::form::Form;
use crate::lock;
use outlast_vocab::CallId;
use rmcp::model::{CallToolResult, ElicitResult};
use rmcp::service::ServiceError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::task::AbortHandle;

/// One call at a server.
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
    /// Where the answer goes; nowhere once it went.
    answer: Option<oneshot::Sender<ElicitResult>>,
}

/// What a call wants next.
pub(crate) enum Next {
    Landed(Result<CallToolResult, ServiceError>),
    Asks(Form),
}

impl Flight {
    /// A call that has the floor.
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

    /// Ends a call that nobody will answer.
    pub(crate) fn give_up(&self) {
        let work = self.state().work.take();
        if let Some(work) = work {
            work.abort();
        }
        self.land(Err(ServiceError::Cancelled { reason: Some("nobody answered its question".to_owned()) }));
    }

    /// Whether the server works on it now.
    pub(crate) fn has_the_floor(&self) -> bool {
        self.state().floor.is_some()
    }

    /// Takes a question of the server; the answer comes on the channel.
    pub(crate) fn ask(&self, form: Form) -> oneshot::Receiver<ElicitResult> {
        let (answer, answered) = oneshot::channel();
        let mut state = self.state();
        state.asked.push(Asked { form, answer: Some(answer) });
        state.floor = None;
        drop(state);
        self.changed.notify_waiters();
        answered
    }

    /// Whether a question was not answered yet.
    pub(crate) fn waits_for(&self, number: usize) -> bool {
        self.state().asked.get(number).is_some_and(|asked| asked.answer.is_some())
    }

    /// Answers a question, if it was not answered before. The server goes on with the call then, so it has the floor.
    pub(crate) fn answer(&self, number: usize, answer: ElicitResult, floor: OwnedSemaphorePermit) {
        let mut state = self.state();
        let sender = state.asked.get_mut(number).and_then(|asked| asked.answer.take());
        if let Some(sender) = sender {
            state.floor = Some(floor);
            // The server may have given up.
            let _sent = sender.send(answer);
        }
    }

    /// What comes after so many questions.
    pub(crate) async fn next(&self, questions: usize) -> Next {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before it looks, so no change falls between.
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

/// The calls of one server that are in flight in this process.
#[derive(Default)]
pub(crate) struct Flights {
    flying: Mutex<BTreeMap<CallId, Arc<Flight>>>,
    begun: Mutex<BTreeSet<CallId>>,
}

impl Flights {
    pub(crate) fn find(&self, call: CallId) -> Option<Arc<Flight>> {
        lock(&self.flying).get(&call).cloned()
    }

    /// Whether a call was begun by this process.
    pub(crate) fn was_begun(&self, call: CallId) -> bool {
        lock(&self.begun).contains(&call)
    }

    pub(crate) fn begin(&self, call: CallId, flight: Arc<Flight>, work: AbortHandle) {
        flight.state().work = Some(work);
        lock(&self.begun).insert(call);
        lock(&self.flying).insert(call, flight);
    }

    /// Whoever holds this waits for the call.
    pub(crate) fn held(self: &Arc<Self>, call: CallId) -> Held {
        Held { flights: Arc::clone(self), call }
    }
}

/// A call that somebody waits for. When they stop, it ends, unless it waits for an answer itself.
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
