//! Bookkeeping for contents outside the database: counted uses, and deletions that do not race with attachments.
use super::RuleResult;
use super::store_under_test::{ALL, NOW, StoreUnderTest, refused};
use outlast_ports::attachment_upload::{AttachmentUpload, DeletionRequest, ExternalUpload, SweepCounter};
use outlast_ports::contents::StoredContent;
use outlast_ports::inbox::AcceptRequest;
use outlast_ports::turns::LeaseRequest;
use outlast_views::BlobLocation;
use outlast_vocab::id::SessionId;
use outlast_vocab::message::MediaType;
use outlast_vocab::{Error, Hash, Kind, Millis};
use std::time::Duration;

const LASTS: Duration = Duration::from_mins(1);

fn content(text: &str) -> Hash {
    Hash::of(text.as_bytes())
}

/// An attachment with this text, as it is recorded after its content was stored.
fn outside(text: &str, sweeps: SweepCounter) -> Result<ExternalUpload, Error> {
    let put = StoredContent { content: content(text), bytes: text.len() as u64 };
    ExternalUpload::new(
        MediaType::try_from("text/plain".to_owned())?,
        Some("note.txt".to_owned()),
        put,
        sweeps,
    )
}

/// Runs a whole turn whose input attaches this text.
async fn attach(
    s: &StoreUnderTest<'_>,
    session: SessionId,
    text: &str,
    sweeps: SweepCounter,
) -> Result<(), Error> {
    let files = vec![AttachmentUpload::Outside(outside(text, sweeps)?)];
    s.whole_turn_as(AcceptRequest { files, ..s.driven(session, "see") }).await.map(drop)
}

/// Creates a session that attached this text.
async fn attached(s: &StoreUnderTest<'_>, text: &str) -> Result<SessionId, Error> {
    let session = s.fresh_session().await?;
    attach(s, session, text, s.sweeps().await?).await?;
    Ok(session)
}

async fn mark_for_deletion(
    s: &StoreUnderTest<'_>,
    by: LeaseRequest,
    text: &str,
    now: Millis,
) -> Result<bool, Error> {
    let request = DeletionRequest { contents: vec![content(text)], worker: by.worker, now, lasts: LASTS };
    Ok(!s.mark_for_deletion(request).await?.is_empty())
}

pub(super) async fn attachment_reports_its_content_location(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = attached(s, "a").await?;
    let view = s.attachments(session, ALL).await?.remove(0);
    assert_eq!(
        (view.attachment.content, view.bytes, view.location),
        (content("a"), 1, BlobLocation::Outside)
    );
    refused(s.blob(content("a")).await, Kind::BlobNotFound);
    Ok(())
}

pub(super) async fn external_content_is_unreferenced_after_last_session_deletion(
    s: &StoreUnderTest<'_>,
) -> RuleResult {
    let [one, two] = [attached(s, "a").await?, attached(s, "a").await?];
    // A second attachment in the same session is not a second use.
    attach(s, two, "a", s.sweeps().await?).await?;
    s.delete(one, NOW).await?;
    assert_eq!(s.unreferenced(ALL).await?, []);
    assert_eq!(s.filter_unreferenced(vec![content("a"), content("b")]).await?, [content("b")]);
    s.delete(two, NOW).await?;
    assert_eq!(s.unreferenced(ALL).await?, [content("a")]);
    assert_eq!(s.filter_unreferenced(vec![content("a")]).await?, [content("a")]);
    Ok(())
}

pub(super) async fn referenced_content_is_not_marked_for_deletion(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = attached(s, "a").await?;
    assert!(!mark_for_deletion(s, s.lease_request(), "a", NOW).await?);
    assert_eq!(s.sweeps().await?, SweepCounter(0));
    s.delete(session, NOW).await?;
    assert!(mark_for_deletion(s, s.lease_request(), "a", NOW).await?);
    // Content without a row was stored by a process that crashed before it wrote the row.
    assert!(mark_for_deletion(s, s.lease_request(), "orphan", NOW).await?);
    Ok(())
}

