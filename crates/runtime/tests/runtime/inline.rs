//! The host that keeps nothing (R3.1).
use crate::common::*;
use outlast_ports::clock::Counted;
use outlast_ports::service::Services;
use outlast_ports::tool::Toolbox;
use outlast_runtime::cancel::cancel;
use outlast_runtime::catalogue::{Caller, Catalogue};
use outlast_runtime::drive::{Turn, TurnInput, drive};
use outlast_runtime::hooks::Heard;
use outlast_runtime::host::Driven;
use outlast_runtime::inline::Inline;
use outlast_runtime::{Outfit, World};
use outlast_vocab::label::Labels;
use outlast_vocab::package::Package;
use outlast_vocab::record::End;
use outlast_vocab::{Error, Kind, Limits, TurnId};
use std::sync::Arc;
use tokio::sync::watch;

async fn run(lines: Vec<Line>, tools: &[&str]) -> Result<Driven, Error> {
    let witness: Arc<Witness> = Arc::default();
    let mut toolbox = Toolbox::new(Services::default());
    toolbox.add(Pay(witness.clone())).unwrap();
    toolbox.add(Stepped(witness.clone())).unwrap();
    toolbox.add(Keep(witness)).unwrap();
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
        org: None,
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
