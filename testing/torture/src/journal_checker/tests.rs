//! Tests of the judge: each test plants one error in a story that is otherwise correct.
mod story;

use super::*;
use outlast::vocab::effect::{AwaitEvent, Outcome};
use outlast::vocab::record::{ClaimRef, EffectPerformed, Fact, Record, Seq};
use outlast::vocab::{CallId, Failure};
use outlast::{SessionId, TurnId};
use serde_json::json;
use story::{
    JOINED, MAIN, Story, busy, calls, completion, done, executed, intact_evidence, performed, receipt,
};

/// Checks the judge's findings after a change to the evidence. Ids are shown without zeros.
#[track_caller]
fn check(change: impl FnOnce(&mut RoundEvidence), want: &[&str]) {
    let mut evidence = intact_evidence();
    change(&mut evidence);
    let said = find_violations(&evidence);
    let said =
        said.iter().map(|PromiseViolation { promise, violation_text: how }| format!("{promise:?}: {how}"));
    let said: Vec<String> = said.map(|line| line.replace(&"0".repeat(30), "")).collect();
    assert_eq!(said, want);
}

/// Like [`check`], but changes the first session.
#[track_caller]
fn check_story(change: impl FnOnce(&mut Story), want: &[&str]) {
    check(
        |evidence| {
            let mut story = busy();
            change(&mut story);
            evidence.sessions[0] = story.session(1);
        },
        want,
    );
}

#[test]
fn valid_journal_has_no_violations() {
    check(|_| {}, &[]);
}

#[test]
fn planted_errors_are_detected() {
    check(
        |evidence| evidence.plant(PlantedError::Lost),
        &[
            "Lost: the input of trn_01 is gone",
            "Lost: the resolution of cpl_0107a715771578bdb2ee44d947cf7b755480191b8722bae686f61a7f8edd44b93d7475726e2f302f746f6f6c732f302f6368696c643a333a63616c6c5f31342f636f6d706c6574696f6e is gone",
        ],
    );
    check(
        |evidence| evidence.plant(PlantedError::Repeated),
        &[
            "Repeated: `pay` acted twice in attempt 1 of cal_0b",
            "Repeated: the at-most-once `pay` acted 2 times for cal_0b",
        ],
    );
}

#[test]
fn missing_acknowledged_input_is_lost() {
    check(
        |evidence| drop(evidence.sessions.pop()),
        &[
            "Lost: the input of trn_04 is gone",
            "Corrupted: `ask` acted for cal_15, which the journal does not know",
        ],
    );
}

#[test]
fn input_not_at_its_receipt_is_lost() {
    check(
        |evidence| evidence.ledger[0] = receipt(MAIN, "k1", 3),
        &["Lost: trn_01 is `k1` at 1 with 68eae106, its receipt says `k1` at 3 with 14366f8f"],
    );
}

#[test]
fn missing_acknowledged_cancel_or_resolution_is_lost() {
    check_story(
        |story| {
            story.records.retain(|record| {
                !matches!(record.fact, Fact::CancelRequested { .. } | Fact::Resolved { .. })
            });
        },
        &[
            "Lost: the resolution of cpl_0107a715771578bdb2ee44d947cf7b755480191b8722bae686f61a7f8edd44b93d7475726e2f302f746f6f6c732f302f6368696c643a333a63616c6c5f31342f636f6d706c6574696f6e is gone",
            "Lost: the wish to stop trn_03 is gone",
            "Corrupted: turn/0/tools/0/child:3:call_14/completion of trn_01 was read as Ok(Number(5)), given was None",
            r#"Corrupted: trn_03 (`k3`) ended as Cancelled { reason: "enough" }"#,
        ],
    );
}

#[test]
fn an_input_that_became_two_turns_is_repeated() {
    check_story(
        |story| {
            story.accept(TurnId::from_u128(9), "k1");
            story.begin(TurnId::from_u128(9));
            story.end(TurnId::from_u128(9), TurnEnd::Answered { text: String::new() });
        },
        &["Repeated: the input `k1` is 2 turns"],
    );
}

#[test]
fn input_without_a_sender_is_corrupt() {
    check(
        |evidence| assert!(evidence.sent.remove("k1")),
        &["Corrupted: trn_01 has an input that nobody sent: `k1`"],
    );
}

#[test]
fn turn_that_began_twice_is_repeated() {
    check_story(|story| story.begin(MAIN), &["Repeated: the input of trn_01 was read more than once"]);
}

#[test]
fn input_that_joined_and_began_is_repeated() {
    check_story(|story| story.begin(JOINED), &["Repeated: the input of trn_02 was read more than once"]);
}

