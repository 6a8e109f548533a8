//! The message of every sink: JSON with the same bytes on every attempt.
use outlast_ports::sink::{ApprovalNotice, ApprovalRequest, ApproverLinks, OutputEvent, SinkOutput};
use outlast_vocab::id::{ApprovalId, CallId, DeliveryId, OrgId, SessionId, TurnId};
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::message::{RuleId, ToolName};
use outlast_vocab::policy::RecordedDecision;
use outlast_vocab::record::TurnEnd;
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::{Error, Hash, Kind, Millis};
use serde::Serialize;
use serde_json::Value;

/// The `type` of a test message.
const TEST: &str = "outlast.test";

#[derive(Serialize)]
struct OutputMessage<D> {
    // First, because `file` searches for it at the start of a line.
    id: DeliveryId,
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: String,
    data: D,
}

#[derive(Serialize)]
struct OutputFields<'a> {
    // Omitted for the default organisation, so that messages from before organisations existed have the same bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    org: Option<OrgId>,
    session: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_key: Option<&'a str>,
    turn: TurnId,
    #[serde(flatten)]
    content: OutputContent<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum OutputContent<'a> {
    TurnEnd(TurnEndFields<'a>),
    ApprovalRequest(Box<ApprovalFields<'a>>),
}

/// How a turn ended.
#[derive(Serialize)]
struct TurnEndFields<'a> {
    end: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Kind>,
}

impl<'a> From<&'a TurnEnd> for TurnEndFields<'a> {
    fn from(end: &'a TurnEnd) -> Self {
        let text = match end {
            TurnEnd::Answered { text } | TurnEnd::Refused { text } => Some(text.as_str()),
            _ => None,
        };
        let code = match end {
            TurnEnd::Failed { failure } => Some(failure.code),
            _ => None,
        };
        Self { end: end.name(), text, code }
    }
}

/// The approval that is requested, with the exact call.
#[derive(Serialize)]
struct ApprovalFields<'a> {
    approval: ApprovalId,
    call: CallId,
    tool: &'a ToolName,
    arguments: &'a Value,
    fingerprint: Hash,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a RuleId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Hash>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preview: Option<&'a str>,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    labels: &'a Labels,
    #[serde(skip_serializing_if = "Provenance::is_empty")]
    provenance: &'a Provenance,
    who: &'a [String],
    approvals: usize,
    since: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reminder: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    escalated_to: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    links: Vec<ApprovalLinks<'a>>,
}

/// The links with which one person decides.
#[derive(Serialize)]
struct ApprovalLinks<'a> {
    #[serde(rename = "for")]
    by: String,
    approve: &'a str,
    deny: &'a str,
}

impl<'a> From<&'a ApproverLinks> for ApprovalLinks<'a> {
    fn from(ApproverLinks { by, approve, deny }: &'a ApproverLinks) -> Self {
        Self { by: by.name(), approve, deny }
    }
}

impl<'a> ApprovalFields<'a> {
    fn of(notice: &'a ApprovalNotice, asking: &'a ApprovalRequest) -> Self {
        let ApprovalRequest { id, form, call, requirement: ask, who, since, expires, links } = asking;
        let PreparedCall { id: call, tool, arguments, ruling, labels, provenance, .. } = call;
        let (reminder, escalated_to) = match notice {
            ApprovalNotice::Requested => (None, None),
            ApprovalNotice::Reminded { number } => (Some(*number), None),
            ApprovalNotice::Escalated { to } => (None, Some(to.as_slice())),
        };
        Self {
            approval: *id,
            call: *call,
            tool,
            arguments,
            fingerprint: *form,
            rule: ruling.as_ref().map(|ruling| &ruling.rule),
            reason: ask.reason.as_deref(),
            policy: ruling.as_ref().map(|ruling: &RecordedDecision| ruling.policy),
            preview: ruling.as_ref().and_then(|ruling| ruling.preview.as_deref()),
            labels,
            provenance,
            who,
            approvals: ask.approvals_needed(),
            since: rfc3339(*since),
            expires: expires.map(rfc3339),
            reminder,
            escalated_to,
            links: links.iter().map(ApprovalLinks::from).collect(),
        }
    }
}

