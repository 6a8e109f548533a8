//! Secrets of our environment in what programs write that find them in theirs.
use outlast_vocab::secret::redact;
use std::path::Path;

/// Variables whose values are no secrets.
const PLAIN: &[&str] =
    &["PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM", "PWD", "OLDPWD"];

/// Returns what a program wrote, without the values of these variables of our environment. The program found them in its own, and
/// may have echoed them. A value that is a path on this machine is no secret.
pub fn without_variables(text: &str, names: &[String]) -> String {
    let values = names.iter().filter(|name| !PLAIN.contains(&name.as_str()));
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
    fn paths_and_plain_variables_are_kept() {
        // Cargo sets these: a path, a name, and the version of a crate, which is too short.
        let names = ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION", "PATH"].map(str::to_owned);
        let (path, name) = (env!("CARGO_MANIFEST_DIR"), env!("CARGO_PKG_NAME"));
        let text = format!("{path} of {name} 0.1.0");
        let want = format!("{path} of [redacted] 0.1.0").replace(name, "[redacted]");
        assert_eq!(without_variables(&text, &names), want);
    }
}
