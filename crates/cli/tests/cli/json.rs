//! Tests of output for programs and people: `--json` on every command, colours and progress bars only on
//! terminals.
use crate::inbox::Screen;
use crate::place::Place;
use serde_json::Value;

const SCRIPT: &str = "call clock {}\n---\nsay Reply to {{input}}.";

const AGENT: &str = "name = \"clerk\"\nsystem = \"Be brief.\"\n";

/// The arguments for every command, by its manual page. `None` if it prints nothing for programs, or never
/// ends.
const COMMANDS: &[(&str, Option<&str>)] = &[
    ("outlast-agents-audit", Some("agents audit clerk")),
    ("outlast-agents-delete", Some("agents delete clerk")),
    ("outlast-agents-diff", Some("agents diff clerk.toml clerk")),
    ("outlast-agents-history", Some("agents history clerk")),
    ("outlast-agents-import", Some("agents import clerk.toml")),
    ("outlast-agents-list", Some("agents list")),
    ("outlast-agents-show", Some("agents show clerk")),
    ("outlast-agents-validate", Some("agents validate")),
    ("outlast-approvals-approve", Some("approvals approve apr_00000000000000000000000000000000")),
    ("outlast-approvals-deny", Some("approvals deny apr_00000000000000000000000000000000 --reason no")),
    ("outlast-approvals-grants", Some("approvals grants")),
    ("outlast-approvals-list", Some("approvals list")),
    ("outlast-approvals-revoke", Some("approvals revoke grt_00000000000000000000000000000000")),
    ("outlast-attachments", Some("attachments ann")),
    ("outlast-audit", Some("audit")),
    ("outlast-budgets-clear", Some("budgets clear agent:clerk")),
    ("outlast-budgets-set", Some("budgets set agent:clerk --calls 9")),
    ("outlast-cancel", Some("cancel TURN")),
    ("outlast-chat", Some("chat ann")),
    ("outlast-completions", None),
    ("outlast-config-check", Some("config check outlast.toml")),
    ("outlast-config-schema", Some("config schema")),
    ("outlast-context", Some("context ann")),
    ("outlast-cost", Some("cost")),
    ("outlast-demo", None),
    ("outlast-doctor", Some("doctor")),
    ("outlast-events", Some("events ann")),
    ("outlast-explain", Some("explain lease.lost")),
    ("outlast-keys-check", Some("keys check")),
    ("outlast-keys-create", Some("keys create ci")),
    ("outlast-keys-list", Some("keys list")),
    ("outlast-keys-revoke", Some("keys revoke key_00000000000000000000000000000000")),
    ("outlast-man", None),
    ("outlast-mcp-accept", Some("mcp --agent clerk.toml accept x")),
    ("outlast-mcp-add", Some("mcp --agent clerk.toml add x -- nowhere")),
    ("outlast-mcp-list", Some("mcp --agent clerk.toml list")),
    ("outlast-mcp-prompt", Some("mcp --agent clerk.toml prompt x y")),
    ("outlast-mcp-read", Some("mcp --agent clerk.toml read x y")),
    ("outlast-mcp-serve", None),
    ("outlast-mcp-test", Some("mcp --agent clerk.toml test x")),
    ("outlast-models", Some("models")),
    ("outlast-orgs-create", Some("orgs create acme")),
    ("outlast-orgs-list", Some("orgs list")),
    ("outlast-rates", Some("rates")),
    ("outlast-replay", Some("replay ann.jsonl")),
    ("outlast-rerun", Some("rerun ann.jsonl --script script.txt")),
    ("outlast-resolve", Some("resolve cpl_x --ok 1")),
    ("outlast-retry", Some("retry TURN")),
    ("outlast-run", Some("run again --session ann --script script.txt")),
    ("outlast-search", Some("search hello")),
    ("outlast-serve", None),
    ("outlast-sessions-delete", Some("sessions delete bob --yes")),
    ("outlast-sessions-export", Some("sessions export ann")),
    ("outlast-sessions-fork", Some("sessions fork ann --key bob")),
    ("outlast-sessions-import", Some("sessions import ann.jsonl --as cid --data other.db")),
    ("outlast-sessions-list", Some("sessions list")),
    ("outlast-sessions-rewind", Some("sessions rewind ann --to 0")),
    ("outlast-sessions-show", Some("sessions show ann")),
    ("outlast-sinks-list", Some("sinks list")),
    ("outlast-sinks-retry", Some("sinks retry nobody")),
    ("outlast-sinks-show", Some("sinks show nobody")),
    ("outlast-sinks-test", Some("sinks test nobody")),
    ("outlast-test", Some("test clerk.toml script.txt")),
    ("outlast-tools", Some("tools")),
    ("outlast-unknown-list", Some("unknown list")),
    ("outlast-unknown-settle", Some("unknown settle cal_00000000000000000000000000000000 --did-not-happen")),
    ("outlast-verify", Some("verify")),
    ("outlast-watch", Some("watch --once")),
    ("outlast-why", Some("why ann")),
    ("outlast-work", Some("work --script script.txt")),
];

