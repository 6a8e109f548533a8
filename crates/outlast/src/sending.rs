//! An input that is about to be sent.
use crate::{Session, Turn};
use outlast_ports::BoxFuture;
use outlast_ports::filed::Filed;
use outlast_ports::plugin::Plugin;
use outlast_ports::store::Upload;
use outlast_runtime::Input;
use outlast_runtime::attachments::read_from;
use outlast_runtime::events::Events;
use outlast_vocab::message::{MediaType, PluginName};
use outlast_vocab::overlay::Overlay;
use outlast_vocab::record::Delivery;
use outlast_vocab::trace::TraceParent;
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::io::AsyncRead;

/// An input that is about to be sent. When awaiting it returns, the input is durable and will be answered, whatever
/// happens to this process.
#[must_use = "nothing is sent until it is awaited"]
pub struct Sending {
    pub(crate) session: Session,
    pub(crate) text: String,
    pub(crate) key: Option<String>,
    pub(crate) delivery: Delivery,
    pub(crate) output: Option<Value>,
    pub(crate) agent: Option<String>,
    pub(crate) overlays: Vec<Overlay>,
    pub(crate) files: Vec<Filed>,
    pub(crate) plugins: BTreeMap<PluginName, Value>,
    pub(crate) traceparent: Option<TraceParent>,
}

impl Sending {
    /// Asks for an answer that fits this JSON Schema. One that does not is sent back to the model with its errors, a few
    /// times; then the turn fails with `output.invalid`.
    pub fn fitting(self, schema: Value) -> Self {
        Self { output: Some(schema), ..self }
    }

    /// Lets the input carry something for a plug-in. It is recorded with the input; the plug-in's hooks and tools see it in this
    /// turn.
    pub fn carry<P: Plugin>(mut self, input: &P::Input) -> Result<Self, Error> {
        let value = serde_json::to_value(input).map_err(|cause| {
            Error::new(Kind::InputInvalid, format!("what is for `{}` does not fit JSON: {cause}", P::NAME))
        })?;
        self.plugins.insert(P::NAME.parse()?, value);
        Ok(self)
    }

    /// Puts the turn under a span of the caller's, as the header `traceparent` of W3C Trace Context says it.
    pub fn traceparent(self, parent: TraceParent) -> Self {
        Self { traceparent: Some(parent), ..self }
    }

    /// Lets another agent of this runtime answer.
    pub fn answered_by(self, agent: impl Into<String>) -> Self {
        Self { agent: Some(agent.into()), ..self }
    }

    /// Puts a layer over the agent for this turn alone: it can tell the model more, name another model, and let less happen.
    pub fn with(mut self, overlay: Overlay) -> Self {
        self.overlays.push(overlay);
        self
    }

    /// Attaches bytes of a media type, like `image/png`. They are kept with the session; the message only refers to them.
    /// Several may be attached, in order.
    pub fn attach(
        mut self,
        media_type: &str,
        name: Option<String>,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Result<Self, Error> {
        self.files.push(Upload::new(MediaType::try_from(media_type.to_owned())?, name, bytes)?.into());
        Ok(self)
    }

    /// Attaches what is read from a file, a socket or a pipe. Where contents lie outside the database, it is put there as it
    /// comes and never held in memory as a whole; otherwise it is gathered up to `attachment_bytes`. It is read at once,
    /// before anything is sent.
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

    /// Sends it and follows its session from there. Watching begins before the turn does, so no word of a streamed answer
    /// is missed; [`Turn::events`] joins a turn that runs already.
    pub async fn watched(self) -> Result<(Turn, Events), Error> {
        let (session, input) = self.addressed();
        let (accepted, events) = session.runtime().submit_watched(input).await?;
        Ok((session.turn(&accepted), events))
    }

    async fn send(self) -> Result<Turn, Error> {
        let (session, input) = self.addressed();
        let accepted = session.runtime().submit(input).await?;
        Ok(session.turn(&accepted))
    }

    /// The input with the session it is for, which may have been opened since this was made.
    fn addressed(self) -> (Session, Input) {
        let Self { session, text, key, delivery, output, agent, overlays, files, plugins, traceparent } =
            self;
        let head = session.head().to_owned();
        let input = Input::text(session.target(), text);
        let input = Input { key, delivery, head, output, agent, overlays, files, plugins, ..input };
        let input = Input { traceparent, ..input };
        (session, input)
    }
}

impl IntoFuture for Sending {
    type Output = Result<Turn, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
