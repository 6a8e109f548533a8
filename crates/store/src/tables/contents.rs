//! Content: blobs, attachments, and content stored outside the database.
use super::Tables;
use super::column::{count, id, id_lower_bound, limit, read_count, read_hash, read_id};
use crate::error::from_sqlite;
use outlast_ledger::rows::{
    AttachmentRow, ContentQueries, ContentRows, ContentWrites, DeletionMark, ExternalContentRow, PINNED_USES,
    SessionNo,
};
use outlast_ports::attachment_upload::SweepCounter;
use outlast_views::BlobLocation;
use outlast_vocab::id::{AttachmentId, WorkerId};
use outlast_vocab::message::Attachment;
use outlast_vocab::{Error, Hash, Millis};
use rusqlite::types::Type;
use rusqlite::{MAIN_DB, Row, params};
use std::ops::Range;

/// The columns of an attachment, in the order that [`read_attachment`] takes them.
macro_rules! attachment {
    ($rest:literal) => {
        concat!("SELECT session, id, content, media_type, name, bytes, outside FROM attachments ", $rest)
    };
}

pub(super) const ATTACHMENTS: &str = attachment!("WHERE session = ?1 AND id > ?2 ORDER BY id LIMIT ?3");

impl ContentRows for Tables<'_> {
    fn attachment(
        &self,
        session: SessionNo,
        attachment: AttachmentId,
    ) -> Result<Option<AttachmentRow>, Error> {
        let sql = attachment!("WHERE session = ?1 AND id = ?2");
        self.one(sql, params![session.0, id(attachment.to_u128())], read_attachment)
    }

    fn attachments(
        &self,
        session: SessionNo,
        after: Option<AttachmentId>,
        most: usize,
    ) -> Result<Vec<AttachmentRow>, Error> {
        let after = id_lower_bound(after.map(AttachmentId::to_u128));
        self.all(ATTACHMENTS, params![session.0, after, limit(most)], read_attachment)
    }

    fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, Error> {
        self.one("SELECT bytes FROM blobs WHERE hash = ?1", [hash.as_bytes()], |row| row.get(0))
    }

    fn blob_range(&self, hash: Hash, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        let sql = "SELECT rowid FROM blobs WHERE hash = ?1";
        let Some(row) = self.one(sql, [hash.as_bytes()], |row| row.get(0))? else { return Ok(None) };
        // `substr` would read the whole value first.
        let blob = self.conn.blob_open(MAIN_DB, "blobs", "bytes", row, true).map_err(from_sqlite)?;
        let inside = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(blob.len());
        let (start, end) = (inside(range.start), inside(range.end));
        let mut bytes = vec![0; end.saturating_sub(start)];
        blob.read_at_exact(&mut bytes, start).map_err(from_sqlite)?;
        Ok(Some(bytes))
    }

    fn external_content(&self, content: Hash) -> Result<Option<ExternalContentRow>, Error> {
        let sql = "SELECT content, uses, worker, since FROM outside WHERE content = ?1";
        self.one(sql, [content.as_bytes()], read_external_content)
    }

    fn sweep_counter(&self) -> Result<SweepCounter, Error> {
        let number = self.one("SELECT value FROM meta WHERE name = 'sweeps'", [], |row| row.get(0))?;
        Ok(SweepCounter(number.map_or(0, u64::from_be_bytes)))
    }
}

impl ContentQueries for Tables<'_> {
    fn unreferenced_content(&self, most: usize) -> Result<Vec<Hash>, Error> {
        let sql = "SELECT content FROM outside WHERE uses = 0 ORDER BY content LIMIT ?1";
        self.all(sql, [limit(most)], |row| read_hash(row, 0))
    }
}

impl ContentWrites for Tables<'_> {
    fn put_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error> {
        self.run(
            "INSERT INTO blobs (hash, bytes, uses) VALUES (?1, ?2, 1)
             ON CONFLICT (hash) DO UPDATE SET uses = blobs.uses + 1",
            params![hash.as_bytes(), bytes],
        )?;
        Ok(())
    }

    fn pin_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error> {
        self.run(
            "INSERT INTO blobs (hash, bytes, uses) VALUES (?1, ?2, ?3)
             ON CONFLICT (hash) DO UPDATE SET uses = blobs.uses + ?3 WHERE blobs.uses < ?3",
            params![hash.as_bytes(), bytes, count(PINNED_USES)],
        )?;
        Ok(())
    }

    fn insert_attachment(&mut self, row: &AttachmentRow) -> Result<(), Error> {
        let Attachment { id: attachment, content, media_type, name } = &row.attachment;
        self.run(
            "INSERT INTO attachments (session, id, content, media_type, name, bytes, outside)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                row.session.0,
                id(attachment.to_u128()),
                content.as_bytes(),
                media_type.as_str(),
                name,
                count(row.bytes),
                row.location == BlobLocation::Outside,
            ],
        )?;
        Ok(())
    }

    fn put_external_content(&mut self, row: &ExternalContentRow) -> Result<(), Error> {
        self.run(
            "INSERT INTO outside (content, uses, worker, since) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (content) DO UPDATE SET uses = ?2, worker = ?3, since = ?4",
            params![
                row.content.as_bytes(),
                count(row.uses),
                row.deletion.map(|mark| id(mark.worker.to_u128())),
                row.deletion.map(|mark| count(mark.since.0)),
            ],
        )?;
        Ok(())
    }

    fn delete_external_content(&mut self, content: Hash) -> Result<(), Error> {
        self.run("DELETE FROM outside WHERE content = ?1", [content.as_bytes()])?;
        Ok(())
    }

    fn put_sweep_counter(&mut self, sweeps: SweepCounter) -> Result<(), Error> {
        self.run("UPDATE meta SET value = ?1 WHERE name = 'sweeps'", [sweeps.0.to_be_bytes()])?;
        Ok(())
    }
}

fn read_attachment(row: &Row<'_>) -> rusqlite::Result<AttachmentRow> {
    let media_type: String = row.get(3)?;
    let attachment = Attachment {
        id: AttachmentId::from_u128(read_id(row, 1)?),
        content: read_hash(row, 2)?,
        media_type: media_type
            .try_into()
            .map_err(|cause: Error| rusqlite::Error::FromSqlConversionFailure(3, Type::Text, cause.into()))?,
        name: row.get(4)?,
    };
    let lies = if row.get(6)? { BlobLocation::Outside } else { BlobLocation::Database };
    Ok(AttachmentRow {
        session: SessionNo(row.get(0)?),
        attachment,
        bytes: read_count(row, 5)?,
        location: lies,
    })
}

fn read_external_content(row: &Row<'_>) -> rusqlite::Result<ExternalContentRow> {
    let mark = match row.get::<_, Option<i64>>(3)? {
        Some(_) => Some(DeletionMark {
            worker: WorkerId::from_u128(read_id(row, 2)?),
            since: Millis(read_count(row, 3)?),
        }),
        None => None,
    };
    Ok(ExternalContentRow { content: read_hash(row, 0)?, uses: read_count(row, 1)?, deletion: mark })
}
