//! `docs/coverage.md` names the test for each capability. These tests must exist.
use super::rust_source::contains_word;
use super::{RepoFile, TidyFinding};

const PAGE: &str = "docs/coverage.md";

/// Checks that each test in the table is a function in the repository.
pub(super) fn named_tests_exist(files: &[RepoFile]) -> Vec<TidyFinding> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else { return Vec::new() };
    let named = named_tests(page);
    if named.is_empty() {
        return vec![TidyFinding::new(
            page,
            1,
            "expected a table with a column `test` that names tests; tell xtask otherwise",
        )];
    }
    named
        .into_iter()
        .filter(|(_, test)| !is_function(files, test))
        .map(|(line, test)| {
            let what =
                format!("expected a test `{test}`, found no `fn {test}`; correct the name or write the test");
            TidyFinding::new(page, line, what)
        })
        .collect()
}

/// Returns the tests in the test column of every table, each with its line.
fn named_tests(page: &RepoFile) -> Vec<(usize, &str)> {
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

fn is_function(files: &[RepoFile], name: &str) -> bool {
    let function = format!("fn {name}");
    files.iter().filter(|file| file.is_rust()).any(|file| contains_word(&file.text, &function))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{expect, files};
    use super::*;

    const TESTS: (&str, &str) =
        ("crates/a/src/a.rs", "fn it_holds() {}\nasync fn it_stays() {}\nfn it_grows() {}\n");

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
            &named_tests_exist(&files(&[(PAGE, table), TESTS])),
            &[
                "docs/coverage.md:6: expected a test `it_grow`, found no `fn it_grow`; correct the name or write the test",
            ],
        );
    }

    #[test]
    fn a_page_that_names_no_test_is_found() {
        expect(
            &named_tests_exist(&files(&[(PAGE, "| # | proof |\n|---|---|\n| 1 | `it_holds` |\n"), TESTS])),
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
