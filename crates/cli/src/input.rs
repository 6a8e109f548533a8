//! Parses arguments: input text, JSON, names, durations and times.
use outlast::vocab::Millis;
use outlast::vocab::access::Principal;
use outlast::vocab::limits;
use outlast::vocab::message::{Name, shown};
use outlast::{Error, Kind, Limits};
use serde_json::Value;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// Returns the argument, or all of standard input if it is `-`.
pub(crate) fn text(argument: &str) -> Result<String, Error> {
    if argument != "-" {
        return Ok(argument.to_owned());
    }
    // One byte over the limit is enough to refuse the input, so the rest is not read.
    let most = Limits::default().input_bytes;
    let mut bytes = Vec::new();
    io::stdin().lock().take(most as u64 + 1).read_to_end(&mut bytes).map_err(|cause| {
        Error::new(Kind::IoFailed, format!("standard input cannot be read: {cause}")).because(cause)
    })?;
    limits::check("input_bytes", bytes.len(), most)?;
    utf8(bytes)
}

/// Decodes UTF-8 and removes one trailing newline, which shells add.
fn utf8(bytes: Vec<u8>) -> Result<String, Error> {
    let mut text = String::from_utf8(bytes).map_err(|cause| {
        let at = cause.utf8_error().valid_up_to();
        Error::new(Kind::InputInvalid, format!("expected UTF-8 on standard input, but byte {at} is invalid"))
    })?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

/// Parses a person's name.
///
/// Text in the form of a principal, which includes a kind, is refused: an agent could pass as a person.
pub(crate) fn name(flag: &str, text: &str) -> Result<Name, Error> {
    if text.parse::<Principal>().is_ok() {
        let detail = format!("expected a name for {flag}, like `ann`, got `{}`", shown(text));
        return Err(Error::new(Kind::InputInvalid, detail));
    }
    text.parse()
}

/// Parses JSON from a flag.
pub(crate) fn json(flag: &str, text: &str) -> Result<Value, Error> {
    serde_json::from_str(text).map_err(|cause| {
        Error::new(
            Kind::InputInvalid,
            format!("expected JSON after `{flag}`, got `{}`: {cause}", shown(text)),
        )
    })
}

/// Reads JSON from a file.
pub(crate) fn json_file(path: &Path) -> Result<Value, Error> {
    let text = std::fs::read_to_string(path).map_err(|cause| {
        Error::new(Kind::IoFailed, format!("{} cannot be read: {cause}", path.display())).because(cause)
    })?;
    serde_json::from_str(&text).map_err(|cause| {
        Error::new(Kind::InputInvalid, format!("{}: expected JSON: {cause}", path.display()))
    })
}

/// Parses a duration from a flag: a number and `s`, `m`, `h`, `d` or `w`.
pub(crate) fn span(flag: &str, text: &str) -> Result<Duration, Error> {
    parse_span(text).ok_or_else(|| {
        let detail =
            format!("expected a time span like `90d`, `12h` or `30m` after `{flag}`, got `{}`", shown(text));
        Error::new(Kind::InputInvalid, detail)
    })
}

fn parse_span(text: &str) -> Option<Duration> {
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        'w' => 7 * 24 * 60 * 60,
        _ => return None,
    };
    let number: u32 = text[..text.len() - 1].parse().ok()?;
    Some(Duration::from_secs(u64::from(number) * unit))
}

/// Parses a time in the past from a flag: a day, a timestamp, or a duration before now.
pub(crate) fn moment(flag: &str, text: &str, now: Millis) -> Result<Millis, Error> {
    let ago = || {
        let ago = u64::try_from(parse_span(text)?.as_millis()).ok()?;
        Some(Millis(now.0.saturating_sub(ago)))
    };
    let day =
        || Some(text.parse::<jiff::civil::Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp());
    let time = || text.parse::<jiff::Timestamp>().ok();
    let at = |time: jiff::Timestamp| u64::try_from(time.as_millisecond()).ok().map(Millis);
    ago().or_else(|| time().or_else(day).and_then(at)).ok_or_else(|| {
        let detail = format!(
            "expected how long ago (`2h`), a day (`2026-01-31`) or a time (`2026-01-31T09:00:00Z`) after `{flag}`, got `{}`",
            shown(text)
        );
        Error::new(Kind::InputInvalid, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_said_as_a_span_a_day_or_a_time() {
        let now = Millis(1_700_000_000_000);
        let moment = |text| moment("--since", text, now).map(|at| at.0);
        assert_eq!(moment("2h").unwrap(), now.0 - 7_200_000);
        assert_eq!(moment("3w").unwrap(), now.0 - 3 * 604_800_000);
        assert_eq!(moment("2023-11-14").unwrap(), 1_699_920_000_000);
        assert_eq!(moment("2023-11-14T22:13:20Z").unwrap(), now.0);
        for text in ["", "2", "h", "-2h", "yesterday", "2023-13-01", "1969-01-01"] {
            assert_eq!(moment(text).unwrap_err().kind(), Kind::InputInvalid, "{text}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_with_their_place() {
        assert_eq!(utf8(b"hi\n".to_vec()).unwrap(), "hi");
        assert_eq!(
            utf8(b"hi \xff".to_vec()).unwrap_err().to_string(),
            "input.invalid: expected UTF-8 on standard input, but byte 3 is invalid"
        );
    }
}
