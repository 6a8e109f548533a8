//! Implements `Turns`.
pub use crate::{Backend, rules};
pub use outlast_ports::ResultFuture;
pub use outlast_ports::turns::{ClaimedTurn, Commit, CommitReceipt, Fence, Lease, LeaseRequest, Turns};
pub use outlast_vocab::Millis;
pub use outlast_vocab::id::SessionId;
pub use std::time::Duration;

#[doc(hidden)]
#[macro_export]
macro_rules! implement_turns {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::turns::*;

            impl$(<$param: $bound>)? Turns for $store {
                fn claim(
                    &self,
                    lease_request: LeaseRequest,
                    now: Millis,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<ClaimedTurn>> {
                    self.write(move |rows| rules::claim(rows, lease_request, now, limit))
                }

                fn renew(&self, lease_request: LeaseRequest) -> ResultFuture<'_, Vec<(SessionId, Fence)>> {
                    self.write(move |rows| rules::renew(rows, lease_request))
                }

                fn commit(&self, mut commit: Commit) -> ResultFuture<'_, CommitReceipt> {
                    let drafts =
                        std::mem::take(&mut commit.facts).into_iter().map(rules::EncodedFact::from).collect();
                    self.write(move |rows| rules::commit(rows, commit, drafts))
                }

                fn release_lease(&self, lease: Lease, now: Millis) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::release_lease(rows, &lease, now))
                }

                fn claim_suspect(
                    &self,
                    lease_request: LeaseRequest,
                    lived: Duration,
                    due: Millis,
                ) -> ResultFuture<'_, Option<ClaimedTurn>> {
                    self.write(move |rows| rules::claim_suspect(rows, lease_request, lived, due))
                }

                fn begin_trial(&self, lease: Lease) -> ResultFuture<'_, bool> {
                    self.write(move |rows| rules::begin_trial(rows, &lease))
                }

                fn end_trial(&self, lease: Lease) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::end_trial(rows, &lease))
                }

                fn report_hang(&self, lease: Lease) -> ResultFuture<'_, bool> {
                    self.write(move |rows| rules::report_hang(rows, &lease))
                }
            }
        };
    };
}
