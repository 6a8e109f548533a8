//! The judge: checks the disk, the acknowledgements to users and the witness against the promises.
use crate::effect_recorder::ObservedEffects;
use crate::limit_checks;
use crate::outage_checks::{self, ProviderParks};
use crate::plan::SimPlan;
use crate::sim_process::{self, SimSharedState};
use crate::sim_user::SimUser;
use crate::tools::AT_MOST_ONCE;
use outlast_conformance::block_on;
use outlast_disk::{Disk, Mount};
use outlast_kernel::transcript;
use outlast_ports::branches::MAIN_HEAD;
use outlast_ports::content_queries::ContentQueries;
use outlast_ports::journal::Journal;
use outlast_ports::queries::Queries;
use outlast_store::SqliteStore;
use outlast_views::{SessionState, SessionView, TurnState};
use outlast_vocab::effect::{BatchCall, Command, Outcome, ToolOutcome};
use outlast_vocab::message::{Message, ToolResult};
use outlast_vocab::record::{ClaimRef, EffectAnswered, EffectRequested, Fact, Record, Seq, TurnEnd};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::{CallId, Error, Kind, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// The end state of a session, which must not depend on faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionEndState {
    pub(crate) ends: Vec<String>,
    transcripts: BTreeMap<String, Vec<String>>,
    count: Option<serde_json::Value>,
}

/// What the failure of a turn contains that waited for its provider as long as it may.
const WAITED: &str = "the turn has waited";

/// The findings of the judge.
#[derive(Default)]
pub(crate) struct OracleFindings {
    pub(crate) found_end_states: Vec<Vec<SessionEndState>>,
    pub(crate) turns: u64,
    pub(crate) broken: Vec<String>,
}

/// Judges a run after all its processes are dead.
pub(crate) fn check_end_state(
    plan: &SimPlan,
    disk: &Disk,
    origin: &SimSharedState,
    clients: &[SimUser],
    lives: u32,
) -> OracleFindings {
    let mount = disk.mount();
    let mut found = OracleFindings::default();
    if plan.may_damage_disk()
        && let Err(error) = check_file_integrity(&mount)
    {
        found.broken.push(format!("the file is damaged: {error}"));
        return found;
    }
    let judged = sim_process::open(&mount, None, origin.dead.clone()).and_then(|(store, writer)| {
        let seen = origin.witness.seen();
        let contracts = origin.contracts()?;
        let mut known = BTreeSet::new();
        let mut parks = ProviderParks::default();
        for client in clients {
            let mut sessions = vec![client.session];
            sessions.extend(client.acks().filter_map(|ack| ack.fork));
            let mut left = Vec::new();
            for session in sessions {
                let session = SessionRecords::read(&store, session)?;
                limit_checks::judge_session(&session.records, origin, &contracts, &seen, &mut found)?;
                if plan.is_strict() {
                    outage_checks::judge_patience(&session.records, origin, &mut found);
                }
                outage_checks::judge_retries(client.scenario, session.view.id, &seen, &mut found);
                parks.add(client.scenario, session.view.id, &session.records);
                left.push(session.judge(&store, &seen, &mut known, &mut found)?);
            }
            found.found_end_states.push(left);
            promises_to(client, &store, &mut found)?;
        }
        let unclaimed = seen.ran_calls.iter().filter(|did| !known.contains(&did.call)).count();
        found.check(unclaimed == 0, || {
            format!("{unclaimed} executions belong to no call that was claimed first")
        });
        limit_checks::check_limits(plan, &store, origin, &seen, &mut found)?;
        parks.check_pace(plan, origin, &seen, &mut found);
        model_calls(plan, &seen, lives, &mut found);
        steps(&seen, lives, &mut found);
        drop(store);
        drop(writer);
        Ok(())
    });
    if let Err(error) = judged {
        found.broken.push(format!("what is left cannot be read: {error}"));
    }
    found
}

impl OracleFindings {
    /// Records a broken promise.
    pub(crate) fn check(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(otherwise());
        }
    }
}

/// Runs SQLite's integrity check.
fn check_file_integrity(mount: &Mount) -> Result<(), String> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
    let opened = rusqlite::Connection::open_with_flags_and_vfs(sim_process::DATABASE, flags, mount.vfs());
    let conn = opened.map_err(|error| error.to_string())?;
    let said: String =
        conn.query_one("PRAGMA integrity_check", [], |row| row.get(0)).map_err(|error| error.to_string())?;
    if said == "ok" { Ok(()) } else { Err(said) }
}

/// A session with all its records.
struct SessionRecords {
    view: SessionView,
    records: Vec<Record>,
}

impl SessionRecords {
    fn read(store: &SqliteStore, id: SessionId) -> Result<Self, Error> {
        let view = block_on(store.session(id))?;
        let records = block_on(store.records(id, Seq(0), usize::MAX))?;
        Ok(Self { view, records })
    }

