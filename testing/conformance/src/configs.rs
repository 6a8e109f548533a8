//! Agents, harnesses and capabilities in a database: every version is kept.
use super::RuleResult;
use super::store_under_test::{ALL, LATER, NOW, StoreUnderTest, refused};
use outlast_views::ConfigKind::{Agent, Capability, Harness};
use outlast_vocab::Kind;
use outlast_vocab::overlay::Layer;
use serde_json::json;

pub(super) async fn agent_versions_are_kept_and_latest_applies(s: &StoreUnderTest<'_>) -> RuleResult {
    let first = json!({ "system": "Sell." });
    let second = json!({ "parent": "house", "system": "Sell cakes." });
    let one = s.put_config(Agent, "clerk".into(), first.clone(), NOW).await?;
    let same = s.put_config(Agent, "clerk".into(), first.clone(), LATER).await?;
    assert_eq!(one, same);
    let two = s.put_config(Agent, "clerk".into(), second.clone(), LATER).await?;
    let back = s.put_config(Agent, "clerk".into(), first, LATER).await?;
    assert_eq!((one.version, two.version, back.version), (1, 2, 3));
    assert_eq!((one.at, two.at), (NOW, LATER));
    assert_eq!(back.fingerprint, one.fingerprint);
    assert_eq!(s.config(Agent, "clerk".into()).await?, Some(back.clone()));
    assert_eq!(s.config_versions(Agent, "clerk".into(), ALL).await?, [back.clone(), two.clone(), one]);
    assert_eq!(s.config_versions(Agent, "clerk".into(), 2).await?, [back, two.clone()]);
    assert_eq!(two.parse::<Layer>()?.parent.as_deref(), Some("house"));
    Ok(())
}

pub(super) async fn config_replace_requires_the_current_version(s: &StoreUnderTest<'_>) -> RuleResult {
    let body = |text: &str| json!({ "system": text });
    let replace = |last, text| s.replace_config(Agent, "clerk".into(), body(text), last, NOW);
    refused(replace(1, "Sell.").await, Kind::ConfigChanged);
    assert_eq!(replace(0, "Sell.").await?.version, 1);
    refused(replace(0, "Give.").await, Kind::ConfigChanged);
    assert_eq!(replace(1, "Sell more.").await?.version, 2);
    refused(replace(1, "Sell less.").await, Kind::ConfigChanged);
    assert_eq!(s.config(Agent, "clerk".into()).await?.map(|last| last.body), Some(body("Sell more.")));
    Ok(())
}

pub(super) async fn deleted_config_keeps_its_versions(s: &StoreUnderTest<'_>) -> RuleResult {
    let body = json!({ "system": "Sell." });
    let delete = |last| s.delete_config(Agent, "clerk".into(), last, LATER);
    refused(delete(None).await, Kind::AgentNotFound);
    let one = s.put_config(Agent, "clerk".into(), body.clone(), NOW).await?;
    refused(delete(Some(2)).await, Kind::ConfigChanged);
    let gone = delete(Some(1)).await?;
    assert_eq!((gone.version, gone.at, gone.is_deleted()), (2, LATER, true));
    assert_eq!((s.config(Agent, "clerk".into()).await?, s.configs(Agent, ALL).await?), (None, vec![]));
    assert_eq!(s.config_versions(Agent, "clerk".into(), ALL).await?, [gone, one]);
    refused(delete(None).await, Kind::AgentNotFound);
    // A caller that expects no version can store it again, under a new version number.
    let again = s.replace_config(Agent, "clerk".into(), body, 0, LATER).await?;
    assert_eq!((again.version, again.is_deleted()), (3, false));
    assert_eq!(s.configs(Agent, ALL).await?, [again]);
    Ok(())
}

pub(super) async fn each_config_kind_is_listed_by_name(s: &StoreUnderTest<'_>) -> RuleResult {
    assert_eq!(s.config(Agent, "a".into()).await?, None);
    for (kind, name) in [(Agent, "b"), (Agent, "a"), (Harness, "a"), (Capability, "a"), (Agent, "a")] {
        let body = json!({ "system": format!("{kind} {name}") });
        s.put_config(kind, name.into(), body, NOW).await?;
    }
    s.put_config(Agent, "a".into(), json!({ "system": "edited" }), LATER).await?;
    let listed = s.configs(Agent, ALL).await?;
    let names: Vec<(&str, u32)> = listed.iter().map(|one| (one.name.as_str(), one.version)).collect();
    assert_eq!(names, [("a", 2), ("b", 1)]);
    assert_eq!(s.configs(Agent, 1).await?.len(), 1);
    assert_eq!(s.configs(Harness, ALL).await?[0].body, json!({ "system": "harness a" }));
    assert_eq!(s.configs(Capability, ALL).await?[0].body, json!({ "system": "capability a" }));
    Ok(())
}

pub(super) async fn invalid_agent_config_is_refused(s: &StoreUnderTest<'_>) -> RuleResult {
    refused(s.put_config(Agent, "a".into(), json!({ "model_calls": 0 }), NOW).await, Kind::ConfigInvalid);
    refused(s.put_config(Agent, "a".into(), json!([]), NOW).await, Kind::ConfigInvalid);
    refused(s.put_config(Agent, "a/b".into(), json!({}), NOW).await, Kind::InputInvalid);
    refused(s.put_config(Agent, "x".repeat(300), json!({}), NOW).await, Kind::LimitExceeded);
    let large = json!({ "system": "x".repeat(outlast_vocab::limits::CONFIG_BYTES) });
    refused(s.put_config(Agent, "a".into(), large, NOW).await, Kind::LimitExceeded);
    assert_eq!(s.configs(Agent, ALL).await?, []);
    Ok(())
}
