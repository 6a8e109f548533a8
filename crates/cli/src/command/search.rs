//! `outlast search`: searches messages by words.
use crate::data::Data;
use crate::terminal;
use crate::words;
use clap::Args;
use outlast::Error;
use outlast::vocab::words::EXCERPT;
use outlast_client::Hit;

/// Finds inputs and replies that contain all of the words, newest first.
#[derive(Args)]
pub(crate) struct Search {
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

impl Search {
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let desk = data.desk().await?;
        let session = match &self.session {
            Some(session) => Some(desk.find(session).await?.id),
            None => None,
        };
        let found = desk.search(&self.words.join(" "), session, self.limit).await?;
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

fn show(Hit { session, seq, at, role, excerpt, .. }: &Hit) {
    let (when, excerpt) = (words::when(*at), terminal::one_line(excerpt, EXCERPT + 2));
    terminal::say(&format!("{session} #{seq} {role} {when}\n  {excerpt}"));
}
