//! The idempotency key of a request to a compatible API.
use crate::compat_request::CompatApi;
use axum::http::HeaderMap;
use outlast_http::request_headers::RequestHeaders;
use outlast_vocab::{Error, canonical_json};
use serde_json::Value;

/// Members of a body that only say how the answer is delivered.
const DELIVERY_MEMBERS: [&str; 3] = ["stream", "stream_options", "background"];

/// Reads the headers of a request. A key covers the whole request except for how the answer is delivered.
pub(crate) fn request_headers(
    headers: &HeaderMap,
    api: CompatApi,
    body: &Value,
) -> Result<RequestHeaders, Error> {
    let headers = RequestHeaders::of(headers)?;
    let Some(key) = headers.key else { return Ok(headers) };
    let mut covered = body.clone();
    if let Value::Object(members) = &mut covered {
        for name in DELIVERY_MEMBERS {
            members.remove(name);
        }
    }
    let request = Some(canonical_json::fingerprint(&covered));
    Ok(RequestHeaders { key: Some(format!("{}/{key}", api.key_prefix())), request, ..headers })
}
