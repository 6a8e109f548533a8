//! Records what really happened outside. It is not part of any process that crashes.
use crate::task_scheduler::SimProcessNo;
use outlast_vocab::wait::CompletionKey;
use outlast_vocab::{CallId, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The memory of the outside world.
#[derive(Default)]
pub(crate) struct EffectRecorder {
    seen: Mutex<ObservedEffects>,
}

/// The events so far.
#[derive(Default)]
pub(crate) struct ObservedEffects {
    /// Executions in order.
    pub(crate) ran_calls: Vec<ToolExecution>,
    /// Completion keys that tools created, by session and name.
    pub(crate) keys: BTreeMap<(SessionId, String), CompletionKey>,
    /// The number of requests for each model call.
    pub(crate) asked: BTreeMap<String, u64>,
    /// The number of model requests.
    pub(crate) requests: u64,
    /// The model requests, in order.
    pub(crate) model_requests: Vec<ObservedModelRequest>,
    /// The sessions whose provider an operator has restored.
    restored: BTreeSet<SessionId>,
    /// The session of each call that was sent to a server.
    pub(crate) sent: BTreeMap<CallId, SessionId>,
    /// The arguments of executed calls, for tools that report them.
    pub(crate) ran_arguments: BTreeMap<CallId, BTreeSet<String>>,
    /// The times of executions, in milliseconds since the start of the world.
    pub(crate) times: Vec<u64>,
    /// A counter for unique numbers.
    count: u64,
    /// Lives that a tool killed and that are not cleaned up yet.
    pub(crate) processes_killed_by_tools: BTreeSet<SimProcessNo>,
}

/// One model request.
#[derive(Clone, Copy)]
pub(crate) struct ObservedModelRequest {
    pub(crate) session: SessionId,
    /// The process that made it.
    pub(crate) life: SimProcessNo,
    /// The time in milliseconds since the start of the world.
    pub(crate) at_ms: u64,
}

/// One execution of a tool.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ToolExecution {
    pub(crate) session: SessionId,
    pub(crate) tool: String,
    /// The idempotency key that it sent.
    pub(crate) call: CallId,
}

impl EffectRecorder {
    /// Returns the events so far.
    pub(crate) fn seen(&self) -> MutexGuard<'_, ObservedEffects> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an execution of a tool.
    pub(crate) fn record_execution(&self, session: SessionId, tool: &str, call: CallId) {
        self.seen().ran_calls.push(ToolExecution { session, tool: tool.to_owned(), call });
    }

    /// Records the arguments of an execution.
    pub(crate) fn record_arguments(&self, call: CallId, text: &str) {
        self.seen().ran_arguments.entry(call).or_default().insert(text.to_owned());
    }

    /// Records the time of an execution.
    pub(crate) fn at(&self, now: u64) {
        self.seen().times.push(now);
    }

    /// Returns a unique number.
    pub(crate) fn next_unique_number(&self) -> u64 {
        let mut seen = self.seen();
        seen.count += 1;
        seen.count
    }

    /// Records that a call is being sent to a server, which only learns its id.
    pub(crate) fn sent(&self, session: SessionId, call: CallId) {
        self.seen().sent.insert(call, session);
    }

    /// Records an execution by a server.
    pub(crate) fn record_server_execution(&self, tool: &str, call: CallId) {
        let session = self.seen().sent.get(&call).copied();
        self.record_execution(session.expect("a call is sent before a server gets it"), tool, call);
    }

    /// Records a completion key that a tool created.
    pub(crate) fn record_completion_key(&self, session: SessionId, name: &str, key: CompletionKey) {
        self.seen().keys.insert((session, name.to_owned()), key);
    }

    /// Records that a tool kills its process.
    pub(crate) fn record_tool_kill(&self, life: SimProcessNo) {
        self.seen().processes_killed_by_tools.insert(life);
    }

    /// Records a model call. Returns the number of the request, counted from 0.
    pub(crate) fn asked(&self, call: String) -> u64 {
        let mut seen = self.seen();
        *seen.asked.entry(call).or_default() += 1;
        seen.requests += 1;
        seen.requests - 1
    }

    /// Records a model request.
    pub(crate) fn record_model_request(&self, request: ObservedModelRequest) {
        self.seen().model_requests.push(request);
    }

    /// Restores the provider of a session.
    pub(crate) fn restore(&self, session: SessionId) {
        self.seen().restored.insert(session);
    }

    /// Returns whether the provider of a session was restored.
    pub(crate) fn is_restored(&self, session: SessionId) -> bool {
        self.seen().restored.contains(&session)
    }

    /// Uncounts a request that failed and is repeated as often as needed.
    pub(crate) fn uncount_request(&self, call: &str) {
        if let Some(times) = self.seen().asked.get_mut(call) {
            *times -= 1;
        }
    }
}

impl ObservedEffects {
    /// Returns how often a tool was executed in a session.
    pub(crate) fn count(&self, session: SessionId, tool: &str) -> usize {
        self.ran_calls.iter().filter(|did| did.session == session && did.tool == tool).count()
    }

    /// Returns how often each call was executed.
    pub(crate) fn executions(&self) -> BTreeMap<ToolExecution, usize> {
        let mut executions = BTreeMap::new();
        for did in &self.ran_calls {
            *executions.entry(did.clone()).or_default() += 1;
        }
        executions
    }
}
