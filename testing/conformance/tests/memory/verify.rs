//! `verify` finds every record that was changed, removed, added or reordered.
//!
//! The tests copy the rows of a healthy session to another session, with one change.
use outlast_conformance::block_on;
use outlast_ledger::Backend;
use outlast_ledger::memory::MemoryStore;
use outlast_ledger::rows::{RecordBody, RecordRange, RecordRow, SessionRow};
use outlast_ports::content_queries::ContentQueries;
use outlast_ports::inbox::{AcceptRequest, Inbox, SessionTarget};
use outlast_ports::journal::Journal;
use outlast_vocab::record::{Fact, Seq};
use outlast_vocab::{Error, Hash, Kind, Millis, SessionId, TurnId};

const COPY: SessionId = SessionId::from_u128(2);

/// Creates a session of five records, the last of them large, and a changed copy. Returns the result of `verify` on the
/// copy.
fn verify(change: impl FnOnce(&mut SessionRow, &mut Vec<RecordRow>) + Send + 'static) -> Result<u64, Error> {
    block_on(async {
        let memory = MemoryStore::new();
        let session = memory.open(SessionTarget::New(SessionId::from_u128(1)), Millis(1)).await?;
        for (turn, text) in (1..).zip(["one", "two", "three", &"four".repeat(10_000)]) {
            memory
                .accept(AcceptRequest {
                    queued_most: 4,
                    ..AcceptRequest::text(
                        SessionTarget::Id(session),
                        TurnId::from_u128(turn),
                        text,
                        Millis(1),
                    )
                })
                .await?;
        }
        memory
            .write(move |rows| {
                let mut row = rows.session_by_id(session)?.expect("it was opened");
                let (from, to, turn) = (Seq(1), Seq(u64::MAX), None);
                let range =
                    RecordRange { session: row.no, turn, nodes_only: false, from, to, limit: usize::MAX };
                let mut records = rows.records(range)?;
                row.id = COPY;
                change(&mut row, &mut records);
                let session = rows.insert_session(&row)?;
                records.into_iter().try_for_each(|record| rows.append(&RecordRow { session, ..record }))
            })
            .await?;
        memory.verify(COPY).await
    })
}

#[track_caller]
fn broken(expected: &str, change: impl FnOnce(&mut SessionRow, &mut Vec<RecordRow>) + Send + 'static) {
    let error = verify(change).expect_err("it was changed");
    assert_eq!((error.kind(), error.detail()), (Kind::RecordCorrupt, expected));
}

#[test]
fn unchanged_copy_verifies() {
    assert_eq!(verify(|_, _| ()).expect("nothing was changed"), 5);
}

#[test]
fn a_changed_body_is_found() {
    for (n, place) in [(0, 1), (2, 3)] {
        let expected = format!("record {place} breaks the chain: its content does not match its hash");
        broken(&expected, move |_, records| {
            records[n].body = RecordBody::Inline(
                Fact::CancelRequested { reason: "forged".to_owned(), undo: false, abandon: false }.encode(),
            );
        });
    }
}

#[test]
fn a_changed_time_or_turn_is_found() {
    let expected = "record 3 breaks the chain: its content does not match its hash";
    broken(expected, |_, records| records[2].at = Millis(2));
    broken(expected, |_, records| records[2].turn = records[1].turn);
    broken(expected, |_, records| records[2].turn = None);
}

#[test]
fn a_changed_hash_is_found() {
    broken("record 3 breaks the chain: its content does not match its hash", |_, records| {
        records[2].hash = Hash::of(b"forged");
    });
}

#[test]
fn changed_message_marker_is_found() {
    broken("record 3 breaks the chain: its kind does not match its content", |_, records| {
        records[2].node = false;
    });
    broken("record 1 breaks the chain: its kind does not match its content", |_, records| {
        records[0].node = true;
    });
}

#[test]
fn a_removed_record_is_found() {
    broken("record 3 breaks the chain: the next one found is 4", |_, records| drop(records.remove(2)));
    broken("record 5 breaks the chain: the session's last record is 5", |_, records| drop(records.pop()));
}

#[test]
fn removed_record_is_found_after_renumbering() {
    broken("record 3 breaks the chain: its content does not match its hash", |session, records| {
        records.remove(2);
        records[2].seq = Seq(3);
        records[3].seq = Seq(4);
        session.last_seq = Seq(4);
    });
}

#[test]
fn reordered_records_are_found() {
    broken("record 3 breaks the chain: its content does not match its hash", |_, records| {
        records.swap(2, 3);
        (records[2].seq, records[3].seq) = (Seq(3), Seq(4));
    });
}

#[test]
fn wrong_last_record_of_session_is_found() {
    broken("record 5 breaks the chain: the session's last record is 4", |session, records| {
        records.pop();
        session.last_seq = Seq(4);
    });
    broken("record 6 breaks the chain: the session's last record is 5", |session, _| {
        session.last_hash = Hash::ZERO;
    });
}

#[test]
fn content_with_wrong_hash_is_found() {
    let memory = MemoryStore::new();
    let hash = Hash::of(b"what was stored");
    block_on(memory.write(move |rows| rows.put_blob(hash, b"what is there now"))).expect("it is written");
    let error = block_on(memory.blob(hash)).expect_err("it was changed");
    assert_eq!(error.kind(), Kind::RecordCorrupt);
}

#[test]
fn content_that_is_missing_is_found() {
    let error = verify(|_, records| records[4].body = RecordBody::Blob(Hash::of(b"nowhere")));
    assert_eq!(error.expect_err("it is missing").kind(), Kind::BlobNotFound);
}
