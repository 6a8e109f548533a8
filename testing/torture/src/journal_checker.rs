//! Compares the journal with the witness and the ledger. Pure: it only reads its arguments.
//!
//! A promise can be broken in three ways: something acknowledged is **lost**, something that must happen once is
//! **repeated**, or the journal is wrong (**corrupted**).
use crate::journal::{JournalCall, JournalSession, JournalTurn};
use crate::ledger::LedgerEntry;
use crate::witness_protocol::Execution;
use outlast::Kind;
use outlast::store::SessionState;
use outlast::vocab::effect::ToolOutcome;
use outlast::vocab::message::ToolResult;
use outlast::vocab::record::TurnEnd;
use outlast::vocab::tool::EffectClass;
use outlast::vocab::wait::{CompletionKey, Resolution, WaitKind};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

/// The steps of the tool with durable steps, in order.
const STEPS: [&str; 3] = ["left", "right", "home"];

/// The ways to break a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PromiseViolationKind {
    /// Something acknowledged is gone or never ends.
    Lost,
    /// Something that must happen once happened twice.
    Repeated,
    /// The journal is wrong.
    Corrupted,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromiseViolation {
    /// The kind of the failure.
    pub promise: PromiseViolationKind,
    /// A description.
    pub violation_text: String,
}

/// The evidence about one idle database.
#[derive(Debug, Default)]
pub(crate) struct RoundEvidence {
    /// The acknowledgements.
    pub(crate) ledger: Vec<LedgerEntry>,
    /// Keys of the inputs that were sent.
    pub(crate) sent: BTreeSet<String>,
    /// Keys of the inputs that are never answered; their turns wait.
    pub(crate) unanswered: BTreeSet<String>,
    /// Turns whose cancellation was requested, acknowledged or not.
    pub(crate) wished: BTreeSet<String>,
    /// The executions that the witness recorded.
    pub(crate) executions: Vec<Execution>,
    /// The sessions in the journal.
    pub(crate) sessions: Vec<JournalSession>,
    /// The calls that `outlast unknown` lists.
    pub(crate) listed: BTreeSet<String>,
}

/// A planted error in the evidence. A run with it must fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedError {
    /// The journal lacks an acknowledged input.
    Lost,
    /// The witness has a payment twice.
    Repeated,
}

impl RoundEvidence {
    /// Plants an error, to check that the judge finds it.
    pub(crate) fn plant(&mut self, planted: PlantedError) {
        match planted {
            PlantedError::Lost => {
                let accepted = self.ledger.iter().find_map(|entry| match entry {
                    LedgerEntry::Accepted(receipt) => Some(receipt.turn.clone()),
                    _ => None,
                });
                for session in &mut self.sessions {
                    session.turns.retain(|id, _| Some(id.to_string()) != accepted);
                }
            }
            PlantedError::Repeated => {
                let payment = self.executions.iter().find(|execution| execution.tool == "pay").cloned();
                self.executions.extend(payment);
            }
        }
    }
}

/// Returns every broken promise.
pub(crate) fn find_violations(evidence: &RoundEvidence) -> Vec<PromiseViolation> {
    let mut judge = JournalChecker { evidence, turns: BTreeMap::new(), broken: Vec::new() };
    for session in &evidence.sessions {
        for (id, turn) in &session.turns {
            judge.turns.insert(id.to_string(), (session, turn));
        }
    }
    judge.sessions();
    judge.acknowledgements();
    judge.turns();
    judge.executions();
    judge.calls();
    judge.unknown();
    judge.broken
}

struct JournalChecker<'a> {
    evidence: &'a RoundEvidence,
    /// Turns by id, with their sessions.
    turns: BTreeMap<String, (&'a JournalSession, &'a JournalTurn)>,
    broken: Vec<PromiseViolation>,
}

impl<'a> JournalChecker<'a> {
    fn breaks(&mut self, promise: PromiseViolationKind, how: String) {
        self.broken.push(PromiseViolation { promise, violation_text: how });
    }

    /// Checks that no session is left running and no unexplained record exists.
    fn sessions(&mut self) {
        for session in &self.evidence.sessions {
            if !matches!(session.state, SessionState::Idle | SessionState::Parked) {
                self.breaks(
                    PromiseViolationKind::Lost,
                    format!("{} was left {}", session.id, session.state.name()),
                );
            }
            for odd in &session.unexpected_facts {
                self.breaks(PromiseViolationKind::Corrupted, odd.clone());
            }
            let counted = session.calls.iter().filter(|call| call.tool == "count" && call.is_done()).count();
            if session.count != counted as u64 {
                let promise = if session.count > counted as u64 {
                    PromiseViolationKind::Repeated
                } else {
                    PromiseViolationKind::Lost
                };
                let how = format!("{} counts {} for {counted} calls", session.id, session.count);
                self.breaks(promise, how);
            }
        }
    }

