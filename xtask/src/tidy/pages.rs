//! Pages that are found by name: one per error code, one per decision.
use super::{RepoFile, TidyFinding};
use std::collections::BTreeMap;
use std::path::Path;

const ERRORS: &str = "crates/vocab/src/error.rs";
const LIMITS: &str = "crates/vocab/src/limits.rs";
const BOUNDS: &str = "docs/guide/operating.md";
const ERROR_HEADINGS: &[&str] = &["## What happened", "## Why", "## What to do"];
const DECISION_HEADINGS: &[&str] = &["## Context", "## Decision", "## Considered"];

/// Checks that each error code has a page, each page has a code, and each page says what to do.
pub(super) fn every_error_has_its_page(files: &[RepoFile]) -> Vec<TidyFinding> {
    let Some(table) = files.iter().find(|file| file.path == ERRORS) else {
        let missing = RepoFile { path: ERRORS.to_owned(), text: String::new() };
        return vec![TidyFinding::new(
            &missing,
            1,
            "expected the table of error kinds; tell xtask where it went",
        )];
    };
    let codes = codes(table);
    if codes.is_empty() {
        return vec![TidyFinding::new(
            table,
            1,
            "expected codes within `kinds! { … }`; tell xtask how they are written now",
        )];
    }
    let mut findings = Vec::new();
    for (line, code) in &codes {
        if !files.iter().any(|file| file.path == format!("docs/errors/{code}.md")) {
            findings.push(TidyFinding::new(
                table,
                *line,
                format!("expected the page docs/errors/{code}.md; write it"),
            ));
        }
    }
    for (name, page) in pages(files, "docs/errors/") {
        if !codes.iter().any(|(_, code)| *code == name) {
            let what = format!("expected an error with the code `{name}` in {ERRORS}; delete the page");
            findings.push(TidyFinding::new(page, 1, what));
        }
        findings.extend(missing_headings(page, ERROR_HEADINGS));
    }
    findings
}

/// Checks that the guide lists each limit.
pub(super) fn every_limit_is_in_the_guide(files: &[RepoFile]) -> Vec<TidyFinding> {
    let text = |path: &str| files.iter().find(|file| file.path == path);
    let (Some(limits), Some(guide)) = (text(LIMITS), text(BOUNDS)) else {
        let missing = RepoFile { path: LIMITS.to_owned(), text: String::new() };
        let what =
            format!("expected the limits here and their table in {BOUNDS}; tell xtask where they went");
        return vec![TidyFinding::new(&missing, 1, what)];
    };
    // Only fields; parameters of functions are not limits.
    let field = |line: &str| Some(line.strip_prefix("    pub ")?.split_once(':')?.0.to_owned());
    let name = |line: &str| field(line).filter(|name| !name.contains(' '));
    let named = limits.lines().filter_map(|(number, line)| Some((number, name(line)?)));
    let absent = named.filter(|(_, name)| !guide.text.contains(&format!("`{name}`")));
    let what = |name: &str| format!("expected `{name}` in the table of {BOUNDS}; say what it bounds");
    absent.map(|(number, name)| TidyFinding::new(limits, number, what(&name))).collect()
}

/// Checks that no file contains merge conflict markers.
pub(super) fn merges_are_finished(files: &[RepoFile]) -> Vec<TidyFinding> {
    let left =
        |line: &str| line.starts_with(concat!("<<<<", "<<< ")) || line.starts_with(concat!(">>>>", ">>> "));
    let what = "expected one text, found two sides of a merge; choose";
    let lines = files.iter().flat_map(|file| file.lines().map(move |(number, line)| (file, number, line)));
    lines
        .filter(|(.., line)| left(line))
        .map(|(file, number, _)| TidyFinding::new(file, number, what))
        .collect()
}

/// Checks that decisions have unique numbers, reasons and alternatives.
pub(super) fn decisions_are_numbered(files: &[RepoFile]) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    let mut numbers: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, page) in pages(files, "docs/adr/").filter(|(name, _)| *name != "README") {
        let Some(number) = decision_number(name) else {
            let what = "expected a name like docs/adr/0007-one-writer.md; rename it";
            findings.push(TidyFinding::new(page, 1, what));
            continue;
        };
        if let Some(first) = numbers.insert(number, &page.path) {
            let what =
                format!("expected a number of its own, but {first} has {number} too; take the next free one");
            findings.push(TidyFinding::new(page, 1, what));
        }
        findings.extend(missing_headings(page, DECISION_HEADINGS));
    }
    findings
}

/// Checks that the changelog links every change, and the README every page of the guide.
pub(super) fn every_page_is_linked(files: &[RepoFile]) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (from, directory) in [("CHANGELOG.md", "changes/unreleased/"), ("README.md", "docs/guide/")] {
        let text = files.iter().find(|file| file.path == from).map_or("", |file| file.text.as_str());
        for (_, page) in pages(files, directory) {
            if !text.contains(&format!("]({})", page.path)) {
                findings.push(TidyFinding::new(page, 1, format!("expected a link to it in {from}; add one")));
            }
        }
    }
    findings
}

/// Returns the codes in the call of `kinds!`, each with its line.
fn codes(table: &RepoFile) -> Vec<(usize, &str)> {
    table
        .lines()
        .skip_while(|(_, line)| !line.starts_with("kinds! {"))
        .take_while(|(_, line)| *line != "}")
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .filter_map(|(number, line)| Some((number, line.split('"').nth(1)?)))
        .collect()
}

