//! Records the real runs of tools over all lives of a run, and kills the life while a tool waits.
use crate::crash_point::TrialCrashPoint;
use outlast_ledger::crashing_store::SimulatedProcess;
use outlast_ports::ResultFuture;
use outlast_ports::service::CallScope;
use outlast_ports::tool::{Call, ToolDecorator, ToolProvider, ToolRunOutcome};
use outlast_vocab::message::ToolName;
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::{CallId, Error, Kind};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// Every run of a tool, in the order in which they began.
#[derive(Default)]
pub(crate) struct ToolRunLog {
    runs: Mutex<Vec<ToolRun>>,
}

/// One run of a tool.
#[derive(Clone, Debug)]
pub(crate) struct ToolRun {
    pub(crate) process: usize,
    pub(crate) call: CallId,
    pub(crate) tool: ToolName,
    /// How often the tool waited.
    pub(crate) pauses: u64,
    /// Whether the tool reported that nothing happened, so that it may be retried.
    pub(crate) unavailable: bool,
}

impl ToolRunLog {
    #[cfg(test)]
    pub(crate) fn of(runs: Vec<ToolRun>) -> Self {
        Self { runs: Mutex::new(runs) }
    }

    pub(crate) fn runs(&self) -> Vec<ToolRun> {
        self.lock().clone()
    }

    /// Records the start of a run. Returns its index among all runs, and its number within its life, counted from 1.
    fn begin(&self, life: usize, call: &PreparedCall) -> (usize, u64) {
        let mut runs = self.lock();
        runs.push(ToolRun {
            process: life,
            call: call.id,
            tool: call.tool.clone(),
            pauses: 0,
            unavailable: false,
        });
        let of_life = runs.iter().filter(|run| run.process == life).count();
        (runs.len() - 1, of_life as u64)
    }

    fn pause(&self, index: usize) -> u64 {
        let mut runs = self.lock();
        runs[index].pauses += 1;
        runs[index].pauses
    }

    fn end(&self, index: usize, ran: &Result<ToolRunOutcome, Error>) {
        let unavailable = ran.as_ref().is_err_and(|error| error.kind() == Kind::ToolUnavailable);
        self.lock()[index].unavailable = unavailable;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ToolRun>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Observes the calls of tools during one life.
pub(crate) struct ToolObserver {
    pub(crate) calls: Arc<ToolRunLog>,
    pub(crate) process: usize,
    /// The point at which this life ends.
    pub(crate) crash_point: Option<TrialCrashPoint>,
    pub(crate) pulse: Arc<SimulatedProcess>,
}

impl ToolObserver {
    async fn run(
        &self,
        prepared: &PreparedCall,
        mut run: ResultFuture<'_, ToolRunOutcome>,
    ) -> Result<ToolRunOutcome, Error> {
        let (index, call) = self.calls.begin(self.process, prepared);
        let mut dead = false;
        let ran = poll_fn(|task| {
            if dead {
                return Poll::Pending;
            }
            let polled = run.as_mut().poll(task);
            if polled.is_pending() {
                let pause = self.calls.pause(index);
                dead = self.crash_point == Some(TrialCrashPoint::During { call, pause });
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

impl ToolDecorator for ToolObserver {
    fn execute<'a>(
        &'a self,
        tools: &'a dyn ToolProvider,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> ResultFuture<'a, ToolRunOutcome> {
        Box::pin(self.run(prepared, tools.execute(prepared, call, scope)))
    }
}
