//! Exports sessions to files and imports them.
use crate::Outlast;
use outlast_ports::archive::ImportResult;
use outlast_runtime::archive::{Export, import};
use outlast_vocab::{Error, SessionId};
use std::io::{Read, Seek};

impl Outlast {
    /// Exports a session as one file, in pieces.
    ///
    /// The file contains the session's records with their hash chain, packages, values and attachments, and what it
    /// needs from the sessions it was forked from. Later writes to the session are not included.
    ///
    /// ```
    /// # use outlast::Outlast;
    /// # async fn example() -> Result<(), outlast::Error> {
    /// let outlast = Outlast::ephemeral().builtin_tools().start().await?;
    /// let turn = outlast.session("ann").send("what is 6 * 7?").await?;
    /// turn.answer().await?;
    /// let mut export = outlast.export(turn.session()).await?;
    /// let mut file = String::new();
    /// while let Some(piece) = export.piece().await? {
    ///     file.push_str(&piece);
    /// }
    /// let from = std::io::Cursor::new(file.into_bytes());
    /// let replayed = outlast::replay::replay(from, None, &outlast::Limits::default()).await?;
    /// assert!(replayed.divergence().is_none());
    /// # outlast.shut_down().await;
    /// # Ok(())
    /// # }
    /// # fn main() { tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap() }
    /// ```
    pub async fn export(&self, session: SessionId) -> Result<Export, Error> {
        let (store, attachments) = (self.store().clone(), self.attachments());
        Export::begin(store, attachments, session, self.runtime.now()).await
    }

    /// Imports a session from a file, under its original id. If `key` is given, it replaces the session's key.
    ///
    /// The whole file is verified before anything is written. Imported turns never run here; unfinished ones are
    /// closed.
    pub async fn import(
        &self,
        from: impl Read + Seek + Send + 'static,
        key: Option<String>,
    ) -> Result<ImportResult, Error> {
        import(self.store().as_ref(), &self.attachments(), from, key, self.runtime.now()).await
    }
}
