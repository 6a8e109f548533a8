//! Asks the model that answers the turn: from the journal if it answered before, otherwise over the wire.
use crate::asking::{Asked, Asking, Audience, Tries, failed};
use crate::drive::Turn;
use crate::files;
use crate::hooks::{Hooking, Shaped, after_model, before_model};
use crate::host::Host;
use crate::meter::{bounded, most_of, named, price_of, wait_for};
use crate::metrics::Phase;
use crate::room::Room;
use crate::ruling::{Word, as_ruled, at_model, at_reply, of_reply};
use outlast_kernel::step::{CallModel, Step};
use outlast_ports::budget::Hold;
use outlast_ports::model::{ModelInfo, ModelProvider, ModelRequest};
use outlast_vocab::budget::Amount;
use outlast_vocab::effect::{EffectKind, Generation, ModelCall, ModelOutcome};
use outlast_vocab::event::LiveKind;
use outlast_vocab::policy::Point;
use outlast_vocab::record::{Fact, Performed};
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Failure};

/// How much more of a conversation is read than fits into the window: most of it may be results that are left out.
const READ_AHEAD: usize = 4;

/// Answers the step: recorded, or asked now.
pub(crate) async fn ask<H: Host>(turn: &Turn<'_>, ask: CallModel, host: &mut H) -> Result<Step, Error> {
    host.reach(ask.key(), EffectKind::ModelCall)?;
    let history = host.history().clone();
    let store = host.store().cloned();
    let hooks = Hooking::of(turn, &history, store.as_ref(), ask.key());
    let as_recorded = |at| {
        let effect = as_ruled(hooks.as_recorded(ask.effect(Some(at))), ask.key(), host);
        // Whether somebody counts is no matter of the turn's own: what was recorded then is what is meant now.
        let tokens_most = effect.options.tokens_most.or_else(|| history.bound_of(ask.key()));
        ModelCall { options: Generation { tokens_most, ..effect.options }, ..effect }
    };
    if let Some(at) = history.asked_at(ask.key())
        && let Some(outcome) = history.answer(ask.key(), &as_recorded(at))?
    {
        turn.tell(|| LiveKind::Replayed { key: ask.key().clone() });
        return go_on(turn, ask, outcome, host);
    }
    if let Some(reason) = turn.cancel.reason() {
        return Ok(ask.cancel(reason));
    }
    // Where something is counted, what was noted is written together with what is reserved for the call.
    if !host.is_metered() {
        host.flush().await?;
    }
    let (provider, info) = match turn.world.model(&turn.outfit.package.model) {
        Ok(found) => found,
        Err(error) => return Ok(ask.resume(failed(&error, false))),
    };
    let mut shaped = match before_model(turn, &ask, host).await {
        Ok(shaped) => shaped,
        Err(error) => {
            hooks.on_error(&Failure::from(&error)).await;
            return Ok(ask.resume(failed(&error, false)));
        }
    };
    match at_model(turn, &ask, &mut shaped, host).await? {
        Word::Go => {}
        Word::No(error) => return Ok(ask.resume(failed(&error, false))),
        Word::Wait(wait) => return Ok(ask.wait(wait)),
    }
    let window = info.window_bytes.min(turn.world.limits.view_bytes);
    host.recall(window.saturating_mul(READ_AHEAD)).await?;
    let window = window.saturating_sub(shaped.bytes_over(&turn.outfit.package.system));
    let room = Room { provider, info, window };
    let (mut at_once, mut tries) = (false, Tries::default());
    let began = turn.world.clock.elapsed();
    let (effect, asked) = loop {
        let shorter = room.make(turn, &ask, at_once, host).await?;
        if let Some(reason) = turn.cancel.reason() {
            tries.note(ask.key(), host);
            return Ok(ask.cancel(reason));
        }
        let shown = show(turn, &ask, (provider, info), &shaped, (&mut *host, &mut tries)).await?;
        let Some((effect, asked)) = shown else {
            tries.note(ask.key(), host);
            return Ok(ask.cancel(turn.cancel.requested().await));
        };
        // What was too long for the model is made shorter and shown again, as long as that makes a difference.
        if at_once && !shorter || !asked.is_too_long() {
            break (effect, asked);
        }
        at_once = true;
    };
    turn.world.metrics.passed(Phase::Model, turn.world.clock.elapsed().saturating_sub(began));
    let outcome = match asked {
        Asked::Outcome(outcome) => outcome,
        Asked::Pause { key, pause } => {
            tries.note(ask.key(), host);
            let deadline = turn.world.clock.now().after(pause);
            return Ok(ask.wait(Wait { key, kind: WaitKind::Sleep, deadline: Some(deadline) }));
        }
        Asked::Short(short) => {
            tries.note(ask.key(), host);
            if !short.pauses {
                return Ok(ask.out_of(named(&short), short.lacks.to_string()));
            }
            let key = ask.key().budget(host.history().times_short(ask.key()));
            return Ok(ask.wait(wait_for(key, &short)));
        }
    };
    let failed = tries.before(&outcome);
    let outcome = after_model(turn, ask.key(), outcome, host).await;
    let outcome = of_reply(turn, &ask, outcome, host).await?;
    let performed = Performed::new(ask.key().clone(), effect, outcome.clone());
    host.note(Fact::Performed(Performed { tried: failed, ..performed }));
    go_on(turn, ask, outcome, host)
}

