//! Where outputs go, that is, what turns came to and whom they ask: [`Sink`] is what others implement, [`Outlet`] a sink with its
//! name and what it wants.
//!
//! An output is handed over until it is taken, under an id that never changes, so whoever remembers ids takes each once.
//! What is due and who hands it over is [`crate::outbox`].
use crate::Answer;
use crate::outbox::{Begins, Subscription};
use outlast_vocab::access::Principal;
use outlast_vocab::id::{ApprovalId, DeliveryId, OrgId, SessionId, TurnId};
use outlast_vocab::limits;
use outlast_vocab::link::PublicUrl;
use outlast_vocab::message::shown;
use outlast_vocab::policy::Ask;
use outlast_vocab::record::{End, Seq};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::{Error, Hash, Kind, Millis};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

/// The longest name of a sink in bytes.
const NAME_BYTES: usize = 64;

/// What a sink can be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// A turn ended.
    TurnEnded,
    /// Somebody is asked for an approval.
    ApprovalRequested,
    /// They are reminded of it.
    ApprovalReminded,
    /// Others may approve it, too.
    ApprovalEscalated,
}

impl Topic {
    /// Every topic.
    pub const ALL: [Self; 4] =
        [Self::TurnEnded, Self::ApprovalRequested, Self::ApprovalReminded, Self::ApprovalEscalated];

    /// How it is written: the `type` of a message.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TurnEnded => "turn.ended",
            Self::ApprovalRequested => "approval.requested",
            Self::ApprovalReminded => "approval.reminded",
            Self::ApprovalEscalated => "approval.escalated",
        }
    }
}

impl FromStr for Topic {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|topic| topic.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            let detail = format!("expected what a sink is told of ({names}), got `{}`", shown(text));
            Error::new(Kind::ConfigInvalid, detail)
        })
    }
}

/// Which of the things that a turn's records say is told: a record may say several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment {
    /// The record.
    pub seq: Seq,
    /// Which of the things it says.
    pub nth: u32,
}

/// What an output tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// How a turn ended.
    Ended(End),
    /// That somebody's approval is wanted.
    Approval(Notice, Box<Asking>),
}

impl About {
    /// What it is about, in a word.
    pub const fn topic(&self) -> Topic {
        match self {
            Self::Ended(_) => Topic::TurnEnded,
            Self::Approval(Notice::Requested, _) => Topic::ApprovalRequested,
            Self::Approval(Notice::Reminded { .. }, _) => Topic::ApprovalReminded,
            Self::Approval(Notice::Escalated { .. }, _) => Topic::ApprovalEscalated,
        }
    }
}

/// Why people are told of a question for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It was asked.
    Requested,
    /// It still waits.
    Reminded {
        /// How many reminders fell due by now.
        number: u32,
    },
    /// Others may approve, too.
    Escalated {
        /// Who.
        to: Vec<String>,
    },
}

/// A question for approval, as the model's call asked it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asking {
    /// What it is called.
    pub id: ApprovalId,
    /// The fingerprint of what is approved: the tool as it is defined, the arguments, their labels, the policy.
    pub form: Hash,
    /// The call, exactly as it will run.
    pub call: PreparedCall,
    /// What the rule says of who is asked.
    pub ask: Ask,
    /// Who may approve by now; nobody named is everybody.
    pub who: Vec<String>,
    /// When the model asked for it.
    pub since: Millis,
    /// When silence becomes a no.
    pub expires: Option<Millis>,
    /// Links that decide it, for a sink that wants them.
    pub links: Vec<Links>,
}

/// What one person decides a question with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Links {
    /// Who.
    pub by: Principal,
    /// Says yes.
    pub approve: String,
    /// Says no.
    pub deny: String,
}

/// Something that happened in a turn, on its way to a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Made of the sink, the turn and the moment: the same on every attempt, in every process.
    pub id: DeliveryId,
    /// Whose it is.
    pub org: OrgId,
    /// The session.
    pub session: SessionId,
    /// The key the session's caller knows it by.
    pub key: Option<String>,
    /// The turn.
    pub turn: TurnId,
    /// Which of the things that happened in it.
    pub moment: Moment,
    /// When it happened.
    pub at: Millis,
    /// What happened.
    pub about: About,
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

    /// Sends a message that tells nothing, and comes back with what was answered. Fails like a delivery if it was not taken;
    /// nothing is tried again.
    fn try_out(&self, _id: DeliveryId, _now: Millis) -> Answer<'_, String> {
        let detail = format!("only webhooks are tried out, and this goes to {}", self.place());
        Box::pin(async { Err(Error::new(Kind::InputInvalid, detail)) })
    }
}

/// A sink with its name, what it wants and where it begins.
#[derive(Clone)]
pub struct Outlet {
    /// Its name, what it wants and where it begins.
    pub subscription: Subscription,
    /// Where the outputs go.
    pub sink: Arc<dyn Sink>,
    /// The server whose links decide the questions it is told of, where it wants links.
    pub links: Option<PublicUrl>,
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
        let subscription = Subscription::to_ends(name, Begins::Now);
        Ok(Self { subscription, sink: Arc::new(sink), links: None })
    }

    /// Wants to be told of these, and of nothing else: `turn.ended`, `approval.requested`, … ([`Topic::ALL`]).
    pub fn on<S: AsRef<str>>(mut self, names: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let on: Result<BTreeSet<Topic>, Error> =
            names.into_iter().map(|name| name.as_ref().parse()).collect();
        self.subscription.on = on?;
        if self.subscription.on.is_empty() {
            let names = Topic::ALL.map(Topic::name).join(", ");
            let detail = format!("expected at least one thing that a sink is told of: {names}");
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        Ok(self)
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

    /// Wants links with which those who are asked decide, on the server that is reached there. Whoever reads what this sink gets can
    /// decide in their names.
    #[must_use]
    pub fn with_links_at(mut self, server: PublicUrl) -> Self {
        self.links = Some(server);
        self
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
    /// Wants every end of a turn.
    pub fn to_ends(name: impl Into<String>, begins: Begins) -> Self {
        Self { name: name.into(), on: BTreeSet::from([Topic::TurnEnded]), ends: None, begins }
    }

    /// Whether a turn that ended like this is delivered.
    pub(crate) fn wants_end(&self, end: &End) -> bool {
        let name = end.name();
        self.on.contains(&Topic::TurnEnded)
            && name != JOINED
            && self.ends.as_ref().is_none_or(|ends| ends.iter().any(|wanted| wanted == name))
    }
}
