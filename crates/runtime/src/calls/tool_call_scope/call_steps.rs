//! Durable steps, sleeps and the keys of events of a running call.
use super::ToolCallScope;
use crate::turn::host::HostTier;
use outlast_ports::ResultFuture;
use outlast_vocab::effect::{DurableStep, Sleep, SleepOutcome, StepOutcome};
use outlast_vocab::event::LiveEventKind;
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Class, Error, Failure, Kind, ReplayKey, limits};
use serde_json::Value;
use std::time::Duration;

impl ToolCallScope {
    pub(super) async fn run_step(
        &self,
        name: &str,
        input: Value,
        run: ResultFuture<'_, Value>,
    ) -> Result<Value, Error> {
        self.journal.durable(&format!("the durable step `{name}`"))?;
        self.name_step(name)?;
        let key = self.call.key.step(name);
        let effect = DurableStep { name: name.to_owned(), input };
        if let Some(outcome) = self.journal.answered(&key, &effect)? {
            self.tell(&key, |key| LiveEventKind::Replayed { key });
            return outcome.into();
        }
        let answer = run.await;
        let outcome = match &answer {
            Ok(value) => StepOutcome::Value(value.clone()),
            // A transient error is not an outcome. The step runs again when the tool is retried.
            Err(error) if error.class() == Class::Retry => return answer,
            Err(error) => StepOutcome::Failed(Failure::from(error)),
        };
        self.journal.record(self.journal.performed(key, effect, outcome)).await;
        answer
    }

    fn name_step(&self, name: &str) -> Result<(), Error> {
        let limits = &self.services.models.limits;
        if name.trim().is_empty() || name.len() > limits.key_bytes {
            let most = limits.key_bytes;
            let found = if name.len() > most { format!("{} bytes", name.len()) } else { format!("{name:?}") };
            let detail = format!(
                "a step's name must have 1 to {most} bytes and a character that is not white space, found {found}"
            );
            return Err(Error::new(Kind::StepNameInvalid, detail));
        }
        let mut used = self.used();
        limits::check("steps_per_call", used.steps.len() + 1, limits.steps_per_call)?;
        if !used.steps.insert(name.to_owned()) {
            let detail = format!("the call has a step `{name}` already; names must be unique in a call");
            return Err(Error::new(Kind::StepNameInvalid, detail));
        }
        Ok(())
    }

    pub(super) async fn run_sleep(&self, pause: Duration) -> Result<(), Error> {
        let number = {
            let mut used = self.used();
            used.sleeps += 1;
            used.sleeps - 1
        };
        let (journal, clock) = (&self.journal, &self.services.models.clock);
        let key = self.call.key.sleep(number);
        let now = clock.now();
        let pinned = journal.history.wait(&key).and_then(|wait| wait.deadline);
        let effect = Sleep { until: pinned.unwrap_or_else(|| now.after(pause)) };
        if journal.answered(&key, &effect)?.is_some() {
            return Ok(());
        }
        if journal.tier == HostTier::Durable
            && now.until(effect.until) > self.services.models.limits.wait_in_memory
        {
            return journal.park(Wait { key, kind: WaitKind::Sleep, deadline: Some(effect.until) }).await;
        }
        clock.sleep_until(effect.until).await;
        journal.note(journal.performed(key, effect, SleepOutcome {})).await;
        Ok(())
    }

    /// Returns the replay key of the wait for this event. Refuses an empty key, which is most likely a missing value.
    pub(super) fn event_replay_key(&self, custom: &str) -> Result<ReplayKey, Error> {
        let most = self.services.models.limits.key_bytes;
        if custom.is_empty() {
            let detail = format!("expected an event key of 1 to {most} bytes, found an empty one");
            return Err(Error::new(Kind::InputInvalid, detail));
        }
        limits::check("key_bytes", custom.len(), most)?;
        Ok(self.call.key.event(custom))
    }
}
