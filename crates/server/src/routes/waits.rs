//! What turns wait for from outside: completions, approvals, and calls with an unknown outcome.
use crate::caller::{Approves, Caller, Operates, Reads, Runs};
use crate::cursor::Cursors;
use crate::extract::{Asked, At, Said};
use crate::page::{self, Most, Page};
use crate::problem::{Answer, Problems};
use crate::shared::Shared;
use axum::Json;
use axum::extract::State;
use outlast_ports::store::{Resolved, UnknownCall};
use outlast_ports::votes::{Vote, Voted};
use outlast_runtime::approvals::{Place, Question};
use outlast_vocab::cost::Cost;
use outlast_vocab::id::ApprovalId;
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::message::ToolResult;
use outlast_vocab::policy::{Approval, Ask, Verdict};
use outlast_vocab::record;
use outlast_vocab::wait::{CompletionKey, Resolution};
use outlast_vocab::{CallId, Error, Failure, Hash, Kind, Millis, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(resolve))
        .routes(routes!(approvals))
        .routes(routes!(approval, decide))
        .routes(routes!(unknown))
        .routes(routes!(settle))
}

/// How something ended that a turn waits for.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// With this value.
    #[schema(value_type = Object)]
    Ok(Value),
    /// With an error, in words.
    Error(String),
    /// Nobody came in time.
    Timeout,
    /// It was called off.
    Cancelled,
}

impl From<Ending> for Resolution {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Ok(value) => Self::Ok(value),
            Ending::Error(message) => Self::Err(Failure::new(Kind::ToolFailed, message)),
            Ending::Timeout => Self::Timeout,
            Ending::Cancelled => Self::Cancelled,
        }
    }
}

/// The word that counts.
#[derive(Serialize, ToSchema)]
pub(crate) struct First {
    /// Whether it is the one that was just given.
    yours: bool,
    /// What was said first.
    #[schema(value_type = Object)]
    first: Resolution,
}

impl From<Resolved> for First {
    fn from(Resolved { first, yours }: Resolved) -> Self {
        Self { yours, first }
    }
}

/// Finishes a call or an event that a turn waits for, or will wait for. The first word counts; who comes later is told it.
#[utoipa::path(post, path = "/v1/completions/{key}", tag = "waits", params(("key" = String, Path)),
    request_body = Ending, responses((status = 200, body = First), Problems), security(("key" = ["run"])))]
async fn resolve(
    caller: Caller<Runs>,
    At(key): At<CompletionKey>,
    Said(ending): Said<Ending>,
) -> Answer<Json<First>> {
    Ok(Json(caller.runtime.resolve(&key, ending.into()).await?.into()))
}

/// A call that waits for somebody's word.
#[derive(Serialize, ToSchema)]
pub(crate) struct Pending {
    /// What the question is called.
    #[schema(value_type = String)]
    id: ApprovalId,
    #[schema(value_type = String)]
    session: SessionId,
    #[schema(value_type = String)]
    turn: TurnId,
    /// The call.
    #[schema(value_type = String)]
    call: CallId,
    /// The tool.
    tool: String,
    /// The arguments, exactly as it will run.
    #[schema(value_type = Object)]
    arguments: Value,
    /// The rule that wants to be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    /// Why it wants that, as it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    reason: Option<Box<str>>,
    /// The version of the policy it is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    policy: Option<Hash>,
    /// The untrusted sources that may have asked for it.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<String>)]
    labels: Labels,
    /// Where the values of its sink arguments come from: a JSON pointer and `user`, `agent`, `tool:NAME`, `unknown` or `call` each.
    #[serde(skip_serializing_if = "Provenance::is_empty")]
    #[schema(value_type = Vec<Object>)]
    provenance: Provenance,
    /// What the model asked for, where somebody has changed the arguments since.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    original: Option<Value>,
    /// What the tool says the call would do.
    #[serde(skip_serializing_if = "Option::is_none")]
    preview: Option<String>,
    /// Who may approve by now; anybody if it is empty.
    who: Vec<String>,
    /// Who has approved it so far.
    votes: Vec<String>,
    /// The same, with what each of them said.
    ballots: Vec<Ballot>,
    /// All that the rule says of who is asked: how many it takes, reminders, who may approve later.
    #[schema(value_type = Object)]
    ask: Ask,
    /// How many reminders were given.
    reminded: u32,
    /// Whether others may approve too by now.
    escalated: bool,
    /// How many have to.
    needed: usize,
    /// Whether it may be approved for the rest of the session.
    for_session: bool,
    /// What its turn cost so far, in US dollars, as far as prices were known.
    #[schema(value_type = String, example = "0.0123")]
    cost: Cost,
    /// When the model asked for it.
    #[schema(value_type = u64)]
    since: Millis,
    /// When silence becomes a no.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    expires: Option<Millis>,
}

