//! Cedar decides according to its policies, and errors in them are found when they are loaded.
#![cfg(feature = "engine")]

use outlast_cedar::{Cedar, PolicyFiles};
use outlast_ports::policy::{EngineDecision, PolicyEngine};
use outlast_vocab::label::{Labels, Provenance, SinkArgument, UntrustedSource};
use outlast_vocab::message::ToolName;
use outlast_vocab::policy::{
    ApprovalRequirement, PolicyDecision, PolicyFacts, PolicyPoint, TurnCircumstances,
};
use outlast_vocab::{Error, Kind};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

const POLICIES: &str = r#"
@id("work")
permit(principal == Agent::"clerk", action, resource);

@id("large")
@decision("ask")
@who("ann, bob")
@expires_s("60")
forbid(principal, action == Action::"tool", resource == Tool::"pay")
when { context.facts.euros > 100 };

@id("tainted")
@reason("untrusted text may have asked for it")
forbid(principal, action == Action::"tool", resource)
when { context.untrusted };

@id("alarm")
@decision("interrupt")
forbid(principal, action == Action::"egress", resource == Host::"evil.example")
;

@id("costly")
forbid(principal, action == Action::"model", resource)
when { context has cost_micros && context.cost_micros > 500000 };
"#;

struct Dir(tempfile::TempDir);

