//! What a call waits for before it begins: somebody's approval, or its time (R11.2).
use super::Scope;
use crate::grants::still_covers;
use outlast_kernel::policy::changed;
use outlast_kernel::provenance::{TrustedText, provenance};
use outlast_vocab::effect::{AwaitEvent, DurableStep, Sleep, Slept, StepOutcome};
use outlast_vocab::label::{Origin, Provenance};
use outlast_vocab::policy::{Approval, Ask, Decision, Facts, Point, Ruling, Verdict};
use outlast_vocab::tool::{Contract, PreparedCall};
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Class, Error, Failure, Kind, ReplayKey};
use serde_json::Value;
use std::time::Duration;

/// The step in which arguments that somebody changed are looked at.
const EDIT: &str = "edit";

impl Scope {
    /// Waits until a call may begin, and gives it as it may; an error says why it may not. That it may is durable before it
    /// begins, so a call that is found without it has not begun.
    pub(crate) async fn admit(&self, call: PreparedCall) -> Result<PreparedCall, Error> {
        if self.is_granted(&call) {
            return Ok(call);
        }
        match call.ruling.as_ref().map(|ruling| &ruling.decision) {
            Some(Decision::Ask(ask)) => {
                self.durable("asking for an approval")?;
                let ask = ask.clone();
                self.approved(call, &ask).await
            }
            Some(Decision::Defer { pause, .. }) => {
                self.durable("deferring a call")?;
                self.defer(*pause).await?;
                Ok(call)
            }
            _ => Ok(call),
        }
    }

    /// Whether it was approved for the rest of the session, with its tool as it is defined here.
    fn is_granted(&self, call: &PreparedCall) -> bool {
        let definition = self.outfit.catalogue.contract(&call.tool);
        let (Some(ruling), Some(definition)) = (&call.ruling, definition) else { return false };
        ruling.grant.as_deref().is_some_and(|granted| still_covers(granted, call, ruling, definition))
    }

    async fn approved(&self, call: PreparedCall, ask: &Ask) -> Result<PreparedCall, Error> {
        let definition = self.outfit.catalogue.contract(&call.tool).ok_or_else(|| {
            Error::new(Kind::ToolUnknown, format!("the tool `{}` is not here any more", call.tool))
        })?;
        let key = self.key.approval(&self.outfit.form(&call, definition));
        let (effect, resolution) = match self.awaited(key.clone(), WaitKind::Approval, ask.expires)? {
            Awaited::Answered(resolution) => (None, resolution),
            Awaited::Resolved(effect, resolution) => (Some(effect), resolution),
            Awaited::Open(wait) => return self.hold_still(wait).await,
        };
        let approval = match &resolution {
            Resolution::Ok(value) => serde_json::from_value::<Approval>(value.clone())
                .map_err(|_| denied("the answer was no approval".to_owned())),
            Resolution::Err(failure) => Err(denied(failure.detail.clone())),
            Resolution::Timeout => Err(denied("nobody approved it in time".to_owned())),
            Resolution::Cancelled => Err(denied("the question was withdrawn".to_owned())),
        };
        let admitted = match approval.map(|approval| (approval.by, approval.verdict)) {
            Ok((_, Verdict::Approve | Verdict::ApproveForSession)) => Ok(call),
            Ok((by, Verdict::Deny { reason })) => Err(denied(format!("{by} said no: {reason}"))),
            // What comes of the change is written with the approval, so it is looked at once.
            Ok((_, Verdict::Edit { arguments })) => self.edited(call, definition, &key, arguments).await?,
            Err(error) => Err(error),
        };
        if let Some(effect) = effect {
            self.record(self.performed(key, effect, resolution)).await;
        }
        admitted
    }

