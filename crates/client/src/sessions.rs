//! Sessions: list, show, fork, rewind and delete them, and read their turns and records.
use crate::Client;
use crate::page::PAGE_ITEMS_MAX;
use outlast_api::events::{EventPage, EventParams};
use outlast_api::list_page::ListPage;
use outlast_api::sessions::{NewForkRequest, RewindRequest, SessionParams, SessionResource};
use outlast_api::turns::{TurnListParams, TurnResource};
use outlast_views::{ForkTo, HistoryTurn, SessionFilter, TitledSession, TurnView};
use outlast_vocab::event::{Event, EventFrame};
use outlast_vocab::record::{NodeRef, Record, Seq};
use outlast_vocab::{Error, Kind, SessionId, TurnId};
use std::collections::BTreeSet;

impl Client {
    /// Lists the newest sessions that match a filter.
    pub async fn sessions(&self, filter: &SessionFilter, most: usize) -> Result<Vec<TitledSession>, Error> {
        let params = SessionParams {
            state: filter.state.map(|state| state.name().to_owned()),
            last_end: filter.last_end.map(|end| end.name().to_owned()),
            search: filter.text.clone(),
            ..SessionParams::default()
        };
        let found: Vec<SessionResource> = self.list(&["v1", "sessions"], &params, most).await?;
        found.into_iter().map(TitledSession::try_from).collect()
    }

    /// Returns a session with its first input.
    pub async fn session(&self, id: SessionId) -> Result<TitledSession, Error> {
        self.fetch_session(id).await?.try_into()
    }

    /// Returns the session with this key.
    pub async fn session_by_key(&self, key: &str) -> Result<TitledSession, Error> {
        let params = SessionParams { key: Some(key.to_owned()), ..SessionParams::default() };
        let page: ListPage<SessionResource> = self.get(&["v1", "sessions"], &params).await?;
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

    async fn fetch_session(&self, id: SessionId) -> Result<SessionResource, Error> {
        self.get(&["v1", "sessions", &id.to_string()], &()).await
    }

    /// Forks a session. The server assigns the id of a new session.
    pub async fn fork(&self, from: SessionId, at: Option<Seq>, to: ForkTo) -> Result<SessionId, Error> {
        let (key, head) = match to {
            ForkTo::Session { key, .. } => (key, None),
            ForkTo::Head(head) => (None, Some(head)),
        };
        let body = NewForkRequest { at: at.map(|Seq(at)| at), key, head };
        let session: SessionResource =
            self.post(&["v1", "sessions", &from.to_string(), "fork"], &body).await?;
        Ok(session.id)
    }

    /// Rewinds a head.
    pub async fn rewind(&self, session: SessionId, head: &str, to: Option<Seq>) -> Result<(), Error> {
        let body = RewindRequest { to: to.map_or(0, |Seq(to)| to), head: Some(head.to_owned()) };
        let _moved: SessionResource =
            self.post(&["v1", "sessions", &session.to_string(), "rewind"], &body).await?;
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
            let params = TurnListParams { from: Some(from), limit: Some(limit), cursor: None };
            let page: ListPage<TurnResource> =
                self.get(&["v1", "sessions", &session, "turns"], &params).await?;
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
        self.fetch_records(session, after, most, None).await
    }

    /// Returns the records of a turn.
    pub async fn turn_records(&self, turn: TurnId) -> Result<Vec<Record>, Error> {
        let view = self.turn(turn).await?.view;
        let after = Seq(view.span.0.0.saturating_sub(1));
        self.fetch_records(view.session, after, usize::MAX, Some(turn)).await
    }

    async fn fetch_records(
        &self,
        session: SessionId,
        after: Seq,
        most: usize,
        turn: Option<TurnId>,
    ) -> Result<Vec<Record>, Error> {
        let (session, mut after, mut records) = (session.to_string(), after.0, Vec::new());
        while records.len() < most {
            let limit = (most - records.len()).min(PAGE_ITEMS_MAX);
            let params =
                EventParams { after: Some(after), turn, limit: Some(limit), ..EventParams::default() };
            let page: EventPage = self.get(&["v1", "sessions", &session, "events"], &params).await?;
            let last = page.items.len() < limit;
            after = page.next;
            for event in page.items {
                if let Some(Event::Durable(record)) = EventFrame::from(event).into_event() {
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
        let page: EventPage = self.get(&["v1", "events"], &()).await?;
        Ok(page.next)
    }

    /// Returns the sessions with events after a position of the feed, and the new position.
    pub async fn sessions_changed(&self, after: u64) -> Result<(u64, BTreeSet<SessionId>), Error> {
        let params =
            EventParams { after: Some(after), limit: Some(PAGE_ITEMS_MAX), ..EventParams::default() };
        let page: EventPage = self.get(&["v1", "events"], &params).await?;
        Ok((page.next, page.items.into_iter().map(|event| event.session).collect()))
    }

    /// Returns the turns of a branch, from its end backwards, until this many bytes were read.
    pub async fn history(&self, node: NodeRef, bytes: usize) -> Result<Vec<HistoryTurn>, Error> {
        let (mut turns, mut read, mut next) = (Vec::new(), 0, Some(node));
        while let Some(NodeRef { session, seq }) = next {
            let before = Seq(seq.0.saturating_sub(1));
            let turn = self.records(session, before, 1).await?.first().and_then(|record| record.turn);
            let turn = turn.ok_or_else(|| {
                Error::new(Kind::NodeNotFound, format!("#{seq} of {session} is not a message of a turn"))
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
