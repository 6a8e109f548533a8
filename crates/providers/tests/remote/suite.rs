//! A test suite that every API passes.
use crate::dialect::{Bit, CACHED, INPUT, OUTPUT, overloaded, reply};
use crate::stage::{self, ask, call, play, remote, show};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use outlast_conformance::{ModelFixture, RuleFuture, ToolRequest};
use outlast_playback::{Playback, RecordedRequest, ResponseScript};
use outlast_ports::model::ModelProvider;
use outlast_providers::{Api, RemoteProvider, decode};
use outlast_vocab::effect::{StopReason, Usage};
use outlast_vocab::message::{Message, ModelName};
use outlast_vocab::{Error, Kind};
use proptest::prelude::*;
use serde_json::json;
use std::time::Duration;

const RICH: &[Bit] = &[
    Bit::Thought("let me see"),
    Bit::Text("I pay — ünd look. "),
    Bit::Call("call_a", "bank_pay", "{\"to\":\"änn\"}"),
    Bit::Call("call_b", "now", "{}"),
];

fn usage(api: Api) -> String {
    let reasoning = if api == Api::Anthropic { 0 } else { 2 };
    stage::usage(&Usage { input: INPUT, cache_read: CACHED, cache_write: 0, output: OUTPUT, reasoning })
}

