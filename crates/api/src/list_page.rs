//! Lists that are returned page by page.
use outlast_vocab::limits::ServerLimits;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// One page of a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ListPage<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// The `cursor` of the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Pagination parameters.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageParams {
    /// The maximum number of items to return.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<usize>,
    /// The `next` value of the previous page. Defaults to the first page.
    pub cursor: Option<String>,
}

impl<T> ListPage<T> {
    /// Creates a list with only one page. Something else limits its length.
    pub fn single(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

impl PageParams {
    /// Makes the maximum page size the default.
    #[must_use]
    pub fn or_max_limit(self, limits: &ServerLimits) -> Self {
        Self { limit: self.limit.or(Some(limits.entries)), ..self }
    }
}
