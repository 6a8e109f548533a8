//! The tables, as numbered migrations, and the check that a file belongs to Outlast.
//!
//! `outlast_ledger::rows` has the rows and the traits over them, one file per concern. A unit of work gets `Rows`, and
//! a query gets `QueryRows`; both combine the traits of all concerns. Keys are small integers, because an index over
//! random ids halves the write rate of a journal. The body of a record is a version byte and JSON ([`Fact::encode`]).
//! A new version is added beside the old ones, and fixtures of every version decode forever.
//!
//! | table | one row per |
//! |---|---|
//! | `orgs` | organisation; the default one has id zero |
//! | `sessions` | session: organisation, key, state, fence, worker, lease, wake time, end of the chain, active turn, worker deaths, last imported record |
//! | `turns` | input: idempotency key, fingerprint, head, state, range of its messages, the message it follows, the record that ended it |
//! | `records` | record: `seq` (cursor in the session), `pos` (cursor over all sessions), `node` (part of the transcript), hash, body or blob |
//! | `heads` | head and the message it points to |
//! | `claims` | call without an outcome, or with an unknown one, and the fence under which it may be settled |
//! | `waits`, `resolutions` | wait of a parked turn (key, kind, deadline); first and only resolution of a wait |
//! | `session_values` | named value of a session |
//! | `attachments`, `outside` | attachment of a session; content stored outside the database, with its number of uses (zero: to be deleted) |
//! | `sinks`, `deliveries` | sink with its feed cursor; output not delivered yet (due time, attempts, last failure; no due time: given up) |
//! | `purses`, `holds` | budget account and period (spent, reserved, lost, limits); reservation for one effect |
//! | `owed` | payment outbox: a payment whose end the payment authority has not confirmed |
//! | `rates` | rate limit of an organisation: when the next call fits, end of the queue |
//! | `votes`, `notices`, `grants` | vote on an open approval, one per person; approval with due reminders; approval for the rest of a session |
//! | `api_keys` | API key: organisation, principal, scopes, keyed hash of the secret, expiry, revocation |
//! | `audit` | action of a principal; kept when its session is deleted |
//! | `partials` | piece of an unfinished reply that the model can continue; deleted with the complete reply |
//! | `said`, `heard` | message in the full-text index; newest messages, indexed in the next batch |
//! | `blobs` | content over 16 KiB, attachment, or package with its tool contracts, by hash with its number of uses; packages stay |
//! | `configs` | version of an agent, harness or capability; never changes, and turns use pinned packages instead |
//! | `meta` | the secret that signs completion keys; the number of sweeps |
//!
//! PostgreSQL can use the same tables and columns: `INTEGER` is its `bigint`, `BLOB` its `bytea`, and
//! everything after a closing parenthesis is dropped. Ids are 16 bytes, hashes 32, times milliseconds, flags
//! 0 or 1. A released migration never changes. Add a new one after it, with a fixture of the database before
//! it (`tests/fixtures`).
use crate::error::from_sqlite;
use outlast_vocab::record::{Fact, TurnEndKind};
use outlast_vocab::{Error, Kind, search_terms};
use rusqlite::{Connection, params};
use std::path::Path;

/// Marks the file as ours in its header: `OutL`.
const APPLICATION_ID: i64 = 0x4f75_744c;

/// The migrations, each from the previous version.
const MIGRATIONS: &[&str] =
    &[VERSION_1, VERSION_2, VERSION_3, VERSION_4, VERSION_5, VERSION_6, VERSION_7, VERSION_8, VERSION_9];

/// The schema version that this program writes.
pub(crate) const VERSION: u32 = 9;
const _: () = assert!(MIGRATIONS.len() == VERSION as usize);

// The indexes over the state contain only sessions with something to do, so a hundred thousand idle sessions
// cost nothing. Tables that every turn writes have no index with a random key: ids are UUIDv7 and grow at the
// end, hashes are not indexed.
//
// `AUTOINCREMENT`: readers of the feed use a position as their cursor, so a position must not be reused after
// the newest session was deleted.
const VERSION_1: &str = "
CREATE TABLE meta (
    name TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) STRICT;

