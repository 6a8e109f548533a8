//! Prints a turn as a conversation: the text of the model to standard output, tool calls to standard error.
//!
//! Text is printed as it streams. Missing parts are filled in from the record of the complete reply. So the
//! printed text always ends up equal to the recorded one, no matter when the reader connected.
use crate::formatting;
use crate::terminal;
use outlast::vocab::ReplayKey;
use outlast::vocab::effect::{Command, ModelOutcome, Outcome, Reply};
use outlast::vocab::event::{Event, LiveEventKind};
use outlast::vocab::message::text_of;
use outlast::vocab::record::{
    ClaimRef, CompactionMethod, CompactionRecord, EffectPerformed, EffectRequested, Fact, Record, Seq,
    TurnEnd,
};
use std::collections::{BTreeMap, BTreeSet};

/// What was printed so far.
#[derive(Debug, Default)]
pub(crate) struct ConversationPrinter {
    /// The reply that is being streamed.
    streaming: Option<StreamedReply>,
    /// Replies that were printed completely.
    whole: BTreeSet<ReplayKey>,
    /// The tool names of claims and replay keys.
    names: BTreeMap<(Seq, u32), String>,
    keys: BTreeMap<ReplayKey, String>,
    voice: ReplyOutput,
    /// Points at which a rule holds a reply back.
    held_back: BTreeSet<ReplayKey>,
    /// Whether the last reply was held back.
    withheld: bool,
}

/// Which text of the model is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReplyOutput {
    /// All text, as it streams.
    #[default]
    Streaming,
    /// Only the final answer.
    Answer,
}

/// A reply while it streams.
#[derive(Debug)]
pub(crate) struct StreamedReply {
    key: ReplayKey,
    attempt: u32,
    /// The text of this attempt.
    text: String,
    /// The printed text. It may contain more than `text`, from an earlier attempt. If the next attempt
    /// repeats the text, as after a crash, it is not printed again.
    shown: String,
}

/// What remains to print of a reply.
#[derive(Debug, PartialEq, Eq)]
enum ReplyUpdate {
    /// Text that continues the printed text.
    More(String),
    /// Nothing.
    Nothing,
    /// The printed text is different.
    Another,
}

impl StreamedReply {
    /// Creates a reply without text.
    pub(crate) fn of(key: ReplayKey, attempt: u32) -> Self {
        Self { key, attempt, text: String::new(), shown: String::new() }
    }

    /// Adds a piece of text and returns whether it was new.
    ///
    /// Pieces may overlap, because a client that reconnects gets the text from its start. After a gap, pieces
    /// are ignored until the record of the reply fills it.
    pub(crate) fn append(&mut self, attempt: u32, offset: usize, text: &str) -> bool {
        if attempt > self.attempt && offset == 0 {
            self.attempt = attempt;
            self.text.clear();
        }
        let new = self.text.len().checked_sub(offset).and_then(|known| text.get(known..));
        let Some(new) = new.filter(|_| attempt == self.attempt) else { return false };
        self.text.push_str(new);
        !new.is_empty()
    }

    /// Returns the text of this attempt so far.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether this is the reply to a model call.
    pub(crate) fn is_of(&self, key: &ReplayKey) -> bool {
        self.key == *key
    }

    fn news(&mut self) -> ReplyUpdate {
        if let Some(rest) = self.text.strip_prefix(self.shown.as_str()) {
            let rest = rest.to_owned();
            self.shown.push_str(&rest);
            return if rest.is_empty() { ReplyUpdate::Nothing } else { ReplyUpdate::More(rest) };
        }
        if self.shown.starts_with(&self.text) { ReplyUpdate::Nothing } else { ReplyUpdate::Another }
    }
}

impl ConversationPrinter {
    /// Prints only the final answer, for another program to read.
    pub(crate) fn of_answer() -> Self {
        Self { voice: ReplyOutput::Answer, ..Self::default() }
    }

    /// Prints an event.
    pub(crate) fn show(&mut self, event: &Event) {
        match event {
            Event::Durable(record) => self.on_record(record),
            Event::Live(live) => self.on_live_event(&live.what),
            Event::Missed { .. } => {}
        }
    }

