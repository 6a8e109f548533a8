//! `outlast doctor`: checks the database, the disk and the workers, and says how to fix what is wrong.
mod disk;
#[cfg(target_os = "linux")]
mod sandbox;
mod workers;

use crate::agent::sources::AgentSources;
use crate::agent::validated_package;
use crate::config_file::ConfigFile;
use crate::formatting::{self, count, when};
use crate::global_args::GlobalArgs;
use crate::terminal::{self, OutputLine, TextStyle};
use clap::Args;
use disk::DiskStatus;
use outlast::contents::single_chunk;
use outlast::outbox::{SinkOutbox, SinkView};
use outlast::payment_outbox::{PaymentOutbox, PendingPayment};
use outlast::sqlite::SqliteStore;
use outlast::store::{Durability, Queries, SessionState};
use outlast::vocab::payment::{Payment, PaymentOrder, PaymentState};
use outlast::{Error, Limits};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The maximum number of sessions that are counted.
const COUNTED: usize = 10_000;

/// A write-ahead log of this size is not being checkpointed.
const LONG_LOG: u64 = 256 << 20;

/// The free space that SQLite and a few long turns need.
const LITTLE_ROOM: u64 = 64 << 20;

/// Checks the database, the disk, the workers and the configuration.
#[derive(Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    configuration: ConfigFile,
}

impl DoctorArgs {
    /// Runs the command. The exit code says whether something is wrong.
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<ExitCode, Error> {
        data.require_database_file()?;
        let mut report = DoctorReport::default();
        fact("outlast", env!("CARGO_PKG_VERSION"));
        let folder = folder(&data.path);
        disk(&mut report, &folder);
        #[cfg(target_os = "linux")]
        sandbox::report();
        match data.open_as(None) {
            Ok(store) => {
                database(&mut report, data, &store).await?;
                self.contents(&mut report, data, &store).await?;
                self.sinks(&mut report, &store).await?;
                self.agents(&mut report, data).await?;
            }
            Err(error) => {
                fact("database", &data.path.display().to_string());
                report.wrong(&error.to_string(), &format!("outlast explain {}", error.kind().code()));
            }
        }
        Ok(report.end())
    }

    /// Checks that the sinks can start, and reports outputs that were given up.
    async fn sinks(&self, report: &mut DoctorReport, store: &SqliteStore) -> Result<(), Error> {
        for error in self.configuration.sinks()?.iter().filter_map(|sink| sink.outlet().err()) {
            report.wrong(&error.to_string(), "no worker starts with it; fix or remove it");
        }
        for SinkView { name, dead, .. } in store.sinks().await?.into_iter().filter(|sink| sink.dead > 0) {
            let outputs = count(usize::try_from(dead).unwrap_or(usize::MAX), "output", "outputs");
            let remedy =
                format!("outlast sinks show {name} says why, outlast sinks retry {name} tries again");
            report.open(&format!("{outputs} that the sink {name} did not accept"), &remedy);
        }
        Ok(())
    }

    /// Builds every agent as a worker would, and reports those that fail. A worker leaves them out.
    async fn agents(&self, report: &mut DoctorReport, data: &GlobalArgs) -> Result<(), Error> {
        let sources = AgentSources::read(&self.configuration)?.with_stored(data).await?;
        for name in sources.names() {
            let made = sources
                .named(name, None)
                .and_then(|member| validated_package(&member.agent, &self.configuration));
            if let Err(error) = made {
                let what = format!("the agent {name} ({}) cannot be built: {error}", sources.source(name));
                report.wrong(&what, "a running server keeps the previous version; fix this one");
            }
        }
        Ok(())
    }

