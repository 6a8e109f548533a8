//! Several organisations on one worker: they cannot see each other, and API keys open only their own scopes.
use crate::stage::{Gate, Gatekeeper, scripted};
use outlast::Kind;
use outlast::orgs::AuditRange;
use outlast::prelude::*;
use outlast::runtime::worker::keys::ApiKeyGrant;
use outlast::vocab::Millis;
use outlast::vocab::access::{Principal, Scope};
use outlast::vocab::record::{Seq, TurnEnd};
use outlast::vocab::wait::{Resolution, WaitKind};
use std::sync::Arc;

const SCRIPT: &str = "\
    when pass\ncall gate {\"who\": \"me\"}\n---\nsay {{result gate}}
    when wait\ncall later {}\n---\nsay {{result later}}
    any\nsay Reply to {{input}}.";

/// A call that somebody outside finishes.
#[tool(idempotent)]
async fn later(completion: Completion) -> Result<ToolRunOutcome, Error> {
    completion.key()?;
    Ok(ToolRunOutcome::Pending)
}

async fn start() -> (Outlast, Arc<Gatekeeper>) {
    let keeper = Gatekeeper::new();
    let builder =
        Outlast::ephemeral().provider(scripted(SCRIPT)).service(keeper.clone()).tool(Gate).tool(later);
    let outlast = builder.start().await.unwrap();
    for name in ["acme", "bolt"] {
        outlast.operator().runtime().create_org(name.parse().unwrap()).await.unwrap();
    }
    (outlast, keeper)
}

fn kind<T>(answer: Result<T, Error>) -> Option<Kind> {
    answer.err().map(|error| error.kind())
}

#[tokio::test]
async fn runtime_isolates_organisations() {
    let (outlast, keeper) = start().await;
    let acme = outlast.for_org("acme").await.unwrap();
    let bolt = outlast.for_org("bolt").await.unwrap();
    let ours = acme.session("me").send("hi").await.unwrap();
    let theirs = bolt.session("me").send("ho").await.unwrap();
    assert_ne!(ours.session(), theirs.session());
    assert_eq!(ours.answer().await.unwrap(), "Reply to hi.");
    assert_eq!(theirs.answer().await.unwrap(), "Reply to ho.");

    // Invisible in the store, while it runs, and among recent events.
    assert_eq!(kind(bolt.turn(ours.id()).await), Some(Kind::TurnNotFound));
    assert_eq!(kind(bolt.runtime().outcome(ours.id()).await), Some(Kind::TurnNotFound));
    assert_eq!(kind(bolt.session_by_id(ours.session()).send("hi").await), Some(Kind::SessionNotFound));
    let mut events = bolt.runtime().events(ours.session(), Seq(0));
    assert_eq!(kind(events.next().await), Some(Kind::SessionNotFound));
    let runs = acme.new_session().send("pass").await.unwrap();
    keeper.begun(1).await;
    assert_eq!(kind(bolt.runtime().outcome(runs.id()).await), Some(Kind::TurnNotFound));
    assert_eq!(kind(bolt.runtime().cancel(runs.id(), "stop").await), Some(Kind::TurnNotFound));
    keeper.passes.add_permits(1);
    assert_eq!(runs.answer().await.unwrap(), "me passed");

    assert_eq!(kind(outlast.for_org("nobody").await), Some(Kind::OrgNotFound));
    assert_eq!(kind(outlast.store().session(ours.session()).await), Some(Kind::SessionNotFound));
    assert_eq!(outlast.operator().store().sessions(None, 10).await.unwrap().len(), 3);
    assert_eq!(acme.store().sessions(None, 10).await.unwrap().len(), 2);
    outlast.shut_down().await;
}

