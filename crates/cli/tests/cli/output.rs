//! Tests of the terminal output, and of a terminal that is gone.
use crate::place::Place;
use expect_test::expect;
use std::fs::OpenOptions;
use std::process::Stdio;

#[test]
fn cost_command_sums_model_costs() {
    let place = Place::with_script("say hi");
    place.check(
        "cost
         run hi --session ann --script script.txt
         cost
         cost --by agent --json
         cost --by tool
         cost --by session --session bob",
        &expect![[r#"
            $ cost
            | error[io.failed]: there is no database at ./outlast.db; `outlast run` creates one, `--data FILE` selects another
            |   read on with: outlast explain io.failed
            exit 1
            $ run hi --session ann --script script.txt
            hi
            $ cost
            NAME                       REPLIES  INPUT       FROM CACHE  OUTPUT      COST
            rehearsal/script-f7022dcc  1        23          0           1           $0
            | · $0 in all, and 1 reply without a known price
            $ cost --by agent --json
            {"cost":"0","name":"assistant","replies":1,"unpriced":1,"usage":{"input":23,"output":1}}
            $ cost --by tool
            | · no tool has called a model, and no tool with a price was called
            $ cost --by session --session bob
            | error[session.not_found]: no session has the key `bob`
            |   read on with: outlast explain session.not_found
            exit 1
        "#]],
    );
}

#[test]
fn external_control_characters_are_escaped() {
    let place = Place::with_script("say \u{1b}[2J\u{1b}]0;owned\u{7}clear\rover \u{202e}drawkcab");
    let output = place.output(&["run", "evil \u{1b}[31m", "--session", "ann", "--script", "script.txt"]);
    expect![[r#"
        \u{1b}[2J\u{1b}]0;owned\u{7}clear\u{d}over \u{202e}drawkcab
    "#]]
    .assert_eq(&place.show(&output));
    place.check(
        "sessions show ann
         sessions list
         events ann",
        &expect![[r#"
            $ sessions show ann
            ses_1 `ann` idle, 1 turn, updated TIME
            head main at #4 of ses_1
            trn_1 answered
            #2    user evil \u{1b}[31m
            #4    assistant \u{1b}[2J\u{1b}]0;owned\u{7}clear\u{d}over \u{202e}drawkcab
            $ sessions list
            SESSION                               KEY  STATE  TURNS  UPDATED               TITLE
            ses_1  ann  idle   1      TIME  evil \u{1b}[31m
            $ events ann
            TIME #1 session.opened key `ann`
            TIME #2 turn.accepted "evil \u{1b}[31m"
            TIME #3 turn.started on main after the beginning
            TIME #4 effect.performed turn/0/model/0: "\u{1b}[2J\u{1b}]0;owned\u{7}clear\u{d}over \u{202e}drawkcab"
            TIME #5 turn.ended answered: "\u{1b}[2J\u{1b}]0;owned\u{7}clear\u{d}over \u{202e}drawkcab"
        "#]],
    );
}

#[test]
fn closed_output_ends_quietly_without_losing_the_turn() {
    let place = Place::with_script("say One two three.\ndelay 300ms\nsay Four.");
    let mut child = place
        .command(&["run", "count", "--session", "ann", "--script", "script.txt"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    expect![[r#""#]].assert_eq(&place.show(&child.wait_with_output().unwrap()));
    place.check(
        "work --script script.txt
         sessions show ann",
        &expect![[r#"
            $ work --script script.txt
            ses_1 #6 turn.ended answered: "One two three.⏎Four."
            | · no turn can continue now
            $ sessions show ann
            ses_1 `ann` idle, 1 turn, updated TIME
            head main at #5 of ses_1
            trn_1 answered
            #2    user count
            #5    assistant One two three.
                  Four.
        "#]],
    );
}

#[cfg(target_os = "linux")]
#[test]
fn unwritable_output_is_an_error() {
    let place = Place::new();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = place.command(&["explain"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    expect![[r#"
        | error[io.failed]: standard output cannot be written: No space left on device (os error 28)
        |   read on with: outlast explain io.failed
        exit 1
    "#]]
    .assert_eq(&place.show(&output));
}
