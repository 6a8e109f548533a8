//! Extracts the visible text of a page, one line per block. This is not a parser: it never fails, and malformed tags
//! lose at most some text. It reads the page once, so it takes linear time, and nesting needs no memory.
//!
//! The crate `html2text` is no replacement, because a call of it cannot be stopped: strangers write the pages, and version
//! 0.17 takes quadratic time for nested elements (3 s for 80 KB of lists, more than 20 s for 500 KB of `<div>`). It
//! also adds a dozen crates. The tokenizer of `html5ever` is linear, but it replaces only the sixty lines of
//! `HtmlTag` and needs most of these crates.

/// Elements whose content is invisible.
const HIDDEN: &[&str] = &["script", "style", "template", "noscript", "svg"];

/// Elements that start and end a line.
const BLOCKS: &[&str] = &[
    "address",
    "article",
    "aside",
    "blockquote",
    "br",
    "dd",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "li",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "td",
    "th",
    "title",
    "tr",
    "ul",
];

/// The maximum length of a character reference, such as `&CounterClockwiseContourIntegral;`.
const REFERENCE_BYTES: usize = 34;

/// Returns the text of an HTML page.
pub(super) fn text(html: &str) -> String {
    let mut page = TextLines::default();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        page.push_text(&rest[..at]);
        rest = &rest[at..];
        rest = match HtmlTag::read(rest) {
            Some((HtmlTag::Comment, after)) => after,
            Some((HtmlTag::Open(name), after)) if HIDDEN.contains(&name.as_str()) => {
                after_element(&name, after)
            }
            Some((HtmlTag::Open(name) | HtmlTag::Close(name), after)) => {
                if BLOCKS.contains(&name.as_str()) {
                    page.end_line();
                }
                after
            }
            None => {
                page.push_text("<");
                &rest[1..]
            }
        };
    }
    page.push_text(rest);
    page.end_line();
    page.text
}

enum HtmlTag {
    Open(String),
    Close(String),
    Comment,
}

impl HtmlTag {
    /// Parses the tag at the start of a text. Returns it with the rest of the text.
    fn read(text: &str) -> Option<(Self, &str)> {
        if let Some(comment) = text.strip_prefix("<!--") {
            return Some((Self::Comment, comment.split_once("-->").map_or("", |(_, after)| after)));
        }
        if text.starts_with("<!") || text.starts_with("<?") {
            return Some((Self::Comment, text.split_once('>').map_or("", |(_, after)| after)));
        }
        let (ends, inside) = match text.strip_prefix("</") {
            Some(inside) => (true, inside),
            None => (false, &text[1..]),
        };
        let letters = inside.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let name = inside[..letters].to_ascii_lowercase();
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return None;
        }
        let after = after_tag(&inside[letters..]);
        Some((if ends { Self::Close(name) } else { Self::Open(name) }, after))
    }
}

/// Returns the text after a tag. A `>` inside quotes does not end the tag.
fn after_tag(inside: &str) -> &str {
    let mut quote = None;
    for (at, byte) in inside.bytes().enumerate() {
        match (quote, byte) {
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            (None, b'>') => return &inside[at + 1..],
            _ => {}
        }
    }
    ""
}

/// Returns the text after the closing tag of an element.
fn after_element<'a>(name: &str, mut text: &'a str) -> &'a str {
    while let Some((_, after)) = text.split_once("</") {
        match after.split_at_checked(name.len()) {
            Some((found, after)) if found.eq_ignore_ascii_case(name) => return after_tag(after),
            _ => text = after,
        }
    }
    ""
}

/// Collects text, joins whitespace and drops empty lines.
#[derive(Default)]
struct TextLines {
    text: String,
    line: String,
}

impl TextLines {
    fn push_text(&mut self, piece: &str) {
        let piece = characters(piece);
        if piece.starts_with(char::is_whitespace) {
            self.push_space();
        }
        for word in piece.split_whitespace() {
            self.line.push_str(word);
            self.line.push(' ');
        }
        if !piece.ends_with(char::is_whitespace) && self.line.ends_with(' ') {
            self.line.pop();
        }
    }

    fn push_space(&mut self) {
        if !self.line.is_empty() && !self.line.ends_with(' ') {
            self.line.push(' ');
        }
    }

    fn end_line(&mut self) {
        let line = self.line.trim();
        if !line.is_empty() {
            if !self.text.is_empty() {
                self.text.push('\n');
            }
            self.text.push_str(line);
        }
        self.line.clear();
    }
}

/// Replaces character references in a text.
fn characters(text: &str) -> String {
    let mut undone = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        undone.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.bytes().take(REFERENCE_BYTES).position(|byte| byte == b';');
        let character = end.and_then(|end| character(&rest[1..end]).map(|character| (character, end)));
        if let Some((character, end)) = character {
            undone.push(character);
            rest = &rest[end + 1..];
        } else {
            undone.push('&');
            rest = &rest[1..];
        }
    }
    undone.push_str(rest);
    undone
}

fn character(name: &str) -> Option<char> {
    let number = name.strip_prefix('#');
    if let Some(number) = number {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => number.parse(),
        };
        return code.ok().and_then(char::from_u32).filter(|c| !c.is_control() || c.is_whitespace());
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => '\u{a0}',
        "copy" => '©',
        "reg" => '®',
        "trade" => '™',
        "hellip" => '…',
        "ndash" => '–',
        "mdash" => '—',
        "lsquo" => '‘',
        "rsquo" => '’',
        "ldquo" => '“',
        "rdquo" => '”',
        "laquo" => '«',
        "raquo" => '»',
        "bull" => '•',
        "middot" => '·',
        "times" => '×',
        "euro" => '€',
        "pound" => '£',
        "deg" => '°',
        "rarr" => '→',
        "larr" => '←',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn html_is_reduced_to_its_visible_text() {
        let page = "<!doctype html><html><head><title>T</title><style>p{}</style></head>\n\
            <body><h1>Tea &amp; cake</h1>\n<p>It is\n  <b>hot</b>, <i>very</i>hot.</p>\
            <script>if (a < b) { alert('</p>') }</script><ul><li>one</li><li title=\"a>b\">two</li></ul>\
            <!-- <p>no</p> --><p>3 &lt; 4 &#8364; &#x20AC; &nbsp; &unknown; & so</p>a<br/>b</body></html>";
        expect![[r"
            T
            Tea & cake
            It is hot, veryhot.
            one
            two
            3 < 4 € € &unknown; & so
            a
            b"]]
        .assert_eq(&text(page));
    }

    #[test]
    fn malformed_markup_loses_at_most_some_text() {
        let pages = [
            "a < b",
            "<",
            "<p",
            "</",
            "<p title=\"",
            "<!--",
            "<script>",
            "<3 you",
            "&",
            "&#x110000;",
            "&#0;",
            "a&amp",
        ];
        let log = pages.map(|page| format!("{page} → {:?}\n", text(page)));
        expect![[r#"
            a < b → "a < b"
            < → "<"
            <p → ""
            </ → "</"
            <p title=" → ""
            <!-- → ""
            <script> → ""
            <3 you → "<3 you"
            & → "&"
            &#x110000; → "&#x110000;"
            &#0; → "&#0;"
            a&amp → "a&amp"
        "#]]
        .assert_eq(&log.concat());
    }
}
