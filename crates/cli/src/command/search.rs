//! `outlast search`: searches messages by words.
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::Args;
use outlast::Error;
use outlast::vocab::search_terms::EXCERPT;
use outlast_client::api::messages::SearchHit;

/// Finds inputs and replies that contain all of the words, newest first.
#[derive(Args)]
pub(crate) struct SearchArgs {
    /// Words to find; the last one also matches as a prefix
    #[arg(required = true, value_name = "WORD")]
    words: Vec<String>,
    /// Search only in this session, by id or key
    #[arg(long)]
    session: Option<String>,
    /// Maximum number of messages
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    limit: usize,
    /// Print one line of JSON per message
    #[arg(long)]
    json: bool,
}

impl SearchArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let backend = data.backend().await?;
        let session = match &self.session {
            Some(session) => Some(backend.find(session).await?.id),
            None => None,
        };
        let found = backend.search(&self.words.join(" "), session, self.limit).await?;
        if found.is_empty() && !self.json {
            terminal::note("· no message has all of these words");
        }
        for hit in &found {
            if self.json {
                terminal::json(hit);
            } else {
                show(hit);
            }
        }
        Ok(())
    }
}

fn show(SearchHit { session, seq, at, role, excerpt, .. }: &SearchHit) {
    let (when, excerpt) = (formatting::when(*at), terminal::one_line(excerpt, EXCERPT + 2));
    terminal::say(&format!("{session} #{seq} {role} {when}\n  {excerpt}"));
}
