//! Cedar as a policy engine. Policies, entities and a schema come from files and are evaluated at every policy point.
//!
//! Requires the feature `engine`. Without it this crate is empty, because Cedar takes minutes to build. It does not
//! know turns or stores.
#![cfg(feature = "engine")]

mod context;
mod points;
mod source;

use cedar_policy::{
    Authorizer, Decision as Word, Entities, EntityId, EntityTypeName, EntityUid, Policy, PolicySet, Request,
    Schema,
};
use outlast_ports::ResultFuture;
use outlast_ports::policy::{EngineDecision, PolicyEngine};
use outlast_vocab::message::RuleId;
use outlast_vocab::policy::{ApprovalRequirement, PolicyDecision, PolicyFacts, PolicyPoint};
use outlast_vocab::{Error, Hash};
use serde_json::Value;
use source::{PolicySource, invalid};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The rule name to record if no policy permits a request.
const NONE: &str = "cedar";

/// The paths of the policy files.
#[derive(Clone, Debug, Default)]
pub struct PolicyFiles {
    /// The policies.
    pub policies: PathBuf,
    /// The entities for principals and resources, as JSON.
    pub entities: Option<PathBuf>,
    /// The schema against which policies, entities and requests are validated.
    pub schema: Option<PathBuf>,
}

/// Decides according to Cedar policies. Anything that no policy permits is denied.
///
/// # Requests
///
/// - **principal**: the agent, `Agent::"clerk"`
/// - **action**: the policy point, `Action::"tool"`, `Action::"egress"`, …
/// - **resource**: `Tool::"pay"`, `Turn::"turn"`, `Model::"…"`, `Host::"…"`, `Secret::"…"`, `Program::"…"`,
///   `Payee::"…"` or `Output::"output"`
/// - **context**: `facts` (the facts that rules see at the point), `untrusted` and `labels` (a set of texts such as
///   `"tool:fetch"`); if known also `tool`, `org` and `cost_micros`. Calls also have `provenance` (`"trusted"` or
///   `"untrusted"`, as in rules) and `sinks` (a set of records such as `{path: "/to", origin: "user"}`).
///
/// # Annotations
///
/// A `forbid` with `@decision("ask")` asks for approval instead of denying; `@decision("interrupt")` ends the turn.
/// `@who("ann,bob")` and `@expires_s("3600")` set who may approve and for how long, `@reason("…")` the reason, and
/// `@id("…")` the name in records.
///
/// # Where it decides
///
/// The engine skips a point where it can only permit: an unconditional `permit` matches every request of the agent, and
/// no `forbid` or conditional policy can match one. It always decides about tool calls, because its permission replaces
/// the approval that a tool wants. With a schema it decides everywhere, because a request may be invalid.
pub struct Cedar {
    policies: PolicySet,
    entities: Entities,
    schema: Option<Schema>,
    version: Hash,
}

impl Cedar {
    /// Reads and validates the files. Errors name the file and the line.
    pub fn load(files: &PolicyFiles) -> Result<Self, Error> {
        let policies = PolicySource::read(&files.policies)?;
        let schema = files.schema.as_deref().map(PolicySource::read).transpose()?;
        let entities = files.entities.as_deref().map(PolicySource::read).transpose()?;
        let texts = [Some(&policies), schema.as_ref(), entities.as_ref()];
        let version = Hash::of_parts(
            "outlast cedar v1",
            texts.map(|source| source.map_or(&[][..], PolicySource::bytes)),
        );
        let schema = schema.as_ref().map(PolicySource::schema).transpose()?;
        let policies = policies.policies(schema.as_ref())?;
        let entities = match &entities {
            Some(source) => source.entities(schema.as_ref())?,
            None => Entities::empty(),
        };
        Ok(Self { policies, entities, schema, version })
    }

    fn decide(&self, facts: &PolicyFacts<'_>) -> Result<EngineDecision, Error> {
        let request = self.request(facts)?;
        let response = Authorizer::new().is_authorized(&request, &self.policies, &self.entities);
        // A policy that cannot be evaluated might have forbidden the request.
        if let Some(error) = response.diagnostics().errors().next() {
            return Err(invalid(error.to_string()));
        }
        let determining = response.diagnostics().reason().filter_map(|id| self.policies.policy(id));
        if response.decision() == Word::Allow {
            let rule = determining.into_iter().next().map_or_else(none, rule_of)?;
            return Ok(EngineDecision { rule, decision: PolicyDecision::Allow });
        }
        let mut forbid = Vec::new();
        for policy in determining {
            forbid.push(EngineDecision {
                rule: rule_of(policy)?,
                decision: decision_of(policy).map_err(invalid)?,
            });
        }
        // Cedar returns them in no particular order; sort them so that the same request gets the same question.
        forbid.sort_by(|one, other| one.rule.cmp(&other.rule));
        let strictest = forbid.into_iter().reduce(stricter);
        let reason = "no policy permits it".to_owned();
        strictest.map_or_else(
            || Ok(EngineDecision { rule: none()?, decision: PolicyDecision::Deny { reason } }),
            Ok,
        )
    }

