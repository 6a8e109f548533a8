//! Waits of a call before it begins: for an approval, or until a deferral is over.
use super::ToolCallScope;
use crate::calls::call_journal::WaitState;
use crate::calls::preparation::{payload, whole_arguments};
use crate::policy::grants::still_covers;
use outlast_kernel::policy::with_values_set;
use outlast_kernel::provenance::{TrustedText, provenance};
use outlast_vocab::effect::{DurableStep, Sleep, SleepOutcome, StepOutcome};
use outlast_vocab::label::{Origin, Provenance};
use outlast_vocab::policy::{
    Approval, ApprovalRequirement, ApprovalVerdict, PolicyDecision, PolicyFacts, PolicyPoint,
    RecordedDecision,
};
use outlast_vocab::tool::{PreparedCall, ToolContract};
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Class, Error, Failure, Kind, ReplayKey};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// The step that checks arguments edited by an approver.
const EDIT: &str = "edit";

impl ToolCallScope {
    /// Waits until a call may begin and returns it, with edited arguments if there are any. Returns an error if it may
    /// not. The permission is durable before the call begins, so a call without it has not begun.
    pub(crate) async fn admit(&self, call: PreparedCall) -> Result<PreparedCall, Error> {
        if self.is_granted(&call) {
            return Ok(call);
        }
        match call.ruling.as_ref().map(|ruling| &ruling.decision) {
            Some(PolicyDecision::Ask(ask)) => {
                self.journal.durable("asking for an approval")?;
                let ask = ask.clone();
                self.approved(call, &ask).await
            }
            Some(PolicyDecision::Defer { pause, .. }) => {
                self.journal.durable("deferring a call")?;
                self.defer(*pause).await?;
                Ok(call)
            }
            _ => Ok(call),
        }
    }

    /// Returns whether the call was approved for the rest of the session, with the current definition of its tool.
    fn is_granted(&self, call: &PreparedCall) -> bool {
        let definition = self.resolved_agent.catalogue.contract(&call.tool);
        let (Some(ruling), Some(definition)) = (&call.ruling, definition) else { return false };
        ruling.grant.as_deref().is_some_and(|granted| still_covers(granted, call, ruling, definition))
    }

    async fn approved(&self, call: PreparedCall, ask: &ApprovalRequirement) -> Result<PreparedCall, Error> {
        let definition = self.resolved_agent.catalogue.contract(&call.tool).ok_or_else(|| {
            Error::new(Kind::ToolUnknown, format!("the tool `{}` no longer exists here", call.tool))
        })?;
        let key = self.call.key.approval(&self.resolved_agent.form(&call, definition));
        let (effect, resolution) = match self.journal.awaited(&key, WaitKind::Approval, ask.expires)? {
            WaitState::Answered(resolution) => (None, resolution),
            WaitState::Resolved(effect, resolution) => (Some(effect), resolution),
            WaitState::Open(wait) => return self.journal.park(wait).await,
        };
        let approval = match &resolution {
            Resolution::Ok(value) => {
                Approval::deserialize(value).map_err(|_| denied("the answer was no approval".to_owned()))
            }
            Resolution::Err(failure) => Err(denied(failure.detail.clone())),
            Resolution::Timeout => Err(denied("the approval did not arrive in time".to_owned())),
            Resolution::Cancelled => Err(denied("the question was withdrawn".to_owned())),
        };
        let admitted = match approval.map(|approval| (approval.by, approval.verdict)) {
            Ok((_, ApprovalVerdict::Approve | ApprovalVerdict::ApproveForSession)) => Ok(call),
            Ok((by, ApprovalVerdict::Deny { reason })) => Err(denied(format!("{by} said no: {reason}"))),
            // The checked edit is written with the approval, so it is checked once.
            Ok((_, ApprovalVerdict::Edit { arguments })) => {
                self.edited(call, definition, &key, arguments).await?
            }
            Err(error) => Err(error),
        };
        if let Some(effect) = effect {
            self.journal.record(self.journal.performed(key, effect, resolution)).await;
        }
        admitted
    }

