//! `file_grep`: finds lines in files by a pattern.
//!
//! Matching takes linear time. The result lines, the searched files, the size of a pattern and the work of one search
//! are bounded.
use super::file_root::FileRoot;
use super::{not_blank, serial};
use outlast_ports::service::Service;
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, done, failed};
use outlast_validation::{compile_regex, expanded_size};
use outlast_vocab::limits::PATTERN_SIZE;
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The maximum number of result lines.
pub const GREP_LINES: usize = 200;

/// The maximum number of searched files.
pub const GREP_FILES: usize = 10_000;

/// The maximum length of a pattern or glob in bytes.
pub const GREP_PATTERN_BYTES: usize = 4 << 10;

/// The maximum work of one search.
///
/// Matching a byte costs one unit, plus one for every 64 characters, classes and groups of the pattern with its
/// repetitions expanded. The largest file can be searched with any pattern.
pub const GREP_WORK: u64 = 256 << 20;

/// The pattern size that costs one more unit per byte.
const WORK_SIZE: u64 = 64;

/// The maximum number of characters of a result line.
const LINE_CHARS: usize = 300;

/// The tool that finds lines.
pub struct FileGrep;

/// What the model passes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileGrepArgs {
    /// A regular expression, like `fn \w+`.
    pattern: String,
    /// The directory or file to look in; everything when absent.
    path: Option<String>,
    /// Only files whose path fits, like `*.rs` or `src/**/*.toml`.
    glob: Option<String>,
    /// Whether upper and lower case are the same.
    #[serde(default)]
    ignore_case: bool,
}

/// A matching line.
#[derive(Debug, Serialize)]
struct GrepMatch {
    path: String,
    line: usize,
    text: String,
}

impl Tool for FileGrep {
    type Args = FileGrepArgs;
    type Needs = Service<FileRoot>;

    fn spec(&self) -> ToolSpec {
        let description = "Finds lines in text files by a regular expression: path, number and text of each.";
        serial(ToolSpec::new("file_grep", description).pure())
    }

    async fn run(
        &self,
        root: Service<FileRoot>,
        _: Call,
        args: FileGrepArgs,
    ) -> Result<ToolRunOutcome, Error> {
        check_length("a pattern", &args.pattern)?;
        let pattern = GrepPattern::new(&args.pattern, args.ignore_case)?;
        let glob = args.glob.as_deref().map(PathGlob::new).transpose()?;
        let search = GrepSearch { root, pattern, glob, stopped: Arc::default() };
        let _stop = StopOnDrop(search.stopped.clone());
        // On the async threads, reading and matching thousands of files would delay other turns.
        let searched = tokio::task::spawn_blocking(move || search.run(&args.path.unwrap_or_default()));
        let (found, more) =
            searched.await.map_err(|cause| failed(format!("the search ended early: {cause}")))??;
        done(json!({"found": found, "more": more}))
    }
}

/// A search through files, which runs on a blocking thread.
struct GrepSearch {
    root: Service<FileRoot>,
    pattern: GrepPattern,
    glob: Option<PathGlob>,
    stopped: Arc<AtomicBool>,
}

/// The remaining work of a search.
struct WorkBudget(u64);

impl WorkBudget {
    /// Spends the work of matching a text. Returns whether enough was left.
    fn spend(&mut self, pattern: &GrepPattern, text: &str) -> bool {
        // An empty line costs time too.
        let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX).saturating_add(1);
        let left = self.0.checked_sub(bytes.saturating_mul(pattern.work_per_byte));
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

/// Stops a search when its caller stops waiting.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl GrepSearch {
    /// Returns the matching lines, and whether there are more.
    fn run(&self, below: &str) -> Result<(Vec<GrepMatch>, bool), Error> {
        let files = self.root.files_below(below, GREP_FILES, &self.stopped)?;
        let (mut found, mut budget) = (Vec::new(), WorkBudget(GREP_WORK));
        for path in files.paths {
            if let Some(glob) = &self.glob {
                if !budget.spend(&glob.pattern, &path) {
                    return Ok((found, true));
                }
                if !glob.matches_path(&path) {
                    continue;
                }
            }
            if self.stopped.load(Ordering::Relaxed) {
                return Ok((found, true));
            }
            // Skip files that are not text, too large, or gone.
            let Ok(text) = self.root.read(&path) else { continue };
            for (number, line) in text.lines().enumerate() {
                if self.stopped.load(Ordering::Relaxed) || !budget.spend(&self.pattern, line) {
                    return Ok((found, true));
                }
                if !self.pattern.regex.is_match(line) {
                    continue;
                }
                if found.len() == GREP_LINES {
                    return Ok((found, true));
                }
                let text = line.chars().take(LINE_CHARS).collect();
                found.push(GrepMatch { path: path.clone(), line: number + 1, text });
            }
        }
        Ok((found, files.left_out))
    }
}

