//! Tools that are programs: arguments as JSON on standard input, the result as JSON on standard output.
//!
//! | program | result of the call |
//! |---|---|
//! | exits with 0 | its standard output, which must be JSON; `null` if it is empty |
//! | exits with 75 (`EX_TEMPFAIL`) | `tool.unavailable`: nothing happened, the call may be retried |
//! | exits with another code, or is killed | `tool.failed`, with the end of its standard error |
//! | exceeds the deadline, or the turn is cancelled | the program and all its child processes are killed |
//!
//! The environment variable [`KEY`] contains the idempotency key of the call, which is the same on every attempt in
//! every process. [`ATTEMPT`], [`SESSION`] and [`TURN`] contain the rest of its context.
mod hook;
mod program;
#[cfg(test)]
mod tests;

pub use hook::hook;
pub use program::{OUTPUT_BYTES, Program, ProgramOutput};
#[cfg(target_os = "linux")]
pub(crate) use program::{ProcessTree, read_tail};

use outlast_ports::ResultFuture;
use outlast_ports::environment::redact_variables;
use outlast_ports::service::CallScope;
use outlast_ports::tool::{Call, ProbeResult, ToolProvider, ToolRunOutcome, failed};
use outlast_vocab::message::{ToolName, shown};
use outlast_vocab::tool::{PreparedCall, ToolContract, ToolManifest, UndoCall};
use outlast_vocab::{Error, Kind, SessionId};
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::ready;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

/// The variable with the call's idempotency key.
pub const KEY: &str = "OUTLAST_IDEMPOTENCY_KEY";
/// The variable with the number of the attempt, counted from 1.
pub const ATTEMPT: &str = "OUTLAST_ATTEMPT";
/// The variable with the session's id.
pub const SESSION: &str = "OUTLAST_SESSION";
/// The variable with the turn's id.
pub const TURN: &str = "OUTLAST_TURN";

/// The exit code which says that nothing happened and that the call may be retried.
const RETRY_EXIT_CODE: i32 = 75;

/// A set of tools that are programs.
#[derive(Debug, Default)]
pub struct ProgramTools {
    tools: BTreeMap<ToolName, (ToolContract, Program)>,
}

impl ProgramTools {
    /// Adds a tool. Its name must be new.
    pub fn add(&mut self, contract: ToolContract, program: Program) -> Result<(), Error> {
        if self.tools.contains_key(&contract.name) {
            let detail = format!("two tools are called `{}`; names must be unique", contract.name);
            return Err(Error::new(Kind::ToolDuplicate, detail));
        }
        self.tools.insert(contract.name.clone(), (contract, program));
        Ok(())
    }

    fn find(&self, tool: &ToolName) -> Result<&Program, Error> {
        let found = self.tools.get(tool).map(|(_, program)| program);
        found.ok_or_else(|| Error::new(Kind::ToolUnknown, format!("no command is called `{tool}`")))
    }
}

impl ToolProvider for ProgramTools {
    fn manifests(&self) -> Vec<ToolManifest> {
        self.tools.values().map(|(contract, _)| contract.manifest()).collect()
    }

    fn contract(&self, tool: &ToolName) -> Option<&ToolContract> {
        self.tools.get(tool).map(|(contract, _)| contract)
    }

    fn prepare<'a>(
        &'a self,
        _: SessionId,
        tool: &'a ToolName,
        _: &'a Value,
    ) -> ResultFuture<'a, Option<Value>> {
        Box::pin(ready(self.find(tool).map(|_| None)))
    }

    fn execute<'a>(
        &'a self,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> ResultFuture<'a, ToolRunOutcome> {
        Box::pin(async move {
            let program = self.find(&prepared.tool)?;
            for action in program.policy_actions() {
                scope.check_action(action).await?;
            }
            let variables = [
                (KEY, call.id.to_string()),
                (ATTEMPT, call.attempt.to_string()),
                (SESSION, call.session.to_string()),
                (TURN, call.turn.to_string()),
            ];
            let finished = program.run(prepared.arguments.to_string().into_bytes(), &variables).await?;
            result(&finished, &program.passed_env).map(ToolRunOutcome::Completed)
        })
    }

    /// An interrupted program cannot be asked about its call.
    fn probe<'a>(&'a self, prepared: &'a PreparedCall) -> ResultFuture<'a, ProbeResult> {
        Box::pin(ready(self.find(&prepared.tool).map(|_| ProbeResult::CannotTell)))
    }

    fn undo(&self, prepared: &PreparedCall, result: &Value) -> Option<UndoCall> {
        self.contract(&prepared.tool)?.undo(result)
    }

    fn preview<'a>(&'a self, tool: &'a ToolName, _: &'a Value) -> ResultFuture<'a, Option<String>> {
        Box::pin(ready(self.find(tool).map(|_| None)))
    }
}

/// Converts the end of a program to a result. Error texts redact the values of the variables that it was passed.
fn result(finished: &ProgramOutput, passed_on: &[String]) -> Result<Value, Error> {
    let ProgramOutput { status, stdout: printed, stderr_tail: complained } = finished;
    let why = if complained.is_empty() { "standard error is empty" } else { complained };
    match status.code() {
        Some(0) if printed.iter().all(u8::is_ascii_whitespace) => Ok(Value::Null),
        Some(0) => serde_json::from_slice(printed).map_err(|cause| {
            let text = redact_variables(String::from_utf8_lossy(printed).trim(), passed_on);
            failed(format!("expected JSON on standard output, got `{}`: {cause}", shown(&text)))
        }),
        Some(RETRY_EXIT_CODE) => {
            Err(Error::new(Kind::ToolUnavailable, format!("exit code {RETRY_EXIT_CODE}: {why}")))
        }
        Some(code) => Err(failed(format!("exit code {code}: {why}"))),
        None => Err(failed(format!("ended by signal {}: {why}", status.signal().unwrap_or(0)))),
    }
}
