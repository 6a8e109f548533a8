//! Explains why a session is not progressing: what its turn waits for, since when, and who or what can unblock it.
//!
//! Reads records and waits, and changes nothing. The effects come from [`crate::views::timeline`], questions for approval from
//! [`crate::policy::approvals`].
use crate::policy::approvals;
use crate::turn::model_request::provider_of;
use crate::views::timeline::{self, EffectState, EffectView};
use outlast_ports::store::Store;
use outlast_views::{
    ApprovalQuestion, BlockingWait, LastTurn, SessionState, SessionView, TurnProgress, TurnState, TurnView,
    Unblocker, WaitExplanation, WaitingTurn,
};
use outlast_vocab::approval::approval_id;
use outlast_vocab::effect::EffectKind;
use outlast_vocab::record::{Fact, FailedAttempt, Record};
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Failure, Kind, Millis, ReplayKey, SessionId, TurnId};

/// Explains why a session is not progressing.
pub async fn of_session(store: &dyn Store, id: SessionId) -> Result<WaitExplanation, Error> {
    let session = store.session(id).await?;
    if let Some(turn) = session.active {
        return of_active(store, &session, &store.turn(turn).await?).await;
    }
    let progress =
        if session.state == SessionState::Ready { TurnProgress::Ready } else { TurnProgress::Rests };
    let queued = queued(store, &session).await?;
    let last = match session.last_turn {
        Some(LastTurn { id, .. }) => store.turn(id).await?.end.map(|end| (id, end)),
        None => None,
    };
    Ok(WaitExplanation {
        session: id,
        turn: None,
        progress,
        since: session.updated,
        waits: Vec::new(),
        queued,
        last,
    })
}

/// Explains why a turn is not progressing.
pub async fn of_turn(store: &dyn Store, id: TurnId) -> Result<WaitExplanation, Error> {
    let turn = store.turn(id).await?;
    let session = store.session(turn.session).await?;
    let alone = |progress, since| WaitExplanation {
        session: session.id,
        turn: Some(id),
        progress,
        since,
        waits: Vec::new(),
        queued: 0,
        last: None,
    };
    let records = store.turn_records(id).await?;
    let (first, last) = (records.first().map(|record| record.at), records.last().map(|record| record.at));
    if let Some(end) = turn.end {
        return Ok(alone(TurnProgress::Ended(end), last.unwrap_or(session.updated)));
    }
    match (turn.state, session.active) {
        (TurnState::Queued, Some(active)) if active != id => {
            Ok(alone(TurnProgress::Behind(active), first.unwrap_or(session.updated)))
        }
        (TurnState::Queued, None) => Ok(alone(TurnProgress::Ready, first.unwrap_or(session.updated))),
        _ => of_active(store, &session, &turn).await,
    }
}

async fn of_active(
    store: &dyn Store,
    session: &SessionView,
    turn: &TurnView,
) -> Result<WaitExplanation, Error> {
    let records = store.turn_records(turn.id).await?;
    let last = records.last().map_or(session.updated, |record| record.at);
    let stuck = session.waits.iter().any(|wait| wait.key.is_stuck()).then(|| failure(&records)).flatten();
    let parked = |wait: &Wait| (parked_since(&records, wait), last_attempt(&records, &wait.key));
    let parked: Vec<(Millis, Option<Failure>)> = session.waits.iter().map(parked).collect();
    let effects = timeline::of_turn(records).effects;
    let mut waits = Vec::new();
    for (wait, (since, failure)) in session.waits.iter().zip(parked) {
        waits.push(blocked(store, turn, wait, since, failure, &effects).await?);
    }
    let progress = match (session.state, stuck) {
        (SessionState::Parked, Some(failure)) => TurnProgress::Stuck(failure),
        (SessionState::Parked, None) => TurnProgress::Waits,
        (SessionState::Leased, _) => {
            TurnProgress::Driven { worker: session.worker, doing: doing(&effects).to_owned() }
        }
        (SessionState::Held, _) => TurnProgress::Held { deaths: session.deaths, until: session.wake_at },
        (SessionState::Ready | SessionState::Idle, _) => TurnProgress::Ready,
    };
    let since = waits.iter().map(|blocked| blocked.since).min().unwrap_or(last);
    let queued = queued(store, session).await?;
    Ok(WaitExplanation {
        session: session.id,
        turn: Some(turn.id),
        progress,
        since,
        waits,
        queued,
        last: None,
    })
}

