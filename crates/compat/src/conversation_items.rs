//! Collects the items of a request: the previous conversation, the new input, or results of the client's
//! tools.
use crate::compat_error::{CompatError, CompatResult};
use crate::content::MessageContent;
use crate::input_submission::ClientResult;
use crate::response_segment::ClientCallId;
use outlast_ports::attachment_upload::AttachmentUpload;
use outlast_vocab::message::{
    CallArguments, Message, ModelCallId, Part, ToolName, ToolResult, ToolUse, shown,
};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Failure, Kind};
use serde_json::Value;

/// The items of a request, in order.
#[derive(Debug, Default)]
pub(crate) struct ConversationItems {
    /// Instructions to the model, which add to those of the agent.
    pub(crate) instructions: Vec<String>,
    messages: Vec<Message>,
    files: Vec<AttachmentUpload>,
}

/// What a request contains.
pub(crate) enum RequestContent {
    /// A new input, the conversation before it, and the files of both.
    Input { before: Vec<Message>, parts: Vec<Part>, files: Vec<AttachmentUpload> },
    /// Results of calls that this server requested.
    Results(Vec<ClientResult>),
}

impl ConversationItems {
    /// Creates a conversation that begins with instructions.
    pub(crate) fn with_instructions(instructions: impl IntoIterator<Item = String>) -> Self {
        Self { instructions: instructions.into_iter().collect(), ..Self::default() }
    }

    /// Adds a message. System and developer messages before the conversation become instructions.
    pub(crate) fn add_message(
        &mut self,
        role: &str,
        content: Vec<MessageContent>,
        place: &str,
    ) -> CompatResult<()> {
        let texts = |content: Vec<MessageContent>| -> CompatResult<Vec<String>> {
            content.into_iter().map(|piece| piece.into_text(&format!("{place}.content"))).collect()
        };
        match role {
            "user" => {
                let parts = content.into_iter().map(|piece| self.part(piece)).collect();
                self.messages.push(Message::User { parts });
            }
            "assistant" => {
                let parts = texts(content)?.into_iter().map(Part::text).collect();
                self.messages.push(Message::Assistant { parts, calls: Vec::new() });
            }
            "system" | "developer" if self.messages.is_empty() => self.instructions.extend(texts(content)?),
            "system" | "developer" => {
                let why = "instructions must come before all other messages";
                return Err(CompatError::unsupported(format!("{place}.role"), why));
            }
            other => {
                let detail = format!("expected user, assistant, system or developer, got `{}`", shown(other));
                return Err(CompatError::invalid_param(format!("{place}.role"), detail));
            }
        }
        Ok(())
    }

    fn part(&mut self, piece: MessageContent) -> Part {
        match piece {
            MessageContent::Text(text) => Part::text(text),
            MessageContent::File(file) => {
                let attachment = file.attachment().clone();
                self.files.push(file);
                Part::Attachment { attachment }
            }
        }
    }

    /// Adds a reply of the model without text, which only calls tools.
    pub(crate) fn add_silent_reply(&mut self) {
        self.messages.push(Message::Assistant { parts: Vec::new(), calls: Vec::new() });
    }

    /// Adds a tool call of the model. Consecutive calls belong to one reply.
    pub(crate) fn add_call(
        &mut self,
        id: &str,
        tool: &str,
        arguments: &str,
        place: &str,
    ) -> CompatResult<()> {
        let about = |error: outlast_vocab::Error| CompatError::from(error).about(place);
        let (id, tool): (ModelCallId, ToolName) = (id.parse().map_err(about)?, tool.parse().map_err(about)?);
        let arguments = serde_json::from_str(arguments)
            .map_or_else(|_| CallArguments::Broken(arguments.to_owned()), CallArguments::Json);
        let call = ToolUse::new(id, tool, arguments);
        match self.messages.last_mut() {
            Some(Message::Assistant { calls, .. }) => calls.push(call),
            _ => self.messages.push(Message::Assistant { parts: Vec::new(), calls: vec![call] }),
        }
        Ok(())
    }

    /// Adds the result of a tool call.
    pub(crate) fn add_result(&mut self, id: &str, result: Value, place: &str) -> CompatResult<()> {
        self.add_tool_result(id, ToolResult::Ok(result), place)
    }

    /// Adds the result of a tool call, or its error.
    pub(crate) fn add_tool_result(&mut self, id: &str, result: ToolResult, place: &str) -> CompatResult<()> {
        let mut calls = self.messages.iter().rev().filter_map(|message| match message {
            Message::Assistant { calls, .. } => Some(calls),
            Message::User { .. } | Message::Tool { .. } => None,
        });
        let asked = calls.find_map(|calls| calls.iter().find(|call| call.id.as_str() == id));
        let known =
            asked.map(|call| call.tool.clone()).or_else(|| ClientCallId::from_id(id).and(placeholder_tool()));
        let Some(tool) = known else {
            let detail = format!("no call before this one has the id `{}`", shown(id));
            return Err(CompatError::invalid_param(place, detail));
        };
        let call = id.parse().map_err(|error: outlast_vocab::Error| CompatError::from(error).about(place))?;
        self.messages.push(Message::Tool { call, tool, result });
        Ok(())
    }

    /// Returns what the request contains. The last items decide.
    pub(crate) fn into_content(self, place: &str) -> CompatResult<RequestContent> {
        let mut said = self.messages;
        let new = said.iter().rev().take_while(|message| matches!(message, Message::Tool { .. })).count();
        if new > 0 {
            let results = said.split_off(said.len() - new);
            return results
                .into_iter()
                .map(|message| result_of(message, place))
                .collect::<CompatResult<_>>()
                .map(RequestContent::Results);
        }
        match said.pop() {
            Some(Message::User { parts }) => match unmatched_result(&said) {
                Some(call) => {
                    let detail =
                        format!("send the result of `{call}` in a separate request, before other messages");
                    Err(CompatError::invalid_param(place, detail))
                }
                None => {
                    Ok(RequestContent::Input { before: with_missing_results(said), parts, files: self.files })
                }
            },
            Some(_) => Err(CompatError::invalid_param(
                place,
                "expected a user message at the end, got an assistant message",
            )),
            None => Err(CompatError::invalid_param(place, "expected a user message, got nothing")),
        }
    }
}

