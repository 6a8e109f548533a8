//! The points at which a run crashes, and their notation.
use outlast_ledger::crashing_store::CrashPoint;
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind};
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A point in one life of the agent's process. Numbers count from 1 and restart in every life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrialCrashPoint {
    /// Before this write happens: `7:before`.
    Before(u64),
    /// After this write happened, before its result is known: `7:after`.
    After(u64),
    /// While a tool runs: `call-2:during`, or `call-2:during-3` for the third time that it waits.
    During {
        /// The number of the tool run.
        call: u64,
        /// The number of the wait within the run.
        pause: u64,
    },
}

/// The points at which the lives of a run end, in order. The life after the last point runs without a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Crash(Vec<TrialCrashPoint>);

impl TrialCrashPoint {
    /// Returns the write at which the store dies.
    pub(crate) fn store_crash(self) -> CrashPoint {
        match self {
            Self::Before(write) => CrashPoint::Before(write.saturating_sub(1)),
            Self::After(write) => CrashPoint::AfterWrite(write.saturating_sub(1)),
            Self::During { .. } => CrashPoint::Never,
        }
    }
}

impl Crash {
    /// Returns the point at which each life ends.
    pub fn points(&self) -> &[TrialCrashPoint] {
        &self.0
    }

    /// Returns the same crash with a further one in the next life.
    pub(crate) fn followed_by(&self, point: TrialCrashPoint) -> Self {
        Self(self.0.iter().copied().chain([point]).collect())
    }
}

impl From<TrialCrashPoint> for Crash {
    fn from(point: TrialCrashPoint) -> Self {
        Self(vec![point])
    }
}

impl fmt::Display for TrialCrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Before(write) => write!(f, "{write}:before"),
            Self::After(write) => write!(f, "{write}:after"),
            Self::During { call, pause: 1 } => write!(f, "call-{call}:during"),
            Self::During { call, pause } => write!(f, "call-{call}:during-{pause}"),
        }
    }
}

impl fmt::Display for Crash {
    /// Writes the points separated by `+`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no crash");
        }
        for (index, point) in self.0.iter().enumerate() {
            write!(f, "{}{point}", if index == 0 { "" } else { "+" })?;
        }
        Ok(())
    }
}

impl FromStr for TrialCrashPoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).ok_or_else(|| {
            let detail = format!(
                "expected a point like `7:before`, `7:after` or `call-2:during`, counted from 1, got `{}`",
                shown(text)
            );
            Error::new(Kind::InputInvalid, detail)
        })
    }
}

impl FromStr for Crash {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.split('+').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl Serialize for Crash {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.0.is_empty() { to.serialize_none() } else { to.collect_str(self) }
    }
}

fn parse(text: &str) -> Option<TrialCrashPoint> {
    let number = |text: &str| text.parse().ok().filter(|number: &u64| *number > 0);
    let (what, when) = text.split_once(':')?;
    match (what.strip_prefix("call-"), when) {
        (None, "before") => number(what).map(TrialCrashPoint::Before),
        (None, "after") => number(what).map(TrialCrashPoint::After),
        (Some(call), "during") => Some(TrialCrashPoint::During { call: number(call)?, pause: 1 }),
        (Some(call), when) => Some(TrialCrashPoint::During {
            call: number(call)?,
            pause: number(when.strip_prefix("during-")?)?,
        }),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crash_point_round_trips_as_text() {
        for text in ["7:before", "1:after", "call-2:during", "call-2:during-3", "7:after+2:before"] {
            assert_eq!(text.parse::<Crash>().unwrap().to_string(), text);
        }
        assert_eq!("call-2:during-1".parse::<Crash>().unwrap().to_string(), "call-2:during");
    }

    #[test]
    fn invalid_crash_point_error_shows_the_expected_form() {
        for text in
            ["", "7", "0:before", "7:during", "call-2:after", "call-0:during", "call-1:during-0", "1:after+"]
        {
            let wrong = text.rsplit('+').next().unwrap_or(text);
            assert_eq!(
                text.parse::<Crash>().unwrap_err().to_string(),
                format!(
                    "input.invalid: expected a point like `7:before`, `7:after` or `call-2:during`, counted from 1, got \
                     `{wrong}`"
                )
            );
        }
    }
}
