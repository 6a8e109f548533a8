//! Implements `Journal`.
pub use crate::{Backend, rules};
pub use outlast_ports::ResultFuture;
pub use outlast_ports::journal::{FeedCursor, FeedRecord, Journal};
pub use outlast_views::HistoryTurn;
pub use outlast_vocab::TurnId;
pub use outlast_vocab::id::SessionId;
pub use outlast_vocab::message::Part;
pub use outlast_vocab::record::{NodeRef, Record, Seq};

#[doc(hidden)]
#[macro_export]
macro_rules! implement_journal {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::journal::*;

            impl$(<$param: $bound>)? Journal for $store {
                fn records(
                    &self,
                    session: SessionId,
                    after: Seq,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<Record>> {
                    self.read(move |rows| rules::records(rows, session, after, limit))
                }

                fn turn_records(&self, turn: TurnId) -> ResultFuture<'_, Vec<Record>> {
                    self.read(move |rows| rules::turn_records(rows, turn))
                }

                fn feed(&self, after: FeedCursor, limit: usize) -> ResultFuture<'_, Vec<FeedRecord>> {
                    self.read(move |rows| rules::feed(rows, after, limit))
                }

                fn feed_end(&self) -> ResultFuture<'_, FeedCursor> {
                    self.read(|rows| rows.feed_end().map(FeedCursor))
                }

                fn history(&self, node: NodeRef, bytes: usize) -> ResultFuture<'_, Vec<HistoryTurn>> {
                    self.read(move |rows| rules::history(rows, node, bytes))
                }

                fn joinable(&self, session: SessionId) -> ResultFuture<'_, Vec<(TurnId, Vec<Part>)>> {
                    self.read(move |rows| rules::joinable(rows, session))
                }

                fn verify(&self, session: SessionId) -> ResultFuture<'_, u64> {
                    self.read(move |rows| rules::verify(rows, session))
                }
            }
        };
    };
}
