//! The rehearsal model without a script: a few rules that use the built-in tools if asked.
//!
//! A reply covers everything since the model's last reply. It reports results in sentences ([`result_report`]) and turns the
//! user's requests ([`user_requests`]) into calls. It depends only on the messages and tools of the request.
mod result_report;
mod user_requests;
mod user_text;

use super::reply_actions::ReplyAction;
use super::reply_draft::ReplyDraft;
use outlast_ports::model::ModelRequest;
use outlast_vocab::message::{CallArguments, Message, ToolName, ToolUse};
use outlast_vocab::tool::ToolContract;
use result_report::{ResultReport, report};
use serde_json::{Value, json};
use std::borrow::Cow;
use user_requests::{UserRequest, parse_requests};

/// An example request for each built-in tool.
const EXAMPLES: [(&str, &str); 8] = [
    ("clock", "what time is it?"),
    ("calculator", "what is 2*(3+4)?"),
    ("value_set", "remember that my name is Ann"),
    ("value_get", "what is my name?"),
    ("value_list", "what do you remember?"),
    ("file_list", "list files"),
    ("file_read", "read notes.txt"),
    ("file_write", "write hello to notes.txt"),
];

/// Returns the reply to this request.
pub(super) fn reply(request: ModelRequest<'_>) -> Vec<ReplyAction<'_>> {
    let last = request.turn.iter().rposition(|message| matches!(message, Message::Assistant { .. }));
    let (asked, fresh): (&[ToolUse], _) = match last.map(|last| request.turn.split_at(last + 1)) {
        Some(([.., Message::Assistant { calls, .. }], fresh)) => (calls, fresh),
        _ => (&[], request.turn),
    };
    let mut answer = RuleReply { tools: request.tools, text: String::new(), calls: Vec::new() };
    for message in fresh {
        match message {
            Message::User { .. } => answer.input(&message.text()),
            Message::Tool { call, tool, result } => {
                let arguments = asked.iter().find(|asked| asked.id == *call).map(|asked| &asked.arguments);
                answer.result(report(tool, arguments, result));
            }
            Message::Assistant { .. } => {}
        }
    }
    answer.into_draft(ReplyDraft::new(request)).into_reply()
}

/// A reply while it is composed.
struct RuleReply<'a> {
    tools: &'a [ToolContract],
    text: String,
    calls: Vec<(ToolName, Value)>,
}

