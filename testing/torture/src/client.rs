//! The users: send inputs until they are acknowledged, answer questions, and cancel some turns.
//!
//! Each acknowledgement is written to the ledger before anything else happens, so no promise is forgotten.
use crate::dice::Dice;
use crate::judge::{Broken, Promise};
use crate::ledger::{Entry, Ledger};
use crate::worker::{Binary, Death, News, Order, Process, Receipt, Said};
use outlast::vocab::wait::CompletionKey;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// The number of sessions for arbitrary inputs. Other sessions have one purpose.
const SESSIONS: u64 = 4;

/// The length of an input that makes the log grow: about 200 pages.
const BALLAST: usize = 800_000;

/// The state of all users of one database.
pub(crate) struct Client {
    dice: Dice,
    ledger: Ledger,
    orders: Vec<Order>,
    receipts: BTreeMap<String, Receipt>,
    /// Completion keys of calls that wait for an answer.
    questions: BTreeSet<String>,
    /// Completion keys that need no further answer.
    answered: BTreeSet<String>,
    /// Turns that we tried to cancel.
    wished: BTreeSet<String>,
    answers: u64,
    /// Contradictions in what we were told.
    pub(crate) broken: Vec<Broken>,
}

/// What happens to a command.
pub(crate) enum Fate {
    /// It runs to its end.
    Lives,
    /// It is killed after this time, unless it ends first.
    Dies(Duration),
}

impl Client {
    /// Creates the users of a new database.
    pub(crate) fn new(dir: &Path, dice: Dice) -> io::Result<Self> {
        Ok(Self {
            dice,
            ledger: Ledger::begin(dir)?,
            orders: Vec::new(),
            receipts: BTreeMap::new(),
            questions: BTreeSet::new(),
            answered: BTreeSet::new(),
            wished: BTreeSet::new(),
            answers: 0,
            broken: Vec::new(),
        })
    }

    /// Adds an input of any kind.
    pub(crate) fn order(&mut self) {
        let kind = self.dice.below(100);
        let session = format!("session {}", self.dice.below(SESSIONS));
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
    pub(crate) fn ballast(&mut self) {
        self.add("ballast".to_owned(), &format!("ballast {}", "x".repeat(BALLAST)), false);
    }

    fn add(&mut self, session: String, what: &str, steer: bool) {
        let number = self.orders.len();
        self.orders.push(Order {
            session,
            key: format!("k{number}"),
            text: format!("{what} {number}"),
            steer,
        });
    }

    /// Returns the inputs for a new worker: all unacknowledged ones, and some others, because a client cannot always
    /// tell.
    pub(crate) fn wants_sent(&mut self) -> Vec<Order> {
        let Self { orders, receipts, dice, .. } = self;
        let again = |order: &&Order| !receipts.contains_key(&order.key) || dice.percent(10);
        orders.iter().filter(again).cloned().collect()
    }

    /// Returns whether every input is acknowledged and every question is answered that ever will be.
    pub(crate) fn is_content(&self) -> bool {
        self.orders.iter().all(|order| self.receipts.contains_key(&order.key))
            && self.open_questions().is_empty()
    }

    /// Records a message.
    pub(crate) fn hear(&mut self, news: &News) -> io::Result<()> {
        match news {
            News::Said { said: Said::Accepted(receipt), .. } => self.accepted(receipt)?,
            News::Said { said: Said::Refused { key, why }, .. } => {
                // A stopped process may hold the database for longer than the timeout.
                if !why.starts_with("store.busy") {
                    self.doubt(Promise::Corrupted, format!("the input `{key}` was refused: {why}"));
                }
            }
            News::Saw(execution) => {
                self.questions.extend(execution.completion.clone());
            }
            News::Said { said: Said::Ready {} | Said::Closing {}, .. } | News::Silent { .. } => {}
        }
        Ok(())
    }

    fn accepted(&mut self, receipt: &Receipt) -> io::Result<()> {
        match self.receipts.get(&receipt.key) {
            None => {
                self.ledger.keep(&Entry::Accepted(receipt.clone()))?;
                self.receipts.insert(receipt.key.clone(), receipt.clone());
            }
            Some(first) if first == receipt => {}
            Some(first) => {
                let how = format!("one input has two receipts: {first:?} and {receipt:?}");
                self.doubt(Promise::Repeated, how);
            }
        }
        Ok(())
    }

    fn doubt(&mut self, promise: Promise, how: String) {
        self.broken.push(Broken { promise, how });
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
    pub(crate) fn act(&mut self, binary: &Binary, fate: &Fate) -> io::Result<Option<Death>> {
        let questions = self.open_questions();
        let turns: Vec<String> = self.receipts.values().map(|receipt| receipt.turn.clone()).collect();
        match (self.dice.pick(&questions), self.dice.pick(&turns)) {
            (Some(question), _) if self.dice.percent(80) => self.answer(binary, question, fate).map(Some),
            (_, Some(turn)) => self.stop(binary, turn, fate).map(Some),
            _ => Ok(None),
        }
    }

    /// Answers every open question.
    pub(crate) fn answer_all(&mut self, binary: &Binary) -> io::Result<()> {
        for question in self.open_questions() {
            self.answer(binary, &question, &Fate::Lives)?;
        }
        Ok(())
    }

    fn answer(&mut self, binary: &Binary, question: &str, fate: &Fate) -> io::Result<Death> {
        self.answers += 1;
        let value = self.answers;
        let (death, said) = run(binary, &["resolve", question, "--ok", &value.to_string()], fate)?;
        if death == Death::InOrder {
            if said.starts_with("resolved: ") {
                self.ledger.keep(&Entry::Resolved { completion: question.to_owned(), value })?;
            }
            self.answered.insert(question.to_owned());
        } else {
            self.complain("resolve", &death, &said);
        }
        Ok(death)
    }

    fn stop(&mut self, binary: &Binary, turn: &str, fate: &Fate) -> io::Result<Death> {
        self.wished.insert(turn.to_owned());
        let (death, said) = run(binary, &["cancel", turn], fate)?;
        if death == Death::InOrder {
            if !said.starts_with("too late") {
                self.ledger.keep(&Entry::Cancelled { turn: turn.to_owned() })?;
            }
        } else {
            self.complain("cancel", &death, &said);
        }
        Ok(death)
    }

    fn complain(&mut self, command: &str, death: &Death, said: &str) {
        if let Death::Itself(status) = death
            && !said.contains("store.busy")
        {
            self.doubt(Promise::Corrupted, format!("`outlast {command}` ended with {status}: {said}"));
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
    pub(crate) fn wished(&self) -> BTreeSet<String> {
        self.wished.clone()
    }
}

fn is_unanswered(order: &Order) -> bool {
    order.text.starts_with("unanswered")
}

/// Runs a command. Returns how it ended and its output.
fn run(binary: &Binary, arguments: &[&str], fate: &Fate) -> io::Result<(Death, String)> {
    let mut process = Process(binary.command(arguments).spawn()?);
    let death = match fate {
        Fate::Lives => process.wait()?,
        Fate::Dies(after) => {
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
