//! Expressions for the calculator, as a model might write them.
use outlast_conformance::block_on;
use outlast_ports::tool::{Call, Tool, ToolRunOutcome};
use outlast_tools::Calculator;
use outlast_vocab::{CallId, Error, Kind, SessionId, TurnId};
use serde_json::{Value, json};

/// Evaluates any text as an expression. An exact result that can be parsed again evaluates to itself.
pub(crate) fn calculator(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    match evaluate_expression(text) {
        Ok(result) if result.ends_with('…') => {}
        Ok(result) => match evaluate_expression(&result) {
            Ok(again) => assert_eq!(again, result, "of `{text}`"),
            // The digits alone may be too large even if the result is not: the smallest integer without its sign, or a
            // fraction with too many decimals.
            Err(error) => assert_eq!(error.kind(), Kind::ToolFailed, "of `{text}`: {error}"),
        },
        Err(error) => {
            let expected = [Kind::ToolArgsInvalid, Kind::ToolFailed, Kind::LimitExceeded];
            assert!(expected.contains(&error.kind()), "{error}");
        }
    }
}

fn evaluate_expression(expression: &str) -> Result<String, Error> {
    let args: <Calculator as Tool>::Args =
        serde_json::from_value(json!({ "expression": expression })).expect("any text is an argument");
    let call = Call {
        id: CallId::from_u128(1),
        session: SessionId::from_u128(1),
        turn: TurnId::from_u128(1),
        attempt: 1,
        attempts: 1,
        payload: None,
    };
    match block_on(Calculator.run((), call, args))? {
        ToolRunOutcome::Completed(Value::String(result)) => Ok(result),
        other => panic!("the calculator answers with text at once, but gave {other:?}"),
    }
}
