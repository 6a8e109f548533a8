//! Sends the content of a request: a new input, or the results of tools that the client ran.
use super::answer_delivery::{AnswerDelivery, RequestRelation};
use super::compat_error::{CompatError, CompatResult};
use super::follow_up::FollowUpParams;
use super::response_segment::{ClientCallId, ResponseSegment};
use super::segment_projector::{ClientStop, PendingClientCall};
use super::segment_reader::{RecordedSegment, SegmentReader};
use outlast_ports::branches::{ForkRequest, MAIN_HEAD};
use outlast_ports::inbox::SessionTarget;
use outlast_runtime::{Input, Runtime};
use outlast_views::{ForkTo, SessionView, TurnState, TurnView};
use outlast_vocab::record::{Fact, NodeRef};
use outlast_vocab::wait::{Resolution, WaitKind};
use outlast_vocab::{Error, Kind, SessionId, TurnId};

/// A segment that was started, and its reader.
pub(crate) struct StartedSegment {
    pub(crate) segment: ResponseSegment,
    pub(crate) reader: SegmentReader,
    pub(crate) delivery: AnswerDelivery,
}

/// Where a request wants its input to go.
pub(crate) enum InputDestination {
    /// To the session whose messages the request repeats, or to a new one.
    Matched,
    /// To this session.
    Session(SessionId),
    /// After the turn of this segment, whether other turns follow it or not.
    After(ResponseSegment),
}

/// The session of an input, and the index that its turn must get there.
pub(crate) struct SubmissionTarget {
    pub(crate) target: SessionTarget,
    pub(crate) index: Option<u32>,
}

impl SubmissionTarget {
    fn any_index(target: SessionTarget) -> Self {
        Self { target, index: None }
    }
}

/// Places an input in a session, after its other turns.
pub(crate) async fn place_in_session(
    runtime: &Runtime,
    session: SessionId,
) -> Result<SubmissionTarget, Error> {
    reject_if_waiting(&runtime.store().session(session).await?)?;
    Ok(SubmissionTarget::any_index(SessionTarget::Id(session)))
}

/// Places an input after a turn: in its session if nothing follows it yet, otherwise in a fork. A repeated request
/// with the same idempotency key goes to the same session.
pub(crate) async fn place_after(
    runtime: &Runtime,
    turn: TurnId,
    key: Option<&str>,
) -> Result<SubmissionTarget, Error> {
    let turn = runtime.store().turn(turn).await?;
    let session = runtime.store().session(turn.session).await?;
    if is_newest(&session, &turn) {
        reject_if_waiting(&session)?;
        return Ok(SubmissionTarget { target: SessionTarget::Id(session.id), index: Some(session.turns) });
    }
    if let Some(key) = key {
        if is_repetition(runtime, &turn, key).await? {
            return Ok(SubmissionTarget::any_index(SessionTarget::Id(session.id)));
        }
        match runtime.store().session_by_key(key.to_owned()).await {
            Err(error) if error.kind() == Kind::SessionNotFound => {}
            found => return Ok(SubmissionTarget::any_index(SessionTarget::Id(found?.id))),
        }
    }
    if turn.state != TurnState::Ended {
        let detail =
            format!("{} has not ended and other turns are queued behind it; wait for its end", turn.id);
        return Err(Error::new(Kind::SessionBusy, detail));
    }
    let to = ForkTo::Session { fresh: runtime.fresh_session(), key: key.map(ToOwned::to_owned) };
    let fork = ForkRequest { from: session.id, at: Some(turn.span.1), to, now: runtime.now() };
    Ok(SubmissionTarget::any_index(SessionTarget::Id(runtime.store().fork(fork).await?)))
}

fn is_newest(session: &SessionView, turn: &TurnView) -> bool {
    let end = NodeRef { session: session.id, seq: turn.span.1 };
    let stands_there = session.heads.iter().any(|(head, stands)| head == MAIN_HEAD && *stands == Some(end));
    turn.index + 1 == session.turns && (turn.state != TurnState::Ended || stands_there)
}

/// Returns whether the next turn was accepted under this key, so that this request is a repetition.
async fn is_repetition(runtime: &Runtime, turn: &TurnView, key: &str) -> Result<bool, Error> {
    let next = runtime.store().turns(turn.session, turn.index + 1, 1).await?;
    let Some(next) = next.first() else { return Ok(false) };
    let records = runtime.store().turn_records(next.id).await?;
    Ok(records.iter().any(
        |record| matches!(&record.fact, Fact::Accepted(accepted) if accepted.key.as_deref() == Some(key)),
    ))
}

