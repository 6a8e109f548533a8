//! A bounded way into a thread: callers wait without blocking when it is full, the thread blocks when it is empty.
use crate::error::gone;
use outlast_vocab::Error;
use std::sync::{Arc, mpsc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The callers' end.
pub(crate) struct Queue<J> {
    jobs: mpsc::Sender<Queued<J>>,
    room: Arc<Semaphore>,
}

/// A job and the room it takes, which is free again when the thread takes the job.
pub(crate) struct Queued<J> {
    job: J,
    _room: OwnedSemaphorePermit,
}

impl<J> Queued<J> {
    /// Takes the job out.
    pub(crate) fn take(self) -> J {
        self.job
    }
}

impl<J> Queue<J> {
    /// A queue with room for `most` jobs, and the thread's end of it.
    pub(crate) fn of(most: usize) -> (Self, mpsc::Receiver<Queued<J>>) {
        let (jobs, taker) = mpsc::channel();
        (Self { jobs, room: Arc::new(Semaphore::new(most)) }, taker)
    }

    /// Puts a job in, as soon as there is room.
    pub(crate) async fn put(&self, job: J) -> Result<(), Error> {
        let room = Arc::clone(&self.room).acquire_owned().await.expect("the semaphore is never closed");
        self.jobs.send(Queued { job, _room: room }).map_err(|_| gone())
    }
}
