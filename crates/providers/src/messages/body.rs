//! Renders requests. Cache breakpoints mark the end of the current prompt and the end of the previous one.
use crate::claude::Claude;
use crate::wire::calls::as_object;
use crate::wire::files::{Shown, is_picture_or_pdf, show};
use crate::wire::schema::{Strict, told};
use crate::wire::{Answering, Ask, Rendered, prefix, proof, raw};
use outlast_vocab::effect::ToolChoice;
use outlast_vocab::message::{Message, Part, ToolResult};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;

/// The name of the tool whose arguments are the answer, for models that take no schema.
const ANSWER: &str = "final_answer";

/// The minimum of thinking tokens.
const THOUGHT_TOKENS_LEAST: u32 = 1_024;

/// The maximum of thinking tokens, so that [`Claude::answer_tokens`] leaves room for the answer.
const THOUGHT_TOKENS_MOST: u32 = 24_000;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<Value>,
    messages: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<Value>,
    stream: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    User,
    Assistant,
}

/// Adjacent messages of one role, which the API takes as one message.
struct Said {
    role: Role,
    content: Vec<Value>,
}

impl Said {
    fn raw(&self) -> Box<RawValue> {
        let role = if self.role == Role::User { "user" } else { "assistant" };
        raw(&json!({ "role": role, "content": self.content }))
    }

    /// Sets a cache breakpoint on the last block that can have one.
    fn marked(mut self) -> Self {
        let can_be =
            |block: &&mut Value| !matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"));
        if let Some(block) = self.content.iter_mut().rev().find(can_be) {
            mark(block);
        }
        self
    }
}

fn mark(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

/// How the answer is constrained to its schema.
enum Form {
    Free,
    Schema(Value),
    Tool(Value),
    Told,
}

/// Renders the body of a request.
pub(crate) fn render(ask: &Ask<'_>) -> Rendered {
    let Ask { request, names, .. } = *ask;
    let options = &request.call.options;
    let claude = Claude::of(ask.model);
    // The API accepts the beginning of a reply only without thinking.
    let variant = options.variant.as_deref().filter(|_| request.said.is_empty());
    let max_tokens = options.tokens_most.unwrap_or_else(|| claude.answer_tokens());
    let Thinking { how: thinking, effort } = thinking(claude, variant, max_tokens);
    // The API accepts no temperature with thinking.
    let temperature = options.temperature_milli.filter(|_| thinking.is_none());
    let form = if request.said.is_empty() {
        form(ask, claude, thinking.is_some())
    } else {
        // A reply with a beginning can have neither a schema nor a forced call.
        request.call.output.as_ref().map_or(Form::Free, |_| Form::Told)
    };
    let answer_tool = matches!(form, Form::Tool(_)).then(|| ANSWER.to_owned());

    let mut tools: Vec<Value> = names
        .iter()
        .map(|(name, contract)| {
            json!({ "name": name, "description": contract.description, "input_schema": ask.schema(&contract.input) })
        })
        .collect();
    if let Form::Tool(schema) = &form {
        let description = "Gives the answer. Call this last, once, with the whole of it.";
        tools.push(json!({ "name": ANSWER, "description": description, "input_schema": schema }));
    }
    let mut system = Cow::Borrowed(request.system);
    if let (Some(schema), Form::Told) = (&request.call.output, &form) {
        system = Cow::Owned(format!("{system}\n\n{}", told(schema)));
    }
    let withheld = &request.said[request.said.trim_end().len()..];
    let mut said = conversation(ask);
    let rendered: Vec<Box<RawValue>> = said.iter().map(Said::raw).collect();
    let prefix = prefix(
        (!tools.is_empty()).then(|| raw(&tools)).as_deref(),
        (!system.is_empty()).then(|| raw(&system)).as_deref(),
        &rendered,
    );

    let tool_choice = tool_choice(ask, &form);
    let system = (!system.is_empty()).then(|| {
        let mut block = json!({ "type": "text", "text": system });
        mark(&mut block);
        json!([block])
    });
    if system.is_none()
        && let Some(last) = tools.last_mut()
    {
        mark(last);
    }
    let mut messages = rendered;
    // The end of the current prompt, for the next call to read, and the end of the previous prompt.
    let ends: Vec<usize> =
        (0..said.len()).filter(|place| said[*place].role == Role::User).rev().take(2).collect();
    for place in ends {
        let unmarked = Said { role: Role::User, content: std::mem::take(&mut said[place].content) };
        messages[place] = unmarked.marked().raw();
    }
    if let Some(begun) = Some(request.said.trim_end()).filter(|begun| !begun.is_empty()) {
        let content = vec![json!({ "type": "text", "text": begun })];
        messages.push(Said { role: Role::Assistant, content }.raw());
    }
    let format = match form {
        Form::Schema(schema) => Some(json!({ "type": "json_schema", "schema": schema })),
        Form::Free | Form::Tool(_) | Form::Told => None,
    };
    let body = Body {
        model: ask.model,
        max_tokens,
        tools: (!tools.is_empty()).then_some(tools),
        system,
        messages,
        tool_choice,
        temperature: temperature.map(|milli| f64::from(milli) / 1_000.0),
        thinking,
        output_config: match (effort, format) {
            (None, None) => None,
            (Some(effort), None) => Some(json!({ "effort": effort })),
            (None, Some(format)) => Some(json!({ "format": format })),
            (Some(effort), Some(format)) => Some(json!({ "effort": effort, "format": format })),
        },
        stream: true,
    };
    let body = serde_json::to_vec(&body).expect("what is sent is plain data");
    Rendered { body, prefix, answering: Answering { withheld: withheld.to_owned(), answer_tool } }
}

/// The thinking configuration and the effort level.
#[derive(Default)]
struct Thinking<'a> {
    how: Option<Value>,
    effort: Option<&'a str>,
}

