//! What people look at beside sessions: everything that happens, why something does not, agents, how busy a worker is.
use super::{Driving, Runtime, lock};
use crate::durability::Durability;
use crate::feed::Feed;
use crate::outfits::AgentView;
use crate::why::{self, Why};
use outlast_ports::store::{FeedCursor, Target, TurnView, Writes};
use outlast_vocab::record::Record;
use outlast_vocab::{Error, Millis, SessionId, TurnId};

/// How busy a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Sessions that it drives now.
    pub driven: usize,
    /// Sessions that it could drive at the same time.
    pub most: usize,
}

/// A turn that a worker drives now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The agent that answers, once that is known.
    pub agent: Option<String>,
    /// Since when this worker drives it: it may have begun before, there or elsewhere.
    pub since: Millis,
}

impl Runtime {
    /// Follows all sessions that are shown, from a cursor.
    pub fn feed(&self, after: FeedCursor) -> Feed {
        let stores = (self.store.clone(), self.inner.store.clone());
        Feed::new(self.inner.world.clone(), stores, after)
    }

    /// Why a session does not move: what its turn waits for, since when, who or what can move it (R14.6).
    pub async fn why(&self, session: SessionId) -> Result<Why, Error> {
        why::of_session(self.store.as_ref(), session).await
    }

    /// The same of one turn, be it queued, under way or over.
    pub async fn why_turn(&self, turn: TurnId) -> Result<Why, Error> {
        why::of_turn(self.store.as_ref(), turn).await
    }

    /// Opens a session without input. One that is there already under the key stays as it is.
    pub async fn open_session(&self, key: Option<String>) -> Result<SessionId, Error> {
        let fresh = self.fresh_session();
        let target = key.map_or(Target::New(fresh), |key| Target::Key { key, fresh });
        super::check_target(&target, &self.inner.world.limits)?;
        self.store.open(target, self.now()).await
    }

    /// What the durability of a turn with these records cost (R14.8).
    pub fn durability(&self, turn: &TurnView, records: &[Record]) -> Durability {
        let unsaid = self.inner.world.hub.unsaid.of(turn.id);
        let writes = turn.writes.map(|writes| Writes { waited: writes.waited + unsaid, ..writes });
        Durability::of(records, writes)
    }

    /// The agents that answer whom this handle serves, by name: those of the program, and those of which its organisation has rows.
    pub fn agents(&self) -> Vec<AgentView> {
        self.inner.outfits.views(self.access.reach)
    }

    /// The turns that this worker drives now, by their sessions, as far as they are shown. One that holds still is not among
    /// them, nor one that another worker drives.
    pub fn running(&self) -> Vec<Running> {
        let driving = lock(&self.inner.driving);
        let shown = driving.iter().filter(|(_, driving)| self.access.reach.covers(driving.org));
        let running = |(session, driving): (&SessionId, &Driving)| {
            let Driving { turn, since, agent, .. } = driving;
            Running { session: *session, turn: *turn, agent: agent.clone(), since: *since }
        };
        shown.map(running).collect()
    }

    /// How busy this worker is.
    pub fn load(&self) -> Load {
        Load { driven: lock(&self.inner.driving).len(), most: self.inner.world.limits.sessions_at_once }
    }
}
