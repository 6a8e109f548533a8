//! A store in memory, for tests, simulations and temporary sessions.
//!
//! It runs the same ledger on plain maps. If a unit of work fails, it is rolled back from an undo log.
use crate::Backend;
use crate::rows::{
    AttachmentRow, BudgetAccountRow, ClaimRow, ConfigRow, DeliveryRow, ExternalContentRow, GrantRow, KeyRow,
    NoticeRow, PINNED_USES, PartialRow, PendingPaymentRow, ReadRows, RecordAddress, RecordBody, RecordRange,
    RecordRow, ReservationRow, ResolutionRow, Rows, SessionNo, SessionRow, SinkRow, TurnRow, VoteRow, taken,
};
use outlast_ports::BoxFuture;
use outlast_ports::attachment_upload::SweepCounter;
use outlast_ports::contents::byte_range;
use outlast_ports::outbox::DeliveryPosition;
use outlast_ports::sink::OutputPosition;
use outlast_ports::store::{Durability, StoreStatus};
use outlast_ports::turns::{Fence, TrialState, TurnNo};
use outlast_views::{AuditRange, AuditRow, BlobLocation, ConfigKind, Org, RateView, SessionState, TurnState};
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::{AttachmentId, CallId, GrantId, KeyId, OrgId, SessionId, TurnId, WorkerId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::record::{ClaimRef, Seq, TurnEndKind};
use outlast_vocab::search_terms::SearchTerms;
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Hash, Millis};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
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
        F: FnOnce(&dyn ReadRows) -> Result<T, Error> + Send + 'static,
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
    undo: Vec<UndoEntry>,
}

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

fn vote_key(row: &VoteRow) -> VoteKey {
    (row.turn, row.key.clone(), row.vote.by.clone())
}

/// An entry of the undo log: the row that a unit of work replaced, or `None` if it was new.
enum UndoEntry {
    Session(SessionNo, Option<SessionRow>),
    Head((SessionNo, String), Option<HeadRow>),
    Turn(TurnNo, Option<TurnRow>),
    Log(u64, Option<RecordRow>),
    Claim((SessionNo, ClaimRef), Option<ClaimRow>),
    Waits(TurnNo, Option<Vec<Wait>>),
    Resolution((TurnNo, ReplayKey), Option<Resolution>),
    Value((SessionNo, String), Option<String>),
    Blob(Hash, Option<BlobRow>),
    Attachment((SessionNo, AttachmentId), Option<AttachmentRow>),
    ExternalContent(Hash, Option<ExternalContentRow>),
    Sweeps(SweepCounter),
    Partial((TurnNo, usize), Option<PartialRow>),
    BudgetAccount((OrgId, String), Option<BudgetAccountRow>),
    Rate((OrgId, String), Option<RateView>),
    Hold((TurnNo, ReplayKey), Option<ReservationRow>),
    Vote(VoteKey, Option<VoteRow>),
    Notice((TurnNo, ReplayKey), Option<NoticeRow>),
    PendingPayment((TurnNo, ReplayKey), Option<PendingPaymentRow>),
    Grant(GrantId, Option<GrantRow>),
    Sink(String, Option<SinkRow>),
    Config(ConfigKey, Option<ConfigRow>),
    Delivery(DeliveryKey, Option<DeliveryRow>),
    SearchWords(u64, Option<String>),
    Org(OrgId, Option<Org>),
    Key(KeyId, Option<KeyRow>),
    Audit(u64, Option<AuditRow>),
}

/// Sets or removes an entry and returns the previous one.
fn swap<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, key: &K, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => map.insert(key.clone(), value),
        None => map.remove(key),
    }
}

impl Tables {
    fn roll_back(&mut self) {
        while let Some(undo) = self.undo.pop() {
            match undo {
                UndoEntry::Session(no, row) => self.set_session(no, row),
                UndoEntry::Head(key, node) => self.set_head(key, node),
                UndoEntry::Turn(no, row) => self.set_turn(no, row),
                UndoEntry::Log(position, row) => self.set_log(position, row),
                UndoEntry::Claim(key, row) => self.set_claim(key, row),
                UndoEntry::Waits(no, waits) => self.set_waits(no, waits),
                UndoEntry::Resolution(key, row) => self.set_resolution(key, row),
                UndoEntry::Value(key, json) => self.set_value(key, json),
                UndoEntry::Blob(hash, bytes) => self.set_blob(hash, bytes),
                UndoEntry::Attachment(key, row) => self.set_attachment(key, row),
                UndoEntry::ExternalContent(content, row) => self.set_outside(content, row),
                UndoEntry::Sweeps(sweeps) => self.set_sweeps(sweeps),
                UndoEntry::Partial(key, row) => self.set_partial(key, row),
                UndoEntry::BudgetAccount(key, row) => self.set_purse(key, row),
                UndoEntry::Rate(key, row) => self.set_rate(key, row),
                UndoEntry::Hold(key, row) => self.set_hold(key, row),
                UndoEntry::Vote(at, row) => self.set_vote(at, row),
                UndoEntry::Notice(key, row) => self.set_notice(key, row),
                UndoEntry::PendingPayment(key, row) => self.set_owed(key, row),
                UndoEntry::Grant(id, row) => self.set_grant(id, row),
                UndoEntry::Sink(name, row) => self.set_sink(name, row),
                UndoEntry::Config(at, row) => self.set_config(at, row),
                UndoEntry::Delivery(key, row) => self.set_delivery(key, row),
                UndoEntry::SearchWords(position, words) => self.set_search_words(position, words),
                UndoEntry::Org(id, org) => self.set_org(id, org),
                UndoEntry::Key(id, row) => self.set_key(id, row),
                UndoEntry::Audit(no, row) => self.set_audit(no, row),
            }
            // Rolling back logs an entry too, which must not be undone.
            self.undo.pop();
        }
    }

