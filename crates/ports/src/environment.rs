//! Redacts secrets of the process environment in the output of programs that inherited them.
use outlast_vocab::redaction::redact;
use std::path::Path;

/// Variables whose values are not secret.
const PUBLIC_VARIABLES: &[&str] =
    &["PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM", "PWD", "OLDPWD"];

/// Returns the output of a program with the values of these environment variables redacted.
///
/// The program inherited the variables and may have printed them. A value that is an existing path is not redacted.
pub fn redact_variables(text: &str, names: &[String]) -> String {
    let values = names.iter().filter(|name| !PUBLIC_VARIABLES.contains(&name.as_str()));
    let values: Vec<String> = values
        .filter_map(|name| std::env::var(name).ok())
        .filter(|value| !(value.starts_with('/') && Path::new(value).exists()))
        .collect();
    redact(text, values.iter().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redaction_keeps_paths_and_plain_variables() {
        // Cargo sets these: a path, a name, and the version of a crate, which is too short to be redacted.
        let names = ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION", "PATH"].map(str::to_owned);
        let (path, name) = (env!("CARGO_MANIFEST_DIR"), env!("CARGO_PKG_NAME"));
        let text = format!("{path} of {name} 0.1.0");
        let expected = format!("{path} of [redacted] 0.1.0").replace(name, "[redacted]");
        assert_eq!(redact_variables(&text, &names), expected);
    }
}
