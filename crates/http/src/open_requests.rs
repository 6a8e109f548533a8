//! Recognises repeated requests without an idempotency key, so that they join the turn of the first one.
//!
//! A client repeats a request if its connection breaks, or if it takes the answer for a temporary error. The same request
//! may also be meant twice: by two users, or by an evaluation that asks in parallel. The connection tells them apart. While
//! the connection of a request is open, an equal one is another request. [`action`] is the rule.
//!
//! The connections of this process are in memory. Turns that other processes accepted, among them the one that this
//! process replaces, are read from the store, where each such turn has the fingerprint of its request.
use outlast_ports::queries::RequestTurnState;
use outlast_ports::turns::TurnNo;
use outlast_runtime::Runtime;
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::{Error, Hash, Kind, Millis, TurnId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a request without a retry hint waits for an equal one to close. A client that closes a connection and repeats
/// its request at once may be faster than the server, which notices the end of the connection later.
const CLOSE_WAIT: Duration = Duration::from_millis(100);

/// How long a request with a retry hint waits for an equal one to close.
const RETRY_CLOSE_WAIT: Duration = Duration::from_secs(1);

/// How often to look whether the process that accepted a turn has ended.
const PROCESS_POLL: Duration = Duration::from_millis(50);

/// How old a turn may be that a request joins.
const MAX_AGE: Duration = Duration::from_hours(24);

/// How many turns of the store are looked at when the server starts.
const RECORDED_TURNS: usize = 10_000;

/// The requests whose turns a repeated request may join.
pub struct OpenRequests {
    runtime: Runtime,
    window: Duration,
    /// How long the process that this one replaces may take to end.
    replaced_process_wait: Duration,
    /// When this process started.
    started: Millis,
    table: Arc<RequestTable>,
    /// The last turn that was read from the store. Locked while turns are read.
    recorded_through: tokio::sync::Mutex<Option<TurnNo>>,
}

/// A request that arrived.
#[derive(Clone, Copy, Debug)]
pub struct ArrivedRequest {
    /// The hash of its caller. When the registry is full, the caller with the most requests loses its oldest.
    pub caller: Hash,
    /// The hash of everything that makes it another request. It covers the caller.
    pub fingerprint: Hash,
    /// Whether the client says that it sent the request before.
    pub is_retry: bool,
    /// Whether it may join a turn.
    pub may_join: bool,
}

/// A request that is registered.
#[derive(Debug)]
pub struct RegisteredRequest {
    /// Whether it joins the turn of an earlier request. Otherwise it starts the turn with the id of its connection.
    pub joins: bool,
    /// Its connection.
    pub connection: ClientConnection,
}

/// How the answer of a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveredEnd {
    /// With an answer, or with calls for the client. An equal request is a new one.
    Answer,
    /// With an error, or before the turn has ended.
    NoAnswer,
}

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    /// Its client is connected.
    Open,
    /// Its connection closed before the end of the answer.
    Broken { at: Millis },
    /// Its answer was handed to the connection.
    Delivered { at: Millis, end: DeliveredEnd },
    /// It is known from the store: another process accepted it.
    Recorded,
}

/// The action of a request that equals an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RepeatAction {
    /// Starts a new turn.
    StartNew,
    /// Starts a new turn, unless the connection closes within a short time.
    Wait,
    /// Joins the turn, if it is not too old.
    Join,
}

/// Decides what a request does that equals one in this state.
const fn action(earlier: RequestState, is_retry: bool) -> RepeatAction {
    match earlier {
        RequestState::Open => RepeatAction::Wait,
        RequestState::Broken { .. }
        | RequestState::Recorded
        | RequestState::Delivered { end: DeliveredEnd::NoAnswer, .. } => RepeatAction::Join,
        RequestState::Delivered { end: DeliveredEnd::Answer, .. } => {
            if is_retry {
                RepeatAction::Join
            } else {
                RepeatAction::StartNew
            }
        }
    }
}