    fn request(&self, facts: &PolicyFacts<'_>) -> Result<Request, Error> {
        let (kind, id) = resource(facts);
        let principal = entity("Agent", &facts.circumstances.agent)?;
        let action = entity("Action", facts.at.name())?;
        let context = context::of(facts)?;
        Request::new(principal, action, entity(kind, &id)?, context, self.schema.as_ref())
            .map_err(|error| invalid(error.to_string()))
    }
}

impl PolicyEngine for Cedar {
    fn version(&self) -> Hash {
        self.version
    }

    fn decides_at(&self, point: PolicyPoint, agent: &str) -> bool {
        let permits_all = || points::permits_all(&self.policies, &self.entities, point, agent);
        point == PolicyPoint::Tool || self.schema.is_some() || !permits_all().unwrap_or(false)
    }

    fn judge<'a>(&'a self, facts: PolicyFacts<'a>) -> ResultFuture<'a, Option<EngineDecision>> {
        Box::pin(std::future::ready(self.decide(&facts).map(Some)))
    }
}

fn none() -> Result<RuleId, Error> {
    RuleId::try_from(NONE.to_owned())
}

fn entity(kind: &str, id: &str) -> Result<EntityUid, Error> {
    let kind = EntityTypeName::from_str(kind).map_err(|error| invalid(error.to_string()))?;
    Ok(EntityUid::from_type_name_and_id(kind, EntityId::new(id)))
}

/// Returns the resource of a request.
fn resource(facts: &PolicyFacts<'_>) -> (&'static str, String) {
    let fact = |name: &str| facts.value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let id = match facts.at {
        PolicyPoint::Tool => facts.tool.map(ToString::to_string).unwrap_or_default(),
        PolicyPoint::Turn | PolicyPoint::Output => facts.at.name().to_owned(),
        PolicyPoint::Model => fact("model"),
        PolicyPoint::Egress => fact("host"),
        PolicyPoint::Secret => fact("name"),
        PolicyPoint::Process => fact("program"),
        PolicyPoint::Payment => fact("payee"),
    };
    (resource_kind(facts.at), id)
}

/// Returns the entity type of the resource at a point.
const fn resource_kind(at: PolicyPoint) -> &'static str {
    match at {
        PolicyPoint::Tool => "Tool",
        PolicyPoint::Turn => "Turn",
        PolicyPoint::Model => "Model",
        PolicyPoint::Egress => "Host",
        PolicyPoint::Secret => "Secret",
        PolicyPoint::Process => "Program",
        PolicyPoint::Payment => "Payee",
        PolicyPoint::Output => "Output",
    }
}

/// Returns the name of a policy in records.
fn rule_of(policy: &Policy) -> Result<RuleId, Error> {
    RuleId::try_from(policy.annotation("id").map_or_else(|| policy.id().to_string(), str::to_owned))
}

/// Returns the decision of a forbidding policy, or the error in its annotations.
fn decision_of(policy: &Policy) -> Result<PolicyDecision, String> {
    let reason = policy.annotation("reason").unwrap_or("a policy forbids it").to_owned();
    match policy.annotation("decision") {
        None | Some("deny") => Ok(PolicyDecision::Deny { reason }),
        Some("interrupt") => Ok(PolicyDecision::Interrupt { reason }),
        Some("ask") => {
            let who = policy.annotation("who").unwrap_or_default().split(',').map(str::trim);
            let who = who.filter(|name| !name.is_empty()).map(str::to_owned).collect();
            let expires = policy.annotation("expires_s").map(|text| {
                let wrong = || format!("expected seconds like `3600` in `@expires_s`, got `{text}`");
                text.parse().ok().filter(|seconds| *seconds > 0).map(Duration::from_secs).ok_or_else(wrong)
            });
            let reason = policy.annotation("reason").map(Into::into);
            Ok(PolicyDecision::Ask(ApprovalRequirement {
                who,
                expires: expires.transpose()?,
                reason,
                ..ApprovalRequirement::default()
            }))
        }
        Some(other) => Err(format!("expected `deny`, `ask` or `interrupt` in `@decision`, got `{other}`")),
    }
}

/// Combines two forbidding policies: the stricter one wins, and two questions become one.
fn stricter(one: EngineDecision, other: EngineDecision) -> EngineDecision {
    match (one.decision, other.decision) {
        (PolicyDecision::Ask(asks), PolicyDecision::Ask(asks_too)) => {
            let decision = match asks.join(&asks_too) {
                Ok(ask) => PolicyDecision::Ask(ask),
                Err(what) => {
                    PolicyDecision::Deny { reason: format!("`{}` asks too, and {what}", other.rule) }
                }
            };
            EngineDecision { decision, ..one }
        }
        (first, second) if rank(&second) > rank(&first) => EngineDecision { decision: second, ..other },
        (decision, _) => EngineDecision { decision, ..one },
    }
}

fn rank(decision: &PolicyDecision) -> u8 {
    match decision {
        PolicyDecision::Interrupt { .. } => 2,
        PolicyDecision::Deny { .. } => 1,
        _ => 0,
    }
}
