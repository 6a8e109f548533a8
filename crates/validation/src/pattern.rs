//! Measures regular expressions before they are compiled, and limits the work of replacements.
use outlast_vocab::limits::PATTERN_SIZE;
use outlast_vocab::message::shown;
use regex::{Regex, RegexBuilder};

/// The most bytes of one compiled regular expression.
pub(crate) const COMPILED_BYTES: usize = 1 << 20;

/// The most bytes of states that one regular expression caches while it matches.
const CACHE_BYTES: usize = 1 << 20;

/// The approximate number of states of a Unicode class such as `\p{L}`.
const UNICODE_CLASS: u64 = 64;

/// The size of a regular expression with its counted repetitions expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PatternSize {
    /// The number of characters, classes and groups, where `x{n}` counts as `n` times `x`.
    pub(crate) states: u64,
    /// Whether it uses look-around or back-references, which only a backtracking engine can match.
    pub(crate) backtracks: bool,
}

/// Returns the size of a regular expression with its counted repetitions expanded.
///
/// # Errors
/// Returns a description of the problem if the expression uses constructs of unknown size, or is larger than
/// [`PATTERN_SIZE`](outlast_vocab::limits::PATTERN_SIZE).
pub fn expanded_size(pattern: &str) -> Result<u64, String> {
    measure(pattern).map(|size| size.states)
}

pub(crate) fn measure(pattern: &str) -> Result<PatternSize, String> {
    let size = PatternScanner::new(pattern).scan()?;
    if size.states > PATTERN_SIZE {
        return Err(format!(
            "the regular expression `{}` is limited to a size of {PATTERN_SIZE} with its repetitions written out, but has {}",
            shown(pattern),
            size.states
        ));
    }
    Ok(size)
}

/// Compiles an external regular expression. Matching takes linear time in the text.
///
/// # Errors
/// Returns a description of the problem on one line.
pub fn compile_regex(pattern: &str, ignore_case: bool) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(pattern);
    builder.case_insensitive(ignore_case).size_limit(COMPILED_BYTES).dfa_size_limit(CACHE_BYTES);
    builder.build().map_err(|cause| {
        // The parser shows the position of the mistake over several lines. The last line describes it.
        let cause = cause.to_string();
        cause.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })
}

/// The reason why a replacement failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplaceError {
    /// The expression is invalid.
    Invalid(String),
    /// The replacement would need more steps than are left.
    TooMuchWork,
}

/// Replaces every match of an external regular expression, and subtracts the work from the steps left.
///
/// One search is linear in the text, but each match starts another search that may read the text to its end.
/// So each search costs the size of the expression for every byte after its start.
///
/// # Errors
/// Returns an error if the expression is invalid, or if the work would exceed the steps left.
pub fn replace_all(
    text: &str,
    pattern: &str,
    with: &str,
    steps_left: &mut u64,
) -> Result<String, ReplaceError> {
    let states = measure(pattern).map_err(ReplaceError::Invalid)?.states.max(1);
    let regex = compile_regex(pattern, false).map_err(ReplaceError::Invalid)?;
    let (mut matches, mut replaced, mut copied) = (regex.find_iter(text), String::new(), 0);
    loop {
        let most = states.saturating_mul((text.len() - copied) as u64 + 1);
        *steps_left = steps_left.checked_sub(most).ok_or(ReplaceError::TooMuchWork)?;
        let Some(found) = matches.next() else { break };
        replaced.push_str(&text[copied..found.start()]);
        replaced.push_str(with);
        copied = found.end();
    }
    replaced.push_str(&text[copied..]);
    Ok(replaced)
}

/// Scans a regular expression from left to right, with the sizes of the open groups.
struct PatternScanner<'p> {
    rest: &'p str,
    /// The size of each open group so far, the whole expression first.
    open: Vec<u64>,
    /// The size of what a repetition would repeat.
    last: u64,
    backtracks: bool,
}

impl<'p> PatternScanner<'p> {
    fn new(pattern: &'p str) -> Self {
        Self { rest: pattern, open: vec![1], last: 0, backtracks: false }
    }

    fn scan(mut self) -> Result<PatternSize, String> {
        while let Some(first) = self.rest.chars().next() {
            self.rest = &self.rest[first.len_utf8()..];
            match first {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.group()?,
                ')' if self.open.len() > 1 => {
                    let group = self.open.pop().unwrap_or_default();
                    self.add(group);
                }
                '{' => self.repetition(),
                '*' | '+' | '?' => self.grow(1),
                _ => self.add(1),
            }
        }
        let states = self.open.iter().fold(0, |sum: u64, size| sum.saturating_add(*size));
        Ok(PatternSize { states, backtracks: self.backtracks })
    }

    /// Appends an item of this size, which a repetition may repeat.
    fn add(&mut self, size: u64) {
        self.grow(size);
        self.last = size;
    }