/// A decision about a request that arrived.
enum Decision {
    /// It is registered as a new one.
    New(ClientConnection),
    /// An equal request is open.
    Wait,
    /// It takes over an earlier request in this state, if the turn permits it.
    Join(ClientConnection, RequestState),
}

impl OpenRequests {
    /// Creates an empty registry. `runtime` sees all organisations.
    pub fn new(runtime: Runtime, limits: &ServerLimits) -> Self {
        let (started, table) = (runtime.now(), RequestTable::new(limits.repeat_entries));
        Self {
            runtime,
            window: limits.repeat_window,
            replaced_process_wait: limits.drain + RETRY_CLOSE_WAIT,
            started,
            table: Arc::new(table),
            recorded_through: tokio::sync::Mutex::default(),
        }
    }

    /// Returns how long after the end of its connection and its turn a request can be repeated, or `None` if repeated
    /// requests are not recognised.
    pub fn window(&self) -> Option<Duration> {
        (!self.window.is_zero()).then_some(self.window)
    }

    /// Registers a request before its input is submitted. `runtime` is that of its caller.
    ///
    /// Each connection that closed can be taken over once: of two repeats at the same time, one joins the turn.
    pub async fn register(
        &self,
        request: ArrivedRequest,
        runtime: &Runtime,
    ) -> Result<RegisteredRequest, Error> {
        self.read_recorded_turns().await?;
        let began = Instant::now();
        let waits_until = began + if request.is_retry { RETRY_CLOSE_WAIT } else { CLOSE_WAIT };
        // Turns whose accepting process still runs.
        let mut elsewhere = BTreeSet::new();
        loop {
            let mut closed = pin!(self.table.closed.notified());
            closed.as_mut().enable();
            let may_wait = Instant::now() < waits_until;
            let (connection, before) = match self.decide(request, runtime, &elsewhere, may_wait) {
                Decision::New(connection) => return Ok(RegisteredRequest { joins: false, connection }),
                Decision::Join(connection, before) => (connection, before),
                Decision::Wait => {
                    // Whether it closed or not, decide again.
                    let _ = tokio::time::timeout_at(waits_until, closed).await;
                    continue;
                }
            };
            let turn = connection.turn();
            match self.joinability(turn, before, runtime).await? {
                Joinability::Joinable => {
                    return Ok(RegisteredRequest { joins: true, connection: connection.take_over() });
                }
                // The input of the earlier request did not arrive, or has not yet. Now either can start the turn: the
                // store accepts an id once.
                Joinability::NoTurn => {
                    return Ok(RegisteredRequest { joins: false, connection: connection.take_over() });
                }
                Joinability::Expired => connection.forget(),
                Joinability::Elsewhere => {
                    drop(connection);
                    // The process that this one replaces closes its connections first and ends soon after.
                    if accepted_at(turn) < self.started && began.elapsed() < self.replaced_process_wait {
                        tokio::time::sleep(PROCESS_POLL).await;
                    } else {
                        elsewhere.insert(turn);
                    }
                }
            }
        }
    }

    fn decide(
        &self,
        request: ArrivedRequest,
        runtime: &Runtime,
        elsewhere: &BTreeSet<TurnId>,
        may_wait: bool,
    ) -> Decision {
        let mut entries = self.table.lock();
        if request.may_join {
            let earlier = || entries.newest_first(request.fingerprint);
            let does = |state, what| action(state, request.is_retry) == what;
            let joined =
                earlier().find(|(turn, state)| does(*state, RepeatAction::Join) && !elsewhere.contains(turn));
            if let Some((turn, before)) = joined {
                entries.set(request.fingerprint, turn, RequestState::Open);
                return Decision::Join(self.connection(request, turn, Some(before)), before);
            }
            if may_wait && earlier().any(|(_, state)| does(state, RepeatAction::Wait)) {
                return Decision::Wait;
            }
        }
        let turn = runtime.fresh_turn();
        entries.add(Some(request.caller), request.fingerprint, turn, RequestState::Open);
        Decision::New(self.connection(request, turn, None))
    }

