//! What is approved for the rest of a session: calls that nobody is asked about any more (R11.2).
//!
//! Looked up when calls are claimed and kept in their record, so a replay asks nobody anew; the write of the claim holds it
//! against the rows once more, so what is revoked before that counts no more.
use crate::drive::Turn;
use outlast_ports::store::Store;
use outlast_ports::votes::Grant;
use outlast_vocab::approval::{Covered, Granted};
use outlast_vocab::effect::BatchCall;
use outlast_vocab::policy::{Decision, Ruling};
use outlast_vocab::tool::{Contract, PreparedCall};
use outlast_vocab::{Error, Hash, canon};
use std::sync::Arc;

/// Notes on each call that somebody would be asked about whether that was done for the rest of the session.
pub(crate) async fn note_grants(
    turn: &Turn<'_>,
    store: Option<&Arc<dyn Store>>,
    calls: &mut [BatchCall],
) -> Result<(), Error> {
    let Some(store) = store.filter(|_| calls.iter().any(may_be_granted)) else { return Ok(()) };
    let grants = store.grants_in(turn.caller.session).await?;
    for call in calls.iter_mut().filter(|call| may_be_granted(call)) {
        let BatchCall::Run(call) = call else { continue };
        let grant =
            turn.outfit.catalogue.contract(&call.tool).and_then(|contract| found(&grants, call, contract));
        if let (Some(ruling), Some(Grant { id, by, at, form, .. })) = (&mut call.ruling, grant) {
            ruling.grant = Some(Box::new(Granted { id: *id, by: by.clone(), at: *at, form: *form }));
        }
    }
    Ok(())
}

fn may_be_granted(call: &BatchCall) -> bool {
    let BatchCall::Run(PreparedCall { ruling: Some(ruling), .. }) = call else { return false };
    matches!(&ruling.decision, Decision::Ask(ask) if !ask.each_time)
}

fn found<'g>(grants: &'g [Grant], call: &PreparedCall, contract: &Contract) -> Option<&'g Grant> {
    let form = form(call, call.ruling.as_ref()?, contract);
    grants.iter().find(|grant| grant.covers(form, &call.labels))
}

/// Whether what allowed a call covers it as its tool is defined here and now.
pub(crate) fn still_covers(
    granted: &Granted,
    call: &PreparedCall,
    ruling: &Ruling,
    contract: &Contract,
) -> bool {
    form(call, ruling, contract) == granted.form
}

fn form(call: &PreparedCall, ruling: &Ruling, contract: &Contract) -> Hash {
    Covered::by(call.tool.clone(), canon::fingerprint(contract), ruling).form()
}
