//! Tests of `outlast chat` on a pipe.
use crate::place::Place;
use expect_test::expect;

#[test]
fn chat_on_a_pipe_works_line_by_line() {
    let place = Place::with_script("any\nsay You said: {{input}}.");
    let lines = "\
hello
first \\
second

/events
/nonsense
/fork 3
/fork 2
and now
/sessions
/quit
never read
";
    let output = place.fed(&["chat", "ann", "--script", "script.txt"], lines.as_bytes());
    expect![[r#"
        You said: hello.
        You said: first 
        second.
        #1 session.opened key `ann`
        #2 turn.accepted "hello"
        #3 turn.started on main after the beginning
        #4 effect.performed turn/0/model/0: "You said: hello."
        #5 turn.ended answered: "You said: hello."
        #6 turn.accepted "first ⏎second"
        #7 turn.started on main after #4 of ses_1
        #8 effect.performed turn/1/model/0: "You said: first ⏎second."
        #9 turn.ended answered: "You said: first ⏎second."
        You said: and now.
        SESSION                               KEY  STATE  TURNS  UPDATED               TITLE
        ses_2       idle   1      TIME  and now
        ses_1  ann  idle   2      TIME  hello
        | · /help lists the commands
        | error[input.invalid]: expected one of the commands that /help lists, got `/nonsense`
        |   read on with: outlast explain input.invalid
        | error[node.not_found]: session ses_1 has no message at 3; `outlast sessions show ses_1` lists them
        |   read on with: outlast explain node.not_found
        | · session ses_2
    "#]]
    .assert_eq(&place.show(&output));
}

#[test]
fn chat_without_input_creates_no_session() {
    let place = Place::new();
    expect![[r#"
        /sessions   list sessions
        /events     list the events of this session
        /fork N     continue in a new session, forked after message N
        /help       show this help
        /quit       quit, like Ctrl-D
        A line that ends with \ continues on the next line. Ctrl-C cancels the current turn.
        If the agent asks a question, the next line answers it; a number selects an option.
        | · /help lists the commands
        | error[session.not_found]: this session has no messages yet
        |   read on with: outlast explain session.not_found
    "#]]
    .assert_eq(&place.show(&place.fed(&["chat"], b"/events\n/help\n")));
    place.check(
        "sessions list",
        &expect![[r#"
            $ sessions list
            | · there are no sessions
        "#]],
    );
}

#[test]
fn failed_turn_does_not_end_the_chat() {
    let place = Place::with_script("when bad\nerror model.rejected no\nany\nsay Fine.");
    let output = place.fed(&["chat", "ann", "--script", "script.txt"], b"bad\ngood\n");
    expect![[r#"
        Fine.
        | · /help lists the commands
        | error[model.rejected]: no (in trn_1)
        |   read on with: outlast explain model.rejected
    "#]]
    .assert_eq(&place.show(&output));
}
