//! Decides what a retry reuses from the original turn.
//!
//! A retry is a new turn with the same input, which asks for the same effects in the same order. If the
//! original turn has an answer for an effect, the retry reuses it from the original's journal: the model is
//! not asked again, and the call is not performed again. A call whose outcome is unknown stays unknown.
//!
//! Pure: the runtime reads the original's records.
use crate::label::of_hook_messages;
use crate::replay::{RecordedCall, TurnHistory};
use crate::transcript::result_of_resolution;
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{
    BatchCall, CheckpointOutcome, Command, ModelOutcome, Outcome, Reply, ToolOutcome, Usage,
};
use outlast_vocab::hook::{HookPatch, HookUse};
use outlast_vocab::id::CallId;
use outlast_vocab::label::Labels;
use outlast_vocab::message::{ModelName, ToolResult};
use outlast_vocab::payment::PaymentState;
use outlast_vocab::record::{
    ClaimRef, EffectAnswered, EffectPerformed, EffectRequested, Fact, HookApplied, OutcomeVerdict, Record,
    Seq, TurnEnd, UndoableCall,
};
use outlast_vocab::tool::{PreparedCall, UndoCall};
use outlast_vocab::{Error, Failure, Kind, ReplayKey};
use std::collections::{BTreeMap, BTreeSet};

/// The answered effects of a turn, under the replay keys of the retry.
#[derive(Debug, Default)]
pub struct ReusableEffects {
    replies: BTreeMap<ReplayKey, ReusableReply>,
    calls: BTreeMap<ReplayKey, ReusableCall>,
    /// Calls that are performed again, with their original ids, so that the tool recognises a repeated call
    /// as the same one.
    repeated_calls: BTreeMap<ReplayKey, CallId>,
    checkpoints: BTreeMap<ReplayKey, CheckpointOutcome>,
    /// Steps of calls that are performed again.
    steps: BTreeMap<ReplayKey, (Command, Outcome)>,
    /// Hooks that told the model something.
    told_by: BTreeSet<String>,
    /// The labels at the beginning of the original turn.
    labels: Labels,
}

/// A reply that is not asked for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReusableReply {
    /// The model that gave it.
    pub model: ModelName,
    /// The reply, without its cost.
    pub reply: Reply,
}

/// A call that is not performed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReusableCall {
    /// The call as it was claimed.
    pub call: BatchCall,
    /// Its outcome, or `None` if the call was refused before it could run.
    pub outcome: Option<ToolOutcome>,
    /// How the call can be undone.
    pub undo: Option<UndoCall>,
}

impl ReusableEffects {
    /// Reads the records of a finished turn, for a retry that is the `index`-th turn of its session.
    pub fn of(records: &[Record], index: u32) -> Result<Self, Error> {
        let history = TurnHistory::of(records.to_vec())?;
        let original = OriginalTurn::of(records, &history);
        let labels = history.started().and_then(|started| started.labels.clone()).unwrap_or_default();
        let told_by = history.hooks_with_messages().map(str::to_owned).collect();
        let mut reusable = Self { told_by, labels, ..Self::default() };
        for (key, model, reply) in original.replies() {
            // The original turn has paid for it.
            let reply =
                Reply { usage: Usage::default(), cost: Some(Cost::ZERO), estimate: None, ..reply.clone() };
            reusable.replies.insert(key.in_turn(index), ReusableReply { model: model.clone(), reply });
        }
        for (key, recorded) in history.calls().filter(|(key, _)| !key.is_part_of_undo()) {
            let place = key.in_turn(index);
            match (original.decide(&key, recorded), &recorded.call) {
                (CallReuse::Keep(outcome), _) => {
                    let (call, undo) = (without_grant(&recorded.call), original.undo(&key));
                    reusable.calls.insert(place, ReusableCall { call, outcome, undo });
                }
                (CallReuse::Again, BatchCall::Run(call)) => {
                    reusable.repeated_calls.insert(place, call.id);
                    let steps = original.steps(&key);
                    reusable.steps.extend(steps.map(|(key, command, outcome)| {
                        (key.in_turn(index), (command.clone(), outcome.clone()))
                    }));
                }
                (CallReuse::Again, BatchCall::Refused(_)) => {}
            }
        }
        for (key, joined) in original.checkpoints() {
            reusable.checkpoints.insert(key.in_turn(index), joined);
        }
        Ok(reusable)
    }

