//! `outlast run`: sends one input and streams its answer.
use crate::agent::Agent;
use crate::attached::Attached;
use crate::data::Data;
use crate::find::Named;
use crate::follow::{AtWait, View, follow};
use crate::host::{Host, Outgoing};
use crate::input;
use crate::prose::Prose;
use crate::terminal;
use clap::Args;
use outlast::Error;
use outlast::store::MAIN;
use std::path::PathBuf;

/// Sends one input and follows its turn.
#[derive(Args)]
pub(crate) struct Run {
    /// Text of the input; `-` reads it from standard input
    text: String,
    /// Session, by id or by a key that you choose; default: a new session
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Idempotency key: the same key in the same session is the same turn
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Head of the session to continue
    #[arg(long, value_name = "NAME", default_value = MAIN)]
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
    agent: Agent,
}

impl Run {
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let text = input::text(&self.text)?;
        let named = self.session.as_deref().map(Named::parse).transpose()?;
        let files = self.attach.iter().map(|path| Attached::open(path)).collect::<Result<Vec<_>, _>>()?;
        let schema = self.schema.as_deref().map(input::json_file).transpose()?;
        let parent =
            self.traceparent.as_deref().filter(|text| !text.is_empty()).map(str::parse).transpose()?;
        let outgoing =
            Outgoing { text, key: self.key.clone(), head: Some(self.head.clone()), schema, parent, files };
        let host = self.agent.host(data).await?;
        let ran = self.turn(&host, named, outgoing).await;
        host.leave().await;
        ran
    }

    async fn turn(&self, host: &Host, named: Option<Named>, outgoing: Outgoing) -> Result<(), Error> {
        let is_new = named.is_none();
        let followed = host.send(named, outgoing).await?;
        if is_new {
            terminal::note(&format!("· session {}", followed.session));
        }
        let mut view = match (self.json, &self.schema) {
            (true, _) => View::Frames,
            (false, Some(_)) => View::Prose(Prose::of_answer()),
            (false, None) => View::Prose(Prose::default()),
        };
        let at_wait = if self.wait { AtWait::Stay } else { AtWait::Leave };
        follow(host, followed, &mut view, at_wait).await
    }
}
