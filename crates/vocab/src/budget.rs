//! Budgets as data: limits, usage, and whether an effect still fits.
//!
//! A ledger (`ports::ledger`) calls [`Budget::fit`] within the write that reserves an amount, so no
//! concurrent reservation can come between.
use crate::cost::Cost;
use crate::id::{OrgId, SessionId, TurnId};
use crate::{Error, Kind, Millis};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Add;
use std::str::FromStr;
use std::time::Duration;

/// An amount of usage: what was used, or the most that an effect may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageAmount {
    /// Tokens that models read and wrote.
    pub tokens: u64,
    /// The cost of these tokens and of tool calls with a price.
    pub money: Cost,
    /// Calls of models and tools.
    pub calls: u64,
    /// Milliseconds for which turns were driven.
    pub millis: u64,
}

impl UsageAmount {
    /// No usage.
    pub const ZERO: Self = Self { tokens: 0, money: Cost::ZERO, calls: 0, millis: 0 };

    /// Creates an amount that consists of time only.
    pub fn time(time: Duration) -> Self {
        Self { millis: u64::try_from(time.as_millis()).unwrap_or(u64::MAX), ..Self::ZERO }
    }

    /// Subtracts another amount, saturating at zero.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            money: self.money.saturating_sub(other.money),
            calls: self.calls.saturating_sub(other.calls),
            millis: self.millis.saturating_sub(other.millis),
        }
    }

    /// Returns whether the other amount is at most this one in every measure.
    pub fn covers(self, other: Self) -> bool {
        other.saturating_sub(self) == Self::ZERO
    }

    /// Creates an amount that is limited in one measure and unlimited in all others.
    pub fn at_most(measure: Measure, most: u128) -> Self {
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let money = Cost::of_picodollars(u64::MAX);
        let endless = Self { tokens: u64::MAX, money, calls: u64::MAX, millis: u64::MAX };
        match measure {
            Measure::Tokens => Self { tokens: most, ..endless },
            Measure::Money => Self { money: Cost::of_picodollars(most), ..endless },
            Measure::Calls => Self { calls: most, ..endless },
            Measure::Time => Self { millis: most, ..endless },
        }
    }

    /// Returns the amount in one measure: tokens, calls, picodollars or milliseconds.
    pub fn of(self, measure: Measure) -> u128 {
        match measure {
            Measure::Tokens => self.tokens.into(),
            Measure::Money => self.money.picos(),
            Measure::Calls => self.calls.into(),
            Measure::Time => self.millis.into(),
        }
    }
}

impl Add for UsageAmount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            money: self.money + other.money,
            calls: self.calls.saturating_add(other.calls),
            millis: self.millis.saturating_add(other.millis),
        }
    }
}

/// A unit that budgets limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Tokens.
    Tokens,
    /// Money.
    Money,
    /// Calls of models and tools.
    Calls,
    /// Time.
    Time,
}

impl Measure {
    const ALL: [Self; 4] = [Self::Tokens, Self::Money, Self::Calls, Self::Time];

    /// Returns the name of the measure.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Money => "money",
            Self::Calls => "calls",
            Self::Time => "time",
        }
    }

    /// Formats an amount of this measure for people.
    fn display(self, amount: u128) -> String {
        let whole = || u64::try_from(amount).unwrap_or(u64::MAX);
        match self {
            Self::Tokens => format!("{amount} tokens"),
            Self::Money => format!("${}", Cost::of_picodollars(whole())),
            Self::Calls => format!("{amount} calls"),
            Self::Time => format!("{} s", amount / 1_000),
        }
    }
}

/// The reason why an effect does not fit a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetDeficit {
    /// The cost of the effect is unknown, and money is limited.
    Price,
    /// Too little of the budget is left.
    Insufficient {
        /// The measure that is exhausted.
        measure: Measure,
        /// The most that the effect may need.
        want: u128,
        /// The amount that was used or is reserved.
        used: u128,
        /// The limit.
        most: u128,
    },
}

impl BudgetDeficit {
    /// Returns the measure that is exhausted.
    pub const fn measure(self) -> Measure {
        match self {
            Self::Price => Measure::Money,
            Self::Insufficient { measure, .. } => measure,
        }
    }
}

