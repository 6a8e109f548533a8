//! `outlast agents audit`: shows what each tool of an agent reads and changes, how untrusted text affects its
//! calls, and which settings are missing.
use crate::terminal;
use outlast::vocab::label::TrustGuard;
use outlast::vocab::package::{Package, PinnedPackage};
use outlast::vocab::policy::{PolicyPoint, Rule};
use outlast::vocab::tool::{CallSinks, EffectClass, ToolContract};
use outlast_kernel::policy::matches_wildcard;
use outlast_kernel::provenance::{ToolSinks, sinks};
use serde::Serialize;
use std::collections::BTreeSet;

/// The audit of an agent.
#[derive(Serialize)]
struct AgentAudit<'a> {
    agent: &'a str,
    guard: TrustGuard,
    tools: Vec<ToolAudit<'a>>,
    /// Missing settings of the agent as a whole.
    lacks: Vec<String>,
}

/// The audit of a tool.
#[derive(Serialize)]
struct ToolAudit<'a> {
    tool: &'a str,
    /// Whether its results are trusted.
    reads: &'static str,
    /// What a call changes.
    changes: &'static str,
    /// Whether its arguments leave the machine.
    egress: bool,
    /// Which parts of a call are checked for untrusted text.
    sinks: AuditedSinks<'a>,
    /// What happens to a call after the agent read untrusted text.
    after_untrusted: String,
    /// Rules that decide such calls before the guard does.
    rules: Vec<&'a str>,
    /// Missing settings of the tool.
    lacks: Vec<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum AuditedSinks<'a> {
    Word(&'static str),
    Arguments(&'a [String]),
}

/// Prints the audit of an agent.
pub(super) fn print(pinned: &PinnedPackage, json: bool) {
    let audit = audit(&pinned.package, pinned.contracts.as_deref().unwrap_or_default());
    if json {
        terminal::json(&audit);
        return;
    }
    terminal::say(&format!("agent {}, guard {}", audit.agent, guard_name(audit.guard)));
    for ToolAudit { tool, reads, changes, egress, sinks, after_untrusted, rules, lacks } in &audit.tools {
        terminal::say(&format!("\n{tool}"));
        terminal::say(&format!("  reads: {reads}"));
        let egress = if *egress { "; its arguments leave this machine" } else { "" };
        terminal::say(&format!("  changes: {changes}{egress}"));
        let sinks = match sinks {
            AuditedSinks::Word(word) => (*word).to_owned(),
            AuditedSinks::Arguments(pointers) => pointers.join(", "),
        };
        terminal::say(&format!("  sinks: {sinks}"));
        terminal::say(&format!("  after untrusted text: {after_untrusted}"));
        if !rules.is_empty() {
            terminal::say(&format!("  unless a rule decides: {}", rules.join(", ")));
        }
        for what in lacks {
            terminal::say(&format!("  lacks: {what}"));
        }
    }
    for what in &audit.lacks {
        terminal::say(&format!("\nlacks: {what}"));
    }
}

fn audit<'a>(package: &'a Package, contracts: &'a [ToolContract]) -> AgentAudit<'a> {
    let mut lacks = Vec::new();
    if package.guard.is_open() {
        lacks.push(
            "the guard is open, so calls run after untrusted text was read; set `guard` to `guarded` or `strict`"
                .to_owned(),
        );
    }
    let of_servers = contracts.iter().filter(|contract| !contract.trusted);
    let servers: BTreeSet<&String> = of_servers.filter_map(|contract| contract.server.as_ref()).collect();
    lacks.extend(servers.into_iter().map(|server| {
        format!(
            "the MCP server `{server}` wrote the definitions of its tools, which are untrusted text that the model reads from the \
             start; read them (`outlast mcp test {server}`), then set `trust_definitions = true`"
        )
    }));
    let tools = contracts.iter().map(|contract| of_tool(contract, package)).collect();
    AgentAudit { agent: &package.agent, guard: package.guard, tools, lacks }
}

fn of_tool<'a>(contract: &'a ToolContract, package: &'a Package) -> ToolAudit<'a> {
    let found = sinks(contract);
    let shown = match found {
        ToolSinks::Nothing => AuditedSinks::Word("nothing"),
        ToolSinks::Call | ToolSinks::OpenSchema(_) => AuditedSinks::Word("call"),
        ToolSinks::Arguments(pointers) => AuditedSinks::Arguments(pointers),
    };
    ToolAudit {
        tool: contract.name.as_str(),
        reads: if contract.trusted { "trusted text" } else { "untrusted text" },
        changes: match contract.class {
            EffectClass::Pure => "nothing",
            EffectClass::Transactional => "values of its session",
            EffectClass::Idempotent => "the outside, may be repeated",
            EffectClass::AtMostOnce => "the outside, at most once",
        },
        egress: contract.egress,
        sinks: shown,
        after_untrusted: after_untrusted(found, package.guard),
        rules: rules(contract, package),
        lacks: lacks(contract, found),
    }
}

fn after_untrusted(sinks: ToolSinks<'_>, guard: TrustGuard) -> String {
    let stopped = match guard {
        TrustGuard::Open => return "it runs".to_owned(),
        TrustGuard::Guarded => "it requires an approval",
        TrustGuard::Strict => "it is refused",
    };
    match sinks {
        ToolSinks::Nothing => "it runs".to_owned(),
        ToolSinks::Call | ToolSinks::OpenSchema(_) => stopped.to_owned(),
        ToolSinks::Arguments(pointers) => {
            format!("it runs if the values of {} appear in trusted text, else {stopped}", pointers.join(", "))
        }
    }
}

fn rules<'a>(contract: &ToolContract, package: &'a Package) -> Vec<&'a str> {
    let decides = |rule: &&Rule| {
        let of_untrusted =
            rule.untrusted == Some(true) || !rule.labels.is_empty() || rule.provenance.is_some();
        rule.at == PolicyPoint::Tool && of_untrusted && matches_wildcard(&rule.tool, contract.name.as_str())
    };
    package.policy.rules.iter().filter(decides).map(|rule| rule.id.as_str()).collect()
}

fn lacks(contract: &ToolContract, found: ToolSinks<'_>) -> Vec<String> {
    let changes = matches!(contract.class, EffectClass::AtMostOnce | EffectClass::Idempotent);
    let what = match (found, &contract.sinks) {
        (ToolSinks::OpenSchema(pointer), _) => format!(
            "the sink `{pointer}` counts for the whole call, because the schema of the arguments is open; set `type = \"object\"` and \
             `additionalProperties = false` in every object on the way to it"
        ),
        (ToolSinks::Call, None) => {
            "`sinks`: list the sensitive arguments, or write `sinks = \"call\"` if the call itself is sensitive".to_owned()
        }
        (ToolSinks::Nothing, Some(CallSinks::Arguments(_))) if changes || contract.egress => {
            "`sinks` is empty, so untrusted text can cause any call of a tool that changes something or carries data out".to_owned()
        }
        _ => return Vec::new(),
    };
    vec![what]
}

fn guard_name(guard: TrustGuard) -> &'static str {
    match guard {
        TrustGuard::Open => "open",
        TrustGuard::Guarded => "guarded",
        TrustGuard::Strict => "strict",
    }
}
