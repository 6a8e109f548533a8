//! Tests of `outlast --server`: commands do the same over HTTP as on a file.
use crate::place::Place;
use crate::serve::Server;
use expect_test::expect;
use outlast_playback::{Playback, ResponseScript};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

const AGENT: &str = r#"
name = "clerk"

[[tools]]
name = "pay"
description = "Pays a person."
command = ["tee", "-a", "paid"]
input = { type = "object", properties = { to = { type = "string" }, euros = { type = "integer" } }, required = ["to", "euros"] }

[[rules]]
name = "large"
tool = "pay"
then = "ask"
who = ["ann", "bob"]
expires_s = 3600
"#;

const SCRIPT: &str = "\
    when slowly\nsay one two three four five six seven eight nine ten\ndelay 1s\nsay eleven twelve
    when wrong\nerror model.rejected the request is wrong
    when pay\nsay I shall.\ncall pay {\"to\": \"eve\", \"euros\": 7}\n---\nsay Paid.
    any\nsay Reply to {{input}}.";
const TEXT: &str = "one two three four five six seven eight nine ten\neleven twelve\n";

const OPTIONS: [&str; 4] = ["--agent", "clerk.toml", "--script", "script.txt"];

/// Creates a place with a server.
fn stage() -> (Place, Server) {
    let place = Place::with_script(SCRIPT);
    place.write("clerk.toml", AGENT);
    place.set("USER", "ann");
    let server = Server::run(&place, "127.0.0.1:0", &OPTIONS);
    (place, server)
}

fn at(server: &Server) -> String {
    format!("http://{}", server.address)
}

/// Returns the output of a command on the file and on the server.
fn both(place: &Place, server: &Server, command: &[&str]) -> [String; 2] {
    let address = at(server);
    let there = [&["--server", &address], command].concat();
    [command, &there[..]].map(|args| place.show(&place.output(args)))
}

#[test]
fn read_commands_print_the_same_over_a_server() {
    let (place, server) = stage();
    let url = at(&server);
    place.write("note.txt", "a note");
    for args in [
        &["run", "hello", "--session", "ann", "--attach", "note.txt"][..],
        &["run", "again", "--session", "ann"],
        &["run", "pay", "--session", "bob"],
        &["run", "pay", "--session", "dan"],
        &["sessions", "fork", "ann", "--key", "cid"],
        &["run", "further", "--session", "cid"],
        &["budgets", "set", "agent:clerk", "--tokens", "1000", "--per", "day"],
        &["keys", "create", "ci", "--scope", "read"],
        &["agents", "import", "clerk.toml"],
    ] {
        let output = place.output(&[&["--server", &url], args].concat());
        assert!(output.status.success(), "{args:?}: {}", place.show(&output));
    }
    let looks = "sessions
        sessions list --search hello
        sessions list --state parked
        sessions show ann
        sessions show ann --tree
        sessions show bob
        sessions show cid
        events ann
        events bob --after 2
        why ann
        why bob
        approvals list
        approvals grants
        unknown
        cost
        cost --by session
        cost --by agent
        cost --by source
        cost --by tool
        cost --by day
        cost --by turn --session ann
        budgets
        rates
        keys
        audit
        audit --since 1h
        audit --limit 1
        attachments ann
        agents history clerk
        search hello
        search repl --session ann --limit 1
        search nothing
        context ann
        context bob
        context ann --head nowhere
        verify
        verify ann
        verify nobody
        sinks
        sinks show nobody
        orgs
        sessions show nobody
        why trn_00000000000000000000000000000000
        events ses_00000000000000000000000000000000";
    for look in looks.lines().map(str::trim) {
        let plain: Vec<&str> = look.split_whitespace().collect();
        let json = [&plain[..], &["--json"]].concat();
        for command in [&plain, &json] {
            let [file, there] = both(&place, &server, command);
            // On the file, the hint names the approver. A server knows the person by the key.
            assert_eq!(file.replace(" --by ann\n", "\n"), there, "{command:?}");
            assert!(!file.is_empty() || *command == json, "{command:?} prints nothing");
        }
    }
    server.kill();
}

#[test]
fn approvals_and_waits_are_decided_over_a_server() {
    let (place, server) = stage();
    place.set("OUTLAST_SERVER", &at(&server));
    place.check(
        "run pay --session bob
         approvals list
         approvals deny apr_1 --reason 'not this month'
         run pay --session bob --key second
         approvals approve apr_2 --session --json
         approvals grants
         approvals revoke grt_1
         run pay --session ann
         cancel trn_3 --reason enough --json
         cancel trn_1
         resolve cpl_x --ok 1
         retry trn_1
         unknown settle cal_00000000000000000000000000000000 --did-not-happen",
        &expect![[r#"
            $ run pay --session bob
            I shall.
            | · pay {"euros":7,"to":"eve"} (rule `large`)
            | · trn_1 waits for an approval until TIME
            |   outlast approvals approve apr_1
            $ approvals list
            apr_1
              pay {"euros":7,"to":"eve"}
              asked TIME in ses_1, trn_1; rule `large` requires approval by ann or bob until TIME
            | · then: outlast approvals approve ID [--arguments JSON | --session] | deny ID --reason WHY
            $ approvals deny apr_1 --reason 'not this month'
            decided: ann denied it: not this month
            $ run pay --session bob --key second
            I shall.
            | · pay {"euros":7,"to":"eve"} (rule `large`)
            | · trn_2 waits for an approval until TIME
            |   outlast approvals approve apr_2
            $ approvals approve apr_2 --session --json
            {"decided":true,"first":{"ok":{"by":"ann","verdict":"approve_for_session"}},"yours":true}
            $ approvals grants
            grt_1
              pay in ses_1, where rule `large` would ask
              given TIME by ann
            | · then: outlast approvals revoke ID
            $ approvals revoke grt_1
            revoked: the next such call of `pay` requires an approval, in ses_1
            $ run pay --session ann
            I shall.
            | · pay {"euros":7,"to":"eve"} (rule `large`)
            | · trn_3 waits for an approval until TIME
            |   outlast approvals approve apr_3
            $ cancel trn_3 --reason enough --json
            {"end":null,"outcome":"requested","turn":"trn_3"}
            $ cancel trn_1
            too late: answered: "Paid."
            $ resolve cpl_x --ok 1
            | error[wait.not_found]: no wait has this completion key
            |   read on with: outlast explain wait.not_found
            exit 1
            $ retry trn_1
            | error[turn.not_retryable]: trn_1 ended as answered; expected failed, cancelled, sealed or out_of_budget; send the input again
            |   read on with: outlast explain turn.not_retryable
            exit 1
            $ unknown settle cal_00000000000000000000000000000000 --did-not-happen
            | error[claim.not_found]: no call with the id cal_1 has an unknown outcome; `outlast unknown` lists them
            |   read on with: outlast explain claim.not_found
            exit 1
        "#]],
    );
    server.kill();
}

#[test]
fn write_commands_work_over_a_server() {
    let (place, server) = stage();
    place.set("OUTLAST_SERVER", &at(&server));
    place.write("note.txt", "a note");
    place.check(
        "run hello --session ann --attach note.txt
         attachments ann
         attachments ann --save att_acd44954084dfcf8b80c10fed8808c95 --to saved.txt
         sessions fork ann
         sessions rewind ann --to 0 --json
         sessions delete ann
         sessions delete ses_1 --yes
         budgets set agent:clerk --money 2.50
         budgets clear agent:clerk
         keys create ci --json
         keys revoke key_1
         agents list
         agents show clerk
         agents import clerk.toml
         agents diff clerk clerk
         agents diff clerk@1 clerk
         agents diff clerk@7 clerk
         tools
         tools pay
         tools nothing
         run hello --agent nobody",
        &expect![[r#"
            $ run hello --session ann --attach note.txt
            Reply to hello.
            $ attachments ann
            att_acd44954084dfcf8b80c10fed8808c95 text/plain 6 bytes note.txt
            $ attachments ann --save att_acd44954084dfcf8b80c10fed8808c95 --to saved.txt
            | · 6 bytes saved
            $ sessions fork ann
            ses_1
            $ sessions rewind ann --to 0 --json
            {"at":null,"head":"main","session":"ses_2"}
            $ sessions delete ann
            | error[input.invalid]: standard input is not a terminal, so the deletion cannot be confirmed; pass `--yes`
            |   read on with: outlast explain input.invalid
            exit 1
            $ sessions delete ses_1 --yes
            ses_1 deleted
            $ budgets set agent:clerk --money 2.50
            | ✓ agent:clerk is set; a worker continues the turns that wait for it
            $ budgets clear agent:clerk
            | ✓ agent:clerk is reset to the limits of its agent
            $ keys create ci --json
            {"id":"key_1","key":"olk_1"}
            | · key_1 is shown only once and is not stored; keep it as a secret
            $ keys revoke key_1
            key_1 of service:ci is invalid since TIME
            $ agents list
            AGENT  IN          MODEL                                     PACKAGE
            clerk  the server  rehearsal/script-11800270  answers first  b347fc520ae3726c5f5b2b49c87068966af1ccb2b8a533b525fd2e9851a616fb
            $ agents show clerk
            agent clerk
            package b347fc520ae3726c5f5b2b49c87068966af1ccb2b8a533b525fd2e9851a616fb
            model rehearsal/script-11800270
            tools pay
            $ agents import clerk.toml
            agent clerk, version 1, in the database
            $ agents diff clerk clerk
            | · the two agents are identical
            $ agents diff clerk@1 clerk
            | · the two agents are identical
            $ agents diff clerk@7 clerk
            | error[agent.not_found]: the database of the server has no version 7 of the agent `clerk`, or it is deleted
            |   read on with: outlast explain agent.not_found
            exit 1
            $ tools
            pay            at_most_once   Pays a person.
            $ tools pay
            pay (at_most_once)
            Pays a person.
            arguments: {"properties":{"euros":{"type":"integer"},"to":{"type":"string"}},"required":["to","euros"],"type":"object"}
            $ tools nothing
            | error[tool.unknown]: no tool of `clerk` is called `nothing`; there are: pay
            |   read on with: outlast explain tool.unknown
            exit 1
            $ run hello --agent nobody
            | error[agent.not_found]: no agent is called `nobody` here; there are: clerk
            |   read on with: outlast explain agent.not_found
            exit 1
        "#]],
    );
    assert_eq!(std::fs::read_to_string(place.path().join("saved.txt")).unwrap(), "a note");
    server.kill();
}

#[test]
fn file_only_commands_reject_a_server() {
    let place = Place::new();
    place.set("OUTLAST_SERVER", "http://127.0.0.1:1");
    for command in [
        "serve",
        "work",
        "doctor",
        "models",
        "mcp serve",
        "mcp list",
        "mcp add x -- nowhere",
        "mcp test x",
        "agents validate",
        "tools --preview {} pay",
        "attachments --sweep",
        "run hi --script script.txt",
        "run hi --model rehearsal/agent",
        "chat --agent clerk.toml",
    ] {
        let words: Vec<&str> = command.split_whitespace().collect();
        let shown = place.show(&place.output(&words));
        assert!(
            shown.starts_with("| error[command.local]: ") && shown.ends_with("exit 1\n"),
            "{command}: {shown}"
        );
    }
    // A command that needs neither a file nor a server still works.
    assert!(place.output(&["explain", "command.local"]).status.success());
    assert!(!place.data().exists());
}

#[test]
fn sessions_export_import_and_rerun_over_a_server() {
    let ((place, server), (_elsewhere, other)) = (stage(), stage());
    place.set("OUTLAST_SERVER", &at(&server));
    place.check(
        "run hello --session ann
         sessions fork ann --key bob
         run again --session bob
         sessions export bob --output bob.jsonl
         sessions export bob --output bob.jsonl
         sessions export nobody
         sessions import bob.jsonl
         replay bob.jsonl
         rerun ann
         rerun ann --prompt 'Be brief.' --from 0 --json
         rerun bob --from nowhere
         rerun bob.jsonl
         rerun bob --script script.txt",
        &expect![[r#"
            $ run hello --session ann
            Reply to hello.
            $ sessions fork ann --key bob
            ses_1
            $ run again --session bob
            Reply to again.
            $ sessions export bob --output bob.jsonl
            $ sessions export bob --output bob.jsonl
            | error[io.failed]: bob.jsonl exists already; name another file or remove it
            |   read on with: outlast explain io.failed
            exit 1
            $ sessions export nobody
            | error[session.not_found]: no session has the key `nobody`
            |   read on with: outlast explain session.not_found
            exit 1
            $ sessions import bob.jsonl
            | error[archive.exists]: the session ses_1 already exists
            |   read on with: outlast explain archive.exists
            exit 1
            $ replay bob.jsonl
            bob.jsonl ses_1
            turn 0 same 1 effects, answered
            $ rerun ann
            ann ses_2
            turn 0 same hello
              = answered: Reply to hello.
            0 calls answered from the recording, 0 made
            cost $0 then, $0 now
            $ rerun ann --prompt 'Be brief.' --from 0 --json
            {"of":"ann","changed":0,"session":"ses_2","turns":[{"index":0,"input":"hello","recorded":{"model":"rehearsal/script-11800270","end":"answered","answer":"Reply to hello.","calls":[],"replies":1,"usage":{"input":24,"output":4},"cost":"0"},"rerun":{"model":"rehearsal/script-11800270","end":"answered","answer":"Reply to hello.","calls":[],"replies":1,"usage":{"input":12,"output":4},"cost":"0"}}],"recorded_cost":"0","rerun_cost":"0","reused":0,"ran":0,"not_made":[]}
            $ rerun bob --from nowhere
            | error: invalid value 'nowhere' for '--from <TURN|EFFECT>': input.invalid: expected a turn (`2` or `trn_…`) or an effect (`turn/2/…`), got `nowhere`
            | 
            | For more information, try '--help'.
            exit 2
            $ rerun bob.jsonl
            | error[command.local]: bob.jsonl: it is a local file, but a server reruns only its own sessions; remove `--server` (OUTLAST_SERVER), or import the file there
            |   read on with: outlast explain command.local
            exit 1
            $ rerun bob --script script.txt
            | error[command.local]: bob: `--script` configures a worker of this process, but a server has its own agents; use `--agent NAME` to select one of them
            |   read on with: outlast explain command.local
            exit 1
        "#]],
    );
    place.set("OUTLAST_SERVER", &at(&other));
    place.check(
        "sessions import bob.jsonl --as cid --json
         sessions show cid
         verify cid
         sessions import bob.jsonl
         sessions import nothing.jsonl",
        &expect![[r#"
            $ sessions import bob.jsonl --as cid --json
            {"closed":0,"records":10,"session":"ses_1","turns":2}
            $ sessions show cid
            ses_1 `cid` idle, 1 turn, updated TIME
            forked from #4 of ses_2
            head main at #4 of ses_1
            trn_1 answered, in ses_2
            #2    user hello
            #4    assistant Reply to hello.
            trn_2 answered
            #2    user again
            #4    assistant Reply to again.
            $ verify cid
            ses_1 intact: 5 records
            $ sessions import bob.jsonl
            | error[archive.exists]: the session ses_1 already exists
            |   read on with: outlast explain archive.exists
            exit 1
            $ sessions import nothing.jsonl
            | error[io.failed]: nothing.jsonl cannot be read: No such file or directory (os error 2)
            |   read on with: outlast explain io.failed
            exit 1
        "#]],
    );
    other.kill();
    server.kill();
}

#[test]
fn why_names_how_the_last_turn_ended() {
    let (place, server) = stage();
    let url = at(&server);
    let last = |session: &str| {
        let [file, there] = both(&place, &server, &["why", session]);
        assert_eq!(file, there);
        let lines = file.lines().filter(|line| line.starts_with("  ")).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    place.output(&["--server", &url, "run", "hello", "--session", "ann"]);
    assert_eq!(last("ann"), Vec::<String>::new());
    place.output(&["--server", &url, "run", "wrong", "--session", "ann"]);
    assert_eq!(
        last("ann"),
        [
            "  its last turn trn_1 ended as failed: model.rejected: the request is wrong",
            "  to retry it: outlast retry trn_1"
        ]
    );
    server.kill();
}

#[test]
fn turn_reports_its_durability_cost_over_a_server() {
    let (place, server) = stage();
    let url = at(&server);
    assert!(place.output(&["--server", &url, "run", "hello", "--session", "ann"]).status.success());
    let turns = place.output(&["sessions", "show", "ann", "--json"]).stdout;
    let turn = String::from_utf8(turns).unwrap().lines().find_map(|line| {
        serde_json::from_str::<Value>(line).unwrap()["turn"].as_str().map(ToOwned::to_owned)
    });
    let turn = turn.unwrap();
    let durability = |of: &[&str]| {
        let output = place.output(&[of, &["why", &turn, "--json"]].concat());
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["durability"].clone()
    };
    let (file, there) = (durability(&[]), durability(&["--server", &url]));
    for what in ["records", "bytes", "commits"] {
        assert_eq!(file[what], there[what], "{file} {there}");
    }
    assert!(file["records"].as_u64().unwrap() >= 4 && file["bytes"].as_u64().unwrap() > 100, "{file}");
    assert_eq!(file["commits"], 2);
    // Only the process that drove the turn knows the duration of the last write.
    assert!(file["waited_ms"].as_f64().unwrap() > 0.0, "{file}");
    assert!(there["waited_ms"].as_f64().unwrap() > file["waited_ms"].as_f64().unwrap(), "{there} {file}");
    let shown = place.show(&place.output(&["why", &turn]));
    assert!(shown.contains("\n  durable so far: "), "{shown}");
    server.kill();
}

#[test]
fn verify_finds_a_damaged_session_over_a_server() {
    let (place, server) = stage();
    place.set("OUTLAST_SERVER", &at(&server));
    assert!(place.output(&["run", "hello", "--session", "ann"]).status.success());
    let conn = rusqlite::Connection::open(place.data()).unwrap();
    conn.execute("DELETE FROM records WHERE seq = 3", []).unwrap();
    drop(conn);
    place.check(
        "verify\nverify ann",
        &expect![[r#"
        $ verify
        ses_1 DAMAGED: record 3 breaks the chain: the next one found is 4
        | · 1 session, 1 damaged
        | error[record.corrupt]: record 3 breaks the chain: the next one found is 4 (in ses_1)
        |   read on with: outlast explain record.corrupt
        exit 1
        $ verify ann
        | error[record.corrupt]: record 3 breaks the chain: the next one found is 4 (in ses_1)
        |   read on with: outlast explain record.corrupt
        exit 1
    "#]],
    );
    server.kill();
}

#[test]
fn dead_letter_is_redelivered_over_a_server() {
    let hook = Playback::of([
        ResponseScript::answer(410, &[], "gone"),
        ResponseScript::answer(200, &[], ""),
        ResponseScript::answer(200, &[], "welcome"),
        ResponseScript::answer(404, &[], "who?"),
    ]);
    let place = Place::with_script(SCRIPT);
    place.write("clerk.toml", AGENT);
    place.write(
        "outlast.toml",
        &format!(
            "[[sinks]]\nname = \"crm\"\nwebhook = \"{}/in\"\nsecret = {{ env = \"HOOK_SECRET\" }}\nprivate = true\n",
            hook.url()
        ),
    );
    place.set("HOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    place.hide(&hook.url(), "HOOK");
    let server = Server::run(&place, "127.0.0.1:0", &OPTIONS);
    let url = at(&server);
    let asked = |command: &[&str]| place.show(&place.output(&[&["--server", &url], command].concat()));
    let until = |number: &str| {
        let begun = Instant::now();
        while !asked(&["sinks", "--json"]).contains(number) {
            assert!(begun.elapsed() < Duration::from_secs(30), "{}", asked(&["sinks"]));
        }
    };
    assert!(asked(&["run", "hello", "--session", "ann"]).starts_with("Reply"));
    until(r#""dead":"1""#);
    for look in [&["sinks"][..], &["sinks", "show", "crm"], &["sinks", "--json"]] {
        let [file, there] = both(&place, &server, look);
        assert_eq!(file, there, "{look:?}");
    }
    assert_eq!(asked(&["sinks", "retry", "crm"]), "1 output will be delivered again by the server\n");
    until(r#""delivered":"1""#);
    assert_eq!(asked(&["sinks", "show", "crm"]), "| · no output is waiting to be delivered\n");
    assert_eq!(asked(&["sinks", "test", "crm"]), "it responded 200: welcome\n");
    let refused = asked(&["sinks", "test", "crm"]);
    assert!(refused.contains("delivery.failed") && refused.contains("it responded 404: who?"), "{refused}");
    server.kill();
}

#[test]
fn unreachable_and_foreign_servers_give_different_errors() {
    let place = Place::new();
    let shown = place.show(&place.output(&["--server", "http://127.0.0.1:1", "sessions"]));
    assert!(
        shown.starts_with("| error[server.unreachable]: http://127.0.0.1:1 does not answer: "),
        "{shown}"
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        stream
            .write_all(
                b"HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\nconnection: close\r\n\r\nno such\x1b[",
            )
            .unwrap();
    });
    let output = place.output(&["--server", &address, "sessions"]);
    other.join().unwrap();
    place.hide(&address, "ADDRESS");
    expect![[r#"
        | error[server.answer_invalid]: expected a problem document of an Outlast server, got 404 Not Found `no such\u{1b}[` from ADDRESS
        |   read on with: outlast explain server.answer_invalid
        exit 1
    "#]]
    .assert_eq(&place.show(&output));
    place.check(
        "--server nowhere sessions
         --server http://127.0.0.1:1 --org acme sessions",
        &expect![[r#"
            $ --server nowhere sessions
            | error[input.invalid]: expected a server like `https://agents.example.com`, got `nowhere`: relative URL without a base
            |   read on with: outlast explain input.invalid
            exit 1
            $ --server http://127.0.0.1:1 --org acme sessions
            | error[input.invalid]: the API key determines the organisation; remove `--org acme` (OUTLAST_ORG)
            |   read on with: outlast explain input.invalid
            exit 1
        "#]],
    );
}

#[test]
fn first_organisation_key_is_created_over_a_server() {
    let (place, server) = stage();
    place.set("OUTLAST_SERVER", &at(&server));
    place.check(
        "orgs create acme
         --org acme keys create ci --scope read
         --org nobody keys create ci
         --org acme keys",
        &expect![[r#"
            $ orgs create acme
            org_1
            | · `outlast keys create NAME --org acme` creates a key for it
            $ --org acme keys create ci --scope read
            olk_1
            | · key_1 is shown only once and is not stored; keep it as a secret
            $ --org nobody keys create ci
            | error[org.not_found]: no organisation is called `nobody`
            |   read on with: outlast explain org.not_found
            exit 1
            $ --org acme keys
            | error[input.invalid]: the API key determines the organisation; remove `--org acme` (OUTLAST_ORG)
            |   read on with: outlast explain input.invalid
            exit 1
        "#]],
    );
    server.kill();
}

#[test]
fn overlay_is_sent_with_each_input() {
    let (place, server) = stage();
    place.set("OUTLAST_SERVER", &at(&server));
    place.write("brief.toml", "system = \"Be brief.\"\nmodel_calls = 3\n");
    place.write("shell.toml", "[[tools]]\nname = \"sh\"\ndescription = \"A shell.\"\ncommand = [\"sh\"]\n");
    place.check(
        "run hello --session ann --agent clerk --overlay brief.toml
         run hello --session ann --agent clerk --overlay shell.toml
         retry trn_019a8b6e5c7d7f3a9b1c2d3e4f506172 --agent clerk --overlay brief.toml",
        &expect![[r#"
            $ run hello --session ann --agent clerk --overlay brief.toml
            Reply to hello.
            $ run hello --session ann --agent clerk --overlay shell.toml
            | error[config.invalid]: a session or a turn may set `system`, `model`, `models`, `provider_wait_s`, `model_calls`, `documents`, `network`, `guard`, `rules` and `rates`, but this one sets `tools`; set it for an agent
            |   read on with: outlast explain config.invalid
            exit 1
            $ retry trn_019a8b6e5c7d7f3a9b1c2d3e4f506172 --agent clerk --overlay brief.toml
            | error[command.local]: `--overlay` configures a worker of this process, but a server has its own agents; use `--agent NAME` to select one of them
            |   read on with: outlast explain command.local
            exit 1
        "#]],
    );
    let turn = place.output(&["sessions", "show", "ann", "--json"]);
    let turn = String::from_utf8(turn.stdout).unwrap();
    let (_, rest) = turn.split_once("trn_").unwrap();
    let turn = format!("trn_{}", &rest[..32]);
    let diff = place.show(&place.output(&["agents", "diff", "clerk", &turn]));
    expect![[r#"
        - model_calls: 50
        + model_calls: 3
          system:
        + 
        + Be brief.
    "#]]
    .assert_eq(&diff);
    server.kill();
}

#[test]
fn packages_are_compared_by_fingerprint_over_a_server() {
    let (place, server) = stage();
    place.set("OUTLAST_SERVER", &at(&server));
    place.write("brief.toml", "model_calls = 3\n");
    let fingerprint = |args: &[&str]| {
        let output = place.output(args);
        let said = String::from_utf8(output.stdout).unwrap();
        let (_, rest) = said.split_once("\"package\":\"").unwrap_or_else(|| panic!("{said}"));
        rest[..64].to_owned()
    };
    let output =
        place.output(&["run", "hi", "--session", "ann", "--agent", "clerk", "--overlay", "brief.toml"]);
    assert!(output.status.success(), "{}", place.show(&output));
    let of_agent = fingerprint(&["agents", "list", "--json"]);
    let of_turn = fingerprint(&["events", "ann", "--json"]);
    let diff = place.show(&place.output(&["agents", "diff", &of_agent, &of_turn]));
    assert_eq!(diff, "- model_calls: 50\n+ model_calls: 3\n");
    let nobodys = "7".repeat(64);
    let refused = place.show(&place.output(&["agents", "diff", &of_agent, &nobodys]));
    assert!(refused.contains("error[blob.not_found]"), "{refused}");
    server.kill();
}

#[test]
fn run_has_its_full_text_after_server_kill() {
    let (place, server) = stage();
    let address = server.address.clone();
    let url = at(&server);
    let args = ["--server", &url, "run", "slowly", "--session", "ann"];
    let mut run = place.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = run.stdout.take().unwrap();
    let mut first = [0; 4];
    out.read_exact(&mut first).unwrap();
    server.kill();
    let server = Server::run(&place, &address, &OPTIONS);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&first) + rest.as_str(), TEXT, "{}", place.show(&output));
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("connected again"));
    server.kill();
}

#[test]
fn events_follow_continues_after_a_server_restart() {
    let (place, server) = stage();
    let (address, url) = (server.address.clone(), at(&server));
    let say =
        |text| assert!(place.output(&["--server", &url, "run", text, "--session", "ann"]).status.success());
    say("one");
    let args = ["--server", &url, "events", "ann", "--follow", "--json"];
    let mut follow = place.command(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut events = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let first: Vec<u64> = events.by_ref().take(5).map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(first, [1, 2, 3, 4, 5]);
    server.kill();
    let server = Server::run(&place, &address, &OPTIONS);
    say("two");
    let next: Vec<u64> = events.by_ref().take(4).map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(next, [6, 7, 8, 9]);
    follow.kill().unwrap();
    follow.wait().unwrap();
    server.kill();
}

#[test]
fn chat_over_a_server_works_line_by_line() {
    let (place, server) = stage();
    place.set("OUTLAST_SERVER", &at(&server));
    let output = place.fed(&["chat", "ann"], b"hello\n/sessions\n/fork\npay\n/quit\n");
    expect![[r#"
        Reply to hello.
        SESSION                               KEY  STATE  TURNS  UPDATED               TITLE
        ses_1  ann  idle   1      TIME  hello
        I shall.
        | · /help lists the commands
        | · session ses_2
        | · pay {"euros":7,"to":"eve"} (rule `large`)
        | · trn_1 waits for an approval until TIME
        |   outlast approvals approve apr_1
    "#]]
    .assert_eq(&place.show(&output));
    server.kill();
}

#[test]
fn server_key_is_read_and_never_printed() {
    let place = Place::with_script(SCRIPT);
    assert!(place.output(&["run", "hello", "--session", "ann"]).status.success());
    let key = String::from_utf8(place.output(&["keys", "create", "ci", "--scope", "read"]).stdout).unwrap();
    let key = key.trim();
    let server = Server::run(&place, "127.0.0.1:0", &["--require-key", "--script", "script.txt"]);
    let address = at(&server);
    let list = ["--server", &address, "sessions", "list", "--json"];
    let without = place.show(&place.output(&list));
    assert!(without.starts_with("| error[key.invalid]: this server takes an API key"), "{without}");
    place.write("key", &format!("{key}\n"));
    let with_file = place.output(&[&list[..], &["--key-file", "key"]].concat());
    assert!(with_file.status.success());
    place.set("OUTLAST_KEY", key);
    let with_variable = place.output(&list);
    assert!(with_variable.status.success());
    assert_eq!(with_file.stdout, with_variable.stdout);
    let refused = place.show(&place.output(&["--server", &at(&server), "run", "hi"]));
    assert!(refused.contains("error[access.denied]"), "{refused}");
    let checked = place.fed(&["--server", &at(&server), "keys", "check"], key.as_bytes());
    assert!(String::from_utf8_lossy(&checked.stdout).starts_with("service:ci may read in default"));
    let help = String::from_utf8(place.output(&["--help"]).stdout).unwrap();
    assert!(!help.contains(key) && !help.contains("--key "), "{help}");
    server.kill();
}

#[test]
fn tls_server_needs_a_trusted_certificate() {
    let place = Place::new();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    place.write("cert.pem", &made.cert.pem());
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let connection = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream);
            // A client that does not trust the certificate has disconnected.
            if stream.read(&mut [0; 4096]).is_err() {
                continue;
            }
            let body = r#"{"items": []}"#;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
            let length = body.len();
            write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
            stream.flush().unwrap();
        }
    });
    let address = format!("https://localhost:{port}");
    let args = ["--server", &address, "sessions"];
    let shown = place.show(&place.output(&args));
    assert!(shown.starts_with("| error[server.unreachable]: "), "{shown}");
    place.set("SSL_CERT_FILE", &place.path().join("cert.pem").to_string_lossy());
    assert_eq!(place.show(&place.output(&args)), "| · there are no sessions\n");
}

#[test]
fn only_operators_set_organisation_limits_over_a_server() {
    let (place, server) = stage();
    let url = at(&server);
    place.set("OUTLAST_SERVER", &url);
    let acme = String::from_utf8(place.output(&["orgs", "create", "acme"]).stdout).unwrap();
    let acme = acme.trim();
    let key = |args: &[&str]| {
        let made = place.output(&[&["keys", "create", "ci"], args].concat());
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let (own, operates) = (key(&["--scope", "admin", "--org", "acme"]), key(&["--scope", "operate"]));
    let operator = key(&["--scope", "admin"]);
    let asked = |key: Option<&str>, command: &[&str]| {
        let mut there = place.command(command);
        there.envs(key.map(|key| ("OUTLAST_KEY", key)));
        place.show(&there.output().unwrap())
    };
    let (set, clear) = (["budgets", "set", acme, "--calls", "0"], ["budgets", "clear", acme]);
    for key in [&own, &operates] {
        for command in [&set[..], &clear] {
            let refused = asked(Some(key), command);
            assert!(refused.contains("error[access.denied]"), "{refused}");
        }
    }
    for key in [None, Some(operator.as_str())] {
        expect![[r#"
            | ✓ org_1 is set; a worker continues the turns that wait for it
            | ✓ org_1 has no limit
        "#]]
        .assert_eq(&(asked(key, &set) + &asked(key, &clear)));
    }
    assert!(asked(Some(&operator), &set).contains("is set"));
    expect![[r#"
        | · session ses_1
        | error[budget.exceeded]: not enough is left of the calls of org_1: it needs up to 1 calls, and of 0 calls 0 calls are left (in trn_1)
        |   read on with: outlast explain budget.exceeded
        exit 1
    "#]].assert_eq(&asked(Some(&own), &["run", "hello"]));
    server.kill();
}
