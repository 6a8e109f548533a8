//! Turns on dedicated threads.
use crate::stage::scripted;
use outlast::prelude::*;
use outlast::runtime::worker::system::WorkerThreads;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

struct Bell(Mutex<Sender<()>>);

/// Rings.
#[tool]
async fn ring(bell: Service<Bell>) -> Result<(), Error> {
    bell.0.lock().unwrap().send(()).unwrap();
    Ok(())
}

#[tokio::test]
async fn turn_on_worker_threads_survives_a_blocked_caller() {
    let (rings, rung) = channel();
    let outlast = Outlast::ephemeral()
        .provider(scripted("any\ncall ring {}\n---\nsay rung"))
        .tool(ring)
        .service(Bell(Mutex::new(rings)))
        .tasks(WorkerThreads::new(NonZeroUsize::MIN).unwrap())
        .start()
        .await
        .unwrap();
    let turn = outlast.session("ann").send("go").await.unwrap();
    // The thread that runs everything else in this test blocks here until the tool has run.
    rung.recv_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!(turn.answer().await.unwrap(), "rung");
    outlast.shut_down().await;
}