#[test]
fn joined_input_that_was_never_read_is_lost() {
    let is_checkpoint = |record: &Record| {
        matches!(&record.fact, Fact::Performed(EffectPerformed { outcome: Outcome::Checkpoint(_), .. }))
    };
    check_story(
        |story| story.records.retain(|record| !is_checkpoint(record)),
        &["Lost: the input of trn_02 joined a turn that never read it"],
    );
}

#[test]
fn a_turn_that_ended_twice_is_repeated() {
    check_story(
        |story| story.end(MAIN, TurnEnd::Answered { text: String::new() }),
        &["Repeated: trn_01 ended 2 times"],
    );
}

#[test]
fn turn_failed_or_cancelled_without_cause_is_corrupt() {
    check(
        |evidence| evidence.wished.clear(),
        &[r#"Corrupted: trn_03 (`k3`) ended as Cancelled { reason: "enough" }"#],
    );
    check_story(
        |story| {
            let failure = Failure::new(Kind::Internal, "no idea");
            story.records.retain(|record| {
                record.fact != Fact::Ended { end: TurnEnd::Answered { text: "done".into() } }
            });
            story.end(MAIN, TurnEnd::Failed { failure });
        },
        &[
            r#"Corrupted: trn_01 (`k1`) ended as Failed { failure: Failure { code: Internal, detail: "no idea", policy: None } }"#,
        ],
    );
}

#[test]
fn a_turn_that_got_stuck_is_corrupt() {
    let failure = Failure::new(Kind::JournalDiverged, "it parted");
    check_story(
        |story| {
            story.add(MAIN, Fact::Stuck { failure });
        },
        &["Corrupted: record 24 of ses_5b (`turn.stuck`): the turn got stuck: journal.diverged: it parted"],
    );
}

#[test]
fn turn_neither_ended_nor_waiting_is_lost() {
    check_story(
        |story| drop(story.records.pop()),
        &["Lost: trn_03 (`k3`) neither ended nor waits for what it should"],
    );
    check(
        |evidence| evidence.unanswered.clear(),
        &["Lost: trn_04 (`k4`) neither ended nor waits for what it should"],
    );
}

#[test]
fn a_session_that_is_left_running_is_lost() {
    check_story(|story| story.view.state = SessionState::Leased, &["Lost: ses_5b was left running"]);
}

#[test]
fn wait_resolved_twice_or_misread_is_found() {
    check_story(
        |story| {
            let (key, resolution) = (completion().key, Resolution::Ok(json!(6)));
            story.add(MAIN, Fact::Resolved { key: key.clone(), resolution: resolution.clone() });
            story.add(
                MAIN,
                performed(key.clone(), AwaitEvent { key, deadline: None }, Resolution::Ok(json!(5))),
            );
        },
        &[
            "Repeated: turn/0/tools/0/child:3:call_14/completion of trn_01 was resolved twice",
            "Corrupted: turn/0/tools/0/child:3:call_14/completion of trn_01 was read as Ok(Number(5)), given was Some(Ok(Number(6)))",
            "Repeated: the resolution of turn/0/tools/0/child:3:call_14/completion of trn_01 was read twice",
            "Corrupted: turn/0/tools/0/child:3:call_14/completion of trn_01 was read as Ok(Number(5)), given was Some(Ok(Number(6)))",
        ],
    );
}

#[test]
fn at_most_once_call_acting_twice_is_repeated() {
    check(
        |evidence| {
            let [pay, ..] = calls();
            evidence.executions.push(executed(&pay, None, 1));
        },
        &[
            "Repeated: `pay` acted twice in attempt 1 of cal_0b",
            "Repeated: the at-most-once `pay` acted 2 times for cal_0b",
        ],
    );
}

#[test]
fn unknown_at_most_once_call_cannot_act_twice() {
    check(
        |evidence| {
            let [.., lost_pay] = calls();
            evidence.executions.push(Execution { pid: 7, ..executed(&lost_pay, None, 1) });
        },
        &[
            "Repeated: `pay` acted twice in attempt 1 of cal_10",
            "Repeated: the at-most-once `pay` acted 2 times for cal_10",
        ],
    );
}

#[test]
fn attempt_missing_from_the_journal_is_corrupt() {
    check(
        |evidence| {
            let [.., count, _] = calls();
            evidence.executions.push(executed(&count, None, 2));
        },
        &["Corrupted: `count` acted for cal_0f as attempt 2, the journal knows 1"],
    );
}

#[test]
fn execution_with_wrong_key_or_arguments_is_corrupt() {
    check(
        |evidence| {
            evidence.executions[5].call = CallId::from_u128(99).to_string();
            evidence.executions[6].arguments = "other".into();
        },
        &[
            "Corrupted: `ask` acted for cal_63, which the journal does not know",
            "Corrupted: `count` acted for cal_0f, which the journal has as another call",
            "Lost: `ask` is said to have acted for cal_0e, but it did not",
        ],
    );
}

#[test]
fn result_without_an_execution_is_lost() {
    check(
        |evidence| drop(evidence.executions.remove(0)),
        &["Lost: `pay` is said to have acted for cal_0b, but it did not"],
    );
}

#[test]
fn executed_call_recorded_as_not_happened_is_corrupt() {
    check(
        |evidence| {
            let [_, book, ..] = calls();
            evidence.executions.push(executed(&book, None, 1));
        },
        &["Corrupted: `book` acted for cal_0c, but the journal says: tool.interrupted: it did not happen"],
    );
}

#[test]
fn step_rerun_after_its_answer_is_repeated() {
    check(
        |evidence| {
            let [_, _, walk, ..] = calls();
            evidence.executions.push(executed(&walk, Some("left"), 2));
        },
        &[
            "Repeated: step `left` of cal_0d ran again after `right` had begun",
            "Repeated: step `left` of cal_0d ran after attempt 1 had answered it",
        ],
    );
}

#[test]
fn a_step_that_was_answered_twice_is_repeated() {
    check_story(
        |story| {
            let is_left = |fact: &Fact| matches!(fact, Fact::Performed(performed) if performed.key.as_str().ends_with("step:left"));
            let left = story.records.iter().map(|record| record.fact.clone()).find(is_left);
            story.add(MAIN, left.expect("the story has that step"));
        },
        &["Repeated: step `left` of cal_0d was answered twice"],
    );
}

#[test]
fn step_rerun_after_the_next_began_is_repeated() {
    check(
        |evidence| {
            let [_, _, walk, ..] = calls();
            // As if `home` had started before `right` was durable.
            evidence.executions.push(executed(&walk, Some("home"), 1));
        },
        &["Repeated: step `right` of cal_0d ran again after `home` had begun"],
    );
}

#[test]
fn finished_call_with_missing_steps_is_lost() {
    let is_home = |record: &Record| matches!(&record.fact, Fact::Performed(performed) if performed.key.as_str().ends_with("step:home"));
    check_story(
        |story| story.records.retain(|record| !is_home(record)),
        &["Lost: cal_0d is done, but a step of it was never answered"],
    );
}

#[test]
fn a_step_that_never_ran_is_lost() {
    check(|evidence| drop(evidence.executions.remove(1)), &["Lost: step `left` of cal_0d never ran"]);
}

#[test]
fn a_call_that_was_answered_twice_is_repeated() {
    check_story(|story| story.answer(MAIN, Seq(4), 0, done()), &["Repeated: cal_0b was answered 2 times"]);
}

#[test]
fn ended_turn_with_an_open_call_is_corrupt() {
    let is_answer = |record: &Record| matches!(&record.fact, Fact::Answered(answered) if answered.claim == ClaimRef { asked: Seq(4), child: 0 });
    check_story(
        |story| story.records.retain(|record| !is_answer(record)),
        &["Corrupted: cal_0b has no outcome, but its turn is over"],
    );
}

#[test]
fn call_failed_without_a_reason_is_corrupt() {
    check_story(
        |story| {
            for record in &mut story.records {
                if let Fact::Answered(answered) = &mut record.fact
                    && answered.claim.child == 2
                {
                    let failure = Failure::new(Kind::ToolFailed, "the witness is gone");
                    answered.outcome = ToolOutcome::Done(ToolResult::Err(failure)).into();
                }
            }
        },
        &["Corrupted: `walk` failed for cal_0d: tool.failed: the witness is gone"],
    );
}

#[test]
fn unknown_list_must_match_the_journal() {
    check(
        |evidence| evidence.listed.clear(),
        &["Corrupted: cal_10 is unknown, but `outlast unknown` hides it"],
    );
    check(
        |evidence| assert!(evidence.listed.insert("cal_1".into())),
        &["Corrupted: `outlast unknown` lists cal_1, whose outcome is known"],
    );
}

#[test]
fn only_calls_without_probe_may_be_unknown() {
    check_story(
        |story| {
            for record in &mut story.records {
                if let Fact::Answered(answered) = &mut record.fact
                    && answered.claim.child == 1
                {
                    answered.outcome = ToolOutcome::Unknown.into();
                }
            }
        },
        &[
            "Corrupted: the outcome of `book` for cal_0c is unknown",
            "Corrupted: cal_0c is unknown, but `outlast unknown` hides it",
        ],
    );
}

#[test]
fn transactional_call_must_count_exactly_once() {
    check(|evidence| evidence.sessions[0].count = 2, &["Repeated: ses_5b counts 2 for 1 calls"]);
    check(|evidence| evidence.sessions[0].count = 0, &["Lost: ses_5b counts 0 for 1 calls"]);
}