    fn judge(
        &self,
        store: &SqliteStore,
        seen: &ObservedEffects,
        known: &mut BTreeSet<CallId>,
        found: &mut OracleFindings,
    ) -> Result<SessionEndState, Error> {
        let id = self.view.id;
        if let Err(error) = block_on(store.verify(id)) {
            found.broken.push(format!("the chain of {id} is broken: {error}"));
        }
        let whole = self.records.iter().zip(1_u64..).all(|(record, seq)| record.seq.0 == seq);
        found.check(whole, || format!("the records of {id} have a gap or a repeat"));
        found.check(self.view.state == SessionState::Idle, || {
            format!("{id} is left {}, waiting for {:?}", self.view.state.name(), self.view.waits)
        });
        let turns = block_on(store.turns(id, 0, usize::MAX))?;
        for turn in &turns {
            found.check(turn.state == TurnState::Ended, || format!("{} is not answered", turn.id));
            let ended =
                |record: &&Record| record.turn == Some(turn.id) && matches!(record.fact, Fact::Ended { .. });
            let ends = self.records.iter().filter(ended).count();
            found.check(ends == 1, || format!("{} ended {ends} times", turn.id));
            if let Some(TurnEnd::Aborted { undone, left, .. }) = turn.end {
                let of_turn = |record: &&Record| record.turn == Some(turn.id);
                let undoable = |record: &&Record| matches!(record.fact, Fact::Undoable(_));
                let can_be = self.records.iter().filter(of_turn).filter(undoable).count();
                found.check((undone + left) as usize == can_be, || {
                    format!("{} was aborted; {can_be} calls can be taken back, {undone} were", turn.id)
                });
            }
        }
        found.turns += turns.len() as u64;
        self.effects(store, seen, known, found)?;
        self.read_end_state(store, &turns, found)
    }

    /// Compares the executed effects with the journal.
    fn effects(
        &self,
        store: &SqliteStore,
        seen: &ObservedEffects,
        known: &mut BTreeSet<CallId>,
        found: &mut OracleFindings,
    ) -> Result<(), Error> {
        let executions = seen.executions();
        let executed = |call: &PreparedCall| {
            let of =
                executions.iter().filter(|(did, _)| did.call == call.id && did.tool == call.tool.as_str());
            of.map(|(_, times)| *times).sum::<usize>()
        };
        let mut unknown = BTreeSet::new();
        for (claim, call) in self.calls() {
            known.insert(call.id);
            let (tool, times) = (call.tool.as_str(), executed(call));
            if AT_MOST_ONCE.contains(&tool) {
                found.check(times <= 1, || format!("{tool} ({}) was executed {times} times", call.id));
            }
            match self.answer(claim) {
                Some(ToolOutcome::Unknown) if !self.is_settled(claim) => drop(unknown.insert(claim)),
                Some(ToolOutcome::Done(ToolResult::Ok(_))) if tool != "stepped" => {
                    found.check(times >= 1, || {
                        format!("{tool} ({}) has a result and was never executed", call.id)
                    });
                }
                Some(_) => {}
                None => found.broken.push(format!("{tool} ({}) was claimed and never answered", call.id)),
            }
        }
        let listed = block_on(store.unknown(usize::MAX))?;
        let listed: BTreeSet<ClaimRef> =
            listed.into_iter().filter(|call| call.session == self.view.id).map(|call| call.claim).collect();
        found.check(listed == unknown, || {
            format!("{}: unknown are {unknown:?}, but {listed:?} are listed", self.view.id)
        });
        Ok(())
    }

    /// Returns every claimed call.
    fn calls(&self) -> impl Iterator<Item = (ClaimRef, &PreparedCall)> {
        let batches = self.records.iter().filter_map(|record| match &record.fact {
            Fact::Asked(EffectRequested { command: Command::ToolBatch(batch), .. }) => {
                Some((record.seq, batch))
            }
            _ => None,
        });
        batches.flat_map(|(asked, batch)| {
            (0..).zip(&batch.calls).filter_map(move |(child, call)| match call {
                BatchCall::Run(call) => Some((ClaimRef { asked, child }, call)),
                BatchCall::Refused(_) => None,
            })
        })
    }

    fn answer(&self, claim: ClaimRef) -> Option<&ToolOutcome> {
        self.records.iter().find_map(|record| match &record.fact {
            Fact::Answered(EffectAnswered { claim: of, outcome: Outcome::ToolCall(outcome), .. })
                if *of == claim =>
            {
                Some(outcome)
            }
            _ => None,
        })
    }

    fn is_settled(&self, claim: ClaimRef) -> bool {
        self.records
            .iter()
            .any(|record| matches!(&record.fact, Fact::Settled(settled) if settled.claim == claim))
    }

