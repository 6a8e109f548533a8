//! Converts the events of a turn to the events of one of its segments.
//!
//! The result depends only on the journal. Text is sent while the model writes it, in pieces whose ends
//! depend only on the text. If the recorded reply differs from text that was already sent, that is an error,
//! because none of the APIs can retract text.
use super::response_segment::{ClientCallId, ResponseSegment};
use super::segment_event::{
    AgentToolCall, ClientCall, SegmentEnd, SegmentEvent, SegmentEventKind, SegmentOutcome,
};
use super::text_pieces;
use outlast_vocab::effect::{
    BatchCall, Command, ModelOutcome, Outcome, Reply, StopReason, ToolOutcome, Usage,
};
use outlast_vocab::event::{Event, LiveEvent, LiveEventKind};
use outlast_vocab::message::{Message, Part, ToolName, ToolResult, text_of};
use outlast_vocab::record::{
    ClaimRef, EffectAnswered, EffectPerformed, EffectRequested, Fact, Record, Seq, TurnEnd,
};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Failure, Kind, Millis, ReplayKey, TurnId};
use serde_json::Value;

/// Reads the events of one turn and returns the events of one segment.
pub(crate) struct SegmentProjector {
    segment: ResponseSegment,
    /// The tools that the client runs.
    client: Vec<ToolName>,
    /// The current segment of the turn.
    current: u32,
    items: usize,
    input: ProjectedInput,
    began: Millis,
    usage: Usage,
    /// The partial reply.
    current_reply: Option<ProjectedReply>,
    /// The last model call with a recorded reply.
    last_reply: Option<ReplayKey>,
    /// The stop reason of that reply.
    stop_reason: Option<StopReason>,
    /// The last policy point at which a rule withheld a reply or made it wait.
    withheld: Option<ReplayKey>,
    batch: Vec<ProjectedCall>,
    stops: Vec<ClientStop>,
}

/// The input of a turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProjectedInput {
    pub(crate) before: Vec<Message>,
    pub(crate) parts: Vec<Part>,
    pub(crate) output: Option<Value>,
    pub(crate) note: Option<Value>,
}

/// A point at which a turn waits for its client.
#[derive(Clone, Debug)]
pub(crate) struct ClientStop {
    pub(crate) calls: Vec<PendingClientCall>,
}

/// A call that the turn waits for.
#[derive(Clone, Debug)]
pub(crate) struct PendingClientCall {
    pub(crate) call: ClientCall,
    /// The key of the wait.
    pub(crate) wait: ReplayKey,
    /// The result from the client.
    pub(crate) resolution: Option<Resolution>,
}

struct ProjectedReply {
    key: ReplayKey,
    attempt: u32,
    /// The text of the reply so far.
    received: String,
    /// The text that was already sent.
    sent: String,
    item: usize,
}

struct ProjectedCall {
    claim: ClaimRef,
    key: ReplayKey,
    tool: ToolName,
    arguments: Value,
    /// The segment and item of a call of the agent's own tools.
    item: Option<(u32, usize)>,
}

impl SegmentProjector {
    /// Reads this segment of a turn whose client runs these tools.
    pub(crate) fn new(segment: ResponseSegment, client: Vec<ToolName>) -> Self {
        Self {
            segment,
            client,
            current: 0,
            items: 0,
            input: ProjectedInput::default(),
            began: Millis(0),
            usage: Usage::default(),
            current_reply: None,
            last_reply: None,
            stop_reason: None,
            withheld: None,
            batch: Vec::new(),
            stops: Vec::new(),
        }
    }

    /// Returns the input of the turn.
    pub(crate) fn input(&self) -> &ProjectedInput {
        &self.input
    }

    /// Returns when the segment started.
    pub(crate) fn began(&self) -> Millis {
        self.began
    }

    /// Returns the points so far at which the turn waited for its client, in order.
    pub(crate) fn stops(&self) -> &[ClientStop] {
        &self.stops
    }

    /// Returns whether the turn has started this segment, or can start it at once.
    pub(crate) fn has_begun(&self) -> bool {
        let answered = |stop: &ClientStop| stop.calls.iter().all(|call| call.resolution.is_some());
        let before = usize::try_from(self.segment.number).unwrap_or(usize::MAX);
        before == 0 || self.stops.get(before - 1).is_some_and(answered)
    }

    /// Converts an event of the turn to events of the segment.
    pub(crate) fn project(&mut self, event: &Event) -> Result<Vec<SegmentEvent>, Error> {
        let mut events = Vec::new();
        match event {
            Event::Durable(record) if record.turn == Some(self.segment.turn) => {
                self.project_record(record, &mut events)?;
            }
            Event::Live(LiveEvent { turn, what }) if *turn == self.segment.turn => {
                self.project_live(what, &mut events)?;
            }
            Event::Durable(_) | Event::Live(_) | Event::Missed { .. } => {}
        }
        Ok(events)
    }

