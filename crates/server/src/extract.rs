//! Extractors that parse requests: ids in the path, the query, the body.
use crate::problem::Failed;
use crate::room::Room;
use crate::shared::Shared;
use crate::strict;
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
pub(crate) struct At<T>(pub(crate) T);

/// Two parameters of one path.
pub(crate) struct Both<A, B>(pub(crate) A, pub(crate) B);

impl<A: FromStr<Err: Into<Error>>, B: FromStr<Err: Into<Error>>> FromRequestParts<Shared> for Both<A, B> {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Failed> {
        let named = named(parts, shared).await?;
        Ok(Self(parse(&named, 0)?, parse(&named, 1)?))
    }
}

impl<T: FromStr<Err: Into<Error>>> FromRequestParts<Shared> for At<T> {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Failed> {
        Ok(Self(parse(&named(parts, shared).await?, 0)?))
    }
}

async fn named(parts: &mut Parts, shared: &Shared) -> Result<Vec<String>, Error> {
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
pub(crate) struct Word(pub(crate) String);

impl FromStr for Word {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(Self(text.to_owned()))
    }
}

/// The query parameters.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Shared> for Asked<T> {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Failed> {
        let Query(asked) = Query::from_request_parts(parts, shared).await.map_err(|cause| {
            Error::new(Kind::InputInvalid, format!("the query does not fit: {}", cause.body_text()))
        })?;
        Ok(Self(asked))
    }
}

/// A JSON body.
pub(crate) struct Said<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Shared> for Said<T> {
    type Rejection = Failed;

    async fn from_request(request: Request, shared: &Shared) -> Result<Self, Failed> {
        let (parts, body) = request.into_parts();
        check_json(&parts.headers)?;
        Ok(Self(strict::read(&whole(&parts, body, &shared.limits).await?)?))
    }
}

/// An optional JSON body.
pub(crate) struct MaySay<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<Shared> for MaySay<T> {
    type Rejection = Failed;

    async fn from_request(request: Request, shared: &Shared) -> Result<Self, Failed> {
        let (parts, body) = request.into_parts();
        let bytes = whole(&parts, body, &shared.limits).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        check_json(&parts.headers)?;
        Ok(Self(strict::read::<Option<T>>(&bytes)?.unwrap_or_default()))
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
pub(crate) async fn whole(parts: &Parts, body: Body, limits: &ServerLimits) -> Result<Vec<u8>, Error> {
    let announced = parts.headers.get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse().ok());
    limits::check("body_bytes", announced.unwrap_or(0), limits.body_bytes)?;
    let late = |_| {
        let detail = format!("the body took longer than {} s", limits.body_wait.as_secs());
        Error::new(Kind::InputInvalid, detail)
    };
    let gathered = gathered(body, parts.extensions.get::<Room>(), limits.body_bytes);
    tokio::time::timeout(limits.body_wait, gathered).await.map_err(late)?
}

async fn gathered(body: Body, room: Option<&Room>, most: usize) -> Result<Vec<u8>, Error> {
    let mut pieces = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece
            .map_err(|cause| Error::new(Kind::InputInvalid, format!("the body cannot be read: {cause}")))?;
        limits::check("body_bytes", bytes.len() + piece.len(), most)?;
        if let Some(room) = room {
            room.take(piece.len())?;
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}
