//! Finds the rate limits that apply to a call. Pure: the same rates and the same tool give the same answer.
use crate::policy::like;
use outlast_vocab::message::ToolName;
use outlast_vocab::rate::Rate;

/// Returns every rate limit that applies to calls of a tool.
pub fn rates_of<'r>(rates: &'r [Rate], tool: &ToolName) -> impl Iterator<Item = &'r Rate> {
    rates.iter().filter(move |rate| like(&rate.tool, tool.as_str()))
}