    /// Returns the labels of what the model had read for these replies, without the messages of the turn.
    pub fn labels(&self, hooks: &[HookUse]) -> Labels {
        let mut labels = self.labels.clone();
        labels.extend(of_hook_messages(self.told_by.iter().map(String::as_str), hooks));
        labels
    }

    /// Returns the reply to the model call under this key.
    pub fn reply(&self, model_call: &ReplayKey) -> Option<&ReusableReply> {
        self.replies.get(model_call)
    }

    /// Returns the call under this key, if it is not performed again.
    pub fn call(&self, call: &ReplayKey) -> Option<&ReusableCall> {
        self.calls.get(call)
    }

    /// Returns the outcome of the call under this key, if it is not performed again.
    pub fn outcome(&self, call: &ReplayKey) -> Option<&ToolOutcome> {
        self.calls.get(call)?.outcome.as_ref()
    }

    /// Returns the original id of the call under this key, if it is performed again.
    pub fn call_id(&self, call: &ReplayKey) -> Option<CallId> {
        self.repeated_calls.get(call).copied()
    }

    /// Returns what joined the turn at this checkpoint.
    pub fn joined(&self, checkpoint: &ReplayKey) -> Option<&CheckpointOutcome> {
        self.checkpoints.get(checkpoint)
    }

    /// Returns the recorded step under this key, of a call that is performed again.
    pub(crate) fn step(&self, key: &ReplayKey) -> Option<&(Command, Outcome)> {
        self.steps.get(key)
    }
}

/// Removes the grant from a call. A grant covers only calls of the session it was given in, and a reused call
/// needs none because it does not run.
fn without_grant(call: &BatchCall) -> BatchCall {
    let mut call = call.clone();
    if let BatchCall::Run(PreparedCall { ruling: Some(ruling), .. }) = &mut call {
        ruling.grant = None;
    }
    call
}

/// Whether a call is performed again.
enum CallReuse {
    /// No: this is its outcome.
    Keep(Option<ToolOutcome>),
    /// Yes.
    Again,
}

/// The turn that is retried.
struct OriginalTurn<'a> {
    records: &'a [Record],
    history: &'a TurnHistory,
    /// The claims of calls, by replay key.
    claims: BTreeMap<ReplayKey, ClaimRef>,
    cancelled: Option<Seq>,
    last_reply: Option<Seq>,
}

impl<'a> OriginalTurn<'a> {
    fn of(records: &'a [Record], history: &'a TurnHistory) -> Self {
        let mut claims = BTreeMap::new();
        let (mut cancelled, mut last_reply) = (None, None);
        for record in records {
            match &record.fact {
                Fact::Asked(EffectRequested { key, command: Command::ToolBatch(batch) }) => {
                    for (child, call) in (0..).zip(&batch.calls) {
                        let place = key.child(child as usize, call.model_id().as_str());
                        claims.insert(place, ClaimRef { asked: record.seq, child });
                    }
                }
                Fact::Performed(EffectPerformed {
                    outcome: Outcome::ModelCall(ModelOutcome::Reply(_)),
                    ..
                }) => {
                    last_reply = Some(record.seq);
                }
                Fact::CancelRequested { .. } => cancelled = Some(record.seq),
                _ => {}
            }
        }
        Self { records, history, claims, cancelled, last_reply }
    }

