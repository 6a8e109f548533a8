//! Tests of `outlast orgs`, `keys`, `audit`, and of `--org` with other commands.
use crate::place::Place;
use expect_test::expect;
use std::fs;

fn place() -> Place {
    let place = Place::with_script("any\nsay Reply to {{input}}.");
    place.set("USER", "ann");
    place
}

#[test]
fn organisation_can_be_created_before_any_run() {
    place().check(
        "orgs
         orgs create acme
         run hi --session me --org acme --script script.txt",
        &expect![[r#"
            $ orgs
            | error[io.failed]: there is no database at ./outlast.db; `outlast run` creates one, `--data FILE` selects another
            |   read on with: outlast explain io.failed
            exit 1
            $ orgs create acme
            org_1
            | · `--org acme` or OUTLAST_ORG selects it
            $ run hi --session me --org acme --script script.txt
            Reply to hi.
        "#]],
    );
}

#[test]
fn immediately_expiring_key_is_rejected() {
    place().check(
        "keys create ci --expires 0d",
        &expect![[r#"
            $ keys create ci --expires 0d
            | error[input.invalid]: `--expires` must be more than 0; remove it for a key that never expires
            |   read on with: outlast explain input.invalid
            exit 1
        "#]],
    );
}

#[test]
fn organisations_in_one_database_are_isolated() {
    place().check(
        "run hi --session me --script script.txt
         orgs create acme
         orgs create acme
         orgs
         run ho --session me --org acme --script script.txt
         sessions
         sessions --org acme
         events ses_2
         sessions show ses_2 --org org_1
         sessions fork ses_2
         sessions delete ses_2 --yes
         sessions --org bolt
         verify
         verify --org acme",
        &expect![[r#"
            $ run hi --session me --script script.txt
            Reply to hi.
            $ orgs create acme
            org_1
            | · `--org acme` or OUTLAST_ORG selects it
            $ orgs create acme
            | error[input.key_reused]: an organisation is called `acme` already
            |   read on with: outlast explain input.key_reused
            exit 1
            $ orgs
            NAME     ORGANISATION                          MADE
            acme     org_1  TIME
            default  org_2  with the database
            $ run ho --session me --org acme --script script.txt
            Reply to ho.
            $ sessions
            SESSION                               KEY  STATE  TURNS  UPDATED               TITLE
            ses_1  me   idle   1      TIME  hi
            $ sessions --org acme
            SESSION                               KEY  STATE  TURNS  UPDATED               TITLE
            ses_2  me   idle   1      TIME  ho
            $ events ses_2
            | error[session.not_found]: no session has the id ses_2
            |   read on with: outlast explain session.not_found
            exit 1
            $ sessions show ses_2 --org org_1
            ses_2 `me` idle, 1 turn, updated TIME
            head main at #4 of ses_2
            trn_1 answered
            #2    user ho
            #4    assistant Reply to ho.
            $ sessions fork ses_2
            | error[session.not_found]: no session has the id ses_2
            |   read on with: outlast explain session.not_found
            exit 1
            $ sessions delete ses_2 --yes
            | error[session.not_found]: no session has the id ses_2
            |   read on with: outlast explain session.not_found
            exit 1
            $ sessions --org bolt
            | error[org.not_found]: no organisation is called `bolt`
            |   read on with: outlast explain org.not_found
            exit 1
            $ verify
            ses_2 intact: 5 records
            ses_1 intact: 5 records
            | · 2 sessions, 0 damaged
            $ verify --org acme
            ses_2 intact: 5 records
            | · 1 session, 0 damaged
        "#]],
    );
}

#[test]
fn api_key_is_shown_once_and_never_stored() {
    let place = place();
    place.check(
        "run hi --script script.txt\norgs create acme",
        &expect![[r#"
        $ run hi --script script.txt
        Reply to hi.
        | · session ses_1
        $ orgs create acme
        org_1
        | · `--org acme` or OUTLAST_ORG selects it
    "#]],
    );
    let made =
        place.output(&["keys", "create", "ci", "--scope", "run", "--scope", "approve", "--org", "acme"]);
    let key = String::from_utf8(made.stdout.clone()).unwrap().trim().to_owned();
    place.check(
        "keys\nkeys --org acme",
        &expect![[r#"
        $ keys
        | · there are no API keys; `outlast keys create NAME --scope SCOPE` makes one
        $ keys --org acme
        KEY                                   FOR         MAY          MADE                  STATE
        key_1  service:ci  run,approve  TIME  for ever
    "#]],
    );
    let checked = |text: &str| place.show(&place.fed(&["keys", "check"], text.as_bytes()));
    expect![[r#"
        service:ci may run,approve in acme (org_1)
    "#]]
    .assert_eq(&checked(&key));
    let secret = &key["olk_".len() + 32..];
    let bytes: Vec<u8> =
        (0..32).map(|at| u8::from_str_radix(&secret[2 * at..2 * at + 2], 16).unwrap()).collect();
    for file in fs::read_dir(place.path()).unwrap().flatten().filter(|file| file.path().is_file()) {
        let content = fs::read(file.path()).unwrap();
        assert!(!content.windows(64).any(|part| part == secret.as_bytes()), "{:?}", file.path());
        assert!(!content.windows(32).any(|part| part == bytes), "{:?}", file.path());
    }
    place.check(
        "keys revoke key_1
         keys revoke key_1 --org acme
         keys --org acme
         audit --org acme
         audit --since 1h --after 2
         audit --limit 2
         audit --limit 2 --after 1
         audit --since soon
         keys create ci --scope write
         keys create ci --expires soon",
        &expect![[r#"
            $ keys revoke key_1
            | error[key.not_found]: no API key has the id key_1
            |   read on with: outlast explain key.not_found
            exit 1
            $ keys revoke key_1 --org acme
            key_1 of service:ci is invalid since TIME
            $ keys --org acme
            KEY                                   FOR         MAY          MADE                  STATE
            key_1  service:ci  run,approve  TIME  revoked TIME
            $ audit --org acme
            1 TIME person:ann org.create org_1 acme
            2 TIME person:ann key.create key_1 for service:ci, may run,approve
            3 TIME person:ann key.revoke key_1 of service:ci
            $ audit --since 1h --after 2
            3 TIME person:ann key.revoke key_1 of service:ci
            $ audit --limit 2
            1 TIME person:ann org.create org_1 acme
            2 TIME person:ann key.create key_1 for service:ci, may run,approve
            | · there is more; continue with `--after 2`
            $ audit --limit 2 --after 1
            2 TIME person:ann key.create key_1 for service:ci, may run,approve
            3 TIME person:ann key.revoke key_1 of service:ci
            $ audit --since soon
            | error[input.invalid]: expected how long ago (`2h`), a day (`2026-01-31`) or a time (`TIME`) after `--since`, got `soon`
            |   read on with: outlast explain input.invalid
            exit 1
            $ keys create ci --scope write
            | error: invalid value 'write' for '--scope <SCOPE>': input.invalid: expected a scope (read, run, approve, operate, admin), got `write`
            | 
            | For more information, try '--help'.
            exit 2
            $ keys create ci --expires soon
            | error[input.invalid]: expected a time span like `90d`, `12h` or `30m` after `--expires`, got `soon`
            |   read on with: outlast explain input.invalid
            exit 1
        "#]],
    );
    expect![[r#"
        | error[key.invalid]: the API key is not known, has expired or was revoked
        |   read on with: outlast explain key.invalid
        exit 1
    "#]]
    .assert_eq(&checked(&key));
    expect![[r#"
        | error[key.invalid]: the API key is not known, has expired or was revoked
        |   read on with: outlast explain key.invalid
        exit 1
    "#]]
    .assert_eq(&checked("olk_nonsense"));
}

#[test]
fn first_server_key_works_before_any_run() {
    let place = Place::new();
    let made = place.output(&["keys", "create", "ci"]);
    assert!(made.status.success(), "{}", place.show(&made));
    let checked = place.fed(&["keys", "check"], &made.stdout);
    assert!(checked.status.success(), "{}", place.show(&checked));
}

#[test]
fn terminal_actions_are_in_the_audit_log() {
    let place = place();
    place.check(
        "run one --session me --script script.txt
         run two --session me --script script.txt
         sessions fork me --at 2
         sessions rewind me --to 4
         sessions delete ses_1 --yes
         audit",
        &expect![[r#"
            $ run one --session me --script script.txt
            Reply to one.
            $ run two --session me --script script.txt
            Reply to two.
            $ sessions fork me --at 2
            ses_1
            $ sessions rewind me --to 4
            ses_2: main is now at #4
            $ sessions delete ses_1 --yes
            ses_1 deleted
            $ audit
            1 TIME person:ann session.fork ses_2 to ses_1
            2 TIME person:ann session.rewind ses_2 the head `main` to message 4
            3 TIME person:ann session.delete ses_1
        "#]],
    );
    let printed = place.output(&["audit", "--json", "--after", "2"]).stdout;
    let last: serde_json::Value = serde_json::from_slice(&printed).unwrap();
    assert_eq!((&last["by"], &last["act"]), (&"person:ann".into(), &"session.delete".into()));
}
