//! Calls of other tools by a running call.
use super::{CallWrites, ToolCallScope, call};
use crate::calls::catalogue::{CallPreparation, Caller};
use crate::limits::budget_meter::{calls, hold_calls};
use crate::limits::tool_limits::{CallPermit, taken_over};
use crate::policy::hooks::{after_tool, before_tool};
use crate::turn::undo::undoable;
use outlast_kernel::provenance::TrustedText;
use outlast_ports::tool::ToolRunOutcome;
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::effect::{BatchCall, DurableStep, RefusedCall, StepOutcome};
use outlast_vocab::event::LiveEventKind;
use outlast_vocab::label::{Labels, UntrustedSource};
use outlast_vocab::message::{CallArguments, ModelCallId, ToolName, ToolResult, ToolUse};
use outlast_vocab::record::{EffectPerformed, Fact, PolicyDecided, UndoableCall};
use outlast_vocab::tool::{PreparedCall, UndoCall};
use outlast_vocab::{Class, Error, Failure, Kind, ReplayKey};
use serde_json::Value;
use std::sync::{Arc, Mutex};

impl ToolCallScope {
    /// Runs another tool as a step of this call. Its writes are committed with its own answer.
    pub(super) async fn run_nested(&self, tool: &ToolName, arguments: Value) -> Result<Value, Error> {
        self.durable(&format!("calling the tool `{tool}` from a tool"))?;
        let number = self.count_nested()?;
        let key = self.key.nested(number, tool.as_str());
        let value = self.nested_at(key.clone(), format!("nested_{number}").parse()?, tool, arguments).await?;
        let undo = self.history.undo_of(&key).cloned();
        let mut used = self.used();
        let undo = undo.or_else(|| used.answered.undo_of(&key).cloned());
        used.made.extend(undo);
        Ok(value)
    }

