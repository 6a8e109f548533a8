//! Renders the same reply in the format of each API.
use outlast_providers::Api;
use outlast_vocab::effect::StopReason;
use serde_json::{Value, json};

/// A part of a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bit {
    /// Text, streamed in words.
    Text(&'static str),
    /// Reasoning with the provider's signature.
    Thought(&'static str),
    /// A call: id, tool, arguments.
    Call(&'static str, &'static str, &'static str),
    /// A refusal, with this text if the API has a field for it.
    Declines(&'static str),
}

/// The token counts of every reply.
pub(crate) const INPUT: u64 = 100;
pub(crate) const CACHED: u64 = 30;
pub(crate) const OUTPUT: u64 = 7;

/// Returns the events of a reply, including the one that ends it.
pub(crate) fn reply(api: Api, bits: &[Bit], stop: StopReason) -> Vec<String> {
    match api {
        Api::OpenAi | Api::OpenAiCompatible => chat(bits, stop),
        Api::OpenAiResponses => responses(bits, stop),
        Api::Anthropic => messages(bits, stop),
        Api::Gemini => gemini(bits, stop),
    }
}

/// Returns the event with which a stream reports an error.
pub(crate) fn overloaded(api: Api) -> String {
    match api {
        Api::OpenAi | Api::OpenAiCompatible => {
            data(&json!({ "error": { "message": "Overloaded", "type": "server_error", "code": null } }))
        }
        Api::OpenAiResponses => {
            named(&json!({ "type": "error", "code": "server_error", "message": "Overloaded", "param": null }))
        }
        Api::Anthropic => named(
            &json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } }),
        ),
        Api::Gemini => {
            data(&json!({ "error": { "code": 503, "message": "Overloaded", "status": "UNAVAILABLE" } }))
        }
    }
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn named(value: &Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap())
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}

/// Splits arguments into two halves, as they are streamed.
fn halves(text: &str) -> [&str; 2] {
    let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap();
    let (one, other) = text.split_at(middle);
    [one, other]
}