    fn set_session(&mut self, no: SessionNo, row: Option<SessionRow>) {
        if let Some(row) = &row {
            self.session_ids.insert(row.id, no);
            self.session_keys.extend(row.key.clone().map(|key| ((row.org, key), no)));
        }
        let gone = row.is_none();
        let old = swap(&mut self.sessions, &no, row);
        if let (true, Some(old)) = (gone, &old) {
            self.session_ids.remove(&old.id);
            self.session_keys.retain(|_, of| *of != no);
        }
        self.undo.push(UndoEntry::Session(no, old));
    }

    fn set_turn(&mut self, no: TurnNo, row: Option<TurnRow>) {
        if let Some(row) = &row {
            self.turn_ids.insert(row.id, no);
            self.turn_order.insert((row.session, row.index), no);
        }
        let gone = row.is_none();
        let old = swap(&mut self.turns, &no, row);
        if let (true, Some(old)) = (gone, &old) {
            self.turn_ids.remove(&old.id);
            self.turn_order.remove(&(old.session, old.index));
        }
        self.undo.push(UndoEntry::Turn(no, old));
    }

    fn set_log(&mut self, position: u64, row: Option<RecordRow>) {
        if let Some(row) = &row {
            self.log_order.insert((row.session, row.seq), position);
        }
        let gone = row.is_none();
        let old = swap(&mut self.log, &position, row);
        if let (true, Some(old)) = (gone, &old) {
            self.log_order.remove(&(old.session, old.seq));
        }
        self.undo.push(UndoEntry::Log(position, old));
    }

    fn set_head(&mut self, key: (SessionNo, String), node: Option<HeadRow>) {
        let old = swap(&mut self.heads, &key, node);
        self.undo.push(UndoEntry::Head(key, old));
    }

    fn set_claim(&mut self, key: (SessionNo, ClaimRef), row: Option<ClaimRow>) {
        let old = swap(&mut self.claims, &key, row);
        self.undo.push(UndoEntry::Claim(key, old));
    }

    fn set_waits(&mut self, no: TurnNo, waits: Option<Vec<Wait>>) {
        let old = swap(&mut self.waits, &no, waits);
        self.undo.push(UndoEntry::Waits(no, old));
    }

    fn set_resolution(&mut self, key: (TurnNo, ReplayKey), row: Option<Resolution>) {
        let old = swap(&mut self.resolutions, &key, row);
        self.undo.push(UndoEntry::Resolution(key, old));
    }

    fn set_value(&mut self, key: (SessionNo, String), json: Option<String>) {
        let old = swap(&mut self.values, &key, json);
        self.undo.push(UndoEntry::Value(key, old));
    }

    fn set_blob(&mut self, hash: Hash, row: Option<BlobRow>) {
        let old = swap(&mut self.blobs, &hash, row);
        self.undo.push(UndoEntry::Blob(hash, old));
    }

    fn set_attachment(&mut self, key: (SessionNo, AttachmentId), row: Option<AttachmentRow>) {
        let old = swap(&mut self.attachments, &key, row);
        self.undo.push(UndoEntry::Attachment(key, old));
    }

    fn set_outside(&mut self, content: Hash, row: Option<ExternalContentRow>) {
        let old = swap(&mut self.outside, &content, row);
        self.undo.push(UndoEntry::ExternalContent(content, old));
    }

    fn set_sweeps(&mut self, sweeps: SweepCounter) {
        let old = std::mem::replace(&mut self.sweeps, sweeps);
        self.undo.push(UndoEntry::Sweeps(old));
    }

    fn set_partial(&mut self, key: (TurnNo, usize), row: Option<PartialRow>) {
        let old = swap(&mut self.partials, &key, row);
        self.undo.push(UndoEntry::Partial(key, old));
    }

    fn set_rate(&mut self, key: (OrgId, String), row: Option<RateView>) {
        let old = swap(&mut self.rates, &key, row);
        self.undo.push(UndoEntry::Rate(key, old));
    }

    fn set_purse(&mut self, key: (OrgId, String), row: Option<BudgetAccountRow>) {
        let old = swap(&mut self.accounts, &key, row);
        self.undo.push(UndoEntry::BudgetAccount(key, old));
    }

    fn set_hold(&mut self, key: (TurnNo, ReplayKey), row: Option<ReservationRow>) {
        let old = swap(&mut self.reservations, &key, row);
        self.undo.push(UndoEntry::Hold(key, old));
    }

    fn set_vote(&mut self, at: VoteKey, row: Option<VoteRow>) {
        let old = swap(&mut self.votes, &at, row);
        self.undo.push(UndoEntry::Vote(at, old));
    }

    fn set_notice(&mut self, key: (TurnNo, ReplayKey), row: Option<NoticeRow>) {
        let old = swap(&mut self.notices, &key, row);
        self.undo.push(UndoEntry::Notice(key, old));
    }

    fn set_owed(&mut self, key: (TurnNo, ReplayKey), row: Option<PendingPaymentRow>) {
        let old = swap(&mut self.pending_payments, &key, row);
        self.undo.push(UndoEntry::PendingPayment(key, old));
    }

    fn set_grant(&mut self, id: GrantId, row: Option<GrantRow>) {
        let old = swap(&mut self.grants, &id, row);
        self.undo.push(UndoEntry::Grant(id, old));
    }

    fn set_sink(&mut self, name: String, row: Option<SinkRow>) {
        let old = swap(&mut self.sinks, &name, row);
        self.undo.push(UndoEntry::Sink(name, old));
    }