impl RuleReply<'_> {
    fn input(&mut self, text: &str) {
        let asks = parse_requests(text);
        let only = asks.len() == 1;
        for ask in asks {
            match ask {
                UserRequest::Use { tool, arguments } => self.call(&tool, arguments),
                UserRequest::Recall { name, .. } if self.has("value_get") => self.look_up(&name),
                UserRequest::Greeting if only => self.say("Hello! What can I do for you?"),
                UserRequest::Greeting => self.say("Hello!"),
                UserRequest::Thanks if self.calls.is_empty() => self.say("You are welcome."),
                UserRequest::Thanks => {}
                UserRequest::Unclear(text) | UserRequest::Recall { question: text, .. } if !only => {
                    self.say(&format!("I did not understand \"{text}\"."));
                }
                UserRequest::Help | UserRequest::Unclear(_) | UserRequest::Recall { .. } => {
                    self.say(&self.help());
                }
            }
        }
    }

    fn result(&mut self, report: ResultReport) {
        match report {
            ResultReport::Sentence(sentence) => self.say(&sentence),
            ResultReport::LookUp { names, left_out } => {
                for name in names {
                    self.look_up(&name);
                }
                if left_out > 0 {
                    self.say(&format!("I remember {left_out} things more than I look up at once."));
                }
            }
        }
    }

    fn look_up(&mut self, name: &str) {
        self.call("value_get", json!({"name": name}));
    }

    fn has(&self, tool: &str) -> bool {
        self.tools.iter().any(|contract| contract.name.as_str() == tool)
    }

    fn call(&mut self, tool: &str, arguments: Value) {
        match self.tools.iter().find(|contract| contract.name.as_str() == tool) {
            Some(contract) => self.calls.push((contract.name.clone(), arguments)),
            None if self.tools.is_empty() => {
                self.say(&format!("I need the tool `{tool}` for that, but this session has no tools."));
            }
            None => {
                let names: Vec<&str> = self.tools.iter().map(|contract| contract.name.as_str()).collect();
                let names = names.join(", ");
                self.say(&format!("I need the tool `{tool}` for that, but this session has only: {names}."));
            }
        }
    }

    fn say(&mut self, sentence: &str) {
        if !self.text.is_empty() {
            let lines = self.text.contains('\n') || sentence.contains('\n');
            self.text.push(if lines { '\n' } else { ' ' });
        }
        self.text.push_str(sentence);
    }

    fn help(&self) -> String {
        let known = EXAMPLES.iter().filter(|(tool, _)| self.has(tool));
        let mut lines: Vec<String> = known.map(|(_, example)| format!("\n  {example}")).collect();
        let others = self.tools.iter().map(|contract| contract.name.as_str());
        let others = others.filter(|name| EXAMPLES.iter().all(|(tool, _)| tool != name));
        lines.extend(others.map(|name| format!("\n  call {name} {{…}}, with its arguments as JSON")));
        let what = "I am the built-in rehearsal model: a few rules that need no key and no network.";
        if lines.is_empty() {
            return format!("{what} This session has no tools, so all I can do is talk.");
        }
        format!("{what} I understand, also several joined by \"and\":{}", lines.concat())
    }

    fn into_draft(self, mut draft: ReplyDraft<'_>) -> ReplyDraft<'_> {
        if !self.text.is_empty() {
            draft.say(Cow::Owned(self.text));
        }
        for (tool, arguments) in self.calls {
            draft.call(tool, CallArguments::Json(arguments));
        }
        draft
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rehearsal;
    use super::super::test_conversation::TestConversation;
    use super::*;
    use expect_test::{Expect, expect};
    use outlast_ports::clock::VirtualClock;
    use outlast_vocab::Millis;
    use std::sync::Arc;
    use std::time::Duration;

    fn all_tools() -> TestConversation {
        TestConversation::new().tools(&EXAMPLES.map(|(tool, _)| tool))
    }

    #[track_caller]
    fn check(stage: &TestConversation, want: &Expect) {
        let rehearsal =
            Rehearsal::agent(Arc::new(VirtualClock::at(Millis(0)))).with_word_delay(Duration::ZERO);
        want.assert_eq(&stage.reply_text(&rehearsal));
    }

    #[test]
    fn user_requests_become_calls_in_one_reply() {
        let stage = all_tools().user("Hello, what time is it, add 2 and 3 and then read notes.txt. Thanks!");
        check(
            &stage,
            &expect![[r#"
                text "Hello!"
                call_0 clock {}
                call_1 calculator {"expression":"2 + 3"}
                call_2 file_read {"path":"notes.txt"}
                usage 25 -> 19
                end ToolUse
            "#]],
        );
    }

    #[test]
    fn results_are_reported_in_request_order() {
        let stage = all_tools().user("What time is it and what is 1/0?").called(&[
            ("clock", json!({}), Ok(json!("2026-07-03T10:20:30Z"))),
            ("calculator", json!({"expression": "1/0"}), Err("1 is divided by zero")),
        ]);
        check(
            &stage,
            &expect![[r#"
                text "It is 10:20:30 UTC on 2026-07-03. I could not use calculator: 1 is divided by zero (tool.failed)."
                usage 60 -> 25
                end End
            "#]],
        );
    }

    #[test]
    fn remembered_values_are_listed_then_read() {
        let stage = all_tools().user("what do you remember?").called(&[(
            "value_list",
            json!({}),
            Ok(json!(["my name", "tea"])),
        )]);
        check(
            &stage,
            &expect![[r#"
                call_1 value_get {"name":"my name"}
                call_2 value_get {"name":"tea"}
                usage 37 -> 13
                end ToolUse
            "#]],
        );
        let stage = stage.called(&[
            ("value_get", json!({"name": "my name"}), Ok(json!("Ann"))),
            ("value_get", json!({"name": "tea"}), Ok(json!(null))),
        ]);
        check(
            &stage,
            &expect![[r#"
                text "Your name is Ann. I do not remember tea."
                usage 77 -> 10
                end End
            "#]],
        );
    }

    #[test]
    fn joined_input_is_answered_with_tool_results() {
        let called = [("calculator", json!({"expression": "2 + 3"}), Ok(json!("5")))];
        let stage = all_tools().user("add 2 and 3").called(&called).user("and what time is it?");
        check(
            &stage,
            &expect![[r#"
                text "2 + 3 is 5."
                call_1 clock {}
                usage 49 -> 5
                end ToolUse
            "#]],
        );
    }

    #[test]
    fn missing_tool_is_named() {
        check(
            &TestConversation::new().user("what time is it?"),
            &expect![[r#"
                text "I need the tool `clock` for that, but this session has no tools."
                usage 12 -> 16
                end End
            "#]],
        );
        check(
            &TestConversation::new().tools(&["pay"]).user("what time is it?"),
            &expect![[r#"
                text "I need the tool `clock` for that, but this session has only: pay."
                usage 12 -> 17
                end End
            "#]],
        );
    }

    #[test]
    fn other_tools_are_called_by_name() {
        let stage =
            TestConversation::new().tools(&["pay"]).user(r#"call pay {"to": "Ann and Bob", "amount": 5}"#);
        check(
            &stage,
            &expect![[r#"
                call_0 pay {"amount":5,"to":"Ann and Bob"}
                usage 19 -> 10
                end ToolUse
            "#]],
        );
        check(
            &stage.called(&[("pay", json!({"to": "Ann"}), Ok(json!({"receipt": 7})))]),
            &expect![[r#"
                text "pay gave {\"receipt\":7}."
                usage 44 -> 6
                end End
            "#]],
        );
    }

    #[test]
    fn unknown_request_is_answered_with_help() {
        check(
            &TestConversation::new().tools(&["clock", "pay"]).user("What is love?"),
            &expect![[r#"
                text "I am the built-in rehearsal model: a few rules that need no key and no network. I understand, also several joined by \"and\":\n  what time is it?\n  call pay {…}, with its arguments as JSON"
                usage 12 -> 47
                end End
            "#]],
        );
        check(
            &TestConversation::new().user(""),
            &expect![[r#"
                text "I am the built-in rehearsal model: a few rules that need no key and no network. This session has no tools, so all I can do is talk."
                usage 8 -> 33
                end End
            "#]],
        );
        check(
            &TestConversation::new().tools(&["clock"]).user("Sing a song. What time is it?"),
            &expect![[r#"
                text "I did not understand \"Sing a song\"."
                call_0 clock {}
                usage 16 -> 11
                end ToolUse
            "#]],
        );
    }
}
