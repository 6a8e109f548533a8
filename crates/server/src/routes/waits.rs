//! What turns wait for from outside: completions, approvals, and calls with an unknown outcome.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use outlast_http::caller::{Approves, Caller, Operates, Reads, Runs};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{JsonBody, PathParam, QueryParams};
use outlast_http::list_page::{self, ListPage, PageParams};
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_runtime::policy::approvals::ApprovalCursor;
use outlast_views::{ApprovalQuestion, ResolveResult, UnknownCall, Vote, VoteOutcome};
use outlast_vocab::cost::Cost;
use outlast_vocab::id::ApprovalId;
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::message::ToolResult;
use outlast_vocab::policy::{Approval, ApprovalRequirement, ApprovalVerdict};
use outlast_vocab::record;
use outlast_vocab::wait::{CompletionKey, Resolution};
use outlast_vocab::{CallId, Error, Failure, Hash, Kind, Millis, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new()
        .routes(routes!(resolve))
        .routes(routes!(approvals))
        .routes(routes!(approval, decide))
        .routes(routes!(unknown))
        .routes(routes!(settle))
}

/// The result of something that a turn waits for.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CompletionRequest {
    /// It succeeded with this value.
    #[schema(value_type = Object)]
    Ok(Value),
    /// It failed with this message.
    Error(String),
    /// It timed out.
    Timeout,
    /// It was cancelled.
    Cancelled,
}

impl From<CompletionRequest> for Resolution {
    fn from(ending: CompletionRequest) -> Self {
        match ending {
            CompletionRequest::Ok(value) => Self::Ok(value),
            CompletionRequest::Error(message) => Self::Err(Failure::new(Kind::ToolFailed, message)),
            CompletionRequest::Timeout => Self::Timeout,
            CompletionRequest::Cancelled => Self::Cancelled,
        }
    }
}

/// The result that is in effect.
#[derive(Serialize, ToSchema)]
pub(crate) struct CompletionResult {
    /// Whether it is the result from this request.
    yours: bool,
    /// The first result, which is the one in effect.
    #[schema(value_type = Object)]
    first: Resolution,
}

impl From<ResolveResult> for CompletionResult {
    fn from(ResolveResult { first, is_yours: yours }: ResolveResult) -> Self {
        Self { yours, first }
    }
}

/// Complete a call or an event that a turn waits for.
///
/// You can also complete it before the turn starts to wait. The first result wins; later requests return it.
#[utoipa::path(post, path = "/v1/completions/{key}", tag = "waits", params(("key" = String, Path)),
    request_body = CompletionRequest, responses((status = 200, body = CompletionResult), ProblemResponses), security(("key" = ["run"])))]
async fn resolve(
    caller: Caller<Runs>,
    PathParam(key): PathParam<CompletionKey>,
    JsonBody(ending): JsonBody<CompletionRequest>,
) -> ApiResult<Json<CompletionResult>> {
    Ok(Json(caller.runtime.resolve(&key, ending.into()).await?.into()))
}

/// A tool call that waits for approval.
#[derive(Serialize, ToSchema)]
#[schema(as = Approval)]
pub(crate) struct ApprovalResource {
    /// The id of the approval.
    #[schema(value_type = String)]
    id: ApprovalId,
    /// The id of the session.
    #[schema(value_type = String)]
    session: SessionId,
    /// The id of the turn.
    #[schema(value_type = String)]
    turn: TurnId,
    /// The id of the call.
    #[schema(value_type = String)]
    call: CallId,
    /// The name of the tool.
    tool: String,
    /// The arguments, exactly as the call will run.
    #[schema(value_type = Object)]
    arguments: Value,
    /// The rule that requires the approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    /// The reason that the rule gives. Absent if it gives no reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    reason: Option<Box<str>>,
    /// The fingerprint of the policy that contains the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    policy: Option<Hash>,
    /// The untrusted sources that may have caused the call.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<String>)]
    labels: Labels,
    /// The origins of its sink arguments, each with a JSON pointer: `user`, `agent`, `tool:NAME`, `unknown`
    /// or `call`.
    #[serde(skip_serializing_if = "Provenance::is_empty")]
    #[schema(value_type = Vec<Object>)]
    provenance: Provenance,
    /// The arguments that the model chose. Absent unless an approver has edited them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    original: Option<Value>,
    /// The tool's preview of what the call would do. Absent if the tool has no preview.
    #[serde(skip_serializing_if = "Option::is_none")]
    preview: Option<String>,
    /// Who may approve now. Empty if anyone may.
    who: Vec<String>,
    /// Who has approved so far.
    votes: Vec<String>,
    /// The approvals so far, with their verdicts.
    ballots: Vec<VoteResource>,
    /// The approval settings of the rule: the number of approvals, reminders and escalation.
    #[schema(value_type = Object)]
    ask: ApprovalRequirement,
    /// The number of reminders sent.
    reminded: u32,
    /// Whether the approval was escalated to additional approvers.
    escalated: bool,
    /// The number of approvals that are required.
    needed: usize,
    /// Whether the call can be approved for the rest of the session.
    for_session: bool,
    /// The cost of the turn so far, in US dollars. Calls without a known price are not included.
    #[schema(value_type = String, example = "0.0123")]
    cost: Cost,
    /// When the model requested the call, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    since: Millis,
    /// When the approval expires and the call is denied, as a Unix timestamp in milliseconds. Absent if it
    /// never expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    expires: Option<Millis>,
}

