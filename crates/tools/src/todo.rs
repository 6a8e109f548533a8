//! `todo`: a to-do list of the session.
//!
//! The list is one of the session's values. A write commits with the result of the call, and the list survives crashes
//! and compaction.
use outlast_ports::service::Values;
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, done};
use outlast_vocab::tool::CallScheduling;
use outlast_vocab::{Error, Kind, limits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The name of the value with the list.
const VALUE: &str = "todo";

/// The maximum number of items.
pub const TODO_ITEMS: usize = 100;

/// The maximum length of an item in bytes.
pub const TODO_BYTES: usize = 500;

/// The tool that stores and shows the to-do list.
pub struct Todo;

/// What the model passes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TodoArgs {
    /// The whole list, in order; it replaces the old one. Without it the list is only shown.
    items: Option<Vec<TodoItem>>,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TodoItem {
    /// What.
    text: String,
    /// How far it is.
    #[serde(default)]
    state: TodoState,
}

/// How far something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TodoState {
    /// Not begun.
    #[default]
    Open,
    /// Being done.
    Doing,
    /// Done.
    Done,
}

impl Tool for Todo {
    type Args = TodoArgs;
    type Needs = Values;

    fn spec(&self) -> ToolSpec {
        let description = "Keeps the list of what is to be done in this session. Pass the whole list to change it, \
             nothing to see it. Use it for work of several steps, and mark a step when it begins and when it is done.";
        ToolSpec::new("todo", description)
            .transactional()
            .scheduled(CallScheduling::Keyed("values".to_owned()))
    }

    async fn run(&self, values: Values, _: Call, args: TodoArgs) -> Result<ToolRunOutcome, Error> {
        let items = match args.items {
            Some(items) => {
                check(&items)?;
                values.set(VALUE, json!(items))?;
                json!(items)
            }
            None => values.get(VALUE).await?.unwrap_or_else(|| Value::Array(Vec::new())),
        };
        done(json!({ "items": items }))
    }
}

fn check(items: &[TodoItem]) -> Result<(), Error> {
    limits::check("todo_items", items.len(), TODO_ITEMS)?;
    for item in items {
        limits::check("todo_bytes", item.text.len(), TODO_BYTES)?;
        if item.text.trim().is_empty() {
            return Err(Error::new(Kind::ToolArgsInvalid, "expected a text for each item, got a blank one"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool_tester::ToolTester;
    use expect_test::expect;

    #[test]
    fn todo_list_is_replaced_and_shown() {
        let trial = ToolTester::new();
        let log = [
            trial.show("todo", json!({})),
            trial.show("todo", json!({"items": [{"text": "bake"}, {"text": "eat", "state": "doing"}]})),
            trial.show("todo", json!({"items": [{"text": "bake", "state": "done"}]})),
            trial.show("todo", json!({})),
            trial.show("todo", json!({"items": []})),
            trial.show("todo", json!({"items": [{"text": " "}]})),
            trial.show("todo", json!({"items": [{"text": "a", "state": "late"}]})),
            trial.show("todo", json!({"items": vec![json!({"text": "a"}); TODO_ITEMS + 1]})),
            trial.show("todo", json!({"items": [{"text": "a".repeat(TODO_BYTES + 1)}]})),
            trial.show("todo", json!({})),
        ];
        expect![[r#"
            {"items":[]}
            {"items":[{"state":"open","text":"bake"},{"state":"doing","text":"eat"}]}
            {"items":[{"state":"done","text":"bake"}]}
            {"items":[{"state":"done","text":"bake"}]}
            {"items":[]}
            tool.args_invalid: expected a text for each item, got a blank one
            tool.args_invalid: the arguments do not fit: unknown variant `late`, expected one of `open`, `doing`, `done`
            limit.exceeded: todo_items is limited to 100, but this needs 101
            limit.exceeded: todo_bytes is limited to 500, but this needs 501
            {"items":[]}
        "#]].assert_eq(&log.concat());
    }
}
