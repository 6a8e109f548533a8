//! Context windows that a provider learns from errors and from its server.
use crate::stage::{ask, call, remote, run};
use outlast_playback::{Playback, RecordedRequest, ResponseScript};
use outlast_ports::model::{ModelProvider, TOKEN_BYTES};
use outlast_providers::{Api, RemoteProvider};
use outlast_vocab::Kind;
use std::time::{Duration, Instant};

/// Returns the window of the API's model, in tokens.
fn window(provider: &RemoteProvider, api: Api) -> usize {
    provider.info(&call(api).model).unwrap().window_bytes / TOKEN_BYTES
}

/// Checks the window after one request that is rejected with this status and body.
#[track_caller]
fn check_error(api: Api, status: u16, body: &str, want: usize) {
    let server = Playback::of([ResponseScript::answer(status, &[], body)]);
    let provider = remote(api, &server);
    let error = ask(&provider, &call(api)).pop().unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::ModelContextExceeded, "{error}");
    assert_eq!(window(&provider, api), want, "{error}");
}

#[test]
fn rejected_request_teaches_the_window() {
    let local = Api::OpenAiCompatible;
    // llama.cpp, newer and older
    check_error(
        local,
        400,
        r#"{"error":{"code":400,"message":"request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}"#,
        4_096,
    );
    check_error(
        local,
        500,
        r#"{"error":{"code":500,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}"#,
        8_192,
    );
    // vLLM, older and newer
    check_error(
        local,
        400,
        r#"{"object":"error","message":"This model's maximum context length is 6048 tokens. However, you requested 6616 tokens (568 in the messages, 6048 in the completion). Please reduce the length of the messages or completion.","type":"BadRequestError","param":null,"code":400}"#,
        6_048,
    );
    check_error(
        local,
        400,
        r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, you requested 65535 output tokens and your prompt contains at least 62466 input tokens, for a total of at least 128001 tokens.","type":"BadRequestError","param":null,"code":400}}"#,
        128_000,
    );
    // LM Studio
    check_error(
        local,
        400,
        r#"{"error":"Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded with context length of only 7866 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input"}"#,
        7_866,
    );
    check_error(
        local,
        400,
        r#"{"error":"Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)"}"#,
        7_424,
    );
    // Ollama, whose errors without a number leave the window as it is
    check_error(
        local,
        400,
        r#"{"error":{"message":"input exceeds context length prompt=2782 limit=2048"}}"#,
        2_048,
    );
    check_error(local, 400, r#"{"error":{"message":"the input length exceeds the context length"}}"#, 32_000);
    check_error(
        Api::OpenAi,
        400,
        r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 9013 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
        8_192,
    );
    // A known window is never enlarged.
    check_error(
        Api::Anthropic,
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 1208310 tokens > 1000000 maximum"}}"#,
        200_000,
    );
    check_error(
        Api::Anthropic,
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 99000 + 8192 > 100000, decrease input length or `max_tokens` and try again"}}"#,
        100_000,
    );
    check_error(
        Api::Gemini,
        400,
        r#"[{"error":{"code":400,"message":"The input token count (40000) exceeds the maximum number of tokens allowed (32768).","status":"INVALID_ARGUMENT"}}]"#,
        32_768,
    );
}

#[test]
fn error_inside_stream_teaches_the_window() {
    let error = r#"data: {"error":{"code":400,"message":"request exceeds the available context size","type":"exceed_context_size_error","n_ctx":2048}}"#;
    let server = Playback::of([ResponseScript::stream([format!("{error}\n\n")])]);
    let provider = remote(Api::OpenAiCompatible, &server);
    let failure = ask(&provider, &call(Api::OpenAiCompatible)).pop().unwrap().unwrap_err();
    assert_eq!(
        (failure.kind(), window(&provider, Api::OpenAiCompatible)),
        (Kind::ModelContextExceeded, 2_048)
    );
}

/// Returns the provider of a server below `/v1`, and what it learns from these answers to `/props` and `/v1/models`.
#[track_caller]
fn check_server(properties: &'static str, models: &'static str, want: usize) {
    let answer = move |_: usize, request: &RecordedRequest| match request.path.as_str() {
        "/props" => ResponseScript::answer(200, &[], properties),
        "/v1/models" => ResponseScript::answer(200, &[], models),
        path => panic!("{path} was not expected"),
    };
    let server = Playback::with_selector(answer);
    let api = Api::OpenAiCompatible;
    let provider = RemoteProvider::new(api.name(), api, format!("{}/v1", server.url()), None).unwrap();
    let model = call(api).model;
    for _ in 0..2 {
        run(provider.learn_window(&model));
        assert_eq!(window(&provider, api), want);
    }
    // The server is asked once.
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn server_is_asked_once_for_its_window() {
    check_server(
        r#"{"default_generation_settings":{"n_ctx":4096},"total_slots":1}"#,
        r#"{"data":[{"id":"qwen"}]}"#,
        4_096,
    );
    check_server("{}", r#"{"object":"list","data":[{"id":"qwen","max_model_len":16384}]}"#, 16_384);
    check_server(
        r#"{"default_generation_settings":{"n_ctx":4096}}"#,
        r#"{"data":[{"id":"qwen","meta":{"n_ctx":2048,"n_ctx_train":131072}}]}"#,
        2_048,
    );
    check_server("<html>", "no list", 32_000);
}

#[test]
fn vendor_is_not_asked_for_its_window() {
    for api in Api::ALL.iter().filter(|api| **api != Api::OpenAiCompatible) {
        let server = Playback::of([ResponseScript::answer(404, &[], "")]);
        run(remote(*api, &server).learn_window(&call(*api).model));
        assert_eq!(server.requests().len(), 0, "{}", api.name());
    }
}

#[test]
fn silent_server_delays_a_call_by_seconds_only() {
    let server = Playback::of([ResponseScript::events().hold_open()]);
    let provider = remote(Api::OpenAiCompatible, &server);
    let began = Instant::now();
    run(provider.learn_window(&call(Api::OpenAiCompatible).model));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(window(&provider, Api::OpenAiCompatible), 32_000);
}
