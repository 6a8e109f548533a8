//! `ask_user`: asks the person that the agent works for. The turn parks until there is an answer.
//!
//! A client that shows the turn finds the question in the call's arguments ([`UserQuestion`]). It resolves the completion
//! with [`UserQuestion::answer`].
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec};
use outlast_vocab::{Error, Kind, limits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The name of the tool.
pub const ASK_USER: &str = "ask_user";

/// The maximum length of a question or option in bytes.
pub const QUESTION_BYTES: usize = 2_000;

/// The maximum number of options of a question.
pub const QUESTION_OPTIONS: usize = 20;

/// The tool that asks the user.
pub struct AskUser;

/// A question to a person; what the model passes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserQuestion {
    /// The question, as the user should read it.
    pub question: String,
    /// Answers to choose from. Other answers stay possible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl UserQuestion {
    /// Converts typed text to an answer: an option by its number, or the text itself.
    pub fn answer(&self, typed: &str) -> Value {
        let typed = typed.trim();
        let number = typed.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let option = number.and_then(|index| self.options.get(index));
        Value::String(option.map_or(typed, String::as_str).to_owned())
    }
}

impl Tool for AskUser {
    type Args = UserQuestion;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        let description = "Asks the user and waits for the answer, however long it takes. For decisions that are the \
             user's and that cannot be found out otherwise.";
        // A repeated question has the same key, so it is asked once.
        ToolSpec::new(ASK_USER, description).idempotent().durable().trusted().sinks([""; 0])
    }

    async fn run(&self, (): (), _: Call, args: UserQuestion) -> Result<ToolRunOutcome, Error> {
        let texts = std::iter::once(&args.question).chain(&args.options);
        for text in texts {
            limits::check("question_bytes", text.len(), QUESTION_BYTES)?;
            if text.trim().is_empty() {
                return Err(Error::new(
                    Kind::ToolArgsInvalid,
                    "expected a question and options with text, got a blank one",
                ));
            }
        }
        limits::check("question_options", args.options.len(), QUESTION_OPTIONS)?;
        Ok(ToolRunOutcome::Pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool_tester::ToolTester;
    use expect_test::expect;
    use serde_json::json;

    #[test]
    fn question_stays_pending_until_answered() {
        let trial = ToolTester::new();
        let log = [
            trial.show(ASK_USER, json!({"question": "Red or blue?", "options": ["red", "blue"]})),
            trial.show(ASK_USER, json!({"question": " "})),
            trial.show(ASK_USER, json!({"question": "a".repeat(QUESTION_BYTES + 1)})),
            trial.show(ASK_USER, json!({"question": "?", "options": vec!["a"; QUESTION_OPTIONS + 1]})),
        ];
        expect![[r#"
            "pending"
            tool.args_invalid: expected a question and options with text, got a blank one
            limit.exceeded: question_bytes is limited to 2000, but this needs 2001
            limit.exceeded: question_options is limited to 20, but this needs 21
        "#]]
        .assert_eq(&log.concat());
    }

    #[test]
    fn an_option_is_chosen_by_its_number() {
        let question =
            UserQuestion { question: "?".to_owned(), options: vec!["red".to_owned(), "7".to_owned()] };
        let typed = ["1", " 2 ", "3", "0", "green", "red", ""];
        assert_eq!(typed.map(|typed| question.answer(typed)), ["red", "7", "3", "0", "green", "red", ""]);
    }
}
