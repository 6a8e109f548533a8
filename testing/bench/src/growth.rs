//! Measures whether costs stay flat: opening and appending after many turns, bytes per byte of content, and forks.
use crate::bench_rig::{
    self, BenchToolSet, LARGE_RESULT_BYTES, LARGE_RESULT_SCRIPT, PLAIN_SCRIPT, TOOL_SCRIPT,
};
use crate::report::{BenchReport, median};
use outlast::sqlite::{SqliteOptions, SqliteStore};
use outlast::store::{BranchStore, ForkRequest, ForkTo, Journal, Queries};
use outlast::{Error, SessionId};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The session lengths to measure.
const LENGTHS: [u32; 3] = [10, 1_000, 20_000];
/// The number of repetitions.
const REPEATS: u32 = 60;
/// How often to open a session; reads are quick and their times vary.
const OPENINGS: u32 = 500;
/// The model's window in the content measurement.
const WINDOW: usize = 256 << 10;
/// The bytes of an input in the content measurement. The reply is as long, so a turn has 2.7 KB.
const CONTENT: usize = 1_350;

pub(crate) fn measure(
    report: &mut BenchReport,
    dir: &Path,
    quick: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    tokio.block_on(measure_by_session_length(report, &dir.join("flat.db")))?;
    tokio.block_on(measure_storage_bytes(report, &dir.join("bytes.db"), if quick { 300 } else { 1_000 }))?;
    tokio.block_on(measure_large_results(report, dir, if quick { 20 } else { 60 }))?;
    Ok(())
}