/// Returns the thinking configuration for a variant such as `high` or `8000` (thinking tokens), within the token limit
/// of the reply.
///
/// Thinking tokens count as tokens of the reply, as in every API. At least a quarter is left for the answer. If too few
/// tokens are left, thinking is off.
fn thinking(claude: Claude, variant: Option<&str>, most: u32) -> Thinking<'_> {
    let Some(variant) = variant else { return Thinking::default() };
    if matches!(variant, "none" | "off") {
        return Thinking::default();
    }
    if claude.thinks_by_effort() {
        let mut adaptive = json!({ "type": "adaptive" });
        if claude.thinks_silently() {
            adaptive["display"] = json!("summarized");
        }
        // A number of tokens is not an effort level; the model decides.
        let effort = Some(variant).filter(|variant| variant.parse::<u32>().is_err());
        return Thinking { how: Some(adaptive), effort };
    }
    let tokens = variant.parse().unwrap_or(match variant {
        "minimal" | "low" => 2_048,
        "medium" => 8_192,
        _ => 24_000,
    });
    let tokens = tokens.clamp(THOUGHT_TOKENS_LEAST, THOUGHT_TOKENS_MOST).min(most - most / 4);
    if tokens < THOUGHT_TOKENS_LEAST {
        return Thinking::default();
    }
    Thinking { how: Some(json!({ "type": "enabled", "budget_tokens": tokens })), effort: None }
}

fn form(ask: &Ask<'_>, claude: Claude, thinks: bool) -> Form {
    let Some(schema) = &ask.request.call.output else { return Form::Free };
    match Strict::Anthropic.of(schema) {
        Some(strict) if claude.takes_schema() => Form::Schema(strict),
        // A thinking model cannot be forced to call a tool.
        _ if schema["type"] == "object" && !thinks => Form::Tool(ask.schema(schema)),
        _ => Form::Told,
    }
}

