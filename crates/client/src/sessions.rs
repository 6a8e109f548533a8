//! Sessions: list, show, fork, rewind and delete them, and read their turns and records.
use crate::Client;
use crate::http::QueryPairs;
use crate::page::{PAGE_ITEMS_MAX, PageJson};
use outlast_views::{
    ForkTo, HistoryTurn, LastTurn, SessionFilter, SessionState, SessionView, TitledSession, TurnState,
    TurnView,
};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::JournalPosition;
use outlast_vocab::event::Event;
use outlast_vocab::record::{NodeRef, Record, Seq, TurnEnd};
use outlast_vocab::wait::Wait;
use outlast_vocab::{Error, Hash, Kind, Millis, OrgId, SessionId, TurnId, WorkerId};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[derive(Deserialize)]
pub(crate) struct SessionJson {
    id: SessionId,
    org: OrgId,
    key: Option<String>,
    state: String,
    title: String,
    created: Millis,
    updated: Millis,
    turns: u32,
    last: Seq,
    hash: Hash,
    heads: Vec<HeadJson>,
    forked_from: Option<NodeRef>,
    active: Option<TurnId>,
    worker: Option<WorkerId>,
    waits: Vec<Wait>,
    wake_at: Option<Millis>,
    #[serde(default)]
    deaths: u32,
    cost: Option<Cost>,
    last_end: Option<String>,
    last_turn: Option<TurnId>,
    #[serde(default)]
    forks: Vec<SessionId>,
}

#[derive(Deserialize)]
struct HeadJson {
    name: String,
    at: Option<NodeRef>,
}

#[derive(Deserialize)]
pub(crate) struct TurnJson {
    id: TurnId,
    session: SessionId,
    index: u32,
    state: String,
    parent: Option<NodeRef>,
    first: Seq,
    last: Seq,
    end: Option<Value>,
    retry_of: Option<TurnId>,
}

#[derive(Deserialize)]
struct EventPageJson {
    items: Vec<Value>,
    next: u64,
}

/// Returns the error for a value that this version does not know, from a newer server.
pub(crate) fn unknown_value(what: &str, found: &str) -> Error {
    let detail = format!("the server says `{found}`, which this version does not know as a {what}");
    Error::new(Kind::ServerAnswerInvalid, detail)
}

impl TryFrom<SessionJson> for TitledSession {
    type Error = Error;

    fn try_from(session: SessionJson) -> Result<Self, Error> {
        let state = SessionState::ALL.into_iter().find(|state| state.name() == session.state);
        let last_end = session.last_end.as_deref();
        let last_end =
            last_end.map(|end| end.parse().map_err(|_| unknown_value("turn's end", end))).transpose()?;
        let last_turn = session.last_turn.zip(last_end).map(|(id, end)| LastTurn { id, end });
        let view = SessionView {
            id: session.id,
            org: session.org,
            key: session.key,
            state: state.ok_or_else(|| unknown_value("state", &session.state))?,
            created: session.created,
            updated: session.updated,
            turns: session.turns,
            last: JournalPosition { seq: session.last, hash: session.hash },
            heads: session.heads.into_iter().map(|head| (head.name, head.at)).collect(),
            forked_from: session.forked_from,
            active: session.active,
            worker: session.worker,
            waits: session.waits,
            wake_at: session.wake_at,
            deaths: session.deaths,
            cost: session.cost,
            last_turn,
        };
        Ok(Self { session: view, title: session.title })
    }
}

impl TryFrom<TurnJson> for TurnView {
    type Error = Error;

    fn try_from(turn: TurnJson) -> Result<Self, Error> {
        let state = match turn.state.as_str() {
            "queued" => TurnState::Queued,
            "active" => TurnState::Active,
            "ended" => TurnState::Ended,
            other => return Err(unknown_value("state", other)),
        };
        Ok(Self {
            id: turn.id,
            session: turn.session,
            index: turn.index,
            state,
            parent: turn.parent,
            span: (turn.first, turn.last),
            end: turn.end.map(parse_end).transpose()?,
            // Lists do not contain it. For a single turn it is part of the durability.
            writes: None,
            retry_of: turn.retry_of,
            // Only the server needs it for its decisions.
            foreign: false,
        })
    }
}

/// Parses the end of a turn from its flat form.
pub(crate) fn parse_end(flat: Value) -> Result<TurnEnd, Error> {
    let mut content = flat;
    let how = content.as_object_mut().and_then(|members| members.remove("how"));
    let how = how.as_ref().and_then(Value::as_str).unwrap_or_default();
    serde_json::from_value(json!({ how: content })).map_err(|_| unknown_value("turn's end", how))
}

impl Client {
    /// Lists the newest sessions that match a filter.
    pub async fn sessions(&self, filter: &SessionFilter, most: usize) -> Result<Vec<TitledSession>, Error> {
        let mut query = Vec::new();
        query.extend(filter.state.map(|state| ("state", state.name().to_owned())));
        query.extend(filter.last_end.map(|end| ("last_end", end.name().to_owned())));
        query.extend(filter.text.clone().map(|text| ("search", text)));
        let found: Vec<SessionJson> = self.list(&["v1", "sessions"], &query, most).await?;
        found.into_iter().map(TitledSession::try_from).collect()
    }

    /// Returns a session with its first input.
    pub async fn session(&self, id: SessionId) -> Result<TitledSession, Error> {
        self.fetch_session(id).await?.try_into()
    }

    /// Returns the session with this key.
    pub async fn session_by_key(&self, key: &str) -> Result<TitledSession, Error> {
        let page: PageJson<SessionJson> = self.get(&["v1", "sessions"], &[("key", key.to_owned())]).await?;
        let found =
            page.items.into_iter().next().ok_or_else(|| {
                Error::new(Kind::SessionNotFound, format!("no session has the key `{key}`"))
            })?;
        found.try_into()
    }

