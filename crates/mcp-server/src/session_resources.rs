//! Sessions as resources: a paginated list, and each transcript as JSON or Markdown.
use outlast_ports::branches::MAIN_HEAD;
use outlast_runtime::Runtime;
use outlast_runtime::views::messages::{self, MessagePageEnd, SessionMessage};
use outlast_runtime::views::session_list;
use outlast_views::{LastEnd, SessionFilter, SessionView, TitledSession};
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::message::{Message, ToolResult};
use outlast_vocab::record::{NodeRef, Seq, TurnEndKind};
use outlast_vocab::{Error, Hash, Kind, SessionId};
use rmcp::model::{Resource, ResourceContents, ResourceTemplate};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The scheme of the addresses of this server.
pub(crate) const SESSION_URI_SCHEME: &str = "outlast:";

/// The number of sessions per page.
const SESSIONS_PER_PAGE: usize = 50;

/// The maximum length of a title in characters.
const TITLE_CHARS: usize = 80;

/// The format of a transcript.
#[derive(Clone, Copy)]
enum TranscriptFormat {
    Json,
    Markdown,
}

impl TranscriptFormat {
    const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Markdown => "text/markdown",
        }
    }
}

/// Signs pagination cursors. A cursor is only valid for one organisation and one list.
#[derive(Clone, Copy)]
pub(crate) struct McpCursors([u8; 32]);

impl McpCursors {
    pub(crate) const fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// Returns the signed cursor for a position.
    pub(crate) fn sign(&self, visibility: OrgVisibility, list: &str, place: &str) -> String {
        format!("{}.{place}", self.signature(visibility, list, place))
    }

    /// Verifies a cursor and returns its position.
    pub(crate) fn verify<'a>(
        &self,
        visibility: OrgVisibility,
        list: &str,
        signed: &'a str,
    ) -> Result<&'a str, Error> {
        let wrong =
            || Error::new(Kind::InputInvalid, format!("expected a cursor that was returned for {list}"));
        let (signature, place) = signed.split_once('.').ok_or_else(wrong)?;
        let signature: Hash = signature.parse().map_err(|_| wrong())?;
        if self.signature(visibility, list, place).eq_constant_time(&signature) {
            Ok(place)
        } else {
            Err(wrong())
        }
    }

    fn signature(&self, visibility: OrgVisibility, list: &str, place: &str) -> Hash {
        let org = visibility.home().to_u128().to_be_bytes();
        Hash::signed(&self.0, "outlast mcp v1", [org.as_slice(), list.as_bytes(), place.as_bytes()])
    }
}

/// Returns a page of sessions, newest first, and the cursor of the next page.
pub(crate) async fn list(
    runtime: &Runtime,
    places: McpCursors,
    cursor: Option<&str>,
) -> Result<(Vec<Resource>, Option<String>), Error> {
    let visibility = runtime.access().visibility;
    let before = match cursor {
        Some(cursor) => Some(places.verify(visibility, "sessions", cursor)?.parse()?),
        None => None,
    };
    let page = session_list::page(
        runtime.store().as_ref(),
        &SessionFilter::default(),
        before,
        SESSIONS_PER_PAGE,
        SESSIONS_PER_PAGE,
    )
    .await?;
    let resource = |listed: TitledSession| {
        let SessionView { id, key, state, turns, last_turn, .. } = listed.session;
        let title: String = listed.title.chars().take(TITLE_CHARS).collect();
        let ended =
            last_turn.map(|last| last.end).filter(|end| *end != LastEnd::Ended(TurnEndKind::Answered));
        let ended =
            ended.map(|end| format!(", last turn {}", end.name().replace('_', " "))).unwrap_or_default();
        let named = key.map(|key| format!(", known as {key}")).unwrap_or_default();
        Resource::new(transcript_uri(id, TranscriptFormat::Json), id.to_string())
            .with_title(title)
            .with_description(format!("A session of {turns} turns, {}{ended}{named}.", state.name()))
            .with_mime_type(TranscriptFormat::Json.media_type())
    };
    // The store returns an end position even for a single page, so check whether the page is full.
    let next = page.before.filter(|_| page.sessions.len() == SESSIONS_PER_PAGE);
    let next = next.map(|place| places.sign(visibility, "sessions", &place.to_string()));
    Ok((page.sessions.into_iter().map(resource).collect(), next))
}

