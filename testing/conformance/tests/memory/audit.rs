//! An action and its audit entry are one write: a crash at any point leaves both or neither.
use futures_util::FutureExt;
use outlast_ledger::crashing_store::{CrashPoint, CrashingStore};
use outlast_ledger::memory::MemoryStore;
use outlast_ports::branches::{ForkRequest, MAIN_HEAD};
use outlast_ports::budget::BudgetStore;
use outlast_ports::configs::ConfigStore;
use outlast_ports::inbox::{AcceptRequest, Inbox, SessionTarget};
use outlast_ports::journal::Journal;
use outlast_ports::orgs::{OrgStore, SealedApiKey};
use outlast_ports::queries::Queries;
use outlast_ports::store::Store;
use outlast_ports::turns::{Commit, LeaseRequest, TurnTransition, Turns};
use outlast_views::{AuditRange, ConfigKind, ForkTo, Org};
use outlast_vocab::access::{Access, Principal, Scopes};
use outlast_vocab::budget::{Budget, BudgetAccount};
use outlast_vocab::id::{KeyId, OrgId};
use outlast_vocab::record::{Seq, TurnEnd};
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Hash, Millis, ReplayKey, SessionId, TurnId, WorkerId};
use serde_json::json;
use std::sync::Arc;

const NOW: Millis = Millis(1_000);
const EVERYTHING: AuditRange = AuditRange { after: 0, since: Millis(0), limit: usize::MAX };
const RESTS: SessionId = SessionId::from_u128(1);
const WAITS: SessionId = SessionId::from_u128(2);

/// Returns the answer. The memory store answers at once; a crashed store never does.
fn now<T>(answer: impl Future<Output = Result<T, outlast_vocab::Error>>) -> Option<T> {
    answer.now_or_never().map(|answer| answer.unwrap())
}

/// Creates a session at rest, and a session whose turn waits.
fn furnished() -> MemoryStore {
    let memory = MemoryStore::new();
    for session in [RESTS, WAITS] {
        let lease_request = Some(LeaseRequest { worker: WorkerId::from_u128(1), until: Millis(2_000) });
        let accept = AcceptRequest {
            lease_request,
            queued_most: 9,
            ..AcceptRequest::text(SessionTarget::New(session), turn_of(session), "hi", NOW)
        };
        let lease = now(memory.accept(accept)).unwrap().work.unwrap().lease;
        let wait = Wait { key: ReplayKey::turn(0).event("go"), kind: WaitKind::Event, deadline: None };
        let end = TurnTransition::End(TurnEnd::Answered { text: "bye".to_owned() });
        let then = if session == WAITS { TurnTransition::Park(vec![wait]) } else { end };
        now(memory.commit(Commit::new(lease, NOW, Vec::new(), then))).unwrap();
    }
    now(memory.put_config(ConfigKind::Agent, "judge".to_owned(), json!({}), NOW)).unwrap();
    memory
}

fn turn_of(session: SessionId) -> TurnId {
    TurnId::from_u128(session.to_u128())
}

/// Performs an action on a store. Returns whether the action was acknowledged.
type Act = fn(Arc<dyn Store>) -> bool;

const ACTS: &[(&str, Act)] = &[
    ("turn.cancel", |s| now(s.cancel(turn_of(WAITS), "stop".to_owned(), NOW)).is_some()),
    ("turn.abort", |s| now(s.abort(turn_of(WAITS), "stop".to_owned(), NOW)).is_some()),
    ("wait.resolve", |s| {
        let value = Resolution::Ok(json!(1));
        now(s.resolve(turn_of(WAITS), ReplayKey::turn(0).event("go"), value, NOW)).is_some()
    }),
    ("turn.retry", |s| {
        let value = Resolution::Ok(json!(null));
        now(s.resolve(turn_of(WAITS), ReplayKey::turn(0).stuck(0), value, NOW)).is_some()
    }),
    ("budget.set", |s| {
        let budget = Budget { calls: Some(1), ..Budget::default() };
        now(s.set_budget(BudgetAccount::Session(RESTS), Some(budget), NOW)).is_some()
    }),
    ("config.put", |s| now(s.put_config(ConfigKind::Agent, "clerk".to_owned(), json!({}), NOW)).is_some()),
    ("config.delete", |s| {
        let (kind, name) = (ConfigKind::Agent, "judge".to_owned());
        now(s.delete_config(kind, name, None, NOW)).is_some()
    }),
    ("session.fork", |s| {
        let to = ForkTo::Session { fresh: SessionId::from_u128(3), key: None };
        now(s.fork(ForkRequest { from: RESTS, at: None, to, now: NOW })).is_some()
    }),
    ("session.rewind", |s| now(s.rewind(RESTS, MAIN_HEAD.to_owned(), None, NOW)).is_some()),
    ("session.delete", |s| now(s.delete(RESTS, NOW)).is_some()),
    ("org.create", |s| {
        let org = Org { id: OrgId::from_u128(1), name: "acme".parse().unwrap(), created: NOW };
        now(s.create_org(org)).is_some()
    }),
    ("key.create", |s| {
        let (id, org) = (KeyId::from_u128(1), OrgId::DEFAULT);
        let (by, scopes, seal) = (Principal::program(), Scopes::ALL, Hash::ZERO);
        now(s.create_key(SealedApiKey { id, org, by, scopes, seal, expires: None }, NOW)).is_some()
    }),
];

/// Returns all data that an action may have changed, as text.
fn picture(memory: &MemoryStore) -> String {
    let sessions = now(memory.sessions(None, 9)).unwrap();
    let records: Vec<_> =
        sessions.iter().map(|view| now(memory.records(view.id, Seq(0), 99)).unwrap()).collect();
    let (orgs, keys) = (now(memory.orgs()).unwrap(), now(memory.keys()).unwrap());
    let (budgets, agents) =
        (now(memory.budgets(9)).unwrap(), now(memory.configs(ConfigKind::Agent, 9)).unwrap());
    format!("{sessions:?}\n{records:?}\n{orgs:?}\n{keys:?}\n{budgets:?}\n{agents:?}")
}

fn noted(memory: &MemoryStore) -> Vec<String> {
    let acts = now(memory.audit(EVERYTHING)).unwrap();
    acts.into_iter().map(|row| format!("{} {}", row.by, row.act)).collect()
}

#[test]
fn crash_keeps_action_and_audit_line_atomic() {
    let ann: Principal = "person:ann".parse().unwrap();
    for (name, act) in ACTS {
        for (dies, answered, happens) in [
            (CrashPoint::Never, true, true),
            (CrashPoint::AfterWrite(0), false, true),
            (CrashPoint::Before(0), false, false),
        ] {
            let memory = furnished();
            let (before, mut expected) = (picture(&memory), noted(&memory));
            let crashing_store: Arc<dyn Store> = Arc::new(CrashingStore::new(memory.clone(), dies));
            assert_eq!(
                act(crashing_store.serving(Access::operator().by(ann.clone()))),
                answered,
                "{name} {dies:?}"
            );
            assert_eq!(picture(&memory) != before, happens, "{name} {dies:?}");
            expected.extend(happens.then(|| format!("person:ann {name}")));
            assert_eq!(noted(&memory), expected, "{name} {dies:?}");
        }
    }
}