    /// Undoes the tool calls that this call has made so far, newest first. If one cannot be undone, the others still
    /// are.
    pub(super) async fn undo_nested(&self) -> Result<(), Error> {
        let made = std::mem::take(&mut self.used().made);
        let mut left = Vec::new();
        for (number, UndoableCall { key, undo }) in made.iter().enumerate().rev() {
            let UndoCall { tool, arguments } = undo;
            let id = format!("undo_{number}").parse()?;
            match self.nested_at(key.undo(), id, tool, arguments.clone()).await {
                Ok(_) => {}
                Err(error) if error.class() == Class::Retry => return Err(error),
                Err(error) => left.push(format!("`{tool}` failed: {}", error.detail())),
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        let detail =
            format!("{} of {} calls could not be taken back: {}", left.len(), made.len(), left.join("; "));
        Err(Error::new(Kind::ToolFailed, detail))
    }

    /// Refuses a call that would have to wait for a decision, or that repeats less safely than the running call.
    fn check_nested(&self, tool: &ToolName, prepared: &PreparedCall) -> Result<(), Error> {
        if let Some(ruling) = prepared.ruling.as_ref().filter(|_| prepared.is_held()) {
            let detail = format!(
                "the rule `{}` holds `{tool}` up, which only a model's own call can wait for",
                ruling.rule
            );
            return Err(Error::new(Kind::PolicyDenied, detail).decided_by(ruling.to_string()));
        }
        if self.class.may_repeat() && !prepared.class.may_repeat() {
            let detail = format!(
                "a tool that is {} may run again, so it cannot run `{tool}`, which is {}",
                self.class.name(),
                prepared.class.name()
            );
            return Err(Error::new(Kind::ToolFailed, detail));
        }
        Ok(())
    }

    async fn nested_at(
        &self,
        key: ReplayKey,
        model_id: ModelCallId,
        tool: &ToolName,
        arguments: Value,
    ) -> Result<Value, Error> {
        let caller = Caller { session: self.session, turn: self.turn };
        let ask = ToolUse::new(model_id, tool.clone(), CallArguments::Json(arguments.clone()));
        let effect = DurableStep { name: key.as_str().to_owned(), input: arguments };
        if let Some(outcome) = self.answered(&key, &effect)? {
            self.tell(LiveEventKind::Replayed { key });
            return outcome.into();
        }
        let (limits, mut changes) = (&self.services.limits, Vec::new());
        let ask = before_tool(self.hooks(&key), &ask, &mut changes).await?;
        let labels = self.labels_now();
        let around = self.resolved_agent.circumstances(self.org, self.spending);
        let (labels, around, cancel) = (&labels, &around, &self.cancel);
        // The tool composed these arguments itself, so no text of the conversation can make them trusted.
        let trusted = &TrustedText::default();
        let asked = CallPreparation { caller, key: &key, ask: &ask, labels, trusted, around, cancel };
        self.may_run(tool)?;
        let prepared = match self
            .resolved_agent
            .catalogue
            .prepare(asked, &self.held(), &self.resolved_agent, limits)
            .await
        {
            BatchCall::Run(prepared) => prepared,
            BatchCall::Refused(RefusedCall { failure, ruling, labels, .. }) => {
                if let (Some(ruling), CallArguments::Json(arguments)) = (ruling, &ask.arguments) {
                    let (key, tool) = (key.clone(), tool.clone());
                    self.note_ruling(PolicyDecided::of_call(key, tool, *ruling, arguments.clone(), labels))
                        .await;
                }
                self.know_interrupt(&failure);
                return Err(failure.into());
            }
        };
        if let Some(ruling) = prepared.ruling.clone() {
            let (arguments, labels) = (prepared.arguments.clone(), prepared.labels.clone());
            self.note_ruling(PolicyDecided::of_call(key.clone(), tool.clone(), ruling, arguments, labels))
                .await;
        }
        self.check_nested(tool, &prepared)?;
        let contract = self.resolved_agent.contracts.iter().find(|contract| contract.name == *tool);
        let most = calls(std::iter::once(contract));
        self.reserve(hold_calls(key.clone(), most)).await?;
        let begins = taken_over(&self.history, &key);
        self.wait_for_rate_limits(&key, tool, begins).await?;
        let schema = contract.map_or(&Value::Null, |contract| &contract.input);
        let prepared = self.held().call(&prepared, schema).await?;
        let inner = Arc::new(self.inside(key.clone(), &prepared));
        let facts = call(&inner, &prepared, 1, 1);
        let ran =
            self.resolved_agent.catalogue.provider(tool)?.execute(&prepared, facts, inner.clone()).await;
        self.know_payments_of(&inner);
        self.know_interrupt_of(&inner);
        let outcome = match ran {
            Ok(ToolRunOutcome::Completed(value)) => StepOutcome::Value(value),
            Ok(ToolRunOutcome::Pending) => {
                let detail =
                    format!("`{tool}` waits to be completed from outside, which only a model's own call can");
                return Err(Error::new(Kind::ToolFailed, detail));
            }
            Err(error) if error.class() == Class::Retry => return Err(error),
            Err(error) => StepOutcome::Failed(Failure::from(&error)),
        };
        inner.release_open_payments("the call ended without settling it").await;
        self.know_payments_of(&inner);
        let (actual, outcome) =
            (outcome.clone(), self.shown_nested(&key, &prepared, outcome, &mut changes).await);
        let used = match &actual {
            StepOutcome::Value(_) => most,
            StepOutcome::Failed(_) => UsageAmount { calls: 1, ..UsageAmount::ZERO },
        };
        self.settle(key.clone(), Some(used));
        // Commit its writes with its answer. If this call runs again, the answer is replayed and nothing is written
        // twice.
        let written = match &actual {
            StepOutcome::Value(value) => {
                let undo = undoable(&self.resolved_agent, &key, &prepared, value);
                if let Some(undo) = &undo {
                    self.used().answered.add_undoable(undo.clone());
                }
                CallWrites { undo, ..inner.take_written().await? }
            }
            StepOutcome::Failed(_) => CallWrites::default(),
        };
        for change in changes {
            self.note(change).await;
        }
        let worked = matches!(actual, StepOutcome::Value(_));
        let cost = if worked { self.resolved_agent.price(tool) } else { None };
        let performed = EffectPerformed { cost, ..EffectPerformed::new(key, effect, outcome.clone()) };
        self.record_with(self.keep(performed), written).await;
        outcome.into()
    }

    /// Records a decision about a nested call, unless it is already recorded.
    async fn note_ruling(&self, ruled: PolicyDecided) {
        if self.history.decision(&ruled.key) != Some(&ruled) {
            self.note(Fact::Ruled(ruled)).await;
        }
    }

    /// Runs the hooks on the outcome of a nested call.
    async fn shown_nested(
        &self,
        key: &ReplayKey,
        call: &PreparedCall,
        outcome: StepOutcome,
        changes: &mut Vec<Fact>,
    ) -> StepOutcome {
        let result = match outcome {
            StepOutcome::Value(value) => ToolResult::Ok(value),
            StepOutcome::Failed(failure) => ToolResult::Err(failure),
        };
        match after_tool(self.hooks(key), call, result, changes).await {
            ToolResult::Ok(value) => StepOutcome::Value(value),
            ToolResult::Err(failure) => StepOutcome::Failed(failure),
        }
    }

    /// Returns the labels of a nested call: those of this call, and those of the untrusted tools that it ran.
    pub(super) fn labels_now(&self) -> Labels {
        let mut labels = self.labels.clone();
        labels.extend(self.used().read.clone());
        labels
    }

    /// Rejects an untrusted tool if this call is trusted, because the result would count as trusted. Otherwise labels
    /// this call with the untrusted tool.
    fn may_run(&self, tool: &ToolName) -> Result<(), Error> {
        if !self.resolved_agent.keeps_labels() || self.resolved_agent.trusts(tool) {
            return Ok(());
        }
        if self.trusted {
            let detail = format!("what a trusted tool gives cannot come from `{tool}`, which is not trusted");
            return Err(Error::new(Kind::PolicyDenied, detail));
        }
        self.used().read.add(UntrustedSource::Tool(tool.clone()));
        Ok(())
    }

    /// Creates the scope of a nested call.
    fn inside(&self, key: ReplayKey, prepared: &PreparedCall) -> Self {
        Self {
            services: self.services.clone(),
            tier: self.tier,
            history: self.history.clone(),
            store: self.store.clone(),
            secret: self.secret,
            cancel: self.cancel.clone(),
            session: self.session,
            turn: self.turn,
            resolved_agent: self.resolved_agent.clone(),
            lease: self.lease,
            metered: self.metered,
            class: prepared.class,
            trusted: self.resolved_agent.trusts(&prepared.tool),
            labels: prepared.labels.clone(),
            tool: Some(prepared.tool.clone()),
            org: self.org,
            spending: self.spending,
            hook_labels: self.hook_labels.clone(),
            child: self.child,
            key,
            begins: CallPermit::Now,
            to_driver: self.to_driver.clone(),
            used: Mutex::default(),
        }
    }
}
