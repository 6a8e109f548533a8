//! Prints a turn as a conversation: the text of the model to standard output, tool calls to standard error.
//!
//! Text is printed as it streams. Missing parts are filled in from the record of the complete reply. So the
//! printed text always ends up equal to the recorded one, no matter when the reader connected.
use crate::terminal;
use crate::words;
use outlast::vocab::ReplayKey;
use outlast::vocab::effect::{Command, ModelOutcome, Outcome, Reply};
use outlast::vocab::event::{Event, LiveKind};
use outlast::vocab::message::text_of;
use outlast::vocab::record::{Asked, ClaimRef, Compacted, End, Fact, Performed, Record, Seq, Shorter};
use std::collections::{BTreeMap, BTreeSet};

/// What was printed so far.
#[derive(Debug, Default)]
pub(crate) struct Prose {
    /// The reply that is being streamed.
    spoken: Option<Spoken>,
    /// Replies that were printed completely.
    whole: BTreeSet<ReplayKey>,
    /// The tool names of claims and replay keys.
    names: BTreeMap<(Seq, u32), String>,
    keys: BTreeMap<ReplayKey, String>,
    voice: Voice,
    /// Points at which a rule holds a reply back.
    held_back: BTreeSet<ReplayKey>,
    /// Whether the last reply was held back.
    unsaid: bool,
}

/// Which text of the model is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Voice {
    /// All text, as it streams.
    #[default]
    Streaming,
    /// Only the final answer.
    Answer,
}

/// A reply while it streams.
#[derive(Debug)]
pub(crate) struct Spoken {
    key: ReplayKey,
    attempt: u32,
    /// The text of this attempt.
    said: String,
    /// The printed text. It may contain more than `said`, from an earlier attempt. If the next attempt
    /// repeats the text, as after a crash, it is not printed again.
    shown: String,
}

/// What remains to print of a reply.
#[derive(Debug, PartialEq, Eq)]
enum News {
    /// Text that continues the printed text.
    More(String),
    /// Nothing.
    Nothing,
    /// The printed text is different.
    Another,
}

impl Spoken {
    /// Creates a reply without text.
    pub(crate) fn of(key: ReplayKey, attempt: u32) -> Self {
        Self { key, attempt, said: String::new(), shown: String::new() }
    }

    /// Adds a piece of text and returns whether it was new.
    ///
    /// Pieces may overlap, because a client that reconnects gets the text from its start. After a gap, pieces
    /// are ignored until the record of the reply fills it.
    pub(crate) fn hear(&mut self, attempt: u32, offset: usize, text: &str) -> bool {
        if attempt > self.attempt && offset == 0 {
            self.attempt = attempt;
            self.said.clear();
        }
        let new = self.said.len().checked_sub(offset).and_then(|known| text.get(known..));
        let Some(new) = new.filter(|_| attempt == self.attempt) else { return false };
        self.said.push_str(new);
        !new.is_empty()
    }

    /// Returns the text of this attempt so far.
    pub(crate) fn said(&self) -> &str {
        &self.said
    }

    /// Returns whether this is the reply to a model call.
    pub(crate) fn is_of(&self, key: &ReplayKey) -> bool {
        self.key == *key
    }

    fn news(&mut self) -> News {
        if let Some(rest) = self.said.strip_prefix(self.shown.as_str()) {
            let rest = rest.to_owned();
            self.shown.push_str(&rest);
            return if rest.is_empty() { News::Nothing } else { News::More(rest) };
        }
        if self.shown.starts_with(&self.said) { News::Nothing } else { News::Another }
    }
}

impl Prose {
    /// Prints only the final answer, for another program to read.
    pub(crate) fn of_answer() -> Self {
        Self { voice: Voice::Answer, ..Self::default() }
    }

    /// Prints an event.
    pub(crate) fn show(&mut self, event: &Event) {
        match event {
            Event::Durable(record) => self.became_true(record),
            Event::Live(live) => self.happens(&live.what),
            Event::Missed { .. } => {}
        }
    }

    /// Ends the line if it contains text of a reply.
    pub(crate) fn end_line(&self) {
        if self.spoken.as_ref().is_some_and(|spoken| !spoken.shown.ends_with('\n')) {
            terminal::say("");
        }
    }

    fn happens(&mut self, what: &LiveKind) {
        match what {
            LiveKind::Text { .. } | LiveKind::Retracted { .. } if self.voice == Voice::Answer => {}
            LiveKind::Text { key, attempt, offset, text } => self.hear(key, *attempt, *offset, text),
            LiveKind::Retracted { key, attempt } => self.retract(key, *attempt),
            LiveKind::Running { key, attempt } if *attempt > 1 => {
                terminal::note(&format!("· {} runs again, attempt {attempt}", self.name(key)));
            }
            LiveKind::Interrupted { key } => {
                terminal::note(&format!("! {} was interrupted before it answered", self.name(key)));
            }
            LiveKind::Output { key, text } => {
                for line in text.lines() {
                    terminal::note(&format!("· {} | {line}", self.name(key)));
                }
            }
            LiveKind::Progress { key, note } => terminal::note(&format!("· {}: {note}", self.name(key))),
            LiveKind::PromptChanged { at, .. } => {
                terminal::note(&format!(
                    "· {at} changed since the last call; the provider's cache ends there"
                ));
            }
            LiveKind::BudgetLow { budget } => terminal::note(&format!("! little is left of the {budget}")),
            // `follow` reports these.
            LiveKind::Running { .. } | LiveKind::Replayed { .. } | LiveKind::Held { .. } => {}
        }
    }