fn chat(bits: &[Bit], stop: StopReason) -> Vec<String> {
    let chunk = |choices: Value, usage: Value| {
        data(
            &json!({ "id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": choices, "usage": usage }),
        )
    };
    let delta = |delta: Value, finish: Value| {
        chunk(json!([{ "index": 0, "delta": delta, "finish_reason": finish }]), Value::Null)
    };
    let mut events = vec![delta(json!({ "role": "assistant", "content": "" }), Value::Null)];
    let mut calls = 0;
    for bit in bits {
        match bit {
            Bit::Text(text) => {
                events.extend(words(text).map(|word| delta(json!({ "content": word }), Value::Null)));
            }
            Bit::Thought(text) => {
                events
                    .extend(words(text).map(|word| delta(json!({ "reasoning_content": word }), Value::Null)));
            }
            Bit::Call(id, name, arguments) => {
                let call = json!({ "index": calls, "id": id, "type": "function", "function": { "name": name, "arguments": "" } });
                events.push(delta(json!({ "tool_calls": [call] }), Value::Null));
                for half in halves(arguments) {
                    let call = json!({ "index": calls, "function": { "arguments": half } });
                    events.push(delta(json!({ "tool_calls": [call] }), Value::Null));
                }
                calls += 1;
            }
            Bit::Declines(text) => events.push(delta(json!({ "refusal": text }), Value::Null)),
        }
    }
    let finish = match stop {
        StopReason::End => "stop",
        StopReason::ToolUse => "tool_calls",
        StopReason::Length => "length",
        StopReason::Refusal => "content_filter",
    };
    events.push(delta(json!({}), json!(finish)));
    let usage = json!({
        "prompt_tokens": INPUT + CACHED, "completion_tokens": OUTPUT + 2,
        "prompt_tokens_details": { "cached_tokens": CACHED },
        "completion_tokens_details": { "reasoning_tokens": 2 },
    });
    events.push(chunk(json!([]), usage));
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn responses(bits: &[Bit], stop: StopReason) -> Vec<String> {
    let mut events = vec![named(
        &json!({ "type": "response.created", "response": { "id": "r1", "status": "in_progress" } }),
    )];
    for (index, bit) in bits.iter().enumerate() {
        let mut put = |kind: &str, rest: Value| {
            let mut event = json!({ "type": format!("response.{kind}"), "output_index": index });
            event.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            events.push(named(&event));
        };
        match bit {
            Bit::Text(text) => {
                put("output_item.added", json!({ "item": { "type": "message", "content": [] } }));
                for word in words(text) {
                    put("output_text.delta", json!({ "item_id": "m", "content_index": 0, "delta": word }));
                }
                let content = json!([{ "type": "output_text", "text": text }]);
                put("output_item.done", json!({ "item": { "type": "message", "content": content } }));
            }
            Bit::Thought(text) => {
                put(
                    "output_item.added",
                    json!({ "item": { "type": "reasoning", "id": "rs_1", "summary": [] } }),
                );
                for word in words(text) {
                    put("reasoning_summary_text.delta", json!({ "summary_index": 0, "delta": word }));
                }
                let summary = json!([{ "type": "summary_text", "text": text }]);
                let item = json!({ "type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "proof" });
                put("output_item.done", json!({ "item": item }));
            }
            Bit::Call(id, name, arguments) => {
                let item = |arguments: &str| json!({ "type": "function_call", "id": "fc_1", "call_id": id, "name": name, "arguments": arguments });
                put("output_item.added", json!({ "item": item("") }));
                for half in halves(arguments) {
                    put("function_call_arguments.delta", json!({ "item_id": "fc_1", "delta": half }));
                }
                if stop != StopReason::Length {
                    put("output_item.done", json!({ "item": item(arguments) }));
                }
            }
            Bit::Declines(text) => {
                put("output_item.added", json!({ "item": { "type": "message", "content": [] } }));
                put("refusal.delta", json!({ "delta": text }));
            }
        }
    }
    let usage = json!({
        "input_tokens": INPUT + CACHED, "output_tokens": OUTPUT + 2,
        "input_tokens_details": { "cached_tokens": CACHED },
        "output_tokens_details": { "reasoning_tokens": 2 },
    });
    events.push(named(&match stop {
        StopReason::End | StopReason::ToolUse => {
            json!({ "type": "response.completed", "response": { "status": "completed", "usage": usage } })
        }
        StopReason::Length => {
            let details = json!({ "reason": "max_output_tokens" });
            json!({ "type": "response.incomplete", "response": { "incomplete_details": details, "usage": usage } })
        }
        StopReason::Refusal => {
            let details = json!({ "reason": "content_filter" });
            json!({ "type": "response.incomplete", "response": { "incomplete_details": details, "usage": usage } })
        }
    }));
    events
}

fn messages(bits: &[Bit], stop: StopReason) -> Vec<String> {
    let usage = json!({ "input_tokens": INPUT, "cache_read_input_tokens": CACHED, "cache_creation_input_tokens": 0, "output_tokens": 1 });
    let mut events = vec![
        named(
            &json!({ "type": "message_start", "message": { "id": "m1", "role": "assistant", "content": [], "usage": usage } }),
        ),
        named(&json!({ "type": "ping" })),
    ];
    for (index, bit) in bits.iter().enumerate() {
        let (block, deltas) = match bit {
            Bit::Text(text) | Bit::Declines(text) => {
                let deltas = words(text).map(|word| json!({ "type": "text_delta", "text": word })).collect();
                (json!({ "type": "text", "text": "" }), deltas)
            }
            Bit::Thought(text) => {
                let mut deltas: Vec<Value> =
                    words(text).map(|word| json!({ "type": "thinking_delta", "thinking": word })).collect();
                deltas.push(json!({ "type": "signature_delta", "signature": "proof" }));
                (json!({ "type": "thinking", "thinking": "", "signature": "" }), deltas)
            }
            Bit::Call(id, name, arguments) => {
                let halves = halves(arguments);
                let delta = |half: &str| json!({ "type": "input_json_delta", "partial_json": half });
                (
                    json!({ "type": "tool_use", "id": id, "name": name, "input": {} }),
                    halves.map(delta).to_vec(),
                )
            }
        };
        events.push(named(&json!({ "type": "content_block_start", "index": index, "content_block": block })));
        events.extend(
            deltas.iter().map(|delta| {
                named(&json!({ "type": "content_block_delta", "index": index, "delta": delta }))
            }),
        );
        events.push(named(&json!({ "type": "content_block_stop", "index": index })));
    }
    let reason = match stop {
        StopReason::End => "end_turn",
        StopReason::ToolUse => "tool_use",
        StopReason::Length => "max_tokens",
        StopReason::Refusal => "refusal",
    };
    let delta = json!({ "stop_reason": reason, "stop_sequence": null });
    events.push(named(
        &json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": OUTPUT } }),
    ));
    events.push(named(&json!({ "type": "message_stop" })));
    events
}

fn gemini(bits: &[Bit], stop: StopReason) -> Vec<String> {
    let chunk = |parts: Value, finish: Value| {
        let usage = json!({
            "promptTokenCount": INPUT + CACHED, "cachedContentTokenCount": CACHED,
            "candidatesTokenCount": OUTPUT, "thoughtsTokenCount": 2, "totalTokenCount": INPUT + CACHED + OUTPUT + 2,
        });
        let mut candidate = json!({ "content": { "parts": parts, "role": "model" }, "index": 0 });
        if !finish.is_null() {
            candidate["finishReason"] = finish;
        }
        data(&json!({ "candidates": [candidate], "usageMetadata": usage, "modelVersion": "m" }))
    };
    let mut events = Vec::new();
    for bit in bits {
        match bit {
            Bit::Text(text) => {
                events.extend(words(text).map(|word| chunk(json!([{ "text": word }]), Value::Null)));
            }
            Bit::Thought(text) => {
                events.extend(
                    words(text).map(|word| chunk(json!([{ "text": word, "thought": true }]), Value::Null)),
                );
                events.push(chunk(
                    json!([{ "text": "", "thought": true, "thoughtSignature": "proof" }]),
                    Value::Null,
                ));
            }
            Bit::Call(id, name, arguments) => {
                let args: Value = serde_json::from_str(arguments).unwrap();
                let call = json!({ "id": id, "name": name, "args": args });
                events.push(chunk(json!([{ "functionCall": call }]), Value::Null));
            }
            // This API has no field for it.
            Bit::Declines(_) => {}
        }
    }
    let finish = match stop {
        StopReason::End | StopReason::ToolUse => "STOP",
        StopReason::Length => "MAX_TOKENS",
        StopReason::Refusal => "SAFETY",
    };
    events.push(chunk(json!([]), json!(finish)));
    events
}
