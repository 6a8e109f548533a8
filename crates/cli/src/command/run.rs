//! `outlast run`: sends one input and streams its answer.
use crate::agent::AgentArgs;
use crate::attachment_file::AttachmentFile;
use crate::conversation_printer::ConversationPrinter;
use crate::follow::{TurnOutput, WaitBehavior, follow};
use crate::global_args::GlobalArgs;
use crate::input;
use crate::session_selector::SessionSelector;
use crate::terminal;
use crate::turn_backend::{OutgoingInput, TurnBackend};
use clap::Args;
use outlast::Error;
use outlast::store::MAIN_HEAD;
use std::path::PathBuf;

/// Sends one input and follows its turn.
#[derive(Args)]
pub(crate) struct RunArgs {
    /// Text of the input; `-` reads it from standard input
    text: String,
    /// Session, by id or by a key that you choose; default: a new session
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Idempotency key: the same key in the same session is the same turn
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Head of the session to continue
    #[arg(long, value_name = "NAME", default_value = MAIN_HEAD)]
    head: String,
    /// File to attach: an image, a PDF, a text; repeatable
    #[arg(long, value_name = "FILE")]
    attach: Vec<PathBuf>,
    /// File with a JSON Schema that the answer must match; an answer that does not match is sent back to the model
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// Parent span of the turn's trace, in W3C Trace Context format
    #[arg(long, env = "TRACEPARENT", value_name = "TRACEPARENT")]
    traceparent: Option<String>,
    /// Print each event as a line of JSON
    #[arg(long)]
    json: bool,
    /// Keep waiting if the turn waits for something outside, like an approval
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

impl RunArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let text = input::text(&self.text)?;
        let named = self.session.as_deref().map(SessionSelector::parse).transpose()?;
        let files =
            self.attach.iter().map(|path| AttachmentFile::open(path)).collect::<Result<Vec<_>, _>>()?;
        let schema = self.schema.as_deref().map(input::json_file).transpose()?;
        let parent =
            self.traceparent.as_deref().filter(|text| !text.is_empty()).map(str::parse).transpose()?;
        let outgoing = OutgoingInput {
            text,
            key: self.key.clone(),
            head: Some(self.head.clone()),
            schema,
            parent,
            files,
        };
        let host = self.agent.host(data).await?;
        let ran = self.turn(&host, named, outgoing).await;
        host.shut_down().await;
        ran
    }

    async fn turn(
        &self,
        host: &TurnBackend,
        named: Option<SessionSelector>,
        outgoing: OutgoingInput,
    ) -> Result<(), Error> {
        let is_new = named.is_none();
        let followed = host.send(named, outgoing).await?;
        if is_new {
            terminal::note(&format!("· session {}", followed.session));
        }
        let mut view = match (self.json, &self.schema) {
            (true, _) => TurnOutput::Frames,
            (false, Some(_)) => TurnOutput::Prose(ConversationPrinter::of_answer()),
            (false, None) => TurnOutput::Prose(ConversationPrinter::default()),
        };
        let at_wait = if self.wait { WaitBehavior::Stay } else { WaitBehavior::Leave };
        follow(host, followed, &mut view, at_wait).await
    }
}