    /// Ends the line if it contains text of a reply.
    pub(crate) fn end_line(&self) {
        if self.streaming.as_ref().is_some_and(|spoken| !spoken.shown.ends_with('\n')) {
            terminal::say("");
        }
    }

    fn on_live_event(&mut self, what: &LiveEventKind) {
        match what {
            LiveEventKind::Text { .. } | LiveEventKind::Retracted { .. }
                if self.voice == ReplyOutput::Answer => {}
            LiveEventKind::Text { key, attempt, offset, text } => self.on_text(key, *attempt, *offset, text),
            LiveEventKind::Retracted { key, attempt } => self.retract(key, *attempt),
            LiveEventKind::Running { key, attempt } if *attempt > 1 => {
                terminal::note(&format!("· {} runs again, attempt {attempt}", self.name(key)));
            }
            LiveEventKind::Interrupted { key } => {
                terminal::note(&format!("! {} was interrupted before it answered", self.name(key)));
            }
            LiveEventKind::Output { key, text } => {
                for line in text.lines() {
                    terminal::note(&format!("· {} | {line}", self.name(key)));
                }
            }
            LiveEventKind::Progress { key, note } => terminal::note(&format!("· {}: {note}", self.name(key))),
            LiveEventKind::PromptChanged { at, .. } => {
                terminal::note(&format!(
                    "· {at} changed since the last call; the provider's cache covers only the part before it"
                ));
            }
            LiveEventKind::BudgetLow { budget } => {
                terminal::note(&format!("! the {budget} is almost used up"));
            }
            // `follow` reports these.
            LiveEventKind::Running { .. } | LiveEventKind::Replayed { .. } | LiveEventKind::Held { .. } => {}
        }
    }

    fn on_text(&mut self, key: &ReplayKey, attempt: u32, offset: usize, text: &str) {
        if self.whole.contains(key) {
            return;
        }
        if self.streaming.as_ref().is_none_or(|spoken| spoken.key != *key) {
            // A reply cannot be printed without its start. Its record will contain it.
            if offset > 0 {
                return;
            }
            self.void();
            self.streaming = Some(StreamedReply::of(key.clone(), attempt));
        }
        let Some(spoken) = &mut self.streaming else { return };
        if !spoken.append(attempt, offset, text) {
            return;
        }
        match spoken.news() {
            ReplyUpdate::More(text) => terminal::piece(&text),
            ReplyUpdate::Nothing => {}
            ReplyUpdate::Another => {
                let text = spoken.text.clone();
                self.void();
                terminal::piece(&text);
                self.streaming = Some(StreamedReply {
                    shown: text.clone(),
                    text,
                    ..StreamedReply::of(key.clone(), attempt)
                });
            }
        }
    }

    fn retract(&mut self, key: &ReplayKey, attempt: u32) {
        if let Some(spoken) = &mut self.streaming
            && spoken.key == *key
            && spoken.attempt == attempt
        {
            spoken.text.clear();
        }
    }

    /// Marks the printed text as void.
    fn void(&mut self) {
        if self.streaming.take().is_some_and(|spoken| !spoken.shown.is_empty()) {
            terminal::say("\n[the answer was interrupted; discard the text above]");
        }
    }