/// Returns the templates of session addresses.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let template = |form: TranscriptFormat, what: &str| {
        let end = file_name(form);
        ResourceTemplate::new(format!("outlast://sessions/{{session}}/{end}{{?before}}"), format!("session as {what}"))
            .with_description(format!(
                "The messages of a session, as {what}, newest page. If there are older pages, the page contains the next `before`."
            ))
            .with_mime_type(form.media_type())
    };
    vec![template(TranscriptFormat::Json, "JSON"), template(TranscriptFormat::Markdown, "Markdown")]
}

const fn file_name(form: TranscriptFormat) -> &'static str {
    match form {
        TranscriptFormat::Json => "transcript.json",
        TranscriptFormat::Markdown => "transcript.md",
    }
}

fn transcript_uri(session: SessionId, form: TranscriptFormat) -> String {
    format!("outlast://sessions/{session}/{}", file_name(form))
}

/// Reads the transcript of a session.
pub(crate) async fn read(
    runtime: &Runtime,
    places: McpCursors,
    uri: &str,
) -> Result<ResourceContents, Error> {
    let (id, form, before) = parse_uri(uri)?;
    let (store, visibility) = (runtime.store().as_ref(), runtime.access().visibility);
    let session = store.session(id).await?;
    let list = format!("the pages of {id}");
    let until = match before {
        None => MessagePageEnd::Newest,
        Some(before) => MessagePageEnd::Message(parse_node(places.verify(visibility, &list, before)?)?),
    };
    let page = messages::page(store, &session, MAIN_HEAD, until).await?;
    let said: Vec<SessionMessage> = page.turns.into_iter().flat_map(|(_, said)| said).collect();
    let older = page.before.map(|NodeRef { session, seq }| {
        let place = places.sign(visibility, &list, &format!("{session}_{seq}"));
        format!("{}?before={place}", transcript_uri(id, form))
    });
    let text = match form {
        TranscriptFormat::Json => as_json(&session, &said, older),
        TranscriptFormat::Markdown => as_markdown(&session, &said, older),
    };
    Ok(ResourceContents::text(text, uri).with_mime_type(form.media_type()))
}

/// Parses an address into session, format and page.
fn parse_uri(uri: &str) -> Result<(SessionId, TranscriptFormat, Option<&str>), Error> {
    let wrong = || {
        let detail = format!(
            "expected `outlast://sessions/SESSION/transcript.json` or `….md`, got `{}`",
            outlast_vocab::message::shown(uri)
        );
        Error::new(Kind::InputInvalid, detail)
    };
    let (path, before) = match uri.split_once("?before=") {
        Some((path, before)) => (path, Some(before)),
        None => (uri, None),
    };
    let (id, file) =
        path.strip_prefix("outlast://sessions/").and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
    let form = [TranscriptFormat::Json, TranscriptFormat::Markdown]
        .into_iter()
        .find(|form| file_name(*form) == file)
        .ok_or_else(wrong)?;
    Ok((id.parse()?, form, before))
}

fn parse_node(place: &str) -> Result<NodeRef, Error> {
    let wrong = || Error::new(Kind::InputInvalid, "the cursor of a page is invalid");
    let (session, seq) = place.rsplit_once('_').ok_or_else(wrong)?;
    Ok(NodeRef { session: session.parse()?, seq: Seq(seq.parse().map_err(|_| wrong())?) })
}