    /// Returns the replies that are not requested again.
    fn replies(&self) -> impl Iterator<Item = (&'a ReplayKey, &'a ModelName, &'a Reply)> {
        self.reusable_records().filter_map(|record| match &record.fact {
            Fact::Performed(EffectPerformed {
                key,
                command: Command::ModelCall(call),
                outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)),
                ..
            }) => Some((key, &call.model, reply)),
            _ => None,
        })
    }

    /// Returns what joined the turn at its checkpoints. Inputs that joined after the replies on which the
    /// turn failed all join at the first of those checkpoints, because the retry may not reach the others.
    fn checkpoints(&self) -> Vec<(&'a ReplayKey, CheckpointOutcome)> {
        let failed_at = self.failing_reply();
        let mut checkpoints: Vec<(&ReplayKey, CheckpointOutcome)> = Vec::new();
        let mut first_behind = None;
        for record in self.records {
            let Fact::Performed(EffectPerformed { key, outcome: Outcome::Checkpoint(joined), .. }) =
                &record.fact
            else {
                continue;
            };
            if failed_at.is_none_or(|from| record.seq < from) {
                checkpoints.push((key, joined.clone()));
                continue;
            }
            let at = *first_behind.get_or_insert_with(|| {
                checkpoints.push((key, CheckpointOutcome::default()));
                checkpoints.len() - 1
            });
            checkpoints[at].1.inputs.extend_from_slice(&joined.inputs);
        }
        checkpoints.retain(|(_, joined)| !joined.is_empty());
        checkpoints
    }

    /// Returns the records before the replies on which the turn failed. Those replies are requested again.
    fn reusable_records(&self) -> impl Iterator<Item = &'a Record> {
        let failed_at = self.failing_reply();
        self.records.iter().take_while(move |record| failed_at.is_none_or(|from| record.seq < from))
    }

    /// Returns the position of the first reply on which the turn failed.
    fn failing_reply(&self) -> Option<Seq> {
        let failed = matches!(self.history.ended(), Some(TurnEnd::Failed { .. }));
        self.first_rejected_reply().filter(|_| failed)
    }

    /// Returns the first of the last replies that led to nothing: each was sent back with a correction, or
    /// ended the turn.
    fn first_rejected_reply(&self) -> Option<Seq> {
        let (mut rejected, mut was_answered) = (None, false);
        for record in self.records {
            match &record.fact {
                Fact::Performed(EffectPerformed {
                    outcome: Outcome::ModelCall(ModelOutcome::Reply(_)),
                    ..
                }) => {
                    // The model continued with what had joined, so the replies before that are part of the
                    // conversation.
                    if std::mem::take(&mut was_answered) {
                        rejected = None;
                    }
                    rejected.get_or_insert(record.seq);
                }
                Fact::Performed(EffectPerformed { outcome: Outcome::Checkpoint(joined), .. }) => {
                    was_answered |= !joined.is_rejection_only();
                }
                Fact::Asked(asked) if !asked.key.is_part_of_undo() => rejected = None,
                _ => {}
            }
        }
        rejected
    }

    fn decide(&self, key: &ReplayKey, recorded: &RecordedCall) -> CallReuse {
        let claim = self.claims.get(key).copied();
        // The model has read this result, and its later replies depend on it.
        let was_read = claim.is_some_and(|claim| self.last_reply > Some(claim.asked));
        let BatchCall::Run(call) = &recorded.call else {
            return if was_read { CallReuse::Keep(None) } else { CallReuse::Again };
        };
        let verdict = claim.and_then(|claim| self.verdict(claim));
        let outcome = match (recorded.outcome.clone(), verdict) {
            (Some(ToolOutcome::Unknown), Some(OutcomeVerdict::Happened(result))) => {
                ToolOutcome::Done(result.clone())
            }
            (Some(ToolOutcome::Unknown), Some(OutcomeVerdict::DidNotHappen)) if was_read => {
                let detail = "it did not happen, as an operator found out";
                ToolOutcome::Done(ToolResult::Err(Failure::new(Kind::ToolFailed, detail)))
            }
            (Some(ToolOutcome::Unknown), Some(OutcomeVerdict::DidNotHappen)) => return CallReuse::Again,
            (Some(ToolOutcome::Unknown), None) => ToolOutcome::Unknown,
            (Some(ToolOutcome::Pending) | None, _) => match self.completed(key) {
                Some(result) => ToolOutcome::Done(result),
                None => return self.repeat_if_safe(key, call),
            },
            (Some(ToolOutcome::Done(ToolResult::Err(failure))), _)
                if !was_read && self.is_only_turn_end(key, call, claim, &failure) =>
            {
                return self.repeat_if_safe(key, call);
            }
            (Some(outcome @ ToolOutcome::Done(_)), _) => outcome,
        };
        CallReuse::Keep(Some(outcome))
    }

    /// Returns whether an error says only that the turn ended before the call was done.
    fn is_only_turn_end(
        &self,
        key: &ReplayKey,
        call: &PreparedCall,
        claim: Option<ClaimRef>,
        failure: &Failure,
    ) -> bool {
        let may_repeat = call.class.may_repeat();
        let never_ran = || !self.history.parked_after_start(key) && self.steps(key).next().is_none();
        match failure.code {
            // Only calls that did not happen have this error. Older journals use `ToolCancelled` also for
            // calls that never started, and a tool that was stopped may return it after it acted.
            Kind::ToolInterrupted => true,
            // A tool that ran does not return this error.
            Kind::BudgetExceeded => may_repeat || never_ran(),
            Kind::ToolCancelled | Kind::PolicyInterrupted => may_repeat,
            _ => {
                let answered = claim.and_then(|claim| self.answered(claim));
                may_repeat && self.cancelled.is_some() && answered > self.cancelled
            }
        }
    }

    /// Performs a call again, unless it has paid, or must happen at most once and may have happened.
    fn repeat_if_safe(&self, key: &ReplayKey, call: &PreparedCall) -> CallReuse {
        let freed = |state: &PaymentState| {
            matches!(state, PaymentState::Releasing { .. } | PaymentState::Released { .. })
        };
        let mut payments = self.history.payments().filter(|payment| payment.key.is_under(key));
        let paid = payments.any(|payment| !freed(&payment.state));
        let answered = self.claims.get(key).and_then(|claim| self.answered(*claim)).is_some();
        let has_begun = !call.class.may_repeat() && (!answered || self.is_pending(key));
        if paid || has_begun { CallReuse::Keep(Some(ToolOutcome::Unknown)) } else { CallReuse::Again }
    }

    /// Returns whether the call ran and waits for an external completion.
    fn is_pending(&self, key: &ReplayKey) -> bool {
        let mut calls = self.history.calls().filter(|(place, _)| place == key);
        calls.any(|(_, call)| call.outcome == Some(ToolOutcome::Pending))
    }

    fn answered(&self, claim: ClaimRef) -> Option<Seq> {
        self.records.iter().rev().find_map(|record| match &record.fact {
            Fact::Answered(EffectAnswered { claim: of, .. }) if *of == claim => Some(record.seq),
            _ => None,
        })
    }

    fn verdict(&self, claim: ClaimRef) -> Option<&'a OutcomeVerdict> {
        self.records.iter().rev().find_map(|record| match &record.fact {
            Fact::Settled(settled) if settled.claim == claim => Some(&settled.verdict),
            _ => None,
        })
    }

    /// Returns the result of an externally completed call, as hooks left it.
    fn completed(&self, key: &ReplayKey) -> Option<ToolResult> {
        let completion = key.completion();
        let resolution =
            self.records.iter().find_map(|record| match &record.fact {
                Fact::Performed(EffectPerformed {
                    key, outcome: Outcome::AwaitEvent(resolution), ..
                }) if *key == completion => Some(resolution.clone()),
                _ => None,
            })?;
        let hooked = self.records.iter().rev().find_map(|record| match &record.fact {
            Fact::Hooked(HookApplied { key: of, patch: HookPatch::AfterTool(patch), .. }) if of == key => {
                Some(patch.to_result())
            }
            _ => None,
        });
        Some(hooked.unwrap_or_else(|| result_of_resolution(resolution)))
    }

    fn undo(&self, key: &ReplayKey) -> Option<UndoCall> {
        self.records.iter().find_map(|record| match &record.fact {
            Fact::Undoable(UndoableCall { key: of, undo }) if of == key => Some(undo.clone()),
            _ => None,
        })
    }

    /// Returns the steps that a call has completed. Approvals, rate limits and deferrals are waited for
    /// again.
    fn steps(&self, call: &ReplayKey) -> impl Iterator<Item = (&'a ReplayKey, &'a Command, &'a Outcome)> {
        let completion = call.completion();
        let asks = |key: &ReplayKey| key.is_approval() || key.is_rate() || key.is_deferred();
        self.records.iter().filter_map(move |record| match &record.fact {
            Fact::Performed(EffectPerformed { key, command, outcome, .. })
                if key.is_under(call) && !asks(key) && *key != completion =>
            {
                Some((key, command, outcome))
            }
            _ => None,
        })
    }
}
