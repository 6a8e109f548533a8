//! The users: send inputs until they are acknowledged, answer questions, and cancel some turns.
//!
//! Each acknowledgement is written to the ledger before anything else happens, so no promise is forgotten.
use crate::journal_checker::{PromiseViolation, PromiseViolationKind};
use crate::ledger::{Ledger, LedgerEntry};
use crate::worker::{
    ChildProcess, InputReceipt, OutlastBinary, ProcessExit, RoundMessage, WorkerInput, WorkerMessage,
};
use outlast::vocab::wait::CompletionKey;
use outlast_random::SeededRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// The number of sessions for arbitrary inputs. Other sessions have one purpose.
const SESSIONS: u64 = 4;

/// The length of an input that makes the log grow: about 200 pages.
const LARGE_INPUT_BYTES: usize = 800_000;

/// The state of all users of one database.
pub(crate) struct TortureUsers {
    random: SeededRandom,
    ledger: Ledger,
    orders: Vec<WorkerInput>,
    receipts: BTreeMap<String, InputReceipt>,
    /// Completion keys of calls that wait for an answer.
    questions: BTreeSet<String>,
    /// Completion keys that need no further answer.
    answered: BTreeSet<String>,
    /// Turns that we tried to cancel.
    cancel_requested_turns: BTreeSet<String>,
    answers: u64,
    /// Contradictions in what we were told.
    pub(crate) broken: Vec<PromiseViolation>,
}

/// What happens to a command.
pub(crate) enum CommandKill {
    /// It runs to its end.
    NotKilled,
    /// It is killed after this time, unless it ends first.
    KilledAfter(Duration),
}

impl TortureUsers {
    /// Creates the users of a new database.
    pub(crate) fn new(dir: &Path, random: SeededRandom) -> io::Result<Self> {
        Ok(Self {
            random,
            ledger: Ledger::begin(dir)?,
            orders: Vec::new(),
            receipts: BTreeMap::new(),
            questions: BTreeSet::new(),
            answered: BTreeSet::new(),
            cancel_requested_turns: BTreeSet::new(),
            answers: 0,
            broken: Vec::new(),
        })
    }

    /// Adds an input of any kind.
    pub(crate) fn add_random_input(&mut self) {
        let kind = self.random.below(100);
        let session = format!("session {}", self.random.below(SESSIONS));
        let unasked = !self.orders.iter().any(is_unanswered);
        match kind {
            0..20 => self.add(session, "journey", false),
            20..35 => self.add(session, "question", false),
            35..50 => self.add(session, "nudge", true),
            50..56 if unasked => self.add("patient".to_owned(), "unanswered", false),
            _ => self.add(session, "order", false),
        }
    }

    /// Adds an input that makes the log grow.
    pub(crate) fn add_large_input(&mut self) {
        self.add("ballast".to_owned(), &format!("ballast {}", "x".repeat(LARGE_INPUT_BYTES)), false);
    }

    fn add(&mut self, session: String, what: &str, steer: bool) {
        let number = self.orders.len();
        self.orders.push(WorkerInput {
            session,
            key: format!("k{number}"),
            text: format!("{what} {number}"),
            steer,
        });
    }

    /// Returns the inputs for a new worker: all unacknowledged ones, and some others, because a client cannot always
    /// tell.
    pub(crate) fn inputs_to_send(&mut self) -> Vec<WorkerInput> {
        let Self { orders, receipts, random, .. } = self;
        let again = |order: &&WorkerInput| !receipts.contains_key(&order.key) || random.percent(10);
        orders.iter().filter(again).cloned().collect()
    }

    /// Returns whether every input is acknowledged and every question is answered that ever will be.
    pub(crate) fn is_content(&self) -> bool {
        self.orders.iter().all(|order| self.receipts.contains_key(&order.key))
            && self.open_questions().is_empty()
    }

    /// Records a message.
    pub(crate) fn process_message(&mut self, news: &RoundMessage) -> io::Result<()> {
        match news {
            RoundMessage::FromWorker { said: WorkerMessage::Accepted(receipt), .. } => {
                self.accepted(receipt)?;
            }
            RoundMessage::FromWorker { said: WorkerMessage::Refused { key, why }, .. } => {
                // A stopped process may hold the database for longer than the timeout.
                if !why.starts_with("store.busy") {
                    self.add_violation(
                        PromiseViolationKind::Corrupted,
                        format!("the input `{key}` was refused: {why}"),
                    );
                }
            }
            RoundMessage::WitnessSaw(execution) => {
                self.questions.extend(execution.completion.clone());
            }
            RoundMessage::FromWorker {
                said: WorkerMessage::Ready {} | WorkerMessage::Closing {}, ..
            }
            | RoundMessage::WorkerGone { .. } => {}
        }
        Ok(())
    }

    fn accepted(&mut self, receipt: &InputReceipt) -> io::Result<()> {
        match self.receipts.get(&receipt.key) {
            None => {
                self.ledger.write_durably(&LedgerEntry::Accepted(receipt.clone()))?;
                self.receipts.insert(receipt.key.clone(), receipt.clone());
            }
            Some(first) if first == receipt => {}
            Some(first) => {
                let how = format!("one input has two receipts: {first:?} and {receipt:?}");
                self.add_violation(PromiseViolationKind::Repeated, how);
            }
        }
        Ok(())
    }