    fn set_config(&mut self, at: ConfigKey, row: Option<ConfigRow>) {
        let old = swap(&mut self.configs, &at, row);
        self.undo.push(UndoEntry::Config(at, old));
    }

    fn set_search_words(&mut self, position: u64, words: Option<String>) {
        let old = swap(&mut self.search_words, &position, words);
        self.undo.push(UndoEntry::SearchWords(position, old));
    }

    fn set_delivery(&mut self, key: DeliveryKey, row: Option<DeliveryRow>) {
        let old = swap(&mut self.deliveries, &key, row);
        self.undo.push(UndoEntry::Delivery(key, old));
    }

    fn set_org(&mut self, id: OrgId, org: Option<Org>) {
        let old = swap(&mut self.orgs.0, &id, org);
        self.undo.push(UndoEntry::Org(id, old));
    }

    fn set_key(&mut self, id: KeyId, row: Option<KeyRow>) {
        let old = swap(&mut self.keys, &id, row);
        self.undo.push(UndoEntry::Key(id, old));
    }

    fn set_audit(&mut self, no: u64, row: Option<AuditRow>) {
        let old = swap(&mut self.audit, &no, row);
        self.undo.push(UndoEntry::Audit(no, old));
    }

    /// Returns whether a session is visible within this reach.
    fn covers(&self, of: OrgVisibility, session: SessionNo) -> bool {
        self.sessions.get(&session).is_some_and(|row| of.covers(row.org))
    }

    fn deliveries_to(&self, sink: &str) -> impl Iterator<Item = &DeliveryRow> {
        self.deliveries.values().filter(move |row| row.sink == sink)
    }

    /// Releases one use of external content. The sweep finds the content when no use is left.
    fn release_outside(&mut self, content: Hash) {
        if let Some(row) = self.outside.get(&content).copied() {
            self.set_outside(content, Some(ExternalContentRow { uses: row.uses.saturating_sub(1), ..row }));
        }
    }

    /// Releases one use of a blob. The last release deletes it.
    fn release_blob(&mut self, hash: Hash) {
        if let Some((bytes, uses)) = self.blobs.get(&hash).cloned() {
            self.set_blob(hash, (uses > 1).then(|| (bytes, uses - 1)));
        }
    }
}

/// Returns whether a session is in this state and due.
fn is_due(row: &SessionRow, state: SessionState, now: Millis) -> bool {
    row.state == state && row.wake_at.is_some_and(|at| at <= now)
}

/// Returns at most `limit` rows.
fn page<'a, T: Clone + 'a>(rows: impl Iterator<Item = &'a T>, limit: usize) -> Vec<T> {
    rows.take(limit).cloned().collect()
}

impl ReadRows for Tables {
    fn session(&self, no: SessionNo) -> Result<Option<SessionRow>, Error> {
        Ok(self.sessions.get(&no).cloned())
    }

    fn session_by_id(&self, id: SessionId) -> Result<Option<SessionRow>, Error> {
        Ok(self.session_ids.get(&id).and_then(|no| self.sessions.get(no)).cloned())
    }

    fn session_by_key(&self, org: OrgId, key: &str) -> Result<Option<SessionRow>, Error> {
        Ok(self.session_keys.get(&(org, key.to_owned())).and_then(|no| self.sessions.get(no)).cloned())
    }

