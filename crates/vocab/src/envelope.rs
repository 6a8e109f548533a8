//! The envelope of an effect: the request, its place in the system, and its cause.
//!
//! Everything that leaves the process about an effect (a Restate journal, a trace, an event stream) has this
//! form. Decoding validates it, and every violation has its own error code.
use crate::effect::{Command, EffectKind};
use crate::id::{EffectId, ProcessId, SessionId, TurnId};
use crate::key::ReplayKey;
use crate::record::{NodeRef, Seq};
use crate::{Error, Kind};
use serde::{Deserialize, Serialize};

/// An effect with its place in the system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Envelope {
    /// The place and the cause.
    pub invocation: Invocation,
    /// The request.
    pub command: Command,
}

/// The place of an effect and its cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Invocation {
    /// The turn.
    pub scope: InvocationScope,
    /// The effect itself.
    pub subject: Subject,
    /// The cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Subject>,
    /// The replay key of the effect.
    pub replay_key: ReplayKey,
}

/// The turn an effect belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvocationScope {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The index of the turn in its session, counted from 0.
    pub turn_index: u32,
    /// The iteration of the turn, counted from 0.
    pub iteration: u32,
}

/// The cause or the subject of an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Subject {
    /// An effect of a turn.
    Effect {
        /// Its id.
        id: EffectId,
        /// Its kind.
        kind: EffectKind,
    },
    /// A process.
    Process {
        /// Its id.
        id: ProcessId,
    },
    /// An event of a process.
    ProcessEvent {
        /// The process.
        process: ProcessId,
        /// Its position in the log of the process.
        seq: Seq,
    },
    /// An occurrence of a trigger's source.
    TriggerOccurrence {
        /// The id that the source gave the occurrence.
        id: String,
    },
    /// A message of a session.
    Node {
        /// The node of the message.
        node: NodeRef,
    },
}

impl Envelope {
    /// Creates the envelope of a command. The id of the effect is derived from the turn and the replay key,
    /// so a replay creates the same id.
    pub fn new(
        scope: InvocationScope,
        replay_key: ReplayKey,
        command: Command,
        cause: Option<Subject>,
    ) -> Self {
        let subject = Subject::Effect { id: effect_id(scope.turn, &replay_key), kind: command.kind() };
        Self { invocation: Invocation { scope, subject, cause, replay_key }, command }
    }

    /// Decodes and validates an envelope.
    pub fn decode(json: &[u8]) -> Result<Self, Error> {
        let raw: RawEnvelope = serde_json::from_slice(json).map_err(|cause| {
            Error::new(Kind::InputInvalid, format!("an envelope does not decode: {cause}"))
        })?;
        raw.check()
    }
}

/// Returns the id of the effect under this key of a turn.
pub fn effect_id(turn: TurnId, key: &ReplayKey) -> EffectId {
    EffectId::derived(&[&turn.to_u128().to_be_bytes(), key.as_str().as_bytes()])
}

#[derive(Deserialize)]
struct RawEnvelope {
    invocation: RawInvocation,
    command: Command,
}

#[derive(Deserialize)]
struct RawInvocation {
    scope: InvocationScope,
    subject: serde_json::Value,
    #[serde(default)]
    cause: Option<Subject>,
    #[serde(default)]
    replay_key: Option<ReplayKey>,
}

impl RawEnvelope {
    fn check(self) -> Result<Envelope, Error> {
        let RawInvocation { scope, subject, cause, replay_key } = self.invocation;
        let tag = subject.get("type").and_then(serde_json::Value::as_str).unwrap_or("nothing");
        if tag != "effect" {
            let detail = format!("an envelope's subject must be an effect, but this one is about `{tag}`");
            return Err(Error::new(Kind::EnvelopeSubject, detail));
        }
        if subject.get("id").and_then(serde_json::Value::as_str).unwrap_or_default().trim().is_empty() {
            return Err(Error::new(Kind::EnvelopeEffectId, "an envelope's effect id must not be blank"));
        }
        let subject: Subject = serde_json::from_value(subject).map_err(|cause| {
            Error::new(Kind::EnvelopeSubject, format!("the subject does not decode: {cause}"))
        })?;
        let asked = self.command.kind();
        if !matches!(subject, Subject::Effect { kind, .. } if kind == asked) {
            let detail =
                format!("the subject and the command must be of one kind, but the command is {asked}");
            return Err(Error::new(Kind::EnvelopeKind, detail));
        }
        let replay_key = replay_key.filter(|key| !key.as_str().is_empty()).ok_or_else(|| {
            Error::new(
                Kind::EnvelopeReplayKey,
                "an envelope needs a replay key; without one it cannot be replayed",
            )
        })?;
        Ok(Envelope { invocation: Invocation { scope, subject, cause, replay_key }, command: self.command })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Millis;
    use crate::effect::Sleep;
    use serde_json::{Value, json};

    fn envelope() -> Envelope {
        let scope = InvocationScope {
            session: SessionId::from_u128(1),
            turn: TurnId::from_u128(2),
            turn_index: 3,
            iteration: 0,
        };
        let cause = Subject::Node { node: NodeRef { session: SessionId::from_u128(1), seq: Seq(4) } };
        let command = Sleep { until: Millis(5) }.into();
        Envelope::new(scope, ReplayKey::turn(3).sleep(0), command, Some(cause))
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Value), want: Kind) {
        let mut json = serde_json::to_value(envelope()).unwrap();
        change(&mut json);
        let bytes = serde_json::to_vec(&json).unwrap();
        assert_eq!(Envelope::decode(&bytes).unwrap_err().kind(), want);
    }

    #[test]
    fn an_envelope_reads_back_whole() {
        let bytes = serde_json::to_vec(&envelope()).unwrap();
        assert_eq!(Envelope::decode(&bytes).unwrap(), envelope());
    }

    #[test]
    fn envelope_not_about_effect_is_refused() {
        let process = ProcessId::from_u128(1);
        check(
            |e| e["invocation"]["subject"] = json!({"type": "process", "id": process}),
            Kind::EnvelopeSubject,
        );
    }

    #[test]
    fn envelope_with_blank_effect_id_is_refused() {
        check(|e| e["invocation"]["subject"]["id"] = json!("  "), Kind::EnvelopeEffectId);
    }

    #[test]
    fn envelope_kind_must_match_its_command() {
        check(|e| e["invocation"]["subject"]["kind"] = json!("tool_call"), Kind::EnvelopeKind);
    }

    #[test]
    fn an_envelope_without_a_replay_key_is_refused() {
        check(|e| e["invocation"]["replay_key"] = json!(""), Kind::EnvelopeReplayKey);
        check(
            |e| drop(e["invocation"].as_object_mut().unwrap().remove("replay_key")),
            Kind::EnvelopeReplayKey,
        );
    }
}
