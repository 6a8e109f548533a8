//! Lists, page by page. A page goes on behind the key of the last row that the one before has read, be that row still there or not: what
//! comes and goes in between makes no other entry come twice or not at all.
use outlast_vocab::Error;

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, K> {
    /// The entries, in the order of the list. There may be fewer than were asked for although the list goes on.
    pub items: Vec<T>,
    /// The key to go on behind; absent where the list ends.
    pub next: Option<K>,
}

impl<T, K> Page<T, K> {
    /// The page that these rows make: one more than it may have, so that it is known whether the list goes on.
    pub(crate) fn of<R>(
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

/// How many rows are read for a page of so many entries.
pub(crate) const fn rows_for(limit: usize) -> usize {
    limit.saturating_add(1)
}
