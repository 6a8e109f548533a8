//! `outlast config`, and the schema that is published.
use crate::place::Place;
use expect_test::{expect, expect_file};
use serde_json::Value;
use std::collections::BTreeMap;

fn schema() -> Value {
    let output = Place::new().output(&["config", "schema"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_published_schema_is_the_one_that_is_read() {
    let output = Place::new().output(&["config", "schema"]);
    expect_file!["../../../../docs/outlast.schema.json"]
        .assert_eq(&String::from_utf8(output.stdout).unwrap());
}

/// The keys of every table, by the table's name in the guide.
fn tables(schema: &Value) -> BTreeMap<String, Vec<String>> {
    let mut tables = BTreeMap::from([("outlast.toml".to_owned(), keys(schema))]);
    for (name, table) in schema["$defs"].as_object().unwrap() {
        if let Some(title) = table["title"].as_str() {
            tables.insert(title.to_owned(), keys(table));
        } else {
            let named = [
                "Api",
                "Class",
                "DocumentTable",
                "From",
                "Full",
                "Group",
                "Header",
                "KeyTable",
                "Place",
                "Then",
                "Variable",
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
fn every_key_of_the_schema_is_in_the_guide() {
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
fn every_mistake_of_a_configuration_is_told_with_its_line_and_the_key_that_was_meant() {
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
            outlast.toml:7: unknown key `rocket` in `agents.clerk`; the keys are: budget, builtin, capabilities, documents, fetch, files, guard, hooks, mcp, model, model_calls, name, network, parent, rates, rules, shell, system, tools
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
            gone.toml:2: tool `pay`: expected a program that can be run, but `./gone.sh` is none or not executable
            gone.toml:6: harness.not_found: agent b stands on the harness `c`, which is not there; there are: none
            exit 1
            $ config check missing.toml
            | error[io.failed]: the configuration missing.toml cannot be read: No such file or directory (os error 2)
            |   read on with: outlast explain io.failed
            exit 1
        "#]],
    );
}
