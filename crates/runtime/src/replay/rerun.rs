//! Runs a recorded session again from any point, with another agent, and compares the results.
//!
//! The turns run for real, on a store of their own. `recorded_answers` answers the tool calls that the recording has an
//! answer for, and the model requests before the point. `rerun_comparison` compares the records of both.
pub use crate::replay::rerun_comparison::{RerunReport, TraceCall, TurnComparison, TurnTrace};

use crate::archive::{import, import_to_compare};
use crate::attachments::Attachments;
use crate::replay::recorded_answers::{RecordedAnswers, RecordedReplies, ReplayingModel};
use crate::replay::rerun_comparison::compare;
use crate::worker::system::SystemEntropy;
use crate::{Input, Runtime, RuntimeConfig};
use outlast_ports::clock::Entropy;
use outlast_ports::inbox::SessionTarget;
use outlast_ports::store::Store;
use outlast_ports::tool::DecoratedTools;
use outlast_views::{Org, SessionState, TurnView};
use outlast_vocab::access::Access;
use outlast_vocab::effect::{ModelOutcome, Outcome};
use outlast_vocab::message::Part;
use outlast_vocab::record::{EffectPerformed, Fact, Record, TurnAccepted, TurnStarted};
use outlast_vocab::{Error, Kind, Limits, Millis, OrgId, SessionId, TurnId, WorkerId};
use std::io::{Read, Seek};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// How often to check whether a turn waits for a person.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The timeout for shutting down the worker.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The point from which a session runs again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RerunStart {
    /// Its first turn.
    #[default]
    Beginning,
    /// The turn with this index, counted from 0.
    Turn(u32),
    /// The turn with this id.
    Id(TurnId),
    /// An effect, given by its path. Earlier model replies of the same turn are taken from the recording.
    Effect(String),
}

impl FromStr for RerunStart {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if let Ok(turn) = text.parse() {
            return Ok(Self::Turn(turn));
        }
        if text.starts_with("turn/") {
            return Ok(Self::Effect(text.to_owned()));
        }
        text.parse().map(Self::Id).map_err(|_| {
            let detail = format!("expected a turn (`2` or `trn_…`) or an effect (`turn/2/…`), got `{text}`");
            Error::new(Kind::InputInvalid, detail)
        })
    }
}

/// How a session runs again.
#[derive(Clone, Debug, Default)]
pub struct RerunSettings {
    /// The point to start from.
    pub start: RerunStart,
    /// Whether repeatable calls are made for real, even if the recording has an answer for them.
    pub live: bool,
    /// Whether at-most-once calls are made for which the recording has no answer. They have real effects.
    pub run_at_most_once: bool,
    /// The organisation that the session runs in, under its rules.
    pub org: Org,
    /// The timeout for the whole re-run, including the time that turns sleep or wait.
    pub timeout: Option<Duration>,
}

/// Runs the session of an archive again. `store` is an empty store that gets the session, and `config` returns the
/// configuration of a runtime on it. The payments of that configuration are ignored.
pub async fn rerun(
    store: Arc<dyn Store>,
    archive: impl Read + Seek + Send + 'static,
    settings: RerunSettings,
    config: impl FnOnce(Arc<dyn Store>, WorkerId) -> Result<RuntimeConfig, Error>,
) -> Result<RerunReport, Error> {
    let RerunSettings { start, live, run_at_most_once, org, timeout } = settings;
    let (whole, access) = (store, Access::to(org.id));
    if org.id != OrgId::DEFAULT {
        whole.create_org(org).await?;
    }
    let store = whole.clone().serving(access.clone());
    let attachments = Attachments::new(store.clone(), None, Limits::default());
    let imported = if live {
        import(store.as_ref(), &attachments, archive, None, Millis(0)).await?
    } else {
        import_to_compare(store.as_ref(), &attachments, archive).await?
    };
    let session = imported.session;
    let mut turns = recorded_turns(store.as_ref(), session).await?;
    let (first, said) = find_start(&turns, &start)?;
    let turns = turns.split_off(first);
    let reuse = Arc::new(RecordedAnswers::of(&turns, live, run_at_most_once));
    let prefix = Arc::new(RecordedReplies::of(&turns[0].records, said));
    let worker = WorkerId::fresh(Millis(0), SystemEntropy.random_id_bytes());
    let mut config = config(whole, worker)?;
    wrap_providers(&mut config, &reuse, &prefix);
    let runtime = Runtime::start(config).await?.serving(access);
    let ran = Box::pin(with_timeout(rerun_inputs(&runtime, session, &turns), timeout)).await;
    runtime.shut_down(DRAIN_TIMEOUT).await;
    let mut compared = Vec::new();
    for (recorded, rerun) in turns.into_iter().zip(ran?) {
        compared.push(compare(recorded.view.index, recorded.records, store.turn_records(rerun).await?));
    }
    Ok(RerunReport::new(session, compared, reuse.take_counts()))
}

/// Awaits the work, with an optional timeout.
async fn with_timeout<T>(
    work: impl Future<Output = Result<T, Error>>,
    within: Option<Duration>,
) -> Result<T, Error> {
    let Some(time) = within else { return work.await };
    tokio::time::timeout(time, work).await.unwrap_or_else(|_| {
        let detail = format!("the re-run did not end within {} s and was stopped", time.as_secs_f64());
        Err(Error::new(Kind::WaitTimedOut, detail))
    })
}

