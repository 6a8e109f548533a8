//! Tests of the compatible endpoints with the official clients of OpenAI and Anthropic.
mod anthropic;
mod matrix;

use crate::place::Place;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const SCRIPT: &str = "\
    when slowly\nsay one two three four five six seven eight nine ten\ndelay 1s\nsay eleven twelve
    when steps\nsay Let me see.\ncall calculator {\"expression\": \"6*7\"}\n---\nsay {{result calculator}}
    when weather\ncall weather {\"city\": \"Oslo\"}\n---\nsay It is {{result weather}} there.
    when ticket\nsay {\"title\": \"broken lamp\", \"urgent\": true}
    when forever\ndelay 1m\nsay never
    when haltingly\nsay one two three\ndelay 1m\nsay four
    when unauthorized\nerror model.unauthorized the key is of no use
    when breaks\nsay one two three\ncut
    when refuses\nrefuse I will not.
    when runs out\nsay one two\nlength
    any\nsay Reply to {{input}}.";

/// Returns the path of a dependency that `cargo xtask test` installs.
fn need(path: &str) -> PathBuf {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/needs").join(path);
    assert!(found.exists(), "{} is not there; `cargo xtask test` installs it", found.display());
    found
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wires").join(name)
}

/// Returns Python with the clients of `testing/clients`.
fn python_with_clients() -> Command {
    Command::new(need("clients-python/bin/python"))
}

/// Returns the packages of `testing/clients`.
fn node_modules() -> PathBuf {
    need("clients-node/node_modules")
}

/// Returns the version of Node.js that the newest clients demand.
fn node_for_clients() -> Command {
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    Command::new(node_modules().join(format!("node-linux-{architecture}/bin/node")))
}

/// Returns the official Python client.
fn python() -> Command {
    with(python_with_clients(), &[script("openai_client.py")])
}

/// Returns the official JavaScript client.
fn node(mode: &str) -> Command {
    with(with(with(node_for_clients(), &[script("openai_client.mjs")]), &[mode]), &[node_modules()])
}

/// A server that requires a key.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(place: &Place, address: &str) -> Self {
        let args =
            ["serve", "--listen", address, "--script", "script.txt", "--require-key", "--provider-wait", "0"];
        let mut child = place.command(&args).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("· http://").and_then(|rest| rest.split(',').next());
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { child, address }
    }

    fn url(&self) -> String {
        format!("http://{}/openai/v1", self.address)
    }

    /// Stops the server with SIGTERM, as an operator does, and waits for its exit.
    fn terminate(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may already be stopped.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

/// Creates a database and returns a key for it.
fn key(place: &Place) -> String {
    assert!(place.output(&["run", "hello", "--script", "script.txt"]).status.success());
    let output = place.output(&["keys", "create", "client", "--scope", "admin"]);
    let said = String::from_utf8(output.stdout).unwrap();
    let key = said.split_whitespace().find(|word| word.starts_with("olk_"));
    key.unwrap_or_else(|| panic!("{said}")).to_owned()
}

#[track_caller]
fn is_fine(output: &Output) {
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.ends_with("fine\n"), "{said}{wrong}");
}

fn wrong(key: &str) -> String {
    let last = if key.ends_with('0') { '1' } else { '0' };
    format!("{}{last}", &key[..key.len() - 1])
}

/// Returns an unused port, so that a restarted server can use the same one.
fn port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Lets a client read half of an answer, kills the server, and lets the client continue with the next one.
#[track_caller]
fn killed_in_the_middle(client: impl FnOnce(&str, &str) -> Command) {
    in_the_middle(client, |server, place| {
        let address = server.address.clone();
        drop(server);
        Server::start(place, &address)
    });
}

/// Lets a client read half of an answer, stops the server, and lets the client notice.
#[track_caller]
fn stopped_in_the_middle(client: impl FnOnce(&str, &str) -> Command) {
    in_the_middle(client, |mut server, _| {
        server.terminate();
        server
    });
}

#[track_caller]
fn in_the_middle(client: impl FnOnce(&str, &str) -> Command, happens: impl FnOnce(Server, &Place) -> Server) {
    let place = Place::with_script(SCRIPT);
    let (key, address) = (key(&place), port());
    let server = Server::start(&place, &address);
    let mut command = client(&server.url(), &key);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut reader = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(reader.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let server = happens(server, &place);
    // A failed client explains why in its output below.
    let _ = writeln!(reader.stdin.as_mut().unwrap());
    let output = reader.wait_with_output().unwrap();
    assert_eq!(line, "killed?\n", "{}", String::from_utf8_lossy(&output.stderr));
    is_fine(&output);
    drop(server);
}

#[test]
fn openai_python_client_passes_the_feature_matrix() {
    let place = Place::with_script(SCRIPT);
    let (key, server) = (key(&place), Server::start(&place, "127.0.0.1:0"));
    is_fine(&python().args(["matrix", &server.url(), &key, &wrong(&key)]).output().unwrap());
}

#[test]
fn openai_javascript_client_passes_the_feature_matrix() {
    let place = Place::with_script(SCRIPT);
    let (key, server) = (key(&place), Server::start(&place, "127.0.0.1:0"));
    is_fine(&node("matrix").args([&server.url(), &key, &wrong(&key)]).output().unwrap());
}

#[test]
fn openai_python_client_resumes_text_after_server_kill() {
    killed_in_the_middle(|url, key| with(python(), &["resume", url, key]));
}

#[test]
fn openai_javascript_client_resumes_text_after_server_kill() {
    killed_in_the_middle(|url, key| with(node("resume"), &[url, key]));
}

#[test]
fn openai_python_client_repeats_completion_after_server_kill() {
    killed_in_the_middle(|url, key| with(python(), &["again", url, key]));
}

#[test]
fn openai_javascript_client_repeats_completion_after_server_kill() {
    killed_in_the_middle(|url, key| with(node("again"), &[url, key]));
}

#[test]
fn openai_python_client_sees_incomplete_answer_on_shutdown() {
    stopped_in_the_middle(|url, key| with(python(), &["stopped", url, key]));
}

#[test]
fn openai_javascript_client_sees_incomplete_answer_on_shutdown() {
    stopped_in_the_middle(|url, key| with(node("stopped"), &[url, key]));
}

fn with(mut command: Command, args: &[impl AsRef<OsStr>]) -> Command {
    command.args(args);
    command
}
