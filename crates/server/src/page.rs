//! Lists, page by page.
use crate::cursor::Cursors;
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::{Error, Kind};
use serde::{Deserialize, Serialize};
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

/// The place that a cursor stands for, if there is one.
pub(crate) fn place(cursor: Option<&str>, cursors: &Cursors<'_>) -> Result<Option<String>, Error> {
    cursor.map(|cursor| cursors.read(cursor)).transpose()
}
