//! Finds the rate limits that apply to a call. Pure: the same rates and the same tool give the same answer.
use crate::policy::matches_wildcard;
use outlast_vocab::message::ToolName;
use outlast_vocab::rate::RateLimit;

/// Returns every rate limit that applies to calls of a tool.
pub fn rates_of<'r>(rates: &'r [RateLimit], tool: &ToolName) -> impl Iterator<Item = &'r RateLimit> {
    rates.iter().filter(move |rate| matches_wildcard(&rate.tool, tool.as_str()))
}
