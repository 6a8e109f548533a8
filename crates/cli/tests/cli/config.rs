//! Tests of `outlast config` and of the published schema.
use crate::place::Place;
use expect_test::{expect, expect_file};
use serde_json::Value;
use std::collections::BTreeMap;

fn schema() -> Value {
    let output = Place::new().output(&["config", "schema"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn published_schema_matches_config_schema_output() {
    let output = Place::new().output(&["config", "schema"]);
    expect_file!["../../../../docs/outlast.schema.json"]
        .assert_eq(&String::from_utf8(output.stdout).unwrap());
}

/// Returns the keys of every table, by the table's name in the guide.
fn tables(schema: &Value) -> BTreeMap<String, Vec<String>> {
    let mut tables = BTreeMap::from([("outlast.toml".to_owned(), keys(schema))]);
    for (name, table) in schema["$defs"].as_object().unwrap() {
        if let Some(title) = table["title"].as_str() {
            tables.insert(title.to_owned(), keys(table));
        } else {
            let named = [
                "Api",
                "BuiltinGroup",
                "DocumentTable",
                "FullRateAction",
                "KeyTable",
                "RuleDecision",
                "SinkStart",
                "SinkVariable",
                "TelemetryHeader",
                "ToolClass",
                "WebhookAddress",
            ];
            assert!(
                named.contains(&name.as_str()),
                "give the table `{name}` a title, so that the guide can name it"
            );
        }
    }
    tables
}

fn keys(table: &Value) -> Vec<String> {
    table["properties"].as_object().map(|keys| keys.keys().cloned().collect()).unwrap_or_default()
}

#[test]
fn guide_documents_every_schema_key() {
    let guide = include_str!("../../../../docs/guide/configuration.md");
    let mut sections: BTreeMap<&str, &str> = BTreeMap::new();
    for section in guide.split("\n## ").skip(1) {
        let (heading, text) = section.split_once('\n').unwrap();
        sections.insert(heading.trim_matches('`'), text);
    }
    for (table, keys) in tables(&schema()) {
        let text =
            sections.get(table.as_str()).unwrap_or_else(|| panic!("the guide has no section `{table}`"));
        for key in keys {
            assert!(
                text.contains(&format!("| `{key}` |")),
                "the guide does not say what `{key}` of `{table}` is"
            );
        }
    }
}

#[test]
fn config_check_reports_every_mistake_with_a_suggestion() {
    let place = Place::new();
    place.write(
        "outlast.toml",
        r#"[provider.work]
kind = "openai"

[agents.clerk]
sistem = "Sell."
modle = "a/b"
rocket = 7

[[agents.clerk.rules]]
name = "r"
thn = "allow"
then = "allow"

[agents.judge]
model_calls = 0

[capabilities.sums]
builtin = ["calculator", "abacus"]

[attachments]
stor = "file:///x"
"#,
    );
    place.write("good.toml", "[agents.a]\nsystem = \"x\"\n\n[harnesses.h]\n");
    place.write("broken.toml", "[agents\n");
    place.write("list.toml", "[[agents]]\nname = \"clerk\"\n");
    place.write("gone.toml", "[agents.a]\n[[agents.a.tools]]\nname = \"pay\"\ndescription = \"Pays.\"\ncommand = [\"./gone.sh\"]\n[agents.b]\nparent = \"c\"\n[[sinks]]\nname = \"crm\"\nwebhook = { env = \"OUTLAST_NO_SUCH\" }\nsecret = { env = \"OUTLAST_NO_SUCH\" }\n");
    place.check(
        "config check
         run hi
         config check good.toml
         config check broken.toml
         config check list.toml
         config check gone.toml
         config check missing.toml",
        &expect![[r#"
            $ config check
            outlast.toml:1: unknown key `provider`; did you mean `providers`?
            outlast.toml:5: unknown key `sistem` in `agents.clerk`; did you mean `system`?
            outlast.toml:6: unknown key `modle` in `agents.clerk`; did you mean `model`?
            outlast.toml:7: unknown key `rocket` in `agents.clerk`; the keys are: budget, builtin, capabilities, documents, fetch, files, guard, hooks, mcp, model, model_calls, models, name, network, parent, provider_wait_s, rates, rules, shell, system, tools
            outlast.toml:11: unknown key `thn` in `agents.clerk.rules`; did you mean `then`?
            outlast.toml:21: unknown key `stor` in `attachments`; did you mean `store`?
            outlast.toml:15: invalid value: integer `0`, expected a nonzero u32
            outlast.toml:18: unknown variant `abacus`, expected one of `clock`, `calculator`, `values`, `read_more`, `todo`, `ask_user`, `fetch`
            exit 1
            $ run hi
            | error[config.invalid]: outlast.toml:1: unknown key `provider`; did you mean `providers`?
            |   read on with: outlast explain config.invalid
            exit 1
            $ config check good.toml
            good.toml: 0 providers, 1 agent, 1 harness, 0 capabilities, no mistakes
            $ config check broken.toml
            broken.toml:1: unclosed table, expected `]`
            exit 1
            $ config check list.toml
            | error[config.invalid]: list.toml:1: expected a table for each name, like `[agents.NAME]`, in place of what `agents` is here
            |   read on with: outlast explain config.invalid
            exit 1
            $ config check gone.toml
            gone.toml:8: sink `crm`: set OUTLAST_NO_SUCH
            gone.toml:2: tool `pay`: expected an executable program, but `./gone.sh` is missing or not executable
            gone.toml:6: harness.not_found: agent b inherits from the harness `c`, which does not exist; there are: none
            exit 1
            $ config check missing.toml
            | error[io.failed]: the configuration missing.toml cannot be read: No such file or directory (os error 2)
            |   read on with: outlast explain io.failed
            exit 1
        "#]],
    );
}

#[test]
fn config_check_finds_startup_errors() {
    let place = Place::new();
    place.write(
        "outlast.toml",
        r#"[server]
url = "ftp://agents.example.com"

[agents.asks]
model = "nobody/nothing"

[agents.begs]
model = "nobody/nothing"

[agents.spends]
budget = { turn = { money = "1" } }

[[agents.hides.rules]]
name = "cards"
at = "output"
then = "modify"
redact = [{ pattern = "(", with = "x" }]

[[agents.guards.rules]]
name = "guard"
then = "allow"

[agents.works]
builtin = ["clock"]
"#,
    );
    place.write("cedar.toml", "[cedar]\npolicies = \"nowhere.cedar\"\n");
    place.check("config check\nagents validate", &expect![[r#"
        $ config check
        outlast.toml:2: expected the public address of the server, like `https://agents.example.com`, got `ftp://agents.example.com`
        outlast.toml:4: model.unknown: no provider serves the model `nobody/nothing`
        outlast.toml:7: model.unknown: no provider serves the model `nobody/nothing`
        outlast.toml:19: a rule of the agent `guards` is called `guard`, a name that is reserved for decisions about untrusted text; use another name
        outlast.toml:13: rule `cards`: expected a regular expression, got `(`: unclosed group
        outlast.toml:10: the agent `spends` has a budget in money, but the model `rehearsal/agent` has no known price; set its price in `outlast.toml`, or limit tokens instead
        exit 1
        $ agents validate
        asks cannot be built: model.unknown: no provider serves the model `nobody/nothing`
        begs cannot be built: model.unknown: no provider serves the model `nobody/nothing`
        guards cannot be built: config.invalid: a rule of the agent `guards` is called `guard`, a name that is reserved for decisions about untrusted text; use another name
        hides cannot be built: config.invalid: rule `cards`: expected a regular expression, got `(`: unclosed group
        spends cannot be built: config.invalid: the agent `spends` has a budget in money, but the model `rehearsal/agent` has no known price; set its price in `outlast.toml`, or limit tokens instead
        works a02c47d954dd43caf941244466a2f0b5acc0a6656b9947dfa55575af5982ec4b
        exit 1
    "#]]);
    // These policies cannot be read, with or without the Cedar feature.
    let cedar = place.show(&place.output(&["config", "check", "cedar.toml"]));
    assert!(cedar.contains("nowhere.cedar") && cedar.ends_with("exit 1\n"), "{cedar}");
}

#[test]
fn config_check_reports_unused_parts_without_duplicates() {
    let place = Place::new();
    place.write(
        "outlast.toml",
        r#"[attachments]
store = "ftp://nowhere"

[harnesses.round]
parent = "round"

[harnesses.house]
parent = "nope"

[capabilities.mail]
needs = { capabilities = ["post"] }

[harnesses.firm]
guard = "strict"

[[harnesses.firm.rules]]
name = "large"
then = "ask"

[agents.homeless]
parent = "house"

[agents.twice]
parent = "firm"

[[agents.twice.rules]]
name = "large"
then = "allow"

[agents.opens]
parent = "firm"

[[agents.opens.rules]]
name = "mine"
untrusted = true
then = "allow"

[[sinks]]
name = "a"
file = "a.jsonl"

[[sinks]]
name = "a"
file = "b.jsonl"
"#,
    );
    place.write("table.toml", "[agents]\nclerk = \"x\"\n");
    place.check(
        "config check\nconfig check table.toml",
        &expect![[r#"
            $ config check
            outlast.toml:2: expected `file:///path` or `s3://bucket/prefix` as the store of attachments, got `ftp://nowhere`
            outlast.toml:42: two sinks are called `a`; names must be unique
            outlast.toml:30: the rule `mine` of agent opens allows calls that untrusted text may have caused, but harness firm has a guard against them; only harness firm or a layer that it inherits from may allow them
            outlast.toml:23: two rules are called `large`, in harness firm and in agent twice; names must be unique, and a rule of a layer below cannot be replaced
            outlast.toml:7: harness.not_found: harness house inherits from the harness `nope`, which does not exist; there are: firm, house, round
            outlast.toml:4: harness.cycle: the harness `round` inherits from itself: round → round
            outlast.toml:10: capability.unknown: capability mail enables the capability `post`, which does not exist; there are: mail
            exit 1
            $ config check table.toml
            table.toml:2: invalid type: string "x", expected a table
            exit 1
        "#]],
    );
}

#[test]
fn agent_with_invalid_budget_is_left_out() {
    let place = Place::new();
    place.write(
        "outlast.toml",
        "[agents.spends]\nbudget = { turn = { money = \"1\" } }\n\n[agents.works]\nbuiltin = [\"clock\"]\n",
    );
    place.check("run hello --agent works", &expect![[r#"
        $ run hello --agent works
        Hello! What can I do for you?
        | · the agent `spends` is skipped: config.invalid: the agent `spends` has a budget in money, but the model `rehearsal/agent` has no known price; set its price in `outlast.toml`, or limit tokens instead
        | · session ses_1
    "#]]);
}

#[test]
fn agents_list_reports_broken_agents_beside_the_others() {
    let place = Place::new();
    place.write(
        "outlast.toml",
        "[agents.broken]\nparent = \"nowhere\"\n\n[agents.works]\nbuiltin = [\"clock\"]\n",
    );
    place.check("agents list\nagents list --json", &expect![[r#"
        $ agents list
        AGENT  IN            MODEL            LAYERS       PACKAGE
        works  outlast.toml  rehearsal/agent  agent works  a02c47d954dd43caf941244466a2f0b5acc0a6656b9947dfa55575af5982ec4b
        | · broken cannot be built: harness.not_found: agent broken inherits from the harness `nowhere`, which does not exist; there are: none
        $ agents list --json
        {"agent":"broken","error":{"code":"harness.not_found","detail":"agent broken inherits from the harness `nowhere`, which does not exist; there are: none"},"in":"outlast.toml"}
        {"agent":"works","in":"outlast.toml","layers":["agent works"],"model":"rehearsal/agent","package":"a02c47d954dd43caf941244466a2f0b5acc0a6656b9947dfa55575af5982ec4b"}
    "#]]);
}

#[test]
fn config_check_validates_agent_files() {
    let place = Place::new();
    place.write(
        "good.toml",
        "name = \"clerk\"\nbuiltin = [\"clock\"]\n\n[[rules]]\nname = \"r\"\nthen = \"allow\"\n",
    );
    place.write("nameless.toml", "system = \"Sell.\"\n");
    place.write("typo.toml", "name = \"clerk\"\nsistem = \"Sell.\"\n\n[budgt]\n");
    place.write("dear.toml", "name = \"clerk\"\n\n[budget]\nturn = { money = \"1\" }\n");
    place.write("layered.toml", "name = \"clerk\"\nparent = \"shop\"\n");
    place.write("outlast.toml", "[harnesses.shop]\nsystem = \"Sell.\"\n");
    place.check(
        "config check good.toml
         config check nameless.toml
         config check typo.toml
         config check dear.toml
         config check layered.toml
         config check good.toml --json",
        &expect![[r#"
            $ config check good.toml
            good.toml: agent clerk, 1 tool, 1 rule, no mistakes
            $ config check nameless.toml
            nameless.toml:1: missing field `name`
            exit 1
            $ config check typo.toml
            typo.toml:2: unknown key `sistem`; did you mean `system`?
            typo.toml:4: unknown key `budgt`; did you mean `budget`?
            exit 1
            $ config check dear.toml
            dear.toml:1: the agent `clerk` has a budget in money, but the model `rehearsal/agent` has no known price; set its price in `outlast.toml`, or limit tokens instead
            exit 1
            $ config check layered.toml
            layered.toml: agent clerk, 0 tools, 0 rules, no mistakes
            $ config check good.toml --json
            {"text":"good.toml: agent clerk, 1 tool, 1 rule, no mistakes"}
        "#]],
    );
}

#[test]
fn rule_for_a_missing_tool_is_a_warning() {
    let place = Place::new();
    place.write_program("pay.sh", "true");
    let tool = "name = \"pay\"\ndescription = \"Pays.\"\ncommand = [\"./pay.sh\"]\n";
    let rules = |of: &str| {
        let rule = |name: &str, tool: &str| {
            format!("[[{of}rules]]\nname = \"{name}\"\ntool = \"{tool}\"\nthen = \"allow\"\n")
        };
        rule("typo", "pey") + &rule("other", "rocket") + &rule("all", "p*") + &rule("right", "pay")
    };
    place.write(
        "outlast.toml",
        &format!(
            "[harnesses.house]\n{}[agents.clerk]\nparent = \"house\"\n[[agents.clerk.tools]]\n{tool}{}",
            "[[harnesses.house.rules]]\nname = \"no-gold\"\ntool = \"gold\"\nthen = \"allow\"\n",
            rules("agents.clerk.")
        ),
    );
    place.write("agent.toml", &format!("name = \"clerk\"\n[[tools]]\n{tool}{}", rules("")));
    place.check(
        "config check\nconfig check agent.toml",
        &expect![[r#"
            $ config check
            outlast.toml:14: warning: the rule `typo` is for the tool `pey`, which the agent `clerk` does not have; did you mean `pay`?
            outlast.toml:18: warning: the rule `other` is for the tool `rocket`, which the agent `clerk` does not have
            outlast.toml: 0 providers, 1 agent, 1 harness, 0 capabilities, no mistakes, 2 warnings
            $ config check agent.toml
            agent.toml:8: warning: the rule `typo` is for the tool `pey`, which the agent `clerk` does not have; did you mean `pay`?
            agent.toml:12: warning: the rule `other` is for the tool `rocket`, which the agent `clerk` does not have
            agent.toml: agent clerk, 1 tool, 4 rules, no mistakes, 2 warnings
        "#]],
    );
}

#[test]
fn config_check_uses_capabilities_in_the_database() {
    let place = Place::new();
    place.write(
        "sums.toml",
        "[capabilities.sums]\nbuiltin = [\"calculator\"]\n[agents.broken]\nmodel = \"nobody/x\"\n",
    );
    place.write("outlast.toml", "[agents.clerk]\ncapabilities = [\"sums\"]\n");
    place.write("agent.toml", "name = \"judge\"\ncapabilities = [\"sums\"]\n");
    place.check(
        "config check
         agents import sums.toml
         config check
         config check agent.toml",
        &expect![[r#"
            $ config check
            outlast.toml:1: capability.unknown: agent clerk enables the capability `sums`, which does not exist; there are: none
            exit 1
            $ agents import sums.toml
            capability sums, version 1, in the database
            agent broken, version 1, in the database
            $ config check
            outlast.toml: 0 providers, 1 agent, 0 harnesses, 0 capabilities, no mistakes
            $ config check agent.toml
            agent.toml: agent judge, 1 tool, 0 rules, no mistakes
        "#]],
    );
}

/// The schema accepts the same names and numbers as the parser.
#[test]
fn schema_enums_and_bounds_match_the_parser() {
    let schema = schema();
    let of = |table: &str, key: &str| {
        let defs = schema["$defs"].as_object().unwrap().values();
        let table = defs.into_iter().find(|def| def["title"] == table).unwrap();
        table["properties"][key].clone()
    };
    let words = |table: &str, key: &str| of(table, key)["enum"].to_string();
    assert_eq!(words("[agents.NAME]", "guard"), r#"["open","guarded","strict"]"#);
    assert_eq!(words("[agents.NAME.budget.turn]", "per"), r#"["day","month"]"#);
    assert_eq!(words("[[rates]]", "per"), r#"["second","minute","hour","day"]"#);
    assert_eq!(words("[[rates]]", "when_down"), r#"["closed","open"]"#);
    assert_eq!(words("[[agents.NAME.hooks]]", "on_failure"), r#"["fail","ignore"]"#);
    assert_eq!(of("[[agents.NAME.hooks]]", "point")["enum"].as_array().unwrap().len(), 9);
    for key in ["warn_at", "pause_at"] {
        let bound = of("[agents.NAME.budget.turn]", key);
        assert_eq!((&bound["minimum"], &bound["maximum"]), (&1.into(), &100.into()), "{key}");
    }
}
