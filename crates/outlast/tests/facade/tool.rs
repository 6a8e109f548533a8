//! `#[tool]` on functions: the contract that a model sees, and the values that the function receives.
use expect_test::expect;
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use outlast::serde_json::{self, Value, json};
use outlast::service::Services;
use outlast::tool::{ToolProvider, Toolbox};
use outlast::vocab::policy::{Policy, PolicyDecision, Rule};
use std::sync::Arc;

/// The weather stations.
struct Stations(Vec<&'static str>);

/// What the weather is.
#[derive(Serialize, JsonSchema)]
#[serde(crate = "outlast::serde")]
#[schemars(crate = "outlast::schemars")]
struct Weather {
    celsius: i32,
}

/// Tells the weather
/// in a city.
///
/// Only where there is a station.
#[tool(name = "weather.now", pure, key = "stations", attempts = 3, deadline_s = 30, approval, returns)]
async fn weather(
    /// The city,
    /// in English.
    city: String,
    /// Today when absent.
    day: Option<u8>,
    #[default(10)]
    #[schemars(range(max = 50))]
    height: u32,
    #[default] exact: bool,
    stations: Service<Stations>,
    _steps: Steps,
    _progress: Progress,
    _values: Values,
    _cancellation: Cancellation,
    _timer: Timer,
) -> Result<Weather, Error> {
    let index = stations.0.iter().position(|name| *name == city).ok_or_else(|| failed("no station"))?;
    let celsius = i32::try_from(index).unwrap_or(0) + i32::from(day.unwrap_or(0)) + i32::from(exact);
    Ok(Weather { celsius: celsius + i32::try_from(height).unwrap_or(0) })
}

#[derive(Deserialize, JsonSchema)]
#[serde(crate = "outlast::serde", rename_all = "camelCase")]
#[schemars(crate = "outlast::schemars")]
struct Sum {
    first_number: i64,
    second_number: i64,
}

/// Adds two numbers.
#[tool]
async fn add(#[args] sum: Sum, call: Call) -> Result<ToolRunOutcome, Error> {
    done(json!({"sum": sum.first_number + sum.second_number, "attempt": call.attempt}))
}

/// Says that it is there.
#[tool(serial, transactional)]
async fn r#move() -> Result<(), Error> {
    Ok(())
}

fn contract(tool: impl Tool) -> Value {
    let mut toolbox = Toolbox::new(Services::default().grant(Stations(Vec::new())));
    toolbox.add(tool).unwrap();
    let name = toolbox.manifests().remove(0).name;
    serde_json::to_value(toolbox.contract(&name)).unwrap()
}

#[test]
fn function_becomes_a_tool_contract() {
    expect![[r#"
        {
          "approval": true,
          "class": "pure",
          "deadline": {
            "nanos": 0,
            "secs": 30
          },
          "description": "Tells the weather in a city.\n\nOnly where there is a station.",
          "durable": true,
          "input": {
            "additionalProperties": false,
            "properties": {
              "city": {
                "description": "The city, in English.",
                "type": "string"
              },
              "day": {
                "description": "Today when absent.",
                "format": "uint8",
                "maximum": 255,
                "minimum": 0,
                "type": [
                  "integer",
                  "null"
                ]
              },
              "exact": {
                "default": false,
                "type": "boolean"
              },
              "height": {
                "default": 10,
                "format": "uint32",
                "maximum": 50,
                "minimum": 0,
                "type": "integer"
              }
            },
            "required": [
              "city"
            ],
            "type": "object"
          },
          "name": "weather.now",
          "output": {
            "description": "What the weather is.",
            "properties": {
              "celsius": {
                "format": "int32",
                "type": "integer"
              }
            },
            "required": [
              "celsius"
            ],
            "type": "object"
          },
          "retry": {
            "attempts": 3,
            "backoff": {
              "nanos": 200000000,
              "secs": 0
            }
          },
          "scheduling": {
            "keyed": "stations"
          }
        }"#]]
    .assert_eq(&format!("{:#}", contract(weather)));
}

#[test]
fn custom_type_takes_all_arguments() {
    expect![[r#"
        {
          "class": "at_most_once",
          "description": "Adds two numbers.",
          "durable": false,
          "input": {
            "properties": {
              "firstNumber": {
                "format": "int64",
                "type": "integer"
              },
              "secondNumber": {
                "format": "int64",
                "type": "integer"
              }
            },
            "required": [
              "firstNumber",
              "secondNumber"
            ],
            "type": "object"
          },
          "name": "add",
          "retry": {
            "attempts": 1,
            "backoff": {
              "nanos": 200000000,
              "secs": 0
            }
          },
          "scheduling": "parallel"
        }"#]]
    .assert_eq(&format!("{:#}", contract(add)));
}

#[test]
fn tool_may_have_no_arguments() {
    expect![[r#"
        {
          "class": "transactional",
          "description": "Says that it is there.",
          "durable": false,
          "input": {
            "additionalProperties": false,
            "type": "object"
          },
          "name": "move",
          "retry": {
            "attempts": 1,
            "backoff": {
              "nanos": 200000000,
              "secs": 0
            }
          },
          "scheduling": "serial"
        }"#]]
    .assert_eq(&format!("{:#}", contract(r#move)));
}

#[tokio::test]
async fn tool_function_receives_its_declared_parameters() {
    let script: Script = "\
        call weather.now {\"city\": \"Rome\", \"day\": 3}
        call weather.now {\"city\": \"Rome\", \"height\": 1, \"exact\": true}
        call weather.now {\"city\": \"Rome\", \"colour\": \"red\"}
        call add {\"firstNumber\": 2, \"secondNumber\": 3}
        call move {}
        ---
        say {{result 0}} {{result 1}} {{result 3}} {{result 4}}
        say {{result 2}}"
        .parse()
        .unwrap();
    let outlast = Outlast::ephemeral()
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .service(Stations(vec!["Paris", "Rome"]))
        .tool(weather)
        .tool(add)
        .tool(r#move)
        .policy(Policy { rules: vec![Rule::new("all".parse().unwrap(), PolicyDecision::Allow)] })
        .start()
        .await
        .unwrap();
    let answer = outlast.new_session().send("go").await.unwrap().answer().await.unwrap();
    outlast.shut_down().await;
    assert_eq!(
        answer,
        "{\"celsius\":14} {\"celsius\":3} {\"attempt\":1,\"sum\":5} null\n\
         error tool.args_invalid: the arguments do not fit the schema; at the root: Additional properties are not allowed \
         ('colour' was unexpected)"
    );
}

#[tokio::test]
async fn annotated_function_can_still_be_called() {
    let sum = Sum { first_number: 1, second_number: 2 };
    let call = Call {
        id: outlast::vocab::CallId::from_u128(1),
        session: outlast::SessionId::from_u128(2),
        turn: outlast::TurnId::from_u128(3),
        attempt: 1,
        attempts: 1,
        payload: None,
    };
    assert_eq!(
        add::call(sum, call).await.unwrap(),
        ToolRunOutcome::Completed(json!({"sum": 3, "attempt": 1}))
    );
}
