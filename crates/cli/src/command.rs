//! The commands, one module each. [`Command::run`] dispatches to them.
mod agents;
mod approvals;
mod attachments;
mod audit;
mod budgets;
mod cancel;
mod chat;
mod completions;
mod config;
mod context;
mod cost;
mod demo;
mod doctor;
mod events;
mod explain;
mod keys;
mod man;
mod mcp;
mod models;
mod orgs;
mod rates;
mod replay;
mod rerun;
mod resolve;
mod retry;
mod run;
mod search;
mod serve;
mod sessions;
mod sinks;
mod test;
mod tools;
#[cfg(unix)]
mod torture;
mod unknown;
mod verify;
mod watch;
mod why;
mod work;

use crate::data::Data;
use clap::Subcommand;
use outlast::runtime::system::OwnThreads;
use outlast::{Error, Kind};
use rustix::process::Signal;
use std::future::Future;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// What the binary can do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show what this is for: a turn whose process is killed again and again, and nothing happens twice
    Demo(demo::Demo),
    /// Send one input and stream the answer
    Run(run::Run),
    /// Talk in the terminal
    Chat(chat::Chat),
    /// List and show agents, say how two differ, find mistakes, and import AGENTS.md and Agent Skills
    Agents(agents::Agents),
    /// Check a configuration, or print its schema
    Config(config::Config),
    /// List, show, fork, rewind, delete, export or import sessions
    Sessions(sessions::Sessions),
    /// Find messages by their words
    Search(search::Search),
    /// Print what happened in a session
    Events(events::Told),
    /// Show what a model would be shown of a session, and what each part takes
    Context(context::Context),
    /// List what a session has attached, or save it
    Attachments(attachments::Attachments),
    /// Finish a call or an event that a turn waits for
    Resolve(resolve::Resolve),
    /// Ask a turn to stop
    Cancel(cancel::Cancel),
    Approvals(approvals::Approvals),
    Budgets(budgets::Budgets),
    Rates(rates::Rates),
    Cost(cost::Cost),
    /// Let a stuck turn try again
    Retry(retry::Retry),
    /// Drive whatever is unfinished
    Work(work::Work),
    /// Serve the HTTP API, and drive whatever is unfinished
    Serve(serve::Serve),
    /// Say why a session or a turn does not move: what it waits for, since when, and what moves it
    Why(why::Why),
    /// Show running sessions live
    Watch(watch::Watch),
    /// List calls whose outcome nobody knows, and say how they went
    Unknown(unknown::Unknown),
    /// List where outputs go, what waits and what was given up, and try that again
    Sinks(sinks::Sinks),
    /// List organisations, or make one
    Orgs(orgs::Orgs),
    /// List, make, check and revoke the API keys of an organisation
    Keys(keys::Keys),
    /// Print who did what: stopped turns, approved, settled, deleted, made keys
    Audit(audit::Audit),
    /// Recompute the hash chain of sessions
    Verify(verify::Verify),
    /// Replay recorded sessions without anything outside, as a regression test
    Replay(replay::Replay),
    /// Run recorded sessions again with another model, prompt or tool set, and compare
    Rerun(rerun::Rerun),
    /// Try an agent: play a script, kill it at every effect, and see what does not hold
    Test(test::Test),
    /// Add, list, test and accept the MCP servers of an agent; read their resources and prompts
    Mcp(mcp::Mcp),
    /// List the providers of models, and whether each answers
    Models(models::Models),
    /// List the tools of an agent, show one, or say what a call would do
    Tools(tools::Tools),
    /// Explain an error code
    Explain(explain::Explain),
    /// Look at the database, the disk and the workers, and say what is wrong
    Doctor(doctor::Doctor),
    /// Print what a shell needs to complete commands and flags
    Completions(completions::Completions),
    /// Print the page of the manual, or write one for every command
    Man(man::Man),
    /// Be the process that is tortured
    #[cfg(unix)]
    #[command(hide = true)]
    TortureWorker(torture::TortureWorker),
}

