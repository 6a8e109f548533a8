//! What is counted.
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

/// In what a process was killed, as far as it shows from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A worker that made its database, before it took inputs.
    Creating,
    /// A worker that started on a database that was there, before it took inputs.
    Starting,
    /// A worker after a random time.
    Running,
    /// A worker that had just acknowledged an input.
    Acknowledging,
    /// A worker whose tool had just acted.
    Executing,
    /// A worker that was asked to end and drained or closed.
    Closing,
    /// A worker that moved the log into the database: the file had changed, the process had not ended.
    Checkpointing,
    /// One of two workers on one database.
    Paired,
    /// A worker that was stopped for longer than its lease, then or after it went on.
    Stopped,
    /// A command that resolves a wait or cancels a turn.
    Commanding,
}

impl Kind {
    /// All of them, in the order in which they are shown.
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

    /// Its name in tables and in JSON.
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

/// What happened in a round, or in all of them.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Databases.
    pub rounds: u64,
    /// Processes that were alive and were killed.
    pub kills: BTreeMap<Kind, u64>,
    /// Processes that were stopped for longer than their lease.
    pub stops: u64,
    /// Sessions that another process took from one that was stopped.
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
    /// Inputs that joined a turn under way.
    pub joined: u64,
    /// Turns that wait for somebody outside who never comes.
    pub waiting: u64,
    /// Calls in the journals.
    pub calls: u64,
    /// What the witness saw.
    pub executions: u64,
    /// Calls whose outcome nobody knows.
    pub unknown: u64,
    /// Acknowledged and not there.
    pub lost: u64,
    /// Happened more often than it may.
    pub repeated: u64,
    /// Not what the journal says.
    pub corrupted: u64,
    /// How long it took.
    pub time: Duration,
}

impl Figures {
    /// Kills of all kinds.
    pub fn kills(&self) -> u64 {
        self.kills.values().sum()
    }

    /// Whether every promise was kept.
    pub fn is_kept(&self) -> bool {
        self.lost + self.repeated + self.corrupted == 0
    }

    /// The numbers that have a name, in the order in which they are shown.
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

    /// One line.
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

    /// The closing table.
    pub fn table(&self) -> String {
        let mut rows: Vec<(String, String)> = vec![("kills".into(), self.kills().to_string())];
        for kind in Kind::ALL {
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

    /// Kills in a minute.
    fn rate(&self) -> f64 {
        let kills = u32::try_from(self.kills()).map_or(f64::MAX, f64::from);
        kills * 60.0 / self.time.as_secs_f64().max(0.001)
    }

    /// The figures as JSON. Names stay.
    pub(crate) fn json(&self) -> Value {
        let by_kind = Kind::ALL.map(|kind| (kind.name(), self.kills.get(&kind).copied().unwrap_or(0)));
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

impl AddAssign for Figures {
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
