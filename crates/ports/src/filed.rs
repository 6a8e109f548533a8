//! Attachments on their way into a session, and the books on contents that lie outside the database.
//!
//! Content outside is put first and referred to afterwards, in the same transaction in which its uses are counted, and it
//! is deleted after its last use is gone. So a row never refers to content that is not there, as long as nobody deletes
//! content between its put and the commit that refers to it. That this cannot happen:
//!
//! - Whoever deletes writes twice. **Condemn** says in one transaction that nothing uses the content and that a worker
//!   deletes it now; then the content is deleted; then **forget** removes that row. Both raise the number of sweeps.
//! - Whoever puts reads the number of sweeps *before* the put and says it in the commit. The commit is refused
//!   (`attachment.swept`) if the number is another by then, or if the content is condemned.
//! - A deletion begins after its condemn and is over before its forget. If it overlaps the time between that reading and
//!   the commit, then either one of the two writes lies in that time, and the number differs; or both lie around it, and
//!   the content is condemned. If the condemn comes after the commit, it sees the use and condemns nothing.
//! - A condemned row is finished by the sweep that made it. Only when its last request can no longer be under way
//!   (`deletion_lasts`) it is finished by a later sweep of the same worker, which has one at a time, or by another worker
//!   once there is evidence that the first is dead (never silence alone). So nobody who was held up deletes content that
//!   was put again since.
//!
//! Age is no part of this argument. It only makes refusals rare: a put makes content young again, and what is younger than
//! `content_grace` is not condemned.
use crate::Answer;
use crate::contents::Stored;
use crate::store::Upload;
use outlast_vocab::id::{AttachmentId, WorkerId};
use outlast_vocab::message::{Attachment, MediaType};
use outlast_vocab::{Error, Hash, Kind, Millis};
use std::time::Duration;

/// How often content was condemned or forgotten in a database, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sweeps(pub u64);

/// An attachment on its way into a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filed {
    /// With its bytes, which go into the database.
    Here(Upload),
    /// Its content was put outside.
    Outside(Outside),
}

impl Filed {
    /// What it is.
    pub fn attachment(&self) -> &Attachment {
        match self {
            Self::Here(upload) => &upload.attachment,
            Self::Outside(outside) => &outside.attachment,
        }
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Here(upload) => upload.bytes.len() as u64,
            Self::Outside(outside) => outside.bytes,
        }
    }
}

impl From<Upload> for Filed {
    fn from(upload: Upload) -> Self {
        Self::Here(upload)
    }
}

/// An attachment whose content was put outside the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outside {
    /// What it is.
    pub attachment: Attachment,
    /// How many bytes it has.
    pub bytes: u64,
    /// The number of sweeps before it was put.
    pub sweeps: Sweeps,
}

impl Outside {
    /// Content of this kind that was just put.
    pub fn new(
        media_type: MediaType,
        name: Option<String>,
        put: Stored,
        sweeps: Sweeps,
    ) -> Result<Self, Error> {
        let attachment = named(put, media_type, name)?;
        Ok(Self { attachment, bytes: put.bytes, sweeps })
    }
}

/// The attachment that content of this kind is. What it is called decides nothing: the same bytes are the same one.
pub(crate) fn named(put: Stored, media_type: MediaType, name: Option<String>) -> Result<Attachment, Error> {
    if put.bytes == 0 {
        let which = name.as_deref().unwrap_or("an attachment");
        return Err(Error::new(Kind::AttachmentEmpty, format!("{which} has no bytes")));
    }
    let id = AttachmentId::derived(&[put.content.as_bytes(), media_type.as_str().as_bytes()]);
    Ok(Attachment { id, content: put.content, media_type, name })
}

/// Where content lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// In the database.
    Here,
    /// Outside, under its hash.
    Outside,
}

/// Contents that a worker wants to delete.
#[derive(Clone, Debug)]
pub struct Condemn {
    /// Which.
    pub contents: Vec<Hash>,
    /// Who deletes them.
    pub worker: WorkerId,
    /// Now.
    pub now: Millis,
    /// How long a deletion that was begun before may still be under way.
    pub lasts: Duration,
}

/// The books on contents outside: who uses them, and who deletes them.
pub trait Sweep: Send + Sync {
    /// The number of sweeps so far.
    fn sweeps(&self) -> Answer<'_, Sweeps>;

    /// Contents that were used and are not any more, as many as `limit`.
    fn left(&self, limit: usize) -> Answer<'_, Vec<Hash>>;

    /// Those of these contents that nothing uses.
    fn unused(&self, contents: Vec<Hash>) -> Answer<'_, Vec<Hash>>;

    /// Says that a worker deletes contents now. Answers which of them it may: what is used, and what another worker
    /// deletes, is not among them.
    fn condemn(&self, condemn: Condemn) -> Answer<'_, Vec<Hash>>;

    /// Takes back what dead workers said of contents that they had no time to delete. Whether these are still there is
    /// to be seen afterwards.
    fn acquit(&self, condemn: Condemn) -> Answer<'_, ()>;

    /// Says that a worker has deleted what it condemned.
    fn forget(&self, contents: Vec<Hash>, worker: WorkerId) -> Answer<'_, ()>;
}
