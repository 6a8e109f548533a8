//! Tests that tools cannot change the agent's own files: the database, the agent file, its programs, the
//! configuration.
#[cfg(target_os = "linux")]
use crate::mcp::accept;
use crate::mcp::plain;
use crate::place::Place;
use expect_test::expect;
use std::fs;

/// Writes an agent whose tools work in the directory with all its files.
fn clerk(place: &Place, more: &str) {
    place.write_program("pay.sh", "cat > /dev/null; echo '\"paid\"'");
    let tool = "[[tools]]\nname = \"pay\"\ndescription = \"Pays.\"\ncommand = [\"./pay.sh\"]\n";
    place.write("clerk.toml", &format!("name = \"clerk\"\n{more}\n{tool}"));
    place.write("outlast.toml", "");
}

#[test]
fn file_tools_refuse_database_configuration_and_agent_files() {
    let place = Place::new();
    clerk(&place, "files = \".\"");
    let write = |path: &str| format!("call file_write {{\"path\": \"{path}\", \"content\": \"mine\"}}");
    let own =
        ["outlast.db", "outlast.db-wal", "outlast.db-workers/x", "outlast.toml", "clerk.toml", "pay.sh"];
    assert!(place.output(&["run", "hi"]).status.success());
    for agent in [&["--agent", "clerk.toml"][..], &[]] {
        for path in own.iter().filter(|path| !agent.is_empty() || !["clerk.toml", "pay.sh"].contains(*path)) {
            let before = fs::read(place.path().join(path)).ok();
            let output = place.show(&place.output(&[&["run", &write(path)], agent].concat()));
            assert!(output.contains("is not available to tools"), "{path}: {output}");
            assert_eq!(fs::read(place.path().join(path)).ok().is_some(), before.is_some(), "{path}");
        }
        let output = place.show(&place.output(&[&["run", &write("notes.txt")], agent].concat()));
        assert!(output.contains("{\"bytes\":4}"), "{output}");
    }
    let whole = place.output(&["verify"]);
    assert!(whole.status.success(), "{}", place.show(&whole));
    assert_eq!(fs::read_to_string(place.path().join("outlast.toml")).unwrap(), "");
}

