//! What running the tool calls of a turn takes: the services of this process ([`ToolServices`]) and the turn
//! ([`ToolRunner`]).
use crate::attachments::attachment_access::AttachmentAccess;
use crate::attachments::attachment_references::AttachmentResolver;
use crate::calls::payments::PaymentClient;
use crate::delivery::live::LiveHub;
use crate::limits::operator_budgets::OperatorBudgets;
use crate::turn::cancel::CancelSignal;
use crate::turn::model_client::ModelClient;
use crate::turn::provenance::TextSources;
use crate::turn::turn_run::TurnRun;
use crate::views::metrics::WorkerMetrics;
use outlast_ports::clock::Clock;
use outlast_ports::store::Store;
use outlast_vocab::Limits;
use outlast_vocab::event::LiveEventKind;
use std::sync::Arc;

/// The services of this process that tool calls use.
pub(crate) struct ToolServices {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) hub: Arc<LiveHub>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) models: Arc<ModelClient>,
    pub(crate) attachments: AttachmentAccess,
    pub(crate) payments: PaymentClient,
    pub(crate) budgets: Arc<OperatorBudgets>,
}

impl ToolServices {
    /// Creates the services of calls that share the clock, the limits, the hub and the metrics of this model client.
    pub(crate) fn new(
        models: Arc<ModelClient>,
        attachments: AttachmentAccess,
        payments: PaymentClient,
        budgets: Arc<OperatorBudgets>,
    ) -> Self {
        Self {
            clock: models.clock.clone(),
            limits: models.limits.clone(),
            hub: models.hub.clone(),
            metrics: models.metrics.clone(),
            models,
            attachments,
            payments,
            budgets,
        }
    }
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

    /// Publishes a live event of the turn.
    pub(crate) fn tell(&self, what: impl FnOnce() -> LiveEventKind) {
        self.services.hub.publish(self.run.caller, what);
    }
}
