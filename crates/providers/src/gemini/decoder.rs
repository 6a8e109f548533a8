//! Decodes replies: parts of candidates. A reply is complete when the body ends after a finish reason.
use crate::api_error::{ApiErrorBody, ProviderLabel};
use crate::api_parts::streaming_calls::{StreamingCall, StreamingCalls};
use crate::api_parts::tool_names::ApiToolNames;
use crate::api_parts::{PendingEvents, ReplyDecoder, push_reasoning, push_text, signatures};
use outlast_vocab::effect::{StopReason, Usage};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Error, Kind};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiChunk {
    #[serde(default)]
    candidates: Vec<GeminiCandidate>,
    usage_metadata: Option<GeminiUsage>,
    prompt_feedback: Option<PromptFeedback>,
    error: Option<ApiErrorBody>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiCandidate {
    content: Option<GeminiContent>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
}

#[derive(Deserialize)]
struct GeminiContent {
    #[serde(default)]
    parts: Vec<GeminiPart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiPart {
    text: Option<String>,
    #[serde(default)]
    thought: bool,
    thought_signature: Option<String>,
    function_call: Option<GeminiFunctionCall>,
}

#[derive(Deserialize)]
struct GeminiFunctionCall {
    #[serde(default)]
    id: String,
    #[serde(default)]
    name: String,
    args: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback {
    block_reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GeminiUsage {
    #[serde(rename = "promptTokenCount")]
    prompt: u64,
    #[serde(rename = "toolUsePromptTokenCount")]
    prompt_for_tools: u64,
    #[serde(rename = "cachedContentTokenCount")]
    cached: u64,
    #[serde(rename = "candidatesTokenCount")]
    candidates: u64,
    #[serde(rename = "thoughtsTokenCount")]
    thoughts: u64,
}

impl From<GeminiUsage> for Usage {
    fn from(counted: GeminiUsage) -> Self {
        let GeminiUsage {
            prompt: read,
            prompt_for_tools: read_for_tools,
            cached,
            candidates: said,
            thoughts: thought,
        } = counted;
        Self {
            input: read.saturating_add(read_for_tools).saturating_sub(cached),
            cache_read: cached,
            cache_write: 0,
            output: said,
            reasoning: thought,
        }
    }
}

/// The state of decoding a streamed reply.
pub(crate) struct GeminiDecoder<'a> {
    provider: ProviderLabel<'a>,
    names: ApiToolNames<'a>,
    calls: StreamingCalls,
    usage: Option<Usage>,
    stop: Option<StopReason>,
}

impl<'a> GeminiDecoder<'a> {
    /// Creates the state before the first event.
    pub(crate) fn new(provider: ProviderLabel<'a>, names: ApiToolNames<'a>) -> Self {
        Self { provider, names, calls: StreamingCalls::default(), usage: None, stop: None }
    }

    fn part(&mut self, part: GeminiPart, out: &mut PendingEvents) {
        let GeminiPart { text, thought, thought_signature, function_call } = part;
        let signature = thought_signature
            .map(|signature| (signatures::tag_signature(self.provider.name, &signature), signature));
        if let Some(GeminiFunctionCall { id, name, args }) = function_call {
            let index = self.calls.len() as u64;
            // The API omits empty arguments; they mean an empty object.
            let arguments = args.unwrap_or_else(|| json!({})).to_string();
            let signature = signature.map(|(sealed, _)| sealed);
            self.calls.push(StreamingCall { index, id, name, arguments, signature });
            out.push_back(ModelEvent::HiddenProgress);
            return;
        }
        let text = text.unwrap_or_default();
        match (thought, signature) {
            (true, None) => push_reasoning(&text, out),
            (true, Some((sealed, _))) => {
                out.push_back(ModelEvent::Reasoning { text, signature: Some(sealed) });
            }
            (false, None) => push_text(&text, out),
            (false, Some((_, signature))) => {
                push_text(&text, out);
                let data = json!({ "text": "", "thoughtSignature": signature });
                out.push_back(ModelEvent::Sealed { provider: self.provider.name.to_owned(), data });
            }
        }
    }

    fn finish_reason(&mut self, reason: &str, message: Option<&str>) -> Result<(), Error> {
        self.stop = Some(match reason {
            "STOP" => StopReason::End,
            "MAX_TOKENS" => StopReason::Length,
            // The model produced an invalid call. A retry usually succeeds.
            "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "MALFORMED_RESPONSE" => {
                let detail = format!(
                    "`{}` stopped its reply ({reason}): {}",
                    self.provider.name,
                    message.unwrap_or("it does not say why")
                );
                return Err(Error::new(Kind::ModelCut, detail));
            }
            _ => StopReason::Refusal,
        });
        Ok(())
    }
}

impl ReplyDecoder for GeminiDecoder<'_> {
    fn event(&mut self, _: Option<&str>, data: &str, out: &mut PendingEvents) -> Result<(), Error> {
        let chunk: GeminiChunk =
            serde_json::from_str(data).map_err(|cause| self.provider.unexpected_event(data, &cause))?;
        if let Some(error) = chunk.error {
            return Err(self.provider.stream_error(&error));
        }
        self.usage = chunk.usage_metadata.map(Usage::from).or(self.usage);
        if chunk.prompt_feedback.and_then(|feedback| feedback.block_reason).is_some() {
            self.stop = Some(StopReason::Refusal);
        }
        // One candidate was requested; ignore any others.
        if let Some(candidate) = chunk.candidates.into_iter().next() {
            for part in candidate.content.into_iter().flat_map(|content| content.parts) {
                self.part(part, out);
            }
            if let Some(reason) = candidate.finish_reason {
                self.finish_reason(&reason, candidate.finish_message.as_deref())?;
            }
        }
        if out.is_empty() {
            out.push_back(ModelEvent::KeepAlive);
        }
        Ok(())
    }

    fn close(&mut self, out: &mut PendingEvents) {
        let Some(stop) = self.stop else { return };
        let stop = self.calls.finish(stop, &self.names, out);
        out.extend(self.usage.take().map(ModelEvent::Usage));
        out.push_back(ModelEvent::End(stop));
    }
}
