//! Content: blobs, attachments, and content stored outside the database.
use super::{Tables, page};
use crate::rows::{
    AttachmentRow, ContentQueries, ContentRows, ContentWrites, ExternalContentRow, PINNED_USES, SessionNo,
};
use outlast_ports::attachment_upload::SweepCounter;
use outlast_ports::contents::byte_range;
use outlast_vocab::id::AttachmentId;
use outlast_vocab::{Error, Hash};
use std::ops::Range;

impl ContentRows for Tables {
    fn attachment(&self, session: SessionNo, id: AttachmentId) -> Result<Option<AttachmentRow>, Error> {
        Ok(self.attachments.get(&(session, id)).cloned())
    }

    fn attachments(
        &self,
        session: SessionNo,
        after: Option<AttachmentId>,
        limit: usize,
    ) -> Result<Vec<AttachmentRow>, Error> {
        let visible = |row: &&AttachmentRow| row.session == session && Some(row.attachment.id) > after;
        Ok(page(self.attachments.values().filter(visible), limit))
    }

    fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.blobs.get(&hash).map(|(bytes, _)| bytes.to_vec()))
    }

    fn blob_range(&self, hash: Hash, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.blobs.get(&hash).map(|(bytes, _)| byte_range(bytes, range).to_vec()))
    }

    fn external_content(&self, content: Hash) -> Result<Option<ExternalContentRow>, Error> {
        Ok(self.outside.get(&content).copied())
    }

    fn sweep_counter(&self) -> Result<SweepCounter, Error> {
        Ok(self.sweeps)
    }
}

impl ContentQueries for Tables {
    fn unreferenced_content(&self, limit: usize) -> Result<Vec<Hash>, Error> {
        let left = self.outside.values().filter(|row| row.uses == 0);
        Ok(left.take(limit).map(|row| row.content).collect())
    }
}

impl ContentWrites for Tables {
    fn put_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error> {
        let uses = self.blobs.get(&hash).map_or(0, |(_, uses)| *uses);
        self.set(|tables| &mut tables.blobs, hash, Some((bytes.into(), uses + 1)));
        Ok(())
    }

    fn pin_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error> {
        let uses = self.blobs.get(&hash).map_or(0, |(_, uses)| *uses);
        if uses < PINNED_USES {
            self.set(|tables| &mut tables.blobs, hash, Some((bytes.into(), uses + PINNED_USES)));
        }
        Ok(())
    }

    fn insert_attachment(&mut self, row: &AttachmentRow) -> Result<(), Error> {
        self.set(|tables| &mut tables.attachments, (row.session, row.attachment.id), Some(row.clone()));
        Ok(())
    }

    fn put_external_content(&mut self, row: &ExternalContentRow) -> Result<(), Error> {
        self.set(|tables| &mut tables.outside, row.content, Some(*row));
        Ok(())
    }

    fn delete_external_content(&mut self, content: Hash) -> Result<(), Error> {
        self.set(|tables| &mut tables.outside, content, None);
        Ok(())
    }

    fn put_sweep_counter(&mut self, sweeps: SweepCounter) -> Result<(), Error> {
        let old = std::mem::replace(&mut self.sweeps, sweeps);
        self.undo.push(Box::new(move |tables| tables.sweeps = old));
        Ok(())
    }
}

impl Tables {
    /// Releases one use of external content. The sweep finds the content when no use is left.
    pub(super) fn release_outside(&mut self, content: Hash) {
        if let Some(row) = self.outside.get(&content).copied() {
            self.set(
                |tables| &mut tables.outside,
                content,
                Some(ExternalContentRow { uses: row.uses.saturating_sub(1), ..row }),
            );
        }
    }

    /// Releases one use of a blob. The last release deletes it.
    pub(super) fn release_blob(&mut self, hash: Hash) {
        if let Some((bytes, uses)) = self.blobs.get(&hash).cloned() {
            self.set(|tables| &mut tables.blobs, hash, (uses > 1).then(|| (bytes, uses - 1)));
        }
    }
}
