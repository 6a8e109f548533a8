//! The conversation that a model sees, and its compaction when it grows too long for the context window.
//!
//! The journal keeps every message. A compaction is a fact of the turn that needed it. Later turns see the
//! conversation as the compactions on their path left it, so the beginning of the prompt stays the same from
//! call to call and providers can cache it.
use outlast_vocab::TurnId;
use outlast_vocab::message::{CallArguments, Message, Part, ToolResult, json_size};
use outlast_vocab::record::{CompactionMethod, CompactionRecord};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

/// Results shorter than this many bytes are never left out.
const SHORT_RESULT: usize = 256;

/// Texts are never cut to fewer bytes than this.
const SHORT_TEXT: usize = 256;

/// A text is cut only if it is longer by this many bytes. The note about the rest is shorter.
const CUT_NOTE: usize = 64;

/// The messages before a turn, in the order the model reads them.
#[derive(Debug, Default)]
pub struct Conversation {
    /// Shared with model requests in progress; changed by copy-on-write.
    messages: Arc<Vec<Message>>,
    /// The turns, oldest first.
    turns: VecDeque<TurnExtent>,
    size: usize,
    /// Compactions of the turn that follows these messages.
    turn_compactions: Vec<CompactionRecord>,
}

/// The part of a conversation that one turn makes up.
#[derive(Clone, Copy, Debug)]
struct TurnExtent {
    /// The turn, or `None` for the summary of earlier turns.
    turn: Option<TurnId>,
    messages: usize,
    size: usize,
}

fn size_of(messages: &[Message]) -> usize {
    messages.iter().map(Message::size).sum()
}

impl Conversation {
    /// Appends a turn, as its own compactions left it.
    pub fn push(&mut self, turn: TurnId, messages: Vec<Message>) {
        let messages = match self.shown(&messages) {
            Cow::Borrowed(_) => messages,
            Cow::Owned(shorter) => shorter,
        };
        self.turn_compactions.clear();
        let size = size_of(&messages);
        self.turns.push_back(TurnExtent { turn: Some(turn), messages: messages.len(), size });
        self.size += size;
        Arc::make_mut(&mut self.messages).extend(messages);
    }

    /// Applies a compaction that the following turn recorded.
    pub fn compact(&mut self, compacted: CompactionRecord) {
        let covered = compacted.through.and_then(|through| {
            self.turns.iter().position(|extent| extent.turn == Some(through)).map(|index| index + 1)
        });
        let covered = covered.unwrap_or(0);
        match &compacted.shorter {
            CompactionMethod::Results => self.shorten_each(covered, omit_result),
            CompactionMethod::Summary { text, .. } => self.replace_with_summary(covered, text),
            CompactionMethod::Texts { most } => {
                let most = text_bytes(*most);
                self.shorten_each(covered, |message| cut_texts(message, most));
            }
        }
        self.turn_compactions.push(compacted);
    }

    /// Shortens each message of the first turns.
    fn shorten_each(&mut self, covered: usize, shorten: impl FnMut(&mut Message)) {
        let messages: usize = self.turns.iter().take(covered).map(|extent| extent.messages).sum();
        let all = Arc::make_mut(&mut self.messages);
        all[..messages].iter_mut().for_each(shorten);
        let mut first = 0;
        for extent in self.turns.iter_mut().take(covered) {
            let end = first + extent.messages;
            extent.size = size_of(&all[first..end]);
            first = end;
        }
        self.size = self.turns.iter().map(|extent| extent.size).sum();
    }

    /// Replaces the first turns, and an earlier summary if there is one, with a summary.
    fn replace_with_summary(&mut self, covered: usize, summary: &str) {
        let stale = self.turns.front().is_some_and(|extent| extent.turn.is_none());
        self.drop_turns(covered.max(usize::from(stale)));
        let message = summary_message(summary);
        let size = message.size();
        self.turns.push_front(TurnExtent { turn: None, messages: 1, size });
        self.size += size;
        Arc::make_mut(&mut self.messages).insert(0, message);
    }

