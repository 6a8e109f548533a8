//! The in-memory host, which stores nothing.
use crate::common::*;
use outlast_ports::clock::CountingEntropy;
use outlast_ports::service::Services;
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, Toolbox};
use outlast_runtime::calls::catalogue::{CallingTurn, ToolCatalogue};
use outlast_runtime::turn::cancel::{StopSignals, cancel};
use outlast_runtime::turn::drive::TurnDriver;
use outlast_runtime::turn::host::DriveOutcome;
use outlast_runtime::turn::inline_host::InlineHost;
use outlast_runtime::turn::model_client::ModelCatalogue;
use outlast_runtime::turn::provenance::TextSources;
use outlast_runtime::turn::turn_run::TurnRun;
use outlast_runtime::{AgentResolver, ResolvedAgent};
use outlast_vocab::envelope::effect_id;
use outlast_vocab::package::Package;
use outlast_vocab::record::{TurnAccepted, TurnEnd};
use outlast_vocab::{Error, ErrorPlace, Kind, Limits, OrgId, ReplayKey, TurnId};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::watch;

/// A tool whose second run diverges from the first.
struct Parts;

impl Tool for Parts {
    type Args = Note;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("parts", "Parts from its history.")
    }

    async fn run(&self, (): (), _: Call, _: Note) -> Result<ToolRunOutcome, Error> {
        Err(Error::new(Kind::JournalDiverged, "it parted"))
    }
}

async fn run(lines: Vec<Line>, tools: &[&str]) -> Result<DriveOutcome, Error> {
    run_input(lines, tools, TurnAccepted::text("go")).await
}

async fn run_input(lines: Vec<Line>, tools: &[&str], input: TurnAccepted) -> Result<DriveOutcome, Error> {
    let witness: Arc<Witness> = Arc::default();
    let mut toolbox = Toolbox::new(Services::default());
    toolbox.add(Pay(witness.clone())).unwrap();
    toolbox.add(Stepped(witness.clone())).unwrap();
    toolbox.add(Keep(witness)).unwrap();
    toolbox.add(Parts).unwrap();
    let models = Arc::new(ModelCatalogue::new(vec![Arc::new(ScriptedModel(Script::new(lines)))]));
    let (catalogue, limits) = (ToolCatalogue::new(vec![Arc::new(toolbox)])?, Arc::new(Limits::default()));
    let resolver = AgentResolver::new(models.clone(), catalogue, PausedClock::new(), limits.clone());
    let entropy = Arc::new(CountingEntropy::default());
    let driver = TurnDriver::new(models, PausedClock::new(), entropy, limits);
    let package = Package {
        tools: tools.iter().map(|tool| tool.parse().unwrap()).collect(),
        model_calls: 5,
        ..Package::new("tester", "test/script".parse()?, "")
    };
    let agent = Arc::new(ResolvedAgent::new(package, &resolver)?);
    let (_canceller, cancel) = cancel();
    let stop = StopSignals { cancel, stopping: watch::channel(false).1 };
    let caller = CallingTurn { session: SESSION, turn: TurnId::from_u128(1) };
    let run = TurnRun { agent: &agent, caller, index: 0, lease: 1, org: Some(OrgId::DEFAULT) };
    driver.drive(run, &TextSources::default(), &stop, input, &mut InlineHost::default()).await
}

#[tokio::test(start_paused = true)]
async fn same_turn_runs_on_inline_host() {
    let driven = run(vec![call("pay", "5"), Line::Say("done")], &["pay"]).await.unwrap();
    assert!(matches!(driven, DriveOutcome::Ended(TurnEnd::Answered { text }) if text == "done"));
}

#[tokio::test(start_paused = true)]
async fn inline_host_refuses_durable_tool_before_running() {
    let error = run(vec![Line::Say("never said")], &["stepped"]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::HostNotDurable);
}

#[tokio::test(start_paused = true)]
async fn undeclared_durable_tool_gets_error_when_used() {
    let driven = run(vec![call("keep", ""), Line::Say("done")], &["keep"]).await.unwrap();
    assert!(matches!(driven, DriveOutcome::Ended(TurnEnd::Answered { .. })));
}

#[tokio::test(start_paused = true)]
async fn turn_error_names_organisation_effect_and_call() {
    let turn = TurnId::from_u128(1);
    let place = ErrorPlace {
        org: Some(OrgId::DEFAULT),
        session: Some(SESSION),
        turn: Some(turn),
        ..ErrorPlace::default()
    };
    let refused = run(vec![Line::Say("never said")], &["stepped"]).await.unwrap_err();
    assert_eq!(refused.place(), place);
    let error = run(vec![call("parts", "")], &["parts"]).await.unwrap_err();
    let key = ReplayKey::turn(0).tools(0).child(0, "c0_0");
    let effect = Some(effect_id(turn, &key));
    let call = error.place().call;
    assert_eq!((error.kind(), call.is_some()), (Kind::JournalDiverged, true));
    assert_eq!(error.place(), ErrorPlace { effect, call, ..place });
}

/// Returns a schema of a few kilobytes that takes 2^39 steps to validate against.
fn doubling() -> Value {
    let link = |level: usize| {
        let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
        (format!("d{level}"), json!({ "allOf": [next, next] }))
    };
    let mut defs: serde_json::Map<String, Value> = (0..39).map(link).collect();
    defs.insert("d39".to_owned(), json!(true));
    json!({ "$ref": "#/$defs/d0", "$defs": defs })
}

/// An earlier version accepted such inputs, and they may still be stored.
#[tokio::test(start_paused = true)]
async fn stored_turn_with_oversized_schema_fails() {
    let input = TurnAccepted { output: Some(doubling()), ..TurnAccepted::text("go") };
    let driven = run_input(vec![Line::Say("1")], &[], input).await.unwrap();
    let DriveOutcome::Ended(TurnEnd::Failed { failure }) = driven else { panic!("{driven:?}") };
    assert_eq!(
        (failure.code, failure.detail.as_str()),
        (
            Kind::LimitExceeded,
            "the schema of the answer is too large: schema_size is limited to 20000, but with its references written out this \
             needs 2199023255550"
        )
    );
}

/// The schema is small, but it recurses twice at each level of the answer.
#[tokio::test(start_paused = true)]
async fn answer_that_takes_too_long_fails() {
    let schema = json!({
        "properties": { "a": { "$ref": "#" } },
        "allOf": [{ "properties": { "a": { "$ref": "#" } } }]
    });
    let answer = (0..60).fold("1".to_owned(), |value, _| format!("{{\"a\":{value}}}"));
    let input = TurnAccepted { output: Some(schema), ..TurnAccepted::text("go") };
    let error = run_input(vec![Line::Say(answer.leak())], &[], input).await.unwrap_err();
    assert_eq!(error.kind(), Kind::LimitExceeded);
}
