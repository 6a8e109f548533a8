//! The backend of a command: a database file or a server.
//!
//! Both return the same views, so a command prints the same for either. This module has the operations on
//! sessions and turns. [`waits`] has approvals and other waits. [`accounts`] has costs, budgets, keys, audit and
//! configurations. [`inspection`] has search, context and verification. `Host` drives turns.
mod accounts;
mod inspection;
mod waits;

use crate::session_selector::SessionSelector;
use outlast::clock::{Clock, Entropy};
use outlast::runtime::agents::agent_registry;
use outlast::runtime::delivery::feed;
use outlast::runtime::views::session_list;
use outlast::runtime::views::wait_explanation;
use outlast::runtime::worker::system::{SystemClock, SystemEntropy};
use outlast::store::{
    CancelOutcome, FeedCursor, ForkRequest, ForkTo, HistoryTurn, SessionView, Store, TurnView,
};
use outlast::views::{SessionFilter, TitledSession, Unblocker, WaitExplanation};
use outlast::vocab::ReplayKey;
use outlast::vocab::record::{NodeRef, Record, Seq};
use outlast::vocab::wait::CompletionKey;
use outlast::{Error, Kind, Limits, SessionId, TurnId};
use outlast_client::Client;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The backend of a command.
#[derive(Clone)]
pub(crate) enum CommandBackend {
    /// A database that this process opened.
    File(Arc<dyn Store>),
    Server(Client),
}

impl CommandBackend {
    /// Returns the session with this id or key.
    pub(crate) async fn find(&self, text: &str) -> Result<SessionView, Error> {
        match SessionSelector::parse(text)? {
            SessionSelector::Id(id) => self.session(id).await,
            SessionSelector::Key(key) => self.session_by_key(&key).await,
        }
    }

    /// Returns a session, or `None` if its key is new. An unknown id is an error.
    pub(crate) async fn find_named(&self, named: &SessionSelector) -> Result<Option<SessionView>, Error> {
        match named {
            SessionSelector::Id(id) => self.session(*id).await.map(Some),
            SessionSelector::Key(key) => match self.session_by_key(key).await {
                Err(error) if error.kind() == Kind::SessionNotFound => Ok(None),
                found => found.map(Some),
            },
        }
    }

    pub(crate) async fn session(&self, id: SessionId) -> Result<SessionView, Error> {
        match self {
            Self::File(store) => store.session(id).await,
            Self::Server(client) => Ok(client.session(id).await?.session),
        }
    }

    async fn session_by_key(&self, key: &str) -> Result<SessionView, Error> {
        match self {
            Self::File(store) => store.session_by_key(key.to_owned()).await,
            Self::Server(client) => Ok(client.session_by_key(key).await?.session),
        }
    }

    /// Returns the newest sessions that match a filter.
    pub(crate) async fn sessions(
        &self,
        filter: &SessionFilter,
        most: usize,
    ) -> Result<Vec<TitledSession>, Error> {
        match self {
            Self::File(store) => {
                Ok(session_list::page(store.as_ref(), filter, None, most, usize::MAX).await?.sessions)
            }
            Self::Server(client) => client.sessions(filter, most).await,
        }
    }

    /// Returns the sessions that were forked from a session.
    pub(crate) async fn forks(&self, session: SessionId) -> Result<Vec<SessionId>, Error> {
        match self {
            Self::File(store) => store.forks(session).await,
            Self::Server(client) => client.forks(session).await,
        }
    }

    /// Branches a session at a message, into a new head if `head` is set, or into a new session.
    pub(crate) async fn fork(
        &self,
        from: SessionId,
        at: Option<Seq>,
        key: Option<String>,
        head: Option<String>,
    ) -> Result<SessionId, Error> {
        let now = SystemClock.now();
        let fresh = SessionId::fresh(now, SystemEntropy.random_id_bytes());
        let to = head.map_or(ForkTo::Session { fresh, key }, ForkTo::Head);
        match self {
            Self::File(store) => store.fork(ForkRequest { from, at, to, now }).await,
            Self::Server(client) => client.fork(from, at, to).await,
        }
    }

    pub(crate) async fn rewind(&self, session: SessionId, head: &str, to: Option<Seq>) -> Result<(), Error> {
        match self {
            Self::File(store) => store.rewind(session, head.to_owned(), to, SystemClock.now()).await,
            Self::Server(client) => client.rewind(session, head, to).await,
        }
    }

    /// Deletes a session and everything that only it uses.
    pub(crate) async fn delete(&self, session: SessionId) -> Result<(), Error> {
        match self {
            Self::File(store) => store.delete(session, SystemClock.now()).await,
            Self::Server(client) => client.delete_session(session).await,
        }
    }

    /// Returns up to `most` turns of a session, starting at index `from`.
    pub(crate) async fn turns(
        &self,
        session: SessionId,
        from: u32,
        most: usize,
    ) -> Result<Vec<TurnView>, Error> {
        match self {
            Self::File(store) => store.turns(session, from, most).await,
            Self::Server(client) => client.turns(session, from, most).await,
        }
    }

