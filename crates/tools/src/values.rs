//! `value_set`, `value_get`, `value_list`: named values of the session.
//!
//! A write commits with the result of the call, so it happens exactly once. Calls of one reply run in order, so each
//! sees the writes of the ones before it.
use outlast_ports::service::Values;
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, done};
use outlast_vocab::tool::CallScheduling;
use outlast_vocab::{Error, Kind};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// The tool that stores or removes a value.
pub struct ValueSet;

/// The tool that returns a value.
pub struct ValueGet;

/// The tool that lists the names of values.
pub struct ValueList;

/// What the model passes to `value_set`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValueSetArgs {
    /// The name.
    name: String,
    /// Any JSON value; null removes what was there.
    value: Value,
}

/// What the model passes to `value_get`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValueGetArgs {
    /// The name.
    name: String,
}

/// What the model passes to `value_list`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValueListArgs {
    /// Only names that begin with this; all when absent.
    prefix: Option<String>,
}

fn about(name: &str, description: &str) -> ToolSpec {
    ToolSpec::new(name, description).transactional().scheduled(CallScheduling::Keyed("values".to_owned()))
}

impl Tool for ValueSet {
    type Args = ValueSetArgs;
    type Needs = Values;

    fn spec(&self) -> ToolSpec {
        about(
            "value_set",
            "Remembers a JSON value under a name for the rest of the session; null forgets it.",
        )
    }

    async fn run(&self, values: Values, _: Call, args: ValueSetArgs) -> Result<ToolRunOutcome, Error> {
        let name = check_name(&args.name)?;
        match args.value {
            Value::Null => values.remove(name)?,
            value => values.set(name, value)?,
        }
        done(json!({"name": name}))
    }
}

impl Tool for ValueGet {
    type Args = ValueGetArgs;
    type Needs = Values;

    fn spec(&self) -> ToolSpec {
        about("value_get", "Gives the value that was remembered under a name, or null if there is none.")
    }

    async fn run(&self, values: Values, _: Call, args: ValueGetArgs) -> Result<ToolRunOutcome, Error> {
        done(values.get(check_name(&args.name)?).await?)
    }
}

impl Tool for ValueList {
    type Args = ValueListArgs;
    type Needs = Values;

    fn spec(&self) -> ToolSpec {
        about("value_list", "Lists the names under which values are remembered.")
    }

    async fn run(&self, values: Values, _: Call, args: ValueListArgs) -> Result<ToolRunOutcome, Error> {
        done(values.names(&args.prefix.unwrap_or_default()).await?)
    }
}

fn check_name(name: &str) -> Result<&str, Error> {
    if name.trim().is_empty() {
        return Err(Error::new(Kind::ToolArgsInvalid, "expected a name for the value, got a blank one"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use crate::tool_tester::ToolTester;
    use expect_test::expect;
    use serde_json::json;

    #[test]
    fn values_are_set_listed_and_removed_with_null() {
        let trial = ToolTester::new();
        let log = [
            trial.show("value_get", json!({"name": "tea"})),
            trial.show("value_set", json!({"name": "tea", "value": {"sugar": 2}})),
            trial.show("value_set", json!({"name": "time", "value": "noon"})),
            trial.show("value_get", json!({"name": "tea"})),
            trial.show("value_list", json!({})),
            trial.show("value_list", json!({"prefix": "ti"})),
            trial.show("value_set", json!({"name": "tea", "value": null})),
            trial.show("value_list", json!({})),
        ];
        expect![[r#"
            null
            {"name":"tea"}
            {"name":"time"}
            {"sugar":2}
            ["tea","time"]
            ["time"]
            {"name":"tea"}
            ["time"]
        "#]]
        .assert_eq(&log.concat());
    }

    #[test]
    fn invalid_value_arguments_are_refused() {
        let trial = ToolTester::new();
        let log = [
            trial.show("value_set", json!({"name": "tea"})),
            trial.show("value_set", json!({"name": " ", "value": 1})),
            trial.show("value_get", json!({"name": ""})),
            trial.show("value_get", json!({"key": "tea"})),
            trial.show("value_list", json!({"prefix": 1})),
        ];
        expect![[r"
            tool.args_invalid: the arguments do not fit: missing field `value`
            tool.args_invalid: expected a name for the value, got a blank one
            tool.args_invalid: expected a name for the value, got a blank one
            tool.args_invalid: the arguments do not fit: unknown field `key`, expected `name`
            tool.args_invalid: the arguments do not fit: invalid type: integer `1`, expected a string
        "]]
        .assert_eq(&log.concat());
    }
}
