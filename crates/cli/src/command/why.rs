//! `outlast why`: explains what a session or turn waits for, since when, and what can move it.
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::terminal::{self, one_line};
use clap::Args;
use outlast::Error;
use outlast::store::WriteCount;
use outlast::views::{BlockingWait, TurnDurabilityCost, TurnProgress, Unblocker, WaitExplanation};
use outlast::vocab::record::TurnEnd;
use serde_json::{Value, json};

/// The maximum length of arguments in a line, in characters.
const LETTERS: usize = 100;

/// Explains why a session or a turn does not continue.
#[derive(Args)]
pub(crate) struct WhyArgs {
    /// Session by id or key, or turn by id
    what: String,
    /// Print the output as JSON
    #[arg(long)]
    json: bool,
}

impl WhyArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let backend = data.backend().await?;
        let why = backend.why(&self.what).await?;
        let durability = match self.what.parse() {
            Ok(turn) => Some(backend.durability(turn).await?),
            Err(_) => None,
        };
        if self.json {
            let mut json = as_json(&why);
            if let Some(durability) = durability {
                json["durability"] = durability_json(durability);
            }
            terminal::json(&json);
        } else {
            print(&why, data);
            if let Some(durability) = durability {
                terminal::say(&format!("  {}", durability_text(durability)));
            }
        }
        Ok(())
    }
}

fn print(why: &WaitExplanation, data: &GlobalArgs) {
    let what = why.turn.map_or_else(|| why.session.to_string(), |turn| turn.to_string());
    let since = formatting::when(why.since);
    terminal::say(&match &why.progress {
        TurnProgress::Rests => format!("{what} has been idle since {since}; send an input to continue"),
        TurnProgress::Ended(end) => format!("{what} ended at {since}: {}", formatting::end(end)),
        TurnProgress::Behind(turn) => {
            format!("{what} has waited for {turn} since {since}; `outlast why {turn}`")
        }
        TurnProgress::Ready => {
            let one = if data.server.is_none() { "; start one with `outlast work`" } else { "" };
            format!("{what} has been ready since {since}, but no worker has claimed it{one}")
        }
        TurnProgress::Driven { worker, doing } => {
            let worker = worker.map_or_else(|| "a worker".to_owned(), |worker| worker.to_string());
            format!("{what} is running on {worker}; since {since}, it waits for {doing}")
        }
        TurnProgress::Waits => format!("{what} has waited since {since}"),
        TurnProgress::Held { deaths, until } => {
            let died = formatting::count(*deaths as usize, "worker died", "workers died");
            let until =
                until.map(|until| format!(", not before {}", formatting::when(until))).unwrap_or_default();
            format!(
                "{what} has been held back since {since}: {died} while it ran; it will be retried alone{until}"
            )
        }
        TurnProgress::Stuck(failure) => format!("{what} has been stuck since {since}: {failure}"),
    });
    if let Some((turn, end)) = &why.last
        && !matches!(end, TurnEnd::Answered { .. })
    {
        terminal::say(&format!("  its last turn {turn} ended as {}", formatting::end(end)));
        if end.kind().is_retryable() {
            terminal::say(&format!("  to retry it: outlast retry {turn}"));
        }
    }
    for blocked in &why.waits {
        terminal::say(&format!("  {}", wait_text(blocked, &what, data)));
    }
    if why.queued > 0 {
        terminal::say(&format!(
            "  {} behind it",
            formatting::count(why.queued, "input waits", "inputs wait")
        ));
    }
}

/// Formats the cost of a turn's durability so far.
fn durability_text(TurnDurabilityCost { records, bytes, writes }: TurnDurabilityCost) -> String {
    let records = formatting::count(records, "record", "records");
    let summary = format!("durable so far: {records}, {}", formatting::count(bytes, "byte", "bytes"));
    let Some(WriteCount { commits, waited }) = writes else { return summary };
    let commits = formatting::count(usize::try_from(commits).unwrap_or(usize::MAX), "write", "writes");
    format!("{summary}, {commits}, at least {:.1} ms waited for them", waited.as_secs_f64() * 1e3)
}

fn durability_json(TurnDurabilityCost { records, bytes, writes }: TurnDurabilityCost) -> Value {
    let mut json = json!({ "records": records, "bytes": bytes });
    if let Some(WriteCount { commits, waited }) = writes {
        (json["commits"], json["waited_ms"]) =
            (json!(commits), json!((waited.as_secs_f64() * 1e6).round() / 1e3));
    }
    json
}

