//! Delivers outputs to sinks: results of turns and approval requests.
//!
//! Each sink has its own task, so a slow sink does not block the others. The task sleeps until a turn ends
//! here, another process changes something, or a delivery is due. The store keeps what is due and which
//! worker has it: [`outlast_ports::outbox`].
use crate::policy::approval_links::LinkRecipients;
use crate::turn::journal_writer::WorkerJournal;
use crate::turn::model_request::{backoff, jittered};
use crate::worker::tasks::Tasks;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use outlast_ports::clock::Entropy;
use outlast_ports::outbox::{CollectRequest, DeliveryAttempt, DueDelivery};
use outlast_ports::sink::{OutputEvent, SinkOutput, SubscribedSink};
use outlast_ports::{BoxFuture, ResultFuture};
use outlast_vocab::{Class, Error, Failure, Kind, Limits, Millis, WorkerId};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The longest sleep of a sink's task.
const LONGEST_SLEEP: Duration = Duration::from_hours(1);

/// How long a sink's task sleeps when the store does not answer.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How often writing the result of an attempt is tried, if the error may pass.
const WRITES: u32 = 5;

/// The sinks of a worker.
pub(crate) struct SinkDeliveries {
    journal: Arc<WorkerJournal>,
    entropy: Arc<dyn Entropy>,
    worker: WorkerId,
    outlets: Vec<SubscribedSink>,
    /// Signs approval links.
    secret: [u8; 32],
    bell: watch::Sender<()>,
    /// Deliveries that are being collected or sent.
    under_way: AtomicUsize,
}

impl SinkDeliveries {
    /// Opens these sinks and subscribes those that are new.
    pub(crate) async fn open(
        journal: Arc<WorkerJournal>,
        entropy: Arc<dyn Entropy>,
        worker: WorkerId,
        outlets: Vec<SubscribedSink>,
    ) -> Result<Arc<Self>, Error> {
        let (store, now) = (&journal.store, journal.clock.now());
        for (n, SubscribedSink { subscription, .. }) in outlets.iter().enumerate() {
            let name = &subscription.name;
            if outlets[..n].iter().any(|other| other.subscription.name == *name) {
                let detail = format!("two sinks are called `{name}`; names must be unique");
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
            match store.delivery_schedule(name.clone(), now).await {
                Err(error) if error.kind() == Kind::DeliveryNotFound => {
                    store.subscribe(vec![subscription.clone()], now).await?;
                }
                known => drop(known?),
            }
        }
        let (bell, under_way) = (watch::Sender::new(()), AtomicUsize::new(0));
        let secret = store.secret().await?;
        Ok(Arc::new(Self { journal, entropy, worker, outlets, secret, bell, under_way }))
    }

    /// Starts the task of each sink.
    pub(crate) fn start(self: &Arc<Self>, tasks: &Arc<Tasks>, stopping: &watch::Receiver<bool>) {
        for outlet in self.outlets.clone() {
            let stopping = stopping.clone();
            let bell = self.bell.subscribe();
            let carrier = SinkTask { sinks: self.clone(), outlet };
            tasks.spawn(async move { carrier.run(stopping, bell).await });
        }
    }

    pub(crate) fn outlets(&self) -> &[SubscribedSink] {
        &self.outlets
    }

    /// Signals that a turn may have ended.
    pub(crate) fn wake_sinks(&self) {
        self.bell.send_replace(());
    }

    /// Subscribes to that signal.
    pub(crate) fn subscribe_wakeups(&self) -> watch::Receiver<()> {
        self.bell.subscribe()
    }

    /// Whether no delivery is due or under way.
    pub(crate) async fn are_idle(&self) -> Result<bool, Error> {
        // The order matters: a collected delivery is counted as under way before it stops being due.
        for SubscribedSink { subscription, .. } in &self.outlets {
            if self
                .journal
                .store
                .delivery_schedule(subscription.name.clone(), self.journal.clock.now())
                .await?
                .is_due
            {
                return Ok(false);
            }
        }
        Ok(self.under_way.load(Ordering::SeqCst) == 0)
    }
}

/// The task of one sink.
struct SinkTask {
    sinks: Arc<SinkDeliveries>,
    outlet: SubscribedSink,
}

/// Attempts that are under way.
type InFlightDeliveries<'a> = FuturesUnordered<BoxFuture<'a, ()>>;

impl SinkTask {
    async fn run(&self, mut stopping: watch::Receiver<bool>, mut bell: watch::Receiver<()>) {
        let mut flying = InFlightDeliveries::new();
        loop {
            bell.borrow_and_update();
            let pause = self.start_due_deliveries(&mut flying).await.unwrap_or_else(|error| {
                tracing::warn!(%error, sink = self.name(), "due deliveries could not be read");
                LOOK_AGAIN
            });
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => break,
                Some(()) = flying.next(), if !flying.is_empty() => {}
                _ = bell.changed() => {}
                () = self.sinks.journal.clock.sleep(pause) => {}
            }
        }
        // Outputs of turns that just ended are still delivered, if the shutdown leaves time.
        if let Err(error) = self.start_due_deliveries(&mut flying).await {
            tracing::warn!(%error, sink = self.name(), "due deliveries are left to another worker");
        }
        while flying.next().await.is_some() {}
    }