    fn emit(&self, events: &mut Vec<SegmentEvent>, item: usize, what: SegmentEventKind) {
        if self.current == self.segment.number {
            events.push(SegmentEvent { item, kind: what });
        }
    }

    fn next_item(&mut self) -> usize {
        self.items += 1;
        self.items - 1
    }

    fn project_record(&mut self, record: &Record, events: &mut Vec<SegmentEvent>) -> Result<(), Error> {
        match &record.fact {
            Fact::Accepted(accepted) => {
                let outlast_vocab::record::TurnAccepted { before, parts, output, note, .. } =
                    accepted.clone();
                (self.input, self.began) = (ProjectedInput { before, parts, output, note }, record.at);
            }
            Fact::Ruled(ruled) if ruled.holds_back() => self.withheld = Some(ruled.key.clone()),
            Fact::Performed(EffectPerformed {
                key,
                outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)),
                ..
            }) => self.reply(key, reply, events)?,
            Fact::Asked(EffectRequested { key, command: Command::ToolBatch(batch) }) if !key.is_undo() => {
                self.batch = self.calls(key, record.seq, &batch.calls, events);
            }
            Fact::Answered(EffectAnswered { claim, outcome: Outcome::ToolCall(outcome), .. }) => {
                self.project_answer(*claim, outcome, events);
            }
            Fact::Parked { waits } => self.project_parked(waits, record.at, events),
            Fact::Resolved { key, resolution } => self.project_resolved(key, resolution, record.at),
            Fact::Performed(EffectPerformed { key, outcome: Outcome::AwaitEvent(resolution), .. }) => {
                self.project_resolved(key, resolution, record.at);
                self.project_completion(key, resolution, events);
            }
            Fact::Ended { end } => self.project_end(end, record.at, events)?,
            _ => {}
        }
        Ok(())
    }

    /// Returns whether text is sent only when it is the final answer. If there is a schema, a reply that does
    /// not match it goes back to the model.
    fn sends_only_final_answer(&self) -> bool {
        self.input.output.is_some()
    }

    /// Returns whether a rule withholds the last reply. If it is approved later, it becomes the final answer.
    fn is_withheld(&self) -> bool {
        self.withheld.is_some() && self.withheld == self.last_reply.as_ref().map(ReplayKey::output)
    }

    fn project_live(&mut self, what: &LiveEventKind, events: &mut Vec<SegmentEvent>) -> Result<(), Error> {
        let LiveEventKind::Text { key, attempt, offset, text } = what else { return Ok(()) };
        if self.sends_only_final_answer() || self.last_reply.as_ref() == Some(key) {
            return Ok(());
        }
        let reply = match &mut self.current_reply {
            Some(reply) if reply.key == *key => reply,
            _ => {
                let item = self.items;
                let key = key.clone();
                self.current_reply.insert(ProjectedReply {
                    key,
                    attempt: *attempt,
                    received: String::new(),
                    sent: String::new(),
                    item,
                })
            }
        };
        if *attempt < reply.attempt {
            return Ok(());
        }
        if *attempt > reply.attempt || *offset == 0 {
            (reply.attempt, reply.received) = (*attempt, String::new());
        }
        // Missed text is in the record once the reply is complete.
        if *offset == reply.received.len() {
            reply.received.push_str(text);
        }
        self.send_pieces(false, events)
    }

    /// Sends the known text of the reply that was not sent yet, up to the last complete piece.
    fn send_pieces(&mut self, is_whole: bool, events: &mut Vec<SegmentEvent>) -> Result<(), Error> {
        let Some(mut reply) = self.current_reply.take() else { return Ok(()) };
        let common = reply.received.len().min(reply.sent.len());
        if reply.received.as_bytes()[..common] != reply.sent.as_bytes()[..common]
            || (is_whole && common < reply.sent.len())
        {
            return Err(retracted(self.segment.turn));
        }
        while reply.sent.len() < reply.received.len()
            && let Some(end) = text_pieces::first_piece_len(&reply.received[reply.sent.len()..], is_whole)
        {
            if reply.sent.is_empty() {
                reply.item = self.next_item();
                self.emit(events, reply.item, SegmentEventKind::TextStarted);
            }
            let piece = reply.received[reply.sent.len()..][..end].to_owned();
            reply.sent.push_str(&piece);
            self.emit(events, reply.item, SegmentEventKind::Text(piece));
        }
        self.current_reply = Some(reply);
        Ok(())
    }

    /// Handles a recorded reply. Its text replaces the live text.
    fn reply(&mut self, key: &ReplayKey, reply: &Reply, events: &mut Vec<SegmentEvent>) -> Result<(), Error> {
        self.usage = self.usage + reply.usage;
        (self.last_reply, self.stop_reason) = (Some(key.clone()), Some(reply.stop));
        if self.sends_only_final_answer() || self.is_withheld() {
            return Ok(());
        }
        self.send_reply(key, &text_of(&reply.parts), events)
    }

    fn send_reply(
        &mut self,
        key: &ReplayKey,
        text: &str,
        events: &mut Vec<SegmentEvent>,
    ) -> Result<(), Error> {
        let earlier = self.current_reply.take().filter(|reply| reply.key == *key);
        let fresh = || ProjectedReply {
            key: key.clone(),
            attempt: 0,
            received: String::new(),
            sent: String::new(),
            item: self.items,
        };
        self.current_reply =
            Some(ProjectedReply { received: text.to_owned(), ..earlier.unwrap_or_else(fresh) });
        self.send_pieces(true, events)?;
        if let Some(reply) = self.current_reply.take().filter(|reply| !reply.sent.is_empty()) {
            self.emit(events, reply.item, SegmentEventKind::TextCompleted(reply.sent));
        }
        Ok(())
    }

    fn calls(
        &mut self,
        key: &ReplayKey,
        asked: Seq,
        batch: &[BatchCall],
        events: &mut Vec<SegmentEvent>,
    ) -> Vec<ProjectedCall> {
        let mut calls = Vec::new();
        for (index, call) in batch.iter().enumerate() {
            // Rejected calls are not shown to the client.
            let BatchCall::Run(PreparedCall { model_id, tool, arguments, .. }) = call else { continue };
            let child = u32::try_from(index).unwrap_or(u32::MAX);
            let item = (!self.client.contains(tool)).then(|| {
                let item = self.next_item();
                let asked = AgentToolCall { tool: tool.clone(), arguments: arguments.clone() };
                self.emit(events, item, SegmentEventKind::ToolStarted(asked));
                (self.current, item)
            });
            calls.push(ProjectedCall {
                claim: ClaimRef { asked, child },
                key: key.child(index, model_id.as_str()),
                tool: tool.clone(),
                arguments: arguments.clone(),
                item,
            });
        }
        calls
    }

    fn project_answer(&self, claim: ClaimRef, outcome: &ToolOutcome, events: &mut Vec<SegmentEvent>) {
        let found = self.batch.iter().find(|call| call.claim == claim);
        let Some(item) = found.and_then(|call| call.item) else { return };
        match outcome {
            ToolOutcome::Pending => {}
            ToolOutcome::Done(result) => self.tool_ends(item, result.clone(), events),
            ToolOutcome::Unknown => {
                let failure = Failure::new(Kind::ToolOutcomeUnknown, "the outcome is unknown");
                self.tool_ends(item, ToolResult::Err(failure), events);
            }
        }
    }

    /// Sends the result of a tool, if the turn is still in the segment that called it.
    fn tool_ends(&self, (segment, item): (u32, usize), result: ToolResult, events: &mut Vec<SegmentEvent>) {
        if segment == self.current {
            self.emit(events, item, SegmentEventKind::ToolFinished(result));
        }
    }

    /// Handles a parked turn. If it waits for new calls of its client, the segment is over.
    fn project_parked(&mut self, waits: &[Wait], at: Millis, events: &mut Vec<SegmentEvent>) {
        let known =
            |wait: &ReplayKey| self.stops.iter().flat_map(|stop| &stop.calls).any(|call| call.wait == *wait);
        let waited_for = |call: &ProjectedCall| {
            let wait = call.key.completion();
            let client = |of: &Wait| of.kind == WaitKind::ClientTool && of.key == wait;
            (waits.iter().any(client) && !known(&wait)).then_some(wait)
        };
        let stopped = |call: &ProjectedCall| {
            let ClaimRef { asked, child } = call.claim;
            let (id, wait) = (ClientCallId { turn: self.segment.turn, asked, child }, waited_for(call)?);
            let call = ClientCall { id, tool: call.tool.clone(), arguments: call.arguments.clone() };
            Some(PendingClientCall { call, wait, resolution: None })
        };
        let calls: Vec<PendingClientCall> = self.batch.iter().filter_map(stopped).collect();
        if calls.is_empty() {
            return;
        }
        for stopped in &calls {
            let item = self.next_item();
            self.emit(events, item, SegmentEventKind::Call(stopped.call.clone()));
        }
        self.finish(SegmentOutcome::ClientCalls, at, events);
        self.stops.push(ClientStop { calls });
        (self.current, self.items, self.usage) = (self.current + 1, 0, Usage::default());
    }

    fn finish(&mut self, how: SegmentOutcome, at: Millis, events: &mut Vec<SegmentEvent>) {
        let over = SegmentEnd { outcome: how, usage: self.usage, at };
        self.emit(events, self.items, SegmentEventKind::Ended(over));
    }

    fn project_resolved(&mut self, wait: &ReplayKey, resolution: &Resolution, at: Millis) {
        let mut calls = self.stops.iter_mut().flat_map(|stop| &mut stop.calls);
        if let Some(stopped) = calls.find(|stopped| stopped.wait == *wait && stopped.resolution.is_none()) {
            stopped.resolution = Some(resolution.clone());
            if self.current == self.segment.number {
                self.began = at;
            }
        }
    }

    /// Handles a call of one of the agent's own tools that was completed from outside.
    fn project_completion(&self, wait: &ReplayKey, resolution: &Resolution, events: &mut Vec<SegmentEvent>) {
        let found = self.batch.iter().find(|call| call.key.completion() == *wait);
        let Some(item) = found.and_then(|call| call.item) else { return };
        let result = match resolution {
            Resolution::Ok(value) => ToolResult::Ok(value.clone()),
            Resolution::Err(failure) => ToolResult::Err(failure.clone()),
            Resolution::Timeout => {
                ToolResult::Err(Failure::new(Kind::WaitTimedOut, "it was not completed before its deadline"))
            }
            Resolution::Cancelled => {
                ToolResult::Err(Failure::new(Kind::WaitCancelled, "the wait was cancelled"))
            }
        };
        self.tool_ends(item, result, events);
    }

    fn project_end(
        &mut self,
        end: &TurnEnd,
        at: Millis,
        events: &mut Vec<SegmentEvent>,
    ) -> Result<(), Error> {
        let unsent = self.sends_only_final_answer() || self.is_withheld();
        if let (TurnEnd::Answered { text } | TurnEnd::Refused { text }, true) = (end, unsent) {
            let key = self.last_reply.clone().unwrap_or_else(|| ReplayKey::turn(0));
            self.send_reply(&key, text, events)?;
        }
        self.finish(self.how(end), at, events);
        Ok(())
    }

    fn how(&self, end: &TurnEnd) -> SegmentOutcome {
        match end {
            // A broken stream has the same error code, but no reply with this stop reason.
            TurnEnd::Failed { failure }
                if failure.code == Kind::ModelCut && self.stop_reason == Some(StopReason::Length) =>
            {
                SegmentOutcome::Length
            }
            end => how(end),
        }
    }
}

