//! The hooks of the simulated agents. Their output differs on every run.
use crate::effect_recorder::EffectRecorder;
use crate::tools::yield_to_others;
use outlast_ports::hook::{AfterModel, BeforeTool, HookAt};
use outlast_vocab::Error;
use outlast_vocab::hook::{
    CallHookInput, CallPatch, HookCall, HookPoint, HookUse, ReplyHookInput, ReplyPatch,
};
use serde_json::json;
use std::sync::Arc;

/// Returns the hook uses of an agent.
pub(crate) fn uses() -> Vec<HookUse> {
    let named = |name: &str, point| HookUse::new(name.parse().expect("a hook's name"), point);
    vec![named("stamp", HookPoint::BeforeTool), named("sign", HookPoint::AfterModel)]
}

/// Returns the hooks of one process.
pub(crate) fn all(witness: &Arc<EffectRecorder>) -> Result<Vec<HookAt>, Error> {
    let (at_tools, at_models) = (witness.clone(), witness.clone());
    let stamp = HookAt::new::<BeforeTool>("stamp", move |_: HookCall, _: CallHookInput| {
        let witness = at_tools.clone();
        async move {
            yield_to_others().await;
            Ok(Some(CallPatch::Arguments(
                json!({ "text": format!("stamp {}", witness.next_unique_number()) }),
            )))
        }
    })?;
    let sign = HookAt::new::<AfterModel>("sign", move |_: HookCall, reply: ReplyHookInput| {
        let witness = at_models.clone();
        async move {
            yield_to_others().await;
            let text = format!("{}, signed {}", reply.text, witness.next_unique_number());
            Ok((!reply.text.is_empty()).then_some(ReplyPatch { text }))
        }
    })?;
    Ok(vec![stamp, sign])
}