    fn connection(
        &self,
        request: ArrivedRequest,
        turn: TurnId,
        before: Option<RequestState>,
    ) -> ClientConnection {
        ClientConnection {
            table: self.table.clone(),
            runtime: self.runtime.clone(),
            fingerprint: request.fingerprint,
            turn,
            before,
            first_delivered: None,
            is_settled: false,
        }
    }

    /// Returns whether a request can join a turn whose earlier request was in this state.
    async fn joinability(
        &self,
        turn: TurnId,
        before: RequestState,
        runtime: &Runtime,
    ) -> Result<Joinability, Error> {
        let closed = match before {
            RequestState::Broken { at } | RequestState::Delivered { at, .. } => at,
            RequestState::Recorded | RequestState::Open => Millis(0),
        };
        let (until, is_turn) = match runtime.store().request_turn_state(turn).await {
            Err(error) if error.kind() == Kind::TurnNotFound => {
                (closed.after(self.window), Joinability::NoTurn)
            }
            Err(error) => return Err(error),
            Ok(RequestTurnState { is_acceptor_running: true, .. }) if before == RequestState::Recorded => {
                return Ok(Joinability::Elsewhere);
            }
            Ok(RequestTurnState { ended: Some(ended), .. }) => {
                (ended.max(closed).after(self.window), Joinability::Joinable)
            }
            Ok(RequestTurnState { ended: None, .. }) => {
                (accepted_at(turn).after(MAX_AGE), Joinability::Joinable)
            }
        };
        Ok(if self.runtime.now() <= until { is_turn } else { Joinability::Expired })
    }

    /// Reads which turns were accepted since the last call.
    async fn read_recorded_turns(&self) -> Result<(), Error> {
        let mut through = self.recorded_through.lock().await;
        loop {
            let read = self.runtime.store().request_turns(*through, RECORDED_TURNS).await?;
            let now = self.runtime.now();
            let recent = |(turn, _): &(TurnId, Hash)| accepted_at(*turn).after(MAX_AGE) >= now;
            {
                let mut entries = self.table.lock();
                for (turn, fingerprint) in read.turns.into_iter().filter(recent) {
                    entries.add_recorded(fingerprint, turn);
                }
            }
            *through = Some(read.through);
            if !read.has_more {
                return Ok(());
            }
        }
    }
}

/// Whether a request can join a turn.
enum Joinability {
    Joinable,
    /// There is no turn with this id.
    NoTurn,
    /// The turn is too old.
    Expired,
    /// The client may be connected to the process that accepted the turn.
    Elsewhere,
}

/// Returns when a turn was accepted, by its id.
fn accepted_at(turn: TurnId) -> Millis {
    Millis(u64::try_from(turn.to_u128() >> 80).unwrap_or_default())
}

/// The connection of a client that waits for an answer. If it is dropped before the answer was delivered, a repeated
/// request may join the turn.
pub struct ClientConnection {
    table: Arc<RequestTable>,
    runtime: Runtime,
    fingerprint: Hash,
    turn: TurnId,
    /// The state of an earlier request that this connection takes over, until it is known that it may.
    before: Option<RequestState>,
    /// When a failure was first delivered.
    first_delivered: Option<Millis>,
    is_settled: bool,
}

impl fmt::Debug for ClientConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConnection").field("turn", &self.turn).finish_non_exhaustive()
    }
}

impl ClientConnection {
    /// Returns the turn of the request, which may not have started yet.
    pub fn turn(&self) -> TurnId {
        self.turn
    }

    /// Returns the fingerprint of the request.
    pub fn fingerprint(&self) -> Hash {
        self.fingerprint
    }

    /// Records that the whole answer was handed to the connection.
    pub fn delivered(mut self, end: DeliveredEnd) {
        let now = self.runtime.now();
        // A failure that is delivered again does not become newer, so a person who repeats a request gets a new turn
        // at last.
        let at = self.first_delivered.filter(|_| end == DeliveredEnd::NoAnswer).unwrap_or(now);
        self.settle(Some(RequestState::Delivered { at, end }));
    }

