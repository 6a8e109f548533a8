//! The messages between the demo and its worker, one JSON line each.
use outlast::TurnId;
use outlast::vocab::record::TurnEnd;
use serde::{Deserialize, Serialize};

/// An event in the worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DemoProgress {
    /// An input is durable.
    Accepted {
        /// Its idempotency key.
        key: String,
        /// Its turn.
        turn: TurnId,
        /// Whether it was already accepted.
        duplicate: bool,
    },
    /// An effect was answered from the journal.
    Replayed(EffectLabel),
    /// A call was started by an earlier process and has no outcome.
    Interrupted(EffectLabel),
    /// An effect starts.
    Begun {
        /// The effect.
        step: EffectLabel,
        attempt: u32,
    },
    /// The outcome of an effect is durable.
    Answered {
        step: EffectLabel,
        /// The outcome, as text.
        outcome: String,
    },
    /// The turn is parked.
    Parked {
        /// The completion keys of its waits.
        keys: Vec<String>,
    },
    /// The turn ended.
    Ended {
        /// The turn.
        turn: TurnId,
        end: TurnEnd,
    },
}

/// An effect of the turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct EffectLabel {
    /// Its replay key.
    pub(super) key: String,
    /// Its name for display.
    pub(super) name: String,
}

/// An input for the worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DemoInput {
    /// The key of the session.
    pub(super) session: String,
    /// The idempotency key of the input.
    pub(super) key: String,
    pub(super) text: String,
}
