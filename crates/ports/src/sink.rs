//! Destinations for outputs: ended turns and approval requests.
//!
//! Implement [`Sink`] to receive outputs. A [`SubscribedSink`] is a sink with its name and subscription.
//!
//! Outlast delivers each output at least once, under an id that never changes. A receiver that remembers ids processes
//! each output exactly once. [`crate::outbox`] decides what is due and which worker delivers it.
use crate::ResultFuture;
use crate::outbox::{FeedStart, SinkSubscription};
use outlast_views::SinkTopic;
use outlast_vocab::access::Principal;
use outlast_vocab::approval_link::PublicUrl;
use outlast_vocab::id::{ApprovalId, DeliveryId, OrgId, SessionId, TurnId};
use outlast_vocab::limits;
use outlast_vocab::policy::ApprovalRequirement;
use outlast_vocab::record::{Seq, TurnEnd};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::{Error, Hash, Kind, Millis};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The maximum length of a sink's name in bytes.
const NAME_BYTES: usize = 64;

/// Identifies an event of a turn. One record may contain several events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OutputPosition {
    /// The sequence number of the record.
    pub seq: Seq,
    /// The index of the event in the record.
    pub nth: u32,
}

/// The event that an output reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputEvent {
    /// A turn ended in this way.
    Ended(TurnEnd),
    /// A call waits for an approval.
    Approval(ApprovalNotice, Box<ApprovalRequest>),
}

impl OutputEvent {
    /// Returns the topic of the event.
    pub const fn topic(&self) -> SinkTopic {
        match self {
            Self::Ended(_) => SinkTopic::TurnEnded,
            Self::Approval(ApprovalNotice::Requested, _) => SinkTopic::ApprovalRequested,
            Self::Approval(ApprovalNotice::Reminded { .. }, _) => SinkTopic::ApprovalReminded,
            Self::Approval(ApprovalNotice::Escalated { .. }, _) => SinkTopic::ApprovalEscalated,
        }
    }
}

/// Why a sink is notified of an approval request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalNotice {
    /// The approval was requested.
    Requested,
    /// The request is still open.
    Reminded {
        /// The number of reminders that were due so far.
        number: u32,
    },
    /// More people may approve the call.
    Escalated {
        /// The people who were added.
        to: Vec<String>,
    },
}

/// A request for approval of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// Its id.
    pub id: ApprovalId,
    /// The fingerprint of what is approved: the tool definition, the arguments, their labels and the policy.
    pub form: Hash,
    /// The call, exactly as it will run.
    pub call: PreparedCall,
    /// What the policy rule says about the approvers.
    pub requirement: ApprovalRequirement,
    /// The people who may approve it now. If empty, everyone may.
    pub who: Vec<String>,
    /// When the model requested the call.
    pub since: Millis,
    /// When the request expires. It is denied then.
    pub expires: Option<Millis>,
    /// Links that decide the request, for a sink that wants them.
    pub links: Vec<ApproverLinks>,
}

/// The links with which one person decides a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApproverLinks {
    /// The person.
    pub by: Principal,
    /// Approves the call.
    pub approve: String,
    /// Denies the call.
    pub deny: String,
}

/// An event of a turn, for delivery to a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkOutput {
    /// The delivery id. It is derived from the sink, the turn and the moment, so it is the same for every attempt and
    /// process.
    pub id: DeliveryId,
    /// The organisation that owns the session.
    pub org: OrgId,
    /// The session.
    pub session: SessionId,
    /// The session key that the caller chose.
    pub key: Option<String>,
    /// The turn.
    pub turn: TurnId,
    /// The event within the turn.
    pub position: OutputPosition,
    /// When it happened.
    pub at: Millis,
    /// What happened.
    pub event: OutputEvent,
    /// The number of this attempt, starting at 1. An earlier attempt may have been received without a confirmation.
    pub attempt: u32,
    /// When this attempt started.
    pub sent: Millis,
}

/// Receives outputs.
pub trait Sink: Send + Sync {
    /// Returns a human-readable location without secrets.
    fn place(&self) -> String;

    /// Delivers an output. The delivery succeeded only if this returns `Ok`.
    ///
    /// After an error of class `retry`, Outlast tries again, after the pause that the error names, if any. After any
    /// other error, Outlast gives up on this output.
    fn deliver<'a>(&'a self, output: &'a SinkOutput) -> ResultFuture<'a, ()>;

    /// Sends a test message and returns the response. Fails like a delivery, and is never retried.
    fn send_test(&self, _id: DeliveryId, _now: Millis) -> ResultFuture<'_, String> {
        let detail = format!("only webhooks can be tested, and this sink is {}", self.place());
        Box::pin(async { Err(Error::new(Kind::InputInvalid, detail)) })
    }
}

