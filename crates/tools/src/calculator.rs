//! `calculator`: exact arithmetic.
//!
//! Crates that evaluate expressions, such as `evalexpr` and `meval`, calculate with floating-point numbers, and 0.1 +
//! 0.2 is not 0.3 there. `num-rational` has exact fractions, but no parser, and no bound on the digits of a power.
mod expression;
mod number;

use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, done};
use outlast_vocab::Error;
use schemars::JsonSchema;
use serde::Deserialize;

/// The tool that evaluates an expression. The result is text, because JSON numbers lose digits. An infinite decimal
/// ends in `…`.
pub struct Calculator;

/// What the model passes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CalculatorArgs {
    /// Numbers, `+ - * / % ^` and parentheses, like `2 * (3 + 4)`.
    expression: String,
}

impl Tool for Calculator {
    type Args = CalculatorArgs;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        let description = "Works out an arithmetic expression exactly: + - * / % ^, parentheses, decimals.";
        ToolSpec::new("calculator", description).pure().trusted()
    }

    async fn run(&self, (): (), _: Call, args: CalculatorArgs) -> Result<ToolRunOutcome, Error> {
        done(expression::evaluate(&args.expression)?.to_string())
    }
}

#[cfg(test)]
mod tests {
    use crate::tool_tester::ToolTester;
    use serde_json::json;

    #[test]
    fn answer_text_keeps_every_digit() {
        let trial = ToolTester::new();
        let shown = |expression: &str| trial.show("calculator", json!({"expression": expression}));
        assert_eq!(shown("2 ^ 100 + 0.5"), "\"1267650600228229401496703205376.5\"\n");
        assert_eq!(shown("1 / 0"), "tool.failed: division by zero is not possible (at `/ 0`)\n");
    }
}
