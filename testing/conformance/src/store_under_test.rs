//! Helpers for the rules of a store: inputs, replies, calls and waits, each in one short line.
use super::{Fixture, fresh};
use outlast_ports::branches::MAIN_HEAD;
use outlast_ports::inbox::{AcceptRequest, SessionTarget};
use outlast_ports::store::Store;
use outlast_ports::turns::{
    ClaimedTurn, Commit, CommitReceipt, Lease, LeaseRequest, TurnAfterCommit, TurnTransition,
};
use outlast_vocab::effect::{
    AwaitEvent, BatchCall, Boundary, Checkpoint, CheckpointOutcome, Generation, JoinedInput, ModelCall,
    ModelOutcome, Reply, StopReason, ToolBatch, ToolChoice, ToolOutcome, Usage,
};
use outlast_vocab::id::{CallId, SessionId, TurnId};
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::message::{ModelCallId, ModelName, Part, ToolName, ToolResult};
use outlast_vocab::record::{
    CallReclaimed, ClaimRef, EffectAnswered, EffectPerformed, EffectRequested, Fact, InputDelivery, NodeRef,
    Record, Seq, TurnAccepted, TurnEnd, TurnStarted,
};
use outlast_vocab::tool::{EffectClass, PreparedCall};
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Hash, Kind, Millis, ReplayKey};
use serde_json::json;
use std::fmt::Write;
use std::ops::Deref;

/// When a rule starts.
pub(super) const NOW: Millis = Millis(1_000);
/// When the leases of [`StoreUnderTest::lease_request`] end.
pub(super) const UNTIL: Millis = Millis(2_000);
/// When the leases of [`StoreUnderTest::rival`] end.
pub(super) const LATER: Millis = Millis(4_000);
/// A limit above the number of rows in all rules.
pub(super) const ALL: usize = usize::MAX;

/// A store under test, with one worker that drives it.
pub(super) struct StoreUnderTest<'a> {
    on: &'a dyn Fixture,
    store: &'a dyn Store,
    lease_request: LeaseRequest,
}

impl<'a> From<&'a dyn Fixture> for StoreUnderTest<'a> {
    fn from(on: &'a dyn Fixture) -> Self {
        Self { on, store: on.store(), lease_request: LeaseRequest { worker: on.worker(), until: UNTIL } }
    }
}

impl<'a> Deref for StoreUnderTest<'a> {
    type Target = dyn Store + 'a;

    fn deref(&self) -> &Self::Target {
        self.store
    }
}

