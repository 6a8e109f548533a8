//! Tests that databases of older schemas open and their open turns can be finished.
use crate::place::Place;
use outlast_ports::content_queries::ContentQueries;
use outlast_ports::inbox::Inbox;
use outlast_ports::journal::Journal;
use outlast_ports::orgs::OrgStore;
use outlast_ports::outbox::{CollectRequest, DeliveryAttempt, FeedStart, SinkOutbox, SinkSubscription};
use outlast_ports::queries::Queries;
use outlast_ports::sink::{OutputEvent, SinkOutput};
use outlast_ports::store::Store;
use outlast_ports::turns::{Commit, LeaseRequest, TurnAfterCommit, TurnTransition, Turns};
use outlast_store::SqliteStore;
use outlast_views::{LastEnd, LastTurn, SessionState, TurnState};
use outlast_vocab::access::Access;
use outlast_vocab::effect::ToolOutcome;
use outlast_vocab::record::{
    CallReclaimed, ClaimRef, EffectAnswered, Fact, Record, Seq, TurnEnd, TurnEndKind,
};
use outlast_vocab::wait::{Resolution, WaitKind};
use outlast_vocab::{Hash, Millis, OrgId, ReplayKey, WorkerId};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const WRITTEN: u64 = 1_700_000_000_000;

/// The first schema that counts the writes of turns.
const COUNTS: u32 = 8;

#[tokio::test]
async fn every_older_schema_opens_and_finishes_its_turns() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut opened = 0;
    for schema in 1.. {
        let fixture = fixtures.join(format!("schema-{schema}.db"));
        if !fixture.exists() {
            break;
        }
        finish(&fixture, schema).await;
        opened += 1;
    }
    let present = Place::new().open().status().await.unwrap().schema;
    assert_eq!(opened, present, "every schema has its fixture");
}

async fn finish(fixture: &Path, schema: u32) {
    let place = Place::new();
    fs::copy(fixture, place.path()).unwrap();
    let store = place.open();

    let ended = store.session_by_key("ended".to_owned()).await.unwrap();
    assert_eq!((ended.state, store.verify(ended.id).await.unwrap()), (SessionState::Idle, 5));
    let turn = store.turns(ended.id, 0, 1).await.unwrap().remove(0);
    assert_eq!(
        (turn.state, turn.end),
        (TurnState::Ended, Some(TurnEnd::Answered { text: "hello".to_owned() }))
    );
    let counts = schema >= COUNTS;
    assert_eq!(turn.writes.map(|writes| writes.commits), counts.then_some(2));
    // The migration fills in how the last turn ended.
    let last = LastTurn { id: turn.id, end: LastEnd::Ended(TurnEndKind::Answered) };
    assert_eq!(ended.last_turn, Some(last), "schema {schema}");
    assert_eq!(store.value(ended.id, "note".to_owned()).await.unwrap(), Some(json!({ "kept": true })));
    let content = b"kept beside the records";
    assert_eq!(store.blob(Hash::of(content)).await.unwrap(), content);

    let parked = store.session_by_key("parked".to_owned()).await.unwrap();
    assert_eq!((parked.state, store.verify(parked.id).await.unwrap()), (SessionState::Parked, 5));
    assert_eq!((parked.wake_at, parked.last_turn), (Some(Millis(WRITTEN + 60_000)), None));
    let key = ReplayKey::turn(0).completion();
    assert_eq!((parked.waits[0].kind, &parked.waits[0].key), (WaitKind::Completion, &key));
    let turn = parked.active.unwrap();
    assert!(store.resolve(turn, key, Resolution::Ok(json!(1)), Millis(WRITTEN + 1)).await.unwrap().is_yours);

    deliver(&store).await;
    let store = Arc::new(store);
    visit(&store).await;

    // The lease of the in-flight turn has expired. Both turns are claimed and ended.
    let lease_request = LeaseRequest { worker: WorkerId::from_u128(2), until: Millis(WRITTEN + 90_000) };
    let now = Millis(WRITTEN + 20_000);
    let works = store.claim(lease_request, now, 10).await.unwrap();
    let mut keys = Vec::new();
    for work in works {
        let session = work.lease.session;
        keys.push(store.session(session).await.unwrap().key.unwrap());
        assert_eq!(work.records[0].seq, Seq(2));
        let then = TurnTransition::End(TurnEnd::Cancelled { reason: "enough".to_owned() });
        let facts = work.records.iter().flat_map(lost).collect();
        let commit = Commit::new(work.lease, now, facts, then);
        let turn = commit.lease.turn;
        assert!(matches!(store.commit(commit).await.unwrap().after, TurnAfterCommit::Ended));
        // A turn that started before writes were counted has no count.
        let writes = store.turn(turn).await.unwrap().writes;
        assert_eq!(writes.map(|writes| writes.commits > 2), counts.then_some(true));
        store.verify(session).await.unwrap();
    }
    keys.sort_unstable();
    assert_eq!(keys, ["in flight", "parked"]);
    let cancelled = (LastEnd::Ended(TurnEndKind::Cancelled), 2);
    assert!(store.load().await.unwrap().last_ends.contains(&cancelled));
    let unknown = store.unknown(10).await.unwrap();
    assert_eq!(unknown.iter().map(|call| call.tool.as_str()).collect::<Vec<_>>(), ["send"]);
}

/// Checks that existing data belongs to the default organisation, and that other organisations see only their
/// own.
async fn visit(store: &Arc<SqliteStore>) {
    for org in store.orgs().await.unwrap() {
        let handle = store.clone().serving(Access::to(org.id));
        let session = handle.session_by_key("ended".to_owned()).await.unwrap();
        assert_eq!((session.org, session.turns), (org.id, u32::from(org.id == OrgId::DEFAULT)));
        assert_eq!(handle.keys().await.unwrap().len(), usize::from(org.id != OrgId::DEFAULT));
    }
    assert_eq!(store.session_by_key("parked".to_owned()).await.unwrap().org, OrgId::DEFAULT);
}

/// Delivers waiting outputs, in databases that have sinks.
async fn deliver(store: &SqliteStore) {
    for sink in store.sinks().await.unwrap() {
        assert_eq!((sink.name.as_str(), sink.due, sink.dead), ("audit", 1, 0));
        let subscription = SinkSubscription::to_ends(&sink.name, FeedStart::Now);
        let (worker, now) = (WorkerId::from_u128(2), Millis(WRITTEN + 5_000));
        let until = Millis(now.0 + 1_000);
        let due = store.collect(CollectRequest { subscription, worker, now, until, limit: 9, attempts: 3 });
        let output = due.await.unwrap().remove(0).output;
        let SinkOutput { turn, position: moment, attempt, event: about, .. } = output;
        assert_eq!((about, attempt), (OutputEvent::Ended(TurnEnd::Answered { text: "hello".to_owned() }), 2));
        store.delivered(DeliveryAttempt { sink: sink.name, turn, position: moment, attempt }).await.unwrap();
        assert_eq!(store.sinks().await.unwrap().remove(0).delivered, 1);
    }
}

/// Takes over a call of a dead worker, and records that its outcome is unknown.
fn lost(record: &Record) -> Vec<Fact> {
    let Fact::Asked(_) = record.fact else { return vec![] };
    let claim = ClaimRef { asked: record.seq, child: 0 };
    let outcome = ToolOutcome::Unknown.into();
    vec![
        Fact::Reclaimed(CallReclaimed { claim, attempt: 2 }),
        Fact::Answered(EffectAnswered { claim, outcome, cost: None }),
    ]
}
