//! Agents in code: several agents, capabilities, and overlays of sessions and turns.
use crate::stage::scripted;
use outlast::prelude::*;
use outlast::tools::Builtin;
use outlast::vocab::overlay::Overlay;
use outlast::vocab::package::{Package, PinnedPackage};
use outlast::{Capability, Kind};
use serde_json::{Value, json};

fn said(value: Value) -> Overlay {
    Overlay::from_json(value).unwrap()
}

/// Returns the package of a turn.
async fn package(outlast: &Outlast, turn: &Turn) -> Package {
    let json = outlast.store().package(turn.id()).await.unwrap();
    serde_json::from_slice::<PinnedPackage>(&json).unwrap().package
}

fn sums() -> Capability {
    Capability::new("sums", |agent| Ok(agent.builtin(Builtin::Calculator))).needs("manners")
}

fn manners() -> Capability {
    Capability::new("manners", |agent| Ok(agent.overlay(said(json!({"system": "Say please."})))))
}

#[tokio::test]
async fn builder_enables_capabilities_after_their_requirements() {
    let builder =
        Outlast::ephemeral().system("Count.").define_capability(sums()).define_capability(manners());
    let builder = builder.enable_capability("sums").unwrap().enable_capability("manners").unwrap();
    let outlast = builder.start().await.unwrap();
    let turn = outlast.session("ann").send("add 2 and 3").await.unwrap();
    assert_eq!(turn.answer().await.unwrap(), "2 + 3 is 5.");
    let package = package(&outlast, &turn).await;
    assert_eq!(package.system, "Count.\n\nSay please.");
    assert_eq!(package.capabilities, ["sums", "manners"]);
    outlast.shut_down().await;
}

#[test]
fn unknown_capability_error_lists_available_capabilities() {
    let error = Outlast::ephemeral().define_capability(sums()).enable_capability("sum").err().unwrap();
    assert_eq!(
        (error.kind(), error.detail()),
        (Kind::CapabilityUnknown, "the capability `sum` does not exist; there are: sums")
    );
    let error = Outlast::ephemeral().define_capability(sums()).enable_capability("sums").err().unwrap();
    assert_eq!(error.detail(), "the capability `manners` does not exist; there are: none");
}

#[tokio::test]
async fn named_agent_uses_its_tools_and_turn_overlay() {
    let script = "when open\ncall open_document {\"path\": \"a.md\"}\n---\nsay {{result open_document}}\n";
    let clerk = Outlast::agent("clerk").model("rehearsal/script").system("Sell.");
    let clerk = clerk.overlay(said(json!({"documents": {"a.md": "tea at five"}})));
    let outlast = Outlast::ephemeral().provider(scripted(script)).add_agent(clerk).start().await.unwrap();
    let session =
        outlast.session("ann").answered_by("clerk").with_overlay(said(json!({"system": "Be brief."})));
    let turn = session.send("open").await.unwrap();
    assert_eq!(turn.answer().await.unwrap(), "tea at five");
    let sending = session
        .send("open")
        .with_overlay(said(json!({"documents": {"a.md": "tea at six"}, "model_calls": 3})));
    let turn = sending.await.unwrap();
    assert_eq!(turn.answer().await.unwrap(), "tea at six");
    let package = package(&outlast, &turn).await;
    assert_eq!((package.agent.as_str(), package.system.as_str()), ("clerk", "Sell.\n\nBe brief."));
    assert_eq!(package.model_calls, 3);
    let refused = outlast.session("ann").send("open").answered_by("judge").await.err().unwrap();
    assert_eq!(refused.kind(), Kind::AgentNotFound);
    outlast.shut_down().await;
}

#[tokio::test]
async fn agent_added_at_runtime_answers_new_inputs() {
    let outlast = Outlast::ephemeral().start().await.unwrap();
    let session = outlast.session("ann").answered_by("counter");
    assert_eq!(session.send("add 2 and 3").await.err().unwrap().kind(), Kind::AgentNotFound);
    let counter = || Outlast::agent("counter").system("Count.").builtin(Builtin::Calculator);
    outlast.put_agent(counter()).unwrap();
    let refused = outlast.put_agent(counter().model("nobody/x")).unwrap_err();
    assert_eq!(refused.kind(), Kind::ModelUnknown);
    let turn = session.send("add 2 and 3").await.unwrap();
    assert_eq!(turn.answer().await.unwrap(), "2 + 3 is 5.");
    assert_eq!(package(&outlast, &turn).await.system, "Count.");
    outlast.shut_down().await;
}
