//! Tests of rules at policy points other than calls.
use crate::approvals::refused;
use crate::place::Place;
use crate::serve::Server;
use expect_test::expect;
use outlast_playback::{Playback, ResponseScript};

#[test]
fn turn_rule_asks_and_output_rule_redacts() {
    let place = Place::with_script("say call 5551234");
    let agent = r#"
name = "clerk"

[[rules]]
name = "start"
at = "turn"
then = "ask"

[[rules]]
name = "numbers"
at = "output"
then = "modify"
redact = [{ pattern = '\d{4,}', with = "[number]" }]
"#;
    place.write("clerk.toml", agent);
    place.check(
        "run hi --session s --agent clerk.toml --script script.txt
         approvals
         approvals approve apr_1 --by ann
         work --agent clerk.toml --script script.txt
         sessions show s",
        &expect![[r#"
            $ run hi --session s --agent clerk.toml --script script.txt
            | · trn_1 waits for an approval
            |   outlast approvals approve apr_1
            $ approvals
            apr_1
              turn {"attachments":0,"input":"hi"}
              asked TIME in ses_1, trn_1; rule `start` requires approval by anyone
            | · then: outlast approvals approve ID [--arguments JSON | --session] | deny ID --reason WHY
            $ approvals approve apr_1 --by ann
            decided: ann approved it
            | · the turn continues once a worker runs; start one with `outlast work`
            $ work --agent clerk.toml --script script.txt
            ses_1 #10 turn.ended answered: "call [number]"
            | · no turn can continue now
            $ sessions show s
            ses_1 `s` idle, 1 turn, updated TIME
            head main at #9 of ses_1
            trn_1 answered
            #2    user hi
            #9    assistant call [number]
        "#]],
    );
}

#[test]
fn rules_block_forbidden_programs_and_variables() {
    for (rule, text) in [
        (
            "at = \"process\"\nwhere = [{ path = \"/program\", like = \"*tee\" }]",
            "the rule `r` forbids it: no",
        ),
        (
            "at = \"secret\"\nwhere = [{ path = \"/name\", is = \"USER_TOKEN\" }]",
            "the rule `r` forbids it: no",
        ),
        ("at = \"process\"\nwhere = [{ path = \"/program\", like = \"*cat\" }]", "joe"),
    ] {
        let place = Place::with_script("call pay {\"to\": \"joe\"}\n---\nsay {{result pay}}");
        let agent = format!(
            "name = \"clerk\"\n[[tools]]\nname = \"pay\"\ndescription = \"Pays.\"\ncommand = [\"tee\", \"-a\", \"paid\"]\n\
             env = [\"PATH\", \"USER_TOKEN\"]\n[[rules]]\nname = \"r\"\nthen = \"deny\"\nreason = \"no\"\n{rule}\n"
        );
        place.write("clerk.toml", &agent);
        place.set("USER_TOKEN", "x");
        let said = place.output(&["run", "pay", "--agent", "clerk.toml", "--script", "script.txt"]);
        assert!(String::from_utf8_lossy(&said.stdout).contains(text), "{rule}: {said:?}");
    }
}

#[test]
fn rule_invalid_at_its_point_names_its_line() {
    refused(
        &[
            "at = \"egress\"\nthen = \"ask\"",
            "at = \"turn\"\nthen = \"interrupt\"\nreason = \"no\"",
            "at = \"egress\"\nthen = \"allow\"\nwhere = [{ path = \"/url\", is = \"x\" }]",
            "at = \"output\"\ntool = \"pay\"\nthen = \"allow\"",
            "at = \"model\"\nthen = \"modify\"\nset = { \"/model\" = \"x\" }",
            "at = \"nowhere\"\nthen = \"allow\"",
            "then = \"allow\"\nhours = \"9-17\"",
            "then = \"allow\"\ndays = [\"mon\"]\nzone = \"Mars/Base\"",
            "then = \"allow\"\nzone = \"UTC\"",
            "then = \"allow\"\ncost_over = \"much\"",
            "then = \"allow\"\norg = \"acme\"",
            "then = \"allow\"\nlabels = [\"web\"]",
            "then = \"allow\"\nlabels = []",
            "then = \"allow\"\nlabels = [\"tool:*\"]\nuntrusted = false",
            "at = \"output\"\nthen = \"modify\"\nredact = [{ pattern = \"(\", with = \"\" }]",
        ],
        &expect![[r#"
            | error[config.invalid]: agent.toml:2: rule `r`: `ask` is not supported at `egress`, which supports: allow, deny, interrupt; the tool is already running: decide the call instead, at `tool`
            | error[config.invalid]: agent.toml:2: rule `r`: `interrupt` is not supported at `turn`, which supports: allow, deny, ask, defer; `deny` ends the turn here
            | error[config.invalid]: agent.toml:2: rule `r`: there is no `/url` at `egress`, which has: /scheme, /host, /port, /method, /path
            | error[config.invalid]: agent.toml:2: rule `r`: `tool` has no effect at `output`, where no tool is called; remove it
            | error[config.invalid]: agent.toml:2: rule `r`: `/model` cannot be set at `model`, only /options/tokens_most, /options/temperature_milli, /options/variant
            | error[config.invalid]: agent.toml:4: unknown variant `nowhere`, expected one of `tool`, `turn`, `model`, `egress`, `secret`, `process`, `payment`, `output`
            | error[config.invalid]: agent.toml:5: input.invalid: expected hours like `09:00-17:30`, got `9-17`
            | error[config.invalid]: agent.toml:2: rule `r`: expected a time zone like `Europe/Berlin`, got `Mars/Base`
            | error[config.invalid]: agent.toml:2: rule `r`: `zone` has no effect without `days` or `hours`; remove it
            | error[config.invalid]: agent.toml:5: input.invalid: expected dollars like `0.25` with at most 12 decimals, got `much`
            | error[config.invalid]: agent.toml:5: expected an organisation id (`org_` and 32 hex digits), got `acme`
            | error[config.invalid]: agent.toml:2: rule `r`: no text has the label `web`; `labels` are `tool:NAME`, `hook:NAME`, `mcp:NAME`, `attachment` and `before`, and `*` matches anything
            | error[config.invalid]: agent.toml:2: rule `r`: `labels` needs a source, like `tool:fetch`
            | error[config.invalid]: agent.toml:2: rule `r`: `labels` select untrusted text, which `untrusted = false` excludes; remove one of them
            | error[config.invalid]: rule `r`: expected a regular expression, got `(`: unclosed group
        "#]],
    );
}

#[cfg(not(feature = "cedar"))]
#[test]
fn build_without_cedar_rejects_policies_in_run() {
    let place = Place::with_script("say hi");
    place.write("outlast.toml", "\n[cedar]\npolicies = \"p.cedar\"\n");
    place.check("run hi --script script.txt", &expect![[r#"
        $ run hi --script script.txt
        | error[config.invalid]: outlast.toml:2: this program was built without Cedar and cannot read p.cedar; build it with `--features cedar`
        |   read on with: outlast explain config.invalid
        exit 1
    "#]]);
}

#[cfg(not(feature = "cedar"))]
#[test]
fn build_without_cedar_rejects_policies_in_rerun() {
    let place = Place::with_script("say hi");
    assert!(place.output(&["run", "hi", "--session", "ann", "--script", "script.txt"]).status.success());
    place.write("outlast.toml", "\n[cedar]\npolicies = \"p.cedar\"\n");
    place.check("rerun ann --script script.txt", &expect![[r#"
        $ rerun ann --script script.txt
        | error[config.invalid]: ann: outlast.toml:2: this program was built without Cedar and cannot read p.cedar; build it with `--features cedar`
        |   read on with: outlast explain config.invalid
        exit 1
    "#]]);
}

#[cfg(feature = "cedar")]
#[test]
fn cedar_policies_apply_in_reruns() {
    let place = Place::with_script("say hi");
    assert!(place.output(&["run", "hi", "--session", "ann", "--script", "script.txt"]).status.success());
    place.write("outlast.toml", "[cedar]\npolicies = \"p.cedar\"\n");
    place.write("p.cedar", "permit(principal, action == Action::\"turn\", resource);");
    let said = place.output(&["rerun", "ann", "--script", "script.txt"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("- answered: hi") && !said.contains("+ answered: hi"), "{said}");
}

#[cfg(feature = "cedar")]
#[test]
fn cedar_policies_apply_together_with_rules() {
    let place = Place::with_script("say hi");
    place.write("outlast.toml", "[cedar]\npolicies = \"p.cedar\"\n");
    for (policies, text) in [
        ("permit(principal, action, resource);", "hi"),
        ("permit(principal, action == Action::\"turn\", resource);", "policy.denied"),
        ("permit(", "p.cedar:1: "),
    ] {
        place.write("p.cedar", policies);
        let said = place.output(&["run", "hi", "--script", "script.txt"]);
        let all =
            format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        assert!(all.contains(text), "{policies}: {all}");
    }
}

/// Runs a script with an agent whose rule `r` denies at a point, and returns the output.
fn forbidden(place: &Place, agent: &str, rule: &str, script: &str) -> String {
    place.set_script(script);
    let allowed = "[[rules]]\nname = \"calls\"\nthen = \"allow\"\n";
    let rule = format!("[[rules]]\nname = \"r\"\nthen = \"deny\"\nreason = \"no\"\n{rule}\n");
    place.write("agent.toml", &format!("name = \"a\"\n{agent}\n{allowed}{rule}"));
    let output = place.output(&["run", "go", "--agent", "agent.toml", "--script", "script.txt"]);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn egress_rule_blocks_pages_and_redirects_to_them() {
    let pages = Playback::with_selector(|_, request| match request.path.as_str() {
        "/moved" => ResponseScript::answer(302, &[("location", "/secret")], ""),
        _ => ResponseScript::answer(200, &[("content-type", "text/plain")], "what it says"),
    });
    let place = Place::new();
    let url = pages.url().trim_end_matches('/').to_owned();
    let agent = format!("[fetch]\nprivate = [\"{}\"]", url.trim_start_matches("http://"));
    let rule = "at = \"egress\"\nwhere = [{ path = \"/path\", is = \"/secret\" }]";
    for (path, said) in [
        ("/open", "what it says"),
        ("/secret", "the rule `r` forbids it: no"),
        ("/moved", "the rule `r` forbids it: no"),
    ] {
        let script = format!("call fetch {{\"url\": \"{url}{path}\"}}\n---\nsay {{{{result 0}}}}");
        let text = forbidden(&place, &agent, rule, &script);
        assert!(text.contains(said), "{path}: {text}");
    }
    let asked: Vec<String> = pages.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(asked, ["/open", "/moved"]);
}

#[test]
fn process_rule_blocks_a_shell_command() {
    let place = Place::new();
    let script = "call shell {\"command\": \"echo x > ran\"}\n---\nsay {{result 0}}";
    let agent = "files = \"work\"\n[shell]";
    let text =
        forbidden(&place, agent, "at = \"process\"\nwhere = [{ path = \"/program\", is = \"sh\" }]", script);
    assert!(text.contains("the rule `r` forbids it: no"), "{text}");
    assert!(!place.path().join("work/ran").exists());
}

#[test]
fn process_rule_blocks_an_mcp_server() {
    let place = Place::new();
    let plain = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/mcp/plain.py");
    std::fs::copy(plain, place.path().join("plain.py")).unwrap();
    let agent = "[mcp.plain]\ncommand = [\"python3\", \"./plain.py\", \"library\"]";
    place.write("agent.toml", &format!("name = \"a\"\n{agent}\n"));
    let accepted = place.output(&["mcp", "accept", "plain"]);
    assert!(accepted.status.success(), "{}", place.show(&accepted));
    for (rule, forbids) in [("*python3", true), ("*ruby", false)] {
        for call in ["call plain.echo {\"text\": \"hi\"}", "call plain.read_resource {}"] {
            let script = format!("{call}\n---\nsay {{{{result 0}}}}");
            let rule = format!("at = \"process\"\nwhere = [{{ path = \"/program\", like = \"{rule}\" }}]");
            let text = forbidden(&place, agent, &rule, &script);
            assert_eq!(text.contains("the rule `r` forbids it: no"), forbids, "{call}: {text}");
        }
    }
}

#[test]
fn output_rule_hides_answer_from_cli_and_api() {
    for (then, ends) in [("deny", true), ("interrupt", true), ("ask", false)] {
        let place = Place::with_script("say the secret is 5551");
        let reason = if then == "ask" { "" } else { "reason = \"no\"\n" };
        let test = "where = [{ path = \"/text\", like = \"*secret*\" }]";
        let rule = format!("[[rules]]\nname = \"r\"\nat = \"output\"\n{test}\nthen = \"{then}\"\n{reason}");
        place.write("clerk.toml", &format!("name = \"clerk\"\n{rule}"));
        let run_agent = |args: &[&str]| {
            let rest = ["--agent", "clerk.toml", "--script", "script.txt"];
            place.show(&place.output(&[args, &rest].concat()))
        };
        let run = run_agent(&["run", "hi", "--session", "s"]);
        assert!(!run.contains("5551"), "{then}: {run}");
        let shown = place.show(&place.output(&["sessions", "show", "s"]));
        assert_eq!(shown.contains("5551"), !ends, "{then}: {shown}");
        let server = Server::run(&place, "127.0.0.1:0", &["--agent", "clerk.toml", "--script", "script.txt"]);
        for (path, stream) in [("openai/v1/chat/completions", false), ("openai/v1/chat/completions", true)] {
            // With an `ask` rule, a response would come only after the approval.
            let body = format!(
                "{{\"model\": \"clerk\", \"stream\": {stream}, \"messages\": [{{\"role\": \"user\", \"content\": \"hi\"}}]}}"
            );
            if ends {
                let answer = server.answer(&format!("/{path}"), &body);
                assert!(!answer.contains("5551"), "{then}: {answer}");
            }
        }
        if !ends {
            let waits: serde_json::Value =
                serde_json::from_slice(&place.output(&["--json", "approvals"]).stdout).unwrap();
            let id = waits["id"].as_str().unwrap();
            assert!(place.output(&["approvals", "approve", id]).status.success());
            let again = run_agent(&["run", "hi", "--session", "s"]);
            // The next turn asks again. The first one has its answer.
            assert!(!again.contains("5551"), "{again}");
            let shown = place.show(&place.output(&["events", "s"]));
            assert!(shown.contains("answered: \"the secret is 5551\""), "{shown}");
        }
        server.kill();
    }
}
