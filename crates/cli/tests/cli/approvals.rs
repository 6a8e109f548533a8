//! Tests of rules in an agent file, and of `outlast approvals`.
use crate::place::Place;
use expect_test::{Expect, expect};

const AGENT: &str = r#"
name = "clerk"

[[tools]]
name = "pay"
description = "Pays a person."
command = ["tee", "-a", "paid"]

[[rules]]
name = "never-eve"
tool = "pay"
where = [{ path = "/to", is = "eve" }]
then = "deny"
reason = "she is on the list"

[[rules]]
name = "large"
tool = "pay"
where = [{ path = "/euros", over = 100 }]
then = "ask"
who = ["ann", "bob"]
expires_s = 3600
"#;

fn clerk(script: &str) -> Place {
    let place = Place::with_script(script);
    place.write("clerk.toml", AGENT);
    place
}

fn paid(place: &Place) -> String {
    std::fs::read_to_string(place.path().join("paid")).unwrap_or_default()
}

#[test]
fn large_payment_waits_until_a_person_approves_it() {
    let place = clerk("call pay {\"to\": \"joe\", \"euros\": 500}\n---\nsay {{result pay}}");
    place.check(
        "run pay --session s --agent clerk.toml --script script.txt
         approvals
         sessions show s
         why s
         approvals approve apr_1 --by eve
         approvals approve apr_1 --by agent:ses_00000000000000000000000000000000
         approvals approve apr_1 --by ann
         approvals
         approvals deny apr_1 --by bob --reason no
         work --agent clerk.toml --script script.txt
         approvals approve apr_1 --by ann",
        &expect![[r#"
            $ run pay --session s --agent clerk.toml --script script.txt
            | · pay {"euros":500,"to":"joe"} (rule `large`)
            | · trn_1 waits for an approval until TIME
            |   outlast approvals approve apr_1 --by ann
            $ approvals
            apr_1
              pay {"euros":500,"to":"joe"}
              asked TIME in ses_1, trn_1; rule `large` requires approval by ann or bob until TIME
            | · then: outlast approvals approve ID [--arguments JSON | --session] | deny ID --reason WHY
            $ sessions show s
            ses_1 `s` parked, 1 turn, updated TIME
            head main at the beginning
            trn_1 waits for an approval until TIME
              outlast approvals approve apr_1 --by ann
            trn_1 under way
            #2    user pay
            #4    assistant [pay {"euros":500,"to":"joe"}]
            $ why s
            trn_1 has waited since TIME
              approval of pay {"euros":500,"to":"joe"} until TIME; ann or bob can decide: outlast approvals approve apr_1 --by ann
            $ approvals approve apr_1 --by eve
            | error[approval.forbidden]: `eve` may not approve this; allowed: ann, bob
            |   read on with: outlast explain approval.forbidden
            exit 1
            $ approvals approve apr_1 --by agent:ses_00000000000000000000000000000000
            | error[input.invalid]: expected a name for --by, like `ann`, got `agent:ses_2`
            |   read on with: outlast explain input.invalid
            exit 1
            $ approvals approve apr_1 --by ann
            decided: ann approved it
            | · the turn continues once a worker runs; start one with `outlast work`
            $ approvals
            | · nothing waits for an approval
            $ approvals deny apr_1 --by bob --reason no
            too late: ann approved it
            | · the turn continues once a worker runs; start one with `outlast work`
            $ work --agent clerk.toml --script script.txt
            ses_1 #12 turn.ended answered: "{"euros":500,"to":"joe"}"
            | · no turn can continue now
            $ approvals approve apr_1 --by ann
            | error[approval.not_found]: no call waits for the approval apr_1
            |   read on with: outlast explain approval.not_found
            exit 1
        "#]],
    );
    assert_eq!(paid(&place), "{\"euros\":500,\"to\":\"joe\"}");
}

#[test]
fn approval_list_shows_the_rule_reason() {
    let place = Place::with_script("call pay {\"to\": \"joe\", \"euros\": 500}\n---\nsay {{result pay}}");
    let agent = AGENT.replace("then = \"ask\"", "then = \"ask\"\nreason = \"it is not ours\"");
    place.write("clerk.toml", &agent);
    place.check(
        "run pay --session s --agent clerk.toml --script script.txt
         approvals",
        &expect![[r#"
            $ run pay --session s --agent clerk.toml --script script.txt
            | · pay {"euros":500,"to":"joe"} (rule `large`)
            | · trn_1 waits for an approval until TIME
            |   outlast approvals approve apr_1 --by ann
            $ approvals
            apr_1
              pay {"euros":500,"to":"joe"}
              because: it is not ours
              asked TIME in ses_1, trn_1; rule `large` requires approval by ann or bob until TIME
            | · then: outlast approvals approve ID [--arguments JSON | --session] | deny ID --reason WHY
        "#]],
    );
}

#[test]
fn approval_can_edit_arguments_and_denial_reaches_model() {
    let place = clerk("call pay {\"to\": \"joe\", \"euros\": 500}\n---\nsay {{result pay}}");
    place.check(
        "run pay --session s --agent clerk.toml --script script.txt
         approvals approve apr_1 --by bob --arguments '{\"to\": \"joe\", \"euros\": 50}'
         work --agent clerk.toml --script script.txt
         run pay --session t --agent clerk.toml --script script.txt
         approvals deny apr_2 --by bob --reason 'not this month'
         work --agent clerk.toml --script script.txt
         sessions show t",
        &expect![[r#"
            $ run pay --session s --agent clerk.toml --script script.txt
            | · pay {"euros":500,"to":"joe"} (rule `large`)
            | · trn_1 waits for an approval until TIME
            |   outlast approvals approve apr_1 --by ann
            $ approvals approve apr_1 --by bob --arguments '{"to": "joe", "euros": 50}'
            decided: bob approved it as {"euros":50,"to":"joe"}
            | · the turn continues once a worker runs; start one with `outlast work`
            $ work --agent clerk.toml --script script.txt
            ses_1 #13 turn.ended answered: "{"euros":50,"to":"joe"}"
            | · no turn can continue now
            $ run pay --session t --agent clerk.toml --script script.txt
            | · pay {"euros":500,"to":"joe"} (rule `large`)
            | · trn_2 waits for an approval until TIME
            |   outlast approvals approve apr_2 --by ann
            $ approvals deny apr_2 --by bob --reason 'not this month'
            decided: bob denied it: not this month
            | · the turn continues once a worker runs; start one with `outlast work`
            $ work --agent clerk.toml --script script.txt
            ses_2 #12 turn.ended answered: "error approval.denied: bob said no: not this month"
            | · no turn can continue now
            $ sessions show t
            ses_2 `t` idle, 1 turn, updated TIME
            head main at #11 of ses_2
            trn_2 answered
            #2    user pay
            #4    assistant [pay {"euros":500,"to":"joe"}]
            #10   pay error approval.denied: bob said no: not this month
            #11   assistant error approval.denied: bob said no: not this month
        "#]],
    );
    assert_eq!(paid(&place), "{\"euros\":50,\"to\":\"joe\"}");
}

#[test]
fn deny_rule_refuses_without_an_approval() {
    let place = clerk("call pay {\"to\": \"eve\", \"euros\": 5}\n---\nsay {{result pay}}");
    place.check(
        "run pay --session s --agent clerk.toml --script script.txt",
        &expect![[r#"
        $ run pay --session s --agent clerk.toml --script script.txt
        error policy.denied: the rule `never-eve` forbids it: she is on the list
        | · pay refused: policy.denied: the rule `never-eve` forbids it: she is on the list
    "#]],
    );
    assert_eq!(paid(&place), "");
}

const BOARD: &str = r#"
name = "clerk"

[[tools]]
name = "pay"
description = "Pays a person."
command = ["tee", "-a", "paid"]

[[rules]]
name = "board"
tool = "pay"
then = "ask"
who = ["ann", "bob", "cleo"]
approvals = 2
"#;

#[test]
fn two_of_three_approvals_need_equal_arguments() {
    let place = Place::with_script("call pay {\"to\": \"joe\", \"euros\": 500}\n---\nsay {{result pay}}");
    place.write("clerk.toml", BOARD);
    place.check(
        "run pay --session s --agent clerk.toml --script script.txt
         approvals approve apr_1 --by ann
         approvals approve apr_1 --by ann
         approvals approve apr_1 --by bob --arguments '{\"to\": \"joe\", \"euros\": 50}'
         approvals approve apr_1 --by cleo
         approvals list
         approvals approve apr_2 --by cleo
         work --agent clerk.toml --script script.txt
         audit",
        &expect![[r#"
            $ run pay --session s --agent clerk.toml --script script.txt
            | · pay {"euros":500,"to":"joe"} (rule `board`)
            | · trn_1 waits for an approval
            |   outlast approvals approve apr_1 --by ann
            $ approvals approve apr_1 --by ann
            counted: 1 of 2 approvals
            $ approvals approve apr_1 --by ann
            counted: 1 of 2 approvals
            $ approvals approve apr_1 --by bob --arguments '{"to": "joe", "euros": 50}'
            counted: 1 of 2 approvals
            $ approvals approve apr_1 --by cleo
            | error[approval.not_found]: the arguments of apr_1 were edited; the new id is apr_2
            |   read on with: outlast explain approval.not_found
            exit 1
            $ approvals list
            apr_2
              pay {"euros":50,"to":"joe"}
              the model asked for {"euros":500,"to":"joe"}
              asked TIME in ses_1, trn_1; rule `board` requires approval by 2 of ann, bob, cleo
              1 of 2 approvals: bob with a change
            | · then: outlast approvals approve ID [--arguments JSON | --session] | deny ID --reason WHY
            $ approvals approve apr_2 --by cleo
            decided: bob and cleo approved it as {"euros":50,"to":"joe"}
            | · the turn continues once a worker runs; start one with `outlast work`
            $ work --agent clerk.toml --script script.txt
            ses_1 #13 turn.ended answered: "{"euros":50,"to":"joe"}"
            | · no turn can continue now
            $ audit
            1 TIME person:ann approval.approve trn_1 by ann; 1 of 2
            2 TIME person:bob approval.edit trn_1 by bob, with other arguments; 1 of 2
            3 TIME person:cleo approval.approve trn_1 by cleo; 2 of 2
        "#]],
    );
    assert_eq!(paid(&place), "{\"euros\":50,\"to\":\"joe\"}");
}

#[test]
fn session_approvals_are_listed_and_revoked() {
    let place = clerk("any\ncall pay {\"to\": \"joe\", \"euros\": 500}\n---\nsay {{result pay}}");
    place.check(
        "run pay --session s --agent clerk.toml --script script.txt
         approvals approve apr_1 --by ann --session
         work --agent clerk.toml --script script.txt
         approvals grants
         run more --session s --agent clerk.toml --script script.txt
         approvals revoke grt_1 --by bob
         approvals revoke grt_1 --by bob
         run more --session s --agent clerk.toml --script script.txt
         approvals grants",
        &expect![[r#"
            $ run pay --session s --agent clerk.toml --script script.txt
            | · pay {"euros":500,"to":"joe"} (rule `large`)
            | · trn_1 waits for an approval until TIME
            |   outlast approvals approve apr_1 --by ann
            $ approvals approve apr_1 --by ann --session
            decided: ann approved it, and calls like it in this session
            | · the turn continues once a worker runs; start one with `outlast work`
            $ work --agent clerk.toml --script script.txt
            ses_1 #12 turn.ended answered: "{"euros":500,"to":"joe"}"
            | · no turn can continue now
            $ approvals grants
            grt_1
              pay in ses_1, where rule `large` would ask
              given TIME by ann
            | · then: outlast approvals revoke ID
            $ run more --session s --agent clerk.toml --script script.txt
            {"euros":500,"to":"joe"}
            | · pay {"euros":500,"to":"joe"} (rule `large`, approved for the session by ann)
            | · pay → {"euros":500,"to":"joe"}
            $ approvals revoke grt_1 --by bob
            revoked: the next such call of `pay` requires an approval, in ses_1
            $ approvals revoke grt_1 --by bob
            | error[grant.not_found]: nothing is approved for a session under the id grt_1
            |   read on with: outlast explain grant.not_found
            exit 1
            $ run more --session s --agent clerk.toml --script script.txt
            | · pay {"euros":500,"to":"joe"} (rule `large`)
            | · trn_2 waits for an approval until TIME
            |   outlast approvals approve apr_2 --by ann
            $ approvals grants
            | · nothing is approved for the rest of a session
        "#]],
    );
}

#[test]
fn approval_json_contains_all_listed_fields() {
    let place = clerk("call pay {\"to\": \"joe\", \"euros\": 500}");
    place.output(&["run", "pay", "--session", "s", "--agent", "clerk.toml", "--script", "script.txt"]);
    let printed = String::from_utf8(place.output(&["approvals", "--json"]).stdout).unwrap();
    let question: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let (tool, arguments) = (&question["tool"], &question["arguments"]);
    assert_eq!(
        (tool.as_str().unwrap(), arguments.to_string()),
        ("pay", r#"{"euros":500,"to":"joe"}"#.to_owned())
    );
    assert_eq!((&question["rule"], &question["votes"]), (&"large".into(), &serde_json::json!([])));
    assert_eq!(question["ask"]["who"], serde_json::json!(["ann", "bob"]));
}

#[test]
fn worker_sends_reminders_and_escalates_approvals() {
    let place = Place::with_script("call pay {\"to\": \"joe\"}\n---\nsay {{result pay}}");
    let rule = "who = [\"ann\"]\nremind_s = 1\nescalate_s = 2\nescalate_to = [\"bob\"]";
    let (before, _) = BOARD.split_once("who =").unwrap();
    place.write("clerk.toml", &format!("{before}{rule}"));
    place.output(&["run", "pay", "--session", "s", "--agent", "clerk.toml", "--script", "script.txt"]);
    let mut worker = place.command(&["work", "--follow", "--agent", "clerk.toml", "--script", "script.txt"]);
    let mut worker = worker.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(worker.stdout.take().unwrap()));
    let seen = lines.map(Result::unwrap).find(|line| line.contains("approval.escalated")).unwrap();
    assert!(seen.ends_with("bob may approve too"), "{seen}");
    let listed = place.show(&place.output(&["approvals", "list"]));
    assert!(listed.contains("requires approval by ann or bob") && listed.contains("escalated"), "{listed}");
    let approved = place.show(&place.output(&["approvals", "approve", "apr_1", "--by", "bob"]));
    assert!(approved.starts_with("decided: bob approved it"), "{approved}");
    worker.kill().unwrap();
    worker.wait().unwrap();
}

#[track_caller]
pub(crate) fn refused(rules: &[&str], want: &Expect) {
    let place = Place::with_script("say hi");
    let said = rules.iter().map(|rule| {
        place.write("agent.toml", &format!("name = \"a\"\n[[rules]]\nname = \"r\"\n{rule}"));
        place.show(&place.output(&["run", "hi", "--agent", "agent.toml", "--script", "script.txt"]))
    });
    want.assert_eq(
        &said.map(|said| said.lines().next().unwrap_or_default().to_owned() + "\n").collect::<String>(),
    );
}

#[test]
fn inconsistent_rule_is_rejected_with_its_line() {
    refused(
        &[
            "then = \"forbid\"",
            "then = \"deny\"",
            "then = \"allow\"\nwho = [\"ann\"]",
            "then = \"deny\"\nreason = \"no\"\napprovals = 2",
            "then = \"ask\"\napprovals = 2",
            "then = \"ask\"\napprovals = 3\nwho = [\"ann\", \"bob\", \"bob\"]",
            "then = \"ask\"\napprovals = 0",
            "then = \"ask\"\nwho = [\"ann\"]\nescalate_s = 60",
            "then = \"ask\"\nwho = [\"ann\"]\nescalate_to = [\"bob\"]",
            "then = \"ask\"\nescalate_s = 60\nescalate_to = [\"bob\"]",
            "then = \"ask\"\nexpires_s = 60\nremind_s = 60",
            "then = \"modify\"",
            "then = \"modify\"\nset = { euros = 1 }",
            "then = \"defer\"",
            "then = \"allow\"\nwhere = [{ path = \"euros\", over = 1 }]",
            "then = \"allow\"\nwhere = [{ path = \"/euros\" }]",
            "then = \"allow\"\nwhere = [{ path = \"/euros\", over = 1, under = 2 }]",
            "then = \"allow\"\n[[rules]]\nname = \"r\"\nthen = \"allow\"",
            "thn = \"allow\"",
        ],
        &expect![[r#"
            | error[config.invalid]: agent.toml:4: unknown variant `forbid`, expected one of `allow`, `deny`, `ask`, `modify`, `interrupt`, `defer`
            | error[config.invalid]: agent.toml:2: rule `r`: `deny` needs a `reason`
            | error[config.invalid]: agent.toml:2: rule `r`: `who` has no effect if `then` is `allow`; remove it
            | error[config.invalid]: agent.toml:2: rule `r`: `approvals` has no effect if `then` is `deny`; remove it
            | error[config.invalid]: agent.toml:2: rule `r`: `approvals` is 2, so `who` must name at least 2 people, and it names 0
            | error[config.invalid]: agent.toml:2: rule `r`: `approvals` is 3, so `who` must name at least 3 people, and it names 2
            | error[config.invalid]: agent.toml:5: invalid value: integer `0`, expected a nonzero u32
            | error[config.invalid]: agent.toml:2: rule `r`: `escalate_s` needs `escalate_to`
            | error[config.invalid]: agent.toml:2: rule `r`: `escalate_to` needs `escalate_s`
            | error[config.invalid]: agent.toml:2: rule `r`: `escalate_to` has no effect if anyone may approve; set `who`
            | error[config.invalid]: agent.toml:2: rule `r`: `remind_s` is 60, but an unanswered request is denied after 60 (`expires_s`); it must be less
            | error[config.invalid]: agent.toml:2: rule `r`: `modify` needs `set`, like `set = { "/euros" = 100 }`, or `redact`
            | error[config.invalid]: agent.toml:2: rule `r`: expected a path like `/euros`, got `euros`
            | error[config.invalid]: agent.toml:2: rule `r`: `defer` needs `pause_s`
            | error[config.invalid]: agent.toml:2: rule `r`: expected a path like `/euros`, got `euros`
            | error[config.invalid]: agent.toml:2: rule `r`: `/euros` takes exactly one of `is`, `one_of`, `none_of`, `over`, `under`, `like`, `unlike`
            | error[config.invalid]: agent.toml:2: rule `r`: `/euros` takes exactly one of `is`, `one_of`, `none_of`, `over`, `under`, `like`, `unlike`
            | error[config.invalid]: agent.toml:5: two rules are called `r`; names must be unique
            | error[config.invalid]: agent.toml:4: unknown key `thn` in `rules`; did you mean `then`?
        "#]],
    );
}
