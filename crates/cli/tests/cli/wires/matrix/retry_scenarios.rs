//! Tests that a charge is made once if its turn fails, is cancelled, or loses its server, whatever the client repeats.
//!
//! Each scenario must charge exactly once, whatever the client repeats.
use super::Observed;
use super::client_program::ClientProgram;
use super::client_server::ClientServer;
use super::clients::{Client, Column, SCENARIOS};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const SCRIPT: &str = r#"
when case charge model_error
call charge {"for": "model_error"}
---
error model.rejected the card is gone

when case charge cancel
call charge {"for": "cancel"}
---
delay 20s
say too late

when case charge kill_mid_stream
call charge {"for": "kill_mid_stream"}
---
call wait_for_stream {}
---
say one two three
delay 3s
say four five six

when case charge kill_before_answer
call charge {"for": "kill_before_answer"}
---
call wait_for_answer {}
---
say one two three
say four five six

when case charge restart
call charge {"for": "restart"}
---
call wait_for_answer {}
---
say one two three
say four five six
"#;

/// The complete answer of a turn that is not stopped.
const ANSWER: &str = "one two three\nfour five six";

/// How often the files with the charges are read.
const PAUSE: Duration = Duration::from_millis(20);

/// How a client's call ended: with an answer, or with an error.
struct CallEnd {
    is_answer: bool,
    /// Whether a part of the stream was read before.
    has_read: bool,
    text: String,
}

/// Runs all scenarios at the same time.
pub(super) fn observe(client: &Client) -> Observed {
    let [ends, kills, restarts] = [(); 3].map(|()| ClientServer::start(SCRIPT));
    let urls = [ends.url(), kills.url(), restarts.url()];
    let mut program = ClientProgram::start(client, "retries", &urls);
    let (is_due, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
    // A server belongs to one thread at a time.
    let (call_ends, ends, kills, restarts) = thread::scope(|scope| {
        let ends = scope.spawn(|| cancel_charged_turns(ends, &has_ended));
        let kills = scope.spawn(|| kill_while_reading(kills, &is_due, &has_ended));
        let restarts = scope.spawn(|| replace_after_charge(restarts, &has_ended));
        let call_ends = {
            let _ended = SetAtEnd(&has_ended);
            read_ends(&mut program, &is_due)
        };
        (call_ends, ends.join().unwrap(), kills.join().unwrap(), restarts.join().unwrap())
    });
    let mut observed = Observed::new();
    for scenario in SCENARIOS {
        let server = match scenario {
            Column::KillMidStream | Column::KillBeforeAnswer => &kills,
            Column::Restart => &restarts,
            _ => &ends,
        };
        let charges = server.charges(scenario.name()).len();
        let end = call_ends.get(scenario.name()).unwrap_or_else(|| panic!("no end of {}", scenario.name()));
        observed.insert(scenario, judge(scenario, end, charges));
    }
    observed
}

fn judge(scenario: Column, end: &CallEnd, charges: usize) -> Result<(), String> {
    if charges != 1 {
        return Err(format!("charged {}, then: {}", times(charges), end.text));
    }
    let may_answer = !matches!(scenario, Column::ModelError | Column::Cancel);
    match end {
        CallEnd { is_answer: true, text, .. } if !may_answer || text != ANSWER => {
            Err(format!("took `{text}` for the answer"))
        }
        CallEnd { has_read: false, text, .. } if scenario == Column::KillMidStream => {
            Err(format!("could not read the stream: {text}"))
        }
        // Elsewhere the client may give up.
        CallEnd { is_answer: false, text, .. } if scenario == Column::KillBeforeAnswer => {
            Err(format!("gave up: {text}"))
        }
        _ => Ok(()),
    }
}

/// More than once is one word, because the number depends on time.
fn times(charges: usize) -> &'static str {
    if charges == 0 { "never" } else { "more than once" }
}

/// Returns how each call ended. The server is due to be killed when the client reads the stream, or gave it up.
fn read_ends(program: &mut ClientProgram, is_due: &AtomicBool) -> BTreeMap<String, CallEnd> {
    let mut ends = BTreeMap::new();
    let mut has_read = false;
    while let Some(line) = program.next() {
        let name = line["scenario"].as_str().unwrap().to_owned();
        let text = line["text"].as_str().unwrap_or_default().to_owned();
        if name == Column::KillMidStream.name() {
            is_due.store(true, Ordering::SeqCst);
        }
        if line["outcome"] == "reading" {
            has_read = true;
        } else {
            let is_answer = line["outcome"] == "answer";
            ends.insert(name, CallEnd { is_answer, has_read, text });
        }
    }
    ends
}

/// Cancels each turn that charged for this scenario, also a repeated one.
fn cancel_charged_turns(server: ClientServer, has_ended: &AtomicBool) -> ClientServer {
    let mut cancelled = BTreeSet::new();
    while !has_ended.load(Ordering::SeqCst) {
        for turn in server.charges("cancel") {
            if cancelled.insert(turn.clone()) {
                server.cancel(&turn);
            }
        }
        thread::sleep(PAUSE);
    }
    server
}

/// Kills the server after both charges, while the client reads one answer and waits for the other.
fn kill_while_reading(mut server: ClientServer, is_due: &AtomicBool, has_ended: &AtomicBool) -> ClientServer {
    let charged = |name| !server.charges(name).is_empty();
    if wait_until(has_ended, || charged("kill_mid_stream") && charged("kill_before_answer")) {
        server.open_gate("stream");
        if wait_until(has_ended, || is_due.load(Ordering::SeqCst)) {
            server.kill_and_start();
        }
    }
    server.open_gate("answer");
    server
}

/// Replaces the server by another process after the charge, before the answer.
fn replace_after_charge(mut server: ClientServer, has_ended: &AtomicBool) -> ClientServer {
    if wait_until(has_ended, || !server.charges("restart").is_empty()) {
        server.replace();
    }
    server.open_gate("answer");
    server
}

/// Returns whether the condition became true before the program ended.
fn wait_until(has_ended: &AtomicBool, condition: impl Fn() -> bool) -> bool {
    while !has_ended.load(Ordering::SeqCst) {
        if condition() {
            return true;
        }
        thread::sleep(PAUSE);
    }
    false
}

/// Ends the threads of a scope, also if the test fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
