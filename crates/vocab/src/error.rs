//! The one error of Outlast: what went wrong, what to do about it, where.
//!
//! [`Kind`] is a closed table: each kind has one stable code, one [`Class`] (the reaction), one HTTP status, and one
//! page under `docs/errors/` that `outlast explain CODE` prints. A kind without its page does not compile.
use crate::id::{CallId, EffectId, OrgId, ProcessId, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use std::{error::Error as StdError, fmt, str::FromStr, time::Duration};

/// What a caller can do next. Every kind has exactly one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Try the same thing again, with backoff.
    Retry,
    /// Stop the turn and wait for a person or a deploy.
    Park,
    /// The request itself is wrong; repeating it cannot help.
    Reject,
    /// We broke an invariant; stop and report.
    Bug,
}

impl Class {
    /// How the class is written in documents and on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Park => "park",
            Self::Reject => "reject",
            Self::Bug => "bug",
        }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $class:ident, $status:literal;)*) => {
        /// What went wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            /// Every kind, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The stable code, the same in every version.
            pub const fn code(self) -> &'static str { match self { $(Self::$name => $code),* } }

            /// The one reaction to this kind.
            pub const fn class(self) -> Class { match self { $(Self::$name => Class::$class),* } }

            /// The HTTP status of this kind.
            pub const fn status(self) -> u16 { match self { $(Self::$name => $status),* } }

            /// The page that explains it: what happened, why, what to do.
            pub const fn page(self) -> &'static str {
                match self { $(Self::$name => include_str!(concat!("../../../docs/errors/", $code, ".md"))),* }
            }
        }
    };
}