    /// Checks that everything acknowledged exists.
    fn acknowledgements(&mut self) {
        for entry in &self.evidence.ledger {
            match entry {
                LedgerEntry::Accepted(receipt) => match self.turns.get(&receipt.turn) {
                    None => self
                        .breaks(PromiseViolationKind::Lost, format!("the input of {} is gone", receipt.turn)),
                    Some((_, turn)) => {
                        let there = (&turn.key, turn.seq, &turn.hash);
                        if there != (&receipt.key, receipt.seq, &receipt.hash) {
                            let how = format!(
                                "{} is `{}` at {} with {:.8}, its receipt says `{}` at {} with {:.8}",
                                receipt.turn,
                                turn.key,
                                turn.seq,
                                turn.hash,
                                receipt.key,
                                receipt.seq,
                                receipt.hash
                            );
                            self.breaks(PromiseViolationKind::Lost, how);
                        }
                    }
                },
                LedgerEntry::Cancelled { turn } => {
                    if !self.turns.get(turn).is_some_and(|(_, turn)| turn.cancelled) {
                        self.breaks(PromiseViolationKind::Lost, format!("the wish to stop {turn} is gone"));
                    }
                }
                LedgerEntry::Resolved { completion, value } => {
                    let resolved = completion.parse::<CompletionKey>().is_ok_and(|completion| {
                        let turn = self.turns.get(&completion.turn.to_string());
                        let given = Resolution::Ok((*value).into());
                        turn.is_some_and(|(_, turn)| turn.resolved.contains(&(completion.key, given)))
                    });
                    if !resolved {
                        self.breaks(
                            PromiseViolationKind::Lost,
                            format!("the resolution of {completion} is gone"),
                        );
                    }
                }
            }
        }
    }

    /// Checks that each input is one turn, and that each turn ends once, in an expected way.
    fn turns(&mut self) {
        let mut keys: BTreeMap<&str, usize> = BTreeMap::new();
        for (id, (session, turn)) in self.turns.clone() {
            if !self.evidence.sent.contains(&turn.key) {
                self.breaks(
                    PromiseViolationKind::Corrupted,
                    format!("{id} has an input that nobody sent: `{}`", turn.key),
                );
            }
            *keys.entry(&turn.key).or_default() += 1;
            match turn.ends.as_slice() {
                [] => self.waits(&id, session, turn),
                [end] => self.ended(&id, turn, end),
                ends => {
                    self.breaks(PromiseViolationKind::Repeated, format!("{id} ended {} times", ends.len()));
                }
            }
            let joined = usize::from(matches!(turn.ends.first(), Some(TurnEnd::Joined { .. })));
            if turn.joined.len() + turn.started > 1 || turn.joined.len() > joined {
                self.breaks(
                    PromiseViolationKind::Repeated,
                    format!("the input of {id} was read more than once"),
                );
            } else if turn.joined.len() < joined {
                self.breaks(
                    PromiseViolationKind::Lost,
                    format!("the input of {id} joined a turn that never read it"),
                );
            }
            self.resolutions(&id, turn);
        }
        for (key, turns) in keys.into_iter().filter(|(_, turns)| *turns > 1) {
            self.breaks(PromiseViolationKind::Repeated, format!("the input `{key}` is {turns} turns"));
        }
    }

    /// Checks that an unfinished turn waits for an answer that never comes.
    fn waits(&mut self, id: &str, session: &JournalSession, turn: &JournalTurn) {
        let waits = session.active.as_ref().is_some_and(|(active, kinds)| {
            active.to_string() == id && kinds.as_slice() == [WaitKind::Completion]
        });
        let parked = session.state == SessionState::Parked;
        if !(parked && waits && self.evidence.unanswered.contains(&turn.key)) {
            let how = format!("{id} (`{}`) neither ended nor waits for what it should", turn.key);
            self.breaks(PromiseViolationKind::Lost, how);
        }
    }

