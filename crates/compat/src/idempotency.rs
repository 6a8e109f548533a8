//! The headers of a request to a compatible API, and what its idempotency key covers.
use crate::compat_request::CompatApi;
use crate::repeat::RepeatParams;
use axum::http::HeaderMap;
use outlast_http::request_headers::RequestHeaders;
use outlast_vocab::{Error, canonical_json};
use serde_json::Value;

/// Members of a body that only say how the answer is delivered.
const DELIVERY_MEMBERS: [&str; 3] = ["stream", "stream_options", "background"];

/// The headers of a request to a compatible API.
pub(crate) struct CompatHeaders {
    pub(crate) common: RequestHeaders,
    /// How a repeat of the request is recognised. With a key, the key decides.
    pub(crate) repeat: Option<RepeatParams>,
}

/// Reads the headers of a request. A key covers the whole request except for how the answer is delivered.
pub(crate) fn request_headers(
    headers: &HeaderMap,
    api: CompatApi,
    body: &Value,
) -> Result<CompatHeaders, Error> {
    let common = RequestHeaders::of(headers)?;
    let Some(key) = common.key else {
        return Ok(CompatHeaders { common, repeat: Some(RepeatParams::of(headers, body)?) });
    };
    let mut covered = body.clone();
    if let Value::Object(members) = &mut covered {
        for name in DELIVERY_MEMBERS {
            members.remove(name);
        }
    }
    let request = Some(canonical_json::fingerprint(&covered));
    let key = Some(format!("{}/{key}", api.key_prefix()));
    Ok(CompatHeaders { common: RequestHeaders { key, request, ..common }, repeat: None })
}