/// Returns the message of an output.
pub(crate) fn encode(output: &SinkOutput) -> Result<Vec<u8>, Error> {
    let said = match &output.event {
        OutputEvent::Ended(end) => OutputContent::TurnEnd(end.into()),
        OutputEvent::Approval(notice, asking) => {
            OutputContent::ApprovalRequest(Box::new(ApprovalFields::of(notice, asking)))
        }
    };
    let data = OutputFields {
        org: Some(output.org).filter(|org| *org != OrgId::DEFAULT),
        session: output.session,
        session_key: output.key.as_deref(),
        turn: output.turn,
        content: said,
    };
    let kind = output.event.topic().name();
    let message = OutputMessage { id: output.id, kind, timestamp: rfc3339(output.at), data };
    to_json(&message)
}

fn to_json(message: &OutputMessage<impl Serialize>) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(message)
        .map_err(|cause| Error::new(Kind::Internal, "an output cannot be written as JSON").because(cause))
}

/// Returns a test message without content. Receivers can verify its signature and should otherwise ignore it.
pub(crate) fn encode_test(id: DeliveryId, now: Millis) -> Result<Vec<u8>, Error> {
    let message = OutputMessage { id, kind: TEST, timestamp: rfc3339(now), data: serde_json::Map::new() };
    to_json(&message)
}

/// Returns the start of every message with this id.
pub(crate) fn message_prefix(id: DeliveryId) -> String {
    format!("{{\"id\":\"{id}\",")
}

