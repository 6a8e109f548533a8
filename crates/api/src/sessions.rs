//! Sessions, their heads and their waits.
use crate::unknown_value;
use outlast_views::{LastTurn, SessionState, SessionView, TitledSession};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::JournalPosition;
use outlast_vocab::record::{NodeRef, Seq};
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Hash, Millis, OrgId, ReplayKey, SessionId, TurnId, WorkerId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::{IntoParams, ToSchema};

/// Parameters that filter sessions.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SessionParams {
    /// Only return the session with this key.
    pub key: Option<String>,
    /// Only return sessions in this state: `idle`, `ready`, `running`, `parked` or `held`.
    pub state: Option<String>,
    /// Only return sessions whose last turn ended like this: `answered`, `failed`, `cancelled`, `sealed`,
    /// `stuck`, …
    pub last_end: Option<String>,
    /// Only return sessions whose key or first input contains this text.
    pub search: Option<String>,
    /// The maximum number of items to return. Defaults to 50.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<usize>,
    /// The `next` value of the previous page. Defaults to the first page.
    pub cursor: Option<String>,
}

/// A session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Session)]
pub struct SessionResource {
    /// The id of the session.
    #[schema(value_type = String, example = "ses_019a8b6e5c7d7f3a9b1c2d3e4f506172")]
    pub id: SessionId,
    /// The id of the organisation that owns the session.
    #[schema(value_type = String)]
    pub org: OrgId,
    /// The key that the caller chose. Absent if it chose none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The state of the session.
    ///
    /// - `idle`: there is nothing to do.
    /// - `ready`: a turn waits for a worker.
    /// - `running`: a worker runs a turn.
    /// - `parked`: a turn waits for something external.
    /// - `held`: a turn is held back because workers died while they ran it.
    pub state: Cow<'static, str>,
    /// The title: the first input of the session, or the origin of a fork without input.
    pub title: String,
    /// When the session was created, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub created: Millis,
    /// When the session last changed, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub updated: Millis,
    /// The number of inputs that the session accepted.
    pub turns: u32,
    /// The sequence number of the last record, which is the cursor of the session's events.
    #[schema(value_type = u64)]
    pub last: Seq,
    /// The hash of the last record in the hash chain.
    #[schema(value_type = String)]
    pub hash: Hash,
    /// The heads of the session.
    pub heads: Vec<SessionHeadResource>,
    /// The message that the session was forked from. Absent if it is not a fork.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<MessageRef>,
    /// The id of the turn that is running or parked. Absent if there is no such turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub active: Option<TurnId>,
    /// The id of the worker that runs the turn. Absent if no worker does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub worker: Option<WorkerId>,
    /// What the turn waits for.
    pub waits: Vec<WaitResource>,
    /// When a worker resumes the turn if nothing else resumes it first, as a Unix timestamp in milliseconds.
    /// Absent if no time is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub wake_at: Option<Millis>,
    /// The number of workers that died while they ran the turn, since its last progress. Absent if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deaths: u32,
    /// The ids of the sessions that were forked from this one. Absent in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub forks: Vec<SessionId>,
    /// The cost of models and tools in the session so far, in US dollars. Calls without a known price are not
    /// included. Absent for sessions that are older than this counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "0.0123")]
    pub cost: Option<Cost>,
    /// How the last turn ended: `answered`, `refused`, `out_of_model_calls`, `out_of_budget`, `cancelled`,
    /// `aborted`, `abandoned`, `failed` or `sealed`. `stuck` if the current turn cannot continue. Absent if no turn has
    /// ended yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_end: Option<Cow<'static, str>>,
    /// The id of the turn that `last_end` is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub last_turn: Option<TurnId>,
}

/// A head of a session: the end of one branch of its messages.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = SessionHead)]
pub struct SessionHeadResource {
    /// The name of the head.
    pub name: String,
    /// The message that the head points to. Absent before the first message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<MessageRef>,
}

/// The position of a message.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct MessageRef {
    /// The id of the session.
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The sequence number in the session.
    #[schema(value_type = u64)]
    pub seq: Seq,
}

