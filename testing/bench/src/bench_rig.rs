//! A runtime to measure: a scripted model without delay, one tool, any store.
use outlast::clock::Entropy;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::{SystemClock, SystemEntropy, TokioTasks};
use outlast::runtime::{Input, Runtime, RuntimeConfig};
use outlast::service::{Completion, Services};
use outlast::store::{SessionTarget, Store};
use outlast::tool::{Call, Tool, ToolProvider, ToolRunOutcome, ToolSpec, Toolbox, done};
use outlast::vocab::package::Package;
use outlast::vocab::record::TurnEnd;
use outlast::vocab::{Millis, WorkerId};
use outlast::{Error, Limits, SessionId};
use std::sync::Arc;

/// One model call that says `ok`.
pub(crate) const PLAIN_SCRIPT: &str = "any\nsay ok";
/// Model, tool, model.
pub(crate) const TOOL_SCRIPT: &str = "any\ncall echo {\"text\":\"x\"}\n---\nsay done";
/// A call that has to be completed from outside.
pub(crate) const PARKING_SCRIPT: &str = "any\ncall wait {\"text\":\"x\"}\n---\nsay done";

/// Model, a tool with a large result, model.
pub(crate) const LARGE_RESULT_SCRIPT: &str = "any\ncall large {\"text\":\"x\"}\n---\nsay done";
/// The size of a large result in bytes.
pub(crate) const LARGE_RESULT_BYTES: usize = 1 << 20;

/// What the tools take.
#[derive(outlast::serde::Deserialize, outlast::schemars::JsonSchema)]
#[serde(crate = "outlast::serde")]
#[schemars(crate = "outlast::schemars")]
pub(crate) struct BenchToolArgs {
    text: String,
}

/// A tool that returns its argument. At-most-once, so that it is claimed like a tool with real effects.
struct EchoTool;

impl Tool for EchoTool {
    type Args = BenchToolArgs;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("echo", "Gives back its text.")
    }

    async fn run(&self, (): (), _: Call, args: BenchToolArgs) -> Result<ToolRunOutcome, Error> {
        done(args.text)
    }
}

/// A tool that waits for a completion from outside.
struct WaitTool;

impl Tool for WaitTool {
    type Args = BenchToolArgs;
    type Needs = (Completion,);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("wait", "Waits for somebody.").durable()
    }

    async fn run(
        &self,
        (completion,): (Completion,),
        _: Call,
        args: BenchToolArgs,
    ) -> Result<ToolRunOutcome, Error> {
        drop((completion.key()?, args.text));
        Ok(ToolRunOutcome::Pending)
    }
}

/// A tool that returns a megabyte of unique text.
struct LargeResultTool;

impl Tool for LargeResultTool {
    type Args = BenchToolArgs;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("large", "Gives a megabyte.")
    }

    async fn run(&self, (): (), call: Call, _: BenchToolArgs) -> Result<ToolRunOutcome, Error> {
        let mut text = call.id.to_string().repeat(LARGE_RESULT_BYTES / 36 + 1);
        text.truncate(LARGE_RESULT_BYTES);
        done(text)
    }
}

/// The tools of a runtime.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchToolSet {
    /// Only the one that answers immediately.
    Echo,
    /// Also the one that waits.
    EchoAndWait,
    /// Also the one whose result is a megabyte, and the one that reads more of it.
    EchoAndLarge,
}

/// Returns the tools.
pub(crate) fn toolbox(tools: BenchToolSet) -> Result<Toolbox, Error> {
    let mut toolbox = Toolbox::new(Services::default());
    toolbox.add(EchoTool)?;
    match tools {
        BenchToolSet::Echo => {}
        BenchToolSet::EchoAndWait => toolbox.add(WaitTool)?,
        BenchToolSet::EchoAndLarge => {
            toolbox.add(LargeResultTool)?;
            toolbox.add(outlast::tools::ReadMore)?;
        }
    }
    Ok(toolbox)
}

/// Returns the model. Its window is small, so that long and short sessions send it the same amount.
pub(crate) fn model(script: &str) -> Result<Rehearsal, Error> {
    Ok(Rehearsal::scripted(script.parse::<Script>()?, Arc::new(SystemClock)).with_window(4 << 10))
}

/// Returns the agent.
pub(crate) fn package(toolbox: &Toolbox) -> Result<Package, Error> {
    Ok(Package {
        tools: toolbox.manifests().into_iter().map(|manifest| manifest.name).collect(),
        model_calls: 10,
        ..Package::new("bench", "rehearsal/bench".parse()?, "Be quick.")
    })
}

/// Starts a worker on a store.
pub(crate) async fn runtime(
    store: Arc<dyn Store>,
    worker: WorkerId,
    script: &str,
    tools: BenchToolSet,
) -> Result<Runtime, Error> {
    runtime_with(store, worker, model(script)?, tools).await
}

/// Starts a worker with this model.
pub(crate) async fn runtime_with(
    store: Arc<dyn Store>,
    worker: WorkerId,
    model: Rehearsal,
    tools: BenchToolSet,
) -> Result<Runtime, Error> {
    let toolbox = toolbox(tools)?;
    Runtime::start(RuntimeConfig {
        contents: None,
        hooks: Vec::new(),
        plugins: outlast::runtime::agents::plugins::Plugins::default(),
        payments: None,
        policy_engine: None,
        limiter: None,
        sinks: Vec::new(),
        metrics: None,
        store,
        models: vec![Arc::new(model)],
        package: package(&toolbox)?,
        agents: Vec::new(),
        agent_factory: None,
        tools: vec![Arc::new(toolbox)],
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        tasks: Arc::new(TokioTasks),
        limits: Limits::default(),
        worker,
    })
    .await
}

/// Returns a new worker id.
pub(crate) fn worker() -> WorkerId {
    WorkerId::fresh(Millis(1), SystemEntropy.random_id_bytes())
}

/// Sends an input and waits for the end of its turn.
pub(crate) async fn turn(runtime: &Runtime, session: SessionId, text: &str) -> Result<(), Error> {
    let accepted = runtime.submit(Input::text(SessionTarget::Id(session), text)).await?;
    match runtime.outcome(accepted.turn).await? {
        TurnEnd::Answered { .. } => Ok(()),
        end => Err(Error::new(outlast::Kind::Internal, format!("a turn of the benchmark ended as {end:?}"))),
    }
}

/// Opens a new session.
pub(crate) async fn session(runtime: &Runtime) -> Result<SessionId, Error> {
    runtime.store().open(SessionTarget::New(runtime.fresh_session()), runtime.now()).await
}
