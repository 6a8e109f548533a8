//! Extractors that parse requests: ids in the path, the query, the body.
use crate::admission_control::RequestPermits;
use crate::problem::ApiError;
use crate::server_state::ServerState;
use crate::strict_json;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use futures_util::StreamExt;
use outlast_vocab::limits::{self, ServerLimits};
use outlast_vocab::{Error, Kind};
use serde::de::DeserializeOwned;
use std::str::FromStr;

/// The parameters of the path, in order.
pub(crate) struct PathParam<T>(pub(crate) T);

/// Two parameters of one path.
pub(crate) struct PathParams<A, B>(pub(crate) A, pub(crate) B);

impl<A: FromStr<Err: Into<Error>>, B: FromStr<Err: Into<Error>>> FromRequestParts<ServerState>
    for PathParams<A, B>
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, shared: &ServerState) -> Result<Self, ApiError> {
        let named = path_values(parts, shared).await?;
        Ok(Self(parse(&named, 0)?, parse(&named, 1)?))
    }
}

impl<T: FromStr<Err: Into<Error>>> FromRequestParts<ServerState> for PathParam<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, shared: &ServerState) -> Result<Self, ApiError> {
        Ok(Self(parse(&path_values(parts, shared).await?, 0)?))
    }
}

async fn path_values(parts: &mut Parts, shared: &ServerState) -> Result<Vec<String>, Error> {
    let params = RawPathParams::from_request_parts(parts, shared).await.map_err(|cause| {
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
pub(crate) struct TextParam(pub(crate) String);

impl FromStr for TextParam {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(Self(text.to_owned()))
    }
}

/// The query parameters.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<ServerState> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, shared: &ServerState) -> Result<Self, ApiError> {
        let Query(asked) = Query::from_request_parts(parts, shared).await.map_err(|cause| {
            Error::new(Kind::InputInvalid, format!("the query does not fit: {}", cause.body_text()))
        })?;
        Ok(Self(asked))
    }
}

/// A JSON body.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<ServerState> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, shared: &ServerState) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        check_json(&parts.headers)?;
        Ok(Self(strict_json::read(&read_body(&parts, body, &shared.limits).await?)?))
    }
}

/// An optional JSON body.
pub(crate) struct OptionalJsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<ServerState> for OptionalJsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, shared: &ServerState) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = read_body(&parts, body, &shared.limits).await?;
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
pub(crate) async fn read_body(parts: &Parts, body: Body, limits: &ServerLimits) -> Result<Vec<u8>, Error> {
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

async fn collect_body(body: Body, room: Option<&RequestPermits>, most: usize) -> Result<Vec<u8>, Error> {
    let mut pieces = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece
            .map_err(|cause| Error::new(Kind::InputInvalid, format!("the body cannot be read: {cause}")))?;
        limits::check("body_bytes", bytes.len() + piece.len(), most)?;
        if let Some(room) = room {
            room.acquire_body_bytes(piece.len())?;
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}
