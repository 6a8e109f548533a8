//! The pure crates must not use a clock, randomness, I/O, async, or the order of a hash map.
use super::rust_source::{CodeAndComments, contains_word, lines_with};
use super::{RepoFile, TidyFinding};

const PURE: &[&str] = &["crates/vocab/src/", "crates/kernel/src/"];

/// Forbidden names, and what they would bring in.
const IMPURE: &[(&str, &str)] = &[
    ("SystemTime", "a clock"),
    ("Instant", "a clock"),
    ("rand", "randomness"),
    ("getrandom", "randomness"),
    ("async", "async"),
    ("await", "async"),
    ("tokio", "async"),
    ("HashMap", "an order that differs between runs"),
    ("HashSet", "an order that differs between runs"),
    ("RandomState", "an order that differs between runs"),
];

/// Forbidden modules of `std`, also within `use std::{…}`.
const IMPURE_STD: &[(&str, &str)] = &[
    ("fs", "I/O"),
    ("io", "I/O"),
    ("net", "I/O"),
    ("process", "I/O"),
    ("env", "the environment"),
    ("thread", "threads"),
];

/// Checks the pure crates. Replay is only correct if the same records always lead to the same decision.
pub(super) fn pure_crates_are_pure(files: &[RepoFile]) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in
        files.iter().filter(|file| file.is_rust() && PURE.iter().any(|place| file.path.starts_with(place)))
    {
        let code = CodeAndComments::of(&file.text).code;
        let mut found = Vec::new();
        for (word, brings) in IMPURE {
            found.extend(lines_with(&code, word).map(|line| (line, (*word).to_owned(), *brings)));
        }
        for (module, brings) in IMPURE_STD {
            let path = format!("std::{module}");
            found.extend(lines_with(&code, &path).map(|line| (line, path.clone(), *brings)));
        }
        for (line, text) in std_groups(&code) {
            let within = IMPURE_STD.iter().filter(|(module, _)| contains_word(text, module));
            found.extend(within.map(|(module, brings)| (line, format!("std::{module}"), *brings)));
        }
        found.sort();
        findings.extend(found.into_iter().map(|(line, word, brings)| {
            let what = format!(
                "expected no {word} here, it brings {brings}; let it arrive as an effect's outcome or as an argument"
            );
            TidyFinding::new(file, line, what)
        }));
    }
    findings
}

/// Returns the braces after each `std::`, by line.
fn std_groups(code: &str) -> Vec<(usize, &str)> {
    let mut groups = Vec::new();
    for (at, opening) in code.match_indices("std::{") {
        let inside = &code[at + opening.len()..];
        let mut depth = 1;
        let end = inside.find(|c| {
            depth += match c {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            depth == 0
        });
        let first_line = 1 + code[..at].matches('\n').count();
        let lines = inside[..end.unwrap_or(inside.len())].lines();
        groups.extend((first_line..).zip(lines));
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::super::tests::{expect, files};
    use super::*;

    fn check(text: &str, places: &[&str]) {
        let findings = pure_crates_are_pure(&files(&[("crates/kernel/src/a.rs", text)]));
        let found: Vec<String> = findings
            .iter()
            .map(|finding| {
                let word =
                    finding.what.trim_start_matches("expected no ").split(' ').next().unwrap_or_default();
                format!("{}: {word}", finding.line)
            })
            .collect();
        assert_eq!(found, places);
    }

    #[test]
    fn each_impure_api_is_found() {
        for (word, _) in IMPURE {
            check(&format!("\nlet x = {word};"), &[&format!("2: {word}")]);
        }
        for (module, _) in IMPURE_STD {
            check(&format!("\nuse std::{module}::X;"), &[&format!("2: std::{module}")]);
            check(
                &format!("\nuse std::{{\n    fmt::{{self}},\n    {module},\n}};"),
                &[&format!("4: std::{module}")],
            );
        }
    }

    #[test]
    fn finding_names_the_impurity() {
        expect(
            &pure_crates_are_pure(&files(&[("crates/vocab/src/a.rs", "use std::time::SystemTime;")])),
            &[
                "crates/vocab/src/a.rs:1: expected no SystemTime here, it brings a clock; let it arrive as an effect's \
               outcome or as an argument",
            ],
        );
    }

    #[test]
    fn impure_names_in_comments_and_strings_are_allowed() {
        check("// tokio\nlet instantly = \"HashMap\"; const PAGE: &str = include_str!(\"x\");", &[]);
        check("use std::{fmt, str::FromStr}; use std::time::Duration; fn process() {} let env = 1;", &[]);
    }

    #[test]
    fn other_crates_may_be_impure() {
        expect(&pure_crates_are_pure(&files(&[("crates/runtime/src/a.rs", "use tokio::sync;")])), &[]);
    }
}
