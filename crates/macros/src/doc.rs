//! Converts doc comments to the texts that a model reads.
use syn::{Attribute, Expr, ExprLit, Lit, Meta};

/// Returns the text of the doc comments among some attributes; empty without doc comments.
///
/// The lines of a paragraph are joined, because they are only wrapped for the source. Paragraphs, list items and table
/// rows stay on separate lines, and so does everything inside a code fence.
pub(crate) fn doc_text(attributes: &[Attribute]) -> String {
    let lines: Vec<String> = attributes.iter().filter_map(line).collect();
    let mut text = String::new();
    let (mut fenced, mut after_fence) = (false, false);
    for line in lines.iter().flat_map(|line| line.split('\n')) {
        let line = line.strip_prefix(' ').unwrap_or(line).trim_end();
        let fence = line.trim_start().starts_with("```");
        let own_line =
            fenced || fence || after_fence || line.is_empty() || text.ends_with('\n') || starts_block(line);
        if !text.is_empty() {
            text.push(if own_line { '\n' } else { ' ' });
        }
        text.push_str(if own_line { line } else { line.trim_start() });
        fenced ^= fence;
        after_fence = fence && !fenced;
    }
    text.trim().to_owned()
}

/// Returns whether an attribute is a doc comment.
pub(crate) fn is_doc(attribute: &Attribute) -> bool {
    attribute.path().is_ident("doc")
}

fn line(attribute: &Attribute) -> Option<String> {
    match &attribute.meta {
        Meta::NameValue(pair) if is_doc(attribute) => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

fn starts_block(line: &str) -> bool {
    let line = line.trim_start();
    let item = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with(['-', '*', '|', '#', '>']) || (item.len() < line.len() && item.starts_with(". "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    #[test]
    fn doc_comment_joins_lines_and_keeps_structure() {
        let function: syn::ItemFn = parse_quote! {
            /// Tells the temperature
            /// in a city.
            ///
            /// One of:
            /// - Paris,
            ///   France
            /// - Rome
            ///
            /// ```text
            /// a
            ///   b
            /// ```
            #[doc = "The end."]
            fn f() {}
        };
        assert_eq!(
            doc_text(&function.attrs),
            "Tells the temperature in a city.\n\nOne of:\n- Paris, France\n- Rome\n\n```text\na\n  b\n```\nThe end."
        );
    }
}
