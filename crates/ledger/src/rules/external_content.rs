//! External content: its uses, and its deletion in two writes. [`outlast_ports::attachment_upload`] explains why this is safe.
use crate::rows::{ContentQueries, ContentRows, ContentWrites, DeletionMark, ExternalContentRow, Rows};
use outlast_ports::attachment_upload::{DeletionRequest, ExternalUpload, SweepCounter};
use outlast_vocab::{Error, Hash, Kind, WorkerId};

/// Counts one more use of uploaded content, unless it may have been deleted since the upload.
pub(super) fn count_use(rows: &mut dyn ContentWrites, outside: &ExternalUpload) -> Result<(), Error> {
    let content = outside.attachment.content;
    let row =
        rows.external_content(content)?.unwrap_or(ExternalContentRow { content, uses: 0, deletion: None });
    if row.deletion.is_some() || rows.sweep_counter()? != outside.sweeps {
        let detail = format!("the content {content} may have been deleted as unused while it was attached");
        return Err(Error::new(Kind::AttachmentSwept, detail));
    }
    rows.put_external_content(&ExternalContentRow { uses: row.uses + 1, ..row })
}

/// Counts one more use of content that is in use.
pub(super) fn count_another_use(rows: &mut dyn ContentWrites, content: Hash) -> Result<(), Error> {
    let row = super::required_row("content", rows.external_content(content)?)?;
    rows.put_external_content(&ExternalContentRow { uses: row.uses + 1, ..row })
}

/// Returns content that is no longer used. Organisations share content, so only the operator sweeps it.
pub fn unreferenced(rows: &dyn ContentQueries, limit: usize) -> Result<Vec<Hash>, Error> {
    rows.access().require_operator()?;
    rows.unreferenced_content(limit)
}

/// Returns those of these contents that nothing uses.
pub fn filter_unreferenced(rows: &dyn ContentRows, contents: Vec<Hash>) -> Result<Vec<Hash>, Error> {
    rows.access().require_operator()?;
    let mut unused = Vec::new();
    for content in contents {
        if rows.external_content(content)?.is_none_or(|row| row.uses == 0) {
            unused.push(content);
        }
    }
    Ok(unused)
}

/// Marks content for deletion by a worker, and returns what the worker may delete.
pub fn mark_for_deletion(rows: &mut dyn Rows, request: &DeletionRequest) -> Result<Vec<Hash>, Error> {
    rows.access().require_operator()?;
    let DeletionRequest { contents, worker, now, .. } = request;
    let mut taken = Vec::new();
    for content in contents {
        let is_free = match rows.external_content(*content)? {
            None => true,
            Some(ExternalContentRow { uses: 0, deletion: Some(old), .. }) => {
                is_abandoned(&old, request) && (old.worker == *worker || rows.is_dead(old.worker)?)
            }
            Some(row) => row.uses == 0,
        };
        if is_free {
            taken.push(*content);
        }
    }
    for content in &taken {
        let mark = Some(DeletionMark { worker: *worker, since: *now });
        rows.put_external_content(&ExternalContentRow { content: *content, uses: 0, deletion: mark })?;
    }
    raise_sweep_counter(rows, &taken)?;
    Ok(taken)
}

/// Removes the marks of dead workers from content that they did not delete.
pub fn unmark_for_deletion(rows: &mut dyn Rows, request: &DeletionRequest) -> Result<(), Error> {
    rows.access().require_operator()?;
    let mut unmarked = Vec::new();
    for content in &request.contents {
        let mark = rows.external_content(*content)?.and_then(|row| row.deletion);
        if let Some(old) = mark
            && is_abandoned(&old, request)
            && rows.is_dead(old.worker)?
        {
            rows.delete_external_content(*content)?;
            unmarked.push(*content);
        }
    }
    raise_sweep_counter(rows, &unmarked)
}

/// Records that a worker has deleted the content it marked.
pub fn forget_deleted(
    rows: &mut dyn ContentWrites,
    contents: &[Hash],
    worker: WorkerId,
) -> Result<(), Error> {
    rows.access().require_operator()?;
    for content in contents {
        let ours = rows
            .external_content(*content)?
            .and_then(|row| row.deletion)
            .is_some_and(|by| by.worker == worker);
        if ours {
            rows.delete_external_content(*content)?;
        }
    }
    raise_sweep_counter(rows, contents)
}

fn raise_sweep_counter(rows: &mut dyn ContentWrites, contents: &[Hash]) -> Result<(), Error> {
    if contents.is_empty() {
        return Ok(());
    }
    let SweepCounter(before) = rows.sweep_counter()?;
    rows.put_sweep_counter(SweepCounter(before + 1))
}

/// Returns whether the last request of an earlier deletion can no longer be in flight.
fn is_abandoned(old: &DeletionMark, request: &DeletionRequest) -> bool {
    old.since.after(request.lasts) <= request.now
}