    fn sessions(
        &self,
        of: OrgVisibility,
        before: Option<SessionNo>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, Error> {
        let end = before.unwrap_or(SessionNo(i64::MAX));
        let earlier = self.sessions.range(..end).rev().map(|(_, row)| row);
        Ok(page(earlier.filter(|row| of.covers(row.org)), limit))
    }

    fn sessions_in(
        &self,
        state: SessionState,
        after: SessionNo,
        limit: usize,
    ) -> Result<Vec<SessionRow>, Error> {
        let later = self.sessions.values().filter(|row| row.no > after && row.state == state);
        Ok(page(later, limit))
    }

    fn count_last_ended(&self, end: TurnEndKind, limit: usize) -> Result<usize, Error> {
        let ended = |row: &&SessionRow| row.last_ended.is_some_and(|last| last.end == end);
        Ok(self.sessions.values().filter(ended).take(limit).count())
    }

    fn sessions_due(&self, now: Millis, limit: usize) -> Result<Vec<SessionRow>, Error> {
        let mut due: Vec<&SessionRow> =
            self.sessions.values().filter(|row| is_due(row, SessionState::Parked, now)).collect();
        due.sort_by_key(|row| row.wake_at);
        Ok(page(due.into_iter(), limit))
    }

    fn suspect_due(&self, now: Millis, most_deaths: u32) -> Result<Option<SessionRow>, Error> {
        let due = self.sessions.values().filter(|row| is_due(row, SessionState::Held, now));
        let old_enough = due.filter(|row| row.guard.deaths <= most_deaths);
        Ok(old_enough.min_by_key(|row| (row.wake_at, row.no)).cloned())
    }

    fn trials(&self) -> Result<Vec<(SessionNo, WorkerId)>, Error> {
        let leased = self.sessions.values().filter(|row| row.state == SessionState::Leased);
        let on_trial = leased.filter(|row| matches!(row.guard.trial, TrialState::Waits | TrialState::Runs));
        Ok(on_trial.filter_map(|row| Some((row.no, row.worker?))).collect())
    }

    fn next_wake(&self) -> Result<Option<Millis>, Error> {
        Ok(self.sessions.values().filter_map(|row| row.wake_at).min())
    }

    fn forks(&self, of: SessionNo) -> Result<Vec<SessionId>, Error> {
        let forked =
            |row: &&SessionRow| row.forked_from.is_some_and(|node| node.session == of) && row.no != of;
        Ok(self.sessions.values().filter(forked).map(|row| row.id).collect())
    }

    fn heads(&self, session: SessionNo) -> Result<Vec<(String, Option<RecordAddress>)>, Error> {
        let ours = self.heads.iter().filter(|((no, _), _)| *no == session);
        Ok(ours.map(|((_, name), node)| (name.clone(), *node)).collect())
    }

    fn head(&self, session: SessionNo, name: &str) -> Result<Option<Option<RecordAddress>>, Error> {
        Ok(self.heads.get(&(session, name.to_owned())).copied())
    }

    fn turn(&self, no: TurnNo) -> Result<Option<TurnRow>, Error> {
        Ok(self.turns.get(&no).cloned())
    }

    fn turn_by_id(&self, id: TurnId) -> Result<Option<TurnRow>, Error> {
        Ok(self.turn_ids.get(&id).and_then(|no| self.turns.get(no)).cloned())
    }

    fn turn_by_key(&self, session: SessionNo, key: &str) -> Result<Option<TurnRow>, Error> {
        let same = |row: &&TurnRow| row.session == session && row.key.as_deref() == Some(key);
        Ok(self.turns.values().find(same).cloned())
    }

    fn turns(&self, session: SessionNo, from: u32, limit: usize) -> Result<Vec<TurnRow>, Error> {
        let order = self.turn_order.range((session, from)..=(session, u32::MAX));
        Ok(page(order.filter_map(|(_, no)| self.turns.get(no)), limit))
    }

    fn queued(&self, session: SessionNo, limit: usize) -> Result<Vec<TurnRow>, Error> {
        let order = self.turn_order.range((session, 0)..=(session, u32::MAX));
        let turns = order.filter_map(|(_, no)| self.turns.get(no));
        Ok(page(turns.filter(|row| row.state == TurnState::Queued), limit))
    }

    fn last_retry(&self, of: TurnNo) -> Result<Option<TurnRow>, Error> {
        Ok(self.turns.values().rev().find(|row| row.retry_of == Some(of)).cloned())
    }

    fn records(&self, range: RecordRange) -> Result<Vec<RecordRow>, Error> {
        let RecordRange { session, turn, nodes_only, from, to, limit } = range;
        if from > to {
            return Ok(Vec::new());
        }
        let rows =
            self.log_order.range((session, from)..=(session, to)).filter_map(|(_, at)| self.log.get(at));
        let wanted = rows.filter(|row| (turn.is_none() || row.turn == turn) && (row.node || !nodes_only));
        Ok(page(wanted, limit))
    }

    fn feed(&self, of: OrgVisibility, after: u64, limit: usize) -> Result<Vec<(u64, RecordRow)>, Error> {
        let later = self.log.range(after.saturating_add(1)..);
        let later = later.filter(|(_, row)| self.covers(of, row.session));
        Ok(later.take(limit).map(|(position, row)| (*position, row.clone())).collect())
    }

    fn search(
        &self,
        of: OrgVisibility,
        session: Option<SessionNo>,
        wanted: &SearchTerms,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, RecordRow)>, Error> {
        let matching = self.search_words.range(..before).rev().filter(|(_, words)| wanted.fits(words));
        let rows = matching.filter_map(|(position, _)| Some((*position, self.log.get(position)?.clone())));
        let visible = rows.filter(|(_, row)| {
            self.covers(of, row.session) && session.is_none_or(|session| session == row.session)
        });
        Ok(visible.take(limit).collect())
    }

    fn feed_end(&self) -> Result<u64, Error> {
        Ok(self.log.last_key_value().map_or(0, |(position, _)| *position))
    }

    fn feed_length(&self, after: u64) -> Result<u64, Error> {
        Ok(self.log.range(after.saturating_add(1)..).count() as u64)
    }

    fn claim(&self, session: SessionNo, claim: ClaimRef) -> Result<Option<ClaimRow>, Error> {
        Ok(self.claims.get(&(session, claim)).cloned())
    }

    fn claims(&self, session: SessionNo, turn: TurnNo) -> Result<Vec<ClaimRow>, Error> {
        let ours = self.claims.values().filter(|row| row.session == session && row.turn == turn);
        Ok(ours.cloned().collect())
    }

    fn unknown(
        &self,
        of: OrgVisibility,
        after: Option<(Millis, CallId)>,
        limit: usize,
    ) -> Result<Vec<ClaimRow>, Error> {
        let place = |row: &&ClaimRow| (row.since, row.call);
        let visible =
            |row: &&ClaimRow| row.unknown && self.covers(of, row.session) && Some(place(row)) > after;
        let mut rows: Vec<&ClaimRow> = self.claims.values().filter(visible).collect();
        rows.sort_by_key(place);
        Ok(page(rows.into_iter(), limit))
    }

    fn waits(&self, turn: TurnNo) -> Result<Vec<Wait>, Error> {
        Ok(self.waits.get(&turn).cloned().unwrap_or_default())
    }

    fn waiting(&self, of: OrgVisibility, kind: WaitKind, limit: usize) -> Result<Vec<(TurnNo, Wait)>, Error> {
        let visible = |turn: &TurnNo| self.turns.get(turn).is_some_and(|turn| self.covers(of, turn.session));
        let turns = self.waits.iter().filter(|(turn, _)| visible(turn));
        let all = turns.flat_map(|(turn, waits)| waits.iter().map(move |wait| (*turn, wait.clone())));
        Ok(all.filter(|(_, wait)| wait.kind == kind).take(limit).collect())
    }

    fn resolution(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<Resolution>, Error> {
        Ok(self.resolutions.get(&(turn, key.clone())).cloned())
    }

    fn value(&self, session: SessionNo, name: &str) -> Result<Option<String>, Error> {
        Ok(self.values.get(&(session, name.to_owned())).cloned())
    }

    fn value_names(&self, session: SessionNo, prefix: &str, limit: usize) -> Result<Vec<String>, Error> {
        let ours = self.values.keys().filter(|(no, name)| *no == session && name.starts_with(prefix));
        Ok(page(ours.map(|(_, name)| name), limit))
    }

    fn attachment(&self, session: SessionNo, id: AttachmentId) -> Result<Option<AttachmentRow>, Error> {
        Ok(self.attachments.get(&(session, id)).cloned())
    }

    fn attachments(
        &self,
        session: SessionNo,
        after: Option<AttachmentId>,
        limit: usize,
    ) -> Result<Vec<AttachmentRow>, Error> {
        let visible = |row: &&AttachmentRow| row.session == session && Some(row.attachment.id) > after;
        Ok(page(self.attachments.values().filter(visible), limit))
    }

    fn rate(&self, org: OrgId, name: &str) -> Result<Option<RateView>, Error> {
        Ok(self.rates.get(&(org, name.to_owned())).cloned())
    }

    fn rates(
        &self,
        of: OrgVisibility,
        after: Option<(OrgId, &str)>,
        limit: usize,
    ) -> Result<Vec<RateView>, Error> {
        let visible = |row: &&RateView| of.covers(row.org) && Some((row.org, row.name.as_str())) > after;
        Ok(page(self.rates.values().filter(visible), limit))
    }

    fn purse(&self, org: OrgId, name: &str) -> Result<Option<BudgetAccountRow>, Error> {
        Ok(self.accounts.get(&(org, name.to_owned())).cloned())
    }

    fn budget_accounts(
        &self,
        of: OrgVisibility,
        after: Option<(OrgId, &str)>,
        limit: usize,
    ) -> Result<Vec<BudgetAccountRow>, Error> {
        let visible =
            |row: &&BudgetAccountRow| of.covers(row.org) && Some((row.org, row.name.as_str())) > after;
        Ok(page(self.accounts.values().filter(visible), limit))
    }

    fn budgets_are_set(&self) -> Result<bool, Error> {
        Ok(self.accounts.values().any(|row| row.operator_budget.is_some()))
    }

    fn reservations(&self, turn: TurnNo) -> Result<Vec<ReservationRow>, Error> {
        Ok(self.reservations.values().filter(|row| row.turn == turn).cloned().collect())
    }

    fn votes(&self, turn: TurnNo) -> Result<Vec<VoteRow>, Error> {
        Ok(self.votes.values().filter(|row| row.turn == turn).cloned().collect())
    }

    fn notices(&self, turn: TurnNo) -> Result<Vec<NoticeRow>, Error> {
        Ok(self.notices.values().filter(|row| row.turn == turn).cloned().collect())
    }

    fn notices_due(&self, now: Millis, limit: usize) -> Result<Vec<NoticeRow>, Error> {
        let due = |row: &&NoticeRow| row.due_at.is_some_and(|at| at <= now);
        let mut rows: Vec<&NoticeRow> = self.notices.values().filter(due).collect();
        rows.sort_by_key(|row| (row.due_at, row.turn, row.key.clone()));
        Ok(page(rows.into_iter(), limit))
    }

    fn next_notice(&self) -> Result<Option<Millis>, Error> {
        Ok(self.notices.values().filter_map(|row| row.due_at).min())
    }

    fn pending_payment(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<PendingPaymentRow>, Error> {
        Ok(self.pending_payments.get(&(turn, key.clone())).cloned())
    }

    fn owed(&self, of: OrgVisibility, limit: usize) -> Result<Vec<PendingPaymentRow>, Error> {
        let visible = |row: &&PendingPaymentRow| {
            self.turns.get(&row.turn).is_some_and(|turn| self.covers(of, turn.session))
        };
        let mut rows: Vec<&PendingPaymentRow> = self.pending_payments.values().filter(visible).collect();
        rows.sort_by_key(|row| row.since);
        Ok(page(rows.into_iter(), limit))
    }

    fn payments_due(&self, now: Millis, limit: usize) -> Result<Vec<PendingPaymentRow>, Error> {
        let mut rows: Vec<&PendingPaymentRow> =
            self.pending_payments.values().filter(|row| row.due_at <= now).collect();
        rows.sort_by_key(|row| row.due_at);
        Ok(page(rows.into_iter(), limit))
    }

    fn next_payment_due(&self) -> Result<Option<Millis>, Error> {
        Ok(self.pending_payments.values().map(|row| row.due_at).min())
    }

    fn grant(&self, id: GrantId) -> Result<Option<GrantRow>, Error> {
        Ok(self.grants.get(&id).cloned())
    }

    fn session_grants(&self, session: SessionNo) -> Result<Vec<GrantRow>, Error> {
        Ok(self.grants.values().filter(|row| row.session == session).cloned().collect())
    }

    fn grants(
        &self,
        of: OrgVisibility,
        after: Option<(Millis, GrantId)>,
        limit: usize,
    ) -> Result<Vec<GrantRow>, Error> {
        let place = |row: &&GrantRow| (Reverse(row.at), row.id);
        let after = after.map(|(at, id)| (Reverse(at), id));
        let visible = |row: &&GrantRow| self.covers(of, row.session) && Some(place(row)) > after;
        let mut rows: Vec<&GrantRow> = self.grants.values().filter(visible).collect();
        rows.sort_by_key(place);
        Ok(page(rows.into_iter(), limit))
    }

    fn partials(&self, turn: TurnNo) -> Result<Vec<PartialRow>, Error> {
        Ok(self.partials.range((turn, 0)..=(turn, usize::MAX)).map(|(_, row)| row.clone()).collect())
    }

    fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.blobs.get(&hash).map(|(bytes, _)| bytes.to_vec()))
    }

    fn blob_range(&self, hash: Hash, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.blobs.get(&hash).map(|(bytes, _)| byte_range(bytes, range).to_vec()))
    }

