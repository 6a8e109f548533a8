//! Cached totals of one organisation, updated so that each record is read once.
//!
//! Deleted sessions are removed from the totals, as if the remaining records were read again.
use super::reader::{CostEntry, CostReader, LoadedPackageNames};
use super::{CostDimension, CostGroupNames, CostTotals, PAGE};
use outlast_ports::journal::{FeedCursor, FeedRecord};
use outlast_ports::store::Store;
use outlast_views::AuditRange;
use outlast_vocab::access::AuditAction;
use outlast_vocab::record::{Record, Seq};
use outlast_vocab::{Error, Kind, Millis, SessionId, limits};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Totals up to a position in the feed.
pub struct OrgCostCache {
    read: Mutex<OrgCostCacheState>,
    /// Only one task reads at a time, so that no record is counted twice.
    reading: Semaphore,
    entries_most: usize,
}

/// The totals so far. If reading is cancelled, the pages read before stay counted.
#[derive(Default)]
struct OrgCostCacheState {
    after: FeedCursor,
    /// The audit entry up to which deletions are processed.
    audited: u64,
    reader: CostReader,
    names: NameInterner,
    spent: BTreeMap<(SessionId, CostGroupKey), CostTotals>,
    /// Sessions that were deleted and imported again, with the last record that was read outside the feed.
    returned: HashMap<SessionId, Seq>,
}

/// The group of an entry within a session, as name numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct CostGroupKey {
    day: u32,
    agent: u32,
    model: u32,
    source: u32,
}

impl CostGroupKey {
    const FIRST: Self = Self { day: 0, agent: 0, model: 0, source: 0 };
    const LAST: Self = Self { day: u32::MAX, agent: u32::MAX, model: u32::MAX, source: u32::MAX };
}

/// Interned names: there are few names and many lines.
#[derive(Default)]
struct NameInterner {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

impl NameInterner {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).expect("there are fewer names than lines");
        let name: Arc<str> = name.into();
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }

    fn name(&self, number: u32) -> &str {
        &self.names[number as usize]
    }
}

impl OrgCostCache {
    /// Creates empty totals that hold at most so many entries. Unfinished turns count as entries too.
    pub fn new(entries_most: usize) -> Self {
        Self { read: Mutex::default(), reading: Semaphore::new(1), entries_most }
    }

    /// Reads the records written since the last call. The first call reads everything.
    ///
    /// The store must be limited to one organisation and may read its audit log.
    pub async fn read_on(&self, store: &dyn Store) -> Result<(), Error> {
        let _alone = self.alone().await;
        loop {
            self.forget_deleted(store).await?;
            let after = self.lock().check_size(self.entries_most)?.after;
            let page = store.feed(after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            self.learn(store, page.iter().map(|found| &found.record)).await;
            let mut read = self.lock();
            read.after = last.cursor;
            for FeedRecord { session, record, .. } in &page {
                read.add(*session, record);
            }
        }
    }

    /// Returns the spending by UTC day and group name. Turns are not tracked, so [`CostDimension::Turn`] is empty.
    pub fn daily(&self, by: CostDimension) -> BTreeMap<(String, String), CostTotals> {
        let read = self.lock();
        let mut spent: BTreeMap<(String, String), CostTotals> = BTreeMap::new();
        for ((session, CostGroupKey { day, agent, model, source }), more) in &read.spent {
            let [day, agent, model, source] =
                [day, agent, model, source].map(|number| read.names.name(*number));
            let under = CostGroupNames { session: *session, turn: None, day, agent, model, source };
            if let Some(name) = under.name(by) {
                spent.entry((day.to_owned(), name)).or_default().add(more);
            }
        }
        spent
    }

    /// Returns the sessions with spending, starting at this one.
    pub fn sessions_from(&self, first: SessionId) -> BTreeSet<SessionId> {
        let read = self.lock();
        read.spent.range((first, CostGroupKey::FIRST)..).map(|((session, _), _)| *session).collect()
    }

    async fn alone(&self) -> SemaphorePermit<'_> {
        self.reading.acquire().await.expect("it is never closed")
    }

    fn lock(&self) -> MutexGuard<'_, OrgCostCacheState> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn learn<'a>(&self, store: &dyn Store, records: impl Iterator<Item = &'a Record>) {
        let unread = self.lock().reader.unread(records);
        let learned = LoadedPackageNames::of(store, unread).await;
        self.lock().reader.learn(learned);
    }

    async fn forget_deleted(&self, store: &dyn Store) -> Result<(), Error> {
        loop {
            let (after, nothing_read) = {
                let read = self.lock();
                (read.audited, read.after == FeedCursor(0))
            };
            let lines = store.audit(AuditRange { after, since: Millis(0), limit: PAGE }).await?;
            let Some(last) = lines.last() else { return Ok(()) };
            let deleted = lines.iter().filter(|line| !nothing_read && line.act == AuditAction::Delete.name());
            for session in deleted.filter_map(|line| line.subject.parse().ok()) {
                self.forget(store, session).await?;
            }
            self.lock().audited = last.no;
        }
    }

    /// Removes a deleted session. If it was imported again, reads it anew.
    async fn forget(&self, store: &dyn Store, session: SessionId) -> Result<(), Error> {
        self.lock().forget(session);
        let mut after = Seq(0);
        loop {
            let page = match store.records(session, after, PAGE).await {
                Err(error) if error.kind() == Kind::SessionNotFound => return Ok(()),
                page => page?,
            };
            let Some(last) = page.last() else { return Ok(()) };
            after = last.seq;
            self.learn(store, page.iter()).await;
            let mut read = self.lock();
            for record in &page {
                read.add(session, record);
            }
            read.returned.insert(session, after);
        }
    }
}

impl OrgCostCacheState {
    fn check_size(&self, most: usize) -> Result<&Self, Error> {
        limits::check("cost_entries", self.spent.len() + self.reader.open(), most)?;
        Ok(self)
    }

    fn add(&mut self, session: SessionId, record: &Record) {
        if self.returned.get(&session).is_some_and(|read| record.seq <= *read) {
            return;
        }
        if let Some(CostEntry { day, agent, model, source, spent }) = self.reader.read(session, record) {
            let names = [&day, &agent, &model, &source];
            let [day, agent, model, source] = names.map(|name| self.names.number(name));
            self.spent.entry((session, CostGroupKey { day, agent, model, source })).or_default().add(&spent);
        }
    }

    fn forget(&mut self, session: SessionId) {
        self.reader.forget(session);
        self.returned.remove(&session);
        let of: Vec<_> = self
            .spent
            .range((session, CostGroupKey::FIRST)..=(session, CostGroupKey::LAST))
            .map(|(key, _)| *key)
            .collect();
        for key in of {
            self.spent.remove(&key);
        }
    }
}
