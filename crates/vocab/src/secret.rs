//! Removes secrets from text that other programs wrote, such as complaints and answers that echo a key.

/// What stands where a secret was.
pub const REDACTED: &str = "[redacted]";

/// The shortest text that is taken for a secret where it appears in other text.
pub const SECRET_BYTES_LEAST: usize = 8;

/// Returns a text without these secrets. Where a secret has several lines, each line of it counts. The text may begin within a
/// secret, because only the end of it was kept.
pub fn redact<'s>(text: &str, secrets: impl IntoIterator<Item = &'s str>) -> String {
    let lines = secrets.into_iter().flat_map(|secret| std::iter::once(secret).chain(secret.lines()));
    let mut secrets: Vec<&str> =
        lines.map(str::trim).filter(|secret| secret.len() >= SECRET_BYTES_LEAST).collect();
    // A secret may begin as another one does.
    secrets.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
    let text = match secrets.iter().filter_map(|secret| tail_at_start(text, secret)).max() {
        Some(end) => format!("{REDACTED}{}", &text[end..]),
        None => text.to_owned(),
    };
    secrets.into_iter().fold(text, |text, secret| text.replace(secret, REDACTED))
}

/// How long the end of a secret is with which a text begins, where it does.
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
