//! What a call waits for before it begins: somebody's approval, or its time (R11.2).
use super::Scope;
use crate::grants::still_covers;
use outlast_vocab::effect::{AwaitEvent, Sleep, Slept};
use outlast_vocab::policy::{Approval, Ask, Decision, Facts, Point, Verdict};
use outlast_vocab::tool::{Contract, PreparedCall};
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::time::Duration;

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
            Some(Decision::Defer { pause }) => {
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
        if let Some(effect) = effect {
            self.record(self.performed(key, effect, resolution.clone())).await;
        }
        let approval = match resolution {
            Resolution::Ok(value) => serde_json::from_value::<Approval>(value)
                .map_err(|_| denied("the answer was no approval".to_owned()))?,
            Resolution::Err(failure) => return Err(denied(failure.detail)),
            Resolution::Timeout => return Err(denied("nobody approved it in time".to_owned())),
            Resolution::Cancelled => return Err(denied("the question was withdrawn".to_owned())),
        };
        match approval.verdict {
            Verdict::Approve | Verdict::ApproveForSession => Ok(call),
            Verdict::Deny { reason } => Err(denied(format!("{} said no: {reason}", approval.by))),
            Verdict::Edit { arguments } => {
                let payload = self.edited(&call, definition, &arguments).await?;
                Ok(PreparedCall { arguments, payload, ..call })
            }
        }
    }

    /// Looks at a call with other arguments as it was looked at with its own: they fit, no rule but the one that asked stands
    /// against them, and what was worked out beyond them is theirs.
    async fn edited(
        &self,
        call: &PreparedCall,
        definition: &Contract,
        arguments: &Value,
    ) -> Result<Option<Value>, Error> {
        let held = self.held();
        let whole = held.project(arguments, &definition.input).await?;
        self.outfit.catalogue.takes(&call.tool, &whole)?;
        let around = self.outfit.circumstances(self.org, self.spending);
        let (tool, labels) = (Some(&call.tool), &call.labels);
        let facts = Facts { at: Point::Tool, tool, value: &whole, labels, around: &around };
        match self.outfit.judge(&facts).await?.map(|ruling| ruling.decision) {
            None | Some(Decision::Allow | Decision::Ask(_)) => {}
            Some(_) => return Err(denied("the edited call falls under another rule".to_owned())),
        }
        self.outfit.catalogue.provider(&call.tool)?.prepare(self.session, &call.tool, &whole).await
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

fn denied(why: String) -> Error {
    Error::new(Kind::ApprovalDenied, why)
}
