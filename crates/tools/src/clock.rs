//! `clock`: returns the current time.
use jiff::Timestamp;
use jiff::tz::Offset;
use outlast_ports::service::Service;
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, done, failed};
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;

/// The clock that [`Clock`] reads, as a service.
pub struct WallClock(pub Arc<dyn outlast_ports::clock::Clock>);

/// The tool that returns the time to the second, in UTC or with an offset.
pub struct Clock;

/// What the model passes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClockArgs {
    /// An offset from UTC like `+02:00`; UTC when absent.
    offset: Option<String>,
}

impl Tool for Clock {
    type Args = ClockArgs;
    type Needs = Service<WallClock>;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("clock", "Tells the current date and time as ISO 8601, to the second.").pure().trusted()
    }

    async fn run(
        &self,
        clock: Service<WallClock>,
        _: Call,
        args: ClockArgs,
    ) -> Result<ToolRunOutcome, Error> {
        let seconds = i64::try_from(clock.0.now().0 / 1_000).ok();
        let now = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
        let now = now.ok_or_else(|| failed("the clock shows a time after the year 9999"))?;
        done(match args.offset {
            Some(text) => now.display_with_offset(offset(&text)?).to_string(),
            None => now.to_string(),
        })
    }
}

fn offset(text: &str) -> Result<Offset, Error> {
    let parsed = || {
        let (sign, rest) = match text.split_at_checked(1)? {
            ("+", rest) => (1, rest),
            ("-", rest) => (-1, rest),
            _ => return None,
        };
        let (hours, minutes) = rest.split_once(':')?;
        let number = |text: &str, most: i32| {
            let two_digits = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<i32>().ok().filter(|number| two_digits && *number <= most)
        };
        Offset::from_seconds(sign * (number(hours, 23)? * 3_600 + number(minutes, 59)? * 60)).ok()
    };
    parsed().ok_or_else(|| {
        let detail = format!("expected an offset from UTC like `+02:00` or `-03:30`, got `{}`", shown(text));
        Error::new(Kind::ToolArgsInvalid, detail)
    })
}

#[cfg(test)]
mod tests {
    use crate::tool_tester::ToolTester;
    use expect_test::expect;
    use serde_json::json;

    #[test]
    fn clock_returns_utc_or_an_offset_time() {
        let trial = ToolTester::new();
        let asked = [
            json!({}),
            json!({"offset": "+02:00"}),
            json!({"offset": "-03:30"}),
            json!({"offset": "Berlin"}),
            json!({"offset": "+2:00"}),
            json!({"offset": "+24:00"}),
            json!({"offset": "é"}),
            json!({"zone": "UTC"}),
        ];
        let log: String = asked.map(|arguments| trial.show("clock", arguments)).concat();
        expect![[r#"
            "2026-07-03T10:20:30Z"
            "2026-07-03T12:20:30+02:00"
            "2026-07-03T06:50:30-03:30"
            tool.args_invalid: expected an offset from UTC like `+02:00` or `-03:30`, got `Berlin`
            tool.args_invalid: expected an offset from UTC like `+02:00` or `-03:30`, got `+2:00`
            tool.args_invalid: expected an offset from UTC like `+02:00` or `-03:30`, got `+24:00`
            tool.args_invalid: expected an offset from UTC like `+02:00` or `-03:30`, got `é`
            tool.args_invalid: the arguments do not fit: unknown field `zone`, expected `offset`
        "#]]
        .assert_eq(&log);
    }
}
