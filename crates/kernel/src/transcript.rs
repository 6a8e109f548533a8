//! Turns the records of a turn back into complete messages: every tool call of a model has a result.
use outlast_vocab::effect::{BatchCall, BatchOutcome, Command, ModelOutcome, Outcome, ToolOutcome};
use outlast_vocab::hook::HookPatch;
use outlast_vocab::message::{Message, ModelCallId, Part, ToolName, ToolResult, ToolUse};
use outlast_vocab::record::{
    ClaimRef, CompactionRecord, EffectPerformed, EffectRequested, Fact, HookApplied, OutcomeVerdict, Record,
    RepairedCall, Seq,
};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Failure, Kind, ReplayKey};

/// The messages of a turn, and the results that had to be added where one was missing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    /// The messages, in the order a model reads them.
    pub messages: Vec<Message>,
    /// The compactions of the turn, in order.
    pub compactions: Vec<CompactionRecord>,
    /// Calls that got their result from a later record, or were marked as interrupted.
    pub repaired: Vec<RepairedCall>,
}

/// Returns the transcript of a turn from its records in order, up to and including the record `cut`. Results
/// that came after the cut are restored, so that a fork or rewind within a batch loses nothing that is known.
pub fn of_turn(records: Vec<Record>, cut: Seq) -> Transcript {
    let mut transcript = Transcript::default();
    let mut batch: Option<ReplyCalls> = None;
    for record in records {
        let within = record.seq <= cut;
        match record.fact {
            Fact::Accepted(accepted) if within => {
                transcript.messages.extend(accepted.before);
                transcript.messages.push(Message::User { parts: accepted.parts });
            }
            Fact::Performed(EffectPerformed {
                outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)),
                ..
            }) if within => {
                transcript.close(batch.take());
                batch = ReplyCalls::of(&reply.calls);
                transcript.messages.push(Message::Assistant { parts: reply.parts, calls: reply.calls });
            }
            Fact::Performed(EffectPerformed { outcome: Outcome::Checkpoint(joined), .. }) if within => {
                transcript.close(batch.take());
                transcript.messages.extend(joined.into_messages());
            }
            Fact::Asked(EffectRequested { key, command: Command::ToolBatch(asked) }) => {
                if within && key.is_undo() {
                    transcript.close(batch.take());
                    let calls: Vec<ToolUse> = asked.calls.iter().map(BatchCall::to_use).collect();
                    batch = ReplyCalls::of(&calls);
                    transcript.messages.push(Message::Assistant { parts: Vec::new(), calls });
                }
                if let Some(batch) = &mut batch {
                    batch.claim(record.seq, key, asked.calls, within);
                }
            }
            Fact::Interrupted(interrupted) if within && !interrupted.text.is_empty() => {
                transcript.close(batch.take());
                let parts = vec![Part::text(interrupted.marked_text())];
                transcript.messages.push(Message::Assistant { parts, calls: Vec::new() });
            }
            Fact::Compacted(compacted) if within => transcript.compactions.push(compacted),
            fact => {
                if let Some(batch) = &mut batch {
                    batch.apply_fact(fact, within);
                }
            }
        }
    }
    transcript.close(batch);
    transcript
}

impl Transcript {
    fn close(&mut self, batch: Option<ReplyCalls>) {
        for call in batch.into_iter().flat_map(|batch| batch.calls) {
            let (result, repaired) = match call.result {
                Some((result, true)) => (result, None),
                Some((result, false)) => (result, Some(true)),
                None => {
                    let detail = "the call was left behind before it had a result";
                    (ToolResult::Err(Failure::new(Kind::ToolInterrupted, detail)), Some(false))
                }
            };
            if let Some(restored) = repaired {
                self.repaired.push(RepairedCall { call: call.id.clone(), restored });
            }
            self.messages.push(Message::Tool { call: call.id, tool: call.tool, result });
        }
    }
}

/// The calls of the last reply while their results are collected.
struct ReplyCalls {
    asked: Option<(Seq, ReplayKey)>,
    calls: Vec<TranscriptCall>,
}

struct TranscriptCall {
    id: ModelCallId,
    tool: ToolName,
    /// The result, and whether it came before the cut.
    result: Option<(ToolResult, bool)>,
    /// The future result of the call, as hooks left it.
    hooked: Option<ToolResult>,
}

impl ReplyCalls {
    fn of(calls: &[ToolUse]) -> Option<Self> {
        let open = |call: &ToolUse| TranscriptCall {
            id: call.id.clone(),
            tool: call.tool.clone(),
            result: None,
            hooked: None,
        };
        let calls: Vec<TranscriptCall> = calls.iter().map(open).collect();
        (!calls.is_empty()).then_some(Self { asked: None, calls })
    }

