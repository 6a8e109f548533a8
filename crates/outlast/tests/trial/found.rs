//! The failures that a trial finds, and its report of them.
use crate::stage::{Block, Careless, Charge, Clingy, Fickle, Hang, Shop, shop, with};
use expect_test::{Expect, expect};
use outlast::trial::{CrashRunOutcome, Guarantee, ObservedRun, Trial, TrialReport};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CHARGE: &str = "call charge {\"item\": \"cake\"}\n---\nsay {{result charge}}";

fn charged_once(_: &ObservedRun, shop: &Shop) -> Result<(), String> {
    match shop.did("charged") {
        1 => Ok(()),
        times => Err(format!("charged {times} times")),
    }
}

async fn check(trial: Trial<Shop>, want: &Expect) -> TrialReport {
    let report = trial.kill_every_effect().await.unwrap();
    want.assert_eq(&report.to_string());
    report
}

#[tokio::test]
async fn trial_finds_a_tool_that_ignores_its_key() {
    let trial = with(Careless, CHARGE).say("cake").invariant(charged_once);
    let report = check(
        trial,
        &expect![[r#"
            write  what is written                 before  after
            1      session opened, input accepted  kept    kept
            2      reply, charge claimed           kept    kept
            3      charge answered                 BROKEN  kept
            4      reply, turn answered            kept    kept

            while a tool runs  which   during
            call-1:during      charge  BROKEN

            broken at 3:before (charge answered)
              your invariant: charged 2 times
              run only this one: .only("3:before")

            broken at call-1:during (charge)
              your invariant: charged 2 times
              run only this one: .only("call-1:during")

            9 crash points, 11 runs, 2 broken promises"#]],
    )
    .await;
    assert!(report.broken.iter().all(|broken| broken.promise == Guarantee::Invariant));
}

#[tokio::test]
async fn single_crash_is_repeated_by_its_name() {
    let trial = with(Careless, CHARGE)
        .say("cake")
        .invariant(charged_once)
        .only_crash("3:before")
        .only_crash("3:after");
    check(
        trial,
        &expect![[r#"
            write  what is written  before  after
            3      charge answered  BROKEN  kept

            broken at 3:before (charge answered)
              your invariant: charged 2 times
              run only this one: .only("3:before")

            2 crash points, 4 runs, 1 broken promise"#]],
    )
    .await;
}

#[tokio::test]
async fn panicking_invariant_breaks_the_trial() {
    let trial = with(Careless, CHARGE).say("cake").only_crash("3:before");
    let trial = trial.invariant(|_: &ObservedRun, shop| assert!(shop.did("charged") == 1, "charged twice"));
    let report = trial.kill_every_effect().await.unwrap();
    let details: Vec<&str> = report.broken.iter().map(|broken| broken.detail.as_str()).collect();
    assert_eq!(details, ["charged twice"]);
}

#[tokio::test]
async fn tool_with_diverging_steps_is_found_stuck() {
    let trial = with(Fickle, "call fickle {}\n---\nsay done").say("go").only_crash("3:after");
    check(trial, &expect![[r#"
        write  what is written  before  after
        3      step `step`              BROKEN

        broken at 3:after (step `step`)
          every turn that starts also ends: the turn is stuck: journal.diverged: effect turn/0/tools/0/child:0:call_0/step:step was recorded as durable_step, but this run asks for another durable_step; first difference at /durable_step/input: recorded 0, asked 1
          run only this one: .only("3:after")

        1 crash point, 3 runs, 1 broken promise"#]]).await;
}

#[tokio::test]
async fn failure_without_a_crash_is_reported_first() {
    let trial = with(Charge, CHARGE).say("cake").invariant(|_: &ObservedRun, _| Err("it is Monday"));
    check(
        trial,
        &expect![[r#"
        broken without a crash
          your invariant: it is Monday

        0 crash points, 1 run, 1 broken promise"#]],
    )
    .await;
    let once = with(Charge, CHARGE).say("cake").invariant(|_: &ObservedRun, _| Err("it is Monday"));
    let report = once.run_once().await.unwrap();
    assert_eq!(report.summary(), "0 crash points, 1 run, 1 broken promise");
}

#[tokio::test]
async fn hanging_tool_is_named() {
    let trial = with(Hang, "call hang {}").say("go").timeout(Duration::from_secs(1));
    check(
        trial,
        &expect![[r#"
        broken without a crash
          every turn that starts also ends: the turn did not pause or end within 1 s; the last tool that ran is `hang`

        0 crash points, 1 run, 1 broken promise"#]],
    )
    .await;
}

#[tokio::test]
async fn tool_that_blocks_its_thread_is_abandoned() {
    let trial = with(Block, "call block {}").say("go").timeout(Duration::from_millis(100));
    check(
        trial,
        &expect![[r#"
        broken without a crash
          every turn that starts also ends: a tool blocked its thread and could not be stopped

        0 crash points, 1 run, 1 broken promise"#]],
    )
    .await;
}

#[tokio::test]
async fn tool_that_keeps_its_process_alive_is_found() {
    let trial = with(Clingy, "call clingy {}\n---\nsay done").say("go");
    check(trial, &expect![[r#"
        broken without a crash
          every turn that starts also ends: a thread of a tool keeps its process alive, so the next process cannot start

        0 crash points, 1 run, 1 broken promise"#]]).await;
}

#[tokio::test]
async fn unreached_crash_point_is_reported() {
    let trial = with(Charge, CHARGE).say("cake").only_crash("99:before").only_crash("call-7:during");
    let report = check(
        trial,
        &expect![[r#"
        write  what is written  before       after
        99     was not reached  not reached

        while a tool runs  which            during
        call-7:during      was not reached  not reached

        2 crash points (2 not reached), 4 runs, 0 broken promises"#]],
    )
    .await;
    assert!(report.tried.iter().all(|tried| tried.outcome == CrashRunOutcome::NotReached));
}

#[tokio::test]
async fn broken_run_database_is_kept_in_chosen_directory() {
    let dir = tempfile::tempdir().unwrap();
    let trial = with(Careless, CHARGE).say("cake").invariant(charged_once).keep_failed_runs(dir.path());
    let report = trial.only_crash("3:before").only_crash("3:after").kill_every_effect().await.unwrap();
    let directory = report.broken[0].dir.as_ref().unwrap();
    assert!(directory.starts_with(dir.path()) && directory.join("outlast.db").exists());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "runs without fault leave nothing");
    let line = format!("  its database: {}\n", directory.join("outlast.db").display());
    assert!(report.to_string().contains(&line), "{report}");
}

#[tokio::test]
async fn trial_reports_its_progress() {
    let details: Arc<Mutex<Vec<(usize, usize)>>> = Arc::default();
    let watched = details.clone();
    let trial = shop("say hello").say("hi");
    let trial = trial.on_progress(move |progress| watched.lock().unwrap().push((progress.done, progress.of)));
    trial.kill_every_effect().await.unwrap().assert_guarantees();
    assert_eq!(*details.lock().unwrap(), [(1, 6), (2, 6), (3, 6), (4, 6), (5, 6), (6, 6)]);
}

#[tokio::test]
async fn trial_report_serializes_as_json() {
    let trial = with(Careless, CHARGE).say("cake").invariant(charged_once).only_crash("3:before");
    let report = trial.kill_every_effect().await.unwrap();
    expect![[r#"
        {
          "tried": [
            {
              "crash": "3:before",
              "what": "charge answered",
              "outcome": "broken"
            }
          ],
          "runs": 3,
          "broken": [
            {
              "crash": "3:before",
              "what": "charge answered",
              "promise": "invariant",
              "detail": "charged 2 times"
            }
          ]
        }"#]]
    .assert_eq(&outlast::serde_json::to_string_pretty(&report).unwrap());
}
