//! Tests of two stores on one file: they see each other's writes, and each detects that the other wrote.
use crate::place::{Place, open_session, sessions};
use outlast_ports::queries::Queries;
use outlast_store::{SqliteOptions, SqliteStore};
use outlast_vocab::Kind;
use rusqlite::Connection;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn two_stores_on_one_file_see_each_other() {
    let place = Place::new();
    let (one, other) = (place.open(), place.open());
    let session = open_session(&one).await;
    assert!(other.session(session).await.is_ok());
    let session = open_session(&other).await;
    assert!(one.session(session).await.is_ok());
    drop(one);
    open_session(&other).await;
    assert_eq!(sessions(&other).await, 3);
    drop(other);
    assert_eq!(sessions(&place.open()).await, 3);
}

#[tokio::test]
async fn concurrent_stores_on_one_file_lose_nothing() {
    let place = Place::new();
    let mut writers = Vec::new();
    for _ in 0..3 {
        let store = Arc::new(place.open());
        for _ in 0..4 {
            let store = Arc::clone(&store);
            writers.push(tokio::spawn(async move {
                for _ in 0..10 {
                    open_session(&store).await;
                }
            }));
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(sessions(&place.open()).await, 120);
}

#[tokio::test]
async fn change_counter_advances_only_on_foreign_writes() {
    let place = Place::new();
    let (one, other) = (place.open(), place.open());
    let before = one.changes().await.unwrap();
    open_session(&one).await;
    sessions(&other).await;
    assert_eq!(one.changes().await.unwrap(), before);
    open_session(&other).await;
    let after = one.changes().await.unwrap();
    assert_ne!(after, before);
    open_session(&one).await;
    assert_eq!(one.changes().await.unwrap(), after);
}

#[tokio::test]
async fn write_blocked_past_busy_timeout_is_refused() {
    let place = Place::new();
    let options = SqliteOptions { busy_timeout: Duration::from_millis(20), ..SqliteOptions::default() };
    let store = SqliteStore::open_with(&place.path(), options).unwrap();
    let other = Connection::open(place.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = outlast_ledger::Backend::write(&store, |_| Ok(())).await.unwrap_err();
    assert_eq!(error.kind(), Kind::StoreBusy);
    other.execute_batch("COMMIT").unwrap();
    open_session(&store).await;
    assert_eq!(sessions(&store).await, 1);
}