#[test]
fn shell_that_could_change_its_agent_is_rejected() {
    let place = Place::new();
    fs::create_dir(place.path().join("shed")).unwrap();
    clerk(&place, "files = \".\"\n[shell]");
    place.check(
        "config check clerk.toml
         run hi --agent clerk.toml",
        &expect![[r#"
            $ config check clerk.toml
            clerk.toml:3: the shell can change everything in the directory for files, and this one may contain the database and the agent's file; use a directory below it, like `files = "work"`
            exit 1
            $ run hi --agent clerk.toml
            | error[config.invalid]: clerk.toml:3: the shell can change everything in the directory for files, and this one may contain the database and the agent's file; use a directory below it, like `files = "work"`
            |   read on with: outlast explain config.invalid
            exit 1
        "#]],
    );
    clerk(&place, "files = \"shed\"\n[shell]");
    place.check(
        "run hi --agent clerk.toml --data shed/outlast.db
         run hi --agent clerk.toml",
        &expect![[r#"
            $ run hi --agent clerk.toml --data shed/outlast.db
            | error[config.invalid]: the shell of the agent `clerk` may change everything in DIR/shed, which contains the database shed/outlast.db; use separate directories
            |   read on with: outlast explain config.invalid
            exit 1
            $ run hi --agent clerk.toml
            Hello! What can I do for you?
            | · session ses_1
        "#]],
    );
    fs::rename(place.path().join("pay.sh"), place.path().join("shed/pay.sh")).unwrap();
    let agent = fs::read_to_string(place.path().join("clerk.toml")).unwrap();
    place.write("clerk.toml", &agent.replace("./pay.sh", "./shed/pay.sh"));
    place.check("run hi --agent clerk.toml", &expect![[r#"
        $ run hi --agent clerk.toml
        | error[config.invalid]: the agent `clerk` is loaded from DIR/./shed/pay.sh, which its shell could change; move it out of DIR/shed
        |   read on with: outlast explain config.invalid
        exit 1
    "#]]);
}

#[test]
fn approved_write_uses_its_original_directory() {
    let place = Place::new();
    let rule = "[[rules]]\nname = \"ask\"\ntool = \"file_write\"\nthen = \"ask\"\n";
    place.write("clerk.toml", &format!("name = \"clerk\"\nfiles = \"notes\"\n{rule}"));
    let [one, two] = ["one", "two"].map(|name| place.path().join(name));
    let at = |dir: &std::path::Path, args: &[&str]| {
        let rest = ["--data", "../outlast.db", "--agent", "../clerk.toml"];
        let output = place.command(&[args, &rest].concat()).current_dir(dir).output().unwrap();
        place.show(&output)
    };
    for dir in [&one, &two] {
        fs::create_dir(dir).unwrap();
    }
    at(&one, &["run", "call file_write {\"path\": \"a.txt\", \"content\": \"x\"}", "--session", "s"]);
    let waits = String::from_utf8(place.output(&["--json", "approvals"]).stdout).unwrap();
    let waits: serde_json::Value = serde_json::from_str(&waits).unwrap();
    assert!(place.output(&["approvals", "approve", waits["id"].as_str().unwrap()]).status.success());
    let stuck = at(&two, &["work"]);
    assert!(stuck.contains("package.unavailable"), "{stuck}");
    assert!(!two.join("notes/a.txt").exists() && !one.join("notes/a.txt").exists());
    // The turn continues in the directory in which it was started.
    let retried = at(&one, &["retry", "trn_1"]);
    assert!(one.join("notes/a.txt").exists() && !two.join("notes/a.txt").exists(), "{retried}");
}

#[test]
fn arguments_are_checked_against_the_recorded_schema() {
    for (output, edited, paid) in [(10, 100, false), (100, 10, true)] {
        let place = Place::with_script("turn\ncall wait {}\n---\ncall pay {\"euros\": 50}\n---\nsay done");
        place.write_program("pay.sh", "cat > /dev/null; echo '\"paid\"'");
        let agent = |most: u32| {
            let tools = ["wait", "pay"].map(|name| {
                format!("[[tools]]\nname = \"{name}\"\ndescription = \"x\"\ncommand = [\"./pay.sh\"]\n")
            });
            let input = format!(
                "input = {{ type = \"object\", properties = {{ euros = {{ maximum = {most} }} }} }}\n"
            );
            let rule = "[[rules]]\nname = \"ask\"\ntool = \"wait\"\nthen = \"ask\"\n";
            place.write("clerk.toml", &format!("name = \"clerk\"\n{}{input}{rule}", tools.concat()));
        };
        let rest = ["--agent", "clerk.toml", "--script", "script.txt"];
        agent(output);
        place.output(&[&["run", "go", "--session", "s"], &rest[..]].concat());
        agent(edited);
        let waits = place.output(&["--json", "approvals"]).stdout;
        let waits: serde_json::Value = serde_json::from_slice(&waits).unwrap();
        assert!(place.output(&["approvals", "approve", waits["id"].as_str().unwrap()]).status.success());
        let worked = place.show(&place.output(&[&["work"], &rest[..]].concat()));
        assert!(worked.contains("answered: \"done\""), "{worked}");
        let shown = place.show(&place.output(&["events", "s"]));
        assert_eq!(shown.contains("tool.args_invalid"), !paid, "{shown}");
    }
}

#[test]
fn default_tools_cannot_see_dot_files() {
    let place = Place::new();
    fs::create_dir(place.path().join(".secrets")).unwrap();
    for name in [".env", ".secrets/key", "notes.txt"] {
        place.write(name, "API_KEY=canary-dot");
    }
    for call in [
        "call file_read {\"path\": \".env\"}",
        "call file_read {\"path\": \".secrets/key\"}",
        "call file_write {\"path\": \".env\", \"content\": \"x\"}",
        "call file_edit {\"path\": \".env\", \"old\": \"API\", \"new\": \"x\"}",
        "call file_list {\"path\": \".secrets\"}",
        "call file_grep {\"pattern\": \"API\", \"path\": \".secrets\"}",
    ] {
        let output = place.show(&place.output(&["run", call]));
        assert!(output.contains("is hidden") && !output.contains("canary-dot"), "{call}: {output}");
    }
    let output = place.show(&place.output(&["run", "call file_list {}"]));
    assert!(
        output.contains("notes.txt") && !output.contains(".env") && !output.contains(".secrets"),
        "{output}"
    );
    let output = place.show(&place.output(&["run", "call file_grep {\"pattern\": \"API\"}"]));
    assert!(
        output.contains("notes.txt") && !output.contains(".env") && !output.contains("key\""),
        "{output}"
    );
    assert_eq!(fs::read_to_string(place.path().join(".env")).unwrap(), "API_KEY=canary-dot");
}

#[test]
fn documents_are_read_only_to_tools() {
    let place = Place::new();
    fs::create_dir(place.path().join("work")).unwrap();
    place.write("work/terms.md", "no refunds");
    let documents = "[documents]\n\"terms.md\" = { file = \"./work/terms.md\" }\n";
    place.write("agent.toml", &format!("name = \"a\"\nfiles = \"work\"\n{documents}"));
    let run = |call: &str| place.show(&place.output(&["run", call, "--agent", "agent.toml"]));
    assert!(run("call file_read {\"path\": \"terms.md\"}").contains("no refunds"));
    for call in [
        "call file_write {\"path\": \"terms.md\", \"content\": \"all refunds\"}",
        "call file_edit {\"path\": \"terms.md\", \"old\": \"no\", \"new\": \"all\"}",
    ] {
        let output = run(call);
        assert!(output.contains("is a document of an agent, which tools may read but not write"), "{output}");
    }
    assert_eq!(fs::read_to_string(place.path().join("work/terms.md")).unwrap(), "no refunds");
    // A shell may change everything in its directory.
    place.write("agent.toml", &format!("name = \"a\"\nfiles = \"work\"\n[shell]\n{documents}"));
    let output = run("hi");
    assert!(output.contains("and the shell of the agent `a` could change it"), "{output}");
}

#[cfg(target_os = "linux")]
#[test]
fn server_that_could_change_the_database_is_refused() {
    let sandbox = |write: &str| format!("sandbox = true\nread = [\"plain.py\"]\nwrite = [\"{write}\"]\n");
    let place = plain("good", &sandbox("data"));
    fs::create_dir(place.path().join("data")).unwrap();
    accept(&place);
    place.check(
        "run hi --agent agent.toml --data data/outlast.db",
        &expect![[r"
            $ run hi --agent agent.toml --data data/outlast.db
            | error[config.invalid]: the MCP server `plain` of the agent `a` may change everything in DIR/data, which contains the database data/outlast.db; use separate directories
            |   read on with: outlast explain config.invalid
            exit 1
        "]],
    );
    assert!(!place.path().join("data/outlast.db").exists());
    let elsewhere = place.output(&["run", "hi", "--agent", "agent.toml"]);
    assert!(elsewhere.status.success(), "{}", place.show(&elsewhere));
    // The database file itself, by its name.
    let agent = fs::read_to_string(place.path().join("agent.toml")).unwrap();
    place.write("agent.toml", &agent.replace(&sandbox("data"), &sandbox("outlast.db-wal")));
    let output = place.show(&place.output(&["run", "hi", "--agent", "agent.toml"]));
    assert!(output.contains("the MCP server `plain` of the agent `a` may change"), "{output}");
}

#[test]
fn server_that_could_change_its_agent_is_refused() {
    let documents = "[documents]\n\"terms.md\" = { file = \"./work/terms.md\" }\n";
    for (write, part) in [("work", "work/terms.md"), ("work/terms.md", "work/terms.md"), (".", "agent.toml")]
    {
        let server = format!("sandbox = true\nread = [\"plain.py\"]\nwrite = [\"{write}\"]\n");
        let place = plain("good", &format!("{server}{documents}"));
        fs::create_dir(place.path().join("work")).unwrap();
        place.write("work/terms.md", "no refunds");
        let output = place.show(&place.output(&["run", "hi", "--agent", "agent.toml"]));
        let refused = ["config.invalid", "MCP server `plain`", "could change", "out of", part];
        assert!(refused.iter().all(|text| output.contains(text)), "{write}: {output}");
    }
}

/// Writes a configuration whose agent `clerk` pays, with a hook, a document and sinks beside it.
fn shop(place: &Place, more: &str) {
    fs::create_dir_all(place.path().join("bin")).unwrap();
    for name in ["pay.sh", "watch.sh", "deliver.sh"] {
        place.write_program(&format!("bin/{name}"), "cat > /dev/null; echo '\"done\"'");
    }
    place.write("terms.md", "no refunds");
    let config = format!(
        r#"
[agents.clerk]
[agents.clerk.documents]
"terms.md" = {{ file = "./terms.md" }}
[[agents.clerk.tools]]
name = "pay"
description = "Pays."
command = ["./bin/pay.sh"]
[[agents.clerk.hooks]]
name = "watch"
point = "after_end"
command = ["sh", "./bin/watch.sh"]
[[sinks]]
name = "out"
command = ["./bin/deliver.sh"]
from = "now"
[[sinks]]
name = "log"
file = "./log.jsonl"
{more}
"#
    );
    place.write("shop.toml", &config);
    place.write("outlast.toml", "");
}

/// The files of [`shop`] that no tool may touch, with the reason.
const SHOP_FILES: [(&str, &str); 6] = [
    ("shop.toml", "is not available to tools"),
    ("shop.mcp.json", "is not available to tools"),
    ("bin/pay.sh", "is not available to tools"),
    ("bin/watch.sh", "is not available to tools"),
    ("bin/deliver.sh", "is not available to tools"),
    ("log.jsonl", "is not available to tools"),
];

#[test]
fn default_agent_cannot_change_configured_programs() {
    let place = Place::new();
    shop(&place, "");
    let document = ("terms.md", "is a document of an agent");
    for (path, reason) in SHOP_FILES.into_iter().chain([document]) {
        let before = fs::read_to_string(place.path().join(path)).ok();
        let call = format!("call file_write {{\"path\": \"{path}\", \"content\": \"mine\"}}");
        let output = place.show(&place.output(&["run", &call, "--config", "shop.toml"]));
        assert!(output.contains(reason), "{path}: {output}");
        let after = fs::read_to_string(place.path().join(path)).ok();
        assert!(path == "log.jsonl" || before == after, "{path}: {after:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn agent_cannot_change_files_of_other_agents() {
    let place = Place::new();
    let other = |tables: &str| shop(&place, &format!("[agents.other]\n{tables}"));
    for (call, reason) in [
        ("call file_write {\"path\": \"pay.sh\", \"content\": \"x\"}", "is not available to tools"),
        ("call file_read {\"path\": \"pay.sh\"}", "is not available to tools"),
        ("call file_write {\"path\": \"notes.txt\", \"content\": \"x\"}", "{\"bytes\":1}"),
    ] {
        other("files = \"bin\"");
        let output = place.show(&place.output(&["run", call, "--config", "shop.toml", "--agent", "other"]));
        assert!(output.contains(reason), "{call}: {output}");
    }
    other("files = \"bin\"\n[agents.other.shell]");
    let output = place.show(&place.output(&["run", "hi", "--config", "shop.toml", "--agent", "other"]));
    assert!(output.contains("the shell of the agent `other` could change it"), "{output}");
    // A single agent file is protected from the agents of the configuration, and the reverse.
    let settings = "files = \"shed\"\n[shell]";
    fs::create_dir(place.path().join("shed")).unwrap();
    clerk(&place, "");
    fs::rename(place.path().join("clerk.toml"), place.path().join("shed/clerk.toml")).unwrap();
    fs::rename(place.path().join("pay.sh"), place.path().join("shed/pay.sh")).unwrap();
    other(&settings.replace("[shell]", "[agents.other.shell]"));
    let output =
        place.show(&place.output(&["run", "hi", "--config", "shop.toml", "--agent", "shed/clerk.toml"]));
    assert!(output.contains("the agent `other` is skipped"), "{output}");
}

#[cfg(target_os = "linux")]
#[test]
fn stored_agent_shares_protection_with_configured_agents() {
    let place = Place::new();
    fs::create_dir(place.path().join("shed")).unwrap();
    clerk(&place, "");
    let import = place.output(&["agents", "import", "clerk.toml"]);
    assert!(import.status.success(), "{}", place.show(&import));
    // The default agent is built before the stored one is known.
    let output =
        place.show(&place.output(&["run", "call file_write {\"path\": \"pay.sh\", \"content\": \"x\"}"]));
    assert!(output.contains("is not available to tools"), "{output}");
    place.write("outlast.toml", "[agents.builder]\nfiles = \"shed\"\n[agents.builder.shell]\n");
    let works = place.show(&place.output(&["run", "hi", "--agent", "builder"]));
    assert!(!works.contains("skipped"), "{works}");
    fs::rename(place.path().join("pay.sh"), place.path().join("shed/pay.sh")).unwrap();
    let agent = fs::read_to_string(place.path().join("clerk.toml")).unwrap();
    place.write("clerk.toml", &agent.replace("./pay.sh", "./shed/pay.sh"));
    let import = place.output(&["agents", "import", "clerk.toml"]);
    let output = place.show(&import) + &place.show(&place.output(&["run", "hi", "--agent", "builder"]));
    assert!(output.contains("which agent `builder` with its shell could change"), "{output}");
}

#[cfg(target_os = "linux")]
#[test]
fn stored_agent_cannot_change_the_database() {
    let place = Place::new();
    fs::create_dir(place.path().join("shed")).unwrap();
    clerk(&place, "files = \"shed\"\n[shell]");
    place.set("OUTLAST_DATA", "shed/outlast.db");
    let import = place.output(&["agents", "import", "clerk.toml"]);
    assert!(import.status.success(), "{}", place.show(&import));
    let output = place.show(&place.output(&["run", "hi", "--session", "ann"]));
    let refused = "the agent `clerk` is skipped: config.invalid: the shell of the agent `clerk` may change everything in";
    assert!(output.contains(refused), "{output}");
}
