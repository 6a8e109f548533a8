//! Calls of other tools by a running call. They pass the checks of every call ([`crate::calls::preparation`],
//! [`crate::calls::call`]); what is special about them is here.
use super::{CallCircumstances, CallIdentity, CallUsage, ToolCallScope};
use crate::calls::call::{AttemptEnd, AttemptNumber, answer_of, attempt, may_be_retried, ready};
use crate::calls::call_journal::CallWrites;
use crate::calls::preparation::{CallRequest, CheckedRequest, prepare};
use crate::limits::budget_meter::{calls, hold_calls};
use crate::limits::tool_limits::taken_over;
use outlast_kernel::provenance::TrustedText;
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::effect::{BatchCall, DurableStep, RefusedCall, StepOutcome};
use outlast_vocab::event::LiveEventKind;
use outlast_vocab::label::UntrustedSource;
use outlast_vocab::message::{CallArguments, ModelCallId, ToolName, ToolResult, ToolUse};
use outlast_vocab::record::{EffectPerformed, Fact, PolicyDecided, UndoableCall};
use outlast_vocab::tool::{PreparedCall, UndoCall};
use outlast_vocab::{Class, Error, Failure, Kind, ReplayKey};
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// The end of a nested call that ran: what the calling tool gets, what is written with it, and what it used.
struct NestedAnswer {
    result: ToolResult,
    writes: CallWrites,
    /// Whether the tool returned a value, which costs its price.
    returned: bool,
}

impl ToolCallScope {
    /// Runs another tool as a step of this call. Its writes are committed with its own answer.
    pub(super) async fn run_nested(&self, tool: &ToolName, arguments: Value) -> Result<Value, Error> {
        self.journal.durable(&format!("calling the tool `{tool}` from a tool"))?;
        let number = self.count_nested()?;
        let key = self.call.key.nested(number, tool.as_str());
        let value = self.nested_at(&key, format!("nested_{number}").parse()?, tool, arguments).await?;
        self.used().made.extend(self.journal.undo_of(&key));
        Ok(value)
    }

