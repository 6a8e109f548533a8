//! Records the real runs of tools over all lives of a run, and kills the life while a tool waits.
use super::point::Point;
use outlast_ports::Answer;
use outlast_ports::mortal::Pulse;
use outlast_ports::service::CallScope;
use outlast_ports::tool::{Call, Probe, Ran, ToolProvider};
use outlast_vocab::message::ToolName;
use outlast_vocab::tool::{Contract, Manifest, PreparedCall, Undo};
use outlast_vocab::{CallId, Error, Kind, SessionId};
use serde_json::Value;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// Every run of a tool, in the order in which they began.
#[derive(Default)]
pub(super) struct Calls {
    runs: Mutex<Vec<Run>>,
}

/// One run of a tool.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) life: usize,
    pub(super) call: CallId,
    pub(super) tool: ToolName,
    /// How often the tool waited.
    pub(super) pauses: u64,
    /// Whether the tool reported that nothing happened, so that it may be retried.
    pub(super) unavailable: bool,
}

impl Calls {
    #[cfg(test)]
    pub(super) fn of(runs: Vec<Run>) -> Self {
        Self { runs: Mutex::new(runs) }
    }

    pub(super) fn runs(&self) -> Vec<Run> {
        self.lock().clone()
    }

    /// Records the start of a run. Returns its index among all runs, and its number within its life, counted from 1.
    fn begin(&self, life: usize, call: &PreparedCall) -> (usize, u64) {
        let mut runs = self.lock();
        runs.push(Run { life, call: call.id, tool: call.tool.clone(), pauses: 0, unavailable: false });
        let of_life = runs.iter().filter(|run| run.life == life).count();
        (runs.len() - 1, of_life as u64)
    }

    fn pause(&self, index: usize) -> u64 {
        let mut runs = self.lock();
        runs[index].pauses += 1;
        runs[index].pauses
    }

    fn end(&self, index: usize, ran: &Result<Ran, Error>) {
        let unavailable = ran.as_ref().is_err_and(|error| error.kind() == Kind::ToolUnavailable);
        self.lock()[index].unavailable = unavailable;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wraps a set of tools to observe them during one life.
pub(super) struct Watched {
    pub(super) tools: Arc<dyn ToolProvider>,
    pub(super) calls: Arc<Calls>,
    pub(super) life: usize,
    /// The point at which this life ends.
    pub(super) dies: Option<Point>,
    pub(super) pulse: Arc<Pulse>,
}

impl Watched {
    async fn run(&self, prepared: &PreparedCall, mut run: Answer<'_, Ran>) -> Result<Ran, Error> {
        let (index, call) = self.calls.begin(self.life, prepared);
        let mut dead = false;
        let ran = poll_fn(|task| {
            if dead {
                return Poll::Pending;
            }
            let polled = run.as_mut().poll(task);
            if polled.is_pending() {
                let pause = self.calls.pause(index);
                dead = self.dies == Some(Point::During { call, pause });
                if dead {
                    self.pulse.stop();
                }
            }
            polled
        })
        .await;
        self.calls.end(index, &ran);
        ran
    }
}

impl ToolProvider for Watched {
    fn manifests(&self) -> Vec<Manifest> {
        self.tools.manifests()
    }

    fn contract(&self, tool: &ToolName) -> Option<&Contract> {
        self.tools.contract(tool)
    }

    fn prepare<'a>(
        &'a self,
        session: SessionId,
        tool: &'a ToolName,
        arguments: &'a Value,
    ) -> Answer<'a, Option<Value>> {
        self.tools.prepare(session, tool, arguments)
    }

    fn execute<'a>(
        &'a self,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> Answer<'a, Ran> {
        Box::pin(self.run(prepared, self.tools.execute(prepared, call, scope)))
    }

    fn probe<'a>(&'a self, prepared: &'a PreparedCall) -> Answer<'a, Probe> {
        self.tools.probe(prepared)
    }

    fn undo(&self, prepared: &PreparedCall, result: &Value) -> Option<Undo> {
        self.tools.undo(prepared, result)
    }

    fn preview<'a>(&'a self, tool: &'a ToolName, arguments: &'a Value) -> Answer<'a, Option<String>> {
        self.tools.preview(tool, arguments)
    }
}
