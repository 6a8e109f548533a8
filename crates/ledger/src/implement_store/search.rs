//! Implements `MessageSearch`.
pub use crate::{Backend, rules};
pub use outlast_ports::ResultFuture;
pub use outlast_ports::search::{MessageMatch, MessageSearch, SearchQuery};

#[doc(hidden)]
#[macro_export]
macro_rules! implement_search {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::search::*;

            impl$(<$param: $bound>)? MessageSearch for $store {
                fn find(&self, find: SearchQuery) -> ResultFuture<'_, Vec<MessageMatch>> {
                    self.read(move |rows| rules::find(rows, &find))
                }
            }
        };
    };
}
