//! Converts the events of a turn to the events of one of its segments.
//!
//! The result depends only on the journal. Text is sent while the model writes it, in pieces whose ends
//! depend only on the text. If the recorded reply differs from text that was already sent, that is an error,
//! because none of the APIs can retract text.
use super::leg::{CallRef, Leg};
use super::pieces;
use super::told::{ClientCall, How, Over, Told, ToolAsked, What};
use outlast_vocab::effect::{
    BatchCall, Command, ModelOutcome, Outcome, Reply, StopReason, ToolOutcome, Usage,
};
use outlast_vocab::event::{Event, Live, LiveKind};
use outlast_vocab::message::{Message, Part, ToolName, ToolResult, text_of};
use outlast_vocab::record::{Answered, Asked, ClaimRef, End, Fact, Performed, Record, Seq};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Failure, Kind, Millis, ReplayKey, TurnId};
use serde_json::Value;

/// Reads the events of one turn and returns the events of one segment.
pub(crate) struct Teller {
    leg: Leg,
    /// The tools that the client runs.
    client: Vec<ToolName>,
    /// The current segment of the turn.
    at: u32,
    items: usize,
    input: Input,
    began: Millis,
    usage: Usage,
    /// The partial reply.
    saying: Option<Saying>,
    /// The last model call with a recorded reply.
    replied: Option<ReplayKey>,
    /// The stop reason of that reply.
    stopped: Option<StopReason>,
    /// The last policy point at which a rule withheld a reply or made it wait.
    held_back: Option<ReplayKey>,
    batch: Vec<Call>,
    stops: Vec<Stop>,
}

/// The input of a turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Input {
    pub(crate) before: Vec<Message>,
    pub(crate) parts: Vec<Part>,
    pub(crate) output: Option<Value>,
    pub(crate) note: Option<Value>,
}

/// A point at which a turn waits for its client.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    pub(crate) calls: Vec<Stopped>,
}

/// A call that the turn waits for.
#[derive(Clone, Debug)]
pub(crate) struct Stopped {
    pub(crate) call: ClientCall,
    /// The key of the wait.
    pub(crate) wait: ReplayKey,
    /// The result from the client.
    pub(crate) resolution: Option<Resolution>,
}

struct Saying {
    key: ReplayKey,
    attempt: u32,
    /// The text of the reply so far.
    said: String,
    /// The text that was already sent.
    told: String,
    item: usize,
}

struct Call {
    claim: ClaimRef,
    key: ReplayKey,
    tool: ToolName,
    arguments: Value,
    /// The segment and item of a call of the agent's own tools.
    item: Option<(u32, usize)>,
}

impl Teller {
    /// Reads this segment of a turn whose client runs these tools.
    pub(crate) fn new(leg: Leg, client: Vec<ToolName>) -> Self {
        Self {
            leg,
            client,
            at: 0,
            items: 0,
            input: Input::default(),
            began: Millis(0),
            usage: Usage::default(),
            saying: None,
            replied: None,
            stopped: None,
            held_back: None,
            batch: Vec::new(),
            stops: Vec::new(),
        }
    }

    /// Returns the input of the turn.
    pub(crate) fn input(&self) -> &Input {
        &self.input
    }

    /// Returns when the segment started.
    pub(crate) fn began(&self) -> Millis {
        self.began
    }

    /// Returns the points so far at which the turn waited for its client, in order.
    pub(crate) fn stops(&self) -> &[Stop] {
        &self.stops
    }

    /// Returns whether the turn has started this segment, or can start it at once.
    pub(crate) fn has_begun(&self) -> bool {
        let answered = |stop: &Stop| stop.calls.iter().all(|call| call.resolution.is_some());
        let before = usize::try_from(self.leg.number).unwrap_or(usize::MAX);
        before == 0 || self.stops.get(before - 1).is_some_and(answered)
    }

    /// Converts an event of the turn to events of the segment.
    pub(crate) fn hear(&mut self, event: &Event) -> Result<Vec<Told>, Error> {
        let mut told = Vec::new();
        match event {
            Event::Durable(record) if record.turn == Some(self.leg.turn) => self.read(record, &mut told)?,
            Event::Live(Live { turn, what }) if *turn == self.leg.turn => self.listen(what, &mut told)?,
            Event::Durable(_) | Event::Live(_) | Event::Missed { .. } => {}
        }
        Ok(told)
    }

