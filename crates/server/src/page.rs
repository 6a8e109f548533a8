//! Lists, page by page.
use crate::cursor::Cursors;
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::{Error, Kind};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// Entries of a page when nobody says how many.
const USUAL: usize = 50;

/// One page of a list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Page<T> {
    /// The entries.
    pub(crate) items: Vec<T>,
    /// Where the next page begins; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

impl<T> Page<T> {
    /// A list that has only this page.
    pub(crate) fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

/// How many.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Most {
    /// How many at most.
    #[param(minimum = 1, maximum = 500)]
    pub(crate) limit: Option<usize>,
}

/// How many entries a page has.
pub(crate) fn size(limit: Option<usize>, limits: &ServerLimits) -> Result<usize, Error> {
    let limit = limit.unwrap_or(USUAL);
    if limit == 0 {
        return Err(Error::new(Kind::InputInvalid, "expected a `limit` of at least 1, got 0"));
    }
    outlast_vocab::limits::check("entries", limit, limits.entries)?;
    Ok(limit)
}

/// How long a request waits.
pub(crate) fn patience(wait: Option<u64>, limits: &ServerLimits) -> Result<Duration, Error> {
    let (wait, most) = (Duration::from_secs(wait.unwrap_or(0)), limits.wait_most);
    if wait > most {
        let detail =
            format!("expected a `wait` of at most {} seconds, got {}", most.as_secs(), wait.as_secs());
        return Err(Error::new(Kind::InputInvalid, detail));
    }
    Ok(wait)
}

/// The place that a cursor stands for, if there is one.
pub(crate) fn place(cursor: Option<&str>, cursors: &Cursors<'_>) -> Result<Option<String>, Error> {
    cursor.map(|cursor| cursors.read(cursor)).transpose()
}
