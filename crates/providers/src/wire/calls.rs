//! Tool calls while their arguments stream in.
use super::Pieces;
use super::names::Names;
use outlast_vocab::effect::StopReason;
use outlast_vocab::message::{Arguments, ModelCallId, ToolUse};
use outlast_vocab::stream::ModelEvent;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How our own ids begin, given to calls that came without one. They are never sent back as the provider's.
pub(crate) const OWN_ID: &str = "outlast_call_";

/// A call that is not whole yet.
#[derive(Debug, Default)]
pub(crate) struct Open {
    /// Where the API says it stands in the reply.
    pub(crate) index: u64,
    /// The id the model gave it.
    pub(crate) id: String,
    /// The tool, as it travels.
    pub(crate) name: String,
    /// The arguments so far, as text.
    pub(crate) arguments: String,
    /// The provider's proof, as it is kept.
    pub(crate) signature: Option<String>,
}

/// The calls of a reply, in the order they began.
#[derive(Debug, Default)]
pub(crate) struct Calls(Vec<Open>);

impl Calls {
    /// The call at this index, begun now if it is new.
    pub(crate) fn at(&mut self, index: u64) -> &mut Open {
        let place = self.0.iter().position(|call| call.index == index);
        let place = place.unwrap_or_else(|| {
            self.0.push(Open { index, ..Open::default() });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    /// Adds a call.
    pub(crate) fn push(&mut self, call: Open) {
        self.0.push(call);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes out the arguments of a call of this tool: the answer that was asked for as a call.
    pub(crate) fn take_answer(&mut self, tool: &str) -> Option<String> {
        let place = self.0.iter().position(|call| call.name == tool)?;
        Some(self.0.remove(place).arguments)
    }

    /// Gives every call whole, and why the model stopped, seen that it wants tools.
    pub(crate) fn finish(&mut self, stop: StopReason, names: &Names<'_>, out: &mut Pieces) -> StopReason {
        let calls = std::mem::take(&mut self.0);
        let asked = !calls.is_empty();
        let mut ids = BTreeSet::new();
        for (call, number) in calls.into_iter().zip(1..) {
            let arguments = arguments(&call.arguments, stop, names.needs_nothing(&call.name));
            let id = unique(&call.id, number, &ids);
            ids.insert(id.clone());
            let tool = names.inward(&call.name);
            out.push_back(ModelEvent::Call(ToolUse { id, tool, arguments, signature: call.signature }));
        }
        match stop {
            StopReason::End if asked => StopReason::ToolUse,
            StopReason::ToolUse if !asked => StopReason::End,
            stop => stop,
        }
    }
}

/// Arguments as they came. No text is the empty object where the tool needs nothing, unless the reply was cut (R5.2).
fn arguments(text: &str, stop: StopReason, needs_nothing: bool) -> Arguments {
    if text.trim().is_empty() && needs_nothing && stop != StopReason::Length {
        return Arguments::Json(json!({}));
    }
    match serde_json::from_str(text) {
        Ok(value) => Arguments::Json(value),
        Err(_) => Arguments::Broken(text.to_owned()),
    }
}

/// An id that no other call of the reply has: the model's, if it can be.
fn unique(id: &str, number: usize, taken: &BTreeSet<ModelCallId>) -> ModelCallId {
    let own = || format!("{OWN_ID}{number}").parse().expect("a word and a number make a call id");
    match id.parse::<ModelCallId>() {
        Ok(id) if !taken.contains(&id) => id,
        _ => own(),
    }
}

/// Arguments as text that an API takes back. Some servers read it, so it is JSON even where the model's own was not.
pub(crate) fn as_text(arguments: &Arguments) -> String {
    as_object(arguments).to_string()
}

/// Arguments as an object, as APIs take them back.
pub(crate) fn as_object(arguments: &Arguments) -> Value {
    match arguments {
        Arguments::Json(value @ Value::Object(_)) => value.clone(),
        Arguments::Json(value) => json!({ "value": value }),
        Arguments::Broken(text) => json!({ "unreadable_arguments": text }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::tests::contract;
    use super::*;

    #[track_caller]
    fn check(stop: StopReason, calls: &[(&str, &str, &str)], want: &[(&str, &str, Arguments)]) {
        let contracts = [
            contract("now", json!({ "type": "object" })),
            contract("pay", json!({ "type": "object", "required": ["to"] })),
        ];
        let mut open = Calls::default();
        for (index, (id, name, arguments)) in (0..).zip(calls) {
            let call = open.at(index);
            call.id.push_str(id);
            call.name.push_str(name);
            call.arguments.push_str(arguments);
        }
        let mut out = Pieces::new();
        open.finish(stop, &Names::of(&contracts), &mut out);
        let want = want.iter().map(|(id, tool, arguments)| {
            let call = ToolUse::new(id.parse().unwrap(), tool.parse().unwrap(), arguments.clone());
            ModelEvent::Call(call)
        });
        assert_eq!(out, want.collect::<Pieces>());
    }

    fn broken(text: &str) -> Arguments {
        Arguments::Broken(text.to_owned())
    }

    #[test]
    fn arguments_that_cannot_be_read_are_never_made_up() {
        let whole = Arguments::Json(json!({"to": "ann"}));
        check(
            StopReason::ToolUse,
            &[
                ("a", "pay", "{\"to\":\"ann\"}"),
                ("b", "pay", "{\"to\":"),
                ("c", "pay", ""),
                ("d", "gone", ""),
            ],
            &[
                ("a", "pay", whole),
                ("b", "pay", broken("{\"to\":")),
                ("c", "pay", broken("")),
                ("d", "gone", broken("")),
            ],
        );
    }

    #[test]
    fn a_call_without_arguments_is_whole_where_the_tool_needs_none_and_the_reply_was_not_cut() {
        check(StopReason::ToolUse, &[("a", "now", "")], &[("a", "now", Arguments::Json(json!({})))]);
        check(StopReason::Length, &[("a", "now", "")], &[("a", "now", broken(""))]);
    }

    #[test]
    fn calls_of_one_reply_have_ids_of_their_own() {
        let none = || Arguments::Json(json!({}));
        check(
            StopReason::ToolUse,
            &[("a", "now", ""), ("a", "now", ""), ("", "now", "")],
            &[("a", "now", none()), ("outlast_call_2", "now", none()), ("outlast_call_3", "now", none())],
        );
    }
}
