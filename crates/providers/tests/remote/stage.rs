//! A provider and its server.
use futures_util::StreamExt;
use outlast_playback::{Playback, ResponseScript};
use outlast_ports::model::{ModelProvider, ModelRequest};
use outlast_providers::{Api, RemoteProvider, Secret};
use outlast_vocab::effect::{Generation, ModelCall, StopReason, ToolChoice, Usage};
use outlast_vocab::message::{CallArguments, Message, ToolUse};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::tool::{EffectClass, ToolContract};
use outlast_vocab::{Error, Hash, SessionId};
use serde_json::{Value, json};

/// The key that must not appear anywhere.
pub(crate) const KEY: &str = "sk-canary-4f1c9e";

/// Returns a model that the API supports.
pub(crate) fn model(api: Api) -> &'static str {
    match api {
        Api::OpenAi | Api::OpenAiResponses => "gpt-5",
        Api::Anthropic => "claude-sonnet-4-5",
        Api::Gemini => "gemini-2.5-flash",
        Api::OpenAiCompatible => "qwen",
    }
}

/// Returns the provider of an API at a server.
pub(crate) fn remote(api: Api, server: &Playback) -> RemoteProvider {
    RemoteProvider::new(api.name(), api, server.url(), Some(Secret::new(KEY))).unwrap()
}

/// Returns a call of the API's model.
pub(crate) fn call(api: Api) -> ModelCall {
    ModelCall {
        model: format!("{}/{}", api.name(), model(api)).parse().unwrap(),
        at: None,
        tools: Hash::ZERO,
        choice: ToolChoice::Auto,
        options: Generation::default(),
        output: None,
    }
}

/// Returns a tool.
pub(crate) fn tool(name: &str, input: Value) -> ToolContract {
    ToolContract {
        class: EffectClass::Pure,
        ..ToolContract::new(name.parse().unwrap(), format!("Does {name}."), input)
    }
}

/// Returns the tools of every test.
pub(crate) fn tools() -> Vec<ToolContract> {
    let to = json!({ "type": "object", "properties": { "to": { "type": "string" } }, "required": ["to"] });
    vec![tool("bank.pay", to), tool("now", json!({ "type": "object" }))]
}

/// Returns all events of a provider's reply to a short message.
pub(crate) fn ask(provider: &dyn ModelProvider, call: &ModelCall) -> Vec<Result<ModelEvent, Error>> {
    let (tools, turn) = (tools(), [Message::user("hello")]);
    let session = SessionId::from_u128(7);
    hear(
        provider,
        ModelRequest {
            system: "Be brief.",
            turn: &turn,
            tools: &tools,
            session,
            ..ModelRequest::empty(call)
        },
    )
}

/// Returns all events of a provider's reply to a request.
pub(crate) fn hear(
    provider: &dyn ModelProvider,
    request: ModelRequest<'_>,
) -> Vec<Result<ModelEvent, Error>> {
    run(provider.stream(request).collect())
}

/// Runs a future to completion.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Returns the events of a provider whose server plays this script.
pub(crate) fn play(api: Api, script: ResponseScript) -> Vec<Result<ModelEvent, Error>> {
    let server = Playback::of([script]);
    ask(&remote(api, &server), &call(api))
}

/// Formats events, one per line. Adjacent text and reasoning is joined, and signs of life are left out.
pub(crate) fn show(pieces: &[Result<ModelEvent, Error>]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut said: Option<(&str, String)> = None;
    let flush = |said: &mut Option<(&str, String)>, lines: &mut Vec<String>| {
        lines.extend(said.take().map(|(how, text)| format!("{how} {text:?}")));
    };
    for piece in pieces {
        let (how, text) = match piece {
            Ok(ModelEvent::Text(text)) => ("text", text),
            Ok(ModelEvent::Reasoning { text, signature: None }) => ("thought", text),
            Ok(ModelEvent::KeepAlive | ModelEvent::HiddenProgress | ModelEvent::PromptChanged(_)) => continue,
            other => {
                flush(&mut said, &mut lines);
                lines.push(line(other));
                continue;
            }
        };
        match &mut said {
            Some((before, so_far)) if *before == how => so_far.push_str(text),
            _ => {
                flush(&mut said, &mut lines);
                said = Some((how, text.clone()));
            }
        }
    }
    flush(&mut said, &mut lines);
    lines
}

fn line(piece: &Result<ModelEvent, Error>) -> String {
    match piece {
        Ok(ModelEvent::Call(ToolUse { id, tool, arguments, signature })) => {
            let arguments = match arguments {
                CallArguments::Json(value) => value.to_string(),
                CallArguments::Broken(text) => format!("broken {text:?}"),
            };
            let signature =
                signature.as_ref().map(|signature| format!(" signed {signature}")).unwrap_or_default();
            format!("call {id} {tool} {arguments}{signature}")
        }
        Ok(ModelEvent::Reasoning { text, signature }) => {
            format!("proof {text:?} {}", signature.as_ref().unwrap())
        }
        Ok(ModelEvent::Sealed { provider, data }) => format!("sealed by {provider} {data}"),
        Ok(ModelEvent::Usage(usage)) => self::usage(usage),
        Ok(ModelEvent::End(stop)) => end(*stop),
        Ok(other) => format!("{other:?}"),
        Err(error) => match error.pause() {
            Some(pause) => format!("{error} [after {pause:?}]"),
            None => error.to_string(),
        },
    }
}

pub(crate) fn usage(usage: &Usage) -> String {
    let Usage { input, cache_read, cache_write, output, reasoning } = usage;
    format!("usage {input} read {cache_read} written {cache_write} said {output} thought {reasoning}")
}

pub(crate) fn end(stop: StopReason) -> String {
    format!("end {stop:?}")
}
