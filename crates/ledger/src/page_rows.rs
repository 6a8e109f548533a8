//! Pages of lists from rows.
use outlast_ports::page::Page;
use outlast_vocab::Error;

/// Builds a page from up to `limit + 1` rows. The extra row shows whether another page follows.
pub(crate) fn page_from_rows<T, K, R>(
    mut rows: Vec<R>,
    limit: usize,
    key: impl FnOnce(&R) -> K,
    entry: impl FnMut(R) -> Result<Option<T>, Error>,
) -> Result<Page<T, K>, Error> {
    let goes_on = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| goes_on).map(key);
    let items = rows.into_iter().map(entry).filter_map(Result::transpose).collect::<Result<_, _>>()?;
    Ok(Page { items, next })
}

/// Returns how many rows to read for a page of `limit` entries.
pub(crate) const fn rows_to_read(limit: usize) -> usize {
    limit.saturating_add(1)
}