    /// Returns the call with edited arguments, or why they are not allowed. Uses the recorded result, or checks the
    /// arguments now.
    async fn edited(
        &self,
        call: PreparedCall,
        definition: &ToolContract,
        approval: &ReplayKey,
        arguments: Value,
    ) -> Result<Result<PreparedCall, Error>, Error> {
        let key = approval.step(EDIT);
        let effect = DurableStep { name: EDIT.to_owned(), input: arguments };
        let outcome = if let Some(outcome) = self.journal.answered(&key, &effect)? {
            outcome
        } else {
            let outcome = match self.look_at(&call, definition, &effect.input).await {
                Ok(payload) => StepOutcome::Value(payload.unwrap_or_default()),
                Err(error) if matches!(error.class(), Class::Retry | Class::Park) => return Err(error),
                Err(error) => StepOutcome::Failed(Failure::from(&error)),
            };
            self.journal.note(self.journal.performed(key, effect.clone(), outcome.clone())).await;
            outcome
        };
        Ok(match outcome {
            StepOutcome::Value(payload) => {
                let payload = Some(payload).filter(|payload| !payload.is_null());
                Ok(PreparedCall { arguments: effect.input, payload, ..call })
            }
            StepOutcome::Failed(failure) => Err(failure.into()),
        })
    }

    /// Checks edited arguments like the original ones. They must match the schema, and no rule other than the one that
    /// asked may object. Returns the payload that the tool prepares for them.
    async fn look_at(
        &self,
        call: &PreparedCall,
        definition: &ToolContract,
        arguments: &Value,
    ) -> Result<Option<Value>, Error> {
        let (hooks, held) = (self.hooks(&self.call.key), self.storage.held());
        let whole = whole_arguments(hooks, definition, arguments, &held, &self.cancel).await?;
        let around = self.around();
        let (tool, labels) = (Some(&call.tool), &call.labels);
        // A person wrote these arguments.
        let mut trusted = TrustedText::default();
        trusted.add_values(&Origin::User, &whole);
        let provenance = if labels.is_empty() {
            Provenance::default()
        } else {
            provenance(Some(definition), &whole, &trusted)
        };
        let (provenance, around) = (&provenance, &around);
        let facts = PolicyFacts {
            at: PolicyPoint::Tool,
            tool,
            value: &whole,
            labels,
            provenance,
            circumstances: around,
        };
        if let Some(ruling) = self.resolved_agent.rule(&facts).await {
            check_edited_ruling(&ruling, call.ruling.as_ref(), arguments)?;
        }
        let prepared = payload(hooks, definition, &whole, &self.cancel).await;
        prepared
            .map_err(|error| if error.class() == Class::Retry { denied(error.to_string()) } else { error })
    }

    async fn defer(&self, pause: Duration) -> Result<(), Error> {
        let (key, now) = (self.call.key.deferred(), self.services.models.clock.now());
        let pinned = self.journal.history.wait(&key).and_then(|wait| wait.deadline);
        let effect = Sleep { until: pinned.unwrap_or_else(|| now.after(pause)) };
        if self.journal.answered(&key, &effect)?.is_some() {
            return Ok(());
        }
        if effect.until > now {
            let wait = Wait { key, kind: WaitKind::Sleep, deadline: Some(effect.until) };
            return self.journal.park(wait).await;
        }
        self.journal.record(self.journal.performed(key, effect, SleepOutcome {})).await;
        Ok(())
    }
}

/// Checks a decision about edited arguments. They are allowed if only the rule that was asked about objects, and if no
/// rule would change them again.
fn check_edited_ruling(
    ruling: &RecordedDecision,
    asked: Option<&RecordedDecision>,
    arguments: &Value,
) -> Result<(), Error> {
    if let Some(refusal) = ruling.refusal() {
        return Err(refusal);
    }
    let stays = ruling.change().is_none_or(|(set, _)| with_values_set(arguments, set) == *arguments);
    let stands = match &ruling.decision {
        PolicyDecision::Allow | PolicyDecision::Modify { .. } => stays,
        // An approver of one rule cannot approve what another rule asks other people about.
        PolicyDecision::Ask(_) => {
            let same = |asked: &RecordedDecision| {
                (&asked.rule, &asked.with, &asked.decision) == (&ruling.rule, &ruling.with, &ruling.decision)
            };
            stays && asked.is_some_and(same)
        }
        _ => false,
    };
    if stands {
        return Ok(());
    }
    let why =
        format!("with these arguments, the rule `{}` applies, not the rule of the request", ruling.rule);
    Err(denied(why).decided_by(ruling.to_string()))
}

fn denied(why: String) -> Error {
    Error::new(Kind::ApprovalDenied, why)
}