    fn grow(&mut self, size: u64) {
        if let Some(open) = self.open.last_mut() {
            *open = open.saturating_add(size);
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        let Some(escaped) = self.rest.chars().next() else { return Ok(()) };
        self.rest = &self.rest[escaped.len_utf8()..];
        match escaped {
            // The compiler expands calls of groups, including calls within them.
            'g' => return Err("the regular expression uses `\\g`, which is not supported".to_owned()),
            'p' | 'P' => self.add(UNICODE_CLASS),
            '1'..='9' | 'k' | 'K' | 'G' | 'Z' => {
                self.backtracks = true;
                self.add(1);
            }
            _ => self.add(4),
        }
        Ok(())
    }

    /// Reads a character class, after its `[`. Some dialects allow a nested class; here the class ends at the
    /// first bracket, and the rest counts as characters.
    fn class(&mut self) -> Result<(), String> {
        if self.rest.trim_start_matches('^').starts_with(']') {
            // Dialects differ in where this class ends.
            return Err("the regular expression begins a class with `]`; write `\\]`".to_owned());
        }
        let (mut size, mut end) = (1, self.rest.len());
        let mut chars = self.rest.char_indices();
        while let Some((at, one)) = chars.next() {
            match one {
                '\\' => {
                    let escaped = chars.next().map(|(_, escaped)| escaped);
                    size += if matches!(escaped, Some('p' | 'P')) { UNICODE_CLASS } else { 1 };
                }
                ']' => {
                    end = at + 1;
                    break;
                }
                _ => size += 1,
            }
        }
        self.rest = &self.rest[end..];
        self.add(size);
        Ok(())
    }

    /// Reads the start of a group, after its `(`.
    fn group(&mut self) -> Result<(), String> {
        self.open.push(1);
        let Some(kind) = self.rest.strip_prefix('?') else { return Ok(()) };
        let looks_around = ["=", "!", "<=", "<!", ">"].iter().any(|start| kind.starts_with(start));
        let is_named = kind.starts_with('<') || kind.starts_with("P<");
        // Not `x`, because comments within the expression would hide brackets.
        let flags = kind.trim_start_matches(['i', 'm', 's', 'u', 'U', 'R', '-']);
        let has_flags = flags.starts_with(':') || flags.starts_with(')');
        if !(looks_around || is_named || has_flags) {
            return Err(format!("the regular expression uses `(?{}`, which is not supported", shown(kind)));
        }
        self.backtracks |= looks_around;
        let name = if is_named && !looks_around { kind.find('>').unwrap_or(0) } else { 0 };
        let skipped = if has_flags { kind.len() - flags.len() } else { name };
        self.rest = &kind[skipped..];
        Ok(())
    }

    /// Reads a counted repetition, after its `{`. Any other text in braces is literal.
    fn repetition(&mut self) {
        let inside = self.rest.split_once('}').map(|(inside, _)| inside);
        let counts = inside.and_then(|inside| {
            let (least, most) = inside.split_once(',').unwrap_or((inside, inside));
            let least: u64 = least.trim().parse().ok()?;
            Some(if most.trim().is_empty() { least } else { most.trim().parse::<u64>().ok()?.max(least) })
        });
        let Some(most) = counts else {
            self.add(1);
            return;
        };
        self.rest = &self.rest[inside.map_or(0, |inside| inside.len() + 1)..];
        let repeated = self.last.saturating_mul(most.max(1));
        self.grow(repeated - self.last);
        self.last = repeated;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, most: u64, backtracks: bool) {
        let size = measure(pattern).unwrap();
        assert!(size.states <= most, "{pattern}: {size:?}");
        assert_eq!(size.backtracks, backtracks, "{pattern}");
    }

    #[test]
    fn common_patterns_compile_small() {
        check("^[a-z0-9-]+$", 16, false);
        check(r"^\d{4}-\d{2}-\d{2}$", 64, false);
        check(r"^(?=.{1,253}$)([a-z0-9](-?[a-z0-9]){0,62}\.)+[a-z]{2,}$", 1_500, true);
        check(r"^(?:[^{}]|\{\}){3}$", 64, false);
        check(r"(?P<year>\d{4})(?i:x)(?i)y", 64, false);
        check(r"(a)\1", 8, true);
    }

    #[test]
    fn replace_all_matches_the_regex_crate() {
        for (pattern, text) in [
            ("a", "banana"),
            ("a*", "baac"),
            ("", "é1"),
            ("^b|a$", "banana"),
            (r"\bb", "b ab b"),
            ("x", "none"),
            (".", ""),
        ] {
            let want = compile_regex(pattern, false).unwrap().replace_all(text, regex::NoExpand("$0"));
            assert_eq!(replace_all(text, pattern, "$0", &mut 10_000).unwrap(), want, "{pattern}");
        }
    }

    #[test]
    fn quadratic_replacing_is_refused() {
        // Each match is one byte long and reads the text to its end.
        let text = "A".repeat(1 << 20);
        let replaced = replace_all(&text, ".*[^A-Z]|[A-Z]", "", &mut 1_000_000_000);
        assert_eq!(replaced, Err(ReplaceError::TooMuchWork));
        assert!(matches!(replace_all("a", "(", "", &mut 10_000), Err(ReplaceError::Invalid(_))));
    }

    #[test]
    fn nested_repetition_counts_multiply() {
        assert!(measure("(?:(?:a{1,100}){1,100}){1,100}").is_err());
        assert!(measure("(?:(?:(?=a)x{100}){100}){100}").is_err());
        assert!(measure("a{100}{100}{100}").is_err());
        assert!(measure("(a{100}){,100}").is_ok(), "braces without a least count stand for themselves");
        assert!(measure("a{18446744073709551615}").is_err());
    }

    #[test]
    fn constructs_of_unknown_size_are_refused() {
        assert!(measure(r"(a\g<1>\g<1>)").is_err());
        assert!(measure("(?(1)a|b)").is_err());
        assert!(measure("(?~a)").is_err());
        assert!(measure("((a{9}[])]){9}){9}").is_err());
        assert!(measure("(?x)( # )\n a{9}){9}").is_err());
    }
}
