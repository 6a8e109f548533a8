//! Segment events of turns, from handwritten journals.
use super::*;
use outlast_vocab::Hash;
use outlast_vocab::effect::{StopReason, ToolBatch};
use outlast_vocab::message::{CallArguments, ModelCallId, ToolUse};
use outlast_vocab::record::TurnAccepted;
use serde_json::json;

const TURN: TurnId = TurnId::from_u128(1);

/// Builds the events of a turn.
#[derive(Default)]
struct Journal {
    seq: u64,
    events: Vec<Event>,
}

impl Journal {
    fn new(output: Option<&Value>) -> Self {
        let accepted: TurnAccepted =
            serde_json::from_value(json!({"parts": [{"type": "text", "text": "hi"}], "output": output}))
                .unwrap();
        Self::default().fact(Fact::Accepted(accepted))
    }

    fn fact(mut self, fact: Fact) -> Self {
        self.seq += 1;
        let (seq, at) = (Seq(self.seq), Millis(self.seq * 1_000));
        self.events.push(Event::Durable(Box::new(Record {
            seq,
            turn: Some(TURN),
            at,
            hash: Hash::ZERO,
            fact,
        })));
        self
    }

    fn live(mut self, call: u32, attempt: u32, offset: usize, text: &str) -> Self {
        let (key, text) = (ReplayKey::turn(0).model(call), text.to_owned());
        let what = LiveEventKind::Text { key, attempt, offset, text };
        self.events.push(Event::Live(LiveEvent { turn: TURN, what }));
        self
    }

    fn reply(self, call: u32, text: &str, tools: &[&str]) -> Self {
        let parts = if text.is_empty() { Vec::new() } else { vec![Part::text(text)] };
        let stop = if tools.is_empty() { StopReason::End } else { StopReason::ToolUse };
        let usage = Usage { input: 1, output: 2, ..Usage::default() };
        let calls = tools.iter().map(|tool| tool_use(tool)).collect();
        let (cost, estimate, stop_sequence) = (None, None, None);
        let reply = Reply { parts, calls, stop, stop_sequence, usage, cost, estimate, attempt: 1 };
        let command: Command =
            serde_json::from_value(json!({"model_call": {"model": "a/b", "tools": Hash::ZERO}})).unwrap();
        let outcome = Outcome::ModelCall(ModelOutcome::Reply(reply));
        self.fact(Fact::Performed(EffectPerformed::new(ReplayKey::turn(0).model(call), command, outcome)))
    }

    /// A reply that the token limit cut off.
    fn short_reply(self, call: u32, text: &str) -> Self {
        let mut journal = self.reply(call, text, &[]);
        let Some(Event::Durable(record)) = journal.events.last_mut() else { unreachable!("it was written") };
        let Fact::Performed(EffectPerformed {
            outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)), ..
        }) = &mut record.fact
        else {
            unreachable!("it is a reply")
        };
        reply.stop = StopReason::Length;
        journal
    }

    fn cut(self) -> Self {
        self.fact(Fact::Ended { end: TurnEnd::Failed { failure: Failure::new(Kind::ModelCut, "cut") } })
    }

    fn batch(self, call: u32, tools: &[&str]) -> Self {
        let run = |tool: &&str| {
            BatchCall::Run(
                serde_json::from_value(json!({
                    "id": outlast_vocab::CallId::from_u128(7), "model_id": tool, "tool": tool, "class": "pure",
                    "arguments": {"of": tool},
                }))
                .unwrap(),
            )
        };
        let command = ToolBatch { calls: tools.iter().map(run).collect() }.into();
        self.fact(Fact::Asked(EffectRequested { key: ReplayKey::turn(0).tools(call), command }))
    }

    fn answered(self, asked: u64, child: u32, outcome: ToolOutcome) -> Self {
        let claim = ClaimRef { asked: Seq(asked), child };
        self.fact(Fact::Answered(EffectAnswered { claim, outcome: outcome.into(), cost: None }))
    }

    fn ended(self, text: &str) -> Self {
        self.fact(Fact::Ended { end: TurnEnd::Answered { text: text.to_owned() } })
    }

    fn segment_events(&self, segment: u32) -> Result<Vec<SegmentEvent>, Kind> {
        let mut projector = SegmentProjector::new(
            ResponseSegment { turn: TURN, number: segment },
            vec!["mine".parse().unwrap()],
        );
        let mut events = Vec::new();
        for event in &self.events {
            events.extend(projector.project(event).map_err(|error| error.kind())?);
        }
        Ok(events)
    }

    /// Removes the live events.
    fn durable(mut self) -> Self {
        self.events.retain(|event| matches!(event, Event::Durable(_)));
        self
    }
}

fn tool_use(tool: &str) -> ToolUse {
    let id = ModelCallId::try_from(tool.to_owned()).unwrap();
    ToolUse::new(id, tool.parse().unwrap(), CallArguments::Json(json!({"of": tool})))
}

fn words(events: &[SegmentEvent]) -> Vec<String> {
    let word = |event: &SegmentEvent| match &event.kind {
        SegmentEventKind::TextStarted => format!("{} begins", event.item),
        SegmentEventKind::Text(piece) => format!("{} {piece:?}", event.item),
        SegmentEventKind::TextCompleted(text) => format!("{} ends {text:?}", event.item),
        SegmentEventKind::ToolStarted(asked) => format!("{} runs {}", event.item, asked.tool),
        SegmentEventKind::ToolFinished(result) => format!("{} gave {}", event.item, result.text()),
        SegmentEventKind::Call(call) => format!("{} call {} {}", event.item, call.tool, call.arguments),
        SegmentEventKind::Ended(over) => {
            format!("{:?} {}+{}", over.outcome, over.usage.input, over.usage.output)
        }
    };
    events.iter().map(word).collect()
}

