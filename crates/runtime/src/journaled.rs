//! The host that records everything in a store, and answers from there after a crash.
use crate::asking::backoff;
use crate::cancel::Canceller;
use crate::host::{Asker, Driven, Host, Reserved, Tier};
use crate::meter::{Meter, named};
use crate::outfit::{Outfit, World};
use crate::pace::ask_limiter;
use crate::recall::{self, Recalled};
use crate::recent::{Recent, Standing};
use outlast_kernel::conversation::Conversation;
use outlast_kernel::replay::{History, Interrupted, interrupted};
use outlast_kernel::spending::Spending;
use outlast_kernel::step::{AtCheckpoint, Done};
use outlast_ports::budget::{Held, Hold, Metering, Short};
use outlast_ports::filed::Filed;
use outlast_ports::rate::{Pacing, Want};
use outlast_ports::store::{After, Commit, Lease, Partial, Receipt, Said, Store, Then, Upload, ValueWrite};
use outlast_vocab::budget::Amount;
use outlast_vocab::effect::{BatchCall, Joined, JoinedInput, Outcome, Place, ToolOutcome};
use outlast_vocab::event::{Live, LiveKind};
use outlast_vocab::id::OrgId;
use outlast_vocab::label::Labels;
use outlast_vocab::message::{Message, ToolResult};
use outlast_vocab::record::{
    Answered, Compacted, End, Fact, NodeRef, Performed, Reclaimed, Resumed, Ruled, Seq, Shorter, Started,
};
use outlast_vocab::wait::Wait;
use outlast_vocab::{Error, Failure, Kind, Limits, ReplayKey};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Records the facts of one turn in a store, under one lease.
pub struct Journaled {
    world: Arc<World>,
    store: Arc<dyn Store>,
    secret: [u8; 32],
    lease: Lease,
    org: OrgId,
    history: Arc<History>,
    canceller: Arc<Canceller>,
    stopping: watch::Receiver<bool>,
    /// The record of the turn's beginning, for the first write. `None` if it is already written.
    begin: Option<Begin>,
    /// The record that this lease resumed the turn, for its first write.
    resumed: Option<Resumed>,
    parent: Option<NodeRef>,
    noted: Vec<Fact>,
    /// Policy decisions of this drive.
    ruled: Vec<Ruled>,
    spending: Spending,
    values: Vec<ValueWrite>,
    files: Vec<Upload>,
    /// Rate-limited calls for the next write.
    wants: Vec<Want>,
    /// Rate-limit decisions of the last write.
    paced: Vec<Pacing>,
    /// How the next write changes the persisted text of an unfinished reply.
    partial: Partial,
    /// Whether such text may exist.
    keeps_text: bool,
    place: Option<Place>,
    recent: Arc<Recent>,
    recalled: Option<Conversation>,
    /// The record that accepted the input.
    first: Seq,
    input_waits: bool,
    /// Budget accounting, if budgets are tracked.
    meter: Option<Meter>,
}

struct Begin {
    started: Started,
    outfit: Arc<Outfit>,
}

/// The parameters of a journaled host.
pub struct Opening {
    /// The services of this process.
    pub world: Arc<World>,
    /// The store for the facts.
    pub store: Arc<dyn Store>,
    /// The secret that signs completion keys.
    pub secret: [u8; 32],
    /// The lease that permits writes.
    pub lease: Lease,
    /// The organisation of the session.
    pub org: OrgId,
    /// The recorded history of the turn.
    pub history: History,
    /// Cancels the turn.
    pub canceller: Arc<Canceller>,
    /// Whether the worker shuts down.
    pub stopping: watch::Receiver<bool>,
    /// The head that the turn appends to.
    pub head: String,
    /// The message that it follows.
    pub parent: Option<NodeRef>,
    /// The cache of recent conversations.
    pub recent: Arc<Recent>,
    /// The record that accepted the input.
    pub first: Seq,
    /// Set if an earlier lease drove the turn and did not leave it parked.
    pub resumed: Option<Resumed>,
    /// Budget accounting, if budgets are tracked.
    pub(crate) meter: Option<Meter>,
    /// The untrusted sources of the text before the turn, if labels are tracked.
    pub labels: Option<Labels>,
}

impl Journaled {
    /// Opens the journal of a turn to drive it. A turn that began earlier keeps its pinned agent.
    pub fn open(opening: Opening, outfit: &Arc<Outfit>) -> Self {
        let (head, labels) = (opening.head.clone(), opening.labels.clone());
        let mut journal = Self::aside(opening);
        if journal.history.started().is_none() {
            let (kernel, package, parent) = (outlast_kernel::VERSION, outfit.fingerprint, journal.parent);
            let started = Started { kernel, package, head, parent, labels };
            journal.begin = Some(Begin { started, outfit: outfit.clone() });
        }
        journal
    }