    fn drop_turns(&mut self, count: usize) {
        let mut dropped = 0;
        for _ in 0..count {
            let Some(extent) = self.turns.pop_front() else { break };
            dropped += extent.messages;
            self.size -= extent.size;
        }
        if dropped > 0 {
            Arc::make_mut(&mut self.messages).drain(..dropped);
        }
    }

    /// Drops the oldest turns when no summary can be made, down to the size that a summary would leave. The
    /// next summary is requested once the conversation has grown by as much again, and not with every model
    /// call.
    pub fn drop_oldest_turns(&mut self, turn: &[Message], need: WindowDemand) {
        let here = size_of(&self.shown(turn));
        self.drop_until_fits((need.window / 10 * 6).saturating_sub(need.overhead_bytes + here));
    }

    /// Drops the oldest turns until the rest fits, but never the last one.
    fn drop_until_fits(&mut self, bytes: usize) {
        let (mut size, mut count) = (self.size, 0);
        while size > bytes && self.turns.len() - count > 1 {
            size -= self.turns[count].size;
            count += 1;
        }
        self.drop_turns(count);
    }

    /// Returns the messages.
    pub fn messages(&self) -> &Arc<Vec<Message>> {
        &self.messages
    }

    /// Returns the approximate number of bytes that a model reads for these messages.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns whether the following turn was compacted.
    pub fn is_compacted_here(&self) -> bool {
        !self.turn_compactions.is_empty()
    }

    /// Returns the number of compactions of the following turn.
    pub fn compactions(&self) -> u32 {
        u32::try_from(self.turn_compactions.len()).unwrap_or(u32::MAX)
    }

