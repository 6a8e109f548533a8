//! Implements `ArchiveStore`.
pub use crate::{Backend, rules};
pub use outlast_ports::ResultFuture;
pub use outlast_ports::archive::{
    ArchiveStore, ExportedRecords, ImportRequest, ImportResult, RecordPage, RerunAudit, SessionOutline,
};
pub use outlast_vocab::Hash;
pub use outlast_vocab::id::SessionId;
pub use std::collections::BTreeSet;

#[doc(hidden)]
#[macro_export]
macro_rules! implement_archive {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::archive::*;

            impl$(<$param: $bound>)? ArchiveStore for $store {
                fn outlines(&self, session: SessionId) -> ResultFuture<'_, Vec<SessionOutline>> {
                    self.read(move |rows| rules::outlines(rows, session))
                }

                fn export_records(
                    &self,
                    page: RecordPage,
                    known: BTreeSet<Hash>,
                ) -> ResultFuture<'_, ExportedRecords> {
                    self.read(move |rows| rules::export_records(rows, page, &known))
                }

                fn import(&self, import: ImportRequest) -> ResultFuture<'_, ImportResult> {
                    self.write(move |rows| rules::import(rows, import))
                }

                fn note_rerun(&self, rerun: RerunAudit) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::note_rerun(rows, rerun))
                }
            }
        };
    };
}
