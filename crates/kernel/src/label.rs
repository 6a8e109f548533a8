//! Computes the labels of messages, turns and tools, and decides whether a labelled call may run.
//!
//! Pure: works on messages, records and contracts alone.
use crate::replay::TurnHistory;
use outlast_vocab::effect::{Command, Outcome};
use outlast_vocab::hook::HookUse;
use outlast_vocab::label::{Labels, TrustGuard, UntrustedSource};
use outlast_vocab::message::{Message, Part, ToolName};
use outlast_vocab::policy::{ApprovalRequirement, PolicyDecision};
use outlast_vocab::record::{EffectPerformed, EffectRequested, Fact, HookApplied, Record};
use outlast_vocab::tool::ToolContract;

/// The tools and hooks a turn ran with, which say who is trusted. A tool or hook that is missing here is
/// untrusted.
#[derive(Clone, Copy, Debug, Default)]
pub struct TurnToolsAndHooks<'a> {
    /// The tools of the turn.
    pub tools: &'a [ToolContract],
    /// The hooks of the turn.
    pub hooks: &'a [HookUse],
}

/// Returns the labels of a reply to these messages, without the labels of earlier turns.
pub fn of_messages(messages: &[Message], tools: &[ToolContract]) -> Labels {
    let source = |message: &Message| match message {
        Message::User { parts } => of_parts(parts),
        Message::Tool { tool, .. } => of_tool(tool, tools),
        Message::Assistant { .. } => None,
    };
    messages.iter().filter_map(source).collect()
}

/// Returns the labels of messages from another conversation that the sender supplied. Model replies and tool
/// results in it may come from anywhere, because no trustworthy labels of them exist.
pub fn of_supplied_messages(before: &[Message], tools: &[ToolContract]) -> Labels {
    let mut labels = of_messages(before, tools);
    if before.iter().any(|message| !matches!(message, Message::User { .. })) {
        labels.add(UntrustedSource::Before);
    }
    labels
}

/// Returns the labels that follow from a turn: those it inherited, and those of everything it read. Trust is
/// judged by the tools and hooks the turn ran with. A turn without recorded labels may have read anything.
pub fn of_turn(records: &[Record], known: TurnToolsAndHooks<'_>) -> Labels {
    let TurnToolsAndHooks { tools, hooks } = known;
    let mut labels = of_definitions(tools);
    for record in records {
        match &record.fact {
            Fact::Started(started) => match &started.labels {
                Some(inherited) => labels.extend(inherited.clone()),
                None => labels.add(UntrustedSource::Before),
            },
            Fact::Accepted(accepted) => {
                labels.extend(of_supplied_messages(&accepted.before, tools));
                labels.extend(of_parts(&accepted.parts));
            }
            Fact::Asked(EffectRequested { command: Command::ToolBatch(batch), .. }) => {
                labels.extend(batch.calls.iter().filter_map(|call| of_tool(call.tool(), tools)));
            }
            Fact::Performed(EffectPerformed { outcome: Outcome::Checkpoint(joined), .. }) => {
                labels.extend(joined.inputs.iter().filter_map(|input| of_parts(&input.parts)));
                labels.extend(joined.messages.iter().filter_map(|message| of_hook(&message.by, hooks)));
            }
            Fact::Hooked(HookApplied { hook, patch, .. }) if patch.reaches_model() => {
                labels.extend(of_hook(hook.as_str(), hooks));
            }
            _ => {}
        }
    }
    labels
}

/// Returns the labels of the tool definitions in the prompt. An untrusted MCP server wrote the definitions of
/// its tools.
pub fn of_definitions(tools: &[ToolContract]) -> Labels {
    let server = |contract: &ToolContract| contract.server.clone().filter(|_| !contract.trusted);
    tools.iter().filter_map(server).map(UntrustedSource::Server).collect()
}

/// Returns the labels of what hooks have told the model in a turn so far.
pub fn of_hooks(history: &TurnHistory, hooks: &[HookUse]) -> Labels {
    of_hook_messages(history.hooks_with_messages(), hooks)
}

/// Returns the labels of what these hooks have told a model.
pub(crate) fn of_hook_messages<'a>(told_by: impl Iterator<Item = &'a str>, hooks: &[HookUse]) -> Labels {
    told_by.filter_map(|hook| of_hook(hook, hooks)).collect()
}

fn of_hook(hook: &str, hooks: &[HookUse]) -> Option<UntrustedSource> {
    let mut uses = hooks.iter().filter(|usage| usage.name.as_str() == hook).peekable();
    let trusted = uses.peek().is_some() && uses.all(|usage| usage.trusted);
    (!trusted).then(|| hook.parse().map_or(UntrustedSource::Before, UntrustedSource::Hook))
}

