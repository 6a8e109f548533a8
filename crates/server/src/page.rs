//! Lists, page by page.
use crate::cursor::Cursors;
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::{Error, Kind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// Entries of a page when nobody says how many.
const USUAL: usize = 50;

/// One page of a list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Page<T> {
    /// The entries.
    pub(crate) items: Vec<T>,
    /// Where the next page begins; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

impl<T> Page<T> {
    /// A list that has only this page.
    pub(crate) fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

/// How many, and from where.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Most {
    /// How many at most.
    #[param(minimum = 1, maximum = 500)]
    pub(crate) limit: Option<usize>,
    /// The `next` of the page before.
    pub(crate) cursor: Option<String>,
}

impl Most {
    /// As many as a page can have, when nobody says how many.
    pub(crate) fn or_all(self, limits: &ServerLimits) -> Self {
        Self { limit: self.limit.or(Some(limits.entries)), ..self }
    }
}

/// The page of a list that is in the order of its entries' keys. It goes on behind the key in the cursor, be that entry still there or
/// not: what comes and goes between two pages makes no other entry come twice or not at all.
pub(crate) fn paged<T, K: Ord + Serialize + DeserializeOwned>(
    entries: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
    Most { limit, cursor }: Most,
    (cursors, limits): (&Cursors<'_>, &ServerLimits),
) -> Result<Page<T>, Error> {
    let (limit, place) = (size(limit, limits)?, behind::<K>(cursor.as_deref(), cursors)?);
    let mut rest = entries.into_iter().filter(|entry| place.as_ref().is_none_or(|place| key(entry) > *place));
    let items: Vec<T> = rest.by_ref().take(limit).collect();
    let next = items.last().filter(|_| rest.next().is_some()).map(|last| goes_on(&key(last), cursors));
    Ok(Page { items, next })
}

/// The key that a cursor stands for, if there is one.
pub(crate) fn behind<K: DeserializeOwned>(
    cursor: Option<&str>,
    cursors: &Cursors<'_>,
) -> Result<Option<K>, Error> {
    let wrong = |_| Error::new(Kind::InputInvalid, "the cursor is not one of this list; begin without one");
    place(cursor, cursors)?.map(|place| serde_json::from_str(&place).map_err(wrong)).transpose()
}

/// The cursor that goes on behind a key.
pub(crate) fn goes_on<K: Serialize>(key: &K, cursors: &Cursors<'_>) -> String {
    cursors.sign(&serde_json::to_string(key).expect("keys of lists are numbers, texts and ids"))
}

/// How many entries a page has.
pub(crate) fn size(limit: Option<usize>, limits: &ServerLimits) -> Result<usize, Error> {
    let limit = limit.unwrap_or(USUAL);
    if limit == 0 {
        return Err(Error::new(Kind::InputInvalid, "expected a `limit` of at least 1, got 0"));
    }
    outlast_vocab::limits::check("entries", limit, limits.entries)?;
    Ok(limit)
}

/// How long a request waits.
pub(crate) fn patience(wait: Option<u64>, limits: &ServerLimits) -> Result<Duration, Error> {
    let (wait, most) = (Duration::from_secs(wait.unwrap_or(0)), limits.wait_most);
    if wait > most {
        let detail =
            format!("expected a `wait` of at most {} seconds, got {}", most.as_secs(), wait.as_secs());
        return Err(Error::new(Kind::InputInvalid, detail));
    }
    Ok(wait)
}

/// The place that a cursor stands for, if there is one.
pub(crate) fn place(cursor: Option<&str>, cursors: &Cursors<'_>) -> Result<Option<String>, Error> {
    cursor.map(|cursor| cursors.read(cursor)).transpose()
}
