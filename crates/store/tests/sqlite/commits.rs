//! Tests of group commit: units that are ready together share one transaction and its sync, and nothing else.
use crate::place::{NOW, Place, fresh, open_session, opened, sessions};
use outlast_ledger::rows::Rows;
use outlast_ledger::{Backend, rules};
use outlast_ports::inbox::SessionTarget;
use outlast_ports::queries::Queries;
use outlast_store::SqliteStore;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::{Error, Kind, SessionId};
use std::sync::mpsc;
use std::task::Poll;

type Unit = Box<dyn FnOnce(&mut dyn Rows) -> Result<(), Error> + Send>;

/// Returns the commits and units so far.
fn written(store: &SqliteStore) -> (u64, u64) {
    let stats = store.stats();
    (stats.commits, stats.units)
}

/// Blocks the writer, queues these units, unblocks it, and returns the result of each unit.
async fn together(store: &SqliteStore, units: Vec<Unit>) -> Vec<Result<(), Error>> {
    let (go, gate) = mpsc::channel::<()>();
    let (says, begun) = mpsc::channel();
    let mut held = store.write(move |_| {
        says.send(()).expect("the test listens");
        gate.recv().expect("the test lets it go");
        Ok(())
    });
    std::future::poll_fn(|cx| {
        assert!(held.as_mut().poll(cx).is_pending());
        // Units that are queued before the writer has started may share its transaction.
        begun.recv().expect("the writer begins");
        Poll::Ready(())
    })
    .await;
    let mut queued: Vec<_> = units.into_iter().map(|unit| store.write(unit)).collect();
    std::future::poll_fn(|cx| {
        for waiting in &mut queued {
            assert!(waiting.as_mut().poll(cx).is_pending());
        }
        Poll::Ready(())
    })
    .await;
    go.send(()).expect("the writer waits");
    held.await.expect("an empty unit stays");
    let mut got = Vec::new();
    for unit in queued {
        got.push(unit.await);
    }
    got
}

#[tokio::test]
async fn concurrent_writers_share_one_sync() {
    let place = Place::new();
    let store = place.open();
    let units = (0..64).map(|_| Box::new(opened(SessionId::from_u128(fresh()))) as Unit).collect();
    for got in together(&store, units).await {
        got.unwrap();
    }
    // The blocking unit changed nothing, so it cost no sync.
    assert_eq!(written(&store), (1, 65));
    assert_eq!(sessions(&store).await, 64);
}

#[tokio::test]
async fn single_writer_is_durable_at_once() {
    let place = Place::new();
    let store = place.open();
    for _ in 0..3 {
        open_session(&store).await;
    }
    assert_eq!(written(&store), (3, 3));
}

#[tokio::test]
async fn refused_unit_leaves_others_in_batch_intact() {
    let place = Place::new();
    let store = place.open();
    let [first, refused, last] = [(); 3].map(|()| SessionId::from_u128(fresh()));
    let got = together(
        &store,
        vec![
            Box::new(opened(first)),
            Box::new(move |rows| {
                opened(refused)(rows)?;
                Err(Error::new(Kind::LeaseLost, "too late"))
            }),
            Box::new(opened(last)),
        ],
    )
    .await;
    let got: Vec<_> = got.into_iter().map(|got| got.map_err(|error| error.to_string())).collect();
    assert_eq!(got, [Ok(()), Err("lease.lost: too late".to_owned()), Ok(())]);
    assert_eq!(written(&store), (1, 3));
    assert!(store.session(first).await.is_ok());
    assert_eq!(store.session(refused).await.unwrap_err().kind(), Kind::SessionNotFound);
    assert!(store.session(last).await.is_ok());
}

