//! Tests of the store without a writer thread: it writes only when it is told to.
use crate::place::{Place, fresh, opened, sessions};
use outlast_ledger::Backend;
use outlast_ports::BoxFuture;
use outlast_store::{ManualWriter, SimulatedMachine, SqliteOptions, SqliteStore};
use outlast_vocab::{Error, SessionId};
use std::sync::Arc;
use std::task::Poll;

/// Opens a store on the default VFS of the system.
fn open(place: &Place) -> (SqliteStore, ManualWriter) {
    let (disk, path, options) = ("unix".to_owned(), place.path(), SqliteOptions::default());
    SqliteStore::open_simulated(SimulatedMachine { vfs: disk, path, options, is_dead: Arc::new(|_| false) })
        .unwrap()
}

/// Returns a write that was submitted and waits.
async fn asked(store: &SqliteStore) -> BoxFuture<'_, Result<(), Error>> {
    let mut write = store.write(opened(SessionId::from_u128(fresh())));
    std::future::poll_fn(|cx| {
        assert!(write.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    write
}

#[tokio::test]
async fn stepped_writer_commits_only_when_stepped() {
    let place = Place::new();
    let (store, mut writer) = open(&place);
    let waits = asked(&store).await;
    assert_eq!(sessions(&store).await, 0);
    assert!(writer.step());
    waits.await.unwrap();
    assert_eq!(sessions(&store).await, 1);
    assert!(!writer.step(), "nothing waits any more");
}

#[tokio::test]
async fn dropped_writer_keeps_its_commits() {
    let place = Place::new();
    let (store, mut writer) = open(&place);
    for number in 0..3 {
        let waits = asked(&store).await;
        if number < 2 {
            writer.step();
            waits.await.unwrap();
        }
    }
    drop(writer);
    drop(store);
    assert_eq!(sessions(&place.open()).await, 2);
}