/// Returns the number of queued inputs of a session.
async fn queued(store: &dyn Store, session: &SessionView) -> Result<usize, Error> {
    let newest = u32::try_from(outlast_vocab::Limits::default().queued_inputs + 1).unwrap_or(u32::MAX);
    let turns = store.turns(session.id, session.turns.saturating_sub(newest), newest as usize).await?;
    Ok(turns.iter().filter(|turn| turn.state == TurnState::Queued).count())
}

async fn blocked(
    store: &dyn Store,
    turn: &TurnView,
    wait: &Wait,
    since: Millis,
    failure: Option<Failure>,
    effects: &[EffectView],
) -> Result<BlockingWait, Error> {
    let mover = match wait.kind {
        WaitKind::Approval => {
            let waiting = WaitingTurn { session: turn.session, turn: turn.id, wait: wait.clone() };
            if let Some(question) = approvals::question(store, waiting).await? {
                return Ok(asked(question, since));
            }
            Unblocker::Approval { id: approval_id(turn.id, &wait.key), who: Vec::new() }
        }
        WaitKind::Sleep => Unblocker::Time,
        WaitKind::Provider => {
            Unblocker::Provider { name: wait.key.awaited_provider().map(ToOwned::to_owned), failure }
        }
        WaitKind::Budget => {
            let awaited =
                store.awaited_budgets(turn.id).await?.into_iter().find(|awaited| awaited.wait == wait.key);
            Unblocker::Budget(awaited.map(|awaited| awaited.account))
        }
        WaitKind::Event if wait.key.is_stuck() => Unblocker::Retry,
        WaitKind::Completion
        | WaitKind::Event
        | WaitKind::SubAgent
        | WaitKind::Connection
        | WaitKind::ClientTool => match store.completion_key(turn.id, wait.key.clone()).await {
            Ok(key) => Unblocker::Completion(Some(key)),
            // A read-only caller learns about the wait, but not the key that ends it.
            Err(error) if error.kind() == Kind::AccessDenied => Unblocker::Completion(None),
            Err(error) => return Err(error),
        },
    };
    let call = effects
        .iter()
        .rev()
        .find(|effect| wait.key.is_under(&effect.key) && effect.kind == EffectKind::ToolCall);
    let arguments = |effect: &EffectView| effect.request.get("arguments").cloned().unwrap_or_default();
    let call = call.and_then(|effect| Some((effect.call.as_ref()?.tool.clone(), arguments(effect))));
    Ok(BlockingWait { wait: wait.clone(), since, call, unblocked_by: mover })
}

/// Describes a wait for an approval. Its question and approvers may change while it waits.
fn asked(question: ApprovalQuestion, since: Millis) -> BlockingWait {
    let who = question.approvers().into_iter().map(ToOwned::to_owned).collect();
    let ApprovalQuestion { id, call, wait, .. } = question;
    let call = Some((call.tool.to_string(), call.arguments));
    BlockingWait { wait, since, call, unblocked_by: Unblocker::Approval { id, who } }
}

/// Returns when the turn first parked on this wait.
fn parked_since(records: &[Record], wait: &Wait) -> Millis {
    let parked = records.iter().find(|record| match &record.fact {
        Fact::Parked { waits } => waits.iter().any(|parked| parked.key == wait.key),
        _ => false,
    });
    parked.or(records.last()).map_or(Millis(0), |record| record.at)
}

fn failure(records: &[Record]) -> Option<Failure> {
    records.iter().rev().find_map(|record| match &record.fact {
        Fact::Stuck { failure } => Some(failure.clone()),
        _ => None,
    })
}

/// Returns the failure of the last attempt at the provider that the model call waits for.
fn last_attempt(records: &[Record], wait: &ReplayKey) -> Option<Failure> {
    // Without fallback models, an attempt names no model. A wait for a rate limit names no provider.
    let is_its = |attempt: &&FailedAttempt| {
        let model = attempt.model.as_ref().filter(|_| wait.awaited_provider().is_some());
        model.is_none_or(|model| wait.awaits_provider(provider_of(model)))
    };
    records.iter().rev().find_map(|record| match &record.fact {
        Fact::Tried(tried) if wait.is_under(&tried.key) => {
            tried.attempts.iter().rfind(is_its).map(|attempt| attempt.failure.clone())
        }
        _ => None,
    })
}

/// Returns what a worker is doing with a turn, according to its records.
fn doing(effects: &[EffectView]) -> &str {
    let open = effects.iter().rev().find(|effect| effect.state == EffectState::Open);
    open.and_then(|effect| effect.call.as_ref()).map_or("the model", |call| call.tool.as_str())
}
