//! Measures durable turns: one session after the other, and 64 sessions concurrently.
use crate::bench_rig::{self, BenchToolSet, PLAIN_SCRIPT, TOOL_SCRIPT};
use crate::report::{BenchReport, median, p99};
use crate::{BenchArgs, BenchStore as Chosen};
use outlast::Error;
use outlast::sqlite::{SqliteOptions, SqliteStore};
use outlast::store::Store;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The number of concurrent sessions.
const AT_ONCE: usize = 64;

pub(crate) fn measure(
    report: &mut BenchReport,
    dir: &Path,
    asked: &BenchArgs,
) -> Result<(), Box<dyn std::error::Error>> {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let turns = if asked.quick { 300 } else { 2_000 };
    for (name, script) in [("plain", PLAIN_SCRIPT), ("tool", TOOL_SCRIPT)] {
        let path = dir.join(format!("{name}.db"));
        // On a worker thread, like the requests of a server.
        let found = tokio.block_on(tokio.spawn(measure_one_script(asked.store, path, script, turns)))??;
        report.put(&format!("{name}.seq_us"), found.seq_us);
        report.put(&format!("{name}.seq_per_s"), 1e6 / found.seq_us);
        report.put(&format!("{name}.c64_per_s"), found.c64_per_s);
        report.put(&format!("{name}.c64_p99_ms"), found.c64_p99_ms);
        if let Some(commits) = found.commits {
            report.put(&format!("{name}.commits"), commits);
        }
    }
    show(report, asked.store);
    Ok(())
}

struct TurnTimings {
    commits: Option<u64>,
    seq_us: f64,
    c64_per_s: f64,
    c64_p99_ms: f64,
}

async fn measure_one_script(
    chosen: Chosen,
    path: PathBuf,
    script: &'static str,
    turns: usize,
) -> Result<TurnTimings, Error> {
    let worker = bench_rig::worker();
    let (store, sqlite): (Arc<dyn Store>, Option<Arc<SqliteStore>>) = match chosen {
        Chosen::Memory => (Arc::new(outlast::MemoryStore::new()), None),
        Chosen::Sqlite => {
            let options = SqliteOptions { worker: Some(worker), ..SqliteOptions::default() };
            let sqlite = Arc::new(SqliteStore::open_with(&path, options)?);
            (sqlite.clone(), Some(sqlite))
        }
    };
    let runtime = bench_rig::runtime(store, worker, script, BenchToolSet::Echo).await?;
    let session = bench_rig::session(&runtime).await?;
    for _ in 0..20 {
        bench_rig::turn(&runtime, session, "go").await?;
    }
    let units = |sqlite: &Option<Arc<SqliteStore>>| sqlite.as_ref().map(|sqlite| sqlite.stats().units);
    let before = units(&sqlite);
    bench_rig::turn(&runtime, session, "go").await?;
    let commits = before.zip(units(&sqlite)).map(|(before, after)| after - before);
    let per_session = (turns * 10 / AT_ONCE).max(10);
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let runtime = runtime.clone();
        tasks.spawn(async move {
            let session = bench_rig::session(&runtime).await?;
            let mut times = Vec::new();
            for _ in 0..per_session {
                let begun = Instant::now();
                bench_rig::turn(&runtime, session, "go").await?;
                times.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            Ok::<_, Error>(times)
        });
    }
    let mut all = Vec::new();
    while let Some(done) = tasks.join_next().await {
        all.extend(done.expect("a task of the benchmark does not panic")?);
    }
    let c64_per_s = f64::from(u32::try_from(all.len()).unwrap_or(u32::MAX)) / begun.elapsed().as_secs_f64();
    // After the others, when the log file has reached its full size.
    let mut times = Vec::new();
    for _ in 0..turns {
        let begun = Instant::now();
        bench_rig::turn(&runtime, session, "go").await?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    runtime.shut_down(std::time::Duration::from_secs(1)).await;
    Ok(TurnTimings { commits, seq_us: median(times), c64_per_s, c64_p99_ms: p99(all) })
}

fn show(report: &mut BenchReport, store: Chosen) {
    let figure = |report: &BenchReport, name: &str| report.get(name);
    for (name, most, commits_row, seq_row) in [
        ("plain", 2.0, "plain turn, commits", "plain turn, one session"),
        ("tool", 4.0, "tool turn, commits", "tool turn, one session"),
    ] {
        let seq = figure(report, &format!("{name}.seq_us"));
        if store == Chosen::Memory {
            report.add_plain_row(seq_row, format!("{seq:.0} µs"));
            continue;
        }
        let commits = figure(report, &format!("{name}.commits"));
        report.judge(commits_row, format!("{commits}"), format!("≤ {most}"), commits <= most);
        let bound = commits * 1e6 / figure(report, "fsync_per_s") + 1_000.0;
        report.judge(
            seq_row,
            format!("{seq:.0} µs"),
            format!("≤ {bound:.0} µs (commits × fsync + 1 ms)"),
            seq <= bound,
        );
    }
    let plain = figure(report, "plain.c64_per_s");
    report.add_plain_row("plain turns, 64 sessions", format!("{plain:.0}/s"));
    let (tool, p99) = (figure(report, "tool.c64_per_s"), figure(report, "tool.c64_p99_ms"));
    if store == Chosen::Memory {
        report.add_plain_row("tool turns, 64 sessions", format!("{tool:.0}/s"));
        return;
    }
    let half = figure(report, "floor_turns_per_s") / 2.0;
    let target = format!("≥ {half:.0}/s (half the floor)");
    report.judge("tool turns, 64 sessions", format!("{tool:.0}/s"), target, tool >= half);
    report.judge("tool turns, 64 sessions", format!("{tool:.0}/s"), "≥ 2,000/s".into(), tool >= 2_000.0);
    report.judge("tool turns, 64 sessions, p99", format!("{p99:.1} ms"), "< 100 ms".into(), p99 < 100.0);
}
