//! SQL statements must be constant text, so that outside values only reach a database as bound parameters.
use super::{RepoFile, TidyFinding};

/// The first words of statements.
const BEGINNINGS: &[&str] =
    &["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "CREATE ", "ALTER ", "DROP ", "WITH ", "PRAGMA "];

/// Macros that build a text.
const MAKERS: &[&str] = &["format!(", "write!(", "format_args!("];

/// Checks that no statement is built from parts. Tests may do so, because they have no outside input.
pub(super) fn statements_are_written_whole(files: &[RepoFile]) -> Vec<TidyFinding> {
    let shipped = |file: &&RepoFile| {
        let is_test = file.path.contains("/tests/") || file.path.ends_with("/tests.rs");
        file.is_rust() && file.path.starts_with("crates/") && !is_test
    };
    let mut findings = Vec::new();
    for file in files.iter().filter(shipped) {
        for maker in MAKERS {
            for (at, _) in file.text.match_indices(maker) {
                if makes_a_statement(&file.text[at + maker.len()..]) {
                    let line = 1 + file.text[..at].matches('\n').count();
                    let what = format!(
                        "expected a statement that is written whole, found one that `{maker}…)` makes; bind parameters"
                    );
                    findings.push(TidyFinding::new(file, line, what));
                }
            }
        }
    }
    findings
}

/// Returns whether the first text among these arguments starts like a statement.
fn makes_a_statement(arguments: &str) -> bool {
    let Some((before, text)) = arguments.split_once('"') else { return false };
    let is_first = before.chars().all(|c| c.is_whitespace() || c == '_' || c == ',' || c.is_alphanumeric());
    let text = text.trim_start();
    is_first && BEGINNINGS.iter().any(|beginning| text.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{expect, files};
    use super::*;

    #[test]
    fn concatenated_sql_statement_is_found() {
        let text = "//! x\nlet sql = format!(\"SELECT {x} FROM t\");\nwrite!(sql, \"\n  DELETE FROM {t}\")";
        expect(
            &statements_are_written_whole(&files(&[("crates/store/src/a.rs", text)])),
            &[
                "crates/store/src/a.rs:2: expected a statement that is written whole, found one that `format!(…)` makes; \
                 bind parameters",
                "crates/store/src/a.rs:3: expected a statement that is written whole, found one that `write!(…)` makes; \
                 bind parameters",
            ],
        );
    }

    #[test]
    fn sql_words_in_messages_and_tests_are_allowed() {
        let words = "//! x\nformat!(\"{n} selected\"); let sql = \"SELECT 1\"; format!(\"Update {x}\");";
        expect(&statements_are_written_whole(&files(&[("crates/store/src/a.rs", words)])), &[]);
        let test = "//! x\nformat!(\"SELECT {x}\")";
        expect(&statements_are_written_whole(&files(&[("crates/store/src/tables/tests.rs", test)])), &[]);
    }
}