kinds! {
    /// A string is not an id of the kind that was asked for.
    IdInvalid = "id.invalid", Reject, 400;
    /// A value from a user or a file does not have the form it must have.
    InputInvalid = "input.invalid", Reject, 400;
    /// An idempotency key was used before with other content.
    InputKeyReused = "input.key_reused", Reject, 409;
    /// A named limit would be exceeded.
    LimitExceeded = "limit.exceeded", Reject, 413;
    /// As many inputs wait for a session as may.
    QueueFull = "queue.full", Retry, 429;
    /// The configuration does not parse or contradicts itself.
    ConfigInvalid = "config.invalid", Reject, 400;
    /// No agent has this name.
    AgentNotFound = "agent.not_found", Reject, 404;
    /// A harness that another layer stands on is not there.
    HarnessNotFound = "harness.not_found", Reject, 404;
    /// A harness stands on itself, directly or through others.
    HarnessCycle = "harness.cycle", Reject, 400;
    /// An agent switches on a capability that nobody defined.
    CapabilityUnknown = "capability.unknown", Reject, 400;
    /// A port that the start-up needs is not configured.
    PortMissing = "port.missing", Reject, 500;
    /// A tool asks for a service that nobody granted.
    ServiceMissing = "service.missing", Reject, 500;
    /// The configuration a turn began with needs a model or a tool that this program does not have.
    PackageUnavailable = "package.unavailable", Park, 409;
    /// Reading or writing a file, a pipe or the terminal failed.
    IoFailed = "io.failed", Reject, 500;

    /// No session has this id or key.
    SessionNotFound = "session.not_found", Reject, 404;
    /// Other sessions were forked from this one and still need its history.
    SessionHasForks = "session.has_forks", Reject, 409;
    /// A turn of the session is under way.
    SessionBusy = "session.busy", Reject, 409;
    /// Another input came to the session before the one that was to be next.
    SessionMoved = "session.moved", Reject, 409;
    /// No turn has this id.
    TurnNotFound = "turn.not_found", Reject, 404;
    /// A turn was claimed again and again without progress and has been closed.
    TurnSealed = "turn.sealed", Park, 409;
    /// Something changed while the turn read it; it is driven again.
    TurnRaced = "turn.raced", Retry, 409;
    /// A turn was cancelled.
    TurnCancelled = "turn.cancelled", Reject, 409;
    /// A turn that ended so cannot be retried.
    TurnNotRetryable = "turn.not_retryable", Reject, 409;
    /// Later turns follow the turn that is to be retried.
    TurnSuperseded = "turn.superseded", Reject, 409;
    /// The session has no message at this place.
    NodeNotFound = "node.not_found", Reject, 404;

    /// Replay asked for something other than what the journal recorded.
    JournalDiverged = "journal.diverged", Park, 409;
    /// The same call came back with other arguments.
    CallChanged = "call.changed", Park, 409;
    /// A stored record does not decode, or its hash does not fit.
    RecordCorrupt = "record.corrupt", Park, 500;
    /// A stored record was written by a newer version.
    RecordTooNew = "record.too_new", Park, 500;
    /// An envelope's subject is not an effect.
    EnvelopeSubject = "envelope.subject", Reject, 400;
    /// An envelope's effect id is blank.
    EnvelopeEffectId = "envelope.effect_id", Reject, 400;
    /// An envelope's kind differs from its command.
    EnvelopeKind = "envelope.kind", Reject, 400;
    /// An envelope has no replay key.
    EnvelopeReplayKey = "envelope.replay_key", Reject, 400;

    /// Another worker holds the session; ours is stale.
    LeaseLost = "lease.lost", Retry, 409;
    /// A settle names a claim that is not the open one.
    ClaimMismatch = "claim.mismatch", Bug, 409;
    /// A call has no outcome that could be settled.
    ClaimNotFound = "claim.not_found", Reject, 404;
    /// This host keeps nothing, and what was asked for needs a durable one.
    HostNotDurable = "host.not_durable", Reject, 400;

    /// The database was written by a newer version.
    StoreTooNew = "store.too_new", Reject, 500;
    /// The database is damaged or is no database.
    StoreCorrupt = "store.corrupt", Park, 500;
    /// The database cannot be written.
    StoreReadOnly = "store.read_only", Reject, 503;
    /// The disk is full.
    StoreFull = "store.full", Retry, 507;
    /// Another process kept the database locked for too long.
    StoreBusy = "store.busy", Retry, 503;
    /// The disk failed to keep what it was given; the store stopped.
    StoreFailed = "store.failed", Park, 503;
    /// No blob has this hash.
    BlobNotFound = "blob.not_found", Park, 404;

    /// No provider serves this model.
    ModelUnknown = "model.unknown", Reject, 400;
    /// The provider is overloaded or cannot be reached.
    ModelUnavailable = "model.unavailable", Retry, 503;
    /// The stream went silent for too long.
    ModelStalled = "model.stalled", Retry, 504;
    /// The stream ended before the answer did.
    ModelCut = "model.cut", Retry, 502;
    /// The provider refuses the request as it is.
    ModelRejected = "model.rejected", Reject, 400;
    /// The provider has no key, or does not accept the one it was given.
    ModelUnauthorized = "model.unauthorized", Park, 401;
    /// The account at the provider has no credit left.
    ModelNoCredit = "model.no_credit", Park, 402;
    /// The conversation is longer than the model can be shown.
    ModelContextExceeded = "model.context_exceeded", Reject, 413;
    /// The answer of a turn does not fit the contract that its input carried.
    OutputInvalid = "output.invalid", Reject, 422;
    /// A rehearsal script does not parse.
    ScriptInvalid = "script.invalid", Reject, 400;
    /// A rehearsal script asks for what the session does not have.
    ScriptMismatch = "script.mismatch", Reject, 409;

    /// The model asked for a tool that is not in the catalogue.
    ToolUnknown = "tool.unknown", Reject, 400;
    /// Two tools have the same name.
    ToolDuplicate = "tool.duplicate", Reject, 400;
    /// The model's arguments do not fit the tool's schema.
    ToolArgsInvalid = "tool.args_invalid", Reject, 400;
    /// The tool reported a failure that repeating cannot help.
    ToolFailed = "tool.failed", Reject, 502;
    /// The tool reported a failure that may pass.
    ToolUnavailable = "tool.unavailable", Retry, 503;
    /// The tool panicked.
    ToolPanicked = "tool.panicked", Retry, 500;
    /// The tool did not finish within its deadline.
    ToolTimedOut = "tool.timed_out", Retry, 504;
    /// The turn was cancelled while the tool ran.
    ToolCancelled = "tool.cancelled", Reject, 409;
    /// A rule of the agent's policy forbids a call.
    PolicyDenied = "policy.denied", Reject, 403;
    /// A rule of the agent's policy ends the turn.
    PolicyInterrupted = "policy.interrupted", Reject, 403;
    /// Whoever decides for the agent's policy could not, so it is forbidden.
    PolicyFailed = "policy.failed", Reject, 403;
    /// The payment authority will not pay.
    PaymentRefused = "payment.refused", Reject, 402;
    /// The payment authority does not answer.
    PaymentUnavailable = "payment.unavailable", Retry, 503;
    /// The options, the state or the input of a plug-in do not fit it.
    PluginInvalid = "plugin.invalid", Reject, 400;
    /// No plug-in of this program has this name, or brings this capability.
    PluginUnknown = "plugin.unknown", Reject, 400;
    /// The agent names a hook that nobody provides.
    HookMissing = "hook.missing", Reject, 500;
    /// A hook failed, or did not answer in time.
    HookFailed = "hook.failed", Reject, 502;
    /// A hook refuses a call, or an answer again and again.
    HookRefused = "hook.refused", Reject, 403;
    /// Somebody was asked to approve a call, and it was not approved.
    ApprovalDenied = "approval.denied", Reject, 403;
    /// Nothing waits for this approval.
    ApprovalNotFound = "approval.not_found", Reject, 404;
    /// Somebody who may not approve this tried to.
    ApprovalForbidden = "approval.forbidden", Reject, 403;
    /// A link that decides a question was not made by this server, or was altered.
    LinkInvalid = "link.invalid", Reject, 404;
    /// A link counts no more because its time is over.
    LinkExpired = "link.expired", Reject, 410;
    /// What a link decides is decided.
    LinkUsed = "link.used", Reject, 409;
    /// Nothing is approved for a session under this id.
    GrantNotFound = "grant.not_found", Reject, 404;
    /// A budget has not enough left for what was asked.
    BudgetExceeded = "budget.exceeded", Reject, 402;
    /// A rate has no room for a call, and its calls do not wait for that long.
    RateExceeded = "rate.exceeded", Reject, 429;
    /// Nobody can tell whether a rate has room for a call.
    RateUnavailable = "rate.unavailable", Reject, 503;
    /// The process died while an at-most-once tool ran: nobody knows whether it happened.
    ToolOutcomeUnknown = "tool.outcome_unknown", Park, 409;
    /// A call was left without a result when its branch was forked or rewound.
    ToolInterrupted = "tool.interrupted", Reject, 409;
    /// A durable step has no name, or a name that its call used before.
    StepNameInvalid = "step.name_invalid", Reject, 400;

    /// Commands cannot be kept behind walls here.
    SandboxUnavailable = "sandbox.unavailable", Reject, 503;
    /// The rules of egress do not let a tool go there.
    EgressDenied = "egress.denied", Reject, 403;
    /// Somebody outside does not answer, or not to the end.
    EgressUnreachable = "egress.unreachable", Retry, 502;

    /// An MCP server cannot be started or reached, or does not answer.
    McpUnavailable = "mcp.unavailable", Retry, 503;
    /// A tool of an MCP server is not what was accepted.
    McpChanged = "mcp.changed", Reject, 409;

    /// No wait has this key, or its signature is wrong.
    WaitNotFound = "wait.not_found", Reject, 404;
    /// Nobody resolved the wait before its deadline.
    WaitTimedOut = "wait.timed_out", Reject, 408;
    /// The wait was cancelled.
    WaitCancelled = "wait.cancelled", Reject, 409;

    /// A file is no archive of a session, or not a whole one.
    ArchiveInvalid = "archive.invalid", Reject, 400;
    /// An archive was written by a newer version.
    ArchiveTooNew = "archive.too_new", Reject, 400;
    /// The session of an archive is here already.
    ArchiveExists = "archive.exists", Reject, 409;
    /// A replay asked for something other than what its archive has.
    ReplayDiverged = "replay.diverged", Reject, 409;
    /// A re-run did not repeat a call that must happen at most once.
    CallNotRepeated = "call.not_repeated", Reject, 409;

    /// The session has no such attachment.
    AttachmentNotFound = "attachment.not_found", Reject, 404;
    /// An attachment has neither bytes nor a reference.
    AttachmentEmpty = "attachment.empty", Reject, 400;
    /// An attachment's media type cannot be stored.
    AttachmentMediaType = "attachment.media_type", Reject, 415;
    /// The place where contents of attachments lie does not answer.
    AttachmentUnavailable = "attachment.unavailable", Retry, 503;
    /// Content was deleted as unused while it was being attached.
    AttachmentSwept = "attachment.swept", Retry, 409;
    /// The content of an attachment does not fit its hash.
    AttachmentCorrupt = "attachment.corrupt", Park, 500;

    /// No organisation has this id or name.
    OrgNotFound = "org.not_found", Reject, 404;
    /// What was asked for takes more than whoever asks may do.
    AccessDenied = "access.denied", Reject, 403;
    /// An API key is not one of this database, or counts no more.
    KeyInvalid = "key.invalid", Reject, 401;
    /// No API key has this id.
    KeyNotFound = "key.not_found", Reject, 404;

    /// The server has no such route.
    RouteNotFound = "route.not_found", Reject, 404;
    /// A route does not know this method.
    RouteMethod = "route.method", Reject, 405;
    /// The body of a request is not of a media type that the route takes.
    BodyMediaType = "body.media_type", Reject, 415;
    /// A request came by a name that is not the server's, or from a page of another site.
    OriginDenied = "origin.denied", Reject, 403;
    /// A configuration is not the version that the request would replace.
    ConfigChanged = "config.changed", Reject, 412;
    /// The server does as much at once as it may.
    ServerBusy = "server.busy", Retry, 503;
    /// One caller has as much under way as one may.
    CallerBusy = "caller.busy", Retry, 429;
    /// The server that a command is sent to does not answer.
    ServerUnreachable = "server.unreachable", Retry, 502;
    /// What answers is no server of this version.
    ServerAnswerInvalid = "server.answer_invalid", Reject, 502;
    /// A command works on a file, and a server is named.
    CommandLocal = "command.local", Reject, 400;
    /// A parameter of another provider's API means something that an agent does not take from its caller.
    ParameterUnsupported = "parameter.unsupported", Reject, 400;
    /// What a reader was told of a reply is not how it went on.
    StreamRetracted = "stream.retracted", Retry, 409;
    /// A turn did not come to its end while a request waited for it.
    TurnWaits = "turn.waits", Park, 424;
    /// A key has sent more requests than it may, or an address more wrong keys.
    RequestLimited = "request.limited", Retry, 429;

    /// A sink did not take an output.
    DeliveryFailed = "delivery.failed", Retry, 502;
    /// A sink says that it takes no outputs any more.
    DeliveryGone = "delivery.gone", Reject, 410;
    /// A collector of telemetry does not take what it was sent, and will not.
    DeliveryRefused = "delivery.refused", Reject, 502;
    /// No sink has this name, or it has no such delivery.
    DeliveryNotFound = "delivery.not_found", Reject, 404;

    /// An invariant of Outlast does not hold.
    Internal = "internal", Bug, 500;
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(code: &str) -> Result<Self, Error> {
        Self::ALL.iter().copied().find(|kind| kind.code() == code).ok_or_else(|| {
            Error::new(
                Self::InputInvalid,
                format!("no error has the code `{code}`; `outlast explain` lists them"),
            )
        })
    }
}

