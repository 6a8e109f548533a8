//! What a person passes: an input as an argument or on standard input, JSON in a flag.
use outlast::vocab::limits;
use outlast::vocab::message::shown;
use outlast::{Error, Kind, Limits};
use serde_json::Value;
use std::io::{self, Read};
use std::path::Path;

/// The input: the argument itself, or all of standard input if it is `-`.
pub(crate) fn text(argument: &str) -> Result<String, Error> {
    if argument != "-" {
        return Ok(argument.to_owned());
    }
    // One byte more than is allowed is enough to be refused; the rest need not be read.
    let most = Limits::default().input_bytes;
    let mut bytes = Vec::new();
    io::stdin().lock().take(most as u64 + 1).read_to_end(&mut bytes).map_err(|cause| {
        Error::new(Kind::IoFailed, format!("standard input cannot be read: {cause}")).because(cause)
    })?;
    limits::check("input_bytes", bytes.len(), most)?;
    utf8(bytes)
}

/// The text without the line end that a shell puts behind it.
fn utf8(bytes: Vec<u8>) -> Result<String, Error> {
    let mut text = String::from_utf8(bytes).map_err(|cause| {
        let at = cause.utf8_error().valid_up_to();
        Error::new(Kind::InputInvalid, format!("expected UTF-8 on standard input, but byte {at} is none"))
    })?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

/// JSON from a flag.
pub(crate) fn json(flag: &str, text: &str) -> Result<Value, Error> {
    serde_json::from_str(text).map_err(|cause| {
        Error::new(
            Kind::InputInvalid,
            format!("expected JSON after `{flag}`, got `{}`: {cause}", shown(text)),
        )
    })
}

/// JSON from a file.
pub(crate) fn json_file(path: &Path) -> Result<Value, Error> {
    let text = std::fs::read_to_string(path).map_err(|cause| {
        Error::new(Kind::IoFailed, format!("{} cannot be read: {cause}", path.display())).because(cause)
    })?;
    serde_json::from_str(&text).map_err(|cause| {
        Error::new(Kind::InputInvalid, format!("{}: expected JSON: {cause}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_refused_with_their_place() {
        assert_eq!(utf8(b"hi\n".to_vec()).unwrap(), "hi");
        assert_eq!(
            utf8(b"hi \xff".to_vec()).unwrap_err().to_string(),
            "input.invalid: expected UTF-8 on standard input, but byte 3 is none"
        );
    }
}
