//! Tests of agents as MCP tools: the real binary over both transports, with the official SDK, killed in
//! between.
use crate::place::Place;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const AGENT: &str = r#"
name = "clerk"
[[tools]]
name = "pay"
description = "Pays a person."
command = ["tee", "-a", "paid"]
[[rules]]
name = "large"
tool = "pay"
then = "ask"
"#;

const SCRIPT: &str = "\
    when slowly\nsay one two three four five six seven eight nine ten\ndelay 1s\nsay eleven twelve
    when pay\ncall pay {\"to\": \"joe\"}\n---\nsay {{result pay}}
    any\nsay Reply to {{input}}.";
const SLOWLY: &str = "one two three four five six seven eight nine ten\neleven twelve";

/// The transport and the revision of the protocol.
#[derive(Clone, Copy, Debug)]
enum Way {
    Http(&'static str),
    Pipe(&'static str),
}

const WAYS: [Way; 4] = [Way::Http("legacy"), Way::Http("auto"), Way::Pipe("legacy"), Way::Pipe("auto")];

impl Way {
    fn mode(self) -> &'static str {
        match self {
            Self::Http(mode) | Self::Pipe(mode) => mode,
        }
    }
}

fn place() -> Place {
    let place = Place::with_script(SCRIPT);
    place.write("clerk.toml", AGENT);
    place.set("USER", "ann");
    place
}

/// An HTTP server that is killed when dropped.
struct RunningServer {
    child: Child,
    url: String,
}

impl RunningServer {
    fn start(place: &Place, more: &[&str]) -> Self {
        let args = ["serve", "--listen", "127.0.0.1:0", "--agent", "clerk.toml", "--script", "script.txt"];
        let args: Vec<&str> = args.iter().chain(more).copied().collect();
        let mut child = place.command(&args).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("· http://").and_then(|rest| rest.split(',').next());
        let url = format!("http://{}/mcp", address.unwrap_or_else(|| panic!("{line}")));
        Self { child, url }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        // It may already be dead.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client(place: &Place, plan: &Value, server: &[&str]) -> Command {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python: PathBuf = tests.join("../../target/needs/mcp-python/bin/python");
    assert!(python.exists(), "{} is not there; `cargo xtask test` installs it", python.display());
    let mut command = Command::new(python);
    command.arg(tests.join("tests/cli/mcp_server/client.py")).arg(plan.to_string()).args(server);
    command.current_dir(place.path()).env("USER", "ann").stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|cause| panic!("{cause}: {line}"))
}

/// Runs the steps with the official client against a new server, and returns its report.
#[track_caller]
fn tell(place: &Place, way: Way, mut plan: Value) -> Vec<Value> {
    plan["mode"] = way.mode().into();
    plan["cwd"] = place.path().display().to_string().into();
    let output = match way {
        Way::Http(_) => {
            let serving = RunningServer::start(place, &[]);
            client(place, &plan, &[&serving.url]).output().unwrap()
        }
        Way::Pipe(_) => {
            let program = [
                env!("CARGO_BIN_EXE_outlast"),
                "mcp",
                "serve",
                "--agent",
                "clerk.toml",
                "--script",
                "script.txt",
            ];
            client(place, &plan, &program).output().unwrap()
        }
    };
    let lines = String::from_utf8(output.stdout).unwrap();
    let all: Vec<Value> = lines.lines().map(parsed).collect();
    assert_eq!(all[0]["what"], "connected", "{way:?}: {all:?}");
    assert_eq!(
        all[0]["version"],
        if way.mode() == "legacy" { "2025-11-25" } else { "2026-07-28" },
        "{way:?}"
    );
    all.into_iter().skip(1).collect()
}

fn call(with: &Value) -> Value {
    json!({ "do": "call", "tool": "clerk", "with": with })
}

fn paid(place: &Place) -> String {
    std::fs::read_to_string(place.path().join("paid")).unwrap_or_default()
}

#[test]
fn agent_tool_continues_a_session_across_calls() {
    for way in WAYS {
        let place = place();
        let mut first = call(&json!({ "message": "hi", "session": "ann" }));
        first["watch"] = true.into();
        let steps = [json!({ "do": "tools" }), first, call(&json!({ "message": "more", "session": "ann" }))];
        let all = tell(&place, way, json!({ "steps": steps }));
        let takes = ["idempotency_key", "message", "schema", "session", "turn"];
        assert_eq!(all[0]["tools"], json!([{ "name": "clerk", "takes": takes }]), "{way:?}");
        let progress: String = all
            .iter()
            .filter(|line| line["what"] == "progress")
            .map(|line| line["message"].as_str().unwrap())
            .collect();
        assert_eq!(progress, "Reply to hi.", "{way:?}");
        let results: Vec<&Value> = all.iter().filter(|line| line["what"] == "result").collect();
        assert_eq!([&results[0]["text"], &results[1]["text"]], ["Reply to hi.", "Reply to more."], "{way:?}");
        assert_eq!(results[0]["said"]["status"], "answered", "{way:?}");
        assert_eq!(results[0]["said"]["session"], results[1]["said"]["session"], "{way:?}");
        assert_ne!(results[0]["said"]["turn"], results[1]["said"]["turn"], "{way:?}");
    }
}

#[test]
fn mcp_idempotency_key_yields_one_turn() {
    for way in WAYS {
        let place = place();
        let step = call(&json!({ "message": "hi", "idempotency_key": "k" }));
        let other = call(&json!({ "message": "hi" }));
        let all = tell(&place, way, json!({ "steps": [step, step, other] }));
        assert_eq!(all[0], all[1], "{way:?}");
        assert_ne!(all[0]["said"]["turn"], all[2]["said"]["turn"], "{way:?}");
    }
}

#[test]
fn retried_call_after_server_kill_continues_its_turn() {
    let place = place();
    let mut step = call(&json!({ "message": "slowly", "idempotency_key": "k" }));
    step["watch"] = true.into();
    let plan = json!({ "mode": "legacy", "steps": [step] });
    let serving = RunningServer::start(&place, &[]);
    let mut waiting = client(&place, &plan, &[&serving.url]).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(waiting.stdout.take().unwrap()).lines().map(|line| parsed(&line.unwrap()));
    let progress = lines.into_iter().find(|line| line["what"] == "progress").unwrap();
    assert_eq!(progress["message"], "one ");
    // Kill without a warning.
    drop(serving);
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    for mode in ["legacy", "auto"] {
        let all = tell(&place, Way::Http(mode), json!({ "steps": [step] }));
        assert_eq!(all.last().unwrap()["text"], SLOWLY, "{all:?}");
    }
    let sessions = String::from_utf8(place.output(&["sessions"]).stdout).unwrap();
    assert_eq!(sessions.lines().count(), 2, "{sessions}");
}

#[test]
fn client_user_approves_and_is_recorded() {
    for way in WAYS {
        let place = place();
        let answer = json!({ "action": "accept", "content": { "decision": "approve" } });
        let all = tell(
            &place,
            way,
            json!({ "steps": [call(&json!({ "message": "pay", "session": "s" }))], "answers": [answer] }),
        );
        let asked = all[0]["message"].as_str().unwrap();
        assert!(
            asked.starts_with("May the tool `pay` run with these arguments?\n{\n  \"to\": \"joe\"\n}"),
            "{way:?}: {asked}"
        );
        assert_eq!(
            (&all[0]["takes"], &all[1]["text"]),
            (&json!(["decision", "reason"]), &json!("{\"to\":\"joe\"}")),
            "{way:?}"
        );
        assert_eq!(paid(&place), "{\"to\":\"joe\"}", "{way:?}");
        let audit = String::from_utf8(place.output(&["audit"]).stdout).unwrap();
        assert!(audit.contains("person:ann") && audit.contains("approve"), "{way:?}: {audit}");
    }
}

#[test]
fn denial_by_client_user_reaches_the_agent() {
    let no = json!({ "action": "accept", "content": { "decision": "deny", "reason": "no" } });
    for way in WAYS {
        let place = place();
        let step = call(&json!({ "message": "pay" }));
        let plan = json!({ "steps": [step, step], "answers": [no, { "action": "decline" }] });
        let all = tell(&place, way, plan);
        let how: Vec<&Value> = all.iter().map(|line| &line["what"]).collect();
        assert_eq!(how, ["asked", "result", "asked", "result"], "{way:?}: {all:?}");
        assert_eq!(all[1]["said"]["status"], "answered", "{way:?}: {all:?}");
        assert_eq!(paid(&place), "", "{way:?}");
    }
}

#[test]
fn client_without_elicitation_receives_the_pending_approval() {
    for way in WAYS {
        let place = place();
        let all = tell(&place, way, json!({ "steps": [call(&json!({ "message": "pay" }))] }));
        assert_eq!(all[0]["said"]["status"], "waiting", "{way:?}: {all:?}");
        let wait = &all[0]["said"]["waits"][0];
        assert_eq!((&wait["tool"], &wait["arguments"]), (&json!("pay"), &json!({ "to": "joe" })), "{way:?}");
        let approval = wait["approval"].as_str().unwrap();
        assert!(
            all[0]["text"].as_str().unwrap().contains(&format!("`outlast approvals approve {approval}`")),
            "{all:?}"
        );
        assert!(place.output(&["approvals", "approve", approval]).status.success());
        let again = call(&json!({ "turn": all[0]["said"]["turn"] }));
        let all = tell(&place, way, json!({ "steps": [again] }));
        assert_eq!(all[0]["text"], "{\"to\":\"joe\"}", "{way:?}: {all:?}");
    }
}

#[test]
fn client_without_scope_cannot_approve_or_run() {
    let place = place();
    // Keys need a database, which the first run creates.
    assert!(place.output(&["run", "hi", "--script", "script.txt"]).status.success());
    let key = |scopes: &[&str]| {
        let scopes = scopes.iter().flat_map(|scope| ["--scope", scope]);
        let made = place.output(&["keys", "create", "bot"].into_iter().chain(scopes).collect::<Vec<_>>());
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let answer = json!({ "action": "accept", "content": { "decision": "approve" } });
    let ask = |key: &str, mode: &str, serving: &RunningServer| {
        let plan = json!({ "mode": mode, "key": key, "answers": [answer], "steps": [call(&json!({ "message": "pay" })), { "do": "resources" }] });
        let output = client(&place, &plan, &[&serving.url]).output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        lines.lines().map(parsed).collect::<Vec<_>>()
    };
    let (reads, runs, approves) = (key(&["read"]), key(&["run"]), key(&["run", "approve"]));
    let serving = RunningServer::start(&place, &["--require-key"]);
    for mode in ["legacy", "auto"] {
        let read = ask(&reads, mode, &serving);
        assert_eq!(read[1]["said"]["error"]["code"], "access.denied", "{read:?}");
        assert_eq!(read[2]["what"], "resources", "{read:?}");
        assert_eq!(ask(&runs, mode, &serving)[1]["said"]["status"], "waiting");
        let both = ask(&approves, mode, &serving);
        assert_eq!(
            (&both[1]["what"], &both[2]["said"]["status"]),
            (&json!("asked"), &json!("answered")),
            "{both:?}"
        );
        assert_eq!(ask("olk_nobody", mode, &serving)[0]["what"], "gone");
    }
    let scoped = [
        env!("CARGO_BIN_EXE_outlast"),
        "mcp",
        "serve",
        "--agent",
        "clerk.toml",
        "--script",
        "script.txt",
        "--scope",
        "run",
    ];
    let plan = json!({ "mode": "auto", "cwd": place.path(), "answers": [answer], "steps": [call(&json!({ "message": "pay" }))] });
    let lines = String::from_utf8(client(&place, &plan, &scoped).output().unwrap().stdout).unwrap();
    assert_eq!(parsed(lines.lines().nth(1).unwrap())["said"]["status"], "waiting", "{lines}");
}

#[test]
fn cancelled_mcp_call_stops_its_turn() {
    for way in WAYS {
        let place = place();
        let cancel =
            json!({ "do": "cancel", "tool": "clerk", "with": { "message": "slowly", "session": "s" } });
        let after = call(&json!({ "message": "hi", "session": "s" }));
        let all = tell(&place, way, json!({ "steps": [cancel, after] }));
        assert_eq!(
            (&all[0]["what"], &all[1]["text"]),
            (&json!("cancelled"), &json!("Reply to hi.")),
            "{way:?}: {all:?}"
        );
        let events = String::from_utf8(place.output(&["events", "s"]).stdout).unwrap();
        assert!(events.contains("turn.ended cancelled"), "{way:?}: {events}");
    }
}

#[test]
fn sessions_are_resources_as_json_and_markdown() {
    for way in WAYS {
        let place = place();
        let all = tell(
            &place,
            way,
            json!({ "steps": [call(&json!({ "message": "hi" })), { "do": "resources" }, { "do": "templates" }] }),
        );
        let session = all[0]["said"]["session"].as_str().unwrap();
        let json = format!("outlast://sessions/{session}/transcript.json");
        assert_eq!(
            all[1]["found"],
            json!([{ "uri": json, "title": "hi", "kind": "application/json" }]),
            "{way:?}"
        );
        assert_eq!(all[2]["found"].as_array().unwrap().len(), 2, "{way:?}");
        let markdown = format!("outlast://sessions/{session}/transcript.md");
        let unknown_session = format!("outlast://sessions/ses_{}/transcript.md", "7".repeat(32));
        let steps = [json, markdown, unknown_session].map(|uri| json!({ "do": "read", "uri": uri }));
        let all = tell(&place, way, json!({ "steps": steps }));
        let read: Value = serde_json::from_str(all[0]["text"].as_str().unwrap()).unwrap();
        let texts: Vec<&Value> =
            read["messages"].as_array().unwrap().iter().map(|message| &message["text"]).collect();
        assert_eq!(texts, ["hi", "Reply to hi."], "{way:?}");
        let text = format!("# Session {session}\n\n## User\n\nhi\n\n## Agent\n\nReply to hi.\n");
        assert_eq!((&all[1]["kind"], &all[1]["text"]), (&json!("text/markdown"), &json!(text)), "{way:?}");
        assert_eq!(all[2]["what"], "failed", "{way:?}");
    }
}
