//! Rules for every Rust file, in addition to the compiler and clippy.
use super::rust_source::{CodeAndComments, lines_with};
use super::{RepoFile, TidyFinding};

/// Checks that a file starts with its purpose.
pub(super) fn modules_say_what_they_are_for(files: &[RepoFile]) -> Vec<TidyFinding> {
    files
        .iter()
        .filter(|file| file.is_rust() && !begins_with_its_purpose(&file.text))
        .map(|file| {
            TidyFinding::new(
                file,
                1,
                "expected `//!` on the first line; say what the module is for and what it does not know",
            )
        })
        .collect()
}

fn begins_with_its_purpose(text: &str) -> bool {
    text.lines()
        .next()
        .and_then(|first| first.strip_prefix("//!"))
        .is_some_and(|purpose| !purpose.trim().is_empty())
}

/// Code that must not be committed, and what to do instead.
const UNDONE_CODE: &[(&str, &str)] = &[
    ("#[ignore", "make the test pass or delete it"),
    ("todo!(", "write it, or leave out what needs it"),
    ("unimplemented!(", "write it, or leave out what needs it"),
    ("dbg!(", "delete it"),
    ("allow(dead_code", "delete what is dead"),
    ("expect(dead_code", "delete what is dead"),
    ("allow(unused", "delete what is unused"),
    ("expect(unused", "delete what is unused"),
];

/// Words in comments that postpone work.
const UNDONE_COMMENTS: &[&str] = &["FIXME", "XXX"];

/// Checks that nothing is unfinished, disabled or kept for later.
pub(super) fn nothing_is_left_undone(files: &[RepoFile]) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let split = CodeAndComments::of(&file.text);
        for (code, instead) in UNDONE_CODE {
            let found = lines_with(&split.code, code);
            findings.extend(
                found.map(|line| TidyFinding::new(file, line, format!("expected no `{code}`; {instead}"))),
            );
        }
        for word in UNDONE_COMMENTS {
            let what = format!("expected no {word}; do it now, or open an issue");
            findings.extend(
                lines_with(&split.comments, word).map(|line| TidyFinding::new(file, line, what.clone())),
            );
        }
    }
    findings
}

/// The attributes of items for other systems, and of their counterparts.
const NOT_LINUX: &str = "#[cfg(not(target_os = \"linux\"))]";
const LINUX: &str = "#[cfg(target_os = \"linux\")]";

/// Checks that every item for other systems has a counterpart of the same name for Linux, because only Linux is compiled
/// here.
pub(super) fn other_systems_have_same_names(files: &[RepoFile]) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let on_linux: Vec<&str> = items_after(&file.text, LINUX).map(|(_, item)| item).collect();
        let alone = items_after(&file.text, NOT_LINUX).filter(|(_, item)| !on_linux.contains(item));
        findings.extend(alone.map(|(line, item)| {
            TidyFinding::new(file, line, format!("expected `{item}` for Linux too, with the same name"))
        }));
    }
    findings
}

/// Returns the items after an attribute, like `fn name`, with their lines.
fn items_after<'a>(text: &'a str, attribute: &str) -> impl Iterator<Item = (usize, &'a str)> {
    let pairs = text.lines().zip(text.lines().skip(1)).enumerate();
    pairs.filter(move |(_, (line, _))| line.trim() == attribute).filter_map(|(index, (_, line))| {
        let start = ["fn ", "const ", "let "].iter().find_map(|keyword| line.find(keyword))?;
        let item = &line[start..];
        let name = item.split_once(' ')?.1;
        let length = name.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(name.len());
        Some((index + 2, &item[..item.len() - name.len() + length]))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{expect, files};
    use super::*;

    #[test]
    fn file_without_purpose_comment_is_found() {
        expect(
            &modules_say_what_they_are_for(&files(&[
                ("crates/a/src/good.rs", "//! Folds records.\nuse x;\n"),
                ("crates/a/src/late.rs", "use x;\n//! Folds records.\n"),
                ("crates/a/tests/blank.rs", "//!\n"),
                ("docs/a.md", "# No Rust\n"),
            ])),
            &[
                "crates/a/src/late.rs:1: expected `//!` on the first line; say what the module is for and what it does \
                 not know",
                "crates/a/tests/blank.rs:1: expected `//!` on the first line; say what the module is for and what it \
                 does not know",
            ],
        );
    }

    #[test]
    fn item_only_for_other_systems_is_found() {
        let pair =
            |other: &str| format!("{LINUX}\npub fn open(a: u8) {{}}\n{NOT_LINUX}\nfn {other}(_: u8) {{}}\n");
        expect(&other_systems_have_same_names(&files(&[("a.rs", &pair("open"))])), &[]);
        expect(
            &other_systems_have_same_names(&files(&[("a.rs", &pair("opened"))])),
            &["a.rs:4: expected `fn opened` for Linux too, with the same name"],
        );
    }

    #[test]
    fn each_kind_of_undone_code_is_found() {
        for (code, instead) in UNDONE_CODE {
            let findings = nothing_is_left_undone(&files(&[("a.rs", &format!("\n{code}"))]));
            expect(&findings, &[&format!("a.rs:2: expected no `{code}`; {instead}")]);
        }
    }

    #[test]
    fn todo_comment_is_found() {
        for word in UNDONE_COMMENTS {
            let findings = nothing_is_left_undone(&files(&[("a.rs", &format!("x\n// {word}: later"))]));
            expect(&findings, &[&format!("a.rs:2: expected no {word}; do it now, or open an issue")]);
        }
    }

    #[test]
    fn strings_and_comments_may_contain_forbidden_code() {
        expect(&nothing_is_left_undone(&files(&[("a.rs", "let x = \"todo!()\"; // dbg!(x)")])), &[]);
    }
}
