//! Finds the rates that a call falls under. Pure: the same rates and the same tool give the same answer.
use crate::policy::like;
use outlast_vocab::message::ToolName;
use outlast_vocab::rate::Rate;

/// Every rate that counts for calls of a tool.
pub fn rates_of<'r>(rates: &'r [Rate], tool: &ToolName) -> impl Iterator<Item = &'r Rate> {
    rates.iter().filter(move |rate| like(&rate.tool, tool.as_str()))
}