pub(super) async fn content_that_is_being_deleted_cannot_be_attached(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    assert!(mark_for_deletion(s, s.lease_request(), "a", NOW).await?);
    let now = s.sweeps().await?;
    refused(attach(s, session, "a", now).await, Kind::AttachmentSwept);
    // The refused input is not written. Other contents are not affected.
    assert_eq!(s.turns(session, 0, ALL).await?.len(), 0);
    attach(s, session, "b", now).await
}

pub(super) async fn content_uploaded_before_deletion_cannot_be_attached(
    s: &StoreUnderTest<'_>,
) -> RuleResult {
    let session = s.fresh_session().await?;
    let worker = s.lease_request().worker;
    let before = s.sweeps().await?;
    assert!(mark_for_deletion(s, s.lease_request(), "a", NOW).await?);
    let during = s.sweeps().await?;
    s.forget_deleted(vec![content("a")], worker).await?;
    refused(attach(s, session, "a", before).await, Kind::AttachmentSwept);
    refused(attach(s, session, "a", during).await, Kind::AttachmentSwept);
    let after = s.sweeps().await?;
    attach(s, session, "a", after).await?;
    assert!(!mark_for_deletion(s, s.lease_request(), "a", NOW).await?);
    Ok(())
}

pub(super) async fn only_the_marking_worker_finishes_a_deletion(s: &StoreUnderTest<'_>) -> RuleResult {
    let (one, other) = (s.lease_request(), s.rival());
    assert!(mark_for_deletion(s, one, "a", NOW).await?);
    let late = NOW.after(LASTS);
    assert!(!mark_for_deletion(s, one, "a", Millis(late.0 - 1)).await?);
    assert!(!mark_for_deletion(s, other, "a", late).await?);
    assert!(mark_for_deletion(s, one, "a", late).await?);
    s.forget_deleted(vec![content("a")], other.worker).await?;
    assert_eq!(s.unreferenced(ALL).await?, [content("a")]);
    s.forget_deleted(vec![content("a")], one.worker).await?;
    assert_eq!(s.unreferenced(ALL).await?, []);
    Ok(())
}

pub(super) async fn another_worker_finishes_deletion_of_dead_worker(s: &StoreUnderTest<'_>) -> RuleResult {
    let (one, other) = (s.lease_request(), s.rival());
    assert!(mark_for_deletion(s, one, "a", NOW).await?);
    s.bury(one);
    // The last request of the dead worker may still be in progress.
    assert!(!mark_for_deletion(s, other, "a", Millis(NOW.after(LASTS).0 - 1)).await?);
    assert!(mark_for_deletion(s, other, "a", NOW.after(LASTS)).await?);
    s.forget_deleted(vec![content("a")], other.worker).await?;
    assert_eq!(s.unreferenced(ALL).await?, []);
    Ok(())
}

pub(super) async fn new_use_cancels_deletion_of_dead_worker(s: &StoreUnderTest<'_>) -> RuleResult {
    let (one, other) = (s.lease_request(), s.rival());
    let session = s.fresh_session().await?;
    let unmark_for_deletion = async |now| {
        let contents = vec![content("a"), content("never marked")];
        s.unmark_for_deletion(DeletionRequest { contents, worker: other.worker, now, lasts: LASTS }).await
    };
    assert!(mark_for_deletion(s, one, "a", NOW).await?);
    let late = NOW.after(LASTS);
    unmark_for_deletion(late).await?;
    refused(attach(s, session, "a", s.sweeps().await?).await, Kind::AttachmentSwept);
    s.bury(one);
    let before = s.sweeps().await?;
    unmark_for_deletion(Millis(late.0 - 1)).await?;
    refused(attach(s, session, "a", s.sweeps().await?).await, Kind::AttachmentSwept);
    unmark_for_deletion(late).await?;
    refused(attach(s, session, "a", before).await, Kind::AttachmentSwept);
    attach(s, session, "a", s.sweeps().await?).await
}
