//! Pagination of lists by key.
//!
//! A page starts after the key of the last row of the previous page, even if that row was deleted since. Rows that are
//! added or deleted between two pages never cause other entries to be repeated or skipped.

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, K> {
    /// The entries, in the order of the list. There may be fewer than the limit even if more pages follow.
    pub items: Vec<T>,
    /// The key after which the next page starts, or `None` on the last page.
    pub next: Option<K>,
}
