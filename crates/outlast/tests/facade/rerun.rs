//! Re-runs of a recorded session reuse recorded answers and do not repeat at-most-once calls.
use crate::stage::scripted;
use outlast::orgs::Org;
use outlast::prelude::*;
use outlast::rerun::{Rerun, RerunReport, RerunStart};
use outlast::vocab::Millis;
use outlast::vocab::policy::{Policy, PolicyDecision, Rule};
use outlast::{Builder, Kind, OrgId};
use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// Counts what the tools really did.
#[derive(Default)]
struct RunCounts {
    looked: AtomicU32,
    paid: AtomicU32,
}

/// Looks something up.
#[tool(pure)]
async fn look(
    /// What.
    at: String,
    done: Service<Arc<RunCounts>>,
) -> Result<String, Error> {
    let times = done.looked.fetch_add(1, SeqCst) + 1;
    Ok(format!("{at} seen {times}"))
}

/// Pays.
#[tool]
async fn pay(
    /// How much.
    euros: u32,
    done: Service<Arc<RunCounts>>,
) -> Result<String, Error> {
    done.paid.fetch_add(1, SeqCst);
    Ok(format!("paid {euros}"))
}

const SCRIPT: &str = "turn
say Let me see.
call look {\"at\": \"a\"}
---
call pay {\"euros\": 5}
---
say Paid 5.
turn
say Bye.";

fn agent(script: &str, done: &Arc<RunCounts>) -> Builder {
    let builder = Outlast::ephemeral().provider(scripted(script)).model("rehearsal/clerk");
    builder.service(done.clone()).tool(look).tool(pay)
}

/// Records two turns: one looks and pays, one says goodbye.
async fn recorded(done: &Arc<RunCounts>) -> Cursor<Vec<u8>> {
    let outlast = agent(SCRIPT, done).start().await.unwrap();
    let session = outlast.session("ann");
    session.send("pay five").await.unwrap().answer().await.unwrap();
    let turn = session.send("bye").await.unwrap();
    turn.answer().await.unwrap();
    let mut export = outlast.export(turn.session()).await.unwrap();
    let mut file = Vec::new();
    while let Some(piece) = export.piece().await.unwrap() {
        file.extend_from_slice(piece.as_bytes());
    }
    outlast.shut_down().await;
    Cursor::new(file)
}

fn differences(compared: &RerunReport) -> Vec<String> {
    let turn = |turn: &outlast::rerun::TurnComparison| {
        let calls: Vec<String> = turn.rerun.calls.iter().map(|call| call.result.to_string()).collect();
        format!("{} {} {:?} {}", turn.index, turn.is_same(), turn.rerun.answer, calls.join(" "))
    };
    compared.turns.iter().map(turn).collect()
}

#[tokio::test]
async fn rerun_reuses_recorded_answers_without_repeating_effects() {
    let done: Arc<RunCounts> = Arc::default();
    let file = recorded(&done).await;
    let compared = Rerun::new(file.clone()).run_with(agent(SCRIPT, &done)).await.unwrap();
    assert_eq!(
        differences(&compared),
        ["0 true Some(\"Paid 5.\") \"a seen 1\" \"paid 5\"", "1 true Some(\"Bye.\") "]
    );
    assert_eq!((compared.reused, compared.ran, compared.not_made.len()), (2, 0, 0));
    assert_eq!((done.looked.load(SeqCst), done.paid.load(SeqCst)), (1, 1));
    let live = Rerun::new(file).live().run_with(agent(SCRIPT, &done)).await.unwrap();
    assert_eq!((live.reused, live.ran), (1, 1));
    assert_eq!((done.looked.load(SeqCst), done.paid.load(SeqCst)), (2, 1));
}

#[tokio::test]
async fn rerun_skips_at_most_once_calls_by_default() {
    let done: Arc<RunCounts> = Arc::default();
    let file = recorded(&done).await;
    let more = SCRIPT.replace("\"euros\": 5", "\"euros\": 7");
    let compared = Rerun::new(file.clone()).run_with(agent(&more, &done)).await.unwrap();
    assert_eq!(compared.not_made, ["pay {\"euros\":7}"]);
    assert!(!compared.turns[0].is_same() && compared.turns[1].is_same());
    let result = compared.turns[0].rerun.calls[1].result.to_string();
    assert!(result.starts_with(&format!("\"{}", Kind::CallNotRepeated.code())), "{result}");
    assert_eq!(done.paid.load(SeqCst), 1);
    let twice = SCRIPT.replace("call pay {\"euros\": 5}", "call pay {\"euros\": 5}\ncall pay {\"euros\": 5}");
    let compared = Rerun::new(file.clone()).live().run_with(agent(&twice, &done)).await.unwrap();
    assert_eq!(compared.not_made, ["pay {\"euros\":5}"]);
    assert_eq!(done.paid.load(SeqCst), 1);
    Rerun::new(file).run_at_most_once().run_with(agent(&more, &done)).await.unwrap();
    assert_eq!(done.paid.load(SeqCst), 2);
}

#[tokio::test]
async fn rerun_starts_from_any_turn_or_effect() {
    let done: Arc<RunCounts> = Arc::default();
    let file = recorded(&done).await;
    let other = "any\nsay Something else.";
    let from = |point: &str| Rerun::new(file.clone()).from(point.parse::<RerunStart>().unwrap());
    let compared = from("1").run_with(agent(other, &done)).await.unwrap();
    assert_eq!(differences(&compared), ["1 false Some(\"Something else.\") "]);
    let second = "any\nsay First.\n---\nsay Second.";
    let compared = from("turn/0/model/1").run_with(agent(second, &done)).await.unwrap();
    assert_eq!(
        differences(&compared),
        ["0 false Some(\"Second.\") \"a seen 1\"", "1 false Some(\"First.\") "]
    );
    for (point, kind) in [("7", Kind::TurnNotFound), ("turn/0/model/9", Kind::TurnNotFound)] {
        assert_eq!(from(point).run_with(agent(other, &done)).await.unwrap_err().kind(), kind);
    }
    assert_eq!("here".parse::<RerunStart>().unwrap_err().kind(), Kind::InputInvalid);
    assert_eq!((done.looked.load(SeqCst), done.paid.load(SeqCst)), (1, 1));
}

#[tokio::test]
async fn organisation_rules_apply_in_reruns() {
    let done: Arc<RunCounts> = Arc::default();
    let file = recorded(&done).await;
    let acme = Org { id: OrgId::from_u128(7), name: "acme".parse().unwrap(), created: Millis(0) };
    let deny = PolicyDecision::Deny { reason: "not there".to_owned() };
    let rule =
        Rule { tool: "pay".to_owned(), org: Some(acme.id), ..Rule::new("acme".parse().unwrap(), deny) };
    let more = SCRIPT.replace("\"euros\": 5", "\"euros\": 7");
    let agent = || agent(&more, &done).policy(Policy { rules: vec![rule.clone()] });
    let theirs = Rerun::new(file.clone()).run_at_most_once().as_org(acme).run_with(agent()).await.unwrap();
    let result = theirs.turns[0].rerun.calls[1].result.to_string();
    assert!(result.contains(Kind::PolicyDenied.code()), "{result}");
    assert_eq!(done.paid.load(SeqCst), 1);
    Rerun::new(file).run_at_most_once().run_with(agent()).await.unwrap();
    assert_eq!(done.paid.load(SeqCst), 2);
}

/// Never comes to its end.
#[tool(pure)]
async fn look_for_ever() -> Result<String, Error> {
    std::future::pending().await
}

#[tokio::test]
async fn slow_rerun_is_stopped_at_its_timeout() {
    let done: Arc<RunCounts> = Arc::default();
    let file = recorded(&done).await;
    let stuck = SCRIPT.replace("call look {\"at\": \"a\"}", "call look_for_ever {}");
    let agent = agent(&stuck, &done).tool(look_for_ever);
    let late = Rerun::new(file).timeout(Duration::from_millis(50)).run_with(agent).await.unwrap_err();
    assert_eq!(late.to_string(), "wait.timed_out: the re-run did not end within 0.05 s and was stopped");
}