/// Somebody's vote.
#[derive(Serialize, ToSchema)]
pub(crate) struct Ballot {
    by: String,
    #[schema(value_type = u64)]
    at: Millis,
    #[schema(value_type = Object)]
    verdict: Verdict,
}

impl From<Question> for Pending {
    fn from(question: Question) -> Self {
        let who = question.heard().into_iter().map(ToOwned::to_owned).collect();
        let Question { id, session, turn, call, original, ask, votes, given, since, wait, cost, .. } =
            question;
        let ballot = |Vote { by, at, verdict }: Vote| Ballot { by, at, verdict };
        let policy = call.ruling.as_ref().map(|ruling| ruling.policy);
        let (rule, preview) = call.ruling.map(|ruling| (ruling.rule, ruling.preview)).unzip();
        let (needed, for_session) = (ask.needed(), !ask.each_time);
        Self {
            id,
            session,
            turn,
            call: call.id,
            tool: call.tool.to_string(),
            arguments: call.arguments,
            rule: rule.map(|rule| rule.to_string()),
            reason: ask.reason.clone(),
            policy,
            labels: call.labels,
            provenance: call.provenance,
            original,
            who,
            votes: votes.iter().map(|vote| vote.by.clone()).collect(),
            ballots: votes.into_iter().map(ballot).collect(),
            ask,
            reminded: given.reminded,
            escalated: given.escalated,
            preview: preview.flatten().map(String::from),
            needed,
            for_session,
            cost,
            since,
            expires: wait.deadline,
        }
    }
}

/// Calls that wait for an approval, over all sessions, the oldest first.
#[utoipa::path(get, path = "/v1/approvals", tag = "waits", params(Most),
    responses((status = 200, body = Page<Pending>), Problems), security(("key" = ["read"])))]
async fn approvals(
    caller: Caller<Reads>,
    State(shared): State<Shared>,
    Asked(Most { limit, cursor }): Asked<Most>,
) -> Answer<Json<Page<Pending>>> {
    let limit = page::size(limit, &shared.limits)?;
    let cursors = Cursors::of(&shared.secret, caller.runtime.access().reach, "approvals");
    let after: Option<Place> = page::behind(cursor.as_deref(), &cursors)?;
    let (pending, next) =
        caller.runtime.approvals().pending_after(after, limit, caller.runtime.now()).await?;
    let next = next.map(|next| page::goes_on(&next, &cursors));
    Ok(Json(Page { items: pending.into_iter().map(Pending::from).collect(), next }))
}

/// One of them.
#[utoipa::path(get, path = "/v1/approvals/{approval}", tag = "waits", params(("approval" = String, Path)),
    responses((status = 200, body = Pending), Problems), security(("key" = ["read"])))]
async fn approval(caller: Caller<Reads>, At(id): At<ApprovalId>) -> Answer<Json<Pending>> {
    Ok(Json(caller.runtime.approvals().find(id).await?.into()))
}

/// Somebody's word.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Decision {
    /// `approve`: it runs exactly as it is shown; `approve_for_session`: and so does every later call of the session that the same
    /// rule asks about; `edit`: with other `arguments`; `deny`: it does not, and the model is told the `reason`.
    verdict: Word,
    /// Why not.
    reason: Option<String>,
    /// What it is to be passed instead.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Value>,
    /// In whose name; the caller's own without it. Only who came without a key may name somebody else.
    by: Option<String>,
}

/// What somebody says.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
    /// Yes.
    Approve,
    /// Yes, for the rest of the session.
    ApproveForSession,
    /// Yes, with a change.
    Edit,
    /// No.
    Deny,
}

impl Decision {
    fn verdict(self) -> Result<Verdict, Error> {
        let wrong = |detail: &str| Err(Error::new(Kind::InputInvalid, detail));
        match (self.verdict, self.reason, self.arguments) {
            (Word::Approve, None, None) => Ok(Verdict::Approve),
            (Word::ApproveForSession, None, None) => Ok(Verdict::ApproveForSession),
            (Word::Deny, Some(reason), None) => Ok(Verdict::Deny { reason }),
            (Word::Edit, None, Some(arguments)) => Ok(Verdict::Edit { arguments }),
            (Word::Approve | Word::ApproveForSession, ..) => {
                wrong("a yes takes neither `reason` nor `arguments`; `edit` takes those")
            }
            (Word::Deny, ..) => wrong("`deny` takes a `reason` and no `arguments`"),
            (Word::Edit, ..) => wrong("`edit` takes `arguments` and no `reason`"),
        }
    }
}

