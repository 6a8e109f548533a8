//! Tests of `ask_user`: how a question is shown and answered.
use crate::place::Place;
use expect_test::expect;

const SCRIPT: &str = "\
call ask_user {\"question\": \"Which colour?\", \"options\": [\"red\", \"blue\"]}
---
call ask_user {\"question\": \"Sure?\"}
---
say {{result ask_user}}";

#[test]
fn chat_takes_the_next_line_as_the_answer() {
    let place = Place::with_script(SCRIPT);
    let output = place.fed(&["chat", "ann", "--script", "script.txt"], b"paint\n2\n/sessions\nyes, quite\n");
    expect![[r#"
        SESSION                               KEY  STATE   TURNS  UPDATED               TITLE
        ses_1  ann  parked  1      TIME  paint
        yes, quite
        | · /help lists the commands
        | · ask_user {"options":["red","blue"],"question":"Which colour?"}
        | · ask_user → waits to be completed from outside
        | · trn_1 asks: Which colour?
        |   1. red
        |   2. blue
        |   outlast resolve cpl_1 --text ANSWER
        | · ask_user {"question":"Sure?"}
        | · ask_user → waits to be completed from outside
        | · trn_1 asks: Sure?
        |   outlast resolve cpl_2 --text ANSWER
    "#]]
    .assert_eq(&place.show(&output));
}

#[test]
fn question_is_answered_in_chat_or_by_key() {
    let place = Place::with_script(SCRIPT);
    place.check(
        "run paint --session ann --script script.txt
         sessions show ann
         resolve cpl_1 --text green
         work --script script.txt",
        &expect![[r#"
            $ run paint --session ann --script script.txt
            | · ask_user {"options":["red","blue"],"question":"Which colour?"}
            | · ask_user → waits to be completed from outside
            | · trn_1 asks: Which colour?
            |   1. red
            |   2. blue
            |   outlast resolve cpl_1 --text ANSWER
            $ sessions show ann
            ses_1 `ann` parked, 1 turn, updated TIME
            head main at the beginning
            trn_1 asks: Which colour?
              1. red
              2. blue
              outlast resolve cpl_1 --text ANSWER
            trn_1 under way
            #2    user paint
            #4    assistant [ask_user {"options":["red","blue"],"question":"Which colour?"}]
            #6    ask_user waits to be completed from outside
            $ resolve cpl_1 --text green
            resolved: ok "green"
            | · trn_1 continues once a worker runs; start one with `outlast work`
            $ work --script script.txt
            ses_1 #13 turn.parked outside completion at turn/0/tools/1/child:0:call_1/completion
            | · no turn can continue now
        "#]],
    );
    let output = place.fed(&["chat", "ann", "--script", "script.txt"], b"no\n");
    expect![[r#"
        no
        | · /help lists the commands
        | · trn_1 asks: Sure?
        |   outlast resolve cpl_2 --text ANSWER
    "#]]
    .assert_eq(&place.show(&output));
}
