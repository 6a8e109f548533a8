//! A TOML file with the line of every value in it.
use outlast::{Error, Kind};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// The longest file in bytes.
pub(crate) const FILE_BYTES: u64 = 1 << 20;

/// A file that was read. Values are found by the names that lead to them; a place in a list is a number.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    path: PathBuf,
    text: String,
}

/// Reads a text file of at most [`FILE_BYTES`]; `what` says what it is.
pub(crate) fn read_text(path: &Path, what: &str) -> Result<String, Error> {
    let unread = |cause| {
        let detail = format!("the {what} {} cannot be read: {cause}", path.display());
        Error::new(Kind::IoFailed, detail).because(cause)
    };
    let bytes = std::fs::metadata(path).map_err(unread)?.len();
    if bytes > FILE_BYTES {
        let detail = format!("{}: expected at most {FILE_BYTES} bytes, found {bytes}", path.display());
        return Err(Error::new(Kind::ConfigInvalid, detail));
    }
    std::fs::read_to_string(path).map_err(unread)
}

impl Document {
    /// Reads a file; `what` says what it is.
    pub(crate) fn read(path: &Path, what: &str) -> Result<Self, Error> {
        let document = Self { path: path.to_owned(), text: read_text(path, what)? };
        document.root()?;
        Ok(document)
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The directory of the file.
    pub(crate) fn home(&self) -> Result<PathBuf, Error> {
        let place = self.path.canonicalize().map_err(|cause| {
            let detail = format!("{} cannot be found: {cause}", self.path.display());
            Error::new(Kind::IoFailed, detail).because(cause)
        })?;
        Ok(place.parent().unwrap_or(Path::new("/")).to_owned())
    }

    /// What is written there, if something is.
    pub(crate) fn value<T: DeserializeOwned>(&self, at: &[&str]) -> Result<Option<T>, Error> {
        let root = self.root()?;
        let Some(found) = find(&root, at) else { return Ok(None) };
        let value = T::deserialize(ValueDeserializer::from(found.clone()));
        value.map(Some).map_err(|error| self.parsed_wrong(&error, found.span().start))
    }

    /// The names in the table there, in their order. Something else in its place is an error.
    pub(crate) fn names(&self, at: &[&str]) -> Result<Vec<String>, Error> {
        let root = self.root()?;
        let Some(found) = find(&root, at) else { return Ok(Vec::new()) };
        let Some(table) = found.get_ref().as_table() else {
            let at = at.join(".");
            let what = format!(
                "expected a table for each name, like `[{at}.NAME]`, in place of what `{at}` is here"
            );
            return Err(self.wrong(found.span().start, &what));
        };
        Ok(table.keys().map(|name| name.get_ref().to_string()).collect())
    }

    /// All of it, with the place of everything.
    pub(crate) fn root(&self) -> Result<Spanned<DeValue<'_>>, Error> {
        let table = DeTable::parse(&self.text).map_err(|error| self.parsed_wrong(&error, 0))?;
        Ok(Spanned::new(table.span(), DeValue::Table(table.into_inner())))
    }

    fn parsed_wrong(&self, error: &toml::de::Error, at: usize) -> Error {
        // People write tables; what they are read into is not theirs to know.
        let message = match error.message().split_once("expected struct ") {
            Some((found, _)) => format!("{found}expected a table"),
            None => error.message().to_owned(),
        };
        self.wrong(error.span().map_or(at, |span| span.start), &message)
    }

    /// Says what is wrong with what is written there, or with the nearest thing around it.
    pub(crate) fn invalid(&self, at: &[&str], what: &str) -> Error {
        let place = self.root().ok().and_then(|root| {
            let around = (0..=at.len()).rev();
            around.filter(|most| *most > 0).find_map(|most| Some(find(&root, &at[..most])?.span().start))
        });
        self.wrong(place.unwrap_or(0), what)
    }

    /// Says what is wrong at a byte of the text.
    pub(crate) fn wrong(&self, at: usize, what: &str) -> Error {
        // One line: what a parser says may have several.
        let what = what.trim().replace('\n', ", ");
        Error::new(Kind::ConfigInvalid, format!("{}:{}: {what}", self.path.display(), self.line(at)))
    }

    fn line(&self, at: usize) -> usize {
        self.text.get(..at).map_or(1, |before| before.matches('\n').count() + 1)
    }
}

fn find<'v, 'i>(root: &'v Spanned<DeValue<'i>>, at: &[&str]) -> Option<&'v Spanned<DeValue<'i>>> {
    at.iter().try_fold(root, |value, step| match value.get_ref() {
        DeValue::Table(table) => table.get(*step),
        DeValue::Array(list) => list.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}