#[tokio::test]
async fn completion_key_is_invalid_in_another_organisation() {
    let (outlast, _) = start().await;
    let acme = outlast.for_org("acme").await.unwrap();
    let bolt = outlast.for_org("bolt").await.unwrap();
    let turn = acme.new_session().send("wait").await.unwrap();
    let waiting = loop {
        let waiting = acme.store().waiting(WaitKind::Completion, 9).await.unwrap();
        if let Some(waiting) = waiting.into_iter().next() {
            break waiting;
        }
        tokio::task::yield_now().await;
    };
    let key = acme.store().completion_key(turn.id(), waiting.wait.key.clone()).await.unwrap();
    assert!(bolt.store().waiting(WaitKind::Completion, 9).await.unwrap().is_empty());
    assert_eq!(
        kind(bolt.store().completion_key(turn.id(), waiting.wait.key).await),
        Some(Kind::TurnNotFound)
    );
    let done = || Resolution::Ok("done".into());
    assert_eq!(kind(bolt.runtime().resolve(&key, done()).await), Some(Kind::WaitNotFound));
    assert!(acme.runtime().resolve(&key, done()).await.unwrap().is_yours);
    assert_eq!(turn.outcome().await.unwrap(), TurnEnd::Answered { text: "done".to_owned() });
    outlast.shut_down().await;
}

#[tokio::test]
async fn api_key_acts_within_its_organisation_and_scopes() {
    let (outlast, _) = start().await;
    let operator = outlast.operator();
    let org = operator.runtime().find_org("acme").await.unwrap();
    let issue = |scope: Scope| {
        let by: Principal = "service:ci".parse().unwrap();
        let grant = ApiKeyGrant { org, by, scopes: scope.into(), expires: None };
        operator.runtime().issue_key(grant)
    };
    let (runs, reads) = (issue(Scope::Run).await.unwrap(), issue(Scope::Read).await.unwrap());
    let runner = outlast.with_api_key(&runs.reveal()).await.unwrap();
    let turn = runner.session("me").send("hi").await.unwrap();
    assert_eq!(turn.answer().await.unwrap(), "Reply to hi.");

    let reader = outlast.with_api_key(&reads.reveal()).await.unwrap();
    assert_eq!(reader.turn(turn.id()).await.unwrap().answer().await.unwrap(), "Reply to hi.");
    assert_eq!(kind(reader.session("me").send("ho").await), Some(Kind::AccessDenied));
    assert_eq!(kind(reader.store().delete(turn.session(), Millis(1)).await), Some(Kind::AccessDenied));

    let queued = runner.new_session().send("pass").await.unwrap();
    queued.cancel("enough").await.unwrap();
    let range = AuditRange { after: 0, since: Millis(0), limit: 99 };
    let done = outlast.for_org("acme").await.unwrap().store().audit(range).await.unwrap();
    let done: Vec<String> = done.iter().map(|act| format!("{} {} {}", act.by, act.act, act.detail)).collect();
    assert_eq!(
        done,
        [
            "service:outlast org.create acme",
            "service:outlast key.create for service:ci, may run",
            "service:outlast key.create for service:ci, may read",
            "service:ci turn.cancel enough",
        ]
    );

    operator.store().revoke_key(runs.id, Millis(2)).await.unwrap();
    assert_eq!(kind(outlast.with_api_key(&runs.reveal()).await), Some(Kind::KeyInvalid));
    assert_eq!(kind(outlast.with_api_key("olk_x").await), Some(Kind::KeyInvalid));
    outlast.shut_down().await;
}

#[tokio::test]
async fn builder_uses_the_named_organisation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    let first = Outlast::at(&path).start().await.unwrap();
    let acme = first.operator().runtime().create_org("acme".parse().unwrap()).await.unwrap().id;
    first.shut_down().await;
    for named in ["acme".to_owned(), acme.to_string()] {
        let outlast =
            Outlast::at(&path).org(named).acting_as("person:ann".parse().unwrap()).start().await.unwrap();
        let session = outlast.session("me").send("hi").await.unwrap().session();
        assert_eq!(outlast.store().session(session).await.unwrap().org, acme);
        outlast.shut_down().await;
    }
    assert_eq!(kind(Outlast::at(&path).org("bolt").start().await), Some(Kind::OrgNotFound));
}
