//! An input that is being prepared: text, attachments, overlays and options.
use crate::{Session, Turn};
use outlast_ports::BoxFuture;
use outlast_ports::attachment_upload::{AttachmentUpload, Upload};
use outlast_ports::plugin::Plugin;
use outlast_runtime::Input;
use outlast_runtime::attachments::read_from;
use outlast_runtime::delivery::events::SessionEventStream;
use outlast_vocab::message::{MediaType, PluginName};
use outlast_vocab::overlay::Overlay;
use outlast_vocab::record::InputDelivery;
use outlast_vocab::trace::TraceParent;
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::io::AsyncRead;

/// An input that is being prepared. Await it to send it.
///
/// Once the await returns, the input is durable and will be answered even if this process dies.
///
/// # Example
///
/// ```
/// use outlast::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let outlast = Outlast::ephemeral().builtin_tools().start().await?;
/// let turn = outlast
///     .session("ann")
///     .send("add 2 and 3")
///     .attach("text/plain", Some("note.txt".to_owned()), b"tea at five".as_slice())?
///     .await?;
/// assert_eq!(turn.answer().await?, "2 + 3 is 5.");
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is sent until it is awaited"]
pub struct InputBuilder {
    pub(crate) session: Session,
    pub(crate) text: String,
    pub(crate) key: Option<String>,
    pub(crate) delivery: InputDelivery,
    pub(crate) output: Option<Value>,
    pub(crate) agent: Option<String>,
    pub(crate) overlays: Vec<Overlay>,
    pub(crate) files: Vec<AttachmentUpload>,
    pub(crate) plugins: BTreeMap<PluginName, Value>,
    pub(crate) traceparent: Option<TraceParent>,
}

impl InputBuilder {
    /// Requires an answer that matches this JSON Schema.
    ///
    /// If an answer does not match, the model gets the errors and tries again a few times. Then the turn fails with
    /// `output.invalid`.
    pub fn answer_schema(self, schema: Value) -> Self {
        Self { output: Some(schema), ..self }
    }

    /// Attaches data for a plug-in. It is recorded with the input, and the plug-in's hooks and tools see it in this
    /// turn.
    pub fn plugin_input<P: Plugin>(mut self, input: &P::Input) -> Result<Self, Error> {
        let value = serde_json::to_value(input).map_err(|cause| {
            Error::new(
                Kind::InputInvalid,
                format!("the data for `{}` cannot be written as JSON: {cause}", P::NAME),
            )
        })?;
        self.plugins.insert(P::NAME.parse()?, value);
        Ok(self)
    }

    /// Sets the parent span of the turn, in the format of the W3C Trace Context header `traceparent`.
    pub fn traceparent(self, parent: TraceParent) -> Self {
        Self { traceparent: Some(parent), ..self }
    }

    /// Selects another agent of this worker to answer.
    pub fn answered_by(self, agent: impl Into<String>) -> Self {
        Self { agent: Some(agent.into()), ..self }
    }

    /// Adds an overlay to the agent for this turn only. It can add to the prompt, choose another model and restrict
    /// what is allowed.
    pub fn with_overlay(mut self, overlay: Overlay) -> Self {
        self.overlays.push(overlay);
        self
    }

    /// Attaches bytes of a media type such as `image/png`. They are stored with the session, and the message refers to
    /// them. Call it several times to attach several files, in order.
    pub fn attach(
        mut self,
        media_type: &str,
        name: Option<String>,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Result<Self, Error> {
        self.files.push(Upload::new(MediaType::try_from(media_type.to_owned())?, name, bytes)?.into());
        Ok(self)
    }

    /// Attaches the content of a reader, such as a file, a socket or a pipe. It is read immediately, before anything is
    /// sent.
    ///
    /// If attachments are stored outside the database, the content is streamed there. Otherwise it is buffered in
    /// memory, up to `attachment_bytes`.
    pub async fn attach_stream(
        mut self,
        media_type: &str,
        name: Option<String>,
        reader: impl AsyncRead + Send,
    ) -> Result<Self, Error> {
        let media_type = MediaType::try_from(media_type.to_owned())?;
        let attachments = self.session.runtime().attachments();
        self.files.push(attachments.keep(media_type, name, read_from(reader)).await?);
        Ok(self)
    }

    /// Sends the input and returns its turn with the session's events.
    ///
    /// The subscription starts before the turn, so no part of a streamed answer is missed. To join a running turn, use
    /// [`Turn::events`].
    pub async fn watched(self) -> Result<(Turn, SessionEventStream), Error> {
        let (session, input) = self.into_input();
        let (accepted, events) = session.runtime().submit_watched(input).await?;
        Ok((session.turn(&accepted), events))
    }

    async fn send(self) -> Result<Turn, Error> {
        let (session, input) = self.into_input();
        let accepted = session.runtime().submit(input).await?;
        Ok(session.turn(&accepted))
    }

    /// Returns the input and its session, which may have been opened since this was created.
    fn into_input(self) -> (Session, Input) {
        let Self { session, text, key, delivery, output, agent, overlays, files, plugins, traceparent } =
            self;
        let head = session.head().to_owned();
        let input = Input::text(session.target(), text);
        let input = Input { key, delivery, head, output, agent, overlays, files, plugins, ..input };
        let input = Input { traceparent, ..input };
        (session, input)
    }
}

impl IntoFuture for InputBuilder {
    type Output = Result<Turn, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
