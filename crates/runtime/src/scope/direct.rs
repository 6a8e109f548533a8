//! Questions of a running call to a model, outside the conversation.
use super::Scope;
use crate::asking::{Asked, Asking, Audience};
use crate::catalogue::Caller;
use crate::host::Tier;
use crate::inline::Inline;
use crate::output::{correction, value_of};
use outlast_ports::model::ModelRequest;
use outlast_vocab::effect::{DirectCall, DirectOutcome, ModelCall, ModelOutcome, Reply, ToolChoice};
use outlast_vocab::event::LiveKind;
use outlast_vocab::message::{Message, Part, text_of};
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Hash, Kind};

impl Scope {
    /// Asks a model until its answer fits the contract, if there is one. Each question is an effect of its own.
    pub(super) async fn ask_until_it_fits(&self, mut call: DirectCall) -> Result<Reply, Error> {
        let mut repairs = 0;
        loop {
            let reply = self.ask_once(&call).await?;
            let Some(schema) = &call.output else { return Ok(reply) };
            let answer = text_of(&reply.parts);
            let Some(correction) = correction(&answer, schema)? else {
                let whole = value_of(&answer)?.to_string();
                return Ok(Reply { parts: vec![Part::text(whole)], ..reply });
            };
            repairs += 1;
            if repairs > self.world.limits.output_repairs {
                return Err(Error::new(Kind::OutputInvalid, correction));
            }
            call.messages.push(Message::Assistant { parts: reply.parts.clone(), calls: Vec::new() });
            call.messages.push(Message::user(correction));
        }
    }

    async fn ask_once(&self, call: &DirectCall) -> Result<Reply, Error> {
        let key = self.key.direct(self.count_nested()?);
        if let Some(DirectOutcome(outcome)) = self.answered(&key, call)? {
            self.tell(LiveKind::Replayed { key });
            return reply_of(outcome);
        }
        let (provider, info) = self.world.model(&call.model)?;
        let effect = ModelCall {
            model: call.model.clone(),
            at: None,
            tools: Hash::ZERO,
            choice: ToolChoice::None,
            options: call.options.clone(),
            output: call.output.clone(),
        };
        let caller = Caller { session: self.session, turn: self.turn };
        let asking = Asking {
            world: &self.world,
            caller,
            key: &key,
            provider,
            info,
            lease: self.lease,
            tried: self.history.backoffs(&key),
            in_line: self.history.times_in_line(&key),
            tier: self.tier,
            audience: Audience::Nobody,
        };
        let request = ModelRequest {
            system: &call.system,
            turn: &call.messages,
            session: self.session,
            ..ModelRequest::bare(&effect)
        };
        // Nothing of it is kept before it is whole.
        let outcome = match asking.ask(request, String::new(), &mut Inline::default()).await? {
            Asked::Outcome(outcome) => outcome,
            Asked::Pause { key, pause } => {
                let deadline = Some(self.world.clock.now().after(pause));
                return self.hold_still(Wait { key, kind: WaitKind::Sleep, deadline }).await;
            }
        };
        let fact = self.performed(key, call.clone(), DirectOutcome(outcome.clone()));
        match self.tier {
            Tier::Durable => self.record(fact).await,
            Tier::Ephemeral => self.note(fact).await,
        }
        reply_of(outcome)
    }
}

fn reply_of(outcome: ModelOutcome) -> Result<Reply, Error> {
    match outcome {
        ModelOutcome::Reply(reply) => Ok(reply),
        ModelOutcome::Failed(failed) => Err(failed.failure.into()),
    }
}