    fn tell(&self, told: &mut Vec<Told>, item: usize, what: What) {
        if self.at == self.leg.number {
            told.push(Told { item, what });
        }
    }

    fn next_item(&mut self) -> usize {
        self.items += 1;
        self.items - 1
    }

    fn read(&mut self, record: &Record, told: &mut Vec<Told>) -> Result<(), Error> {
        match &record.fact {
            Fact::Accepted(accepted) => {
                let outlast_vocab::record::Accepted { before, parts, output, note, .. } = accepted.clone();
                (self.input, self.began) = (Input { before, parts, output, note }, record.at);
            }
            Fact::Ruled(ruled) if ruled.holds_back() => self.held_back = Some(ruled.key.clone()),
            Fact::Performed(Performed {
                key,
                outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)),
                ..
            }) => self.reply(key, reply, told)?,
            Fact::Asked(Asked { key, command: Command::ToolBatch(batch) }) if !key.is_undo() => {
                self.batch = self.calls(key, record.seq, &batch.calls, told);
            }
            Fact::Answered(Answered { claim, outcome: Outcome::ToolCall(outcome), .. }) => {
                self.answered(*claim, outcome, told);
            }
            Fact::Parked { waits } => self.parked(waits, record.at, told),
            Fact::Resolved { key, resolution } => self.resolved(key, resolution, record.at),
            Fact::Performed(Performed { key, outcome: Outcome::AwaitEvent(resolution), .. }) => {
                self.resolved(key, resolution, record.at);
                self.completed(key, resolution, told);
            }
            Fact::Ended { end } => self.ended(end, record.at, told)?,
            _ => {}
        }
        Ok(())
    }

    /// Returns whether text is sent only when it is the final answer. If there is a schema, a reply that does
    /// not match it goes back to the model.
    fn tells_answer_alone(&self) -> bool {
        self.input.output.is_some()
    }

    /// Returns whether a rule withholds the last reply. If it is approved later, it becomes the final answer.
    fn is_held_back(&self) -> bool {
        self.held_back.is_some() && self.held_back == self.replied.as_ref().map(ReplayKey::output)
    }

    fn listen(&mut self, what: &LiveKind, told: &mut Vec<Told>) -> Result<(), Error> {
        let LiveKind::Text { key, attempt, offset, text } = what else { return Ok(()) };
        if self.tells_answer_alone() || self.replied.as_ref() == Some(key) {
            return Ok(());
        }
        let saying = match &mut self.saying {
            Some(saying) if saying.key == *key => saying,
            _ => {
                let item = self.items;
                let (key, said, told) = (key.clone(), String::new(), String::new());
                self.saying.insert(Saying { key, attempt: *attempt, said, told, item })
            }
        };
        if *attempt < saying.attempt {
            return Ok(());
        }
        if *attempt > saying.attempt || *offset == 0 {
            (saying.attempt, saying.said) = (*attempt, String::new());
        }
        // Missed text is in the record once the reply is complete.
        if *offset == saying.said.len() {
            saying.said.push_str(text);
        }
        self.speak(false, told)
    }

    /// Sends the known text of the reply that was not sent yet, up to the last complete piece.
    fn speak(&mut self, is_whole: bool, told: &mut Vec<Told>) -> Result<(), Error> {
        let Some(mut saying) = self.saying.take() else { return Ok(()) };
        let common = saying.said.len().min(saying.told.len());
        if saying.said.as_bytes()[..common] != saying.told.as_bytes()[..common]
            || (is_whole && common < saying.told.len())
        {
            return Err(retracted(self.leg.turn));
        }
        while saying.told.len() < saying.said.len()
            && let Some(end) = pieces::first(&saying.said[saying.told.len()..], is_whole)
        {
            if saying.told.is_empty() {
                saying.item = self.next_item();
                self.tell(told, saying.item, What::TextBegins);
            }
            let piece = saying.said[saying.told.len()..][..end].to_owned();
            saying.told.push_str(&piece);
            self.tell(told, saying.item, What::Text(piece));
        }
        self.saying = Some(saying);
        Ok(())
    }

    /// Handles a recorded reply. Its text replaces the live text.
    fn reply(&mut self, key: &ReplayKey, reply: &Reply, told: &mut Vec<Told>) -> Result<(), Error> {
        self.usage = self.usage + reply.usage;
        (self.replied, self.stopped) = (Some(key.clone()), Some(reply.stop));
        if self.tells_answer_alone() || self.is_held_back() {
            return Ok(());
        }
        self.whole(key, &text_of(&reply.parts), told)
    }

    fn whole(&mut self, key: &ReplayKey, text: &str, told: &mut Vec<Told>) -> Result<(), Error> {
        let heard = self.saying.take().filter(|saying| saying.key == *key);
        let fresh = || Saying {
            key: key.clone(),
            attempt: 0,
            said: String::new(),
            told: String::new(),
            item: self.items,
        };
        self.saying = Some(Saying { said: text.to_owned(), ..heard.unwrap_or_else(fresh) });
        self.speak(true, told)?;
        if let Some(saying) = self.saying.take().filter(|saying| !saying.told.is_empty()) {
            self.tell(told, saying.item, What::TextEnds(saying.told));
        }
        Ok(())
    }

    fn calls(&mut self, key: &ReplayKey, asked: Seq, batch: &[BatchCall], told: &mut Vec<Told>) -> Vec<Call> {
        let mut calls = Vec::new();
        for (index, call) in batch.iter().enumerate() {
            // Rejected calls are not shown to the client.
            let BatchCall::Run(PreparedCall { model_id, tool, arguments, .. }) = call else { continue };
            let child = u32::try_from(index).unwrap_or(u32::MAX);
            let item = (!self.client.contains(tool)).then(|| {
                let item = self.next_item();
                let asked = ToolAsked { tool: tool.clone(), arguments: arguments.clone() };
                self.tell(told, item, What::ToolBegins(asked));
                (self.at, item)
            });
            calls.push(Call {
                claim: ClaimRef { asked, child },
                key: key.child(index, model_id.as_str()),
                tool: tool.clone(),
                arguments: arguments.clone(),
                item,
            });
        }
        calls
    }

    fn answered(&self, claim: ClaimRef, outcome: &ToolOutcome, told: &mut Vec<Told>) {
        let found = self.batch.iter().find(|call| call.claim == claim);
        let Some(item) = found.and_then(|call| call.item) else { return };
        match outcome {
            ToolOutcome::Pending => {}
            ToolOutcome::Done(result) => self.tool_ends(item, result.clone(), told),
            ToolOutcome::Unknown => {
                let failure = Failure::new(Kind::ToolOutcomeUnknown, "nobody knows whether it happened");
                self.tool_ends(item, ToolResult::Err(failure), told);
            }
        }
    }

    /// Sends the result of a tool, if the turn is still in the segment that called it.
    fn tool_ends(&self, (leg, item): (u32, usize), result: ToolResult, told: &mut Vec<Told>) {
        if leg == self.at {
            self.tell(told, item, What::ToolEnds(result));
        }
    }

    /// Handles a parked turn. If it waits for new calls of its client, the segment is over.
    fn parked(&mut self, waits: &[Wait], at: Millis, told: &mut Vec<Told>) {
        let known =
            |wait: &ReplayKey| self.stops.iter().flat_map(|stop| &stop.calls).any(|call| call.wait == *wait);
        let waited_for = |call: &Call| {
            let wait = call.key.completion();
            let client = |of: &Wait| of.kind == WaitKind::ClientTool && of.key == wait;
            (waits.iter().any(client) && !known(&wait)).then_some(wait)
        };
        let stopped = |call: &Call| {
            let ClaimRef { asked, child } = call.claim;
            let (id, wait) = (CallRef { turn: self.leg.turn, asked, child }, waited_for(call)?);
            let call = ClientCall { id, tool: call.tool.clone(), arguments: call.arguments.clone() };
            Some(Stopped { call, wait, resolution: None })
        };
        let calls: Vec<Stopped> = self.batch.iter().filter_map(stopped).collect();
        if calls.is_empty() {
            return;
        }
        for stopped in &calls {
            let item = self.next_item();
            self.tell(told, item, What::Call(stopped.call.clone()));
        }
        self.finish(How::ForClient, at, told);
        self.stops.push(Stop { calls });
        (self.at, self.items, self.usage) = (self.at + 1, 0, Usage::default());
    }

    fn finish(&mut self, how: How, at: Millis, told: &mut Vec<Told>) {
        let over = Over { how, usage: self.usage, at };
        self.tell(told, self.items, What::Over(over));
    }

    fn resolved(&mut self, wait: &ReplayKey, resolution: &Resolution, at: Millis) {
        let mut calls = self.stops.iter_mut().flat_map(|stop| &mut stop.calls);
        if let Some(stopped) = calls.find(|stopped| stopped.wait == *wait && stopped.resolution.is_none()) {
            stopped.resolution = Some(resolution.clone());
            if self.at == self.leg.number {
                self.began = at;
            }
        }
    }

    /// Handles a call of one of the agent's own tools that was completed from outside.
    fn completed(&self, wait: &ReplayKey, resolution: &Resolution, told: &mut Vec<Told>) {
        let found = self.batch.iter().find(|call| call.key.completion() == *wait);
        let Some(item) = found.and_then(|call| call.item) else { return };
        let result = match resolution {
            Resolution::Ok(value) => ToolResult::Ok(value.clone()),
            Resolution::Err(failure) => ToolResult::Err(failure.clone()),
            Resolution::Timeout => {
                ToolResult::Err(Failure::new(Kind::WaitTimedOut, "nobody finished it in time"))
            }
            Resolution::Cancelled => ToolResult::Err(Failure::new(Kind::WaitCancelled, "it was called off")),
        };
        self.tool_ends(item, result, told);
    }

    fn ended(&mut self, end: &End, at: Millis, told: &mut Vec<Told>) -> Result<(), Error> {
        let untold = self.tells_answer_alone() || self.is_held_back();
        if let (End::Answered { text } | End::Refused { text }, true) = (end, untold) {
            let key = self.replied.clone().unwrap_or_else(|| ReplayKey::turn(0));
            self.whole(&key, text, told)?;
        }
        self.finish(self.how(end), at, told);
        Ok(())
    }

    fn how(&self, end: &End) -> How {
        match end {
            // A broken stream has the same error code, but no reply with this stop reason.
            End::Failed { failure }
                if failure.code == Kind::ModelCut && self.stopped == Some(StopReason::Length) =>
            {
                How::Length
            }
            end => how(end),
        }
    }
}

