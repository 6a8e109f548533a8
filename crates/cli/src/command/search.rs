//! `outlast search`: messages by their words.
use crate::data::Data;
use crate::find;
use crate::terminal;
use crate::words;
use clap::Args;
use outlast::Error;
use outlast::search::{Find, Found};
use outlast::vocab::words::Wanted;
use serde_json::json;

/// Letters of a message around what was looked for.
const LETTERS: usize = 160;

/// Finds inputs and replies that have all of these words, the newest first.
#[derive(Args)]
pub(crate) struct Search {
    /// The words; the last one may be the beginning of a word
    #[arg(required = true, value_name = "WORD")]
    words: Vec<String>,
    /// Only in this session, by id or key
    #[arg(long)]
    session: Option<String>,
    /// How many at most
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    limit: usize,
    /// Print a line of JSON for each
    #[arg(long)]
    json: bool,
}

impl Search {
    /// Does it.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let wanted = Wanted::parse(&self.words.join(" "))?;
        let store = data.open().await?;
        let session = match &self.session {
            Some(session) => Some(find::session(store.as_ref(), session).await?.id),
            None => None,
        };
        let find = Find { wanted: wanted.clone(), session, before: None, limit: self.limit };
        let found = store.find(find).await?;
        if found.is_empty() && !self.json {
            terminal::note("· no message has all of these words");
        }
        for found in found {
            self.show(&found, &wanted);
        }
        Ok(())
    }

    fn show(&self, found: &Found, wanted: &Wanted) {
        let Found { session, turn, seq, at, is_input, text, .. } = found;
        let (role, excerpt) = (if *is_input { "user" } else { "assistant" }, wanted.excerpt(text, LETTERS));
        if self.json {
            terminal::json(&json!({
                "session": session, "turn": turn, "seq": seq, "at": at, "role": role, "excerpt": excerpt,
            }));
            return;
        }
        terminal::say(&format!(
            "{session} #{seq} {role} {}\n  {}",
            words::when(*at),
            terminal::one_line(&excerpt, LETTERS + 2)
        ));
    }
}
