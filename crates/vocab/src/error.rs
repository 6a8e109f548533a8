//! The error type of Outlast: what went wrong, how to react, and where.
//!
//! [`Kind`] is a closed table. Each kind has one stable code, one [`Class`] (the reaction), one HTTP status,
//! and one page under `docs/errors/` that `outlast explain CODE` prints. A kind without a page does not
//! compile.
use crate::id::{CallId, EffectId, OrgId, ProcessId, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use std::{error::Error as StdError, fmt, str::FromStr, time::Duration};

/// The reaction to an error. Every kind has exactly one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Try the same request again, with backoff.
    Retry,
    /// Stop the turn and wait for a person or a deploy.
    Park,
    /// The request itself is wrong, so a retry cannot help.
    Reject,
    /// An invariant of Outlast is broken: stop and report it.
    Bug,
}

impl Class {
    /// Returns the name of the class in documents and on the wire.
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

            /// Returns the stable code, which is the same in every version.
            pub const fn code(self) -> &'static str { match self { $(Self::$name => $code),* } }

            /// Returns the reaction to this kind.
            pub const fn class(self) -> Class { match self { $(Self::$name => Class::$class),* } }

            /// Returns the HTTP status of this kind.
            pub const fn status(self) -> u16 { match self { $(Self::$name => $status),* } }

            /// Returns the page that explains it: what happened, why, what to do.
            pub const fn page(self) -> &'static str {
                match self { $(Self::$name => include_str!(concat!("../../../docs/errors/", $code, ".md"))),* }
            }
        }
    };
}

