//! Measures the cost of parked sessions and of an idle process: memory and database queries.
use crate::bench_rig::{self, BenchToolSet, PARKING_SCRIPT, PLAIN_SCRIPT};
use crate::report::BenchReport;
use outlast::Error;
use outlast::runtime::Input;
use outlast::sqlite::{SqliteOptions, SqliteStore};
use outlast::store::{SessionState, SessionTarget};
use outlast::vocab::record::Seq;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The argument that makes this program the measured idle process.
pub(crate) const IDLE: &str = "--idle-child";

/// How long to observe the idle process.
const IDLE_OBSERVATION: Duration = Duration::from_secs(5);

pub(crate) fn measure(
    report: &mut BenchReport,
    dir: &Path,
    quick: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let sessions: u32 = if quick { 10_000 } else { 100_000 };
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let growth = tokio.block_on(measure_parked_memory(&dir.join("parked.db"), sessions))?;
    report.put("parked.sessions", sessions);
    report.put("parked.rss_growth_mb", growth);
    report.judge(
        "memory added by parked sessions",
        format!("{growth:.1} MB for {sessions}"),
        "< 20 MB".into(),
        growth < 20.0,
    );
    let idle = Command::new(std::env::current_exe()?)
        .args([IDLE.as_ref(), dir.join("idle.db").as_os_str()])
        .output()?;
    let said = String::from_utf8_lossy(&idle.stdout);
    let mut figures = said.split_whitespace().filter_map(|figure| figure.parse::<f64>().ok());
    let (rss, looks) = (figures.next().unwrap_or(f64::NAN), figures.next().unwrap_or(f64::NAN));
    report.put("idle_rss_mb", rss);
    report.put("idle_queries_per_s", looks);
    report.judge("idle process, memory", format!("{rss:.1} MB"), "< 30 MB".into(), rss < 30.0);
    report.judge(
        "idle process, checks of the database",
        format!("{looks:.1}/s"),
        "≤ 1 cheap check/s (+ slack)".into(),
        looks <= 1.5,
    );
    Ok(())
}

async fn measure_parked_memory(path: &Path, sessions: u32) -> Result<f64, Error> {
    let worker = bench_rig::worker();
    let store = Arc::new(SqliteStore::open_with(
        path,
        SqliteOptions { worker: Some(worker), ..SqliteOptions::default() },
    )?);
    let runtime =
        bench_rig::runtime(store.clone(), worker, PARKING_SCRIPT, BenchToolSet::EchoAndWait).await?;
    // The first ones fill bounded caches.
    park(&runtime, 2_000).await?;
    let before = rss_mb("self");
    park(&runtime, sessions).await?;
    let growth = rss_mb("self") - before;
    runtime.shut_down(Duration::from_secs(1)).await;
    Ok(growth)
}

async fn park(runtime: &outlast::runtime::Runtime, sessions: u32) -> Result<(), Error> {
    const AT_ONCE: u32 = 64;
    let mut tasks = tokio::task::JoinSet::new();
    for lane in 0..AT_ONCE {
        let runtime = runtime.clone();
        let share = sessions / AT_ONCE + u32::from(lane < sessions % AT_ONCE);
        tasks.spawn(async move {
            for _ in 0..share {
                let session = runtime.fresh_session();
                let mut events = runtime.events(session, Seq(0));
                let accepted = runtime.submit(Input::text(SessionTarget::New(session), "go")).await?;
                while runtime.store().session(accepted.session).await?.state != SessionState::Parked {
                    events.next().await?;
                }
            }
            Ok::<_, Error>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("a task of the benchmark does not panic")?;
    }
    Ok(())
}

/// Runs an idle worker for a while, and prints its memory and its number of database queries.
pub(crate) fn run_idle_process(path: Option<&str>) -> ExitCode {
    let watched = || -> Result<(f64, f64), Box<dyn std::error::Error>> {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        tokio.block_on(async {
            let worker = bench_rig::worker();
            let options = SqliteOptions { worker: Some(worker), ..SqliteOptions::default() };
            let store = Arc::new(SqliteStore::open_with(path.unwrap_or("idle.db").as_ref(), options)?);
            let runtime = bench_rig::runtime(store.clone(), worker, PLAIN_SCRIPT, BenchToolSet::Echo).await?;
            tokio::time::sleep(Duration::from_secs(2)).await;
            let (before, begun) = (store.stats().reads, Instant::now());
            tokio::time::sleep(IDLE_OBSERVATION).await;
            let looks = store.stats().reads - before;
            let looks = f64::from(u32::try_from(looks).unwrap_or(u32::MAX)) / begun.elapsed().as_secs_f64();
            let rss = rss_mb("self");
            runtime.shut_down(Duration::from_secs(1)).await;
            Ok((rss, looks))
        })
    };
    match watched() {
        Ok((rss, looks)) => {
            println!("{rss} {looks}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("the idle process failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the resident memory of a process in MB, by its id or `self`.
pub(crate) fn rss_mb(process: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().map_or(f64::NAN, |kb| kb / 1024.0)
}
