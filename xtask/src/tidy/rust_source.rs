//! Parses Rust text just well enough to separate code from comments and literals.

/// A source text split into its code and its comments. The rest is blank, and lines keep their numbers.
#[derive(Default)]
pub(super) struct CodeAndComments {
    pub(super) code: String,
    pub(super) comments: String,
}

impl CodeAndComments {
    pub(super) fn of(source: &str) -> Self {
        let mut split = Self::default();
        let mut rest = source;
        while !rest.is_empty() {
            let (part, length) = next_part(rest);
            let (text, after) = rest.split_at(length);
            split.push(part, text);
            rest = after;
        }
        split
    }

    fn push(&mut self, part: SourcePart, text: &str) {
        for c in text.chars() {
            let blank = if c == '\n' { '\n' } else { ' ' };
            self.code.push(if part == SourcePart::Code { c } else { blank });
            self.comments.push(if part == SourcePart::Comment { c } else { blank });
        }
    }
}

/// Returns the lines that contain `word` as a whole word.
pub(super) fn lines_with<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    (1..).zip(text.lines()).filter(move |(_, line)| contains_word(line, word)).map(|(number, _)| number)
}

/// Returns whether the line contains `word` as a whole word. If it starts or ends with a symbol, anything may be
/// adjacent there.
pub(super) fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let goes_on_before = joins(before) && joins(word.chars().next());
        let goes_on_after = joins(word.chars().next_back()) && joins(after);
        !goes_on_before && !goes_on_after
    })
}

fn joins(c: Option<char>) -> bool {
    c.is_some_and(is_name)
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SourcePart {
    Code,
    Comment,
    Literal,
}

/// Returns the kind of the next part of `rest`, and its length in bytes.
fn next_part(rest: &str) -> (SourcePart, usize) {
    if rest.starts_with("//") {
        return (SourcePart::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (SourcePart::Comment, block_comment(rest));
    }
    if let Some(length) = string(rest).or_else(|| character(rest)) {
        return (SourcePart::Literal, length);
    }
    // A whole name at a time, so that the `r` of `for "x"` is not taken for the prefix of a raw string.
    let name = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
    let one = rest.chars().next().map_or(0, char::len_utf8);
    (SourcePart::Code, name.max(one))
}

/// Returns the length of a block comment. Block comments nest.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

fn string(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| rest.starts_with(prefix))?;
    let body = &rest[prefix.len()..];
    if !prefix.ends_with('r') {
        return Some(prefix.len() + quoted(body, '"')?);
    }
    let hashes = body.len() - body.trim_start_matches('#').len();
    let inside = body[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = inside.find(&end).map_or(inside.len(), |at| at + end.len());
    Some(prefix.len() + hashes + 1 + length)
}

/// Returns the length of a character literal, but not of a lifetime.
fn character(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    if first == '\\' || inside[first.len_utf8()..].starts_with('\'') { quoted(rest, '\'') } else { None }
}

/// Returns the length of a quoted text with escapes. An unterminated one extends to the end.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let inside = text.strip_prefix(quote)?;
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(at + 2),
            _ => {}
        }
    }
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, code: &str) {
        let found: Vec<String> = CodeAndComments::of(source)
            .code
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(found.join("\n"), code);
    }

    #[test]
    fn comments_are_not_code() {
        check("a // b\nc /* d /* e */ f\n*/ g", "a\nc\ng");
    }

    #[test]
    fn literals_are_not_code() {
        check(r##"f("x \" // y", r#"a " b"#, b"c", br"d", c"e", 'x', '\'', '"') g"##, "f( , , , , , , , ) g");
        check("for r in \"x\" { bar\"y\" }", "for r in { bar }");
    }

    #[test]
    fn lifetimes_and_raw_names_are_code() {
        check("fn f<'a>(x: &'a str, r#type: u8) {}", "fn f<'a>(x: &'a str, r#type: u8) {}");
    }

    #[test]
    fn unterminated_literal_extends_to_the_end() {
        check("a \"b\nc", "a\n");
        check("a r#\"b\"", "a");
        check("a /* b", "a");
    }

    #[test]
    fn comments_keep_their_lines() {
        let comments = CodeAndComments::of("a\n// one\n\"// no\"\n/* two */").comments;
        assert_eq!(lines_with(&comments, "two").collect::<Vec<_>>(), [4]);
        assert!(!contains_word(&comments, "no"));
    }

    #[test]
    fn part_of_a_longer_word_does_not_match() {
        assert!(contains_word("use rand::rng;", "rand"));
        assert!(!contains_word("let operand = 1;", "rand"));
        assert!(!contains_word("let random = 1;", "rand"));
        assert!(contains_word("x.todo!()", "todo!("));
    }
}