fn how(end: &TurnEnd) -> SegmentOutcome {
    match end {
        TurnEnd::Answered { .. } => SegmentOutcome::Answered,
        TurnEnd::Refused { .. } => SegmentOutcome::Refused,
        TurnEnd::Cancelled { reason } | TurnEnd::Aborted { reason, .. } => {
            let detail = format!("the turn was cancelled: {reason}");
            SegmentOutcome::Cancelled(Failure::new(Kind::TurnCancelled, detail))
        }
        TurnEnd::Abandoned { reason } => {
            SegmentOutcome::Failed(Failure::new(Kind::TurnAbandoned, reason.as_str()))
        }
        TurnEnd::Failed { failure } => SegmentOutcome::Failed(failure.clone()),
        TurnEnd::OutOfModelCalls { limit } => {
            let detail = format!("model_calls is limited to {limit}, and the turn has used them all");
            SegmentOutcome::Failed(Failure::new(Kind::LimitExceeded, detail))
        }
        TurnEnd::OutOfBudget { budget, why } => {
            let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            let detail = format!("not enough is left of the {budget}{why}");
            SegmentOutcome::Failed(Failure::new(Kind::BudgetExceeded, detail))
        }
        TurnEnd::Sealed { claims, alone, hung } => {
            let detail = TurnEnd::sealed_because(*claims, *alone, *hung);
            SegmentOutcome::Failed(Failure::new(Kind::TurnSealed, detail))
        }
        TurnEnd::Joined { into } => {
            SegmentOutcome::Failed(Failure::new(Kind::TurnCancelled, format!("the input joined {into}")))
        }
    }
}

/// Returns the error for a reader whose text was retracted.
pub(crate) fn retracted(turn: TurnId) -> Error {
    let detail = format!(
        "the reply in {turn} was retracted after a part of it was sent; discard that part and read the response again from its beginning"
    );
    Error::new(Kind::StreamRetracted, detail)
}

#[cfg(test)]
mod tests;
