//! Implements `Inbox`.
pub use crate::{Backend, rules};
pub use outlast_ports::ResultFuture;
pub use outlast_ports::inbox::{AcceptReceipt, AcceptRequest, Inbox, RetryRequest, SessionTarget};
pub use outlast_views::{CancelOutcome, ResolveResult};
pub use outlast_vocab::id::SessionId;
pub use outlast_vocab::wait::{CompletionKey, Resolution};
pub use outlast_vocab::{Millis, ReplayKey, TurnId};

#[doc(hidden)]
#[macro_export]
macro_rules! implement_inbox {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::inbox::*;

            impl$(<$param: $bound>)? Inbox for $store {
                fn accept(&self, accept: AcceptRequest) -> ResultFuture<'_, AcceptReceipt> {
                    self.write(move |rows| rules::accept(rows, accept))
                }

                fn retry(&self, retry: RetryRequest) -> ResultFuture<'_, AcceptReceipt> {
                    self.write(move |rows| rules::retry(rows, retry))
                }

                fn open(&self, target: SessionTarget, now: Millis) -> ResultFuture<'_, SessionId> {
                    self.write(move |rows| rules::open(rows, target, now))
                }

                fn cancel(
                    &self,
                    turn: TurnId,
                    reason: String,
                    now: Millis,
                ) -> ResultFuture<'_, CancelOutcome> {
                    self.write(move |rows| {
                        rules::cancel(rows, turn, rules::StopRequest { reason, undo: false }, now)
                    })
                }

                fn abort(
                    &self,
                    turn: TurnId,
                    reason: String,
                    now: Millis,
                ) -> ResultFuture<'_, CancelOutcome> {
                    self.write(move |rows| {
                        rules::cancel(rows, turn, rules::StopRequest { reason, undo: true }, now)
                    })
                }

                fn resolve(
                    &self,
                    turn: TurnId,
                    key: ReplayKey,
                    resolution: Resolution,
                    now: Millis,
                ) -> ResultFuture<'_, ResolveResult> {
                    self.write(move |rows| rules::resolve(rows, turn, &key, resolution, now))
                }

                fn completion_key(&self, turn: TurnId, wait: ReplayKey) -> ResultFuture<'_, CompletionKey> {
                    self.read(move |rows| rules::completion_key(rows, turn, wait))
                }
            }
        };
    };
}
