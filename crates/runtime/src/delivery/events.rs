//! Merges the records of one session with its live events, from a cursor on.
//!
//! [`crate::delivery::live`] only signals that there are records. This layer reads them from the store, also those of other
//! processes, and keeps them in order with the live events.
use crate::delivery::live::{LiveListener, Signal};
use outlast_ports::clock::Clock;
use outlast_ports::inbox::AcceptReceipt;
use outlast_ports::store::Store;
use outlast_vocab::Error;
use outlast_vocab::event::Event;
use outlast_vocab::record::Seq;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long a reader waits before it polls for records of other processes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A reader of one session.
pub struct SessionEventStream {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// The number of records that are read at once.
    page_rows: usize,
    live: LiveListener,
    after: Seq,
    ready: VecDeque<Event>,
    /// Whether there may be unread records.
    may_have_records: bool,
    /// The last record that may be returned now. Live events that came before a record are returned before
    /// it.
    upto: Seq,
}

impl SessionEventStream {
    /// Reads the session of a listener from a cursor. The listener exists first, so nothing is missed between reading
    /// and following.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        page_rows: usize,
        live: LiveListener,
        after: Seq,
    ) -> Self {
        let (ready, upto) = (VecDeque::new(), Seq(u64::MAX));
        Self { store, clock, page_rows, live, after, ready, may_have_records: true, upto }
    }

    /// Starts at an input, over a listener that began before its turn.
    ///
    /// The listener buffers the live events of the turn. Records are returned in step with it, however late the reader
    /// starts.
    #[must_use]
    pub(crate) fn starting_at(self, accepted: &AcceptReceipt) -> Self {
        let AcceptReceipt { place, duplicate, .. } = *accepted;
        // The turn of a duplicate input may have ended long ago, without live events.
        let upto = if duplicate { self.upto } else { place.seq };
        Self { after: Seq(place.seq.0.saturating_sub(1)), upto, ..self }
    }

    /// Returns the next event, waiting for it if necessary.
    pub async fn next(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.past().await? {
                return Ok(event);
            }
            let signal = tokio::select! {
                biased;
                signal = self.live.next() => signal,
                () = self.clock.sleep(LOOK_AGAIN) => Signal::Committed(Seq(u64::MAX)),
            };
            match signal {
                Signal::Live(live) => return Ok(Event::Live(live)),
                Signal::Committed(seq) => (self.may_have_records, self.upto) = (true, seq),
                Signal::Missed(frames) => return Ok(Event::Missed { frames }),
            }
        }
    }

    /// Returns the next durable event if there is one already.
    pub async fn past(&mut self) -> Result<Option<Event>, Error> {
        if self.ready.is_empty() && self.may_have_records {
            let page = self.store.records(self.live.session(), self.after, self.page_rows).await?;
            self.may_have_records = page.len() == self.page_rows;
            self.ready.extend(page.into_iter().map(|record| Event::Durable(Box::new(record))));
        }
        let may_go = |event: &mut Event| event.seq().is_none_or(|seq| seq <= self.upto);
        let event = self.ready.pop_front_if(may_go);
        if let Some(seq) = event.as_ref().and_then(Event::seq) {
            self.after = seq;
        }
        Ok(event)
    }
}
