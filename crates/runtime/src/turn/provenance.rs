//! The trusted text of a turn, for the provenance of sink values: user messages, the system prompt and results of
//! trusted tools.
//!
//! Collects text only. [`outlast_kernel::provenance`] decides what it means for a call.
use crate::agents::resolved_agent::ResolvedAgent;
use crate::policy::hooks::HookLabels;
use outlast_kernel::label::of_messages;
use outlast_kernel::provenance::{ToolSinks, TrustedText, sinks};
use outlast_kernel::step::RunToolsStep;
use outlast_ports::store::Store;
use outlast_vocab::Error;
use outlast_vocab::effect::Outcome;
use outlast_vocab::label::{Labels, Origin, UntrustedSource};
use outlast_vocab::limits::TYPED_HISTORY_BYTES;
use outlast_vocab::message::{Message, Part, ToolUse};
use outlast_vocab::record::{EffectPerformed, Fact, NodeRef, Record};
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Where the text comes from that the model of a turn reads.
#[derive(Debug, Default)]
pub struct TextSources {
    /// The untrusted sources of the text before the turn. Empty if labels are not tracked.
    before: Labels,
    earlier: EarlierText,
    /// Collects the untrusted hooks that send text to the model.
    pub(crate) hooks: HookLabels,
}

/// The text that the user typed before a turn. Read when it is first needed.
#[derive(Debug, Default)]
struct EarlierText {
    /// The message that the turn follows.
    parent: Option<NodeRef>,
    typed: OnceCell<Vec<String>>,
}

impl EarlierText {
    async fn typed(&self, store: &dyn Store) -> Result<&[String], Error> {
        let Some(parent) = self.parent else { return Ok(&[]) };
        let read = || async {
            let mut typed = Vec::new();
            for turn in store.history(parent, TYPED_HISTORY_BYTES).await? {
                let Some(id) = turn.records.first().and_then(|record| record.turn) else { continue };
                // An imported archive can claim that a user typed anything.
                if store.turn(id).await?.foreign {
                    break;
                }
                let records = turn.records.iter().filter(|record| record.seq <= turn.last_in_branch);
                records.for_each(|record| add_typed(record, &mut typed));
            }
            Ok(typed)
        };
        self.typed.get_or_try_init(read).await.map(Vec::as_slice)
    }
}

/// Adds the text that the user typed in a record.
fn add_typed(record: &Record, typed: &mut Vec<String>) {
    let mut add = |parts: &[Part]| {
        typed.extend(parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.clone()),
            _ => None,
        }));
    };
    match &record.fact {
        Fact::Accepted(accepted) => {
            for message in &accepted.before {
                if let Message::User { parts } = message {
                    add(parts);
                }
            }
            add(&accepted.parts);
        }
        Fact::Performed(EffectPerformed { outcome: Outcome::Checkpoint(joined), .. }) => {
            joined.inputs.iter().for_each(|input| add(&input.parts));
        }
        _ => {}
    }
}

impl TextSources {
    /// The sources of a turn that follows this message. `before` are the untrusted sources of the text up to there.
    pub(crate) fn new(before: Labels, parent: Option<NodeRef>) -> Self {
        let earlier = EarlierText { parent, typed: OnceCell::new() };
        Self { before, earlier, hooks: HookLabels::default() }
    }

    /// Returns the untrusted sources of the text before the turn.
    pub(crate) fn before(&self) -> &Labels {
        &self.before
    }

    /// Returns the labels of calls that the model makes after reading these messages of the turn.
    pub(crate) fn labels_after(&self, agent: &ResolvedAgent, read: &[Message]) -> Labels {
        if !agent.keeps_labels() || read.is_empty() {
            return Labels::default();
        }
        let mut labels = of_messages(read, &agent.contracts);
        labels.extend(self.before.clone());
        labels.extend(self.hooks.labels());
        labels.extend(agent.definition_labels());
        labels
    }

    /// Returns the trusted text for a batch of calls. It is empty if no call needs it: if nothing untrusted was read
    /// before, or if no call has a sink argument.
    pub(crate) async fn trusted_text<'t>(
        &'t self,
        agent: &'t ResolvedAgent,
        batch: &'t RunToolsStep,
        labels: &Labels,
        store: Option<&Arc<dyn Store>>,
    ) -> Result<TrustedText<'t>, Error> {
        let mut trusted = TrustedText::default();
        let contracts = agent.contracts.as_slice();
        let has_sink_arguments = |(call, _): (&ToolUse, _)| {
            let contract = agent.contract_of(&call.tool);
            contract.is_some_and(|contract| matches!(sinks(contract), ToolSinks::Arguments(_)))
        };
        if labels.is_empty() || !batch.calls().any(has_sink_arguments) {
            return Ok(trusted);
        }
        trusted.add(Origin::Agent, agent.package.system.as_str());
        if let Some(store) = store {
            for text in self.earlier.typed(store.as_ref()).await? {
                trusted.add(Origin::User, text.as_str());
            }
        }
        // A hook may have changed tool results.
        let by_hook = labels.sources().any(|source| matches!(source, UntrustedSource::Hook(_)));
        let tools = if by_hook { &[] } else { contracts };
        let was_tainted = !self.before.is_empty() || !agent.definition_labels().is_empty();
        trusted.add_turn(batch.turn_messages(), tools, was_tainted);
        Ok(trusted)
    }
}
