//! Sends inputs, as JSON or as a form with files.
use crate::Client;
use crate::http::{parse_json, with_json};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use outlast_api::inputs::{InputReceipt, TurnInputRequest};
use outlast_vocab::overlay::Overlay;
use outlast_vocab::{Error, Kind, SessionId};
use reqwest::{Body, Method};
use serde_json::Value;
use std::pin::Pin;

/// The session of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputTarget {
    /// The session with this id.
    Session(SessionId),
    /// The session with this key, which is created if it does not exist.
    Key(String),
    /// A new session.
    New,
}

/// An input.
#[derive(Clone, Debug, Default)]
pub struct NewInput {
    /// The text.
    pub text: String,
    /// The agent; the server's first one if absent.
    pub agent: Option<String>,
    /// An overlay to the agent for this turn.
    pub overlay: Option<Overlay>,
    /// The head; the main one if absent.
    pub head: Option<String>,
    /// A JSON Schema that the answer must match.
    pub schema: Option<Value>,
    /// The idempotency key. The same key in the same session is the same turn.
    pub key: Option<String>,
    /// The parent span, in the format of W3C Trace Context.
    pub traceparent: Option<String>,
}

/// A file to send with an input.
pub struct InputFile {
    /// The media type.
    pub media_type: String,
    /// The name of the file.
    pub name: String,
    /// The bytes as a stream.
    pub bytes: Pin<Box<dyn Stream<Item = std::io::Result<Bytes>> + Send>>,
}

/// The boundary of form fields: long enough that no file contains it by chance.
const BOUNDARY: &str = "outlast-7d1f0c5b2e9a4c63-b1946ac92492d234";

impl NewInput {
    /// Creates an input with this text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Returns the body of the request.
    fn into_body(self, session_key: Option<String>) -> Result<TurnInputRequest, Error> {
        let Self { text, agent, overlay, head, schema, .. } = self;
        let overlay = overlay.map(serde_json::to_value).transpose().map_err(|cause| not_json(&cause))?;
        Ok(TurnInputRequest {
            text,
            session_key,
            agent,
            overlay,
            head,
            schema,
            ..TurnInputRequest::default()
        })
    }
}

impl Client {
    /// Sends an input. It is durable once the receipt arrives.
    pub async fn send_input(
        &self,
        to: InputTarget,
        input: NewInput,
        files: Vec<InputFile>,
    ) -> Result<InputReceipt, Error> {
        let (session, session_key) = match to {
            InputTarget::Session(session) => (Some(session.to_string()), None),
            InputTarget::Key(key) => (None, Some(key)),
            InputTarget::New => (None, None),
        };
        let path = match &session {
            Some(session) => vec!["v1", "sessions", session, "turns"],
            None => vec!["v1", "turns"],
        };
        let mut request = self.request(Method::POST, &path, &());
        if let Some(key) = &input.key {
            request = request.header("idempotency-key", key);
        }
        if let Some(parent) = &input.traceparent {
            request = request.header("traceparent", parent);
        }
        let input = input.into_body(session_key)?;
        if files.is_empty() {
            return parse_json(self.send(with_json(request, &input)?).await?).await;
        }
        let form = request.header("content-type", format!("multipart/form-data; boundary={BOUNDARY}"));
        // No timeout, because files can be large.
        parse_json(
            self.send_without_timeout(form.body(Body::wrap_stream(multipart_body(&input, files)?))).await?,
        )
        .await
    }
}

/// Encodes the input and its files as a form (RFC 7578).
fn multipart_body(
    input: &TurnInputRequest,
    files: Vec<InputFile>,
) -> Result<impl Stream<Item = std::io::Result<Bytes>> + Send + use<>, Error> {
    let json = serde_json::to_string(input).map_err(|cause| not_json(&cause))?;
    let field = format!("--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"input\"\r\n\r\n{json}\r\n");
    let files = files.into_iter().map(|InputFile { media_type, name, bytes }| {
        let head = format!(
            "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{}\"\r\n\
             content-type: {media_type}\r\n\r\n",
            escape_file_name(&name)
        );
        text_chunk(head).chain(bytes).chain(text_chunk("\r\n".to_owned()))
    });
    Ok(text_chunk(field)
        .chain(stream::iter(files).flatten())
        .chain(text_chunk(format!("--{BOUNDARY}--\r\n"))))
}

fn not_json(cause: &serde_json::Error) -> Error {
    Error::new(Kind::InputInvalid, format!("the input cannot be written as JSON: {cause}"))
}

fn text_chunk(text: String) -> impl Stream<Item = std::io::Result<Bytes>> + Send {
    stream::once(async move { Ok(Bytes::from(text)) })
}

/// Escapes a file name as browsers do.
fn escape_file_name(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}
