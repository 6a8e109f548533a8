//! A store in memory, for tests, simulations and temporary sessions.
//!
//! It runs the same ledger on plain maps. If a unit of work fails, it is rolled back from an undo log.
mod approvals;
mod audit;
mod calls;
mod configs;
mod contents;
mod journal;
mod leases;
mod limits;
mod orgs;
mod payments;
mod search;
mod sessions;
mod signatures;
mod sinks;
mod turns;
mod values;
mod waits;

use crate::Backend;
use crate::rows::{
    AttachmentRow, BudgetAccountRow, ClaimRow, ConfigRow, DeliveryRow, ExternalContentRow, GrantRow, KeyRow,
    NoticeRow, PartialRow, PendingPaymentRow, QueryRows, ReadRows, RecordAddress, RecordBody, RecordRow,
    ReservationRow, RowAccess, Rows, SessionNo, SessionRow, SinkRow, TurnRow, VoteRow,
};
use outlast_ports::BoxFuture;
use outlast_ports::attachment_upload::SweepCounter;
use outlast_ports::sink::OutputPosition;
use outlast_ports::store::{Durability, StoreStatus};
use outlast_ports::turns::TurnNo;
use outlast_views::{AuditRow, ConfigKind, Org, RateView};
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::{AttachmentId, GrantId, KeyId, OrgId, SessionId, TurnId, WorkerId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::record::{ClaimRef, Seq};
use outlast_vocab::wait::{Resolution, Wait};
use outlast_vocab::{Error, Hash};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A store in memory. The data is gone when the last handle is dropped.
#[derive(Clone, Default)]
pub struct MemoryStore {
    tables: Arc<Mutex<Tables>>,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks a worker as dead, as the operating system would reveal it.
    pub fn bury(&self, worker: WorkerId) {
        self.lock().dead.insert(worker);
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for MemoryStore {
    fn write<T, F>(&self, unit: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Rows) -> Result<T, Error> + Send + 'static,
    {
        let mut tables = self.lock();
        let answer = unit(&mut *tables);
        match &answer {
            Ok(_) => tables.undo.clear(),
            Err(_) => tables.roll_back(),
        }
        drop(tables);
        Box::pin(std::future::ready(answer))
    }

    fn read<T, F>(&self, query: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&dyn QueryRows) -> Result<T, Error> + Send + 'static,
    {
        let answer = query(&*self.lock());
        Box::pin(std::future::ready(answer))
    }

    fn changes(&self) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(std::future::ready(Ok(0)))
    }

    fn status(&self) -> BoxFuture<'_, Result<StoreStatus, Error>> {
        let bytes = self.lock().log.values().map(|row| size_of::<RecordRow>() as u64 + body_len(row)).sum();
        let status = StoreStatus {
            engine: "memory".to_owned(),
            place: "this process".to_owned(),
            schema: 7,
            durability: Durability::None,
            bytes,
            syncs: None,
        };
        Box::pin(std::future::ready(Ok(status)))
    }
}

crate::implement_store!(MemoryStore);

fn body_len(row: &RecordRow) -> u64 {
    match &row.body {
        RecordBody::Inline(body) => body.len() as u64,
        RecordBody::Blob(_) => 0,
    }
}

/// The message at a head. `None` is before the first message.
type HeadRow = Option<RecordAddress>;

/// The tables. The modules of this one implement the traits of [`crate::rows`] for them.
#[derive(Default)]
struct Tables {
    sessions: BTreeMap<SessionNo, SessionRow>,
    session_ids: BTreeMap<SessionId, SessionNo>,
    session_keys: BTreeMap<(OrgId, String), SessionNo>,
    heads: BTreeMap<(SessionNo, String), HeadRow>,
    turns: BTreeMap<TurnNo, TurnRow>,
    turn_ids: BTreeMap<TurnId, TurnNo>,
    turn_order: BTreeMap<(SessionNo, u32), TurnNo>,
    log: BTreeMap<u64, RecordRow>,
    log_order: BTreeMap<(SessionNo, Seq), u64>,
    claims: BTreeMap<(SessionNo, ClaimRef), ClaimRow>,
    waits: BTreeMap<TurnNo, Vec<Wait>>,
    resolutions: BTreeMap<(TurnNo, ReplayKey), Resolution>,
    values: BTreeMap<(SessionNo, String), String>,
    blobs: BTreeMap<Hash, BlobRow>,
    attachments: BTreeMap<(SessionNo, AttachmentId), AttachmentRow>,
    outside: BTreeMap<Hash, ExternalContentRow>,
    sweeps: SweepCounter,
    partials: BTreeMap<(TurnNo, usize), PartialRow>,
    accounts: BTreeMap<(OrgId, String), BudgetAccountRow>,
    rates: BTreeMap<(OrgId, String), RateView>,
    reservations: BTreeMap<(TurnNo, ReplayKey), ReservationRow>,
    votes: BTreeMap<VoteKey, VoteRow>,
    notices: BTreeMap<(TurnNo, ReplayKey), NoticeRow>,
    pending_payments: BTreeMap<(TurnNo, ReplayKey), PendingPaymentRow>,
    grants: BTreeMap<GrantId, GrantRow>,
    sinks: BTreeMap<String, SinkRow>,
    configs: BTreeMap<ConfigKey, ConfigRow>,
    deliveries: BTreeMap<DeliveryKey, DeliveryRow>,
    /// The words of messages for search, by the feed position of their record.
    search_words: BTreeMap<u64, String>,
    orgs: Organisations,
    keys: BTreeMap<KeyId, KeyRow>,
    audit: BTreeMap<u64, AuditRow>,
    dead: BTreeSet<WorkerId>,
    secret: StoreSecret,
    last: LastNumbers,
    /// How to revert the changes of the running unit of work, newest last.
    undo: Vec<UndoEntry>,
}

/// Reverts one change of a table.
type UndoEntry = Box<dyn FnOnce(&mut Tables) + Send>;

/// The numbers that were assigned last.
#[derive(Default)]
struct LastNumbers {
    session: i64,
    turn: i64,
    record: u64,
    act: u64,
}

/// The organisations. The default one always exists.
struct Organisations(BTreeMap<OrgId, Org>);

impl Default for Organisations {
    fn default() -> Self {
        let default = Org::default();
        Self(BTreeMap::from([(default.id, default)]))
    }
}

/// A blob and how many records use it.
type BlobRow = (Arc<[u8]>, u64);

/// The secret of one memory store. It differs in each store.
struct StoreSecret([u8; 32]);

impl Default for StoreSecret {
    fn default() -> Self {
        // The standard library seeds each hasher from the system's random numbers.
        let random: Vec<u8> =
            (0..4).flat_map(|_| RandomState::new().build_hasher().finish().to_be_bytes()).collect();
        Self(*Hash::of(&random).as_bytes())
    }
}

/// The key of a configuration version.
type ConfigKey = (OrgId, ConfigKind, String, u32);

/// The key of a delivery.
type DeliveryKey = (String, TurnNo, OutputPosition);

/// The key of a vote.
type VoteKey = (TurnNo, ReplayKey, String);

impl Tables {
    /// Sets or removes a row, and adds the previous one to the undo log.
    fn set<K, V>(&mut self, table: fn(&mut Self) -> &mut BTreeMap<K, V>, key: K, row: Option<V>)
    where
        K: Ord + Clone + Send + 'static,
        V: Send + 'static,
    {
        let old = replace(table(self), key.clone(), row);
        self.undo.push(Box::new(move |tables| drop(replace(table(tables), key, old))));
    }

    /// Removes the rows of a table that match.
    fn remove_where<K, V>(
        &mut self,
        table: fn(&mut Self) -> &mut BTreeMap<K, V>,
        matches: impl Fn(&K, &V) -> bool,
    ) where
        K: Ord + Clone + Send + 'static,
        V: Send + 'static,
    {
        let rows = table(self).iter().filter(|(key, row)| matches(key, row));
        let keys: Vec<K> = rows.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.set(table, key, None);
        }
    }

    /// Reverts all changes since the undo log was cleared.
    fn roll_back(&mut self) {
        while let Some(undo) = self.undo.pop() {
            undo(self);
        }
    }

    /// Returns whether a session is visible within this visibility.
    fn covers(&self, of: OrgVisibility, session: SessionNo) -> bool {
        self.sessions.get(&session).is_some_and(|row| of.covers(row.org))
    }
}

impl RowAccess for Tables {}

impl ReadRows for Tables {}

impl QueryRows for Tables {}

impl Rows for Tables {}

/// Sets or removes a row and returns the previous one.
fn replace<K: Ord, V>(table: &mut BTreeMap<K, V>, key: K, row: Option<V>) -> Option<V> {
    match row {
        Some(row) => table.insert(key, row),
        None => table.remove(&key),
    }
}

/// Returns at most `limit` rows.
fn page<'a, T: Clone + 'a>(rows: impl Iterator<Item = &'a T>, limit: usize) -> Vec<T> {
    rows.take(limit).cloned().collect()
}