    /// Undoes the tool calls that this call has made so far, newest first. If one cannot be undone, the others still
    /// are.
    pub(super) async fn undo_nested(&self) -> Result<(), Error> {
        let made = std::mem::take(&mut self.used().made);
        let (mut left, all) = (Vec::new(), made.len());
        for (number, UndoableCall { key, undo }) in made.into_iter().enumerate().rev() {
            let UndoCall { tool, arguments } = undo;
            let id = format!("undo_{number}").parse()?;
            match self.nested_at(&key.undo(), id, &tool, arguments).await {
                Ok(_) => {}
                Err(error) if error.class() == Class::Retry => return Err(error),
                Err(error) => left.push(format!("`{tool}` failed: {}", error.detail())),
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        let detail = format!("{} of {all} calls could not be undone: {}", left.len(), left.join("; "));
        Err(Error::new(Kind::ToolFailed, detail))
    }

    async fn nested_at(
        &self,
        key: &ReplayKey,
        model_id: ModelCallId,
        tool: &ToolName,
        arguments: Value,
    ) -> Result<Value, Error> {
        let ask = ToolUse::new(model_id, tool.clone(), CallArguments::Json(arguments.clone()));
        let effect = DurableStep { name: key.as_str().to_owned(), input: arguments };
        if let Some(outcome) = self.journal.answered(key, &effect)? {
            // This run of the call has read the answer, as the run that made the call did.
            self.reads_from(tool);
            self.tell(key, |key| LiveEventKind::Replayed { key });
            return outcome.into();
        }
        // A rule ended the turn. Only what was done can still be undone.
        if let Some(failure) = self.journal.interrupted(&self.call.key).filter(|_| !key.is_undo()) {
            return Err(failure.into());
        }
        let mut changes = Vec::new();
        let prepared = self.prepare_nested(key, &ask, &mut changes).await?;
        self.check_nested(&prepared)?;
        let most = calls(std::iter::once(self.resolved_agent.contract_of(tool)));
        let failed = UsageAmount { calls: 1, ..UsageAmount::ZERO };
        self.journal.reserve(hold_calls(key, most)).await?;
        let inner = Arc::new(self.nested_scope(key.clone(), &prepared));
        let begins = taken_over(&self.journal.history, key);
        let prepared = match ready(&inner, prepared, begins).await {
            Ok(prepared) => prepared,
            Err(error) => {
                self.journal.settle(key, failed, UsageAmount::ZERO);
                self.journal.send_settlements().await;
                return Err(error);
            }
        };
        let NestedAnswer { result, writes, returned } = inner.answer_nested(&prepared, &mut changes).await?;
        self.journal.settle(key, if returned { most } else { failed }, UsageAmount::ZERO);
        // Commit its writes with its answer. If this call runs again, the answer is replayed and nothing is written
        // twice.
        if let Some(undo) = &writes.undo {
            self.journal.add_undoable(undo.clone());
        }
        self.journal.note_all(changes).await;
        let outcome = match result {
            ToolResult::Ok(value) => StepOutcome::Value(value),
            ToolResult::Err(failure) => StepOutcome::Failed(failure),
        };
        let cost = if returned { self.resolved_agent.price(tool) } else { None };
        let performed =
            EffectPerformed { cost, ..EffectPerformed::new(key.clone(), effect, outcome.clone()) };
        self.journal.record_with(self.journal.keep(performed), writes).await;
        outcome.into()
    }

    /// Checks a nested call like any other call. The decision of the policy is noted, whatever it is.
    async fn prepare_nested(
        &self,
        key: &ReplayKey,
        ask: &ToolUse,
        changes: &mut Vec<Fact>,
    ) -> Result<PreparedCall, Error> {
        let (labels, around) = (self.labels_now(), self.around());
        self.check_trust(&ask.tool)?;
        self.reads_from(&ask.tool);
        // The tool composed these arguments itself, so no text of the conversation can make them trusted.
        let trusted = TrustedText::default();
        let request =
            CallRequest { ask, labels: &labels, trusted: &trusted, around: &around, cancel: &self.cancel };
        let CheckedRequest { ask, call } =
            prepare(self.hooks(key), request, &self.storage.held(), changes).await;
        let (ruling, arguments) = match (&call, &ask.arguments) {
            (BatchCall::Run(prepared), _) => (prepared.ruling.as_ref(), &prepared.arguments),
            (BatchCall::Refused(refused), CallArguments::Json(asked)) => (refused.ruling.as_deref(), asked),
            (BatchCall::Refused(_), CallArguments::Broken(_)) => (None, &Value::Null),
        };
        if let Some(ruling) = ruling.cloned() {
            let (tool, arguments) = (ask.tool.clone(), arguments.clone());
            let decision = PolicyDecided::of_call(key.clone(), tool, ruling, arguments, labels);
            self.journal.note_decision(decision).await;
        }
        match call {
            BatchCall::Run(prepared) => Ok(prepared),
            BatchCall::Refused(RefusedCall { failure, .. }) => {
                self.know_interrupt(&failure);
                Err(failure.into())
            }
        }
    }

    /// Refuses a call that would have to wait for a decision, or that repeats less safely than the running call.
    fn check_nested(&self, prepared: &PreparedCall) -> Result<(), Error> {
        let tool = &prepared.tool;
        if let Some(ruling) = prepared.ruling.as_ref().filter(|_| prepared.is_held()) {
            let detail = format!(
                "the rule `{}` pauses `{tool}`, but only calls by the model can be paused",
                ruling.rule
            );
            return Err(Error::new(Kind::PolicyDenied, detail).decided_by(ruling.to_string()));
        }
        if self.call.class.may_repeat() && !prepared.class.may_repeat() {
            let detail = format!(
                "a tool that is {} may run again, so it cannot run `{tool}`, which is {}",
                self.call.class.name(),
                prepared.class.name()
            );
            return Err(Error::new(Kind::ToolFailed, detail));
        }
        Ok(())
    }

    /// Rejects an untrusted tool if this call is trusted, because its result would count as trusted.
    fn check_trust(&self, tool: &ToolName) -> Result<(), Error> {
        if !self.call.trusted || !self.resolved_agent.keeps_labels() || self.resolved_agent.trusts(tool) {
            return Ok(());
        }
        let detail = format!("a trusted tool cannot call `{tool}`, which is not trusted");
        Err(Error::new(Kind::PolicyDenied, detail))
    }

    /// Labels what this call does from now on with a tool whose result it reads, if that is not trusted.
    fn reads_from(&self, tool: &ToolName) {
        if self.resolved_agent.keeps_labels() && !self.resolved_agent.trusts(tool) {
            self.used().read.add(UntrustedSource::Tool(tool.clone()));
        }
    }

    /// Runs this nested call. Returns an error if it has no answer: it may be retried, or the turn ends.
    async fn answer_nested(
        self: &Arc<Self>,
        prepared: &PreparedCall,
        changes: &mut Vec<Fact>,
    ) -> Result<NestedAnswer, Error> {
        match attempt(self, prepared, AttemptNumber::ONLY).await? {
            AttemptEnd::Completed(value) => {
                let (result, writes) = answer_of(self, prepared, value, changes).await;
                Ok(NestedAnswer { result, writes, returned: true })
            }
            AttemptEnd::Pending => {
                let detail = format!(
                    "`{}` is completed from outside, which is supported only for calls by the model",
                    prepared.tool
                );
                Err(Error::new(Kind::ToolFailed, detail))
            }
            AttemptEnd::Interrupted(failure) => Err(failure.into()),
            AttemptEnd::Failed(error) if may_be_retried(prepared, &error) => Err(error),
            AttemptEnd::Failed(error) => {
                self.release_open_payments("the call failed").await;
                let result = self.shown(prepared, ToolResult::Err(Failure::from(&error)), changes).await;
                Ok(NestedAnswer { result, writes: CallWrites::default(), returned: false })
            }
        }
    }

    /// Creates the scope of a nested call.
    fn nested_scope(&self, key: ReplayKey, prepared: &PreparedCall) -> Self {
        let call = CallIdentity {
            key,
            tool: prepared.tool.clone(),
            class: prepared.class,
            trusted: self.resolved_agent.trusts(&prepared.tool),
            labels: prepared.labels.clone(),
            ..self.call
        };
        Self {
            services: self.services.clone(),
            resolved_agent: self.resolved_agent.clone(),
            call,
            circumstances: CallCircumstances {
                hook_labels: self.circumstances.hook_labels.clone(),
                ..self.circumstances
            },
            journal: self.journal.clone(),
            storage: self.storage.for_nested_call(),
            cancel: self.cancel.clone(),
            secret: self.secret,
            used: Mutex::new(CallUsage::default()),
        }
    }
}
