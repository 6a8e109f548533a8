//! Paginated lists.
use crate::Client;
use crate::http::QueryPairs;
use outlast_vocab::Error;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The maximum number of entries that a server returns at once.
pub(crate) const PAGE_ITEMS_MAX: usize = 500;

/// One page of a list.
#[derive(Deserialize)]
pub(crate) struct PageJson<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

impl Client {
    /// Returns up to this many entries of a list with cursors.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &QueryPairs<'_>,
        most: usize,
    ) -> Result<Vec<T>, Error> {
        let mut items: Vec<T> = Vec::new();
        let mut cursor: Option<String> = None;
        while items.len() < most {
            let limit = (most - items.len()).min(PAGE_ITEMS_MAX);
            let mut query = query.to_vec();
            query.push(("limit", limit.to_string()));
            query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
            let page: PageJson<T> = self.get(path, &query).await?;
            items.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(items)
    }
}
