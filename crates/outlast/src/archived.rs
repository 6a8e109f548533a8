//! Sessions as files.
use crate::Outlast;
use outlast_ports::archive::Imported;
use outlast_runtime::archive::{Export, import};
use outlast_vocab::{Error, SessionId};
use std::io::{Read, Seek};

impl Outlast {
    /// A session as one file, piece by piece: its records with their hash chain, packages, values and attachments, and what it
    /// needs of the sessions it was forked from. What is written to it meanwhile is not in it.
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

    /// Takes the session of a file in, under its own id, and under this key instead of its own if there is one. The file is
    /// checked to its end before anything is written. None of its turns is driven here; those that were not over are closed.
    pub async fn import(
        &self,
        from: impl Read + Seek + Send + 'static,
        key: Option<String>,
    ) -> Result<Imported, Error> {
        import(self.store().as_ref(), &self.attachments(), from, key, self.runtime.now()).await
    }
}
