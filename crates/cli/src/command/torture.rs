//! `outlast torture-worker`, hidden: the process that `cargo xtask torture` kills, stops and starts again.
//!
//! It takes inputs as lines of JSON on standard input and says on standard output which were accepted; beside them it
//! drives whatever it finds in the database. Its [`tools`] report every execution to the [`witness`], which is another
//! process, and wait for its answer. It ends in good order on SIGTERM and at the end of its input.
mod tools;
mod witness;

use crate::data::Data;
use crate::terminal;
use clap::Args;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::Input;
use outlast::runtime::system::SystemClock;
use outlast::store::{Accepted, Target};
use outlast::vocab::Hash;
use outlast::vocab::record::{Delivery, Seq};
use outlast::{Error, Kind, Limits, Outlast, TurnId};
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use witness::Witness;

const SCRIPT: &str = include_str!("torture/script.txt");

/// How long the model takes for a word: long enough to be killed within a reply.
const WORD: Duration = Duration::from_millis(1);

/// Longer waits park the turn. The tools' sleep is longer.
const WAIT_IN_MEMORY: Duration = Duration::from_millis(10);

/// How long tools get after a cancel.
const GRACE: Duration = Duration::from_millis(100);

/// Drives turns until it is killed.
#[derive(Args)]
pub(crate) struct TortureWorker {
    /// The socket of the witness
    #[arg(long, value_name = "SOCKET")]
    witness: PathBuf,
    /// How long this worker may be silent before another takes its sessions
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    lease_ms: u64,
}

/// An input, as one line.
#[derive(Deserialize)]
struct Order {
    /// The key of the session.
    session: String,
    /// The idempotency key of the input.
    key: String,
    /// What it says.
    text: String,
    /// Whether it joins the turn under way.
    steer: bool,
}

/// What is said, as one line.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    /// Inputs are taken from here on.
    Ready {},
    /// An input is durable.
    Accepted {
        /// Its idempotency key.
        key: String,
        /// The turn it is.
        turn: TurnId,
        /// Where it stands in its session.
        seq: Seq,
        /// The hash of the chain there.
        hash: Hash,
    },
    /// An input was not taken in; its sender may try again.
    Refused {
        /// Its idempotency key.
        key: String,
        /// Why.
        why: String,
    },
    /// Nothing is driven any more; what is left is to put the log away.
    Closing {},
}

impl TortureWorker {
    /// Does it.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let outlast = self.start(data).await?;
        let mut stop = signal(SignalKind::terminate())
            .map_err(|cause| Error::new(Kind::IoFailed, format!("SIGTERM cannot be heard: {cause}")))?;
        let mut orders = orders();
        let mut taking = JoinSet::new();
        terminal::json(&Said::Ready {});
        loop {
            let order = tokio::select! {
                order = orders.recv() => order,
                _ = stop.recv() => None,
            };
            let Some(order) = order else { break };
            taking.spawn(take(outlast.clone(), order?));
        }
        taking.join_all().await;
        let store = outlast.store().clone();
        outlast.shut_down().await;
        terminal::json(&Said::Closing {});
        drop(store);
        Ok(())
    }

    async fn start(&self, data: &Data) -> Result<Outlast, Error> {
        let script: Script = SCRIPT.parse()?;
        let model = Rehearsal::scripted(script, Arc::new(SystemClock)).with_pace(WORD);
        let limits = Limits {
            lease: Duration::from_millis(self.lease_ms),
            wait_in_memory: WAIT_IN_MEMORY,
            cancel_grace: GRACE,
            ..Limits::default()
        };
        let builder = data.builder().provider(model).model("rehearsal/torture").limits(limits);
        tools::add(builder, &Arc::new(Witness::at(self.witness.clone()))).start().await
    }
}

/// Takes one input in and says what became of it.
async fn take(outlast: Outlast, order: Order) {
    let Order { session, key, text, steer } = order;
    let target = Target::Key { key: session, fresh: outlast.runtime().fresh_session() };
    let delivery = if steer { Delivery::Join } else { Delivery::Next };
    let input = Input { key: Some(key.clone()), delivery, ..Input::text(target, text) };
    let said = match outlast.runtime().submit(input).await {
        Ok(Accepted { turn, place, .. }) => Said::Accepted { key, turn, seq: place.seq, hash: place.hash },
        Err(error) => Said::Refused { key, why: error.to_string() },
    };
    terminal::json(&said);
}

/// The inputs as they come. A thread of its own reads them: nothing has to wait for it when the process ends.
fn orders() -> mpsc::UnboundedReceiver<Result<Order, Error>> {
    let (to_us, orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let order = line
                .map_err(|cause| {
                    Error::new(Kind::IoFailed, format!("standard input cannot be read: {cause}"))
                })
                .and_then(|line| {
                    serde_json::from_str(&line).map_err(|cause| {
                        Error::new(Kind::InputInvalid, format!("expected an order as JSON: {cause}"))
                    })
                });
            if to_us.send(order).is_err() {
                return;
            }
        }
    });
    orders
}
