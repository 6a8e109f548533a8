//! Collects the events of a segment into its answer.
use super::hearing::Hearing;
use super::leg::Leg;
use super::refusal::{Answer, Refusal};
use super::told::{ClientCall, Over, Told, ToolAsked, What};
use crate::shared::Shared;
use outlast_vocab::message::ToolResult;
use outlast_vocab::{Error, Kind};

/// The separator between the texts of an answer, for APIs with only one text.
pub(crate) const BETWEEN_TEXTS: &str = "\n\n";

/// An answer, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) items: Vec<Item>,
    pub(crate) over: Option<Over>,
}

/// An item of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// Text, and whether it is complete.
    Text { text: String, is_whole: bool },
    /// A call of one of the agent's own tools, and its result.
    Tool { asked: ToolAsked, result: Option<ToolResult> },
    /// A call for the client.
    Call(ClientCall),
}

impl Gathered {
    /// Collects these events.
    pub(crate) fn of(told: &[Told]) -> Self {
        let mut gathered = Self::default();
        for told in told {
            gathered.add(told);
        }
        gathered
    }

    /// Adds the next event.
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

    /// Reads until the segment is over. Returns whether it is: reading also stops after a timeout and when
    /// the server shuts down. Reads only durable events, so the answer contains no retracted text.
    pub(crate) async fn listen(&mut self, hearing: &mut Hearing, shared: &Shared) -> Result<bool, Error> {
        let over = async {
            while self.over.is_none() {
                let told = hearing.next_durable().await?;
                self.add(&told);
            }
            Ok::<(), Error>(())
        };
        let mut stopping = shared.stopping.clone();
        tokio::select! {
            biased;
            listened = over => listened.map(|()| true),
            () = tokio::time::sleep(shared.limits.wire_wait) => Ok(false),
            // Answer now. If the connection were cut off, the client would repeat its request, and the input
            // would arrive twice.
            _ = stopping.wait_for(|stopping| *stopping) => Ok(false),
        }
    }

    /// Returns the complete answer of a segment. Fails if it takes too long. The turn continues in that case.
    pub(crate) async fn whole(mut hearing: Hearing, leg: Leg, shared: &Shared) -> Answer<Self> {
        let mut gathered = Self::default();
        if !gathered.listen(&mut hearing, shared).await.map_err(|error| Refusal::from(error).late())? {
            let detail = format!("{} is not over yet; it goes on", leg.turn);
            return Err(Refusal::from(Error::new(Kind::TurnWaits, detail)).late());
        }
        Ok(gathered)
    }

    /// Returns all texts as one.
    pub(crate) fn text(&self) -> String {
        let texts: Vec<&str> = self.items.iter().filter_map(Item::text).collect();
        texts.join(BETWEEN_TEXTS)
    }

    /// Returns the calls for the client.
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