/// A vote on an approval.
#[derive(Serialize, ToSchema)]
#[schema(as = Vote)]
pub(crate) struct VoteResource {
    /// The voter.
    by: String,
    /// When the vote was cast, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    at: Millis,
    /// The verdict.
    #[schema(value_type = Object)]
    verdict: ApprovalVerdict,
}

impl From<ApprovalQuestion> for ApprovalResource {
    fn from(question: ApprovalQuestion) -> Self {
        let who = question.heard().into_iter().map(ToOwned::to_owned).collect();
        let ApprovalQuestion {
            id, session, turn, call, original, ask, votes, given, since, wait, cost, ..
        } = question;
        let ballot = |Vote { by, at, verdict }: Vote| VoteResource { by, at, verdict };
        let policy = call.ruling.as_ref().map(|ruling| ruling.policy);
        let (rule, preview) = call.ruling.map(|ruling| (ruling.rule, ruling.preview)).unzip();
        let (needed, for_session) = (ask.approvals_needed(), !ask.each_time);
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

/// Returns the calls of all sessions that wait for approval, oldest first.
#[utoipa::path(get, path = "/v1/approvals", tag = "waits", params(PageParams),
    responses((status = 200, body = ListPage<ApprovalResource>), ProblemResponses), security(("key" = ["read"])))]
async fn approvals(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    QueryParams(PageParams { limit, cursor }): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<ApprovalResource>>> {
    let limit = list_page::page_limit(limit, &shared.http.limits)?;
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().reach, "approvals");
    let after: Option<ApprovalCursor> = list_page::decode_cursor(cursor.as_deref(), &cursors)?;
    let (pending, next) =
        caller.runtime.approvals().pending_after(after, limit, caller.runtime.now()).await?;
    let next = next.map(|next| list_page::encode_cursor(&next, &cursors));
    Ok(Json(ListPage { items: pending.into_iter().map(ApprovalResource::from).collect(), next }))
}

/// Returns a call that waits for approval.
#[utoipa::path(get, path = "/v1/approvals/{approval}", tag = "waits", params(("approval" = String, Path)),
    responses((status = 200, body = ApprovalResource), ProblemResponses), security(("key" = ["read"])))]
async fn approval(
    caller: Caller<Reads>,
    PathParam(id): PathParam<ApprovalId>,
) -> ApiResult<Json<ApprovalResource>> {
    Ok(Json(caller.runtime.approvals().find(id).await?.into()))
}

/// A decision about a call.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionRequest {
    /// The verdict.
    ///
    /// - `approve`: the call runs exactly as shown.
    /// - `approve_for_session`: the call runs, and so does every later call of the session for which the same
    ///   rule requires approval.
    /// - `edit`: the call runs with other `arguments`.
    /// - `deny`: the call does not run, and the model gets the `reason`.
    verdict: VerdictName,
    /// Why the call is denied. Required for `deny`, and not allowed otherwise.
    reason: Option<String>,
    /// The new arguments of the call. Required for `edit`, and not allowed otherwise.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Value>,
    /// The person who decides. Defaults to the caller. Only a caller without an API key may name another
    /// person.
    by: Option<String>,
}

/// A verdict on a call.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum VerdictName {
    /// Run the call.
    Approve,
    /// Run the call, and later ones in the session.
    ApproveForSession,
    /// Run the call with other arguments.
    Edit,
    /// Do not run the call.
    Deny,
}

impl DecisionRequest {
    fn verdict(self) -> Result<ApprovalVerdict, Error> {
        let wrong = |detail: &str| Err(Error::new(Kind::InputInvalid, detail));
        match (self.verdict, self.reason, self.arguments) {
            (VerdictName::Approve, None, None) => Ok(ApprovalVerdict::Approve),
            (VerdictName::ApproveForSession, None, None) => Ok(ApprovalVerdict::ApproveForSession),
            (VerdictName::Deny, Some(reason), None) => Ok(ApprovalVerdict::Deny { reason }),
            (VerdictName::Edit, None, Some(arguments)) => Ok(ApprovalVerdict::Edit { arguments }),
            (VerdictName::Approve | VerdictName::ApproveForSession, ..) => {
                wrong("a yes takes neither `reason` nor `arguments`; `edit` takes those")
            }
            (VerdictName::Deny, ..) => wrong("`deny` takes a `reason` and no `arguments`"),
            (VerdictName::Edit, ..) => wrong("`edit` takes `arguments` and no `reason`"),
        }
    }
}