/// A sink with its name and subscription.
///
/// # Example
///
/// ```
/// # mod outlast {
/// #     pub use {outlast_ports::ResultFuture, outlast_vocab::Error};
/// #     pub mod sink { pub use outlast_ports::sink::*; }
/// # }
/// use outlast::ResultFuture;
/// use outlast::sink::{Sink, SinkOutput, SubscribedSink};
///
/// /// Prints every turn that ends.
/// struct Log;
///
/// impl Sink for Log {
///     fn place(&self) -> String {
///         "standard output".to_owned()
///     }
///
///     fn deliver<'a>(&'a self, output: &'a SinkOutput) -> ResultFuture<'a, ()> {
///         Box::pin(async move {
///             // An attempt after a crash has the same id.
///             println!("{}: turn {} ended", output.id, output.turn);
///             Ok(())
///         })
///     }
/// }
///
/// # fn main() -> Result<(), outlast::Error> {
/// let log = SubscribedSink::new("log", Log)?.with_topics(["turn.ended"])?; // for `Builder::sink`
/// # drop(log);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SubscribedSink {
    /// Its name, its topics and its starting point.
    pub subscription: SinkSubscription,
    /// The destination.
    pub sink: Arc<dyn Sink>,
    /// The server to which approval links point, if the sink wants links.
    pub links: Option<PublicUrl>,
}

impl SubscribedSink {
    /// Creates a sink for the outputs of all turns that end after its first start.
    ///
    /// Delivery ids are derived from the name, so never change the name.
    pub fn new(name: impl Into<String>, sink: impl Sink + 'static) -> Result<Self, Error> {
        let name = name.into();
        limits::check("the name of a sink", name.len(), NAME_BYTES)?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || !name.bytes().all(fits) {
            let detail = format!("expected a sink's name of letters, digits, `-`, `_` and `.`, got `{name}`");
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        let subscription = SinkSubscription::to_ends(name, FeedStart::Now);
        Ok(Self { subscription, sink: Arc::new(sink), links: None })
    }

    /// Subscribes to these topics only: `turn.ended`, `approval.requested`, … ([`SinkTopic::ALL`]).
    pub fn with_topics<S: AsRef<str>>(mut self, names: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let on: Result<BTreeSet<SinkTopic>, Error> =
            names.into_iter().map(|name| name.as_ref().parse()).collect();
        self.subscription.on = on?;
        if self.subscription.on.is_empty() {
            let names = SinkTopic::ALL.map(SinkTopic::name).join(", ");
            let detail = format!("expected at least one event to deliver: {names}");
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        Ok(self)
    }

    /// Delivers only turns that ended in these ways: `answered`, `failed`, … ([`TurnEnd::NAMES`]).
    pub fn with_ends<S: AsRef<str>>(mut self, names: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let known: Vec<&str> = TurnEnd::NAMES.iter().copied().filter(|name| *name != JOINED_END).collect();
        let mut wanted = Vec::new();
        for name in names {
            let name = name.as_ref();
            if !known.contains(&name) {
                let detail = format!("expected outcomes of a turn ({}), got `{name}`", known.join(", "));
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
            wanted.push(name.to_owned());
        }
        if wanted.is_empty() {
            let detail = format!("expected at least one outcome of a turn: {}", known.join(", "));
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        self.subscription.ends = Some(wanted);
        Ok(self)
    }

    /// Adds links to approval requests with which the approvers decide. They point to this server. Everyone who reads
    /// the messages of this sink can decide in the approvers' names.
    #[must_use]
    pub fn with_links_at(mut self, server: PublicUrl) -> Self {
        self.links = Some(server);
        self
    }

    /// Also delivers turns that ended before the first start of the sink.
    #[must_use]
    pub fn from_the_beginning(mut self) -> Self {
        self.subscription.begins = FeedStart::Beginning;
        self
    }
}

/// The end of a turn whose input joined another turn. Only the output of the other turn is delivered.
const JOINED_END: &str = "joined";

impl SinkSubscription {
    /// Creates a subscription to the ends of all turns.
    pub fn to_ends(name: impl Into<String>, begins: FeedStart) -> Self {
        Self { name: name.into(), on: BTreeSet::from([SinkTopic::TurnEnded]), ends: None, begins }
    }

    /// Returns whether a turn that ended like this is delivered.
    pub fn wants_end(&self, end: &TurnEnd) -> bool {
        let name = end.name();
        self.on.contains(&SinkTopic::TurnEnded)
            && name != JOINED_END
            && self.ends.as_ref().is_none_or(|ends| ends.iter().any(|wanted| wanted == name))
    }
}