    fn outside(&self, content: Hash) -> Result<Option<ExternalContentRow>, Error> {
        Ok(self.outside.get(&content).copied())
    }

    fn unreferenced_content(&self, limit: usize) -> Result<Vec<Hash>, Error> {
        let left = self.outside.values().filter(|row| row.uses == 0);
        Ok(left.take(limit).map(|row| row.content).collect())
    }

    fn sweeps(&self) -> Result<SweepCounter, Error> {
        Ok(self.sweeps)
    }

    fn config(&self, org: OrgId, kind: ConfigKind, name: &str) -> Result<Option<ConfigRow>, Error> {
        Ok(self.config_versions(org, (kind, name), None, 1)?.pop())
    }

    fn configs(
        &self,
        org: OrgId,
        kind: ConfigKind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConfigRow>, Error> {
        let visible =
            |row: &&ConfigRow| row.org == org && row.kind == kind && Some(row.name.as_str()) > after;
        let of_kind = self.configs.values().filter(visible);
        let last: BTreeMap<&str, &ConfigRow> = of_kind.map(|row| (row.name.as_str(), row)).collect();
        Ok(page(last.into_values(), limit))
    }

    fn config_versions(
        &self,
        org: OrgId,
        (kind, name): (ConfigKind, &str),
        before: Option<u32>,
        limit: usize,
    ) -> Result<Vec<ConfigRow>, Error> {
        let at = |version| (org, kind, name.to_owned(), version);
        let below = self.configs.range(at(0)..=at(u32::MAX)).rev().map(|(_, row)| row);
        Ok(page(below.filter(|row| before.is_none_or(|before| row.version < before)), limit))
    }

    fn sink(&self, name: &str) -> Result<Option<SinkRow>, Error> {
        Ok(self.sinks.get(name).cloned())
    }

    fn sinks(&self) -> Result<Vec<SinkRow>, Error> {
        Ok(self.sinks.values().cloned().collect())
    }

    fn delivery(
        &self,
        sink: &str,
        turn: TurnNo,
        moment: OutputPosition,
    ) -> Result<Option<DeliveryRow>, Error> {
        Ok(self.deliveries.get(&(sink.to_owned(), turn, moment)).cloned())
    }

    fn deliveries(
        &self,
        sink: &str,
        after: Option<DeliveryPosition>,
        limit: usize,
    ) -> Result<Vec<DeliveryRow>, Error> {
        Ok(page(self.deliveries_to(sink).filter(|row| Some(row.place()) > after), limit))
    }

    fn deliveries_due(&self, sink: &str, now: Millis, limit: usize) -> Result<Vec<DeliveryRow>, Error> {
        let mut due: Vec<&DeliveryRow> =
            self.deliveries_to(sink).filter(|row| row.due_at.is_some_and(|at| at <= now)).collect();
        due.sort_by_key(|row| row.due_at);
        Ok(page(due.into_iter(), limit))
    }

    fn deliveries_taken(&self, sink: &str, limit: usize) -> Result<Vec<DeliveryRow>, Error> {
        Ok(page(self.deliveries_to(sink).filter(|row| row.worker.is_some()), limit))
    }

    fn next_delivery(&self, sink: &str) -> Result<Option<Millis>, Error> {
        Ok(self.deliveries_to(sink).filter_map(|row| row.due_at).min())
    }

    fn count_deliveries(&self, sink: &str) -> Result<(u64, u64), Error> {
        let dead = self.deliveries_to(sink).filter(|row| row.due_at.is_none()).count() as u64;
        Ok((self.deliveries_to(sink).count() as u64 - dead, dead))
    }

    fn org(&self, id: OrgId) -> Result<Option<Org>, Error> {
        Ok(self.orgs.0.get(&id).cloned())
    }

    fn org_by_name(&self, name: &str) -> Result<Option<Org>, Error> {
        Ok(self.orgs.0.values().find(|org| org.name.as_str() == name).cloned())
    }

    fn orgs(&self, after: Option<&str>, limit: usize) -> Result<Vec<Org>, Error> {
        let mut orgs: Vec<&Org> =
            self.orgs.0.values().filter(|org| Some(org.name.as_str()) > after).collect();
        orgs.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(page(orgs.into_iter(), limit))
    }

    fn key(&self, id: KeyId) -> Result<Option<KeyRow>, Error> {
        Ok(self.keys.get(&id).cloned())
    }

    fn keys(&self, of: OrgVisibility, after: Option<KeyId>, limit: usize) -> Result<Vec<KeyRow>, Error> {
        Ok(page(self.keys.values().filter(|row| of.covers(row.org) && Some(row.id) > after), limit))
    }

    fn audit(&self, of: OrgVisibility, range: AuditRange) -> Result<Vec<AuditRow>, Error> {
        let AuditRange { after, since, limit } = range;
        let later = self.audit.range(after.saturating_add(1)..).map(|(_, row)| row);
        Ok(page(later.filter(|row| row.at >= since && of.covers(row.org)), limit))
    }

    fn secret(&self) -> Result<[u8; 32], Error> {
        Ok(self.secret.0)
    }

    fn is_dead(&self, worker: WorkerId) -> bool {
        self.dead.contains(&worker)
    }
}

impl Rows for Tables {
    fn insert_session(&mut self, row: &SessionRow) -> Result<SessionNo, Error> {
        if self.session_ids.contains_key(&row.id) {
            return Err(taken(row.id));
        }
        self.last.session += 1;
        let no = SessionNo(self.last.session);
        self.set_session(no, Some(SessionRow { no, ..row.clone() }));
        Ok(no)
    }

