//! Correct agents, killed at every point.
use crate::server::{KeyServer, Phone};
use crate::stage::{Charge, shop, with};
use outlast::serde_json::json;
use outlast::trial::{CrashRunOutcome, ObservedRun, Trial};
use outlast::vocab::record::TurnEnd;

/// Kills the agent at every point, and checks that every crash is reached and no promise broken. Returns the number of
/// crashes.
async fn assert_guarantees<W: Send + Sync + 'static>(trial: Trial<W>) -> usize {
    let report = trial.kill_every_effect().await.unwrap();
    report.assert_guarantees();
    assert!(report.tried.iter().all(|tried| tried.outcome == CrashRunOutcome::Kept), "{report}");
    assert_eq!(report.runs, report.tried.len() + 2);
    report.tried.len()
}

#[tokio::test]
async fn keyed_charge_happens_once_despite_crashes() {
    let trial = with(Charge, "call charge {\"item\": \"cake\"}\n---\nsay {{result charge}}").say("cake");
    let trial = trial.invariant(|seen: &ObservedRun, shop| {
        assert_eq!(seen.answer(), "charged cake");
        assert_eq!(shop.did("charged"), 1);
    });
    // Four writes (accepted; reply and claim; answer; reply and end), each before and after. The tool waits once.
    assert_eq!(assert_guarantees(trial).await, 9);
}

#[tokio::test]
async fn at_most_once_call_never_repeats_after_crashes() {
    let trial = shop("call ship {\"item\": \"cake\"}\n---\nsay {{result ship}}").say("cake");
    let trial = trial.invariant(|seen: &ObservedRun, shop| {
        let [ship] = seen.calls_of("ship").collect::<Vec<_>>()[..] else { panic!("one call") };
        assert!(ship.runs <= 1);
        if seen.has_unknown() {
            assert!(shop.did("shipped") <= 1);
        } else {
            assert_eq!((seen.answer(), shop.did("shipped")), ("shipped cake", 1));
        }
    });
    assert_eq!(assert_guarantees(trial).await, 9);
}

#[tokio::test]
async fn mixed_batch_ends_the_same_despite_crashes() {
    let script = "\
        call look {\"item\": \"cake\"}
        call charge {\"item\": \"cake\"}
        call ship {\"item\": \"cake\"}
        call book {\"item\": \"table\"}
        call count {}
        ---
        call flaky {}
        call count {}
        ---
        say Done.";
    let trial = shop(script).say("everything").invariant(|seen: &ObservedRun, shop| {
        assert_eq!(shop.did("charged"), 1);
        assert!(shop.did("shipped") <= 1 && shop.did("booked") <= 1);
        assert_eq!(seen.values["count"], json!(2));
    });
    assert_guarantees(trial).await;
}

#[tokio::test]
async fn trial_skips_a_day_long_sleep() {
    let trial = shop("call bake {\"item\": \"cake\"}\n---\nsay {{result bake}}").say("bake");
    assert_guarantees(
        trial.invariant(|seen: &ObservedRun, _| assert_eq!(seen.answer(), "cake from dough for cake")),
    )
    .await;
}

#[tokio::test]
async fn external_actions_apply_in_every_process() {
    let script = "call ask {}\n---\nsay {{result ask}}\nwhen hurry\nsay Hurrying: {{result ask}}";
    let resolved = shop(script).say("may I?").resolve("yes");
    assert_guarantees(resolved.invariant(|seen: &ObservedRun, _| assert_eq!(seen.answer(), "yes"))).await;
    let steered = shop(script).say("may I?").steer("hurry").resolve("yes");
    assert_guarantees(
        steered.invariant(|seen: &ObservedRun, _| assert!(matches!(seen.ends[1], TurnEnd::Joined { .. }))),
    )
    .await;
    let cancelled = shop(script).say("may I?").cancel("enough");
    assert_guarantees(
        cancelled
            .invariant(|seen: &ObservedRun, _| assert!(matches!(seen.ends[0], TurnEnd::Cancelled { .. }))),
    )
    .await;
}

#[tokio::test]
async fn queued_input_is_answered_after_the_waiting_turn() {
    let trial = shop("call ask {}\n---\nsay {{result ask}}\nturn\nsay two").say("may I?").say("and?");
    assert_guarantees(
        trial
            .resolve("yes")
            .invariant(|seen: &ObservedRun, _| assert_eq!((seen.ends.len(), seen.answer()), (2, "two"))),
    )
    .await;
}

#[tokio::test]
async fn at_most_once_call_may_wait_without_rerunning() {
    let script = "call deliver {\"item\": \"cake\"}\n---\nsay {{result deliver}}";
    assert_guarantees(
        shop(script)
            .say("deliver")
            .resolve(7)
            .invariant(|_: &ObservedRun, shop| assert!(shop.did("delivered") <= 1)),
    )
    .await;
    // No event arrives: the wait ends at its deadline, a day later.
    assert_guarantees(shop(script).say("deliver")).await;
}

#[tokio::test]
async fn varying_tool_results_are_not_compared() {
    let script = "call clock {}\ncall dice {}\n---\nsay It is {{result clock}}, {{result dice}}.";
    assert_guarantees(shop(script).say("time?")).await;
}

#[tokio::test]
async fn two_crashes_in_one_run_keep_guarantees() {
    let report = shop("say hello").say("hi").crash_twice().kill_every_effect().await.unwrap();
    report.assert_guarantees();
    let doubles = report.tried.iter().filter(|tried| tried.crash.points().len() == 2).count();
    assert_eq!(report.tried.len(), 4 + doubles);
    // The second process sends the input again and drives the turn: at least two writes, each before and after.
    assert!(doubles >= 16, "{report}");
}

#[tokio::test]
async fn twice_interrupted_charge_happens_once() {
    let trial = with(Charge, "call charge {\"item\": \"cake\"}\n---\nsay {{result charge}}").say("cake");
    let trial = trial
        .only_crash("3:before+3:before")
        .only_crash("call-1:during+3:before")
        .only_crash("call-1:during+call-1:during");
    let trial = trial.invariant(|seen: &ObservedRun, shop| {
        let lives = 1 + seen.crash.points().len();
        assert_eq!(seen.calls[0].runs, lives, "it began anew in each process");
        assert_eq!(shop.did("charged"), 1);
    });
    let report = trial.kill_every_effect().await.unwrap();
    report.assert_guarantees();
}

#[tokio::test]
async fn tool_may_call_a_server_that_survives_crashes() {
    let trial = Trial::new(
        |_| KeyServer::open(),
        |outlast, service: &KeyServer| outlast.tool(Phone(service.address)),
    );
    let trial = trial.script("call phone {}\n---\nsay {{result phone}}").say("call them");
    let trial = trial.invariant(|seen: &ObservedRun, service| {
        assert_eq!(seen.answer(), "heard");
        assert_eq!(service.keys().len(), 1, "one key, however often it was called");
    });
    let report = trial.kill_every_effect().await.unwrap();
    report.assert_guarantees();
}
