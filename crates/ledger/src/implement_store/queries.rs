//! Implements `Queries`.
pub use crate::{Backend, rules};
pub use outlast_ports::ResultFuture;
pub use outlast_ports::page::Page;
pub use outlast_ports::queries::{Queries, RequestTurnState, RequestTurns, StoreLoad, WorkerAgenda};
pub use outlast_ports::store::StoreStatus;
pub use outlast_ports::turns::TurnNo;
pub use outlast_views::{SessionView, TurnView, UnknownCall, WaitingTurn};
pub use outlast_vocab::id::{CallId, SessionId, WorkerId};
pub use outlast_vocab::wait::WaitKind;
pub use outlast_vocab::{Millis, TurnId};

#[doc(hidden)]
#[macro_export]
macro_rules! implement_queries {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::queries::*;

            impl$(<$param: $bound>)? Queries for $store {
                fn sessions(
                    &self,
                    before: Option<SessionId>,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<SessionView>> {
                    self.read(move |rows| rules::sessions(rows, before, limit))
                }

                fn session(&self, id: SessionId) -> ResultFuture<'_, SessionView> {
                    self.read(move |rows| rules::session(rows, id))
                }

                fn session_by_key(&self, key: String) -> ResultFuture<'_, SessionView> {
                    self.read(move |rows| rules::session_by_key(rows, &key))
                }

                fn turn(&self, id: TurnId) -> ResultFuture<'_, TurnView> {
                    self.read(move |rows| rules::turn(rows, id))
                }

                fn turns(
                    &self,
                    session: SessionId,
                    from: u32,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<TurnView>> {
                    self.read(move |rows| rules::turns(rows, session, from, limit))
                }

                fn request_turns(
                    &self,
                    after: Option<TurnNo>,
                    limit: usize,
                ) -> ResultFuture<'_, RequestTurns> {
                    self.read(move |rows| rules::request_turns(rows, after, limit))
                }

                fn request_turn_state(&self, turn: TurnId) -> ResultFuture<'_, RequestTurnState> {
                    self.read(move |rows| rules::request_turn_state(rows, turn))
                }

                fn unknown(&self, limit: usize) -> ResultFuture<'_, Vec<UnknownCall>> {
                    self.read(move |rows| Ok(rules::unknown(rows, None, limit)?.items))
                }

                fn unknown_after(
                    &self,
                    after: Option<(Millis, CallId)>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<UnknownCall, (Millis, CallId)>> {
                    self.read(move |rows| rules::unknown(rows, after, limit))
                }

                fn waiting(&self, kind: WaitKind, limit: usize) -> ResultFuture<'_, Vec<WaitingTurn>> {
                    self.read(move |rows| rules::waiting(rows, kind, limit))
                }

                fn cancel_reason(&self, turn: TurnId) -> ResultFuture<'_, Option<String>> {
                    self.read(move |rows| rules::cancel_reason(rows, turn))
                }

                fn has_work(&self, worker: WorkerId, now: Millis) -> ResultFuture<'_, bool> {
                    self.read(move |rows| rules::has_work(rows, worker, now))
                }

                fn next_wake(&self) -> ResultFuture<'_, Option<Millis>> {
                    self.read(|rows| rules::next_wake(rows))
                }

                fn agenda(&self, worker: WorkerId, now: Millis) -> ResultFuture<'_, WorkerAgenda> {
                    self.read(move |rows| rules::agenda(rows, worker, now))
                }

                fn load(&self) -> ResultFuture<'_, StoreLoad> {
                    self.read(|rows| rules::load(rows))
                }

                fn changes(&self) -> ResultFuture<'_, u64> {
                    Backend::changes(self)
                }

                fn status(&self) -> ResultFuture<'_, StoreStatus> {
                    Backend::status(self)
                }
            }
        };
    };
}