    /// Forgets the request: no turn started, or its turn is too old.
    pub fn forget(mut self) {
        self.settle(None);
    }

    /// Takes over the earlier request.
    fn take_over(mut self) -> Self {
        if let Some(RequestState::Delivered { at, end: DeliveredEnd::NoAnswer }) = self.before.take() {
            self.first_delivered = Some(at);
        }
        self
    }

    fn settle(&mut self, state: Option<RequestState>) {
        self.is_settled = true;
        self.table.close(self.fingerprint, self.turn, state);
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        if !self.is_settled {
            let state = self.before.take().unwrap_or_else(|| RequestState::Broken { at: self.runtime.now() });
            self.settle(Some(state));
        }
    }
}

/// The requests, and a signal when a connection closes.
struct RequestTable {
    entries: Mutex<RequestEntries>,
    closed: Notify,
}

/// The requests, by their fingerprint and turn. The ids of turns sort by age.
struct RequestEntries {
    most: usize,
    by_request: BTreeMap<(Hash, TurnId), RequestEntry>,
    /// The same requests by caller. The caller of a request from the store is unknown.
    by_caller: BTreeMap<Option<Hash>, BTreeSet<(TurnId, Hash)>>,
}

struct RequestEntry {
    caller: Option<Hash>,
    state: RequestState,
}

impl RequestTable {
    fn new(most: usize) -> Self {
        let entries = RequestEntries { most, by_request: BTreeMap::new(), by_caller: BTreeMap::new() };
        Self { entries: Mutex::new(entries), closed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, RequestEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state of a request whose connection closed, or forgets it.
    fn close(&self, fingerprint: Hash, turn: TurnId, state: Option<RequestState>) {
        let mut entries = self.lock();
        match state {
            Some(state) => entries.set(fingerprint, turn, state),
            None => entries.remove(fingerprint, turn),
        }
        drop(entries);
        self.closed.notify_waiters();
    }
}

impl RequestEntries {
    /// Returns the requests with this fingerprint.
    fn newest_first(&self, fingerprint: Hash) -> impl Iterator<Item = (TurnId, RequestState)> {
        let all = (fingerprint, TurnId::from_u128(0))..=(fingerprint, TurnId::from_u128(u128::MAX));
        self.by_request.range(all).rev().map(|((_, turn), entry)| (*turn, entry.state))
    }

    /// Adds a request. If there are too many, the caller with the most requests loses its oldest.
    fn add(&mut self, caller: Option<Hash>, fingerprint: Hash, turn: TurnId, state: RequestState) {
        self.by_request.insert((fingerprint, turn), RequestEntry { caller, state });
        self.by_caller.entry(caller).or_default().insert((turn, fingerprint));
        if self.by_request.len() > self.most
            && let Some(turns) = self.by_caller.values().max_by_key(|turns| turns.len())
            && let Some((oldest, of)) = turns.first().copied()
        {
            self.remove(of, oldest);
        }
    }

    /// Adds a request from the store, unless it is known.
    fn add_recorded(&mut self, fingerprint: Hash, turn: TurnId) {
        if !self.by_request.contains_key(&(fingerprint, turn)) {
            self.add(None, fingerprint, turn, RequestState::Recorded);
        }
    }

    /// Changes the state of a request that was not forgotten meanwhile.
    fn set(&mut self, fingerprint: Hash, turn: TurnId, state: RequestState) {
        if let Some(entry) = self.by_request.get_mut(&(fingerprint, turn)) {
            entry.state = state;
        }
    }

    fn remove(&mut self, fingerprint: Hash, turn: TurnId) {
        let Some(RequestEntry { caller, .. }) = self.by_request.remove(&(fingerprint, turn)) else { return };
        if let Some(turns) = self.by_caller.get_mut(&caller) {
            turns.remove(&(turn, fingerprint));
            if turns.is_empty() {
                self.by_caller.remove(&caller);
            }
        }
    }
}

#[cfg(test)]
mod tests;