async fn measure_by_session_length(report: &mut BenchReport, path: &Path) -> Result<(), Error> {
    let worker = bench_rig::worker();
    let store = Arc::new(SqliteStore::open_with(
        path,
        SqliteOptions { worker: Some(worker), ..SqliteOptions::default() },
    )?);
    let runtime = bench_rig::runtime(store.clone(), worker, PLAIN_SCRIPT, BenchToolSet::Echo).await?;
    let mut sessions = Vec::new();
    for length in LENGTHS {
        let session = bench_rig::session(&runtime).await?;
        for _ in 0..length {
            bench_rig::turn(&runtime, session, "go").await?;
        }
        sessions.push((session, Vec::new(), Vec::new()));
    }
    // Interleaved, so that changes in the speed of the machine affect all of them.
    for _ in 0..OPENINGS {
        for (session, opening, _) in &mut sessions {
            let begun = Instant::now();
            open(&store, *session).await?;
            opening.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    for _ in 0..REPEATS {
        for (session, _, appending) in &mut sessions {
            let begun = Instant::now();
            bench_rig::turn(&runtime, *session, "go").await?;
            appending.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    let (mut resume, mut append) = (Vec::new(), Vec::new());
    for (length, (_, opening, appending)) in LENGTHS.into_iter().zip(sessions) {
        resume.push(median(opening));
        append.push(median(appending));
        report.put(&format!("resume_us.{length}"), resume.last().copied());
        report.put(&format!("append_us.{length}"), append.last().copied());
    }
    runtime.shut_down(Duration::from_secs(1)).await;
    add_spread_row(report, "opening a session after 10, 1,000, 20,000 turns", &resume);
    add_spread_row(report, "appending a turn after 10, 1,000, 20,000 turns", &append);
    Ok(())
}

/// Reads everything that a worker reads before it can call the model.
async fn open(store: &SqliteStore, session: SessionId) -> Result<(), Error> {
    let view = store.session(session).await?;
    let head = view.heads.into_iter().find_map(|(_, node)| node);
    let last = store.turns(session, view.turns - 1, 1).await?.remove(0);
    store.turn_records(last.id).await?;
    match head {
        Some(node) => store.history(node, 4 << 10).await.map(drop),
        None => Ok(()),
    }
}

fn add_spread_row(report: &mut BenchReport, what: &'static str, times: &[f64]) {
    let most = times.iter().copied().fold(0.0, f64::max);
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let shown: Vec<String> = times.iter().map(|time| format!("{time:.0}")).collect();
    let found = format!("{} µs (× {:.2})", shown.join(", "), most / least);
    report.judge(what, found, "largest ÷ smallest ≤ 1.5".into(), most / least <= 1.5);
}

async fn measure_storage_bytes(report: &mut BenchReport, path: &Path, turns: u32) -> Result<(), Error> {
    let text = "outlast ".repeat(CONTENT / 8 + 1)[..CONTENT].to_owned();
    let worker = bench_rig::worker();
    let store = Arc::new(SqliteStore::open_with(
        path,
        SqliteOptions { worker: Some(worker), ..SqliteOptions::default() },
    )?);
    let script = format!("any\nsay {text}");
    // A realistic window: with a tiny one every turn would pay for a summary.
    let model = bench_rig::model(&script)?.with_window(WINDOW);
    let runtime = bench_rig::runtime_with(store.clone(), worker, model, BenchToolSet::Echo).await?;
    let session = bench_rig::session(&runtime).await?;
    for _ in 0..turns {
        bench_rig::turn(&runtime, session, &text).await?;
    }
    let now = runtime.now();
    runtime.shut_down(Duration::from_secs(1)).await;
    drop(store);
    let content = f64::from(turns) * 2.0 * f64::from(u32::try_from(CONTENT).unwrap_or(u32::MAX));
    let size = |path: &Path| {
        std::fs::metadata(path)
            .map_or(f64::NAN, |meta| f64::from(u32::try_from(meta.len()).unwrap_or(u32::MAX)))
    };
    let before = size(path);
    let store = SqliteStore::open(path)?;
    for number in 0..100 {
        let to = ForkTo::Session { fresh: SessionId::from_u128(number + 1), key: None };
        store.fork(ForkRequest { from: session, at: None, to, now }).await?;
    }
    drop(store);
    let (per_byte, forks) = (before / content, (size(path) - before) / before);
    report.put("bytes_per_content_byte", per_byte);
    report.put("forks_added_fraction", forks);
    report.judge(
        "bytes on disk per byte of content, 2.7 KB turns",
        format!("{per_byte:.2}"),
        "< 3, aim 2".into(),
        per_byte < 3.0,
    );
    report.judge("100 forks add", format!("{:.2} %", forks * 100.0), "< 2 %".into(), forks < 0.02);
    Ok(())
}

/// Measures the extra cost of a tool result of one megabyte: bytes on disk, and time compared with a bare write of that
/// size.
async fn measure_large_results(
    report: &mut BenchReport,
    dir: &Path,
    turns: u32,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut took = Vec::new();
    let mut sizes = Vec::new();
    for (name, script) in [("small.db", TOOL_SCRIPT), ("large.db", LARGE_RESULT_SCRIPT)] {
        let (path, worker) = (dir.join(name), bench_rig::worker());
        let store = Arc::new(SqliteStore::open_with(
            &path,
            SqliteOptions { worker: Some(worker), ..SqliteOptions::default() },
        )?);
        let runtime = bench_rig::runtime(store.clone(), worker, script, BenchToolSet::EchoAndLarge).await?;
        let session = bench_rig::session(&runtime).await?;
        let mut times = Vec::new();
        for _ in 0..turns {
            let begun = Instant::now();
            bench_rig::turn(&runtime, session, "go").await?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        runtime.shut_down(Duration::from_secs(1)).await;
        drop(store);
        took.push(median(times));
        sizes.push(std::fs::metadata(&path)?.len());
    }
    let content = u64::from(turns) * LARGE_RESULT_BYTES as u64;
    let added = u32::try_from((sizes[1].saturating_sub(sizes[0])) / 1024)?;
    let per_byte = f64::from(added) / f64::from(u32::try_from(content / 1024)?);
    let bare = bare_blobs(&dir.join("bare.db"), turns)?;
    report.put("large_result_bytes_per_byte", per_byte);
    report.put("large_result_added_ms", took[1] - took[0]);
    report.put("large_blob_bare_ms", bare);
    report.judge(
        "a tool's result of 1 MiB, bytes on disk per byte",
        format!(
            "{per_byte:.2}; {:.1} ms more than a small one, a bare blob takes {bare:.1} ms",
            took[1] - took[0]
        ),
        "one blob: ≤ 1.05".into(),
        per_byte <= 1.05,
    );
    Ok(())
}

/// Returns the milliseconds of a durable bare write of this many bytes, one per commit.
fn bare_blobs(path: &Path, blobs: u32) -> rusqlite::Result<f64> {
    let conn = rusqlite::Connection::open(path)?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.execute("CREATE TABLE blobs (no INTEGER PRIMARY KEY, bytes BLOB NOT NULL)", [])?;
    let bytes = vec![7_u8; LARGE_RESULT_BYTES];
    let mut times = Vec::new();
    for _ in 0..blobs {
        let begun = Instant::now();
        conn.execute("INSERT INTO blobs (bytes) VALUES (?1)", [&bytes])?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(times))
}