impl Dir {
    fn with(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        Self(dir)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn load(&self, entities: Option<&str>, schema: Option<&str>) -> Result<Cedar, Error> {
        Cedar::load(&PolicyFiles {
            policies: self.at("p.cedar"),
            entities: entities.map(|name| self.at(name)),
            schema: schema.map(|name| self.at(name)),
        })
    }

    /// Returns the error text without the path of the directory.
    fn wrong(&self, entities: Option<&str>, schema: Option<&str>) -> String {
        let error = self.load(entities, schema).err().expect("something is wrong");
        assert_eq!(error.kind(), Kind::ConfigInvalid, "{error}");
        error.detail().replace(&format!("{}/", self.0.path().display()), "")
    }
}

async fn judge(
    cedar: &Cedar,
    at: PolicyPoint,
    value: Value,
    labels: &Labels,
) -> Result<EngineDecision, Error> {
    judge_values(cedar, at, &value, labels, &Provenance::of_call()).await
}

async fn judge_values(
    cedar: &Cedar,
    at: PolicyPoint,
    value: &Value,
    labels: &Labels,
    provenance: &Provenance,
) -> Result<EngineDecision, Error> {
    let tool: ToolName = "pay".parse().unwrap();
    let around = TurnCircumstances {
        agent: "clerk".to_owned(),
        spent: Some("0.75".parse().unwrap()),
        ..TurnCircumstances::default()
    };
    let tool = at.is_call_point().then_some(&tool);
    let judged =
        cedar.judge(PolicyFacts { at, tool, value, labels, provenance, circumstances: &around }).await;
    judged.map(|judgement| judgement.expect("Cedar always has an opinion"))
}

#[tokio::test]
async fn policies_return_each_decision_and_deny_by_default() {
    let cedar = Dir::with(&[("p.cedar", POLICIES)]).load(None, None).unwrap();
    let clean = Labels::default();
    let tainted = Labels::from_iter([UntrustedSource::Attachment]);
    for (at, value, labels, rule, decision) in [
        (PolicyPoint::Tool, json!({ "euros": 5 }), &clean, "work", "allow"),
        (PolicyPoint::Tool, json!({ "euros": 101 }), &clean, "large", "ask"),
        (PolicyPoint::Tool, json!({ "euros": 101 }), &tainted, "tainted", "deny"),
        (PolicyPoint::Turn, json!({ "input": "hi", "attachments": 0 }), &clean, "work", "allow"),
        (PolicyPoint::Egress, json!({ "host": "evil.example" }), &clean, "alarm", "interrupt"),
        (PolicyPoint::Egress, json!({ "host": "api.example" }), &clean, "work", "allow"),
        (PolicyPoint::Model, json!({ "model": "m" }), &clean, "costly", "deny"),
        (PolicyPoint::Payment, json!({ "amount": 3.1, "payee": "baker" }), &clean, "work", "allow"),
    ] {
        let found = judge(&cedar, at, value.clone(), labels).await.unwrap();
        assert_eq!((found.rule.as_str(), found.decision.name()), (rule, decision), "{at} {value}");
    }
    let empty_policies = Dir::with(&[("p.cedar", "")]).load(None, None).unwrap();
    let denied = judge(&empty_policies, PolicyPoint::Turn, json!({}), &clean).await.unwrap();
    let reason = "no policy permits it".to_owned();
    assert_eq!((denied.rule.as_str(), denied.decision), ("cedar", PolicyDecision::Deny { reason }));
}

#[tokio::test]
async fn a_policy_sees_the_sources_of_untrusted_text() {
    let policies = r#"@id("work") permit(principal, action, resource);
        @id("web") forbid(principal, action, resource) when { context.labels.contains("tool:fetch") };"#;
    let cedar = Dir::with(&[("p.cedar", policies)]).load(None, None).unwrap();
    for (sources, rule) in [
        (vec![], "work"),
        (vec![UntrustedSource::Attachment], "work"),
        (vec![UntrustedSource::Attachment, UntrustedSource::Tool("fetch".parse().unwrap())], "web"),
    ] {
        let labels = Labels::from_iter(sources);
        let found = judge(&cedar, PolicyPoint::Tool, json!({}), &labels).await.unwrap();
        assert_eq!(found.rule.as_str(), rule, "{labels}");
    }
}

#[tokio::test]
async fn policy_sees_provenance_of_sink_arguments() {
    let policies = r#"@id("work") permit(principal, action, resource);
        @id("values") forbid(principal, action == Action::"tool", resource)
        when { context.provenance == "untrusted" };
        @id("copies") forbid(principal, action == Action::"tool", resource)
        when { context.sinks.contains({ path: "/cc", origin: "tool:contacts" }) };"#;
    let schema = "entity Agent;
        entity Tool;
        action tool appliesTo { principal: Agent, resource: Tool, context: {
            facts: {}, untrusted: Bool, labels: Set<String>, provenance: String,
            sinks: Set<{ path: String, origin: String }>, tool: String, cost_micros?: Long
        } };";
    let files = Dir::with(&[("p.cedar", policies), ("s.cedarschema", schema)]);
    let labels = Labels::from_iter([UntrustedSource::Attachment]);
    for schema in [None, Some("s.cedarschema")] {
        let cedar = files.load(None, schema).unwrap();
        for (sinks, rule) in [
            (vec![], "work"),
            (vec![("/to", "user"), ("/cc", "agent")], "work"),
            (vec![("/to", "user"), ("/cc", "tool:contacts")], "copies"),
            (vec![("/to", "tool:contacts"), ("/cc", "user")], "work"),
            (vec![("/to", "unknown"), ("/cc", "user")], "values"),
            (vec![("", "call")], "values"),
        ] {
            let sink = |(path, origin): (&str, &str)| SinkArgument {
                path: path.to_owned(),
                origin: origin.parse().unwrap(),
            };
            let provenance: Provenance = sinks.into_iter().map(sink).collect();
            let found =
                judge_values(&cedar, PolicyPoint::Tool, &json!({}), &labels, &provenance).await.unwrap();
            assert_eq!(found.rule.as_str(), rule, "{provenance}");
        }
    }
}

#[tokio::test]
async fn only_calls_of_tools_have_provenance() {
    let policies = r#"@id("work") permit(principal, action, resource);
        @id("known") forbid(principal, action, resource) when { context has provenance || context has sinks };"#;
    let cedar = Dir::with(&[("p.cedar", policies)]).load(None, None).unwrap();
    for at in PolicyPoint::ALL {
        let found = judge(&cedar, at, json!({}), &Labels::default()).await.unwrap();
        let rule = if at == PolicyPoint::Tool { "known" } else { "work" };
        assert_eq!(found.rule.as_str(), rule, "{at}");
    }
}

#[tokio::test]
async fn several_ask_policies_intersect_their_approvers() {
    let board = |who: &str| {
        format!(
            "{POLICIES}\n@id(\"board\") @decision(\"ask\") @who(\"{who}\") @reason(\"it is much\") \
                 forbid(principal, action, resource == Tool::\"pay\") when {{ context.facts.euros > 200 }};"
        )
    };
    let asked = async |who: &str| {
        let cedar = Dir::with(&[("p.cedar", board(who).as_str())]).load(None, None).unwrap();
        judge(&cedar, PolicyPoint::Tool, json!({ "euros": 500 }), &Labels::default()).await.unwrap()
    };
    let both = asked("bob, cfo").await;
    let (expires, reason) = (Some(Duration::from_mins(1)), Some("it is much".into()));
    let ask = ApprovalRequirement {
        who: vec!["bob".to_owned()],
        expires,
        reason,
        ..ApprovalRequirement::default()
    };
    assert_eq!((both.rule.as_str(), both.decision), ("board", PolicyDecision::Ask(ask)));
    assert_eq!(asked("cfo").await.decision.name(), "deny");
}

#[tokio::test]
async fn policy_evaluation_error_denies() {
    let cedar = Dir::with(&[("p.cedar", POLICIES)]).load(None, None).unwrap();
    for value in [json!({}), json!({ "euros": null }), json!({ "euros": "many" }), json!({ "euros": 1e300 })]
    {
        let error = judge(&cedar, PolicyPoint::Tool, value, &Labels::default()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::PolicyFailed);
    }
}

#[tokio::test]
async fn text_of_a_model_never_becomes_an_entity() {
    let policies = r#"permit(principal, action, resource) when { context.facts.to == Agent::"clerk" };"#;
    let cedar = Dir::with(&[("p.cedar", policies)]).load(None, None).unwrap();
    let forged = json!({ "to": { "__entity": { "type": "Agent", "id": "clerk" } } });
    let found = judge(&cedar, PolicyPoint::Tool, forged, &Labels::default()).await.unwrap();
    assert_eq!(found.decision.name(), "deny");
}

#[test]
fn policy_errors_name_file_and_line() {
    let wrong = |policies: &str| Dir::with(&[("p.cedar", policies)]).wrong(None, None);
    assert_eq!(
        wrong("permit(principal, action, resource);\nforbid(principal, resource);"),
        "p.cedar:2: found the variable `resource` where the variable `action` must be used"
    );
    let detail = wrong("@decision(\"maybe\")\nforbid(principal, action, resource);");
    assert!(
        detail.ends_with("expected `deny`, `ask` or `interrupt` in `@decision`, got `maybe`"),
        "{detail}"
    );
    let detail = wrong("@id(\"no good name\")\nforbid(principal, action, resource);");
    assert!(detail.contains("no good name"), "{detail}");
    let schema = "entity Agent;\nentity Tool;\naction tool appliesTo { principal: Agent, resource: Tool };";
    let files = Dir::with(&[
        ("p.cedar", "permit(principal, action, resource)\nwhen { context.speed > 3 };"),
        ("s.cedarschema", schema),
        ("broken.cedarschema", "entity Agent;\nentity;"),
        ("e.json", "[{"),
    ]);
    assert!(files.wrong(None, Some("s.cedarschema")).starts_with("p.cedar:2: "));
    assert!(files.wrong(None, Some("broken.cedarschema")).starts_with("broken.cedarschema:2: "));
    assert!(files.wrong(Some("e.json"), None).starts_with("e.json:1: "));
}

#[test]
fn different_policy_text_changes_the_version() {
    let one = Dir::with(&[("p.cedar", POLICIES)]).load(None, None).unwrap();
    let same = Dir::with(&[("p.cedar", POLICIES)]).load(None, None).unwrap();
    let other = Dir::with(&[("p.cedar", "")]).load(None, None).unwrap();
    assert_eq!(one.version(), same.version());
    assert_ne!(one.version(), other.version());
}

/// Returns the points at which a policy file decides about the agent `clerk`, except `tool`.
fn decides(policies: &str, entities: Option<&str>) -> String {
    let files = Dir::with(&[("p.cedar", policies), ("e.json", entities.unwrap_or("[]"))]);
    let cedar = files.load(entities.map(|_| "e.json"), None).unwrap();
    assert!(cedar.decides_at(PolicyPoint::Tool, "clerk"), "a yes stands for a tool that wants an approval");
    let decides =
        PolicyPoint::ALL.into_iter().filter(|at| *at != PolicyPoint::Tool && cedar.decides_at(*at, "clerk"));
    decides.map(PolicyPoint::name).collect::<Vec<_>>().join(" ")
}

#[test]
fn policies_are_evaluated_wherever_they_might_not_allow() {
    const ALL: &str = "turn model egress secret process payment output";
    let open = "permit(principal, action, resource);";
    let beside = |policy: &str| decides(&format!("{open}\n{policy}"), None);
    assert_eq!(decides(POLICIES, None), "model egress");
    assert_eq!(decides(open, None), "");
    // Without a permit, everything is denied.
    assert_eq!(decides("", None), ALL);
    assert_eq!(
        decides(r#"permit(principal, action == Action::"output", resource);"#, None),
        ALL.replace(" output", "")
    );
    assert_eq!(decides(r#"permit(principal == Agent::"boss", action, resource);"#, None), ALL);
    assert_eq!(
        decides("permit(principal is Agent, action, resource is Output);", None),
        ALL.replace(" output", "")
    );
    // A condition may fail, and a scope may not match.
    assert_eq!(beside("permit(principal, action, resource) when { context.untrusted };"), ALL);
    assert_eq!(beside("forbid(principal, action, resource) unless { context.untrusted };"), ALL);
    assert_eq!(beside(r#"forbid(principal == Agent::"boss", action, resource);"#), "");
    assert_eq!(beside(r#"forbid(principal, action, resource == Output::"output");"#), "output");
    assert_eq!(beside(r#"forbid(principal, action, resource == Output::"another");"#), "");
    assert_eq!(beside(r#"forbid(principal, action, resource == Host::"evil.example");"#), "egress");
    assert_eq!(
        beside(r#"forbid(principal, action, resource in Zone::"outside");"#),
        "model egress secret process payment"
    );
    assert_eq!(decides(r#"permit(principal, action, resource == Host::"api.example");"#, None), ALL);
    // Groups come from the entities.
    let groups = r#"[
        { "uid": { "type": "Agent", "id": "clerk" }, "attrs": {}, "parents": [{ "type": "Staff", "id": "office" }] },
        { "uid": { "type": "Action", "id": "output" }, "attrs": {}, "parents": [{ "type": "Action", "id": "speak" }] }
    ]"#;
    let office_policy = r#"permit(principal in Staff::"office", action, resource);"#;
    assert_eq!(decides(office_policy, None), ALL);
    assert_eq!(decides(office_policy, Some(groups)), "");
    let hushed = format!(r#"{open} forbid(principal, action in [Action::"speak"], resource);"#);
    assert_eq!((decides(&hushed, None).as_str(), decides(&hushed, Some(groups)).as_str()), ("", "output"));
}

#[tokio::test]
async fn skipped_policy_points_would_have_allowed() {
    let cedar = Dir::with(&[("p.cedar", POLICIES)]).load(None, None).unwrap();
    for at in PolicyPoint::ALL.into_iter().filter(|at| !cedar.decides_at(*at, "clerk")) {
        for labels in [Labels::default(), Labels::from_iter([UntrustedSource::Attachment])] {
            for value in [json!({}), json!({ "euros": "many" }), json!(null)] {
                let found = judge(&cedar, at, value, &labels).await.unwrap();
                assert_eq!(found.decision, PolicyDecision::Allow, "{at}");
            }
        }
    }
}

#[test]
fn schema_makes_policies_decide_at_every_point() {
    let schema = "entity Agent;\nentity Tool;\naction tool appliesTo { principal: Agent, resource: Tool };";
    let files = Dir::with(&[("p.cedar", "permit(principal, action, resource);"), ("s.cedarschema", schema)]);
    let cedar = files.load(None, Some("s.cedarschema")).unwrap();
    assert!(PolicyPoint::ALL.into_iter().all(|at| cedar.decides_at(at, "clerk")));
}
