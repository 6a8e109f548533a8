//! The same store on a machine that is not real: any disk that SQLite can be given, and a writer without a thread, which
//! somebody moves on one transaction at a time. This is how a simulator runs it, and how it dies at any point of it.
use crate::queue::Queued;
use crate::sqlite::Options;
use crate::workers::IsDead;
use crate::writer::{Job, Writer};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;

/// A machine as its store sees it.
pub struct Machine {
    /// The name under which SQLite knows the disk (its VFS).
    pub disk: String,
    /// The database on it.
    pub path: PathBuf,
    /// How it is opened.
    pub options: Options,
    /// Who is dead.
    pub is_dead: IsDead,
}

/// A writer that works only while it is told to. To drop it is to die in the middle: nothing is put away.
pub struct HandWriter {
    writer: Writer,
    jobs: Receiver<Queued<Job>>,
    next: Option<Queued<Job>>,
}

impl HandWriter {
    pub(crate) fn new(writer: Writer, jobs: Receiver<Queued<Job>>) -> Self {
        Self { writer, jobs, next: None }
    }

    /// Whether anything waits.
    pub fn has_work(&mut self) -> bool {
        if self.next.is_none() {
            self.next = self.jobs.try_recv().ok();
        }
        self.next.is_some()
    }

    /// Makes what waits durable as one transaction and answers it. Says whether anything waited.
    pub fn step(&mut self) -> bool {
        let Some(first) = self.next.take().or_else(|| self.jobs.try_recv().ok()) else { return false };
        self.writer.serve_once(first, &self.jobs);
        true
    }

    /// Moves the log into the file, as the writer does when nobody writes.
    pub fn rest(&mut self) {
        self.writer.tidy_up();
    }

    /// Leaves the files in order, as a process does that ends by itself.
    pub fn close(mut self) {
        while self.step() {}
        self.writer.close();
    }
}
