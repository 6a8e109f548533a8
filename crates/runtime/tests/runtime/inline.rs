//! The host that keeps nothing (R3.1).
use crate::common::*;
use outlast_ports::clock::Counted;
use outlast_ports::service::Services;
use outlast_ports::tool::{About, Call, Ran, Tool, Toolbox};
use outlast_runtime::cancel::cancel;
use outlast_runtime::catalogue::{Caller, Catalogue};
use outlast_runtime::drive::{Turn, TurnInput, drive};
use outlast_runtime::hooks::Heard;
use outlast_runtime::host::Driven;
use outlast_runtime::inline::Inline;
use outlast_runtime::{Outfit, World};
use outlast_vocab::envelope::effect_id;
use outlast_vocab::label::Labels;
use outlast_vocab::package::Package;
use outlast_vocab::record::End;
use outlast_vocab::{At, Error, Kind, Limits, OrgId, ReplayKey, TurnId};
use std::sync::Arc;
use tokio::sync::watch;

/// A tool that finds that it did something else the last time.
struct Parts;

impl Tool for Parts {
    type Args = Note;
    type Needs = ();

    fn about(&self) -> About {
        About::new("parts", "Parts from its history.")
    }

    async fn run(&self, (): (), _: Call, _: Note) -> Result<Ran, Error> {
        Err(Error::new(Kind::JournalDiverged, "it parted"))
    }
}

async fn run(lines: Vec<Line>, tools: &[&str]) -> Result<Driven, Error> {
    let witness: Arc<Witness> = Arc::default();
    let mut toolbox = Toolbox::new(Services::default());
    toolbox.add(Pay(witness.clone())).unwrap();
    toolbox.add(Stepped(witness.clone())).unwrap();
    toolbox.add(Keep(witness)).unwrap();
    toolbox.add(Parts).unwrap();
    let world = Arc::new(World::new(
        vec![Arc::new(Played(Script::new(lines)))],
        Catalogue::new(vec![Arc::new(toolbox)])?,
        PausedClock::new(),
        Arc::new(Counted::default()),
        Limits::default(),
    ));
    let package = Package {
        tools: tools.iter().map(|tool| tool.parse().unwrap()).collect(),
        model_calls: 5,
        ..Package::new("tester", "test/script".parse()?, "")
    };
    let outfit = Arc::new(Outfit::new(package, &world)?);
    let (_canceller, wish) = cancel();
    let labels = Labels::default();
    let turn = Turn {
        labels: &labels,
        heard: Heard::default(),
        org: Some(OrgId::DEFAULT),
        world: &world,
        outfit: &outfit,
        caller: Caller { session: SESSION, turn: TurnId::from_u128(1) },
        index: 0,
        lease: 1,
        cancel: wish,
        stopping: watch::channel(false).1,
    };
    drive(&turn, TurnInput::text("go"), &mut Inline::default()).await
}

#[tokio::test(start_paused = true)]
async fn the_same_turn_runs_on_a_host_that_keeps_nothing() {
    let driven = run(vec![call("pay", "5"), Line::Say("done")], &["pay"]).await.unwrap();
    assert!(matches!(driven, Driven::Ended(End::Answered { text }) if text == "done"));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_needs_a_durable_host_is_refused_before_anything_runs() {
    let error = run(vec![Line::Say("never said")], &["stepped"]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::HostNotDurable);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_did_not_say_so_is_told_when_it_tries() {
    let driven = run(vec![call("keep", ""), Line::Say("done")], &["keep"]).await.unwrap();
    assert!(matches!(driven, Driven::Ended(End::Answered { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_turn_names_the_organisation_the_effect_and_the_call() {
    let turn = TurnId::from_u128(1);
    let place = At { org: Some(OrgId::DEFAULT), session: Some(SESSION), turn: Some(turn), ..At::default() };
    let refused = run(vec![Line::Say("never said")], &["stepped"]).await.unwrap_err();
    assert_eq!(refused.place(), place);
    let error = run(vec![call("parts", "")], &["parts"]).await.unwrap_err();
    let key = ReplayKey::turn(0).tools(0).child(0, "c0_0");
    let effect = Some(effect_id(turn, &key));
    let call = error.place().call;
    assert_eq!((error.kind(), call.is_some()), (Kind::JournalDiverged, true));
    assert_eq!(error.place(), At { effect, call, ..place });
}
