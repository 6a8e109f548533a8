//! Sends the content of a request: a new input, or the results of tools that the client ran.
use super::beside::Beside;
use super::hearing::{Hearing, Past};
use super::leg::{CallRef, Leg};
use super::refusal::{Answer, Refusal};
use super::teller::{Stop, Stopped};
use outlast_ports::store::{Fork, ForkTo, MAIN, SessionView, Target, TurnState, TurnView};
use outlast_runtime::{Input, Runtime};
use outlast_vocab::record::{Fact, NodeRef};
use outlast_vocab::wait::{Resolution, WaitKind};
use outlast_vocab::{Error, Kind, SessionId, TurnId};

/// A segment that was started, and its reader.
pub(crate) struct Sent {
    pub(crate) leg: Leg,
    pub(crate) hearing: Hearing,
}

/// Where a request wants its input to go.
pub(crate) enum Place {
    /// To a new session.
    New,
    /// To this session.
    Session(SessionId),
    /// After the turn of this segment, whether other turns follow it or not.
    After(Leg),
}

/// The session of an input, and the index that its turn must get there.
pub(crate) struct Placed {
    pub(crate) target: Target,
    pub(crate) index: Option<u32>,
}

impl Placed {
    fn anywhere(target: Target) -> Self {
        Self { target, index: None }
    }
}

/// Returns where an input goes. A repeated request with the same idempotency key goes to the same session.
pub(crate) async fn placed(runtime: &Runtime, place: &Place, key: Option<&str>) -> Result<Placed, Error> {
    let fresh = runtime.fresh_session();
    match place {
        Place::New => Ok(Placed::anywhere(match key {
            Some(key) => Target::Key { key: key.to_owned(), fresh },
            None => Target::New(fresh),
        })),
        Place::Session(id) => {
            let session = runtime.store().session(*id).await?;
            waits_for_no_client(&session)?;
            Ok(Placed::anywhere(Target::Id(*id)))
        }
        Place::After(leg) => after(runtime, leg.turn, key).await,
    }
}

/// Places an input after a turn: in its session if nothing follows it yet, otherwise in a fork.
async fn after(runtime: &Runtime, turn: TurnId, key: Option<&str>) -> Result<Placed, Error> {
    let turn = runtime.store().turn(turn).await?;
    let session = runtime.store().session(turn.session).await?;
    if is_newest(&session, &turn) {
        waits_for_no_client(&session)?;
        return Ok(Placed { target: Target::Id(session.id), index: Some(session.turns) });
    }
    if let Some(key) = key {
        if is_followed_under(runtime, &turn, key).await? {
            return Ok(Placed::anywhere(Target::Id(session.id)));
        }
        match runtime.store().session_by_key(key.to_owned()).await {
            Err(error) if error.kind() == Kind::SessionNotFound => {}
            found => return Ok(Placed::anywhere(Target::Id(found?.id))),
        }
    }
    if turn.state != TurnState::Ended {
        let detail = format!("{} is not over and others wait behind it; wait for its end", turn.id);
        return Err(Error::new(Kind::SessionBusy, detail));
    }
    let to = ForkTo::Session { fresh: runtime.fresh_session(), key: key.map(ToOwned::to_owned) };
    let fork = Fork { from: session.id, at: Some(turn.span.1), to, now: runtime.now() };
    Ok(Placed::anywhere(Target::Id(runtime.store().fork(fork).await?)))
}

fn is_newest(session: &SessionView, turn: &TurnView) -> bool {
    let end = NodeRef { session: session.id, seq: turn.span.1 };
    let stands_there = session.heads.iter().any(|(head, stands)| head == MAIN && *stands == Some(end));
    turn.index + 1 == session.turns && (turn.state != TurnState::Ended || stands_there)
}

/// Returns whether the next turn was accepted under this key, so that this request is a repetition.
async fn is_followed_under(runtime: &Runtime, turn: &TurnView, key: &str) -> Result<bool, Error> {
    let next = runtime.store().turns(turn.session, turn.index + 1, 1).await?;
    let Some(next) = next.first() else { return Ok(false) };
    let records = runtime.store().turn_records(next.id).await?;
    Ok(records.iter().any(
        |record| matches!(&record.fact, Fact::Accepted(accepted) if accepted.key.as_deref() == Some(key)),
    ))
}

