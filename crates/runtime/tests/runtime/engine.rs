//! A policy engine in code: it decides beside the rules, and who fails forbids (R11.1).
use crate::common::*;
use crate::points::{deny, doing, lines, rule, rulings};
use outlast_ports::Answer;
use outlast_ports::memory::Memory;
use outlast_ports::policy::{Judgement, PolicyEngine};
use outlast_runtime::Config;
use outlast_vocab::policy::{Ask, Decision, Facts, Point, Rule};
use outlast_vocab::record::End;
use outlast_vocab::{Error, Hash, Kind};
use std::sync::Arc;

/// What an engine does when it is asked at a point.
#[derive(Clone)]
enum Does {
    Decides(Decision),
    Nothing,
    Fails,
    Panics,
    Hangs,
}

struct Engine {
    at: Point,
    does: Does,
}

impl PolicyEngine for Engine {
    fn version(&self) -> Hash {
        Hash::of(b"engine 1")
    }

    fn judge<'a>(&'a self, facts: Facts<'a>) -> Answer<'a, Option<Judgement>> {
        let does = if facts.at == self.at { self.does.clone() } else { Does::Nothing };
        Box::pin(async move {
            match does {
                Does::Decides(decision) => Ok(Some(Judgement { rule: "coded".parse().unwrap(), decision })),
                Does::Nothing => Ok(None),
                Does::Fails => Err(Error::new(Kind::IoFailed, "the list cannot be read")),
                Does::Panics => panic!("no"),
                Does::Hangs => std::future::pending().await,
            }
        })
    }
}

async fn under(at: Point, does: Does, rules: Vec<Rule>) -> (Life, End) {
    let witness: Arc<Witness> = Arc::default();
    let change = doing(&witness, rules);
    let change = |config: &mut Config| {
        change(config);
        config.policy_engine = Some(Arc::new(Engine { at, does }));
    };
    let life = live_with(Arc::new(Memory::new()), lines(at), witness.clone(), 1, change).await.unwrap();
    let turn = life.send("go").await;
    let end = life.end(turn).await;
    (life, end)
}

/// Why nothing happened: what the turn ended with, or what the model was told.
fn told(life: &Life, end: &End) -> String {
    match end {
        End::Failed { failure } => failure.to_string(),
        _ => life.last_shown().pop().unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_fails_panics_hangs_or_decides_nonsense_forbids_at_every_point() {
    for at in Point::ALL {
        let nonsense = match at {
            Point::Tool => Decision::Modify {
                set: [].into(),
                redact: vec![outlast_vocab::policy::Redaction { pattern: "a".into(), with: "b".into() }],
            },
            Point::Turn | Point::Model => Decision::Interrupt { reason: "stop".to_owned() },
            _ => Decision::Defer { pause: std::time::Duration::from_secs(1) },
        };
        for (does, why) in [
            (Does::Fails, "the policy engine failed: the list cannot be read"),
            (Does::Panics, "the policy engine panicked"),
            (Does::Hangs, "the policy engine did not answer within 2000 ms"),
            (Does::Decides(nonsense), "the policy engine decided by `coded`: "),
        ] {
            let (life, end) = under(at, does, Vec::new()).await;
            let told = told(&life, &end);
            assert!(told.contains("policy.failed: the rule `engine` forbids it: "), "{at}: {told}");
            assert!(told.contains(why), "{at}: {told}");
            assert_eq!(life.witness.count("did"), 0, "{at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_engine_decides_is_in_the_record_with_its_version() {
    let (life, end) = under(Point::Egress, Does::Decides(deny()), Vec::new()).await;
    assert_eq!(end, End::Answered { text: "done".to_owned() });
    let ruled = rulings(&life).await.pop().unwrap();
    assert_eq!((ruled.ruling.rule.as_str(), ruled.ruling.policy), ("coded", Hash::of(b"engine 1")));
    assert_eq!(life.witness.count("did"), 0);
}

#[tokio::test(start_paused = true)]
async fn neither_an_engine_nor_a_rule_opens_what_the_other_closes() {
    for at in Point::ALL {
        let (_, silent) = under(at, Does::Nothing, Vec::new()).await;
        assert_eq!(silent, End::Answered { text: "done".to_owned() }, "{at}");
        let pairs = [(Decision::Allow, deny()), (deny(), Decision::Allow)];
        for (engine, rules) in pairs {
            let (life, end) = under(at, Does::Decides(engine), vec![rule(at, rules)]).await;
            assert!(told(&life, &end).contains("policy.denied"), "{at}: {}", told(&life, &end));
            assert_eq!(life.witness.count("did"), 0, "{at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_can_ask_a_person_where_a_rule_could() {
    let witness: Arc<Witness> = Arc::default();
    let change = doing(&witness, Vec::new());
    let change = |config: &mut Config| {
        change(config);
        let does = Does::Decides(Decision::Ask(Ask::default()));
        config.policy_engine = Some(Arc::new(Engine { at: Point::Tool, does }));
    };
    let lines = lines(Point::Tool);
    let life = live_with(Arc::new(Memory::new()), lines, witness, 1, change).await.unwrap();
    life.send("go").await;
    life.until("turn.parked").await;
    let asked = life.runtime.approvals().pending(10).await.unwrap().pop().unwrap();
    assert_eq!(asked.call.ruling.unwrap().rule.as_str(), "coded");
}
