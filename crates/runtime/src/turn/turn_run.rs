//! What one run of a turn is: the turn, the agent that answers it, and the lease that permits it.
use crate::agents::resolved_agent::ResolvedAgent;
use crate::calls::catalogue::CallingTurn;
use outlast_vocab::{ErrorPlace, OrgId};
use std::sync::Arc;

/// One run of a turn. It holds facts only; services belong to what performs the effects of the turn.
#[derive(Clone, Copy, Debug)]
pub struct TurnRun<'a> {
    /// The agent, as resolved for this turn.
    pub agent: &'a Arc<ResolvedAgent>,
    /// The session and the turn.
    pub caller: CallingTurn,
    /// The number of the turn in the session, counted from 0.
    pub index: u32,
    /// The number of the lease, which grows with every claim. 1 if the host has no leases.
    pub lease: u64,
    /// The organisation of the session. `None` on a host that keeps nothing.
    pub org: Option<OrgId>,
}

impl TurnRun<'_> {
    /// The context for errors of this turn.
    pub(crate) fn place(&self) -> ErrorPlace {
        let CallingTurn { session, turn } = self.caller;
        ErrorPlace { org: self.org, session: Some(session), turn: Some(turn), ..ErrorPlace::default() }
    }
}