    fn read_end_state(
        &self,
        store: &SqliteStore,
        turns: &[outlast_views::TurnView],
        found: &mut OracleFindings,
    ) -> Result<SessionEndState, Error> {
        let ends = turns.iter().map(|turn| match &turn.end {
            Some(TurnEnd::Joined { into }) => {
                format!("joined turn {:?}", turns.iter().position(|turn| turn.id == *into))
            }
            // The number of lives before sealing is one higher if a life died while it sealed.
            Some(TurnEnd::Sealed { .. }) => "sealed".into(),
            // A fault may hit its last attempt, so the last failure depends on faults.
            Some(TurnEnd::Failed { failure }) if failure.detail.contains(WAITED) => {
                format!("failed: {WAITED}{}", failure.detail.split(WAITED).nth(1).unwrap_or_default())
            }
            end => format!("{end:?}"),
        });
        let mut transcripts = BTreeMap::new();
        for (head, node) in &self.view.heads {
            let mut messages = Vec::new();
            if let Some(node) = node {
                for turn in block_on(store.history(*node, usize::MAX))?.into_iter().rev() {
                    messages.extend(transcript::of_turn(turn.records, turn.last_in_branch).messages);
                }
            }
            found.check(pairs(&messages), || {
                format!("{} on `{head}`: calls and results do not match", self.view.id)
            });
            transcripts.insert(head.clone(), messages.iter().map(crash_independent_text).collect());
        }
        let count = block_on(store.value(self.view.id, "count".into()))?;
        Ok(SessionEndState { ends: ends.collect(), transcripts, count })
    }
}

/// Returns whether every call has exactly one result, in the order of the calls.
fn pairs(messages: &[Message]) -> bool {
    let mut expected: Vec<String> = Vec::new();
    for message in messages {
        match message {
            Message::Assistant { calls, .. } => {
                if !expected.is_empty() {
                    return false;
                }
                expected = calls.iter().rev().map(|call| call.id.to_string()).collect();
            }
            Message::Tool { call, .. } => {
                if expected.pop() != Some(call.to_string()) {
                    return false;
                }
            }
            Message::User { .. } => {}
        }
    }
    expected.is_empty()
}

/// Returns a message in a form that does not depend on crashes. A crash may only change whether an at-most-once call is
/// known to have happened.
fn crash_independent_text(message: &Message) -> String {
    match message {
        Message::Tool { tool, result: ToolResult::Err(failure), .. }
            if [Kind::ToolOutcomeUnknown, Kind::ToolInterrupted].contains(&failure.code) =>
        {
            format!("{tool} ran or nobody knows")
        }
        Message::Tool { tool, .. } if AT_MOST_ONCE.contains(&tool.as_str()) => {
            format!("{tool} ran or nobody knows")
        }
        message => message.text().into_owned(),
    }
}

/// Checks that everything acknowledged to the user of a session is true.
fn promises_to(client: &SimUser, store: &SqliteStore, found: &mut OracleFindings) -> Result<(), Error> {
    for ack in client.acks() {
        let (Some(turn), Some(place)) = (ack.turn, ack.place) else { continue };
        let receipt = block_on(store.turn_records(turn))?;
        let is_recorded = receipt.iter().any(|record| record.seq == place.seq && record.hash == place.hash);
        found.check(is_recorded, || format!("the acknowledged input {turn} is not where its receipt says"));
    }
    let last = block_on(store.session(client.session))?.last.seq.0;
    let seqs = &client.log().seqs;
    let followed = seqs.iter().zip(1_u64..).all(|(seen, expected)| *seen == expected);
    found.check(followed && seqs.len() as u64 <= last, || {
        format!("the event stream of {} has a gap or a repeat: {seqs:?}", client.session)
    });
    let heads = block_on(store.session(client.session))?.heads;
    found.check(heads.iter().any(|(name, _)| name == MAIN_HEAD), || "the main head is gone".into());
    Ok(())
}

/// Checks that an answered step is not run again: it runs at most once in each life.
fn steps(seen: &ObservedEffects, lives: u32, found: &mut OracleFindings) {
    for (did, times) in seen.executions() {
        let again = did.tool.starts_with("step ") && times > lives as usize;
        found.check(!again, || format!("{} ({}) ran {times} times in {lives} lives", did.tool, did.call));
    }
}

/// Checks that a model call is repeated only after a crash or a failure.
fn model_calls(plan: &SimPlan, seen: &ObservedEffects, lives: u32, found: &mut OracleFindings) {
    let most = u64::from(lives) + plan.model_faults.len() as u64 + plan.faults.len() as u64;
    for (call, times) in &seen.asked {
        found.check(*times <= most, || {
            format!("the model call {call} was asked {times} times in {lives} lives")
        });
    }
}
