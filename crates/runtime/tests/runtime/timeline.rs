//! What befell an effect is kept with it.
use outlast_runtime::timeline::{Befell, EffectState, EffectView, Incident, of_turn};
use outlast_vocab::effect::{BatchCall, Command, Outcome, ToolBatch, ToolOutcome};
use outlast_vocab::label::Labels;
use outlast_vocab::message::ToolResult;
use outlast_vocab::record::{Answered, Asked, ClaimRef, Fact, Reclaimed, Record, Seq};
use outlast_vocab::tool::{EffectClass, PreparedCall};
use outlast_vocab::{CallId, Failure, Hash, Kind, Millis, ReplayKey};
use serde_json::json;

const CLAIM: ClaimRef = ClaimRef { asked: Seq(3), child: 0 };

fn effects(facts: Vec<Fact>) -> Vec<EffectView> {
    let records = (3..).zip(facts).map(|(seq, fact)| Record {
        seq: Seq(seq),
        turn: None,
        at: Millis(seq * 100),
        hash: Hash::ZERO,
        fact,
    });
    of_turn(&records.collect::<Vec<_>>())
}

fn batch() -> Fact {
    let call = PreparedCall {
        id: CallId::from_u128(1),
        model_id: "c1".parse().unwrap(),
        tool: "put".parse().unwrap(),
        class: EffectClass::Idempotent,
        arguments: json!({ "text": "a" }),
        payload: None,
        ruling: None,
        labels: Labels::default(),
    };
    let command = Command::ToolBatch(ToolBatch { calls: vec![BatchCall::Run(call)] });
    Fact::Asked(Asked { key: ReplayKey::turn(0).tools(0), command })
}

#[test]
fn every_further_attempt_of_a_call_is_kept_with_its_time() {
    let again = |attempt| Fact::Reclaimed(Reclaimed { claim: CLAIM, attempt });
    let renewed = again(1);
    let done = Outcome::ToolCall(ToolOutcome::Done(ToolResult::Ok(json!("put a"))));
    let answered = Fact::Answered(Answered { claim: CLAIM, outcome: done });
    let [effect] = &effects(vec![batch(), renewed, again(2), again(3), answered])[..] else { panic!() };
    let tried =
        |seq, attempt| Incident { seq: Seq(seq), at: Millis(seq * 100), what: Befell::Again { attempt } };
    assert_eq!(effect.incidents, [tried(5, 2), tried(6, 3)]);
    assert_eq!((effect.attempts, effect.state), (3, EffectState::Done));
}

#[test]
fn what_held_an_effect_up_is_kept_with_it() {
    let failure = Failure::new(Kind::JournalDiverged, "the tool is gone");
    let stuck = Fact::Stuck { failure: failure.clone() };
    let [effect] = &effects(vec![stuck.clone(), batch()])[..] else { panic!() };
    let incident =
        |seq| Incident { seq: Seq(seq), at: Millis(seq * 100), what: Befell::Stuck(failure.clone()) };
    assert_eq!(effect.incidents, [incident(3)]);
    let [effect] = &effects(vec![batch(), stuck])[..] else { panic!() };
    assert_eq!(effect.incidents, [incident(4)]);
}
