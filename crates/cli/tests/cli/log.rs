//! Tests of the log on standard error.
use crate::place::Place;
use serde_json::Value;

#[test]
fn json_log_has_ids_but_no_content() {
    let place = Place::with_script("any\nsay All is well, canary-answer.");
    place.set("OPENAI_API_KEY", "canary-key");
    let args = ["run", "hello canary-input", "--session", "ann", "--script", "script.txt", "--log", "json"];
    let output = place.output(&[args.as_slice(), &["--log-level", "trace"]].concat());
    assert!(output.status.success());
    let log = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let ended = lines.iter().find(|line| line["message"] == "the turn ended").unwrap();
    assert_eq!((&ended["level"], &ended["outcome"]), (&"INFO".into(), &"answered".into()));
    assert!(ended["span"]["turn"].as_str().unwrap().starts_with("trn_"));
    assert!(ended["span"]["session"].as_str().unwrap().starts_with("ses_"));
    let accepted = lines.iter().find(|line| line["message"] == "an input was accepted").unwrap();
    assert_eq!(accepted["turn"], ended["span"]["turn"]);
    assert!(!log.contains("canary"), "{log}");
}

#[test]
fn logging_is_off_by_default() {
    let place = Place::with_script("any\nsay All is well.");
    let quiet = place.output(&["run", "hello", "--session", "ann", "--script", "script.txt"]);
    assert_eq!(quiet.stderr, b"");
    place.set("OUTLAST_LOG", "text");
    let output = place.output(&["run", "hello", "--session", "ann", "--script", "script.txt"]);
    let output = String::from_utf8(output.stderr).unwrap();
    assert!(output.contains("the turn ended") && !output.contains('\u{1b}'), "{output}");
}