fn as_json(session: &SessionView, said: &[SessionMessage], older: Option<String>) -> String {
    let message = |said: &SessionMessage| {
        let mut content = serde_json::to_value(&said.message).unwrap_or_default();
        if let Some(parts) = content.get_mut("parts").and_then(Value::as_array_mut) {
            // Sealed parts are readable only by their model provider.
            parts.retain(|part| part["type"] != "sealed");
        }
        json!({ "turn": said.turn, "seq": said.seq, "at": said.at, "text": said.message.text(), "message": content })
    };
    let mut page = json!({
        "session": session.id,
        "key": session.key,
        "state": session.state.name(),
        "messages": said.iter().map(message).collect::<Vec<_>>(),
    });
    if let Some(older) = older {
        page["older"] = older.into();
    }
    page.to_string()
}

fn as_markdown(session: &SessionView, said: &[SessionMessage], older: Option<String>) -> String {
    let mut text = format!("# Session {}\n", session.id);
    if let Some(older) = older {
        // Writing to a `String` cannot fail, here and below.
        let _ = write!(text, "\nEarlier: <{older}>\n");
    }
    for SessionMessage { message, .. } in said {
        let _ = match message {
            Message::User { .. } => write!(text, "\n## User\n\n{}\n", message.text()),
            Message::Assistant { calls, .. } => {
                let asked: Vec<String> =
                    calls.iter().map(|call| format!("\n- calls `{}`\n", call.tool)).collect();
                write!(text, "\n## Agent\n\n{}\n{}", message.text(), asked.concat())
            }
            Message::Tool { tool, result, .. } => {
                let how = if matches!(result, ToolResult::Ok(_)) { "" } else { " (failed)" };
                write!(text, "\n## Tool `{tool}`{how}\n\n{}\n", fenced(&message.text()))
            }
        };
    }
    text
}

/// Returns a fenced code block with a fence that the text cannot close.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{text}\n{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::OrgId;

    #[test]
    fn cursor_is_bound_to_its_list_and_organisation() {
        let (places, acme) = (McpCursors::new([7; 32]), OrgVisibility::Org(OrgId::from_u128(1)));
        let signed = places.sign(acme, "sessions", "ses_1");
        assert_eq!(places.verify(acme, "sessions", &signed).unwrap(), "ses_1");
        assert!(places.verify(acme, "turns", &signed).is_err());
        assert!(places.verify(OrgVisibility::Org(OrgId::from_u128(2)), "sessions", &signed).is_err());
        assert!(McpCursors::new([8; 32]).verify(acme, "sessions", &signed).is_err());
        assert!(places.verify(acme, "sessions", &signed.replace("ses_1", "ses_2")).is_err());
        assert!(places.verify(acme, "sessions", "ses_1").is_err());
        for (place, byte) in signed.bytes().enumerate() {
            for bit in 0..7 {
                let mut forged = signed.clone().into_bytes();
                forged[place] = byte ^ (1 << bit);
                let forged = String::from_utf8(forged).expect("seven bits are ASCII");
                assert!(places.verify(acme, "sessions", &forged).is_err(), "{forged}");
            }
        }
    }

    #[test]
    fn tool_output_cannot_end_its_code_block() {
        assert_eq!(fenced("a ```` b"), "`````\na ```` b\n`````");
        assert_eq!(fenced("plain"), "```\nplain\n```");
    }

    #[test]
    fn resource_uri_names_session_format_and_page() {
        let id = SessionId::from_u128(1);
        let uri = format!("outlast://sessions/{id}/transcript.md?before=x.y");
        let (session, form, before) = parse_uri(&uri).unwrap();
        assert_eq!((session, form.media_type(), before), (id, "text/markdown", Some("x.y")));
        for wrong in [
            "outlast://sessions/",
            "outlast://turns/x/transcript.md",
            "outlast://sessions/ses_1/x.md",
            "file:///",
        ] {
            assert!(parse_uri(wrong).is_err(), "{wrong}");
        }
    }
}
