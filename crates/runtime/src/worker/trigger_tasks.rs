//! Listens to triggers. Each external event starts one turn, exactly once.
use super::{Input, Runtime, RuntimeState};
use crate::turn::model_request::jittered;
use futures_util::FutureExt;
use outlast_ports::ResultFuture;
use outlast_ports::inbox::SessionTarget;
use outlast_ports::trigger::{ExternalEvent, Trigger};
use outlast_vocab::id::TurnId;
use outlast_vocab::{Class, Error, Kind};
use std::panic::AssertUnwindSafe;

impl Runtime {
    /// Starts listening to the triggers of all plug-ins, with the access of this handle.
    pub fn listen(&self) {
        for trigger in self.state.plugins.triggers() {
            let ear = TriggerTask { runtime: self.clone(), trigger: trigger.clone() };
            self.state.sessions.tasks.spawn(async move { ear.run().await });
        }
    }
}

/// The task of one trigger.
struct TriggerTask {
    runtime: Runtime,
    trigger: Trigger,
}

impl TriggerTask {
    async fn run(&self) {
        let mut stopping = self.runtime.state.drives.stopping();
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => {}
            () = self.listen() => {}
        }
    }

    async fn listen(&self) {
        let mut failures = 0;
        loop {
            match self.once().await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    tracing::warn!(%error, trigger = %self.trigger.name, failures, "a trigger failed");
                    self.pause(failures).await;
                }
            }
        }
    }

    /// Takes the next occurrence from the source and starts its turn.
    async fn once(&self) -> Result<(), Error> {
        let source = &self.trigger.source;
        let occurrence = self.answered(source.next()).await?;
        let id = occurrence.id.clone();
        let outcome = self.begin(occurrence).await;
        if let Err(error) = &outcome {
            tracing::warn!(%error, trigger = %self.trigger.name, id, "an occurrence starts no turn");
        }
        self.answered(source.settled(&id, outcome.as_ref().copied())).await
    }

    /// Starts the turn of an occurrence, and retries transient errors. Returns only permanent errors.
    async fn begin(&self, occurrence: ExternalEvent) -> Result<TurnId, Error> {
        let mut tried = 0;
        loop {
            match self.runtime.submit(self.input(occurrence.clone())).await {
                Ok(accepted) => return Ok(accepted.turn),
                Err(error) if error.class() == Class::Retry => {
                    tried += 1;
                    tracing::warn!(%error, trigger = %self.trigger.name, tried, "an occurrence waits");
                    self.pause(tried).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn input(&self, occurrence: ExternalEvent) -> Input {
        let ExternalEvent { id, session, text, files, plugins } = occurrence;
        let target = SessionTarget::Key { key: session, fresh: self.runtime.fresh_session() };
        let (key, agent) = (Some(self.trigger.key(&id)), self.trigger.agent.clone());
        Input { key, plugins, agent, files, ..Input::text(target, text) }
    }

    /// Waits for an answer of the source. A panic is returned as an error.
    async fn answered<T>(&self, answer: ResultFuture<'_, T>) -> Result<T, Error> {
        let panicked = |_| {
            let detail = format!("the source of the trigger `{}` panicked", self.trigger.name);
            Err(Error::new(Kind::PluginInvalid, detail))
        };
        AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(panicked)
    }

    async fn pause(&self, failures: u32) {
        let RuntimeState { journal, entropy, .. } = &*self.runtime.state;
        let limits = &journal.limits;
        let (first, most) = (limits.backoff_first, limits.backoff_most);
        journal.clock.sleep(jittered(first, most, failures, entropy.as_ref())).await;
    }
}
