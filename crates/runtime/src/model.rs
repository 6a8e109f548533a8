//! Asks the model: from the journal if it answered before, otherwise over the wire, with retries (R5.3–R5.5).
use crate::drive::Turn;
use crate::host::{Host, Tier};
use futures_util::StreamExt;
use futures_util::future::{Either, poll_immediate, select};
use outlast_kernel::reply::Building;
use outlast_kernel::step::{CallModel, Step};
use outlast_ports::model::{EventStream, ModelInfo, ModelRequest};
use outlast_vocab::effect::{ModelFailure, ModelOutcome};
use outlast_vocab::event::LiveKind;
use outlast_vocab::record::{Fact, Performed};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Class, Error, Failure, Kind, ReplayKey};
use std::time::Duration;

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
    let request = ModelRequest {
        system: &turn.outfit.package.system,
        history: host.recalled(),
        turn: ask.messages(),
        tools: &turn.outfit.contracts,
        session: turn.caller.session,
        ..ModelRequest::bare(&effect)
    };
    let asked = tokio::select! {
        biased;
        asked = with_retries(turn, host, (ask.key(), &info), || provider.stream(request)) => asked,
        reason = turn.cancel.requested() => return Ok(ask.cancel(reason)),
    };
    let outcome = match asked {
        Asked::Outcome(outcome) => outcome,
        Asked::Wait(wait) => return Ok(ask.wait(wait)),
    };
    let (key, command) = (ask.key().clone(), effect.into());
    host.note(Fact::Performed(Performed { key, command, outcome: outcome.clone().into() }));
    Ok(ask.resume(outcome))
}

enum Asked {
    Outcome(ModelOutcome),
    /// Too long to hold in memory.
    Wait(Wait),
}

/// Tries until there is a whole reply or an error that repeating cannot help. Text of a failed attempt is retracted.
async fn with_retries<'a, H: Host>(
    turn: &Turn<'_>,
    host: &H,
    (key, info): (&ReplayKey, &ModelInfo),
    stream: impl Fn() -> EventStream<'a>,
) -> Asked {
    let limits = &turn.world.limits;
    // Attempts go on counting over processes, so that text of a dead one is never taken for ours.
    let before = turn.lease.saturating_sub(1).saturating_mul(u64::from(limits.model_attempts));
    let mut tried = host.history().backoffs(key);
    loop {
        tried += 1;
        let attempt = u32::try_from(before + u64::from(tried)).unwrap_or(u32::MAX);
        let mut streamed = false;
        let heard = listen(turn, key, attempt, stream(), &mut streamed).await;
        let error = match heard.and_then(|building| building.finish(attempt, info.prices.as_ref())) {
            Ok(reply) => return Asked::Outcome(ModelOutcome::Reply(reply)),
            Err(error) => error,
        };
        if streamed {
            turn.tell(|| LiveKind::Retracted { key: key.clone(), attempt });
        }
        if error.class() != Class::Retry || tried >= limits.model_attempts {
            return Asked::Outcome(failed(&error, streamed));
        }
        tracing::warn!(%error, attempt, "the model call is tried again");
        let pause = error.pause();
        let pause = pause.unwrap_or_else(|| backoff(limits.backoff_first, limits.backoff_most, tried));
        if pause > limits.wait_in_memory && host.tier() == Tier::Durable {
            let key = key.backoff(tried);
            let until = turn.world.clock.now().after(pause);
            return Asked::Wait(Wait { key, kind: WaitKind::Sleep, deadline: Some(until) });
        }
        turn.world.clock.sleep(pause).await;
    }
}

/// The pause before attempt `tried + 1`: doubled each time, up to a bound.
pub(crate) fn backoff(first: Duration, most: Duration, tried: u32) -> Duration {
    first.saturating_mul(1 << tried.saturating_sub(1).min(16)).min(most)
}

fn failed(error: &Error, streamed: bool) -> ModelOutcome {
    ModelOutcome::Failed(ModelFailure { failure: Failure::from(error), streamed })
}

/// Listens to one stream until its end.
async fn listen(
    turn: &Turn<'_>,
    key: &ReplayKey,
    attempt: u32,
    mut stream: EventStream<'_>,
    streamed: &mut bool,
) -> Result<Building, Error> {
    let mut building = Building::default();
    let mut offset = 0;
    while let Some(event) = next_or_stalled(turn, &mut stream).await? {
        let event = event?;
        if let ModelEvent::Text(text) = &event {
            turn.tell(|| LiveKind::Text { key: key.clone(), attempt, offset, text: text.clone() });
            offset += text.len();
            *streamed = true;
        }
        building.push(event, turn.world.limits.reply_bytes)?;
    }
    Ok(building)
}

/// The next piece; an error if the stream is silent for too long (R5.4).
async fn next_or_stalled(
    turn: &Turn<'_>,
    stream: &mut EventStream<'_>,
) -> Result<Option<Result<ModelEvent, Error>>, Error> {
    // Most pieces are there when they are asked for; only real silence needs a timer.
    if let Some(next) = poll_immediate(stream.next()).await {
        return Ok(next);
    }
    let patience = turn.world.limits.model_stall;
    match select(stream.next(), turn.world.clock.sleep(patience)).await {
        Either::Left((next, _)) => Ok(next),
        Either::Right(_) => {
            let detail = format!("the stream was silent for {} ms", patience.as_millis());
            Err(Error::new(Kind::ModelStalled, detail))
        }
    }
}
