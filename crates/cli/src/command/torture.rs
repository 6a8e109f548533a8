//! `outlast torture-worker` (hidden): the process that `cargo xtask torture` kills, stops and restarts.
//!
//! It reads inputs as JSON lines from standard input and prints which were accepted. It also drives all
//! unfinished turns of the database. Its [`tools`] report every execution to the [`witness`], a separate
//! process, and wait for its answer. On SIGTERM or at the end of its input, it shuts down cleanly.
mod tools;
mod witness;

use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::Args;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::Input;
use outlast::runtime::worker::system::SystemClock;
use outlast::store::{AcceptReceipt, SessionTarget};
use outlast::vocab::Hash;
use outlast::vocab::record::{InputDelivery, Seq};
use outlast::{Error, Kind, Limits, Outlast, TurnId};
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use witness::WitnessClient;

const SCRIPT: &str = include_str!("torture/script.txt");

/// How long the model takes for a word: long enough for a kill within a reply.
const WORD: Duration = Duration::from_millis(1);

/// Longer waits park the turn. The sleep of the tools is longer.
const WAIT_IN_MEMORY: Duration = Duration::from_millis(10);

/// How long tools may continue after a cancel.
const GRACE: Duration = Duration::from_millis(100);

/// Runs turns until it is killed.
#[derive(Args)]
pub(crate) struct TortureWorkerArgs {
    /// Socket of the witness
    #[arg(long, value_name = "SOCKET")]
    witness: PathBuf,
    /// Lease: how long this worker may be silent before another takes its sessions
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    lease_ms: u64,
}

/// An input line.
#[derive(Deserialize)]
struct TortureInput {
    /// The key of the session.
    session: String,
    /// The idempotency key of the input.
    key: String,
    text: String,
    /// Whether it joins the running turn.
    steer: bool,
}

/// An output line.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum TortureWorkerMessage {
    /// The worker accepts inputs.
    Ready {},
    /// An input is durable.
    Accepted {
        /// Its idempotency key.
        key: String,
        /// Its turn.
        turn: TurnId,
        /// Its position in the session.
        seq: Seq,
        /// The hash of the chain at that position.
        hash: Hash,
    },
    /// An input was refused. Its sender may retry.
    Refused {
        /// Its idempotency key.
        key: String,
        why: String,
    },
    /// All turns have stopped. Only the checkpoint of the write-ahead log remains.
    Closing {},
}

impl TortureWorkerArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let outlast = self.start(data).await?;
        let mut stop = signal(SignalKind::terminate())
            .map_err(|cause| Error::new(Kind::IoFailed, format!("SIGTERM cannot be heard: {cause}")))?;
        let mut orders = orders();
        let mut taking = JoinSet::new();
        terminal::json(&TortureWorkerMessage::Ready {});
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
        terminal::json(&TortureWorkerMessage::Closing {});
        drop(store);
        Ok(())
    }

    async fn start(&self, data: &GlobalArgs) -> Result<Outlast, Error> {
        let script: Script = SCRIPT.parse()?;
        let model = Rehearsal::scripted(script, Arc::new(SystemClock)).with_word_delay(WORD);
        let limits = Limits {
            lease: Duration::from_millis(self.lease_ms),
            wait_in_memory: WAIT_IN_MEMORY,
            cancel_grace: GRACE,
            ..Limits::default()
        };
        let builder = data.builder().provider(model).model("rehearsal/torture").limits(limits);
        tools::add(builder, &Arc::new(WitnessClient::at(self.witness.clone()))).start().await
    }
}

/// Submits one input and prints the result.
async fn take(outlast: Outlast, order: TortureInput) {
    let TortureInput { session, key, text, steer } = order;
    let target = SessionTarget::Key { key: session, fresh: outlast.runtime().fresh_session() };
    let delivery = if steer { InputDelivery::Join } else { InputDelivery::Next };
    let input = Input { key: Some(key.clone()), delivery, ..Input::text(target, text) };
    let said = match outlast.runtime().submit(input).await {
        Ok(AcceptReceipt { turn, place, .. }) => {
            TortureWorkerMessage::Accepted { key, turn, seq: place.seq, hash: place.hash }
        }
        Err(error) => TortureWorkerMessage::Refused { key, why: error.to_string() },
    };
    terminal::json(&said);
}

/// Returns the inputs as they arrive. A separate thread reads them, so the process can exit without waiting
/// for it.
fn orders() -> mpsc::UnboundedReceiver<Result<TortureInput, Error>> {
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