impl Command {
    /// Runs the command and returns its exit code.
    pub(crate) fn run(self, data: &Data) -> Result<ExitCode, Error> {
        match self {
            Self::Demo(demo) => demo.run(),
            Self::Run(run) => done(run.run(data)),
            Self::Chat(chat) => done(chat.run(data)),
            Self::Agents(agents) => complete(agents.run(data)),
            Self::Config(config) => complete(config.run(data)),
            Self::Sessions(sessions) => done(sessions.run(data)),
            Self::Search(search) => done(search.run(data)),
            Self::Events(events) => done(events.run(data)),
            Self::Context(context) => done(context.run(data)),
            Self::Attachments(attachments) => done(attachments.run(data)),
            Self::Resolve(resolve) => done(resolve.run(data)),
            Self::Cancel(cancel) => done(cancel.run(data)),
            Self::Approvals(approvals) => done(approvals.run(data)),
            Self::Budgets(budgets) => done(budgets.run(data)),
            Self::Rates(rates) => done(rates.run(data)),
            Self::Cost(cost) => done(cost.run(data)),
            Self::Retry(retry) => done(retry.run(data)),
            Self::Work(work) => done(work.run(data)),
            Self::Serve(serve) => done_beside_turns(serve.run(data)),
            Self::Why(why) => done(why.run(data)),
            Self::Watch(watch) => done(watch.run(data)),
            Self::Unknown(unknown) => done(unknown.run(data)),
            Self::Sinks(sinks) => done(sinks.run(data)),
            Self::Orgs(orgs) => done(orgs.run(data)),
            Self::Keys(keys) => done(keys.run(data)),
            Self::Audit(audit) => done(audit.run(data)),
            Self::Verify(verify) => done(verify.run(data)),
            Self::Replay(replay) => complete(replay.run(data)),
            Self::Rerun(rerun) => done(rerun.run(data)),
            Self::Test(test) => complete_alone(test.run()),
            Self::Mcp(mcp) => done(mcp.run(data)),
            Self::Models(models) => complete(models.run(data)),
            Self::Tools(tools) => done(tools.run(data)),
            Self::Explain(explain) => explain.run().map(|()| ExitCode::SUCCESS),
            Self::Doctor(doctor) => complete(doctor.run(data)),
            Self::Completions(completions) => completions.run().map(|()| ExitCode::SUCCESS),
            Self::Man(man) => man.run().map(|()| ExitCode::SUCCESS),
            #[cfg(unix)]
            Self::TortureWorker(worker) => done(worker.run(data)),
        }
    }
}

/// Runs a command whose exit code is always success unless it returns an error.
fn done(work: impl Future<Output = Result<(), Error>>) -> Result<ExitCode, Error> {
    complete(async { work.await.map(|()| ExitCode::SUCCESS) })
}

/// Like [`done`], for a command that drives turns on separate threads.
fn done_beside_turns(work: impl Future<Output = Result<(), Error>>) -> Result<ExitCode, Error> {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    threads.worker_threads(OwnThreads::beside());
    start(&mut threads)?.block_on(work).map(|()| ExitCode::SUCCESS)
}

/// Runs a command on a multi-threaded runtime.
fn complete<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    start(&mut tokio::runtime::Builder::new_multi_thread())?.block_on(work)
}

/// Runs a command on this thread. Spawned tasks start only when the command awaits something.
fn complete_alone<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    start(&mut tokio::runtime::Builder::new_current_thread())?.block_on(work)
}

fn no_threads(cause: std::io::Error) -> Error {
    Error::new(Kind::IoFailed, format!("the system gave no threads: {cause}")).because(cause)
}

fn start(builder: &mut tokio::runtime::Builder) -> Result<tokio::runtime::Runtime, Error> {
    let runtime = builder.enable_all().build().map_err(no_threads)?;
    let inside = runtime.enter();
    // Without a handler, SIGXFSZ kills the process when a file reaches the limit on its size. With one, the
    // write fails. The handler stays installed after the stream is dropped.
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop).map_err(no_threads)?;
    drop(inside);
    Ok(runtime)
}
