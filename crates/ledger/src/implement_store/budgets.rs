//! Implements `BudgetStore`.
pub use crate::{Backend, rules};
pub use outlast_ports::ResultFuture;
pub use outlast_ports::budget::{AwaitedBudget, BudgetStore, OpenReservation};
pub use outlast_ports::page::Page;
pub use outlast_views::BudgetAccountView;
pub use outlast_vocab::budget::{Budget, BudgetAccount};
pub use outlast_vocab::id::OrgId;
pub use outlast_vocab::{Millis, TurnId};

#[doc(hidden)]
#[macro_export]
macro_rules! implement_budgets {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::budgets::*;

            impl$(<$param: $bound>)? BudgetStore for $store {
                fn budgets(&self, limit: usize) -> ResultFuture<'_, Vec<BudgetAccountView>> {
                    self.read(move |rows| Ok(rules::budgets(rows, None, limit)?.items))
                }

                fn budgets_after(
                    &self,
                    after: Option<(OrgId, String)>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<BudgetAccountView, (OrgId, String)>> {
                    self.read(move |rows| rules::budgets(rows, after.as_ref(), limit))
                }

                fn budgets_are_set(&self) -> ResultFuture<'_, bool> {
                    self.read(|rows| rows.budgets_are_set())
                }

                fn awaited_budgets(&self, turn: TurnId) -> ResultFuture<'_, Vec<AwaitedBudget>> {
                    self.read(move |rows| rules::awaited_budgets(rows, turn))
                }

                fn open_reservations(&self, turn: TurnId) -> ResultFuture<'_, Vec<OpenReservation>> {
                    self.read(move |rows| rules::open_reservations(rows, turn))
                }

                fn set_budget(
                    &self,
                    account: BudgetAccount,
                    budget: Option<Budget>,
                    now: Millis,
                ) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::set_budget(rows, &account, budget, now))
                }
            }
        };
    };
}
