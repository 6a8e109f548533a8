//! Queries over the content of sessions: attachments, values, packages, unfinished replies.
use crate::ResultFuture;
use crate::page::Page;
use crate::turns::PartialReplyText;
use outlast_views::AttachmentView;
use outlast_vocab::Hash;
use outlast_vocab::id::{AttachmentId, SessionId, TurnId};
use serde_json::Value;
use std::ops::Range;

/// Reads content by hash, attachments, and the values of sessions.
pub trait ContentQueries: Send + Sync {
    /// Returns the bytes with this hash. A handle scoped to one organisation finds nothing: it reads content through
    /// the row that refers to it.
    fn blob(&self, hash: Hash) -> ResultFuture<'_, Vec<u8>>;

    /// Returns the configuration under which a turn began, or for which it was accepted.
    fn package(&self, turn: TurnId) -> ResultFuture<'_, Vec<u8>>;

    /// Returns a range of the bytes of an attachment stored in the database, without reading the rest. The bytes are
    /// not verified against the hash.
    fn attached(&self, session: SessionId, id: AttachmentId, range: Range<u64>) -> ResultFuture<'_, Vec<u8>>;

    /// Returns an attachment of a session, or of the sessions it was forked from.
    fn attachment(&self, session: SessionId, id: AttachmentId) -> ResultFuture<'_, AttachmentView>;

    /// Returns the attachments that a session itself uses, by id.
    fn attachments(&self, session: SessionId, limit: usize) -> ResultFuture<'_, Vec<AttachmentView>>;

    /// Returns a page of these attachments, after the one with this id.
    fn attachments_after(
        &self,
        session: SessionId,
        after: Option<AttachmentId>,
        limit: usize,
    ) -> ResultFuture<'_, Page<AttachmentView, AttachmentId>>;

    /// Returns the stored text of the reply that a turn was receiving when its worker left it.
    fn partial_reply(&self, turn: TurnId) -> ResultFuture<'_, Option<PartialReplyText>>;

    /// Returns a value of a session.
    fn value(&self, session: SessionId, name: String) -> ResultFuture<'_, Option<Value>>;

    /// Returns the names of a session's values that begin with `prefix`.
    fn value_names(&self, session: SessionId, prefix: String, limit: usize) -> ResultFuture<'_, Vec<String>>;

    /// Returns the secret that signs completion keys. It is created with the database. Only the operator can read it.
    fn secret(&self) -> ResultFuture<'_, [u8; 32]>;
}
