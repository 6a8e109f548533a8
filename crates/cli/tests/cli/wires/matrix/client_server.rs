//! A server for one client, with an agent whose only tool charges somebody.
use super::super::port;
use crate::place::Place;
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Each charge appends a line: its arguments and its turn. It runs at most once, which is the default of a tool.
const AGENT: &str = r#"
name = "assistant"

[[tools]]
name = "charge"
description = "Charges the customer's card."
command = ["./charge.sh"]

[tools.input]
type = "object"
required = ["for"]
properties.for.type = "string"

[[tools]]
name = "wait_for_stream"
description = "Waits until the test goes on."
command = ["./wait.sh", "stream"]
class = "pure"

[[tools]]
name = "wait_for_answer"
description = "Waits until the test goes on."
command = ["./wait.sh", "answer"]
class = "pure"
"#;

/// Waits for a file, for at most a minute.
const WAIT: &str = "for _ in $(seq 600); do [ -e \"${0%/*}/$1\" ] && exit 0; sleep 0.1; done; exit 1";

/// How long a server may take to start, on a machine that runs other tests too.
const START: Duration = Duration::from_secs(30);

pub(super) struct ClientServer {
    place: Place,
    address: String,
    child: Child,
}

impl ClientServer {
    pub(super) fn start(script: &str) -> Self {
        let place = Place::with_script(script);
        place.write("agent.toml", AGENT);
        place.write_program("charge.sh", r#"echo "$(cat) $OUTLAST_TURN" >> "${0%/*}/charges""#);
        place.write_program("wait.sh", WAIT);
        place.write("charges", "");
        let address = port();
        let child = serve(&place, &address, &[]);
        let server = Self { place, address, child };
        server.wait_until_ready();
        server
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Kills the server and starts it again at the same address.
    pub(super) fn kill_and_start(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = serve(&self.place, &self.address, &[]);
        self.wait_until_ready();
    }

    /// Replaces the server by a new process, as an operator does for a new version.
    pub(super) fn replace(&mut self) {
        let new = serve(&self.place, &self.address, &["--take-over"]);
        let mut old = std::mem::replace(&mut self.child, new);
        assert!(old.wait().unwrap().success(), "{}", self.log());
    }

    /// Returns the turns that charged for a scenario, in order, one per charge.
    pub(super) fn charges(&self, scenario: &str) -> Vec<String> {
        let charges = std::fs::read_to_string(self.place.path().join("charges")).unwrap();
        let of_scenario = |line: &&str| line.contains(&format!("\"{scenario}\""));
        let turn = |line: &str| line.rsplit(' ').next().unwrap_or_default().to_owned();
        charges.lines().filter(of_scenario).map(turn).collect()
    }

    /// Opens a gate. The turns that wait at it continue.
    pub(super) fn open_gate(&self, name: &str) {
        self.place.write(name, "");
    }

    /// Cancels a turn, which may have ended.
    pub(super) fn cancel(&self, turn: &str) {
        self.request("POST", &format!("/v1/turns/{turn}/cancel"), "{}");
    }

    /// Checks that both turns of the prompts `case first turn` and `case second turn` are in one session.
    pub(super) fn has_one_session_of_both_turns(&self) -> Result<(), String> {
        let mut turns = Vec::new();
        for session in self.items("/v1/sessions?limit=100") {
            let path = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
            let messages = self.request("GET", &format!("{path}/messages"), "").to_string();
            if messages.contains("case first turn") || messages.contains("case second turn") {
                turns.push(self.items(&format!("{path}/turns")).len());
            }
        }
        if turns == [2] { Ok(()) } else { Err(format!("sessions with these numbers of turns: {turns:?}")) }
    }

    /// The server's log.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.place.path().join("server.log")).unwrap()
    }

    fn items(&self, path: &str) -> Vec<Value> {
        let page = self.request("GET", path, "");
        page["items"].as_array().unwrap_or_else(|| panic!("{path}: {page}")).clone()
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (address, length) = (&self.address, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(body).unwrap_or_default()
    }

    fn wait_until_ready(&self) {
        let until = Instant::now() + START;
        while TcpStream::connect(&self.address).is_err() {
            assert!(Instant::now() < until, "{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for ClientServer {
    fn drop(&mut self) {
        // It may already be stopped.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

fn serve(place: &Place, address: &str, options: &[&str]) -> Child {
    let known = ["serve", "--listen", address, "--agent", "agent.toml", "--script", "script.txt"];
    let args = [&known[..], &["--provider-wait", "0"], options].concat();
    let log = File::options().create(true).append(true).open(place.path().join("server.log")).unwrap();
    place.command(&args).stdin(Stdio::null()).stderr(log).spawn().unwrap()
}