impl Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.code())
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        <std::borrow::Cow<'de, str>>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Ids that place an error in the causal chain; absent means "not that far yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct At {
    /// The tenant.
    pub org: Option<OrgId>,
    /// The session.
    pub session: Option<SessionId>,
    /// The turn.
    pub turn: Option<TurnId>,
    /// The effect.
    pub effect: Option<EffectId>,
    /// The tool call.
    pub call: Option<CallId>,
    /// The process.
    pub process: Option<ProcessId>,
}

/// One word wide, so `Result<T, Error>` stays small on the happy path.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    at: At,
    detail: String,
    policy: Option<String>,
    request: Option<String>,
    retry_after: Option<Duration>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of this kind; the detail says what was expected and what was found.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self(Box::new(Inner {
            kind,
            at: At::default(),
            detail,
            policy: None,
            request: None,
            retry_after: None,
            source: None,
        }))
    }

    /// Places the error. Ids that are known already stay.
    #[must_use]
    pub fn at(mut self, at: At) -> Self {
        let known = self.0.at;
        self.0.at = At {
            org: known.org.or(at.org),
            session: known.session.or(at.session),
            turn: known.turn.or(at.turn),
            effect: known.effect.or(at.effect),
            call: known.call.or(at.call),
            process: known.process.or(at.process),
        };
        self
    }

    /// Names the policy that decided.
    #[must_use]
    pub fn decided_by(mut self, policy: impl Into<String>) -> Self {
        self.0.policy = Some(policy.into());
        self
    }

    /// Names the request, as the log of who answered it does.
    #[must_use]
    pub fn asked_by(mut self, request: impl Into<String>) -> Self {
        self.0.request = Some(request.into());
        self
    }

    /// Says how long to wait before trying again, where the other side said so.
    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.0.retry_after = Some(pause);
        self
    }

    /// Keeps the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// What a caller can do next.
    pub fn class(&self) -> Class {
        self.0.kind.class()
    }

    /// Where it went wrong.
    pub fn place(&self) -> At {
        self.0.at
    }

    /// What was expected and what was found, for people.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The policy that decided, where one did.
    pub fn policy(&self) -> Option<&str> {
        self.0.policy.as_deref()
    }

    /// How long the other side asked to wait, where it did.
    pub fn pause(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The id of the request, where that is known.
    pub fn request(&self) -> Option<&str> {
        self.0.request.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind.code(), self.0.detail)?;
        let At { session, turn, .. } = self.0.at;
        match (turn, session) {
            (Some(turn), _) => write!(f, " (in {turn})"),
            (None, Some(session)) => write!(f, " (in {session})"),
            (None, None) => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|cause| cause as _)
    }
}

