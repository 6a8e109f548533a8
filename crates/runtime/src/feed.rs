//! Follows all sessions that are shown, from a cursor (R14.2). One session with what happens right now: [`crate::events`].
use crate::outfit::World;
use outlast_ports::store::{FeedCursor, FeedRecord, Store};
use outlast_vocab::Error;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long a reader waits before it looks for records that another process wrote.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A reader of the records of all sessions that are shown.
pub struct Feed {
    world: Arc<World>,
    store: Arc<dyn Store>,
    after: FeedCursor,
    news: watch::Receiver<u64>,
    ready: VecDeque<FeedRecord>,
}

impl Feed {
    /// Reads from a cursor on.
    pub fn new(world: Arc<World>, store: Arc<dyn Store>, after: FeedCursor) -> Self {
        let mut news = world.hub.news();
        news.mark_changed();
        Self { world, store, after, news, ready: VecDeque::new() }
    }

    /// The next record. Waits for one if there is none yet.
    pub async fn next(&mut self) -> Result<FeedRecord, Error> {
        loop {
            if let Some(record) = self.past().await? {
                return Ok(record);
            }
            tokio::select! {
                biased;
                told = self.news.changed() => if told.is_err() { self.world.clock.sleep(LOOK_AGAIN).await },
                () = self.world.clock.sleep(LOOK_AGAIN) => {}
            }
        }
    }

    /// The next record that is there already.
    pub async fn past(&mut self) -> Result<Option<FeedRecord>, Error> {
        if self.ready.is_empty() {
            self.news.mark_unchanged();
            let page = self.store.feed(self.after, self.world.limits.page_rows).await?;
            self.ready.extend(page);
        }
        let record = self.ready.pop_front();
        if let Some(record) = &record {
            self.after = record.cursor;
        }
        Ok(record)
    }
}

/// The end of the feed. Cursors have gaps, so it is found by doubling and halving, not by counting.
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
