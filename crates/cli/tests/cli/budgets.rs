//! Tests of budgets in an agent file, and of `outlast budgets`.
use crate::place::Place;
use expect_test::{Expect, expect};

#[track_caller]
fn check(agent: &str, commands: &str, want: &Expect) {
    let place = Place::with_script("call add {\"a\": 1}\n---\nsay done");
    place.write("clerk.toml", &format!("{TOOL}\n{agent}"));
    place.check(commands, want);
}

const TOOL: &str = r#"
name = "clerk"

[[tools]]
name = "add"
description = "Adds."
class = "idempotent"
command = ["cat"]
price = "0.01"
"#;

#[test]
fn waiting_turn_resumes_when_its_budget_is_raised() {
    check(
        "[budget]\nreply_tokens = 100\nagent = { calls = 4, pause_at = 50 }",
        "budgets
         run go --session s --agent clerk.toml --script script.txt
         sessions show s
         why s
         budgets
         budgets set agent:clerk --calls 10 --warn-at 10
         work --agent clerk.toml --script script.txt
         budgets --json
         budgets clear agent:clerk",
        &expect![[r#"
            $ budgets
            | error[io.failed]: there is no database at ./outlast.db; `outlast run` creates one, `--data FILE` selects another
            |   read on with: outlast explain io.failed
            exit 1
            $ run go --session s --agent clerk.toml --script script.txt
            | · add {"a":1}
            | · add → {"a":1}
            | · trn_1 waits for a higher budget
            |   outlast budgets
            $ sessions show s
            ses_1 `s` parked, 1 turn, updated TIME
            head main at the beginning
            trn_1 waits for a higher budget
              outlast budgets
            trn_1 under way
            #2    user go
            #4    assistant [add {"a":1}]
            #6    add {"a":1}
            $ why s
            trn_1 has waited since TIME
              budget; to raise it: outlast budgets set agent:clerk
            $ budgets
            NAME         SPENT                          RESERVED             LIMIT
            agent:clerk  $0.01, 27 tokens, 2 calls      nothing              4 calls, pauses at 50 % (as its agent says)
            $ budgets set agent:clerk --calls 10 --warn-at 10
            | ✓ agent:clerk is set; a worker continues the turns that wait for it
            $ work --agent clerk.toml --script script.txt
            ses_1 #10 turn.ended answered: "done"
            | · no turn can continue now
            $ budgets --json
            {"held":{"calls":0,"millis":0,"money":"0","tokens":0},"limit":{"calls":10,"warn_at":10},"limit_by":"operator","lost":{"calls":0,"millis":0,"money":"0","tokens":0},"name":"agent:clerk","org":"org_1","set":{"calls":10,"warn_at":10},"spent":{"calls":3,"millis":0,"money":"0.01","tokens":74}}
            $ budgets clear agent:clerk
            | ✓ agent:clerk is reset to the limits of its agent
        "#]],
    );
}

#[test]
fn turn_without_budget_fails_and_names_the_budget() {
    check(
        "[budget]\nreply_tokens = 100\nsession = { tokens = 10 }",
        "run go --session s --agent clerk.toml --script script.txt",
        &expect![[r#"
            $ run go --session s --agent clerk.toml --script script.txt
            | error[budget.exceeded]: not enough is left of the tokens of ses_1: it needs up to 1592 tokens, and of 10 tokens 10 tokens are left (in trn_1)
            |   read on with: outlast explain budget.exceeded
            exit 1
        "#]],
    );
}

#[test]
fn invalid_budget_is_rejected_with_its_position() {
    check(
        "[budget]\nturn = {}",
        "run go --agent clerk.toml",
        &expect![[r#"
        $ run go --agent clerk.toml
        | error[config.invalid]: clerk.toml:11: the budget of the turn has no limit; set `tokens`, `money`, `calls` or `time_s`
        |   read on with: outlast explain config.invalid
        exit 1
    "#]],
    );
    check(
        "[budget]\nturn = { tokens = 5, per = \"day\" }",
        "run go --agent clerk.toml",
        &expect![[r#"
        $ run go --agent clerk.toml
        | error[config.invalid]: clerk.toml:11: a turn's budget has no period; remove `per`
        |   read on with: outlast explain config.invalid
        exit 1
    "#]],
    );
    check(
        "[budget]\nturn = { money = 5 }",
        "run go --agent clerk.toml",
        &expect![[r#"
        $ run go --agent clerk.toml
        | error[config.invalid]: clerk.toml:12: invalid type: integer `5`, expected a string
        |   read on with: outlast explain config.invalid
        exit 1
    "#]],
    );
    check(
        "[budget]\nturn = { money = \"5\" }",
        "run go --agent clerk.toml",
        &expect![[r#"
        $ run go --agent clerk.toml
        | error[config.invalid]: the agent `clerk` has a budget in money, but the model `rehearsal/agent` has no known price; set its price in `outlast.toml`, or limit tokens instead
        |   read on with: outlast explain config.invalid
        exit 1
    "#]],
    );
    check(
        "[budget]\nturn = { calls = 5, warn_at = 101 }",
        "run go --agent clerk.toml",
        &expect![[r#"
        $ run go --agent clerk.toml
        | error[config.invalid]: clerk.toml:12: input.invalid: expected a share from 1 to 100 percent, got 101
        |   read on with: outlast explain config.invalid
        exit 1
    "#]],
    );
    check(
        "",
        "run go --agent clerk.toml
         budgets set agent:clerk
         budgets set clerk --calls 5
         budgets set agent:clerk --money 1,5",
        &expect![[r#"
            $ run go --agent clerk.toml
            I am the built-in rehearsal model: a few rules that need no key and no network. I understand, also several joined by "and":
              call add {…}, with its arguments as JSON
            | · session ses_1
            $ budgets set agent:clerk
            | error[input.invalid]: a budget needs a limit; expected --tokens, --money, --calls or --time-s
            |   read on with: outlast explain input.invalid
            exit 1
            $ budgets set clerk --calls 5
            | error: invalid value 'clerk' for '<OF>': input.invalid: expected `agent:NAME` or the id of a turn, session or organisation, got `clerk`
            | 
            | For more information, try '--help'.
            exit 2
            $ budgets set agent:clerk --money 1,5
            | error: invalid value '1,5' for '--money <MONEY>': input.invalid: expected dollars like `0.25` with at most 12 decimals, got `1,5`
            | 
            | For more information, try '--help'.
            exit 2
        "#]],
    );
}

#[test]
fn operator_limits_the_budgets_of_organisations() {
    let place = Place::with_script("any\nsay hello");
    place.set("USER", "ann");
    place.check(
        "run hi --session s --script script.txt
         orgs create acme
         orgs
         budgets set org_1 --calls 0
         run hi --org acme --script script.txt
         budgets --org acme
         budgets clear org_1 --org acme
         budgets clear org_1
         run hi --session s --org acme --script script.txt
         budgets set org_2 --calls 0
         run hi --session s --script script.txt
         audit",
        &expect![[r#"
            $ run hi --session s --script script.txt
            hello
            $ orgs create acme
            org_1
            | · `--org acme` or OUTLAST_ORG selects it
            $ orgs
            NAME     ORGANISATION                          MADE
            acme     org_1  TIME
            default  org_2  with the database
            $ budgets set org_1 --calls 0
            | ✓ org_1 is set; a worker continues the turns that wait for it
            $ run hi --org acme --script script.txt
            | · session ses_1
            | error[budget.exceeded]: not enough is left of the calls of org_1: it needs up to 1 calls, and of 0 calls 0 calls are left (in trn_1)
            |   read on with: outlast explain budget.exceeded
            exit 1
            $ budgets --org acme
            NAME                                  SPENT                          RESERVED             LIMIT
            org_1  nothing                        nothing              0 calls (set by an operator)
            $ budgets clear org_1 --org acme
            | error[access.denied]: this requires an operator of the database, but person:ann belongs to org_1
            |   read on with: outlast explain access.denied
            exit 1
            $ budgets clear org_1
            | ✓ org_1 has no limit
            $ run hi --session s --org acme --script script.txt
            hello
            $ budgets set org_2 --calls 0
            | ✓ org_2 is set; a worker continues the turns that wait for it
            $ run hi --session s --script script.txt
            | error[budget.exceeded]: not enough is left of the calls of org_2: it needs up to 1 calls, and of 0 calls 0 calls are left (in trn_2)
            |   read on with: outlast explain budget.exceeded
            exit 1
            $ audit
            1 TIME person:ann org.create org_1 acme
            2 TIME person:ann budget.set org_1 {"calls":0}
            3 TIME person:ann budget.set org_1 as its agent says
            4 TIME person:ann budget.set org_2 {"calls":0}
        "#]],
    );
}

#[test]
fn waiting_turn_resumes_when_agent_file_raises_budget() {
    let place = Place::with_script("call add {\"a\": 1}\n---\nsay done");
    let clerk = |calls: u32| {
        let budget = format!("[budget]\nreply_tokens = 100\nagent = {{ calls = {calls}, pause_at = 100 }}");
        place.write("clerk.toml", &format!("{TOOL}\n{budget}"));
    };
    clerk(2);
    place.check(
        "run go --session s --agent clerk.toml --script script.txt",
        &expect![[r#"
        $ run go --session s --agent clerk.toml --script script.txt
        | · add {"a":1}
        | · add → {"a":1}
        | · trn_1 waits for a higher budget
        |   outlast budgets
    "#]],
    );
    clerk(20);
    // Either process may drive the waiting turn: one that runs another turn, or a worker.
    for command in [
        "run go --session t --agent clerk.toml --script script.txt",
        "work --agent clerk.toml --script script.txt",
    ] {
        let output = place.output(&command.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{}", place.show(&output));
    }
    let shown = place.show(&place.output(&["sessions", "show", "s"]));
    assert!(shown.contains("trn_1 answered") && shown.contains("assistant done"), "{shown}");
}