#[tokio::test]
async fn next_unit_sees_no_refused_writes() {
    let place = Place::new();
    let store = place.open();
    let id = SessionId::from_u128(fresh());
    store.write(opened(id)).await.unwrap();
    let stand = move |rows: &mut dyn Rows| Ok(rows.session_by_id(id)?.expect("it was opened"));
    let refused: fn(&mut dyn Rows, SessionId) -> Result<(), Error> = |rows, id| {
        let mut session = rows.session_by_id(id)?.expect("it was opened");
        session.queued += 7;
        rows.put_session(&session)?;
        Err(Error::new(Kind::LeaseLost, "too late"))
    };
    let before = store.write(stand).await.unwrap();
    store.write(move |rows| refused(rows, id)).await.unwrap_err();
    assert_eq!(store.write(stand).await.unwrap(), before);
    let units: Vec<Unit> = vec![
        Box::new(move |rows| refused(rows, id)),
        Box::new(move |rows| {
            (stand(rows)?.queued == 0).then_some(()).ok_or_else(|| Error::new(Kind::Internal, "seen"))
        }),
    ];
    let got = together(&store, units).await;
    assert!(got[0].is_err() && got[1].is_ok(), "{got:?}");
}

#[tokio::test]
async fn panicking_unit_fails_only_its_caller() {
    let place = Place::new();
    let store = place.open();
    let [first, panicked, last] = [(); 3].map(|()| SessionId::from_u128(fresh()));
    let got = together(
        &store,
        vec![
            Box::new(opened(first)),
            Box::new(move |rows| {
                opened(panicked)(rows)?;
                panic!("this unit is broken");
            }),
            Box::new(opened(last)),
        ],
    )
    .await;
    let got: Vec<_> = got.into_iter().map(|got| got.map_err(|error| error.to_string())).collect();
    assert_eq!(
        got,
        [Ok(()), Err("internal: a unit of work panicked: this unit is broken".to_owned()), Ok(())]
    );
    assert_eq!(sessions(&store).await, 2);
    open_session(&store).await;
}

#[tokio::test]
async fn panicking_query_fails_only_its_caller() {
    let place = Place::new();
    let store = place.open();
    for _ in 0..4 {
        let got = store.read(|_| -> Result<(), Error> { panic!("this query is broken") }).await;
        assert_eq!(got.unwrap_err().to_string(), "internal: a unit of work panicked: this query is broken");
    }
    assert_eq!(sessions(&store).await, 0);
}

#[tokio::test]
async fn refused_write_needs_no_sync() {
    let place = Place::new();
    let store = place.open();
    let refused =
        store.write(|_| -> Result<(), Error> { Err(Error::new(Kind::LeaseLost, "too late")) }).await;
    assert_eq!(refused.unwrap_err().kind(), Kind::LeaseLost);
    assert_eq!(written(&store), (0, 0));
}

#[tokio::test]
async fn unit_sees_writes_of_earlier_units() {
    let place = Place::new();
    let store = place.open();
    let key = "the one".to_owned();
    let open = |key: String| -> Unit {
        let target = SessionTarget::Key { key, fresh: SessionId::from_u128(fresh()) };
        Box::new(move |rows| rules::open(rows, target, NOW).map(|_| ()))
    };
    for got in together(&store, vec![open(key.clone()), open(key)]).await {
        got.unwrap();
    }
    assert_eq!(sessions(&store).await, 1);
}

#[tokio::test]
async fn dropped_caller_does_not_undo_its_write() {
    let place = Place::new();
    let store = place.open();
    let id = SessionId::from_u128(fresh());
    let mut left = store.write(opened(id));
    std::future::poll_fn(|cx| {
        let _asked = left.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
    drop(left);
    drop(store);
    assert!(place.open().session(id).await.is_ok());
}

#[tokio::test]
async fn reader_sees_one_snapshot_while_others_write() {
    let place = Place::new();
    let store = place.open();
    open_session(&store).await;
    let (looked, first) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let reading = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let read = store.read(move |rows| {
                let before = rows.sessions(OrgVisibility::Everything, None, usize::MAX)?.len();
                looked.send(()).expect("the test waits");
                gate.recv().expect("the test lets it go");
                Ok((before, rows.sessions(OrgVisibility::Everything, None, usize::MAX)?.len()))
            });
            outlast_conformance::block_on(read)
        });
        first.recv().expect("the reader looks");
        outlast_conformance::block_on(open_session(&store));
        go.send(()).expect("the reader waits");
        reading.join().expect("the reader does not panic")
    });
    assert_eq!(reading.unwrap(), (1, 1));
    assert_eq!(sessions(&store).await, 2);
}
