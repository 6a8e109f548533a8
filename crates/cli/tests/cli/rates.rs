//! Rates in files, and looking at them.
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

const GO: &str = "run go --session s --agent clerk.toml --script script.txt\nrates\nrates --json";

#[test]
fn a_call_beyond_a_rate_of_the_agent_or_of_outlast_toml_is_denied_and_rates_shows_it() {
    let want = expect![[""]];
    check(DAILY, "", GO, &want);
    check("", DAILY, GO, &want);
}

#[test]
fn a_rate_that_is_none_is_refused_with_its_place() {
    check(
        "[[rates]]\nname = \"adding\"\ncalls = 1\nper = \"day\"\nwhen_full = \"deny\"\nwait_s = 5",
        "",
        "run go --agent clerk.toml",
        &expect![[""]],
    );
    check(
        "[[rates]]\nname = \"adding\"\ncalls = 0\nper = \"day\"",
        "",
        "run go --agent clerk.toml",
        &expect![[""]],
    );
    check(DAILY, DAILY, "run go --agent clerk.toml", &expect![[""]]);
    check(
        "",
        "[[rates]]\nname = \"adding\"\ncalls = 1\nper = \"week\"",
        "run go --agent clerk.toml",
        &expect![[""]],
    );
}