    fn ended(&mut self, id: &str, turn: &JournalTurn, end: &TurnEnd) {
        let wanted = match end {
            TurnEnd::Answered { .. } => !self.evidence.unanswered.contains(&turn.key),
            TurnEnd::Joined { .. } => true,
            TurnEnd::Cancelled { .. } => turn.cancelled && self.evidence.wished.contains(id),
            _ => false,
        };
        if !wanted {
            self.breaks(PromiseViolationKind::Corrupted, format!("{id} (`{}`) ended as {end:?}", turn.key));
        }
    }

    /// Checks that a wait is resolved once, and that the turn read the given resolution.
    fn resolutions(&mut self, id: &str, turn: &JournalTurn) {
        let mut given: BTreeMap<&str, &Resolution> = BTreeMap::new();
        for (key, resolution) in &turn.resolved {
            if given.insert(key.as_str(), resolution).is_some() {
                self.breaks(PromiseViolationKind::Repeated, format!("{key} of {id} was resolved twice"));
            }
        }
        let mut read: BTreeSet<&str> = BTreeSet::new();
        for (key, resolution) in &turn.read {
            if !read.insert(key.as_str()) {
                self.breaks(
                    PromiseViolationKind::Repeated,
                    format!("the resolution of {key} of {id} was read twice"),
                );
            }
            if given.get(key.as_str()) != Some(&resolution) {
                let how = format!(
                    "{key} of {id} was read as {resolution:?}, given was {:?}",
                    given.get(key.as_str())
                );
                self.breaks(PromiseViolationKind::Corrupted, how);
            }
        }
    }

    /// Checks that each execution belongs to a call that was durable before it, and that no attempt executes twice.
    fn executions(&mut self) {
        let calls: BTreeMap<&str, &JournalCall> = self
            .evidence
            .sessions
            .iter()
            .flat_map(|session| &session.calls)
            .map(|call| (&*call.id, call))
            .collect();
        let mut attempts = BTreeSet::new();
        for execution in &self.evidence.executions {
            let Execution { tool, call: id, step, attempt, arguments, .. } = execution;
            let Some(call) = calls.get(id.as_str()) else {
                self.breaks(
                    PromiseViolationKind::Corrupted,
                    format!("`{tool}` acted for {id}, which the journal does not know"),
                );
                continue;
            };
            if (&call.tool, &call.arguments) != (tool, arguments) {
                let how = format!("`{tool}` acted for {id}, which the journal has as another call");
                self.breaks(PromiseViolationKind::Corrupted, how);
            }
            if *attempt > call.attempt {
                let how = format!(
                    "`{tool}` acted for {id} as attempt {attempt}, the journal knows {}",
                    call.attempt
                );
                self.breaks(PromiseViolationKind::Corrupted, how);
            }
            if !attempts.insert((id, step, attempt)) {
                self.breaks(
                    PromiseViolationKind::Repeated,
                    format!("`{tool}` acted twice in attempt {attempt} of {id}"),
                );
            }
        }
    }

    /// Checks that each call has one outcome, which matches the executions.
    fn calls(&mut self) {
        for call in self.evidence.sessions.iter().flat_map(|session| &session.calls) {
            let seen: Vec<&Execution> =
                self.evidence.executions.iter().filter(|execution| execution.call == call.id).collect();
            if call.class == EffectClass::AtMostOnce && seen.len() > 1 {
                let how =
                    format!("the at-most-once `{}` acted {} times for {}", call.tool, seen.len(), call.id);
                self.breaks(PromiseViolationKind::Repeated, how);
            }
            self.steps(call, &seen);
            match call.outcomes.as_slice() {
                [] => self.open(call),
                [outcome] => self.outcome(call, outcome, seen.len()),
                outcomes => {
                    self.breaks(
                        PromiseViolationKind::Repeated,
                        format!("{} was answered {} times", call.id, outcomes.len()),
                    );
                }
            }
        }
    }