    /// The call with other arguments, or why they may not be passed, as is recorded or as is found out now.
    async fn edited(
        &self,
        call: PreparedCall,
        definition: &Contract,
        approval: &ReplayKey,
        arguments: Value,
    ) -> Result<Result<PreparedCall, Error>, Error> {
        let key = approval.step(EDIT);
        let effect = DurableStep { name: EDIT.to_owned(), input: arguments };
        let outcome = if let Some(outcome) = self.answered(&key, &effect)? {
            outcome
        } else {
            let outcome = match self.look_at(&call, definition, &effect.input).await {
                Ok(payload) => StepOutcome::Value(payload.unwrap_or_default()),
                Err(error) if matches!(error.class(), Class::Retry | Class::Park) => return Err(error),
                Err(error) => StepOutcome::Failed(Failure::from(&error)),
            };
            self.note(self.performed(key, effect.clone(), outcome.clone())).await;
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

    /// Looks at a call with other arguments as it was looked at with its own: they fit, no rule but the one that asked stands
    /// against them, and what was worked out beyond them is theirs.
    async fn look_at(
        &self,
        call: &PreparedCall,
        definition: &Contract,
        arguments: &Value,
    ) -> Result<Option<Value>, Error> {
        let held = self.held();
        let whole = held.project(arguments, &definition.input).await?;
        self.outfit.catalogue.takes(&call.tool, &whole).await?;
        let around = self.outfit.circumstances(self.org, self.spending);
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
        let facts = Facts { at: Point::Tool, tool, value: &whole, labels, provenance, around };
        if let Some(ruling) = self.outfit.rule(&facts).await {
            may_stand(&ruling, call.ruling.as_ref(), arguments)?;
        }
        let provider = self.outfit.catalogue.provider(&call.tool)?;
        let deadline = definition.deadline.unwrap_or(self.world.limits.tool_deadline);
        let prepared = async { provider.prepare(self.session, &call.tool, &whole).await };
        let prepared = self.outfit.patiently(prepared, deadline, &self.cancel).await;
        prepared
            .map_err(|error| if error.class() == Class::Retry { denied(error.to_string()) } else { error })
    }

    async fn defer(&self, pause: Duration) -> Result<(), Error> {
        let (key, now) = (self.key.deferred(), self.world.clock.now());
        let pinned = self.history.wait(&key).and_then(|wait| wait.deadline);
        let effect = Sleep { until: pinned.unwrap_or_else(|| now.after(pause)) };
        if self.answered(&key, &effect)?.is_some() {
            return Ok(());
        }
        if effect.until > now {
            let wait = Wait { key, kind: WaitKind::Sleep, deadline: Some(effect.until) };
            return self.hold_still(wait).await;
        }
        self.record(self.performed(key, effect, Slept {})).await;
        Ok(())
    }
}

/// How far a wait has come.
pub(super) enum Awaited {
    /// It is over, and the journal says how.
    Answered(Resolution),
    /// It is over, and nobody has written that yet.
    Resolved(AwaitEvent, Resolution),
    /// It goes on.
    Open(Wait),
}

/// Whether arguments that somebody changed may be passed where this is decided of them: nothing keeps them from it but what was
/// asked before, and nothing would change them once more.
fn may_stand(ruling: &Ruling, asked: Option<&Ruling>, arguments: &Value) -> Result<(), Error> {
    if let Some(refusal) = ruling.refusal() {
        return Err(refusal);
    }
    let stays = ruling.change().is_none_or(|(set, _)| changed(arguments, set) == *arguments);
    let stands = match &ruling.decision {
        Decision::Allow | Decision::Modify { .. } => stays,
        // Who may approve one call may not approve what another rule asks others about.
        Decision::Ask(_) => {
            let same = |asked: &Ruling| {
                (&asked.rule, &asked.with, &asked.decision) == (&ruling.rule, &ruling.with, &ruling.decision)
            };
            stays && asked.is_some_and(same)
        }
        _ => false,
    };
    if stands {
        return Ok(());
    }
    let why = format!(
        "with these arguments it falls under the rule `{}`, which is not what was asked",
        ruling.rule
    );
    Err(denied(why).decided_by(ruling.to_string()))
}

fn denied(why: String) -> Error {
    Error::new(Kind::ApprovalDenied, why)
}
