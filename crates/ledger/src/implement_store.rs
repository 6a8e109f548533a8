//! The implementation of the store traits: each method runs one rule as one unit of work of a [`Backend`].
//!
//! A macro per store trait, because these traits are in `outlast-ports`, which does not know the rules: a blanket
//! implementation for every backend is only possible in the crate of the traits. A generic type around a backend would
//! be compiled again in each crate that uses a store.
//!
//! [`Backend`]: crate::Backend
pub mod archive;
pub mod branches;
pub mod budgets;
pub mod configs;
pub mod content_queries;
pub mod external_content;
pub mod inbox;
pub mod journal;
pub mod orgs;
pub mod outbox;
pub mod payment_outbox;
pub mod queries;
pub mod rates;
pub mod scoping;
pub mod search;
pub mod turns;
pub mod votes;

/// Implements `outlast_ports::store::Store`, and all traits that it consists of, for a [`Backend`](crate::Backend).
///
/// ```text
/// implement_store!(SqliteStore);
/// implement_store!(CrashingStore<B>, B: Backend);
/// ```
#[macro_export]
macro_rules! implement_store {
    ($($store:tt)*) => {
        $crate::implement_inbox!($($store)*);
        $crate::implement_turns!($($store)*);
        $crate::implement_journal!($($store)*);
        $crate::implement_queries!($($store)*);
        $crate::implement_branches!($($store)*);
        $crate::implement_content_queries!($($store)*);
        $crate::implement_external_content!($($store)*);
        $crate::implement_budgets!($($store)*);
        $crate::implement_rates!($($store)*);
        $crate::implement_payment_outbox!($($store)*);
        $crate::implement_outbox!($($store)*);
        $crate::implement_configs!($($store)*);
        $crate::implement_orgs!($($store)*);
        $crate::implement_votes!($($store)*);
        $crate::implement_archive!($($store)*);
        $crate::implement_search!($($store)*);
        $crate::implement_scoping!($($store)*);
    };
}
