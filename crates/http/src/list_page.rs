//! Pagination of lists.
use crate::cursor::CursorSigner;
use outlast_ports::page;
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::{Error, Kind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// The default number of entries on a page.
const DEFAULT_LIMIT: usize = 50;

/// One page of a list.
#[derive(Serialize, ToSchema)]
pub struct ListPage<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// The `cursor` of the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> ListPage<T> {
    /// Creates a list with only one page. Something else limits its length.
    pub fn single(items: Vec<T>) -> Self {
        Self { items, next: None }
    }

    /// Converts a page of the store.
    pub fn of<V: Into<T>, K: Serialize>(page: page::Page<V, K>, cursors: &CursorSigner<'_>) -> Self {
        let page::Page { items, next } = page;
        Self {
            items: items.into_iter().map(V::into).collect(),
            next: next.map(|key| encode_cursor(&key, cursors)),
        }
    }
}

/// Pagination parameters.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageParams {
    /// The maximum number of items to return.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<usize>,
    /// The `next` value of the previous page. Defaults to the first page.
    pub cursor: Option<String>,
}

impl PageParams {
    /// Makes the maximum page size the default.
    #[must_use]
    pub fn or_max_limit(self, limits: &ServerLimits) -> Self {
        Self { limit: self.limit.or(Some(limits.entries)), ..self }
    }

    /// Returns the key to read after, and the number of entries.
    pub fn read<K: DeserializeOwned>(
        self,
        cursors: &CursorSigner<'_>,
        limits: &ServerLimits,
    ) -> Result<(Option<K>, usize), Error> {
        Ok((decode_cursor(self.cursor.as_deref(), cursors)?, page_limit(self.limit, limits)?))
    }
}

/// Returns the key in a cursor, if there is a cursor.
pub fn decode_cursor<K: DeserializeOwned>(
    cursor: Option<&str>,
    cursors: &CursorSigner<'_>,
) -> Result<Option<K>, Error> {
    let wrong = |_| Error::new(Kind::InputInvalid, "the cursor is not one of this list; begin without one");
    cursor_position(cursor, cursors)?.map(|place| serde_json::from_str(&place).map_err(wrong)).transpose()
}

/// Returns the cursor that continues after a key.
///
/// # Panics
/// If the key is not JSON. Keys of lists are numbers, texts and ids.
pub fn encode_cursor<K: Serialize>(key: &K, cursors: &CursorSigner<'_>) -> String {
    cursors.sign(&serde_json::to_string(key).expect("keys of lists are numbers, texts and ids"))
}

/// Returns the number of entries of a page.
pub fn page_limit(limit: Option<usize>, limits: &ServerLimits) -> Result<usize, Error> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 {
        return Err(Error::new(Kind::InputInvalid, "expected a `limit` of at least 1, got 0"));
    }
    outlast_vocab::limits::check("entries", limit, limits.entries)?;
    Ok(limit)
}

/// Returns how long a request waits.
pub fn wait_limit(wait: Option<u64>, limits: &ServerLimits) -> Result<Duration, Error> {
    let (wait, most) = (Duration::from_secs(wait.unwrap_or(0)), limits.wait_most);
    if wait > most {
        let detail =
            format!("expected a `wait` of at most {} seconds, got {}", most.as_secs(), wait.as_secs());
        return Err(Error::new(Kind::InputInvalid, detail));
    }
    Ok(wait)
}

/// Returns the position in a cursor, if there is a cursor.
pub fn cursor_position(cursor: Option<&str>, cursors: &CursorSigner<'_>) -> Result<Option<String>, Error> {
    cursor.map(|cursor| cursors.verify(cursor)).transpose()
}