    /// Opens the journal of a turn to end or park it. The turn does not begin here, so nothing new is pinned.
    pub fn aside(opening: Opening) -> Self {
        let Opening { world, store, secret, lease, org, history, canceller, stopping, .. } = opening;
        let Opening { parent, recent, first, meter, resumed, .. } = opening;
        // If the turn is driven again under the same lease, it was already resumed.
        let resumed = resumed.filter(|resumed| !history.was_resumed_by(resumed.lease));
        let begun = history.started().is_some();
        let parent = history.started().map_or(parent, |started| started.parent);
        let place = history.last_node();
        let spending = history.spending();
        let history = Arc::new(history);
        Self {
            world,
            store,
            secret,
            lease,
            org,
            history,
            canceller,
            stopping,
            begin: None,
            resumed,
            parent,
            noted: Vec::new(),
            ruled: Vec::new(),
            spending,
            values: Vec::new(),
            files: Vec::new(),
            wants: Vec::new(),
            paced: Vec::new(),
            partial: Partial::AsItIs,
            keeps_text: begun,
            place,
            recent,
            recalled: None,
            first,
            // Inputs may be waiting for a turn that began earlier, and no receipt has reported them.
            input_waits: begun,
            meter,
        }
    }

    /// Ends the turn from outside its steps. Every open call gets an outcome first, priced by the resolved
    /// agent.
    pub async fn close(&mut self, end: End, outfit: Option<&Outfit>) -> Result<Driven, Error> {
        let history = self.history.clone();
        for (claim, key, call) in history.open_calls() {
            let BatchCall::Run(prepared) = &call.call else { continue };
            let reused = history.reusable().outcome(&key);
            let outcome = match (reused, interrupted(prepared, call.attempts)) {
                (Some(outcome), _) => outcome.clone(),
                (None, Interrupted::Probe) if !history.is_held(&key, prepared) => ToolOutcome::Unknown,
                (None, Interrupted::Probe | Interrupted::Again { .. }) => {
                    let failure =
                        Failure::new(Kind::ToolInterrupted, "the turn ended before the call was done");
                    ToolOutcome::Done(ToolResult::Err(failure))
                }
            };
            if outcome != ToolOutcome::Unknown {
                let open = history.open_payments(&key).cloned().collect();
                self.noted.extend(self.world.free_all(open, "the turn ended before the call was done").await);
            }
            let charged = || outfit.and_then(|outfit| outfit.charged(&prepared.tool, &outcome));
            let cost = if reused.is_some() { None } else { charged() };
            self.note(Fact::Reclaimed(Reclaimed { claim, attempt: call.attempts }));
            self.note(Fact::Answered(Answered { claim, outcome: outcome.into(), cost }));
        }
        self.finish(end.into()).await
    }

    /// Parks the turn until a person or a deploy fixes it. It also retries at the wait's deadline.
    pub async fn get_stuck(&mut self, failure: Failure, wait: Wait) -> Result<Driven, Error> {
        self.note(Fact::Stuck { failure });
        self.park(vec![wait]).await
    }

    /// Sets the conversation before this turn, with the compactions of this turn applied.
    fn recall_as(&mut self, mut conversation: Conversation) {
        for compacted in self.history.compactions() {
            conversation.compact(compacted.clone());
        }
        self.recalled = Some(conversation);
    }

    /// Caches the conversation, including this turn's messages, for the session's next turn.
    fn keep_conversation(&mut self, messages: Vec<Message>, last: Seq) {
        if let (Some(mut conversation), Some(place), false) =
            (self.recalled.take(), self.place, messages.is_empty())
        {
            conversation.push(self.lease.turn, messages);
            let node = NodeRef { session: self.lease.session, seq: place.seq };
            self.recent.keep(Standing { node, next: Seq(last.0 + 1) }, conversation);
        }
    }