    fn put_session(&mut self, row: &SessionRow) -> Result<(), Error> {
        self.set_session(row.no, Some(row.clone()));
        Ok(())
    }

    fn delete_session(&mut self, no: SessionNo) -> Result<(), Error> {
        let heads: Vec<_> = self.heads.keys().filter(|(session, _)| *session == no).cloned().collect();
        for key in heads {
            self.set_head(key, None);
        }
        let turns: Vec<TurnNo> =
            self.turns.values().filter(|turn| turn.session == no).map(|turn| turn.no).collect();
        for turn in turns {
            let keys: Vec<_> = self.resolutions.keys().filter(|(of, _)| *of == turn).cloned().collect();
            for key in keys {
                self.set_resolution(key, None);
            }
            self.set_waits(turn, None);
            for row in self.votes(turn)? {
                self.set_vote(vote_key(&row), None);
            }
            for row in self.notices(turn)? {
                self.set_notice((turn, row.key), None);
            }
            self.delete_partials(turn)?;
            let deliveries: Vec<DeliveryKey> =
                self.deliveries.keys().filter(|(_, of, _)| *of == turn).cloned().collect();
            for at in deliveries {
                self.set_delivery(at, None);
            }
            self.set_turn(turn, None);
        }
        let log: Vec<u64> =
            self.log_order.range((no, Seq(0))..=(no, Seq(u64::MAX))).map(|(_, at)| *at).collect();
        for position in log {
            if let Some(RecordBody::Blob(hash)) = self.log.get(&position).map(|row| row.body.clone()) {
                self.release_blob(hash);
            }
            self.set_log(position, None);
        }
        for row in self.attachments(no, None, usize::MAX)? {
            match row.location {
                BlobLocation::Database => self.release_blob(row.attachment.content),
                BlobLocation::Outside => self.release_outside(row.attachment.content),
            }
            self.set_attachment((no, row.attachment.id), None);
        }
        for row in self.session_grants(no)? {
            self.set_grant(row.id, None);
        }
        let claims: Vec<_> = self.claims.keys().filter(|(session, _)| *session == no).copied().collect();
        for key in claims {
            self.set_claim(key, None);
        }
        let values: Vec<_> = self.values.keys().filter(|(session, _)| *session == no).cloned().collect();
        for key in values {
            self.set_value(key, None);
        }
        self.set_session(no, None);
        Ok(())
    }

