//! Makes text from models, tools and users safe to display: escapes control characters and invisible
//! characters.

/// Returns the text with every character escaped that a terminal would execute or that would be invisible.
pub fn escape_control(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_terminal_control(c) || is_hidden(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns whether a character is invisible or looks like a space, so that a text with it looks like one
/// without it.
fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{a0}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{1680}'
            | '\u{180b}'..='\u{180f}'
            | '\u{2000}'..='\u{200f}'
            | '\u{2028}'..='\u{202f}'
            | '\u{205f}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Returns whether a terminal would execute a character, or the character changes the reading direction.
pub fn is_terminal_control(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && c != '\n' && c != '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_escaped() {
        assert_eq!(escape_control("pay\u{200b}ee\u{e0041}\u{2028}"), r"pay\u{200b}ee\u{e0041}\u{2028}");
        assert_eq!(escape_control("zwölf €"), "zwölf €");
    }
}