    /// Writes a commit. If the disk is full, the database is locked or the content store is unavailable, it
    /// retries.
    ///
    /// It retries until the write succeeds or the worker shuts down. Driving the turn again would be wrong
    /// here: the model would be asked twice, and a finished call would get an unknown outcome.
    async fn write(&mut self, commit: Commit) -> Result<Receipt, Error> {
        let Limits { backoff_first, backoff_most, .. } = self.world.limits;
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match self.try_to_write(commit.clone()).await {
                Err(error) if may_be_written_later(&error) => error,
                written => return written,
            };
            tracing::warn!(%error, tries, "the turn cannot be written now; it holds what it knows");
            let Lease { session, turn, .. } = self.lease;
            let held = || LiveKind::Held { failure: Failure::from(&error) };
            self.world.hub.tell(session, || Live { turn, what: held() });
            let pause = backoff(backoff_first, backoff_most, tries);
            tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => return Err(error),
                () = self.world.clock.sleep(pause) => {}
            }
        }
    }

    /// Uploads the contents of attachments, then writes the commit.
    async fn try_to_write(&self, commit: Commit) -> Result<Receipt, Error> {
        let now = self.world.clock.now();
        if commit.files.is_empty() {
            return self.store.commit(Commit { now, ..commit }).await;
        }
        let attachments = self.world.attachments(&self.store);
        let here = commit.files.clone();
        let files = attachments.place(commit.files).await?;
        let written = self.store.commit(Commit { now, files, ..commit }).await;
        if let Err(error) = &written
            && error.kind() == Kind::AttachmentSwept
        {
            attachments.confirm(here, self.lease.worker, now).await?;
        }
        written
    }

    async fn commit(&mut self, then: Then) -> Result<Receipt, Error> {
        let now = self.world.clock.now();
        let metering = self.books().map(|meter| {
            if then != Then::GoOn {
                meter.let_go();
            }
            let wishes = if let Then::Park(waits) = &then { meter.wishes(waits) } else { Vec::new() };
            Metering { wishes, ..meter.take(now) }
        });
        self.commit_metered(then, metering).await
    }

    /// Returns the budget accounting, if budgets are tracked now.
    fn books(&mut self) -> Option<&mut Meter> {
        let world = &self.world;
        self.meter.as_mut().filter(|meter| meter.counts(world))
    }

    /// Writes the buffered facts and reserves budget for an effect.
    async fn commit_holding(&mut self, hold: Hold, metering: Metering) -> Result<Reserved, Error> {
        let metering = Metering { hold: Some(hold.clone()), ..metering };
        let receipt = self.commit_metered(Then::GoOn, Some(metering)).await?;
        let last = receipt.places.last().map_or(Seq(0), |place| place.seq);
        let short = match receipt.held {
            Some(Held::No(short)) => {
                if let (Some(meter), true) = (&mut self.meter, short.pauses) {
                    meter.does_not_fit(hold);
                }
                Some(short)
            }
            Some(Held::Yes { low, .. }) => {
                self.tell_low(low);
                None
            }
            None => None,
        };
        Ok(Reserved { last, short })
    }

    /// Notifies watchers of budgets that are running low.
    fn tell_low(&self, low: Vec<Short>) {
        let Lease { session, turn, .. } = self.lease;
        for short in low {
            let low = || LiveKind::BudgetLow { budget: named(&short) };
            self.world.hub.tell(session, || Live { turn, what: low() });
        }
    }

    async fn commit_metered(&mut self, then: Then, metering: Option<Metering>) -> Result<Receipt, Error> {
        let mut facts = std::mem::take(&mut self.noted);
        let mut blobs = Vec::new();
        let begin = self.begin.take();
        if let Some(Begin { started, outfit }) = &begin {
            facts.insert(0, Fact::Started(started.clone()));
            blobs = outfit.to_store();
        }
        facts.splice(..0, self.resumed.take().map(Fact::Resumed));
        let nodes: Vec<usize> =
            facts.iter().enumerate().filter(|(_, fact)| fact.is_node()).map(|(index, _)| index).collect();
        let values = std::mem::take(&mut self.values);
        let files = std::mem::take(&mut self.files).into_iter().map(Filed::Here).collect();
        let partial = std::mem::take(&mut self.partial);
        let (lease, now) = (self.lease.clone(), self.world.clock.now());
        let wants = std::mem::take(&mut self.wants);
        let waited = self.world.hub.unsaid.take(lease.turn);
        let commit =
            Commit { lease, now, facts, values, blobs, files, partial, metering, wants, waited, then };
        let since = self.world.clock.elapsed();
        let mut receipt = self.write(commit).await?;
        let waited = self.world.clock.elapsed().saturating_sub(since);
        self.world.hub.unsaid.waited(self.lease.turn, waited);
        self.paced.append(&mut receipt.paced);
        self.world.metrics.committed(waited);
        if let Some(begin) = begin {
            begin.outfit.was_stored();
        }
        if let Some(last) = nodes.last() {
            self.place = receipt.places.get(*last).copied();
        }
        self.input_waits = receipt.input_waits;
        if let Some(reason) = &receipt.cancelled {
            self.canceller.cancel(reason);
        }
        self.world.hub.committed(self.lease.session, receipt.last.seq);
        Ok(receipt)
    }
}

