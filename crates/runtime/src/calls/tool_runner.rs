//! What running the tool calls of a turn takes: the services of this process ([`ToolServices`]) and the turn
//! ([`ToolRunner`]).
use crate::attachments::attachment_access::AttachmentAccess;
use crate::attachments::attachment_references::AttachmentResolver;
use crate::calls::payments::PaymentClient;
use crate::limits::operator_budgets::OperatorBudgets;
use crate::turn::cancel::CancelSignal;
use crate::turn::model_client::ModelClient;
use crate::turn::provenance::TextSources;
use crate::turn::turn_run::TurnRun;
use outlast_ports::store::Store;
use outlast_vocab::ReplayKey;
use outlast_vocab::event::LiveEventKind;
use std::sync::Arc;

/// The services of this process that tool calls use.
pub(crate) struct ToolServices {
    /// The model client, with the clock, the limits, the hub and the metrics of this process.
    pub(crate) models: Arc<ModelClient>,
    pub(crate) attachments: AttachmentAccess,
    pub(crate) payments: PaymentClient,
    pub(crate) budgets: Arc<OperatorBudgets>,
}

/// Runs the tool calls of one turn.
pub(crate) struct ToolRunner<'a> {
    pub(crate) services: &'a Arc<ToolServices>,
    pub(crate) run: TurnRun<'a>,
    pub(crate) sources: &'a TextSources,
    /// Cancels the calls.
    pub(crate) cancel: CancelSignal,
}

impl ToolRunner<'_> {
    /// Returns the attachments that arguments of the calls may refer to.
    pub(crate) fn attachments(&self, store: Option<&Arc<dyn Store>>) -> AttachmentResolver {
        self.services.attachments.of_session(store, self.run.caller.session)
    }

    /// Publishes a live event of an effect of the turn.
    pub(crate) fn tell(&self, key: &ReplayKey, what: impl FnOnce(ReplayKey) -> LiveEventKind) {
        self.services.models.hub.publish_effect(self.run.caller, key, what);
    }
}
