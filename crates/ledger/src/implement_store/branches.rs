//! Implements `BranchStore`.
pub use crate::{Backend, rules};
pub use outlast_ports::ResultFuture;
pub use outlast_ports::branches::{BranchStore, ForkRequest};
pub use outlast_vocab::Millis;
pub use outlast_vocab::id::{CallId, SessionId};
pub use outlast_vocab::record::{OutcomeVerdict, Seq};

#[doc(hidden)]
#[macro_export]
macro_rules! implement_branches {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::branches::*;

            impl$(<$param: $bound>)? BranchStore for $store {
                fn fork(&self, fork: ForkRequest) -> ResultFuture<'_, SessionId> {
                    self.write(move |rows| rules::fork(rows, fork))
                }

                fn rewind(
                    &self,
                    session: SessionId,
                    head: String,
                    to: Option<Seq>,
                    now: Millis,
                ) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::rewind(rows, session, &head, to, now))
                }

                fn delete(&self, session: SessionId, now: Millis) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::delete(rows, session, now))
                }

                fn forks(&self, session: SessionId) -> ResultFuture<'_, Vec<SessionId>> {
                    self.read(move |rows| rules::forks(rows, session))
                }

                fn settle(
                    &self,
                    call: CallId,
                    verdict: OutcomeVerdict,
                    now: Millis,
                ) -> ResultFuture<'_, SessionId> {
                    self.write(move |rows| rules::settle(rows, call, &verdict, now))
                }
            }
        };
    };
}