fn wait_text(blocked: &BlockingWait, turn: &str, data: &GlobalArgs) -> String {
    let BlockingWait { wait, call, unblocked_by: mover, .. } = blocked;
    let when = wait.deadline.map(formatting::when);
    let until = when.as_ref().map(|when| format!(" until {when}")).unwrap_or_default();
    let at = when.map(|when| format!(" at {when}")).unwrap_or_default();
    let call = call
        .as_ref()
        .map(|(tool, arguments)| format!(" of {tool} {}", one_line(&arguments.to_string(), LETTERS)));
    let what = format!("{}{}{until}", wait.kind.name(), call.unwrap_or_default());
    match mover {
        Unblocker::Approval { id, who } => {
            // A server knows who approves by the key of the request.
            let named = if data.server.is_none() { who.as_slice() } else { &[] };
            let command = formatting::approve_command(*id, named);
            let who = if who.is_empty() { "anyone".to_owned() } else { who.join(" or ") };
            format!("{what}; {who} can decide: {command}")
        }
        Unblocker::Completion(Some(key)) => {
            format!("{what}; to complete it: outlast resolve {key} --ok JSON")
        }
        Unblocker::Completion(None) => format!("{what}; complete it with its completion key"),
        Unblocker::Time if wait.key.is_rate() => {
            format!("{what}; the rate limit admits it then: outlast rates")
        }
        Unblocker::Time if wait.key.is_deferred() => format!("{what}; a rule deferred it"),
        Unblocker::Time => format!("{what}; it continues then"),
        Unblocker::Provider { name: None, .. } => format!("{what}; it respects the provider's rate limit"),
        Unblocker::Provider { name: Some(name), failure } => {
            let last = failure.as_ref().map(|failure| format!(" ({failure})")).unwrap_or_default();
            format!("`{name}` does not answer{last}; next attempt{at}; to retry now: outlast retry {turn}")
        }
        Unblocker::Budget(Some(budget)) => format!("{what}; to raise it: outlast budgets set {budget}"),
        Unblocker::Budget(None) => format!("{what}; to raise it: outlast budgets"),
        Unblocker::Retry => format!("Outlast retries{at}; once the cause is fixed: outlast retry {turn}"),
    }
}

fn as_json(why: &WaitExplanation) -> Value {
    let WaitExplanation { session, turn, progress, since, waits, queued, last } = why;
    let waits: Vec<Value> = waits
        .iter()
        .map(|BlockingWait { wait, since, call, unblocked_by: mover }| {
            let (tool, arguments) = call.clone().unzip();
            let mut json = json!({ "wait": wait, "since": since, "tool": tool, "arguments": arguments,
                "moved_by": mover.name() });
            match mover {
                Unblocker::Approval { id, who } => (json["approval"], json["who"]) = (json!(id), json!(who)),
                Unblocker::Completion(key) => {
                    json["completion"] = json!(key.as_ref().map(ToString::to_string));
                }
                Unblocker::Budget(budget) => json["budget"] = json!(budget),
                Unblocker::Provider { name, failure } => {
                    (json["provider"], json["failure"]) = (json!(name), json!(failure));
                }
                Unblocker::Time | Unblocker::Retry => {}
            }
            json
        })
        .collect();
    let mut json = json!({ "session": session, "turn": turn, "standing": progress.name(), "since": since,
        "waits": waits, "queued": queued });
    if let Some((turn, end)) = last {
        (json["last_turn"], json["last_end"]) = (json!(turn), json!(end));
    }
    match progress {
        TurnProgress::Ended(end) => json["end"] = json!(end),
        TurnProgress::Behind(turn) => json["behind"] = json!(turn),
        TurnProgress::Driven { worker, doing } => {
            (json["worker"], json["doing"]) = (json!(worker), json!(doing));
        }
        TurnProgress::Stuck(failure) => json["failure"] = json!(failure),
        TurnProgress::Held { deaths, until } => {
            (json["deaths"], json["held_until"]) = (json!(deaths), json!(until));
        }
        TurnProgress::Rests | TurnProgress::Ready | TurnProgress::Waits => {}
    }
    json
}
