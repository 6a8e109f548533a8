//! Health of the server, the caller's identity, and running turns.
use outlast_vocab::{Millis, OrgId, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::ToSchema;

/// The health of the server.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ServerHealth {
    /// `live`, `ready` or `stopping`.
    pub state: Cow<'static, str>,
    /// What an acknowledged write survives. Only present if the server is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<Cow<'static, str>>,
    /// The schema version of the database. Only present if the server is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<u32>,
    /// The number of agents in the database that cannot be loaded. `GET /v1/configs/agent` returns the
    /// reasons. Absent if all agents were loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents_left_out: Option<usize>,
}

/// The identity of the caller.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CallerIdentity {
    /// The id of the caller's organisation.
    #[schema(value_type = String)]
    pub org: OrgId,
    /// The name of the organisation.
    pub name: String,
    /// The person or service that the caller acts for.
    pub by: String,
    /// The scopes of the caller, separated by commas.
    pub scopes: String,
}

/// A turn that this process is running.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = RunningTurn)]
pub struct RunningTurnResource {
    /// The id of the session.
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The id of the turn.
    #[schema(value_type = String)]
    pub turn: TurnId,
    /// The name of the agent. Absent until it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// When this process started to run the turn, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub since: Millis,
}