/// Rejects an input for a session whose turn waits for the client. Both would wait forever.
fn reject_if_waiting(session: &SessionView) -> Result<(), Error> {
    if !session.waits.iter().any(|wait| wait.kind == WaitKind::ClientTool) {
        return Ok(());
    }
    let detail = "the last response ended with calls for the client; send the result of each call first, or cancel the response";
    Err(Error::new(Kind::InputInvalid, detail))
}

/// Sends an input and reads its first segment.
pub(crate) async fn send(runtime: &Runtime, input: Input) -> Result<StartedSegment, Error> {
    let client = input.client_tools.iter().map(|tool| tool.name.clone()).collect();
    // In a task, because this future is dropped if the client disconnects. The worker would have leased the session of
    // an input that was accepted meanwhile, without driving its turn.
    let submitting = runtime.clone();
    let submission = tokio::spawn(async move { submitting.submit_watched(input).await });
    let stopped = |cause| Error::new(Kind::Internal, "the submission of an input panicked").because(cause);
    let (accepted, events) = submission.await.map_err(stopped)??;
    if accepted.duplicate {
        return join(runtime, accepted.turn).await;
    }
    let segment = ResponseSegment::first(accepted.turn);
    let reader = SegmentReader::from_events(events, segment, client);
    let delivery = AnswerDelivery::new(segment.turn, RequestRelation::Started);
    Ok(StartedSegment { segment, reader, delivery })
}

/// Reads the first segment of a turn that an equal request started.
pub(crate) async fn join(runtime: &Runtime, turn: TurnId) -> Result<StartedSegment, Error> {
    let segment = ResponseSegment::first(turn);
    let reader = SegmentReader::for_segment(runtime, segment).await?;
    let delivery = AnswerDelivery::new(turn, RequestRelation::Joined);
    Ok(StartedSegment { segment, reader, delivery })
}

/// The result of a call that a client ran.
pub(crate) struct ClientResult {
    pub(crate) call: ClientCallId,
    pub(crate) resolution: Resolution,
}

/// Resumes a turn with the results that it waits for, and reads the segment that they start. If the same
/// results arrive again, reads the same segment.
pub(crate) async fn resume_with_results(
    runtime: &Runtime,
    results: &[ClientResult],
    beside: &FollowUpParams<'_>,
) -> CompatResult<StartedSegment> {
    let about = |error: Error| CompatError::from(error).about(beside.names.input);
    let Some(ClientResult { call: first, .. }) = results.first() else {
        return Err(CompatError::invalid_param(beside.names.input, "expected results of calls, got none"));
    };
    let past =
        RecordedSegment::of(runtime, ResponseSegment::first(first.turn)).await.map_err(
            |error| match error.kind() {
                Kind::TurnNotFound => about(no_such_call(*first)),
                _ => about(error),
            },
        )?;
    let past = past.ok_or_else(|| about(no_such_call(*first)))?;
    let has = |stop: &ClientStop| stop.calls.iter().any(|stopped| stopped.call.id == *first);
    let stop = past.projector.stops().iter().position(has).ok_or_else(|| about(no_such_call(*first)))?;
    let stopped = ResponseSegment { turn: first.turn, number: u32::try_from(stop).unwrap_or(u32::MAX) };
    beside.check(&past, stopped)?;
    let segment = ResponseSegment { number: stopped.number.saturating_add(1), ..stopped };
    let pairs = pair_results(&past.projector.stops()[stop], results).map_err(about)?;
    // Subscribe before the turn can resume, so that no event is missed.
    let reader = SegmentReader::for_segment(runtime, segment).await?;
    for (stopped, result) in pairs {
        resolve(runtime, first.turn, stopped, &result.resolution).await.map_err(about)?;
    }
    let delivery = AnswerDelivery::new(segment.turn, RequestRelation::Continued);
    Ok(StartedSegment { segment, reader, delivery })
}

fn no_such_call(call: ClientCallId) -> Error {
    Error::new(Kind::WaitNotFound, format!("no call has the id `{call}`"))
}

/// Pairs each call with its result. All results must arrive together, because the model needs all of them.
fn pair_results<'a>(
    stop: &'a ClientStop,
    results: &'a [ClientResult],
) -> Result<Vec<(&'a PendingClientCall, &'a ClientResult)>, Error> {
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
    stopped: &PendingClientCall,
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
    let detail = format!("`{}` already has another result", stopped.call.id);
    Err(Error::new(Kind::InputKeyReused, detail))
}
