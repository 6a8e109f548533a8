//! Prints the worker's progress.
use super::progress::{DemoProgress, EffectLabel};
use crate::terminal::{OutputLine, TextStyle};
use std::collections::BTreeSet;

/// What was printed so far.
#[derive(Debug, Default)]
pub(super) struct DemoScreen {
    processes: usize,
    /// Effects that were answered from the journal. They share a line.
    replayed: Vec<String>,
    /// Effects that started earlier.
    begun: BTreeSet<String>,
}

impl DemoScreen {
    /// Prints that a process started.
    pub(super) fn started(&mut self, pid: u32) {
        self.processes += 1;
        let number = format!("process {}", self.processes);
        OutputLine::new().ink(TextStyle::Bold, &number).ink(TextStyle::Faint, &format!(" (pid {pid})")).say();
    }

    /// Prints that the process was killed.
    pub(super) fn killed(&mut self, during: &str) {
        self.tell_replayed();
        OutputLine::new().ink(TextStyle::Bad, "  SIGKILL     ").text(&format!("during {during}")).say();
    }

    /// Prints an event of the process.
    pub(super) fn show(&mut self, progress: &DemoProgress) {
        if let DemoProgress::Replayed(EffectLabel { name, .. }) = progress {
            // The arguments were shown when it ran.
            self.replayed.push(name.split(" {").next().unwrap_or_default().to_owned());
            return;
        }
        self.tell_replayed();
        match progress {
            DemoProgress::Accepted { turn, duplicate: false, .. } => {
                good("accepted", &format!("{turn}; the input is durable"));
            }
            DemoProgress::Accepted { .. } => faint("accepted", "already; it is the same turn"),
            DemoProgress::Replayed(_) => {}
            DemoProgress::Interrupted(step) => {
                odd("interrupted", &format!("{}: started, but not finished", step.name));
            }
            DemoProgress::Begun { step, .. } => {
                let again = if self.begun.insert(step.key.clone()) { "" } else { ", again" };
                line(OutputLine::new().text(&label("running")), &format!("{}{again}", step.name));
            }
            DemoProgress::Answered { step, outcome } => {
                good("answered", &format!("{} → {outcome}", step.name));
            }
            DemoProgress::Parked { .. } => {
                odd("parked", "until it is completed from outside; meanwhile, no process is needed");
            }
            DemoProgress::Ended { end, .. } => good("ended", end.name()),
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

fn line(label: OutputLine, text: &str) {
    label.text(text).say();
}

fn good(word: &str, text: &str) {
    line(OutputLine::new().ink(TextStyle::Good, &label(word)), text);
}

fn odd(word: &str, text: &str) {
    line(OutputLine::new().ink(TextStyle::Warning, &label(word)), text);
}

fn faint(word: &str, text: &str) {
    OutputLine::new().ink(TextStyle::Faint, &format!("{}{text}", label(word))).say();
}