/// An error as a record keeps it and a model is told of it: kind, detail and the policy that decided, without ids or causes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What went wrong.
    pub code: Kind,
    /// What was expected and what was found.
    pub detail: String,
    /// The policy that decided, where one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Box<str>>,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(code: Kind, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), policy: None }
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self { policy: error.policy().map(Into::into), ..Self::new(error.kind(), error.detail()) }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let error = Self::new(failure.code, failure.detail);
        match failure.policy {
            Some(policy) => error.decided_by(policy),
            None => error,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.code(), self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_parse_back() {
        for kind in Kind::ALL {
            assert_eq!(kind.code().parse::<Kind>().unwrap(), *kind);
        }
        assert_eq!("no.such".parse::<Kind>().unwrap_err().kind(), Kind::InputInvalid);
    }

    #[test]
    fn every_page_is_headed_by_its_code_and_class() {
        for kind in Kind::ALL {
            let head = format!(
                "# {}\n\nClass: `{}`. HTTP status: {}.\n",
                kind.code(),
                kind.class().name(),
                kind.status()
            );
            assert!(
                kind.page().starts_with(&head),
                "docs/errors/{}.md must begin with:\n{head}",
                kind.code()
            );
        }
    }

    #[test]
    fn an_error_says_what_and_where() {
        let at = At { turn: Some(TurnId::from_u128(1)), ..At::default() };
        let error = Error::new(Kind::LeaseLost, "fence 4 is behind 5").at(at);
        assert_eq!(
            error.to_string(),
            "lease.lost: fence 4 is behind 5 (in trn_00000000000000000000000000000001)"
        );
    }
}