fn stage() -> Place {
    let place = Place::with_script(SCRIPT);
    place.write("clerk.toml", AGENT);
    place.write("outlast.toml", "[agents.clerk]\nsystem = \"Be brief.\"\n");
    assert!(place.output(&["run", "hello", "--session", "ann", "--script", "script.txt"]).status.success());
    assert!(place.output(&["sessions", "export", "ann", "--output", "ann.jsonl"]).status.success());
    assert!(place.output(&["agents", "import", "clerk.toml"]).status.success());
    place
}

/// Returns the commands without subcommands, by their manual pages.
fn leaves(place: &Place) -> Vec<String> {
    assert!(place.output(&["man", "--into", "man1"]).status.success());
    let pages = std::fs::read_dir(place.path().join("man1")).unwrap();
    let mut pages: Vec<String> =
        pages.map(|page| page.unwrap().file_name().into_string().unwrap().replace(".1", "")).collect();
    pages.sort();
    let has_more = |page: &str| pages.iter().any(|other| other.starts_with(&format!("{page}-")));
    pages.iter().filter(|page| !has_more(page)).cloned().collect()
}

#[test]
fn every_command_prints_only_json_on_request() {
    let place = stage();
    let known: Vec<&str> = COMMANDS.iter().map(|(page, _)| *page).collect();
    assert_eq!(leaves(&place), known, "a new command stands in the table");
    let turn = place.output(&["sessions", "show", "ann", "--json"]).stdout;
    let turn: Value = serde_json::from_str(String::from_utf8(turn).unwrap().lines().nth(1).unwrap()).unwrap();
    let turn = turn["turn"].as_str().unwrap();
    for (page, command) in COMMANDS {
        let Some(command) = command else { continue };
        let words: Vec<&str> =
            command.split_whitespace().map(|word| if word == "TURN" { turn } else { word }).collect();
        // Flags must come before `--`, which starts another program's command line.
        let at = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        let args = [&words[..at], &["--json"], &words[at..]].concat();
        let output = place.fed(&args, b"hello\n");
        assert_ne!(output.status.code(), Some(2), "{page}: {}", place.show(&output));
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let read = serde_json::from_str::<Value>(line);
            assert!(read.is_ok_and(|value| value.is_object()), "{page} prints `{line}`");
        }
    }
}

#[test]
fn colours_appear_only_on_terminals_without_no_color() {
    let place = stage();
    let command = ["sessions", "show", "ann"];
    let bold = "\u{1b}[1m";
    assert!(Screen::open(&place, &command).sent().contains(bold));
    assert!(!Screen::open(&place, &["sessions", "show", "ann", "--json"]).sent().contains(bold));
    let piped = String::from_utf8(place.output(&command).stdout).unwrap();
    assert!(!piped.contains('\u{1b}'), "{piped}");
    place.set("NO_COLOR", "1");
    let plain = Screen::open(&place, &command).sent();
    assert!(plain.contains("hello") && !plain.contains('\u{1b}'), "{plain}");
    place.set("NO_COLOR", "");
    assert!(Screen::open(&place, &command).sent().contains(bold), "an empty NO_COLOR means nothing");
}

#[test]
fn progress_bar_appears_only_on_terminals() {
    let place = stage();
    for (command, end) in [
        ("sessions export ann --output again.jsonl", "] 100 %, "),
        ("sessions import ann.jsonl --as bob --data other.db", "] 100 %, "),
        ("verify", "]   0 %, 0 of 1 sessions"),
    ] {
        let words: Vec<&str> = command.split_whitespace().collect();
        let shown = Screen::open(&place, &words).sent();
        assert!(shown.contains(end), "{command}: {shown:?}");
        // The bar is removed at the end.
        let left = shown.rsplit("\r\u{1b}[K").next().unwrap_or_default();
        assert!(!left.contains(" %, "), "{command}: {shown:?}");
    }
    let piped = place.show(&place.output(&["verify"]));
    assert!(!piped.contains(" %, "), "{piped}");
}