CREATE TABLE sessions (
    no INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    key TEXT,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    state INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    worker BLOB,
    lease_until INTEGER NOT NULL,
    wake_at INTEGER,
    last_seq INTEGER NOT NULL,
    last_hash BLOB NOT NULL,
    turns INTEGER NOT NULL,
    active INTEGER,
    queued INTEGER NOT NULL,
    claims INTEGER NOT NULL,
    forked_session INTEGER REFERENCES sessions (no),
    forked_seq INTEGER
) STRICT;
CREATE UNIQUE INDEX sessions_id ON sessions (id);
CREATE UNIQUE INDEX sessions_key ON sessions (key) WHERE key IS NOT NULL;
CREATE INDEX sessions_ready ON sessions (state, no) WHERE state = 1;
CREATE INDEX sessions_leased ON sessions (state, no) WHERE state = 2;
CREATE INDEX sessions_wake ON sessions (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX sessions_forks ON sessions (forked_session) WHERE forked_session IS NOT NULL;

CREATE TABLE turns (
    no INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    session INTEGER NOT NULL REFERENCES sessions (no),
    place INTEGER NOT NULL,
    key TEXT,
    input BLOB NOT NULL,
    delivery INTEGER NOT NULL,
    head TEXT NOT NULL,
    state INTEGER NOT NULL,
    accepted INTEGER NOT NULL,
    last_node INTEGER NOT NULL,
    parent_session INTEGER,
    parent_seq INTEGER,
    ended INTEGER,
    cancelled INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX turns_id ON turns (id);
CREATE UNIQUE INDEX turns_place ON turns (session, place);
CREATE UNIQUE INDEX turns_key ON turns (session, key) WHERE key IS NOT NULL;
CREATE INDEX turns_queued ON turns (session, place) WHERE state = 0;

CREATE TABLE records (
    pos INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL REFERENCES sessions (no),
    seq INTEGER NOT NULL,
    turn INTEGER,
    at INTEGER NOT NULL,
    node INTEGER NOT NULL,
    hash BLOB NOT NULL,
    body BLOB,
    blob BLOB
) STRICT;
CREATE UNIQUE INDEX records_seq ON records (session, seq);

CREATE TABLE heads (
    session INTEGER NOT NULL REFERENCES sessions (no),
    name TEXT NOT NULL,
    node_session INTEGER,
    node_seq INTEGER,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE claims (
    session INTEGER NOT NULL REFERENCES sessions (no),
    asked INTEGER NOT NULL,
    child INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    call BLOB NOT NULL,
    fence INTEGER NOT NULL,
    unknown INTEGER NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (session, asked, child)
) STRICT, WITHOUT ROWID;
CREATE INDEX claims_unknown ON claims (since) WHERE unknown = 1;

CREATE TABLE waits (
    no INTEGER PRIMARY KEY,
    turn INTEGER NOT NULL REFERENCES turns (no),
    key TEXT NOT NULL,
    wait TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX waits_key ON waits (turn, key);

CREATE TABLE resolutions (
    turn INTEGER NOT NULL REFERENCES turns (no),
    key TEXT NOT NULL,
    resolution TEXT NOT NULL,
    PRIMARY KEY (turn, key)
) STRICT;

CREATE TABLE session_values (
    session INTEGER NOT NULL REFERENCES sessions (no),
    name TEXT NOT NULL,
    json TEXT NOT NULL,
    PRIMARY KEY (session, name)
) STRICT;

CREATE TABLE blobs (
    hash BLOB NOT NULL PRIMARY KEY,
    bytes BLOB NOT NULL,
    uses INTEGER NOT NULL
) STRICT;
";

// Packages used to have a single use that was never released. Now they are marked as permanent
// (`PINNED_USES` of `outlast-ledger`).
const VERSION_2: &str = "
CREATE TABLE attachments (
    session INTEGER NOT NULL REFERENCES sessions (no),
    id BLOB NOT NULL,
    content BLOB NOT NULL,
    media_type TEXT NOT NULL,
    name TEXT,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE partials (
    turn INTEGER NOT NULL REFERENCES turns (no),
    start INTEGER NOT NULL,
    key TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (turn, start)
) STRICT;

UPDATE blobs SET uses = uses + 1099511627776
WHERE hash NOT IN (SELECT blob FROM records WHERE blob IS NOT NULL);
";

// The content of an attachment is in `blobs` or, since this version, outside the database under its hash.
// `outside` counts its uses and names the worker that deletes it. The number of sweeps in `meta` has 8 bytes,
// big endian.
const VERSION_3: &str = "
ALTER TABLE attachments ADD COLUMN outside INTEGER NOT NULL DEFAULT 0;

CREATE TABLE outside (
    content BLOB NOT NULL PRIMARY KEY,
    uses INTEGER NOT NULL,
    worker BLOB,
    since INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX outside_left ON outside (content) WHERE uses = 0;

INSERT INTO meta (name, value) VALUES ('sweeps', x'0000000000000000');
";

// `cursor` is a position in the feed. A delivery without `due_at` was given up; one with a worker is in
// progress until it is due. A completed delivery has no row.
const VERSION_4: &str = "
CREATE TABLE sinks (
    name TEXT NOT NULL PRIMARY KEY,
    since INTEGER NOT NULL,
    cursor INTEGER NOT NULL,
    delivered INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE deliveries (
    sink TEXT NOT NULL REFERENCES sinks (name),
    turn INTEGER NOT NULL REFERENCES turns (no),
    attempts INTEGER NOT NULL,
    forgiven INTEGER NOT NULL,
    due_at INTEGER,
    worker BLOB,
    failure TEXT,
    PRIMARY KEY (sink, turn)
) STRICT, WITHOUT ROWID;
CREATE INDEX deliveries_turn ON deliveries (turn);
CREATE INDEX deliveries_due ON deliveries (sink, due_at, turn) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_taken ON deliveries (sink, turn) WHERE worker IS NOT NULL;
";

// Organisations. Existing rows belong to the default organisation, whose id is zero. `seal` is the stored
// hash of an API key. The audit uses `AUTOINCREMENT`, because its readers use the numbers as cursors.
//
// Budgets: usage and reservations by owner; `budget` is what an operator set. Amounts are JSON, because the
// ledger adds them up for every database, and no database does in SQL. Waits are found by their kind.
//
// Votes on open questions, one per person. Notices of open questions, which are due only while the turn
// waits. Grants for the rest of a session.
const VERSION_5: &str = "
CREATE TABLE orgs (
    id BLOB NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    created INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX orgs_name ON orgs (name);
INSERT INTO orgs (id, name, created) VALUES (x'00000000000000000000000000000000', 'default', 0);

ALTER TABLE sessions ADD COLUMN org BLOB NOT NULL DEFAULT x'00000000000000000000000000000000';
DROP INDEX sessions_key;
CREATE UNIQUE INDEX sessions_key ON sessions (org, key) WHERE key IS NOT NULL;
CREATE INDEX sessions_org ON sessions (org, no);
ALTER TABLE sessions ADD COLUMN imported INTEGER NOT NULL DEFAULT 0;

CREATE TABLE api_keys (
    id BLOB NOT NULL PRIMARY KEY,
    org BLOB NOT NULL REFERENCES orgs (id),
    principal TEXT NOT NULL,
    scopes TEXT NOT NULL,
    seal BLOB NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER,
    revoked INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    org BLOB NOT NULL,
    principal TEXT NOT NULL,
    act TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;

CREATE TABLE purses (
    org BLOB NOT NULL,
    name TEXT NOT NULL,
    budget TEXT,
    spent TEXT NOT NULL,
    held TEXT NOT NULL,
    lost TEXT NOT NULL,
    standing TEXT NOT NULL,
    PRIMARY KEY (org, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX purses_set ON purses (org, name) WHERE budget IS NOT NULL;

CREATE TABLE rates (
    org BLOB NOT NULL,
    name TEXT NOT NULL,
    every_us INTEGER NOT NULL,
    burst INTEGER NOT NULL,
    next_us INTEGER NOT NULL,
    line_us INTEGER NOT NULL,
    taken INTEGER NOT NULL,
    refused INTEGER NOT NULL,
    asked INTEGER NOT NULL,
    PRIMARY KEY (org, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE holds (
    turn INTEGER NOT NULL REFERENCES turns (no),
    key TEXT NOT NULL,
    most TEXT NOT NULL,
    purses TEXT NOT NULL,
    PRIMARY KEY (turn, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE votes (
    turn INTEGER NOT NULL REFERENCES turns (no),
    key TEXT NOT NULL,
    voter TEXT NOT NULL,
    at INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    PRIMARY KEY (turn, key, voter)
) STRICT, WITHOUT ROWID;

CREATE TABLE notices (
    turn INTEGER NOT NULL REFERENCES turns (no),
    key TEXT NOT NULL,
    since INTEGER NOT NULL,
    ask TEXT NOT NULL,
    reminded INTEGER NOT NULL,
    escalated INTEGER NOT NULL,
    due_at INTEGER,
    PRIMARY KEY (turn, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX notices_due ON notices (due_at, turn, key) WHERE due_at IS NOT NULL;

CREATE TABLE grants (
    id BLOB NOT NULL PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (no),
    form BLOB NOT NULL,
    tool TEXT NOT NULL,
    rule TEXT NOT NULL,
    labels TEXT NOT NULL,
    granters TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX grants_session ON grants (session, id);

ALTER TABLE waits ADD COLUMN kind TEXT NOT NULL DEFAULT '';
UPDATE waits SET kind = json_extract(wait, '$.kind');
CREATE INDEX waits_kind ON waits (kind, turn);

CREATE TABLE configs (
    org BLOB NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    fingerprint BLOB NOT NULL,
    body TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (org, kind, name, version)
) STRICT, WITHOUT ROWID;
";

// `cost` is the cost of models in a session, in picodollars. Unknown for sessions of older versions.
//
// `said` is the full-text index of messages: the row of the record, its owner (`place`) and its words as the
// ledger splits them. It stores neither text nor order, and splits words only at spaces, because only the
// ledger splits text. In PostgreSQL, it is a table with a `tsvector`. Indexing many messages at once is ten
// times as fast, so `heard` holds the words of the newest messages until there are enough.
//
// A turn can have several outputs: a delivery names its record, and the index of the output within that
// record.
const VERSION_6: &str = "
ALTER TABLE sessions ADD COLUMN cost INTEGER;

CREATE TABLE outputs (
    sink TEXT NOT NULL REFERENCES sinks (name),
    turn INTEGER NOT NULL REFERENCES turns (no),
    seq INTEGER NOT NULL,
    nth INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    forgiven INTEGER NOT NULL,
    due_at INTEGER,
    worker BLOB,
    failure TEXT,
    PRIMARY KEY (sink, turn, seq, nth)
) STRICT, WITHOUT ROWID;
INSERT INTO outputs (sink, turn, seq, nth, attempts, forgiven, due_at, worker, failure)
SELECT d.sink, d.turn, t.ended, 0, d.attempts, d.forgiven, d.due_at, d.worker, d.failure
FROM deliveries AS d JOIN turns AS t ON t.no = d.turn;
DROP TABLE deliveries;
ALTER TABLE outputs RENAME TO deliveries;
CREATE INDEX deliveries_turn ON deliveries (turn);
CREATE INDEX deliveries_due ON deliveries (sink, due_at, turn, seq, nth) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_taken ON deliveries (sink, turn, seq, nth) WHERE worker IS NOT NULL;

CREATE VIRTUAL TABLE said USING fts5 (
    place,
    words,
    content = '',
    columnsize = 0,
    detail = column,
    tokenize = \"unicode61 remove_diacritics 0 categories 'L* M* N* P* S* C*'\"
);
INSERT INTO said (said, rank) VALUES ('secure-delete', 1);
CREATE TABLE heard (
    pos INTEGER NOT NULL PRIMARY KEY,
    place TEXT NOT NULL,
    words TEXT NOT NULL
) STRICT;
";

// Payments that are decided and not yet accepted by their authority. `brought` is the agent's default budget
// when usage was last counted.
//
// Lists are read page by page. So each list has an index in its own order, both over all organisations and
// within one. A claim stores its organisation once its outcome is unknown; it is not listed before.
//
// `reached` is the latest time in the audit up to a row. Clocks can go back, but row numbers cannot, so
// `reached` rises with them. It finds the first row that can have a given time or a later one.
const VERSION_7: &str = "
ALTER TABLE purses ADD COLUMN brought TEXT;

CREATE TABLE owed (
    turn INTEGER NOT NULL REFERENCES turns (no),
    key TEXT NOT NULL,
    payment TEXT NOT NULL,
    since INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    failure TEXT NOT NULL,
    PRIMARY KEY (turn, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX owed_due ON owed (due_at, turn, key);

ALTER TABLE audit ADD COLUMN reached INTEGER NOT NULL DEFAULT 0;
UPDATE audit SET reached = w.reached
FROM (SELECT no, max(at) OVER (ORDER BY no) AS reached FROM audit) AS w WHERE w.no = audit.no;
CREATE INDEX audit_reached ON audit (reached, no);
CREATE INDEX audit_org ON audit (org, no);

ALTER TABLE claims ADD COLUMN org BLOB;
UPDATE claims SET org = (SELECT org FROM sessions WHERE sessions.no = claims.session) WHERE unknown = 1;
DROP INDEX claims_unknown;
CREATE INDEX claims_unknown ON claims (since, call) WHERE unknown = 1;
CREATE INDEX claims_unknown_org ON claims (org, since, call) WHERE unknown = 1;

ALTER TABLE grants ADD COLUMN org BLOB NOT NULL DEFAULT x'00000000000000000000000000000000';
UPDATE grants SET org = (SELECT org FROM sessions WHERE sessions.no = grants.session);
CREATE INDEX grants_at ON grants (at DESC, id);
CREATE INDEX grants_org ON grants (org, at DESC, id);

CREATE INDEX api_keys_org ON api_keys (org, id);
";

// The number of writes of a turn, and the time it waited for them. Unknown for turns of older versions.
const VERSION_8: &str = "
ALTER TABLE turns ADD COLUMN commits INTEGER;
ALTER TABLE turns ADD COLUMN waited_us INTEGER;
";

// The crash guard counts deaths of workers instead of claims: `deaths` since the turn's last progress, and
// `deaths_alone` in a row while it was the only turn of its worker. `trial` says whether it must run alone
// now. The earlier counts of claims say nothing about deaths, so every turn starts at zero.
//
// `last_turn` and `last_end` say which turn of a session ended last, and how. Sessions whose last turn was
// answered are not indexed: they are the most frequent, and no query counts them. `retry_of` is the turn that
// a turn retries.
//
// `foreign_seq` says which records of a session were imported without a signature of this database. The
// origin of older imports is unproven.
const VERSION_9: &str = "
ALTER TABLE sessions DROP COLUMN claims;
ALTER TABLE sessions ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN deaths_alone INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN trial INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_held ON sessions (state, no) WHERE state = 4;
CREATE INDEX sessions_trial ON sessions (no) WHERE trial > 0;

ALTER TABLE sessions ADD COLUMN last_turn INTEGER;
ALTER TABLE sessions ADD COLUMN last_end TEXT;
CREATE INDEX sessions_last_end ON sessions (last_end) WHERE last_end <> 'answered';

ALTER TABLE turns ADD COLUMN retry_of INTEGER;
CREATE INDEX turns_retry_of ON turns (retry_of) WHERE retry_of IS NOT NULL;

ALTER TABLE sessions ADD COLUMN foreign_seq INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET foreign_seq = imported;
";

/// Checks that the file may be used: it is empty, or ours and not newer than this program. Only reads.
pub(crate) fn check(conn: &Connection, path: &Path) -> Result<(), Error> {
    // A single statement sees a consistent state, even if another process creates the tables right now.
    let whose = "SELECT application_id, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id";
    let (application, objects): (i64, i64) =
        conn.query_one(whose, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(from_sqlite)?;
    if application != APPLICATION_ID && (application, objects) != (0, 0) {
        let detail = format!(
            "{} is an SQLite database, but not of Outlast (its application id is {application}, not {APPLICATION_ID}); \
             nothing was written",
            path.display()
        );
        return Err(Error::new(Kind::StoreCorrupt, detail));
    }
    let found = version(conn)?;
    if found > VERSION {
        let detail = format!(
            "{} has schema {found}, but this program knows up to {VERSION}; nothing was written",
            path.display()
        );
        return Err(Error::new(Kind::StoreTooNew, detail));
    }
    Ok(())
}

/// Migrates the schema, with one transaction per version. A killed process leaves either the old or the new
/// version.
pub(crate) fn migrate(conn: &mut Connection, path: &Path) -> Result<(), Error> {
    while version(conn)? < VERSION {
        let next =
            conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(from_sqlite)?;
        // Another process may have migrated the file first, and may be newer.
        check(&next, path)?;
        let from = version(&next)?;
        if let Some(migration) = MIGRATIONS.get(from as usize) {
            next.execute_batch(migration).map_err(from_sqlite)?;
            if from == 0 {
                begin(&next)?;
            }
            if from + 1 == INDEXED {
                index(&next)?;
            }
            if from + 1 == LAST_ENDS {
                fill_last_ends(&next)?;
            }
            next.pragma_update(None, "user_version", from + 1).map_err(from_sqlite)?;
        }
        next.commit().map_err(from_sqlite)?;
    }
    Ok(())
}

/// The version that added full-text search.
const INDEXED: u32 = 6;

/// Indexes the words of existing messages.
fn index(conn: &Connection) -> Result<(), Error> {
    let sql = "SELECT r.pos, coalesce(r.body, b.bytes), s.no, s.org FROM records AS r
               JOIN sessions AS s ON s.no = r.session LEFT JOIN blobs AS b ON b.hash = r.blob WHERE r.node = 1";
    let mut messages = conn.prepare(sql).map_err(from_sqlite)?;
    let mut rows = messages.query([]).map_err(from_sqlite)?;
    let mut insert =
        conn.prepare("INSERT INTO said (rowid, place, words) VALUES (?1, ?2, ?3)").map_err(from_sqlite)?;
    while let Some(row) = rows.next().map_err(from_sqlite)? {
        let body: Option<Vec<u8>> = row.get(1).map_err(from_sqlite)?;
        let fact = Fact::decode(&body.unwrap_or_default())?;
        if let Some(words) = search_terms::of_fact(&fact) {
            let (pos, session): (i64, i64) =
                (row.get(0).map_err(from_sqlite)?, row.get(2).map_err(from_sqlite)?);
            let org: [u8; 16] = row.get(3).map_err(from_sqlite)?;
            insert
                .execute(params![pos, place(u128::from_be_bytes(org), session), words])
                .map_err(from_sqlite)?;
        }
    }
    Ok(())
}

/// The version that stores how the last turn of a session ended.
const LAST_ENDS: u32 = 9;

/// Fills in how the last turns of existing sessions ended. Inputs that joined another turn are skipped.
fn fill_last_ends(conn: &Connection) -> Result<(), Error> {
    let sql = "SELECT t.session, t.no, coalesce(r.body, b.bytes) FROM turns AS t
               JOIN records AS r ON r.session = t.session AND r.seq = t.ended
               LEFT JOIN blobs AS b ON b.hash = r.blob
               WHERE t.ended IS NOT NULL ORDER BY t.session, t.ended DESC";
    let mut ends = conn.prepare(sql).map_err(from_sqlite)?;
    let mut rows = ends.query([]).map_err(from_sqlite)?;
    let mut update = conn
        .prepare("UPDATE sessions SET last_turn = ?2, last_end = ?3 WHERE no = ?1")
        .map_err(from_sqlite)?;
    let mut done = None;
    while let Some(row) = rows.next().map_err(from_sqlite)? {
        let (session, turn): (i64, i64) =
            (row.get(0).map_err(from_sqlite)?, row.get(1).map_err(from_sqlite)?);
        if done == Some(session) {
            continue;
        }
        let body: Option<Vec<u8>> = row.get(2).map_err(from_sqlite)?;
        let Fact::Ended { end } = Fact::decode(&body.unwrap_or_default())? else { continue };
        if end.kind() != TurnEndKind::Joined {
            update.execute(params![session, turn, end.name()]).map_err(from_sqlite)?;
            done = Some(session);
        }
    }
    Ok(())
}

/// Returns the owner of a message, as terms that only the index uses: its organisation and its session.
pub(crate) fn place(org: u128, session: i64) -> String {
    format!("o{org:032x} s{session}")
}

/// Initialises a new database: sets the application id, and creates the secret that signs completion keys.
fn begin(conn: &Connection) -> Result<(), Error> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|cause| {
        Error::new(
            Kind::IoFailed,
            format!("the operating system returned no random bytes for a new database: {cause}"),
        )
    })?;
    conn.execute("INSERT INTO meta (name, value) VALUES ('secret', ?1)", params![secret])
        .map_err(from_sqlite)?;
    conn.pragma_update(None, "application_id", APPLICATION_ID).map_err(from_sqlite)
}

fn version(conn: &Connection) -> Result<u32, Error> {
    conn.query_one("PRAGMA user_version", [], |row| row.get(0)).map_err(from_sqlite)
}

/// Returns the secret of the database.
pub(crate) fn secret(conn: &Connection) -> Result<[u8; 32], Error> {
    conn.query_one("SELECT value FROM meta WHERE name = 'secret'", [], |row| row.get(0)).map_err(from_sqlite)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqliteStore;
    use outlast_ports::content_queries::ContentQueries;
    use outlast_ports::queries::Queries;
    use std::fs;

    /// Copies the files of a database as they are on disk right now, which is what a kill leaves.
    fn killed(folder: &Path) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        for file in fs::read_dir(folder).unwrap().flatten() {
            fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        copy
    }

    #[tokio::test]
    async fn killed_migration_leaves_old_or_new_schema() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outlast.db");
        let conn = Connection::open(&path).unwrap();
        conn.pragma_update(None, "journal_mode", "WAL").unwrap();
        conn.pragma_update(None, "cache_spill", 1).unwrap();
        let mut killed_at = vec![killed(folder.path())];
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        for statement in MIGRATIONS.iter().flat_map(|migration| migration.split_inclusive(';')) {
            conn.execute_batch(statement).unwrap();
            conn.cache_flush().unwrap();
            killed_at.push(killed(folder.path()));
        }
        assert!(killed_at.len() > 20);
        for copy in killed_at {
            let store = SqliteStore::open(&copy.path().join("outlast.db")).unwrap();
            assert_eq!(store.sessions(None, 1).await.unwrap().len(), 0);
            assert_ne!(store.secret().await.unwrap(), [0; 32]);
        }
    }
}
