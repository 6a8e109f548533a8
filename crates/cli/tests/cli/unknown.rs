//! Tests of `outlast unknown`: a call that was killed while it ran.
use crate::place::Place;
use expect_test::expect;

#[test]
fn person_settles_a_call_of_unknown_outcome() {
    let place = Place::with_script("any\ncall pay {\"what\": \"5 euros\"}\n---\nsay Payment: {{result pay}}");
    let order = [["ann", "k1", "pay"]];
    let mut worker = place.worker(400, &order);
    worker.until("begun", "pay");
    worker.kill();
    place.worker(1, &order).end();
    place.check(
        "unknown
         unknown settle cal_1 --happened '{no json'
         unknown settle cal_1 --happened '{\"number\": 7}'
         unknown list
         unknown settle cal_1 --did-not-happen
         sessions show ann
         verify",
        &expect![[r#"
            $ unknown
            cal_1 pay {"what":"5 euros"}
              since TIME in ses_1
            | · find out whether it happened, then: outlast unknown settle CALL --happened JSON | --did-not-happen
            $ unknown settle cal_1 --happened '{no json'
            | error[input.invalid]: expected JSON after `--happened`, got `{no json`: key must be a string at line 1 column 2
            |   read on with: outlast explain input.invalid
            exit 1
            $ unknown settle cal_1 --happened '{"number": 7}'
            settled in ses_1: happened: {"number":7}
            $ unknown list
            | · no call has an unknown outcome
            $ unknown settle cal_1 --did-not-happen
            | error[claim.not_found]: no call with the id cal_1 has an unknown outcome; `outlast unknown` lists them
            |   read on with: outlast explain claim.not_found
            exit 1
            $ sessions show ann
            ses_1 `ann` idle, 1 turn, updated TIME
            head main at #9 of ses_1
            trn_1 answered
            #2    user pay
            #4    assistant [pay {"what":"5 euros"}]
            #8    pay unknown outcome; see `outlast unknown`
            #9    assistant Payment: error tool.outcome_unknown: the process stopped while this call ran; nobody knows whether it happened, and it will not be repeated. An operator can find out and settle it
            #11   pay happened: {"number":7}
            $ verify
            ses_1 intact: 11 records
            | · 1 session, 0 damaged
        "#]],
    );
}
