//! What a turn has buffered for its next write.
use crate::agents::resolved_agent::ResolvedAgent;
use outlast_ports::attachment_upload::AttachmentUpload;
use outlast_ports::attachment_upload::Upload;
use outlast_ports::budget::BudgetUpdate;
use outlast_ports::rate::AdmissionRequest;
use outlast_ports::turns::{PartialReplyChange, ValueWrite};
use outlast_vocab::record::{Fact, TurnResumed, TurnStarted};
use std::sync::Arc;

/// Facts and everything else that the next write of a turn commits.
#[derive(Default)]
pub(super) struct WriteBuffer {
    /// The record of the turn's beginning, for the first write. `None` if it is already written.
    pub(super) start: Option<TurnStart>,
    /// The record that this lease resumed the turn, for its first write.
    pub(super) resumed: Option<TurnResumed>,
    pub(super) facts: Vec<Fact>,
    pub(super) values: Vec<ValueWrite>,
    pub(super) files: Vec<Upload>,
    /// Rate-limited calls.
    pub(super) admission_requests: Vec<AdmissionRequest>,
    /// The change to the budgets. If absent, the write counts what the turn used until then.
    pub(super) budget_update: Option<BudgetUpdate>,
    /// How the write changes the persisted text of an unfinished reply.
    pub(super) partial: PartialReplyChange,
}

/// The beginning of a turn, which pins its agent.
pub(super) struct TurnStart {
    pub(super) started: TurnStarted,
    pub(super) agent: Arc<ResolvedAgent>,
}

impl WriteBuffer {
    /// Whether nothing asks for a write. The records of the beginning and of the lease wait for one.
    pub(super) fn is_empty(&self) -> bool {
        self.facts.is_empty()
            && self.values.is_empty()
            && self.files.is_empty()
            && self.admission_requests.is_empty()
    }

    /// Returns the facts in the order of their records: the lease and the beginning of the turn come first.
    pub(super) fn take_facts(&mut self) -> Vec<Fact> {
        let mut facts = std::mem::take(&mut self.facts);
        let started = self.start.as_ref().map(|start| Fact::Started(start.started.clone()));
        facts.splice(..0, self.resumed.take().map(Fact::Resumed).into_iter().chain(started));
        facts
    }

    /// Returns the attachments to upload.
    pub(super) fn take_files(&mut self) -> Vec<AttachmentUpload> {
        std::mem::take(&mut self.files).into_iter().map(AttachmentUpload::Inline).collect()
    }
}