impl fmt::Display for BudgetDeficit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Price => f.write_str("the price of the model is unknown; give it a price, or limit tokens"),
            Self::Insufficient { measure: Measure::Time, used, most, .. } => {
                write!(f, "{} of {} are used", Measure::Time.display(used), Measure::Time.display(most))
            }
            Self::Insufficient { measure, want, used, most } => {
                let left = most.saturating_sub(used);
                write!(f, "it needs up to {}, and of {} ", measure.display(want), measure.display(most))?;
                write!(f, "{} are left", measure.display(left))
            }
        }
    }
}

/// The limits of a budget. A measure without a limit is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money: Option<Cost>,
    /// Calls of models and tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Time for which turns are driven. Waits are free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Duration>,
    /// The share above which a warning says that the budget is low.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<Percent>,
    /// The share above which turns park until a person raises the budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_at: Option<Percent>,
    /// The period after which the usage starts again at zero. Without it, it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<Period>,
}

/// Whether an effect fits a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetFit {
    /// It fits.
    Fits,
    /// It fits, and the budget is low.
    Low(Measure),
    /// It would exceed the share at which turns park.
    Pauses(Measure),
    /// Too little is left for it.
    Over(Measure),
}

impl Budget {
    /// Returns whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        Measure::ALL.into_iter().all(|measure| self.most(measure).is_none())
    }

    /// Returns whether `want` fits in addition to what is used already.
    pub fn fit(&self, used: UsageAmount, want: UsageAmount) -> BudgetFit {
        let bounds = || Measure::ALL.into_iter().filter_map(|measure| Some((measure, self.most(measure)?)));
        let after = |measure| (used + want).of(measure);
        // The duration of an effect is unknown beforehand, so time is exhausted when it is used up.
        let over = |measure: Measure, most: u128| match measure {
            Measure::Time => after(measure) >= most,
            _ => after(measure) > most,
        };
        let beyond = |share: Option<Percent>| {
            bounds().find(|(measure, most)| share.is_some_and(|share| over(*measure, share.of(*most))))
        };
        // An effect larger than the whole budget never fits, so waiting would not help.
        if let Some((measure, _)) = bounds().find(|(measure, most)| want.of(*measure) > *most) {
            return BudgetFit::Over(measure);
        }
        if let Some((measure, _)) = beyond(self.pause_at) {
            return BudgetFit::Pauses(measure);
        }
        if let Some((measure, _)) = bounds().find(|(measure, most)| over(*measure, *most)) {
            return BudgetFit::Over(measure);
        }
        beyond(self.warn_at).map_or(BudgetFit::Fits, |(measure, _)| BudgetFit::Low(measure))
    }

    /// Returns why `want` does not fit in addition to what is used already.
    pub fn lacks(&self, used: UsageAmount, want: UsageAmount, measure: Measure) -> BudgetDeficit {
        let most = self.most(measure).unwrap_or(u128::MAX);
        let pauses = self.pause_at.filter(|_| want.of(measure) <= most);
        let most = pauses.map_or(most, |share| share.of(most));
        BudgetDeficit::Insufficient { measure, want: want.of(measure), used: used.of(measure), most }
    }

    fn most(&self, measure: Measure) -> Option<u128> {
        match measure {
            Measure::Tokens => self.tokens.map(u128::from),
            Measure::Money => self.money.map(Cost::picos),
            Measure::Calls => self.calls.map(u128::from),
            Measure::Time => self.time.map(|time| time.as_millis()),
        }
    }
}

/// A share of a budget in percent, from 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Percent(u8);

impl Percent {
    fn of(self, most: u128) -> u128 {
        most.saturating_mul(self.0.into()) / 100
    }
}

impl TryFrom<u8> for Percent {
    type Error = Error;

    fn try_from(percent: u8) -> Result<Self, Error> {
        if (1..=100).contains(&percent) {
            return Ok(Self(percent));
        }
        Err(Error::new(Kind::InputInvalid, format!("expected a share from 1 to 100 percent, got {percent}")))
    }
}

impl FromStr for Percent {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let percent = text.parse::<u8>().map_err(|_| {
            Error::new(Kind::InputInvalid, format!("expected a share from 1 to 100 percent, got `{text}`"))
        })?;
        Self::try_from(percent)
    }
}

impl From<Percent> for u8 {
    fn from(percent: Percent) -> Self {
        percent.0
    }
}

/// The period after which a budget starts again, by the UTC calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// Every day.
    Day,
    /// Every month.
    Month,
}

impl Period {
    /// Returns the name of the period that contains an instant: `2026-11-16` or `2026-11`.
    pub fn at(self, now: Millis) -> String {
        let (year, month, day) = civil(now.0 / 86_400_000);
        match self {
            Self::Day => format!("{year:04}-{month:02}-{day:02}"),
            Self::Month => format!("{year:04}-{month:02}"),
        }
    }

