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

use crate::global_args::GlobalArgs;
use clap::Subcommand;
use outlast::runtime::worker::system::WorkerThreads;
use outlast::{Error, Kind};
use rustix::process::Signal;
use std::future::Future;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// The commands of the binary.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a demo: the process of a turn is killed repeatedly, and nothing happens twice
    Demo(demo::DemoArgs),
    /// Send one input and stream the answer
    Run(run::RunArgs),
    /// Chat with an agent in the terminal
    Chat(chat::ChatArgs),
    /// List, show, compare, validate and delete agents; import AGENTS.md and Agent Skills
    Agents(agents::AgentsArgs),
    /// Check a configuration, or print its schema
    Config(config::ConfigArgs),
    /// List, show, fork, rewind, delete, export or import sessions
    Sessions(sessions::SessionsArgs),
    /// Search messages by words
    Search(search::SearchArgs),
    /// Print the events of a session
    Events(events::EventsArgs),
    /// Show the context that a model would receive for a session, and the tokens of each part
    Context(context::ContextArgs),
    /// List the attachments of a session, or save one
    Attachments(attachments::AttachmentsArgs),
    /// Complete a call or an event that a turn waits for
    Resolve(resolve::ResolveArgs),
    /// Cancel a turn
    Cancel(cancel::CancelArgs),
    Approvals(approvals::ApprovalsArgs),
    Budgets(budgets::BudgetsArgs),
    Rates(rates::RatesArgs),
    Cost(cost::CostArgs),
    /// Retry a turn that is stuck, waits for a model provider, or has ended without an answer
    ///
    /// A turn that is stuck or waits for its provider continues at once. A turn that failed, was cancelled, was
    /// sealed or ran out of budget is retried as a new turn with the same input and agent.
    Retry(retry::RetryArgs),
    /// Run unfinished turns
    Work(work::WorkArgs),
    /// Serve the HTTP API, and run unfinished turns
    Serve(serve::ServeArgs),
    /// Explain why a session or a turn does not continue: what it waits for, since when, and how to resolve it
    Why(why::WhyArgs),
    /// Show running sessions live
    Watch(watch::WatchArgs),
    /// List calls with an unknown outcome, and settle them
    Unknown(unknown::UnknownArgs),
    /// List sinks with their pending and dead deliveries, test a sink, and retry deliveries
    Sinks(sinks::SinksArgs),
    /// List organisations, or create one
    Orgs(orgs::OrgsArgs),
    /// List, create, check and revoke the API keys of an organisation
    Keys(keys::KeysArgs),
    /// Print the audit log: who cancelled turns, decided approvals, settled calls, deleted, or created keys
    Audit(audit::AuditArgs),
    /// Recompute and check the hash chains of sessions
    Verify(verify::VerifyArgs),
    /// Replay recorded sessions offline, as a regression test
    Replay(replay::ReplayArgs),
    /// Run recorded sessions again with another model, prompt or tool set, and compare
    Rerun(rerun::RerunArgs),
    /// Test an agent with a script, optionally with a crash at every effect, and check the results
    Test(test::TestArgs),
    /// Add, list, test and accept the MCP servers of an agent; read their resources and prompts; serve agents over MCP
    Mcp(mcp::McpArgs),
    /// List the model providers, and whether each answers
    Models(models::ModelsArgs),
    /// List the tools of an agent, show one, or preview a call
    Tools(tools::ToolsArgs),
    /// Explain an error code
    Explain(explain::ExplainArgs),
    /// Check the database, the disk and the workers, and report problems
    Doctor(doctor::DoctorArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write one for every command
    Man(man::ManArgs),
    /// Run the worker process of a torture test
    #[cfg(unix)]
    #[command(hide = true)]
    TortureWorker(torture::TortureWorkerArgs),
}

impl Command {
    /// Runs the command and returns its exit code.
    pub(crate) fn run(self, data: &GlobalArgs) -> Result<ExitCode, Error> {
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
    threads.worker_threads(WorkerThreads::beside());
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
    Error::new(Kind::IoFailed, format!("the operating system could not start threads: {cause}"))
        .because(cause)
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