kinds! {
    /// A string is not an id of the expected kind.
    IdInvalid = "id.invalid", Reject, 400;
    /// A value from a user or a file is malformed.
    InputInvalid = "input.invalid", Reject, 400;
    /// An idempotency key was already used with other content.
    InputKeyReused = "input.key_reused", Reject, 409;
    /// A named limit would be exceeded.
    LimitExceeded = "limit.exceeded", Reject, 413;
    /// The queue of inputs of a session is full.
    QueueFull = "queue.full", Retry, 429;
    /// The configuration does not parse or contradicts itself.
    ConfigInvalid = "config.invalid", Reject, 400;
    /// No agent has this name.
    AgentNotFound = "agent.not_found", Reject, 404;
    /// A layer extends a harness that does not exist.
    HarnessNotFound = "harness.not_found", Reject, 404;
    /// A harness extends itself, directly or through others.
    HarnessCycle = "harness.cycle", Reject, 400;
    /// An agent enables an undefined capability.
    CapabilityUnknown = "capability.unknown", Reject, 400;
    /// A port that is required at start-up is not configured.
    PortMissing = "port.missing", Reject, 500;
    /// A tool uses a service that it was not granted.
    ServiceMissing = "service.missing", Reject, 500;
    /// The configuration of a turn needs a model or a tool that this program does not have.
    PackageUnavailable = "package.unavailable", Park, 409;
    /// Reading or writing a file, a pipe or the terminal failed.
    IoFailed = "io.failed", Reject, 500;

    /// No session has this id or key.
    SessionNotFound = "session.not_found", Reject, 404;
    /// Other sessions were forked from this one and still need its history.
    SessionHasForks = "session.has_forks", Reject, 409;
    /// A turn of the session is running.
    SessionBusy = "session.busy", Reject, 409;
    /// Another input arrived in the session before the expected one.
    SessionMoved = "session.moved", Reject, 409;
    /// No turn has this id.
    TurnNotFound = "turn.not_found", Reject, 404;
    /// A turn was claimed again and again without progress and has been closed.
    TurnSealed = "turn.sealed", Park, 409;
    /// Data changed while the turn read it. The turn is driven again.
    TurnRaced = "turn.raced", Retry, 409;
    /// A turn was cancelled.
    TurnCancelled = "turn.cancelled", Reject, 409;
    /// The client of the turn abandoned it.
    TurnAbandoned = "turn.abandoned", Reject, 410;
    /// The turn ended in a way that cannot be retried.
    TurnNotRetryable = "turn.not_retryable", Reject, 409;
    /// Later turns follow the turn to be retried.
    TurnSuperseded = "turn.superseded", Reject, 409;
    /// The session has no message at this position.
    NodeNotFound = "node.not_found", Reject, 404;

    /// A replay asked for something other than what the journal records.
    JournalDiverged = "journal.diverged", Park, 409;
    /// The same call was repeated with other arguments.
    CallChanged = "call.changed", Park, 409;
    /// A stored record does not decode, or its hash does not match.
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

    /// Another worker holds the lease on the session.
    LeaseLost = "lease.lost", Retry, 409;
    /// A settlement names a claim that is not the open one.
    ClaimMismatch = "claim.mismatch", Bug, 409;
    /// The call has no outcome that can be settled.
    ClaimNotFound = "claim.not_found", Reject, 404;
    /// The operation needs a durable host, and this host stores nothing.
    HostNotDurable = "host.not_durable", Reject, 400;

    /// The database was written by a newer version.
    StoreTooNew = "store.too_new", Reject, 500;
    /// The database is corrupt, or the file is not a database.
    StoreCorrupt = "store.corrupt", Park, 500;
    /// The database is read-only.
    StoreReadOnly = "store.read_only", Reject, 503;
    /// The disk is full.
    StoreFull = "store.full", Retry, 507;
    /// Another process held the database lock for too long.
    StoreBusy = "store.busy", Retry, 503;
    /// The disk failed to store data, and the store stopped.
    StoreFailed = "store.failed", Park, 503;
    /// No blob has this hash.
    BlobNotFound = "blob.not_found", Park, 404;

    /// No provider serves this model.
    ModelUnknown = "model.unknown", Reject, 400;
    /// The provider is overloaded or unreachable.
    ModelUnavailable = "model.unavailable", Retry, 503;
    /// The stream was silent for too long.
    ModelStalled = "model.stalled", Retry, 504;
    /// The stream ended before the reply was complete.
    ModelCut = "model.cut", Retry, 502;
    /// The provider rejects the request.
    ModelRejected = "model.rejected", Reject, 400;
    /// The provider has no API key, or rejects the one it was given.
    ModelUnauthorized = "model.unauthorized", Park, 401;
    /// The account at the provider has no credit left.
    ModelNoCredit = "model.no_credit", Park, 402;
    /// The conversation exceeds the model's context window.
    ModelContextExceeded = "model.context_exceeded", Reject, 413;
    /// The answer of a turn does not match the contract of its input.
    OutputInvalid = "output.invalid", Reject, 422;
    /// A rehearsal script does not parse.
    ScriptInvalid = "script.invalid", Reject, 400;
    /// A rehearsal script asks for something that the session does not have.
    ScriptMismatch = "script.mismatch", Reject, 409;

    /// The model called a tool that is not in the catalogue.
    ToolUnknown = "tool.unknown", Reject, 400;
    /// Two tools have the same name.
    ToolDuplicate = "tool.duplicate", Reject, 400;
    /// The model's arguments do not match the tool's schema.
    ToolArgsInvalid = "tool.args_invalid", Reject, 400;
    /// The tool failed permanently.
    ToolFailed = "tool.failed", Reject, 502;
    /// The tool failed temporarily.
    ToolUnavailable = "tool.unavailable", Retry, 503;
    /// The tool panicked.
    ToolPanicked = "tool.panicked", Retry, 500;
    /// The tool did not finish within its deadline.
    ToolTimedOut = "tool.timed_out", Retry, 504;
    /// The turn was cancelled while the tool ran.
    ToolCancelled = "tool.cancelled", Reject, 409;
    /// A rule of the agent's policy denies a call.
    PolicyDenied = "policy.denied", Reject, 403;
    /// A rule of the agent's policy ends the turn.
    PolicyInterrupted = "policy.interrupted", Reject, 403;
    /// The policy engine could not decide, so the request is denied.
    PolicyFailed = "policy.failed", Reject, 403;
    /// The payment authority refuses to pay.
    PaymentRefused = "payment.refused", Reject, 402;
    /// The payment authority does not respond.
    PaymentUnavailable = "payment.unavailable", Retry, 503;
    /// The options, the state or the input of a plug-in are invalid.
    PluginInvalid = "plugin.invalid", Reject, 400;
    /// No plug-in of this program has this name or provides this capability.
    PluginUnknown = "plugin.unknown", Reject, 400;
    /// The agent uses a hook that is not registered.
    HookMissing = "hook.missing", Reject, 500;
    /// A hook failed or timed out.
    HookFailed = "hook.failed", Reject, 502;
    /// A hook refuses a call, or repeatedly refuses an answer.
    HookRefused = "hook.refused", Reject, 403;
    /// A call needed an approval and was not approved.
    ApprovalDenied = "approval.denied", Reject, 403;
    /// No question is open under this approval id.
    ApprovalNotFound = "approval.not_found", Reject, 404;
    /// The principal may not answer this approval question.
    ApprovalForbidden = "approval.forbidden", Reject, 403;
    /// An approval link was not created by this server, or was altered.
    LinkInvalid = "link.invalid", Reject, 404;
    /// An approval link has expired.
    LinkExpired = "link.expired", Reject, 410;
    /// The question of an approval link is already decided.
    LinkUsed = "link.used", Reject, 409;
    /// The session has no grant with this id.
    GrantNotFound = "grant.not_found", Reject, 404;
    /// A budget is too low for the request.
    BudgetExceeded = "budget.exceeded", Reject, 402;
    /// A rate limit is exhausted, and the wait would be too long.
    RateExceeded = "rate.exceeded", Reject, 429;
    /// The rate limiter does not respond.
    RateUnavailable = "rate.unavailable", Reject, 503;
    /// The process died while an at-most-once tool ran, so it is unknown whether the call happened.
    ToolOutcomeUnknown = "tool.outcome_unknown", Park, 409;
    /// A call had no result when its branch was forked or rewound.
    ToolInterrupted = "tool.interrupted", Reject, 409;
    /// A durable step has no name, or its call already used the name.
    StepNameInvalid = "step.name_invalid", Reject, 400;

    /// Commands cannot be sandboxed on this machine.
    SandboxUnavailable = "sandbox.unavailable", Reject, 503;
    /// The egress rules do not allow a tool to reach this address.
    EgressDenied = "egress.denied", Reject, 403;
    /// An external service did not respond, or not completely.
    EgressUnreachable = "egress.unreachable", Retry, 502;

    /// An MCP server cannot be started or reached, or does not respond.
    McpUnavailable = "mcp.unavailable", Retry, 503;
    /// A tool of an MCP server differs from the accepted definition.
    McpChanged = "mcp.changed", Reject, 409;

    /// No wait has this key, or its signature is wrong.
    WaitNotFound = "wait.not_found", Reject, 404;
    /// The wait was not resolved before its deadline.
    WaitTimedOut = "wait.timed_out", Reject, 408;
    /// The wait was cancelled.
    WaitCancelled = "wait.cancelled", Reject, 409;

    /// A file is not an archive of a session, or is incomplete.
    ArchiveInvalid = "archive.invalid", Reject, 400;
    /// An archive was written by a newer version.
    ArchiveTooNew = "archive.too_new", Reject, 400;
    /// The session of an archive already exists.
    ArchiveExists = "archive.exists", Reject, 409;
    /// A replay asked for something other than what its archive contains.
    ReplayDiverged = "replay.diverged", Reject, 409;
    /// A re-run did not repeat a call that must happen at most once.
    CallNotRepeated = "call.not_repeated", Reject, 409;

    /// The session has no such attachment.
    AttachmentNotFound = "attachment.not_found", Reject, 404;
    /// An attachment has neither bytes nor a reference.
    AttachmentEmpty = "attachment.empty", Reject, 400;
    /// An attachment's media type cannot be stored.
    AttachmentMediaType = "attachment.media_type", Reject, 415;
    /// The storage for attachment content does not respond.
    AttachmentUnavailable = "attachment.unavailable", Retry, 503;
    /// Content was deleted as unused while it was being attached.
    AttachmentSwept = "attachment.swept", Retry, 409;
    /// The content of an attachment does not match its hash.
    AttachmentCorrupt = "attachment.corrupt", Park, 500;

    /// No organisation has this id or name.
    OrgNotFound = "org.not_found", Reject, 404;
    /// The principal lacks the permission for the request.
    AccessDenied = "access.denied", Reject, 403;
    /// An API key is unknown to this database, expired or revoked.
    KeyInvalid = "key.invalid", Reject, 401;
    /// No API key has this id.
    KeyNotFound = "key.not_found", Reject, 404;

    /// The server has no such route.
    RouteNotFound = "route.not_found", Reject, 404;
    /// The route does not support this method.
    RouteMethod = "route.method", Reject, 405;
    /// The media type of a request body is not supported by the route.
    BodyMediaType = "body.media_type", Reject, 415;
    /// The host of a request is not the server's, or a page of another site sent it.
    OriginDenied = "origin.denied", Reject, 403;
    /// The stored configuration is not the version that the request replaces.
    ConfigChanged = "config.changed", Reject, 412;
    /// The server is at its limit of concurrent work.
    ServerBusy = "server.busy", Retry, 503;
    /// A caller is at its limit of concurrent requests.
    CallerBusy = "caller.busy", Retry, 429;
    /// The server of a command does not respond.
    ServerUnreachable = "server.unreachable", Retry, 502;
    /// The response does not come from a server of this version.
    ServerAnswerInvalid = "server.answer_invalid", Reject, 502;
    /// The command works on local files and cannot run on a server.
    CommandLocal = "command.local", Reject, 400;
    /// A parameter of another provider's API is not supported, because agents do not accept it from their
    /// callers.
    ParameterUnsupported = "parameter.unsupported", Reject, 400;
    /// A reply continued differently from what its reader had received.
    StreamRetracted = "stream.retracted", Retry, 409;
    /// The turn did not end while a request waited for it.
    TurnWaits = "turn.waits", Park, 424;
    /// A key exceeded its request rate, or an address its rate of invalid keys.
    RequestLimited = "request.limited", Retry, 429;

    /// A sink did not accept an output.
    DeliveryFailed = "delivery.failed", Retry, 502;
    /// A sink no longer accepts outputs.
    DeliveryGone = "delivery.gone", Reject, 410;
    /// A telemetry collector permanently rejects the data.
    DeliveryRefused = "delivery.refused", Reject, 502;
    /// No sink has this name, or it has no such delivery.
    DeliveryNotFound = "delivery.not_found", Reject, 404;

    /// An invariant of Outlast is broken.
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

/// The ids of an error's place. An absent id means that the error happened before it was known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorPlace {
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

/// The error type. It is one word wide, so `Result<T, Error>` stays small on the happy path.
#[derive(Debug)]
pub struct Error(Box<ErrorInner>);

#[derive(Debug)]
struct ErrorInner {
    kind: Kind,
    at: ErrorPlace,
    detail: String,
    policy: Option<String>,
    request: Option<String>,
    retry_after: Option<Duration>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Creates an error of this kind. The detail says what was expected and what was found.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self(Box::new(ErrorInner {
            kind,
            at: ErrorPlace::default(),
            detail,
            policy: None,
            request: None,
            retry_after: None,
            source: None,
        }))
    }

    /// Adds the place of the error. Ids that are already set stay.
    #[must_use]
    pub fn at(mut self, at: ErrorPlace) -> Self {
        let known = self.0.at;
        self.0.at = ErrorPlace {
            org: known.org.or(at.org),
            session: known.session.or(at.session),
            turn: known.turn.or(at.turn),
            effect: known.effect.or(at.effect),
            call: known.call.or(at.call),
            process: known.process.or(at.process),
        };
        self
    }

    /// Sets the policy that decided.
    #[must_use]
    pub fn decided_by(mut self, policy: impl Into<String>) -> Self {
        self.0.policy = Some(policy.into());
        self
    }

    /// Sets the request id, as it appears in the log of the server that answered.
    #[must_use]
    pub fn asked_by(mut self, request: impl Into<String>) -> Self {
        self.0.request = Some(request.into());
        self
    }

    /// Sets how long to wait before a retry, if the other side said so.
    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.0.retry_after = Some(pause);
        self
    }

    /// Sets the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Returns what went wrong.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Returns the reaction to the error.
    pub fn class(&self) -> Class {
        self.0.kind.class()
    }

    /// Returns where the error happened.
    pub fn place(&self) -> ErrorPlace {
        self.0.at
    }

    /// Returns what was expected and what was found, for people.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Returns the policy that decided, if one did.
    pub fn policy(&self) -> Option<&str> {
        self.0.policy.as_deref()
    }

    /// Returns how long the other side asked to wait.
    pub fn pause(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Returns the id of the request, if it is known.
    pub fn request(&self) -> Option<&str> {
        self.0.request.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind.code(), self.0.detail)?;
        let ErrorPlace { session, turn, .. } = self.0.at;
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

/// An error in the form that records store and models read: kind, detail and the policy that decided, without
/// ids or causes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What went wrong.
    pub code: Kind,
    /// The expected and the actual value, for people.
    pub detail: String,
    /// The policy that decided, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Box<str>>,
}

impl Failure {
    /// Creates a failure of this kind.
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
    fn every_error_page_shows_code_and_class() {
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
    fn error_message_has_code_detail_and_place() {
        let at = ErrorPlace { turn: Some(TurnId::from_u128(1)), ..ErrorPlace::default() };
        let error = Error::new(Kind::LeaseLost, "fence 4 is behind 5").at(at);
        assert_eq!(
            error.to_string(),
            "lease.lost: fence 4 is behind 5 (in trn_00000000000000000000000000000001)"
        );
    }
}