/// Returns the Markdown pages of a directory, by name.
fn pages<'a>(
    files: &'a [RepoFile],
    directory: &'static str,
) -> impl Iterator<Item = (&'a str, &'a RepoFile)> {
    files.iter().filter(|file| file.is_markdown()).filter_map(move |file| {
        let name = Path::new(file.path.strip_prefix(directory)?).file_stem()?.to_str()?;
        Some((name, file))
    })
}

fn decision_number(name: &str) -> Option<&str> {
    let (number, title) = name.split_once('-')?;
    let is_number = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !title.is_empty()).then_some(number)
}

fn missing_headings(page: &RepoFile, headings: &[&str]) -> Vec<TidyFinding> {
    let missing =
        headings.iter().filter(|heading| !page.text.lines().any(|line| line.trim_end() == **heading));
    missing
        .map(|heading| {
            TidyFinding::new(page, 1, format!("expected the heading `{heading}`; write that part"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{expect, files};
    use super::*;

    const PAGE: &str = "# x\n\n## What happened\n\n## Why\n\n## What to do\n";
    const DECISION: &str = "# x\n\n## Context\n\n## Decision\n\n## Considered\n";

    #[test]
    fn error_codes_without_matching_pages_are_found() {
        let table = "\"not.this\"\nkinds! {\n    /// Says \"no\".\n    A = \"a.one\", Reject, 400;\n\n    B = \"b.two\", Bug, 500;\n}\n\"nor.this\"\n";
        expect(
            &every_error_has_its_page(&files(&[
                (ERRORS, table),
                ("docs/errors/a.one.md", PAGE),
                ("docs/errors/c.three.md", PAGE),
            ])),
            &[
                "crates/vocab/src/error.rs:6: expected the page docs/errors/b.two.md; write it",
                "docs/errors/c.three.md:1: expected an error with the code `c.three` in crates/vocab/src/error.rs; delete \
                 the page",
            ],
        );
    }

    #[test]
    fn a_page_that_nobody_links_to_is_found() {
        expect(
            &every_page_is_linked(&files(&[
                ("README.md", "[a](docs/guide/a.md)"),
                ("CHANGELOG.md", "[a](docs/guide/b.md)"),
                ("docs/guide/a.md", ""),
                ("docs/guide/b.md", ""),
                ("changes/unreleased/c.md", ""),
            ])),
            &[
                "changes/unreleased/c.md:1: expected a link to it in CHANGELOG.md; add one",
                "docs/guide/b.md:1: expected a link to it in README.md; add one",
            ],
        );
    }

    #[test]
    fn conflict_marker_is_found() {
        let text = format!("a\n{}{} one\nb\n{}{} two\n", "<<<<", "<<<", ">>>>", ">>>");
        let what = "expected one text, found two sides of a merge; choose";
        let (first, last) = (format!("docs/a.md:2: {what}"), format!("docs/a.md:4: {what}"));
        expect(&merges_are_finished(&files(&[("docs/a.md", &text)])), &[&first, &last]);
    }

    #[test]
    fn undocumented_limit_is_found() {
        let limits = "pub struct Limits {\n    /// One.\n    pub one_bytes: usize,\n    pub two: u32,\n}\n";
        expect(
            &every_limit_is_in_the_guide(&files(&[(LIMITS, limits), (BOUNDS, "| `two` | 2 | twos |")])),
            &[
                "crates/vocab/src/limits.rs:3: expected `one_bytes` in the table of docs/guide/operating.md; say what it \
               bounds",
            ],
        );
        assert_eq!(every_limit_is_in_the_guide(&files(&[])).len(), 1);
    }

    #[test]
    fn page_without_a_required_heading_is_found() {
        let table = "kinds! {\n    A = \"a.one\", Reject, 400;\n}\n";
        let page = "# a.one\n\n## What happened\n\n## Why\n";
        expect(
            &every_error_has_its_page(&files(&[(ERRORS, table), ("docs/errors/a.one.md", page)])),
            &["docs/errors/a.one.md:1: expected the heading `## What to do`; write that part"],
        );
    }

    #[test]
    fn unreadable_table_is_found() {
        expect(
            &every_error_has_its_page(&files(&[])),
            &["crates/vocab/src/error.rs:1: expected the table of error kinds; tell xtask where it went"],
        );
        expect(
            &every_error_has_its_page(&files(&[(ERRORS, "enum Kind {}")])),
            &[
                "crates/vocab/src/error.rs:1: expected codes within `kinds! { … }`; tell xtask how they are written now",
            ],
        );
    }

    #[test]
    fn duplicate_unnumbered_and_unexplained_decisions_are_found() {
        expect(
            &decisions_are_numbered(&files(&[
                ("docs/adr/0001-one.md", DECISION),
                ("docs/adr/0001-two.md", DECISION),
                ("docs/adr/0002-three.md", "# x\n\n## Context\n\n## Decision\n"),
                ("docs/adr/4-four.md", DECISION),
                ("docs/adr/README.md", "# Decisions\n"),
            ])),
            &[
                "docs/adr/0001-two.md:1: expected a number of its own, but docs/adr/0001-one.md has 0001 too; take the \
                 next free one",
                "docs/adr/0002-three.md:1: expected the heading `## Considered`; write that part",
                "docs/adr/4-four.md:1: expected a name like docs/adr/0007-one-writer.md; rename it",
            ],
        );
    }
}
