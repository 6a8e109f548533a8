//! The tools of the demo. Each acts during its run, so a kill may come before or after the action.
use super::execution_log::{ExecutionLog, ExecutionRecord};
use outlast::prelude::*;
use outlast::vocab::tool::EffectClass;
use serde_json::json;
use std::time::Duration;

/// How long an action takes at full pace.
const TAKES: Duration = Duration::from_millis(240);

/// One action, with its effect class.
#[derive(Clone, Copy, Debug)]
pub(super) struct DemoAction {
    pub(super) name: &'static str,
    description: &'static str,
    pub(super) class: EffectClass,
    /// Whether a person has to complete it.
    waits: bool,
}

pub(super) const ACTIONS: [DemoAction; 4] = [
    DemoAction { name: "look_up", description: "Looks up a price", class: EffectClass::Pure, waits: false },
    DemoAction {
        name: "reserve",
        description: "Reserves things",
        class: EffectClass::Idempotent,
        waits: false,
    },
    DemoAction {
        name: "ask_person",
        description: "Asks a person",
        class: EffectClass::Idempotent,
        waits: true,
    },
    DemoAction { name: "pay", description: "Pays", class: EffectClass::AtMostOnce, waits: false },
];

/// The duration of actions, in percent of the default.
#[derive(Clone, Copy, Debug)]
pub(super) struct DemoPace(pub(super) u32);

impl DemoPace {
    /// Scales a duration.
    pub(super) fn of(self, time: Duration) -> Duration {
        time * self.0 / 100
    }
}

/// The arguments of an action.
#[derive(Deserialize, JsonSchema)]
#[serde(crate = "outlast::serde")]
#[schemars(crate = "outlast::schemars")]
pub(super) struct DemoActionArgs {
    what: String,
}

impl Tool for DemoAction {
    type Args = DemoActionArgs;
    type Needs = (Service<ExecutionLog>, Service<DemoPace>);

    fn spec(&self) -> ToolSpec {
        let about = ToolSpec::new(self.name, self.description);
        let about = if self.waits { about.durable() } else { about };
        match self.class {
            EffectClass::Pure => about.pure(),
            EffectClass::Idempotent => about.idempotent(),
            EffectClass::Transactional => about.transactional(),
            EffectClass::AtMostOnce => about,
        }
    }

    async fn run(
        &self,
        (witness, pace): Self::Needs,
        call: Call,
        args: DemoActionArgs,
    ) -> Result<ToolRunOutcome, Error> {
        let third = pace.of(TAKES) / 3;
        tokio::time::sleep(third).await;
        witness.saw(&ExecutionRecord {
            tool: self.name.to_owned(),
            call: call.id.to_string(),
            attempt: call.attempt,
            pid: std::process::id(),
        })?;
        if self.waits {
            return Ok(ToolRunOutcome::Pending);
        }
        tokio::time::sleep(2 * third).await;
        let id = call.id.to_string();
        match self.name {
            "look_up" => done(json!({ "what": args.what, "euros": args.what.len() })),
            // The same key gets the same number, as a real reservation service would do.
            _ => done(json!({ "number": id[id.len() - 6..].to_owned() })),
        }
    }
}
