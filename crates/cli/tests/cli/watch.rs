//! Tests of `outlast watch`, on a terminal and as lines.
use crate::inbox::Screen;
use crate::place::Place;
use crate::serve::Server;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const SCRIPT: &str = "\
    when slowly\nsay one two three\ndelay 3s\nsay four five
    when asks\nsay I wonder.\ncall ask_user {\"question\": \"which one?\"}\n---\nsay So be it.
    any\nsay Reply to {{input}}.";

const WITH_SCRIPT: [&str; 2] = ["--script", "script.txt"];

fn run(place: &Place, server: &str, text: &str, session: &str) {
    let output = place.output(&["--server", server, "run", text, "--session", session]);
    assert!(output.status.success(), "{}", place.show(&output));
}

#[test]
fn watch_streams_session_text_on_a_terminal() {
    let place = Place::with_script(SCRIPT);
    let server = Server::run(&place, "127.0.0.1:0", &WITH_SCRIPT);
    let address = format!("http://{}", server.address);
    run(&place, &address, "asks", "ann");
    let mut screen = Screen::open(&place, &["--server", &address, "watch"]);
    let shown = screen.until("LAST MESSAGE");
    assert!(shown.contains("1 session"), "{shown}");
    let args = ["--server", &address, "run", "slowly", "--session", "bob"];
    let mut slow = place.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let shown = screen.until("2 sessions");
    assert!(shown.contains("parked") && shown.contains("I wonder."), "{shown}");
    // The running session comes first.
    screen.until("running");
    screen.press("k\r");
    let shown = screen.until("one two three");
    assert!(shown.contains("you> slowly") && !shown.contains("four five"), "{shown}");
    screen.until("four five");
    screen.until("turn.ended answered");
    screen.press("\u{1b}");
    screen.until("LAST MESSAGE");
    screen.leave();
    slow.wait().unwrap();
    server.kill();
}

#[test]
fn watch_prints_changes_as_lines_without_a_terminal() {
    let place = Place::with_script(SCRIPT);
    let server = Server::run(&place, "127.0.0.1:0", &WITH_SCRIPT);
    let address = format!("http://{}", server.address);
    run(&place, &address, "asks", "ann");
    for how in [&["watch", "--json"][..], &["--server", &address, "watch", "--json"]] {
        let mut child = place.command(how).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
        let first = next();
        assert_eq!((&first["key"], &first["state"]), (&Value::from("ann"), &Value::from("parked")));
        run(&place, &address, "hello", "bob");
        let line = loop {
            let line = next();
            if line["key"] == "bob" && line["state"] == "idle" && line["words"] != "hello" {
                break line;
            }
        };
        assert_eq!(line["words"], "Reply to hello.");
        assert_eq!(line["agent"], "assistant");
        assert!(line["tokens"].as_u64().unwrap() > 0);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    server.kill();
}

#[test]
fn watch_once_prints_the_same_over_a_server() {
    let place = Place::with_script(SCRIPT);
    let server = Server::run(&place, "127.0.0.1:0", &WITH_SCRIPT);
    let address = format!("http://{}", server.address);
    run(&place, &address, "asks", "ann");
    run(&place, &address, "hello", "bob");
    for flags in [&["--once"][..], &["--once", "--json"]] {
        let file = place.show(&place.output(&[&["watch"], flags].concat()));
        let there = place.show(&place.output(&[&["--server", &address, "watch"], flags].concat()));
        assert_eq!(file, there);
        assert!(file.contains("parked") && file.contains("I wonder.") && !file.contains("hello"), "{file}");
    }
    server.kill();
}
