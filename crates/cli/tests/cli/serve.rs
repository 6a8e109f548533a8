//! Tests of `outlast serve`: the real process, killed and stopped, and what its clients receive.
use crate::place::Place;
use expect_test::expect;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SCRIPT: &str = "\
    when slowly\nsay one two three four five six seven eight nine ten\ndelay 1s\nsay eleven twelve
    when steps\ndelay 1s\nsay Let me see.\ncall calculator {\"expression\": \"6*7\"}\n---\nsay {{result calculator}}
    any\nsay Reply to {{input}}.";
const TEXT: &str = "one two three four five six seven eight nine ten\neleven twelve";

pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
}

/// Parses the body of a response.
fn json_of(answer: &str) -> Value {
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

impl Server {
    /// Starts a server and waits until it prints its address.
    fn start(place: &Place) -> Self {
        Self::run(place, "127.0.0.1:0", &["--script", "script.txt"])
    }

    /// Starts a server at an address, with these options.
    pub(crate) fn run(place: &Place, listen: &str, options: &[&str]) -> Self {
        let args = [&["serve", "--listen", listen], options].concat();
        let mut child =
            place.command(&args).env_remove("OUTLAST_SERVER").stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("· http://").and_then(|rest| rest.split(',').next());
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { child, address }
    }

    fn open(&self, head: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let address = &self.address;
        let rest = format!("host: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n");
        let length = body.len();
        write!(stream, "{head}\r\n{rest}content-length: {length}\r\n\r\n{body}").unwrap();
        BufReader::new(stream)
    }

    /// Sends a request and returns the whole response.
    pub(crate) fn answer(&self, path: &str, body: &str) -> String {
        let mut answer = String::new();
        self.open(&format!("POST {path} HTTP/1.1"), body).read_to_string(&mut answer).unwrap();
        answer
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Value {
        json_of(&self.answer(path, body))
    }

    pub(crate) fn put(&self, path: &str, body: &str) -> Value {
        let mut answer = String::new();
        self.open(&format!("PUT {path} HTTP/1.1"), body).read_to_string(&mut answer).unwrap();
        json_of(&answer)
    }

    /// Follows a session after an event, until `last` returns true or the server is gone.
    fn follow(&self, session: &str, after: u64, mut last: impl FnMut(&Value) -> bool) -> Vec<Value> {
        let head = format!(
            "GET /v1/sessions/{session}/events HTTP/1.1\r\naccept: text/event-stream\r\nlast-event-id: {after}"
        );
        let mut events = Vec::new();
        for line in self.open(&head, "").lines().map_while(Result::ok) {
            let Some(data) = line.strip_prefix("data: ") else { continue };
            events.push(serde_json::from_str(data).unwrap());
            if events.last().is_some_and(&mut last) {
                break;
            }
        }
        events
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills the server and returns its remaining log.
    fn log(mut self) -> Vec<Value> {
        let mut log = String::new();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Stops the server with SIGTERM, as service managers do.
    fn terminate(mut self) -> bool {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().success()
    }
}

/// Kills the server at the end of the test, even if the test fails.
impl Drop for Server {
    fn drop(&mut self) {
        // The server may already be stopped.
        let _dead = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Returns whether an event is a piece of text. At the first piece the reply is incomplete, because the
/// script pauses.
fn is_text(event: &Value) -> bool {
    event["type"] == "live" && event["data"]["type"] == "text"
}

/// Assembles the text as a client does: a new attempt starts over, and each piece belongs at its offset.
fn streamed_text(events: &[Value]) -> String {
    let (mut attempt, mut text) = (0, String::new());
    for event in events.iter().filter(|event| is_text(event)) {
        let piece = &event["data"];
        let (of, offset) = (piece["attempt"].as_u64().unwrap(), piece["offset"].as_u64().unwrap());
        if of != attempt {
            (attempt, text) = (of, String::new());
        }
        text.truncate(usize::try_from(offset).unwrap());
        assert_eq!(text.len() as u64, offset, "a piece is missing before {piece}");
        text += piece["text"].as_str().unwrap();
    }
    text
}

#[test]
fn reader_gets_the_full_text_after_server_kill() {
    let place = Place::with_script(SCRIPT);
    let server = Server::start(&place);
    let session = server.post("/v1/sessions", "{}")["id"].as_str().unwrap().to_owned();
    let receipt = server.post(&format!("/v1/sessions/{session}/turns"), r#"{"text": "slowly"}"#);
    let before = server.follow(&session, 0, is_text);
    server.kill();
    let last = before.iter().rev().find_map(|event| event["seq"].as_u64()).unwrap();
    let server = Server::start(&place);
    let after = server.follow(&session, last, |event| event["type"] == "turn.ended");
    let all: Vec<Value> = before.into_iter().chain(after).collect();
    assert_eq!(streamed_text(&all), TEXT);
    let ended = all.last().unwrap();
    assert_eq!(
        (&ended["turn"], &ended["data"]["end"]["answered"]["text"]),
        (&receipt["turn"], &Value::from(TEXT))
    );
    let numbers: Vec<u64> = all.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    server.kill();
}

#[test]
fn log_links_a_request_to_its_turn() {
    let place = Place::with_script(SCRIPT);
    let server = Server::run(&place, "127.0.0.1:0", &["--script", "script.txt", "--log", "json"]);
    let head = |path: &str| format!("POST {path} HTTP/1.1\r\nx-request-id: abc-1");
    let mut answer = String::new();
    server.open(&head("/v1/turns?wait=20"), r#"{"text": "hi"}"#).read_to_string(&mut answer).unwrap();
    let receipt: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    // An MCP session answers in a separate task.
    let accept = "accept: application/json, text/event-stream";
    let hello = r#"{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
        "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}"#;
    let mut hello =
        server.open(&format!("{}\r\n{accept}", head("/mcp")), hello).lines().map_while(Result::ok);
    let session = hello.find_map(|line| Some(line.strip_prefix("mcp-session-id: ")?.to_owned())).unwrap();
    let call = r#"{"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "assistant", "arguments": {"message": "hi"}}}"#;
    let head = format!("POST /mcp HTTP/1.1\r\nx-request-id: abc-2\r\n{accept}\r\nmcp-session-id: {session}");
    server.open(&head, call).read_to_string(&mut answer).unwrap();
    let log = server.log();
    let accepted: Vec<&Value> =
        log.iter().filter(|line| line["message"] == "an input was accepted").collect();
    assert_eq!(accepted.len(), 2, "{log:?}");
    assert_eq!((&accepted[0]["span"]["request"], &accepted[0]["turn"]), (&"abc-1".into(), &receipt["turn"]));
    assert_eq!(accepted[1]["span"]["request"], "abc-2");
    // The turn itself belongs to no request.
    let ended = log.iter().find(|line| line["message"] == "the turn ended").unwrap();
    assert_eq!((&ended["span"]["turn"], &ended["span"]["request"]), (&receipt["turn"], &Value::Null));
}

#[test]
fn late_reader_gets_a_reply_from_its_start() {
    let place = Place::with_script(SCRIPT);
    let server = Server::start(&place);
    let session = server.post("/v1/sessions", "{}")["id"].as_str().unwrap().to_owned();
    server.post(&format!("/v1/sessions/{session}/turns"), r#"{"text": "slowly"}"#);
    server.follow(&session, 0, is_text);
    let late = server.follow(&session, 0, |event| event["type"] == "turn.ended");
    assert_eq!(streamed_text(&late), TEXT);
    server.kill();
}

#[test]
fn stopping_server_releases_its_sessions() {
    let place = Place::with_script(SCRIPT);
    let server = Server::start(&place);
    let turn = server.post("/v1/turns", r#"{"text": "in steps", "session_key": "ann"}"#);
    assert!(turn["turn"].is_string());
    assert!(server.terminate());
    place.check(
        "why ann
         work --script script.txt
         why ann",
        &expect![[r#"
            $ why ann
            trn_1 has been ready since TIME, but no worker has claimed it; start one with `outlast work`
            $ work --script script.txt
            ses_1 #9 turn.ended answered: "42"
            | · no turn can continue now
            $ why ann
            ses_1 has been idle since TIME; send an input to continue
        "#]],
    );
}

#[test]
fn public_address_without_keys_is_rejected() {
    let place = Place::with_script(SCRIPT);
    place.check(
        "serve --listen 0.0.0.0:0
         serve --listen localhost:7777",
        &expect![[r#"
            $ serve --listen 0.0.0.0:0
            | error[config.invalid]: 0.0.0.0:0 can be reached from other machines, and there is no API key; create one with `outlast keys create NAME --scope SCOPE`, or listen on 127.0.0.1
            |   read on with: outlast explain config.invalid
            exit 1
            $ serve --listen localhost:7777
            | error: invalid value 'localhost:7777' for '--listen <ADDRESS>': expected IP:PORT, like 127.0.0.1:7777
            | 
            | For more information, try '--help'.
            exit 2
        "#]],
    );
}

#[test]
fn proxied_host_name_needs_a_key() {
    let place = Place::with_script(SCRIPT);
    place.write("outlast.toml", "[server]\nurl = \"https://agents.example.com\"\n");
    let server =
        Server::run(&place, "127.0.0.1:0", &["--script", "script.txt", "--allow-host", "other.example.com"]);
    let status = |host: &str| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        write!(stream, "GET /v1/whoami HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    for (host, expected) in [
        ("agents.example.com", "401"),
        ("other.example.com", "401"),
        ("evil.example.com", "403"),
        (server.address.as_str(), "200"),
        ("localhost", "200"),
    ] {
        assert_eq!(status(host), expected, "{host}");
    }
    assert!(server.terminate());
}

#[test]
fn session_is_rerun_over_http_and_compared() {
    let place = Place::with_script(SCRIPT);
    let server = Server::start(&place);
    let said = server.post("/v1/turns?wait=20", r#"{"session_key": "s", "text": "steps"}"#);
    let path = format!("/v1/sessions/{}/rerun", said["session"].as_str().unwrap());
    let same = server.post(&path, r#"{"prompt": "Be brief."}"#);
    assert_eq!(
        (&same["changed"], &same["reused"], &same["ran"]),
        (&Value::from(0), &Value::from(1), &Value::from(0))
    );
    assert_eq!(same["turns"][0]["recorded"]["answer"], "42");
    let other = server.post(&path, r#"{"model": "rehearsal/agent"}"#);
    assert_eq!(
        (&other["changed"], &other["turns"][0]["recorded"]["answer"]),
        (&Value::from(1), &Value::from("42"))
    );
    for (request, code) in [
        (r#"{"agent": "/etc/passwd"}"#, "input.invalid"),
        (r#"{"agent": "nobody"}"#, "agent.not_found"),
        (r#"{"from": "9"}"#, "turn.not_found"),
        (r#"{"model": "nobody/none"}"#, "model.unknown"),
    ] {
        assert_eq!(server.post(&path, request)["code"], code, "{request}");
    }
    server.kill();
    let found = String::from_utf8(place.output(&["search", "let", "me", "se", "--json"]).stdout).unwrap();
    let found: Value = serde_json::from_str(found.trim()).unwrap();
    assert_eq!((&found["session"], &found["excerpt"]), (&said["session"], &Value::from("Let me see.")));
}

#[test]
fn socket_handover_refuses_no_connection() {
    let place = Place::with_script(SCRIPT);
    let mut old = Server::start(&place);
    let session = old.post("/v1/sessions", "{}")["id"].as_str().unwrap().to_owned();
    old.post(&format!("/v1/sessions/{session}/turns"), r#"{"text": "slowly"}"#);
    let address = old.address.clone();
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let (mut asked, mut answered) = (0, 0);
            while !enough.load(Ordering::SeqCst) {
                let mut stream = TcpStream::connect(&address).expect("no connection is refused");
                asked += 1;
                let request =
                    format!("GET /health/live HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
                let mut answer = String::new();
                let read =
                    stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
                answered += usize::from(read.is_ok() && answer.starts_with("HTTP/1.1 200"));
            }
            (asked, answered)
        });
        let new = Server::run(&place, &address, &["--script", "script.txt", "--take-over"]);
        assert!(old.child.wait().unwrap().success());
        assert_eq!(new.address, address);
        let events = new.follow(&session, 0, |event| event["type"] == "turn.ended");
        assert_eq!(events.last().unwrap()["data"]["end"]["answered"]["text"], TEXT);
        enough.store(true, Ordering::SeqCst);
        let (asked, answered) = asking.join().unwrap();
        assert!(asked > 10 && asked == answered, "{answered} of {asked}");
        assert!(new.terminate());
    });
    let without_old_server =
        place.output(&["serve", "--listen", &address, "--script", "script.txt", "--take-over"]);
    assert!(String::from_utf8(without_old_server.stderr).unwrap().contains("no server to take"));
}

#[test]
fn server_raises_its_open_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let before = getrlimit(Resource::Nofile);
    // The server inherits this limit. The test runs in a separate process, so other tests are not affected.
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: Some(256), ..before }).unwrap();
    let place = Place::with_script(SCRIPT);
    let server = Server::start(&place);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.child.id())).unwrap();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let files: Vec<&str> = files.split_whitespace().collect();
    let expected = before.maximum.map_or(65_536, |most| most.min(65_536));
    assert_eq!(files[0], expected.to_string());
    server.kill();
}

#[test]
fn server_runs_turns_on_dedicated_threads() {
    let place = Place::with_script(SCRIPT);
    let server = Server::start(&place);
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
    let names = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")).unwrap());
    let of_turns = names.filter(|name| name.trim() == "outlast-turns").count();
    assert_eq!(of_turns, std::thread::available_parallelism().unwrap().get());
    assert!(server.terminate());
}
