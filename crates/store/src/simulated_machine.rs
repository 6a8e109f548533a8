//! The same store on a simulated machine: any VFS that SQLite supports, and a writer without a thread. The
//! caller advances the writer by one transaction at a time. A simulator uses this to run the store and to
//! crash it at any point.
use crate::job_queue::QueuedJob;
use crate::sqlite::SqliteOptions;
use crate::workers::IsDead;
use crate::writer::{Writer, WriterJob};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;

/// A simulated machine.
pub struct SimulatedMachine {
    /// The name of the SQLite VFS.
    pub vfs: String,
    /// The path of the database on it.
    pub path: PathBuf,
    /// The options for opening the database.
    pub options: SqliteOptions,
    /// Says whether a worker is dead.
    pub is_dead: IsDead,
}

/// A writer that works only when it is told to. Dropping it simulates a crash: nothing is cleaned up.
pub struct ManualWriter {
    writer: Writer,
    jobs: Receiver<QueuedJob<WriterJob>>,
    next: Option<QueuedJob<WriterJob>>,
}

impl ManualWriter {
    pub(crate) fn new(writer: Writer, jobs: Receiver<QueuedJob<WriterJob>>) -> Self {
        Self { writer, jobs, next: None }
    }

    /// Returns whether any job waits.
    pub fn has_work(&mut self) -> bool {
        if self.next.is_none() {
            self.next = self.jobs.try_recv().ok();
        }
        self.next.is_some()
    }

    /// Commits the waiting jobs as one transaction and answers them. Returns whether any job waited.
    pub fn step(&mut self) -> bool {
        let Some(first) = self.next.take().or_else(|| self.jobs.try_recv().ok()) else { return false };
        self.writer.serve_once(first, &self.jobs);
        true
    }

    /// Checkpoints the log, as the writer does when it is idle.
    pub fn checkpoint(&mut self) {
        self.writer.checkpoint_idle();
    }

    /// Finishes all jobs and closes the files cleanly.
    pub fn close(mut self) {
        while self.step() {}
        self.writer.close();
    }
}
