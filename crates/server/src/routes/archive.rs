//! Sessions as files: streaming export, atomic import, and reruns.
use crate::rerun::RerunRequest;
use crate::server_state::ServerState;
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use outlast_api::archive::{ImportParams, ImportedSession, RerunChanges};
use outlast_api::problem::Problem;
use outlast_http::caller::{Caller, Operates, Reads, Runs};
use outlast_http::extract::{JsonBody, PathParam, QueryParams};
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_ports::archive::{ImportResult, RerunAudit};
use outlast_runtime::archive::{Export, import};
use outlast_vocab::limits::{self, ARCHIVE_BYTES};
use outlast_vocab::{Error, Kind, SessionId};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The header with the number of records in the file, for progress displays.
const RECORDS: &str = "outlast-records";

/// The number of bytes that are written to disk at once.
const WRITE_BYTES: usize = 1 << 20;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(export)).routes(routes!(import_session)).routes(routes!(rerun))
}

/// Export a session as a file.
///
/// The response is a stream of JSON lines. It includes everything that the session needs from the sessions it
/// was forked from. The last line marks the file as complete.
#[utoipa::path(get, path = "/v1/sessions/{session}/export", tag = "sessions", params(("session" = String, Path)),
    responses((status = 200, body = Vec<u8>, content_type = "application/x-ndjson",
        headers(("outlast-records" = u64, description = "The number of records in the file."))), ProblemResponses),
    security(("key" = ["read"])))]
async fn export(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    PathParam(session): PathParam<SessionId>,
) -> ApiResult<Response> {
    let runtime = &caller.runtime;
    let export =
        Export::begin(runtime.store().clone(), runtime.attachments(), session, runtime.now()).await?;
    let (_, records) = export.progress();
    let slot = shared.http.streams.open(runtime.access(), &shared.http.limits)?;
    let pieces = stream::unfold(Some(export), |export| async move {
        let mut export = export?;
        match export.piece().await {
            Ok(piece) => Some((Ok(piece?), Some(export))),
            // The file ends without its last line, so readers can tell that it is incomplete.
            Err(error) => Some((Err(error), None)),
        }
    });
    let mut response = Body::from_stream(slot.hold_during(pieces)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    headers.insert(RECORDS, HeaderValue::from(records));
    if let Ok(named) = HeaderValue::from_str(&format!("attachment; filename=\"{session}.jsonl\"")) {
        headers.insert(header::CONTENT_DISPOSITION, named);
    }
    Ok(response)
}

/// Import a session from a file.
///
/// The session keeps its id. The whole file is verified before anything is written.
#[utoipa::path(post, path = "/v1/import", tag = "sessions", params(ImportParams),
    request_body(content((Vec<u8> = "application/x-ndjson"), (Vec<u8> = "application/octet-stream"), (Vec<u8> = "application/json"))),
    responses((status = 201, body = ImportedSession), ProblemResponses), security(("key" = ["operate"])))]
async fn import_session(
    caller: Caller<Operates>,
    QueryParams(ImportParams { key }): QueryParams<ImportParams>,
    request: Request,
) -> ApiResult<(StatusCode, Json<ImportedSession>)> {
    let runtime = &caller.runtime;
    let file = spool(request.into_body()).await?;
    let (store, attachments, now) = (runtime.store().clone(), runtime.attachments(), runtime.now());
    // The import uses blocking file I/O, so it runs on a blocking thread.
    let here = tokio::runtime::Handle::current();
    let task = move || here.block_on(import(store.as_ref(), &attachments, file, key, now));
    let taken = tokio::task::spawn_blocking(task).await;
    let taken = taken.map_err(|cause| Error::new(Kind::Internal, "an import panicked").because(cause))??;
    let ImportResult { session, closed, totals } = taken;
    Ok((
        StatusCode::CREATED,
        Json(ImportedSession { session, closed, turns: totals.turns, records: totals.records }),
    ))
}