    /// Takes the record that claims the calls.
    fn claim(&mut self, seq: Seq, key: ReplayKey, batch: Vec<BatchCall>, within: bool) {
        self.asked = Some((seq, key));
        for (call, asked) in self.calls.iter_mut().zip(batch) {
            if let BatchCall::Refused(refused) = asked {
                call.result = Some((ToolResult::Err(refused.failure), within));
            }
        }
    }

    fn apply_fact(&mut self, fact: Fact, within: bool) {
        match fact {
            Fact::Answered(answered) => {
                if let Outcome::ToolCall(outcome) = answered.outcome {
                    self.put(answered.claim, result_of(&outcome), within);
                }
            }
            Fact::Settled(settled) => {
                let result = match settled.verdict {
                    OutcomeVerdict::Happened(result) => result,
                    OutcomeVerdict::DidNotHappen => ToolResult::Err(Failure::new(
                        Kind::ToolFailed,
                        "it did not happen, as an operator found out",
                    )),
                };
                self.put(settled.claim, Some(result), within);
            }
            Fact::Hooked(HookApplied { key, patch: HookPatch::AfterTool(patch), .. }) => {
                if let Some(call) = self.find(|call| key == call) {
                    call.hooked = Some(patch.to_result());
                }
            }
            Fact::Performed(EffectPerformed { key, outcome: Outcome::AwaitEvent(resolution), .. }) => {
                if let Some(call) = self.find(|call| key == call.completion()) {
                    let result = call.hooked.take();
                    let result = result.unwrap_or_else(|| result_of_resolution(resolution));
                    call.result = Some((result, within));
                }
            }
            _ => {}
        }
    }

    /// Returns the first call whose replay key satisfies the predicate.
    fn find(&mut self, fits: impl Fn(ReplayKey) -> bool) -> Option<&mut TranscriptCall> {
        let (_, root) = self.asked.as_ref()?;
        let place = |(index, call): (usize, &TranscriptCall)| root.child(index, call.id.as_str());
        let index = self.calls.iter().enumerate().position(|call| fits(place(call)))?;
        self.calls.get_mut(index)
    }

    fn put(&mut self, claim: ClaimRef, result: Option<ToolResult>, within: bool) {
        let ours = self.asked.as_ref().is_some_and(|(seq, _)| *seq == claim.asked);
        let call = usize::try_from(claim.child).ok().and_then(|child| self.calls.get_mut(child));
        if let (true, Some(call), Some(result)) = (ours, call, result) {
            call.result = Some((result, within));
        }
    }
}

/// Returns the result that the model reads for an outcome. A pending call has none yet.
pub fn result_of(outcome: &ToolOutcome) -> Option<ToolResult> {
    match outcome {
        ToolOutcome::Done(result) => Some(result.clone()),
        ToolOutcome::Pending => None,
        ToolOutcome::Unknown => {
            let detail = "the process stopped while this call ran; nobody knows whether it happened, and it will not \
                          be repeated. An operator can find out and settle it";
            Some(ToolResult::Err(Failure::new(Kind::ToolOutcomeUnknown, detail)))
        }
    }
}

/// Returns the result that the model reads for an externally completed call.
pub fn result_of_resolution(resolution: Resolution) -> ToolResult {
    match resolution {
        Resolution::Ok(value) => ToolResult::Ok(value),
        Resolution::Err(failure) => ToolResult::Err(failure),
        Resolution::Timeout => {
            ToolResult::Err(Failure::new(Kind::WaitTimedOut, "nobody completed the call before its deadline"))
        }
        Resolution::Cancelled => ToolResult::Err(Failure::new(
            Kind::WaitCancelled,
            "the wait for the call's completion was cancelled",
        )),
    }
}

