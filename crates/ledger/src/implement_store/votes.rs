//! Implements `VoteStore`.
pub use crate::{Backend, rules};
pub use outlast_ports::ResultFuture;
pub use outlast_ports::page::Page;
pub use outlast_ports::votes::{SentNotice, VoteRequest, VoteStore};
pub use outlast_views::{ApprovalProgress, SessionGrant, VoteOutcome};
pub use outlast_vocab::id::{GrantId, SessionId};
pub use outlast_vocab::{Millis, ReplayKey, TurnId};

#[doc(hidden)]
#[macro_export]
macro_rules! implement_votes {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::votes::*;

            impl$(<$param: $bound>)? VoteStore for $store {
                fn vote(&self, ballot: VoteRequest) -> ResultFuture<'_, VoteOutcome> {
                    self.write(move |rows| rules::vote(rows, ballot))
                }

                fn approval_progress(
                    &self,
                    turn: TurnId,
                    key: ReplayKey,
                ) -> ResultFuture<'_, ApprovalProgress> {
                    self.read(move |rows| rules::approval_progress(rows, turn, &key))
                }

                fn send_due_notices(
                    &self,
                    now: Millis,
                    reminders_most: u32,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<SentNotice>> {
                    self.write(move |rows| rules::send_due_notices(rows, now, reminders_most, limit))
                }

                fn session_grants(&self, session: SessionId) -> ResultFuture<'_, Vec<SessionGrant>> {
                    self.read(move |rows| rules::session_grants(rows, session))
                }

                fn grants(&self, limit: usize) -> ResultFuture<'_, Vec<SessionGrant>> {
                    self.read(move |rows| Ok(rules::grants(rows, None, limit)?.items))
                }

                fn grants_after(
                    &self,
                    after: Option<(Millis, GrantId)>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<SessionGrant, (Millis, GrantId)>> {
                    self.read(move |rows| rules::grants(rows, after, limit))
                }

                fn revoke_grant(&self, id: GrantId, now: Millis) -> ResultFuture<'_, SessionGrant> {
                    self.write(move |rows| rules::revoke_grant(rows, id, now))
                }
            }
        };
    };
}