#[test]
fn live_output_equals_journal_output() {
    let journal = Journal::new(None)
        .live(0, 1, 0, "Let me ")
        .live(0, 1, 7, "se")
        .reply(0, "Let me see.", &["theirs"])
        .batch(0, &["theirs"])
        .answered(3, 0, ToolOutcome::Done(ToolResult::Ok(json!(42))))
        .live(1, 1, 0, "Forty ")
        .live(1, 1, 6, "two.")
        .reply(1, "Forty two.", &[])
        .ended("Forty two.");
    let live = journal.segment_events(0).unwrap();
    assert_eq!(
        words(&live),
        [
            "0 begins",
            "0 \"Let \"",
            "0 \"me \"",
            "0 \"see.\"",
            "0 ends \"Let me see.\"",
            "1 runs theirs",
            "1 gave 42",
            "2 begins",
            "2 \"Forty \"",
            "2 \"two.\"",
            "2 ends \"Forty two.\"",
            "Answered 2+4",
        ]
    );
    assert_eq!(journal.durable().segment_events(0).unwrap(), live);
}

#[test]
fn retry_continues_text_with_equal_prefix_or_fails() {
    let first = || Journal::new(None).live(0, 1, 0, "one two ").live(0, 1, 8, "three ");
    let same = first().live(0, 6, 0, "one two three four").reply(0, "one two three four", &[]).ended("x");
    assert_eq!(same.segment_events(0), same.durable().segment_events(0));
    let other = first().live(0, 6, 0, "one too many ").reply(0, "one too many", &[]).ended("x");
    assert_eq!(other.segment_events(0), Err(Kind::StreamRetracted));
    assert!(other.durable().segment_events(0).is_ok());
    let shorter = first().reply(0, "one", &[]).ended("one");
    assert_eq!(shorter.segment_events(0), Err(Kind::StreamRetracted));
}

#[test]
fn broken_stream_is_not_reported_as_length_limit() {
    let end = |journal: Journal| words(&journal.segment_events(0).unwrap()).pop().unwrap();
    assert_eq!(end(Journal::new(None).short_reply(0, "one two").cut()), "Length 1+2");
    let failed = "Failed(Failure { code: ModelCut, detail: \"cut\", policy: None })";
    assert_eq!(end(Journal::new(None).live(0, 1, 0, "one two ").cut()), format!("{failed} 0+0"));
    let after_a_tool = Journal::new(None).reply(0, "", &["theirs"]).batch(0, &["theirs"]).cut();
    assert_eq!(end(after_a_tool), format!("{failed} 1+2"));
}

#[test]
fn missed_frames_are_restored_from_the_record() {
    let journal =
        Journal::new(None).live(0, 1, 0, "one ").live(0, 1, 8, "three ").reply(0, "one two three", &[]);
    assert_eq!(words(&journal.segment_events(0).unwrap())[1..4], ["0 \"one \"", "0 \"two \"", "0 \"three\""]);
}

#[test]
fn client_calls_end_segment_and_results_begin_next() {
    let key = ReplayKey::turn(0).tools(0).child(0, "mine").completion();
    let journal = Journal::new(None)
        .reply(0, "", &["mine", "theirs"])
        .batch(0, &["mine", "theirs"])
        .answered(3, 0, ToolOutcome::Pending)
        .answered(3, 1, ToolOutcome::Done(ToolResult::Ok(json!("ok"))));
    let wait = Wait { key: key.clone(), kind: WaitKind::ClientTool, deadline: None };
    let parked = || Fact::Parked { waits: vec![wait.clone()] };
    let journal = journal.fact(parked()).fact(parked());
    assert_eq!(
        words(&journal.segment_events(0).unwrap()),
        ["0 runs theirs", "0 gave ok", "1 call mine {\"of\":\"mine\"}", "ClientCalls 1+2"]
    );
    let has_begun = |journal: &Journal| {
        let mut projector =
            SegmentProjector::new(ResponseSegment { turn: TURN, number: 1 }, vec!["mine".parse().unwrap()]);
        journal.events.iter().for_each(|event| drop(projector.project(event).unwrap()));
        projector.has_begun()
    };
    assert!(!has_begun(&journal));
    let journal = journal
        .fact(Fact::Resolved { key, resolution: Resolution::Ok(json!("mine too")) })
        .live(1, 1, 0, "Thanks.")
        .reply(1, "Thanks.", &[])
        .ended("Thanks.");
    assert!(has_begun(&journal));
    let events = words(&journal.segment_events(1).unwrap());
    assert_eq!(events, ["0 begins", "0 \"Thanks.\"", "0 ends \"Thanks.\"", "Answered 1+2"]);
}

#[test]
fn structured_output_reports_only_the_valid_answer() {
    let journal = Journal::new(Some(&json!({"type": "object"})))
        .live(0, 1, 0, "no json ")
        .reply(0, "no json", &[])
        .live(1, 1, 0, "{} ")
        .reply(1, "{}", &[])
        .ended("{}");
    assert_eq!(
        words(&journal.segment_events(0).unwrap()),
        ["0 begins", "0 \"{}\"", "0 ends \"{}\"", "Answered 2+4"]
    );
}