/// Writes the body to an unnamed temporary file, which disappears with its handle. The import reads it twice,
/// so it must not be held in memory.
async fn spool(body: Body) -> Result<File, Error> {
    let failed = |cause: std::io::Error| {
        Error::new(Kind::IoFailed, format!("a temporary file cannot be written: {cause}")).because(cause)
    };
    let mut file = tempfile::tempfile().map_err(failed)?;
    let (mut pieces, mut waiting, mut bytes) = (body.into_data_stream(), Vec::new(), 0);
    loop {
        let piece = pieces.next().await.transpose();
        let piece = piece
            .map_err(|cause| Error::new(Kind::InputInvalid, format!("the body cannot be read: {cause}")))?;
        let is_over = piece.is_none();
        if let Some(piece) = piece {
            bytes += piece.len();
            limits::check("archive_bytes", bytes, usize::try_from(ARCHIVE_BYTES).unwrap_or(usize::MAX))?;
            waiting.extend_from_slice(&piece);
        }
        if is_over || waiting.len() >= WRITE_BYTES {
            let (to, from) = (file, std::mem::take(&mut waiting));
            let written = tokio::task::spawn_blocking(move || append(to, &from)).await;
            file = written.map_err(|cause| failed(std::io::Error::other(cause)))?.map_err(failed)?;
        }
        if is_over {
            return Ok(file);
        }
    }
}

fn append(mut file: File, bytes: &[u8]) -> std::io::Result<File> {
    file.write_all(bytes)?;
    Ok(file)
}

/// The time limit of a rerun.
const RERUN_TIMEOUT: Duration = Duration::from_mins(10);

/// Returns whether the rerun makes calls with external effects.
fn is_live(changes: &RerunChanges) -> bool {
    changes.live || changes.run_at_most_once
}

/// Summarises the changes for the audit. Leaves out the prompt, which may be long and private.
fn audit_summary(changes: &RerunChanges) -> String {
    let named = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name} `{value}`"));
    let flag = |is: bool, name: &str| is.then(|| name.to_owned());
    let parts = [
        flag(changes.live, "live"),
        flag(changes.run_at_most_once, "with calls at most once"),
        flag(changes.prompt.is_some(), "another prompt"),
        named("from", &changes.from),
        named("agent", &changes.agent),
        named("model", &changes.model),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    outlast_vocab::message::shown(&parts.join(", ")).into_owned()
}

/// Rerun a session with changes, and compare the result with the recording.
///
/// The rerun happens in memory and writes nothing to the session. Calls are answered from the recording if it
/// has a result for them. The rules of the session apply. Usage is not charged to any budget of the database.
/// `live` and `run_at_most_once` make real calls and require the scope `operate`. A rerun times out after ten
/// minutes.
#[utoipa::path(post, path = "/v1/sessions/{session}/rerun", tag = "sessions", params(("session" = String, Path)),
    request_body = RerunChanges,
    responses((status = 200, body = Value, description = "The comparison: `turns` with `recorded` and `rerun` for each turn, `changed`, the costs, and the calls that were reused, made and not made."),
        (status = 408, description = "The rerun timed out and was stopped.", body = Problem, content_type = "application/problem+json"),
        ProblemResponses),
    security(("key" = ["run"])))]
async fn rerun(
    caller: Caller<Runs>,
    State(shared): State<ServerState>,
    PathParam(session): PathParam<SessionId>,
    JsonBody(changes): JsonBody<RerunChanges>,
) -> ApiResult<Json<Value>> {
    let runtime = &caller.runtime;
    let slot = shared.reruns.acquire()?;
    let (is_live, detail, now) = (is_live(&changes), audit_summary(&changes), runtime.now());
    runtime.store().note_rerun(RerunAudit { session, is_live, detail, now }).await?;
    let org = runtime.store().org(runtime.access().visibility.home()).await?;
    let mut export =
        Export::begin(runtime.store().clone(), runtime.attachments(), session, runtime.now()).await?;
    let mut archive = Vec::new();
    while let Some(piece) = export.piece().await? {
        archive.extend_from_slice(piece.as_bytes());
        limits::check("rerun_bytes", archive.len(), shared.http.limits.rerun_bytes)?;
    }
    let RerunChanges { from, agent, model, prompt, live, run_at_most_once } = changes;
    let again = RerunRequest {
        org,
        within: RERUN_TIMEOUT,
        archive,
        from,
        agent,
        model,
        prompt,
        live,
        run_at_most_once,
    };
    Ok(Json(slot.run(again).await?))
}
