//! Invalid trials report why before anything is killed.
use crate::stage::{Shop, agent, shop};
use expect_test::{Expect, expect};
use outlast::prelude::*;
use outlast::trial::Trial;
use outlast::{Builder, Kind};

async fn refused(trial: Trial<Shop>, want: &Expect) {
    let error = trial.kill_every_effect().await.unwrap_err();
    want.assert_eq(&error.to_string());
}

#[tokio::test]
async fn a_trial_without_an_input_is_refused() {
    refused(shop("say hello"), &expect![[r#"input.invalid: a trial needs an input: `.say("…")`"#]]).await;
}

#[tokio::test]
async fn invalid_or_mismatched_script_is_rejected() {
    refused(shop("sing a song").say("hi"), &expect!["script.invalid: line 1: expected window, turn, when, any, ---, say, think, call, broken, delay, error, cut, stall, refuse or length, found `sing`"]).await;
    refused(shop("call rocket {}").say("hi"), &expect!["script.mismatch: line 1 calls `rocket`, but the session has only: ask, ask_user, bake, book, calculator, charge, clock, count, deliver, dice, flaky, look, read_more, ship, todo, value_get, value_list, value_set"]).await;
    refused(
        shop("say one").say("hi").say("again"),
        &expect!["script.mismatch: input 2 (`again`) has no section: there are 1 `turn` and no `any`"],
    )
    .await;
}

#[tokio::test]
async fn trial_step_with_nothing_to_answer_is_rejected() {
    refused(shop("say hello").say("hi").resolve(1), &expect!["input.invalid: step 2 of the trial completes or cancels a waiting turn, but no turn waits at that point"]).await;
    refused(shop("say hello").say("hi").cancel("enough"), &expect!["input.invalid: step 2 of the trial completes or cancels a waiting turn, but no turn waits at that point"]).await;
}

#[tokio::test]
async fn turn_without_a_resolution_breaks_the_trial() {
    let report = shop("call ask {}").say("may I?").kill_every_effect().await.unwrap();
    expect![[r#"
        broken without a crash
          every turn that starts also ends: the turn waits for outside completion at turn/0/tools/0/child:0:call_0/completion, and the trial has no step left that resolves it

        0 crash points, 1 run, 1 broken promise"#]].assert_eq(&report.to_string());
}

#[tokio::test]
async fn an_agent_that_cannot_be_built_is_refused() {
    let trial = Trial::new(|_| Shop::default(), |outlast, shop: &Shop| agent(outlast.builtin_tools(), shop));
    refused(
        trial.script("say hello").say("hi"),
        &expect!["tool.duplicate: two tools are called `clock`; names must be unique"],
    )
    .await;
    let trial = Trial::new(|_| Shop::default(), |_, _: &Shop| Err(Error::new(Kind::IoFailed, "no key")));
    refused(trial.script("say hello").say("hi"), &expect!["io.failed: no key"]).await;
}

#[tokio::test]
async fn panic_while_building_the_agent_ends_the_trial() {
    let trial = Trial::new(|_| Shop::default(), |_, _: &Shop| -> Builder { panic!("no") });
    let want = expect!["internal: code of the trial panicked; see its message above"];
    refused(trial.script("say hello").say("hi"), &want).await;
}

#[test]
#[should_panic(expected = "got `soon`")]
fn invalid_crash_name_is_rejected() {
    let _trial = shop("say hello").say("hi").only_crash("soon");
}
