//! Tool calls whose arguments are being streamed.
use super::PendingEvents;
use super::tool_names::ApiToolNames;
use outlast_vocab::effect::StopReason;
use outlast_vocab::message::{CallArguments, ModelCallId, ToolUse};
use outlast_vocab::stream::ModelEvent;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The prefix of our ids, for calls without one. They are never sent back as ids of the provider.
pub(crate) const OWN_ID_PREFIX: &str = "outlast_call_";

/// An incomplete call.
#[derive(Debug, Default)]
pub(crate) struct StreamingCall {
    /// The index of the call in the reply, according to the API.
    pub(crate) index: u64,
    /// The id from the model.
    pub(crate) id: String,
    /// The name of the tool in the API.
    pub(crate) name: String,
    /// The arguments received so far, as text.
    pub(crate) arguments: String,
    /// The provider's signature in its stored form.
    pub(crate) signature: Option<String>,
}

/// The calls of a reply, in the order in which they started.
#[derive(Debug, Default)]
pub(crate) struct StreamingCalls(Vec<StreamingCall>);

impl StreamingCalls {
    /// Returns the call with this index, and creates it if it is new.
    pub(crate) fn at(&mut self, index: u64) -> &mut StreamingCall {
        let place = self.0.iter().position(|call| call.index == index);
        let place = place.unwrap_or_else(|| {
            self.0.push(StreamingCall { index, ..StreamingCall::default() });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    /// Adds a call.
    pub(crate) fn push(&mut self, call: StreamingCall) {
        self.0.push(call);
    }

    /// Returns the number of calls.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Removes a call of this tool and returns its arguments: an answer that was requested as a call.
    pub(crate) fn take_answer(&mut self, tool: &str) -> Option<String> {
        let place = self.0.iter().position(|call| call.name == tool)?;
        Some(self.0.remove(place).arguments)
    }

    /// Emits every completed call. Returns the stop reason, corrected by whether there are calls.
    pub(crate) fn finish(
        &mut self,
        stop: StopReason,
        names: &ApiToolNames<'_>,
        out: &mut PendingEvents,
    ) -> StopReason {
        let calls = std::mem::take(&mut self.0);
        let asked = !calls.is_empty();
        let mut ids = BTreeSet::new();
        for (call, number) in calls.into_iter().zip(1..) {
            let arguments = arguments(&call.arguments, stop, names.takes_no_arguments(&call.name));
            let id = unique_id(&call.id, number, &ids);
            ids.insert(id.clone());
            let tool = names.tool_name(&call.name);
            out.push_back(ModelEvent::Call(ToolUse { id, tool, arguments, signature: call.signature }));
        }
        match stop {
            StopReason::End if asked => StopReason::ToolUse,
            StopReason::ToolUse if !asked => StopReason::End,
            stop => stop,
        }
    }
}

/// Parses arguments. Empty text means an empty object if the tool needs no arguments, unless the reply was cut.
fn arguments(text: &str, stop: StopReason, needs_nothing: bool) -> CallArguments {
    if text.trim().is_empty() && needs_nothing && stop != StopReason::Length {
        return CallArguments::Json(json!({}));
    }
    match serde_json::from_str(text) {
        Ok(value) => CallArguments::Json(value),
        Err(_) => CallArguments::Broken(text.to_owned()),
    }
}

/// Returns an id that is unique in the reply: the model's, if possible.
fn unique_id(id: &str, number: usize, taken: &BTreeSet<ModelCallId>) -> ModelCallId {
    let own = || format!("{OWN_ID_PREFIX}{number}").parse().expect("a word and a number make a call id");
    match id.parse::<ModelCallId>() {
        Ok(id) if !taken.contains(&id) => id,
        _ => own(),
    }
}

/// Returns arguments as text for an API. Some servers parse it, so it is JSON even if the model's text was not.
pub(crate) fn as_text(arguments: &CallArguments) -> String {
    as_object(arguments).to_string()
}

/// Returns arguments as an object for an API.
pub(crate) fn as_object(arguments: &CallArguments) -> Value {
    match arguments {
        CallArguments::Json(value @ Value::Object(_)) => value.clone(),
        CallArguments::Json(value) => json!({ "value": value }),
        CallArguments::Broken(text) => json!({ "unreadable_arguments": text }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tool_names::tests::contract;
    use super::*;

    #[track_caller]
    fn check(stop: StopReason, calls: &[(&str, &str, &str)], want: &[(&str, &str, CallArguments)]) {
        let contracts = [
            contract("now", json!({ "type": "object" })),
            contract("pay", json!({ "type": "object", "required": ["to"] })),
        ];
        let mut open = StreamingCalls::default();
        for (index, (id, name, arguments)) in (0..).zip(calls) {
            let call = open.at(index);
            call.id.push_str(id);
            call.name.push_str(name);
            call.arguments.push_str(arguments);
        }
        let mut out = PendingEvents::new();
        open.finish(stop, &ApiToolNames::of(&contracts), &mut out);
        let want = want.iter().map(|(id, tool, arguments)| {
            let call = ToolUse::new(id.parse().unwrap(), tool.parse().unwrap(), arguments.clone());
            ModelEvent::Call(call)
        });
        assert_eq!(out, want.collect::<PendingEvents>());
    }

    fn broken(text: &str) -> CallArguments {
        CallArguments::Broken(text.to_owned())
    }

    #[test]
    fn unparseable_arguments_are_never_repaired() {
        let whole = CallArguments::Json(json!({"to": "ann"}));
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
    fn empty_arguments_are_valid_unless_truncated_or_required() {
        check(StopReason::ToolUse, &[("a", "now", "")], &[("a", "now", CallArguments::Json(json!({})))]);
        check(StopReason::Length, &[("a", "now", "")], &[("a", "now", broken(""))]);
    }

    #[test]
    fn calls_of_one_reply_have_unique_ids() {
        let none = || CallArguments::Json(json!({}));
        check(
            StopReason::ToolUse,
            &[("a", "now", ""), ("a", "now", ""), ("", "now", "")],
            &[("a", "now", none()), ("outlast_call_2", "now", none()), ("outlast_call_3", "now", none())],
        );
    }
}
