//! The message of every sink: JSON with the same bytes on every attempt.
use outlast_ports::sink::{About, Asking, Links, Notice, Output};
use outlast_vocab::id::{ApprovalId, CallId, DeliveryId, OrgId, SessionId, TurnId};
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::message::{RuleId, ToolName};
use outlast_vocab::policy::Ruling;
use outlast_vocab::record::End;
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::{Error, Hash, Kind, Millis};
use serde::Serialize;
use serde_json::Value;

/// The `type` of a test message.
const TEST: &str = "outlast.test";

#[derive(Serialize)]
struct Message<D> {
    // First, because `file` searches for it at the start of a line.
    id: DeliveryId,
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: String,
    data: D,
}

#[derive(Serialize)]
struct Data<'a> {
    // Omitted for the default organisation, so that messages from before organisations existed have the same bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    org: Option<OrgId>,
    session: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_key: Option<&'a str>,
    turn: TurnId,
    #[serde(flatten)]
    said: Said<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Said<'a> {
    Ended(Ended<'a>),
    Asked(Box<Asked<'a>>),
}

/// How a turn ended.
#[derive(Serialize)]
struct Ended<'a> {
    end: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Kind>,
}

impl<'a> From<&'a End> for Ended<'a> {
    fn from(end: &'a End) -> Self {
        let text = match end {
            End::Answered { text } | End::Refused { text } => Some(text.as_str()),
            _ => None,
        };
        let code = match end {
            End::Failed { failure } => Some(failure.code),
            _ => None,
        };
        Self { end: end.name(), text, code }
    }
}

/// The approval that is requested, with the exact call.
#[derive(Serialize)]
struct Asked<'a> {
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
    links: Vec<LinksOf<'a>>,
}

/// The links with which one person decides.
#[derive(Serialize)]
struct LinksOf<'a> {
    #[serde(rename = "for")]
    by: String,
    approve: &'a str,
    deny: &'a str,
}

impl<'a> From<&'a Links> for LinksOf<'a> {
    fn from(Links { by, approve, deny }: &'a Links) -> Self {
        Self { by: by.name(), approve, deny }
    }
}

impl<'a> Asked<'a> {
    fn of(notice: &'a Notice, asking: &'a Asking) -> Self {
        let Asking { id, form, call, ask, who, since, expires, links } = asking;
        let PreparedCall { id: call, tool, arguments, ruling, labels, provenance, .. } = call;
        let (reminder, escalated_to) = match notice {
            Notice::Requested => (None, None),
            Notice::Reminded { number } => (Some(*number), None),
            Notice::Escalated { to } => (None, Some(to.as_slice())),
        };
        Self {
            approval: *id,
            call: *call,
            tool,
            arguments,
            fingerprint: *form,
            rule: ruling.as_ref().map(|ruling| &ruling.rule),
            reason: ask.reason.as_deref(),
            policy: ruling.as_ref().map(|ruling: &Ruling| ruling.policy),
            preview: ruling.as_ref().and_then(|ruling| ruling.preview.as_deref()),
            labels,
            provenance,
            who,
            approvals: ask.needed(),
            since: written(*since),
            expires: expires.map(written),
            reminder,
            escalated_to,
            links: links.iter().map(LinksOf::from).collect(),
        }
    }
}

/// Returns the message of an output.
pub(crate) fn of(output: &Output) -> Result<Vec<u8>, Error> {
    let said = match &output.about {
        About::Ended(end) => Said::Ended(end.into()),
        About::Approval(notice, asking) => Said::Asked(Box::new(Asked::of(notice, asking))),
    };
    let data = Data {
        org: Some(output.org).filter(|org| *org != OrgId::DEFAULT),
        session: output.session,
        session_key: output.key.as_deref(),
        turn: output.turn,
        said,
    };
    let kind = output.about.topic().name();
    let message = Message { id: output.id, kind, timestamp: written(output.at), data };
    to_json(&message)
}

fn to_json(message: &Message<impl Serialize>) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(message)
        .map_err(|cause| Error::new(Kind::Internal, "an output cannot be written as JSON").because(cause))
}

/// Returns a test message without content. Receivers can verify its signature and should otherwise ignore it.
pub(crate) fn test(id: DeliveryId, now: Millis) -> Result<Vec<u8>, Error> {
    let message = Message { id, kind: TEST, timestamp: written(now), data: serde_json::Map::new() };
    to_json(&message)
}

/// Returns the start of every message with this id.
pub(crate) fn beginning(id: DeliveryId) -> String {
    format!("{{\"id\":\"{id}\",")
}