impl StoreUnderTest<'_> {
    /// Returns the worker that drives.
    pub(super) fn lease_request(&self) -> LeaseRequest {
        self.lease_request
    }

    /// Returns another worker, a new one each time.
    pub(super) fn rival(&self) -> LeaseRequest {
        LeaseRequest { worker: self.on.worker(), until: LATER }
    }

    /// Makes the store consider this worker dead.
    pub(super) fn bury(&self, lease_request: LeaseRequest) {
        self.on.bury(lease_request.worker);
    }

    /// An input that the worker drives at once.
    pub(super) fn driven(&self, session: SessionId, text: &str) -> AcceptRequest {
        AcceptRequest { lease_request: Some(self.lease_request), ..input(session, text) }
    }

    /// Opens a session.
    pub(super) async fn fresh_session(&self) -> Result<SessionId, Error> {
        self.open(SessionTarget::New(session_id()), NOW).await
    }

    /// Starts a turn in a new session, leased to the worker.
    pub(super) async fn begin(&self, text: &str) -> Result<ClaimedTurn, Error> {
        self.begin_by(self.lease_request, text).await
    }

    /// Starts a turn in a new session, leased to this worker.
    pub(super) async fn begin_by(
        &self,
        lease_request: LeaseRequest,
        text: &str,
    ) -> Result<ClaimedTurn, Error> {
        let session = session_id();
        let (target, lease_request) = (SessionTarget::New(session), Some(lease_request));
        self.begin_as(AcceptRequest { target, lease_request, ..input(session, text) }).await
    }

    /// Starts a turn in this session, leased to the worker.
    pub(super) async fn begin_in(&self, session: SessionId, text: &str) -> Result<ClaimedTurn, Error> {
        self.begin_as(self.driven(session, text)).await
    }

    /// Starts a turn with this input, leased to its worker.
    pub(super) async fn begin_as(&self, accept: AcceptRequest) -> Result<ClaimedTurn, Error> {
        Ok(self.accept(accept).await?.work.expect("the session is idle, so its worker gets it"))
    }

    /// Adds an input to the queue.
    pub(super) async fn queue(&self, session: SessionId, text: &str) -> Result<TurnId, Error> {
        Ok(self.accept(input(session, text)).await?.turn)
    }

    /// Adds an input that joins the running turn.
    pub(super) async fn queue_to_join(&self, session: SessionId, text: &str) -> Result<TurnId, Error> {
        let accepted = TurnAccepted { delivery: InputDelivery::Join, ..TurnAccepted::text(text) };
        Ok(self.accept(AcceptRequest { accepted, ..input(session, text) }).await?.turn)
    }

    /// Writes facts of a turn.
    pub(super) async fn write(
        &self,
        lease: &Lease,
        facts: Vec<Fact>,
        then: TurnTransition,
    ) -> Result<CommitReceipt, Error> {
        self.commit(commit(lease, facts, then)).await
    }

    /// Writes facts of a turn and continues it.
    pub(super) async fn add(&self, lease: &Lease, facts: Vec<Fact>) -> Result<CommitReceipt, Error> {
        self.write(lease, facts, TurnTransition::Continue).await
    }

    /// Ends a turn with a reply.
    pub(super) async fn end(&self, lease: &Lease) -> Result<TurnAfterCommit, Error> {
        Ok(self.write(lease, vec![reply("bye")], TurnTransition::End(answer("bye"))).await?.after)
    }

    /// Parks a turn.
    pub(super) async fn park(&self, lease: &Lease, waits: Vec<Wait>) -> Result<TurnAfterCommit, Error> {
        Ok(self.write(lease, Vec::new(), TurnTransition::Park(waits)).await?.after)
    }

    /// Runs a turn from its input to its end. Returns its last message.
    pub(super) async fn whole_turn(&self, session: SessionId, text: &str) -> Result<NodeRef, Error> {
        self.whole_turn_as(self.driven(session, text)).await
    }

    /// Runs a turn with this input to its end. Returns its last message.
    pub(super) async fn whole_turn_as(&self, accept: AcceptRequest) -> Result<NodeRef, Error> {
        let work = self.begin_as(accept).await?;
        let receipt = self.write(&work.lease, vec![reply("bye")], TurnTransition::End(answer("bye"))).await?;
        Ok(NodeRef { session: work.lease.session, seq: receipt.places[0].seq })
    }

    /// Requests a batch of calls. Returns their claims.
    pub(super) async fn ask(&self, lease: &Lease, calls: &[PreparedCall]) -> Result<Vec<ClaimRef>, Error> {
        let asked = self.add(lease, vec![asked(calls)]).await?.places[0].seq;
        Ok((0..).zip(calls).map(|(child, _)| ClaimRef { asked, child }).collect())
    }

    /// Creates a turn that ended with one call of unknown outcome, which was claimed at this time.
    pub(super) async fn call_of_unknown_outcome(
        &self,
        session: SessionId,
        call: &PreparedCall,
        now: Millis,
    ) -> Result<ClaimedTurn, Error> {
        let work = self.begin_in(session, "send it").await?;
        let facts = vec![asked(std::slice::from_ref(call))];
        let asked =
            self.commit(Commit { now, ..commit(&work.lease, facts, TurnTransition::Continue) }).await?.places
                [0]
            .seq;
        let claim = ClaimRef { asked, child: 0 };
        let facts = vec![answered(claim, ToolOutcome::Unknown)];
        self.write(&work.lease, facts, TurnTransition::End(answer("nobody knows"))).await?;
        Ok(work)
    }

    /// Claims the only available turn.
    pub(super) async fn claim_only_turn(
        &self,
        lease_request: LeaseRequest,
        now: Millis,
    ) -> Result<ClaimedTurn, Error> {
        let mut found = self.claim(lease_request, now, ALL).await?;
        assert_eq!(found.len(), 1, "one session wants to be driven");
        Ok(found.remove(0))
    }

    /// Claims all turns that are available now.
    pub(super) async fn claimable(&self, now: Millis) -> Result<Vec<TurnId>, Error> {
        Ok(self.claim(self.rival(), now, ALL).await?.into_iter().map(|work| work.lease.turn).collect())
    }

    /// Returns all records of a session.
    pub(super) async fn all(&self, session: SessionId) -> Result<Vec<Record>, Error> {
        self.records(session, Seq(0), ALL).await
    }

    /// Returns the names of a session's facts, in order.
    pub(super) async fn facts(&self, session: SessionId) -> Result<Vec<&'static str>, Error> {
        Ok(self.all(session).await?.iter().map(|record| record.fact.name()).collect())
    }

    /// Returns all visible data of a session as text.
    pub(super) async fn session_snapshot(&self, session: SessionId) -> Result<String, Error> {
        let mut picture = String::new();
        let mut add = |what: &dyn std::fmt::Debug| {
            writeln!(picture, "{what:?}").expect("a String takes every write");
        };
        add(&self.session(session).await?);
        add(&self.turns(session, 0, ALL).await?);
        add(&self.all(session).await?);
        add(&self.joinable(session).await?);
        for name in self.value_names(session, String::new(), ALL).await? {
            add(&(&name, self.value(session, name.clone()).await?));
        }
        Ok(picture)
    }

    /// Returns all visible data as text.
    pub(super) async fn snapshot(&self) -> Result<String, Error> {
        let mut picture = format!("{:?}\n{:?}\n", self.unknown(ALL).await?, self.next_wake().await?);
        for session in self.sessions(None, ALL).await? {
            picture += &self.session_snapshot(session.id).await?;
        }
        Ok(picture)
    }
}