    fn hear(&mut self, key: &ReplayKey, attempt: u32, offset: usize, text: &str) {
        if self.whole.contains(key) {
            return;
        }
        if self.spoken.as_ref().is_none_or(|spoken| spoken.key != *key) {
            // A reply cannot be printed without its start. Its record will contain it.
            if offset > 0 {
                return;
            }
            self.void();
            self.spoken = Some(Spoken::of(key.clone(), attempt));
        }
        let Some(spoken) = &mut self.spoken else { return };
        if !spoken.hear(attempt, offset, text) {
            return;
        }
        match spoken.news() {
            News::More(text) => terminal::piece(&text),
            News::Nothing => {}
            News::Another => {
                let text = spoken.said.clone();
                self.void();
                terminal::piece(&text);
                self.spoken =
                    Some(Spoken { shown: text.clone(), said: text, ..Spoken::of(key.clone(), attempt) });
            }
        }
    }

    fn retract(&mut self, key: &ReplayKey, attempt: u32) {
        if let Some(spoken) = &mut self.spoken
            && spoken.key == *key
            && spoken.attempt == attempt
        {
            spoken.said.clear();
        }
    }

    /// Marks the printed text as void.
    fn void(&mut self) {
        if self.spoken.take().is_some_and(|spoken| !spoken.shown.is_empty()) {
            terminal::say("\n[the answer broke off; what stands above is void]");
        }
    }

    fn became_true(&mut self, record: &Record) {
        match &record.fact {
            Fact::Performed(Performed { outcome: Outcome::Checkpoint(joined), .. })
                if joined.correction.is_some() =>
            {
                terminal::note("· the answer does not fit its schema; the model is told why");
            }
            Fact::Compacted(Compacted { shorter, .. }) => {
                let how = match shorter {
                    Shorter::Results => "long results of tools are left out",
                    Shorter::Summary { .. } => "its beginning is summarised",
                };
                terminal::note(&format!("· the conversation grew too long for the model: {how}"));
            }
            Fact::Ended { end: End::Answered { text } } if self.voice == Voice::Answer => terminal::say(text),
            Fact::Performed(_) if self.voice == Voice::Answer => {}
            Fact::Ruled(ruled) if ruled.holds_back() => {
                self.held_back.insert(ruled.key.clone());
            }
            // The reply was held back and then approved.
            Fact::Ended { end: End::Answered { text } } if self.unsaid => terminal::say(text),
            Fact::Performed(Performed { key, outcome: Outcome::ModelCall(outcome), .. }) => match outcome {
                ModelOutcome::Reply(reply) => self.finish(key, reply),
                ModelOutcome::Failed(_) => self.void(),
            },
            Fact::Asked(Asked { key, command: Command::ToolBatch(batch) }) => {
                for (child, call) in batch.calls.iter().enumerate() {
                    terminal::note(&format!("· {}", words::claimed(call)));
                    let tool = call.tool().to_string();
                    self.keys.insert(key.child(child, call.model_id().as_str()), tool.clone());
                    self.names.insert((record.seq, u32::try_from(child).unwrap_or(u32::MAX)), tool);
                }
            }
            Fact::Answered(answered) => {
                if let Outcome::ToolCall(outcome) = &answered.outcome {
                    let ClaimRef { asked, child } = answered.claim;
                    let name = self.names.get(&(asked, child)).map_or("a call", String::as_str);
                    terminal::note(&format!("· {name} → {}", words::outcome(outcome)));
                }
            }
            _ => {}
        }
    }

    /// Prints the rest of a reply.
    fn finish(&mut self, key: &ReplayKey, reply: &Reply) {
        self.unsaid = self.held_back.contains(&key.output());
        if self.unsaid {
            self.void();
            self.whole.insert(key.clone());
            return;
        }
        let text = text_of(&reply.parts);
        let shown = self.spoken.as_ref().filter(|spoken| spoken.key == *key);
        let rest = shown.and_then(|spoken| text.strip_prefix(spoken.shown.as_str()));
        if let Some(rest) = rest {
            terminal::piece(rest);
            self.spoken = None;
        } else {
            self.void();
            terminal::piece(&text);
        }
        if !text.is_empty() {
            terminal::say("");
        }
        self.whole.insert(key.clone());
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
        let mut spoken = Spoken::of(ReplayKey::turn(0).model(0), 1);
        let mut shown = String::new();
        for (attempt, offset, text) in pieces {
            if !spoken.hear(*attempt, *offset, text) {
                continue;
            }
            match spoken.news() {
                News::More(text) => shown += &text,
                News::Nothing => {}
                News::Another => shown.push('!'),
            }
        }
        shown
    }

    #[test]
    fn what_is_told_again_from_its_beginning_is_not_shown_twice() {
        assert_eq!(
            shown(&[(1, 0, "one "), (1, 4, "two "), (1, 0, "one two thr"), (1, 11, "ee")]),
            "one two three"
        );
        assert_eq!(shown(&[(1, 0, "zwö"), (1, 0, "zw"), (1, 4, "lf")]), "zwölf");
    }

    #[test]
    fn a_next_attempt_that_says_the_same_goes_on_where_the_screen_stands() {
        assert_eq!(shown(&[(1, 0, "one two"), (2, 0, "one "), (2, 4, "two three")]), "one two three");
        assert_eq!(shown(&[(1, 0, "one two"), (2, 0, "one "), (1, 7, " lost")]), "one two");
    }

    #[test]
    fn a_next_attempt_that_says_something_else_is_seen() {
        assert_eq!(shown(&[(1, 0, "one two"), (2, 0, "one fun")]), "one two!");
    }

    #[test]
    fn after_a_gap_nothing_is_shown() {
        assert_eq!(shown(&[(1, 0, "one "), (1, 8, "three"), (1, 13, " four")]), "one ");
    }
}
