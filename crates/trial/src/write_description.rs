//! Describes the records of a write in a few words.
use outlast_vocab::effect::{BatchCall, Command, ModelOutcome, Outcome};
use outlast_vocab::payment::PaymentState;
use outlast_vocab::rate::RateLimitOutcome;
use outlast_vocab::record::{ClaimRef, EffectPerformed, Fact, Record, Seq};
use std::collections::BTreeMap;

/// Describes writes in the order in which they happened, and remembers the tool of each claim.
#[derive(Default)]
pub(crate) struct WriteDescriber {
    tools: BTreeMap<(Seq, u32), String>,
}

impl WriteDescriber {
    /// Describes one write. A write without a record moved a lease or found a duplicate input.
    pub(crate) fn describe(&mut self, write: &[Record]) -> String {
        let words: Vec<String> = write.iter().filter_map(|record| self.fact(record)).collect();
        if words.is_empty() { "no record".to_owned() } else { words.join(", ") }
    }

    fn fact(&mut self, record: &Record) -> Option<String> {
        Some(match &record.fact {
            Fact::Opened { .. } => "session opened".to_owned(),
            Fact::Accepted(_) => "input accepted".to_owned(),
            Fact::Started(_) | Fact::Resumed(_) => return None,
            Fact::Asked(asked) => match &asked.command {
                Command::ToolBatch(batch) => format!("{} claimed", self.claims(record.seq, &batch.calls)),
                command => format!("{} asked", command.kind()),
            },
            Fact::Answered(answered) => format!("{} answered", self.tool(answered.claim)),
            Fact::Performed(performed) => self::describe_effect(performed),
            Fact::Reclaimed(reclaimed) => format!("{} taken over", self.tool(reclaimed.claim)),
            Fact::Compacted(_) => "conversation made shorter".to_owned(),
            Fact::Parked { .. } => "turn parked".to_owned(),
            Fact::Stuck { .. } => "turn stuck".to_owned(),
            Fact::Resolved { .. } => "wait resolved".to_owned(),
            Fact::CancelRequested { undo: false, .. } => "cancel requested".to_owned(),
            Fact::EnvironmentRequested(_) => "other configuration requested".to_owned(),
            Fact::CancelRequested { undo: true, .. } => "abort requested".to_owned(),
            Fact::Undoable(undoable) => format!("undone by {}", undoable.undo.tool),
            Fact::Payment(payment) => match &payment.state {
                PaymentState::Asked => "payment asked".to_owned(),
                PaymentState::Reserved => "payment reserved".to_owned(),
                PaymentState::Settled { .. } => "payment settled".to_owned(),
                PaymentState::Released { .. } => "payment released".to_owned(),
                PaymentState::Settling => "payment to be settled".to_owned(),
                PaymentState::Releasing { .. } => "payment to be released".to_owned(),
            },
            Fact::Paced(paced) => match &paced.pace {
                RateLimitOutcome::Waits { .. } => format!("waits for the rate {}", paced.rate),
                RateLimitOutcome::Goes => format!("admitted by the rate {}", paced.rate),
                RateLimitOutcome::Refused { .. } => format!("rejected by the rate {}", paced.rate),
            },
            Fact::Tried(_) => "model tried".to_owned(),
            Fact::Interrupted(_) => "model interrupted".to_owned(),
            Fact::Hooked(hooked) => format!("changed by {}", hooked.hook),
            Fact::Ruled(ruled) => format!("{} by {}", ruled.ruling.decision.name(), ruled.ruling.rule),
            Fact::Reminded { .. } => "approval reminded".to_owned(),
            Fact::Escalated { .. } => "approval escalated".to_owned(),
            Fact::Ended { end } => format!("turn {}", end.name().replace('_', " ")),
            fact @ (Fact::HeadMoved { .. } | Fact::Repaired { .. } | Fact::Settled(_)) => {
                fact.name().to_owned()
            }
        })
    }

    fn claims(&mut self, asked: Seq, calls: &[BatchCall]) -> String {
        let mut names = Vec::new();
        for (child, call) in (0..).zip(calls) {
            self.tools.insert((asked, child), call.tool().to_string());
            names.push(call.tool().as_str());
        }
        names.join(", ")
    }

    fn tool(&self, claim: ClaimRef) -> &str {
        self.tools.get(&(claim.asked, claim.child)).map_or("a call", String::as_str)
    }
}

fn describe_effect(performed: &EffectPerformed) -> String {
    match (&performed.command, &performed.outcome) {
        (_, Outcome::ModelCall(ModelOutcome::Reply(_))) => "reply".to_owned(),
        (_, Outcome::ModelCall(ModelOutcome::Failed(_))) => "model failed".to_owned(),
        (Command::DurableStep(step), _) => format!("step `{}`", step.name),
        (_, Outcome::Checkpoint(joined)) if joined.correction.is_some() => "correction".to_owned(),
        (_, Outcome::Checkpoint(joined)) if joined.inputs.is_empty() => "model told".to_owned(),
        (_, Outcome::Checkpoint(_)) => "input joined".to_owned(),
        (_, Outcome::SyncEnvironment(_)) => "configuration changed".to_owned(),
        (_, Outcome::Sleep(_)) => "sleep over".to_owned(),
        (_, Outcome::AwaitEvent(_)) => "wait over".to_owned(),
        (command, _) => command.kind().to_string(),
    }
}
