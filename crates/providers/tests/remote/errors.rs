//! Errors of providers, over the wire.
use crate::stage::{ask, call, play, remote, show};
use expect_test::{Expect, expect};
use outlast_playback::{Playback, ResponseScript};
use outlast_providers::{Api, RemoteProvider};
use outlast_vocab::Kind;
use std::net::TcpListener;

/// Checks the error of each API for the same response.
#[track_caller]
fn check(answer: &ResponseScript, want: &Expect) {
    let said = Api::ALL.iter().map(|api| show(&play(*api, answer.clone())).join("\n") + "\n");
    want.assert_eq(&said.collect::<String>());
}

#[test]
fn rejected_key_error_names_its_provider() {
    check(
        &ResponseScript::answer(401, &[], "{\"error\":{\"message\":\"no\"}}"),
        &expect![[r"
            model.unauthorized: `openai` does not accept its key (401): no
            model.unauthorized: `openai-responses` does not accept its key (401): no
            model.unauthorized: `anthropic` does not accept its key (401): no
            model.unauthorized: `gemini` does not accept its key (401): no
            model.unauthorized: `openai-compatible` does not accept its key (401): no
        "]],
    );
}

#[test]
fn busy_provider_is_retried_after_its_delay() {
    for (header, value) in [
        ("retry-after", "7"),
        ("retry-after-ms", "7000"),
        ("x-ratelimit-reset-requests", "7s"),
        ("anthropic-ratelimit-tokens-reset", "1994-11-06T08:49:44Z"),
        ("retry-after", "Sun, 06 Nov 1994 08:49:44 GMT"),
    ] {
        let headers = [("date", "Sun, 06 Nov 1994 08:49:37 GMT"), (header, value)];
        for status in [429, 500, 503, 529] {
            let said = play(
                Api::OpenAi,
                ResponseScript::answer(status, &headers, "{\"error\":{\"message\":\"busy\"}}"),
            );
            let want = format!("model.unavailable: `openai` cannot answer now ({status}): busy [after 7s]");
            assert_eq!(show(&said), [want], "{header}");
        }
    }
}

#[test]
fn non_event_stream_response_is_refused() {
    let page =
        ResponseScript::answer(200, &[("content-type", "text/html; charset=utf-8")], "<html>log in</html>");
    let moved = ResponseScript::answer(302, &[("location", "http://169.254.169.254/")], "");
    let refused = |script| play(Api::Anthropic, script).pop().unwrap().unwrap_err();
    let error = refused(page);
    assert_eq!(error.kind(), Kind::ModelRejected);
    assert!(error.detail().ends_with("got text/html; charset=utf-8: <html>log in</html>"), "{error}");
    assert_eq!(
        refused(moved).to_string(),
        "model.rejected: `anthropic` refuses the request (302): it does not say why"
    );
}

#[test]
fn unreachable_server_is_retried() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for api in Api::ALL {
        let remote = RemoteProvider::new(api.name(), *api, format!("http://{port}"), None).unwrap();
        let error = ask(&remote, &call(*api)).pop().unwrap().unwrap_err();
        assert_eq!(error.kind(), Kind::ModelUnavailable, "{error}");
        assert!(error.detail().starts_with(&format!("http://{port} cannot be reached: ")), "{error}");
    }
}

#[test]
fn connection_lost_before_response_is_retried() {
    let server = Playback::of([ResponseScript::default()]);
    let error = ask(&remote(Api::Gemini, &server), &call(Api::Gemini)).pop().unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::ModelUnavailable, "{error}");
}

#[test]
fn invalid_address_is_refused_at_once() {
    let refused = |base: &str| RemoteProvider::new("it", Api::OpenAi, base, None).unwrap_err().to_string();
    expect![[r"
        config.invalid: expected an address like `https://api.example.com/v1`, got `nonsense`: relative URL without a base
        config.invalid: expected an http or https address without a query, got `ftp://example.com/`
        config.invalid: expected an address without a user and password; keys go into `api_key`
        config.invalid: expected a provider's name of 1 to 32 letters, digits, `-` and `_` that is not `rehearsal`, got `a/b`
    "]]
    .assert_eq(&format!(
        "{}\n{}\n{}\n{}\n",
        refused("nonsense"),
        refused("ftp://example.com"),
        refused("https://me:secret@example.com"),
        RemoteProvider::new("a/b", Api::OpenAi, "https://example.com", None).unwrap_err()
    ));
}
