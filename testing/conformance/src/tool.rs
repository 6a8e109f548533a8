//! The rules for tool providers: a provider has a contract for every tool that it lists, and reports unknown tools.
use super::store_under_test::{call, refused};
use super::{RuleFuture, RuleResult, block_on, fresh};
use outlast_ports::service::UnavailableScope;
use outlast_ports::tool::{Call, ToolProvider};
use outlast_vocab::id::{SessionId, TurnId};
use outlast_vocab::message::ToolName;
use outlast_vocab::tool::ToolContract;
use outlast_vocab::{Error, Kind};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A tool provider under test.
pub trait ToolFixture: Sync {
    /// Returns the provider, which has at least one tool.
    fn tools(&self) -> &dyn ToolProvider;

    /// Runs a rule to completion. Override this if the tools work only inside a certain runtime.
    fn run(&self, rule: RuleFuture<'_>) {
        block_on(rule);
    }
}

/// The tool provider under test.
pub(super) struct ToolsUnderTest<'a>(&'a dyn ToolProvider);

impl<'a> From<&'a dyn ToolFixture> for ToolsUnderTest<'a> {
    fn from(on: &'a dyn ToolFixture) -> Self {
        Self(on.tools())
    }
}

pub(super) async fn every_listed_tool_matches_its_contract(b: &ToolsUnderTest<'_>) -> RuleResult {
    let manifests = b.0.manifests();
    assert!(!manifests.is_empty());
    for manifest in manifests {
        let contract = b.0.contract(&manifest.name);
        assert_eq!(contract.map(ToolContract::manifest), Some(manifest));
    }
    Ok(())
}

pub(super) async fn tool_names_are_unique_and_stably_ordered(b: &ToolsUnderTest<'_>) -> RuleResult {
    let names: Vec<ToolName> = b.0.manifests().into_iter().map(|manifest| manifest.name).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    let again: Vec<ToolName> = b.0.manifests().into_iter().map(|manifest| manifest.name).collect();
    assert_eq!(names, again);
    Ok(())
}

pub(super) async fn tool_input_schema_is_an_object(b: &ToolsUnderTest<'_>) -> RuleResult {
    for manifest in b.0.manifests() {
        let contract = b.0.contract(&manifest.name).expect("it is listed");
        assert_eq!(contract.input["type"], json!("object"), "{}", manifest.name);
    }
    Ok(())
}

pub(super) async fn every_tool_has_a_description(b: &ToolsUnderTest<'_>) -> RuleResult {
    for manifest in b.0.manifests() {
        let contract = b.0.contract(&manifest.name).expect("it is listed");
        assert!(!contract.description.trim().is_empty(), "{}", manifest.name);
    }
    Ok(())
}

pub(super) async fn missing_tool_is_reported_as_unknown(b: &ToolsUnderTest<'_>) -> RuleResult {
    let prepared = call("nobody.has.this");
    let (session, turn) = (SessionId::from_u128(fresh()), TurnId::from_u128(fresh()));
    assert!(b.0.contract(&prepared.tool).is_none());
    unknown(b.0.prepare(session, &prepared.tool, &prepared.arguments).await);
    let facts = Call { id: prepared.id, session, turn, attempt: 1, attempts: 1, payload: None };
    unknown(b.0.execute(&prepared, facts, Arc::new(UnavailableScope)).await);
    unknown(b.0.probe(&prepared).await);
    Ok(())
}

#[track_caller]
fn unknown<T>(result: Result<T, Error>) {
    refused(result, Kind::ToolUnknown);
}
