//! Approvals for the rest of a session: calls that they cover need no further approval.
//!
//! A grant is looked up when calls are claimed, and stored in the record of the claim, so a replay does not
//! ask again. The write of the claim checks the grant again, so a grant that was revoked before that write
//! does not apply.
use crate::agents::resolved_agent::ResolvedAgent;
use outlast_ports::store::Store;
use outlast_views::SessionGrant;
use outlast_vocab::approval::{AppliedGrant, GrantScope};
use outlast_vocab::effect::BatchCall;
use outlast_vocab::policy::{PolicyDecision, RecordedDecision};
use outlast_vocab::tool::{PreparedCall, ToolContract};
use outlast_vocab::{Error, Hash, SessionId, canonical_json};
use std::sync::Arc;

/// Adds the matching grant to each call that needs approval.
pub(crate) async fn note_grants(
    agent: &ResolvedAgent,
    session: SessionId,
    store: Option<&Arc<dyn Store>>,
    calls: &mut [BatchCall],
) -> Result<(), Error> {
    let Some(store) = store.filter(|_| calls.iter().any(may_be_granted)) else { return Ok(()) };
    let grants = store.session_grants(session).await?;
    for call in calls.iter_mut().filter(|call| may_be_granted(call)) {
        let BatchCall::Run(call) = call else { continue };
        let grant = agent.catalogue.contract(&call.tool).and_then(|contract| found(&grants, call, contract));
        if let (Some(ruling), Some(SessionGrant { id, by, at, covers_form: form, .. })) =
            (&mut call.ruling, grant)
        {
            ruling.grant = Some(Box::new(AppliedGrant { id: *id, by: by.clone(), at: *at, form: *form }));
        }
    }
    Ok(())
}

fn may_be_granted(call: &BatchCall) -> bool {
    let BatchCall::Run(PreparedCall { ruling: Some(ruling), .. }) = call else { return false };
    matches!(&ruling.decision, PolicyDecision::Ask(ask) if !ask.each_time)
}

fn found<'g>(
    grants: &'g [SessionGrant],
    call: &PreparedCall,
    contract: &ToolContract,
) -> Option<&'g SessionGrant> {
    let form = form(call, call.ruling.as_ref()?, contract);
    grants.iter().find(|grant| grant.covers(form, &call.labels))
}

/// Whether a grant still covers a call, given the current definition of its tool.
pub(crate) fn still_covers(
    granted: &AppliedGrant,
    call: &PreparedCall,
    ruling: &RecordedDecision,
    contract: &ToolContract,
) -> bool {
    form(call, ruling, contract) == granted.form
}

fn form(call: &PreparedCall, ruling: &RecordedDecision, contract: &ToolContract) -> Hash {
    GrantScope::by(call.tool.clone(), canonical_json::fingerprint(contract), ruling).fingerprint()
}
