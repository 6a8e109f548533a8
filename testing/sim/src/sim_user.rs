//! The users. Each sends the inputs of its scenario, retries until they are acknowledged, and follows the events.
use crate::effect_recorder::EffectRecorder;
use crate::scenario::{Scenario, UserAction, UserActionKind, UserActionTrigger};
use crate::sim_process::SimProcess;
use crate::task_scheduler::{SimProcessNo, TaskScheduler};
use outlast_ports::branches::{ForkRequest, MAIN_HEAD};
use outlast_ports::inbox::SessionTarget;
use outlast_runtime::{Input, Runtime};
use outlast_views::{ForkTo, RetryOutcome, RetryPlace};
use outlast_vocab::budget::{Budget, BudgetAccount};
use outlast_vocab::effect::JournalPosition;
use outlast_vocab::event::Event;
use outlast_vocab::message::ToolResult;
use outlast_vocab::policy;
use outlast_vocab::record::{Fact, InputDelivery, OutcomeVerdict, Seq};
use outlast_vocab::wait::{CompletionKey, Resolution};
use outlast_vocab::{Class, Error, Failure, Kind, SessionId, TurnId};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The delay before a client retries a request that was refused temporarily.
const AGAIN: u64 = 500;

/// The number of calls that the agent may make once its budget is raised.
const RAISED: u64 = 1_000;

/// The user of one session.
pub(crate) struct SimUser {
    pub(crate) scenario: &'static Scenario,
    pub(crate) session: SessionId,
    key: String,
    acts: Vec<UserActionState>,
    follower: Option<SimProcessNo>,
    log: Arc<Mutex<FollowerLog>>,
}

/// The events that the follower of a session has seen.
#[derive(Default)]
pub(crate) struct FollowerLog {
    /// The numbers of the records, in the order of arrival.
    pub(crate) seqs: Vec<u64>,
    names: BTreeMap<&'static str, usize>,
    /// How often a turn parked for something outside.
    outside_parks: usize,
    parked_after_call: bool,
    ended: bool,
}

/// The state of an act.
enum UserActionState {
    /// It is not due yet, or must be sent again.
    Waits { tries: u32, not_before: u64 },
    /// It was sent to a process.
    Sent { life: SimProcessNo, tries: u32, answer: Arc<Mutex<Option<Result<UserActionAck, Error>>>> },
    /// It was acknowledged.
    Acked { ack: UserActionAck, at: u64 },
}