fn tool_choice(ask: &Ask<'_>, form: &Form) -> Option<Value> {
    if ask.names.is_empty() && !matches!(form, Form::Tool(_)) {
        return None;
    }
    match (&ask.request.call.choice, form) {
        (ToolChoice::Auto, Form::Tool(_)) if ask.names.is_empty() => {
            Some(json!({ "type": "tool", "name": ANSWER }))
        }
        (ToolChoice::None, Form::Tool(_)) => Some(json!({ "type": "tool", "name": ANSWER })),
        (ToolChoice::Auto, Form::Tool(_)) | (ToolChoice::Required, _) => Some(json!({ "type": "any" })),
        (ToolChoice::Only(tool), _) => Some(json!({ "type": "tool", "name": ask.names.outward(tool) })),
        (ToolChoice::None, _) => Some(json!({ "type": "none" })),
        (ToolChoice::Auto, _) => None,
    }
}

/// Renders the conversation. Adjacent messages of one role are merged.
fn conversation(ask: &Ask<'_>) -> Vec<Said> {
    let mut said: Vec<Said> = Vec::new();
    for message in ask.request.messages() {
        let (role, mut content) = match message {
            Message::User { parts } => {
                (Role::User, parts.iter().filter_map(|part| shown(ask, part)).collect())
            }
            Message::Assistant { parts, calls } => {
                let mut content: Vec<Value> = parts.iter().filter_map(|part| replied(ask, part)).collect();
                content.extend(calls.iter().map(|call| {
                    let name = ask.names.outward(&call.tool);
                    json!({ "type": "tool_use", "id": call.id, "name": name, "input": as_object(&call.arguments) })
                }));
                (Role::Assistant, content)
            }
            Message::Tool { call, result, .. } => {
                let mut block =
                    json!({ "type": "tool_result", "tool_use_id": call, "content": result.text() });
                if matches!(result, ToolResult::Err(_)) {
                    block["is_error"] = json!(true);
                }
                (Role::User, vec![block])
            }
        };
        match said.last_mut() {
            Some(last) if last.role == role => last.content.append(&mut content),
            _ if content.is_empty() => {}
            _ => said.push(Said { role, content }),
        }
    }
    said
}

fn text_block(text: &str) -> Option<Value> {
    // The API rejects blank text.
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

fn shown(ask: &Ask<'_>, part: &Part) -> Option<Value> {
    match part {
        Part::Text { text } => text_block(text),
        Part::Attachment { attachment } => match show(attachment, ask.request.files, is_picture_or_pdf) {
            Shown::Text(text) => text_block(&text),
            Shown::Bytes { media_type, name, base64 } => {
                let source = json!({ "type": "base64", "media_type": media_type, "data": base64 });
                Some(if media_type.starts_with("image/") {
                    json!({ "type": "image", "source": source })
                } else {
                    json!({ "type": "document", "source": source, "title": name })
                })
            }
        },
        Part::Reasoning { .. } | Part::Sealed { .. } => None,
    }
}

fn replied(ask: &Ask<'_>, part: &Part) -> Option<Value> {
    match part {
        Part::Text { text } => text_block(text),
        Part::Reasoning { text, signature } => {
            let signature = proof::open(ask.provider.name, signature.as_deref())?;
            Some(json!({ "type": "thinking", "thinking": text, "signature": signature }))
        }
        Part::Sealed { provider, data } => (provider == ask.provider.name).then(|| data.clone()),
        Part::Attachment { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(variant: &str, most: u32, tokens: Option<u32>) {
        let how = thinking(Claude::of("claude-sonnet-4-5"), Some(variant), most).how;
        assert_eq!(how, tokens.map(|tokens| json!({ "type": "enabled", "budget_tokens": tokens })));
    }

    #[test]
    fn thoughts_are_part_of_what_a_reply_may_have() {
        check("high", 32_000, Some(24_000));
        check("high", 8_192, Some(6_144));
        check("low", 8_192, Some(2_048));
        check("low", 1_400, Some(1_050));
        check("high", 1_000, None);
    }
}
