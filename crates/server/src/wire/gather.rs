//! Gathers what is told of a leg into its answer.
use super::hearing::Hearing;
use super::leg::Leg;
use super::refusal::{Answer, Refusal};
use super::told::{ClientCall, Over, Told, ToolAsked, What};
use outlast_vocab::message::ToolResult;
use outlast_vocab::{Error, Kind};
use std::time::Duration;

/// What stands between the texts of an answer where a wire has room for one text only.
pub(crate) const BETWEEN_TEXTS: &str = "\n\n";

/// An answer, as far as it was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) items: Vec<Item>,
    pub(crate) over: Option<Over>,
}

/// An item of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// Text, and whether it is whole.
    Text { text: String, is_whole: bool },
    /// A tool of the agent, and what it gave.
    Tool { asked: ToolAsked, result: Option<ToolResult> },
    /// A call for the client.
    Call(ClientCall),
}

impl Gathered {
    /// All that was told.
    pub(crate) fn of(told: &[Told]) -> Self {
        let mut gathered = Self::default();
        for told in told {
            gathered.add(told);
        }
        gathered
    }

    /// Adds what was told next.
    pub(crate) fn add(&mut self, told: &Told) {
        let item = self.items.get_mut(told.item);
        match (&told.what, item) {
            (What::TextBegins, _) => self.items.push(Item::Text { text: String::new(), is_whole: false }),
            (What::Text(piece), Some(Item::Text { text, .. })) => text.push_str(piece),
            (What::TextEnds(_), Some(Item::Text { is_whole, .. })) => *is_whole = true,
            (What::ToolBegins(asked), _) => {
                self.items.push(Item::Tool { asked: asked.clone(), result: None });
            }
            (What::ToolEnds(gave), Some(Item::Tool { result, .. })) => *result = Some(gave.clone()),
            (What::Call(call), _) => self.items.push(Item::Call(call.clone())),
            (What::Over(over), _) => self.over = Some(over.clone()),
            (What::Text(_) | What::TextEnds(_) | What::ToolEnds(_), _) => {}
        }
    }

    /// Listens until the leg is over, but not for ever; says whether it is. Nobody is told anything before, so nothing that may be
    /// void is heard.
    pub(crate) async fn listen(&mut self, hearing: &mut Hearing, patience: Duration) -> Result<bool, Error> {
        let over = async {
            while self.over.is_none() {
                let told = hearing.next_durable().await?;
                self.add(&told);
            }
            Ok::<(), Error>(())
        };
        match tokio::time::timeout(patience, over).await {
            Ok(listened) => listened.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// The whole answer of a leg. One that takes too long is an error, and goes on.
    pub(crate) async fn whole(mut hearing: Hearing, leg: Leg, patience: Duration) -> Answer<Self> {
        let mut gathered = Self::default();
        if !gathered.listen(&mut hearing, patience).await.map_err(|error| Refusal::from(error).late())? {
            let detail = format!("{} is not over after {} s; it goes on", leg.turn, patience.as_secs());
            return Err(Refusal::from(Error::new(Kind::TurnWaits, detail)).late());
        }
        Ok(gathered)
    }

    /// All text, as one.
    pub(crate) fn text(&self) -> String {
        let texts: Vec<&str> = self.items.iter().filter_map(Item::text).collect();
        texts.join(BETWEEN_TEXTS)
    }

    /// The calls for the client.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &ClientCall> {
        self.items.iter().filter_map(|item| match item {
            Item::Call(call) => Some(call),
            Item::Text { .. } | Item::Tool { .. } => None,
        })
    }
}

impl Item {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text { text, .. } => Some(text),
            Self::Tool { .. } | Self::Call(_) => None,
        }
    }
}