/// Rejects an input for a session whose turn waits for the client. Both would wait forever.
fn waits_for_no_client(session: &SessionView) -> Result<(), Error> {
    if !session.waits.iter().any(|wait| wait.kind == WaitKind::ClientTool) {
        return Ok(());
    }
    let detail =
        "the last answer ended with calls for you; send the result of each of them first, or cancel it";
    Err(Error::new(Kind::InputInvalid, detail))
}

/// Sends an input and reads its first segment.
pub(crate) async fn send(runtime: &Runtime, input: Input) -> Result<Sent, Error> {
    let client = input.client_tools.iter().map(|tool| tool.name.clone()).collect();
    let (accepted, events) = runtime.submit_watched(input).await?;
    let leg = Leg::first(accepted.turn);
    let hearing = if accepted.duplicate {
        Hearing::of(runtime, leg).await?
    } else {
        Hearing::over(events, leg, client)
    };
    Ok(Sent { leg, hearing })
}

/// The result of a call that a client ran.
pub(crate) struct ClientResult {
    pub(crate) call: CallRef,
    pub(crate) resolution: Resolution,
}

/// Resumes a turn with the results that it waits for, and reads the segment that they start. If the same
/// results arrive again, reads the same segment.
pub(crate) async fn go_on(runtime: &Runtime, results: &[ClientResult], beside: &Beside<'_>) -> Answer<Sent> {
    let about = |error: Error| Refusal::from(error).about(beside.names.input);
    let Some(ClientResult { call: first, .. }) = results.first() else {
        return Err(Refusal::wrong(beside.names.input, "expected results of calls, got none"));
    };
    let past = Past::of(runtime, Leg::first(first.turn)).await.map_err(|error| match error.kind() {
        Kind::TurnNotFound => about(no_such_call(*first)),
        _ => about(error),
    })?;
    let past = past.ok_or_else(|| about(no_such_call(*first)))?;
    let has = |stop: &Stop| stop.calls.iter().any(|stopped| stopped.call.id == *first);
    let stop = past.teller.stops().iter().position(has).ok_or_else(|| about(no_such_call(*first)))?;
    let stopped = Leg { turn: first.turn, number: u32::try_from(stop).unwrap_or(u32::MAX) };
    beside.check(&past, stopped)?;
    let leg = Leg { number: stopped.number.saturating_add(1), ..stopped };
    let pairs = paired(&past.teller.stops()[stop], results).map_err(about)?;
    // Subscribe before the turn can resume, so that no event is missed.
    let hearing = Hearing::of(runtime, leg).await?;
    for (stopped, result) in pairs {
        resolve(runtime, first.turn, stopped, &result.resolution).await.map_err(about)?;
    }
    Ok(Sent { leg, hearing })
}

fn no_such_call(call: CallRef) -> Error {
    Error::new(Kind::WaitNotFound, format!("no call has the id `{call}`"))
}

/// Pairs each call with its result. All results must arrive together, because the model needs all of them.
fn paired<'a>(
    stop: &'a Stop,
    results: &'a [ClientResult],
) -> Result<Vec<(&'a Stopped, &'a ClientResult)>, Error> {
    let wanted = |result: &&ClientResult| !stop.calls.iter().any(|stopped| stopped.call.id == result.call);
    if let Some(result) = results.iter().find(wanted) {
        return Err(no_such_call(result.call));
    }
    let mut pairs = Vec::new();
    for stopped in &stop.calls {
        let id = stopped.call.id;
        let mut given = results.iter().filter(|result| result.call == id);
        match (given.next(), given.next()) {
            (Some(result), None) => pairs.push((stopped, result)),
            (None, _) => {
                return Err(Error::new(Kind::InputInvalid, format!("the result of `{id}` is missing")));
            }
            (Some(_), Some(_)) => {
                return Err(Error::new(Kind::InputInvalid, format!("`{id}` has two results")));
            }
        }
    }
    Ok(pairs)
}

async fn resolve(
    runtime: &Runtime,
    turn: TurnId,
    stopped: &Stopped,
    given: &Resolution,
) -> Result<(), Error> {
    let first = if let Some(first) = &stopped.resolution {
        first.clone()
    } else {
        let key = runtime.key_of(turn, &stopped.wait).await?;
        runtime.resolve(&key, given.clone()).await?.first
    };
    if first == *given {
        return Ok(());
    }
    let detail = format!("`{}` was given another result before", stopped.call.id);
    Err(Error::new(Kind::InputKeyReused, detail))
}
