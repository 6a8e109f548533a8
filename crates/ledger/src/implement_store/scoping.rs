//! Implements `Store` itself: a handle with restricted access.
pub use crate::scoped::ScopedStore;
pub use outlast_ports::store::Store;
pub use outlast_vocab::access::Access;
pub use std::sync::Arc;

#[doc(hidden)]
#[macro_export]
macro_rules! implement_scoping {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::scoping::*;

            impl$(<$param: $bound>)? Store for $store {
                fn serving(self: Arc<Self>, access: Access) -> Arc<dyn Store> {
                    Arc::new(ScopedStore::restrict(self, access))
                }
            }
        };
    };
}
