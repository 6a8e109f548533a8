//! The outside: sends inputs until they are acknowledged, answers questions, and stops some turns.
//!
//! It keeps what it was told in the ledger before it does anything else, and never forgets a promise.
use crate::dice::Dice;
use crate::judge::{Broken, Promise};
use crate::ledger::{Entry, Ledger};
use crate::worker::{Binary, Death, News, Order, Process, Receipt, Said};
use outlast::vocab::wait::CompletionKey;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// Sessions that take any input. Others have one purpose.
const SESSIONS: u64 = 4;

/// Letters of an input that makes the log grow: about 200 pages.
const BALLAST: usize = 800_000;

/// Everything the outside knows of one database.
pub(crate) struct Client {
    dice: Dice,
    ledger: Ledger,
    orders: Vec<Order>,
    receipts: BTreeMap<String, Receipt>,
    /// Completion keys of calls that wait for us.
    questions: BTreeSet<String>,
    /// Completion keys that need no answer from us any more.
    answered: BTreeSet<String>,
    /// Turns that we wanted to stop.
    wished: BTreeSet<String>,
    answers: u64,
    /// What we were told that cannot be true.
    pub(crate) broken: Vec<Broken>,
}

/// What becomes of a command that the outside runs.
pub(crate) enum Fate {
    /// It runs to its end.
    Lives,
    /// It is killed after this time, unless it was faster.
    Dies(Duration),
}

impl Client {
    /// The outside of a new database.
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

    /// One more input, of any kind.
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

    /// One more input, of the kind that makes the log grow.
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

    /// What a worker that starts is given: all that was not acknowledged, and some that was. A client cannot always tell.
    pub(crate) fn wants_sent(&mut self) -> Vec<Order> {
        let Self { orders, receipts, dice, .. } = self;
        let again = |order: &&Order| !receipts.contains_key(&order.key) || dice.percent(10);
        orders.iter().filter(again).cloned().collect()
    }

    /// Whether every input was acknowledged and every question answered that is ever going to be.
    pub(crate) fn is_content(&self) -> bool {
        self.orders.iter().all(|order| self.receipts.contains_key(&order.key))
            && self.open_questions().is_empty()
    }

    /// Keeps what it is told.
    pub(crate) fn hear(&mut self, news: &News) -> io::Result<()> {
        match news {
            News::Said { said: Said::Accepted(receipt), .. } => self.accepted(receipt)?,
            News::Said { said: Said::Refused { key, why }, .. } => {
                // Somebody who is stopped may hold the database for longer than anybody waits.
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

    /// Questions that are to be answered. Whose input was not acknowledged yet, we cannot know.
    fn open_questions(&self) -> Vec<String> {
        let mine = |question: &&String| {
            let turn = question.parse::<CompletionKey>().map(|key| key.turn.to_string()).unwrap_or_default();
            let receipt = self.receipts.values().find(|receipt| receipt.turn == turn);
            let order = receipt.and_then(|receipt| self.orders.iter().find(|order| order.key == receipt.key));
            order.is_some_and(|order| !is_unanswered(order)) && !self.answered.contains(*question)
        };
        self.questions.iter().filter(mine).cloned().collect()
    }

    /// Answers a question or stops a turn, with a command of the real binary; says whether the command was killed.
    pub(crate) fn act(&mut self, binary: &Binary, fate: &Fate) -> io::Result<Option<Death>> {
        let questions = self.open_questions();
        let turns: Vec<String> = self.receipts.values().map(|receipt| receipt.turn.clone()).collect();
        match (self.dice.pick(&questions), self.dice.pick(&turns)) {
            (Some(question), _) if self.dice.percent(80) => self.answer(binary, question, fate).map(Some),
            (_, Some(turn)) => self.stop(binary, turn, fate).map(Some),
            _ => Ok(None),
        }
    }

    /// Answers every question that is open.
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

    /// Keys of all inputs.
    pub(crate) fn sent(&self) -> BTreeSet<String> {
        self.orders.iter().map(|order| order.key.clone()).collect()
    }

    /// Keys of the inputs whose question nobody answers.
    pub(crate) fn unanswered(&self) -> BTreeSet<String> {
        self.orders.iter().filter(|order| is_unanswered(order)).map(|order| order.key.clone()).collect()
    }

    /// Turns that we wanted to stop.
    pub(crate) fn wished(&self) -> BTreeSet<String> {
        self.wished.clone()
    }
}

fn is_unanswered(order: &Order) -> bool {
    order.text.starts_with("unanswered")
}

/// Runs a command; gives how it ended and all it said.
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
    // What a command says fits into its pipe, so nobody has to read along.
    if let (Some(mut out), Some(mut complaint)) = (process.0.stdout.take(), process.0.stderr.take()) {
        out.read_to_string(&mut said)?;
        complaint.read_to_string(&mut said)?;
    }
    Ok((death, said))
}