/// Rejects an argument that is empty or too long.
fn check_length(what: &str, text: &str) -> Result<(), Error> {
    not_blank(what, text)?;
    if text.len() > GREP_PATTERN_BYTES {
        let detail = format!("expected {what} of at most {GREP_PATTERN_BYTES} bytes, got {}", text.len());
        return Err(Error::new(Kind::ToolArgsInvalid, detail));
    }
    Ok(())
}

/// A regular expression and its matching cost.
struct GrepPattern {
    regex: Regex,
    work_per_byte: u64,
}

impl GrepPattern {
    fn new(pattern: &str, ignore_case: bool) -> Result<Self, Error> {
        let regex = compile_regex(pattern, ignore_case).map_err(|why| {
            let detail = format!("expected a regular expression, got `{}`: {why}", shown(pattern));
            Error::new(Kind::ToolArgsInvalid, detail)
        })?;
        // A pattern of unknown size is treated as large.
        let size = expanded_size(pattern).unwrap_or(PATTERN_SIZE);
        Ok(Self { regex, work_per_byte: 1 + size / WORK_SIZE })
    }
}

/// A glob for paths: `*` and `?` within a name, `**` across names. Without a slash it matches the file name alone.
struct PathGlob {
    pattern: GrepPattern,
    for_name: bool,
}

impl PathGlob {
    fn new(glob: &str) -> Result<Self, Error> {
        check_length("a glob", glob)?;
        let mut pattern = String::from("^");
        let mut rest = glob;
        while let Some(first) = rest.chars().next() {
            let (piece, length) = match first {
                '*' if rest.starts_with("**/") => ("(.*/)?".to_owned(), 3),
                '*' if rest.starts_with("**") => (".*".to_owned(), 2),
                '*' => ("[^/]*".to_owned(), 1),
                '?' => ("[^/]".to_owned(), 1),
                other => (regex::escape(other.encode_utf8(&mut [0; 4])), other.len_utf8()),
            };
            pattern.push_str(&piece);
            rest = &rest[length..];
        }
        pattern.push('$');
        Ok(Self { pattern: GrepPattern::new(&pattern, false)?, for_name: !glob.contains('/') })
    }

