//! Where finished outputs go: [`Sink`] is what others implement, [`Outlet`] a sink with its name and what it wants.
//!
//! An output is handed over until it is taken, under an id that never changes, so whoever remembers ids takes each once.
//! What is due and who hands it over is [`crate::outbox`].
use crate::Answer;
use crate::outbox::{Begins, Subscription};
use outlast_vocab::id::{DeliveryId, OrgId, SessionId, TurnId};
use outlast_vocab::limits;
use outlast_vocab::record::End;
use outlast_vocab::{Error, Kind, Millis};
use std::sync::Arc;

/// The longest name of a sink in bytes.
const NAME_BYTES: usize = 64;

/// The finished output of a turn on its way to a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Made of the sink and the turn: the same on every attempt, in every process.
    pub id: DeliveryId,
    /// Whose it is.
    pub org: OrgId,
    /// The session.
    pub session: SessionId,
    /// The key the session's caller knows it by.
    pub key: Option<String>,
    /// The turn.
    pub turn: TurnId,
    /// When it ended.
    pub at: Millis,
    /// How it ended.
    pub end: End,
    /// Which attempt this is, counted from 1. An earlier one may have been taken without anybody here knowing.
    pub attempt: u32,
    /// When this attempt began.
    pub sent: Millis,
}

/// Takes finished outputs.
pub trait Sink: Send + Sync {
    /// Where it is, for people. Without secrets.
    fn place(&self) -> String;

    /// Hands an output over. It was taken only if the answer says so. An error of class `retry` is met with another
    /// attempt, after its pause where it names one; any other gives the output up.
    fn deliver<'a>(&'a self, output: &'a Output) -> Answer<'a, ()>;
}

/// A sink with its name, what it wants and where it begins.
#[derive(Clone)]
pub struct Outlet {
    /// Its name, what it wants and where it begins.
    pub subscription: Subscription,
    /// Where the outputs go.
    pub sink: Arc<dyn Sink>,
}

impl Outlet {
    /// A sink that wants the outputs of all turns that end from its first start on. Ids are made of its name, so it
    /// keeps that for ever.
    pub fn new(name: impl Into<String>, sink: impl Sink + 'static) -> Result<Self, Error> {
        let name = name.into();
        limits::check("the name of a sink", name.len(), NAME_BYTES)?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || !name.bytes().all(fits) {
            let detail = format!("expected a sink's name of letters, digits, `-`, `_` and `.`, got `{name}`");
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        let subscription = Subscription { name, ends: None, begins: Begins::Now };
        Ok(Self { subscription, sink: Arc::new(sink) })
    }

    /// Wants only turns that ended in these ways: `answered`, `failed`, … ([`End::NAMES`]).
    pub fn ends<S: AsRef<str>>(mut self, names: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let known: Vec<&str> = End::NAMES.iter().copied().filter(|name| *name != JOINED).collect();
        let mut wanted = Vec::new();
        for name in names {
            let name = name.as_ref();
            if !known.contains(&name) {
                let detail =
                    format!("expected ways in which a turn ends ({}), got `{name}`", known.join(", "));
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
            wanted.push(name.to_owned());
        }
        if wanted.is_empty() {
            let detail = format!("expected at least one way in which a turn ends: {}", known.join(", "));
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        self.subscription.ends = Some(wanted);
        Ok(self)
    }

    /// Wants also what ended before its first start.
    #[must_use]
    pub fn from_the_beginning(mut self) -> Self {
        self.subscription.begins = Begins::Beginning;
        self
    }
}

/// How a turn ends whose input joined another one: that one's output is delivered.
const JOINED: &str = "joined";

impl Subscription {
    /// Whether a turn that ended like this is delivered.
    pub(crate) fn wants(&self, end: &End) -> bool {
        let name = end.name();
        name != JOINED && self.ends.as_ref().is_none_or(|ends| ends.iter().any(|wanted| wanted == name))
    }
}
