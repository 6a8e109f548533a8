//! Prints the worker's progress.
use super::progress::{Progress, Step};
use crate::terminal::{Ink, Line};
use std::collections::BTreeSet;

/// What was printed so far.
#[derive(Debug, Default)]
pub(super) struct Screen {
    processes: usize,
    /// Effects that were answered from the journal. They share a line.
    replayed: Vec<String>,
    /// Effects that started earlier.
    begun: BTreeSet<String>,
}

impl Screen {
    /// Prints that a process started.
    pub(super) fn started(&mut self, pid: u32) {
        self.processes += 1;
        let number = format!("process {}", self.processes);
        Line::new().ink(Ink::Bold, &number).ink(Ink::Faint, &format!(" (pid {pid})")).say();
    }

    /// Prints that the process was killed.
    pub(super) fn killed(&mut self, during: &str) {
        self.tell_replayed();
        Line::new().ink(Ink::Bad, "  SIGKILL     ").text(&format!("during {during}")).say();
    }

    /// Prints an event of the process.
    pub(super) fn show(&mut self, progress: &Progress) {
        if let Progress::Replayed(Step { name, .. }) = progress {
            // The arguments were shown when it ran.
            self.replayed.push(name.split(" {").next().unwrap_or_default().to_owned());
            return;
        }
        self.tell_replayed();
        match progress {
            Progress::Accepted { turn, duplicate: false, .. } => {
                good("accepted", &format!("{turn}; from here on it is not lost"));
            }
            Progress::Accepted { .. } => faint("accepted", "before; it is the same turn"),
            Progress::Replayed(_) => {}
            Progress::Interrupted(step) => {
                odd("interrupted", &format!("{}: begun, and not answered", step.name));
            }
            Progress::Begun { step, .. } => {
                let again = if self.begun.insert(step.key.clone()) { "" } else { ", again" };
                line(Line::new().text(&label("running")), &format!("{}{again}", step.name));
            }
            Progress::Answered { step, outcome } => good("answered", &format!("{} → {outcome}", step.name)),
            Progress::Parked { .. } => {
                odd("parked", "until somebody outside answers; it needs no process for that");
            }
            Progress::Ended { end, .. } => good("ended", end.name()),
        }
    }

    fn tell_replayed(&mut self) {
        if !self.replayed.is_empty() {
            faint("replayed", &format!("from the journal: {}", self.replayed.join(", ")));
            self.replayed.clear();
        }
    }
}

fn label(word: &str) -> String {
    format!("  {word:<12}")
}

fn line(label: Line, text: &str) {
    label.text(text).say();
}

fn good(word: &str, text: &str) {
    line(Line::new().ink(Ink::Good, &label(word)), text);
}

fn odd(word: &str, text: &str) {
    line(Line::new().ink(Ink::Odd, &label(word)), text);
}

fn faint(word: &str, text: &str) {
    Line::new().ink(Ink::Faint, &format!("{}{text}", label(word))).say();
}
