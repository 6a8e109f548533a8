//! Tests of hooks in an agent file: programs that observe and change turns.
use crate::place::Place;
use expect_test::{Expect, expect};

const AGENT: &str = r#"
name = "clerk"

[[tools]]
name = "pay"
description = "Pays a person."
command = ["tee", "-a", "paid"]
"#;

fn clerk(hooks: &str, script: &str) -> Place {
    let place = Place::with_script(script);
    place.write("clerk.toml", &format!("{AGENT}{hooks}"));
    place
}

fn check(hooks: &str, script: &str, want: &Expect) -> Place {
    let place = clerk(hooks, script);
    place.check("run pay --session s --agent clerk.toml --script script.txt", want);
    place
}

const PAY: &str = "call pay {\"to\": \"joe\", \"euros\": 500}\n---\nsay {{result pay}}";

#[test]
fn hook_programs_change_calls_and_answers() {
    let place = check(
        r#"
        [[hooks]]
        name = "cap"
        point = "before_tool"
        command = ["sh", "-c", "cat >> seen; echo '{\"arguments\": {\"to\": \"joe\", \"euros\": 100}}'"]

        [[hooks]]
        name = "thanks"
        point = "after_model"
        command = ["sh", "-c", "grep -q '\"text\":\"\"' || echo '{\"text\": \"Thank you.\"}'"]
        deadline_s = 5

        [[hooks]]
        name = "log"
        point = "after_end"
        command = ["sh", "-c", "cat > ended"]
        "#,
        PAY,
        &expect![[r#"
            $ run pay --session s --agent clerk.toml --script script.txt
            {"euros":100,"to":"joe"}
            [the answer was interrupted; discard the text above]
            Thank you.
            | · pay {"euros":100,"to":"joe"}
            | · pay → {"euros":100,"to":"joe"}
        "#]],
    );
    let read = |name| std::fs::read_to_string(place.path().join(name)).unwrap();
    assert_eq!(read("paid"), r#"{"euros":100,"to":"joe"}"#);
    let seen: serde_json::Value = serde_json::from_str(&read("seen")).unwrap();
    assert_eq!(seen["seen"]["arguments"], serde_json::json!({ "to": "joe", "euros": 500 }));
    assert_eq!(
        (&seen["hook"], &seen["point"], &seen["agent"]),
        (&"cap".into(), &"before_tool".into(), &"clerk".into())
    );
    let ended: serde_json::Value = serde_json::from_str(&read("ended")).unwrap();
    assert_eq!(ended["seen"]["end"], serde_json::json!({ "answered": { "text": "Thank you." } }));
    place.check("events s", &expect![[r#"
        $ events s
        TIME #1 session.opened key `s`
        TIME #2 turn.accepted "pay"
        TIME #3 turn.started on main after the beginning
        TIME #4 effect.performed turn/0/model/0: pay {"euros":500,"to":"joe"}
        TIME #5 effect.hooked turn/0/tools/0/child:0:call_0: by cap {"before_tool":{"arguments":{"euros":100,"to":"joe"}}}
        TIME #6 effect.asked pay {"euros":100,"to":"joe"}
        TIME #7 effect.answered call 0 of #6: {"euros":100,"to":"joe"}
        TIME #8 effect.hooked turn/0/model/1: by thanks {"after_model":{"text":"Thank you."}}
        TIME #9 effect.performed turn/0/model/1: "Thank you."
        TIME #10 turn.ended answered: "Thank you."
    "#]]);
}

#[test]
fn refusing_hanging_or_invalid_hook_is_reported() {
    let refuses = r#"
        [[hooks]]
        name = "guard"
        point = "before_tool"
        command = ["echo", '{"refuse": "not today"}']
        "#;
    let place = check(
        refuses,
        PAY,
        &expect![[r#"
        $ run pay --session s --agent clerk.toml --script script.txt
        error hook.refused: the hook `guard` refuses the call: not today
        | · pay refused: hook.refused: the hook `guard` refuses the call: not today
    "#]],
    );
    assert!(!place.path().join("paid").exists());
    check(
        r#"
        [[hooks]]
        name = "slow"
        point = "before_model"
        command = ["sleep", "600"]
        deadline_s = 1
        "#,
        PAY,
        &expect![[r#"
            $ run pay --session s --agent clerk.toml --script script.txt
            | error[hook.failed]: the hook `slow` at before_model did not answer within 1000 ms (in trn_1)
            |   read on with: outlast explain hook.failed
            exit 1
        "#]],
    );
    check(
        r#"
        [[hooks]]
        name = "chatty"
        point = "before_context"
        command = ["echo", "all is well"]
        "#,
        PAY,
        &expect![[r#"
            $ run pay --session s --agent clerk.toml --script script.txt
            | error[hook.failed]: the hook `chatty` at before_context failed: expected a change of before_context as JSON on standard output, got `all is well`: expected value at line 1 column 1 (in trn_1)
            |   read on with: outlast explain hook.failed
            exit 1
        "#]],
    );
}

#[test]
fn inconsistent_or_missing_hook_is_rejected_with_line() {
    for (hook, want) in [
        (
            "point = \"before_tool\"\ncommand = [\"true\"]\non_failure = \"ignore\"",
            expect![[r#"
            $ run pay --session s --agent clerk.toml --script script.txt
            | error[config.invalid]: clerk.toml:8: the hook `h` may change things, so its failure cannot be ignored; set `observe`, or let its failure fail the turn
            |   read on with: outlast explain config.invalid
            exit 1
        "#]],
        ),
        (
            "point = \"after_end\"\ncommand = [\"true\"]\non_failure = \"fail\"",
            expect![[r#"
            $ run pay --session s --agent clerk.toml --script script.txt
            | error[config.invalid]: clerk.toml:8: the hook `h` runs at after_end, where nothing can fail; remove `on_failure`
            |   read on with: outlast explain config.invalid
            exit 1
        "#]],
        ),
        (
            "point = \"before_lunch\"\ncommand = [\"true\"]",
            expect![[r#"
            $ run pay --session s --agent clerk.toml --script script.txt
            | error[config.invalid]: clerk.toml:10: unknown variant `before_lunch`, expected one of `before_context`, `before_model`, `after_model`, `before_tool`, `after_tool`, `before_completion`, `at_checkpoint`, `after_end`, `on_error`
            |   read on with: outlast explain config.invalid
            exit 1
        "#]],
        ),
        (
            "point = \"on_error\"\ncommand = [\"no-such-program\"]",
            expect![[r#"
            $ run pay --session s --agent clerk.toml --script script.txt
            | error[config.invalid]: clerk.toml:8: hook `h`: expected an executable program, but `no-such-program` is missing or not executable
            |   read on with: outlast explain config.invalid
            exit 1
        "#]],
        ),
    ] {
        check(&format!("[[hooks]]\nname = \"h\"\n{hook}\n"), PAY, &want);
    }
}

#[test]
fn duplicate_hook_name_at_one_point_is_rejected() {
    let guard = |point: &str, command: &str| {
        format!("[[hooks]]\nname = \"guard\"\npoint = \"{point}\"\ncommand = [\"{command}\"]\n")
    };
    let place = clerk(&(guard("before_tool", "true") + &guard("before_tool", "false")), PAY);
    place.check(
        "run pay --agent clerk.toml --script script.txt
         agents import clerk.toml",
        &expect![[r#"
            $ run pay --agent clerk.toml --script script.txt
            | error[config.invalid]: clerk.toml:12: two hooks at before_tool are called `guard`; names must be unique there
            |   read on with: outlast explain config.invalid
            exit 1
            $ agents import clerk.toml
            | error[config.invalid]: clerk.toml:12: two hooks at before_tool are called `guard`; names must be unique there
            |   read on with: outlast explain config.invalid
            exit 1
        "#]],
    );
    let named = format!("[agents.clerk]\n{}", guard("before_tool", "true").repeat(2));
    place.write("outlast.toml", &named.replace("[[hooks]]", "[[agents.clerk.hooks]]"));
    place.check(
        "config check",
        &expect![[r#"
        $ config check
        outlast.toml:6: two hooks at before_tool are called `guard`; names must be unique there
        exit 1
    "#]],
    );
    place.write("outlast.toml", "");
    // The same name at another point is another hook.
    place.write(
        "clerk.toml",
        &format!("{AGENT}{}{}", guard("before_tool", "true"), guard("after_end", "true")),
    );
    place.check(
        "run pay --session s --agent clerk.toml --script script.txt",
        &expect![[r#"
        $ run pay --session s --agent clerk.toml --script script.txt
        {"euros":500,"to":"joe"}
        | · pay {"euros":500,"to":"joe"}
        | · pay → {"euros":500,"to":"joe"}
    "#]],
    );
}