/// Returns an id that no session has yet.
pub(super) fn session_id() -> SessionId {
    SessionId::from_u128(fresh())
}

/// The session with this key, which is opened if it does not exist.
pub(super) fn by_key(key: &str) -> SessionTarget {
    SessionTarget::Key { key: key.to_owned(), fresh: session_id() }
}

/// An input that no worker drives yet.
pub(super) fn input(session: SessionId, text: &str) -> AcceptRequest {
    AcceptRequest::text(SessionTarget::Id(session), TurnId::from_u128(fresh()), text, NOW)
}

/// An input with an idempotency key.
pub(super) fn keyed(session: SessionId, key: &str, text: &str) -> AcceptRequest {
    let accepted = TurnAccepted { key: Some(key.to_owned()), ..TurnAccepted::text(text) };
    AcceptRequest { accepted, ..input(session, text) }
}

/// A write of facts and nothing else.
pub(super) fn commit(lease: &Lease, facts: Vec<Fact>, then: TurnTransition) -> Commit {
    Commit::new(*lease, NOW, facts, then)
}

/// The end of a turn with an answer.
pub(super) fn answer(text: &str) -> TurnEnd {
    TurnEnd::Answered { text: text.to_owned() }
}

/// The start of a turn.
pub(super) fn started() -> Fact {
    Fact::Started(TurnStarted {
        kernel: 1,
        package: Hash::of(b"package"),
        head: MAIN_HEAD.to_owned(),
        parent: None,
        labels: None,
    })
}

/// A reply of the model.
pub(super) fn reply(text: &str) -> Fact {
    let reply = Reply {
        parts: vec![Part::text(text)],
        calls: Vec::new(),
        stop: StopReason::End,
        stop_sequence: None,
        usage: Usage::default(),
        cost: None,
        estimate: None,
        attempt: 1,
    };
    performed(ReplayKey::turn(0).model(0), model_call(), ModelOutcome::Reply(reply))
}

/// A request to a model, without a position.
pub(super) fn model_call() -> ModelCall {
    let model: ModelName = "test/model".parse().expect("it fits");
    ModelCall {
        model,
        at: None,
        tools: Hash::of(b"no tools"),
        choice: ToolChoice::Auto,
        options: Generation::default(),
        output: None,
    }
}