/// Goes on with what came of a call, if what was decided of what the model said lets it.
fn go_on<H: Host>(
    turn: &Turn<'_>,
    ask: CallModel,
    outcome: ModelOutcome,
    host: &mut H,
) -> Result<Step, Error> {
    Ok(match (at_reply(turn, ask.key(), &outcome, host)?, turn.cancel.reason()) {
        (Word::Go, _) => ask.resume(outcome),
        (Word::No(error), _) => ask.fail(Failure::from(&error)),
        (Word::Wait(_), Some(reason)) => ask.cancel(reason),
        (Word::Wait(wait), None) => ask.wait(wait),
    })
}

/// Shows the model the conversation as it stands and listens to what it says, until it is done or the turn is cancelled.
async fn show<H: Host>(
    turn: &Turn<'_>,
    ask: &CallModel,
    (provider, info): (&dyn ModelProvider, ModelInfo),
    shaped: &Shaped<'_>,
    (host, tries): (&mut H, &mut Tries),
) -> Result<Option<(ModelCall, Asked)>, Error> {
    let history = host.conversation().messages().clone();
    let mut now = host.conversation().shown(ask.messages());
    if !shaped.added.is_empty() {
        now.to_mut().extend_from_slice(&shaped.added);
    }
    let files = files::of(turn.world, host, history.iter().chain(now.iter())).await?;
    let judged = turn.outfit.decides_at(Point::Output);
    let said = if info.goes_on && !judged { host.said(ask.key()).await? } else { None };
    // Where it stands is known once what was noted is written.
    let metered = host.is_metered();
    let effect = |at| {
        let call = shaped.effect(ask, at);
        if !metered {
            return call;
        }
        ModelCall { options: bounded(call.options, turn.outfit, turn.world), ..call }
    };
    let draft = effect(None);
    let request = ModelRequest {
        system: &shaped.system,
        history: &history,
        turn: &now,
        tools: &turn.outfit.shown,
        session: turn.caller.session,
        files: &files,
        ..ModelRequest::bare(&draft)
    };
    let most = if metered { most_of(turn.world, info, &request) } else { Amount::ZERO };
    let hold = || Hold::new(ask.key().clone(), most, price_of(info));
    if metered && let Some(short) = host.reserve(hold()).await?.short {
        return Ok(Some((draft, Asked::Short(short))));
    }
    let effect = effect(host.place());
    let asking = Asking {
        world: turn.world,
        caller: turn.caller,
        key: ask.key(),
        provider,
        info,
        lease: turn.lease,
        tried: host.history().tried(ask.key()),
        in_line: host.history().times_in_line(ask.key()),
        tier: host.tier(),
        audience: if judged { Audience::WatchersLater } else { Audience::Watchers },
        most,
    };
    let request = ModelRequest { call: &effect, ..request };
    // Only listening is broken off: what was written before is written whole.
    tokio::select! {
        biased;
        asked = asking.ask(request, said.unwrap_or_default(), (&mut *host, tries)) => Ok(Some((effect, asked?))),
        _ = turn.cancel.requested() => Ok(None),
    }
}