    /// Lists the sessions that were forked from this one.
    pub async fn forks(&self, id: SessionId) -> Result<Vec<SessionId>, Error> {
        Ok(self.fetch_session(id).await?.forks)
    }

    async fn fetch_session(&self, id: SessionId) -> Result<SessionJson, Error> {
        self.get(&["v1", "sessions", &id.to_string()], &[]).await
    }

    /// Forks a session. The server assigns the id of a new session.
    pub async fn fork(&self, from: SessionId, at: Option<Seq>, to: ForkTo) -> Result<SessionId, Error> {
        let (key, head) = match to {
            ForkTo::Session { key, .. } => (key, None),
            ForkTo::Head(head) => (None, Some(head)),
        };
        let body = json!({ "at": at, "key": key, "head": head });
        let session: SessionJson = self.post(&["v1", "sessions", &from.to_string(), "fork"], &body).await?;
        Ok(session.id)
    }

    /// Rewinds a head.
    pub async fn rewind(&self, session: SessionId, head: &str, to: Option<Seq>) -> Result<(), Error> {
        let body = json!({ "to": to.unwrap_or(Seq(0)), "head": head });
        let moved: SessionJson =
            self.post(&["v1", "sessions", &session.to_string(), "rewind"], &body).await?;
        drop(moved);
        Ok(())
    }

    /// Deletes a session.
    pub async fn delete_session(&self, session: SessionId) -> Result<(), Error> {
        self.delete(&["v1", "sessions", &session.to_string()]).await
    }

    /// Lists turns of a session, starting with this index.
    pub async fn turns(&self, session: SessionId, from: u32, most: usize) -> Result<Vec<TurnView>, Error> {
        let (session, mut from, mut turns) = (session.to_string(), from, Vec::new());
        while turns.len() < most {
            let limit = (most - turns.len()).min(PAGE_ITEMS_MAX);
            let query = [("from", from.to_string()), ("limit", limit.to_string())];
            let page: PageJson<TurnJson> = self.get(&["v1", "sessions", &session, "turns"], &query).await?;
            let last = page.items.len() < limit;
            from = from.saturating_add(u32::try_from(page.items.len()).unwrap_or(u32::MAX));
            for turn in page.items {
                turns.push(turn.try_into()?);
            }
            if last {
                break;
            }
        }
        Ok(turns)
    }

    /// Lists records of a session, starting after this one. Their hashes are not included.
    pub async fn records(&self, session: SessionId, after: Seq, most: usize) -> Result<Vec<Record>, Error> {
        self.fetch_records(session, after, most, &[]).await
    }

    /// Returns the records of a turn.
    pub async fn turn_records(&self, turn: TurnId) -> Result<Vec<Record>, Error> {
        let view = self.turn(turn).await?.view;
        let after = Seq(view.span.0.0.saturating_sub(1));
        self.fetch_records(view.session, after, usize::MAX, &[("turn", turn.to_string())]).await
    }

    async fn fetch_records(
        &self,
        session: SessionId,
        after: Seq,
        most: usize,
        of: &QueryPairs<'_>,
    ) -> Result<Vec<Record>, Error> {
        let (session, mut after, mut records) = (session.to_string(), after.0, Vec::new());
        while records.len() < most {
            let limit = (most - records.len()).min(PAGE_ITEMS_MAX);
            let mut query = of.to_vec();
            query.extend([("after", after.to_string()), ("limit", limit.to_string())]);
            let page: EventPageJson = self.get(&["v1", "sessions", &session, "events"], &query).await?;
            let last = page.items.len() < limit;
            after = page.next;
            for frame in page.items {
                if let (_, Some(Event::Durable(record))) = Event::of_frame(frame)? {
                    records.push(*record);
                }
            }
            if last {
                break;
            }
        }
        Ok(records)
    }

    /// Returns the current end of the feed of all sessions.
    pub async fn feed_end(&self) -> Result<u64, Error> {
        let page: EventPageJson = self.get(&["v1", "events"], &[]).await?;
        Ok(page.next)
    }

    /// Returns the sessions with events after a position of the feed, and the new position.
    pub async fn sessions_changed(&self, after: u64) -> Result<(u64, BTreeSet<SessionId>), Error> {
        let query = [("after", after.to_string()), ("limit", PAGE_ITEMS_MAX.to_string())];
        let page: EventPageJson = self.get(&["v1", "events"], &query).await?;
        let sessions = page.items.into_iter().map(|frame| Ok(Event::of_frame(frame)?.0));
        Ok((page.next, sessions.collect::<Result<_, Error>>()?))
    }

    /// Returns the turns of a branch, from its end backwards, until this many bytes were read.
    pub async fn history(&self, node: NodeRef, bytes: usize) -> Result<Vec<HistoryTurn>, Error> {
        let (mut turns, mut read, mut next) = (Vec::new(), 0, Some(node));
        while let Some(NodeRef { session, seq }) = next {
            let before = Seq(seq.0.saturating_sub(1));
            let turn = self.records(session, before, 1).await?.first().and_then(|record| record.turn);
            let turn = turn.ok_or_else(|| {
                Error::new(Kind::NodeNotFound, format!("#{seq} of {session} is no message of a turn"))
            })?;
            let view = self.turn(turn).await?.view;
            let mut records = self.turn_records(turn).await?;
            records.retain(|record| record.seq <= view.span.1 && record.fact.is_node());
            read += records.iter().map(|record| record.fact.encode().len()).sum::<usize>();
            if read > bytes && !turns.is_empty() {
                break;
            }
            turns.push(HistoryTurn { records, last_in_branch: seq });
            next = view.parent;
        }
        Ok(turns)
    }
}
