//! The times at which a rule applies: days and hours in a time zone. Does not know the clock; the caller
//! supplies the local time.
use crate::{Error, Kind};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Minutes in a day.
const DAY: u16 = 24 * 60;

/// Hours of days in one time zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleTimes {
    /// The time zone, like `Europe/Berlin`.
    pub zone: String,
    /// The days. Every day if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<Day>,
    /// The hours. The whole day if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<Hours>,
}

impl RuleTimes {
    /// Returns whether a time is included. Hours after midnight belong to the day on which they began.
    pub fn contain(&self, now: LocalTime) -> bool {
        let (day, open) = match self.hours {
            None => (now.day, true),
            Some(Hours { from, to }) if from < to => (now.day, from <= now.minute && now.minute < to),
            Some(Hours { to, .. }) if now.minute < to => (now.day.before(), true),
            Some(Hours { from, .. }) => (now.day, from <= now.minute),
        };
        open && (self.days.is_empty() || self.days.contains(&day))
    }
}

/// The local time in a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// The day of the week.
    pub day: Day,
    /// Minutes since midnight.
    pub minute: u16,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Day {
    /// Monday.
    Mon,
    /// Tuesday.
    Tue,
    /// Wednesday.
    Wed,
    /// Thursday.
    Thu,
    /// Friday.
    Fri,
    /// Saturday.
    Sat,
    /// Sunday.
    Sun,
}

impl Day {
    /// All days of the week.
    pub const ALL: [Self; 7] = [Self::Mon, Self::Tue, Self::Wed, Self::Thu, Self::Fri, Self::Sat, Self::Sun];

    fn before(self) -> Self {
        Self::ALL[(self as usize + 6) % 7]
    }
}

/// A range of hours, written like `09:00-17:30`. `22:00-06:00` spans midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hours {
    from: u16,
    to: u16,
}

impl FromStr for Hours {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts = text.split_once('-').and_then(|(from, to)| Some((minute(from)?, minute(to)?)));
        match parts {
            Some((from, to)) if from != to && from < DAY => Ok(Self { from, to }),
            _ => {
                let detail = format!("expected hours like `09:00-17:30`, got `{text}`");
                Err(Error::new(Kind::InputInvalid, detail))
            }
        }
    }
}

/// Parses minutes since midnight. The end of a day is `24:00`.
fn minute(text: &str) -> Option<u16> {
    let two_digits = |part: &str| {
        let digits = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse::<u16>().ok()).flatten()
    };
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes) = (two_digits(hours)?, two_digits(minutes)?);
    (minutes < 60).then_some(hours * 60 + minutes).filter(|minute| *minute <= DAY)
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

impl TryFrom<String> for Hours {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Hours> for String {
    fn from(hours: Hours) -> Self {
        hours.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: Day, hour: u16, minute: u16) -> LocalTime {
        LocalTime { day, minute: hour * 60 + minute }
    }

    #[test]
    fn hours_exclude_their_end_and_cross_midnight() {
        let times = |hours: &str, days: &[Day]| RuleTimes {
            zone: "UTC".to_owned(),
            days: days.to_vec(),
            hours: Some(hours.parse().unwrap()),
        };
        let office = times("09:00-17:00", &[Day::Mon]);
        assert!(office.contain(at(Day::Mon, 9, 0)) && office.contain(at(Day::Mon, 16, 59)));
        assert!(!office.contain(at(Day::Mon, 17, 0)) && !office.contain(at(Day::Tue, 10, 0)));
        let night = times("22:00-06:00", &[Day::Fri]);
        assert!(night.contain(at(Day::Fri, 23, 0)) && night.contain(at(Day::Sat, 5, 59)));
        assert!(!night.contain(at(Day::Fri, 5, 0)) && !night.contain(at(Day::Sat, 23, 0)));
        assert!(times("22:00-24:00", &[]).contain(at(Day::Sun, 23, 59)));
    }

    #[test]
    fn invalid_hours_are_refused() {
        for text in
            ["", "9-17", "09:00", "09:00-09:00", "09:60-10:00", "09:00-24:01", "24:00-01:00", "a:b-c:d"]
        {
            assert_eq!(text.parse::<Hours>().unwrap_err().kind(), Kind::InputInvalid, "{text}");
        }
        assert_eq!("09:05-17:30".parse::<Hours>().unwrap().to_string(), "09:05-17:30");
    }
}
