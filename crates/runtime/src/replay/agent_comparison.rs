//! Compares an agent with a recording: its prompt, its tools and the decisions of its rules.
use super::Divergence;
use crate::agents::resolved_agent::ResolvedAgent;
use outlast_kernel::provenance::{TrustedText, provenance};
use outlast_kernel::replay::difference;
use outlast_kernel::turn_cost::TurnCost;
use outlast_vocab::effect::{BatchCall, Command, ModelOutcome, Outcome};
use outlast_vocab::label::{Labels, Provenance, SinkArgument};
use outlast_vocab::message::{CallArguments, ModelCallId, ToolName, shown};
use outlast_vocab::package::PinnedPackage;
use outlast_vocab::policy::{PolicyDecision, PolicyFacts, PolicyPoint};
use outlast_vocab::record::{EffectPerformed, EffectRequested, Fact, Record};
use outlast_vocab::tool::{PreparedCall, ToolContract};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Returns a divergence at the first model call of a turn if the model, prompt or tools differ.
pub(super) fn of_package(
    records: &[Record],
    then: &PinnedPackage,
    now: &PinnedPackage,
) -> Option<Divergence> {
    let asks = |record: &Record| match &record.fact {
        Fact::Performed(EffectPerformed { key, command: Command::ModelCall(_), .. }) => Some(key.clone()),
        _ => None,
    };
    let effect = records.iter().find_map(asks)?;
    let mut differences = Vec::new();
    let (model_then, model_now) = (&then.package.model, &now.package.model);
    if model_then != model_now {
        differences.push(format!("model: recorded {model_then}, asked {model_now}"));
    }
    differences.extend(of_prompt(&then.package.system, &now.package.system));
    // Older databases did not store contracts.
    if let Some(contracts) = &then.contracts {
        differences.extend(of_tools(contracts, now.contracts.as_deref().unwrap_or_default()));
    }
    let (recorded, asked) = ("a model_call".to_owned(), "a different model_call".to_owned());
    (!differences.is_empty()).then_some(Divergence { effect, recorded, asked, differences })
}

/// Describes the first line of the prompt that differs.
fn of_prompt(then: &str, now: &str) -> Option<String> {
    if then == now {
        return None;
    }
    let (mut a, mut b) = (then.split('\n'), now.split('\n'));
    (1..).find_map(|number| match (a.next(), b.next()) {
        (Some(then), Some(now)) if then == now => None,
        (then, now) => {
            let line =
                |line: Option<&str>| line.map_or("nothing".to_owned(), |line| format!("`{}`", shown(line)));
            Some(format!("prompt, line {number}: recorded {}, asked {}", line(then), line(now)))
        }
    })
}

/// Describes the tools that were removed, added or changed.
fn of_tools(then: &[ToolContract], now: &[ToolContract]) -> Vec<String> {
    let mut differences = Vec::new();
    for old in then {
        match now.iter().find(|new| new.name == old.name) {
            None => differences.push(format!("tool {}: recorded, but not here", old.name)),
            Some(new) => {
                if let Some((path, then, now)) = difference(&json!(old), &json!(new)) {
                    differences.push(format!("tool {}, at {path}: recorded {then}, asked {now}", old.name));
                }
            }
        }
    }
    let is_new = |new: &&ToolContract| then.iter().all(|old| old.name != new.name);
    differences
        .extend(now.iter().filter(is_new).map(|new| format!("tool {}: here, but not recorded", new.name)));
    let names =
        |contracts: &[ToolContract]| contracts.iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>();
    if differences.is_empty() && names(then) != names(now) {
        differences.push(format!("order of tools: recorded {:?}, asked {:?}", names(then), names(now)));
    }
    differences
}

/// Returns a divergence at the first batch with a call that the two agents' rules decide differently. Both policies are
/// evaluated now, so conditions on time or spending are the same for both.
pub(super) async fn of_policy(
    records: &[Record],
    then: &ResolvedAgent,
    now: &ResolvedAgent,
) -> Option<Divergence> {
    let mut asked_for: BTreeMap<&ModelCallId, &Value> = BTreeMap::new();
    for record in records {
        match &record.fact {
            Fact::Performed(EffectPerformed {
                outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)),
                ..
            }) => {
                for ask in &reply.calls {
                    if let CallArguments::Json(arguments) = &ask.arguments {
                        asked_for.insert(&ask.id, arguments);
                    }
                }
            }
            Fact::Asked(EffectRequested { key, command: Command::ToolBatch(batch) }) if !key.is_undo() => {
                for call in &batch.calls {
                    let Some((arguments, labels)) = judged_by(call, asked_for.get(call.model_id()).copied())
                    else {
                        continue;
                    };
                    let tool = call.tool();
                    let trusted = recorded_as_trusted(call, arguments);
                    let then = decided(then, tool, arguments, &labels, &trusted).await;
                    let now = decided(now, tool, arguments, &labels, &trusted).await;
                    if then != now {
                        let differences =
                            vec![format!("recorded: `{tool}` {then}"), format!("now: `{tool}` {now}")];
                        let (recorded, asked) =
                            ("a tool_batch".to_owned(), "one with a different policy decision".to_owned());
                        return Some(Divergence { effect: key.clone(), recorded, asked, differences });
                    }
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the arguments and labels that the rules evaluated when a call was requested.
fn judged_by<'c>(call: &'c BatchCall, asked_for: Option<&'c Value>) -> Option<(&'c Value, Labels)> {
    match call {
        BatchCall::Run(run) => {
            // If a rule changed the arguments, use those that the model asked for. Changes by hooks are in the
            // arguments that ran.
            let changed = matches!(
                run.ruling.as_ref().map(|ruling| &ruling.decision),
                Some(PolicyDecision::Modify { .. })
            );
            Some((asked_for.filter(|_| changed).unwrap_or(&run.arguments), run.labels.clone()))
        }
        BatchCall::Refused(_) => Some((asked_for?, Labels::default())),
    }
}

/// Returns the sink values of a call that were recorded as coming from trusted text.
fn recorded_as_trusted<'c>(call: &'c BatchCall, arguments: &'c Value) -> TrustedText<'c> {
    let mut trusted = TrustedText::default();
    let BatchCall::Run(PreparedCall { provenance, .. }) = call else { return trusted };
    for SinkArgument { path, origin } in provenance.arguments() {
        if let Some(value) = arguments.pointer(path).filter(|_| origin.is_trusted()) {
            trusted.add_values(origin, value);
        }
    }
    trusted
}

/// Describes the decision of the rules, without rule names and versions, because only the decision matters.
async fn decided(
    resolved_agent: &ResolvedAgent,
    tool: &ToolName,
    arguments: &Value,
    labels: &Labels,
    trusted: &TrustedText<'_>,
) -> String {
    let around = &resolved_agent.circumstances(None, TurnCost::default());
    let contract = resolved_agent.contracts.iter().find(|contract| contract.name == *tool);
    let provenance =
        if labels.is_empty() { Provenance::default() } else { provenance(contract, arguments, trusted) };
    let (tool, provenance) = (Some(tool), &provenance);
    let facts = PolicyFacts {
        at: PolicyPoint::Tool,
        tool,
        value: arguments,
        labels,
        provenance,
        circumstances: around,
    };
    match resolved_agent.rule(&facts).await.map(|ruling| ruling.decision) {
        None | Some(PolicyDecision::Allow) => "runs".to_owned(),
        Some(decision) => format!("is ruled {}", json!(decision)),
    }
}