/// What became of a word.
#[derive(Serialize, ToSchema)]
pub(crate) struct WordCounted {
    /// Whether the question is decided.
    decided: bool,
    /// Whether this word decided it.
    yours: bool,
    /// How many have said yes, where it takes more.
    #[serde(skip_serializing_if = "Option::is_none")]
    votes: Option<usize>,
    /// How many it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<usize>,
    /// What was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    first: Option<Resolution>,
}

impl From<Voted> for WordCounted {
    fn from(voted: Voted) -> Self {
        match voted {
            Voted::Counted { votes, of } => {
                Self { decided: false, yours: false, votes: Some(votes), of: Some(of), first: None }
            }
            Voted::Decided(Resolved { first, yours }) => {
                Self { decided: true, yours, votes: None, of: None, first: Some(first) }
            }
        }
    }
}

/// Says yes, no, or yes with a change. A no decides at once, and so does the yes that completes what it takes; who comes later is
/// told what was decided.
#[utoipa::path(post, path = "/v1/approvals/{approval}", tag = "waits", params(("approval" = String, Path)),
    request_body = Decision, responses((status = 200, body = WordCounted), Problems), security(("key" = ["approve"])))]
async fn decide(
    caller: Caller<Approves>,
    At(id): At<ApprovalId>,
    Said(decision): Said<Decision>,
) -> Answer<Json<WordCounted>> {
    let caller = caller.named(decision.by.as_deref())?;
    let by = caller.runtime.access().by.name();
    let approval = Approval::new(by, decision.verdict()?);
    Ok(Json(caller.runtime.approve(id, approval).await?.into()))
}

/// A call whose outcome nobody knows.
#[derive(Serialize, ToSchema)]
pub(crate) struct Unknown {
    /// Our id of it, and its idempotency key towards the outside.
    #[schema(value_type = String)]
    call: CallId,
    tool: String,
    /// What was passed.
    #[schema(value_type = Object)]
    arguments: Value,
    #[schema(value_type = String)]
    session: SessionId,
    #[schema(value_type = String)]
    turn: TurnId,
    /// When it was begun.
    #[schema(value_type = u64)]
    since: Millis,
}

impl From<UnknownCall> for Unknown {
    fn from(call: UnknownCall) -> Self {
        let UnknownCall { call, tool, arguments, session, turn, since, .. } = call;
        Self { call, tool: tool.to_string(), arguments, session, turn, since }
    }
}

/// Calls whose outcome nobody knows: the process died while they ran. The oldest first.
#[utoipa::path(get, path = "/v1/unknown", tag = "waits", params(Most),
    responses((status = 200, body = Page<Unknown>), Problems), security(("key" = ["read"])))]
async fn unknown(
    caller: Caller<Reads>,
    State(shared): State<Shared>,
    Asked(most): Asked<Most>,
) -> Answer<Json<Page<Unknown>>> {
    let cursors = Cursors::of(&shared.secret, caller.runtime.access().reach, "unknown");
    let (after, limit) = most.read(&cursors, &shared.limits)?;
    Ok(Json(Page::of(caller.runtime.store().unknown_after(after, limit).await?, &cursors)))
}

/// What was found out about a call.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Finding {
    /// It happened, with this result.
    #[schema(value_type = Object)]
    Happened(Value),
    /// It did not happen.
    DidNotHappen,
}

/// Where a call was settled.
#[derive(Serialize, ToSchema)]
pub(crate) struct SettledIn {
    #[schema(value_type = String)]
    session: SessionId,
}

/// Says how a call of unknown outcome went. The session shows it from then on.
#[utoipa::path(post, path = "/v1/unknown/{call}", tag = "waits", params(("call" = String, Path)),
    request_body = Finding, responses((status = 200, body = SettledIn), Problems), security(("key" = ["operate"])))]
async fn settle(
    caller: Caller<Operates>,
    At(call): At<CallId>,
    Said(finding): Said<Finding>,
) -> Answer<Json<SettledIn>> {
    let verdict = match finding {
        Finding::Happened(result) => record::Verdict::Happened(ToolResult::Ok(result)),
        Finding::DidNotHappen => record::Verdict::DidNotHappen,
    };
    let session = caller.runtime.settle(call, verdict).await?;
    Ok(Json(SettledIn { session }))
}
