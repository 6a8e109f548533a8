//! Policy decisions about what a running call wants to do: requests, secrets, programs, payments and model calls.
use super::ToolCallScope;
use crate::policy::policy_points::{approved, model_facts, with_options};
use outlast_kernel::label::of_hooks;
use outlast_vocab::effect::{Generation, ModelCall};
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::payment::PaymentOrder;
use outlast_vocab::policy::{
    PolicyAction, PolicyDecision, PolicyFacts, PolicyPoint, RecordedDecision, TurnCircumstances,
    approved_facts_fingerprint,
};
use outlast_vocab::record::{Fact, PolicyDecided};
use outlast_vocab::wait::WaitKind;
use outlast_vocab::{Error, Failure, Kind, ReplayKey};
use serde_json::Value;

impl ToolCallScope {
    /// Checks whether the call may do this. The decision is written with the next fact of the call.
    pub(super) async fn may_do(&self, action: PolicyAction) -> Result<(), Error> {
        let at = action.point();
        if !self.resolved_agent.decides_at(at) {
            return Ok(());
        }
        let number = {
            let mut used = self.used();
            used.policy_actions += 1;
            used.policy_actions - 1
        };
        match self.judge(at, &self.call.key.action(number), &action.facts()).await {
            Some(ruling) => self.refusal(&ruling).map_or(Ok(()), Err),
            None => Ok(()),
        }
    }

    /// Checks whether the call may reserve a payment. Parks the call if a rule asks for an approval.
    pub(super) async fn may_pay(&self, key: &ReplayKey, order: &PaymentOrder) -> Result<(), Error> {
        if !self.resolved_agent.decides_at(PolicyPoint::Payment) {
            return Ok(());
        }
        let facts = PolicyAction::Payment(order.clone()).facts();
        let known = self.journal.history.decision(key).map(|ruled| ruled.ruling.clone());
        let ruling = match known {
            Some(ruling) => Some(ruling),
            None => self.judge(PolicyPoint::Payment, key, &facts).await,
        };
        let Some(ruling) = ruling else { return Ok(()) };
        if let Some(refusal) = self.refusal(&ruling) {
            return Err(refusal);
        }
        let PolicyDecision::Ask(ask) = &ruling.decision else { return Ok(()) };
        let form = approved_facts_fingerprint(PolicyPoint::Payment, &facts, self.resolved_agent.policy);
        approved(self.journal.wait_for(key.approval(&form), WaitKind::Approval, ask.expires).await?)
    }

    /// Checks whether the call may call a model, and returns the options to use.
    pub(super) async fn may_ask(&self, key: &ReplayKey, call: &ModelCall) -> Result<Generation, Error> {
        let options = call.options.clone();
        if !self.resolved_agent.decides_at(PolicyPoint::Model) {
            return Ok(options);
        }
        let number = self.used().nested;
        let Some(ruling) = self.judge(PolicyPoint::Model, key, &model_facts(call, number)).await else {
            return Ok(options);
        };
        if let Some(refusal) = self.refusal(&ruling) {
            return Err(refusal);
        }
        match &ruling.decision {
            PolicyDecision::Modify { set, .. } => Ok(with_options(options, set)),
            PolicyDecision::Ask(_) | PolicyDecision::Defer { .. } => {
                let detail = format!(
                    "the rule `{}` pauses the tool's model call, but only model calls of the turn can be paused",
                    ruling.rule
                );
                Err(Error::new(Kind::PolicyDenied, detail).decided_by(ruling.to_string()))
            }
            _ => Ok(options),
        }
    }

    async fn judge(&self, at: PolicyPoint, key: &ReplayKey, value: &Value) -> Option<RecordedDecision> {
        let around = self.around();
        let labels = self.labels_now();
        let tool = if at.is_call_point() { Some(&self.call.tool) } else { None };
        let provenance = &Provenance::default();
        let facts = PolicyFacts { at, tool, value, labels: &labels, provenance, circumstances: &around };
        let ruling = self.resolved_agent.rule(&facts).await?;
        let ruled = PolicyDecided::new(key.clone(), at, ruling.clone(), value, labels);
        self.journal.note(Fact::Ruled(ruled)).await;
        Some(ruling)
    }

    /// Returns the error of a denied action. If the decision ends the turn, remembers that, because the call may ignore
    /// the error.
    fn refusal(&self, ruling: &RecordedDecision) -> Option<Error> {
        let refusal = ruling.refusal()?;
        if refusal.kind() == Kind::PolicyInterrupted {
            self.journal.interrupt(&self.call.key, &Failure::from(&refusal));
        }
        Some(refusal)
    }

    /// Remembers that a rule ends the turn, if the failure says so.
    pub(super) fn know_interrupt(&self, failure: &Failure) {
        if failure.code == Kind::PolicyInterrupted {
            self.journal.interrupt(&self.call.key, failure);
        }
    }

    /// Returns the facts about the turn that rules may test.
    pub(super) fn around(&self) -> TurnCircumstances {
        self.resolved_agent.circumstances(self.call.org, self.circumstances.spending)
    }

    /// Returns the labels of what this call wants to do: its own, those of the untrusted tools that it ran, and those
    /// of the hooks that changed what it was told.
    pub(super) fn labels_now(&self) -> Labels {
        let mut labels = self.call.labels.clone();
        if self.resolved_agent.keeps_labels() {
            labels.extend(self.used().read.clone());
            labels.extend(self.circumstances.hook_labels.labels());
            labels.extend(of_hooks(&self.journal.history, &self.resolved_agent.package.hooks));
        }
        labels
    }
}
