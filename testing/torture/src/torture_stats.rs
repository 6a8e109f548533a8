//! The statistics of a run.
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

/// The activity of a process when it was killed, as far as visible from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KillKind {
    /// A worker that created its database and did not accept inputs yet.
    Creating,
    /// A worker that started on an existing database and did not accept inputs yet.
    Starting,
    /// A worker, after a random time.
    Running,
    /// A worker that had just acknowledged an input.
    Acknowledging,
    /// A worker whose tool had just executed.
    Executing,
    /// A worker that was asked to shut down and was draining or closing.
    Closing,
    /// A worker that was checkpointing: the database file had changed, and the process had not ended.
    Checkpointing,
    /// One of two workers on one database.
    Paired,
    /// A worker that was stopped for longer than its lease, killed during the stop or after it continued.
    Stopped,
    /// A command that resolves a wait or cancels a turn.
    Commanding,
}

impl KillKind {
    /// All kinds, in display order.
    pub const ALL: [Self; 10] = [
        Self::Creating,
        Self::Starting,
        Self::Running,
        Self::Acknowledging,
        Self::Executing,
        Self::Closing,
        Self::Checkpointing,
        Self::Paired,
        Self::Stopped,
        Self::Commanding,
    ];

    /// Returns its name in tables and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Acknowledging => "acknowledging",
            Self::Executing => "executing",
            Self::Closing => "closing",
            Self::Checkpointing => "checkpointing",
            Self::Paired => "paired",
            Self::Stopped => "stopped",
            Self::Commanding => "commanding",
        }
    }
}

/// The statistics of one round, or of all rounds.
#[derive(Clone, Debug, Default)]
pub struct TortureStats {
    /// The number of databases.
    pub rounds: u64,
    /// Live processes that were killed.
    pub kills: BTreeMap<KillKind, u64>,
    /// Processes that were stopped for longer than their lease.
    pub stops: u64,
    /// Sessions that another process took over from a stopped one.
    pub taken_over: u64,
    /// Processes that were started.
    pub starts: u64,
    /// Inputs that were acknowledged.
    pub inputs: u64,
    /// Turns in the journals.
    pub turns: u64,
    /// Turns that were answered.
    pub answered: u64,
    /// Turns that were cancelled.
    pub cancelled: u64,
    /// Inputs that joined a running turn.
    pub joined: u64,
    /// Turns that wait for an answer that never comes.
    pub waiting: u64,
    /// Calls in the journals.
    pub calls: u64,
    /// Executions that the witness recorded.
    pub executions: u64,
    /// Calls with an unknown outcome.
    pub unknown: u64,
    /// Acknowledged but missing.
    pub lost: u64,
    /// Executed more often than allowed.
    pub repeated: u64,
    /// Different from what the journal says.
    pub corrupted: u64,
    /// The duration.
    pub time: Duration,
}

impl TortureStats {
    /// Returns the kills of all kinds.
    pub fn kills(&self) -> u64 {
        self.kills.values().sum()
    }

    /// Returns whether every promise was kept.
    pub fn all_promises_kept(&self) -> bool {
        self.lost + self.repeated + self.corrupted == 0
    }

    /// Returns the named numbers, in display order.
    fn named(&self) -> [(&'static str, u64); 16] {
        [
            ("rounds", self.rounds),
            ("starts", self.starts),
            ("stops", self.stops),
            ("taken_over", self.taken_over),
            ("inputs", self.inputs),
            ("turns", self.turns),
            ("answered", self.answered),
            ("cancelled", self.cancelled),
            ("joined", self.joined),
            ("waiting", self.waiting),
            ("calls", self.calls),
            ("executions", self.executions),
            ("unknown", self.unknown),
            ("lost", self.lost),
            ("repeated", self.repeated),
            ("corrupted", self.corrupted),
        ]
    }

    /// Formats the statistics as one line.
    pub(crate) fn line(&self) -> String {
        format!(
            "{} kills, {} inputs, {} calls, {} executions, {} unknown; {} lost, {} repeated, {} corrupted; {:.1} s",
            self.kills(),
            self.inputs,
            self.calls,
            self.executions,
            self.unknown,
            self.lost,
            self.repeated,
            self.corrupted,
            self.time.as_secs_f64()
        )
    }

    /// Formats the closing table.
    pub fn table(&self) -> String {
        let mut rows: Vec<(String, String)> = vec![("kills".into(), self.kills().to_string())];
        for kind in KillKind::ALL {
            let kills = self.kills.get(&kind).copied().unwrap_or(0);
            rows.push((format!("  {}", kind.name()), kills.to_string()));
        }
        rows.extend(self.named().map(|(name, number)| (name.to_owned(), number.to_string())));
        rows.push(("seconds".into(), format!("{:.1}", self.time.as_secs_f64())));
        rows.push(("kills per minute".into(), format!("{:.0}", self.rate())));
        let rows: Vec<String> =
            rows.into_iter().map(|(name, number)| format!("{name:<20}{number:>10}")).collect();
        rows.join("\n") + "\n"
    }

    /// Returns the kills per minute.
    fn rate(&self) -> f64 {
        let kills = u32::try_from(self.kills()).map_or(f64::MAX, f64::from);
        kills * 60.0 / self.time.as_secs_f64().max(0.001)
    }

    /// Returns the statistics as JSON. The names are stable.
    pub(crate) fn json(&self) -> Value {
        let by_kind = KillKind::ALL.map(|kind| (kind.name(), self.kills.get(&kind).copied().unwrap_or(0)));
        let mut json = json!({
            "kills": self.kills(),
            "kills_by_kind": by_kind.into_iter().collect::<BTreeMap<_, _>>(),
            "seconds": self.time.as_secs_f64(),
        });
        for (name, number) in self.named() {
            json[name] = number.into();
        }
        json
    }
}

impl AddAssign for TortureStats {
    fn add_assign(&mut self, more: Self) {
        for (kind, kills) in more.kills {
            *self.kills.entry(kind).or_default() += kills;
        }
        self.rounds += more.rounds;
        self.stops += more.stops;
        self.taken_over += more.taken_over;
        self.starts += more.starts;
        self.inputs += more.inputs;
        self.turns += more.turns;
        self.answered += more.answered;
        self.cancelled += more.cancelled;
        self.joined += more.joined;
        self.waiting += more.waiting;
        self.calls += more.calls;
        self.executions += more.executions;
        self.unknown += more.unknown;
        self.lost += more.lost;
        self.repeated += more.repeated;
        self.corrupted += more.corrupted;
        self.time += more.time;
    }
}
