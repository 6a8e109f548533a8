//! `file_read`, `file_write`, `file_list`, `file_grep`, `file_edit`: text files below one directory.
//!
//! Calls of one reply run in order, so each sees the writes of the ones before it. [`file_root`] confines every path.
pub(crate) mod edit;
pub(crate) mod file_root;
pub(crate) mod grep;
pub(crate) mod link_free_open;
pub(crate) mod protected_files;

use file_root::FileRoot;
use outlast_ports::service::Service;
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, done, failed};
use outlast_vocab::message::shown;
use outlast_vocab::tool::CallScheduling;
use outlast_vocab::{Error, Kind};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// The tool that reads a text file.
pub struct FileRead;

/// The tool that writes a text file atomically. Writing the same text again has no effect.
pub struct FileWrite;

/// The tool that lists a directory.
pub struct FileList;

/// What the model passes to `file_read`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileReadArgs {
    /// Where the file is, like `notes/today.txt`.
    path: String,
}

/// What the model passes to `file_write`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileWriteArgs {
    /// Where the file is to be, like `notes/today.txt`. Directories are made as needed.
    path: String,
    /// All of its text; what was there is replaced.
    content: String,
}

/// What the model passes to `file_list`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileListArgs {
    /// Which directory; the top one when absent.
    path: Option<String>,
}

fn not_blank(what: &str, text: &str) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::new(Kind::ToolArgsInvalid, format!("expected {what}, got an empty one")));
    }
    Ok(())
}

fn serial(about: ToolSpec) -> ToolSpec {
    about.scheduled(CallScheduling::Keyed("files".to_owned()))
}

impl Tool for FileRead {
    type Args = FileReadArgs;
    type Needs = Service<FileRoot>;

    fn spec(&self) -> ToolSpec {
        serial(ToolSpec::new("file_read", "Reads a text file.").pure())
    }

    async fn run(
        &self,
        root: Service<FileRoot>,
        _: Call,
        args: FileReadArgs,
    ) -> Result<ToolRunOutcome, Error> {
        done(root.read(&args.path)?)
    }
}

impl Tool for FileWrite {
    type Args = FileWriteArgs;
    type Needs = Service<FileRoot>;

    fn spec(&self) -> ToolSpec {
        serial(ToolSpec::new("file_write", "Writes a text file, replacing what was there.").idempotent())
    }

    async fn run(
        &self,
        root: Service<FileRoot>,
        call: Call,
        args: FileWriteArgs,
    ) -> Result<ToolRunOutcome, Error> {
        root.write(&args.path, &args.content, call.id)?;
        done(json!({"bytes": args.content.len()}))
    }

    async fn preview(&self, root: Service<FileRoot>, args: FileWriteArgs) -> Result<Option<String>, Error> {
        let path = shown(&args.path);
        let bytes = args.content.len();
        Ok(Some(match root.read(&args.path) {
            Ok(now) if now == args.content => format!("`{path}` has this text already"),
            Ok(now) => format!("replaces the {} bytes of `{path}` by {bytes} bytes", now.len()),
            Err(_) => format!("writes {bytes} bytes to `{path}`"),
        }))
    }
}

impl Tool for FileList {
    type Args = FileListArgs;
    type Needs = Service<FileRoot>;

    fn spec(&self) -> ToolSpec {
        let description = "Lists the names in a directory; names of directories end with a slash.";
        serial(ToolSpec::new("file_list", description).pure())
    }

    async fn run(
        &self,
        root: Service<FileRoot>,
        _: Call,
        args: FileListArgs,
    ) -> Result<ToolRunOutcome, Error> {
        // On the async threads, a directory with many entries would delay other turns.
        let listed = tokio::task::spawn_blocking(move || root.list(&args.path.unwrap_or_default()));
        let listing = listed.await.map_err(|cause| failed(format!("the listing ended early: {cause}")))??;
        done(json!({"entries": listing.names, "left_out": listing.left_out}))
    }
}

#[cfg(test)]
mod tests {
    use crate::tool_tester::ToolTester;
    use expect_test::expect;
    use serde_json::json;

    #[test]
    fn written_files_can_be_read_and_listed() {
        let dir = tempfile::tempdir().unwrap();
        let trial = ToolTester::with_files(dir.path());
        let write = json!({"path": "notes/today.txt", "content": "tea\n"});
        let log = [
            trial.show("file_list", json!({})),
            trial.show("file_write", write.clone()),
            trial.show("file_write", write),
            trial.show("file_read", json!({"path": "./notes/today.txt"})),
            trial.show("file_write", json!({"path": "notes/today.txt", "content": ""})),
            trial.show("file_read", json!({"path": "notes/today.txt"})),
            trial.show("file_list", json!({})),
            trial.show("file_list", json!({"path": "."})),
            trial.show("file_list", json!({"path": "notes"})),
        ];
        expect![[r#"
            {"entries":[],"left_out":0}
            {"bytes":4}
            {"bytes":4}
            "tea\n"
            {"bytes":0}
            ""
            {"entries":["notes/"],"left_out":0}
            {"entries":["notes/"],"left_out":0}
            {"entries":["today.txt"],"left_out":0}
        "#]]
        .assert_eq(&log.concat());
    }

    #[test]
    fn missing_file_error_names_the_path() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.txt"), "a").unwrap();
        std::fs::create_dir(dir.path().join("docs")).unwrap();
        let trial = ToolTester::with_files(dir.path());
        let log = [
            trial.show("file_read", json!({"path": "b.txt"})),
            trial.show("file_read", json!({"path": "docs"})),
            trial.show("file_read", json!({"path": "a.txt/b"})),
            trial.show("file_write", json!({"path": "docs", "content": "x"})),
            trial.show("file_write", json!({"path": "a.txt/b", "content": "x"})),
            trial.show("file_list", json!({"path": "a.txt"})),
            trial.show("file_list", json!({"path": "none"})),
            trial.show("file_read", json!({"file": "a.txt"})),
        ];
        expect![[r"
            tool.failed: `b.txt` does not exist
            tool.failed: expected a file, but `docs` is a directory
            tool.failed: `a.txt/b` is not a directory, or goes through a file
            tool.failed: expected a file, but `docs` is a directory
            tool.failed: `a.txt/b` is not a directory, or goes through a file
            tool.failed: `a.txt` is not a directory, or goes through a file
            tool.failed: `none` does not exist
            tool.args_invalid: the arguments do not fit: unknown field `file`, expected `path`
        "]]
        .assert_eq(&log.concat());
    }
}