/// The content of an acknowledgement.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserActionAck {
    /// The turn, if it was an input.
    pub(crate) turn: Option<TurnId>,
    /// Its receipt.
    pub(crate) place: Option<JournalPosition>,
    /// The session that it created.
    pub(crate) fork: Option<SessionId>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimUser {
    /// Creates the user of the session with this number.
    pub(crate) fn new(no: usize, scenario: &'static Scenario) -> Self {
        Self {
            scenario,
            session: SessionId::from_u128(1_000 + no as u128),
            key: format!("s{no}"),
            acts: scenario.acts.iter().map(|_| UserActionState::Waits { tries: 0, not_before: 0 }).collect(),
            follower: None,
            log: Arc::default(),
        }
    }

    /// Returns the acknowledgements.
    pub(crate) fn acks(&self) -> impl Iterator<Item = &UserActionAck> {
        self.acts
            .iter()
            .filter_map(|act| if let UserActionState::Acked { ack, .. } = act { Some(ack) } else { None })
    }

    /// Returns the log of its follower.
    pub(crate) fn log(&self) -> MutexGuard<'_, FollowerLog> {
        lock(&self.log)
    }

    /// Returns whether everything was sent and every input is answered.
    pub(crate) fn is_content(&self) -> bool {
        let log = self.log();
        let count = |name| log.names.get(name).copied().unwrap_or(0);
        self.acks().count() == self.acts.len()
            && count("turn.accepted") == self.scenario.inputs()
            && count("turn.ended") == self.scenario.inputs()
    }

    /// Returns whether every sent input is answered and the rest will never be sent. After a fault that a turn cannot
    /// survive, the condition of an act may never hold.
    pub(crate) fn gave_up(&self, now: u64, witness: &EffectRecorder) -> bool {
        let all_over = {
            let log = self.log();
            let count = |name| log.names.get(name).copied().unwrap_or(0);
            let said = self.acks().filter(|ack| ack.turn.is_some()).count();
            said > 0 && count("turn.accepted") == said && count("turn.ended") == said
        };
        let to_come = |no: usize| match self.acts[no] {
            UserActionState::Acked { .. } => false,
            UserActionState::Sent { .. } => true,
            UserActionState::Waits { .. } => {
                let later = matches!(self.scenario.acts[no].when, UserActionTrigger::Later(..));
                later || self.is_due(no, now, witness)
            }
        };
        all_over && !(0..self.acts.len()).any(to_come)
    }

    /// Describes what it waits for, for a report.
    pub(crate) fn describe_progress(&self) -> String {
        let log = self.log();
        let acked = self.acks().count();
        format!(
            "`{}`: {acked} of {} acts acknowledged, records {:?}",
            self.scenario.name,
            self.acts.len(),
            log.names
        )
    }

    /// Returns the next time at which one of its acts may become due.
    pub(crate) fn next_time(&self, now: u64) -> Option<u64> {
        let times = self.acts.iter().zip(&self.scenario.acts).filter_map(|(state, act)| match state {
            UserActionState::Waits { not_before, .. } => Some((*not_before).max(self.later(*act)?)),
            _ => None,
        });
        times.filter(|at| *at > now).min()
    }

    fn later(&self, act: UserAction) -> Option<u64> {
        match act.when {
            UserActionTrigger::Later(other, millis) => match &self.acts[other] {
                UserActionState::Acked { at, .. } => Some(at + millis),
                _ => None,
            },
            _ => Some(0),
        }
    }

    /// Collects answers, and resets acts that were sent to processes that are gone.
    pub(crate) fn collect_acks(
        &mut self,
        now: u64,
        lives: impl Fn(SimProcessNo) -> bool,
    ) -> Result<(), String> {
        for (state, act) in self.acts.iter_mut().zip(&self.scenario.acts) {
            let UserActionState::Sent { life, tries, answer } = state else { continue };
            let answered = lock(answer).take();
            let next = match answered {
                Some(Ok(ack)) => UserActionState::Acked { ack, at: now },
                Some(Err(error)) if error.class() == Class::Reject && *tries <= 1 => {
                    return Err(format!("{:?} was refused: {error}", act.what));
                }
                // A process did it before and died without acknowledging it.
                Some(Err(error)) if error.class() == Class::Reject && !act.what.is_input() => {
                    UserActionState::Acked { ack: UserActionAck::default(), at: now }
                }
                Some(Err(_)) => UserActionState::Waits { tries: *tries, not_before: now + AGAIN },
                None if !lives(*life) => UserActionState::Waits { tries: *tries, not_before: now },
                None => continue,
            };
            *state = next;
        }
        if self.follower.is_some_and(|life| !lives(life)) || self.log().ended {
            self.log().ended = false;
            self.follower = None;
        }
        Ok(())
    }

    /// Sends the acts that are due to a live process. Returns whether it sent anything.
    pub(crate) fn send_due_actions(
        &mut self,
        now: u64,
        life: &SimProcess,
        schedule: &TaskScheduler,
        witness: &EffectRecorder,
    ) -> bool {
        let Some(runtime) = life.runtime() else { return false };
        let mut spoke = false;
        if self.follower.is_none() && matches!(self.acts[0], UserActionState::Acked { .. }) {
            self.follower = Some(life.no);
            let (log, session) = (self.log.clone(), self.session);
            schedule.spawner(life.no).spawn(Box::pin(follow(runtime.clone(), session, log)));
            spoke = true;
        }
        for no in 0..self.acts.len() {
            let UserActionState::Waits { tries, not_before } = self.acts[no] else { continue };
            if not_before > now || !self.is_due(no, now, witness) {
                continue;
            }
            let Some(request) = self.request(no, witness) else { continue };
            let answer: Arc<Mutex<Option<Result<UserActionAck, Error>>>> = Arc::default();
            let (runtime, to) = (runtime.clone(), answer.clone());
            schedule.spawner(life.no).spawn(Box::pin(async move {
                let answered = request.perform(&runtime).await;
                *lock(&to) = Some(answered);
            }));
            self.acts[no] = UserActionState::Sent { life: life.no, tries: tries + 1, answer };
            spoke = true;
        }
        spoke
    }

    fn is_due(&self, no: usize, now: u64, witness: &EffectRecorder) -> bool {
        let acked = |other: usize| matches!(self.acts[other], UserActionState::Acked { .. });
        match self.scenario.acts[no].when {
            UserActionTrigger::AtOnce => true,
            UserActionTrigger::Acked(other) => acked(other),
            UserActionTrigger::Parked => self.log().outside_parks > 0,
            UserActionTrigger::ParkedAgain => self.log().outside_parks > 1,
            UserActionTrigger::ParkedAfterCall => self.log().parked_after_call,
            UserActionTrigger::Recorded(name, times) => {
                self.log().names.get(name).is_some_and(|seen| *seen >= times)
            }
            UserActionTrigger::Did(tool) => witness.seen().count(self.session, tool) > 0,
            UserActionTrigger::Later(..) => self.later(self.scenario.acts[no]).is_some_and(|at| at <= now),
        }
    }

    /// Returns the request for an act; `None` if it cannot be sent yet.
    fn request(&self, no: usize, witness: &EffectRecorder) -> Option<UserActionRequest> {
        let input = |text: &str, delivery, head: &str, output| {
            let text = if no == 0 { format!("{}: {text}", self.scenario.name) } else { text.to_owned() };
            let target = SessionTarget::Key { key: self.key.clone(), fresh: self.session };
            UserActionRequest::Say(Box::new(Input {
                key: Some(format!("act {no}")),
                delivery,
                head: head.to_owned(),
                output,
                ..Input::text(target, text)
            }))
        };
        let turn_of = |other: usize| match &self.acts[other] {
            UserActionState::Acked { ack, .. } => ack.turn,
            _ => None,
        };
        let session = self.session;
        Some(match self.scenario.acts[no].what {
            UserActionKind::SendInput(text) => input(text, InputDelivery::Next, MAIN_HEAD, None),
            UserActionKind::AskNumber(text) => {
                input(text, InputDelivery::Next, MAIN_HEAD, Some(json!({ "type": "number" })))
            }
            UserActionKind::Steer(text) => input(text, InputDelivery::Join, MAIN_HEAD, None),
            UserActionKind::SendInputOnHead(head, text) => input(text, InputDelivery::Next, head, None),
            UserActionKind::Resolve(name, ok) => {
                let key = witness.seen().keys.get(&(session, name.to_owned())).cloned()?;
                let denied = || Failure::new(Kind::ToolFailed, "denied");
                let resolution =
                    if ok { Resolution::Ok(json!("resolved")) } else { Resolution::Err(denied()) };
                UserActionRequest::Resolve(key, resolution)
            }
            UserActionKind::Approve(yes) => UserActionRequest::Approve(session, yes),
            UserActionKind::Cancel(other) => UserActionRequest::Cancel(turn_of(other)?),
            UserActionKind::Abort(other) => UserActionRequest::Abort(turn_of(other)?),
            UserActionKind::Restore => {
                witness.restore(session);
                UserActionRequest::Restored
            }
            UserActionKind::Wake(other) => UserActionRequest::Wake(turn_of(other)?),
            UserActionKind::Retry(other) => UserActionRequest::Retry(turn_of(other)?),
            UserActionKind::Fork(text) => {
                let fresh = SessionId::from_u128(self.session.to_u128() + 1_000_000);
                UserActionRequest::Fork { session, fresh, text }
            }
            UserActionKind::Branch(head) => UserActionRequest::Branch(session, head),
            UserActionKind::Rewind => UserActionRequest::Rewind(session),
            UserActionKind::Settle => UserActionRequest::Settle(session),
            UserActionKind::Raise => UserActionRequest::Raise,
        })
    }
}

