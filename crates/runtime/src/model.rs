//! Asks the model that answers the turn: from the journal if it answered before, otherwise over the wire.
use crate::asking::{Asked, Asking, Audience, failed};
use crate::drive::Turn;
use crate::files;
use crate::host::Host;
use outlast_kernel::step::{CallModel, Step};
use outlast_ports::model::ModelRequest;
use outlast_vocab::Error;
use outlast_vocab::event::LiveKind;
use outlast_vocab::record::{Fact, Performed};
use outlast_vocab::wait::{Wait, WaitKind};

/// Answers the step: recorded, or asked now.
pub(crate) async fn ask<H: Host>(turn: &Turn<'_>, ask: CallModel, host: &mut H) -> Result<Step, Error> {
    let recorded_at = host.history().asked_at(ask.key());
    if let Some(at) = recorded_at
        && let Some(outcome) =
            host.history().answer(ask.key(), &ask.effect(Some(at))).map_err(|e| e.at(turn.at()))?
    {
        turn.tell(|| LiveKind::Replayed { key: ask.key().clone() });
        return Ok(ask.resume(outcome));
    }
    if let Some(reason) = turn.cancel.reason() {
        return Ok(ask.cancel(reason));
    }
    host.flush().await?;
    let (provider, info) = match turn.world.model(&turn.outfit.package.model) {
        Ok(found) => found,
        Err(error) => return Ok(ask.resume(failed(&error, false))),
    };
    host.recall(info.window_bytes.min(turn.world.limits.view_bytes)).await?;
    let effect = ask.effect(host.place());
    let history = host.recalled();
    let files = files::of(turn.world, host, history.iter().chain(ask.messages())).await?;
    let said = if info.goes_on { host.said(ask.key()).await? } else { None };
    let asking = Asking {
        world: turn.world,
        caller: turn.caller,
        key: ask.key(),
        provider,
        info,
        lease: turn.lease,
        tried: host.history().backoffs(ask.key()),
        tier: host.tier(),
        audience: Audience::Watchers,
    };
    let request = ModelRequest {
        system: &turn.outfit.package.system,
        history: &history,
        turn: ask.messages(),
        tools: &turn.outfit.contracts,
        session: turn.caller.session,
        files: &files,
        ..ModelRequest::bare(&effect)
    };
    let asked = tokio::select! {
        biased;
        asked = asking.ask(request, said.unwrap_or_default(), host) => asked?,
        reason = turn.cancel.requested() => return Ok(ask.cancel(reason)),
    };
    let outcome = match asked {
        Asked::Outcome(outcome) => outcome,
        Asked::Pause { tried, pause } => {
            let (key, deadline) = (ask.key().backoff(tried), turn.world.clock.now().after(pause));
            return Ok(ask.wait(Wait { key, kind: WaitKind::Sleep, deadline: Some(deadline) }));
        }
    };
    let (key, command) = (ask.key().clone(), effect.into());
    host.note(Fact::Performed(Performed { key, command, outcome: outcome.clone().into() }));
    Ok(ask.resume(outcome))
}
