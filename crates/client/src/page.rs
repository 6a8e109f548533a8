//! Paginated lists.
use crate::Client;
use crate::http::parse_json;
use outlast_api::list_page::{ListPage, PageParams};
use outlast_vocab::Error;
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The maximum number of entries that a server returns at once.
pub(crate) const PAGE_ITEMS_MAX: usize = 500;

impl Client {
    /// Returns up to this many entries of a list with cursors. The query has neither a limit nor a cursor.
    ///
    /// # Panics
    /// If the query is not a flat structure of plain values.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &impl Serialize,
        most: usize,
    ) -> Result<Vec<T>, Error> {
        let encode = "parameters of the API are flat";
        let query = serde_urlencoded::to_string(query).expect(encode);
        let (mut items, mut cursor): (Vec<T>, _) = (Vec::new(), None);
        while items.len() < most {
            let limit = Some((most - items.len()).min(PAGE_ITEMS_MAX));
            let page = serde_urlencoded::to_string(PageParams { limit, cursor }).expect(encode);
            let query = if query.is_empty() { page } else { format!("{query}&{page}") };
            let request = self.request_with_query(Method::GET, path, &query);
            let page: ListPage<T> = parse_json(self.send(request).await?).await?;
            items.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(items)
    }
}
