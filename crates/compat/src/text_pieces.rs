//! Splits text into pieces whose ends depend only on the text. Every reader gets the same pieces: live or
//! from the journal, early or late, in one connection or in several.

/// The maximum number of characters in a piece.
const PIECE_CHARS: usize = 32;

/// Returns the length of the first piece of a text: a word and the space after it. Returns `None` if more
/// text is needed to decide.
pub(crate) fn first_piece_len(text: &str, is_whole: bool) -> Option<usize> {
    let mut after_space = false;
    for (count, (at, letter)) in text.char_indices().enumerate() {
        let space = letter.is_whitespace();
        if count == PIECE_CHARS || (after_space && !space) {
            return Some(at);
        }
        after_space = space;
    }
    (is_whole && !text.is_empty()).then_some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<&str> {
        let (mut rest, mut pieces) = (text, Vec::new());
        while let Some(end) = first_piece_len(rest, true) {
            pieces.push(&rest[..end]);
            rest = &rest[end..];
        }
        pieces
    }

    #[test]
    fn pieces_are_words_independent_of_chunking() {
        assert_eq!(cut("one  two\nthree"), ["one  ", "two\n", "three"]);
        assert_eq!(cut(""), Vec::<&str>::new());
        let long = "ä".repeat(70);
        assert_eq!(cut(&long).iter().map(|piece| piece.chars().count()).collect::<Vec<_>>(), [32, 32, 6]);
        let text = "It is  snowing in Oslo, and thequickbrownfoxjumpsoverthelazydogagain says so.";
        for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            let (mut rest, mut pieces) = (&text[..end], Vec::new());
            while let Some(end) = first_piece_len(rest, false) {
                pieces.push(&rest[..end]);
                rest = &rest[end..];
            }
            assert_eq!(pieces, cut(text)[..pieces.len()], "{end}");
        }
    }
}