/// One request of a client.
enum UserActionRequest {
    Say(Box<Input>),
    Resolve(CompletionKey, Resolution),
    Approve(SessionId, bool),
    Cancel(TurnId),
    Abort(TurnId),
    /// The provider was restored when the request was made.
    Restored,
    Wake(TurnId),
    Retry(TurnId),
    Fork {
        session: SessionId,
        fresh: SessionId,
        text: &'static str,
    },
    Branch(SessionId, &'static str),
    Rewind(SessionId),
    Settle(SessionId),
    Raise,
}

impl UserActionRequest {
    async fn perform(self, runtime: &Runtime) -> Result<UserActionAck, Error> {
        let store = runtime.store();
        let now = runtime.now();
        match self {
            Self::Say(input) => {
                let accepted = runtime.submit(*input).await?;
                return Ok(UserActionAck {
                    turn: Some(accepted.turn),
                    place: Some(accepted.place),
                    fork: None,
                });
            }
            Self::Resolve(key, resolution) => {
                runtime.resolve(&key, resolution).await?;
            }
            Self::Approve(session, yes) => {
                let no = policy::ApprovalVerdict::Deny { reason: "no".to_owned() };
                let verdict = || if yes { policy::ApprovalVerdict::Approve } else { no.clone() };
                let pending = runtime.approvals().pending(usize::MAX, runtime.now()).await?;
                for question in pending.into_iter().filter(|question| question.session == session) {
                    let word = policy::Approval::new("ann", verdict());
                    runtime.approve(question.id, word).await?;
                }
            }
            Self::Cancel(turn) => {
                runtime.cancel(turn, "enough").await?;
            }
            Self::Abort(turn) => {
                runtime.abort(turn, "enough").await?;
            }
            Self::Restored => {}
            Self::Wake(turn) => match runtime.retry(turn).await {
                // Its wait ended in the meantime.
                Err(error) if error.kind() == Kind::WaitNotFound => {}
                woken => woken?,
            },
            Self::Retry(turn) => {
                let retried = runtime.retry_turn(turn, RetryPlace::SameHead).await?;
                let RetryOutcome::NewTurn { turn, .. } = retried else {
                    let detail = format!("{turn} has not ended");
                    return Err(Error::new(Kind::TurnNotRetryable, detail));
                };
                return Ok(UserActionAck { turn: Some(turn), ..UserActionAck::default() });
            }
            Self::Fork { session, fresh, text } => {
                if store.session(fresh).await.is_err() {
                    let to = ForkTo::Session { fresh, key: None };
                    store.fork(ForkRequest { from: session, at: None, to, now }).await?;
                }
                let input =
                    Input { key: Some("in the fork".into()), ..Input::text(SessionTarget::Id(fresh), text) };
                let accepted = runtime.submit(input).await?;
                runtime.outcome(accepted.turn).await?;
                return Ok(UserActionAck { fork: Some(fresh), ..UserActionAck::default() });
            }
            Self::Branch(from, head) => {
                store.fork(ForkRequest { from, at: None, to: ForkTo::Head(head.to_owned()), now }).await?;
            }
            Self::Rewind(session) => store.rewind(session, MAIN_HEAD.to_owned(), None, now).await?,
            Self::Raise => {
                let large = Budget { calls: Some(RAISED), ..Budget::default() };
                runtime.set_budget(BudgetAccount::Agent("sim".to_owned()), Some(large)).await?;
            }
            Self::Settle(session) => {
                for unknown in store.unknown(100).await?.into_iter().filter(|call| call.session == session) {
                    let happened = OutcomeVerdict::Happened(ToolResult::Ok(json!("it did")));
                    store.settle(unknown.call, happened, now).await?;
                }
            }
        }
        Ok(UserActionAck::default())
    }
}

/// Follows the durable events of a session, starting where the last follower stopped.
async fn follow(runtime: Runtime, session: SessionId, log: Arc<Mutex<FollowerLog>>) {
    let after = lock(&log).seqs.last().copied().unwrap_or(0);
    let mut events = runtime.events(session, Seq(after));
    while let Ok(event) = events.next().await {
        if let Event::Durable(record) = event {
            let mut log = lock(&log);
            log.seqs.push(record.seq.0);
            *log.names.entry(record.fact.name()).or_default() += 1;
            if let Fact::Parked { waits } = &record.fact {
                log.outside_parks += usize::from(waits.iter().any(|wait| !wait.kind.ends_by_itself()));
                log.parked_after_call |= log.names.contains_key("effect.answered");
            }
        }
    }
    lock(&log).ended = true;
}
