//! Tests of rate limits in files, and of `outlast rates`.
use crate::place::Place;
use expect_test::{Expect, expect};

#[track_caller]
fn check(agent: &str, configuration: &str, commands: &str, want: &Expect) {
    let place = Place::with_script("call add {\"a\": 1}\ncall add {\"a\": 2}\n---\nsay done");
    place.write("clerk.toml", &format!("{TOOL}\n{agent}"));
    place.write("outlast.toml", configuration);
    place.check(commands, want);
}

const TOOL: &str = r#"
name = "clerk"

[[tools]]
name = "add"
description = "Adds."
class = "idempotent"
command = ["cat"]
"#;

const DAILY: &str =
    "[[rates]]\nname = \"adding\"\ntool = \"a*\"\ncalls = 1\nper = \"day\"\nwhen_full = \"deny\"";

const GO: &str = "run go --session s --agent clerk.toml --script script.txt\nrates";

#[test]
fn call_over_a_rate_limit_is_denied() {
    let want = expect![[r#"
        $ run go --session s --agent clerk.toml --script script.txt
        done
        | · add {"a":1}
        | · add {"a":2}
        | · add → error rate.exceeded: the rate `adding` is exhausted for 86400 s; retry t…
        | · add → {"a":1}
        $ rates
        NAME    FREE    EVERY       CALLS     REJECTED  NEXT
        adding  0/1     86400 s         1            1  TIME
    "#]];
    check(DAILY, "", GO, &want);
    check("", DAILY, GO, &want);
}

#[test]
fn invalid_rate_limit_is_rejected_with_its_position() {
    check(
        "[[rates]]\nname = \"adding\"\ncalls = 1\nper = \"day\"\nwhen_full = \"deny\"\nwait_s = 5",
        "",
        "run go --agent clerk.toml",
        &expect![[r#"
            $ run go --agent clerk.toml
            | error[config.invalid]: clerk.toml:10: rate `adding`: `wait_s` has no effect if `when_full` is `deny`; remove it
            |   read on with: outlast explain config.invalid
            exit 1
        "#]],
    );
    check(
        "[[rates]]\nname = \"adding\"\ncalls = 0\nper = \"day\"",
        "",
        "run go --agent clerk.toml",
        &expect![[r#"
            $ run go --agent clerk.toml
            | error[config.invalid]: clerk.toml:12: invalid value: integer `0`, expected a nonzero u32
            |   read on with: outlast explain config.invalid
            exit 1
        "#]],
    );
    check(
        DAILY,
        DAILY,
        "run go --agent clerk.toml",
        &expect![[r#"
        $ run go --agent clerk.toml
        | error[config.invalid]: two rates are called `adding`, in outlast.toml and in agent clerk; names must be unique, and a rate of a layer below cannot be replaced
        |   read on with: outlast explain config.invalid
        exit 1
    "#]],
    );
    check(
        "",
        "[[rates]]\nname = \"adding\"\ncalls = 1\nper = \"week\"",
        "run go --agent clerk.toml",
        &expect![[r#"
            $ run go --agent clerk.toml
            | error[config.invalid]: outlast.toml:4: unknown variant `week`, expected one of `second`, `minute`, `hour`, `day`
            |   read on with: outlast explain config.invalid
            exit 1
        "#]],
    );
}