/// Returns the expected events of reasoning with its signature.
fn thought(api: Api, text: &str) -> Vec<String> {
    let name = api.name();
    let proof = match api {
        Api::OpenAi | Api::OpenAiCompatible => format!("proof \"\" {name}:"),
        Api::Anthropic | Api::Gemini => format!("proof \"\" {name}:proof"),
        Api::OpenAiResponses => {
            let summary = json!([{ "type": "summary_text", "text": text }]);
            let item = json!({ "type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "proof" });
            format!("sealed by {name} {}", json!({ "after_calls": 0, "item": item }))
        }
    };
    vec![format!("thought {text:?}"), proof]
}

fn rich(api: Api) -> Vec<String> {
    let mut want = thought(api, "let me see");
    want.extend([
        "text \"I pay — ünd look. \"".to_owned(),
        "call call_a bank.pay {\"to\":\"änn\"}".to_owned(),
        "call call_b now {}".to_owned(),
        usage(api),
        "end ToolUse".to_owned(),
    ]);
    want
}

/// Decodes a body in these chunks, without a network.
fn decoded(api: Api, chunks: Vec<Bytes>) -> Vec<String> {
    let tools = stage::tools();
    let body = Box::pin(stream::iter(chunks.into_iter().map(Ok)));
    show(&decode(api, &tools, body).collect::<Vec<_>>().now_or_never().unwrap())
}

fn plain(api: Api) {
    let events = reply(api, &[Bit::Text("Hello, big wörld!")], StopReason::End);
    let want = ["text \"Hello, big wörld!\"".to_owned(), usage(api), "end End".to_owned()];
    assert_eq!(show(&play(api, ResponseScript::stream(events))), want);
}

fn thoughts_and_calls(api: Api) {
    assert_eq!(show(&play(api, ResponseScript::stream(reply(api, RICH, StopReason::ToolUse)))), rich(api));
}

fn refusal(api: Api) {
    let events = reply(api, &[Bit::Declines("I cannot.")], StopReason::Refusal);
    let pieces = show(&play(api, ResponseScript::stream(events)));
    let want = if api == Api::Gemini { vec![] } else { vec!["text \"I cannot.\"".to_owned()] };
    assert_eq!(pieces, [want, vec![usage(api), "end Refusal".to_owned()]].concat());
}

fn length(api: Api) {
    let events = reply(api, &[Bit::Text("and so")], StopReason::Length);
    let want = ["text \"and so\"".to_owned(), usage(api), "end Length".to_owned()];
    assert_eq!(show(&play(api, ResponseScript::stream(events))), want);
}

/// Incomplete arguments are passed on unchanged and never become an empty object.
fn cut_arguments(api: Api) {
    // This API sends complete arguments. An invalid call ends its reply.
    if api == Api::Gemini {
        let chunk =
            json!({ "candidates": [{ "finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "pay(" }] });
        let pieces = play(api, ResponseScript::stream([format!("data: {chunk}\n\n")]));
        assert_eq!(show(&pieces), ["model.cut: `gemini` stopped its reply (MALFORMED_FUNCTION_CALL): pay("]);
        return;
    }
    let bits = [Bit::Call("a", "bank_pay", "{\"to\":\"an"), Bit::Call("b", "now", "")];
    let want = [
        "call a bank.pay broken \"{\\\"to\\\":\\\"an\"".to_owned(),
        "call b now broken \"\"".to_owned(),
        usage(api),
        "end Length".to_owned(),
    ];
    assert_eq!(show(&play(api, ResponseScript::stream(reply(api, &bits, StopReason::Length)))), want);
}

fn duplicate_ids(api: Api) {
    let bits =
        [Bit::Call("a", "now", "{}"), Bit::Call("a", "now", "{}"), Bit::Call("", "no such tool!", "{}")];
    let want = [
        "call a now {}".to_owned(),
        "call outlast_call_2 now {}".to_owned(),
        "call outlast_call_3 no_such_tool_ {}".to_owned(),
        usage(api),
        "end ToolUse".to_owned(),
    ];
    assert_eq!(show(&play(api, ResponseScript::stream(reply(api, &bits, StopReason::ToolUse)))), want);
}

fn every_split(api: Api) {
    let body = reply(api, RICH, StopReason::ToolUse).concat();
    for at in 0..=body.len() {
        let (one, other) = body.as_bytes().split_at(at);
        let chunks = [one, other].map(Bytes::copy_from_slice).to_vec();
        assert_eq!(decoded(api, chunks), rich(api), "split at {at}");
    }
    // And over the wire, with one byte per chunk.
    let bytes = body.as_bytes().chunks(1);
    assert_eq!(show(&play(api, ResponseScript::stream(bytes))), rich(api));
}

/// Line endings and comments as servers and proxies produce them.
fn every_line_end(api: Api) {
    let events = reply(api, RICH, StopReason::ToolUse);
    let crlf = events.concat().replace('\n', "\r\n");
    let cr = events.concat().replace('\n', "\r");
    let commented = events.iter().map(|event| [": keep-alive\n\n", event].concat()).collect::<String>();
    let marked = format!("\u{feff}{}", events.concat());
    for body in [crlf, cr, commented, marked] {
        assert_eq!(show(&play(api, ResponseScript::stream([body]))), rich(api));
    }
}

/// A reply without one of its events is a cut, whether the connection broke or the body ended.
fn every_cut(api: Api) {
    let events = reply(api, RICH, StopReason::ToolUse);
    for count in 0..events.len() {
        let begun = events[..count].iter().fold(ResponseScript::events(), ResponseScript::chunk);
        let half = &events[count][..events[count].len() / 2];
        let cuts = [begun.clone(), begun.clone().chunk(half), begun.clone().chunk(half).end(), begun.end()];
        for (how, script) in cuts.into_iter().enumerate() {
            let ended_well = how > 1;
            let last = play(api, script).pop().unwrap();
            // Chat Completions report the end of a reply before its usage.
            let is_whole =
                matches!(api, Api::OpenAi | Api::OpenAiCompatible) && ended_well && count + 2 >= events.len();
            match last {
                Ok(piece) => assert!(is_whole, "{count} events, cut {how}: {piece:?}"),
                Err(error) => {
                    assert_eq!(
                        (error.kind(), is_whole),
                        (Kind::ModelCut, false),
                        "{count} events, cut {how}"
                    );
                }
            }
        }
    }
}

fn garbage(api: Api) {
    let events = reply(api, RICH, StopReason::ToolUse);
    for garbage in ["data: {oops\n\n", "data: <html>\n\n", "data: [1,2]\n\n"] {
        let script = ResponseScript::stream([events[0].as_str(), garbage, events[1].as_str()]);
        let error = play(api, script).pop().unwrap().unwrap_err();
        assert_eq!(error.kind(), Kind::ModelRejected, "{garbage}");
    }
    let script = ResponseScript::events().chunk(&events[0]).chunk(b"data: \xff\xfe\n\n").end();
    assert_eq!(play(api, script).pop().unwrap().unwrap_err().kind(), Kind::ModelRejected);
}

fn huge_line(api: Api) {
    let script = ResponseScript::events().chunk("data: ").chunk(vec![b'x'; 9 << 20]).end();
    let want = "limit.exceeded: stream_line_bytes is limited to 8388608, but this needs 8388609";
    assert_eq!(show(&play(api, script)), [want]);
}

fn slow_drip(api: Api) {
    let events = reply(api, &[Bit::Text("drip drop")], StopReason::End).concat();
    let dripped = events
        .as_bytes()
        .chunks(40)
        .fold(ResponseScript::events(), |script, chunk| script.chunk(chunk).pause(Duration::from_millis(1)));
    let pieces = show(&play(api, dripped.end()));
    assert_eq!(pieces, ["text \"drip drop\"".to_owned(), usage(api), "end End".to_owned()]);
}

fn error_midway(api: Api) {
    let events = reply(api, &[Bit::Text("I ")], StopReason::End);
    let count = events.iter().position(|event| event.contains("I ")).unwrap() + 1;
    // Its own format, and that of compatible servers.
    let plain = "data: {\"error\":{\"code\":500,\"message\":\"Overloaded\",\"type\":\"server_error\"}}\n\n"
        .to_owned();
    for error in [overloaded(api), plain] {
        let script = ResponseScript::stream(events[..count].iter().chain([&error]));
        let want = [
            "text \"I \"".to_owned(),
            format!("model.unavailable: `{}` cannot answer now: Overloaded", api.name()),
        ];
        assert_eq!(show(&play(api, script)), want);
    }
}

/// A provider whose responses are scripted.
struct Scripted {
    api: Api,
    remote: RemoteProvider,
    _server: Playback,
}

impl Scripted {
    fn new(api: Api) -> Self {
        let answer = move |_: usize, request: &RecordedRequest| {
            let has_tools = String::from_utf8_lossy(&request.body).contains("\"tools\"");
            let (bit, stop) = if has_tools {
                (Bit::Call("a", "now", "{}"), StopReason::ToolUse)
            } else {
                (Bit::Text("Hello."), StopReason::End)
            };
            ResponseScript::stream(reply(api, &[bit], stop))
        };
        let server = Playback::with_selector(answer);
        Self { api, remote: remote(api, &server), _server: server }
    }
}

impl ModelFixture for Scripted {
    fn provider(&self) -> &dyn ModelProvider {
        &self.remote
    }

    fn model(&self) -> ModelName {
        call(self.api).model
    }

    fn question(&self) -> Vec<Message> {
        vec![Message::user("hello")]
    }

    fn tool_request(&self) -> ToolRequest {
        ToolRequest { messages: vec![Message::user("what time is it?")], tools: stage::tools() }
    }

    fn run(&self, rule: RuleFuture<'_>) {
        stage::run(rule);
    }
}

/// Generates a body and its split points: events of a reply, some of them changed.
fn any_body(api: Api) -> impl Strategy<Value = (Vec<u8>, Vec<usize>)> {
    let events = reply(api, RICH, StopReason::ToolUse);
    let picks = prop::collection::vec(0..events.len(), 0..events.len());
    let change = prop::option::of((0usize..4_000, any::<u8>()));
    let cuts = prop::collection::vec(0usize..4_000, 0..8);
    (prop::bool::ANY, picks, change, cuts).prop_map(move |(whole, picks, change, cuts)| {
        let mut body =
            if whole { events.concat() } else { picks.iter().map(|pick| events[*pick].as_str()).collect() }
                .into_bytes();
        if let Some((at, byte)) = change
            && at < body.len()
        {
            body[at] = byte;
        }
        (body, cuts)
    })
}

fn any_chunks(body: Vec<u8>, mut cuts: Vec<usize>, api: Api) -> Result<(), TestCaseError> {
    cuts.retain(|cut| *cut < body.len());
    cuts.extend([0, body.len()]);
    cuts.sort_unstable();
    let chunks = cuts.windows(2).map(|pair| Bytes::copy_from_slice(&body[pair[0]..pair[1]])).collect();
    prop_assert_eq!(decoded(api, chunks), decoded(api, vec![Bytes::from(body)]));
    Ok(())
}

fn echoed_key(api: Api) {
    let echo = format!("{{\"error\":{{\"message\":\"bad key {}\",\"type\":\"x\"}}}}", stage::KEY);
    let server = Playback::of([
        ResponseScript::answer(401, &[], &echo),
        ResponseScript::answer(200, &[("content-type", "text/html")], &echo),
    ]);
    let remote = remote(api, &server);
    let shown = |said: &[Result<_, Error>]| format!("{:?} {remote:?}", said.last().unwrap().as_ref().err());
    for _ in 0..2 {
        let shown = shown(&ask(&remote, &call(api)));
        assert!(!shown.contains(stage::KEY), "{shown}");
        assert!(shown.contains("[key]"), "{shown}");
    }
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.headers.iter().any(|(_, value)| value.contains(stage::KEY)))
    );
}

macro_rules! suite {
    ($($module:ident: $api:expr;)*) => {$(
        mod $module {
            use super::*;

            outlast_conformance::model_conformance!(|| Scripted::new($api));

            #[test]
            fn plain_reply_yields_text_usage_and_end() { plain($api); }
            #[test]
            fn thinking_keeps_signatures_and_parallel_calls_are_complete() { thoughts_and_calls($api); }
            #[test]
            fn declined_reply_is_a_refusal() { refusal($api); }
            #[test]
            fn reply_at_token_limit_ends_with_length() { length($api); }
            #[test]
            fn truncated_arguments_are_never_repaired() { cut_arguments($api); }
            #[test]
            fn duplicate_ids_and_bad_tool_names_are_handled() { duplicate_ids($api); }
            #[test]
            fn reply_is_the_same_however_it_is_split() { every_split($api); }
            #[test]
            fn line_ends_comments_and_bom_are_ignored() { every_line_end($api); }
            #[test]
            fn truncated_reply_is_never_accepted_as_complete() { every_cut($api); }
            #[test]
            fn garbage_is_refused() { garbage($api); }
            #[test]
            fn endless_line_is_refused() { huge_line($api); }
            #[test]
            fn slow_reply_is_read_to_the_end() { slow_drip($api); }
            #[test]
            fn mid_stream_error_has_its_class() { error_midway($api); }
            #[test]
            fn echoed_key_is_redacted() { echoed_key($api); }

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(64))]
                #[test]
                fn decoding_does_not_depend_on_chunk_boundaries((body, cuts) in any_body($api)) { any_chunks(body, cuts, $api)?; }
            }
        }
    )*};
}

suite! {
    openai: Api::OpenAi;
    openai_responses: Api::OpenAiResponses;
    anthropic: Api::Anthropic;
    gemini: Api::Gemini;
    openai_compatible: Api::OpenAiCompatible;
}
