//! Extractors that parse requests: ids in the path, the query, the body.
use crate::HttpState;
use crate::admission_control::RequestPermits;
use crate::problem::ApiError;
use crate::strict_json;
use axum::body::Body;
use axum::extract::{FromRef, FromRequest, FromRequestParts, Query, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use futures_util::StreamExt;
use outlast_vocab::limits::{self, ServerLimits};
use outlast_vocab::{Error, Kind};
use serde::de::DeserializeOwned;
use std::str::FromStr;

/// The parameters of the path, in order.
pub struct PathParam<T>(pub T);

/// Two parameters of one path.
pub struct PathParams<A, B>(pub A, pub B);

impl<S, A, B> FromRequestParts<S> for PathParams<A, B>
where
    S: Send + Sync,
    A: FromStr<Err: Into<Error>>,
    B: FromStr<Err: Into<Error>>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let named = path_values(parts, state).await?;
        Ok(Self(parse(&named, 0)?, parse(&named, 1)?))
    }
}

impl<S: Send + Sync, T: FromStr<Err: Into<Error>>> FromRequestParts<S> for PathParam<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Ok(Self(parse(&path_values(parts, state).await?, 0)?))
    }
}

async fn path_values<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<Vec<String>, Error> {
    let params = RawPathParams::from_request_parts(parts, state).await.map_err(|cause| {
        Error::new(Kind::InputInvalid, format!("the path cannot be read: {}", cause.body_text()))
    })?;
    Ok(params.iter().map(|(_, value)| value.to_owned()).collect())
}

fn parse<T: FromStr<Err: Into<Error>>>(parts: &[String], place: usize) -> Result<T, Error> {
    let part = parts.get(place).map(String::as_str).unwrap_or_default();
    part.parse().map_err(Into::into)
}

/// A path parameter that may be any text.
#[derive(Debug)]
pub struct TextParam(pub String);

impl FromStr for TextParam {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(Self(text.to_owned()))
    }
}

/// The query parameters.
pub struct QueryParams<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Query(asked) = Query::from_request_parts(parts, state).await.map_err(|cause| {
            Error::new(Kind::InputInvalid, format!("the query is invalid: {}", cause.body_text()))
        })?;
        Ok(Self(asked))
    }
}

/// A JSON body.
pub struct JsonBody<T>(pub T);

impl<S, T> FromRequest<S> for JsonBody<T>
where
    S: Send + Sync,
    HttpState: FromRef<S>,
    T: DeserializeOwned,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        check_json(&parts.headers)?;
        Ok(Self(strict_json::read(&read_body(&parts, body, &HttpState::from_ref(state).limits).await?)?))
    }
}

/// An optional JSON body.
pub struct OptionalJsonBody<T>(pub T);

impl<S, T> FromRequest<S> for OptionalJsonBody<T>
where
    S: Send + Sync,
    HttpState: FromRef<S>,
    T: DeserializeOwned + Default,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = read_body(&parts, body, &HttpState::from_ref(state).limits).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        check_json(&parts.headers)?;
        Ok(Self(strict_json::read::<Option<T>>(&bytes)?.unwrap_or_default()))
    }
}

/// Rejects a request whose content type is not JSON.
fn check_json(headers: &HeaderMap) -> Result<(), Error> {
    let said = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = said.and_then(|said| said.split(';').next()).unwrap_or_default();
    if kind.trim().eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let detail = format!("expected `application/json`, got `{}`", said.unwrap_or("nothing"));
    Err(Error::new(Kind::BodyMediaType, detail))
}

/// Reads a whole body. Fails if it is too large or takes too long. Its bytes count against the limit of all
/// bodies until the request ends.
pub async fn read_body(parts: &Parts, body: Body, limits: &ServerLimits) -> Result<Vec<u8>, Error> {
    let announced = parts.headers.get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse().ok());
    limits::check("body_bytes", announced.unwrap_or(0), limits.body_bytes)?;
    let late = |_| {
        let detail = format!("the body took longer than {} s", limits.body_wait.as_secs());
        Error::new(Kind::InputInvalid, detail)
    };
    let gathered = collect_body(body, parts.extensions.get::<RequestPermits>(), limits.body_bytes);
    tokio::time::timeout(limits.body_wait, gathered).await.map_err(late)?
}

async fn collect_body(body: Body, permits: Option<&RequestPermits>, most: usize) -> Result<Vec<u8>, Error> {
    let mut pieces = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece
            .map_err(|cause| Error::new(Kind::InputInvalid, format!("the body cannot be read: {cause}")))?;
        limits::check("body_bytes", bytes.len() + piece.len(), most)?;
        if let Some(permits) = permits {
            permits.acquire_body_bytes(piece.len())?;
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}
