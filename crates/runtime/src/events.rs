//! Follows a session from a cursor: what is durable from the store, what happens right now from the line (R14.1–R14.3).
use crate::live::{Listener, Signal};
use crate::outfit::World;
use outlast_ports::store::{Accepted, Store};
use outlast_vocab::event::Event;
use outlast_vocab::record::Seq;
use outlast_vocab::{Error, SessionId};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long a reader waits before it looks for records that another process wrote.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A reader of one session.
pub struct Events {
    world: Arc<World>,
    store: Arc<dyn Store>,
    session: SessionId,
    after: Seq,
    line: Listener,
    ready: VecDeque<Event>,
    /// Whether there may be records that were not read yet.
    look: bool,
    /// Up to where records may be given out: what happened live before a record comes before it.
    upto: Seq,
}

impl Events {
    /// Reads from a cursor on. The line is joined first, so nothing falls between reading and following.
    pub fn new(world: Arc<World>, store: Arc<dyn Store>, session: SessionId, after: Seq) -> Self {
        let line = Listener::new(world.clone(), session);
        Self { world, store, session, after, line, ready: VecDeque::new(), look: true, upto: Seq(u64::MAX) }
    }

    /// Reads from an input on, over a line that was joined before its turn could begin. What is said in the turn stands
    /// on the line, so records are given out as the line tells of them, however late the reader comes.
    pub(crate) fn of_input(
        world: Arc<World>,
        store: Arc<dyn Store>,
        line: Listener,
        accepted: &Accepted,
    ) -> Self {
        let Accepted { session, place, .. } = *accepted;
        // Of a turn that may have ended long ago the line tells nothing.
        let upto = if accepted.duplicate { Seq(u64::MAX) } else { place.seq };
        let after = Seq(place.seq.0.saturating_sub(1));
        Self { world, store, session, after, line, ready: VecDeque::new(), look: true, upto }
    }

    /// The next event. Waits for one if there is none yet.
    pub async fn next(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.past().await? {
                return Ok(event);
            }
            let signal = tokio::select! {
                biased;
                signal = self.line.next() => signal,
                () = self.world.clock.sleep(LOOK_AGAIN) => Signal::Committed(Seq(u64::MAX)),
            };
            match signal {
                Signal::Live(live) => return Ok(Event::Live(live)),
                Signal::Committed(seq) => (self.look, self.upto) = (true, seq),
                Signal::Missed(frames) => return Ok(Event::Missed { frames }),
            }
        }
    }

    /// The next durable event that is there already.
    pub async fn past(&mut self) -> Result<Option<Event>, Error> {
        if self.ready.is_empty() && self.look {
            let page = self.store.records(self.session, self.after, self.world.limits.page_rows).await?;
            self.look = page.len() == self.world.limits.page_rows;
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