fn may_be_written_later(error: &Error) -> bool {
    use Kind::{AttachmentSwept, AttachmentUnavailable, StoreBusy, StoreFull};
    matches!(error.kind(), StoreFull | StoreBusy | AttachmentUnavailable | AttachmentSwept)
}

impl Asker for Journaled {
    async fn keep(&mut self, said: Said) -> Result<(), Error> {
        (self.partial, self.keeps_text) = (Partial::Keep(said), true);
        self.commit(Then::GoOn).await.map(drop)
    }

    async fn reserve(&mut self, hold: Hold) -> Result<Reserved, Error> {
        let now = self.world.clock.now();
        let Some(meter) = self.books() else {
            return Ok(Reserved { last: self.flush().await?, short: None });
        };
        let low = meter.take_low();
        if meter.begin(&hold) {
            self.tell_low(low);
            return Ok(Reserved { last: self.flush().await?, short: None });
        }
        meter.let_go();
        let metering = meter.take(now);
        self.commit_holding(hold, metering).await
    }

    fn settle(&mut self, key: &ReplayKey, used: Option<Amount>) {
        if let Some(meter) = self.books() {
            meter.settle(key, used);
        }
    }

    fn waited_for_provider(&mut self, time: Duration) {
        if let Some(meter) = self.meter.as_mut() {
            meter.leave_out(time);
        }
    }
}

impl Host for Journaled {
    fn tier(&self) -> Tier {
        Tier::Durable
    }

    fn history(&self) -> &Arc<History> {
        &self.history
    }

    fn place(&self) -> Option<Place> {
        self.place
    }

    fn store(&self) -> Option<&Arc<dyn Store>> {
        Some(&self.store)
    }

    fn secret(&self) -> Option<[u8; 32]> {
        Some(self.secret)
    }

    fn note(&mut self, fact: Fact) {
        // A reply that is complete, or will not come, needs no persisted text.
        if self.keeps_text
            && matches!(&fact, Fact::Performed(Performed { outcome: Outcome::ModelCall(_), .. }))
        {
            (self.partial, self.keeps_text) = (Partial::Forget, false);
        }
        self.spending.take(&fact);
        if let Fact::Ruled(ruled) = &fact {
            self.ruled.push(ruled.clone());
        }
        self.noted.push(fact);
    }

    fn ruled(&self, key: &ReplayKey) -> Option<&Ruled> {
        let now = || self.ruled.iter().find(|ruled| ruled.key == *key);
        self.history.ruled(key).or_else(now)
    }

    fn spending(&self) -> Spending {
        self.spending
    }

    fn note_values(&mut self, values: Vec<ValueWrite>) {
        self.values.extend(values);
    }

    fn note_files(&mut self, files: Vec<Upload>) {
        self.files.extend(files);
    }

    async fn want(&mut self, wants: Vec<Want>) -> Result<(), Error> {
        self.paced.clear();
        let Some(limiter) = self.world.limiter.clone() else {
            self.wants.extend(wants);
            return Ok(());
        };
        for want in wants {
            let (pacing, fact) = ask_limiter(limiter.as_ref(), &self.world, self.org, want).await;
            self.paced.push(pacing);
            self.noted.extend(fact);
        }
        Ok(())
    }

    fn paced(&mut self) -> Vec<Pacing> {
        std::mem::take(&mut self.paced)
    }

    async fn said(&self, key: &ReplayKey) -> Result<Option<String>, Error> {
        if !self.keeps_text {
            return Ok(None);
        }
        let said = self.store.said(self.lease.turn).await?;
        Ok(said.filter(|said| said.key == *key).map(|said| said.text))
    }

    async fn flush(&mut self) -> Result<Seq, Error> {
        let nothing = self.noted.is_empty() && self.values.is_empty() && self.files.is_empty();
        if nothing && self.wants.is_empty() {
            return Ok(self.place.map_or(Seq(0), |place| place.seq));
        }
        let receipt = self.commit(Then::GoOn).await?;
        Ok(receipt.places.last().map_or(Seq(0), |place| place.seq))
    }

    fn is_metered(&self) -> bool {
        self.meter.as_ref().is_some_and(|meter| meter.counts(&self.world))
    }

