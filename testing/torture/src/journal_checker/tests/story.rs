//! A made-up journal in which everything allowed happens, with a matching witness and ledger.
use super::*;
use crate::worker::InputReceipt;
use outlast::store::SessionView;
use outlast::vocab::effect::{
    AwaitEvent, BatchCall, Boundary, Checkpoint, CheckpointOutcome, Command, DurableStep, JoinedInput,
    JournalPosition, StepOutcome, ToolBatch,
};
use outlast::vocab::id::OrgId;
use outlast::vocab::label::{Labels, Provenance};
use outlast::vocab::record::{
    CallReclaimed, EffectAnswered, EffectRequested, Seq, TurnAccepted, TurnStarted,
};
use outlast::vocab::tool::PreparedCall;
use outlast::vocab::wait::Wait;
use outlast::vocab::{Hash, Millis, ReplayKey, canonical_json};

pub(super) const SECRET: [u8; 32] = [7; 32];

/// The turn that does everything.
pub(super) const MAIN: TurnId = TurnId::from_u128(1);
/// An input that joined it.
pub(super) const JOINED: TurnId = TurnId::from_u128(2);
/// A turn that was stopped.
pub(super) const STOPPED: TurnId = TurnId::from_u128(3);
/// A turn whose question is never answered.
pub(super) const UNANSWERED: TurnId = TurnId::from_u128(4);

/// A session under construction.
pub(super) struct Story {
    pub(super) view: SessionView,
    pub(super) records: Vec<Record>,
}

impl Story {
    pub(super) fn new(number: u128, state: SessionState) -> Self {
        let view = SessionView {
            id: SessionId::from_u128(number),
            org: OrgId::DEFAULT,
            key: None,
            state,
            created: Millis(0),
            updated: Millis(0),
            turns: 0,
            last: JournalPosition { seq: Seq(0), hash: Hash::ZERO },
            heads: Vec::new(),
            forked_from: None,
            active: None,
            worker: None,
            waits: Vec::new(),
            wake_at: None,
            deaths: 0,
            cost: None,
            last_turn: None,
        };
        Self { view, records: Vec::new() }
    }

    pub(super) fn add(&mut self, turn: TurnId, fact: Fact) -> Seq {
        let seq = Seq(self.records.len() as u64 + 1);
        self.records.push(Record { seq, turn: Some(turn), at: Millis(0), hash: hash_at(seq.0), fact });
        seq
    }

    pub(super) fn accept(&mut self, turn: TurnId, key: &str) {
        let key = Some(key.to_owned());
        self.add(turn, Fact::Accepted(TurnAccepted { parts: vec![], key, ..TurnAccepted::text("") }));
    }

    pub(super) fn begin(&mut self, turn: TurnId) {
        let (head, package) = ("main".to_owned(), Hash::ZERO);
        self.add(turn, Fact::Started(TurnStarted { kernel: 1, package, head, parent: None, labels: None }));
    }

    /// Adds a batch of tool calls.
    pub(super) fn ask(&mut self, turn: TurnId, calls: &[PreparedCall]) -> Seq {
        let calls = calls.iter().cloned().map(BatchCall::Run).collect();
        self.add(turn, Fact::Asked(EffectRequested { key: batch(), command: ToolBatch { calls }.into() }))
    }

    pub(super) fn answer(&mut self, turn: TurnId, asked: Seq, child: u32, outcome: ToolOutcome) {
        let claim = ClaimRef { asked, child };
        self.add(turn, Fact::Answered(EffectAnswered { claim, outcome: outcome.into(), cost: None }));
    }

    pub(super) fn end(&mut self, turn: TurnId, end: TurnEnd) {
        self.add(turn, Fact::Ended { end });
    }

    pub(super) fn session(&self, count: u64) -> JournalSession {
        JournalSession::of(&self.view, count, &self.records)
    }
}

pub(super) fn hash_at(seq: u64) -> Hash {
    Hash::of(&seq.to_be_bytes())
}

pub(super) fn batch() -> ReplayKey {
    ReplayKey::turn(0).tools(0)
}

pub(super) fn call(number: u128, tool: &str, class: EffectClass) -> PreparedCall {
    PreparedCall {
        id: CallId::from_u128(number),
        model_id: format!("call_{number}").parse().unwrap(),
        tool: tool.parse().unwrap(),
        class,
        arguments: json!({"what": tool}),
        payload: None,
        ruling: None,
        labels: Labels::default(),
        provenance: Provenance::default(),
    }
}

pub(super) fn executed(call: &PreparedCall, step: Option<&str>, attempt: u32) -> Execution {
    Execution {
        tool: call.tool.to_string(),
        call: call.id.to_string(),
        step: step.map(str::to_owned),
        attempt,
        pid: 100 + attempt,
        arguments: canonical_json::fingerprint(&call.arguments).to_string(),
        completion: None,
    }
}

pub(super) fn completion() -> CompletionKey {
    CompletionKey::sign(&SECRET, MAIN, batch().child(3, "call_14").completion())
}

pub(super) fn done() -> ToolOutcome {
    ToolOutcome::Done(ToolResult::Ok(json!("yes")))
}

pub(super) fn performed(key: ReplayKey, command: impl Into<Command>, outcome: impl Into<Outcome>) -> Fact {
    Fact::Performed(EffectPerformed::new(key, command, outcome))
}

