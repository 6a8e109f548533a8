//! Follows one session from a cursor: records from the store, live events from this process.
use crate::agents::resolved_agent::RuntimeServices;
use crate::delivery::live::{LiveListener, Signal};
use outlast_ports::inbox::AcceptReceipt;
use outlast_ports::store::Store;
use outlast_vocab::event::Event;
use outlast_vocab::record::Seq;
use outlast_vocab::{Error, SessionId};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long a reader waits before it polls for records of other processes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A reader of one session.
pub struct SessionEventStream {
    services: Arc<RuntimeServices>,
    store: Arc<dyn Store>,
    session: SessionId,
    after: Seq,
    line: LiveListener,
    ready: VecDeque<Event>,
    /// Whether there may be unread records.
    look: bool,
    /// The last record that may be returned now. Live events that came before a record are returned before
    /// it.
    upto: Seq,
}

impl SessionEventStream {
    /// Reads from a cursor. It subscribes to live events first, so nothing is missed between reading and
    /// following.
    pub fn new(
        services: Arc<RuntimeServices>,
        store: Arc<dyn Store>,
        session: SessionId,
        after: Seq,
    ) -> Self {
        let line = LiveListener::new(services.clone(), session);
        Self {
            services,
            store,
            session,
            after,
            line,
            ready: VecDeque::new(),
            look: true,
            upto: Seq(u64::MAX),
        }
    }

    /// Reads from an input, over a subscription that began before its turn.
    ///
    /// The subscription buffers the live events of the turn. Records are returned in step with it, however
    /// late the reader starts.
    pub(crate) fn of_input(
        services: Arc<RuntimeServices>,
        store: Arc<dyn Store>,
        line: LiveListener,
        accepted: &AcceptReceipt,
    ) -> Self {
        let AcceptReceipt { session, place, .. } = *accepted;
        // The turn of a duplicate input may have ended long ago, without live events.
        let upto = if accepted.duplicate { Seq(u64::MAX) } else { place.seq };
        let after = Seq(place.seq.0.saturating_sub(1));
        Self { services, store, session, after, line, ready: VecDeque::new(), look: true, upto }
    }

    /// Returns the next event, waiting for it if necessary.
    pub async fn next(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.past().await? {
                return Ok(event);
            }
            let signal = tokio::select! {
                biased;
                signal = self.line.next() => signal,
                () = self.services.clock.sleep(LOOK_AGAIN) => Signal::Committed(Seq(u64::MAX)),
            };
            match signal {
                Signal::Live(live) => return Ok(Event::Live(live)),
                Signal::Committed(seq) => (self.look, self.upto) = (true, seq),
                Signal::Missed(frames) => return Ok(Event::Missed { frames }),
            }
        }
    }

    /// Returns the next durable event if there is one already.
    pub async fn past(&mut self) -> Result<Option<Event>, Error> {
        if self.ready.is_empty() && self.look {
            let page = self.store.records(self.session, self.after, self.services.limits.page_rows).await?;
            self.look = page.len() == self.services.limits.page_rows;
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
