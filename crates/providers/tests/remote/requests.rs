//! The requests that each API's server receives.
use crate::dialect::{Bit, reply};
use crate::stage::{call, hear, remote, run, show, tools};
use expect_test::{Expect, expect};
use futures_util::StreamExt;
use outlast_playback::{Playback, ResponseScript};
use outlast_ports::model::{AttachmentContents, ModelProvider, ModelRequest};
use outlast_providers::{Api, RemoteProvider};
use outlast_vocab::effect::{Generation, ModelCall, StopReason, ToolChoice};
use outlast_vocab::id::AttachmentId;
use outlast_vocab::message::{Attachment, CallArguments, Link, LinkKind, Message, Part, ToolResult, ToolUse};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Failure, Hash, Kind, SessionId};
use serde_json::{Value, json};
use std::fmt::Write;

/// Returns the received body of a request.
fn sent(api: Api, request: ModelRequest<'_>) -> Value {
    let server = Playback::of([ResponseScript::stream(reply(api, &[Bit::Text("ok")], StopReason::End))]);
    let said = hear(&remote(api, &server), ModelRequest { session: SessionId::from_u128(7), ..request });
    assert!(matches!(said.last(), Some(Ok(ModelEvent::End(_)))), "{:?}", show(&said));
    let [received] = &server.requests()[..] else { panic!("one request is sent") };
    let mut body: Value = serde_json::from_slice(&received.body).unwrap();
    body["POST"] = json!(received.path);
    body
}

fn attachment(content: &[u8], media_type: &str, name: &str) -> (Attachment, Hash) {
    let content = Hash::of(content);
    let media_type = media_type.to_owned().try_into().unwrap();
    (Attachment { id: AttachmentId::from_u128(1), content, media_type, name: Some(name.to_owned()) }, content)
}

/// Returns a sealed part that only this API can read.
fn sealed(api: Api) -> Value {
    match api {
        Api::OpenAi | Api::OpenAiCompatible | Api::OpenAiResponses => {
            json!({ "after_calls": 1, "item": { "type": "reasoning", "encrypted_content": "x" } })
        }
        Api::Anthropic => json!({ "type": "redacted_thinking", "data": "x" }),
        Api::Gemini => json!({ "text": "", "thoughtSignature": "x" }),
    }
}

/// Returns the received body for a conversation with all kinds of content.
fn everything(api: Api) -> Value {
    let name = api.name();
    let mut files = AttachmentContents::default();
    let (picture, content) = attachment(b"png", "image/png", "cat.png");
    files.insert(content, b"png".as_slice().into());
    let (document, content) = attachment(b"pdf", "application/pdf", "terms.pdf");
    files.insert(content, b"pdf".as_slice().into());
    let (gone, _) = attachment(b"gone", "image/png", "gone.png");
    let history = [
        Message::User {
            parts: vec![
                Part::text("look"),
                Part::Attachment { attachment: picture },
                Part::Attachment { attachment: document },
                Part::Attachment { attachment: gone },
            ],
        },
        Message::Assistant {
            parts: vec![
                Part::Reasoning { text: "mine".to_owned(), signature: Some(format!("{name}:proof")) },
                Part::Reasoning { text: "another's".to_owned(), signature: Some("other:proof".to_owned()) },
                Part::Reasoning { text: "unspecified".to_owned(), signature: None },
                Part::Sealed { provider: name.to_owned(), data: sealed(api) },
                Part::Sealed { provider: "other".to_owned(), data: json!({ "type": "theirs" }) },
                Part::text("I pay."),
            ],
            calls: vec![
                ToolUse {
                    signature: Some(format!("{name}:sig")),
                    ..ToolUse::new(
                        "a".parse().unwrap(),
                        "bank.pay".parse().unwrap(),
                        CallArguments::Json(json!({ "to": "ann" })),
                    )
                },
                ToolUse::new(
                    "b".parse().unwrap(),
                    "now".parse().unwrap(),
                    CallArguments::Broken("{\"to".to_owned()),
                ),
            ],
        },
        Message::Tool {
            call: "a".parse().unwrap(),
            tool: "bank.pay".parse().unwrap(),
            result: ToolResult::Ok(json!({ "receipt": 7 })),
        },
        Message::Tool {
            call: "b".parse().unwrap(),
            tool: "now".parse().unwrap(),
            result: ToolResult::Err(Failure::new(Kind::ToolArgsInvalid, "no JSON")),
        },
    ];
    let options = Generation {
        tokens_most: Some(4_000),
        temperature_milli: Some(250),
        variant: Some("low".to_owned()),
        ..Generation::default()
    };
    let call = ModelCall { options, choice: ToolChoice::Only("bank.pay".parse().unwrap()), ..call(api) };
    let (turn, tools) = ([Message::user("and now?")], tools());
    let request = ModelRequest {
        system: "Be brief.",
        history: &history,
        turn: &turn,
        tools: &tools,
        files: &files,
        ..ModelRequest::empty(&call)
    };
    sent(api, request)
}

