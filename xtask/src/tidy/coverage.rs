//! `docs/coverage.md` names the test for each capability, `docs/guarantees.md` the tests that prove each promise. These
//! tests must exist.
use super::{RepoFile, TidyFinding};
use std::collections::BTreeSet;

const COVERAGE: &str = "docs/coverage.md";
const GUARANTEES: &str = "docs/guarantees.md";

/// Checks that each test on these pages is a test in the repository.
pub(super) fn named_tests_exist(files: &[RepoFile]) -> Vec<TidyFinding> {
    let tests = TestNames::of(files);
    let mut findings = Vec::new();
    for page in files.iter().filter(|file| [COVERAGE, GUARANTEES].contains(&file.path.as_str())) {
        let in_tables = tests_in_tables(page);
        if in_tables.is_empty() {
            let what = "expected a table with a column `test` that names tests; tell xtask otherwise";
            findings.push(TidyFinding::new(page, 1, what));
        }
        let mut named = tests_in_lists(page);
        named.extend(in_tables);
        named.sort_unstable();
        for (line, test) in named.into_iter().filter(|(_, test)| !tests.contains(test)) {
            let what = format!("expected a test `{test}`, found none; correct the name or write the test");
            findings.push(TidyFinding::new(page, line, what));
        }
    }
    findings
}

/// The names of all tests in the repository.
struct TestNames<'a>(BTreeSet<&'a str>);

impl<'a> TestNames<'a> {
    fn of(files: &'a [RepoFile]) -> Self {
        let mut names = BTreeSet::new();
        for file in files.iter().filter(|file| file.is_rust()) {
            let mut has_attribute = false;
            for line in file.text.lines().map(str::trim) {
                if line.starts_with("#[") {
                    has_attribute |= line.contains("test");
                    continue;
                }
                names.extend(function(line).filter(|_| has_attribute).or_else(|| macro_argument(line)));
                has_attribute = false;
            }
        }
        Self(names)
    }

    fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

/// Returns the name of the function whose definition starts on this line.
fn function(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
    rest.split_once(['(', '<']).map(|(name, _)| name)
}

/// Returns the name that this line gives to a macro that writes tests: `NAME,` or `NAME = …;`.
fn macro_argument(line: &str) -> Option<&str> {
    let name = line.strip_suffix(',').or_else(|| Some(line.split_once(" = ")?.0))?;
    is_name(name).then_some(name)
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Returns the tests in list items that start with `Test:` or `Tests:`, each with its line. Quoted words that are not
/// names, such as commands and paths, are not tests.
fn tests_in_lists(page: &RepoFile) -> Vec<(usize, &str)> {
    let mut tests = Vec::new();
    let mut in_item = false;
    for (number, line) in page.lines() {
        if let Some(item) = line.strip_prefix("- ") {
            in_item = item.starts_with("Test:") || item.starts_with("Tests:");
        } else if !line.starts_with("  ") {
            in_item = false;
        }
        if in_item {
            let quoted = line.split('`').skip(1).step_by(2);
            let names = quoted.filter_map(|word| word.rsplit("::").next()).filter(|word| is_name(word));
            tests.extend(names.map(|name| (number, name)));
        }
    }
    tests
}

/// Returns the tests in the test column of every table, each with its line.
fn tests_in_tables(page: &RepoFile) -> Vec<(usize, &str)> {
    let mut tests = Vec::new();
    let mut column = None;
    let lines: Vec<(usize, &str)> = page.lines().collect();
    for (at, (number, line)) in lines.iter().enumerate() {
        let Some(cells) = cells(line) else {
            column = None;
            continue;
        };
        if lines.get(at + 1).is_some_and(|(_, next)| is_rule(next)) {
            column = cells
                .iter()
                .position(|cell| cell.eq_ignore_ascii_case("test") || cell.eq_ignore_ascii_case("tests"));
        } else if let Some(cell) = column.and_then(|column| cells.get(column)) {
            tests.extend(names(cell).map(|name| (*number, name)));
        }
    }
    tests
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inside = line.trim().strip_prefix('|')?;
    Some(inside.trim_end_matches('|').split('|').map(str::trim).collect())
}

/// Returns whether this is the line of dashes below the header of a table.
fn is_rule(line: &str) -> bool {
    line.trim().starts_with('|') && line.contains('-') && line.chars().all(|c| "|-: ".contains(c))
}

/// Returns the functions that a cell names, without their paths. A dash names none.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split([',', ' ', '`'])
        .filter_map(|word| word.rsplit("::").next())
        .filter(|name| name.chars().any(char::is_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{expect, files};
    use super::*;

    const TESTS: (&str, &str) = (
        "crates/a/src/a.rs",
        "#[test]\nfn it_holds() {}\n#[tokio::test]\n#[cfg(unix)]\nasync fn it_stays() {}\n#[test]\nfn it_grows() {}\n\
         fn helper() {}\nrules! {\n    it_falls,\n    it_rises = 3;\n}\n",
    );
    const TABLE: &str = "| a | test |\n|---|---|\n| 1 | `it_holds` |\n";

    #[test]
    fn missing_test_is_found() {
        let table = "\
# Coverage

| # | capability | test |
|---|:---:|---|
| 1 | a | `kernel::it_holds`, `it_stays` |
| 2 | b | `it_grow` |
| 3 | c | – |
| 4 | d | |
";
        expect(
            &named_tests_exist(&files(&[(COVERAGE, table), TESTS])),
            &[
                "docs/coverage.md:6: expected a test `it_grow`, found none; correct the name or write the test",
            ],
        );
    }

    #[test]
    fn missing_test_of_a_guarantee_is_found() {
        let page = "\
**It holds.** See `no_test`.

- Limits: `no_limit`.
- Tests: `it_holds` (a real process), `a::it_stays`,
  `it_shrinks`, and `cargo xtask sim` in `crates/a`.

It also `stands`.

- Test: `helper`.

";
        let page = format!("{page}{TABLE}");
        expect(
            &named_tests_exist(&files(&[(GUARANTEES, &page), TESTS])),
            &[
                "docs/guarantees.md:5: expected a test `it_shrinks`, found none; correct the name or write \
                 the test",
                "docs/guarantees.md:9: expected a test `helper`, found none; correct the name or write the test",
            ],
        );
    }

    #[test]
    fn tests_written_by_macros_are_found() {
        let page = format!("- Tests: `it_falls`, `it_rises`.\n\n{TABLE}");
        expect(&named_tests_exist(&files(&[(GUARANTEES, &page), TESTS])), &[]);
    }

    #[test]
    fn a_page_that_names_no_test_is_found() {
        expect(
            &named_tests_exist(&files(&[
                (COVERAGE, "| # | proof |\n|---|---|\n| 1 | `it_holds` |\n"),
                TESTS,
            ])),
            &[
                "docs/coverage.md:1: expected a table with a column `test` that names tests; tell xtask otherwise",
            ],
        );
    }

    #[test]
    fn missing_page_expects_no_tests() {
        expect(&named_tests_exist(&files(&[TESTS])), &[]);
    }
}
