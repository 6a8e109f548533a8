//! What was spent in one organisation, kept so that each record is read once. What is deleted is no longer part of it, as if all
//! records that are left were read anew.
use super::reader::{Entry, Learned, Reader};
use super::{By, PAGE, Spent, Under};
use outlast_ports::orgs::AuditRange;
use outlast_ports::store::{FeedCursor, FeedRecord, Store};
use outlast_vocab::access::Act;
use outlast_vocab::record::{Record, Seq};
use outlast_vocab::{Error, Kind, Millis, SessionId, limits};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Sums up to a place of the feed.
pub struct Sums {
    read: Mutex<Read>,
    /// Only one reads on, so that no record is added twice.
    reading: Semaphore,
    entries_most: usize,
}

/// What was added up so far. Whoever reads on and is stopped leaves what they had read.
#[derive(Default)]
struct Read {
    after: FeedCursor,
    /// The line of the audit up to which it is known what was deleted.
    audited: u64,
    reader: Reader,
    names: Names,
    spent: BTreeMap<(SessionId, Line), Spent>,
    /// Sessions that were deleted and came back from a file: up to where they were read apart from the feed.
    returned: HashMap<SessionId, Seq>,
}

/// What is added up together within a session, in numbers of names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    day: u32,
    agent: u32,
    model: u32,
    source: u32,
}

impl Line {
    const FIRST: Self = Self { day: 0, agent: 0, model: 0, source: 0 };
    const LAST: Self = Self { day: u32::MAX, agent: u32::MAX, model: u32::MAX, source: u32::MAX };
}

/// Names by number: there are few of them, and many lines.
#[derive(Default)]
struct Names {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

impl Names {
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

impl Sums {
    /// Nothing yet, and at most so many entries: what is kept, and turns that have not ended.
    pub fn new(entries_most: usize) -> Self {
        Self { read: Mutex::default(), reading: Semaphore::new(1), entries_most }
    }

    /// Reads what was written since, by a store that shows one organisation and may read its audit. The first time that is
    /// everything.
    pub async fn read_on(&self, store: &dyn Store) -> Result<(), Error> {
        let _alone = self.alone().await;
        loop {
            self.forget_deleted(store).await?;
            let after = self.lock().room(self.entries_most)?.after;
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

    /// What was spent on each day, in UTC, by day and name. Turns are not kept apart: by turn there is nothing.
    pub fn daily(&self, by: By) -> BTreeMap<(String, String), Spent> {
        let read = self.lock();
        let mut spent: BTreeMap<(String, String), Spent> = BTreeMap::new();
        for ((session, Line { day, agent, model, source }), more) in &read.spent {
            let [day, agent, model, source] =
                [day, agent, model, source].map(|number| read.names.name(*number));
            let under = Under { session: *session, turn: None, day, agent, model, source };
            if let Some(name) = under.name(by) {
                spent.entry((day.to_owned(), name)).or_default().add(more);
            }
        }
        spent
    }

    /// The sessions in which something was spent, from this one on.
    pub fn sessions_from(&self, first: SessionId) -> BTreeSet<SessionId> {
        let read = self.lock();
        read.spent.range((first, Line::FIRST)..).map(|((session, _), _)| *session).collect()
    }

    async fn alone(&self) -> SemaphorePermit<'_> {
        self.reading.acquire().await.expect("it is never closed")
    }

    fn lock(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn learn<'a>(&self, store: &dyn Store, records: impl Iterator<Item = &'a Record>) {
        let unread = self.lock().reader.unread(records);
        let learned = Learned::of(store, unread).await;
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
            let deleted = lines.iter().filter(|line| !nothing_read && line.act == Act::Delete.name());
            for session in deleted.filter_map(|line| line.subject.parse().ok()) {
                self.forget(store, session).await?;
            }
            self.lock().audited = last.no;
        }
    }

    /// Takes a session out that was deleted. If it came back from a file, it is read as it is now.
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

impl Read {
    fn room(&self, most: usize) -> Result<&Self, Error> {
        limits::check("cost_entries", self.spent.len() + self.reader.open(), most)?;
        Ok(self)
    }

    fn add(&mut self, session: SessionId, record: &Record) {
        if self.returned.get(&session).is_some_and(|read| record.seq <= *read) {
            return;
        }
        if let Some(Entry { day, agent, model, source, spent }) = self.reader.read(session, record) {
            let names = [&day, &agent, &model, &source];
            let [day, agent, model, source] = names.map(|name| self.names.number(name));
            self.spent.entry((session, Line { day, agent, model, source })).or_default().add(&spent);
        }
    }

    fn forget(&mut self, session: SessionId) {
        self.reader.forget(session);
        self.returned.remove(&session);
        let of: Vec<_> =
            self.spent.range((session, Line::FIRST)..=(session, Line::LAST)).map(|(key, _)| *key).collect();
        for key in of {
            self.spent.remove(&key);
        }
    }
}
