//! Tests of bad input: each error has a code, and nothing is partially written.
use crate::place::Place;
use expect_test::expect;
use rusqlite::Connection;

#[test]
fn id_of_wrong_kind_names_both_kinds() {
    let place = Place::new();
    place.output(&["run", "hi"]);
    place.check(
        "run hi --session trn_00000000000000000000000000000007
         sessions show trn_00000000000000000000000000000007
         cancel ses_00000000000000000000000000000007
         unknown settle trn_00000000000000000000000000000007 --did-not-happen
         resolve trn_00000000000000000000000000000007 --timeout",
        &expect![[r#"
            $ run hi --session trn_00000000000000000000000000000007
            | error[id.invalid]: expected a session id (`ses_` and 32 hex digits), got the turn id `trn_1`
            |   read on with: outlast explain id.invalid
            exit 1
            $ sessions show trn_00000000000000000000000000000007
            | error[id.invalid]: expected a session id (`ses_` and 32 hex digits), got the turn id `trn_1`
            |   read on with: outlast explain id.invalid
            exit 1
            $ cancel ses_00000000000000000000000000000007
            | error[id.invalid]: expected a turn id (`trn_` and 32 hex digits), got the session id `ses_1`
            |   read on with: outlast explain id.invalid
            exit 1
            $ unknown settle trn_00000000000000000000000000000007 --did-not-happen
            | error[id.invalid]: expected a call id (`cal_` and 32 hex digits), got the turn id `trn_1`
            |   read on with: outlast explain id.invalid
            exit 1
            $ resolve trn_00000000000000000000000000000007 --timeout
            | error[wait.not_found]: no wait has this completion key
            |   read on with: outlast explain wait.not_found
            exit 1
        "#]],
    );
}

#[test]
fn unknown_ids_and_keys_are_not_found() {
    let place = Place::new();
    place.output(&["run", "hi"]);
    place.check(
        "run hi --session ses_00000000000000000000000000000007
         sessions show nobody
         events ses_00000000000000000000000000000007
         cancel trn_00000000000000000000000000000007
         retry trn_00000000000000000000000000000007
         unknown settle cal_00000000000000000000000000000007 --did-not-happen",
        &expect![[r#"
            $ run hi --session ses_00000000000000000000000000000007
            | error[session.not_found]: no session has the id ses_1
            |   read on with: outlast explain session.not_found
            exit 1
            $ sessions show nobody
            | error[session.not_found]: no session has the key `nobody`
            |   read on with: outlast explain session.not_found
            exit 1
            $ events ses_00000000000000000000000000000007
            | error[session.not_found]: no session has the id ses_1
            |   read on with: outlast explain session.not_found
            exit 1
            $ cancel trn_00000000000000000000000000000007
            | error[turn.not_found]: no turn has the id trn_1
            |   read on with: outlast explain turn.not_found
            exit 1
            $ retry trn_00000000000000000000000000000007
            | error[turn.not_found]: no turn has the id trn_1
            |   read on with: outlast explain turn.not_found
            exit 1
            $ unknown settle cal_00000000000000000000000000000007 --did-not-happen
            | error[claim.not_found]: no call with the id cal_1 has an unknown outcome; `outlast unknown` lists them
            |   read on with: outlast explain claim.not_found
            exit 1
        "#]],
    );
}

#[test]
fn script_that_calls_missing_tools_fails_the_turn() {
    let place = Place::with_script("turn\ncall rocket {}\nturn\ncall clock {}");
    place.check(
        "run go --session ann --script script.txt
         run go --session ann --script script.txt
         run go --session ann --script script.txt",
        &expect![[r#"
            $ run go --session ann --script script.txt
            | error[script.mismatch]: line 2 calls `rocket`, but the session has only: ask_user, calculator, clock, file_edit, file_grep, file_list, file_read, file_write, read_more, todo, value_get, value_list, value_set (in trn_1)
            |   read on with: outlast explain script.mismatch
            exit 1
            $ run go --session ann --script script.txt
            | · clock {}
            | · clock → TIME
            | error[script.mismatch]: line 3 has 1 replies to `go`, but the session asks for reply 2 (in trn_2)
            |   read on with: outlast explain script.mismatch
            exit 1
            $ run go --session ann --script script.txt
            | error[script.mismatch]: input 3 (`go`) has no section: there are 2 `turn` and no `any` (in trn_3)
            |   read on with: outlast explain script.mismatch
            exit 1
        "#]],
    );
}

#[test]
fn invalid_tool_arguments_are_reported_to_the_model() {
    let place =
        Place::with_script("call calculator {\"expression\": 7}\n---\nsay Told: {{result calculator}}");
    place.check("run go --session ann --script script.txt", &expect![[r#"
        $ run go --session ann --script script.txt
        Told: error tool.args_invalid: the arguments do not fit the schema; at /expression: 7 is not of type "string"
        | · calculator refused: tool.args_invalid: the arguments do not fit the schema; at /expression: 7 is not of type "string"
    "#]]);
}

#[test]
fn unreadable_script_is_rejected_before_any_write() {
    let place = Place::with_script("sing a song");
    place.check(
        "run go --script script.txt
         run go --script nowhere.txt",
        &expect![[r#"
            $ run go --script script.txt
            | error[script.invalid]: script.txt: line 1: expected window, turn, when, any, ---, say, think, call, broken, delay, error, cut, stall, refuse or length, found `sing`
            |   read on with: outlast explain script.invalid
            exit 1
            $ run go --script nowhere.txt
            | error[io.failed]: the script nowhere.txt cannot be read: No such file or directory (os error 2)
            |   read on with: outlast explain io.failed
            exit 1
        "#]],
    );
    assert!(!place.data().exists());
}

#[test]
fn unserved_model_is_rejected_at_start() {
    Place::new().check(
        "run go --model other/large",
        &expect![[r#"
            $ run go --model other/large
            | error[model.unknown]: no provider serves the model `other/large`
            |   read on with: outlast explain model.unknown
            exit 1
        "#]],
    );
}

#[test]
fn empty_and_oversized_inputs_are_rejected() {
    let place = Place::new();
    expect![[r#"
        | error[input.invalid]: an input must not be empty
        |   read on with: outlast explain input.invalid
        exit 1
    "#]]
    .assert_eq(&place.show(&place.output(&["run", ""])));
    let oversized = vec![b'a'; (1 << 20) + 1];
    expect![[r#"
        | error[limit.exceeded]: input_bytes is limited to 1048576, but this needs 1048577
        |   read on with: outlast explain limit.exceeded
        exit 1
    "#]]
    .assert_eq(&place.show(&place.fed(&["run", "-"], &oversized)));
    expect![[r#"
        | error[limit.exceeded]: key_bytes is limited to 256, but this needs 257
        |   read on with: outlast explain limit.exceeded
        exit 1
    "#]]
    .assert_eq(&place.show(&place.output(&["run", "hi", "--key", &"k".repeat(257)])));
    place.check(
        "sessions list",
        &expect![[r#"
            $ sessions list
            | · there are no sessions
        "#]],
    );
}

#[test]
fn invalid_utf8_input_creates_no_database() {
    let place = Place::new();
    expect![[r#"
        | error[input.invalid]: expected UTF-8 on standard input, but byte 3 is invalid
        |   read on with: outlast explain input.invalid
        exit 1
    "#]]
    .assert_eq(&place.show(&place.fed(&["run", "-"], b"caf\xe9 please")));
    assert!(!place.data().exists());
}

#[test]
fn read_only_commands_create_no_database() {
    let place = Place::new();
    place.check(
        "sessions list
         sessions show ann
         events ann
         unknown
         verify
         work
         retry trn_00000000000000000000000000000007",
        &expect![[r#"
            $ sessions list
            | error[io.failed]: there is no database at ./outlast.db; `outlast run` creates one, `--data FILE` selects another
            |   read on with: outlast explain io.failed
            exit 1
            $ sessions show ann
            | error[io.failed]: there is no database at ./outlast.db; `outlast run` creates one, `--data FILE` selects another
            |   read on with: outlast explain io.failed
            exit 1
            $ events ann
            | error[io.failed]: there is no database at ./outlast.db; `outlast run` creates one, `--data FILE` selects another
            |   read on with: outlast explain io.failed
            exit 1
            $ unknown
            | error[io.failed]: there is no database at ./outlast.db; `outlast run` creates one, `--data FILE` selects another
            |   read on with: outlast explain io.failed
            exit 1
            $ verify
            | error[io.failed]: there is no database at ./outlast.db; `outlast run` creates one, `--data FILE` selects another
            |   read on with: outlast explain io.failed
            exit 1
            $ work
            | error[io.failed]: there is no database at ./outlast.db; `outlast run` creates one, `--data FILE` selects another
            |   read on with: outlast explain io.failed
            exit 1
            $ retry trn_00000000000000000000000000000007
            | error[io.failed]: there is no database at ./outlast.db; `outlast run` creates one, `--data FILE` selects another
            |   read on with: outlast explain io.failed
            exit 1
        "#]],
    );
    assert_eq!(place.output(&["doctor"]).status.code(), Some(1));
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn newer_schema_is_rejected_without_changes() {
    let place = Place::new();
    place.output(&["run", "hi"]);
    Connection::open(place.data()).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let before = std::fs::read(place.data()).unwrap();
    place.check(
        "run hi
         sessions list",
        &expect![[r#"
            $ run hi
            | error[store.too_new]: DIR/outlast.db has schema 99, but this program knows up to 9; nothing was written
            |   read on with: outlast explain store.too_new
            exit 1
            $ sessions list
            | error[store.too_new]: DIR/outlast.db has schema 99, but this program knows up to 9; nothing was written
            |   read on with: outlast explain store.too_new
            exit 1
        "#]],
    );
    assert_eq!(std::fs::read(place.data()).unwrap(), before);
}

#[test]
fn non_database_file_is_rejected_without_changes() {
    let place = Place::new();
    let notes = b"these are my notes, not a database. ".repeat(100);
    std::fs::write(place.data(), &notes).unwrap();
    place.check(
        "run hi
         verify",
        &expect![[r#"
            $ run hi
            | error[store.corrupt]: DIR/outlast.db: the file is no SQLite database: file is not a database
            |   read on with: outlast explain store.corrupt
            exit 1
            $ verify
            | error[store.corrupt]: DIR/outlast.db: the file is no SQLite database: file is not a database
            |   read on with: outlast explain store.corrupt
            exit 1
        "#]],
    );
    assert_eq!(std::fs::read(place.data()).unwrap(), notes);
}

#[cfg(target_os = "linux")]
#[test]
fn unwritable_database_path_is_reported_as_read_only() {
    // No user can create files there, not even root.
    Place::new().check("--data /sys/outlast.db run hi", &expect![[r#"
        $ --data /sys/outlast.db run hi
        | error[store.read_only]: /sys/outlast.db cannot be opened: unable to open database file: /sys/outlast.db
        |   read on with: outlast explain store.read_only
        exit 1
    "#]]);
}

#[test]
fn missing_directory_is_named_in_the_error() {
    Place::new().check(
        "--data nowhere/outlast.db run hi
         run hi --files nowhere",
        &expect![[r#"
            $ --data nowhere/outlast.db run hi
            | error[io.failed]: DIR/nowhere/outlast.db cannot be opened: DIR/nowhere is not a directory
            |   read on with: outlast explain io.failed
            exit 1
            $ run hi --files nowhere
            | error[io.failed]: the directory nowhere for files cannot be used: No such file or directory (os error 2)
            |   read on with: outlast explain io.failed
            exit 1
        "#]],
    );
}

#[test]
fn wrong_flags_are_a_usage_error() {
    let place = Place::new();
    for args in [&["fly"][..], &["run"], &["resolve", "cpl_1"], &["resolve", "k", "--timeout", "--cancelled"]]
    {
        assert_eq!(place.output(args).status.code(), Some(2), "{args:?}");
    }
}