    fn add_violation(&mut self, promise: PromiseViolationKind, how: String) {
        self.broken.push(PromiseViolation { promise, violation_text: how });
    }

    /// Returns the questions to answer. A question whose input is not acknowledged yet cannot be assigned.
    fn open_questions(&self) -> Vec<String> {
        let mine = |question: &&String| {
            let turn = question.parse::<CompletionKey>().map(|key| key.turn.to_string()).unwrap_or_default();
            let receipt = self.receipts.values().find(|receipt| receipt.turn == turn);
            let order = receipt.and_then(|receipt| self.orders.iter().find(|order| order.key == receipt.key));
            order.is_some_and(|order| !is_unanswered(order)) && !self.answered.contains(*question)
        };
        self.questions.iter().filter(mine).cloned().collect()
    }

    /// Answers a question or cancels a turn, with a command of the real binary. Returns whether the command was killed.
    pub(crate) fn run_random_command(
        &mut self,
        binary: &OutlastBinary,
        fate: &CommandKill,
    ) -> io::Result<Option<ProcessExit>> {
        let questions = self.open_questions();
        let turns: Vec<String> = self.receipts.values().map(|receipt| receipt.turn.clone()).collect();
        match (self.random.one_if_any(&questions), self.random.one_if_any(&turns)) {
            (Some(question), _) if self.random.percent(80) => self.answer(binary, &question, fate).map(Some),
            (_, Some(turn)) => self.try_cancel_turn(binary, &turn, fate).map(Some),
            _ => Ok(None),
        }
    }

    /// Answers every open question.
    pub(crate) fn answer_all(&mut self, binary: &OutlastBinary) -> io::Result<()> {
        for question in self.open_questions() {
            self.answer(binary, &question, &CommandKill::NotKilled)?;
        }
        Ok(())
    }

    fn answer(
        &mut self,
        binary: &OutlastBinary,
        question: &str,
        fate: &CommandKill,
    ) -> io::Result<ProcessExit> {
        self.answers += 1;
        let value = self.answers;
        let (death, said) = run(binary, &["resolve", question, "--ok", &value.to_string()], fate)?;
        if death == ProcessExit::ExitedCleanly {
            if said.starts_with("resolved: ") {
                self.ledger
                    .write_durably(&LedgerEntry::Resolved { completion: question.to_owned(), value })?;
            }
            self.answered.insert(question.to_owned());
        } else {
            self.check_command_exit("resolve", &death, &said);
        }
        Ok(death)
    }

    fn try_cancel_turn(
        &mut self,
        binary: &OutlastBinary,
        turn: &str,
        fate: &CommandKill,
    ) -> io::Result<ProcessExit> {
        self.cancel_requested_turns.insert(turn.to_owned());
        let (death, said) = run(binary, &["cancel", turn], fate)?;
        if death == ProcessExit::ExitedCleanly {
            if !said.starts_with("too late") {
                self.ledger.write_durably(&LedgerEntry::Cancelled { turn: turn.to_owned() })?;
            }
        } else {
            self.check_command_exit("cancel", &death, &said);
        }
        Ok(death)
    }

    fn check_command_exit(&mut self, command: &str, death: &ProcessExit, said: &str) {
        if let ProcessExit::EndedItself(status) = death
            && !said.contains("store.busy")
        {
            self.add_violation(
                PromiseViolationKind::Corrupted,
                format!("`outlast {command}` ended with {status}: {said}"),
            );
        }
    }

    /// Returns the keys of all inputs.
    pub(crate) fn sent(&self) -> BTreeSet<String> {
        self.orders.iter().map(|order| order.key.clone()).collect()
    }

    /// Returns the keys of the inputs whose question is never answered.
    pub(crate) fn unanswered(&self) -> BTreeSet<String> {
        self.orders.iter().filter(|order| is_unanswered(order)).map(|order| order.key.clone()).collect()
    }

    /// Returns the turns that we tried to cancel.
    pub(crate) fn cancel_requests(&self) -> BTreeSet<String> {
        self.cancel_requested_turns.clone()
    }
}

fn is_unanswered(order: &WorkerInput) -> bool {
    order.text.starts_with("unanswered")
}

/// Runs a command. Returns how it ended and its output.
fn run(binary: &OutlastBinary, arguments: &[&str], fate: &CommandKill) -> io::Result<(ProcessExit, String)> {
    let mut process = ChildProcess(binary.command(arguments).spawn()?);
    let death = match fate {
        CommandKill::NotKilled => process.wait()?,
        CommandKill::KilledAfter(after) => {
            std::thread::sleep(*after);
            process.kill()?
        }
    };
    let mut said = String::new();
    // The output fits into the pipe, so it can be read at the end.
    if let (Some(mut out), Some(mut complaint)) = (process.0.stdout.take(), process.0.stderr.take()) {
        out.read_to_string(&mut said)?;
        complaint.read_to_string(&mut said)?;
    }
    Ok((death, said))
}
