//! The message that every sink sends: JSON whose bytes are the same on every attempt.
use outlast_ports::sink::Output;
use outlast_vocab::id::{DeliveryId, OrgId, SessionId, TurnId};
use outlast_vocab::record::End;
use outlast_vocab::{Error, Kind, Millis};
use serde::Serialize;

/// What happened. Others may follow; readers ignore what they do not know.
const TURN_ENDED: &str = "turn.ended";

#[derive(Serialize)]
struct Message<'a> {
    // First, because `file` looks for it at the beginning of a line.
    id: DeliveryId,
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: String,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    // Left away for the default one, so that what was sent before it had a name has the same bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    org: Option<OrgId>,
    session: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_key: Option<&'a str>,
    turn: TurnId,
    end: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Kind>,
}

/// The message of an output.
pub(crate) fn of(output: &Output) -> Result<Vec<u8>, Error> {
    let text = match &output.end {
        End::Answered { text } | End::Refused { text } => Some(text.as_str()),
        _ => None,
    };
    let code = match &output.end {
        End::Failed { failure } => Some(failure.code),
        _ => None,
    };
    let data = Data {
        org: Some(output.org).filter(|org| *org != OrgId::DEFAULT),
        session: output.session,
        session_key: output.key.as_deref(),
        turn: output.turn,
        end: output.end.name(),
        text,
        code,
    };
    let message = Message { id: output.id, kind: TURN_ENDED, timestamp: written(output.at), data };
    serde_json::to_vec(&message)
        .map_err(|cause| Error::new(Kind::Internal, "an output cannot be written as JSON").because(cause))
}

/// How every line of a message with this id begins.
pub(crate) fn beginning(id: DeliveryId) -> String {
    format!("{{\"id\":\"{id}\",")
}

/// A time as RFC 3339 has it.
fn written(at: Millis) -> String {
    let millis = i64::try_from(at.0).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.3}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use outlast_vocab::Failure;

    /// An output that ended in this way.
    pub(crate) fn output(end: End) -> Output {
        Output {
            id: DeliveryId::from_u128(1),
            org: OrgId::DEFAULT,
            session: SessionId::from_u128(2),
            key: Some("ann".to_owned()),
            turn: TurnId::from_u128(3),
            at: Millis(1_700_000_000_123),
            end,
            attempt: 1,
            sent: Millis(1_700_000_001_999),
        }
    }

    #[test]
    fn a_message_says_how_a_turn_ended_and_what_was_said() {
        let told = |end| String::from_utf8(of(&output(end)).unwrap()).unwrap();
        let head = "{\"id\":\"dlv_00000000000000000000000000000001\",\"type\":\"turn.ended\",\
                    \"timestamp\":\"2023-11-14T22:13:20.123Z\",\
                    \"data\":{\"session\":\"ses_00000000000000000000000000000002\",\"session_key\":\"ann\",\
                    \"turn\":\"trn_00000000000000000000000000000003\"";
        let text = "say \"hi\"\n".to_owned();
        assert_eq!(
            told(End::Answered { text }),
            format!("{head},\"end\":\"answered\",\"text\":\"say \\\"hi\\\"\\n\"}}}}")
        );
        let failure = Failure::new(Kind::ModelRejected, "a detail that may name anything");
        assert_eq!(
            told(End::Failed { failure }),
            format!("{head},\"end\":\"failed\",\"code\":\"model.rejected\"}}}}")
        );
        assert_eq!(told(End::Sealed { claims: 3 }), format!("{head},\"end\":\"sealed\"}}}}"));
        let theirs = Output { org: OrgId::from_u128(4), ..output(End::Sealed { claims: 3 }) };
        let theirs = String::from_utf8(of(&theirs).unwrap()).unwrap();
        assert!(theirs.contains("\"data\":{\"org\":\"org_00000000000000000000000000000004\",\"session\":"));
        assert!(head.starts_with(&beginning(DeliveryId::from_u128(1))));
    }
}
