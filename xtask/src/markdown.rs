//! Reads Markdown: links, headings and the anchors of headings. Covers the syntax that the pages of the repository use.
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

/// A link `[text](target)` or an image `![text](target)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link<'a> {
    /// Its line, counted from one.
    pub(crate) line: usize,
    /// The whole link in the text, with the `!` of an image.
    pub(crate) span: Range<usize>,
    pub(crate) text: &'a str,
    /// The target without a title. Includes the part after `#`.
    pub(crate) target: &'a str,
}

impl<'a> Link<'a> {
    /// Returns the path of the target without the part after `#`. It is empty if the link stays on its page.
    pub(crate) fn path(&self) -> &'a str {
        self.target.split('#').next().unwrap_or_default()
    }

    /// Returns the part of the target after `#`.
    pub(crate) fn anchor(&self) -> Option<&'a str> {
        Some(self.target.split_once('#')?.1)
    }

    /// Returns whether the target is not part of the repository.
    pub(crate) fn is_external(&self) -> bool {
        is_external(self.target)
    }
}

pub(crate) fn is_external(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// Returns the lines outside code blocks, each with its number and its start in the text.
pub(crate) fn prose_lines(text: &str) -> impl Iterator<Item = (usize, usize, &str)> {
    let mut in_fence = false;
    let mut start = 0;
    (1..).zip(text.split_inclusive('\n')).filter_map(move |(number, line)| {
        let at = start;
        start += line.len();
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
            return None;
        }
        (!in_fence).then_some((number, at, line.trim_end_matches('\n')))
    })
}

/// Returns the inline links of a page, without those in code.
pub(crate) fn links(page: &str) -> Vec<Link<'_>> {
    let mut links = Vec::new();
    for (number, start, line) in prose_lines(page) {
        for (at, opening) in line.match_indices("](").filter(|(at, _)| !is_in_code(line, *at)) {
            let inside = &line[at + opening.len()..];
            let (Some(length), Some(begin)) = (inside.find(')'), opening_bracket(&page[..start + at])) else {
                continue;
            };
            let target = inside[..length].split_whitespace().next().unwrap_or_default();
            let is_image = page[..begin].ends_with('!');
            links.push(Link {
                line: number,
                span: begin - usize::from(is_image)..start + at + opening.len() + length + 1,
                text: &page[begin + 1..start + at],
                target: target.trim_matches(['<', '>']),
            });
        }
    }
    links
}

/// Returns the position of the bracket that opens the text of a link, which may be on an earlier line.
fn opening_bracket(before: &str) -> Option<usize> {
    let mut depth = 0;
    before.char_indices().rev().find_map(|(at, letter)| match letter {
        '[' if depth == 0 => Some(at),
        '[' => {
            depth -= 1;
            None
        }
        ']' => {
            depth += 1;
            None
        }
        _ => None,
    })
}

/// Returns whether the position is between backticks.
fn is_in_code(line: &str, at: usize) -> bool {
    line[..at].matches('`').count() % 2 == 1
}

/// Returns the headings of a page with their level.
pub(crate) fn headings(page: &str) -> impl Iterator<Item = (usize, &str)> {
    prose_lines(page).filter_map(|(_, _, line)| {
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        let title = line[level..].strip_prefix(' ')?;
        (level > 0).then_some((level, title.trim()))
    })
}

/// Returns the title of a page: its first heading.
pub(crate) fn title(page: &str) -> Option<&str> {
    headings(page).next().map(|(_, title)| title)
}

/// Returns the anchors of the headings of a page. Of equal headings, the later ones get a number.
pub(crate) fn anchors(page: &str) -> BTreeSet<String> {
    let mut counts = BTreeMap::<String, usize>::new();
    let numbered = headings(page).map(|(_, heading)| {
        let anchor = anchor(heading);
        let count = counts.entry(anchor.clone()).or_default();
        *count += 1;
        if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
    });
    numbered.collect()
}

/// Returns the anchor of a heading: lower-case letters, digits, `_` and `-`, with `-` for each space.
pub(crate) fn anchor(heading: &str) -> String {
    let mut plain = heading.to_owned();
    for link in links(heading).iter().rev() {
        plain.replace_range(link.span.clone(), link.text);
    }
    let letters = plain.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '_' | '-' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    });
    letters.flat_map(char::to_lowercase).collect()
}

/// Resolves a link relative to the root. A link out of the repository is invalid.
pub(crate) fn resolve(page: &str, target: &str) -> Option<PathBuf> {
    let mut place = match target.strip_prefix('/') {
        Some(_) => PathBuf::new(),
        None => Path::new(page).parent()?.to_path_buf(),
    };
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir => {
                if !place.pop() {
                    return None;
                }
            }
            Component::Normal(name) => place.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_text_may_span_lines_and_nest_brackets() {
        let page = "a [two\nwords](b.md#c \"title\") and ![`[x]`](d.png)\n`[no](e)`\n```\n[no](f)\n```\n";
        let found: Vec<_> = links(page)
            .iter()
            .map(|link| (link.line, &page[link.span.clone()], link.text, link.target))
            .collect();
        assert_eq!(
            found,
            [
                (2, "[two\nwords](b.md#c \"title\")", "two\nwords", "b.md#c"),
                (2, "![`[x]`](d.png)", "`[x]`", "d.png"),
            ]
        );
        let links = links(page);
        assert_eq!((links[0].path(), links[0].anchor(), links[1].anchor()), ("b.md", Some("c"), None));
    }

    #[test]
    fn headings_have_the_anchors_of_web_viewers() {
        let page =
            "# Run `outlast work` & wait\n## [A](b.md), twice\n```sh\n# no heading\n```\n## A, twice\n#no\n";
        let found: Vec<_> = anchors(page).into_iter().collect();
        assert_eq!(found, ["a-twice", "a-twice-1", "run-outlast-work--wait"]);
        assert_eq!(title(page), Some("Run `outlast work` & wait"));
    }
}
