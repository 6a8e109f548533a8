//! Decodes replies: items that start, grow and finish, and one event that ends the response.
use crate::api_error::{ApiErrorBody, ProviderLabel};
use crate::api_parts::streaming_calls::{StreamingCall, StreamingCalls};
use crate::api_parts::tool_names::ApiToolNames;
use crate::api_parts::{PendingEvents, ReplyDecoder, push_reasoning, push_text};
use crate::chat::OpenAiUsage;
use outlast_vocab::Error;
use outlast_vocab::effect::{StopReason, Usage};
use outlast_vocab::stream::ModelEvent;
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;

#[derive(Deserialize)]
struct ResponsesEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    output_index: u64,
    #[serde(borrow)]
    delta: Option<Cow<'a, str>>,
    item: Option<Value>,
    response: Option<Box<ResponseResult>>,
    // An error is in a separate object or among the fields of its event.
    error: Option<ApiErrorBody>,
    message: Option<String>,
    code: Option<String>,
}

#[derive(Deserialize)]
struct ResponseResult {
    usage: Option<OpenAiUsage>,
    error: Option<ApiErrorBody>,
    incomplete_details: Option<IncompleteDetails>,
}

#[derive(Deserialize)]
struct IncompleteDetails {
    reason: Option<String>,
}

/// The state of decoding a streamed reply.
pub(crate) struct ResponsesDecoder<'a> {
    provider: ProviderLabel<'a>,
    names: ApiToolNames<'a>,
    calls: StreamingCalls,
    /// Items whose text was already emitted in parts, so that their complete text is not emitted again.
    started_items: BTreeSet<u64>,
    refused: bool,
}

impl<'a> ResponsesDecoder<'a> {
    /// Creates the state before the first event.
    pub(crate) fn new(provider: ProviderLabel<'a>, names: ApiToolNames<'a>) -> Self {
        Self {
            provider,
            names,
            calls: StreamingCalls::default(),
            started_items: BTreeSet::new(),
            refused: false,
        }
    }

    fn item_done(&mut self, index: u64, item: &Value, out: &mut PendingEvents) {
        match item["type"].as_str() {
            Some("message") if !self.started_items.contains(&index) => {
                for content in item["content"].as_array().into_iter().flatten() {
                    self.refused |= content["type"] == "refusal";
                    let text = content["text"].as_str().or_else(|| content["refusal"].as_str());
                    push_text(text.unwrap_or_default(), out);
                }
            }
            Some("message") => {}
            Some("function_call") => {
                let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
                let call = self.calls.at(index);
                let signature = None;
                *call = StreamingCall {
                    index,
                    id: text("call_id"),
                    name: text("name"),
                    arguments: text("arguments"),
                    signature,
                };
                out.push_back(ModelEvent::HiddenProgress);
            }
            Some("reasoning") => {
                let provider = self.provider.name.to_owned();
                let data = json!({ "after_calls": self.calls.len(), "item": item });
                out.push_back(ModelEvent::Sealed { provider, data });
            }
            _ => out.push_back(ModelEvent::HiddenProgress),
        }
    }

    fn item_started(&mut self, index: u64, item: &Value, out: &mut PendingEvents) {
        if item["type"] == "function_call" {
            let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
            let call = self.calls.at(index);
            (call.id, call.name) = (text("call_id"), text("name"));
        }
        out.push_back(ModelEvent::HiddenProgress);
    }

    fn end(&mut self, stop: StopReason, usage: Option<OpenAiUsage>, out: &mut PendingEvents) {
        let stop = self.calls.finish(stop, &self.names, out);
        out.extend(usage.map(Usage::from).map(ModelEvent::Usage));
        out.push_back(ModelEvent::End(if self.refused { StopReason::Refusal } else { stop }));
    }

    fn incomplete(&mut self, response: ResponseResult, out: &mut PendingEvents) {
        let reason = response.incomplete_details.and_then(|details| details.reason);
        let stop = match reason.as_deref() {
            Some("content_filter") => StopReason::Refusal,
            _ => StopReason::Length,
        };
        self.end(stop, response.usage, out);
    }
}

impl ReplyDecoder for ResponsesDecoder<'_> {
    fn event(&mut self, _: Option<&str>, data: &str, out: &mut PendingEvents) -> Result<(), Error> {
        if data.trim() == "[DONE]" {
            return Ok(());
        }
        let event: ResponsesEvent<'_> =
            serde_json::from_str(data).map_err(|cause| self.provider.unexpected_event(data, &cause))?;
        let index = event.output_index;
        let delta = event.delta.as_deref().unwrap_or_default();
        match (event.kind.as_ref(), event.item, event.response) {
            ("response.output_text.delta", ..) => {
                self.started_items.insert(index);
                push_text(delta, out);
            }
            ("response.refusal.delta", ..) => {
                self.started_items.insert(index);
                self.refused = true;
                push_text(delta, out);
            }
            ("response.reasoning_summary_text.delta" | "response.reasoning_text.delta", ..) => {
                push_reasoning(delta, out);
            }
            // The parts of a summary are paragraphs.
            ("response.reasoning_summary_part.done", ..) => push_reasoning("\n\n", out),
            ("response.function_call_arguments.delta", ..) => {
                self.calls.at(index).arguments.push_str(delta);
                out.push_back(ModelEvent::HiddenProgress);
            }
            ("response.output_item.added", Some(item), _) => self.item_started(index, &item, out),
            ("response.output_item.done", Some(item), _) => self.item_done(index, &item, out),
            ("response.completed", _, Some(response)) => self.end(StopReason::End, response.usage, out),
            ("response.incomplete", _, Some(response)) => self.incomplete(*response, out),
            ("response.failed", _, Some(response)) => {
                return Err(self.provider.stream_error(&response.error.unwrap_or_default()));
            }
            ("error", ..) => {
                let named = || {
                    ApiErrorBody::with_code(event.message.unwrap_or_default(), event.code.unwrap_or_default())
                };
                return Err(self.provider.stream_error(&event.error.unwrap_or_else(named)));
            }
            _ => {}
        }
        if out.is_empty() {
            out.push_back(ModelEvent::KeepAlive);
        }
        Ok(())
    }

    fn close(&mut self, _: &mut PendingEvents) {}
}