/// Returns the results of a batch in the order of its calls.
pub fn results_of(outcome: &BatchOutcome) -> Vec<Option<ToolResult>> {
    outcome.0.iter().map(result_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use outlast_vocab::effect::{
        AwaitEvent, CheckpointOutcome, JoinedInput, Reply, StopReason, ToolBatch, Usage,
    };
    use outlast_vocab::label::{Labels, Provenance};
    use outlast_vocab::message::CallArguments;
    use outlast_vocab::record::{CallSettled, EffectAnswered, TurnAccepted};
    use outlast_vocab::tool::{EffectClass, PreparedCall};
    use outlast_vocab::{CallId, Hash, Millis, TurnId};
    use serde_json::json;

    fn accepted(text: &str) -> Fact {
        Fact::Accepted(TurnAccepted::text(text))
    }

    fn reply(text: &str, calls: &[&str]) -> Fact {
        let ask = |id: &&str| {
            ToolUse::new(id.parse().unwrap(), "read".parse().unwrap(), CallArguments::Json(json!({})))
        };
        let reply = Reply {
            parts: vec![Part::text(text)],
            calls: calls.iter().map(ask).collect(),
            stop: StopReason::End,
            stop_sequence: None,
            usage: Usage::default(),
            cost: None,
            estimate: None,
            attempt: 1,
        };
        performed(ReplayKey::turn(0).model(0), ModelOutcome::Reply(reply).into())
    }

    fn performed(key: ReplayKey, outcome: Outcome) -> Fact {
        let command = AwaitEvent { key: key.clone(), deadline: None };
        Fact::Performed(EffectPerformed::new(key, command, outcome))
    }

    fn batch(calls: &[&str]) -> Fact {
        let call = |id: &&str| match id.strip_prefix('!') {
            Some(_) => BatchCall::Refused(outlast_vocab::effect::RefusedCall::new(
                id.parse().unwrap(),
                "read".parse().unwrap(),
                Failure::new(Kind::ToolUnknown, "no such tool"),
            )),
            None => BatchCall::Run(PreparedCall {
                id: CallId::from_u128(1),
                model_id: id.parse().unwrap(),
                tool: "read".parse().unwrap(),
                class: EffectClass::AtMostOnce,
                arguments: json!({}),
                payload: None,
                ruling: None,
                labels: Labels::default(),
                provenance: Provenance::default(),
            }),
        };
        let command = ToolBatch { calls: calls.iter().map(call).collect() }.into();
        Fact::Asked(EffectRequested { key: ReplayKey::turn(0).tools(0), command })
    }

    fn answered(child: u32, outcome: ToolOutcome) -> Fact {
        Fact::Answered(EffectAnswered {
            claim: ClaimRef { asked: Seq(3), child },
            outcome: outcome.into(),
            cost: None,
        })
    }

    fn ok(text: &str) -> ToolOutcome {
        ToolOutcome::Done(ToolResult::Ok(json!(text)))
    }

    #[track_caller]
    fn check(facts: Vec<Fact>, cut: u64, want: &Expect) {
        let record = |(i, fact)| Record { seq: Seq(i), turn: None, at: Millis(0), hash: Hash::ZERO, fact };
        let records: Vec<Record> = (1..).zip(facts).map(record).collect();
        let Transcript { messages, repaired, .. } = of_turn(records, Seq(cut));
        let mut log: Vec<String> = messages.iter().map(|message| message.text().into_owned()).collect();
        log.extend(repaired.iter().map(|call| format!("repaired {} restored={}", call.call, call.restored)));
        want.assert_eq(&(log.join("\n") + "\n"));
    }

    #[test]
    fn results_keep_call_order_despite_completion_order() {
        let facts = vec![
            accepted("hi"),
            reply("", &["a", "b"]),
            batch(&["a", "b"]),
            answered(1, ok("B")),
            answered(0, ok("A")),
            reply("bye", &[]),
        ];
        check(
            facts,
            9,
            &expect![[r"
            hi

            A
            B
            bye
        "]],
        );
    }

    #[test]
    fn mid_batch_fork_marks_unfinished_calls_interrupted() {
        let facts = vec![
            accepted("hi"),
            reply("", &["a", "b"]),
            batch(&["a", "b"]),
            answered(1, ok("B")),
            reply("bye", &[]),
        ];
        check(
            facts,
            3,
            &expect![[r"
            hi

            error tool.interrupted: the call was left behind before it had a result
            B
            repaired a restored=false
            repaired b restored=true
        "]],
        );
    }

    #[test]
    fn settled_call_replaces_unknown_and_refusal_keeps_reason() {
        let settled = Fact::Settled(CallSettled {
            claim: ClaimRef { asked: Seq(3), child: 0 },
            verdict: OutcomeVerdict::Happened(ToolResult::Ok(json!("paid"))),
        });
        let facts = vec![
            accepted("hi"),
            reply("", &["a", "!b"]),
            batch(&["a", "!b"]),
            answered(0, ToolOutcome::Unknown),
            settled,
        ];
        check(
            facts,
            9,
            &expect![[r"
            hi

            paid
            error tool.unknown: no such tool
        "]],
        );
    }

    #[test]
    fn pending_call_shows_completion_before_joined_input() {
        let completion = ReplayKey::turn(0).tools(0).child(0, "a").completion();
        let input = JoinedInput { turn: TurnId::from_u128(4), parts: vec![Part::text("also")] };
        let facts = vec![
            accepted("hi"),
            reply("", &["a"]),
            batch(&["a"]),
            answered(0, ToolOutcome::Pending),
            performed(completion, Resolution::Ok(json!("done outside")).into()),
            performed(
                ReplayKey::turn(0).checkpoint(0),
                CheckpointOutcome { inputs: vec![input], ..CheckpointOutcome::default() }.into(),
            ),
        ];
        check(
            facts,
            9,
            &expect![[r"
            hi

            done outside
            also
        "]],
        );
    }
}
