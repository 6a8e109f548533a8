//! Kills the real process a hundred times at random points.
//!
//! The worker is the one of `outlast demo`. This process gives it inputs, remembers which were acknowledged, and kills it
//! with SIGKILL: after a random time, or at a random line of its progress. What really happened is in the witness file,
//! which the tools write themselves.
use outlast::TurnId;
use outlast::sqlite::Sqlite;
use outlast::store::{Journal, Queries, SessionView, TurnState};
use outlast::vocab::effect::{BatchCall, Command as Effect, Outcome, ToolOutcome};
use outlast::vocab::record::{Answered, Asked, Fact, Record};
use outlast::vocab::tool::PreparedCall;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

const KILLS: usize = 100;
const SESSIONS: usize = 5;
const DELAY_MOST: u64 = 80;
const LINES_MOST: u64 = 12;

/// Each input is looked up, reserved and paid twice.
const SCRIPT: &str = "\
any
say I look.
call look_up {\"what\": \"{{input}}\"}
call reserve {\"what\": \"{{input}}\"}
---
call pay {\"what\": \"first half of {{input}}\"}
call pay {\"what\": \"second half of {{input}}\"}
---
say Done: {{result pay}}
";

#[test]
fn a_hundred_kills_lose_no_input_and_repeat_no_at_most_once_call() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("script.txt"), SCRIPT).unwrap();
    let mut client = Client { dice: Dice(0x5eed), ..Client::default() };
    let mut kills = 0;
    while kills < KILLS {
        client.order();
        let worker = Worker::start(dir.path(), &client.unfinished());
        kills += usize::from(client.watch(worker));
    }
    let worker = Worker::start(dir.path(), &client.unfinished());
    client.watch_to_the_end(worker);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(client.check(dir.path()));
}

/// The outside: sends inputs until they are acknowledged, and kills.
#[derive(Default)]
struct Client {
    dice: Dice,
    orders: Vec<Value>,
    /// The turn of each acknowledged input.
    accepted: BTreeMap<String, TurnId>,
    ended: BTreeSet<TurnId>,
}

impl Client {
    /// One more input.
    fn order(&mut self) {
        let number = self.orders.len();
        let session = format!("session {}", number % SESSIONS);
        self.orders
            .push(json!({"session": session, "key": format!("k{number}"), "text": format!("cake {number}")}));
    }

    /// Inputs whose end was not heard of. Those that were acknowledged are sent again too: a client cannot tell.
    fn unfinished(&self) -> Vec<Value> {
        let over = |order: &&Value| {
            let turn = order["key"].as_str().and_then(|key| self.accepted.get(key));
            !turn.is_some_and(|turn| self.ended.contains(turn))
        };
        self.orders.iter().filter(over).cloned().collect()
    }

    /// Watches a worker and kills it; says whether it was still alive then.
    fn watch(&mut self, mut worker: Worker) -> bool {
        let at = Instant::now() + Duration::from_millis(self.dice.below(DELAY_MOST));
        let mut lines = match self.dice.below(3) {
            // A third of the kills fall on a line of progress instead.
            0 => Some(1 + self.dice.below(LINES_MOST)),
            _ => None,
        };
        loop {
            let patience = match lines {
                Some(0) => break,
                Some(_) => Duration::from_secs(10),
                None => at.saturating_duration_since(Instant::now()),
            };
            match worker.lines.recv_timeout(patience) {
                Ok(line) => self.hear(&line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
            lines = lines.map(|left| left - 1);
        }
        let alive = worker.child.try_wait().unwrap().is_none();
        worker.child.kill().unwrap();
        worker.child.wait().unwrap();
        // What it had said counts.
        for line in worker.lines {
            self.hear(&line);
        }
        alive
    }

    fn watch_to_the_end(&mut self, mut worker: Worker) {
        for line in &worker.lines {
            self.hear(&line);
        }
        assert!(worker.child.wait().unwrap().success());
        assert_eq!(self.unfinished(), Vec::<Value>::new());
    }

    fn hear(&mut self, line: &str) {
        // The last line of a killed process may be cut.
        let Ok(line) = serde_json::from_str::<Value>(line) else { return };
        if let Some(accepted) = line.get("accepted") {
            let turn = accepted["turn"].as_str().unwrap().parse().unwrap();
            let before = self.accepted.insert(accepted["key"].as_str().unwrap().to_owned(), turn);
            assert!(before.is_none_or(|before| before == turn), "an input became two turns");
        }
        if let Some(ended) = line.get("ended") {
            assert!(ended["end"].get("answered").is_some(), "{line}");
            self.ended.insert(ended["turn"].as_str().unwrap().parse().unwrap());
        }
    }

    /// Holds the journal and the witness against what was promised.
    async fn check(&self, dir: &Path) {
        let store = Sqlite::open(&dir.join("outlast.db")).unwrap();
        assert_eq!(self.accepted.len(), self.orders.len());
        for turn in self.accepted.values() {
            assert_eq!(store.turn(*turn).await.unwrap().state, TurnState::Ended, "{turn} was lost");
        }
        let witness = witness(dir);
        let executed = |call: &PreparedCall| witness.get(&call.id.to_string()).copied().unwrap_or(0);
        let sessions = store.sessions(None, SESSIONS + 1).await.unwrap();
        assert_eq!(sessions.len(), SESSIONS);
        let mut known = BTreeSet::new();
        let mut turns = 0;
        for session in &sessions {
            store.verify(session.id).await.unwrap();
            turns += session.turns as usize;
            for (call, outcome) in calls(&store, session).await {
                known.insert(call.id.to_string());
                match (call.class.may_repeat(), &outcome) {
                    (true, ToolOutcome::Done(_)) => assert!(executed(&call) >= 1, "{call:?} never happened"),
                    (false, ToolOutcome::Done(_)) => assert_eq!(executed(&call), 1, "{call:?}"),
                    (false, ToolOutcome::Unknown) => assert!(executed(&call) <= 1, "{call:?} was repeated"),
                    (_, outcome) => panic!("{call:?} ended as {outcome:?}"),
                }
            }
        }
        assert_eq!(turns, self.orders.len(), "an input was accepted twice or not at all");
        // Every execution carried the one key of a call that the journal knows.
        assert!(witness.keys().all(|key| known.contains(key)));
    }
}

/// Every call of a session with its outcome.
async fn calls(store: &Sqlite, session: &SessionView) -> Vec<(PreparedCall, ToolOutcome)> {
    let records = store.records(session.id, outlast::vocab::record::Seq(0), usize::MAX).await.unwrap();
    let answer = |asked: &Record, child: usize| {
        records.iter().find_map(|record| match &record.fact {
            Fact::Answered(Answered { claim, outcome: Outcome::ToolCall(outcome) })
                if claim.asked == asked.seq && claim.child as usize == child =>
            {
                Some(outcome.clone())
            }
            _ => None,
        })
    };
    let mut calls = Vec::new();
    for record in &records {
        let Fact::Asked(Asked { command: Effect::ToolBatch(batch), .. }) = &record.fact else { continue };
        for (child, call) in batch.calls.iter().enumerate() {
            let BatchCall::Run(call) = call else { panic!("{call:?} was refused") };
            calls.push((
                call.clone(),
                answer(record, child).expect("a turn that is over has all its answers"),
            ));
        }
    }
    calls
}

/// Executions by key, as the tools wrote them down.
fn witness(dir: &Path) -> BTreeMap<String, usize> {
    let mut executions = BTreeMap::new();
    for line in fs::read_to_string(dir.join("witness.log")).unwrap().lines() {
        let sighting: Value = serde_json::from_str(line).unwrap();
        *executions.entry(sighting["call"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    executions
}

/// A worker that runs.
struct Worker {
    child: Child,
    lines: Receiver<String>,
}

impl Worker {
    fn start(dir: &Path, orders: &[Value]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_outlast"))
            .current_dir(dir)
            .args(["demo", "--worker", ".", "--script", "script.txt", "--pace", "5"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        for order in orders {
            writeln!(stdin, "{order}").unwrap();
        }
        drop(stdin);
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (to_us, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if to_us.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }
}

/// Chance that can be repeated (`SplitMix64`).
#[derive(Default)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}
