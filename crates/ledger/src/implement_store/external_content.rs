//! Implements `ExternalContentStore`.
pub use crate::{Backend, rules};
pub use outlast_ports::ResultFuture;
pub use outlast_ports::attachment_upload::{DeletionRequest, ExternalContentStore, SweepCounter};
pub use outlast_vocab::Hash;
pub use outlast_vocab::id::WorkerId;

#[doc(hidden)]
#[macro_export]
macro_rules! implement_external_content {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::external_content::*;

            impl$(<$param: $bound>)? ExternalContentStore for $store {
                fn sweeps(&self) -> ResultFuture<'_, SweepCounter> {
                    self.read(|rows| rows.sweep_counter())
                }

                fn unreferenced(&self, limit: usize) -> ResultFuture<'_, Vec<Hash>> {
                    self.read(move |rows| rules::unreferenced(rows, limit))
                }

                fn filter_unreferenced(&self, contents: Vec<Hash>) -> ResultFuture<'_, Vec<Hash>> {
                    self.read(move |rows| rules::filter_unreferenced(rows, contents))
                }

                fn mark_for_deletion(&self, request: DeletionRequest) -> ResultFuture<'_, Vec<Hash>> {
                    self.write(move |rows| rules::mark_for_deletion(rows, &request))
                }

                fn unmark_for_deletion(&self, request: DeletionRequest) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::unmark_for_deletion(rows, &request))
                }

                fn forget_deleted(&self, contents: Vec<Hash>, worker: WorkerId) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::forget_deleted(rows, &contents, worker))
                }
            }
        };
    };
}
