//! Tests of `outlast sessions export` and `import`, `outlast replay`, `outlast rerun`.
use crate::place::Place;
use expect_test::expect;

const AGENT: &str = r#"
name = "clerk"
system = "Be brief.\nCount well."
builtin = ["calculator"]
"#;

/// Creates two exported sessions: one with a call, and one with only text.
fn recorded() -> Place {
    let place = Place::with_script(
        "turn\nsay I will see.\ncall calculator {\"expression\": \"6*7\"}\n---\nsay It is 42.\nturn\nsay Bye.",
    );
    place.write("clerk.toml", AGENT);
    for (text, session) in [("six times seven?", "ann"), ("thanks", "ann"), ("hello", "bob")] {
        let run = ["run", text, "--session", session, "--agent", "clerk.toml", "--script", "script.txt"];
        assert!(place.output(&run).status.success());
    }
    for session in ["ann", "bob"] {
        let file = format!("{session}.jsonl");
        assert!(place.output(&["sessions", "export", session, "-o", &file]).status.success());
    }
    place
}

#[test]
fn signed_import_is_retryable() {
    let place = Place::with_script("error model.rejected no");
    assert!(!place.output(&["run", "go", "--session", "z", "--script", "script.txt"]).status.success());
    assert!(place.output(&["sessions", "export", "z", "-o", "z.jsonl"]).status.success());
    assert!(place.output(&["sessions", "delete", "z", "--yes"]).status.success());
    assert!(place.output(&["sessions", "import", "z.jsonl"]).status.success());
    let file = std::fs::read_to_string(place.path().join("z.jsonl")).unwrap();
    let turn = &file[file.find("trn_").unwrap()..][..36];
    let retried = place.show(&place.output(&["retry", turn, "--script", "script.txt"]));
    assert!(retried.contains("is retried as"), "{retried}");
}

#[test]
fn exports_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let place = recorded();
    // The leftover of an earlier export does not change the permissions of the new file.
    place.write("again.jsonl.partial", "");
    assert!(place.output(&["sessions", "export", "ann", "-o", "again.jsonl"]).status.success());
    for file in ["ann.jsonl", "again.jsonl"] {
        let mode = std::fs::metadata(place.path().join(file)).unwrap().permissions().mode();
        assert_eq!((file, mode & 0o777), (file, 0o600));
    }
}

#[test]
fn export_does_not_follow_a_planted_link() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let place = recorded();
    let at = |name: &str| place.path().join(name);
    place.write("victim.txt", "mine");
    std::fs::set_permissions(at("victim.txt"), std::fs::Permissions::from_mode(0o644)).unwrap();
    symlink("victim.txt", at("new.jsonl.partial")).unwrap();
    let exported = place.output(&["sessions", "export", "ann", "-o", "new.jsonl"]);
    assert!(exported.status.success(), "{}", place.show(&exported));
    let victim = std::fs::metadata(at("victim.txt")).unwrap();
    assert_eq!(victim.permissions().mode() & 0o777, 0o644);
    assert_eq!(std::fs::read_to_string(at("victim.txt")).unwrap(), "mine");
    let file = std::fs::symlink_metadata(at("new.jsonl")).unwrap();
    assert!(file.is_file() && file.len() > 0);
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
}