/// The result of a vote.
#[derive(Serialize, ToSchema)]
pub(crate) struct VoteResult {
    /// Whether the approval is decided.
    decided: bool,
    /// Whether this vote decided it.
    yours: bool,
    /// The number of approvals so far. Absent if the approval is decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    votes: Option<usize>,
    /// The number of approvals that are required. Absent if the approval is decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<usize>,
    /// The decision. Absent if the approval is not decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    first: Option<Resolution>,
}

impl From<VoteOutcome> for VoteResult {
    fn from(voted: VoteOutcome) -> Self {
        match voted {
            VoteOutcome::MoreNeeded { votes, of } => {
                Self { decided: false, yours: false, votes: Some(votes), of: Some(of), first: None }
            }
            VoteOutcome::Decided(ResolveResult { first, is_yours: yours }) => {
                Self { decided: true, yours, votes: None, of: None, first: Some(first) }
            }
        }
    }
}

/// Approve, edit or deny a call.
///
/// A denial decides immediately, and so does the last approval that is required. Later votes return the
/// decision.
#[utoipa::path(post, path = "/v1/approvals/{approval}", tag = "waits", params(("approval" = String, Path)),
    request_body = DecisionRequest, responses((status = 200, body = VoteResult), ProblemResponses), security(("key" = ["approve"])))]
async fn decide(
    caller: Caller<Approves>,
    PathParam(id): PathParam<ApprovalId>,
    JsonBody(decision): JsonBody<DecisionRequest>,
) -> ApiResult<Json<VoteResult>> {
    let caller = caller.acting_as(decision.by.as_deref())?;
    let by = caller.runtime.access().by.name();
    let approval = Approval::new(by, decision.verdict()?);
    Ok(Json(caller.runtime.approve(id, approval).await?.into()))
}

/// A call with an unknown outcome.
#[derive(Serialize, ToSchema)]
#[schema(as = UnknownCall)]
pub(crate) struct UnknownCallResource {
    /// Outlast's id of the call, which is also its idempotency key for external services.
    #[schema(value_type = String)]
    call: CallId,
    /// The name of the tool.
    tool: String,
    /// The arguments of the call.
    #[schema(value_type = Object)]
    arguments: Value,
    /// The id of the session.
    #[schema(value_type = String)]
    session: SessionId,
    /// The id of the turn.
    #[schema(value_type = String)]
    turn: TurnId,
    /// When the call started, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    since: Millis,
}

impl From<UnknownCall> for UnknownCallResource {
    fn from(call: UnknownCall) -> Self {
        let UnknownCall { call, tool, arguments, session, turn, since, .. } = call;
        Self { call, tool: tool.to_string(), arguments, session, turn, since }
    }
}

/// Returns the calls with an unknown outcome, oldest first.
///
/// The outcome of a call is unknown if the process died while the call ran.
#[utoipa::path(get, path = "/v1/unknown", tag = "waits", params(PageParams),
    responses((status = 200, body = ListPage<UnknownCallResource>), ProblemResponses), security(("key" = ["read"])))]
async fn unknown(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    QueryParams(most): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<UnknownCallResource>>> {
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().reach, "unknown");
    let (after, limit) = most.read(&cursors, &shared.http.limits)?;
    Ok(Json(ListPage::of(caller.runtime.store().unknown_after(after, limit).await?, &cursors)))
}

/// The actual outcome of a call.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutcomeRequest {
    /// The call happened, with this result.
    #[schema(value_type = Object)]
    Happened(Value),
    /// The call did not happen.
    DidNotHappen,
}

/// The location of a settled call.
#[derive(Serialize, ToSchema)]
#[schema(as = SettledCall)]
pub(crate) struct SettledCallResource {
    /// The id of the session.
    #[schema(value_type = String)]
    session: SessionId,
}

/// Set the outcome of a call with an unknown outcome.
///
/// The session then shows this outcome.
#[utoipa::path(post, path = "/v1/unknown/{call}", tag = "waits", params(("call" = String, Path)),
    request_body = OutcomeRequest, responses((status = 200, body = SettledCallResource), ProblemResponses), security(("key" = ["operate"])))]
async fn settle(
    caller: Caller<Operates>,
    PathParam(call): PathParam<CallId>,
    JsonBody(finding): JsonBody<OutcomeRequest>,
) -> ApiResult<Json<SettledCallResource>> {
    let verdict = match finding {
        OutcomeRequest::Happened(result) => record::OutcomeVerdict::Happened(ToolResult::Ok(result)),
        OutcomeRequest::DidNotHappen => record::OutcomeVerdict::DidNotHappen,
    };
    let session = caller.runtime.settle(call, verdict).await?;
    Ok(Json(SettledCallResource { session }))
}
