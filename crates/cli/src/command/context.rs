//! `outlast context`: what a model would be shown of a session now, and what each part of it takes (R4.10).
use crate::data::Data;
use crate::find;
use crate::terminal;
use clap::Args;
use outlast::Error;
use outlast::runtime::context::{Ledger, tokens, who};
use outlast::store::MAIN;
use outlast::vocab::effect::Usage;
use outlast::vocab::message::Message;
use serde_json::json;
use std::collections::BTreeMap;

/// Shows what a model would be shown of a session.
#[derive(Args)]
pub(crate) struct Context {
    /// The session, by id or key
    session: String,
    /// The head to look at
    #[arg(long, value_name = "NAME", default_value = MAIN)]
    head: String,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

impl Context {
    /// Does it.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let store = data.open().await?;
        let session = find::session(store.as_ref(), &self.session).await?;
        let shown = Shown(Ledger::of(store.as_ref(), &session, &self.head).await?);
        if self.json {
            shown.as_json();
        } else {
            shown.as_table();
        }
        Ok(())
    }
}

struct Shown(Ledger);

impl Shown {
    fn as_table(&self) {
        let mut by_tool: BTreeMap<&str, usize> = BTreeMap::new();
        for message in self.0.messages.iter() {
            let beginning: String =
                message.text().chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect();
            terminal::say(&format!("{:>8}  {:<12} {beginning}", tokens(message), who(message)));
            if let Message::Tool { tool, .. } = message {
                *by_tool.entry(tool.as_str()).or_default() += tokens(message);
            }
        }
        let total = self.0.tokens();
        terminal::say(&format!("{total:>8}  tokens in {} messages, about", self.0.messages.len()));
        for (tool, tokens) in by_tool {
            terminal::say(&format!("{tokens:>8}  of them results of {tool}"));
        }
        let files = self.0.files();
        if files > 0 {
            terminal::say(&format!("{files:>8}  files, not counted"));
        }
        if let Some(Usage { input, cache_read, cache_write, .. }) = self.0.last_usage {
            let read = input + cache_read + cache_write;
            terminal::note(&format!(
                "· the last call read {read} tokens, {cache_read} of them from the provider's cache"
            ));
        }
        if self.0.compactions > 0 {
            terminal::note(&format!(
                "· made shorter {} times; fork or rewind to an earlier message to see more",
                self.0.compactions
            ));
        }
    }

    fn as_json(&self) {
        let messages: Vec<_> = self
            .0
            .messages
            .iter()
            .map(|message| json!({ "who": who(message), "tokens": tokens(message), "text": message.text() }))
            .collect();
        terminal::json(&json!({
            "messages": messages,
            "tokens": self.0.tokens(),
            "files": self.0.files(),
            "last_usage": self.0.last_usage,
            "compactions": self.0.compactions,
        }));
    }
}
