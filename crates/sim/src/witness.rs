//! What really happened outside: counted by nobody who can crash.
use crate::schedule::LifeNo;
use outlast_vocab::wait::CompletionKey;
use outlast_vocab::{CallId, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The outside world's own memory.
#[derive(Default)]
pub(crate) struct Witness {
    seen: Mutex<Seen>,
}

/// What was seen so far.
#[derive(Default)]
pub(crate) struct Seen {
    /// Executions in order.
    pub(crate) did: Vec<Did>,
    /// Keys that tools gave out, by session and the name they were asked for.
    pub(crate) keys: BTreeMap<(SessionId, String), CompletionKey>,
    /// How often each model call was asked.
    pub(crate) asked: BTreeMap<String, u64>,
    /// Model requests so far.
    pub(crate) requests: u64,
    /// Whose calls were sent to a server.
    pub(crate) sent: BTreeMap<CallId, SessionId>,
    /// What calls were executed with, where a tool says so.
    pub(crate) took: BTreeMap<CallId, BTreeSet<String>>,
    /// When tools acted, in milliseconds since the world began.
    pub(crate) times: Vec<u64>,
    /// A number that is another one each time it is asked for.
    count: u64,
    /// Lives that a tool took down with it and that are not buried yet.
    pub(crate) taken_down: BTreeSet<LifeNo>,
}

/// One execution of a tool.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Did {
    pub(crate) session: SessionId,
    pub(crate) tool: String,
    /// The key it carried towards the outside.
    pub(crate) call: CallId,
}

impl Witness {
    /// What was seen so far.
    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tool acts.
    pub(crate) fn did(&self, session: SessionId, tool: &str, call: CallId) {
        self.seen().did.push(Did { session, tool: tool.to_owned(), call });
    }

    /// What a call is executed with.
    pub(crate) fn took(&self, call: CallId, text: &str) {
        self.seen().took.entry(call).or_default().insert(text.to_owned());
    }

    /// A tool acts at this instant.
    pub(crate) fn at(&self, now: u64) {
        self.seen().times.push(now);
    }

    /// A number that nobody was given before.
    pub(crate) fn count_on(&self) -> u64 {
        let mut seen = self.seen();
        seen.count += 1;
        seen.count
    }

    /// A call is on its way to a server, which will know no more of it than its id.
    pub(crate) fn sent(&self, session: SessionId, call: CallId) {
        self.seen().sent.insert(call, session);
    }

    /// A server acts.
    pub(crate) fn did_for(&self, tool: &str, call: CallId) {
        let session = self.seen().sent.get(&call).copied();
        self.did(session.expect("a call is sent before a server gets it"), tool, call);
    }

    /// A tool gives a completion key out.
    pub(crate) fn gave(&self, session: SessionId, name: &str, key: CompletionKey) {
        self.seen().keys.insert((session, name.to_owned()), key);
    }

    /// A tool is the death of its process.
    pub(crate) fn takes_down(&self, life: LifeNo) {
        self.seen().taken_down.insert(life);
    }

    /// A model call arrives; says which request it is, counted from 0.
    pub(crate) fn asked(&self, call: String) -> u64 {
        let mut seen = self.seen();
        *seen.asked.entry(call).or_default() += 1;
        seen.requests += 1;
        seen.requests - 1
    }

    /// The provider was down when it was asked this: it does not count as asked.
    pub(crate) fn was_down(&self, call: &str) {
        if let Some(times) = self.seen().asked.get_mut(call) {
            *times -= 1;
        }
    }
}

impl Seen {
    /// How often a tool acted in a session.
    pub(crate) fn count(&self, session: SessionId, tool: &str) -> usize {
        self.did.iter().filter(|did| did.session == session && did.tool == tool).count()
    }

    /// How often each call was executed.
    pub(crate) fn executions(&self) -> BTreeMap<Did, usize> {
        let mut executions = BTreeMap::new();
        for did in &self.did {
            *executions.entry(did.clone()).or_default() += 1;
        }
        executions
    }
}
