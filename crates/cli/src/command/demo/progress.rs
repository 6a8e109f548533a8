//! The lines from the worker to whoever watches it.
use outlast::TurnId;
use outlast::vocab::record::End;
use serde::{Deserialize, Serialize};

/// Something that just happened in the worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Progress {
    /// An input is durable.
    Accepted {
        /// Its idempotency key.
        key: String,
        /// The turn it is.
        turn: TurnId,
        /// Whether it was accepted before.
        duplicate: bool,
    },
    /// An effect was answered from the journal.
    Replayed(Step),
    /// A call was found begun and not answered.
    Interrupted(Step),
    /// An effect begins to be performed.
    Begun {
        /// Which.
        step: Step,
        /// Which attempt.
        attempt: u32,
    },
    /// The outcome of an effect is durable.
    Answered {
        /// Which.
        step: Step,
        /// What it is, in words.
        outcome: String,
    },
    /// The turn holds still.
    Parked {
        /// The completion keys of what it waits for.
        keys: Vec<String>,
    },
    /// The turn is over.
    Ended {
        /// Which.
        turn: TurnId,
        /// How.
        end: End,
    },
}

/// An effect of the turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Step {
    /// Its replay key.
    pub(super) key: String,
    /// What a person calls it.
    pub(super) name: String,
}

/// An input for the worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// The key of the session.
    pub(super) session: String,
    /// The idempotency key of the input.
    pub(super) key: String,
    /// What it says.
    pub(super) text: String,
}