    fn matches_path(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().filter(|_| self.for_name);
        self.pattern.regex.is_match(name.unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use crate::tool_tester::ToolTester;
    use expect_test::expect;
    use serde_json::{Value, json};
    use std::fs;
    use std::os::unix::fs::symlink;

    fn found(trial: &ToolTester, arguments: Value) -> String {
        trial.show("file_grep", arguments)
    }

    #[test]
    fn lines_are_found_in_the_order_of_paths() {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in
            [("a.rs", "fn one() {}\nlet x;\n"), ("src/b.rs", "fn two() {}\n"), ("src/c/d.toml", "FN = 1\n")]
        {
            let place = dir.path().join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, text).unwrap();
        }
        fs::write(dir.path().join("binary"), [0xff, b'f', b'n']).unwrap();
        fs::write(dir.path().join(".outlast-cal_1"), "fn unfinished").unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "fn secret").unwrap();
        symlink(outside.path(), dir.path().join("link")).unwrap();
        symlink(outside.path().join("secret"), dir.path().join("file")).unwrap();
        let trial = ToolTester::with_files(dir.path());
        let log = [
            found(&trial, json!({"pattern": "fn"})),
            found(&trial, json!({"pattern": "fn", "ignore_case": true, "path": "src"})),
            found(&trial, json!({"pattern": "^fn \\w+", "glob": "*.rs", "path": "src/b.rs"})),
            found(&trial, json!({"pattern": "fn", "glob": "src/*.rs"})),
            found(&trial, json!({"pattern": "(?i)fn", "glob": "**/*.toml"})),
            found(&trial, json!({"pattern": "fn", "path": "link"})),
            found(&trial, json!({"pattern": "fn", "path": "../"})),
            found(&trial, json!({"pattern": "fn("})),
            found(&trial, json!({"pattern": " "})),
            found(&trial, json!({"pattern": "((a{1,1000}){1,1000}){1,1000}"})),
        ];
        expect![[r#"
            {"found":[{"line":1,"path":"a.rs","text":"fn one() {}"},{"line":1,"path":"src/b.rs","text":"fn two() {}"}],"more":false}
            {"found":[{"line":1,"path":"src/b.rs","text":"fn two() {}"},{"line":1,"path":"src/c/d.toml","text":"FN = 1"}],"more":false}
            {"found":[{"line":1,"path":"src/b.rs","text":"fn two() {}"}],"more":false}
            {"found":[{"line":1,"path":"src/b.rs","text":"fn two() {}"}],"more":false}
            {"found":[{"line":1,"path":"src/c/d.toml","text":"FN = 1"}],"more":false}
            tool.failed: `link` is a symbolic link or goes through one; file tools do not follow links
            tool.args_invalid: expected a path like `notes/today.txt`, without `..`, got "../"
            tool.args_invalid: expected a regular expression, got `fn(`: unclosed group
            {"found":[{"line":1,"path":"a.rs","text":"fn one() {}"},{"line":2,"path":"a.rs","text":"let x;"},{"line":1,"path":"src/b.rs","text":"fn two() {}"},{"line":1,"path":"src/c/d.toml","text":"FN = 1"}],"more":false}
            tool.args_invalid: expected a regular expression, got `((a{1,1000}){1,1000}){1,1000}`: Compiled regex exceeds size limit of 1048576 bytes.
        "#]].assert_eq(&log.concat());
    }

    #[test]
    fn backtracking_pattern_runs_in_linear_time() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "a".repeat(100_000)).unwrap();
        let trial = ToolTester::with_files(dir.path());
        assert_eq!(found(&trial, json!({"pattern": "(a+)+b$"})), "{\"found\":[],\"more\":false}\n");
    }

    #[test]
    fn grep_results_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), format!("{}\n", "é".repeat(400)).repeat(super::GREP_LINES + 1))
            .unwrap();
        let trial = ToolTester::with_files(dir.path());
        let given = trial.call("file_grep", json!({"pattern": "é"})).unwrap();
        let lines = given["found"].as_array().unwrap();
        assert_eq!((lines.len(), &given["more"]), (super::GREP_LINES, &json!(true)));
        assert_eq!(lines[0]["text"].as_str().unwrap().chars().count(), super::LINE_CHARS);
    }

    #[test]
    fn search_stops_at_its_work_limit() {
        let dir = tempfile::tempdir().unwrap();
        let large = ".".repeat(crate::FILE_BYTES);
        for (name, text) in [("a", "needle"), ("b", large.as_str()), ("c", large.as_str()), ("d", "needle")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let trial = ToolTester::with_files(dir.path());
        let log = [
            found(&trial, json!({"pattern": "needle"})),
            found(&trial, json!({"pattern": "needle|x{9000}"})),
            found(&trial, json!({"pattern": "needle|x{9000}", "path": "b"})),
        ];
        expect![[r#"
            {"found":[{"line":1,"path":"a","text":"needle"},{"line":1,"path":"d","text":"needle"}],"more":false}
            {"found":[{"line":1,"path":"a","text":"needle"}],"more":true}
            {"found":[],"more":false}
        "#]]
        .assert_eq(&log.concat());
    }

    #[test]
    fn long_patterns_and_globs_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let trial = ToolTester::with_files(dir.path());
        let long = "x".repeat(super::GREP_PATTERN_BYTES + 1);
        let logged =
            [found(&trial, json!({"pattern": long})), found(&trial, json!({"pattern": "x", "glob": long}))];
        expect![[r"
            tool.args_invalid: expected a pattern of at most 4096 bytes, got 4097
            tool.args_invalid: expected a glob of at most 4096 bytes, got 4097
        "]]
        .assert_eq(&logged.concat());
        let whole = &long[1..];
        assert!(trial.call("file_grep", json!({"pattern": whole, "glob": whole})).is_ok());
    }
}
