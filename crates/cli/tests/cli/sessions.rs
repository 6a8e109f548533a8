//! Tests of `outlast sessions`, `events`, `cancel`, `doctor`.
use crate::place::Place;
use expect_test::expect;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Creates a place with three turns in the session `ann`.
fn ann() -> Place {
    let place = Place::with_script("any\nsay Reply to {{input}}.");
    for text in ["one", "two", "three"] {
        assert!(place.output(&["run", text, "--session", "ann", "--script", "script.txt"]).status.success());
    }
    place
}

#[test]
fn context_command_shows_the_model_prompt() {
    let place = Place::with_script(
        "turn\nsay I will see.\ncall calculator {\"expression\": \"6*7\"}\n---\nsay It is 42.\nturn\nsay Bye.",
    );
    place.check(
        "run 'six times seven?' --session ann --script script.txt
         run thanks --session ann --script script.txt
         context ann
         context ann --head draft
         context ann --json",
        &expect![[r#"
            $ run 'six times seven?' --session ann --script script.txt
            I will see.
            It is 42.
            | · calculator {"expression":"6*7"}
            | · calculator → 42
            $ run thanks --session ann --script script.txt
            Bye.
            $ context ann
                  12  user         six times seven?
                  19  assistant    I will see.
                   9  calculator   42
                  11  assistant    It is 42.
                  10  user         thanks
                   9  assistant    Bye.
                  70  tokens in 6 messages, about
                   9  of them results of calculator
            | · the last call read 74 tokens, 0 of them from the provider's cache
            $ context ann --head draft
            | error[node.not_found]: session ses_1 has no head `draft`
            |   read on with: outlast explain node.not_found
            exit 1
            $ context ann --json
            {"compactions":0,"files":0,"last_usage":{"input":74,"output":1},"messages":[{"text":"six times seven?","tokens":12,"who":"user"},{"text":"I will see.","tokens":19,"who":"assistant"},{"text":"42","tokens":9,"who":"calculator"},{"text":"It is 42.","tokens":11,"who":"assistant"},{"text":"thanks","tokens":10,"who":"user"},{"text":"Bye.","tokens":9,"who":"assistant"}],"tokens":70}
        "#]],
    );
}

#[test]
fn long_session_continues_on_small_model_by_script() {
    let place = Place::with_script("any\nsay ok");
    place.write("small.txt", "window 12000\nany\nsay ok");
    let run = |script: &str, text: &str| {
        let args = ["run", "-", "--session", "ann", "--script", script];
        place.show(&place.fed(&args, text.as_bytes()))
    };
    for _ in 0..3 {
        assert_eq!(run("script.txt", &"word ".repeat(2_000)), "ok\n");
    }
    let shortened = "ok\n| · the conversation grew too long for the model: its beginning is summarised\n";
    assert_eq!(run("small.txt", "hi"), shortened);
    let refused = run("small.txt", &"word ".repeat(40_000));
    assert!(refused.contains("exceeds the available context size (4000 tokens)"), "{refused}");
    assert!(refused.contains("; the shortest request has about 6"), "{refused}");
    assert_eq!(run("small.txt", "hi"), shortened);
}

#[test]
fn worker_reports_progress_of_long_reply() {
    let script = "call ask_user {\"question\": \"Sure?\"}\n---\nsay one two three\ndelay 9s\nsay four";
    let place = Place::with_script(script);
    let asked = place.show(&place.output(&["run", "go", "--session", "ann", "--script", "script.txt"]));
    assert!(asked.contains("cpl_1"), "{asked}");
    place.output(&["resolve", "cpl_1", "--text", "yes"]);
    let worked = place.show(&place.output(&["work", "--script", "script.txt"]));
    let lines: Vec<&str> = worked.lines().collect();
    let [progress, end, _] = lines[..] else { panic!("{worked}") };
    assert!(progress.starts_with("ses_1 writes: 3 words, ") && progress.ends_with(" s"), "{worked}");
    assert!(end.ends_with(r#"turn.ended answered: "one two three⏎four""#), "{worked}");
}

#[test]
fn sessions_are_listed_and_shown_with_message_numbers() {
    ann().check(
        "sessions list
         sessions show ann
         events ses_1 --after 10
         verify ann",
        &expect![[r#"
            $ sessions list
            SESSION                               KEY  STATE  TURNS  UPDATED               TITLE
            ses_1  ann  idle   3      TIME  one
            $ sessions show ann
            ses_1 `ann` idle, 3 turns, updated TIME
            head main at #12 of ses_1
            trn_1 answered
            #2    user one
            #4    assistant Reply to one.
            trn_2 answered
            #6    user two
            #8    assistant Reply to two.
            trn_3 answered
            #10   user three
            #12   assistant Reply to three.
            $ events ses_1 --after 10
            TIME #11 turn.started on main after #8 of ses_1
            TIME #12 effect.performed turn/2/model/0: "Reply to three."
            TIME #13 turn.ended answered: "Reply to three."
            $ verify ann
            ses_1 intact: 13 records
        "#]],
    );
}

#[test]
fn fork_shares_history_and_diverges_afterwards() {
    ann().check(
        "sessions fork ann --at 8 --key bob
         run other --session bob --script script.txt
         sessions show bob
         sessions show ann
         sessions fork ann --at 5",
        &expect![[r#"
            $ sessions fork ann --at 8 --key bob
            ses_1
            $ run other --session bob --script script.txt
            Reply to other.
            $ sessions show bob
            ses_1 `bob` idle, 1 turn, updated TIME
            forked from #8 of ses_2
            head main at #4 of ses_1
            trn_1 answered, in ses_2
            #2    user one
            #4    assistant Reply to one.
            trn_2 answered, in ses_2
            #6    user two
            #8    assistant Reply to two.
            trn_3 answered
            #2    user other
            #4    assistant Reply to other.
            $ sessions show ann
            ses_2 `ann` idle, 3 turns, updated TIME
            fork ses_1
            head main at #12 of ses_2
            trn_1 answered
            #2    user one
            #4    assistant Reply to one.
            trn_2 answered
            #6    user two
            #8    assistant Reply to two.
            trn_4 answered
            #10   user three
            #12   assistant Reply to three.
            $ sessions fork ann --at 5
            | error[node.not_found]: session ses_2 has no message at 5; `outlast sessions show ses_2` lists them
            |   read on with: outlast explain node.not_found
            exit 1
        "#]],
    );
}

#[test]
fn session_delete_needs_confirmation_and_no_forks() {
    ann().check(
        "sessions fork ann --key bob
         sessions delete ann --yes
         sessions delete bob
         sessions delete bob --yes
         sessions delete ann --yes
         sessions list",
        &expect![[r#"
            $ sessions fork ann --key bob
            ses_1
            $ sessions delete ann --yes
            | error[session.has_forks]: ses_1 still need the history of ses_2; delete them first
            |   read on with: outlast explain session.has_forks
            exit 1
            $ sessions delete bob
            | error[input.invalid]: standard input is not a terminal, so the deletion cannot be confirmed; pass `--yes`
            |   read on with: outlast explain input.invalid
            exit 1
            $ sessions delete bob --yes
            ses_1 deleted
            $ sessions delete ann --yes
            ses_2 deleted
            $ sessions list
            | · there are no sessions
        "#]],
    );
}

#[test]
fn rewind_creates_a_branch_shown_in_the_tree() {
    ann().check(
        "sessions fork ann --head try
         sessions rewind ann --to 4
         run four --session ann --script script.txt
         run five --session ann --head try --script script.txt
         sessions show ann
         sessions show ann --tree
         sessions rewind ann --to 0
         sessions show ann
         sessions show ann --head none",
        &expect![[r#"
            $ sessions fork ann --head try
            ses_1
            $ sessions rewind ann --to 4
            ses_1: main is now at #4
            $ run four --session ann --script script.txt
            Reply to four.
            $ run five --session ann --head try --script script.txt
            Reply to five.
            $ sessions show ann
            ses_1 `ann` idle, 5 turns, updated TIME
            head main at #18 of ses_1
            head try at #22 of ses_1
            trn_1 answered
            #2    user one
            #4    assistant Reply to one.
            trn_2 answered
            #16   user four
            #18   assistant Reply to four.
            $ sessions show ann --tree
            ses_1 `ann` idle, 5 turns, updated TIME
            head main at #18 of ses_1
            head try at #22 of ses_1
            #2–#4 "one" answered
            ├ #6–#8 "two" answered
            │ #10–#12 "three" answered
            │ #20–#22 "five" answered ← try at #22
            └ #16–#18 "four" answered ← main at #18
            $ sessions rewind ann --to 0
            ses_1: main is now at the beginning
            $ sessions show ann
            ses_1 `ann` idle, 5 turns, updated TIME
            head main at the beginning
            head try at #22 of ses_1
            $ sessions show ann --head none
            ses_1 `ann` idle, 5 turns, updated TIME
            head main at the beginning
            head try at #22 of ses_1
            | error[node.not_found]: session ses_1 has no head `none`
            |   read on with: outlast explain node.not_found
            exit 1
        "#]],
    );
}

#[test]
fn follower_in_another_process_sees_every_event_once() {
    let place = ann();
    let mut follower = place
        .command(&["events", "ann", "--follow", "--json", "--after", "13"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(place.output(&["run", "four", "--session", "ann", "--script", "script.txt"]).status.success());
    let lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let seqs: Vec<u64> = lines
        .take(4)
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap()["seq"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(seqs, [14, 15, 16, 17]);
    follower.kill().unwrap();
    follower.wait().unwrap();
}

#[test]
fn cancel_of_a_finished_turn_is_too_late() {
    let place = ann();
    place.show(&place.output(&["events", "ann", "--json"]));
    place.check(
        "cancel trn_1",
        &expect![[r#"
            $ cancel trn_1
            too late: answered: "Reply to one."
        "#]],
    );
}

#[test]
fn doctor_reports_a_healthy_database() {
    let place = ann();
    let text = place.show(&place.output(&["doctor"]));
    let stable = |line: &&str| {
        let of_the_machine =
            ["outlast", "disk", "fsync", "landlock", "namespaces", "cgroup", "engine", "size"];
        !of_the_machine.iter().any(|name| line.starts_with(name))
    };
    expect![[r#"
        environment hidden from other processes of this user
        database    DIR/outlast.db
        durability  survives power loss
        permissions 600
        workers     0 living, 0 dead whose locks the next one removes
        sessions    1 idle, 0 ready, 0 running, 0 parked, 0 held
        stuck       0 turns
        unknown     0 calls
        payments    0 payments not yet confirmed by the payment authority
        attachments in the database
        nothing is wrong"#]]
    .assert_eq(&text.lines().filter(stable).collect::<Vec<_>>().join("\n"));
}

#[cfg(unix)]
#[test]
fn doctor_names_problems_and_their_fixes() {
    use std::os::unix::fs::PermissionsExt;
    let place = ann();
    std::fs::set_permissions(place.data(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let text = place.show(&place.output(&["doctor", "--unsafe-durability"]));
    let found = |line: &&str| line.starts_with("wrong") || line.starts_with("exit");
    expect![[r#"
        wrong a power loss may lose acknowledged writes: remove --unsafe-durability
        wrong other users of this machine can read the database: chmod 600 ./outlast.db
        exit 1"#]]
    .assert_eq(&text.lines().filter(found).collect::<Vec<_>>().join("\n"));
}
