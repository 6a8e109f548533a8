//! Measures the two limits: the sync rate of the disk, and the rate of a bare writer to the same tables.
use crate::bench_rig::{self, BenchToolSet, TOOL_SCRIPT};
use crate::report::BenchReport;
use outlast::sqlite::{SqliteOptions, SqliteStore};
use rusqlite::{Connection, params};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of sessions whose writes share a commit, as in the measurement with 64 concurrent sessions.
const AT_ONCE: i64 = 64;

/// The number of journal rows that wait for the full-text index, as in the store.
const INDEX_BATCH_ROWS: i64 = 512;

pub(crate) fn measure(
    report: &mut BenchReport,
    dir: &Path,
    quick: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let time = Duration::from_secs(if quick { 1 } else { 3 });
    let fsync = syncs_per_second(dir, time)?;
    report.put("fsync_per_s", fsync);
    report.add_plain_row("disk: fdatasync of 1 KiB appends, one thread", format!("{fsync:.0}/s"));
    let floor = bare_writer_rate(dir, time)?;
    report.put("floor_turns_per_s", floor);
    report.add_plain_row(
        "floor: bare writer of the same rows, 64 per commit",
        format!("{floor:.0} tool turns/s"),
    );
    Ok(())
}

fn syncs_per_second(dir: &Path, time: Duration) -> std::io::Result<f64> {
    let mut file = OpenOptions::new().create(true).append(true).open(dir.join("fsync"))?;
    let (block, begun, mut syncs) = ([7; 1024], Instant::now(), 0.0);
    while begun.elapsed() < time {
        file.write_all(&block)?;
        file.sync_data()?;
        syncs += 1.0;
    }
    Ok(syncs / begun.elapsed().as_secs_f64())
}

/// Returns the tool turns per second of a writer that only inserts rows copied from real turns, in batches.
fn bare_writer_rate(dir: &Path, time: Duration) -> Result<f64, Box<dyn std::error::Error>> {
    let path = dir.join("floor.db");
    let records = real_turn(&path)?;
    let mut conn = Connection::open(&path)?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "wal_autocheckpoint", 4_000)?;
    conn.set_prepared_statement_cache_capacity(64);
    let mut sessions: Vec<BareSession> = Vec::new();
    for _ in 0..AT_ONCE {
        sessions.push(BareSession::open(&conn)?);
    }
    let (begun, mut turns) = (Instant::now(), 0.0);
    while begun.elapsed() < time {
        for part in 0..4 {
            let unit = conn.transaction()?;
            for session in &mut sessions {
                session.write(&unit, part, &records)?;
            }
            index(&unit)?;
            unit.commit()?;
        }
        turns += f64::from(i32::try_from(AT_ONCE).unwrap_or(i32::MAX));
    }
    Ok(turns / begun.elapsed().as_secs_f64())
}

/// A record of a real turn with its words for the full-text index.
struct CopiedRecord {
    body: Vec<u8>,
    words: Option<(String, String)>,
}

/// Returns the records of a real tool turn, by write: accepted; reply and claims; answer; reply and end.
fn real_turn(path: &Path) -> Result<[Vec<CopiedRecord>; 4], Box<dyn std::error::Error>> {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    tokio.block_on(async {
        let worker = bench_rig::worker();
        let store = Arc::new(SqliteStore::open_with(
            path,
            SqliteOptions { worker: Some(worker), ..SqliteOptions::default() },
        )?);
        let runtime = bench_rig::runtime(store, worker, TOOL_SCRIPT, BenchToolSet::Echo).await?;
        let session = bench_rig::session(&runtime).await?;
        bench_rig::turn(&runtime, session, "go").await?;
        runtime.shut_down(Duration::from_secs(1)).await;
        Ok::<_, outlast::Error>(())
    })?;
    drop(tokio);
    let conn = Connection::open(path)?;
    let mut query = conn.prepare(
        "SELECT body, place, words FROM records LEFT JOIN heard USING (pos) WHERE turn IS NOT NULL ORDER BY pos",
    )?;
    let copied = |row: &rusqlite::Row<'_>| {
        let (place, words): (Option<String>, Option<String>) = (row.get(1)?, row.get(2)?);
        Ok(CopiedRecord { body: row.get(0)?, words: place.zip(words) })
    };
    let mut records = query.query_map([], copied)?.collect::<Result<Vec<_>, _>>()?.into_iter();
    let mut take = |count: usize| records.by_ref().take(count).collect::<Vec<_>>();
    Ok([take(1), take(3), take(1), take(2)])
}

