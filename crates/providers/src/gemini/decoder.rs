//! Decodes replies: parts of candidates. A reply is complete when the body ends after a finish reason.
use crate::failure::{Provider, Refused};
use crate::wire::calls::{Calls, Open};
use crate::wire::names::Names;
use crate::wire::{Decode, Pieces, proof, say, think};
use outlast_vocab::effect::{StopReason, Usage};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Error, Kind};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk {
    #[serde(default)]
    candidates: Vec<Candidate>,
    usage_metadata: Option<Counted>,
    prompt_feedback: Option<Feedback>,
    error: Option<Refused>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    content: Option<Content>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    text: Option<String>,
    #[serde(default)]
    thought: bool,
    thought_signature: Option<String>,
    function_call: Option<FunctionCall>,
}

#[derive(Deserialize)]
struct FunctionCall {
    #[serde(default)]
    id: String,
    #[serde(default)]
    name: String,
    args: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Counted {
    #[serde(rename = "promptTokenCount")]
    read: u64,
    #[serde(rename = "toolUsePromptTokenCount")]
    read_for_tools: u64,
    #[serde(rename = "cachedContentTokenCount")]
    cached: u64,
    #[serde(rename = "candidatesTokenCount")]
    said: u64,
    #[serde(rename = "thoughtsTokenCount")]
    thought: u64,
}

impl From<Counted> for Usage {
    fn from(counted: Counted) -> Self {
        let Counted { read, read_for_tools, cached, said, thought } = counted;
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
pub(crate) struct Gemini<'a> {
    provider: Provider<'a>,
    names: Names<'a>,
    calls: Calls,
    usage: Option<Usage>,
    stop: Option<StopReason>,
}

impl<'a> Gemini<'a> {
    /// Creates the state before the first event.
    pub(crate) fn new(provider: Provider<'a>, names: Names<'a>) -> Self {
        Self { provider, names, calls: Calls::default(), usage: None, stop: None }
    }

    fn part(&mut self, part: Part, out: &mut Pieces) {
        let Part { text, thought, thought_signature, function_call } = part;
        let signature =
            thought_signature.map(|signature| (proof::seal(self.provider.name, &signature), signature));
        if let Some(FunctionCall { id, name, args }) = function_call {
            let index = self.calls.len() as u64;
            // The API omits empty arguments; they mean an empty object.
            let arguments = args.unwrap_or_else(|| json!({})).to_string();
            let signature = signature.map(|(sealed, _)| sealed);
            self.calls.push(Open { index, id, name, arguments, signature });
            out.push_back(ModelEvent::Working);
            return;
        }
        let text = text.unwrap_or_default();
        match (thought, signature) {
            (true, None) => think(&text, out),
            (true, Some((sealed, _))) => {
                out.push_back(ModelEvent::Reasoning { text, signature: Some(sealed) });
            }
            (false, None) => say(&text, out),
            (false, Some((_, signature))) => {
                say(&text, out);
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
                    "`{}` gave up on its reply ({reason}): {}",
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

impl Decode for Gemini<'_> {
    fn event(&mut self, _: Option<&str>, data: &str, out: &mut Pieces) -> Result<(), Error> {
        let chunk: Chunk = serde_json::from_str(data).map_err(|cause| self.provider.garbled(data, &cause))?;
        if let Some(error) = chunk.error {
            return Err(self.provider.failed_midway(&error));
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
            out.push_back(ModelEvent::Alive);
        }
        Ok(())
    }

    fn close(&mut self, out: &mut Pieces) {
        let Some(stop) = self.stop else { return };
        let stop = self.calls.finish(stop, &self.names, out);
        out.extend(self.usage.take().map(ModelEvent::Usage));
        out.push_back(ModelEvent::End(stop));
    }
}