    fn name(&self) -> &str {
        &self.outlet.subscription.name
    }

    fn limits(&self) -> &Limits {
        &self.sinks.journal.limits
    }

    /// Starts as many due deliveries as fit, and returns when to look again.
    async fn start_due_deliveries<'a>(
        &'a self,
        flying: &mut InFlightDeliveries<'a>,
    ) -> Result<Duration, Error> {
        loop {
            let limit = self.limits().deliveries_at_once.saturating_sub(flying.len());
            if limit == 0 {
                return Ok(LONGEST_SLEEP);
            }
            let now = self.sinks.journal.clock.now();
            let outlook = self.sinks.journal.store.delivery_schedule(self.name().to_owned(), now).await?;
            if !outlook.is_due {
                let next = outlook.next.map_or(LONGEST_SLEEP, |next| now.until(next));
                return Ok(next.min(LONGEST_SLEEP));
            }
            let _taking = InFlightGuard::new(&self.sinks.under_way);
            let collect = CollectRequest {
                subscription: self.outlet.subscription.clone(),
                worker: self.sinks.worker,
                now,
                // Twice the deadline, to leave time for the write that follows.
                until: now.after(self.limits().delivery_deadline.saturating_mul(2)),
                limit,
                attempts: self.limits().delivery_attempts,
            };
            for due in self.sinks.journal.store.collect(collect).await? {
                let under_way = InFlightGuard::new(&self.sinks.under_way);
                flying.push(Box::pin(async move {
                    self.attempt(due).await;
                    drop(under_way);
                }));
            }
        }
    }

    /// Makes one attempt and writes its result.
    async fn attempt(&self, DueDelivery { mut output, attempts_since_retry: tries }: DueDelivery) {
        self.add_links(&mut output);
        let store = &self.sinks.journal.store;
        let attempt = || {
            let (turn, moment, attempt) = (output.turn, output.position, output.attempt);
            DeliveryAttempt { sink: self.name().to_owned(), turn, position: moment, attempt }
        };
        let handed = self.hand_over(&output).await;
        let written = match &handed {
            Ok(()) => self.write(|| store.delivered(attempt())).await,
            Err(error) => {
                tracing::warn!(%error, sink = self.name(), id = %output.id, tries, "an output was not accepted");
                let again = self.again(error, tries);
                self.write(|| store.undelivered(attempt(), Failure::from(error), again)).await
            }
        };
        if let Err(error) = written {
            tracing::warn!(%error, sink = self.name(), id = %output.id, "the result of a delivery could not be written");
        }
    }

    /// Adds approval links if the sink wants them. Every attempt gets the same links.
    fn add_links(&self, output: &mut SinkOutput) {
        let (Some(server), OutputEvent::Approval(_, request)) = (&self.outlet.links, &mut output.event)
        else {
            return;
        };
        let most = output.at.after(self.limits().link_lasts);
        let expires = request.expires.map_or(most, |expires| expires.min(most));
        let to = LinkRecipients { turn: output.turn, expires, sink: self.name() };
        request.links = to.links(request, server, &self.sinks.secret);
    }

    /// Passes an output to the sink under a deadline. A panic fails the attempt.
    async fn hand_over(&self, output: &SinkOutput) -> Result<(), Error> {
        let deadline = self.limits().delivery_deadline;
        let deliver = AssertUnwindSafe(self.outlet.sink.deliver(output)).catch_unwind();
        let failed = |detail: String| Err(Error::new(Kind::DeliveryFailed, detail));
        match select(deliver, self.sinks.journal.clock.sleep(deadline)).await {
            Either::Left((Ok(handed), _)) => handed,
            Either::Left((Err(_), _)) => failed("the sink panicked".to_owned()),
            Either::Right(_) => failed(format!("it took longer than {} ms", deadline.as_millis())),
        }
    }

    /// Returns when to retry an output, or `None` if the error is permanent or the attempts are used up.
    fn again(&self, error: &Error, tries: u32) -> Option<Millis> {
        let Limits { delivery_attempts, delivery_first, delivery_most, .. } = *self.limits();
        let goes_on = error.class() == Class::Retry && tries < delivery_attempts;
        goes_on.then(|| {
            let pause = jittered(delivery_first, delivery_most, tries, self.sinks.entropy.as_ref());
            let asked = error.pause().unwrap_or_default();
            self.sinks.journal.clock.now().after(pause.max(asked).min(delivery_most))
        })
    }

    /// Writes the result of an attempt. If that fails, the output is due again when its claim expires.
    async fn write<'a>(&'a self, write: impl Fn() -> ResultFuture<'a, ()>) -> Result<(), Error> {
        let Limits { backoff_first, backoff_most, .. } = *self.limits();
        let mut tries = 1;
        loop {
            match write().await {
                Err(error) if error.class() == Class::Retry && tries < WRITES => {
                    self.sinks.journal.clock.sleep(backoff(backoff_first, backoff_most, tries)).await;
                    tries += 1;
                }
                written => return written,
            }
        }
    }
}

/// Counts a delivery as under way until dropped.
struct InFlightGuard<'a>(&'a AtomicUsize);

impl<'a> InFlightGuard<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
