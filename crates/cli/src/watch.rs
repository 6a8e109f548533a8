//! Watches a session in the order things happened: before a live frame comes every record that was there when it was made.
//!
//! [`Events`] gives records and live frames as each gets through. A person who is told that a call runs wants to have
//! been told before what the call is.
use outlast::store::Store;
use outlast::vocab::event::Event;
use outlast::vocab::record::Seq;
use outlast::{Error, Events, Limits, Outlast, SessionId, Turn};
use std::collections::VecDeque;
use std::sync::Arc;

/// A watched session.
pub(crate) struct Watch {
    events: Events,
    store: Arc<dyn Store>,
    session: SessionId,
    after: Seq,
    /// What got through last. It is kept here while records are read, so that a watch that is interrupted loses nothing.
    heard: Option<Event>,
    ready: VecDeque<Event>,
}

impl Watch {
    /// Watches from a cursor on. Frames are heard from now on.
    pub(crate) fn new(outlast: &Outlast, session: SessionId, after: Seq) -> Self {
        let events = outlast.runtime().events(session, after);
        let store = outlast.store().clone();
        Self { events, store, session, after, heard: None, ready: VecDeque::new() }
    }

    /// Watches the session of a turn from its input on.
    pub(crate) fn of(outlast: &Outlast, turn: &Turn) -> Self {
        Self::new(outlast, turn.session(), Seq(turn.receipt().seq.0.saturating_sub(1)))
    }

    /// The next event. Waits for one if there is none yet.
    pub(crate) async fn next(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            if self.heard.is_none() {
                self.heard = Some(self.events.next().await?);
            }
            self.catch_up().await?;
            // Records were just read with all others.
            self.ready.extend(self.heard.take().filter(|event| event.seq().is_none()));
        }
    }

    async fn catch_up(&mut self) -> Result<(), Error> {
        let rows = Limits::default().page_rows;
        loop {
            let page = self.store.records(self.session, self.after, rows).await?;
            let is_last = page.len() < rows;
            self.after = page.last().map_or(self.after, |record| record.seq);
            self.ready.extend(page.into_iter().map(|record| Event::Durable(Box::new(record))));
            if is_last {
                return Ok(());
            }
        }
    }
}