fn of_parts(parts: &[Part]) -> Option<UntrustedSource> {
    parts.iter().any(Part::is_file).then_some(UntrustedSource::Attachment)
}

fn of_tool(tool: &ToolName, tools: &[ToolContract]) -> Option<UntrustedSource> {
    let trusted = tools.iter().any(|contract| contract.name == *tool && contract.trusted);
    (!trusted).then(|| UntrustedSource::Tool(tool.clone()))
}

/// Decides what happens to a call that untrusted text may have caused. Returns `None` if the earlier decision
/// stands.
pub fn guard(guard: TrustGuard, decided: Option<&PolicyDecision>) -> Option<PolicyDecision> {
    match (guard, decided) {
        // A person decides anyway, or the call does not run.
        (TrustGuard::Open, _)
        | (
            _,
            Some(PolicyDecision::Ask(_) | PolicyDecision::Deny { .. } | PolicyDecision::Interrupt { .. }),
        ) => None,
        (TrustGuard::Guarded, _) => Some(PolicyDecision::Ask(ApprovalRequirement::default())),
        (TrustGuard::Strict, _) => Some(PolicyDecision::Deny {
            reason: "untrusted text may have asked for it, and nobody is asked".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::message::ToolResult;
    use outlast_vocab::policy::AfterDeferral;
    use outlast_vocab::tool::EffectClass;
    use serde_json::json;

    fn tool(name: &str, class: EffectClass) -> ToolContract {
        ToolContract { class, ..ToolContract::new(name.parse().unwrap(), "", json!({})) }
    }

    fn said(tool: &str) -> Message {
        let (call, tool) = ("c".parse().unwrap(), tool.parse().unwrap());
        Message::Tool { call, tool, result: ToolResult::Ok(json!("text")) }
    }

    #[test]
    fn model_output_carries_labels_of_untrusted_tools() {
        let clock = ToolContract { trusted: true, ..tool("clock", EffectClass::Pure) };
        let tools = [clock, tool("fetch", EffectClass::Pure)];
        let of = |messages: &[Message]| of_messages(messages, &tools).to_string();
        assert_eq!(of(&[Message::user("hi"), said("clock")]), "");
        assert_eq!(of(&[said("clock"), said("fetch"), said("fetch")]), "tool:fetch");
        // A tool that no longer exists cannot be trusted.
        assert_eq!(of(&[said("gone")]), "tool:gone");
    }

    #[test]
    fn supplied_model_and_tool_messages_are_untrusted() {
        let clock = ToolContract { trusted: true, ..tool("clock", EffectClass::Pure) };
        let of = |before: &[Message]| of_supplied_messages(before, std::slice::from_ref(&clock)).to_string();
        let model = Message::Assistant { parts: vec![Part::text("hi")], calls: Vec::new() };
        assert_eq!(of(&[]), "");
        assert_eq!(of(&[Message::user("hi"), Message::user("again")]), "");
        assert_eq!(of(&[Message::user("hi"), model]), "before");
        // The sender may have made up the result of the tool.
        assert_eq!(of(&[said("clock")]), "before");
    }

    #[test]
    fn definitions_of_an_mcp_server_are_untrusted() {
        let of_wiki =
            ToolContract { server: Some("wiki".to_owned()), ..tool("wiki.read", EffectClass::Pure) };
        let trusted = ToolContract { trusted: true, ..of_wiki.clone() };
        assert_eq!(of_definitions(&[tool("pay", EffectClass::AtMostOnce), trusted.clone()]).to_string(), "");
        assert_eq!(of_definitions(&[trusted, of_wiki]).to_string(), "mcp:wiki");
    }

    #[test]
    fn trust_guard_overrides_all_but_ask_or_deny() {
        let ask = PolicyDecision::Ask(ApprovalRequirement::default());
        assert_eq!(guard(TrustGuard::Open, None), None);
        assert_eq!(guard(TrustGuard::Guarded, None), Some(ask.clone()));
        assert_eq!(guard(TrustGuard::Guarded, Some(&PolicyDecision::Allow)), Some(ask.clone()));
        assert_eq!(guard(TrustGuard::Strict, Some(&ask)), None);
        assert!(matches!(
            guard(TrustGuard::Strict, Some(&PolicyDecision::Allow)),
            Some(PolicyDecision::Deny { .. })
        ));
        let defer =
            PolicyDecision::Defer { pause: std::time::Duration::from_secs(1), resume: AfterDeferral::Go };
        assert!(matches!(guard(TrustGuard::Strict, Some(&defer)), Some(PolicyDecision::Deny { .. })));
    }
}