    fn turn_of(&self, call: &JournalCall) -> Option<&'a JournalTurn> {
        self.turns.get(&call.turn.to_string()).map(|(_, turn)| *turn)
    }

    fn open(&mut self, call: &JournalCall) {
        if self.turn_of(call).is_none_or(|turn| !turn.ends.is_empty()) {
            self.breaks(
                PromiseViolationKind::Corrupted,
                format!("{} has no outcome, but its turn is over", call.id),
            );
        }
    }

    fn outcome(&mut self, call: &JournalCall, outcome: &ToolOutcome, seen: usize) {
        let once = call.class == EffectClass::AtMostOnce;
        let cancelled = self.turn_of(call).is_some_and(|turn| turn.cancelled);
        let JournalCall { id, tool, .. } = call;
        match outcome {
            ToolOutcome::Done(ToolResult::Ok(_)) | ToolOutcome::Pending if seen == 0 => {
                self.breaks(
                    PromiseViolationKind::Lost,
                    format!("`{tool}` is said to have acted for {id}, but it did not"),
                );
            }
            ToolOutcome::Done(ToolResult::Ok(_)) | ToolOutcome::Pending => {}
            ToolOutcome::Done(ToolResult::Err(failure)) => {
                let explained = match failure.code {
                    Kind::ToolCancelled => cancelled,
                    // A tool with a probe knows that it did not act. A cancelled turn may never have started the call.
                    Kind::ToolInterrupted => tool == "book" || cancelled,
                    _ => false,
                };
                if !explained {
                    self.breaks(
                        PromiseViolationKind::Corrupted,
                        format!("`{tool}` failed for {id}: {failure}"),
                    );
                }
                if once && seen > 0 {
                    let how = format!("`{tool}` acted for {id}, but the journal says: {failure}");
                    self.breaks(PromiseViolationKind::Corrupted, how);
                }
            }
            ToolOutcome::Unknown => {
                // A tool with a probe knows its outcome, unless its turn was cancelled while it ran.
                if !once || (tool == "book" && !cancelled) {
                    self.breaks(
                        PromiseViolationKind::Corrupted,
                        format!("the outcome of `{tool}` for {id} is unknown"),
                    );
                }
            }
        }
    }

    /// Checks that an answered step is not run again.
    fn steps(&mut self, call: &JournalCall, seen: &[&Execution]) {
        if call.tool == "walk" && call.is_done() && call.steps.len() < STEPS.len() {
            self.breaks(
                PromiseViolationKind::Lost,
                format!("{} is done, but a step of it was never answered", call.id),
            );
        }
        let attempts = |step: &str| -> Vec<u32> {
            let ran = seen.iter().filter(|execution| execution.step.as_deref() == Some(step));
            ran.map(|execution| execution.attempt).collect()
        };
        for (earlier, later) in STEPS.iter().zip(&STEPS[1..]) {
            // A call that continues to a step knows that the step before it is durable.
            if let (Some(again), Some(went_on)) =
                (attempts(earlier).iter().max(), attempts(later).iter().min())
                && again > went_on
            {
                let how = format!("step `{earlier}` of {} ran again after `{later}` had begun", call.id);
                self.breaks(PromiseViolationKind::Repeated, how);
            }
        }
        let mut answered = BTreeSet::new();
        for (name, under) in &call.steps {
            if !answered.insert(name) {
                self.breaks(
                    PromiseViolationKind::Repeated,
                    format!("step `{name}` of {} was answered twice", call.id),
                );
            }
            let attempts = attempts(name);
            if attempts.is_empty() {
                self.breaks(PromiseViolationKind::Lost, format!("step `{name}` of {} never ran", call.id));
            }
            if attempts.iter().any(|attempt| attempt > under) {
                let how = format!("step `{name}` of {} ran after attempt {under} had answered it", call.id);
                self.breaks(PromiseViolationKind::Repeated, how);
            }
        }
    }

    /// Checks that exactly the calls of unknown outcome are listed.
    fn unknown(&mut self) {
        let calls = self.evidence.sessions.iter().flat_map(|session| &session.calls);
        let unknown: BTreeSet<String> =
            calls.filter(|call| call.is_unknown() && !call.settled).map(|call| call.id.clone()).collect();
        for missing in unknown.difference(&self.evidence.listed) {
            self.breaks(
                PromiseViolationKind::Corrupted,
                format!("{missing} is unknown, but `outlast unknown` hides it"),
            );
        }
        for extra in self.evidence.listed.difference(&unknown) {
            self.breaks(
                PromiseViolationKind::Corrupted,
                format!("`outlast unknown` lists {extra}, whose outcome is known"),
            );
        }
    }
}

impl JournalCall {
    /// Returns whether it returned a result.
    pub(crate) fn is_done(&self) -> bool {
        self.outcomes.iter().any(|outcome| matches!(outcome, ToolOutcome::Done(ToolResult::Ok(_))))
    }

    /// Returns whether its outcome is unknown.
    pub(crate) fn is_unknown(&self) -> bool {
        self.outcomes.contains(&ToolOutcome::Unknown)
    }
}