    /// Returns the messages of the following turn, as its compactions left them.
    pub fn shown<'m>(&self, turn: &'m [Message]) -> Cow<'m, [Message]> {
        let mut shown = Cow::Borrowed(turn);
        let mut dropped = 0;
        for CompactionRecord { here, shorter, .. } in &self.turn_compactions {
            let covered =
                usize::try_from(*here).unwrap_or(usize::MAX).min(turn.len()).saturating_sub(dropped);
            if covered <= 1 {
                continue;
            }
            match shorter {
                CompactionMethod::Results => shown.to_mut()[..covered].iter_mut().for_each(omit_result),
                // A summary never replaces the turn's input.
                CompactionMethod::Summary { .. } => {
                    shown.to_mut().drain(1..covered);
                    dropped += covered - 1;
                }
                CompactionMethod::Texts { most } => {
                    let most = text_bytes(*most);
                    shorten_turn(&mut shown.to_mut()[..covered], |message| cut_texts(message, most));
                }
            }
        }
        shown
    }

    /// Returns the approximate number of bytes that a model reads for the conversation, with this turn.
    pub fn size_with(&self, turn: &[Message]) -> usize {
        self.size + size_of(&self.shown(turn))
    }

    /// Plans a compaction so that the conversation, this turn and the rest of the prompt fit the window.
    /// Returns `None` if they fit already, or if nothing can be left out.
    pub fn plan(&self, turn: &[Message], need: WindowDemand) -> Option<CompactionPlan> {
        let shown = self.shown(turn);
        let total = need.overhead_bytes + self.size + size_of(&shown);
        let input = newest_input(&shown).map_or(0, |input| shown[input].size());
        // No text is so dense that an input of twice the window fits, so a summary would be wasted.
        let is_hopeless = need.overhead_bytes + input > need.model_window.saturating_mul(2);
        if total <= need.window / 10 * 8 || is_hopeless {
            return None;
        }
        let older = self.plan_older(turn, &shown, need);
        older.or_else(|| if total > need.window { self.plan_texts(turn, &shown, need) } else { None })
    }

    /// Plans to omit results of older messages, or to summarise these messages.
    fn plan_older(&self, turn: &[Message], shown: &[Message], need: WindowDemand) -> Option<CompactionPlan> {
        // The most recent messages stay as they are: about a third of the window, and at least one exchange.
        let mut remaining = need.window / 10 * 3;
        let hidden = turn.len() - shown.len();
        let (input, since) = shown.split_at(1.min(shown.len()));
        remaining = remaining.saturating_sub(size_of(input));
        let cut_here = since.len() - tail_that_fits(since, &mut remaining);
        let mut kept_turns = 0;
        if cut_here == 0 {
            for extent in self.turns.iter().rev() {
                if extent.size > remaining {
                    break;
                }
                remaining -= extent.size;
                kept_turns += 1;
            }
        }
        let covered = self.turns.len() - kept_turns;
        let through = self.turns.iter().take(covered).filter_map(|extent| extent.turn).next_back();
        let here = if cut_here == 0 { 0 } else { count(hidden + 1 + cut_here) };
        if through.is_none() && here == 0 {
            return None;
        }
        let messages: usize = self.turns.iter().take(covered).map(|extent| extent.messages).sum();
        let older = self.messages[..messages].iter().chain(&since[..cut_here]);
        let saved: usize = older.clone().map(saving).sum();
        let total = need.overhead_bytes + self.size + size_of(shown);
        let method = if saved > 0 && total - saved <= need.window / 10 * 6 {
            PlannedMethod::Results
        } else if need.can_summarise {
            PlannedMethod::Summary(older.cloned().collect())
        } else {
            return None;
        };
        Some(CompactionPlan { last_turn: through, turn_messages: here, method })
    }

    /// Plans to cut every text, except the newest input, so that the request fits. Texts are cut as little as
    /// possible.
    fn plan_texts(&self, turn: &[Message], shown: &[Message], need: WindowDemand) -> Option<CompactionPlan> {
        let total = self.size + size_of(shown);
        let size_after = |most: usize| {
            let mut shown = shown.to_vec();
            shorten_turn(&mut shown, |message| cut_texts(message, most));
            size_of(&shown) + self.messages.iter().map(|message| size_after_cut(message, most)).sum::<usize>()
        };
        let room = (need.window / 10 * 6).saturating_sub(need.overhead_bytes);
        let mut most = (need.window / 2).max(SHORT_TEXT);
        while most > SHORT_TEXT && size_after(most) > room {
            most = (most / 2).max(SHORT_TEXT);
        }
        let last_turn = self.turns.iter().filter_map(|extent| extent.turn).next_back();
        let method = PlannedMethod::Texts { most: count(most) };
        let plan = CompactionPlan { last_turn, turn_messages: count(turn.len()), method };
        (size_after(most) < total).then_some(plan)
    }
}

/// What has to fit into a model's context window.
#[derive(Clone, Copy, Debug)]
pub struct WindowDemand {
    /// The bytes that the request may have, without the reply.
    pub window: usize,
    /// The size of the model's context window, in bytes.
    pub model_window: usize,
    /// Bytes the model reads in addition to the conversation: the system prompt and its tools.
    pub overhead_bytes: usize,
    /// Whether the model can write summaries.
    pub can_summarise: bool,
}

/// A planned compaction.
#[derive(Debug, PartialEq, Eq)]
pub struct CompactionPlan {
    /// The last earlier turn that is compacted.
    pub last_turn: Option<TurnId>,
    /// The number of messages of this turn that are compacted.
    pub turn_messages: u32,
    /// How the messages become shorter.
    pub method: PlannedMethod,
}

