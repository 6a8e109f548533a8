//! Whether an operator has set a budget. If so, turns of agents without a budget are metered too.
use outlast_ports::store::Store;
use outlast_vocab::Error;
use std::sync::atomic::{AtomicBool, Ordering};

/// What this process last read about budgets that operators set.
#[derive(Debug, Default)]
pub(crate) struct OperatorBudgets(AtomicBool);

impl OperatorBudgets {
    /// Whether an operator has set a budget.
    pub(crate) fn are_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Reads from the store whether an operator has set a budget.
    pub(crate) async fn refresh(&self, store: &dyn Store) -> Result<(), Error> {
        self.0.store(store.budgets_are_set().await?, Ordering::Relaxed);
        Ok(())
    }
}
