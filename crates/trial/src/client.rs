//! The client that talks to the agent. It repeats the same steps in every life, like a client that retries after a
//! crash.
use crate::clock::OffsetClock;
use crate::guarantee::{Guarantee, GuaranteeFailure};
use outlast_ports::clock::Clock;
use outlast_ports::inbox::SessionTarget;
use outlast_runtime::{Input, Runtime};
use outlast_views::{SessionState, SessionView};
use outlast_vocab::record::{Fact, InputDelivery};
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Kind, ReplayKey};
use std::time::Duration;

/// The session key of a trial.
pub(crate) const SESSION: &str = "trial";

/// How often the client checks whether the session is idle.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A step of the client.
#[derive(Clone, Debug)]
pub(crate) enum ClientStep {
    Say(String),
    Steer(String),
    Resolve(Resolution),
    Cancel(String),
}

impl ClientStep {
    /// Returns whether the step is an input that needs an answer.
    pub(crate) fn is_input(&self) -> bool {
        matches!(self, Self::Say(_) | Self::Steer(_))
    }
}

/// The target of a step in the run without a crash. In every other run, the step must have the same target.
#[derive(Clone, Debug)]
pub(crate) enum StepTarget {
    Session,
    Turn(u32),
    Wait(u32, ReplayKey),
}

/// The client of one life.
pub(crate) struct TrialClient<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) clock: &'a OffsetClock,
    pub(crate) steps: &'a [ClientStep],
    /// The targets of the steps in the run without a crash; `None` during that run.
    pub(crate) targets: Option<&'a [StepTarget]>,
}

/// Whether the client has further steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RemainingSteps {
    Steps,
    Nothing,
}

