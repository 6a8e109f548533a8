//! Redacts secrets in text that other programs wrote, such as error messages and responses that echo a key.

/// The replacement of a secret.
pub const REDACTED: &str = "[redacted]";

/// The fewest bytes of a secret that is redacted within other text.
pub const SECRET_BYTES_LEAST: usize = 8;

/// Returns a text with these secrets redacted. Each line of a multi-line secret is redacted too. The text may
/// begin within a secret, if only its end was kept.
pub fn redact<'s>(text: &str, secrets: impl IntoIterator<Item = &'s str>) -> String {
    let lines = secrets.into_iter().flat_map(|secret| std::iter::once(secret).chain(secret.lines()));
    let mut secrets: Vec<&str> =
        lines.map(str::trim).filter(|secret| secret.len() >= SECRET_BYTES_LEAST).collect();
    // Longest first, because one secret may be a prefix of another.
    secrets.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
    let text = match secrets.iter().filter_map(|secret| tail_at_start(text, secret)).max() {
        Some(end) => format!("{REDACTED}{}", &text[end..]),
        None => text.to_owned(),
    };
    secrets.into_iter().fold(text, |text, secret| text.replace(secret, REDACTED))
}

/// Returns the length of the end of a secret with which a text begins, if it does.
fn tail_at_start(text: &str, secret: &str) -> Option<usize> {
    let tails = secret.char_indices().map(|(at, _)| &secret[at..]).skip(1);
    tails
        .take_while(|tail| tail.len() >= SECRET_BYTES_LEAST)
        .find(|tail| text.starts_with(tail))
        .map(str::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_replaced_wherever_they_appear() {
        let secrets = ["canary-7f3a", "canary-7f3a-longer", "short", "first line\nsecond line"];
        for (text, want) in [
            ("no secret", "no secret"),
            ("a canary-7f3a b canary-7f3a", "a [redacted] b [redacted]"),
            ("canary-7f3a-longer!", "[redacted]!"),
            ("short stays", "short stays"),
            ("x second line\ny", "x [redacted]\ny"),
            ("ary-7f3a was cut", "[redacted] was cut"),
            ("7f3a is too short", "7f3a is too short"),
        ] {
            assert_eq!(redact(text, secrets), want);
        }
        assert_eq!(redact("anything", []), "anything");
    }
}