#[track_caller]
fn check(value: &Value, want: &Expect) {
    let mut lines = String::new();
    for (field, value) in value.as_object().unwrap() {
        match value {
            Value::Array(items) => {
                writeln!(lines, "{field}:").unwrap();
                for item in items {
                    writeln!(lines, "  {item}").unwrap();
                }
            }
            value => writeln!(lines, "{field}: {value}").unwrap(),
        }
    }
    want.assert_eq(&lines);
}

#[test]
fn chat_completions_request_carries_all_settings() {
    check(
        &everything(Api::OpenAi),
        &expect![[r#"
        POST: "/chat/completions"
        max_completion_tokens: 4000
        messages:
          {"content":"Be brief.","role":"system"}
          {"content":[{"text":"look","type":"text"},{"image_url":{"url":"data:image/png;base64,cG5n"},"type":"image_url"},{"file":{"file_data":"data:application/pdf;base64,cGRm","filename":"terms.pdf"},"type":"file"},{"text":"[gone.png (image/png) is missing: its bytes were not found]","type":"text"}],"role":"user"}
          {"content":"I pay.","reasoning_content":"mine","role":"assistant","tool_calls":[{"function":{"arguments":"{\"to\":\"ann\"}","name":"bank_pay"},"id":"a","type":"function"},{"function":{"arguments":"{\"unreadable_arguments\":\"{\\\"to\"}","name":"now"},"id":"b","type":"function"}]}
          {"content":"{\"receipt\":7}","role":"tool","tool_call_id":"a"}
          {"content":"error tool.args_invalid: no JSON","role":"tool","tool_call_id":"b"}
          {"content":"and now?","role":"user"}
        model: "gpt-5"
        prompt_cache_key: "ses_00000000000000000000000000000007"
        reasoning_effort: "low"
        stream: true
        stream_options: {"include_usage":true}
        temperature: 0.25
        tool_choice: {"function":{"name":"bank_pay"},"type":"function"}
        tools:
          {"function":{"description":"Does bank.pay.","name":"bank_pay","parameters":{"properties":{"to":{"type":"string"}},"required":["to"],"type":"object"}},"type":"function"}
          {"function":{"description":"Does now.","name":"now","parameters":{"properties":{},"type":"object"}},"type":"function"}
    "#]],
    );
}

#[test]
fn responses_request_carries_all_settings() {
    check(
        &everything(Api::OpenAiResponses),
        &expect![[r#"
        POST: "/responses"
        include:
          "reasoning.encrypted_content"
        input:
          {"content":[{"text":"look","type":"input_text"},{"detail":"auto","image_url":"data:image/png;base64,cG5n","type":"input_image"},{"file_data":"data:application/pdf;base64,cGRm","filename":"terms.pdf","type":"input_file"},{"text":"[gone.png (image/png) is missing: its bytes were not found]","type":"input_text"}],"role":"user"}
          {"arguments":"{\"to\":\"ann\"}","call_id":"a","name":"bank_pay","type":"function_call"}
          {"encrypted_content":"x","type":"reasoning"}
          {"content":[{"text":"I pay.","type":"output_text"}],"role":"assistant","type":"message"}
          {"arguments":"{\"unreadable_arguments\":\"{\\\"to\"}","call_id":"b","name":"now","type":"function_call"}
          {"call_id":"a","output":"{\"receipt\":7}","type":"function_call_output"}
          {"call_id":"b","output":"error tool.args_invalid: no JSON","type":"function_call_output"}
          {"content":[{"text":"and now?","type":"input_text"}],"role":"user"}
        instructions: "Be brief."
        max_output_tokens: 4000
        model: "gpt-5"
        prompt_cache_key: "ses_00000000000000000000000000000007"
        reasoning: {"effort":"low","summary":"auto"}
        store: false
        stream: true
        temperature: 0.25
        tool_choice: {"name":"bank_pay","type":"function"}
        tools:
          {"description":"Does bank.pay.","name":"bank_pay","parameters":{"properties":{"to":{"type":"string"}},"required":["to"],"type":"object"},"strict":false,"type":"function"}
          {"description":"Does now.","name":"now","parameters":{"properties":{},"type":"object"},"strict":false,"type":"function"}
    "#]],
    );
}

#[test]
fn messages_request_carries_all_settings() {
    check(
        &everything(Api::Anthropic),
        &expect![[r#"
        POST: "/v1/messages"
        max_tokens: 4000
        messages:
          {"content":[{"text":"look","type":"text"},{"source":{"data":"cG5n","media_type":"image/png","type":"base64"},"type":"image"},{"source":{"data":"cGRm","media_type":"application/pdf","type":"base64"},"title":"terms.pdf","type":"document"},{"cache_control":{"type":"ephemeral"},"text":"[gone.png (image/png) is missing: its bytes were not found]","type":"text"}],"role":"user"}
          {"content":[{"signature":"proof","thinking":"mine","type":"thinking"},{"data":"x","type":"redacted_thinking"},{"text":"I pay.","type":"text"},{"id":"a","input":{"to":"ann"},"name":"bank_pay","type":"tool_use"},{"id":"b","input":{"unreadable_arguments":"{\"to"},"name":"now","type":"tool_use"}],"role":"assistant"}
          {"content":[{"content":"{\"receipt\":7}","tool_use_id":"a","type":"tool_result"},{"content":"error tool.args_invalid: no JSON","is_error":true,"tool_use_id":"b","type":"tool_result"},{"cache_control":{"type":"ephemeral"},"text":"and now?","type":"text"}],"role":"user"}
        model: "claude-sonnet-4-5"
        stream: true
        system:
          {"cache_control":{"type":"ephemeral"},"text":"Be brief.","type":"text"}
        thinking: {"budget_tokens":2048,"type":"enabled"}
        tool_choice: {"name":"bank_pay","type":"tool"}
        tools:
          {"description":"Does bank.pay.","input_schema":{"properties":{"to":{"type":"string"}},"required":["to"],"type":"object"},"name":"bank_pay"}
          {"description":"Does now.","input_schema":{"properties":{},"type":"object"},"name":"now"}
    "#]],
    );
}

#[test]
fn gemini_request_carries_all_settings() {
    check(
        &everything(Api::Gemini),
        &expect![[r#"
        POST: "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
        contents:
          {"parts":[{"text":"look"},{"inlineData":{"data":"cG5n","mimeType":"image/png"}},{"inlineData":{"data":"cGRm","mimeType":"application/pdf"}},{"text":"[gone.png (image/png) is missing: its bytes were not found]"}],"role":"user"}
          {"parts":[{"text":"mine","thought":true,"thoughtSignature":"proof"},{"text":"","thoughtSignature":"x"},{"text":"I pay."},{"functionCall":{"args":{"to":"ann"},"id":"a","name":"bank_pay"},"thoughtSignature":"sig"},{"functionCall":{"args":{"unreadable_arguments":"{\"to"},"id":"b","name":"now"}}],"role":"model"}
          {"parts":[{"functionResponse":{"id":"a","name":"bank_pay","response":{"output":{"receipt":7}}}},{"functionResponse":{"id":"b","name":"now","response":{"error":"error tool.args_invalid: no JSON"}}}],"role":"user"}
          {"parts":[{"text":"and now?"}],"role":"user"}
        generationConfig: {"maxOutputTokens":4000,"temperature":0.25,"thinkingConfig":{"includeThoughts":true,"thinkingBudget":1024}}
        systemInstruction: {"parts":[{"text":"Be brief."}]}
        toolConfig: {"functionCallingConfig":{"allowedFunctionNames":["bank_pay"],"mode":"ANY"}}
        tools:
          {"functionDeclarations":[{"description":"Does bank.pay.","name":"bank_pay","parametersJsonSchema":{"properties":{"to":{"type":"string"}},"required":["to"],"type":"object"}},{"description":"Does now.","name":"now","parametersJsonSchema":{"properties":{},"type":"object"}}]}
    "#]],
    );
}

#[test]
fn instructions_and_links_keep_their_places() {
    let link =
        |url: &str, kind| Part::Link { link: Link { url: url.to_owned(), kind, name: None, detail: None } };
    let parts = vec![
        Part::text("look"),
        Part::Instruction { text: "Be kind.".to_owned() },
        link("https://example.org/cat.png", LinkKind::Image),
        link("https://example.org/terms.pdf", LinkKind::File),
    ];
    let turn = [Message::User { parts }];
    let mut all = serde_json::Map::new();
    for api in [Api::OpenAi, Api::OpenAiResponses, Api::Anthropic, Api::Gemini] {
        let call = call(api);
        let mut body = sent(api, ModelRequest { turn: &turn, ..ModelRequest::empty(&call) });
        let member = ["messages", "input", "contents"].into_iter().find(|name| body.get(name).is_some());
        let message = body[member.unwrap()][0].take();
        let parts = message.get("content").or_else(|| message.get("parts")).unwrap();
        all.insert(api.name().to_owned(), parts.clone());
    }
    check(
        &Value::Object(all),
        &expect![[r#"
        anthropic:
          {"text":"look","type":"text"}
          {"text":"<system>\nBe kind.\n</system>","type":"text"}
          {"source":{"type":"url","url":"https://example.org/cat.png"},"type":"image"}
          {"cache_control":{"type":"ephemeral"},"source":{"type":"url","url":"https://example.org/terms.pdf"},"title":null,"type":"document"}
        gemini:
          {"text":"look"}
          {"text":"<system>\nBe kind.\n</system>"}
          {"text":"[image is at https://example.org/cat.png, which this model cannot open]"}
          {"text":"[file is at https://example.org/terms.pdf, which this model cannot open]"}
        openai:
          {"text":"look","type":"text"}
          {"text":"<system>\nBe kind.\n</system>","type":"text"}
          {"image_url":{"url":"https://example.org/cat.png"},"type":"image_url"}
          {"text":"[file is at https://example.org/terms.pdf, which this model cannot open]","type":"text"}
        openai-responses:
          {"text":"look","type":"input_text"}
          {"text":"<system>\nBe kind.\n</system>","type":"input_text"}
          {"detail":"auto","image_url":"https://example.org/cat.png","type":"input_image"}
          {"file_url":"https://example.org/terms.pdf","type":"input_file"}
    "#]],
    );
}

/// Compares the requests to OpenAI and to a compatible server.
#[test]
fn compatible_server_request_uses_common_fields_only() {
    let (openai, other) = (everything(Api::OpenAi), everything(Api::OpenAiCompatible));
    let fields = |body: &Value| body.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let only = |one: &Value, other: &Value| {
        let known = fields(other);
        fields(one).into_iter().filter(|field| !known.contains(field)).collect::<Vec<_>>()
    };
    assert_eq!(only(&openai, &other), ["max_completion_tokens", "prompt_cache_key"]);
    assert_eq!(only(&other, &openai), ["max_tokens"]);
}

fn with_output(api: Api, model: &str, schema: Value) -> Value {
    let model = format!("{}/{model}", api.name()).parse().unwrap();
    let call = ModelCall { model, output: Some(schema), ..call(api) };
    let turn = [Message::user("how many?")];
    let mut body = sent(api, ModelRequest { turn: &turn, ..ModelRequest::empty(&call) });
    for field in [
        "model",
        "POST",
        "stream",
        "stream_options",
        "store",
        "max_tokens",
        "prompt_cache_key",
        "include",
        "reasoning",
    ] {
        body.as_object_mut().unwrap().remove(field);
    }
    body
}

#[test]
fn output_schema_uses_each_api_native_field() {
    let object = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let list = json!({ "type": "array", "items": { "type": "integer" } });
    let mut all = serde_json::Map::new();
    for (what, api, model, schema) in [
        ("chat", Api::OpenAi, "gpt-5", &object),
        ("chat, no object", Api::OpenAi, "gpt-5", &list),
        ("responses", Api::OpenAiResponses, "gpt-5", &object),
        ("messages", Api::Anthropic, "claude-sonnet-4-5", &object),
        ("messages, older", Api::Anthropic, "claude-3-5-haiku-latest", &object),
        ("gemini", Api::Gemini, "gemini-2.5-flash", &object),
    ] {
        all.insert(what.to_owned(), with_output(api, model, schema.clone()));
    }
    check(
        &Value::Object(all),
        &expect![[r#"
        chat: {"messages":[{"content":"how many?","role":"user"}],"response_format":{"json_schema":{"name":"answer","schema":{"additionalProperties":false,"properties":{"n":{"type":"integer"}},"required":["n"],"type":"object"},"strict":true},"type":"json_schema"}}
        chat, no object: {"messages":[{"content":"\n\nAnswer with one JSON value and nothing else: no words before or after it, no code fence. It must fit this JSON Schema:\n{\"items\":{\"type\":\"integer\"},\"type\":\"array\"}","role":"system"},{"content":"how many?","role":"user"}]}
        gemini: {"contents":[{"parts":[{"text":"how many?"}],"role":"user"}],"generationConfig":{"responseJsonSchema":{"properties":{"n":{"type":"integer"}},"required":["n"],"type":"object"},"responseMimeType":"application/json","thinkingConfig":{"includeThoughts":true}}}
        messages: {"messages":[{"content":[{"cache_control":{"type":"ephemeral"},"text":"how many?","type":"text"}],"role":"user"}],"output_config":{"format":{"schema":{"additionalProperties":false,"properties":{"n":{"type":"integer"}},"required":["n"],"type":"object"},"type":"json_schema"}}}
        messages, older: {"messages":[{"content":[{"cache_control":{"type":"ephemeral"},"text":"how many?","type":"text"}],"role":"user"}],"tool_choice":{"name":"final_answer","type":"tool"},"tools":[{"cache_control":{"type":"ephemeral"},"description":"Gives the answer. Call this last, once, with the whole of it.","input_schema":{"properties":{"n":{"type":"integer"}},"required":["n"],"type":"object"},"name":"final_answer"}]}
        responses: {"input":[{"content":[{"text":"how many?","type":"input_text"}],"role":"user"}],"text":{"format":{"name":"answer","schema":{"additionalProperties":false,"properties":{"n":{"type":"integer"}},"required":["n"],"type":"object"},"strict":true,"type":"json_schema"}}}
    "#]],
    );
}

#[test]
fn final_answer_call_becomes_text() {
    let api = Api::Anthropic;
    let bits = [Bit::Call("a", "final_answer", "{\"n\":3}")];
    let server = Playback::of([ResponseScript::stream(reply(api, &bits, StopReason::ToolUse))]);
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let call = ModelCall {
        model: "anthropic/claude-3-5-haiku-latest".parse().unwrap(),
        output: Some(schema),
        ..call(api)
    };
    let turn = [Message::user("how many?")];
    let said = hear(&remote(api, &server), ModelRequest { turn: &turn, ..ModelRequest::empty(&call) });
    let lines = show(&said);
    assert_eq!((lines[0].as_str(), lines.last().unwrap().as_str()), ("text \"{\\\"n\\\":3}\"", "end End"));
}

#[test]
fn partial_reply_continues_where_the_api_supports_it() {
    let api = Api::Anthropic;
    let server =
        Playback::of([ResponseScript::stream(reply(api, &[Bit::Text(" \nthree four")], StopReason::End))]);
    let options = Generation { variant: Some("high".to_owned()), ..Generation::default() };
    let (call, turn) = (ModelCall { options, ..call(api) }, [Message::user("count")]);
    let provider = remote(api, &server);
    assert!(provider.info(&call.model).unwrap().can_continue);
    let said = hear(
        &provider,
        ModelRequest { turn: &turn, partial_text: "one two \n", ..ModelRequest::empty(&call) },
    );
    // The API rejects trailing white space in the beginning, so the model repeats it and the decoder removes it.
    assert_eq!(show(&said)[0], "text \"three four\"");
    let body: Value = serde_json::from_slice(&server.requests()[0].body).unwrap();
    let begun = json!({ "role": "assistant", "content": [{ "type": "text", "text": "one two" }] });
    assert_eq!((&body["messages"][1], &body["thinking"]), (&begun, &Value::Null));
    let newer = "anthropic/claude-opus-4-6".parse().unwrap();
    assert!(!provider.info(&newer).unwrap().can_continue);
}

#[test]
fn longer_conversation_extends_the_same_request_bytes() {
    for api in Api::ALL {
        let server = Playback::of([ResponseScript::stream(reply(*api, &[Bit::Text("ok")], StopReason::End))]);
        let (provider, call, tools) = (remote(*api, &server), call(*api), tools());
        let said = Message::Assistant { parts: vec![Part::text("ok")], calls: vec![] };
        let long = [Message::user("one"), said, Message::user("two")];
        for turn in [&long[..1], &long[..1], &long[..]] {
            hear(
                &provider,
                ModelRequest { system: "Be brief.", turn, tools: &tools, ..ModelRequest::empty(&call) },
            );
        }
        let bodies: Vec<Vec<u8>> = server.requests().into_iter().map(|request| request.body).collect();
        assert_eq!(bodies[0], bodies[1], "{}", api.name());
        // Cache breakpoints move with the end of the prompt; the content stays the same.
        let items = |body: &[u8]| {
            let mut body: Value = serde_json::from_slice(body).unwrap();
            unmark(&mut body);
            let list =
                ["messages", "input", "contents"].iter().find_map(|field| body[field].as_array().cloned());
            (body["tools"].clone(), body["system"].clone(), list.unwrap())
        };
        let ((tools, system, short), (tools_too, system_too, long)) = (items(&bodies[0]), items(&bodies[2]));
        assert_eq!(
            (tools, system, &short[..]),
            (tools_too, system_too, &long[..short.len()]),
            "{}",
            api.name()
        );
    }
}

fn unmark(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("cache_control");
            members.values_mut().for_each(unmark);
        }
        Value::Array(items) => items.iter_mut().for_each(unmark),
        _ => {}
    }
}

#[test]
fn thinking_is_returned_to_the_model_unchanged() {
    let bits = [Bit::Thought("hm"), Bit::Call("a", "now", "{}")];
    for api in Api::ALL {
        let server = Playback::of([ResponseScript::stream(reply(*api, &bits, StopReason::ToolUse))]);
        let (provider, call, tools) = (remote(*api, &server), call(*api), tools());
        let input = Message::user("hi");
        let ask = |turn: &[Message], provider: &RemoteProvider| {
            hear(provider, ModelRequest { turn, tools: &tools, ..ModelRequest::empty(&call) })
        };
        let said = ask(std::slice::from_ref(&input), &provider);
        let turn = [input, assistant(said)];
        ask(&turn, &provider);
        let unknown_provider = RemoteProvider::new("stranger", *api, server.url(), None).unwrap();
        let theirs = ModelCall {
            model: format!("stranger/{}", crate::stage::model(*api)).parse().unwrap(),
            ..call.clone()
        };
        run(unknown_provider
            .stream(ModelRequest { turn: &turn, tools: &tools, ..ModelRequest::empty(&theirs) })
            .collect::<Vec<_>>());
        let has_thought = |body: &[u8]| {
            let body = String::from_utf8_lossy(body);
            body.contains("\"proof\"") || body.contains("\"reasoning_content\":\"hm\"")
        };
        let requests = server.requests();
        let sent: Vec<bool> = requests.iter().map(|request| has_thought(&request.body)).collect();
        assert_eq!(sent, [false, true, false], "{}", api.name());
    }
}

/// Converts a reply to its message in the transcript.
fn assistant(pieces: Vec<Result<ModelEvent, outlast_vocab::Error>>) -> Message {
    let (mut parts, mut calls) = (Vec::new(), Vec::new());
    for piece in pieces {
        match piece.unwrap() {
            ModelEvent::Text(text) => parts.push(Part::Text { text }),
            ModelEvent::Reasoning { text, signature } => match parts.last_mut() {
                Some(Part::Reasoning { text: before, signature: proof @ None }) => {
                    before.push_str(&text);
                    *proof = signature;
                }
                _ => parts.push(Part::Reasoning { text, signature }),
            },
            ModelEvent::Sealed { provider, data } => parts.push(Part::Sealed { provider, data }),
            ModelEvent::Call(call) => calls.push(call),
            ModelEvent::Usage(_)
            | ModelEvent::KeepAlive
            | ModelEvent::HiddenProgress
            | ModelEvent::PromptChanged(_)
            | ModelEvent::End(_) => {}
        }
    }
    Message::Assistant { parts, calls }
}
