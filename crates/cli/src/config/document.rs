//! A TOML file that knows the line of every value.
use outlast::{Error, Kind};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// The maximum size of a file, in bytes.
pub(crate) const FILE_BYTES: u64 = 1 << 20;

/// A parsed file. A value is found by its path of keys; the index in a list is a number.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    path: PathBuf,
    text: String,
}

/// Reads a text file of at most [`FILE_BYTES`]. `what` names the file's role in error messages.
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
    /// Reads and parses a file. `what` names the file's role in error messages.
    pub(crate) fn read(path: &Path, what: &str) -> Result<Self, Error> {
        let document = Self { path: path.to_owned(), text: read_text(path, what)? };
        document.root()?;
        Ok(document)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the absolute directory of the file.
    pub(crate) fn home(&self) -> Result<PathBuf, Error> {
        let place = self.path.canonicalize().map_err(|cause| {
            let detail = format!("{} cannot be found: {cause}", self.path.display());
            Error::new(Kind::IoFailed, detail).because(cause)
        })?;
        Ok(place.parent().unwrap_or(Path::new("/")).to_owned())
    }

    /// Returns the value at a path, if it exists.
    pub(crate) fn value<T: DeserializeOwned>(&self, at: &[&str]) -> Result<Option<T>, Error> {
        let root = self.root()?;
        let Some(found) = find(&root, at) else { return Ok(None) };
        let value = T::deserialize(ValueDeserializer::from(found.clone()));
        value.map(Some).map_err(|error| self.parsed_wrong(&error, found.span().start))
    }

    /// Returns the keys of the table at a path, in order. Fails if the value is not a table.
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

    /// Parses the file and returns its root, with the span of every value.
    pub(crate) fn root(&self) -> Result<Spanned<DeValue<'_>>, Error> {
        let table = DeTable::parse(&self.text).map_err(|error| self.parsed_wrong(&error, 0))?;
        Ok(Spanned::new(table.span(), DeValue::Table(table.into_inner())))
    }

    fn parsed_wrong(&self, error: &toml::de::Error, at: usize) -> Error {
        // Users know tables, not the Rust structs behind them.
        let message = match error.message().split_once("expected struct ") {
            Some((found, _)) => format!("{found}expected a table"),
            None => error.message().to_owned(),
        };
        self.wrong(error.span().map_or(at, |span| span.start), &message)
    }

    /// Returns an error at the line of a value, or of its nearest existing parent.
    pub(crate) fn invalid(&self, at: &[&str], what: &str) -> Error {
        let place = self.root().ok().and_then(|root| {
            let around = (0..=at.len()).rev();
            around.filter(|most| *most > 0).find_map(|most| Some(find(&root, &at[..most])?.span().start))
        });
        self.wrong(place.unwrap_or(0), what)
    }

    /// Returns an error at the line of a byte offset.
    pub(crate) fn wrong(&self, at: usize, what: &str) -> Error {
        // Parser messages may have several lines.
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
