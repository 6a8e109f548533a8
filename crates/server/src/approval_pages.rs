//! Pages for approval links: each shows exactly what is asked, and a button that decides.
//!
//! Mail programs open links to preview them, so a GET request decides nothing. Only the button's POST request
//! does. The pages are not part of the API. They need no key, because the link itself is signed.
use crate::server_state::ServerState;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::StreamExt;
use outlast_http::problem::ErrorCause;
use outlast_runtime::policy::approval_links::OpenedApprovalLink;
use outlast_views::{ResolveResult, VoteOutcome};
use outlast_vocab::approval_link::{LINKS_PATH, LinkAnswer};
use outlast_vocab::terminal_text::escape_control;
use outlast_vocab::{Error, Kind, Millis};
use serde_json::Value;
use std::fmt::Write;
use std::sync::Arc;

/// The content security policy: only our own style, and forms that submit only to this server.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

const STYLE: &str = "\
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 2rem auto; padding: 0 1rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; padding: 0.75rem; border: 1px solid; }
dt { font-weight: 600; }
dd { margin: 0 0 0.5rem; overflow-wrap: anywhere; }
button { font: inherit; padding: 0.5rem 1.5rem; }
textarea { font: inherit; width: 100%; box-sizing: border-box; }
";

/// The path of the style sheet.
const STYLE_PATH: &str = "/assets/links.css";

/// The maximum size of the form that a button sends. It contains at most a reason.
const FORM_BYTES: usize = 16 << 10;

/// Returns the routes of the approval pages.
pub(crate) fn routes() -> Router<ServerState> {
    Router::new()
        .route(&format!("{LINKS_PATH}{{link}}"), get(show).post(decide))
        .route(STYLE_PATH, get(async || ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE)))
}

/// Shows the question of a link, and decides nothing.
async fn show(State(shared): State<ServerState>, Path(link): Path<String>) -> Response {
    match shared.http.runtime.open_link(&link).await {
        Ok(linked) => page(StatusCode::OK, "An approval is required", &question_html(&linked)),
        Err(error) => unusable_link_page(error),
    }
}

/// Casts the vote of a link.
async fn decide(State(shared): State<ServerState>, Path(link): Path<String>, request: Request) -> Response {
    let decided = async {
        let linked = shared.http.runtime.open_link(&link).await?;
        let reason = read_reason(request.into_body()).await?;
        linked.decide(reason).await
    };
    match decided.await {
        Ok(voted) => page(StatusCode::OK, "Thank you", &format!("<p>{}</p>", vote_text(&voted))),
        Err(error) => unusable_link_page(error),
    }
}

fn vote_text(voted: &VoteOutcome) -> String {
    match voted {
        VoteOutcome::MoreNeeded { votes, of } => {
            format!("Your approval is recorded: {votes} of {of} required approvals.")
        }
        VoteOutcome::Decided(ResolveResult { .. }) => {
            "The approval is decided, and the agent continues.".to_owned()
        }
    }
}

/// Returns the reason in the form, if any: `reason=…`, URL-encoded.
async fn read_reason(body: Body) -> Result<Option<String>, Error> {
    let mut pieces = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece
            .map_err(|cause| Error::new(Kind::InputInvalid, format!("the form cannot be read: {cause}")))?;
        bytes.extend_from_slice(&piece);
        outlast_vocab::limits::check("the form of a link", bytes.len(), FORM_BYTES)?;
    }
    let said = bytes.split(|byte| *byte == b'&').find_map(|pair| pair.strip_prefix(b"reason="));
    let said = said.map(decode_form_value).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    Ok(Some(said).filter(|said| !said.is_empty()))
}

/// Decodes a value of a form.
fn decode_form_value(value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
        match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

fn question_html(linked: &OpenedApprovalLink) -> String {
    let OpenedApprovalLink { says, by, question, .. } = linked;
    let call = &question.call;
    let ruling = call.ruling.as_ref();
    let mut html = format!(
        "<p>The agent wants to call <strong>{}</strong> with exactly these arguments:</p>",
        escape_html(call.tool.as_str())
    );
    let _ = write!(html, "<pre>{}</pre>", json_html(&call.arguments));
    if let Some(original) = &question.original {
        let _ = write!(
            html,
            "<p>The arguments were edited. The model requested these:</p><pre>{}</pre>",
            json_html(original)
        );
    }
    if let Some(preview) = ruling.and_then(|ruling| ruling.preview.as_deref()) {
        let _ = write!(html, "<p>Preview by the tool:</p><pre>{}</pre>", escape_html(preview));
    }
    html.push_str("<dl>");
    let mut row = |name: &str, value: &str| {
        let _ = write!(html, "<dt>{name}</dt><dd>{}</dd>", escape_html(value));
    };
    if let Some(ruling) = ruling {
        row("Rule", ruling.rule.as_str());
    }
    if let Some(reason) = &question.ask.reason {
        row("Why you are asked", reason);
    }
    if !call.labels.is_empty() {
        row(
            "Untrusted text that may have caused it",
            &serde_json::to_string(&call.labels).unwrap_or_default(),
        );
    }
    if !call.provenance.is_empty() {
        row("Origins of the sensitive values", &call.provenance.to_string());
    }
    let votes: Vec<&str> = question.votes.iter().map(|vote| vote.by.as_str()).collect();
    if !votes.is_empty() {
        row("Approved so far by", &votes.join(", "));
    }
    row("Approvals it takes", &question.ask.approvals_needed().to_string());
    row("Session", &question.session.to_string());
    row("Question", &question.id.to_string());
    row("You are", &by.name());
    if let Some(Millis(expires)) = question.wait.deadline {
        row("Denied without an answer at", &utc(expires));
    }
    html.push_str("</dl><form method=\"post\">");
    html.push_str(match says {
        LinkAnswer::Approve => "<button type=\"submit\">Approve</button>",
        LinkAnswer::Deny => {
            "<p><label for=\"reason\">Reason (the model receives it)</label></p>\
             <p><textarea id=\"reason\" name=\"reason\" rows=\"3\" maxlength=\"2000\"></textarea></p>\
             <button type=\"submit\">Deny</button>"
        }
    });
    html.push_str("</form>");
    html
}

/// Formats a time for readers.
fn utc(at: u64) -> String {
    let at = i64::try_from(at).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    at.map_or_else(|| "a time far away".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

/// Returns the page for a link that cannot be used, with the error code.
fn unusable_link_page(error: Error) -> Response {
    let kind = error.kind();
    let status = StatusCode::from_u16(kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let detail = if status.is_server_error() { "an internal error occurred" } else { error.detail() };
    let body = format!(
        "<p>{}.</p><p>This request decided nothing. <code>{}</code></p>",
        escape_html(detail),
        escape_html(kind.code())
    );
    let mut response = page(status, "This link is not valid", &body);
    response.extensions_mut().insert(ErrorCause(Arc::new(error)));
    response
}

fn page(status: StatusCode, title: &str, body: &str) -> Response {
    let html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"robots\" content=\"noindex\"><title>{title} · Outlast</title><link rel=\"stylesheet\" href=\"{STYLE_PATH}\"></head>\
         <body><main><h1>{title}</h1>{body}</main></body></html>\n"
    );
    let mut response = (status, html).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    // With `no-referrer`, the browser would send no usable `Origin` with the form, and the `Origin` check
    // would reject our own page.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

fn json_html(value: &Value) -> String {
    escape_html(&serde_json::to_string_pretty(value).unwrap_or_default())
}

/// Escapes text for HTML, and makes invisible characters visible.
fn escape_html(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in escape_control(text).chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}
