//! Pagination of lists.
use crate::cursor::CursorSigner;
use outlast_api::list_page::{ListPage, PageParams};
use outlast_ports::page;
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::{Error, Kind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// The default number of entries on a page.
const DEFAULT_LIMIT: usize = 50;

/// Converts a page of the store, and signs its cursor.
pub fn of_store<T, V: Into<T>, K: Serialize>(
    page: page::Page<V, K>,
    cursors: &CursorSigner<'_>,
) -> ListPage<T> {
    let page::Page { items, next } = page;
    ListPage {
        items: items.into_iter().map(V::into).collect(),
        next: next.map(|key| encode_cursor(&key, cursors)),
    }
}

/// Returns the key to read after, and the number of entries.
pub fn read<K: DeserializeOwned>(
    page: &PageParams,
    cursors: &CursorSigner<'_>,
    limits: &ServerLimits,
) -> Result<(Option<K>, usize), Error> {
    Ok((decode_cursor(page.cursor.as_deref(), cursors)?, page_limit(page.limit, limits)?))
}

/// Returns the key in a cursor, if there is a cursor.
pub fn decode_cursor<K: DeserializeOwned>(
    cursor: Option<&str>,
    cursors: &CursorSigner<'_>,
) -> Result<Option<K>, Error> {
    let wrong =
        |_| Error::new(Kind::InputInvalid, "the cursor does not belong to this list; start without a cursor");
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