#[test]
fn session_moves_between_databases_as_one_file() {
    recorded().check(
        "sessions export ann -o ann.jsonl
         --data other.db sessions import ann.jsonl
         --data other.db sessions show ann
         --data other.db verify
         --data other.db sessions import ann.jsonl
         --data other.db sessions import bob.jsonl --as ann
         --data other.db sessions import bob.jsonl --as bert
         --data other.db sessions import clerk.toml
         --data other.db audit",
        &expect![[r#"
            $ sessions export ann -o ann.jsonl
            | error[io.failed]: ann.jsonl exists already; name another file or remove it
            |   read on with: outlast explain io.failed
            exit 1
            $ --data other.db sessions import ann.jsonl
            ses_1
            | · 2 turns, 12 records
            $ --data other.db sessions show ann
            ses_1 `ann` idle, 2 turns, updated TIME
            head main at #11 of ses_1
            trn_1 answered
            #2    user six times seven?
            #4    assistant I will see.
                  [calculator {"expression":"6*7"}]
            #6    calculator 42
            #7    assistant It is 42.
            trn_2 answered
            #9    user thanks
            #11   assistant Bye.
            $ --data other.db verify
            ses_1 intact: 12 records
            | · 1 session, 0 damaged
            $ --data other.db sessions import ann.jsonl
            | error[archive.exists]: the session ses_1 already exists
            |   read on with: outlast explain archive.exists
            exit 1
            $ --data other.db sessions import bob.jsonl --as ann
            | error[input.key_reused]: a session has the key `ann` already; import this one under another (`--as`)
            |   read on with: outlast explain input.key_reused
            exit 1
            $ --data other.db sessions import bob.jsonl --as bert
            ses_2
            | · 1 turn, 8 records
            $ --data other.db sessions import clerk.toml
            | error[archive.invalid]: line 1: it does not start with a checksum, as every line of an archive does
            |   read on with: outlast explain archive.invalid
            exit 1
            $ --data other.db audit
            1 TIME person:operator session.import ses_1 12 records from a file
            2 TIME person:operator session.import ses_2 8 records from a file
        "#]],
    );
}

#[test]
fn replay_names_the_effect_where_an_edit_diverges() {
    let place = recorded();
    place.write("kind.toml", &AGENT.replace("Be brief.", "Be kind."));
    place.write("other_tools.toml", &AGENT.replace("[\"calculator\"]", "[\"calculator\", \"clock\"]"));
    let rules =
        "[[rules]]\nname = \"no-sums\"\ntool = \"calculator\"\nthen = \"deny\"\nreason = \"no sums\"\n";
    place.write("strict.toml", &format!("{AGENT}\n{rules}"));
    place.check(
        "replay ann.jsonl bob.jsonl
         replay ann.jsonl --agent clerk.toml --script script.txt
         replay ann.jsonl --agent kind.toml --script script.txt
         replay ann.jsonl --agent other_tools.toml --script script.txt
         replay ann.jsonl --agent strict.toml --script script.txt
         replay ann.jsonl --agent clerk.toml --model rehearsal/agent --json
         replay clerk.toml",
        &expect![[r#"
            $ replay ann.jsonl bob.jsonl
            ann.jsonl ses_1
            turn 0 same 3 effects, answered
            turn 1 same 1 effects, answered
            bob.jsonl ses_2
            turn 0 same 3 effects, answered
            $ replay ann.jsonl --agent clerk.toml --script script.txt
            ann.jsonl ses_1
            turn 0 same 3 effects, answered
            turn 1 same 1 effects, answered
            $ replay ann.jsonl --agent kind.toml --script script.txt
            ann.jsonl ses_1
            turn 0 diverges at turn/0/model/0: recorded a model_call, asked a different model_call
              prompt, line 1: recorded `Be brief.`, asked `Be kind.`
            turn 1 diverges at turn/1/model/0: recorded a model_call, asked a different model_call
              prompt, line 1: recorded `Be brief.`, asked `Be kind.`
            | error[replay.diverged]: effect turn/0/model/0 was recorded as a model_call, but this run asks for a different model_call
            |   read on with: outlast explain replay.diverged
            exit 1
            $ replay ann.jsonl --agent other_tools.toml --script script.txt
            ann.jsonl ses_1
            turn 0 diverges at turn/0/model/0: recorded a model_call, asked a different model_call
              tool clock: here, but not recorded
            turn 1 diverges at turn/1/model/0: recorded a model_call, asked a different model_call
              tool clock: here, but not recorded
            | error[replay.diverged]: effect turn/0/model/0 was recorded as a model_call, but this run asks for a different model_call
            |   read on with: outlast explain replay.diverged
            exit 1
            $ replay ann.jsonl --agent strict.toml --script script.txt
            ann.jsonl ses_1
            turn 0 diverges at turn/0/tools/0: recorded a tool_batch, asked one with a different policy decision
              recorded: `calculator` runs
              now: `calculator` is ruled {"deny":{"reason":"no sums"}}
            turn 1 same 1 effects, answered
            | error[replay.diverged]: effect turn/0/tools/0 was recorded as a tool_batch, but this run asks for one with a different policy decision
            |   read on with: outlast explain replay.diverged
            exit 1
            $ replay ann.jsonl --agent clerk.toml --model rehearsal/agent --json
            {"file":"ann.jsonl","same":false,"session":"ses_1","turns":[{"turn":"trn_1","index":0,"effects":3,"end":"answered","divergence":{"effect":"turn/0/model/0","recorded":"a model_call","asked":"a different model_call","differences":["model: recorded rehearsal/script-b23bc118, asked rehearsal/agent"]}},{"turn":"trn_2","index":1,"effects":1,"end":"answered","divergence":{"effect":"turn/1/model/0","recorded":"a model_call","asked":"a different model_call","differences":["model: recorded rehearsal/script-b23bc118, asked rehearsal/agent"]}}]}
            | error[replay.diverged]: effect turn/0/model/0 was recorded as a model_call, but this run asks for a different model_call
            |   read on with: outlast explain replay.diverged
            exit 1
            $ replay clerk.toml
            | error[archive.invalid]: clerk.toml: line 1: it does not start with a checksum, as every line of an archive does
            |   read on with: outlast explain archive.invalid
            exit 1
        "#]],
    );
}

#[test]
fn rerun_shows_differences_of_prompt_and_model() {
    let place = recorded();
    place.write(
        "other.txt",
        "turn\ncall calculator {\"expression\": \"6*7\"}\ncall calculator {\"expression\": \"7*6\"}\n---\nsay 42\nturn\nsay Bye.",
    );
    place.check(
        "rerun ann --agent clerk.toml --script script.txt --prompt 'Be kind.'
         rerun ann.jsonl bob.jsonl --agent clerk.toml --script other.txt
         rerun bob --agent clerk.toml --script other.txt --json
         rerun ann --from 9
         rerun ann --from there
         sessions list",
        &expect![[r#"
            $ rerun ann --agent clerk.toml --script script.txt --prompt 'Be kind.'
            ann ses_1
            turn 0 same six times seven?
              = calculator {"expression":"6*7"} → "42"
              = answered: It is 42.
            turn 1 same thanks
              = answered: Bye.
            1 calls answered from the recording, 0 made
            cost $0 then, $0 now
            $ rerun ann.jsonl bob.jsonl --agent clerk.toml --script other.txt
            ann.jsonl ses_1
            turn 0 differs six times seven?
              = calculator {"expression":"6*7"} → "42"
              - no call
              + calculator {"expression":"7*6"} → "42"
              - answered: It is 42.
              + answered: 42
            turn 1 same thanks
              = answered: Bye.
            1 calls answered from the recording, 1 made
            cost $0 then, $0 now
            bob.jsonl ses_2
            turn 0 differs hello
              = calculator {"expression":"6*7"} → "42"
              - no call
              + calculator {"expression":"7*6"} → "42"
              - answered: It is 42.
              + answered: 42
            1 calls answered from the recording, 1 made
            cost $0 then, $0 now
            SESSION    TURNS  DIFFER  REUSED  MADE  NOT MADE  COST THEN  NOW
            ann.jsonl  2      1       1       1     0         $0         $0
            bob.jsonl  1      1       1       1     0         $0         $0
            $ rerun bob --agent clerk.toml --script other.txt --json
            {"of":"bob","changed":1,"session":"ses_2","turns":[{"index":0,"input":"hello","recorded":{"model":"rehearsal/script-b23bc118","end":"answered","answer":"It is 42.","calls":[{"tool":"calculator","arguments":{"expression":"6*7"},"result":"42"}],"replies":2,"usage":{"input":57,"output":14},"cost":"0"},"rerun":{"model":"rehearsal/script-faee39ab","end":"answered","answer":"42","calls":[{"tool":"calculator","arguments":{"expression":"6*7"},"result":"42"},{"tool":"calculator","arguments":{"expression":"7*6"},"result":"42"}],"replies":2,"usage":{"input":71,"output":17},"cost":"0"}}],"recorded_cost":"0","rerun_cost":"0","reused":1,"ran":1,"not_made":[]}
            $ rerun ann --from 9
            | error[turn.not_found]: ann: the recording has no turn 9 that started
            |   read on with: outlast explain turn.not_found
            exit 1
            $ rerun ann --from there
            | error: invalid value 'there' for '--from <TURN|EFFECT>': input.invalid: expected a turn (`2` or `trn_…`) or an effect (`turn/2/…`), got `there`
            | 
            | For more information, try '--help'.
            exit 2
            $ sessions list
            SESSION                               KEY  STATE  TURNS  UPDATED               TITLE
            ses_2  bob  idle   1      TIME  hello
            ses_1  ann  idle   2      TIME  six times seven?
        "#]],
    );
}
