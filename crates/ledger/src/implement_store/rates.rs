//! Implements `RateStore`.
pub use crate::{Backend, rules};
pub use outlast_ports::ResultFuture;
pub use outlast_ports::page::Page;
pub use outlast_ports::rate::RateStore;
pub use outlast_views::RateView;
pub use outlast_vocab::id::OrgId;

#[doc(hidden)]
#[macro_export]
macro_rules! implement_rates {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::rates::*;

            impl$(<$param: $bound>)? RateStore for $store {
                fn rates(&self, limit: usize) -> ResultFuture<'_, Vec<RateView>> {
                    self.read(move |rows| Ok(rules::rates(rows, None, limit)?.items))
                }

                fn rates_after(
                    &self,
                    after: Option<(OrgId, String)>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<RateView, (OrgId, String)>> {
                    self.read(move |rows| rules::rates(rows, after.as_ref(), limit))
                }
            }
        };
    };
}