    fn cut_short(&mut self, key: &ReplayKey, used: Amount, lost: Amount) {
        if let Some(meter) = self.books() {
            meter.cut_short(key, used, lost);
        }
    }

    async fn reserve_ahead(&mut self, hold: Hold) -> Result<(), Error> {
        let now = self.world.clock.now();
        if self.noted.is_empty() {
            return self.flush().await.map(drop);
        }
        let Some(meter) = self.books() else { return self.flush().await.map(drop) };
        meter.let_go();
        let metering = meter.take(now);
        let Reserved { short, .. } = self.commit_holding(hold.clone(), metering).await?;
        if let (Some(meter), None) = (&mut self.meter, short) {
            meter.is_held(hold);
        }
        Ok(())
    }

    async fn reread(&mut self) -> Result<(), Error> {
        self.flush().await?;
        self.history = Arc::new(History::of(self.store.turn_records(self.lease.turn).await?)?);
        Ok(())
    }

    async fn recall(&mut self, bytes: usize) -> Result<(), Error> {
        if self.recalled.is_some() {
            return Ok(());
        }
        let Some(node) = self.parent else {
            self.recall_as(Conversation::default());
            return Ok(());
        };
        if let Some(conversation) = self.recent.take(Standing { node, next: self.first }) {
            self.recall_as(conversation);
            return Ok(());
        }
        let Recalled { conversation, repaired: calls } =
            recall::conversation(self.store.as_ref(), node, bytes).await?;
        if !calls.is_empty() && !self.history.was_repaired() {
            self.noted.push(Fact::Repaired { calls });
        }
        self.recall_as(conversation);
        Ok(())
    }

    fn conversation(&mut self) -> &mut Conversation {
        self.recalled.get_or_insert_default()
    }

    async fn compact(&mut self, compacted: Compacted) -> Result<(), Error> {
        self.conversation().compact(compacted.clone());
        let paid_for = matches!(compacted.shorter, Shorter::Summary { .. });
        self.note(Fact::Compacted(compacted));
        // A paid summary is written at once, so that it is not requested again. Leaving out results costs
        // nothing.
        if paid_for {
            self.flush().await?;
        }
        Ok(())
    }

    async fn checkpoint(&mut self, at: &AtCheckpoint, ours: Joined) -> Result<Joined, Error> {
        let effect = at.effect();
        if let Some(joined) = self.history.answer(at.key(), &effect)? {
            return Ok(joined);
        }
        if self.history.went_on_to(&at.next_model()) {
            return Ok(Joined::default());
        }
        let waiting = if std::mem::take(&mut self.input_waits) {
            self.store.joinable(self.lease.session).await?
        } else {
            Vec::new()
        };
        let inputs = waiting.into_iter().map(|(turn, parts)| JoinedInput { turn, parts }).collect();
        let joined = Joined { inputs, ..ours };
        if joined.is_empty() {
            return Ok(joined);
        }
        self.note(Fact::Performed(Performed::new(at.key().clone(), effect, joined.clone())));
        self.flush().await?;
        Ok(joined)
    }

    async fn park(&mut self, waits: Vec<Wait>) -> Result<Driven, Error> {
        match self.commit(Then::Park(waits)).await?.after {
            After::Parked => Ok(Driven::Parked),
            _ => Ok(Driven::Again),
        }
    }

    async fn hand_back(&mut self) -> Result<Driven, Error> {
        if let Some(meter) = self.meter.as_mut().filter(|meter| meter.is_ready()) {
            meter.let_go();
            self.commit(Then::GoOn).await?;
        }
        self.flush().await?;
        self.store.hand_back(self.lease.clone(), self.world.clock.now()).await?;
        Ok(Driven::HandedBack)
    }

    async fn finish(&mut self, done: Done) -> Result<Driven, Error> {
        let Done { end, messages } = done;
        if self.is_metered()
            && let (Some(meter), Some(before)) = (&mut self.meter, &self.recalled)
        {
            meter.stands_at(before, &messages);
        }
        let then = match &end {
            End::Answered { .. } => Then::EndUnlessJoined(end.clone()),
            _ => Then::End(end.clone()),
        };
        let receipt = self.commit(then).await?;
        let driven = match receipt.after {
            After::Ended => {
                self.keep_conversation(messages, receipt.last.seq);
                Driven::Ended(end.clone())
            }
            After::Next(work) => Driven::Next(end.clone(), work),
            After::GoesOn | After::Ready | After::Parked => return Ok(Driven::Again),
        };
        self.world.hub.ended(self.lease.turn, &end);
        Ok(driven)
    }
}
