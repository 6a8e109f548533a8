//! Headers of requests that handlers read, and the names of headers that several modules use.
use crate::request_auth;
use axum::http::{HeaderMap, HeaderName};
use outlast_vocab::trace::TraceParent;
use outlast_vocab::{Error, Hash, Kind};

/// The header that contains the id of a request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The header that contains the idempotency key of an input.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What the headers of a request say about its input.
pub struct RequestHeaders {
    /// The idempotency key.
    pub key: Option<String>,
    /// The hash of the request that the key covers.
    pub request: Option<Hash>,
    /// The span that caused the request.
    pub traceparent: Option<TraceParent>,
}

impl RequestHeaders {
    /// Reads the headers. Ignores an invalid `traceparent`, as its standard requires.
    pub fn of(headers: &HeaderMap) -> Result<Self, Error> {
        let key = request_auth::single_header(headers, &IDEMPOTENCY_KEY)?;
        if key == Some("") {
            return Err(Error::new(Kind::InputInvalid, "expected an `idempotency-key` of visible letters"));
        }
        let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Self { key: key.map(ToOwned::to_owned), request: None, traceparent })
    }
}
