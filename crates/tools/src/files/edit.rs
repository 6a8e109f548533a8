//! `file_edit`: replaces a text in a file.
//!
//! The text must occur exactly once, so that the place is unambiguous. The hashes of the old and the new content are
//! recorded before the file is written. After an interruption, the edit is found done, is done now, or is refused
//! because the file changed otherwise. It is never done twice.
use super::file_root::FileRoot;
use super::{not_blank, serial};
use outlast_ports::service::{Service, Steps};
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, done, failed};
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Hash};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The tool that replaces a text in a file.
pub struct FileEdit;

/// What the model passes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileEditArgs {
    /// Where the file is.
    path: String,
    /// The text to replace, exactly as it is in the file, with enough around it to be there only once.
    old: String,
    /// The text that takes its place.
    new: String,
    /// Replace every place where it is; without this it must be there once.
    #[serde(default)]
    all: bool,
}

/// A prepared edit.
#[derive(Serialize, Deserialize)]
struct EditPlan {
    before: Hash,
    after: Hash,
    places: usize,
}

impl Tool for FileEdit {
    type Args = FileEditArgs;
    type Needs = (Service<FileRoot>, Steps);

    fn spec(&self) -> ToolSpec {
        let description = "Replaces a text in a file by another. The old text must be in the file exactly once, unless \
             all places are meant.";
        serial(ToolSpec::new("file_edit", description).idempotent().durable())
    }

    async fn run(
        &self,
        (root, steps): Self::Needs,
        call: Call,
        args: FileEditArgs,
    ) -> Result<ToolRunOutcome, Error> {
        not_blank("the old text", &args.old)?;
        let plan: EditPlan = steps
            .run("plan", &args.path, async {
                let text = root.read(&args.path)?;
                let (edited, places) = apply_edit(&args, &text)?;
                Ok(EditPlan { before: Hash::of(text.as_bytes()), after: Hash::of(edited.as_bytes()), places })
            })
            .await?;
        let text = root.read(&args.path)?;
        let now = Hash::of(text.as_bytes());
        if now == plan.before {
            root.write(&args.path, &apply_edit(&args, &text)?.0, call.id)?;
        } else if now != plan.after {
            let path = shown(&args.path);
            return Err(failed(format!("`{path}` was changed while it was edited; read it and retry")));
        }
        done(json!({ "replaced": plan.places }))
    }

    async fn preview(&self, (root, _): Self::Needs, args: FileEditArgs) -> Result<Option<String>, Error> {
        not_blank("the old text", &args.old)?;
        let (_, places) = apply_edit(&args, &root.read(&args.path)?)?;
        let (path, times) = (shown(&args.path), if places == 1 { "once" } else { "in every place" });
        Ok(Some(format!("in `{path}`, {times}:\n- {}\n+ {}", shown(&args.old), shown(&args.new))))
    }
}

fn apply_edit(args: &FileEditArgs, text: &str) -> Result<(String, usize), Error> {
    let path = shown(&args.path);
    match text.matches(&args.old).count() {
        0 => Err(failed(format!("the old text is not in `{path}`; read the file and copy it exactly"))),
        1 => Ok((text.replacen(&args.old, &args.new, 1), 1)),
        places if args.all => Ok((text.replace(&args.old, &args.new), places)),
        places => Err(failed(format!(
            "the old text is in `{path}` {places} times; pass more of the text around it, or set `all`"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use crate::tool_tester::ToolTester;
    use expect_test::expect;
    use serde_json::json;
    use std::fs;

    #[test]
    fn edit_replaces_text_that_occurs_once() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("a.txt");
        fs::write(&place, "one two\ntwo three\n").unwrap();
        let trial = ToolTester::with_files(dir.path());
        let edit = |arguments| trial.show("file_edit", arguments) + &fs::read_to_string(&place).unwrap();
        let log = [
            edit(json!({"path": "a.txt", "old": "two", "new": "2"})),
            edit(json!({"path": "a.txt", "old": "one two", "new": "1 2"})),
            edit(json!({"path": "a.txt", "old": "one two", "new": "1 2"})),
            edit(json!({"path": "a.txt", "old": "\n", "new": ";\n", "all": true})),
            edit(json!({"path": "a.txt", "old": "", "new": "x"})),
            edit(json!({"path": "../a.txt", "old": "a", "new": "x"})),
            edit(json!({"path": "b.txt", "old": "a", "new": "x"})),
        ];
        expect![[r#"
            tool.failed: the old text is in `a.txt` 2 times; pass more of the text around it, or set `all`
            one two
            two three
            {"replaced":1}
            1 2
            two three
            tool.failed: the old text is not in `a.txt`; read the file and copy it exactly
            1 2
            two three
            {"replaced":2}
            1 2;
            two three;
            tool.args_invalid: expected the old text, got an empty one
            1 2;
            two three;
            tool.args_invalid: expected a path like `notes/today.txt`, without `..`, got "../a.txt"
            1 2;
            two three;
            tool.failed: `b.txt` does not exist
            1 2;
            two three;
        "#]]
        .assert_eq(&log.concat());
    }

    #[test]
    fn preview_shows_changes_without_writing() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("a.txt");
        fs::write(&place, "one two\n").unwrap();
        let trial = ToolTester::with_files(dir.path());
        let log = [
            trial.preview("file_edit", &json!({"path": "a.txt", "old": "two", "new": "2"})),
            trial.preview("file_edit", &json!({"path": "a.txt", "old": "three", "new": "3"})),
            trial.preview("file_write", &json!({"path": "a.txt", "content": "three"})),
            trial.preview("file_write", &json!({"path": "b.txt", "content": "three"})),
            trial.preview("file_read", &json!({"path": "a.txt"})),
        ];
        expect![[r"
            in `a.txt`, once:
            - two
            + 2
            tool.failed: the old text is not in `a.txt`; read the file and copy it exactly
            replaces the 8 bytes of `a.txt` by 5 bytes
            writes 5 bytes to `b.txt`
            (it cannot tell)
        "]]
        .assert_eq(&log.concat());
        assert_eq!(fs::read_to_string(&place).unwrap(), "one two\n");
        assert!(!dir.path().join("b.txt").exists());
    }

    #[test]
    fn interrupted_edit_is_not_applied_twice() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("a.txt");
        let arguments = json!({"path": "a.txt", "old": "tea", "new": "green tea"});
        let trial = ToolTester::with_files(dir.path());
        fs::write(&place, "tea").unwrap();
        let mut log = trial.show("file_edit", arguments.clone());
        // The plan is recorded, so this is the same call after a crash: before its write, after it, and after another
        // write.
        for text in ["tea", "green tea", "coffee"] {
            fs::write(&place, text).unwrap();
            log += &trial.repeat("file_edit", arguments.clone());
            log += &fs::read_to_string(&place).unwrap();
            log.push('\n');
        }
        expect![[r#"
            {"replaced":1}
            {"replaced":1}
            green tea
            {"replaced":1}
            green tea
            tool.failed: `a.txt` was changed while it was edited; read it and retry
            coffee
        "#]]
        .assert_eq(&log);
    }
}
