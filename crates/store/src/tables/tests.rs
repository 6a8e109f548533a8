//! Tests of the tables themselves: rows that stay, rows that are refused, and query plans.
use super::{
    Tables, approvals, audit, calls, configs, contents, leases, limits, orgs, sessions, sinks, turns,
};
use crate::SqliteStore;
use crate::error::from_sqlite;
use outlast_ledger::rows::{CallWrites, ClaimRow, SessionQueries, SessionWrites, WaitRows};
use outlast_ports::branches::BranchStore;
use outlast_ports::inbox::{AcceptReceipt, AcceptRequest, Inbox, SessionTarget};
use outlast_ports::journal::{FeedCursor, Journal};
use outlast_ports::queries::Queries;
use outlast_ports::turns::{Commit, LeaseRequest, TurnTransition, Turns, ValueWrite};
use outlast_views::SessionState;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::record::{ClaimRef, Seq, TurnAccepted, TurnEnd};
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{CallId, Kind, Millis, ReplayKey, SessionId, TurnId, WorkerId};
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

const NOW: Millis = Millis(1_000);

fn fresh() -> u128 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    u128::from(LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

fn store() -> (TempDir, SqliteStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("outlast.db")).unwrap();
    (folder, store)
}

fn input(text: &str) -> AcceptRequest {
    AcceptRequest {
        accepted: TurnAccepted { key: Some("key".to_owned()), ..TurnAccepted::text(text) },
        lease_request: Some(LeaseRequest { worker: WorkerId::from_u128(1), until: Millis(9_000) }),
        ..AcceptRequest::text(
            SessionTarget::New(SessionId::from_u128(fresh())),
            TurnId::from_u128(fresh()),
            text,
            NOW,
        )
    }
}

async fn ended(store: &SqliteStore, text: &str) -> AcceptReceipt {
    let accepted = store.accept(input(text)).await.unwrap();
    let lease = accepted.work.as_ref().unwrap().lease;
    let then = TurnTransition::End(TurnEnd::Cancelled { reason: "enough".to_owned() });
    store.commit(Commit::new(lease, NOW, vec![], then)).await.unwrap();
    accepted
}

async fn count(store: &SqliteStore, table: &'static str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    store.submit(move |tables| Ok(tables.one(&sql, [], |row| row.get(0))?.unwrap())).await.unwrap()
}

async fn limit_pages(store: &SqliteStore, more: i64) {
    let set = move |tables: &mut Tables<'_>| {
        let conn = tables.conn;
        let pages: i64 = conn.query_one("PRAGMA page_count", [], |row| row.get(0)).map_err(from_sqlite)?;
        conn.pragma_update_and_check(None, "max_page_count", pages + more, |_| Ok(())).map_err(from_sqlite)
    };
    store.submit(set).await.unwrap();
}