/// The method of a planned compaction.
#[derive(Debug, PartialEq, Eq)]
pub enum PlannedMethod {
    /// Leave out long tool results.
    Results,
    /// Replace these messages with a summary.
    Summary(Vec<Message>),
    /// Cut texts after this many bytes.
    Texts {
        /// The most bytes of a text that stay.
        most: u32,
    },
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn text_bytes(most: u32) -> usize {
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// Returns how many of the last messages fit into the room. A call is never separated from its result, and
/// the last exchange stays whatever its size.
fn tail_that_fits(messages: &[Message], remaining: &mut usize) -> usize {
    let mut kept_bytes = 0;
    let mut end = messages.len();
    while end > 0 {
        // A group begins with a message that is not a result: an input, or a reply and the results that
        // follow it.
        let start =
            messages[..end].iter().rposition(|message| !matches!(message, Message::Tool { .. })).unwrap_or(0);
        let size = size_of(&messages[start..end]);
        if size > *remaining && kept_bytes > 0 {
            break;
        }
        *remaining = remaining.saturating_sub(size);
        kept_bytes = messages.len() - start;
        end = start;
    }
    kept_bytes
}

/// Returns the bytes saved by leaving out the result of a message.
fn saving(message: &Message) -> usize {
    if !matches!(message, Message::Tool { result: ToolResult::Ok(value), .. } if is_long(value)) {
        return 0;
    }
    let mut shorter = message.clone();
    omit_result(&mut shorter);
    message.size().saturating_sub(shorter.size())
}

/// Returns whether leaving a result out saves anything.
fn is_long(result: &Value) -> bool {
    json_size(result) > SHORT_RESULT
}

/// Leaves out a long result. The id of its attachment stays, so that the model can read it again.
fn omit_result(message: &mut Message) {
    let Message::Tool { result: ToolResult::Ok(value), .. } = message else { return };
    if !is_long(value) {
        return;
    }
    let bytes = json_size(value);
    let attachment = value.get("attachment").filter(|id| id.is_string()).cloned();
    *value = match attachment {
        Some(id) => json!({ "left_out": bytes, "attachment": id }),
        None => Value::String(format!("[a result of about {bytes} bytes was left out to make room]")),
    };
}

/// Returns the index of the newest input of a turn.
fn newest_input(turn: &[Message]) -> Option<usize> {
    turn.iter().rposition(|message| matches!(message, Message::User { .. }))
}

/// Shortens the messages of a turn, except its newest input.
fn shorten_turn(turn: &mut [Message], mut shorten: impl FnMut(&mut Message)) {
    let input = newest_input(turn);
    for (index, message) in turn.iter_mut().enumerate() {
        if Some(index) != input {
            shorten(message);
        }
    }
}

/// Cuts the texts of a message after `most` bytes, and leaves out its attachments.
fn cut_texts(message: &mut Message, most: usize) {
    match message {
        Message::User { parts } => cut_parts(parts, most),
        Message::Assistant { parts, calls } => {
            cut_parts(parts, most);
            for call in calls {
                match &mut call.arguments {
                    CallArguments::Json(arguments) => cut_strings(arguments, most),
                    CallArguments::Broken(text) => cut_text(text, most),
                }
            }
        }
        Message::Tool { result: ToolResult::Err(failure), .. } => cut_text(&mut failure.detail, most),
        Message::Tool { result: ToolResult::Ok(value), .. } => cut_result(value, most),
    }
}

fn cut_parts(parts: &mut [Part], most: usize) {
    for part in parts {
        cut_part(part, most);
    }
}

fn cut_part(part: &mut Part, most: usize) {
    match part {
        Part::Text { text } | Part::Instruction { text } => cut_text(text, most),
        Part::Link { link } => *part = Part::text(format!("[{} was left out to make room]", link.url)),
        Part::Attachment { attachment } => {
            let name = attachment.name.as_deref().unwrap_or("an attachment");
            *part = Part::text(format!(
                "[{name} ({}) was left out to make room]",
                attachment.media_type.as_str()
            ));
        }
        // A provider rejects reasoning that was changed.
        Part::Reasoning { .. } | Part::Sealed { .. } => {}
    }
}

/// Cuts a result. The id of its attachment stays, so that the model can read it again.
fn cut_result(value: &mut Value, most: usize) {
    if json_size(value) <= most + CUT_NOTE {
        return;
    }
    let has_attachment = value.get("attachment").is_some_and(Value::is_string);
    if has_attachment || value.is_string() {
        cut_strings(value, most);
    } else {
        let mut text = value.to_string();
        cut_text(&mut text, most);
        *value = Value::String(text);
    }
}

fn cut_strings(value: &mut Value, most: usize) {
    match value {
        Value::String(text) => cut_text(text, most),
        Value::Array(items) => {
            for item in items {
                cut_strings(item, most);
            }
        }
        Value::Object(members) => {
            for member in members.values_mut() {
                cut_strings(member, most);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn cut_text(text: &mut String, most: usize) {
    if text.len() > most + CUT_NOTE {
        let left_out = text.len() - most;
        text.truncate(text.floor_char_boundary(most));
        write!(text, "\n[about {left_out} more bytes were left out]").expect("a String takes every write");
    }
}

/// Returns the size of a message after its texts are cut.
fn size_after_cut(message: &Message, most: usize) -> usize {
    let mut shorter = Cow::Borrowed(message);
    // An attachment counts nothing, so only a long message changes its size.
    if message.size() > most {
        cut_texts(shorter.to_mut(), most);
    }
    shorter.size()
}

fn summary_message(summary: &str) -> Message {
    Message::user(format!("[What was said before, in short]\n{summary}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::ReplayKey;
    use outlast_vocab::effect::Usage;
    use outlast_vocab::message::{CallArguments, Part, ToolUse};

    fn turn(number: u128) -> TurnId {
        TurnId::from_u128(number)
    }

    fn say(text: &str) -> Message {
        Message::Assistant { parts: vec![Part::text(text)], calls: vec![] }
    }

    /// A tool call and its result of `bytes` bytes.
    fn call(bytes: usize) -> [Message; 2] {
        let ask = ToolUse::new("c".parse().unwrap(), "read".parse().unwrap(), CallArguments::Json(json!({})));
        let result = ToolResult::Ok(Value::String("x".repeat(bytes)));
        [
            Message::Assistant { parts: vec![], calls: vec![ask.clone()] },
            Message::Tool { call: ask.id, tool: ask.tool, result },
        ]
    }

    fn exchange(text: &str, bytes: usize) -> Vec<Message> {
        let [ask, result] = call(bytes);
        vec![Message::user(text), ask, result, say("done")]
    }

    fn compacted(plan: &CompactionPlan, summary: &str) -> CompactionRecord {
        let shorter = match &plan.method {
            PlannedMethod::Summary(_) => CompactionMethod::Summary {
                text: summary.to_owned(),
                usage: Usage::default(),
                cost: None,
                estimate: None,
            },
            PlannedMethod::Results => CompactionMethod::Results,
            PlannedMethod::Texts { most } => CompactionMethod::Texts { most: *most },
        };
        CompactionRecord {
            key: ReplayKey::turn(9).compact(0),
            through: plan.last_turn,
            here: plan.turn_messages,
            shorter,
        }
    }

    fn to_summarise(plan: &CompactionPlan) -> &[Message] {
        let PlannedMethod::Summary(messages) = &plan.method else { panic!("{plan:?}") };
        messages
    }

    fn texts(messages: &[Message]) -> Vec<String> {
        messages.iter().map(|message| message.text().chars().take(40).collect()).collect()
    }

    fn need(window: usize) -> WindowDemand {
        WindowDemand { window, model_window: window, overhead_bytes: 0, can_summarise: true }
    }

    #[test]
    fn fitting_conversation_is_not_compacted() {
        let mut conversation = Conversation::default();
        conversation.push(turn(1), exchange("one", 100));
        assert_eq!(conversation.plan(&[Message::user("two")], need(10_000)), None);
    }

    #[test]
    fn compaction_drops_tool_results_before_recent_messages() {
        let mut conversation = Conversation::default();
        conversation.push(turn(1), exchange("one", 5_000));
        conversation.push(turn(2), exchange("two", 2_000));
        let now = [Message::user("three")];
        let plan = conversation.plan(&now, need(8_000)).unwrap();
        assert_eq!(
            plan,
            CompactionPlan { last_turn: Some(turn(1)), turn_messages: 0, method: PlannedMethod::Results }
        );
        conversation.compact(compacted(&plan, ""));
        assert_eq!(
            texts(conversation.messages()),
            [
                "one",
                "",
                "[a result of about 5002 bytes was left o",
                "done",
                "two",
                "",
                &"x".repeat(40),
                "done"
            ]
        );
        assert_eq!(conversation.size(), size_of(conversation.messages()));
        assert_eq!(conversation.plan(&now, need(8_000)), None);
    }

    #[test]
    fn summary_replaces_long_text_and_earlier_summary() {
        let mut conversation = Conversation::default();
        for number in 1..=4 {
            conversation.push(turn(number), vec![Message::user(number.to_string()), say(&"y".repeat(2_000))]);
        }
        let plan = conversation.plan(&[], need(9_000)).unwrap();
        assert_eq!((plan.last_turn, plan.turn_messages), (Some(turn(3)), 0));
        assert_eq!(texts(to_summarise(&plan)).len(), 6);
        conversation.compact(compacted(&plan, "one to three"));
        let begins = |conversation: &Conversation| conversation.messages()[0].text().into_owned();
        assert_eq!(begins(&conversation), "[What was said before, in short]\none to three");
        assert_eq!(conversation.messages().len(), 3);
        for number in 5..=7 {
            conversation.push(turn(number), vec![Message::user(number.to_string()), say(&"y".repeat(2_000))]);
        }
        let plan = conversation.plan(&[], need(9_000)).unwrap();
        assert_eq!(texts(to_summarise(&plan))[0], "[What was said before, in short]\none to ");
        conversation.compact(compacted(&plan, "one to six"));
        assert_eq!(begins(&conversation), "[What was said before, in short]\none to six");
        assert_eq!(conversation.messages().len(), 3);
    }

    #[test]
    fn compaction_of_running_turn_keeps_call_result_pairs() {
        let mut conversation = Conversation::default();
        conversation.push(turn(1), vec![Message::user("before"), say("yes")]);
        let mut now = vec![Message::user("go")];
        for _ in 0..10 {
            now.extend(call(1_000));
        }
        let plan = conversation.plan(&now, need(10_000)).unwrap();
        assert_eq!((plan.last_turn, &plan.method), (Some(turn(1)), &PlannedMethod::Results));
        // The first message that stays whole is a reply, not a result.
        assert!(matches!(now[plan.turn_messages as usize], Message::Assistant { .. }));
        conversation.compact(compacted(&plan, ""));
        let shown = conversation.shown(&now);
        assert_eq!(shown.len(), now.len());
        assert!(size_of(&shown) < 6_000);
        assert_eq!(shown.last(), now.last());
        // Later turns see this turn in its compacted form.
        let short = shown.into_owned();
        conversation.push(turn(2), now);
        assert_eq!(conversation.messages()[2..], short);
    }

    #[test]
    fn oversized_turn_without_results_begins_with_summary() {
        let mut conversation = Conversation::default();
        let mut now = vec![Message::user("go")];
        for number in 0..10 {
            now.push(say(&format!("{number} {}", "y".repeat(1_000))));
            now.push(Message::user("on"));
        }
        let plan = conversation.plan(&now, need(8_000)).unwrap();
        assert!(plan.turn_messages > 10 && plan.last_turn.is_none());
        conversation.compact(compacted(&plan, "nine times on"));
        let shown = conversation.shown(&now);
        assert_eq!((shown.len(), shown[0].text().as_ref()), (6, "go"));
        assert_eq!(texts(conversation.messages()), ["[What was said before, in short]\nnine ti"]);
        assert_eq!(conversation.plan(&now, need(8_000)), None);
    }

    #[test]
    fn attached_result_stays_readable_after_compaction() {
        let mut message = call(0)[1].clone();
        if let Message::Tool { result, .. } = &mut message {
            *result = ToolResult::Ok(
                json!({ "beginning": "z".repeat(2_000), "attachment": "att_1", "bytes": 9_000 }),
            );
        }
        omit_result(&mut message);
        assert_eq!(message.text(), r#"{"attachment":"att_1","left_out":2052}"#);
    }

    #[test]
    fn uncompactable_conversation_reaches_model_unchanged() {
        let conversation = Conversation::default();
        assert_eq!(conversation.plan(&[Message::user("x".repeat(9_000))], need(8_000)), None);
    }

    #[test]
    fn oversized_input_is_cut_in_later_turns_only() {
        let mut conversation = Conversation::default();
        conversation.push(turn(1), vec![Message::user("before"), say("yes")]);
        let input = [Message::user("ä".repeat(10_000))];
        // Nothing makes the input fit, so nothing else is left out for it.
        assert_eq!(conversation.plan(&input, need(4_000)), None);
        conversation.push(turn(2), input.to_vec());
        let now = [Message::user("hi")];
        let without = WindowDemand { can_summarise: false, ..need(4_000) };
        let plan = conversation.plan(&now, without).unwrap();
        let method = PlannedMethod::Texts { most: 2_000 };
        assert_eq!(plan, CompactionPlan { last_turn: Some(turn(2)), turn_messages: 1, method });
        conversation.compact(compacted(&plan, ""));
        let shown = conversation.messages();
        assert_eq!((&shown[0], &shown[1]), (&Message::user("before"), &say("yes")));
        let cut = format!("{}\n[about 18000 more bytes were left out]", "ä".repeat(1_000));
        assert_eq!(shown[2], Message::user(cut));
        assert_eq!((conversation.shown(&now).as_ref(), conversation.plan(&now, without)), (&now[..], None));
    }

    #[test]
    fn long_last_exchange_is_cut_but_input_stays() {
        let mut conversation = Conversation::default();
        let input = Message::user("x".repeat(1_500));
        let long = json!({ "rows": ["z".repeat(9_000)] });
        let ask =
            ToolUse::new("c".parse().unwrap(), "read".parse().unwrap(), CallArguments::Json(long.clone()));
        let result =
            Message::Tool { call: ask.id.clone(), tool: ask.tool.clone(), result: ToolResult::Ok(long) };
        let now = vec![input.clone(), Message::Assistant { parts: vec![], calls: vec![ask] }, result];
        let plan = conversation.plan(&now, need(6_000)).unwrap();
        let method = PlannedMethod::Texts { most: 750 };
        assert_eq!(plan, CompactionPlan { last_turn: None, turn_messages: 3, method });
        conversation.compact(compacted(&plan, ""));
        let shown = conversation.shown(&now).into_owned();
        assert_eq!((shown.len(), &shown[0]), (3, &input));
        assert!(size_of(&shown) <= 3_600, "{}", size_of(&shown));
        assert!(
            shown[2].text().starts_with(r#"{"rows":["zz"#)
                && shown[2].text().ends_with("bytes were left out]")
        );
        assert_eq!(conversation.plan(&now, need(6_000)), None);
        // Later turns see this turn in its compacted form.
        conversation.push(turn(1), now);
        assert_eq!(conversation.messages().as_slice(), shown);
    }

    #[test]
    fn dropping_turns_leaves_room_for_next_call() {
        let mut conversation = Conversation::default();
        for number in 1..=8 {
            conversation.push(turn(number), vec![Message::user(number.to_string()), say(&"y".repeat(1_000))]);
        }
        let now = [Message::user("go"), say(&"z".repeat(1_000))];
        assert!(
            conversation
                .plan(&now, need(10_000))
                .is_some_and(|plan| matches!(plan.method, PlannedMethod::Summary(_)))
        );
        conversation.drop_oldest_turns(&now, need(10_000));
        assert_eq!(conversation.messages().len(), 2 * 4);
        let grown = [&now[..], &[say(&"z".repeat(1_500))]].concat();
        assert_eq!(conversation.plan(&grown, need(10_000)), None);
    }

    #[test]
    fn oldest_turns_are_dropped_but_last_stays() {
        let mut conversation = Conversation::default();
        conversation.push(turn(1), vec![Message::user("12345")]);
        conversation.push(turn(2), vec![Message::user("1234"), Message::user("5")]);
        conversation.drop_until_fits(2 * Message::user("1234").size());
        assert_eq!(conversation.messages().as_slice(), [Message::user("1234"), Message::user("5")]);
        conversation.drop_until_fits(1);
        assert_eq!(conversation.messages().len(), 2);
    }
}
