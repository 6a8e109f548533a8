//! One round: a database from its creation, through all faults, to the verdict.
use crate::TorturePlan;
use crate::journal;
use crate::journal_checker::{self, PromiseViolation, PromiseViolationKind, RoundEvidence};
use crate::random_stream::RandomPurpose;
use crate::round_state::RoundState;
use crate::torture_stats::TortureStats;
use crate::worker::OutlastBinary;
use crate::{ledger, witness, witness_protocol};
use outlast::vocab::record::TurnEnd;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

/// The lease: short enough to wait for, and long enough for a slow worker.
const LEASE: Duration = Duration::from_millis(400);

/// The timeout for reaching an idle state without further faults.
const REST_WITHIN: Duration = Duration::from_mins(1);

/// How often to check whether it is idle.
const LOOK: Duration = Duration::from_millis(20);

/// The minimum number of kills in a round. A random number below this is added.
const KILLS: u64 = 10;

/// The result of a round.
pub(crate) struct RoundOutcome {
    pub(crate) figures: TortureStats,
    pub(crate) broken: Vec<PromiseViolation>,
}

/// The limits of a round.
#[derive(Clone, Copy)]
pub(crate) struct RoundLimits {
    /// The number of kills wanted.
    pub(crate) kills: u64,
    /// When to stop.
    pub(crate) until: Option<Instant>,
}

/// Plays a round in an empty directory.
pub(crate) fn play(
    plan: &TorturePlan,
    number: u64,
    dir: &Path,
    bounds: RoundLimits,
) -> Result<RoundOutcome, Box<dyn Error>> {
    let begun = Instant::now();
    let kills = bounds.kills.min(KILLS + RandomPurpose::Round.stream(plan.seed, number).below(KILLS));
    let binary = OutlastBinary { program: plan.outlast.clone(), dir: dir.to_owned(), lease: LEASE };
    let mut stage = RoundState::create_in(plan, number, binary)?;
    let in_time = || bounds.until.is_none_or(|until| Instant::now() < until);
    stage.kill_during_creation()?;
    let mut scenes = 1..;
    while stage.figures.kills() < kills
        && in_time()
        && let Some(scene) = scenes.next()
    {
        stage.inject_random_fault(RandomPurpose::Scene(scene).stream(plan.seed, number))?;
    }
    let mut broken = run_until_idle(&mut stage)?;
    broken.append(&mut stage.client.broken);
    let mut figures = stage.figures.clone();
    if let Some(mut evidence) = collect_evidence(&stage, &mut broken)? {
        if let Some(planted) = plan.planted {
            evidence.plant(planted);
        }
        broken.extend(journal_checker::find_violations(&evidence));
        count(&mut figures, &evidence);
    }
    let breaks = |promise| broken.iter().filter(|broken| broken.promise == promise).count() as u64;
    figures.lost = breaks(PromiseViolationKind::Lost);
    figures.repeated = breaks(PromiseViolationKind::Repeated);
    figures.corrupted = breaks(PromiseViolationKind::Corrupted);
    figures.rounds = 1;
    figures.time = begun.elapsed();
    Ok(RoundOutcome { figures, broken })
}

/// Runs a worker without faults until everything is idle.
fn run_until_idle(stage: &mut RoundState) -> Result<Vec<PromiseViolation>, Box<dyn Error>> {
    stage.note("heal")?;
    let begun = Instant::now();
    let worker = stage.start()?;
    stage.wait_until_ready(&worker)?;
    let mut broken = Vec::new();
    loop {
        stage.listen_for(LOOK)?;
        stage.client.answer_all(&stage.binary)?;
        // A database that cannot be read is not idle; the reason is found below.
        if stage.client.is_content() && journal::is_database_idle(&stage.binary.database()).unwrap_or(false) {
            break;
        }
        if begun.elapsed() > REST_WITHIN {
            let how =
                format!("something still moves or waits {} s after the last fault", REST_WITHIN.as_secs());
            broken.push(PromiseViolation { promise: PromiseViolationKind::Lost, violation_text: how });
            break;
        }
    }
    stage.end(worker)?;
    Ok(broken)
}

/// Collects the evidence: the real commands, SQLite, the journal, the witness and the ledger. An unreadable journal is
/// reported and not judged.
fn collect_evidence(
    stage: &RoundState,
    broken: &mut Vec<PromiseViolation>,
) -> Result<Option<RoundEvidence>, Box<dyn Error>> {
    let RoundState { binary, client, .. } = stage;
    let mut corrupted =
        |how| broken.push(PromiseViolation { promise: PromiseViolationKind::Corrupted, violation_text: how });
    let verify = binary.command(&["verify"]).output()?;
    if !verify.status.success() {
        corrupted(format!("`outlast verify` failed: {}", String::from_utf8_lossy(&verify.stderr)));
    }
    match damage(&binary.database()) {
        Ok(None) => {}
        Ok(Some(damage)) => corrupted(format!("SQLite says: {damage}")),
        Err(error) => corrupted(format!("SQLite cannot read its file: {error}")),
    }
    let unknown = binary.command(&["unknown"]).output()?;
    let listed = String::from_utf8_lossy(&unknown.stdout);
    let listed = listed.lines().filter(|line| line.starts_with("cal_"));
    let listed = listed.filter_map(|line| line.split(' ').next()).map(str::to_owned);
    let sessions = match journal::read(&binary.database()) {
        Ok(sessions) => sessions,
        Err(error) => {
            corrupted(format!("the journal cannot be read: {error}"));
            return Ok(None);
        }
    };
    Ok(Some(RoundEvidence {
        ledger: ledger::read(&binary.dir)?,
        sent: client.sent(),
        unanswered: client.unanswered(),
        wished: client.cancel_requests(),
        executions: witness_protocol::read(&binary.dir.join(witness::LOG))?,
        listed: listed.collect(),
        sessions,
    }))
}

/// Returns the damage that SQLite finds in its file.
fn damage(database: &Path) -> rusqlite::Result<Option<String>> {
    let file = rusqlite::Connection::open(database)?;
    let whole: String = file.query_one("PRAGMA integrity_check", [], |row| row.get(0))?;
    if whole != "ok" {
        return Ok(Some(whole));
    }
    let mut dangling = file.prepare("PRAGMA foreign_key_check")?;
    Ok(dangling.exists([])?.then(|| "a row refers to one that is not there".to_owned()))
}

fn count(figures: &mut TortureStats, evidence: &RoundEvidence) {
    let turns = || evidence.sessions.iter().flat_map(|session| session.turns.values());
    let calls = || evidence.sessions.iter().flat_map(|session| &session.calls);
    let ended = |how: fn(&TurnEnd) -> bool| turns().filter(|turn| turn.ends.iter().any(how)).count() as u64;
    let accepted = evidence.ledger.iter().filter(|entry| matches!(entry, ledger::LedgerEntry::Accepted(_)));
    figures.inputs = accepted.count() as u64;
    figures.turns = turns().count() as u64;
    figures.answered = ended(|end| matches!(end, TurnEnd::Answered { .. }));
    figures.cancelled = ended(|end| matches!(end, TurnEnd::Cancelled { .. }));
    figures.joined = ended(|end| matches!(end, TurnEnd::Joined { .. }));
    figures.waiting = turns().filter(|turn| turn.ends.is_empty()).count() as u64;
    figures.calls = calls().count() as u64;
    figures.executions = evidence.executions.len() as u64;
    figures.unknown = calls().filter(|call| call.is_unknown()).count() as u64;
}