#[tokio::test]
async fn full_disk_rejects_whole_writes_until_space_returns() {
    let (_folder, store) = store();
    let first = ended(&store, "hi").await;
    limit_pages(&store, 4).await;
    let mut written = 1;
    let full = loop {
        match store.accept(input(&"long ".repeat(400))).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100, "the limit does not bite");
    };
    assert_eq!(full.kind(), Kind::StoreFull);
    assert_eq!(count(&store, "sessions").await, written);
    assert_eq!(count(&store, "turns").await, written);
    assert_eq!(count(&store, "heads").await, written);
    // Operations that need no space continue to work.
    assert_eq!(store.verify(first.session).await.unwrap(), 3);
    limit_pages(&store, 1_000).await;
    store.accept(input(&"long ".repeat(400))).await.unwrap();
    let sound = store.submit(|tables| {
        Ok(tables.one("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))?.unwrap())
    });
    assert_eq!(sound.await.unwrap(), "ok");
}

#[tokio::test]
async fn a_deleted_session_leaves_no_row() {
    let (_folder, store) = store();
    let remaining = ended(&store, "hi").await;
    let tables = [
        "sessions",
        "turns",
        "records",
        "heads",
        "claims",
        "waits",
        "resolutions",
        "session_values",
        "blobs",
    ];
    let mut before = Vec::new();
    for table in tables {
        before.push(count(&store, table).await);
    }

    let gone = store.accept(input(&"long ".repeat(10_000))).await.unwrap();
    let lease = gone.work.as_ref().unwrap().lease;
    let key = ReplayKey::turn(0).completion();
    let wait = Wait { key: key.clone(), kind: WaitKind::Completion, deadline: None };
    let values = vec![ValueWrite { name: "a".to_owned(), value: Some(1.into()) }];
    let then = TurnTransition::Park(vec![wait]);
    store.commit(Commit { values, ..Commit::new(lease, NOW, vec![], then) }).await.unwrap();
    let call = CallId::from_u128(1);
    store
        .submit(move |tables| {
            let session = tables.sessions(OrgVisibility::Everything, None, 1)?.pop().unwrap();
            let turn = session.active.unwrap();
            let claim = ClaimRef { asked: Seq(1), child: 0 };
            let (session, fence) = (session.no, session.fence);
            tables.put_claim(&ClaimRow { session, claim, turn, call, fence, unknown: true, since: NOW })
        })
        .await
        .unwrap();
    store.resolve(gone.turn, key, Resolution::Timeout, NOW).await.unwrap();
    store
        .submit(|tables| {
            let session = tables.sessions(OrgVisibility::Everything, None, 1)?.pop().unwrap();
            assert_eq!(tables.waits(session.active.unwrap())?.len(), 1);
            tables.delete_session(session.no)
        })
        .await
        .unwrap();

    let mut after = Vec::new();
    for table in tables {
        after.push(count(&store, table).await);
    }
    assert_eq!(after, before);
    assert!(store.session(remaining.session).await.is_ok());
}

#[tokio::test]
async fn blob_is_deleted_with_its_last_reference() {
    let (_folder, store) = store();
    let long = "long ".repeat(10_000);
    let (one, other) = (ended(&store, &long).await, ended(&store, &long).await);
    assert_eq!(count(&store, "blobs").await, 1);
    store.delete(one.session, NOW).await.unwrap();
    assert_eq!(count(&store, "blobs").await, 1);
    assert_eq!(store.verify(other.session).await.unwrap(), 3);
    store.delete(other.session, NOW).await.unwrap();
    assert_eq!(count(&store, "blobs").await, 0);
}

#[tokio::test]
async fn feed_cursor_is_never_reused() {
    let (_folder, store) = store();
    let feed = |after| store.feed(FeedCursor(after), usize::MAX);
    let old = ended(&store, "hi").await;
    let read = feed(0).await.unwrap().last().unwrap().cursor.0;
    store.delete(old.session, NOW).await.unwrap();
    assert_eq!(feed(0).await.unwrap(), []);
    let new = ended(&store, "hi").await;
    let found = feed(read).await.unwrap();
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|record| record.session == new.session));
}

#[tokio::test]
async fn session_queries_use_indexes() {
    let (_folder, store) = store();
    for (sql, expected) in [
        (sessions::SESSIONS_OF, "SEARCH sessions USING INDEX sessions_org (org=? AND no<?)"),
        (sessions::BY_KEY, "SEARCH sessions USING INDEX sessions_key (org=? AND key=?)"),
        (leases::READY, "SEARCH sessions USING INDEX sessions_ready (state=? AND no>?)"),
        (leases::LEASED, "SEARCH sessions USING INDEX sessions_leased (state=? AND no>?)"),
        (leases::HELD, "SEARCH sessions USING INDEX sessions_held (state=? AND no>?)"),
        (leases::SUSPECT_DUE, "SEARCH sessions USING INDEX sessions_wake (wake_at<?)"),
        (leases::TRIALS, "SCAN sessions USING INDEX sessions_trial"),
        (leases::DUE, "SEARCH sessions USING INDEX sessions_wake (wake_at<?)"),
        (turns::LAST_RETRY, "SEARCH turns USING INDEX turns_retry_of (retry_of=?)"),
        (leases::NEXT_WAKE, "SEARCH sessions USING COVERING INDEX sessions_wake (wake_at>?)"),
        (turns::TURNS_AFTER, "SEARCH turns USING INTEGER PRIMARY KEY (rowid>?)"),
        (turns::QUEUED, "SEARCH turns USING INDEX turns_queued (session=?)"),
        (sinks::DELIVERIES_DUE, "SEARCH deliveries USING INDEX deliveries_due (sink=? AND due_at<?)"),
        (sinks::DELIVERIES_TAKEN, "SEARCH deliveries USING INDEX deliveries_taken (sink=?)"),
        (sinks::NEXT_DELIVERY, "SEARCH deliveries USING COVERING INDEX deliveries_due (sink=? AND due_at>?)"),
    ] {
        assert_eq!(plan(&store, sql).await, [expected]);
    }
}

