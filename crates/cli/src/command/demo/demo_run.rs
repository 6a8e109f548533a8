//! Runs the demo: starts the worker, kills it, restarts it, and answers its question.
use super::demo_rng::DemoRng;
use super::progress::{DemoInput, DemoProgress, EffectLabel};
use super::report;
use super::screen::DemoScreen;
use super::worker::DATABASE;
use crate::command::complete_alone;
use crate::terminal::{self, OutputLine, TextStyle};
use outlast::clock::Entropy;
use outlast::runtime::worker::system::SystemEntropy;
use outlast::vocab::record::TurnEnd;
use outlast::{Error, Kind};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The key of the demo's session.
pub(super) const SESSION: &str = "demo";

const INPUT: &str = "Order a birthday cake with candles for Ann, and have it brought to the party.";

/// The number of effects in the script. Each can be killed once.
const STEPS: usize = 12;

/// The minimum number of planned kills. On a very slow machine, one or two may not happen.
const KILLS: usize = 6;

/// The maximum delay of a kill after its effect started, in milliseconds. It is shorter than any effect.
const DELAY_MOST: u64 = 160;

/// A worker that prints nothing for this long is broken.
const PATIENCE: Duration = Duration::from_secs(15);

/// The result of a demo.
pub(super) struct DemoOutcome {
    pub(super) dir: PathBuf,
    pub(super) kills: usize,
    pub(super) end: TurnEnd,
}

/// Runs the demo and checks its promises.
pub(super) fn play(dir: Option<PathBuf>, seed: Option<u64>) -> Result<(), Error> {
    let seed = seed.unwrap_or_else(|| u64::from(random()));
    let dir = make_dir(dir)?;
    OutputLine::new()
        .ink(TextStyle::Bold, "outlast demo")
        .text(&format!(", seed {seed}, in {}", dir.display()))
        .say();
    terminal::say(&format!("One turn, one input: \"{INPUT}\""));
    terminal::say(
        "Its process is killed with SIGKILL at random effects. Each new process continues from the journal.",
    );
    let mut theatre = DemoRun::new(dir, DemoRng::of(seed))?;
    let end = loop {
        if let Some(end) = theatre.process()? {
            break end;
        }
    };
    complete_alone(report::report(&DemoOutcome { dir: theatre.dir, kills: theatre.kills, end }))
}

fn random() -> u32 {
    let [a, b, c, d, ..] = SystemEntropy.random();
    u32::from_be_bytes([a, b, c, d])
}

fn make_dir(dir: Option<PathBuf>) -> Result<PathBuf, Error> {
    let dir = dir.unwrap_or_else(|| std::env::temp_dir().join(format!("outlast-demo-{:08x}", random())));
    let failed = |cause| Error::new(Kind::IoFailed, format!("{} cannot be made: {cause}", dir.display()));
    fs::create_dir_all(&dir).map_err(failed)?;
    if fs::read_dir(&dir).map_err(failed)?.next().is_some() {
        let detail = format!("expected an empty directory for the demo, but {} has files", dir.display());
        return Err(Error::new(Kind::InputInvalid, detail));
    }
    Ok(dir)
}

/// The state of a demo.
struct DemoRun {
    program: PathBuf,
    dir: PathBuf,
    dice: DemoRng,
    screen: DemoScreen,
    /// The effects to kill, by the order in which they first started.
    effects_to_kill: BTreeSet<usize>,
    /// The keys of the effects that started, in order.
    begun: Vec<String>,
    resolved: bool,
    kills: usize,
}

