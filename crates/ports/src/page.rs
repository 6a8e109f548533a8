//! Pagination of lists by key.
//!
//! A page starts after the key of the last row of the previous page, even if that row was deleted since. Rows that are
//! added or deleted between two pages never cause other entries to be repeated or skipped.
use outlast_vocab::Error;

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, K> {
    /// The entries, in the order of the list. There may be fewer than the limit even if more pages follow.
    pub items: Vec<T>,
    /// The key after which the next page starts, or `None` on the last page.
    pub next: Option<K>,
}

impl<T, K> Page<T, K> {
    /// Builds a page from up to `limit + 1` rows. The extra row shows whether another page follows.
    pub(crate) fn from_rows<R>(
        mut rows: Vec<R>,
        limit: usize,
        key: impl FnOnce(&R) -> K,
        entry: impl FnMut(R) -> Result<Option<T>, Error>,
    ) -> Result<Self, Error> {
        let goes_on = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| goes_on).map(key);
        let items = rows.into_iter().map(entry).filter_map(Result::transpose).collect::<Result<_, _>>()?;
        Ok(Self { items, next })
    }
}

/// Returns how many rows to read for a page of `limit` entries.
pub(crate) const fn rows_to_read(limit: usize) -> usize {
    limit.saturating_add(1)
}