fn how(end: &End) -> How {
    match end {
        End::Answered { .. } => How::Answered,
        End::Refused { .. } => How::Refused,
        End::Cancelled { .. } | End::Aborted { .. } => How::Cancelled,
        End::Failed { failure } => How::Failed(failure.clone()),
        End::OutOfModelCalls { limit } => {
            let detail = format!("model_calls is limited to {limit}, and the turn has made so many");
            How::Failed(Failure::new(Kind::LimitExceeded, detail))
        }
        End::OutOfBudget { budget, why } => {
            let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            let detail = format!("not enough is left of the {budget}{why}");
            How::Failed(Failure::new(Kind::BudgetExceeded, detail))
        }
        End::Sealed { claims, alone, hung } => {
            let detail = End::sealed_because(*claims, *alone, *hung);
            How::Failed(Failure::new(Kind::TurnSealed, detail))
        }
        End::Joined { into } => {
            How::Failed(Failure::new(Kind::TurnCancelled, format!("the input joined {into}")))
        }
    }
}

/// Returns the error for a reader whose text was retracted.
pub(crate) fn retracted(turn: TurnId) -> Error {
    let detail = format!(
        "what was told of the reply in {turn} is not how it went on; throw it away and read the answer again from its beginning"
    );
    Error::new(Kind::StreamRetracted, detail)
}

#[cfg(test)]
mod tests;
