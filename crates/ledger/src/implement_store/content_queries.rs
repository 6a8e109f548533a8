//! Implements `ContentQueries`.
pub use crate::{Backend, rules};
pub use outlast_ports::ResultFuture;
pub use outlast_ports::content_queries::ContentQueries;
pub use outlast_ports::page::Page;
pub use outlast_ports::turns::PartialReplyText;
pub use outlast_views::AttachmentView;
pub use outlast_vocab::id::{AttachmentId, SessionId};
pub use outlast_vocab::{Hash, TurnId};
pub use serde_json::Value;
pub use std::ops::Range;

#[doc(hidden)]
#[macro_export]
macro_rules! implement_content_queries {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::content_queries::*;

            impl$(<$param: $bound>)? ContentQueries for $store {
                fn blob(&self, hash: Hash) -> ResultFuture<'_, Vec<u8>> {
                    self.read(move |rows| rules::blob(rows, hash))
                }

                fn package(&self, turn: TurnId) -> ResultFuture<'_, Vec<u8>> {
                    self.read(move |rows| rules::package(rows, turn))
                }

                fn attached(
                    &self,
                    session: SessionId,
                    id: AttachmentId,
                    range: Range<u64>,
                ) -> ResultFuture<'_, Vec<u8>> {
                    self.read(move |rows| rules::attached(rows, session, id, range))
                }

                fn attachment(
                    &self,
                    session: SessionId,
                    id: AttachmentId,
                ) -> ResultFuture<'_, AttachmentView> {
                    self.read(move |rows| rules::attachment(rows, session, id))
                }

                fn attachments(
                    &self,
                    session: SessionId,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<AttachmentView>> {
                    self.read(move |rows| Ok(rules::attachments(rows, session, None, limit)?.items))
                }

                fn attachments_after(
                    &self,
                    session: SessionId,
                    after: Option<AttachmentId>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<AttachmentView, AttachmentId>> {
                    self.read(move |rows| rules::attachments(rows, session, after, limit))
                }

                fn partial_reply(&self, turn: TurnId) -> ResultFuture<'_, Option<PartialReplyText>> {
                    self.read(move |rows| rules::partial_reply(rows, turn))
                }

                fn value(&self, session: SessionId, name: String) -> ResultFuture<'_, Option<Value>> {
                    self.read(move |rows| rules::value(rows, session, &name))
                }

                fn value_names(
                    &self,
                    session: SessionId,
                    prefix: String,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<String>> {
                    self.read(move |rows| rules::value_names(rows, session, &prefix, limit))
                }

                fn secret(&self) -> ResultFuture<'_, [u8; 32]> {
                    self.read(|rows| rows.secret())
                }
            }
        };
    };
}
