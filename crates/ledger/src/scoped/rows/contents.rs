//! Attachments are visible with their session, and content once a visible row refers to it.
use super::VisibleRows;
use crate::rows::{
    AttachmentRow, ContentQueries, ContentRows, ContentWrites, ExternalContentRow, QueryRows, ReadRows, Rows,
    SessionNo,
};
use outlast_ports::attachment_upload::SweepCounter;
use outlast_vocab::id::AttachmentId;
use outlast_vocab::{Error, Hash};
use std::ops::{Deref, DerefMut, Range};

impl<R: Deref<Target: ReadRows>> ContentRows for VisibleRows<'_, R> {
    fn attachment(&self, session: SessionNo, id: AttachmentId) -> Result<Option<AttachmentRow>, Error> {
        let row = self.of(session, || self.rows.attachment(session, id))?;
        Ok(row.map(|row| self.attachment_seen(row)))
    }

    fn attachments(
        &self,
        session: SessionNo,
        after: Option<AttachmentId>,
        limit: usize,
    ) -> Result<Vec<AttachmentRow>, Error> {
        let rows = self.of(session, || self.rows.attachments(session, after, limit))?;
        Ok(rows.into_iter().map(|row| self.attachment_seen(row)).collect())
    }

    fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, Error> {
        if self.is_content_visible(hash) { self.rows.blob(hash) } else { Ok(None) }
    }

    fn blob_range(&self, hash: Hash, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        if self.is_content_visible(hash) { self.rows.blob_range(hash, range) } else { Ok(None) }
    }

    fn package(&self, fingerprint: Hash) -> Result<Option<Vec<u8>>, Error> {
        self.rows.package(fingerprint)
    }

    // An input that attaches content counts its uses. This does not reveal who else uses the content.
    fn external_content(&self, content: Hash) -> Result<Option<ExternalContentRow>, Error> {
        self.rows.external_content(content)
    }

    fn sweep_counter(&self) -> Result<SweepCounter, Error> {
        self.rows.sweep_counter()
    }
}

impl<R: Deref<Target: QueryRows>> ContentQueries for VisibleRows<'_, R> {
    fn unreferenced_content(&self, limit: usize) -> Result<Vec<Hash>, Error> {
        self.operator_only(|| self.rows.unreferenced_content(limit))
    }
}

impl<R: DerefMut<Target: Rows>> ContentWrites for VisibleRows<'_, R> {
    fn put_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error> {
        self.rows.put_blob(hash, bytes)
    }

    fn pin_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error> {
        self.rows.pin_blob(hash, bytes)
    }

    fn insert_attachment(&mut self, row: &AttachmentRow) -> Result<(), Error> {
        self.may_write(row.session)?;
        self.rows.insert_attachment(row)
    }

    fn put_external_content(&mut self, row: &ExternalContentRow) -> Result<(), Error> {
        self.rows.put_external_content(row)
    }

    fn delete_external_content(&mut self, content: Hash) -> Result<(), Error> {
        self.access.require_operator()?;
        self.rows.delete_external_content(content)
    }

    fn put_sweep_counter(&mut self, sweeps: SweepCounter) -> Result<(), Error> {
        self.access.require_operator()?;
        self.rows.put_sweep_counter(sweeps)
    }
}
