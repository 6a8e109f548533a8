//! Tests of agent files: `--agent`.
use crate::place::Place;
use expect_test::{Expect, expect};

const AGENT: &str = r#"
name = "shop"
system = "You sell cakes."
model_calls = 3
builtin = ["calculator"]
files = "notes"

[[tools]]
name = "charge"
description = "Charges the card."
class = "idempotent"
command = ["./charge.sh", "./prices", "eur"]
deadline_s = 10

[tools.input]
type = "object"
required = ["cents"]
properties.cents.type = "integer"
"#;

#[test]
fn tools_command_lists_shows_and_previews_tools() {
    let place = Place::new();
    place.write("notes.txt", "tea at five");
    place.check(
        r#"tools
           tools file_read
           tools file_edit --preview '{"path": "notes.txt", "old": "five", "new": "six"}'
           tools file_edit --preview '{"path": 7}'
           tools rocket
           tools calculator --preview '{"expression": "1"}'"#,
        &expect![[r#"
            $ tools
            ask_user       idempotent     Asks the user and waits for the answer, however long it takes. For decisions that are the user's and that cannot be found out otherwise.
            calculator     pure           Works out an arithmetic expression exactly: + - * / % ^, parentheses, decimals.
            clock          pure           Tells the current date and time as ISO 8601, to the second.
            file_edit      idempotent     Replaces a text in a file by another. The old text must be in the file exactly once, unless all places are meant.
            file_grep      pure           Finds lines in text files by a regular expression: path, number and text of each.
            file_list      pure           Lists the names in a directory; names of directories end with a slash.
            file_read      pure           Reads a text file.
            file_write     idempotent     Writes a text file, replacing what was there.
            read_more      pure           Reads on in an attachment: a result that was too large to be shown whole, or a text file of the user.
            todo           transactional  Keeps the list of what is to be done in this session. Pass the whole list to change it, nothing to see it. Use it for work of several steps, and mark a step when it begins and when it is done.
            value_get      transactional  Gives the value that was remembered under a name, or null if there is none.
            value_list     transactional  Lists the names under which values are remembered.
            value_set      transactional  Remembers a JSON value under a name for the rest of the session; null forgets it.
            $ tools file_read
            file_read (pure)
            Reads a text file.
            arguments: {"additionalProperties":false,"properties":{"path":{"description":"Where the file is, like `notes/today.txt`.","type":"string"}},"required":["path"],"type":"object"}
            $ tools file_edit --preview '{"path": "notes.txt", "old": "five", "new": "six"}'
            in `notes.txt`, once:
            - five
            + six
            $ tools file_edit --preview '{"path": 7}'
            | error[tool.args_invalid]: the arguments do not fit the schema; at the root: "old" is a required property; at the root: "new" is a required property; at /path: 7 is not of type "string"
            |   read on with: outlast explain tool.args_invalid
            exit 1
            $ tools rocket
            | error[tool.unknown]: no tool is called `rocket`; there are: ask_user, calculator, clock, file_edit, file_grep, file_list, file_read, file_write, read_more, todo, value_get, value_list, value_set
            |   read on with: outlast explain tool.unknown
            exit 1
            $ tools calculator --preview '{"expression": "1"}'
            | · `calculator` has no preview
        "#]],
    );
    assert!(!place.data().exists());
}

#[test]
fn file_agent_has_only_its_own_tools() {
    let place = Place::with_script(
        "call charge {\"cents\": 450}\n---\nsay {{result charge}}\n\
         when bad\ncall charge {\"cents\": \"much\"}\n---\nsay {{result charge}}\n\
         when time\ncall clock {}\n",
    );
    std::fs::create_dir(place.path().join("agents")).unwrap();
    place.write("agents/shop.toml", AGENT);
    // The program's path is relative to the agent file. It runs in the directory in which `outlast` was
    // started.
    place.write_program(
        "agents/charge.sh",
        "echo \"{\\\"paid\\\": $(cat), \\\"in\\\": \\\"$(pwd)\\\", \\\"with\\\": \\\"$*\\\"}\"",
    );
    place.check(
        "run buy --session ann --agent agents/shop.toml --script script.txt
         run bad --session ann --agent agents/shop.toml --script script.txt
         run time --session ann --agent agents/shop.toml --script script.txt",
        &expect![[r#"
            $ run buy --session ann --agent agents/shop.toml --script script.txt
            {"in":"DIR","paid":{"cents":450},"with":"DIR/agents/./prices eur"}
            | · charge {"cents":450}
            | · charge → {"in":"DIR","paid":{"cents":450},"with":"DIR/age…
            $ run bad --session ann --agent agents/shop.toml --script script.txt
            error tool.args_invalid: the arguments do not fit the schema; at /cents: "much" is not of type "integer"
            | · charge refused: tool.args_invalid: the arguments do not fit the schema; at /cents: "much" is not of type "integer"
            $ run time --session ann --agent agents/shop.toml --script script.txt
            | error[script.mismatch]: line 9 calls `clock`, but the session has only: calculator, file_edit, file_grep, file_list, file_read, file_write, charge (in trn_1)
            |   read on with: outlast explain script.mismatch
            exit 1
        "#]],
    );
    assert!(place.path().join("notes").is_dir());
}

#[test]
fn aborted_turn_undoes_its_tool_calls() {
    let place = Place::with_script(
        "call book {\"what\": \"flight\"}\n---\ncall book {\"what\": \"car\"}\n---\n\
         call ask_user {\"question\": \"Sure?\"}\n---\nsay booked\n",
    );
    place.write(
        "agent.toml",
        "name = \"travel\"\nbuiltin = [\"ask_user\"]\n\
         [[tools]]\nname = \"book\"\ndescription = \"Books.\"\ncommand = [\"tee\", \"-a\", \"booked\"]\nundo = \"unbook\"\n\
         [[tools]]\nname = \"unbook\"\ndescription = \"Takes back.\"\ncommand = [\"tee\", \"-a\", \"unbooked\"]\n",
    );
    place.check(
        "run go --session ann --agent agent.toml --script script.txt
         cancel trn_1 --undo --reason 'the trip is off'
         work --agent agent.toml --script script.txt
         sessions show ann",
        &expect![[r#"
            $ run go --session ann --agent agent.toml --script script.txt
            | · book {"what":"flight"}
            | · book → {"what":"flight"}
            | · book {"what":"car"}
            | · book → {"what":"car"}
            | · ask_user {"question":"Sure?"}
            | · ask_user → waits to be completed from outside
            | · trn_1 asks: Sure?
            |   outlast resolve cpl_1 --text ANSWER
            $ cancel trn_1 --undo --reason 'the trip is off'
            asked to stop
            | · it ends once a worker runs; start one with `outlast work`
            $ work --agent agent.toml --script script.txt
            ses_1 #20 turn.ended aborted: the trip is off (2 calls undone)
            | · no turn can continue now
            $ sessions show ann
            ses_1 `ann` idle, 1 turn, updated TIME
            last turn trn_1 aborted: the trip is off (2 calls undone)
            head main at #19 of ses_1
            trn_1 aborted: the trip is off (2 calls undone)
            #2    user go
            #4    assistant [book {"what":"flight"}]
            #7    book {"what":"flight"}
            #8    assistant [book {"what":"car"}]
            #11   book {"what":"car"}
            #12   assistant [ask_user {"question":"Sure?"}]
            #18   unbook {"what":"car"}
            #19   unbook {"what":"flight"}
        "#]],
    );
    let did = |file: &str| std::fs::read_to_string(place.path().join(file)).unwrap();
    assert_eq!(did("unbooked"), "{\"what\":\"car\"}{\"what\":\"flight\"}");
    place.write("agent.toml", "name = \"travel\"\n[[tools]]\nname = \"book\"\ndescription = \"Books.\"\ncommand = [\"cat\"]\nundo = \"unbook\"");
    place.check(
        "run go --agent agent.toml --script script.txt",
        &expect![[r#"
        $ run go --agent agent.toml --script script.txt
        | error[tool.unknown]: the tool `book` is undone by `unbook`, which the agent `travel` does not have
        |   read on with: outlast explain tool.unknown
        exit 1
    "#]],
    );
}

#[test]
fn turn_respects_the_model_call_limit() {
    let place = Place::with_script(
        "call calculator {\"expression\": \"1\"}\n---\ncall calculator {\"expression\": \"2\"}\n---\nsay done",
    );
    place.write("agent.toml", "name = \"short\"\nmodel_calls = 2\nbuiltin = [\"calculator\"]");
    place.check(
        "run go --session ann --agent agent.toml --script script.txt",
        &expect![[r#"
        $ run go --session ann --agent agent.toml --script script.txt
        | · calculator {"expression":"1"}
        | · calculator → 1
        | · calculator {"expression":"2"}
        | · calculator → 2
        | error[limit.exceeded]: the turn used all its 2 model calls (in trn_1)
        |   read on with: outlast explain limit.exceeded
        exit 1
    "#]],
    );
}

#[test]
fn hanging_program_is_stopped_at_its_deadline() {
    let place = Place::with_script("call hang {}\n---\nsay {{result hang}}");
    place.write("agent.toml", "name = \"slow\"\n[[tools]]\nname = \"hang\"\ndescription = \"Hangs.\"\ncommand = [\"sleep\", \"1000\"]\ndeadline_s = 1");
    place.check(
        "run go --session ann --agent agent.toml --script script.txt",
        &expect![[r#"
        $ run go --session ann --agent agent.toml --script script.txt
        error tool.timed_out: the tool did not finish within 1000 ms
        | · hang {}
        | · hang → error tool.timed_out: the tool did not finish within 1000 ms
    "#]],
    );
}

/// Runs each invalid agent file and compares the errors.
#[track_caller]
fn refused(agents: &[String], want: &Expect) {
    let mut log = String::new();
    for agent in agents {
        let place = Place::new();
        place.write("agent.toml", agent);
        place.write("text", "not a program");
        let output = place.show(&place.output(&["run", "hi", "--agent", "agent.toml"]));
        log += output.lines().next().unwrap_or_default().trim_start_matches("| error");
        log.push('\n');
        assert!(!place.data().exists(), "something was made for:\n{agent}");
    }
    want.assert_eq(&log);
}

#[test]
fn invalid_agent_file_error_names_line_and_field() {
    let agents = [
        "name = \"a\"\nsistem = \"hi\"\n",
        "system = \"hi\"\n",
        "name = 7\n",
        "name = \"a\"\nname = \"b\"\n",
        "name = \"a\n",
        "name = \"a\"\nbuiltin = [\"clock\", \"rocket\"]\n",
        "name = \"a\"\nmodel_calls = 0\n",
        "name = \"a\"\nfiles = \"../secrets\"\n",
        "name = \"a\"\nfiles = \"/etc\"\n",
        "name = \"a\"\n[fetch]\nallow = [\"https://example.com\"]\n",
        "name = \"a\"\n[fetch]\nprivate = [\"*.example\"]\n",
        "name = \"a\"\n[shell]\n",
    ];
    refused(
        &agents.map(str::to_owned),
        &expect![[r#"
            [config.invalid]: agent.toml:2: unknown key `sistem`; did you mean `system`?
            [config.invalid]: agent.toml:1: missing field `name`
            [config.invalid]: agent.toml:1: invalid type: integer `7`, expected a string
            [config.invalid]: agent.toml:2: duplicate key
            [config.invalid]: agent.toml:1: invalid basic string, expected `"`
            [config.invalid]: agent.toml:2: unknown variant `rocket`, expected one of `clock`, `calculator`, `values`, `read_more`, `todo`, `ask_user`, `fetch`
            [config.invalid]: agent.toml:2: invalid value: integer `0`, expected a nonzero u32
            [config.invalid]: agent.toml:2: expected a directory below the agent's working directory, got `../secrets`
            [config.invalid]: agent.toml:2: expected a directory below the agent's working directory, got `/etc`
            [config.invalid]: agent.toml:3: expected a host like `example.com`, `*.example.com` or `example.com:8080`, got `https://example.com`
            [config.invalid]: agent.toml:2: expected the exact name of a private host, got `*.example`
            [config.invalid]: agent.toml:2: the shell requires a directory for files; add `files = "…"`
        "#]],
    );
}

#[test]
fn invalid_tool_command_is_rejected_with_its_line() {
    let tools = [
        "command = [\"./gone.sh\"]",
        "command = [\"./text\"]",
        "command = [\"text\"]",
        "command = [\"no-such-program-anywhere\"]",
        "command = []",
        "command = \"true\"",
        "command = [\"true\"]\nclass = \"transactional\"",
        "command = [\"true\"]\nclas = \"pure\"",
        "command = [\"true\"]\nenv = [\"OUTLAST_NO_SUCH_VARIABLE\"]",
        "command = [\"true\"]\ninput = 7",
        "command = [\"true\"]\n[[tools]]\nname = \"two words\"",
        "command = [\"true\"]\n[[tools]]\nname = \"pay\"\ndescription = \"Pays.\"\ncommand = [\"true\"]",
    ];
    let agent =
        |tool| format!("name = \"a\"\n\n[[tools]]\nname = \"pay\"\ndescription = \"Pays.\"\n{tool}\n");
    refused(
        &tools.map(agent),
        &expect![[r#"
            [config.invalid]: agent.toml:3: tool `pay`: expected an executable program, but `./gone.sh` is missing or not executable
            [config.invalid]: agent.toml:3: tool `pay`: expected an executable program, but `./text` is missing or not executable
            [config.invalid]: agent.toml:3: tool `pay`: expected an executable program, but `text` is missing or not executable; for the file next to the configuration, write `./text`
            [config.invalid]: agent.toml:3: tool `pay`: expected an executable program, but `no-such-program-anywhere` is missing or not executable
            [config.invalid]: agent.toml:3: tool `pay`: expected a command of at least one word, got an empty one
            [config.invalid]: agent.toml:6: invalid type: string "true", expected a sequence
            [config.invalid]: agent.toml:7: unknown variant `transactional`, expected one of `at_most_once`, `idempotent`, `pure`
            [config.invalid]: agent.toml:7: unknown key `clas` in `tools`; did you mean `class`?
            [config.invalid]: agent.toml:3: tool `pay`: the environment variable `OUTLAST_NO_SUCH_VARIABLE`, which is passed to the program, is not set
            [config.invalid]: agent.toml:7: invalid type: integer `7`, expected a map
            [config.invalid]: agent.toml:8: input.invalid: expected a tool name (letters, digits, `_`, `-`, `.`) of 1 to 64 bytes, got `two words`
            [config.invalid]: agent.toml:8: two tools are called `pay`; names must be unique
        "#]],
    );
}

#[test]
fn missing_agent_file_is_rejected() {
    Place::new().check(
        "run hi --agent nobody.toml
         run hi --agent nobody.toml --files .",
        &expect![[r#"
            $ run hi --agent nobody.toml
            | error[io.failed]: the agent nobody.toml cannot be read: No such file or directory (os error 2)
            |   read on with: outlast explain io.failed
            exit 1
            $ run hi --agent nobody.toml --files .
            | error: the argument '--agent <NAME|FILE>' cannot be used with '--files <DIR>'
            | 
            | Usage: outlast run --agent <NAME|FILE> <TEXT>
            | 
            | For more information, try '--help'.
            exit 2
        "#]],
    );
}
