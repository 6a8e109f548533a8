//! The bound on the tokens of one reply, which every model call has.
use crate::agents::resolved_agent::ResolvedAgent;
use outlast_ports::model::ModelCapabilities;
use outlast_vocab::Limits;
use outlast_vocab::effect::Generation;

/// Returns the most tokens of a reply. Without an explicit number, a reply gets at most a quarter of the context
/// window, and with one at most half of it, so that room for the conversation is left.
pub(crate) fn reply_bound(
    options: &Generation,
    resolved_agent: &ResolvedAgent,
    limits: &Limits,
    info: ModelCapabilities,
) -> u32 {
    let window = info.window_tokens();
    let wanted = match options.tokens_most {
        Some(explicit) => explicit.min(window / 2),
        None => resolved_agent.reply_tokens(limits).min(window / 4),
    };
    wanted.min(info.reply_tokens.unwrap_or(u32::MAX)).max(1)
}
