//! Tests of the sinks of `outlast.toml`, with the real binary.
use crate::place::Place;
use expect_test::expect;
use outlast::sinks::{SignatureHeaders, WebhookSecrets};
use outlast_playback::{Playback, ResponseScript};
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Creates a place with this configuration, whose model always gives the same answer.
fn with_sinks(configuration: &str) -> Place {
    let place = Place::with_script("any\nsay All is well.");
    place.write("outlast.toml", configuration);
    place.set("HOOK_SECRET", SECRET);
    place
}

fn webhook(server: &Playback) -> String {
    format!(
        "[[sinks]]\nname = \"crm\"\nwebhook = \"{}/in\"\nsecret = {{ env = \"HOOK_SECRET\" }}\nprivate = true\n",
        server.url()
    )
}

/// Returns the lines of an output file.
fn lines(place: &Place, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(place.path().join(name)).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn outputs_reach_file_program_and_webhook_sinks() {
    let server = Playback::of([ResponseScript::answer(200, &[], "")]);
    let place = with_sinks(&format!(
        "{}\n[[sinks]]\nname = \"audit\"\nfile = \"audit.jsonl\"\nends = [\"answered\"]\n\n\
         [[sinks]]\nname = \"notify\"\ncommand = [\"./notify\", \"now\"]\n",
        webhook(&server)
    ));
    place.hide(&server.url(), "SERVER");
    place.write_program(
        "notify",
        "echo \"$1 $OUTLAST_DELIVERY_ID\" >> notified; cat >> notified; echo >> notified",
    );
    place.check(
        "run hello --session ann --script script.txt
         work --script script.txt
         sinks
         sinks show crm",
        &expect![[r#"
            $ run hello --session ann --script script.txt
            All is well.
            $ work --script script.txt
            | · no turn can continue now
            $ sinks
            SINK    WHERE                     BEHIND  DUE  DEAD  DELIVERED
            audit   audit.jsonl               0       0    0     1
            crm     SERVER/…  0       0    0     1
            notify  ./notify                  0       0    0     1
            $ sinks show crm
            | · no output is waiting to be delivered
        "#]],
    );
    let [audit] = lines(&place, "audit.jsonl").try_into().unwrap();
    assert_eq!((&audit["type"], &audit["data"]["session_key"]), (&"turn.ended".into(), &"ann".into()));
    assert_eq!((&audit["data"]["end"], &audit["data"]["text"]), (&"answered".into(), &"All is well.".into()));
    let notified = fs::read_to_string(place.path().join("notified")).unwrap();
    let [said, message] = notified.lines().collect::<Vec<_>>().try_into().unwrap();
    let message: Value = serde_json::from_str(message).unwrap();
    assert_eq!(said, format!("now {}", message["id"].as_str().unwrap()));
    assert_eq!(message["data"], audit["data"]);
    let [received] = server.requests().try_into().unwrap();
    assert!(received.header("webhook-signature").is_some_and(|signature| signature.starts_with("v1,")));
    assert_eq!(serde_json::from_slice::<Value>(&received.body).unwrap()["data"], audit["data"]);
}

#[test]
fn sinks_test_sends_a_signed_test_message() {
    let server =
        Playback::of([ResponseScript::answer(200, &[], "welcome"), ResponseScript::answer(404, &[], "who?")]);
    let place =
        with_sinks(&format!("{}\n[[sinks]]\nname = \"audit\"\nfile = \"audit.jsonl\"\n", webhook(&server)));
    place.check(
        "sinks test crm
         sinks test crm
         sinks test audit
         sinks test nobody",
        &expect![[r#"
            $ sinks test crm
            it responded 200: welcome
            $ sinks test crm
            | error[delivery.failed]: it responded 404: who?
            |   read on with: outlast explain delivery.failed
            exit 1
            $ sinks test audit
            | error[input.invalid]: only webhooks can be tested, and this sink is audit.jsonl
            |   read on with: outlast explain input.invalid
            exit 1
            $ sinks test nobody
            | error[delivery.not_found]: no sink is called `nobody` here; define it as `[[sinks]]` in outlast.toml
            |   read on with: outlast explain delivery.not_found
            exit 1
        "#]],
    );
    let received = server.requests();
    let message: Value = serde_json::from_slice(&received[0].body).unwrap();
    assert_eq!((&message["type"], &message["data"]), (&"outlast.test".into(), &serde_json::json!({})));
    let header = |name| received[0].header(name).unwrap();
    assert_eq!(message["id"].as_str(), Some(header("webhook-id")));
    let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
    let now = outlast::vocab::Millis(timestamp.parse::<u64>().unwrap() * 1_000);
    let signed = SignatureHeaders { id, timestamp, signature: header("webhook-signature") };
    WebhookSecrets::parse(SECRET).unwrap().verify(signed, &received[0].body, now).unwrap();
}

#[test]
fn busy_output_waits_and_dead_letter_is_redelivered() {
    let server = Playback::of([
        ResponseScript::answer(410, &[], "gone"),
        ResponseScript::answer(503, &[("retry-after", "3600")], "busy"),
        ResponseScript::answer(200, &[], ""),
    ]);
    let place = with_sinks(&webhook(&server));
    place.hide(&server.url(), "SERVER");
    place.check(
        "run hello --script script.txt
         work --script script.txt
         sinks show crm
         sinks retry crm
         work --script script.txt
         sinks
         sinks retry crm dlv_1
         work --script script.txt
         sinks
         sinks retry crm dlv_1
         sinks show nobody",
        &expect![[r#"
            $ run hello --script script.txt
            All is well.
            | · session ses_1
            $ work --script script.txt
            | · no turn can continue now
            $ sinks show crm
            dlv_1 dead after 1 attempt
              turn.ended of trn_1 of ses_1
              delivery.gone: it responded 410: gone
            $ sinks retry crm
            1 output will be delivered again by `outlast work`
            $ work --script script.txt
            | · no turn can continue now
            $ sinks
            SINK  WHERE                     BEHIND  DUE  DEAD  DELIVERED
            crm   SERVER/…  0       1    0     0
            $ sinks retry crm dlv_1
            1 output will be delivered again by `outlast work`
            $ work --script script.txt
            | · no turn can continue now
            $ sinks
            SINK  WHERE                     BEHIND  DUE  DEAD  DELIVERED
            crm   SERVER/…  0       0    0     1
            $ sinks retry crm dlv_1
            | error[delivery.not_found]: the sink `crm` has no delivery dlv_1 that waits or is dead
            |   read on with: outlast explain delivery.not_found
            exit 1
            $ sinks show nobody
            | error[delivery.not_found]: no sink is called `nobody`; `outlast sinks` lists the sinks
            |   read on with: outlast explain delivery.not_found
            exit 1
        "#]],
    );
    let ids: Vec<String> =
        server.requests().iter().map(|received| received.header("webhook-id").unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| *id == ids[0]));
}

#[test]
fn killed_worker_leaves_its_output_to_the_next() {
    let server = Playback::of([ResponseScript::default().hold_open(), ResponseScript::answer(200, &[], "")]);
    let place = with_sinks(&webhook(&server));
    let mut worker = place.command(&["run", "hello", "--script", "script.txt"]);
    let mut worker = worker.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while server.requests().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing was sent");
        std::thread::sleep(Duration::from_millis(10));
    }
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert!(place.output(&["work", "--script", "script.txt"]).status.success());
    let received = server.requests();
    assert_eq!(received.len(), 2);
    assert_eq!(received[0].header("webhook-id"), received[1].header("webhook-id"));
    assert_eq!(received[0].body, received[1].body);
}

#[test]
fn sink_starts_now_or_from_the_beginning() {
    let place = with_sinks("");
    assert!(place.output(&["run", "before", "--script", "script.txt"]).status.success());
    place.write(
        "outlast.toml",
        "[[sinks]]\nname = \"now\"\nfile = \"now\"\n[[sinks]]\nname = \"all\"\nfile = \"all\"\nfrom = \"beginning\"\n",
    );
    assert!(place.output(&["run", "after", "--script", "script.txt"]).status.success());
    assert!(place.output(&["work", "--script", "script.txt"]).status.success());
    assert_eq!((lines(&place, "now").len(), lines(&place, "all").len()), (1, 2));
    // A sink that was removed from the configuration is still listed.
    place.write("outlast.toml", "");
    place.check(
        "sinks",
        &expect![[r#"
        $ sinks
        SINK  WHERE                BEHIND  DUE  DEAD  DELIVERED
        all   not configured here  0       0    0     2
        now   not configured here  0       0    0     1
    "#]],
    );
}

#[test]
fn invalid_sink_is_named_without_showing_secrets() {
    let place = with_sinks("");
    let mut shown = String::new();
    for table in [
        "file = \"out\"",
        "name = \"a\"",
        "name = \"a b\"\nfile = \"out\"",
        "name = \"a\"\nfile = \"out\"\nwebhook = \"https://example.com\"",
        "name = \"a\"\nfile = \"no/such/out\"",
        "name = \"a\"\nfile = \"out\"\nends = [\"joined\"]",
        "name = \"a\"\nfile = \"out\"\nends = []",
        "name = \"a\"\nfile = \"out\"\non = [\"joined\"]",
        "name = \"a\"\nfile = \"out\"\non = [\"approval.requested\"]\nends = [\"answered\"]",
        "name = \"a\"\nfile = \"out\"\nlinks = true",
        "name = \"a\"\nfile = \"out\"\nfrom = \"yesterday\"",
        "name = \"a\"\nfile = \"out\"\ncolour = 1",
        "name = \"a\"\ncommand = [\"./nothing\"]",
        "name = \"a\"\ncommand = []",
        "name = \"a\"\nwebhook = \"https://example.com\"",
        "name = \"a\"\nwebhook = 7\nsecret = { env = \"HOOK_SECRET\" }",
        "name = \"a\"\nwebhook = \"https://example.com\"\nsecret = \"whsec_canary\"",
        "name = \"a\"\nwebhook = \"https://example.com\"\nsecret = { env = \"UNSET\" }",
        "name = \"a\"\nwebhook = \"https://example.com\"\nsecret = { env = \"PATH\" }",
        "name = \"a\"\nwebhook = \"http://127.0.0.1:1/canary\"\nsecret = { env = \"HOOK_SECRET\" }",
        "name = \"a\"\nwebhook = \"ftp://example.com\"\nsecret = { env = \"HOOK_SECRET\" }",
        "name = \"a\"\nfile = \"out\"\n[[sinks]]\nname = \"a\"\nfile = \"other\"",
    ] {
        place.write("outlast.toml", &format!("\n[[sinks]]\n{table}\n"));
        shown += &place.show(&place.output(&["run", "hello", "--script", "script.txt"]));
    }
    expect![[r#"
        | error[config.invalid]: outlast.toml:2: missing field `name`
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:2: sink `a`: expected one of `webhook` (with `secret`, `private`), `file` and `command` (with `env`)
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:2: sink `a b`: expected a sink's name of letters, digits, `-`, `_` and `.`, got `a b`
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:2: sink `a`: expected one of `webhook` (with `secret`, `private`), `file` and `command` (with `env`)
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:2: sink `a`: expected a file in an existing directory, got `no/such/out`
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:2: sink `a`: expected outcomes of a turn (answered, refused, out_of_model_calls, out_of_budget, cancelled, aborted, abandoned, failed, sealed), got `joined`
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:2: sink `a`: expected at least one outcome of a turn: answered, refused, out_of_model_calls, out_of_budget, cancelled, aborted, abandoned, failed, sealed
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:2: sink `a`: expected an event to deliver (turn.ended, approval.requested, approval.reminded, approval.escalated), got `joined`
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:2: sink `a`: `ends` has no effect without `turn.ended` in `on`; remove it
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:2: sink `a`: `links` requires `url` in `[server]`, the public address of `outlast serve`
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:5: unknown variant `yesterday`, expected `now` or `beginning`
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:5: unknown key `colour` in `sinks`; the keys are: command, ends, env, file, from, links, name, on, private, secret, webhook
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:2: sink `a`: expected an executable program, but `./nothing` is missing or not executable
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:2: sink `a`: expected a command of at least one word, got an empty one
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:2: sink `a`: expected `secret = { env = "VARIABLE" }`, which signs what is sent
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:4: expected an address, or `{ env = "VARIABLE" }`, the variable that holds it
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:5: expected `{ env = "VARIABLE" }`, the variable that holds the secret
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:2: sink `a`: set UNSET
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:2: sink `a`: PATH: expected a secret like `whsec_` and base64 of 24 to 64 bytes
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:2: sink `a`: `http://127.0.0.1:1/…` is not reached: this address is on this machine
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:2: sink `a`: `ftp://example.com` is not reached: only `https:` and `http:` are supported
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: outlast.toml:5: two sinks are called `a`; names must be unique
        |   read on with: outlast explain config.invalid
        exit 1
    "#]].assert_eq(&shown);
    assert!(!place.path().join("out").exists());
}

#[test]
fn doctor_reports_dead_letters_and_broken_sinks() {
    let server = Playback::of([ResponseScript::answer(410, &[], "")]);
    let place = with_sinks(&webhook(&server));
    assert!(place.output(&["run", "hello", "--script", "script.txt"]).status.success());
    let shown = |place: &Place| {
        let text = place.show(&place.output(&["doctor"]));
        let shown =
            |line: &&str| ["open", "wrong", "nothing", "exit"].iter().any(|word| line.starts_with(word));
        text.lines().filter(shown).collect::<Vec<_>>().join("\n")
    };
    let dead = "open  1 output that the sink crm did not accept: outlast sinks show crm says why, \
                outlast sinks retry crm tries again\n";
    assert_eq!(shown(&place), format!("{dead}nothing is wrong"));
    place.write("outlast.toml", "[[sinks]]\nname = \"a\"\n");
    let wrong = "wrong config.invalid: outlast.toml:1: sink `a`: expected one of `webhook` (with `secret`, `private`), \
                 `file` and `command` (with `env`): no worker starts with it; fix or remove it\nexit 1";
    assert_eq!(shown(&place), format!("{dead}{wrong}"));
}