/// An effect with its outcome.
pub(super) fn performed<E: outlast_vocab::effect::Effect>(
    key: ReplayKey,
    effect: E,
    outcome: E::Outcome,
) -> Fact {
    Fact::Performed(EffectPerformed::new(key, effect, outcome))
}

/// A call of an at-most-once tool.
pub(super) fn call(tool: &str) -> PreparedCall {
    let id = fresh();
    PreparedCall {
        id: CallId::from_u128(id),
        model_id: ModelCallId::try_from(format!("call_{id}")).expect("it fits"),
        tool: ToolName::try_from(tool.to_owned()).expect("it fits"),
        class: EffectClass::AtMostOnce,
        arguments: json!({ "to": "you" }),
        payload: None,
        ruling: None,
        labels: Labels::default(),
        provenance: Provenance::default(),
    }
}

/// A batch of calls that will run.
pub(super) fn asked(calls: &[PreparedCall]) -> Fact {
    let calls = calls.iter().cloned().map(BatchCall::Run).collect();
    Fact::Asked(EffectRequested { key: ReplayKey::turn(0).tools(0), command: ToolBatch { calls }.into() })
}

/// The outcome of a call.
pub(super) fn answered(claim: ClaimRef, outcome: ToolOutcome) -> Fact {
    Fact::Answered(EffectAnswered { claim, outcome: outcome.into(), cost: None })
}

/// The result of a call.
pub(super) fn settled(claim: ClaimRef) -> Fact {
    answered(claim, ToolOutcome::Done(ToolResult::Ok(json!("sent"))))
}

/// A call that another worker took over.
pub(super) fn reclaimed(claim: ClaimRef) -> Fact {
    Fact::Reclaimed(CallReclaimed { claim, attempt: 2 })
}

/// A key in a turn that an external system resolves.
pub(super) fn wait_key(name: &str) -> ReplayKey {
    ReplayKey::turn(0).event(name)
}

/// A wait without a deadline.
pub(super) fn wait(name: &str) -> Wait {
    Wait { key: wait_key(name), kind: WaitKind::Event, deadline: None }
}

/// A wait with this deadline.
pub(super) fn wait_until(name: &str, deadline: Millis) -> Wait {
    Wait { deadline: Some(deadline), ..wait(name) }
}

/// A resolution with a value.
pub(super) fn value_resolution() -> Resolution {
    Resolution::Ok(json!("yes"))
}

/// The turn read the resolution of a wait.
pub(super) fn read(name: &str, resolution: Resolution) -> Fact {
    performed(wait_key(name), AwaitEvent { key: wait_key(name), deadline: None }, resolution)
}

/// These inputs joined the turn.
pub(super) fn joined(inputs: &[TurnId]) -> Fact {
    let input = |turn: &TurnId| JoinedInput { turn: *turn, parts: vec![Part::text("steer")] };
    let outcome =
        CheckpointOutcome { inputs: inputs.iter().map(input).collect(), ..CheckpointOutcome::default() };
    performed(ReplayKey::turn(0).checkpoint(0), Checkpoint { boundary: Boundary::AfterWork }, outcome)
}

/// Returns the turn that started when another one ended.
pub(super) fn next_turn(after: TurnAfterCommit) -> ClaimedTurn {
    match after {
        TurnAfterCommit::Next(work) => *work,
        other => panic!("expected the next turn, but the session came to {other:?}"),
    }
}

/// Expects an error of this kind.
#[track_caller]
pub(super) fn refused<T>(result: Result<T, Error>, kind: Kind) {
    assert_eq!(result.map(drop).map_err(|error| error.kind()), Err(kind));
}

/// Expects sequence numbers from 1 without a gap.
#[track_caller]
pub(super) fn expect_gapless(records: &[Record]) {
    let places: Vec<u64> = records.iter().map(|record| record.seq.0).collect();
    let expected: Vec<u64> = (1..).take(records.len()).collect();
    assert_eq!(places, expected);
}
