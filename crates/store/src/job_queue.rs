//! A bounded queue into a thread. Callers wait asynchronously while it is full; the thread blocks while it is
//! empty.
use crate::error::thread_ended;
use outlast_vocab::Error;
use std::sync::{Arc, mpsc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The callers' end of the queue.
pub(crate) struct JobQueue<J> {
    jobs: mpsc::Sender<QueuedJob<J>>,
    permits: Arc<Semaphore>,
}

/// A job and its permit, which is released when the thread takes the job.
pub(crate) struct QueuedJob<J> {
    job: J,
    _room: OwnedSemaphorePermit,
}

impl<J> QueuedJob<J> {
    /// Takes the job out and releases its permit.
    pub(crate) fn take(self) -> J {
        self.job
    }
}

impl<J> JobQueue<J> {
    /// Creates a queue for `most` jobs, and the thread's end of it.
    pub(crate) fn of(most: usize) -> (Self, mpsc::Receiver<QueuedJob<J>>) {
        let (jobs, taker) = mpsc::channel();
        (Self { jobs, permits: Arc::new(Semaphore::new(most)) }, taker)
    }

    /// Adds a job as soon as there is room.
    pub(crate) async fn put(&self, job: J) -> Result<(), Error> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("the semaphore is never closed");
        self.jobs.send(QueuedJob { job, _room: permit }).map_err(|_| thread_ended())
    }
}