    /// Returns the kind of period with this name, in the format of [`Period::at`].
    pub fn named(name: &str) -> Option<Self> {
        let parts: Vec<usize> = name.split('-').map(str::len).collect();
        let is_date = name.chars().all(|c| c.is_ascii_digit() || c == '-');
        match parts[..] {
            [4, 2, 2] if is_date => Some(Self::Day),
            [4, 2] if is_date => Some(Self::Month),
            _ => None,
        }
    }

    /// Returns the end of the period that contains an instant.
    pub fn end(self, now: Millis) -> Millis {
        const DAY: u64 = 86_400_000;
        let today = now.0 / DAY;
        let next = match self {
            Self::Day => today + 1,
            Self::Month => {
                let (_, month, _) = civil(today);
                (today + 1..=today + 31).find(|day| civil(*day).1 != month).unwrap_or(u64::MAX / DAY)
            }
        };
        Millis(next * DAY)
    }
}

/// Returns the date of a day counted from 1970-01-01. Years begin in March here, so that a leap day is the
/// last day of its year.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months = (5 * of_year + 2) / 153;
    let (day, month) =
        (of_year - (153 * months + 2) / 5 + 1, if months < 10 { months + 3 } else { months - 9 });
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// The default budgets of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budgets {
    /// The budget of each turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Budget>,
    /// The budget of each session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Budget>,
    /// The budget of all its turns together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Budget>,
    /// The most tokens of one reply. This amount is reserved for each reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_tokens: Option<u32>,
}

impl Budgets {
    /// Returns whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether one of the budgets limits money.
    pub fn bounds_money(&self) -> bool {
        [&self.turn, &self.session, &self.agent].into_iter().flatten().any(|budget| budget.money.is_some())
    }
}

/// The owner of a budget. Owners are nested: usage of a turn is also usage of its session, agent and
/// organisation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum BudgetAccount {
    /// A turn.
    Turn(TurnId),
    /// A session.
    Session(SessionId),
    /// An agent, over all its sessions.
    Agent(String),
    /// An organisation.
    Org(OrgId),
}

impl fmt::Display for BudgetAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turn(turn) => turn.fmt(f),
            Self::Session(session) => session.fmt(f),
            Self::Agent(name) => write!(f, "agent:{name}"),
            Self::Org(org) => org.fmt(f),
        }
    }
}

impl FromStr for BudgetAccount {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |_| {
            let detail =
                format!("expected `agent:NAME` or the id of a turn, session or organisation, got `{text}`");
            Error::new(Kind::InputInvalid, detail)
        };
        match text.split_once([':', '_']) {
            Some(("agent", name)) if !name.is_empty() => Ok(Self::Agent(name.to_owned())),
            Some(("trn", _)) => text.parse().map(Self::Turn).map_err(wrong),
            Some(("ses", _)) => text.parse().map(Self::Session).map_err(wrong),
            _ => text.parse().map(Self::Org).map_err(wrong),
        }
    }
}

