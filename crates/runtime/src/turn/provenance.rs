//! The trusted text of a turn, for the provenance of sink values: user messages, the system prompt and results of
//! trusted tools.
//!
//! Collects text only. [`outlast_kernel::provenance`] decides what it means for a call.
use crate::turn::drive::ActiveTurn;
use crate::turn::host::TurnJournal;
use outlast_kernel::provenance::{ToolSinks, TrustedText, sinks};
use outlast_kernel::step::RunToolsStep;
use outlast_ports::store::Store;
use outlast_vocab::Error;
use outlast_vocab::effect::Outcome;
use outlast_vocab::label::{Labels, Origin, UntrustedSource};
use outlast_vocab::limits::TYPED_HISTORY_BYTES;
use outlast_vocab::message::{Message, Part, ToolUse};
use outlast_vocab::record::{EffectPerformed, Fact, NodeRef, Record};
use tokio::sync::OnceCell;

/// The text that the user typed before a turn. Read when it is first needed.
#[derive(Debug, Default)]
pub struct EarlierText {
    /// The message that the turn follows.
    parent: Option<NodeRef>,
    typed: OnceCell<Vec<String>>,
}

impl EarlierText {
    /// Returns the text before a turn that follows this message.
    pub fn before(parent: Option<NodeRef>) -> Self {
        Self { parent, typed: OnceCell::new() }
    }

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

impl ActiveTurn<'_> {
    /// Returns the trusted text for a batch of calls. It is empty if no call needs it: if nothing untrusted was read
    /// before, or if no call has a sink argument.
    pub(crate) async fn trusted_text<'t, H: TurnJournal>(
        &'t self,
        batch: &'t RunToolsStep,
        labels: &Labels,
        host: &H,
    ) -> Result<TrustedText<'t>, Error> {
        let mut trusted = TrustedText::default();
        let contracts = self.resolved_agent.contracts.as_slice();
        let has_sink_arguments = |(call, _): (&ToolUse, _)| {
            let contract = contracts.iter().find(|contract| contract.name == call.tool);
            contract.is_some_and(|contract| matches!(sinks(contract), ToolSinks::Arguments(_)))
        };
        if labels.is_empty() || !batch.calls().any(has_sink_arguments) {
            return Ok(trusted);
        }
        trusted.add(Origin::Agent, self.resolved_agent.package.system.as_str());
        if let Some(store) = host.store() {
            for text in self.earlier.typed(store.as_ref()).await? {
                trusted.add(Origin::User, text.as_str());
            }
        }
        // A hook may have changed tool results.
        let by_hook = labels.sources().any(|source| matches!(source, UntrustedSource::Hook(_)));
        let tools = if by_hook { &[] } else { contracts };
        let was_tainted = !self.labels.is_empty() || !self.definitions().is_empty();
        trusted.add_turn(batch.turn_messages(), tools, was_tainted);
        Ok(trusted)
    }
}
