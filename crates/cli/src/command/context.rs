//! `outlast context`: shows what a model would see of a session now, and the tokens of each part.
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::Args;
use outlast::Error;
use outlast::store::MAIN_HEAD;
use outlast::vocab::effect::Usage;
use outlast_client::api::context::{ContextPart, ContextResource as Shown};
use serde_json::json;

/// Shows the context that a model would receive for a session.
#[derive(Args)]
pub(crate) struct ContextArgs {
    /// Session, by id or key
    session: String,
    /// Head whose context is shown
    #[arg(long, value_name = "NAME", default_value = MAIN_HEAD)]
    head: String,
    /// Print the output as JSON
    #[arg(long)]
    json: bool,
}

impl ContextArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let backend = data.backend().await?;
        let session = backend.find(&self.session).await?;
        let shown = backend.context(&session, &self.head).await?;
        if self.json {
            as_json(&shown);
        } else {
            as_table(&shown);
        }
        Ok(())
    }
}

fn as_table(shown: &Shown) {
    let Shown { tokens, parts, messages, files, compactions, last_usage } = shown;
    for message in messages {
        let beginning: String =
            message.text.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect();
        terminal::say(&format!("{:>8}  {:<12} {beginning}", message.tokens, message.who));
    }
    terminal::say(&format!("{tokens:>8}  tokens in {} messages, about", messages.len()));
    let mut tools: Vec<&ContextPart> =
        parts.iter().filter(|part| !["user", "assistant"].contains(&part.who.as_str())).collect();
    tools.sort_by(|a, b| a.who.cmp(&b.who));
    for ContextPart { who, tokens } in tools {
        terminal::say(&format!("{tokens:>8}  of them results of {who}"));
    }
    if *files > 0 {
        terminal::say(&format!("{files:>8}  files, not counted"));
    }
    if let Some(Usage { input, cache_read, cache_write, .. }) = last_usage {
        let read = input + cache_read + cache_write;
        terminal::note(&format!(
            "· the last call read {read} tokens, {cache_read} of them from the provider's cache"
        ));
    }
    if *compactions > 0 {
        terminal::note(&format!(
            "· compacted {compactions} times; fork or rewind to an earlier message to see more"
        ));
    }
}

fn as_json(Shown { tokens, messages, files, compactions, last_usage, .. }: &Shown) {
    let messages: Vec<_> = messages
        .iter()
        .map(|message| json!({ "who": message.who, "tokens": message.tokens, "text": message.text }))
        .collect();
    terminal::json(&json!({
        "messages": messages,
        "tokens": tokens,
        "files": files,
        "last_usage": last_usage,
        "compactions": compactions,
    }));
}
