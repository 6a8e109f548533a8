//! Follows the records of all visible sessions from a cursor.
//!
//! To follow one session with its live events, use [`crate::delivery::events`].
use crate::delivery::live::LiveHub;
use outlast_ports::clock::Clock;
use outlast_ports::journal::{FeedCursor, FeedRecord};
use outlast_ports::store::Store;
use outlast_vocab::Error;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long a reader waits before it polls for records of other processes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A reader of the records of all visible sessions.
pub struct RecordFeed {
    clock: Arc<dyn Clock>,
    /// The number of records that are read at once.
    page_rows: usize,
    store: Arc<dyn Store>,
    /// The store over all organisations. Only the end of its feed is read, and it is never returned.
    whole: Arc<dyn Store>,
    after: FeedCursor,
    /// The position up to which all visible records were read.
    looked: FeedCursor,
    commits: watch::Receiver<u64>,
    ready: VecDeque<FeedRecord>,
}

impl RecordFeed {
    /// Reads from a cursor. `store` shows the visible part of `whole`.
    pub(crate) fn new(
        hub: &LiveHub,
        clock: Arc<dyn Clock>,
        page_rows: usize,
        store: Arc<dyn Store>,
        whole: Arc<dyn Store>,
        after: FeedCursor,
    ) -> Self {
        let mut commits = hub.subscribe_commits();
        commits.mark_changed();
        Self { clock, page_rows, store, whole, after, looked: after, commits, ready: VecDeque::new() }
    }

    /// Returns the next record, waiting for it if necessary.
    pub async fn next(&mut self) -> Result<FeedRecord, Error> {
        loop {
            if let Some(record) = self.past().await? {
                return Ok(record);
            }
            tokio::select! {
                biased;
                changed = self.commits.changed() => if changed.is_err() { self.clock.sleep(LOOK_AGAIN).await },
                () = self.clock.sleep(LOOK_AGAIN) => {}
            }
        }
    }

    /// Returns the next record if there is one already.
    pub async fn past(&mut self) -> Result<Option<FeedRecord>, Error> {
        if self.ready.is_empty() {
            self.commits.mark_unchanged();
            let most = self.page_rows;
            // Read before the page: if the page is not full, all later visible records come after this
            // position.
            let end = self.whole.feed_end().await?;
            let page = self.store.feed(self.after, most).await?;
            if page.len() < most {
                self.looked = end;
            }
            self.ready.extend(page);
        }
        let record = self.ready.pop_front();
        if let Some(record) = &record {
            self.after = record.cursor;
        }
        if self.ready.is_empty() {
            // Records of other organisations are not scanned again.
            self.after = self.after.max(self.looked);
        }
        Ok(record)
    }
}

/// Returns the end of the feed. Cursors have gaps, so this uses exponential and binary search.
pub async fn newest(store: &dyn Store) -> Result<FeedCursor, Error> {
    let goes_on = async |after: u64| store.feed(FeedCursor(after), 1).await.map(|page| !page.is_empty());
    let (mut low, mut high) = (0, 1);
    while goes_on(high).await? {
        high *= 2;
    }
    while low < high {
        let middle = u64::midpoint(low, high);
        if goes_on(middle).await? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(FeedCursor(low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::system::SystemClock;
    use outlast_ledger::memory::MemoryStore;
    use outlast_ports::inbox::SessionTarget;
    use outlast_views::Org;
    use outlast_vocab::access::Access;
    use outlast_vocab::{Millis, OrgId, SessionId};

    #[tokio::test]
    async fn feed_scans_foreign_records_once_and_misses_none() {
        let whole: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let org = |number| Org {
            id: OrgId::from_u128(number),
            name: format!("org-{number}").parse().unwrap(),
            created: Millis(0),
        };
        for number in [1, 2] {
            whole.create_org(org(number)).await.unwrap();
        }
        let of = |number| whole.clone().serving(Access::to(OrgId::from_u128(number)));
        let (own, others) = (of(1), of(2));
        let open = async |store: &Arc<dyn Store>, number| {
            let session = SessionId::from_u128(number);
            store.open(SessionTarget::New(session), Millis(0)).await.unwrap()
        };
        let mut feed = RecordFeed::new(
            &LiveHub::new(1),
            Arc::new(SystemClock),
            2,
            own.clone(),
            whole.clone(),
            FeedCursor(0),
        );
        for number in 10..15 {
            open(&others, number).await;
        }
        assert!(feed.past().await.unwrap().is_none());
        assert_eq!(feed.after, whole.feed_end().await.unwrap());
        for number in 20..25 {
            open(&own, number).await;
            open(&others, number + 100).await;
        }
        for number in 20..25 {
            let seen = feed.past().await.unwrap().unwrap().session;
            assert_eq!(seen, SessionId::from_u128(number));
        }
        assert!(feed.past().await.unwrap().is_none());
        assert_eq!(feed.after, whole.feed_end().await.unwrap());
        assert_eq!(own.feed_end().await.unwrap(), FeedCursor(0));
    }
}
