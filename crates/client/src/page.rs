//! Paginated lists.
use crate::Client;
use crate::http::Query;
use outlast_vocab::Error;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The maximum number of entries that a server returns at once.
pub(crate) const MOST: usize = 500;

/// One page of a list.
#[derive(Deserialize)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

impl Client {
    /// Returns up to this many entries of a list with cursors.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &Query<'_>,
        most: usize,
    ) -> Result<Vec<T>, Error> {
        let mut items: Vec<T> = Vec::new();
        let mut cursor: Option<String> = None;
        while items.len() < most {
            let limit = (most - items.len()).min(MOST);
            let mut query = query.to_vec();
            query.push(("limit", limit.to_string()));
            query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
            let page: Page<T> = self.get(path, &query).await?;
            items.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(items)
    }
}
