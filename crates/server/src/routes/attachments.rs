//! Attachments of a session: lists and downloads.
use crate::server_state::ServerState;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use outlast_api::attachments::AttachmentResource;
use outlast_api::list_page::{ListPage, PageParams};
use outlast_http::caller::{Caller, Reads};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{PathParam, PathParams, QueryParams};
use outlast_http::list_page;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_vocab::id::AttachmentId;
use outlast_vocab::{Error, Kind, SessionId};
use std::fmt::Write as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(read))
}

/// Returns the attachments of a session.
///
/// The list does not include attachments of sessions that it was forked from.
#[utoipa::path(get, path = "/v1/sessions/{session}/attachments", tag = "sessions",
    params(("session" = String, Path), PageParams),
    responses((status = 200, body = ListPage<AttachmentResource>), ProblemResponses), security(("key" = ["read"])))]
async fn list(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    PathParam(session): PathParam<SessionId>,
    QueryParams(most): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<AttachmentResource>>> {
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().visibility, "attachments");
    let (after, limit) =
        list_page::read(&most.or_max_limit(&shared.http.limits), &cursors, &shared.http.limits)?;
    Ok(Json(list_page::of_store(
        caller.runtime.store().attachments_after(session, after, limit).await?,
        &cursors,
    )))
}

/// Returns the content of an attachment.
///
/// The attachment can belong to this session or to one that it was forked from. Browsers download the content
/// and never display it.
#[utoipa::path(get, path = "/v1/sessions/{session}/attachments/{attachment}", tag = "sessions",
    params(("session" = String, Path), ("attachment" = String, Path)),
    responses((status = 200, description = "The content, with the media type that it was attached with.", body = Vec<u8>, content_type = "*/*"), ProblemResponses),
    security(("key" = ["read"])))]
async fn read(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    PathParams(session, id): PathParams<SessionId, AttachmentId>,
) -> ApiResult<Response> {
    let attachments = caller.runtime.attachments();
    let view = attachments.info(session, id).await?;
    let slot = shared.http.streams.open(caller.runtime.access(), &shared.http.limits)?;
    // The stream borrows from `attachments`, so the task that reads it owns both.
    let pieces = stream::once(async move {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            match attachments.open(session, id).await {
                Ok((_, mut pieces)) => {
                    while let Some(piece) = pieces.next().await {
                        if sender.send(piece).await.is_err() {
                            return;
                        }
                    }
                }
                Err(error) => drop(sender.send(Err(error)).await),
            }
        });
        stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) })
    })
    .flatten();
    let mut response = Body::from_stream(slot.hold_during(pieces)).into_response();
    let headers = response.headers_mut();
    let media_type = HeaderValue::from_str(view.attachment.media_type.as_str())
        .map_err(|_| Error::new(Kind::Internal, "a media type does not fit a header"))?;
    headers.insert(header::CONTENT_TYPE, media_type);
    headers.insert(header::CONTENT_LENGTH, view.bytes.into());
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    let name = view.attachment.name.as_deref().unwrap_or("attachment");
    if let Ok(named) =
        HeaderValue::from_str(&format!("attachment; filename*=UTF-8''{}", encode_file_name(name)))
    {
        headers.insert(header::CONTENT_DISPOSITION, named);
    }
    Ok(response)
}

/// Encodes a file name for a header. Escapes everything except letters, digits, `.`, `-` and `_`, so it
/// cannot be a path.
fn encode_file_name(name: &str) -> String {
    name.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'.' | b'-' | b'_' => out.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            byte => drop(write!(out, "%{byte:02X}")),
        }
        out
    })
}