/// A turn of the recording.
pub(super) struct RecordedTurn {
    view: TurnView,
    accepted: TurnAccepted,
    started: TurnStarted,
    pub(super) records: Vec<Record>,
}

impl RecordedTurn {
    /// Returns the messages of the turn: its input and the inputs that joined it.
    fn parts(&self) -> Vec<Part> {
        let joined = self.records.iter().filter_map(|record| match &record.fact {
            Fact::Performed(EffectPerformed { outcome: Outcome::Checkpoint(joined), .. }) => {
                Some(&joined.inputs)
            }
            _ => None,
        });
        let joined = joined.flatten().flat_map(|input| input.parts.clone());
        self.accepted.parts.iter().cloned().chain(joined).collect()
    }
}

/// Returns the turns of a session that were started.
async fn recorded_turns(store: &dyn Store, session: SessionId) -> Result<Vec<RecordedTurn>, Error> {
    let mut turns = Vec::new();
    for view in store.turns(session, 0, usize::MAX).await? {
        let records = store.turn_records(view.id).await?;
        let (mut accepted, mut started) = (None, None);
        for record in &records {
            match &record.fact {
                Fact::Accepted(said) => accepted = Some(said.clone()),
                Fact::Started(began) => started = Some(began.clone()),
                _ => {}
            }
        }
        if let (Some(accepted), Some(started)) = (accepted, started) {
            turns.push(RecordedTurn { view, accepted, started, records });
        }
    }
    Ok(turns)
}

/// Returns the index of the turn that contains a point, and the number of its model replies before that point.
fn find_start(turns: &[RecordedTurn], point: &RerunStart) -> Result<(usize, usize), Error> {
    let found = match point {
        RerunStart::Beginning => (!turns.is_empty()).then_some((0, 0)),
        RerunStart::Turn(index) => turns.iter().position(|turn| turn.view.index == *index).map(|at| (at, 0)),
        RerunStart::Id(id) => turns.iter().position(|turn| turn.view.id == *id).map(|at| (at, 0)),
        RerunStart::Effect(key) => {
            turns.iter().enumerate().find_map(|(at, turn)| Some((at, replies_before(&turn.records, key)?)))
        }
    };
    found.ok_or_else(|| {
        let what = match point {
            RerunStart::Beginning => "the recording has no turn that started".to_owned(),
            RerunStart::Turn(index) => format!("the recording has no turn {index} that started"),
            RerunStart::Id(id) => format!("the recording has no turn {id} that started"),
            RerunStart::Effect(key) => {
                format!("the recording has no effect `{key}`; `outlast events` shows their paths")
            }
        };
        Error::new(Kind::TurnNotFound, what)
    })
}

/// Returns the number of model replies before an effect in the records of its turn.
fn replies_before(records: &[Record], key: &str) -> Option<usize> {
    let mut replies = 0;
    for record in records {
        let (at, reply) = match &record.fact {
            Fact::Performed(EffectPerformed { key, outcome, .. }) => {
                (key, matches!(outcome, Outcome::ModelCall(ModelOutcome::Reply(_))))
            }
            Fact::Asked(asked) => (&asked.key, false),
            _ => continue,
        };
        if at.as_str() == key {
            return Some(replies);
        }
        replies += usize::from(reply);
    }
    None
}

/// Wraps the tools and models of an agent so that the recording answers first.
fn wrap_providers(config: &mut RuntimeConfig, reuse: &Arc<RecordedAnswers>, prefix: &Arc<RecordedReplies>) {
    let tools = config.tools.iter_mut().chain(config.agents.iter_mut().flat_map(|agent| &mut agent.tools));
    for tool in tools {
        *tool = Arc::new(DecoratedTools::new(tool.clone(), reuse.clone()));
    }
    for model in std::mem::take(&mut config.models) {
        config.models.push(Arc::new(ReplayingModel { model, prefix: prefix.clone() }));
    }
    config.payments = None;
}

/// Sends the recorded inputs again, one turn after the other, on their original head.
async fn rerun_inputs(
    runtime: &Runtime,
    session: SessionId,
    turns: &[RecordedTurn],
) -> Result<Vec<TurnId>, Error> {
    let first = &turns[0];
    let parent = first.started.parent.filter(|node| node.session == session);
    let head = first.started.head.clone();
    runtime.store().rewind(session, head.clone(), parent.map(|node| node.seq), runtime.now()).await?;
    let mut ran = Vec::new();
    for turn in turns {
        let input = Input {
            parts: turn.parts(),
            head: head.clone(),
            output: turn.accepted.output.clone(),
            before: turn.accepted.before.clone(),
            ..Input::text(SessionTarget::Id(session), "")
        };
        let accepted = runtime.submit(input).await?;
        wait_for_end(runtime, session, accepted.turn).await?;
        ran.push(accepted.turn);
    }
    Ok(ran)
}

/// Waits until a turn ends. A turn that waits for a person is cancelled, because a re-run asks no one.
async fn wait_for_end(runtime: &Runtime, session: SessionId, turn: TurnId) -> Result<(), Error> {
    loop {
        tokio::select! {
            biased;
            end = runtime.outcome(turn) => return end.map(drop),
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
        let view = runtime.store().session(session).await?;
        let waits = view.waits.iter().find(|wait| !wait.kind.ends_by_itself());
        if let (SessionState::Parked, Some(wait)) = (view.state, waits) {
            runtime
                .cancel(turn, &format!("it waits for {}, but a re-run cannot ask a person", wait.kind.name()))
                .await?;
        }
    }
}