/// Formats a time as RFC 3339.
fn written(at: Millis) -> String {
    let millis = i64::try_from(at.0).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.3}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use outlast_ports::sink::Moment;
    use outlast_vocab::label::{Origin, SinkArgument, Source};
    use outlast_vocab::message::ModelCallId;
    use outlast_vocab::policy::{Ask, Decision};
    use outlast_vocab::record::Seq;
    use outlast_vocab::tool::EffectClass;
    use outlast_vocab::{Failure, canon};
    use serde_json::json;

    /// Returns the output of a turn that ended in this way.
    pub(crate) fn output(end: End) -> Output {
        telling(About::Ended(end))
    }

    fn telling(about: About) -> Output {
        Output {
            id: DeliveryId::from_u128(1),
            org: OrgId::DEFAULT,
            session: SessionId::from_u128(2),
            key: Some("ann".to_owned()),
            turn: TurnId::from_u128(3),
            moment: Moment { seq: Seq(4), nth: 0 },
            at: Millis(1_700_000_000_123),
            about,
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
        assert_eq!(
            told(End::Sealed { claims: 3, alone: 0, hung: false }),
            format!("{head},\"end\":\"sealed\"}}}}")
        );
        let theirs =
            Output { org: OrgId::from_u128(4), ..output(End::Sealed { claims: 3, alone: 0, hung: false }) };
        let theirs = String::from_utf8(of(&theirs).unwrap()).unwrap();
        assert!(theirs.contains("\"data\":{\"org\":\"org_00000000000000000000000000000004\",\"session\":"));
        assert!(head.starts_with(&beginning(DeliveryId::from_u128(1))));
    }

    /// Returns a request for approval of `pay`, which ann or bob may give within a minute.
    fn asking() -> Box<Asking> {
        let ask = Ask { who: vec!["ann".to_owned(), "bob".to_owned()], ..Ask::default() };
        let (policy, decision) = (canon::fingerprint(&json!("policy")), Decision::Ask(ask.clone()));
        let ruling = Ruling {
            preview: Some("pays 5 to ann".into()),
            ..Ruling::new("money".parse().unwrap(), policy, decision)
        };
        let call = PreparedCall {
            id: CallId::from_u128(5),
            model_id: ModelCallId::undo(0, 0),
            tool: "pay".parse().unwrap(),
            class: EffectClass::AtMostOnce,
            arguments: json!({ "to": "ann", "amount": 5 }),
            payload: None,
            ruling: Some(ruling),
            labels: Labels::from_iter([Source::Tool("fetch".parse().unwrap())]),
            provenance: [("/to", Origin::User), ("/amount", Origin::Unknown)]
                .map(|(path, origin)| SinkArgument { path: path.to_owned(), origin })
                .into_iter()
                .collect(),
        };
        let (since, who) = (Millis(1_700_000_000_000), ask.who.clone());
        let (form, expires) = (canon::fingerprint(&json!("form")), Some(Millis(1_700_000_060_000)));
        let id = ApprovalId::from_u128(6);
        Box::new(Asking { id, form, call, ask, who, since, expires, links: Vec::new() })
    }

    #[test]
    fn a_message_about_an_approval_has_what_is_approved_exactly_and_who_may_do_so_until_when() {
        let told = |notice| -> Value {
            let output = telling(About::Approval(notice, asking()));
            serde_json::from_slice(&of(&output).unwrap()).unwrap()
        };
        let requested = told(Notice::Requested);
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
                    "policy": canon::fingerprint(&json!("policy")),
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
        let reminded = told(Notice::Reminded { number: 2 });
        assert_eq!(
            (&reminded["type"], &reminded["data"]["reminder"]),
            (&json!("approval.reminded"), &json!(2))
        );
        let escalated = told(Notice::Escalated { to: vec!["eve".to_owned()] });
        assert_eq!(escalated["type"], "approval.escalated");
        assert_eq!(escalated["data"]["escalated_to"], json!(["eve"]));
        let mut clean = asking();
        (clean.call.labels, clean.call.provenance) = (Labels::default(), Provenance::default());
        let clean = of(&telling(About::Approval(Notice::Requested, clean))).unwrap();
        let clean: Value = serde_json::from_slice(&clean).unwrap();
        assert_eq!((clean["data"].get("labels"), clean["data"].get("provenance")), (None, None));
        let mut linked = asking();
        let (by, approve, deny) =
            ("person:ann".parse().unwrap(), "https://a/1".to_owned(), "https://a/2".to_owned());
        linked.links = vec![Links { by, approve, deny }];
        let linked = of(&telling(About::Approval(Notice::Requested, linked))).unwrap();
        let linked: Value = serde_json::from_slice(&linked).unwrap();
        let links = json!([{ "for": "ann", "approve": "https://a/1", "deny": "https://a/2" }]);
        assert_eq!(linked["data"]["links"], links);
    }
}