impl TryFrom<String> for BudgetAccount {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<BudgetAccount> for String {
    fn from(account: BudgetAccount) -> Self {
        account.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(tokens: u64) -> UsageAmount {
        UsageAmount { tokens, ..UsageAmount::ZERO }
    }

    fn budget(most: u64) -> Budget {
        Budget { tokens: Some(most), ..Budget::default() }
    }

    #[track_caller]
    fn check(budget: &Budget, used: u64, want: u64, fit: BudgetFit) {
        assert_eq!(budget.fit(tokens(used), tokens(want)), fit, "{used} + {want}");
    }

    #[test]
    fn amount_fits_up_to_exactly_the_budget() {
        check(&budget(100), 60, 40, BudgetFit::Fits);
        check(&budget(100), 60, 41, BudgetFit::Over(Measure::Tokens));
        check(&budget(0), 0, 1, BudgetFit::Over(Measure::Tokens));
        check(&Budget::default(), u64::MAX, u64::MAX, BudgetFit::Fits);
    }

    #[test]
    fn turn_pauses_before_exceeding_its_budget() {
        let soft = Budget { warn_at: Some(Percent(50)), pause_at: Some(Percent(80)), ..budget(100) };
        check(&soft, 0, 50, BudgetFit::Fits);
        check(&soft, 0, 51, BudgetFit::Low(Measure::Tokens));
        check(&soft, 80, 1, BudgetFit::Pauses(Measure::Tokens));
        check(&soft, 80, 100, BudgetFit::Pauses(Measure::Tokens));
    }

    #[test]
    fn amount_over_whole_budget_does_not_wait() {
        let soft = Budget { pause_at: Some(Percent(80)), ..budget(100) };
        check(&soft, 0, 101, BudgetFit::Over(Measure::Tokens));
        check(&soft, 90, 101, BudgetFit::Over(Measure::Tokens));
        check(&soft, 0, 100, BudgetFit::Pauses(Measure::Tokens));
    }

    #[test]
    fn time_budget_ends_when_used_up() {
        let minute = Budget { time: Some(Duration::from_mins(1)), ..Budget::default() };
        let used = |seconds| UsageAmount::time(Duration::from_secs(seconds));
        assert_eq!(minute.fit(used(59), UsageAmount::ZERO), BudgetFit::Fits);
        assert_eq!(minute.fit(used(60), UsageAmount::ZERO), BudgetFit::Over(Measure::Time));
    }

    #[test]
    fn period_is_named_by_its_date() {
        let day = |days: u64| Period::Day.at(Millis(days * 86_400_000 + 5));
        assert_eq!(day(0), "1970-01-01");
        assert_eq!(day(59), "1970-03-01");
        assert_eq!(day(11_016), "2000-02-29");
        assert_eq!(day(11_017), "2000-03-01");
        assert_eq!(day(20_773), "2026-11-16");
        assert_eq!(Period::Month.at(Millis(20_773 * 86_400_000)), "2026-11");
        for period in [Period::Day, Period::Month] {
            assert_eq!(Period::named(&period.at(Millis(20_773 * 86_400_000))), Some(period));
        }
        for other in ["", "clerk", "2026", "2026-1", "abcd-ef"] {
            assert_eq!(Period::named(other), None);
        }
    }

    #[test]
    fn a_period_ends_where_the_next_one_begins() {
        for (period, next) in [(Period::Day, "2026-11-17"), (Period::Month, "2026-12-01")] {
            let end = period.end(Millis(20_773 * 86_400_000 + 5));
            assert_eq!(Period::Day.at(end), next);
            assert_ne!(Period::Day.at(Millis(end.0 - 1)), next);
        }
    }

    #[test]
    fn shortage_is_reported_with_numbers() {
        let check = |budget: &Budget, used, want, measure, said: &str| {
            assert_eq!(budget.lacks(used, want, measure).to_string(), said);
        };
        let said = "it needs up to 41 tokens, and of 100 tokens 40 tokens are left";
        check(&budget(100), tokens(60), tokens(41), Measure::Tokens, said);
        let soft = Budget { pause_at: Some(Percent(50)), ..budget(100) };
        let said = "it needs up to 41 tokens, and of 50 tokens 0 tokens are left";
        check(&soft, tokens(60), tokens(41), Measure::Tokens, said);
        let said = "it needs up to 101 tokens, and of 100 tokens 40 tokens are left";
        check(&soft, tokens(60), tokens(101), Measure::Tokens, said);
        let minute = Budget { time: Some(Duration::from_mins(1)), ..Budget::default() };
        let used = UsageAmount::time(Duration::from_secs(61));
        check(&minute, used, UsageAmount::ZERO, Measure::Time, "61 s of 60 s are used");
        let cent = Budget { money: Some("0.01".parse().unwrap()), ..Budget::default() };
        let want = UsageAmount { money: "0.25".parse().unwrap(), ..UsageAmount::ZERO };
        let said = "it needs up to $0.25, and of $0.01 $0.01 are left";
        check(&cent, UsageAmount::ZERO, want, Measure::Money, said);
    }

    #[test]
    fn budget_account_round_trips_as_text() {
        let ids = [
            BudgetAccount::Turn(TurnId::from_u128(1)),
            BudgetAccount::Session(SessionId::from_u128(2)),
            BudgetAccount::Agent("a:b_c".to_owned()),
            BudgetAccount::Org(OrgId::from_u128(3)),
        ];
        for account in ids {
            assert_eq!(account.to_string().parse::<BudgetAccount>().unwrap(), account);
        }
        for wrong in ["", "agent:", "clerk", "trn_1", "ses_x"] {
            assert_eq!(wrong.parse::<BudgetAccount>().unwrap_err().kind(), Kind::InputInvalid, "{wrong}");
        }
    }
}