    pub(crate) async fn turn(&self, turn: TurnId) -> Result<TurnView, Error> {
        match self {
            Self::File(store) => store.turn(turn).await,
            Self::Server(client) => Ok(client.turn(turn).await?.view),
        }
    }

    /// Returns up to `most` records of a session after a record.
    pub(crate) async fn records(
        &self,
        session: SessionId,
        after: Seq,
        most: usize,
    ) -> Result<Vec<Record>, Error> {
        match self {
            Self::File(store) => store.records(session, after, most).await,
            Self::Server(client) => client.records(session, after, most).await,
        }
    }

    /// Returns the records of a turn.
    pub(crate) async fn turn_records(&self, turn: TurnId) -> Result<Vec<Record>, Error> {
        match self {
            Self::File(store) => store.turn_records(turn).await,
            Self::Server(client) => client.turn_records(turn).await,
        }
    }

    /// Returns the agent of a turn, or `None` before the turn starts.
    pub(crate) async fn agent_of(&self, turn: TurnId) -> Result<Option<String>, Error> {
        match self {
            Self::File(store) => {
                let pinned = agent_registry::of_turn(store.as_ref(), turn).await?;
                Ok(pinned.map(|pinned| pinned.package.agent))
            }
            Self::Server(client) => Ok(client.turn(turn).await?.agent),
        }
    }

    /// Returns the current end of the feed of all sessions.
    pub(crate) async fn feed_end(&self) -> Result<u64, Error> {
        match self {
            Self::File(store) => Ok(feed::newest(store.as_ref()).await?.0),
            Self::Server(client) => client.feed_end().await,
        }
    }

    /// Returns the sessions that changed after a position of the feed, and the new position.
    pub(crate) async fn changed(&self, after: u64) -> Result<(u64, BTreeSet<SessionId>), Error> {
        match self {
            Self::File(store) => {
                let page = store.feed(FeedCursor(after), Limits::default().page_rows).await?;
                let end = page.last().map_or(after, |fed| fed.cursor.0);
                Ok((end, page.into_iter().map(|fed| fed.session).collect()))
            }
            Self::Server(client) => client.sessions_changed(after).await,
        }
    }

    /// Returns the turns of a branch, last one first, until `bytes` bytes were read.
    pub(crate) async fn history(&self, node: NodeRef, bytes: usize) -> Result<Vec<HistoryTurn>, Error> {
        match self {
            Self::File(store) => store.history(node, bytes).await,
            Self::Server(client) => client.history(node, bytes).await,
        }
    }

    /// Returns the completion key of a wait. A server shows it only to callers that may run turns.
    pub(crate) async fn key_of(
        &self,
        turn: TurnId,
        wait: &ReplayKey,
    ) -> Result<Option<CompletionKey>, Error> {
        match self {
            Self::File(store) => store.completion_key(turn, wait.clone()).await.map(Some),
            Self::Server(client) => {
                let blocked = client.why_turn(turn).await?.waits;
                Ok(blocked.into_iter().find(|blocked| blocked.wait.key == *wait).and_then(|blocked| {
                    match blocked.unblocked_by {
                        Unblocker::Completion(key) => key,
                        _ => None,
                    }
                }))
            }
        }
    }

    /// Cancels a turn. With [`CancelUndo::All`], also undoes what it did.
    pub(crate) async fn stop(
        &self,
        turn: TurnId,
        reason: &str,
        undo: CancelUndo,
    ) -> Result<CancelOutcome, Error> {
        let (now, why) = (SystemClock.now(), reason.to_owned());
        match (self, undo) {
            (Self::File(store), CancelUndo::Nothing) => store.cancel(turn, why, now).await,
            (Self::File(store), CancelUndo::All) => store.abort(turn, why, now).await,
            (Self::Server(client), CancelUndo::Nothing) => client.cancel(turn, reason).await,
            (Self::Server(client), CancelUndo::All) => client.abort(turn, reason).await,
        }
    }

    /// Explains what a session or turn waits for.
    pub(crate) async fn why(&self, what: &str) -> Result<WaitExplanation, Error> {
        match (self, what.parse::<TurnId>()) {
            (Self::File(store), Ok(turn)) => wait_explanation::of_turn(store.as_ref(), turn).await,
            (Self::File(store), Err(_)) => {
                wait_explanation::of_session(store.as_ref(), self.find(what).await?.id).await
            }
            (Self::Server(client), Ok(turn)) => client.why_turn(turn).await,
            (Self::Server(client), Err(_)) => client.why(self.find(what).await?.id).await,
        }
    }
}

/// What to do with the actions of a cancelled turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CancelUndo {
    /// Keep them.
    Nothing,
    /// Undo them, if their tools can.
    All,
}