    /// Checks that the attachment store can store content.
    async fn contents(
        &self,
        report: &mut DoctorReport,
        data: &GlobalArgs,
        store: &SqliteStore,
    ) -> Result<(), Error> {
        // Nothing refers to this content, so the next sweep deletes it.
        const PROBE: &[u8] = b"outlast doctor was here";
        let opened = match data.contents(store, &self.configuration).await {
            Ok(None) => {
                fact("attachments", "in the database");
                return Ok(());
            }
            Ok(Some(contents)) => {
                fact("attachments", &contents.place());
                contents.put(single_chunk(PROBE), PROBE.len()).await.map(drop)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = opened {
            report.wrong(&error.to_string(), &format!("outlast explain {}", error.kind().code()));
        }
        Ok(())
    }
}

/// The findings, each with a remedy.
#[derive(Default)]
struct DoctorReport {
    wrong: Vec<(String, String)>,
    /// Not wrong, but a person may want to act on it.
    open: Vec<(String, String)>,
}

impl DoctorReport {
    fn wrong(&mut self, what: &str, remedy: &str) {
        self.wrong.push((what.to_owned(), remedy.to_owned()));
    }

    fn open(&mut self, what: &str, remedy: &str) {
        self.open.push((what.to_owned(), remedy.to_owned()));
    }

    fn end(self) -> ExitCode {
        if terminal::is_json() {
            for (name, found) in [("open", &self.open), ("wrong", &self.wrong)] {
                for (what, remedy) in found {
                    terminal::json(&json!({ name: what, "remedy": remedy }));
                }
            }
            return if self.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        for (what, remedy) in &self.open {
            OutputLine::new().ink(TextStyle::Warning, "open  ").text(&format!("{what}: {remedy}")).say();
        }
        for (what, remedy) in &self.wrong {
            OutputLine::new().ink(TextStyle::Bad, "wrong ").text(&format!("{what}: {remedy}")).say();
        }
        if self.wrong.is_empty() {
            OutputLine::new().ink(TextStyle::Good, "nothing is wrong").say();
            return ExitCode::SUCCESS;
        }
        ExitCode::FAILURE
    }
}

fn fact(name: &str, value: &str) {
    if terminal::is_json() {
        return terminal::json(&json!({ "name": name, "value": value }));
    }
    OutputLine::new().ink(TextStyle::Faint, &format!("{name:<12}")).text(value).say();
}

/// Returns the directory of the database.
fn folder(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.map_or_else(|| PathBuf::from("."), Path::to_owned)
}

fn disk(report: &mut DoctorReport, folder: &Path) {
    match DiskStatus::measure(folder) {
        Ok(DiskStatus { free, total, p50, p99 }) => {
            fact("disk", &format!("{} free of {}", size(free), size(total)));
            fact("fsync", &format!("1 KiB p50 {p50:.1?}, p99 {p99:.1?}"));
            if free < LITTLE_ROOM {
                report.wrong(&format!("the disk has only {} left", size(free)), "make room");
            }
        }
        Err(cause) => {
            let what = format!("{} cannot be written: {cause}", folder.display());
            report.wrong(&what, "give this user the right to write there, or name another place with --data");
        }
    }
}

async fn database(report: &mut DoctorReport, data: &GlobalArgs, store: &SqliteStore) -> Result<(), Error> {
    let status = store.status().await?;
    fact("database", &status.place);
    fact("engine", &format!("{}, schema {}", status.engine, status.schema));
    fact("durability", status.durability.name());
    if status.durability != Durability::PowerLoss {
        report.wrong("a power loss may lose acknowledged writes", "remove --unsafe-durability");
    }
    fact("size", &format!("{}, of which log {}", size(status.bytes), size(log(&data.path))));
    if log(&data.path) > LONG_LOG {
        report.wrong(
            "the write-ahead log is very long",
            "a reader prevents its checkpoint; stop processes that have the database open",
        );
    }
    permissions(report, &data.path);
    let living = workers::look(&data.path, store).await?;
    sessions(report, store, living).await?;
    let unknown = store.unknown(Limits::default().page_rows).await?.len();
    fact("unknown", &count(unknown, "call", "calls"));
    if unknown > 0 {
        report.open(
            &format!("{} with an unknown outcome", count(unknown, "call", "calls")),
            "outlast unknown lists them and explains how to settle them",
        );
    }
    payments(report, store).await
}

/// Lists payments whose end the payment authority has not confirmed.
async fn payments(report: &mut DoctorReport, store: &SqliteStore) -> Result<(), Error> {
    let pending = store.pending_payments(Limits::default().page_rows).await?;
    fact(
        "payments",
        &format!(
            "{} not yet confirmed by the payment authority",
            count(pending.len(), "payment", "payments")
        ),
    );
    for PendingPayment { session, payment, since, attempts, due_at, failure, .. } in pending {
        let Payment { id, order: PaymentOrder { payee, amount, .. }, state, .. } = payment;
        let end = if state == PaymentState::Settling { "paid" } else { "freed" };
        let why = failure.map_or_else(String::new, |failure| format!(", last failure: {failure}"));
        let summary = format!("attempted {}{why}", count(attempts as usize, "time", "times"));
        let what = format!(
            "{id} ({amount} to {payee}, {session}) should have been {end} since {}, {summary}",
            when(since)
        );
        let remedy = format!("a worker with the payment authority retries, next at {}", when(due_at));
        report.open(&what, &remedy);
    }
    Ok(())
}

fn log(path: &Path) -> u64 {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).map_or(0, |found| found.len())
}

#[cfg(unix)]
fn permissions(report: &mut DoctorReport, path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let Ok(found) = std::fs::metadata(path) else { return };
    let mode = found.permissions().mode() & 0o777;
    fact("permissions", &format!("{mode:o}"));
    if mode & 0o077 != 0 {
        let remedy = format!("chmod 600 {}", path.display());
        report.wrong("other users of this machine can read the database", &remedy);
    }
}

#[cfg(not(unix))]
fn permissions(_: &mut DoctorReport, _: &Path) {}

/// Counts sessions by state. `living` is the number of workers that can drive ready sessions.
async fn sessions(report: &mut DoctorReport, store: &SqliteStore, living: usize) -> Result<(), Error> {
    let mut counts = [0_usize; SessionState::ALL.len()];
    let mut stuck = 0;
    let mut before = None;
    let mut counted = 0;
    while counted < COUNTED {
        let page = store.sessions(before, Limits::default().page_rows).await?;
        let Some(last) = page.last() else { break };
        before = Some(last.id);
        counted += page.len();
        for session in &page {
            counts[session.state as usize] += 1;
            stuck += usize::from(session.waits.iter().any(formatting::is_stuck));
        }
    }
    let more = if counted < COUNTED { "" } else { "at least " };
    let summary =
        SessionState::ALL.map(|state| format!("{} {}", counts[state as usize], state.name())).join(", ");
    fact("sessions", &format!("{more}{summary}"));
    fact("stuck", &format!("{more}{}", count(stuck, "turn", "turns")));
    if stuck > 0 {
        report.open(
            &format!("{more}{}", count(stuck, "turn is stuck", "turns are stuck")),
            "outlast sessions list --last-end stuck lists them, outlast why SESSION shows the cause",
        );
    }
    let waiting = counts[SessionState::Ready as usize] + counts[SessionState::Leased as usize];
    if waiting > 0 && living == 0 {
        report.open(
            &format!("{} ready to run, but no worker is running", count(waiting, "session", "sessions")),
            "outlast work",
        );
    }
    Ok(())
}

/// Formats a number of bytes with a unit.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut left = bytes;
    while left >= 10 * 1024 && unit + 1 < UNITS.len() {
        left /= 1024;
        unit += 1;
    }
    format!("{left} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_readable_units() {
        assert_eq!(
            [0, 4096, 10_240, 5 << 30, u64::MAX].map(size),
            ["0 B", "4096 B", "10 KiB", "5120 MiB", "16777215 TiB"]
        );
    }
}
