//! Tests of agents in the database of a running server, stored over HTTP and by another process.
use crate::place::Place;
use crate::serve::Server;
use expect_test::expect;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Output;

/// Creates a place with a server that all commands use.
fn stage() -> (Place, Server) {
    let place = Place::new();
    let server = Server::run(&place, "127.0.0.1:0", &[]);
    place.set("OUTLAST_SERVER", &format!("http://{}", server.address));
    (place, server)
}

/// Runs a command on the database file, not on the server.
fn beside(place: &Place, args: &[&str]) -> Output {
    place.command(args).env_remove("OUTLAST_SERVER").output().unwrap()
}

/// Stores an agent in the database file, as another process would.
fn keep_beside(place: &Place, name: &str, fields: &str) {
    place.write("beside.toml", &format!("name = \"{name}\"\n{fields}\n"));
    let import = beside(place, &["agents", "import", "beside.toml"]);
    assert!(import.status.success(), "{}", place.show(&import));
}

/// Waits until the server has the agent, and returns its system prompt.
fn prompt_of(place: &Place, agent: &str) -> String {
    loop {
        let shown = place.output(&["--json", "agents", "show", agent]);
        if shown.status.success() {
            let package: Value = serde_json::from_slice(&shown.stdout).unwrap();
            return package["system"].as_str().unwrap().to_owned();
        }
    }
}

