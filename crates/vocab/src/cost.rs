//! Money: prices per token and the cost of a reply, as exact decimals.
use crate::effect::Usage;
use crate::{Error, Kind};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::Add;
use std::str::FromStr;

/// Picodollars in a dollar. At this resolution, every provider's price per token is a whole number.
const DOLLAR: u64 = 1_000_000_000_000;
/// The number of decimals of a dollar that are stored.
const DECIMALS: usize = 12;
/// The number of tokens that a price is given for.
const MILLION: u64 = 1_000_000;

/// An amount of US dollars, written as a decimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cost(u64);

impl Cost {
    /// No cost.
    pub const ZERO: Self = Self(0);

    /// Subtracts another cost, saturating at zero.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the cost in picodollars, as databases store it.
    pub const fn picodollars(self) -> u64 {
        self.0
    }

    /// Creates a cost from picodollars.
    pub const fn of_picodollars(picodollars: u64) -> Self {
        Self(picodollars)
    }

    pub(crate) const fn picos(self) -> u128 {
        self.0 as u128
    }

    /// Subtracts another cost. Returns `None` if the other is larger.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    fn times(self, tokens: u64) -> Self {
        Self(self.0.saturating_mul(tokens))
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dollars, rest) = (self.0 / DOLLAR, self.0 % DOLLAR);
        let decimals = format!("{rest:0DECIMALS$}");
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{dollars}"),
            decimals => write!(f, "{dollars}.{decimals}"),
        }
    }
}

impl FromStr for Cost {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            let detail =
                format!("expected dollars like `0.25` with at most {DECIMALS} decimals, got `{text}`");
            Error::new(Kind::InputInvalid, detail)
        };
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let (dollars, decimals) = text.split_once('.').unwrap_or((text, "0"));
        if !digits(dollars) || !digits(decimals) || decimals.len() > DECIMALS {
            return Err(wrong());
        }
        let whole = dollars.parse::<u64>().ok().and_then(|dollars| dollars.checked_mul(DOLLAR));
        let rest = format!("{decimals:0<DECIMALS$}").parse::<u64>().ok();
        whole.zip(rest).and_then(|(whole, rest)| whole.checked_add(rest)).map(Self).ok_or_else(wrong)
    }
}

impl TryFrom<String> for Cost {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Cost> for String {
    fn from(cost: Cost) -> Self {
        cost.to_string()
    }
}

/// The prices of one token of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    input: Cost,
    cache_read: Cost,
    cache_write: Cost,
    output: Cost,
}

/// Prices in the unit that providers publish: dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PricesPerMillion {
    /// The price of input tokens.
    pub input: Cost,
    /// The price of tokens read from the prompt cache. Defaults to `input`.
    pub cache_read: Option<Cost>,
    /// The price of tokens written to the prompt cache. Defaults to `input`.
    pub cache_write: Option<Cost>,
    /// The price of output tokens, including reasoning.
    pub output: Cost,
}

impl TryFrom<PricesPerMillion> for Prices {
    type Error = Error;

    fn try_from(prices: PricesPerMillion) -> Result<Self, Error> {
        let per_token = |price: Cost| {
            if price.0.is_multiple_of(MILLION) {
                return Ok(Cost(price.0 / MILLION));
            }
            let detail =
                format!("expected a price per million tokens with at most 6 decimals, got `{price}`");
            Err(Error::new(Kind::InputInvalid, detail))
        };
        let PricesPerMillion { input, cache_read, cache_write, output } = prices;
        Ok(Self {
            input: per_token(input)?,
            cache_read: per_token(cache_read.unwrap_or(input))?,
            cache_write: per_token(cache_write.unwrap_or(input))?,
            output: per_token(output)?,
        })
    }
}

impl Prices {
    /// Returns the most that this many input and output tokens can cost, whatever the prompt cache does.
    pub fn most(&self, read: u64, said: u64) -> Cost {
        self.input.max(self.cache_read).max(self.cache_write).times(read) + self.output.times(said)
    }

    /// Returns the cost of this usage. Reasoning is charged as output.
    pub fn of(&self, usage: &Usage) -> Cost {
        let Usage { input, cache_read, cache_write, output, reasoning } = *usage;
        self.input.times(input)
            + self.cache_read.times(cache_read)
            + self.cache_write.times(cache_write)
            + self.output.times(output.saturating_add(reasoning))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, shown: &str) {
        assert_eq!(text.parse::<Cost>().unwrap().to_string(), shown);
    }

    #[test]
    fn money_reads_and_writes_as_a_decimal() {
        check("0", "0");
        check("3", "3");
        check("0.10", "0.1");
        check("12.000000000001", "12.000000000001");
        for wrong in ["", ".5", "1.", "-1", "1e3", "0.0000000000001", "99999999999999999999", "1,5"] {
            assert_eq!(wrong.parse::<Cost>().unwrap_err().kind(), Kind::InputInvalid, "{wrong}");
        }
    }

    #[test]
    fn usage_cost_is_exact_per_bucket() {
        let dollars = |text: &str| text.parse::<Cost>().unwrap();
        let prices = Prices::try_from(PricesPerMillion {
            input: dollars("0.075"),
            cache_read: Some(dollars("0.0075")),
            cache_write: None,
            output: dollars("0.3"),
        });
        let usage = Usage { input: 1_000, cache_read: 3, cache_write: 1, output: 10, reasoning: 1 };
        assert_eq!(prices.unwrap().of(&usage).to_string(), "0.0000783975");
    }

    #[test]
    fn price_with_too_many_decimals_is_refused() {
        let price = "0.0000001".parse::<Cost>().unwrap();
        let prices = PricesPerMillion { input: price, cache_read: None, cache_write: None, output: price };
        assert_eq!(
            Prices::try_from(prices).unwrap_err().to_string(),
            "input.invalid: expected a price per million tokens with at most 6 decimals, got `0.0000001`"
        );
    }
}
