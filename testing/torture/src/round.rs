//! One round: a database from its creation, through all faults, to the verdict.
use crate::Plan;
use crate::dice::{Dice, Purpose};
use crate::figures::Figures;
use crate::journal;
use crate::judge::{self, Broken, Evidence, Promise};
use crate::stage::Stage;
use crate::worker::Binary;
use crate::{ledger, sighting, witness};
use outlast::vocab::record::End;
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
pub(crate) struct Outcome {
    pub(crate) figures: Figures,
    pub(crate) broken: Vec<Broken>,
}

/// The limits of a round.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// The number of kills wanted.
    pub(crate) kills: u64,
    /// When to stop.
    pub(crate) until: Option<Instant>,
}

/// Plays a round in an empty directory.
pub(crate) fn play(plan: &Plan, number: u64, dir: &Path, bounds: Bounds) -> Result<Outcome, Box<dyn Error>> {
    let begun = Instant::now();
    let kills = bounds.kills.min(KILLS + Dice::of(plan.seed, number, Purpose::Round).below(KILLS));
    let binary = Binary { program: plan.outlast.clone(), dir: dir.to_owned(), lease: LEASE };
    let mut stage = Stage::set(plan, number, binary)?;
    let in_time = || bounds.until.is_none_or(|until| Instant::now() < until);
    stage.creation()?;
    let mut scenes = 1..;
    while stage.figures.kills() < kills
        && in_time()
        && let Some(scene) = scenes.next()
    {
        stage.scene(Dice::of(plan.seed, number, Purpose::Scene(scene)))?;
    }
    let mut broken = heal(&mut stage)?;
    broken.append(&mut stage.client.broken);
    let mut figures = stage.figures.clone();
    if let Some(mut evidence) = gather(&stage, &mut broken)? {
        if let Some(planted) = plan.planted {
            evidence.plant(planted);
        }
        broken.extend(judge::judge(&evidence));
        count(&mut figures, &evidence);
    }
    let breaks = |promise| broken.iter().filter(|broken| broken.promise == promise).count() as u64;
    figures.lost = breaks(Promise::Lost);
    figures.repeated = breaks(Promise::Repeated);
    figures.corrupted = breaks(Promise::Corrupted);
    figures.rounds = 1;
    figures.time = begun.elapsed();
    Ok(Outcome { figures, broken })
}

/// Runs a worker without faults until everything is idle.
fn heal(stage: &mut Stage) -> Result<Vec<Broken>, Box<dyn Error>> {
    stage.note("heal")?;
    let begun = Instant::now();
    let worker = stage.start()?;
    stage.until_ready(&worker)?;
    let mut broken = Vec::new();
    loop {
        stage.listen_for(LOOK)?;
        stage.client.answer_all(&stage.binary)?;
        // A database that cannot be read is not idle; the reason is found below.
        if stage.client.is_content() && journal::rests(&stage.binary.database()).unwrap_or(false) {
            break;
        }
        if begun.elapsed() > REST_WITHIN {
            let how =
                format!("something still moves or waits {} s after the last fault", REST_WITHIN.as_secs());
            broken.push(Broken { promise: Promise::Lost, how });
            break;
        }
    }
    stage.end(worker)?;
    Ok(broken)
}

/// Collects the evidence: the real commands, SQLite, the journal, the witness and the ledger. An unreadable journal is
/// reported and not judged.
fn gather(stage: &Stage, broken: &mut Vec<Broken>) -> Result<Option<Evidence>, Box<dyn Error>> {
    let Stage { binary, client, .. } = stage;
    let mut corrupted = |how| broken.push(Broken { promise: Promise::Corrupted, how });
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
    Ok(Some(Evidence {
        ledger: ledger::read(&binary.dir)?,
        sent: client.sent(),
        unanswered: client.unanswered(),
        wished: client.wished(),
        executions: sighting::read(&binary.dir.join(witness::LOG))?,
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

fn count(figures: &mut Figures, evidence: &Evidence) {
    let turns = || evidence.sessions.iter().flat_map(|session| session.turns.values());
    let calls = || evidence.sessions.iter().flat_map(|session| &session.calls);
    let ended = |how: fn(&End) -> bool| turns().filter(|turn| turn.ends.iter().any(how)).count() as u64;
    let accepted = evidence.ledger.iter().filter(|entry| matches!(entry, ledger::Entry::Accepted(_)));
    figures.inputs = accepted.count() as u64;
    figures.turns = turns().count() as u64;
    figures.answered = ended(|end| matches!(end, End::Answered { .. }));
    figures.cancelled = ended(|end| matches!(end, End::Cancelled { .. }));
    figures.joined = ended(|end| matches!(end, End::Joined { .. }));
    figures.waiting = turns().filter(|turn| turn.ends.is_empty()).count() as u64;
    figures.calls = calls().count() as u64;
    figures.executions = evidence.executions.len() as u64;
    figures.unknown = calls().filter(|call| call.is_unknown()).count() as u64;
}