/// Returns a placeholder for the tool of a call that the journal contains.
fn placeholder_tool() -> Option<ToolName> {
    "client".parse().ok()
}

fn result_of(message: Message, place: &str) -> CompatResult<ClientResult> {
    let Message::Tool { call, result, .. } = message else {
        return Err(CompatError::invalid_param(place, "expected the result of a call"));
    };
    let Some(id) = ClientCallId::from_id(call.as_str()) else {
        let detail = format!(
            "this server requested no call `{}`, so it does not expect its result",
            shown(call.as_str())
        );
        return Err(CompatError::invalid_param(place, detail));
    };
    let resolution = match result {
        ToolResult::Ok(value) => Resolution::Ok(value),
        ToolResult::Err(failure) => Resolution::Err(failure),
    };
    Ok(ClientResult { call: id, resolution })
}

/// Returns a result without a matching call.
fn unmatched_result(said: &[Message]) -> Option<&ModelCallId> {
    let mut asked = Vec::new();
    for message in said {
        match message {
            Message::Assistant { calls, .. } => asked.extend(calls.iter().map(|call| &call.id)),
            Message::Tool { call, .. } if !asked.contains(&call) => return Some(call),
            Message::User { .. } | Message::Tool { .. } => {}
        }
    }
    None
}

/// Completes a conversation: adds an error as the result of each unanswered call.
fn with_missing_results(said: Vec<Message>) -> Vec<Message> {
    let mut all: Vec<Message> = Vec::new();
    let mut open: Vec<ToolUse> = Vec::new();
    for message in said {
        if let Message::Tool { call, .. } = &message {
            open.retain(|asked| asked.id != *call);
        } else {
            all.extend(open.drain(..).map(interrupted_result));
        }
        if let Message::Assistant { calls, .. } = &message {
            open.clone_from(calls);
        }
        all.push(message);
    }
    all.extend(open.into_iter().map(interrupted_result));
    all
}

fn interrupted_result(call: ToolUse) -> Message {
    let failure = Failure::new(Kind::ToolInterrupted, "the call was left behind before it had a result");
    Message::Tool { call: call.id, tool: call.tool, result: ToolResult::Err(failure) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "call_000000000000000000000000000000ab_7_0";

    fn said(say: impl FnOnce(&mut ConversationItems) -> CompatResult<()>) -> CompatResult<RequestContent> {
        let mut conversed = ConversationItems::default();
        say(&mut conversed)?;
        conversed.into_content("input")
    }

    fn text(text: &str) -> Vec<MessageContent> {
        vec![MessageContent::Text(text.to_owned())]
    }

    fn about(refused: CompatResult<RequestContent>) -> (Kind, Option<String>) {
        let Err(CompatError { error, param, .. }) = refused else { panic!("it was taken") };
        (error.kind(), param)
    }

    #[test]
    fn unanswered_call_gets_a_result_before_new_input() {
        let brought = said(|conversed| {
            conversed.add_message("user", text("weather?"), "input[0]")?;
            conversed.add_call("a", "look", "{}", "input[1]")?;
            conversed.add_call("b", "look", "{", "input[2]")?;
            conversed.add_result("a", Value::from("snow"), "input[3]")?;
            conversed.add_message("user", text("well?"), "input[4]")
        });
        let Ok(RequestContent::Input { before, .. }) = brought else { panic!("something new was said") };
        let texts: Vec<String> = before.iter().map(|message| message.text().into_owned()).collect();
        let left = "error tool.interrupted: the call was left behind before it had a result";
        assert_eq!(texts, ["weather?", "", "snow", left]);
    }

    #[test]
    fn trailing_results_must_match_the_asking_turn() {
        let results = said(|conversed| conversed.add_result(OURS, Value::from("snow"), "input[0]"));
        assert!(matches!(results, Ok(RequestContent::Results(results)) if results.len() == 1));
        let theirs = said(|conversed| {
            conversed.add_call("theirs", "look", "{}", "input[0]")?;
            conversed.add_result("theirs", Value::from("snow"), "input[1]")
        });
        assert_eq!(about(theirs), (Kind::InputInvalid, Some("input".to_owned())));
        let unasked = said(|conversed| conversed.add_result("theirs", Value::from("snow"), "input[0]"));
        assert_eq!(about(unasked), (Kind::InputInvalid, Some("input[0]".to_owned())));
        let with_more = said(|conversed| {
            conversed.add_result(OURS, Value::from("snow"), "input[0]")?;
            conversed.add_message("user", text("well?"), "input[1]")
        });
        assert_eq!(about(with_more), (Kind::InputInvalid, Some("input".to_owned())));
    }

    #[test]
    fn instructions_must_precede_all_other_items() {
        let late = said(|conversed| {
            conversed.add_message("developer", text("Be kind."), "input[0]")?;
            conversed.add_message("user", text("hello"), "input[1]")?;
            conversed.add_message("system", text("Be brief."), "input[2]")
        });
        assert_eq!(about(late), (Kind::ParameterUnsupported, Some("input[2].role".to_owned())));
        let answered = said(|conversed| conversed.add_message("assistant", text("hello"), "input[0]"));
        assert_eq!(about(answered), (Kind::InputInvalid, Some("input".to_owned())));
    }
}