/// Returns the calls of the turn that does everything.
pub(super) fn calls() -> [PreparedCall; 6] {
    [
        call(11, "pay", EffectClass::AtMostOnce),
        call(12, "book", EffectClass::AtMostOnce),
        call(13, "walk", EffectClass::Idempotent),
        call(14, "ask", EffectClass::Idempotent),
        call(15, "count", EffectClass::Transactional),
        call(16, "pay", EffectClass::AtMostOnce),
    ]
}

/// Returns a session in which everything allowed happens.
pub(super) fn busy() -> Story {
    let mut story = Story::new(91, SessionState::Idle);
    story.accept(MAIN, "k1");
    story.accept(JOINED, "k2");
    story.begin(MAIN);
    let asked = story.ask(MAIN, &calls());
    let walk = batch().child(2, "call_13");
    let left = DurableStep { name: "left".into(), input: json!(1) };
    story.add(MAIN, performed(walk.step("left"), left, StepOutcome::Value(json!("left"))));
    story.add(MAIN, Fact::Reclaimed(CallReclaimed { claim: ClaimRef { asked, child: 2 }, attempt: 2 }));
    for name in ["right", "home"] {
        let step = DurableStep { name: name.into(), input: json!(1) };
        story.add(MAIN, performed(walk.step(name), step, StepOutcome::Value(json!(name))));
    }
    let interrupted = Failure::new(Kind::ToolInterrupted, "it did not happen");
    let outcomes = [
        done(),
        ToolOutcome::Done(ToolResult::Err(interrupted)),
        done(),
        ToolOutcome::Pending,
        done(),
        ToolOutcome::Unknown,
    ];
    for (child, outcome) in (0..).zip(outcomes) {
        story.answer(MAIN, asked, child, outcome);
    }
    let (wait, yes) = (completion().key, Resolution::Ok(json!(5)));
    story.add(MAIN, Fact::Resolved { key: wait.clone(), resolution: yes.clone() });
    story.add(MAIN, performed(wait.clone(), AwaitEvent { key: wait, deadline: None }, yes));
    let joined = CheckpointOutcome {
        inputs: vec![JoinedInput { turn: JOINED, parts: vec![] }],
        ..CheckpointOutcome::default()
    };
    let checkpoint = Checkpoint { boundary: Boundary::AfterWork };
    story.add(MAIN, performed(ReplayKey::turn(0).checkpoint(0), checkpoint, joined));
    story.end(JOINED, TurnEnd::Joined { into: MAIN });
    story.end(MAIN, TurnEnd::Answered { text: "done".into() });
    story.accept(STOPPED, "k3");
    story.begin(STOPPED);
    story.add(STOPPED, Fact::CancelRequested { reason: "enough".into(), undo: false, abandon: false });
    story.end(STOPPED, TurnEnd::Cancelled { reason: "enough".into() });
    story
}

/// Returns a session whose only turn waits for an answer that never comes.
pub(super) fn patient() -> Story {
    let mut story = Story::new(92, SessionState::Parked);
    story.accept(UNANSWERED, "k4");
    story.begin(UNANSWERED);
    let asked = story.ask(UNANSWERED, &[call(21, "ask", EffectClass::Idempotent)]);
    story.answer(UNANSWERED, asked, 0, ToolOutcome::Pending);
    let wait =
        Wait { key: batch().child(0, "call_21").completion(), kind: WaitKind::Completion, deadline: None };
    story.add(UNANSWERED, Fact::Parked { waits: vec![wait.clone()] });
    (story.view.active, story.view.waits) = (Some(UNANSWERED), vec![wait]);
    story
}

pub(super) fn receipt(turn: TurnId, key: &str, seq: u64) -> LedgerEntry {
    let hash = hash_at(seq).to_string();
    LedgerEntry::Accepted(InputReceipt { key: key.into(), turn: turn.to_string(), seq, hash })
}

/// Returns the evidence if every promise was kept.
pub(super) fn intact_evidence() -> RoundEvidence {
    let [pay, _, walk, ask, count, lost_pay] = calls();
    RoundEvidence {
        ledger: vec![
            receipt(MAIN, "k1", 1),
            receipt(JOINED, "k2", 2),
            receipt(STOPPED, "k3", 20),
            receipt(UNANSWERED, "k4", 1),
            LedgerEntry::Resolved { completion: completion().to_string(), value: 5 },
            LedgerEntry::Cancelled { turn: STOPPED.to_string() },
        ],
        sent: ["k1", "k2", "k3", "k4"].map(str::to_owned).into(),
        unanswered: ["k4".to_owned()].into(),
        wished: [STOPPED.to_string()].into(),
        executions: vec![
            executed(&pay, None, 1),
            executed(&walk, Some("left"), 1),
            executed(&walk, Some("right"), 1),
            executed(&walk, Some("right"), 2),
            executed(&walk, Some("home"), 2),
            executed(&ask, None, 1),
            executed(&count, None, 1),
            executed(&lost_pay, None, 1),
            executed(&call(21, "ask", EffectClass::Idempotent), None, 1),
        ],
        sessions: vec![busy().session(1), patient().session(0)],
        listed: [lost_pay.id.to_string()].into(),
    }
}