#[test]
fn server_import_applies_at_once_and_rejects_errors() {
    let (place, server) = stage();
    place.write(
        "shop.toml",
        "[harnesses.base]\nsystem = \"Be kind.\"\n\n[agents.clerk]\nparent = \"base\"\nsystem = \"Sell.\"\n",
    );
    place.write("lathe.toml", "name = \"clerk\"\ncapabilities = [\"lathe\"]\n");
    place.write("base.toml", "[harnesses.base]\nmodel = \"nobody/x\"\n");
    place.check(
        "run hello --agent clerk
         agents import shop.toml
         run hello --agent clerk --session ann
         agents import lathe.toml
         agents import base.toml
         run hello --agent clerk --session ann",
        &expect![[r#"
            $ run hello --agent clerk
            | error[agent.not_found]: no agent is called `clerk` here; there are: assistant
            |   read on with: outlast explain agent.not_found
            exit 1
            $ agents import shop.toml
            harness base, version 1, in the database
            agent clerk, version 1, in the database
            $ run hello --agent clerk --session ann
            Hello! What can I do for you?
            $ agents import lathe.toml
            | error[capability.unknown]: agent clerk enables the capability `lathe`, which does not exist; there are: none
            |   read on with: outlast explain capability.unknown
            exit 1
            $ agents import base.toml
            | error[model.unknown]: the agent `clerk` could no longer be built: no provider serves the model `nobody/x`
            |   read on with: outlast explain model.unknown
            exit 1
            $ run hello --agent clerk --session ann
            Hello! What can I do for you?
        "#]],
    );
    assert_eq!(prompt_of(&place, "clerk"), "Be kind.\n\nSell.");
    server.kill();
}

#[test]
fn approved_call_runs_after_agent_loses_the_tool() {
    let (place, server) = stage();
    let rule = "[[rules]]\nname = \"ask\"\ntool = \"calculator\"\nthen = \"ask\"\n";
    place.write("clerk.toml", &format!("name = \"clerk\"\nbuiltin = [\"calculator\"]\n\n{rule}"));
    place.write("bare.toml", "name = \"clerk\"\nsystem = \"Sell.\"\n");
    place.check(
        "agents import clerk.toml
         run 'what is 6*7?' --agent clerk --session ann
         agents import bare.toml
         approvals approve apr_1
         run hello --agent clerk --session ann",
        &expect![[r#"
            $ agents import clerk.toml
            agent clerk, version 1, in the database
            $ run 'what is 6*7?' --agent clerk --session ann
            | · calculator {"expression":"6*7"} (rule `ask`)
            | · trn_1 waits for an approval
            |   outlast approvals approve apr_1
            $ agents import bare.toml
            agent clerk, version 2, in the database
            $ approvals approve apr_1
            decided: operator approved it
            $ run hello --agent clerk --session ann
            Hello! What can I do for you?
        "#]],
    );
    // The next turn has ended, so this one has too.
    let shown = place.show(&place.output(&["sessions", "show", "ann"]));
    assert!(shown.contains("assistant 6*7 is 42."), "{shown}");
    server.kill();
}

#[test]
fn approved_call_runs_its_original_program() {
    let (place, server) = stage();
    for name in ["ours", "theirs"] {
        place.write_program(&format!("{name}.sh"), &format!("cat > /dev/null; echo '\"{name}\"'"));
        let tool =
            format!("[[tools]]\nname = \"pay\"\ndescription = \"Pays.\"\ncommand = [\"./{name}.sh\"]\n");
        let rule = "[[rules]]\nname = \"ask\"\ntool = \"pay\"\nthen = \"ask\"\n";
        place.write(&format!("{name}.toml"), &format!("name = \"clerk\"\n\n{tool}\n{rule}"));
    }
    place.check(
        "agents import ours.toml
         run 'call pay {\"to\": \"joe\"}' --agent clerk --session ann
         agents import theirs.toml
         approvals approve apr_1
         run hello --agent clerk --session ann",
        &expect![[r#"
            $ agents import ours.toml
            agent clerk, version 1, in the database
            $ run 'call pay {"to": "joe"}' --agent clerk --session ann
            | · pay {"to":"joe"} (rule `ask`)
            | · trn_1 waits for an approval
            |   outlast approvals approve apr_1
            $ agents import theirs.toml
            agent clerk, version 2, in the database
            $ approvals approve apr_1
            decided: operator approved it
            $ run hello --agent clerk --session ann
            Hello! What can I do for you?
        "#]],
    );
    // The next turn has ended, so this one has too.
    let shown = place.show(&place.output(&["sessions", "show", "ann"]));
    assert!(shown.contains("ours") && !shown.contains("theirs"), "{shown}");
    let diff = place.show(&beside(&place, &["agents", "diff", "clerk@1", "clerk"]));
    assert_eq!(diff, "  contracts.pay: it has another program or address\n");
    server.kill();
}

#[test]
fn import_by_another_process_applies_without_restart() {
    let (place, server) = stage();
    keep_beside(&place, "clerk", "system = \"Sell.\"");
    assert_eq!(prompt_of(&place, "clerk"), "Sell.");
    keep_beside(&place, "clerk", "model = \"nobody/x\"");
    keep_beside(&place, "judge", "system = \"Judge.\"");
    // When the later agent answers, both were loaded.
    assert_eq!(
        (prompt_of(&place, "judge"), prompt_of(&place, "clerk")),
        ("Judge.".to_owned(), "Sell.".to_owned())
    );
    server.kill();
    // A new process has no previous version to fall back to.
    let started = beside(&place, &["run", "hello", "--session", "ann", "--agent", "judge"]);
    expect![[r#"
        Hello! What can I do for you?
        | · the agent `clerk` is skipped: model.unknown: no provider serves the model `nobody/x`
    "#]]
    .assert_eq(&place.show(&started));
    let doctor = String::from_utf8(beside(&place, &["doctor"]).stdout).unwrap();
    let wrong: Vec<&str> = doctor.lines().filter(|line| line.starts_with("wrong ")).collect();
    expect!["wrong the agent clerk (database, version 2) cannot be built: model.unknown: no provider serves the model `nobody/x`: a running server keeps the previous version; fix this one"].assert_eq(&wrong.join("\n"));
}

#[test]
fn unreadable_harness_stops_only_its_own_agents() {
    let (place, server) = stage();
    place
        .write("shop.toml", "[harnesses.base]\nsystem = \"Be kind.\"\n\n[agents.clerk]\nparent = \"base\"\n");
    place.write("base.toml", "[harnesses.base]\nsystem = \"Be quick.\"\n");
    place.check(
        "agents import shop.toml",
        &expect![[r#"
            $ agents import shop.toml
            harness base, version 1, in the database
            agent clerk, version 1, in the database
        "#]],
    );
    // A version that a newer program would write.
    let newer =
        "INSERT INTO configs SELECT org, kind, name, 2, zeroblob(32), '{\"tomorrow\": 1}', at FROM configs
                 WHERE kind = 'harness'";
    rusqlite::Connection::open(place.data()).unwrap().execute(newer, []).unwrap();
    keep_beside(&place, "judge", "system = \"Judge.\"");
    // When the later agent answers, both were loaded.
    assert_eq!(
        (prompt_of(&place, "judge"), prompt_of(&place, "clerk")),
        ("Judge.".to_owned(), "Be kind.".to_owned())
    );
    place.check(
        "agents import base.toml",
        &expect![[r#"
            $ agents import base.toml
            harness base, version 3, in the database
        "#]],
    );
    assert_eq!(prompt_of(&place, "clerk"), "Be quick.");
    server.kill();
}

/// Asks for approval of a call, changes the agent's tools, approves the call, and returns the result.
fn with_other_means(tool: &str, call: &str, [ours, theirs]: [&str; 2]) -> String {
    let (place, server) = stage();
    for dir in ["ours", "theirs"] {
        std::fs::create_dir(place.path().join(dir)).unwrap();
        place.write(&format!("{dir}/note.txt"), &format!("from {dir}"));
    }
    let rule = format!("[[rules]]\nname = \"ask\"\ntool = \"{tool}\"\nthen = \"ask\"\n");
    for (file, means) in [("ours.toml", ours), ("theirs.toml", theirs)] {
        place.write(file, &format!("name = \"clerk\"\n{means}\n{rule}"));
    }
    let does = |args: &[&str]| {
        let output = place.output(args);
        assert!(output.status.success(), "{}", place.show(&output));
    };
    does(&["agents", "import", "ours.toml"]);
    does(&["run", &format!("call {tool} {call}"), "--agent", "clerk", "--session", "ann"]);
    does(&["agents", "import", "theirs.toml"]);
    let approvals = place.output(&["--json", "approvals", "list"]).stdout;
    let approval: Value = serde_json::from_slice(&approvals).unwrap();
    does(&["approvals", "approve", approval["id"].as_str().unwrap()]);
    // When the next turn has ended, this one has too.
    does(&["run", "hello", "--agent", "clerk", "--session", "ann"]);
    let diff = place.show(&beside(&place, &["agents", "diff", "clerk@1", "clerk"]));
    assert!(diff.contains(&format!("  contracts.{tool}: it has another program or address\n")), "{diff}");
    let shown = place.show(&place.output(&["sessions", "show", "ann"]));
    server.kill();
    shown
}

#[test]
fn approved_call_reads_its_original_files() {
    let means = ["files = \"ours\"", "files = \"theirs\""];
    let shown = with_other_means("file_read", "{\"path\": \"note.txt\"}", means);
    assert!(shown.contains("from ours") && !shown.contains("from theirs"), "{shown}");
}

#[test]
fn approved_command_runs_in_its_original_sandbox() {
    let means = ["files = \"ours\"\n[shell]", "files = \"theirs\"\n[shell]"];
    let shown = with_other_means("shell", "{\"command\": \"cat note.txt\"}", means);
    assert!(shown.contains("from ours") && !shown.contains("from theirs"), "{shown}");
}

#[test]
fn approved_fetch_uses_its_original_network_rules() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let page = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let read = stream.read(&mut [0; 4_096]).unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 9\r\n\r\n";
        stream.write_all(format!("{head}from ours").as_bytes()).unwrap();
        read
    });
    let private = format!("[fetch]\nprivate = [\"{address}\"]");
    let shown =
        with_other_means("fetch", &format!("{{\"url\": \"http://{address}/\"}}"), [&private, "[fetch]"]);
    assert!(shown.contains("from ours"), "{shown}");
    assert!(page.join().unwrap() > 0);
}

#[test]
fn configs_in_use_cannot_be_deleted() {
    let (place, server) = stage();
    let alone = Place::new();
    let want = expect![[r#"
        $ agents import shop.toml
        harness base, version 1, in the database
        agent clerk, version 1, in the database
        $ agents delete base --kind harness
        | error[config.invalid]: the agent `clerk` could no longer be built: agent clerk inherits from the harness `base`, which does not exist; there are: none
        |   read on with: outlast explain config.invalid
        exit 1
        $ agents delete clerk
        agent clerk is deleted; its versions are kept
        $ agents delete clerk
        | error[agent.not_found]: no agent in the database is called `clerk`
        |   read on with: outlast explain agent.not_found
        exit 1
        $ agents delete base --kind harness
        harness base is deleted; its versions are kept
        $ agents history clerk
        VERSION  SINCE                 FINGERPRINT
        2        TIME  deleted
        1        TIME  01e45501ea75abbbbe121672a0a74d4b39b4a65aca0200de1849ed8e9b6ce1ee
        $ agents delete clerk --kind cook
        | error: invalid value 'cook' for '--kind <KIND>': input.invalid: expected agent, harness or capability, got `cook`
        | 
        | For more information, try '--help'.
        exit 2
    "#]];
    for place in [&place, &alone] {
        place.write(
            "shop.toml",
            "[harnesses.base]\nsystem = \"Be kind.\"\n\n[agents.clerk]\nparent = \"base\"\nsystem = \"Sell.\"\n",
        );
        place.check(
            "agents import shop.toml
             agents delete base --kind harness
             agents delete clerk
             agents delete clerk
             agents delete base --kind harness
             agents history clerk
             agents delete clerk --kind cook",
            &want,
        );
    }
    server.kill();
}

#[test]
fn unknown_config_key_is_rejected_on_put() {
    let (_place, server) = stage();
    let put = |what: &str, body: &str| {
        let answer = server.put(&format!("/v1/configs/{what}"), body);
        answer["detail"].as_str().unwrap_or_default().to_owned()
    };
    let unknown = put("harness/house", r#"{"gaurd": "strict"}"#);
    assert!(unknown.starts_with("harness house: unknown field `gaurd`"), "{unknown}");
    let unknown = put("capability/mail", r#"{"filez": "."}"#);
    assert!(unknown.starts_with("capability mail: unknown field `filez`"), "{unknown}");
    let named = put("agent/clerk", r#"{"name": "other"}"#);
    assert_eq!(
        named,
        "the configuration is already saved under the name `clerk`; remove `name` from its body"
    );
    assert_eq!(put("harness/house", r#"{"guard": "strict", "parent": "later"}"#), "");
    server.kill();
}
