//! The bugs in `xtask/planted` must fit the code of today, or `cargo xtask planted` cannot plant them.
use super::rust_source::contains_word;
use super::{RepoFile, TidyFinding};
use std::path::Path;

const FOLDER: &str = "xtask/planted/";

/// Checks that each planted bug applies to the code and names a test of the given package.
pub(super) fn planted_bugs_apply(files: &[RepoFile]) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for patch in files.iter().filter(|file| is_patch(&file.path)) {
        findings.extend(unknown_test(patch, files));
        findings.extend(Hunk::all(patch).iter().filter_map(|hunk| hunk.misfit(patch, files)));
    }
    findings
}

fn is_patch(path: &str) -> bool {
    path.starts_with(FOLDER) && Path::new(path).extension().is_some_and(|extension| extension == "patch")
}

/// Reports a second line that is not `fails: PACKAGE TEST`, with a test in the directory of the package.
fn unknown_test(patch: &RepoFile, files: &[RepoFile]) -> Option<TidyFinding> {
    let named = patch.text.lines().nth(1).and_then(|line| line.strip_prefix("fails: ")?.split_once(' '));
    let Some((package, test)) = named else {
        return Some(TidyFinding::new(patch, 2, "expected `fails: PACKAGE TEST`"));
    };
    let name = package.strip_prefix("outlast-").unwrap_or(package);
    let folders = [format!("crates/{name}/"), format!("testing/{name}/")];
    // Some tests are written by a macro that takes their name, so there is no `fn` to look for.
    let found = files.iter().filter(|file| file.is_rust()).any(|file| {
        folders.iter().any(|folder| file.path.starts_with(folder)) && contains_word(&file.text, test)
    });
    let what = || format!("expected a test `{test}` in {package}, found none; correct the line");
    (!found).then(|| TidyFinding::new(patch, 2, what()))
}

/// A part of a patch: the lines that it replaces or keeps in one file.
struct Hunk {
    /// The line of its header in the patch.
    line: usize,
    /// The file that it changes.
    path: String,
    /// The text that must be in the file.
    before: String,
}

impl Hunk {
    fn all(patch: &RepoFile) -> Vec<Self> {
        let mut hunks: Vec<Self> = Vec::new();
        let mut changed_file = "";
        for (line, text) in patch.lines() {
            if let Some(named) = text.strip_prefix("+++ b/") {
                changed_file = named;
            } else if text.starts_with("@@ ") {
                hunks.push(Self { line, path: changed_file.to_owned(), before: "\n".to_owned() });
            } else if let (Some(context), Some(hunk)) = (text.strip_prefix([' ', '-']), hunks.last_mut())
                && !text.starts_with("--- ")
            {
                hunk.before.push_str(context);
                hunk.before.push('\n');
            }
        }
        hunks
    }

    fn misfit(&self, patch: &RepoFile, files: &[RepoFile]) -> Option<TidyFinding> {
        let file = files.iter().find(|file| file.path == self.path);
        // With a first empty line, the text matches whole lines only.
        let applies = file.is_some_and(|file| format!("\n{}", file.text).contains(&self.before));
        let what = || {
            format!("the bug does not apply to {}; write the patch again for the code of today", self.path)
        };
        (!applies).then(|| TidyFinding::new(patch, self.line, what()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{expect, files};
    use super::*;

    const TEST: (&str, &str) = ("crates/a/tests/a.rs", "fn it_holds() {}\n");
    const PATCH: &str = "\
It no longer holds.
fails: outlast-a it_holds

diff --git a/crates/a/src/a.rs b/crates/a/src/a.rs
--- a/crates/a/src/a.rs
+++ b/crates/a/src/a.rs
@@ -1,2 +1,2 @@
 fn holds() -> bool {
-    true
+    false
";

    #[test]
    fn bug_that_fits_passes() {
        let code = ("crates/a/src/a.rs", "use b;\n\nfn holds() -> bool {\n    true\n}\n");
        expect(&planted_bugs_apply(&files(&[("xtask/planted/a.patch", PATCH), code, TEST])), &[]);
    }

    #[test]
    fn bug_in_changed_code_is_found() {
        let code = ("crates/a/src/a.rs", "fn is_held() -> bool {\n    true\n}\n");
        let misfit = "xtask/planted/a.patch:7: the bug does not apply to crates/a/src/a.rs; write the patch again for the \
             code of today";
        expect(&planted_bugs_apply(&files(&[("xtask/planted/a.patch", PATCH), code, TEST])), &[misfit]);
        expect(&planted_bugs_apply(&files(&[("xtask/planted/a.patch", PATCH), TEST])), &[misfit]);
    }

    #[test]
    fn bug_whose_test_moved_is_found() {
        let code = ("crates/a/src/a.rs", "fn holds() -> bool {\n    true\n}\n");
        let test = ("testing/b/src/lib.rs", "fn it_holds() {}\n");
        expect(
            &planted_bugs_apply(&files(&[("xtask/planted/a.patch", PATCH), code, test])),
            &[
                "xtask/planted/a.patch:2: expected a test `it_holds` in outlast-a, found none; correct the line",
            ],
        );
    }
}
