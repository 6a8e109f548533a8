//! Tests of `outlast run`.
use crate::place::Place;
use expect_test::expect;
use serde_json::Value;
use std::io::Read;
use std::process::{Child, Command, Stdio};

#[test]
fn run_prints_answer_and_reports_tools_on_stderr() {
    let place = Place::with_script(
        "say I will see.\ncall calculator {\"expression\": \"6*7\"}\n---\nsay It is {{result calculator}}.",
    );
    place.check(
        "run 'six times seven?' --script script.txt",
        &expect![[r#"
            $ run 'six times seven?' --script script.txt
            I will see.
            It is 42.
            | · session ses_1
            | · calculator {"expression":"6*7"}
            | · calculator → 42
        "#]],
    );
}

#[test]
fn run_without_a_script_uses_rehearsal_rules() {
    Place::new().check(
        "run 'what is 2*(3+4)?'",
        &expect![[r#"
            $ run 'what is 2*(3+4)?'
            2*(3+4) is 14.
            | · session ses_1
            | · calculator {"expression":"2*(3+4)"}
            | · calculator → 14
        "#]],
    );
}

#[test]
fn run_fails_if_the_answer_violates_its_schema() {
    let place = Place::with_script("turn\nsay forty-two\nturn\nsay 42\nany\nsay still not");
    place.write("number.json", r#"{"type": "number"}"#);
    place.write("none.json", r#"{"type": 3}"#);
    place.check(
        "run 'six times seven?' --script script.txt --schema number.json
         run 'once more' --script script.txt --schema none.json
         run 'once more' --script script.txt --schema absent.json",
        &expect![[r#"
            $ run 'six times seven?' --script script.txt --schema number.json
            42
            | · session ses_1
            | · the answer does not match its schema; the model gets the errors and answers again
            $ run 'once more' --script script.txt --schema none.json
            | error[input.invalid]: the schema of the answer is no JSON Schema: 3 is not valid under any of the schemas listed in the 'anyOf' keyword
            |   read on with: outlast explain input.invalid
            exit 1
            $ run 'once more' --script script.txt --schema absent.json
            | error[io.failed]: absent.json cannot be read: No such file or directory (os error 2)
            |   read on with: outlast explain io.failed
            exit 1
        "#]],
    );
}

#[test]
fn attached_file_can_be_saved_again() {
    let place = Place::with_script("say I see.");
    place.write("note.txt", "twelve words");
    place.check(
        "run 'what is this?' --session ann --attach note.txt --script script.txt
         attachments ann
         attachments bob
         run 'and this?' --session ann --attach absent.png --script script.txt
         run '' --session ann --attach note.txt --script script.txt",
        &expect![[r#"
            $ run 'what is this?' --session ann --attach note.txt --script script.txt
            I see.
            $ attachments ann
            att_a3d047118c74ee8db807fd9513e993db text/plain 12 bytes note.txt
            $ attachments bob
            | error[session.not_found]: no session has the key `bob`
            |   read on with: outlast explain session.not_found
            exit 1
            $ run 'and this?' --session ann --attach absent.png --script script.txt
            | error[io.failed]: absent.png cannot be read: No such file or directory (os error 2)
            |   read on with: outlast explain io.failed
            exit 1
            $ run '' --session ann --attach note.txt --script script.txt
            | error[script.mismatch]: input 2 (``) has no section: there are 1 `turn` and no `any` (in trn_1)
            |   read on with: outlast explain script.mismatch
            exit 1
        "#]],
    );
    let listed = place.output(&["attachments", "ann"]);
    let id = String::from_utf8(listed.stdout).unwrap().split(' ').next().unwrap().to_owned();
    assert!(place.output(&["attachments", "ann", "--save", &id, "--to", "copy.txt"]).status.success());
    assert_eq!(std::fs::read_to_string(place.path().join("copy.txt")).unwrap(), "twelve words");
    // An existing file is not overwritten.
    assert!(!place.output(&["attachments", "ann", "--save", &id, "--to", "copy.txt"]).status.success());
}

#[test]
fn same_input_key_yields_the_same_turn() {
    let place = Place::with_script("turn\nsay One.\nturn\nsay Two.");
    place.check(
        "run order --session ann --key k1 --script script.txt
         run order --session ann --key k1 --script script.txt
         run other --session ann --key k1 --script script.txt
         run order --session ann --script script.txt
         sessions list",
        &expect![[r#"
            $ run order --session ann --key k1 --script script.txt
            One.
            $ run order --session ann --key k1 --script script.txt
            One.
            $ run other --session ann --key k1 --script script.txt
            | error[input.key_reused]: the idempotency key `k1` was used for trn_1 with another input
            |   read on with: outlast explain input.key_reused
            exit 1
            $ run order --session ann --script script.txt
            Two.
            $ sessions list
            SESSION                               KEY  STATE  TURNS  UPDATED               TITLE
            ses_1  ann  idle   2      TIME  order
        "#]],
    );
}

#[test]
fn json_frames_have_gapless_sequence_numbers() {
    let place = Place::with_script("say a b c\ncall clock {}\n---\nsay d");
    let output = place.output(&["run", "hi", "--json", "--script", "script.txt"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let frames: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seqs: Vec<u64> = frames.iter().filter_map(|frame| frame["seq"].as_u64()).collect();
    let gapless: Vec<u64> = (2..).take(seqs.len()).collect();
    assert_eq!(seqs, gapless);
    assert_eq!(frames[0]["type"], "turn.accepted");
    assert_eq!(frames.last().unwrap()["type"], "turn.ended");
}

#[test]
fn text_repeated_by_a_retry_is_printed_once() {
    let place = Place::with_script("say Half of\ncut once\nsay the answer.");
    place.check(
        "run go --session ann --script script.txt",
        &expect![[r#"
            $ run go --session ann --script script.txt
            Half of
            the answer.
        "#]],
    );
}

#[test]
fn dash_reads_the_input_from_stdin() {
    let place = Place::with_script("say You said {{input}}.");
    let args = ["run", "-", "--session", "ann", "--script", "script.txt"];
    expect![[r#"
        You said två
        lines.
    "#]]
    .assert_eq(&place.show(&place.fed(&args, "två\nlines\n".as_bytes())));
}

#[test]
fn permanent_model_error_fails_the_run() {
    let place = Place::with_script("error model.rejected the key is wrong");
    place.check(
        "run go --session ann --script script.txt",
        &expect![[r#"
            $ run go --session ann --script script.txt
            | error[model.rejected]: the key is wrong (in trn_1)
            |   read on with: outlast explain model.rejected
            exit 1
        "#]],
    );
}

#[test]
fn control_c_cancels_the_turn() {
    let place = Place::with_script("say Wait\ndelay 10m\nsay for it.");
    let mut child = place
        .command(&["run", "go", "--session", "ann", "--script", "script.txt"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut spoken = [0; 4];
    child.stdout.as_mut().unwrap().read_exact(&mut spoken).unwrap();
    assert_eq!(&spoken, b"Wait");
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    expect![[r#"

        | · stopping; press Ctrl-C again to exit immediately
        | error[turn.cancelled]: interrupted at the terminal (in trn_1)
        |   read on with: outlast explain turn.cancelled
        exit 1
    "#]]
    .assert_eq(&place.show(&child.wait_with_output().unwrap()));
    place.check(
        "sessions show ann",
        &expect![[r#"
            $ sessions show ann
            ses_1 `ann` idle, 1 turn, updated TIME
            last turn trn_1 cancelled: interrupted at the terminal
            head main at #5 of ses_1
            trn_1 cancelled: interrupted at the terminal
            #2    user go
            #5    assistant Wait

                  [interrupted: the turn was cancelled before this reply was complete]
        "#]],
    );
}

#[test]
fn concurrent_processes_share_one_database() {
    let place = Place::with_script("any\nsay Reply to {{input}}.");
    let inputs: Vec<String> = (0..6).map(|number| format!("input {number}")).collect();
    let start = |input: &String| {
        let mut command = place.command(&["run", input, "--session", "ann", "--script", "script.txt"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let running: Vec<Child> = inputs.iter().map(start).collect();
    for (child, input) in running.into_iter().zip(&inputs) {
        let output = place.show(&child.wait_with_output().unwrap());
        assert_eq!(output, format!("Reply to {input}.\n"));
    }
    assert!(place.output(&["verify"]).status.success());
}