/// Adds the words of many messages to the index at once.
fn index(conn: &Connection) -> rusqlite::Result<()> {
    let span = "SELECT coalesce(max(pos) - (SELECT min(pos) FROM heard), 0) FROM heard";
    let waiting: i64 = conn.prepare_cached(span)?.query_one([], |row| row.get(0))?;
    if waiting >= INDEX_BATCH_ROWS {
        conn.prepare_cached("INSERT INTO said (rowid, place, words) SELECT pos, place, words FROM heard")?
            .execute([])?;
        conn.prepare_cached("DELETE FROM heard")?.execute([])?;
    }
    Ok(())
}

/// A session of the bare writer.
struct BareSession {
    no: i64,
    seq: i64,
    turns: i64,
    turn: i64,
}

impl BareSession {
    fn open(conn: &Connection) -> rusqlite::Result<Self> {
        let id: [u8; 16] = bench_rig::worker().to_u128().to_be_bytes();
        conn.execute(
            "INSERT INTO sessions (id, created, updated, state, fence, lease_until, last_seq, last_hash, turns, queued)
             VALUES (?1, 1, 1, 0, 0, 0, 0, zeroblob(32), 0, 0)",
            [id],
        )?;
        let no = conn.last_insert_rowid();
        conn.execute("INSERT INTO heads (session, name) VALUES (?1, 'main')", [no])?;
        Ok(Self { no, seq: 0, turns: 0, turn: 0 })
    }

    /// Makes one of the four writes of a tool turn.
    fn write(
        &mut self,
        conn: &Connection,
        part: usize,
        records: &[Vec<CopiedRecord>; 4],
    ) -> rusqlite::Result<()> {
        if part == 0 {
            let id: [u8; 16] = bench_rig::worker().to_u128().to_be_bytes();
            conn.prepare_cached(
                "INSERT INTO turns (id, session, place, input, delivery, head, state, accepted, last_node, cancelled)
                 VALUES (?1, ?2, ?3, zeroblob(32), 0, 'main', 1, ?4, ?4, 0)",
            )?
            .execute(params![id, self.no, self.turns, self.seq + 1])?;
            self.turn = conn.last_insert_rowid();
            self.turns += 1;
        }
        for CopiedRecord { body, words } in &records[part] {
            self.seq += 1;
            conn.prepare_cached(
                "INSERT INTO records (session, seq, turn, at, node, hash, body) VALUES (?1, ?2, ?3, 1, 1, zeroblob(32), ?4)",
            )?
            .execute(params![self.no, self.seq, self.turn, body])?;
            if let Some((place, words)) = words {
                conn.prepare_cached("INSERT INTO heard (pos, place, words) VALUES (?1, ?2, ?3)")?
                    .execute(params![conn.last_insert_rowid(), place, words])?;
            }
        }
        match part {
            1 => {
                conn.prepare_cached(
                    "INSERT INTO claims (session, asked, child, turn, call, fence, unknown, since)
                     VALUES (?1, 1, 0, ?2, zeroblob(16), 1, 0, 1)",
                )?
                .execute([self.no, self.turn])?;
            }
            2 => {
                conn.prepare_cached("DELETE FROM claims WHERE session = ?1 AND asked = 1 AND child = 0")?
                    .execute([self.no])?;
            }
            3 => {
                conn.prepare_cached(
                    "UPDATE heads SET node_session = ?1, node_seq = ?2 WHERE session = ?1 AND name = 'main'",
                )?
                .execute([self.no, self.seq])?;
            }
            _ => {}
        }
        conn.prepare_cached("UPDATE turns SET last_node = ?2, state = 2 WHERE no = ?1")?
            .execute([self.turn, self.seq])?;
        conn.prepare_cached(
            "UPDATE sessions SET last_seq = ?2, last_hash = zeroblob(32), turns = ?3, fence = fence + 1 WHERE no = ?1",
        )?
        .execute([self.no, self.seq, self.turns])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_writer_fits_the_schema_of_the_store() {
        let dir = tempfile::tempdir().expect("a directory");
        let rate = bare_writer_rate(dir.path(), Duration::from_millis(1)).expect("its rows fit the tables");
        assert!(rate > 0.0, "{rate}");
    }
}