impl TrialClient<'_> {
    /// Takes each step when the session is idle, then waits until everything has ended. Returns the targets of the
    /// steps.
    pub(crate) async fn run_steps(&self) -> Result<Vec<StepTarget>, GuaranteeFailure> {
        let mut aims = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            let session = self.wait_until_idle(RemainingSteps::Steps).await?;
            let aim = match step {
                ClientStep::Say(text) => self.send(number, text, InputDelivery::Next).await?,
                ClientStep::Steer(text) => self.send(number, text, InputDelivery::Join).await?,
                ClientStep::Resolve(resolution) => {
                    let aim = self.step_target(number, || first_wait(session.as_ref())).await?;
                    self.resolve(session.as_ref(), &aim, resolution).await?;
                    aim
                }
                ClientStep::Cancel(reason) => {
                    let aim = self
                        .step_target(number, || session.as_ref().and_then(|view| Some((view.active?, None))))
                        .await?;
                    self.cancel(session.as_ref(), &aim, reason).await?;
                    aim
                }
            };
            aims.push(aim);
        }
        self.wait_until_idle(RemainingSteps::Nothing).await?;
        Ok(aims)
    }

    async fn send(&self, number: usize, text: &str, delivery: InputDelivery) -> Result<StepTarget, Error> {
        let target = SessionTarget::Key { key: SESSION.to_owned(), fresh: self.runtime.fresh_session() };
        // An input that is sent again has the same key and is recognised as a duplicate.
        let key = Some(format!("step {}", number + 1));
        self.runtime.submit(Input { key, delivery, ..Input::text(target, text) }).await?;
        Ok(StepTarget::Session)
    }

    /// Returns the target of a step: the one from the run without a crash, or the one found now.
    async fn step_target(
        &self,
        number: usize,
        find: impl FnOnce() -> Option<(outlast_vocab::TurnId, Option<ReplayKey>)>,
    ) -> Result<StepTarget, Error> {
        if let Some(aims) = self.targets {
            return Ok(aims[number].clone());
        }
        let Some((turn, wait)) = find() else {
            let detail = format!(
                "step {} of the trial completes or cancels a waiting turn, but no turn waits at that point",
                number + 1
            );
            return Err(Error::new(Kind::InputInvalid, detail));
        };
        let index = self.runtime.store().turn(turn).await?.index;
        Ok(wait.map_or(StepTarget::Turn(index), |wait| StepTarget::Wait(index, wait)))
    }

    /// Resolves the wait, if it still exists. The resolution may have been recorded before the crash, or the waiting
    /// call may have an unknown outcome.
    async fn resolve(
        &self,
        session: Option<&SessionView>,
        aim: &StepTarget,
        resolution: &Resolution,
    ) -> Result<(), Error> {
        let (Some(view), StepTarget::Wait(index, key)) = (session, aim) else { return Ok(()) };
        let waits = view.waits.iter().any(|wait| wait.key == *key);
        let Some(turn) = view.active.filter(|_| waits) else { return Ok(()) };
        if self.runtime.store().turn(turn).await?.index == *index {
            let key = self.runtime.key_of(turn, key).await?;
            self.runtime.resolve(&key, resolution.clone()).await?;
        }
        Ok(())
    }

    async fn cancel(
        &self,
        session: Option<&SessionView>,
        aim: &StepTarget,
        reason: &str,
    ) -> Result<(), Error> {
        let (Some(view), StepTarget::Turn(index)) = (session, aim) else { return Ok(()) };
        for turn in self.runtime.store().turns(view.id, *index, 1).await? {
            self.runtime.cancel(turn.id, reason).await?;
        }
        Ok(())
    }

    /// Waits until the session is idle. Instead of waiting for a timer, it moves the clock forward.
    async fn wait_until_idle(&self, more: RemainingSteps) -> Result<Option<SessionView>, GuaranteeFailure> {
        loop {
            let view = match self.runtime.store().session_by_key(SESSION.to_owned()).await {
                Err(error) if error.kind() == Kind::SessionNotFound => return Ok(None),
                view => view?,
            };
            match view.state {
                SessionState::Idle => return Ok(Some(view)),
                SessionState::Parked if view.waits.iter().any(is_stuck) => {
                    return Err(self.stuck_violation(&view).await?);
                }
                SessionState::Parked
                    if more == RemainingSteps::Steps && view.waits.iter().any(is_external_wait) =>
                {
                    return Ok(Some(view));
                }
                SessionState::Parked | SessionState::Held => match view.wake_at {
                    Some(wake) if wake > self.clock.now() => self.clock.advance_to(wake),
                    Some(_) => {}
                    None => return Err(unanswered_wait(&view)),
                },
                SessionState::Ready | SessionState::Leased => {}
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn stuck_violation(&self, view: &SessionView) -> Result<GuaranteeFailure, Error> {
        let records = match view.active {
            Some(turn) => self.runtime.store().turn_records(turn).await?,
            None => Vec::new(),
        };
        let why = records.into_iter().rev().find_map(|record| match record.fact {
            Fact::Stuck { failure } => Some(failure.to_string()),
            _ => None,
        });
        Ok(GuaranteeFailure::new(Guarantee::Ends, format!("the turn is stuck: {}", why.unwrap_or_default())))
    }
}

fn first_wait(session: Option<&SessionView>) -> Option<(outlast_vocab::TurnId, Option<ReplayKey>)> {
    let view = session?;
    let wait = view.waits.iter().find(|wait| is_external_wait(wait))?;
    Some((view.active?, Some(wait.key.clone())))
}

fn unanswered_wait(view: &SessionView) -> GuaranteeFailure {
    let waits: Vec<String> =
        view.waits.iter().map(|wait| format!("{} at {}", wait.kind.name(), wait.key)).collect();
    let detail =
        format!("the turn waits for {}, and the trial has no step left that resolves it", waits.join(", "));
    GuaranteeFailure::new(Guarantee::Ends, detail)
}

fn is_external_wait(wait: &Wait) -> bool {
    !wait.kind.ends_by_itself()
}

fn is_stuck(wait: &Wait) -> bool {
    let place = wait.key.as_str().rsplit('/').next();
    wait.kind == WaitKind::Event && place.is_some_and(|place| place.starts_with("stuck:"))
}