    fn on_record(&mut self, record: &Record) {
        match &record.fact {
            Fact::Performed(EffectPerformed { outcome: Outcome::Checkpoint(joined), .. })
                if joined.correction.is_some() =>
            {
                terminal::note(
                    "· the answer does not match its schema; the model gets the errors and answers again",
                );
            }
            Fact::Compacted(CompactionRecord { shorter, .. }) => {
                let how = match shorter {
                    CompactionMethod::Results => "long tool results are omitted",
                    CompactionMethod::Summary { .. } => "its beginning is summarised",
                    CompactionMethod::Texts { .. } => "long texts are cut",
                };
                terminal::note(&format!("· the conversation grew too long for the model: {how}"));
            }
            Fact::Ended { end: TurnEnd::Answered { text } } if self.voice == ReplyOutput::Answer => {
                terminal::say(text);
            }
            Fact::Performed(_) if self.voice == ReplyOutput::Answer => {}
            Fact::Ruled(ruled) if ruled.holds_back() => {
                self.held_back.insert(ruled.key.clone());
            }
            // The reply was held back and then approved.
            Fact::Ended { end: TurnEnd::Answered { text } } if self.withheld => terminal::say(text),
            Fact::Performed(EffectPerformed { key, outcome: Outcome::ModelCall(outcome), .. }) => {
                match outcome {
                    ModelOutcome::Reply(reply) => self.finish(key, reply),
                    ModelOutcome::Failed(_) => self.void(),
                }
            }
            Fact::Asked(EffectRequested { key, command: Command::ToolBatch(batch) }) => {
                for (child, call) in batch.calls.iter().enumerate() {
                    terminal::note(&format!("· {}", formatting::claimed(call)));
                    let tool = call.tool().to_string();
                    self.keys.insert(key.child(child, call.model_id().as_str()), tool.clone());
                    self.names.insert((record.seq, u32::try_from(child).unwrap_or(u32::MAX)), tool);
                }
            }
            Fact::Answered(answered) => {
                if let Outcome::ToolCall(outcome) = &answered.outcome {
                    let ClaimRef { asked, child } = answered.claim;
                    let name = self.names.get(&(asked, child)).map_or("a call", String::as_str);
                    terminal::note(&format!("· {name} → {}", formatting::outcome(outcome)));
                }
            }
            _ => {}
        }
    }

    /// Prints the rest of a reply.
    fn finish(&mut self, key: &ReplayKey, reply: &Reply) {
        self.whole.insert(key.clone());
        self.withheld = self.held_back.contains(&key.output());
        if self.withheld {
            self.void();
            return;
        }
        let text = text_of(&reply.parts);
        let shown = self.streaming.as_ref().filter(|spoken| spoken.key == *key);
        let rest = shown.and_then(|spoken| text.strip_prefix(spoken.shown.as_str()));
        if let Some(rest) = rest {
            terminal::piece(rest);
            self.streaming = None;
        } else {
            self.void();
            terminal::piece(&text);
        }
        if !text.is_empty() {
            terminal::say("");
        }
    }

    fn name<'a>(&'a self, key: &'a ReplayKey) -> &'a str {
        self.keys.get(key).map_or(key.as_str(), String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies pieces (attempt, offset, text) and returns the printed text, with `!` where it differed.
    fn shown(pieces: &[(u32, usize, &str)]) -> String {
        let mut spoken = StreamedReply::of(ReplayKey::turn(0).model(0), 1);
        let mut shown = String::new();
        for (attempt, offset, text) in pieces {
            if !spoken.append(*attempt, *offset, text) {
                continue;
            }
            match spoken.news() {
                ReplyUpdate::More(text) => shown += &text,
                ReplyUpdate::Nothing => {}
                ReplyUpdate::Another => shown.push('!'),
            }
        }
        shown
    }

    #[test]
    fn text_repeated_from_its_start_prints_once() {
        assert_eq!(
            shown(&[(1, 0, "one "), (1, 4, "two "), (1, 0, "one two thr"), (1, 11, "ee")]),
            "one two three"
        );
        assert_eq!(shown(&[(1, 0, "zwö"), (1, 0, "zw"), (1, 4, "lf")]), "zwölf");
    }

    #[test]
    fn retry_with_same_text_continues_the_output() {
        assert_eq!(shown(&[(1, 0, "one two"), (2, 0, "one "), (2, 4, "two three")]), "one two three");
        assert_eq!(shown(&[(1, 0, "one two"), (2, 0, "one "), (1, 7, " lost")]), "one two");
    }

    #[test]
    fn retry_with_different_text_is_marked() {
        assert_eq!(shown(&[(1, 0, "one two"), (2, 0, "one fun")]), "one two!");
    }

    #[test]
    fn printing_stops_after_a_gap() {
        assert_eq!(shown(&[(1, 0, "one "), (1, 8, "three"), (1, 13, " four")]), "one ");
    }
}
