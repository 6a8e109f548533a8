//! Helpers for the façade tests: scripted models and a tool that blocks until it is released.
use outlast::prelude::*;
use outlast::providers::Rehearsal;
use outlast::runtime::worker::system::SystemClock;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// Returns a rehearsal model that plays this script.
pub(crate) fn scripted(script: &str) -> Rehearsal {
    Rehearsal::scripted(script.parse().unwrap(), Arc::new(SystemClock))
}

/// Releases calls of [`Gate`] one by one and counts them.
pub(crate) struct Gatekeeper {
    pub(crate) passes: Semaphore,
    pub(crate) entered: AtomicU32,
    pub(crate) passed: AtomicU32,
    pub(crate) log: Mutex<Vec<String>>,
}

impl Gatekeeper {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            passes: Semaphore::new(0),
            entered: AtomicU32::new(0),
            passed: AtomicU32::new(0),
            log: Mutex::default(),
        })
    }

    /// Waits until this many calls have started.
    pub(crate) async fn begun(&self, calls: u32) {
        while self.entered.load(SeqCst) < calls {
            tokio::task::yield_now().await;
        }
    }
}

/// A tool that blocks until its keeper releases it.
pub(crate) struct Gate;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Visitor {
    who: String,
}

impl Tool for Gate {
    type Args = Visitor;
    type Needs = Service<Arc<Gatekeeper>>;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("gate", "Lets a visitor pass.")
    }

    async fn run(&self, keeper: Self::Needs, _: Call, args: Visitor) -> Result<ToolRunOutcome, Error> {
        keeper.entered.fetch_add(1, SeqCst);
        keeper.passes.acquire().await.unwrap().forget();
        keeper.passed.fetch_add(1, SeqCst);
        keeper.log.lock().unwrap().push(args.who.clone());
        done(format!("{} passed", args.who))
    }
}
