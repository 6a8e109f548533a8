//! Tests of turns that wait to be completed from outside: `outlast resolve`, `retry`, and the output of other
//! commands.
use crate::place::Place;
use expect_test::expect;
use outlast::sqlite::SqliteStore;
use outlast::store::ContentQueries;
use outlast::vocab::ReplayKey;
use outlast::vocab::wait::CompletionKey;

const SCRIPT: &str = "any\ncall ask_person {\"what\": \"may I?\"}\n---\nsay You said {{result ask_person}}";
const ORDER: [[&str; 3]; 1] = [["ann", "k1", "ask"]];

/// Creates a place with a turn that waits for a person, without a running process.
fn parked() -> Place {
    let place = Place::with_script(SCRIPT);
    let mut worker = place.worker(1, &ORDER);
    worker.until("parked", "");
    worker.kill();
    place
}

#[test]
fn call_is_resolved_while_no_worker_runs() {
    let place = parked();
    place.check(
        "sessions show ann
         resolve cpl_1 --ok yes
         resolve cpl_1 --ok '\"yes\"'
         resolve cpl_1 --error no",
        &expect![[r#"
            $ sessions show ann
            ses_1 `ann` parked, 1 turn, updated TIME
            head main at the beginning
            trn_1 waits for outside completion at turn/0/tools/0/child:0:call_0/completion
              outlast resolve cpl_1 --ok JSON
            trn_1 under way
            #2    user ask
            #4    assistant [ask_person {"what":"may I?"}]
            #6    ask_person waits to be completed from outside
            $ resolve cpl_1 --ok yes
            | error[input.invalid]: expected JSON after `--ok`, got `yes`: expected value at line 1 column 1
            |   read on with: outlast explain input.invalid
            exit 1
            $ resolve cpl_1 --ok '"yes"'
            resolved: ok "yes"
            | · trn_1 continues once a worker runs; start one with `outlast work`
            $ resolve cpl_1 --error no
            already resolved: ok "yes"; the first result is kept
        "#]],
    );
    place.worker(1, &ORDER).end();
    place.check(
        "sessions show ann",
        &expect![[r#"
            $ sessions show ann
            ses_1 `ann` idle, 1 turn, updated TIME
            head main at #10 of ses_1
            trn_1 answered
            #2    user ask
            #4    assistant [ask_person {"what":"may I?"}]
            #9    outside ok "yes"
            #10   assistant You said yes
        "#]],
    );
}

#[test]
fn a_resolution_may_come_before_the_wait() {
    let place = Place::with_script(&SCRIPT.replace("any\n", "any\nsay Hm.\ndelay 1m\n"));
    let mut worker = place.worker(1, &ORDER);
    let turn = worker.until("accepted", "")["turn"].as_str().unwrap().parse().unwrap();
    worker.until("begun", "model call 0");
    worker.kill();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let secret = runtime.block_on(SqliteStore::open(&place.data()).unwrap().secret()).unwrap();
    let wait = ReplayKey::turn(0).tools(0).child(0, "call_0").completion();
    let key = CompletionKey::sign(&secret, turn, wait).to_string();
    expect![[r#"
        resolved: ok "early"
        | · trn_1 continues once a worker runs; start one with `outlast work`
    "#]]
    .assert_eq(&place.show(&place.output(&["resolve", &key, "--ok", "\"early\""])));
    place.set_script(SCRIPT);
    place.worker(1, &ORDER).end();
    place.check(
        "events ann --after 3",
        &expect![[r#"
            $ events ann --after 3
            TIME #4 turn.resumed by wrk_1, lease 2, since TIME
            TIME #5 turn.started on main after the beginning
            TIME #6 effect.performed turn/0/model/0: ask_person {"what":"may I?"}
            TIME #7 effect.asked ask_person {"what":"may I?"}
            TIME #8 effect.answered call 0 of #7: waits to be completed from outside
            TIME #9 effect.performed turn/0/tools/0/child:0:call_0/completion: ok "early"
            TIME #10 effect.performed turn/0/model/1: "You said early"
            TIME #11 turn.ended answered: "You said early"
        "#]],
    );
}

#[test]
fn input_behind_a_waiting_turn_is_kept() {
    parked().check(
        "run 'and then?' --session ann
         run ask --key k1 --session ann
         sessions show ann",
        &expect![[r#"
            $ run 'and then?' --session ann
            | · trn_1 waits for outside completion at turn/0/tools/0/child:0:call_0/completion
            |   outlast resolve cpl_1 --ok JSON
            | · the input is stored; trn_2 runs after it
            $ run ask --key k1 --session ann
            | · ask_person {"what":"may I?"}
            | · ask_person → waits to be completed from outside
            | · trn_1 waits for outside completion at turn/0/tools/0/child:0:call_0/completion
            |   outlast resolve cpl_1 --ok JSON
            $ sessions show ann
            ses_1 `ann` parked, 2 turns, updated TIME
            head main at the beginning
            trn_1 waits for outside completion at turn/0/tools/0/child:0:call_0/completion
              outlast resolve cpl_1 --ok JSON
            trn_1 under way
            #2    user ask
            #4    assistant [ask_person {"what":"may I?"}]
            #6    ask_person waits to be completed from outside
            trn_2 waits for the turn before it
            #8    user and then?
        "#]],
    );
}

#[test]
fn turn_is_stuck_while_its_tools_are_missing() {
    let place = parked();
    place.show(&place.output(&["sessions", "show", "ann"]));
    place.check(
        "resolve cpl_1 --ok 1
         work
         sessions show ann
         retry trn_1
         cancel trn_1 --reason enough
         work
         retry trn_1",
        &expect![[r#"
            $ resolve cpl_1 --ok 1
            resolved: ok 1
            | · trn_1 continues once a worker runs; start one with `outlast work`
            $ work
            ses_1 #9 turn.stuck package.unavailable: the turn began under another configuration: no provider serves the model `rehearsal/demo`
            ses_1 #10 turn.parked event at turn/0/stuck:0
            | · no turn can continue now
            $ sessions show ann
            ses_1 `ann` parked, 1 turn, updated TIME
            head main at the beginning
            trn_1 is stuck; once the cause is fixed: outlast retry trn_1
            trn_1 under way
            #2    user ask
            #4    assistant [ask_person {"what":"may I?"}]
            #6    ask_person waits to be completed from outside
            $ retry trn_1
            | · ask_person {"what":"may I?"}
            | · ask_person → waits to be completed from outside
            | · trn_1 is stuck; once the cause is fixed: outlast retry trn_1
            | error[package.unavailable]: the turn began under another configuration: no provider serves the model `rehearsal/demo` (in trn_1)
            |   read on with: outlast explain package.unavailable
            exit 1
            $ cancel trn_1 --reason enough
            asked to stop
            | · it ends once a worker runs; start one with `outlast work`
            $ work
            ses_1 #15 turn.ended cancelled: enough
            | · no turn can continue now
            $ retry trn_1
            | · trn_1 is retried as trn_2 in ses_1
            | · trn_2 is stuck; once the cause is fixed: outlast retry trn_2
            | error[package.unavailable]: the turn began under another configuration: no provider serves the model `rehearsal/demo` (in trn_2)
            |   read on with: outlast explain package.unavailable
            exit 1
        "#]],
    );
}
