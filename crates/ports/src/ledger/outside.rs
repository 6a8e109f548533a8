//! External content: its uses, and its deletion in two writes. [`crate::filed`] explains why this is safe.
use crate::filed::{Condemn, Outside, Sweeps};
use crate::rows::{Condemned, OutsideRow, ReadRows, Rows};
use outlast_vocab::{Error, Hash, Kind, WorkerId};

/// Counts one more use of uploaded content, unless it may have been deleted since the upload.
pub(super) fn use_outside(rows: &mut dyn Rows, outside: &Outside) -> Result<(), Error> {
    let content = outside.attachment.content;
    let row = rows.outside(content)?.unwrap_or(OutsideRow { content, uses: 0, condemned: None });
    if row.condemned.is_some() || rows.sweeps()? != outside.sweeps {
        let detail = format!("the content {content} may have been deleted as unused while it was attached");
        return Err(Error::new(Kind::AttachmentSwept, detail));
    }
    rows.put_outside(&OutsideRow { uses: row.uses + 1, ..row })
}

/// Counts one more use of content that is in use.
pub(super) fn use_again(rows: &mut dyn Rows, content: Hash) -> Result<(), Error> {
    let row = super::referred("content", rows.outside(content)?)?;
    rows.put_outside(&OutsideRow { uses: row.uses + 1, ..row })
}

/// Returns content that is no longer used. Organisations share content, so only the operator sweeps it.
pub fn left(rows: &dyn ReadRows, limit: usize) -> Result<Vec<Hash>, Error> {
    rows.access().need_everything()?;
    rows.left(limit)
}

/// Returns those of these contents that nothing uses.
pub fn unused(rows: &dyn ReadRows, contents: Vec<Hash>) -> Result<Vec<Hash>, Error> {
    rows.access().need_everything()?;
    let mut unused = Vec::new();
    for content in contents {
        if rows.outside(content)?.is_none_or(|row| row.uses == 0) {
            unused.push(content);
        }
    }
    Ok(unused)
}

/// Marks content for deletion by a worker, and returns what the worker may delete.
pub fn condemn(rows: &mut dyn Rows, condemn: &Condemn) -> Result<Vec<Hash>, Error> {
    rows.access().need_everything()?;
    let Condemn { contents, worker, now, .. } = condemn;
    let is_over =
        |old: &Condemned| condemn.is_over(old) && (old.worker == *worker || rows.is_dead(old.worker));
    let mut taken = Vec::new();
    for content in contents {
        let row = rows.outside(*content)?;
        let is_free =
            row.as_ref().is_none_or(|row| row.uses == 0 && row.condemned.as_ref().is_none_or(is_over));
        if is_free {
            taken.push(*content);
        }
    }
    for content in &taken {
        let condemned = Some(Condemned { worker: *worker, since: *now });
        rows.put_outside(&OutsideRow { content: *content, uses: 0, condemned })?;
    }
    raise(rows, &taken)?;
    Ok(taken)
}

/// Removes the marks of dead workers from content that they did not delete.
pub fn acquit(rows: &mut dyn Rows, condemn: &Condemn) -> Result<(), Error> {
    rows.access().need_everything()?;
    let mut acquitted = Vec::new();
    for content in &condemn.contents {
        let condemned = rows.outside(*content)?.and_then(|row| row.condemned);
        if condemned.is_some_and(|old| condemn.is_over(&old) && rows.is_dead(old.worker)) {
            rows.delete_outside(*content)?;
            acquitted.push(*content);
        }
    }
    raise(rows, &acquitted)
}

/// Records that a worker has deleted the content it marked.
pub fn forget(rows: &mut dyn Rows, contents: &[Hash], worker: WorkerId) -> Result<(), Error> {
    rows.access().need_everything()?;
    for content in contents {
        let ours =
            rows.outside(*content)?.and_then(|row| row.condemned).is_some_and(|by| by.worker == worker);
        if ours {
            rows.delete_outside(*content)?;
        }
    }
    raise(rows, contents)
}

fn raise(rows: &mut dyn Rows, contents: &[Hash]) -> Result<(), Error> {
    if contents.is_empty() {
        return Ok(());
    }
    let Sweeps(before) = rows.sweeps()?;
    rows.put_sweeps(Sweeps(before + 1))
}

impl Condemn {
    /// Returns whether the last request of an earlier deletion can no longer be in flight.
    fn is_over(&self, old: &Condemned) -> bool {
        old.since.after(self.lasts) <= self.now
    }
}
