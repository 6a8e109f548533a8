//! Several workers on one database: each input is answered once, regardless of which worker accepts or drives it.
use crate::stage::{Gate, Gatekeeper, scripted};
use outlast::Limits;
use outlast::prelude::*;
use outlast::store::SessionState;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const SCRIPT: &str = "\
    when first\ncall gate {\"who\": \"first\"}\n---\nsay {{result gate}}
    when second\ncall gate {\"who\": \"second\"}\n---\nsay {{result gate}}";

struct SharedDatabase {
    _dir: tempfile::TempDir,
    path: PathBuf,
    keeper: Arc<Gatekeeper>,
}

impl SharedDatabase {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { path: dir.path().join("outlast.db"), _dir: dir, keeper: Gatekeeper::new() }
    }

    async fn enter(&self) -> Outlast {
        start(&self.path, &self.keeper).await
    }
}

async fn start(path: &Path, keeper: &Arc<Gatekeeper>) -> Outlast {
    let builder = Outlast::at(path).provider(scripted(SCRIPT)).service(keeper.clone()).tool(Gate);
    builder.limits(Limits { cancel_grace: Duration::ZERO, ..Limits::default() }).start().await.unwrap()
}

#[tokio::test]
async fn input_sent_via_second_runtime_is_answered_once() {
    let shared = SharedDatabase::new();
    let (a, b) = (shared.enter().await, shared.enter().await);
    let first = a.session("ann").send("first").await.unwrap();
    shared.keeper.begun(1).await;
    let second = b.session("ann").send("second").await.unwrap();
    assert_eq!(first.session(), second.session());
    let view = b.store().session(first.session()).await.unwrap();
    assert_eq!((view.state, view.active), (SessionState::Leased, Some(first.id())));

    shared.keeper.passes.add_permits(2);
    assert_eq!(b.turn(first.id()).await.unwrap().answer().await.unwrap(), "first passed");
    assert_eq!(second.answer().await.unwrap(), "second passed");
    assert_eq!(a.turn(second.id()).await.unwrap().answer().await.unwrap(), "second passed");
    assert_eq!(*shared.keeper.log.lock().unwrap(), ["first", "second"]);
    assert_eq!(shared.keeper.entered.load(SeqCst), 2);
    let view = a.store().session(first.session()).await.unwrap();
    assert_eq!((view.state, view.turns), (SessionState::Idle, 2));
    a.shut_down().await;
    b.shut_down().await;
}

#[tokio::test]
async fn same_key_via_two_runtimes_is_one_turn() {
    let shared = SharedDatabase::new();
    let (a, b) = (shared.enter().await, shared.enter().await);
    shared.keeper.passes.add_permits(2);
    let first = a.session("ann").send_once("k", "first").await.unwrap();
    let again = b.session("ann").send_once("k", "first").await.unwrap();
    assert_eq!((first.id(), true), (again.id(), again.duplicate()));
    assert_eq!(again.answer().await.unwrap(), "first passed");
    assert_eq!(shared.keeper.passed.load(SeqCst), 1);
    a.shut_down().await;
    b.shut_down().await;
}

#[tokio::test]
async fn second_runtime_finishes_abandoned_turns() {
    let shared = SharedDatabase::new();
    let (a, b) = (shared.enter().await, shared.enter().await);
    let first = a.session("ann").send("first").await.unwrap();
    shared.keeper.begun(1).await;
    let second = a.session("ann").send("second").await.unwrap();
    shared.keeper.passes.add_permits(1);
    // The tool finishes but the turn does not: it is released before the next model call.
    a.shut_down().await;
    shared.keeper.passes.add_permits(1);
    assert_eq!(b.turn(first.id()).await.unwrap().answer().await.unwrap(), "first passed");
    assert_eq!(b.turn(second.id()).await.unwrap().answer().await.unwrap(), "second passed");
    assert_eq!(*shared.keeper.log.lock().unwrap(), ["first", "second"]);
    b.shut_down().await;
}

#[tokio::test]
async fn cancel_via_second_runtime_stops_the_turn() {
    let shared = SharedDatabase::new();
    let (a, b) = (shared.enter().await, shared.enter().await);
    let turn = a.session("ann").send("first").await.unwrap();
    shared.keeper.begun(1).await;
    b.turn(turn.id()).await.unwrap().cancel("enough").await.unwrap();
    assert_eq!(turn.answer().await.unwrap_err().detail(), "enough");
    // The gate was stopped while it ran and is at most once, so its outcome is unknown.
    let unknown = b.store().unknown(10).await.unwrap();
    assert_eq!(unknown.iter().map(|call| call.tool.as_str()).collect::<Vec<_>>(), ["gate"]);
    a.shut_down().await;
    b.shut_down().await;
}
