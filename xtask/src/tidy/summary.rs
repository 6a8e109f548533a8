//! The summary of the book lists every page, and the pages of the guide are linked in its order.
use super::{RepoFile, TidyFinding};
use crate::markdown::{links, resolve};
use std::path::Path;

const SUMMARY: &str = "docs/SUMMARY.md";
const DECISIONS: &str = "docs/adr/README.md";
/// `cargo xtask book` lists these pages itself.
const LISTED_BY_BOOK: [&str; 2] = ["docs/errors/", "docs/adr/0"];

/// Checks that the summary lists every page of `docs`, and the list of decisions every decision.
pub(super) fn every_page_is_in_the_summary(files: &[RepoFile]) -> Vec<TidyFinding> {
    let summary = linked_pages(files, SUMMARY);
    let decisions = linked_pages(files, DECISIONS);
    let mut findings = Vec::new();
    for page in files.iter().filter(|file| file.is_markdown() && file.path.starts_with("docs/")) {
        let is_listed_by_book = LISTED_BY_BOOK.iter().any(|listed| page.path.starts_with(listed));
        if page.path != SUMMARY && !is_listed_by_book && !summary.contains(&page.path) {
            findings.push(TidyFinding::new(page, 1, format!("expected a link to it in {SUMMARY}; add one")));
        }
        if page.path.starts_with("docs/adr/0") && !decisions.contains(&page.path) {
            findings.push(TidyFinding::new(
                page,
                1,
                format!("expected a link to it in {DECISIONS}; add one"),
            ));
        }
    }
    findings
}

/// Checks that each page of the guide ends with a link to the page that follows in the summary.
pub(super) fn next_links_follow_the_summary(files: &[RepoFile]) -> Vec<TidyFinding> {
    let order = linked_pages(files, SUMMARY);
    let mut findings = Vec::new();
    for pair in order.windows(2).filter(|pair| pair[0].starts_with("docs/guide/")) {
        let Some(page) = files.iter().find(|file| file.path == pair[0]) else { continue };
        let (number, last) = page.lines().filter(|(_, line)| !line.is_empty()).last().unwrap_or((1, ""));
        let next = links(last).first().and_then(|link| resolve(&page.path, link.path()));
        if !last.starts_with("Next: ") || next.is_none_or(|next| next != Path::new(&pair[1])) {
            let what = format!(
                "expected `Next: […](…)` to {}, which follows in {SUMMARY}; correct one of them",
                pair[1]
            );
            findings.push(TidyFinding::new(page, number, what));
        }
    }
    findings
}

/// Returns the paths that a page links, in order.
fn linked_pages(files: &[RepoFile], path: &str) -> Vec<String> {
    let text = files.iter().find(|file| file.path == path).map_or("", |file| &file.text);
    let pages = links(text).into_iter().filter_map(|link| resolve(path, link.path()));
    pages.map(|page| page.to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{expect, files};
    use super::*;

    #[test]
    fn page_missing_from_summary_is_found() {
        expect(
            &every_page_is_in_the_summary(&files(&[
                (SUMMARY, "- [A](guide/a.md)\n- [Decisions](adr/README.md)\n"),
                (DECISIONS, "- [1](0001-one.md)\n"),
                ("docs/adr/0001-one.md", ""),
                ("docs/adr/0002-two.md", ""),
                ("docs/errors/a.b.md", ""),
                ("docs/guide/a.md", ""),
                ("docs/guide/b.md", ""),
                ("docs/c.md", ""),
            ])),
            &[
                "docs/adr/0002-two.md:1: expected a link to it in docs/adr/README.md; add one",
                "docs/guide/b.md:1: expected a link to it in docs/SUMMARY.md; add one",
                "docs/c.md:1: expected a link to it in docs/SUMMARY.md; add one",
            ],
        );
    }

    #[test]
    fn next_link_against_the_summary_is_found() {
        let follows = "in docs/SUMMARY.md; correct one of them";
        expect(
            &next_links_follow_the_summary(&files(&[
                (SUMMARY, "[A](guide/a.md)\n[B](guide/b.md)\n[C](guide/c.md)\n[D](d.md)\n"),
                ("docs/guide/a.md", "# A\n\nNext: [B](b.md)\n"),
                ("docs/guide/b.md", "# B\n\nNext: [A](a.md)\n"),
                ("docs/guide/c.md", "# C\n"),
            ])),
            &[
                &format!(
                    "docs/guide/b.md:3: expected `Next: […](…)` to docs/guide/c.md, which follows {follows}"
                ),
                &format!("docs/guide/c.md:1: expected `Next: […](…)` to docs/d.md, which follows {follows}"),
            ],
        );
    }
}