    fn extend_leases(&mut self, worker: WorkerId, until: Millis) -> Result<Vec<(SessionId, Fence)>, Error> {
        let held = |row: &&SessionRow| row.worker == Some(worker) && row.state == SessionState::Leased;
        let rows: Vec<SessionRow> = self.sessions.values().filter(held).cloned().collect();
        let leases = rows.iter().map(|row| (row.id, row.fence)).collect();
        for row in rows {
            self.set_session(row.no, Some(SessionRow { lease_until: until, ..row }));
        }
        Ok(leases)
    }

    fn put_head(&mut self, session: SessionNo, name: &str, node: Option<RecordAddress>) -> Result<(), Error> {
        self.set_head((session, name.to_owned()), Some(node));
        Ok(())
    }

    fn insert_turn(&mut self, row: &TurnRow) -> Result<TurnNo, Error> {
        if self.turn_ids.contains_key(&row.id) {
            return Err(taken(row.id));
        }
        self.last.turn += 1;
        let no = TurnNo(self.last.turn);
        self.set_turn(no, Some(TurnRow { no, ..row.clone() }));
        Ok(no)
    }

    fn put_turn(&mut self, row: &TurnRow) -> Result<(), Error> {
        self.set_turn(row.no, Some(row.clone()));
        Ok(())
    }

    fn index_words(&mut self, session: &SessionRow, seq: Seq, words: &str) -> Result<(), Error> {
        if let Some(position) = self.log_order.get(&(session.no, seq)).copied() {
            self.set_search_words(position, Some(words.to_owned()));
        }
        Ok(())
    }

    fn unindex_words(&mut self, session: &SessionRow, seq: Seq, _words: &str) -> Result<(), Error> {
        if let Some(position) = self.log_order.get(&(session.no, seq)).copied() {
            self.set_search_words(position, None);
        }
        Ok(())
    }

    fn append(&mut self, row: &RecordRow) -> Result<(), Error> {
        self.last.record += 1;
        self.set_log(self.last.record, Some(row.clone()));
        Ok(())
    }

    fn put_claim(&mut self, row: &ClaimRow) -> Result<(), Error> {
        self.set_claim((row.session, row.claim), Some(row.clone()));
        Ok(())
    }

    fn delete_claim(&mut self, session: SessionNo, claim: ClaimRef) -> Result<(), Error> {
        self.set_claim((session, claim), None);
        Ok(())
    }

    fn put_wait(&mut self, turn: TurnNo, wait: &Wait) -> Result<(), Error> {
        let mut waits = self.waits.get(&turn).cloned().unwrap_or_default();
        match waits.iter_mut().find(|other| other.key == wait.key) {
            Some(same) => *same = wait.clone(),
            None => waits.push(wait.clone()),
        }
        self.set_waits(turn, Some(waits));
        Ok(())
    }

