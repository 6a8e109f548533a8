//! Reads whole sessions, or all sessions: search, model context, durability costs, hash chains.
use super::CommandBackend;
use outlast::runtime::views::context_usage::{ContextUsage, tokens, who};
use outlast::search::{MessageMatch, SearchQuery};
use outlast::store::SessionView;
use outlast::views::{SessionFilter, TurnDurabilityCost};
use outlast::vocab::search_terms::{EXCERPT, SearchTerms};
use outlast::{Error, SessionId, TurnId};
use outlast_client::api::context::{ContextMessage, ContextPart, ContextResource};
use outlast_client::api::messages::SearchHit;

/// The number of sessions per page.
const PAGE: usize = 256;

impl CommandBackend {
    /// Returns up to `limit` messages that contain all words, newest first.
    pub(crate) async fn search(
        &self,
        words: &str,
        session: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<SearchHit>, Error> {
        let wanted = SearchTerms::parse(words)?;
        let store = match self {
            Self::File(store) => store,
            Self::Server(client) => return client.search(words, session, limit).await,
        };
        let hit = |MessageMatch { session, turn, seq, at, is_input, text, .. }: MessageMatch| SearchHit {
            session,
            turn,
            seq,
            at,
            role: if is_input { "user" } else { "assistant" }.into(),
            excerpt: wanted.excerpt(&text, EXCERPT),
        };
        let find = SearchQuery { terms: wanted.clone(), session, before: None, limit };
        Ok(store.find(find).await?.into_iter().map(hit).collect())
    }

    /// Returns what a model would see of a head of a session now.
    pub(crate) async fn context(&self, session: &SessionView, head: &str) -> Result<ContextResource, Error> {
        let ledger = match self {
            Self::File(store) => ContextUsage::of(store.as_ref(), session, head).await?,
            Self::Server(client) => return client.context(session.id, head).await,
        };
        let share = |(who, tokens): (&str, usize)| ContextPart { who: who.to_owned(), tokens };
        let messages = ledger.messages.iter().map(|message| ContextMessage {
            who: who(message).to_owned(),
            tokens: tokens(message),
            text: message.text().into_owned(),
        });
        Ok(ContextResource {
            tokens: ledger.tokens(),
            parts: ledger.by_part().into_iter().map(share).collect(),
            messages: messages.collect(),
            files: ledger.files(),
            compactions: ledger.compactions,
            last_usage: ledger.last_usage,
        })
    }

    /// Returns the cost of a turn's durability so far.
    pub(crate) async fn durability(&self, turn: TurnId) -> Result<TurnDurabilityCost, Error> {
        match self {
            Self::File(store) => {
                let writes = store.turn(turn).await?.writes;
                Ok(TurnDurabilityCost::of(&store.turn_records(turn).await?, writes))
            }
            Self::Server(client) => Ok(client.turn(turn).await?.durability),
        }
    }

    /// Returns the ids of all sessions, newest first.
    pub(crate) async fn all(&self) -> Result<Vec<SessionId>, Error> {
        let store = match self {
            Self::File(store) => store,
            Self::Server(client) => {
                let listed = client.sessions(&SessionFilter::default(), usize::MAX).await?;
                return Ok(listed.into_iter().map(|listed| listed.session.id).collect());
            }
        };
        let mut all: Vec<SessionId> = Vec::new();
        loop {
            let page = store.sessions(all.last().copied(), PAGE).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page.iter().map(|session| session.id));
        }
    }

    /// Recomputes the hash chain of a session and returns the number of its records.
    pub(crate) async fn verify(&self, session: SessionId) -> Result<u64, Error> {
        match self {
            Self::File(store) => store.verify(session).await,
            Self::Server(client) => client.verify(session).await,
        }
    }
}