/// Formats a time as RFC 3339.
fn rfc3339(at: Millis) -> String {
    let millis = i64::try_from(at.0).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.3}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use outlast_ports::sink::OutputPosition;
    use outlast_vocab::label::{Origin, SinkArgument, UntrustedSource};
    use outlast_vocab::message::ModelCallId;
    use outlast_vocab::policy::{ApprovalRequirement, PolicyDecision};
    use outlast_vocab::record::Seq;
    use outlast_vocab::tool::EffectClass;
    use outlast_vocab::{Failure, canonical_json};
    use serde_json::json;

    /// Returns the output of a turn that ended in this way.
    pub(crate) fn output(end: TurnEnd) -> SinkOutput {
        telling(OutputEvent::Ended(end))
    }

    fn telling(about: OutputEvent) -> SinkOutput {
        SinkOutput {
            id: DeliveryId::from_u128(1),
            org: OrgId::DEFAULT,
            session: SessionId::from_u128(2),
            key: Some("ann".to_owned()),
            turn: TurnId::from_u128(3),
            position: OutputPosition { seq: Seq(4), nth: 0 },
            at: Millis(1_700_000_000_123),
            event: about,
            attempt: 1,
            sent: Millis(1_700_000_001_999),
        }
    }

    #[test]
    fn message_has_turn_end_and_answer() {
        let encoded = |end| String::from_utf8(encode(&output(end)).unwrap()).unwrap();
        let head = "{\"id\":\"dlv_00000000000000000000000000000001\",\"type\":\"turn.ended\",\
                    \"timestamp\":\"2023-11-14T22:13:20.123Z\",\
                    \"data\":{\"session\":\"ses_00000000000000000000000000000002\",\"session_key\":\"ann\",\
                    \"turn\":\"trn_00000000000000000000000000000003\"";
        let text = "say \"hi\"\n".to_owned();
        assert_eq!(
            encoded(TurnEnd::Answered { text }),
            format!("{head},\"end\":\"answered\",\"text\":\"say \\\"hi\\\"\\n\"}}}}")
        );
        let failure = Failure::new(Kind::ModelRejected, "a detail that may name anything");
        assert_eq!(
            encoded(TurnEnd::Failed { failure }),
            format!("{head},\"end\":\"failed\",\"code\":\"model.rejected\"}}}}")
        );
        assert_eq!(
            encoded(TurnEnd::Sealed { claims: 3, alone: 0, hung: false }),
            format!("{head},\"end\":\"sealed\"}}}}")
        );
        let theirs = SinkOutput {
            org: OrgId::from_u128(4),
            ..output(TurnEnd::Sealed { claims: 3, alone: 0, hung: false })
        };
        let theirs = String::from_utf8(encode(&theirs).unwrap()).unwrap();
        assert!(theirs.contains("\"data\":{\"org\":\"org_00000000000000000000000000000004\",\"session\":"));
        assert!(head.starts_with(&message_prefix(DeliveryId::from_u128(1))));
    }

    /// Returns a request for approval of `pay`, which ann or bob may give within a minute.
    fn asking() -> Box<ApprovalRequest> {
        let ask = ApprovalRequirement {
            who: vec!["ann".to_owned(), "bob".to_owned()],
            ..ApprovalRequirement::default()
        };
        let (policy, decision) =
            (canonical_json::fingerprint(&json!("policy")), PolicyDecision::Ask(ask.clone()));
        let ruling = RecordedDecision {
            preview: Some("pays 5 to ann".into()),
            ..RecordedDecision::new("money".parse().unwrap(), policy, decision)
        };
        let call = PreparedCall {
            id: CallId::from_u128(5),
            model_id: ModelCallId::undo(0, 0),
            tool: "pay".parse().unwrap(),
            class: EffectClass::AtMostOnce,
            arguments: json!({ "to": "ann", "amount": 5 }),
            payload: None,
            ruling: Some(ruling),
            labels: Labels::from_iter([UntrustedSource::Tool("fetch".parse().unwrap())]),
            provenance: [("/to", Origin::User), ("/amount", Origin::Unknown)]
                .map(|(path, origin)| SinkArgument { path: path.to_owned(), origin })
                .into_iter()
                .collect(),
        };
        let (since, who) = (Millis(1_700_000_000_000), ask.who.clone());
        let (form, expires) = (canonical_json::fingerprint(&json!("form")), Some(Millis(1_700_000_060_000)));
        let id = ApprovalId::from_u128(6);
        Box::new(ApprovalRequest { id, form, call, requirement: ask, who, since, expires, links: Vec::new() })
    }

    #[test]
    fn approval_message_has_subject_approvers_and_deadline() {
        let encoded = |notice| -> Value {
            let output = telling(OutputEvent::Approval(notice, asking()));
            serde_json::from_slice(&encode(&output).unwrap()).unwrap()
        };
        let requested = encoded(ApprovalNotice::Requested);
        assert_eq!(
            requested,
            json!({
                "id": "dlv_00000000000000000000000000000001",
                "type": "approval.requested",
                "timestamp": "2023-11-14T22:13:20.123Z",
                "data": {
                    "session": "ses_00000000000000000000000000000002",
                    "session_key": "ann",
                    "turn": "trn_00000000000000000000000000000003",
                    "approval": "apr_00000000000000000000000000000006",
                    "call": "cal_00000000000000000000000000000005",
                    "tool": "pay",
                    "arguments": { "to": "ann", "amount": 5 },
                    "fingerprint": asking().form,
                    "rule": "money",
                    "policy": canonical_json::fingerprint(&json!("policy")),
                    "preview": "pays 5 to ann",
                    "labels": ["tool:fetch"],
                    "provenance": [
                        { "path": "/to", "origin": "user" },
                        { "path": "/amount", "origin": "unknown" },
                    ],
                    "who": ["ann", "bob"],
                    "approvals": 1,
                    "since": "2023-11-14T22:13:20.000Z",
                    "expires": "2023-11-14T22:14:20.000Z",
                }
            })
        );
        let reminded = encoded(ApprovalNotice::Reminded { number: 2 });
        assert_eq!(
            (&reminded["type"], &reminded["data"]["reminder"]),
            (&json!("approval.reminded"), &json!(2))
        );
        let escalated = encoded(ApprovalNotice::Escalated { to: vec!["eve".to_owned()] });
        assert_eq!(escalated["type"], "approval.escalated");
        assert_eq!(escalated["data"]["escalated_to"], json!(["eve"]));
        let mut clean = asking();
        (clean.call.labels, clean.call.provenance) = (Labels::default(), Provenance::default());
        let clean = encode(&telling(OutputEvent::Approval(ApprovalNotice::Requested, clean))).unwrap();
        let clean: Value = serde_json::from_slice(&clean).unwrap();
        assert_eq!((clean["data"].get("labels"), clean["data"].get("provenance")), (None, None));
        let mut linked = asking();
        let (by, approve, deny) =
            ("person:ann".parse().unwrap(), "https://a/1".to_owned(), "https://a/2".to_owned());
        linked.links = vec![ApproverLinks { by, approve, deny }];
        let linked = encode(&telling(OutputEvent::Approval(ApprovalNotice::Requested, linked))).unwrap();
        let linked: Value = serde_json::from_slice(&linked).unwrap();
        let links = json!([{ "for": "ann", "approve": "https://a/1", "deny": "https://a/2" }]);
        assert_eq!(linked["data"]["links"], links);
    }
}
