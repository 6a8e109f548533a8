//! Tools of every effect class. Each acts during its run, so a kill may come before or after the action.
use super::witness::{Execution, WitnessClient};
use outlast::Builder;
use outlast::prelude::*;
use outlast::vocab::message::ToolResult;
use outlast::vocab::tool::EffectClass;
use outlast::vocab::{CallId, canonical_json};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How long `walk` sleeps between its steps: long enough to park.
const REST: Duration = Duration::from_millis(30);

/// Adds all tools to an agent.
pub(super) fn add(builder: Builder, witness: &Arc<WitnessClient>) -> Builder {
    let simple =
        [("look", EffectClass::Pure), ("reserve", EffectClass::Idempotent), ("pay", EffectClass::AtMostOnce)];
    let builder = simple.into_iter().fold(builder, |builder, (name, class)| {
        builder.tool(SimpleTool { name, class, witness: witness.clone() })
    });
    builder
        .tool(BookTool(witness.clone()))
        .tool(AskTool(witness.clone()))
        .tool(WalkTool(witness.clone()))
        .tool(CountTool(witness.clone()))
}

/// The arguments of a tool call.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(crate = "outlast::serde")]
#[schemars(crate = "outlast::schemars")]
struct TortureToolArgs {
    what: String,
    /// How long the call takes, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ms: Option<u64>,
}

impl TortureToolArgs {
    /// Waits for half of the duration.
    async fn half(&self) {
        if let Some(ms) = self.ms {
            tokio::time::sleep(Duration::from_millis(ms) / 2).await;
        }
    }

    fn execution(&self, tool: &'static str, call: &Call) -> Execution {
        Execution {
            tool,
            call: call.id,
            step: None,
            attempt: call.attempt,
            pid: std::process::id(),
            arguments: canonical_json::fingerprint(self),
            completion: None,
        }
    }
}

/// Returns the same number for the same call, as a real reservation service would do.
fn number(call: CallId) -> String {
    let id = call.to_string();
    id[id.len() - 6..].to_owned()
}

/// A tool that acts once.
struct SimpleTool {
    name: &'static str,
    class: EffectClass,
    witness: Arc<WitnessClient>,
}

impl Tool for SimpleTool {
    type Args = TortureToolArgs;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        let about = ToolSpec::new(self.name, "Acts once.");
        match self.class {
            EffectClass::Pure => about.pure(),
            EffectClass::Idempotent => about.idempotent(),
            EffectClass::Transactional => about.transactional(),
            EffectClass::AtMostOnce => about,
        }
    }

    async fn run(&self, (): (), call: Call, args: TortureToolArgs) -> Result<ToolRunOutcome, Error> {
        args.half().await;
        self.witness.act(&args.execution(self.name, &call)).await?;
        args.half().await;
        done(number(call.id))
    }
}

/// An at-most-once tool with a probe.
struct BookTool(Arc<WitnessClient>);

impl Tool for BookTool {
    type Args = TortureToolArgs;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("book", "Books; can be asked whether it did.")
    }

    async fn run(&self, (): (), call: Call, args: TortureToolArgs) -> Result<ToolRunOutcome, Error> {
        args.half().await;
        self.0.act(&args.execution("book", &call)).await?;
        args.half().await;
        done(number(call.id))
    }

    async fn probe(&self, call: CallId, _: TortureToolArgs) -> Result<ProbeResult, Error> {
        Ok(if self.0.happened(call).await? {
            ProbeResult::Happened(ToolResult::Ok(json!(number(call))))
        } else {
            ProbeResult::DidNotHappen
        })
    }
}

/// A tool that is completed from outside.
struct AskTool(Arc<WitnessClient>);

impl Tool for AskTool {
    type Args = TortureToolArgs;
    type Needs = (Completion,);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("ask", "Asks a person outside.").idempotent().durable()
    }

    async fn run(
        &self,
        (completion,): Self::Needs,
        call: Call,
        args: TortureToolArgs,
    ) -> Result<ToolRunOutcome, Error> {
        let completion = Some(completion.key()?.to_string());
        self.0.act(&Execution { completion, ..args.execution("ask", &call) }).await?;
        Ok(ToolRunOutcome::Pending)
    }
}

/// A tool with two durable steps, a sleep, and a third step.
struct WalkTool(Arc<WitnessClient>);

impl Tool for WalkTool {
    type Args = TortureToolArgs;
    type Needs = (Steps, Timer);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("walk", "Walks in three steps.").idempotent().durable()
    }

    async fn run(
        &self,
        (steps, timer): Self::Needs,
        call: Call,
        args: TortureToolArgs,
    ) -> Result<ToolRunOutcome, Error> {
        let step = |name| {
            let execution = Execution { step: Some(name), ..args.execution("walk", &call) };
            async move { self.0.act(&execution).await.map(|()| name.to_owned()) }
        };
        let left: String = steps.run("left", &args.what, step("left")).await?;
        let right: String = steps.run("right", &left, step("right")).await?;
        timer.sleep(REST).await?;
        let home: String = steps.run("home", &right, step("home")).await?;
        done([left, right, home])
    }
}

/// A tool that counts its calls in a session value.
struct CountTool(Arc<WitnessClient>);

impl Tool for CountTool {
    type Args = TortureToolArgs;
    type Needs = (Values,);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("count", "Counts its calls in the session.").transactional()
    }

    async fn run(
        &self,
        (values,): Self::Needs,
        call: Call,
        args: TortureToolArgs,
    ) -> Result<ToolRunOutcome, Error> {
        self.0.act(&args.execution("count", &call)).await?;
        let count = values.get("count").await?.and_then(|count| count.as_u64()).unwrap_or(0);
        values.set("count", json!(count + 1))?;
        done(count + 1)
    }
}
