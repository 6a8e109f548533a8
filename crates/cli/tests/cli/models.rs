//! Tests of turns with models over HTTP: the binary against a server that plays byte scripts of each API.
use crate::place::Place;
use expect_test::{Expect, expect};
use outlast_playback::{Playback, RecordedRequest, ResponseScript};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A key that must never be written to disk.
const KEY: &str = "sk-canary-91b7";

/// The providers that are configured by environment variables, with the prefix of the variables.
const PROVIDERS: [(&str, &str); 5] = [
    ("openai", "OPENAI"),
    ("openai-responses", "OPENAI"),
    ("anthropic", "ANTHROPIC"),
    ("gemini", "GEMINI"),
    ("local", "LOCAL"),
];

/// A reply, independent of the provider.
enum ScriptedReply {
    Text(&'static str),
    Adds,
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// Returns the events of a reply in the format of a provider.
fn reply(provider: &str, says: &ScriptedReply) -> Vec<String> {
    let arguments = r#"{"expression":"2+3"}"#;
    match provider {
        "openai" | "local" => {
            let chunk = |delta: Value, finish: Option<&str>| {
                data(&json!({ "choices": [{ "delta": delta, "finish_reason": finish }] }))
            };
            let mut events = match says {
                ScriptedReply::Text(text) => {
                    vec![chunk(json!({ "content": text }), None), chunk(json!({}), Some("stop"))]
                }
                ScriptedReply::Adds => {
                    let function = json!({ "name": "calculator", "arguments": arguments });
                    let call = json!({ "index": 0, "id": "a", "type": "function", "function": function });
                    vec![chunk(json!({ "tool_calls": [call] }), None), chunk(json!({}), Some("tool_calls"))]
                }
            };
            events.push("data: [DONE]\n\n".to_owned());
            events
        }
        "openai-responses" => {
            let first = match says {
                ScriptedReply::Text(text) => {
                    json!({ "type": "response.output_text.delta", "output_index": 0, "delta": text })
                }
                ScriptedReply::Adds => {
                    let item = json!({ "type": "function_call", "call_id": "a", "name": "calculator", "arguments": arguments });
                    json!({ "type": "response.output_item.done", "output_index": 0, "item": item })
                }
            };
            vec![data(&first), data(&json!({ "type": "response.completed", "response": {} }))]
        }
        "anthropic" => {
            let (block, delta, stop) = match says {
                ScriptedReply::Text(text) => (
                    json!({ "type": "text", "text": "" }),
                    json!({ "type": "text_delta", "text": text }),
                    "end_turn",
                ),
                ScriptedReply::Adds => {
                    let block = json!({ "type": "tool_use", "id": "a", "name": "calculator", "input": {} });
                    (block, json!({ "type": "input_json_delta", "partial_json": arguments }), "tool_use")
                }
            };
            vec![
                data(&json!({ "type": "message_start", "message": {} })),
                data(&json!({ "type": "content_block_start", "index": 0, "content_block": block })),
                data(&json!({ "type": "content_block_delta", "index": 0, "delta": delta })),
                data(&json!({ "type": "content_block_stop", "index": 0 })),
                data(&json!({ "type": "message_delta", "delta": { "stop_reason": stop } })),
                data(&json!({ "type": "message_stop" })),
            ]
        }
        "gemini" => {
            let part = match says {
                ScriptedReply::Text(text) => json!({ "text": text }),
                ScriptedReply::Adds => {
                    json!({ "functionCall": { "name": "calculator", "args": { "expression": "2+3" } } })
                }
            };
            let candidate = |parts: Value, finish: Option<&str>| {
                data(&json!({ "candidates": [{ "content": { "parts": parts }, "finishReason": finish }] }))
            };
            vec![candidate(json!([part]), None), candidate(json!([]), Some("STOP"))]
        }
        other => unreachable!("{other}"),
    }
}

/// Creates a place in which all providers use this server.
fn place(server: &Playback) -> Place {
    let place = Place::new();
    place.hide(&server.url(), "SERVER");
    for name in ["OPENAI", "ANTHROPIC", "GEMINI", "LOCAL"] {
        place.set(&format!("{name}_API_KEY"), KEY);
        place.set(&format!("{name}_BASE_URL"), &server.url());
    }
    place
}

/// Asserts that no file below the place contains the key.
fn assert_no_key(place: &Place) {
    let mut folders = vec![place.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
            assert!(!found, "{} has the key", path.display());
        }
    }
}

#[test]
fn turn_with_tool_runs_on_every_provider() {
    for (provider, _) in PROVIDERS {
        let answer = move |number: usize, _: &RecordedRequest| {
            let says = if number == 0 { ScriptedReply::Adds } else { ScriptedReply::Text("It is 5.") };
            ResponseScript::stream(reply(provider, &says))
        };
        let server = Playback::with_selector(answer).posts_only();
        let place = place(&server);
        let output =
            place.output(&["run", "--session", "ann", "--model", &format!("{provider}/m"), "add 2 and 3"]);
        assert_eq!(
            place.show(&output),
            "It is 5.\n| · calculator {\"expression\":\"2+3\"}\n| · calculator → 5\n",
            "{provider}"
        );
        let asked = server.requests();
        assert_eq!(asked.len(), 2, "{provider}");
        assert!(asked.iter().all(|request| request.headers.iter().any(|(_, value)| value.contains(KEY))));
        assert_no_key(&place);
    }
}

#[test]
fn wrong_key_makes_turn_stuck_and_names_variable() {
    for (provider, variable) in PROVIDERS {
        let echo = format!("{{\"error\":{{\"message\":\"bad key {KEY}\"}}}}");
        let server = Playback::of([ResponseScript::answer(401, &[], &echo)]).posts_only();
        let place = place(&server);
        let output = place.output(&["run", "--session", "ann", "--model", &format!("{provider}/m"), "hi"]);
        let want = format!(
            "| · trn_1 is stuck; once the cause is fixed: outlast retry trn_1\n| error[model.unauthorized]: `{provider}` does not accept the key in {variable}_API_KEY (401): bad key [key] \
             (in trn_1)\n|   read on with: outlast explain model.unauthorized\nexit 1\n"
        );
        assert_eq!(place.show(&output), want);
        assert_eq!(server.requests().len(), 1, "{provider} is not asked again");
        assert_no_key(&place);
    }
}

#[test]
fn cost_marks_estimates_for_unreported_usage() {
    let server = Playback::of([ResponseScript::stream(reply("openai", &ScriptedReply::Text("Yes.")))]);
    let place = place(&server);
    place.output(&["run", "--session", "ann", "--model", "openai/gpt-4o", "hi"]);
    let spent: Value = serde_json::from_slice(&place.output(&["cost", "--json"]).stdout).unwrap();
    assert_eq!((&spent["estimated"], &spent["estimated_usage"]), (&spent["cost"], &spent["usage"]));
    assert_eq!((&spent["usage"]["output"], &spent["unpriced"]), (&json!(4), &json!(0)));
    let (input, cost) = (spent["usage"]["input"].to_string(), spent["cost"].as_str().unwrap());
    let (input, marked_cost) = (format!("~{input}"), format!("~${cost}"));
    let table = place.show(&place.output(&["cost"]));
    assert_eq!(
        table,
        format!(
            "NAME           REPLIES  INPUT       FROM CACHE  OUTPUT      COST\n\
             openai/gpt-4o  1        {input:<10}  0           ~4          {marked_cost}\n\
             | · ${cost} in all, of which ${cost} is an estimate\n\
             | · ~ includes an estimate, because a provider did not report the usage of a call\n"
        )
    );
}

#[test]
fn doctor_counts_stuck_turns() {
    let server = Playback::of([ResponseScript::answer(401, &[], "{\"error\":{\"message\":\"bad key\"}}")])
        .posts_only();
    let place = place(&server);
    let text = || {
        let doctor = place.show(&place.output(&["doctor"]));
        let lines = doctor.lines().filter(|line| line.contains("stuck"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    place.output(&["run", "--session", "bob", "hi"]);
    assert_eq!(text(), ["stuck       0 turns"]);
    place.output(&["run", "--session", "ann", "--model", "openai/gpt-4o", "hi"]);
    let open = "open  1 turn is stuck: outlast sessions list --last-end stuck lists them, outlast why SESSION shows the cause";
    assert_eq!(text(), ["stuck       1 turn", open]);
    let listed = place.show(&place.output(&["sessions", "list", "--last-end", "stuck"]));
    assert!(listed.contains("ann") && !listed.contains("bob"), "{listed}");
}

#[test]
fn retry_refuses_another_model() {
    let place = Place::new();
    assert!(place.output(&["run", "hi"]).status.success());
    let output = place.output(&["retry", "trn_019a8b6e5c7d7f3a9b1c2d3e4f506172", "--model", "openai/gpt-5"]);
    assert_eq!(
        place.show(&output),
        "| error[input.invalid]: a retry asks the model of the turn, so `--model openai/gpt-5` has no effect; remove it\n|   read on with: outlast explain input.invalid\nexit 1\n"
    );
}

#[test]
fn busy_provider_is_retried_after_its_delay() {
    for (provider, _) in PROVIDERS {
        let busy = ResponseScript::answer(
            429,
            &[("retry-after-ms", "20")],
            "{\"error\":{\"message\":\"slow down\"}}",
        );
        let server =
            Playback::of([busy, ResponseScript::stream(reply(provider, &ScriptedReply::Text("Here I am.")))])
                .posts_only();
        let place = place(&server);
        let output = place.output(&["run", "--session", "ann", "--model", &format!("{provider}/m"), "hi"]);
        assert_eq!(place.show(&output).lines().next(), Some("Here I am."), "{provider}");
        assert_eq!(server.requests().len(), 2, "{provider}");
    }
}

#[test]
fn killed_process_leaves_the_whole_answer_once() {
    const WHOLE: &str = "one two three four";
    for (provider, _) in PROVIDERS {
        // The first answer stops after its first word until the client disconnects.
        let answer = move |number: usize, _: &RecordedRequest| {
            if number > 0 {
                return ResponseScript::stream(reply(provider, &ScriptedReply::Text(WHOLE)));
            }
            let events = reply(provider, &ScriptedReply::Text("one "));
            let sent_events = events.iter().position(|event| event.contains("one ")).unwrap() + 1;
            events[..sent_events].iter().fold(ResponseScript::events(), ResponseScript::chunk).hold_open()
        };
        let server = Playback::with_selector(answer).posts_only();
        let place = place(&server);
        let model = format!("{provider}/m");
        let mut child = place
            .command(&["run", "--session", "ann", "--key", "k", "--model", &model, "count", "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("one ")), "{provider} began to speak");
        child.kill().unwrap();
        child.wait().unwrap();
        drop(lines);
        let output = place.output(&["run", "--session", "ann", "--key", "k", "--model", &model, "count"]);
        let shown = place.show(&output);
        assert_eq!(shown.matches("three").count(), 1, "{provider}: {shown}");
        let record = place.show(&place.output(&["sessions", "show", "ann"]));
        assert_eq!(record.matches(WHOLE).count(), 1, "{provider}: {record}");
        assert_eq!(server.requests().len(), 2, "{provider}");
    }
}

#[test]
fn unusable_model_is_rejected_before_any_write() {
    let place = Place::with_script("say hi");
    place.check(
        "run --model openai/gpt-5 hi
         run --model anthropic/claude-sonnet-4-5 hi
         run --model gemini/gemini-2.5-flash hi
         run --model local/qwen hi
         run --model nobody/knows hi
         run --model openai/gpt-5 --script script.txt hi",
        &expect![[r#"
            $ run --model openai/gpt-5 hi
            | error[model.unauthorized]: `openai` is not configured: set OPENAI_API_KEY
            |   read on with: outlast explain model.unauthorized
            exit 1
            $ run --model anthropic/claude-sonnet-4-5 hi
            | error[model.unauthorized]: `anthropic` is not configured: set ANTHROPIC_API_KEY
            |   read on with: outlast explain model.unauthorized
            exit 1
            $ run --model gemini/gemini-2.5-flash hi
            | error[model.unauthorized]: `gemini` is not configured: set GEMINI_API_KEY
            |   read on with: outlast explain model.unauthorized
            exit 1
            $ run --model local/qwen hi
            | error[model.unauthorized]: `local` is not configured: set LOCAL_BASE_URL to the address of an OpenAI-compatible server, like `http://127.0.0.1:8080/v1`
            |   read on with: outlast explain model.unauthorized
            exit 1
            $ run --model nobody/knows hi
            | error[model.unknown]: no provider serves the model `nobody/knows`
            |   read on with: outlast explain model.unknown
            exit 1
            $ run --model openai/gpt-5 --script script.txt hi
            | error[input.invalid]: expected a model like `rehearsal/NAME` to play script.txt, got `openai/gpt-5`; remove `--script` or `--model`
            |   read on with: outlast explain input.invalid
            exit 1
        "#]],
    );
    assert!(!place.data().exists());
}

#[test]
fn providers_are_read_from_the_config_file() {
    let server =
        Playback::of([ResponseScript::stream(reply("local", &ScriptedReply::Text("Hello.")))]).posts_only();
    let place = Place::new();
    place.hide(&server.url(), "SERVER");
    let config = format!(
        "[providers.home]\nkind = \"openai-compatible\"\nbase_url = \"{}/v1\"\n\n[providers.work]\nkind = \"openai\"\n\
         api_key = {{ env = \"WORK_KEY\" }}\n",
        server.url()
    );
    place.write("outlast.toml", &config);
    place.write("other.toml", "[providers.home]\nkind = \"opanai\"\n");
    place.write("agent.toml", "name = \"shop\"\nmodel = \"home/qwen\"\n");
    place.check(
        "run --session ann --model home/qwen hi
         run --session ann --agent agent.toml hi
         run --session ann --model work/gpt hi
         run --session ann --config other.toml hi
         run --session ann --config gone.toml hi",
        &expect![[r#"
            $ run --session ann --model home/qwen hi
            Hello.
            $ run --session ann --agent agent.toml hi
            Hello.
            $ run --session ann --model work/gpt hi
            | error[model.unauthorized]: `work` is not configured: set WORK_KEY (outlast.toml:5)
            |   read on with: outlast explain model.unauthorized
            exit 1
            $ run --session ann --config other.toml hi
            | error[config.invalid]: other.toml:2: unknown variant `opanai`, expected one of `openai`, `openai-responses`, `anthropic`, `gemini`, `openai-compatible`
            |   read on with: outlast explain config.invalid
            exit 1
            $ run --session ann --config gone.toml hi
            | error[io.failed]: the configuration gone.toml cannot be read: No such file or directory (os error 2)
            |   read on with: outlast explain io.failed
            exit 1
        "#]],
    );
    assert_eq!(server.requests().len(), 2);
    assert_eq!(server.requests()[0].path, "/v1/chat/completions");
}

#[track_caller]
fn check_models(server: &Playback, commands: &str, want: &Expect) {
    let place = Place::new();
    place.hide(&server.url(), "SERVER");
    place.set("OPENAI_API_KEY", KEY);
    place.set("OPENAI_BASE_URL", &server.url());
    place.set("LOCAL_BASE_URL", "http://127.0.0.1:9");
    place.check(commands, want);
}

#[test]
fn models_lists_each_provider_with_its_status() {
    let list = ResponseScript::answer(200, &[], "{\"data\":[{\"id\":\"gpt-b\"},{\"id\":\"gpt-a\"}]}");
    let server = Playback::of([list]);
    check_models(
        &server,
        "models\nmodels openai\nmodels openai --json\nmodels anthropic\nmodels nobody",
        &expect![[r#"
            $ models
            PROVIDER          SPEAKS             AT                      ANSWERS
            openai            openai             SERVER  2 models
            openai-responses  openai-responses   SERVER  2 models
            local             openai-compatible  http://127.0.0.1:9      http://127.0.0.1:9 cannot be reached: error sending request: client error (Connect): tcp connect error: Connection refused (os error 111)
            anthropic         anthropic          -                       `anthropic` is not configured: set ANTHROPIC_API_KEY
            gemini            gemini             -                       `gemini` is not configured: set GEMINI_API_KEY
            exit 1
            $ models openai
            openai/gpt-a
            openai/gpt-b
            $ models openai --json
            {"base_url":"SERVER","error":null,"models":["gpt-a","gpt-b"],"provider":"openai","speaks":"openai"}
            $ models anthropic
            | error[model.unauthorized]: `anthropic` is not configured: set ANTHROPIC_API_KEY
            |   read on with: outlast explain model.unauthorized
            exit 1
            $ models nobody
            | error[input.invalid]: expected one of the providers openai, openai-responses, local, anthropic, gemini, got `nobody`
            |   read on with: outlast explain input.invalid
            exit 1
        "#]],
    );
    let asked = server.requests();
    assert!(
        asked.iter().all(|request| (request.method.as_str(), request.path.as_str()) == ("GET", "/models"))
    );
}

#[test]
fn hanging_provider_times_out_as_configured() {
    let server = Playback::of([ResponseScript::default().hold_open()]);
    let began = std::time::Instant::now();
    check_models(
        &server,
        "models openai --patience 1",
        &expect![[r#"
        $ models openai --patience 1
        | error[model.unavailable]: SERVER cannot be reached: error sending request: operation timed out
        |   read on with: outlast explain model.unavailable
        exit 1
    "#]],
    );
    assert!(began.elapsed() < Duration::from_secs(8));
}

/// Runs `outlast run` with the model `openai/gpt-a`.
fn run(place: &Place, more: &[&str]) -> std::process::Output {
    place.output(&[&["run", "hi", "--model", "openai/gpt-a"], more].concat())
}

#[test]
fn outage_of_seconds_does_not_end_the_turn() {
    let busy = || ResponseScript::answer(503, &[], r#"{"error":{"message":"overloaded"}}"#);
    let answer = ResponseScript::stream(reply("openai", &ScriptedReply::Text("Here again.")));
    let server = Playback::of((0..6).map(|_| busy()).chain([answer])).posts_only();
    let place = place(&server);
    let output = run(&place, &[]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Here again."), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("waits for its model provider `openai`"), "{text}");
    assert_eq!(server.requests().len(), 7);
}

#[test]
fn list_names_the_provider_a_session_awaits() {
    let server = Playback::of([ResponseScript::answer(503, &[], r#"{"error":{"message":"overloaded"}}"#)])
        .posts_only();
    let place = place(&server);
    let mut running = place
        .command(&["run", "hi", "--session", "ann", "--model", "openai/gpt-a"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    loop {
        let listed = place.show(&place.output(&["sessions", "list"]));
        if listed.contains("parked, provider openai until TIME") {
            break;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "{listed}");
    }
    running.kill().unwrap();
    running.wait().unwrap();
}

#[test]
fn refused_connection_does_not_end_the_turn() {
    let server = Playback::of([ResponseScript::stream(reply("openai", &ScriptedReply::Text("Here again.")))])
        .posts_only();
    // The port is closed until the turn has failed its first attempts.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let place = place(&server);
    place.set("OPENAI_BASE_URL", &format!("http://{address}"));
    let upstream = server.url().trim_start_matches("http://").to_owned();
    let forwards = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(5));
        let listener = std::net::TcpListener::bind(address).unwrap();
        let (mut client, _) = listener.accept().unwrap();
        let mut server = std::net::TcpStream::connect(upstream).unwrap();
        let (mut answers, mut asks) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let back = std::thread::spawn(move || std::io::copy(&mut answers, &mut asks));
        let _ = std::io::copy(&mut client, &mut server);
        let _ = back.join();
    });
    let output = run(&place, &[]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("Here again."), "{output:?}");
    forwards.join().unwrap();
}

#[test]
fn provider_wait_of_zero_fails_after_quick_attempts() {
    let server = Playback::of([ResponseScript::answer(503, &[], r#"{"error":{"message":"overloaded"}}"#)])
        .posts_only();
    let place = place(&server);
    let output = run(&place, &["--provider-wait", "0"]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("error[model.unavailable]: `openai` cannot answer now (503): overloaded"),
        "{text}"
    );
    assert_eq!(server.requests().len(), 5);
}