/// Returns SQLite's query plan of a statement, step by step.
async fn plan(store: &SqliteStore, sql: &'static str) -> Vec<String> {
    let explained = store.submit(move |tables| {
        let parameters = (1..=9).rev().find(|no| sql.contains(&format!("?{no}"))).unwrap_or(0);
        let values = rusqlite::params_from_iter([0_i64; 9].iter().take(parameters));
        tables.all(&format!("EXPLAIN QUERY PLAN {sql}"), values, |row| row.get::<_, String>(3))
    });
    explained.await.unwrap()
}

#[tokio::test]
async fn audit_page_reads_only_its_own_lines() {
    let (_folder, store) = store();
    let begins = ["SCALAR SUBQUERY 1", "SEARCH audit USING COVERING INDEX audit_reached (reached>?)"];
    let pages = [
        (audit::AUDIT, "SEARCH audit USING INTEGER PRIMARY KEY (rowid>?)"),
        (audit::AUDIT_OF, "SEARCH audit USING INDEX audit_org (org=? AND no>?)"),
    ];
    for (sql, expected) in pages {
        assert_eq!(plan(&store, sql).await, [expected, begins[0], begins[1]]);
    }
}

#[tokio::test]
async fn list_page_reads_only_its_own_rows() {
    let (_folder, store) = store();
    for (sql, expected) in [
        (calls::UNKNOWN, "SEARCH claims USING INDEX claims_unknown ((since,call)>(?,?))"),
        (calls::UNKNOWN_OF, "SEARCH claims USING INDEX claims_unknown_org (org=? AND (since,call)>(?,?))"),
        (contents::ATTACHMENTS, "SEARCH attachments USING PRIMARY KEY (session=? AND id>?)"),
        (limits::ACCOUNTS, "SEARCH purses USING PRIMARY KEY ((org,name)>(?,?))"),
        (limits::ACCOUNTS_OF, "SEARCH purses USING PRIMARY KEY (org=? AND name>?)"),
        (limits::RATES, "SEARCH rates USING PRIMARY KEY ((org,name)>(?,?))"),
        (limits::RATES_OF, "SEARCH rates USING PRIMARY KEY (org=? AND name>?)"),
        (approvals::GRANTS, "SEARCH grants USING INDEX grants_at (at<?)"),
        (approvals::GRANTS_OF, "SEARCH grants USING INDEX grants_org (org=? AND at<?)"),
        (configs::NEXT_CONFIG, "SEARCH configs USING PRIMARY KEY (org=? AND kind=? AND name>?)"),
        (configs::VERSIONS, "SEARCH configs USING PRIMARY KEY (org=? AND kind=? AND name=? AND version<?)"),
        (sinks::DELIVERIES, "SEARCH deliveries USING PRIMARY KEY (sink=? AND (turn,seq,nth)>(?,?,?))"),
        (orgs::ORGS, "SEARCH orgs USING INDEX orgs_name (name>?)"),
        (orgs::KEYS, "SEARCH api_keys USING PRIMARY KEY (id>?)"),
        (orgs::KEYS_OF, "SEARCH api_keys USING INDEX api_keys_org (org=? AND id>?)"),
    ] {
        // A single step: nothing is sorted, so only the page is read.
        assert_eq!(plan(&store, sql).await, [expected], "{sql}");
    }
}

#[tokio::test]
async fn out_of_range_number_is_reported_as_corrupt() {
    let (_folder, store) = store();
    let session = ended(&store, "hi").await.session;
    store.submit(|tables| tables.run("UPDATE sessions SET state = 9", [])).await.unwrap();
    assert_eq!(store.session(session).await.unwrap_err().kind(), Kind::StoreCorrupt);
}

#[tokio::test]
async fn maximum_timestamp_never_becomes_due() {
    let (_folder, store) = store();
    let lease_request = LeaseRequest { worker: WorkerId::from_u128(1), until: Millis(u64::MAX) };
    let leased =
        store.accept(AcceptRequest { lease_request: Some(lease_request), ..input("hi") }).await.unwrap();
    let parked = store.accept(input("hi")).await.unwrap();
    let lease = parked.work.unwrap().lease;
    let deadline = Some(Millis(u64::MAX));
    let wait = Wait { key: ReplayKey::turn(0).sleep(0), kind: WaitKind::Sleep, deadline };
    let then = TurnTransition::Park(vec![wait.clone()]);
    store.commit(Commit::new(lease, NOW, vec![], then)).await.unwrap();
    let view = store.session(parked.session).await.unwrap();
    assert_eq!((view.state, view.waits, view.wake_at), (SessionState::Parked, vec![wait], None));
    assert_eq!(store.session(leased.session).await.unwrap().state, SessionState::Leased);
    assert!(!store.has_work(WorkerId::from_u128(2), Millis(1 << 60)).await.unwrap());
}