impl DemoRun {
    fn new(dir: PathBuf, mut dice: DemoRng) -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(|cause| {
            Error::new(Kind::IoFailed, format!("the path of this program is unknown: {cause}"))
        })?;
        let kills = KILLS + usize::try_from(dice.below(3)).unwrap_or(0);
        let doomed = dice.distinct(kills, STEPS).into_iter().collect();
        Ok(Self {
            program,
            dir,
            dice,
            screen: DemoScreen::default(),
            effects_to_kill: doomed,
            begun: Vec::new(),
            resolved: false,
            kills: 0,
        })
    }

    /// Runs one process until its turn ends or it is killed.
    fn process(&mut self) -> Result<Option<TurnEnd>, Error> {
        let process = WorkerProcess::start(&self.program, &self.dir)?;
        self.screen.started(process.child.id());
        let mut death: Option<(Instant, String)> = None;
        loop {
            let patience =
                death.as_ref().map_or(PATIENCE, |(at, _)| at.saturating_duration_since(Instant::now()));
            let progress = match process.lines.recv_timeout(patience) {
                Ok(progress) => progress,
                Err(RecvTimeoutError::Timeout) => match death {
                    Some((_, during)) => return self.kill(process, &during).map(|()| None),
                    None => return Err(broken(&process.kill(), "printed nothing for too long")),
                },
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(broken(&process.end(), "ended before the turn did"));
                }
            };
            self.screen.show(&progress);
            match progress {
                DemoProgress::Begun { step, .. } if death.is_none() && self.should_kill(&step) => {
                    let delay = Duration::from_millis(self.dice.below(DELAY_MOST));
                    death = Some((Instant::now() + delay, step.name));
                }
                DemoProgress::Parked { keys } if !self.resolved => {
                    if death.is_some() || self.dice.below(2) == 0 {
                        self.kill(process, "the wait")?;
                        terminal::say("  no process is left; a person answers:");
                        return self.resolve(&keys).map(|()| None);
                    }
                    terminal::say("  a person answers:");
                    self.resolve(&keys)?;
                }
                DemoProgress::Ended { end, .. } => {
                    process.end();
                    return Ok(Some(end));
                }
                _ => {}
            }
        }
    }

    /// Returns whether to kill the process at this effect.
    fn should_kill(&mut self, step: &EffectLabel) -> bool {
        let known = self.begun.iter().position(|key| *key == step.key);
        let place = known.unwrap_or_else(|| {
            self.begun.push(step.key.clone());
            self.begun.len() - 1
        });
        self.effects_to_kill.remove(&place)
    }

    fn kill(&mut self, process: WorkerProcess, during: &str) -> Result<(), Error> {
        let WorkerProcess { mut child, lines } = process;
        let killed = child.kill().and_then(|()| child.wait());
        killed
            .map_err(|cause| Error::new(Kind::IoFailed, format!("the worker cannot be killed: {cause}")))?;
        // Show the lines that it printed before it died.
        for progress in lines {
            self.screen.show(&progress);
        }
        self.kills += 1;
        self.screen.killed(during);
        Ok(())
    }

    /// Completes the pending call from a separate process.
    fn resolve(&mut self, keys: &[String]) -> Result<(), Error> {
        self.resolved = true;
        for key in keys {
            let answer = r#"{"approved":true}"#;
            terminal::say(&format!("  $ outlast resolve {}… --ok '{answer}'", &key[..key.len().min(20)]));
            let output = Command::new(&self.program)
                .arg("--data")
                .arg(self.dir.join(DATABASE))
                .args(["resolve", key, "--ok", answer])
                .output()
                .map_err(|cause| Error::new(Kind::IoFailed, format!("resolve cannot be started: {cause}")))?;
            terminal::say(&format!("  {}", String::from_utf8_lossy(&output.stdout).trim_end()));
            if !output.status.success() {
                return Err(broken(&output.status.to_string(), "did not resolve the call"));
            }
        }
        Ok(())
    }
}

/// A running worker.
struct WorkerProcess {
    child: Child,
    lines: Receiver<DemoProgress>,
}

impl WorkerProcess {
    fn start(program: &Path, dir: &Path) -> Result<Self, Error> {
        let failed = |cause| Error::new(Kind::IoFailed, format!("the worker cannot be started: {cause}"));
        let mut child = Command::new(program)
            .args(["demo", "--worker"])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let order = DemoInput { session: SESSION.to_owned(), key: "cake".to_owned(), text: INPUT.to_owned() };
        let line = serde_json::to_string(&order).expect("an order is plain data");
        if let Some(mut stdin) = child.stdin.take() {
            writeln!(stdin, "{line}").map_err(failed)?;
        }
        let stdout = child.stdout.take().expect("the worker's output is piped");
        let (to_us, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The last line of a killed process may be incomplete.
                let Ok(progress) = serde_json::from_str(&line) else { continue };
                if to_us.send(progress).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// Waits for its exit and returns its status.
    fn end(mut self) -> String {
        self.child.wait().map_or_else(|cause| cause.to_string(), |status| status.to_string())
    }

    fn kill(mut self) -> String {
        // It may already have exited.
        let _ = self.child.kill();
        self.end()
    }
}

fn broken(status: &str, what: &str) -> Error {
    Error::new(Kind::Internal, format!("the worker {what} ({status})"))
}
