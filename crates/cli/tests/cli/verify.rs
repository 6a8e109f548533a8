//! Tests of `outlast verify`: damage is detected.
use crate::place::Place;
use expect_test::expect;
use rusqlite::{Connection, params};

fn two_sessions() -> Place {
    let place = Place::with_script("any\nsay Fine.");
    for session in ["ann", "bob"] {
        assert!(
            place.output(&["run", "hi", "--session", session, "--script", "script.txt"]).status.success()
        );
    }
    place
}

#[test]
fn verify_names_the_record_with_a_flipped_byte() {
    let place = two_sessions();
    place.check(
        "verify",
        &expect![[r#"
            $ verify
            ses_1 intact: 5 records
            ses_2 intact: 5 records
            | · 2 sessions, 0 damaged
        "#]],
    );
    let conn = Connection::open(place.data()).unwrap();
    let body = "SELECT body FROM records WHERE session = 1 AND seq = 4";
    let mut body: Vec<u8> = conn.query_one(body, [], |row| row.get(0)).unwrap();
    let at = body.windows(4).position(|word| word == b"Fine").unwrap();
    body[at] ^= 1;
    conn.execute("UPDATE records SET body = ?1 WHERE session = 1 AND seq = 4", params![body]).unwrap();
    drop(conn);
    place.check(
        "verify
         verify ann
         verify bob",
        &expect![[r#"
            $ verify
            ses_1 intact: 5 records
            ses_2 DAMAGED: record 4 breaks the chain: its content does not match its hash
            | · 2 sessions, 1 damaged
            | error[record.corrupt]: record 4 breaks the chain: its content does not match its hash (in ses_2)
            |   read on with: outlast explain record.corrupt
            exit 1
            $ verify ann
            | error[record.corrupt]: record 4 breaks the chain: its content does not match its hash (in ses_2)
            |   read on with: outlast explain record.corrupt
            exit 1
            $ verify bob
            ses_1 intact: 5 records
        "#]],
    );
}

#[test]
fn a_removed_record_is_found() {
    let place = two_sessions();
    let conn = Connection::open(place.data()).unwrap();
    conn.execute("DELETE FROM records WHERE session = 1 AND seq = 3", []).unwrap();
    conn.execute("DELETE FROM records WHERE session = 2 AND seq = 5", []).unwrap();
    drop(conn);
    place.check(
        "verify",
        &expect![[r#"
            $ verify
            ses_1 DAMAGED: record 5 breaks the chain: the session's last record is 5
            ses_2 DAMAGED: record 3 breaks the chain: the next one found is 4
            | · 2 sessions, 2 damaged
            | error[record.corrupt]: record 5 breaks the chain: the session's last record is 5 (in ses_1)
            |   read on with: outlast explain record.corrupt
            exit 1
        "#]],
    );
}