    fn delete_waits(&mut self, turn: TurnNo) -> Result<(), Error> {
        self.set_waits(turn, None);
        Ok(())
    }

    fn insert_resolution(&mut self, row: &ResolutionRow) -> Result<(), Error> {
        self.set_resolution((row.turn, row.key.clone()), Some(row.resolution.clone()));
        Ok(())
    }

    fn put_value(&mut self, session: SessionNo, name: &str, json: Option<&str>) -> Result<(), Error> {
        self.set_value((session, name.to_owned()), json.map(ToOwned::to_owned));
        Ok(())
    }

    fn put_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error> {
        let uses = self.blobs.get(&hash).map_or(0, |(_, uses)| *uses);
        self.set_blob(hash, Some((bytes.into(), uses + 1)));
        Ok(())
    }

    fn pin_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error> {
        let uses = self.blobs.get(&hash).map_or(0, |(_, uses)| *uses);
        if uses < PINNED_USES {
            self.set_blob(hash, Some((bytes.into(), uses + PINNED_USES)));
        }
        Ok(())
    }

    fn insert_attachment(&mut self, row: &AttachmentRow) -> Result<(), Error> {
        self.set_attachment((row.session, row.attachment.id), Some(row.clone()));
        Ok(())
    }

    fn put_external_content(&mut self, row: &ExternalContentRow) -> Result<(), Error> {
        self.set_outside(row.content, Some(*row));
        Ok(())
    }

    fn delete_external_content(&mut self, content: Hash) -> Result<(), Error> {
        self.set_outside(content, None);
        Ok(())
    }

    fn put_sweep_counter(&mut self, sweeps: SweepCounter) -> Result<(), Error> {
        self.set_sweeps(sweeps);
        Ok(())
    }

    fn put_rate(&mut self, row: &RateView) -> Result<(), Error> {
        self.set_rate((row.org, row.name.clone()), Some(row.clone()));
        Ok(())
    }

    fn put_budget_account(&mut self, row: &BudgetAccountRow) -> Result<(), Error> {
        self.set_purse((row.org, row.name.clone()), Some(row.clone()));
        Ok(())
    }

    fn delete_budget_account(&mut self, org: OrgId, name: &str) -> Result<(), Error> {
        self.set_purse((org, name.to_owned()), None);
        Ok(())
    }

    fn put_vote(&mut self, row: &VoteRow) -> Result<(), Error> {
        self.set_vote(vote_key(row), Some(row.clone()));
        Ok(())
    }

    fn delete_vote(&mut self, row: &VoteRow) -> Result<(), Error> {
        self.set_vote(vote_key(row), None);
        Ok(())
    }

    fn put_notice(&mut self, row: &NoticeRow) -> Result<(), Error> {
        self.set_notice((row.turn, row.key.clone()), Some(row.clone()));
        Ok(())
    }

    fn delete_notice(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.set_notice((turn, key.clone()), None);
        Ok(())
    }

    fn put_pending_payment(&mut self, row: &PendingPaymentRow) -> Result<(), Error> {
        self.set_owed((row.turn, row.payment.key.clone()), Some(row.clone()));
        Ok(())
    }

    fn delete_pending_payment(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.set_owed((turn, key.clone()), None);
        Ok(())
    }

    fn put_grant(&mut self, row: &GrantRow) -> Result<(), Error> {
        self.set_grant(row.id, Some(row.clone()));
        Ok(())
    }

    fn delete_grant(&mut self, id: GrantId) -> Result<(), Error> {
        self.set_grant(id, None);
        Ok(())
    }

    fn put_reservation(&mut self, row: &ReservationRow) -> Result<(), Error> {
        self.set_hold((row.turn, row.key.clone()), Some(row.clone()));
        Ok(())
    }

    fn delete_reservation(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.set_hold((turn, key.clone()), None);
        Ok(())
    }

    fn insert_config(&mut self, row: &ConfigRow) -> Result<(), Error> {
        let at = (row.org, row.kind, row.name.clone(), row.version);
        if self.configs.contains_key(&at) {
            return Err(taken(format!("version {} of `{}`", row.version, row.name)));
        }
        self.set_config(at, Some(row.clone()));
        Ok(())
    }

    fn put_sink(&mut self, row: &SinkRow) -> Result<(), Error> {
        self.set_sink(row.name.clone(), Some(row.clone()));
        Ok(())
    }

    fn put_delivery(&mut self, row: &DeliveryRow) -> Result<(), Error> {
        self.set_delivery((row.sink.clone(), row.turn, row.position), Some(row.clone()));
        Ok(())
    }

    fn delete_delivery(&mut self, sink: &str, turn: TurnNo, moment: OutputPosition) -> Result<(), Error> {
        self.set_delivery((sink.to_owned(), turn, moment), None);
        Ok(())
    }

    fn insert_org(&mut self, org: &Org) -> Result<(), Error> {
        self.set_org(org.id, Some(org.clone()));
        Ok(())
    }

    fn put_key(&mut self, row: &KeyRow) -> Result<(), Error> {
        self.set_key(row.id, Some(row.clone()));
        Ok(())
    }

    fn append_audit(&mut self, row: &AuditRow) -> Result<(), Error> {
        self.last.act += 1;
        let no = self.last.act;
        self.set_audit(no, Some(AuditRow { no, ..row.clone() }));
        Ok(())
    }

    fn put_partial(&mut self, row: &PartialRow) -> Result<(), Error> {
        self.set_partial((row.turn, row.start), Some(row.clone()));
        Ok(())
    }

    fn delete_partials(&mut self, turn: TurnNo) -> Result<(), Error> {
        for row in self.partials(turn)? {
            self.set_partial((turn, row.start), None);
        }
        Ok(())
    }
}
