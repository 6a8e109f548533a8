//! What a run knows: the ids that it used, and what the stores returned.
use super::run_profile::RunProfile;
use super::store_request::{OK, StoreAnswer, StoreRequest};
use outlast_ports::branches::ForkRequest;
use outlast_ports::inbox::{AcceptRequest, SessionTarget};
use outlast_ports::sink::OutputPosition;
use outlast_ports::turns::{Commit, Lease};
use outlast_views::ForkTo;
use outlast_vocab::effect::{BatchCall, Command, JournalPosition, Outcome, ToolOutcome};
use outlast_vocab::id::{CallId, SessionId, TurnId, WorkerId};
use outlast_vocab::record::{ClaimRef, EffectAnswered, Fact, NodeRef, Seq};
use outlast_vocab::{Kind, Millis};

/// Everything that a later operation may refer to. Ended things stay known, because references to them are a separate
/// case.
#[derive(Default)]
pub(super) struct KnownIds {
    pub(super) mood: RunProfile,
    pub(super) now: Millis,
    pub(super) workers: Vec<WorkerId>,
    pub(super) sessions: Vec<SessionId>,
    pub(super) turns: Vec<TurnId>,
    pub(super) nodes: Vec<NodeRef>,
    /// Inputs that were queued on arrival.
    pub(super) queued: Vec<(SessionId, TurnId)>,
    pub(super) leases: Vec<Lease>,
    pub(super) lost_leases: Vec<Lease>,
    pub(super) claims: Vec<RequestedCall>,
    pub(super) settled_claims: Vec<RequestedCall>,
    /// Calls whose outcome was unknown at some time.
    pub(super) unknown: Vec<CallId>,
    /// Outputs that a worker collected.
    pub(super) collected_outputs: Vec<(TurnId, OutputPosition)>,
    last: u128,
}

/// A requested call.
#[derive(Clone, Copy)]
pub(super) struct RequestedCall {
    pub(super) session: SessionId,
    pub(super) place: ClaimRef,
    pub(super) call: CallId,
}

impl KnownIds {
    /// The knowledge before the first request.
    pub(super) fn new(mood: RunProfile) -> Self {
        let workers = (1..=3).map(WorkerId::from_u128).collect();
        Self { mood, now: Millis(1_000), workers, last: 1_000, ..Self::default() }
    }

    /// Returns a number that no id has yet.
    pub(super) fn fresh(&mut self) -> u128 {
        self.last += 1;
        self.last
    }

    /// Records the ids in a request, and the store's answer to it.
    pub(super) fn learn(&mut self, ask: &StoreRequest, answer: StoreAnswer) {
        let StoreAnswer {
            result_code: how,
            leases,
            written,
            turn_continues: goes_on,
            collected_outputs: outputs,
            ..
        } = answer;
        self.collected_outputs.extend(outputs);
        if let StoreRequest::Commit(Commit { lease, .. }) | StoreRequest::HandBack(lease, _) = ask
            && ((how == OK && !goes_on) || how == Kind::LeaseLost.code())
        {
            self.lose(|held| held == lease);
        }
        for lease in leases {
            self.lose(|held| held.session == lease.session);
            self.leases.push(lease);
        }
        if how == OK {
            self.learn_names(ask, written.as_ref());
        }
        // Not every record is a message. The store must know which ones are.
        if let Some((session, places)) = written {
            self.nodes.extend(places.into_iter().map(|place| NodeRef { session, seq: place.seq }));
        }
    }

    fn lose(&mut self, is_lost: impl Fn(&Lease) -> bool) {
        self.lost_leases.extend(self.leases.extract_if(.., |lease| is_lost(lease)));
    }

    fn learn_names(&mut self, ask: &StoreRequest, written: Option<&(SessionId, Vec<JournalPosition>)>) {
        match ask {
            StoreRequest::Accept(AcceptRequest { target, turn, .. }) => {
                self.learn_target(target);
                self.turns.push(*turn);
                let began = self.leases.iter().any(|lease| lease.turn == *turn);
                self.queued.extend(written.filter(|_| !began).map(|(session, _)| (*session, *turn)));
            }
            StoreRequest::Open(target, _) => self.learn_target(target),
            StoreRequest::Fork(ForkRequest { to: ForkTo::Session { fresh, .. }, .. }) => {
                self.sessions.push(*fresh);
            }
            StoreRequest::Commit(Commit { lease, facts, .. }) => {
                let places = written.into_iter().flat_map(|(_, places)| places);
                for (fact, place) in facts.iter().zip(places) {
                    self.learn_fact(lease.session, fact, place.seq);
                }
            }
            _ => {}
        }
    }

    fn learn_target(&mut self, target: &SessionTarget) {
        let (SessionTarget::New(id) | SessionTarget::Id(id) | SessionTarget::Key { fresh: id, .. }) = target;
        if !self.sessions.contains(id) {
            self.sessions.push(*id);
        }
    }

    fn learn_fact(&mut self, session: SessionId, fact: &Fact, seq: Seq) {
        match fact {
            Fact::Asked(asked) => {
                let Command::ToolBatch(batch) = &asked.command else { return };
                for (child, call) in (0..).zip(&batch.calls) {
                    if let BatchCall::Run(call) = call {
                        let place = ClaimRef { asked: seq, child };
                        self.claims.push(RequestedCall { session, place, call: call.id });
                    }
                }
            }
            Fact::Answered(EffectAnswered { claim, outcome, .. }) => {
                let this = |known: &mut RequestedCall| known.session == session && known.place == *claim;
                let settled: Vec<RequestedCall> = self.claims.extract_if(.., this).collect();
                if matches!(outcome, Outcome::ToolCall(ToolOutcome::Unknown)) {
                    self.unknown.extend(settled.iter().map(|claim| claim.call));
                }
                self.settled_claims.extend(settled);
            }
            _ => {}
        }
    }
}
