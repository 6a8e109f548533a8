//! The `[[rates]]` tables: rate limits of calls.
use super::layers::TableLocation;
use outlast::Error;
use outlast::vocab::message::RateName;
use outlast::vocab::rate::{RateLimit, RatePeriod, WhenDown, WhenFull};
use schemars::JsonSchema;
use serde::Deserialize;
use std::num::NonZeroU32;
use std::time::Duration;

/// A rate limit for calls. All agents of an organisation share rates of the same name.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[[rates]]")]
pub(crate) struct RateTable {
    /// The name in records and messages.
    #[schemars(with = "String")]
    name: RateName,
    /// The tools that it applies to; `*` matches anything; default: every tool.
    tool: Option<String>,
    /// The number of calls.
    calls: NonZeroU32,
    /// The period: `second`, `minute`, `hour` or `day`.
    #[schemars(with = "String", extend("enum" = [RatePeriod::Second, RatePeriod::Minute, RatePeriod::Hour, RatePeriod::Day]))]
    per: RatePeriod,
    /// How many calls may start at once; default: 1.
    burst: Option<NonZeroU32>,
    /// How to handle a call over the limit: it waits (`wait`, default) or fails (`deny`).
    #[serde(default)]
    when_full: FullRateAction,
    /// Maximum seconds that a call waits; a call that would wait longer is denied. Default: 3600.
    wait_s: Option<NonZeroU32>,
    /// How to handle a call if an external limiter does not answer: `closed` (default) denies it, `open` lets it run.
    #[serde(default)]
    #[schemars(with = "String", extend("enum" = [WhenDown::Closed, WhenDown::Open]))]
    when_down: WhenDown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FullRateAction {
    #[default]
    Wait,
    Deny,
}

impl RateTable {
    /// Converts the table to a rate limit. The error says what is wrong.
    fn rate(self) -> Result<RateLimit, String> {
        let name = self.name;
        let most = self.wait_s.map(|seconds| Duration::from_secs(seconds.get().into()));
        let when_full = match (self.when_full, most) {
            (FullRateAction::Wait, most) => WhenFull::Wait { most },
            (FullRateAction::Deny, None) => WhenFull::Deny,
            (FullRateAction::Deny, Some(_)) => {
                return Err(format!(
                    "rate `{name}`: `wait_s` has no effect if `when_full` is `deny`; remove it"
                ));
            }
        };
        let tool = self.tool.unwrap_or_else(|| "*".to_owned());
        let rate = RateLimit::new(name, tool, self.calls, self.per);
        let burst = self.burst.unwrap_or(rate.burst);
        Ok(RateLimit { burst, when_full, when_down: self.when_down, ..rate })
    }
}

/// Converts the tables to rate limits. Their names must be unique.
pub(super) fn rates(tables: Vec<RateTable>, place: &TableLocation<'_>) -> Result<Vec<RateLimit>, Error> {
    let mut rates: Vec<RateLimit> = Vec::new();
    for (index, table) in tables.into_iter().enumerate() {
        let steps = ["rates", &index.to_string()];
        let rate = table.rate().map_err(|what| place.invalid(&steps, &what))?;
        if rates.iter().any(|other| other.name == rate.name) {
            let what = format!("two rates are called `{}`; names must be unique", rate.name);
            return Err(place.invalid(&steps, &what));
        }
        rates.push(rate);
    }
    Ok(rates)
}