impl From<NodeRef> for MessageRef {
    fn from(NodeRef { session, seq }: NodeRef) -> Self {
        Self { session, seq }
    }
}

impl From<MessageRef> for NodeRef {
    fn from(MessageRef { session, seq }: MessageRef) -> Self {
        Self { session, seq }
    }
}

/// Something that a turn waits for.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Wait)]
pub struct WaitResource {
    /// The path in the turn.
    #[schema(value_type = String)]
    pub key: ReplayKey,
    /// The kind of wait: `approval`, `completion`, `event`, `sleep`, `budget`, …
    #[schema(value_type = String)]
    pub kind: WaitKind,
    /// When the wait ends if nothing resolves it first, as a Unix timestamp in milliseconds. Absent if it has
    /// no time limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub deadline: Option<Millis>,
}

impl From<Wait> for WaitResource {
    fn from(Wait { key, kind, deadline }: Wait) -> Self {
        Self { key, kind, deadline }
    }
}

impl From<WaitResource> for Wait {
    fn from(WaitResource { key, kind, deadline }: WaitResource) -> Self {
        Self { key, kind, deadline }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl From<TitledSession> for SessionResource {
    fn from(TitledSession { session, title }: TitledSession) -> Self {
        let SessionView { id, org, key, state, created, updated, turns, last, .. } = session;
        let SessionView { heads, forked_from, active, worker, waits, wake_at, .. } = session;
        let SessionView { deaths, cost, last_turn, .. } = session;
        let head = |(name, at): (String, Option<NodeRef>)| SessionHeadResource {
            name,
            at: at.map(MessageRef::from),
        };
        Self {
            id,
            org,
            key,
            state: state.name().into(),
            title,
            created,
            updated,
            turns,
            last: last.seq,
            hash: last.hash,
            heads: heads.into_iter().map(head).collect(),
            forked_from: forked_from.map(MessageRef::from),
            active,
            worker,
            waits: waits.into_iter().map(WaitResource::from).collect(),
            wake_at,
            deaths,
            forks: Vec::new(),
            cost,
            last_end: last_turn.map(|last| last.end.name().into()),
            last_turn: last_turn.map(|last| last.id),
        }
    }
}

impl TryFrom<SessionResource> for TitledSession {
    type Error = Error;

    fn try_from(session: SessionResource) -> Result<Self, Error> {
        let state = SessionState::ALL.into_iter().find(|state| state.name() == session.state);
        let last_end = session.last_end.as_deref();
        let last_end =
            last_end.map(|end| end.parse().map_err(|_| unknown_value("turn's end", end))).transpose()?;
        let last_turn = session.last_turn.zip(last_end).map(|(id, end)| LastTurn { id, end });
        let head = |SessionHeadResource { name, at }| (name, at.map(NodeRef::from));
        let view = SessionView {
            id: session.id,
            org: session.org,
            key: session.key,
            state: state.ok_or_else(|| unknown_value("state", &session.state))?,
            created: session.created,
            updated: session.updated,
            turns: session.turns,
            last: JournalPosition { seq: session.last, hash: session.hash },
            heads: session.heads.into_iter().map(head).collect(),
            forked_from: session.forked_from.map(NodeRef::from),
            active: session.active,
            worker: session.worker,
            waits: session.waits.into_iter().map(Wait::from).collect(),
            wake_at: session.wake_at,
            deaths: session.deaths,
            cost: session.cost,
            last_turn,
        };
        Ok(Self { session: view, title: session.title })
    }
}

/// A session to create.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSessionRequest {
    /// A key for the session. If a session with this key exists, it is returned.
    pub key: Option<String>,
}

/// A fork to create.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewForkRequest {
    /// The sequence number of the message to branch after. Defaults to the end of the main head.
    pub at: Option<u64>,
    /// The key of the new session. Not allowed together with `head`.
    pub key: Option<String>,
    /// The name of a new head. If set, the branch is created as a head of this session instead of a new
    /// session.
    pub head: Option<String>,
}

/// The new position of a head.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RewindRequest {
    /// The sequence number of the message to move to. 0 is the position before the first message.
    pub to: u64,
    /// The head to move. Defaults to the main head.
    pub head: Option<String>,
}
