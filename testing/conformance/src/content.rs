//! Content by hash, large bodies, attachments, and the values of a session.
use super::RuleResult;
use super::store_under_test::{ALL, NOW, StoreUnderTest, commit, refused, reply, session_id, settled};
use outlast_ports::attachment_upload::{AttachmentUpload, Upload};
use outlast_ports::branches::ForkRequest;
use outlast_ports::inbox::AcceptRequest;
use outlast_ports::turns::{Commit, Lease, PartialReplyChange, PartialReplyText, TurnTransition, ValueWrite};
use outlast_views::{AttachmentView, BlobLocation, ForkTo};
use outlast_vocab::id::SessionId;
use outlast_vocab::limits::INLINE_BYTES;
use outlast_vocab::message::{MediaType, Part};
use outlast_vocab::record::{ClaimRef, Fact, Seq, TurnEnd};
use outlast_vocab::{Error, Hash, Kind, ReplayKey};
use serde_json::{Value, json};

fn put(name: &str, value: Value) -> ValueWrite {
    ValueWrite { name: name.to_owned(), value: Some(value) }
}

fn remove(name: &str) -> ValueWrite {
    ValueWrite { name: name.to_owned(), value: None }
}

fn values(lease: &Lease, values: Vec<ValueWrite>) -> Commit {
    Commit { values, ..commit(lease, Vec::new(), TurnTransition::Continue) }
}

async fn value(s: &StoreUnderTest<'_>, lease: &Lease, name: &str) -> Result<Option<Value>, Error> {
    s.value(lease.session, name.to_owned()).await
}

pub(super) async fn a_large_input_reads_back_whole(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let text = "100 KB ".repeat(15_000);
    s.whole_turn(session, &text).await?;
    let records = s.all(session).await?;
    let Fact::Accepted(accepted) = &records[1].fact else { panic!("the second record is the input") };
    assert_eq!(accepted.parts, [Part::text(text)]);
    assert_eq!(s.verify(session).await?, 4);
    Ok(())
}

pub(super) async fn content_above_the_inline_limit_becomes_blobs(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let overhead = reply("").encode().len();
    for (bytes, apart) in [(INLINE_BYTES, false), (INLINE_BYTES + 1, true)] {
        let fact = reply(&"x".repeat(bytes - overhead));
        s.add(&lease, vec![fact.clone()]).await?;
        let body = fact.encode();
        assert_eq!(body.len(), bytes);
        let blob = s.blob(Hash::of(&body)).await;
        assert_eq!(blob.ok(), apart.then_some(body));
        assert_eq!(s.turn_records(lease.turn).await?.pop().expect("it was written").fact, fact);
    }
    Ok(())
}

pub(super) async fn equal_content_is_stored_once(s: &StoreUnderTest<'_>) -> RuleResult {
    let text = "the same again ".repeat(20_000);
    let first = s.fresh_session().await?;
    s.whole_turn(first, &text).await?;
    let before = s.status().await?.bytes;
    for _ in 0..8 {
        let session = s.fresh_session().await?;
        s.whole_turn(session, &text).await?;
        assert_eq!(s.verify(session).await?, 4);
    }
    let grown = s.status().await?.bytes.saturating_sub(before);
    assert!(grown < 4 * text.len() as u64, "8 equal inputs of {} bytes took {grown}", text.len());
    Ok(())
}

pub(super) async fn forks_share_their_common_content(s: &StoreUnderTest<'_>) -> RuleResult {
    let parent = s.fresh_session().await?;
    let text = "shared ".repeat(80_000);
    s.whole_turn(parent, &text).await?;
    let before = s.status().await?.bytes;
    for _ in 0..8 {
        let to = ForkTo::Session { fresh: session_id(), key: None };
        s.fork(ForkRequest { from: parent, at: None, to, now: NOW }).await?;
    }
    let grown = s.status().await?.bytes.saturating_sub(before);
    assert!(grown < text.len() as u64, "8 forks of {} bytes took {grown}", text.len());
    Ok(())
}

pub(super) async fn committed_content_is_found_by_its_hash(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let contents = [b"".to_vec(), b"\0\xff small".to_vec(), vec![7; 1 << 20]];
    for _ in 0..2 {
        let write = Commit { blobs: contents.to_vec(), ..values(&lease, Vec::new()) };
        s.commit(write).await?;
    }
    for content in contents {
        assert_eq!(s.blob(Hash::of(&content)).await?, content);
    }
    refused(s.blob(Hash::of(b"never stored")).await, Kind::BlobNotFound);
    Ok(())
}

fn upload(text: &str) -> Result<Upload, Error> {
    Upload::new(MediaType::try_from("text/plain".to_owned())?, Some("note.txt".to_owned()), text.as_bytes())
}

pub(super) async fn attachments_are_found_in_their_session(s: &StoreUnderTest<'_>) -> RuleResult {
    let [first, second] = [upload("first")?, upload("second")?];
    let session = s.fresh_session().await?;
    let lease = s
        .begin_as(AcceptRequest { files: vec![first.clone().into()], ..s.driven(session, "see") })
        .await?
        .lease;
    let files = vec![second.clone().into(), first.clone().into()];
    s.commit(Commit { files, ..values(&lease, Vec::new()) }).await?;
    let mut expected = [first, second].map(|Upload { attachment, bytes }| {
        let bytes = bytes.len() as u64;
        AttachmentView { attachment, bytes, location: BlobLocation::Database }
    });
    for view in &expected {
        assert_eq!(s.attachment(session, view.attachment.id).await?, *view);
        assert_eq!(Hash::of(&s.blob(view.attachment.content).await?), view.attachment.content);
    }
    expected.sort_by_key(|view| view.attachment.id);
    assert_eq!(s.attachments(session, ALL).await?, expected);
    let other = s.fresh_session().await?;
    refused(s.attachment(other, expected[0].attachment.id).await, Kind::AttachmentNotFound);
    Ok(())
}

pub(super) async fn content_range_read_returns_only_its_bytes(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let file = upload("0123456789")?;
    let (session, id) = (lease.session, file.attachment.id);
    s.commit(Commit { files: vec![AttachmentUpload::Inline(file)], ..values(&lease, Vec::new()) }).await?;
    for (range, expected) in [(0..10, "0123456789"), (3..5, "34"), (8..99, "89"), (10..11, ""), (5..5, "")] {
        assert_eq!(s.attached(session, id, range).await?, expected.as_bytes());
    }
    let absent = upload("never attached")?.attachment.id;
    refused(s.attached(session, absent, 0..1).await, Kind::AttachmentNotFound);
    Ok(())
}

pub(super) async fn fork_has_the_attachments_of_its_parent(s: &StoreUnderTest<'_>) -> RuleResult {
    let file = upload("shared by a fork")?;
    let parent = s.fresh_session().await?;
    let lease = s
        .begin_as(AcceptRequest { files: vec![file.clone().into()], ..s.driven(parent, "see") })
        .await?
        .lease;
    s.commit(Commit::new(
        lease,
        NOW,
        vec![reply("seen")],
        TurnTransition::End(TurnEnd::Answered { text: "seen".to_owned() }),
    ))
    .await?;
    let fresh = session_id();
    let to = ForkTo::Session { fresh, key: None };
    s.fork(ForkRequest { from: parent, at: None, to, now: NOW }).await?;
    assert_eq!(s.attachment(fresh, file.attachment.id).await?.attachment, file.attachment);
    assert_eq!(s.attachments(fresh, ALL).await?, []);
    Ok(())
}

pub(super) async fn attachment_is_deleted_with_its_last_session(s: &StoreUnderTest<'_>) -> RuleResult {
    let file = upload("used by two sessions, and by one of them twice")?;
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let session = s.fresh_session().await?;
        let files = vec![file.clone().into(), file.clone().into()];
        let lease = s.begin_as(AcceptRequest { files, ..s.driven(session, "see") }).await?.lease;
        s.commit(Commit::new(
            lease,
            NOW,
            Vec::new(),
            TurnTransition::End(TurnEnd::Answered { text: String::new() }),
        ))
        .await?;
        sessions.push(session);
    }
    s.delete(sessions[0], NOW).await?;
    assert_eq!(s.blob(file.attachment.content).await?, *file.bytes);
    s.delete(sessions[1], NOW).await?;
    refused(s.blob(file.attachment.content).await, Kind::BlobNotFound);
    Ok(())
}

pub(super) async fn package_survives_deletion_of_an_equal_attachment(s: &StoreUnderTest<'_>) -> RuleResult {
    let file = upload("a package, and a file")?;
    let session = s.fresh_session().await?;
    let lease = s
        .begin_as(AcceptRequest { files: vec![file.clone().into()], ..s.driven(session, "see") })
        .await?
        .lease;
    let blobs = vec![file.bytes.to_vec()];
    let end = TurnTransition::End(TurnEnd::Answered { text: String::new() });
    s.commit(Commit { blobs, ..Commit::new(lease, NOW, Vec::new(), end) }).await?;
    s.delete(session, NOW).await?;
    assert_eq!(s.blob(file.attachment.content).await?, *file.bytes);
    Ok(())
}

pub(super) async fn partial_reply_is_kept_until_cleared(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let keep = |start, text: &str, attempt| {
        let said =
            PartialReplyText { key: ReplayKey::turn(0).model(0), attempt, start, text: text.to_owned() };
        Commit { partial: PartialReplyChange::Append(said), ..values(&lease, Vec::new()) }
    };
    assert_eq!(s.partial_reply(lease.turn).await?, None);
    s.commit(keep(0, "one ", 1)).await?;
    s.commit(keep(4, "two ", 1)).await?;
    s.commit(values(&lease, vec![put("a", json!(1))])).await?;
    let said = s.partial_reply(lease.turn).await?.expect("it was kept");
    assert_eq!((said.text.as_str(), said.start, said.attempt), ("one two ", 0, 1));
    // Another attempt starts over.
    s.commit(keep(0, "uno ", 2)).await?;
    let said = s.partial_reply(lease.turn).await?.expect("it was kept");
    assert_eq!((said.text.as_str(), said.attempt), ("uno ", 2));
    s.commit(Commit { partial: PartialReplyChange::Delete, ..values(&lease, Vec::new()) }).await?;
    assert_eq!(s.partial_reply(lease.turn).await?, None);
    Ok(())
}

pub(super) async fn values_change_with_the_commit(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    assert_eq!(value(s, &lease, "a").await?, None);
    s.commit(values(&lease, vec![put("a", json!(1)), put("b", json!("x")), put("a", json!(2))])).await?;
    assert_eq!(value(s, &lease, "a").await?, Some(json!(2)));
    s.commit(values(&lease, vec![put("a", json!({ "n": 3 })), remove("b"), remove("c")])).await?;
    assert_eq!(value(s, &lease, "a").await?, Some(json!({ "n": 3 })));
    assert_eq!(value(s, &lease, "b").await?, None);
    assert_eq!(s.value_names(lease.session, String::new(), ALL).await?, ["a"]);
    Ok(())
}

pub(super) async fn values_do_not_change_without_the_commit(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.commit(values(&lease, vec![put("a", json!(1)), put("b", json!(1))])).await?;
    let changes = || vec![put("a", json!(2)), remove("b"), put("c", json!(2))];
    let nobodys = ClaimRef { asked: Seq(1), child: 0 };
    let refusals = [
        Commit { facts: vec![settled(nobodys)], ..values(&lease, changes()) },
        values(&Lease { worker: s.rival().worker, ..lease }, changes()),
    ];
    for refusal in refusals {
        assert!(s.commit(refusal).await.is_err());
        assert_eq!(value(s, &lease, "a").await?, Some(json!(1)));
        assert_eq!(s.value_names(lease.session, String::new(), ALL).await?, ["a", "b"]);
    }
    Ok(())
}

pub(super) async fn a_value_reads_back_as_it_was_set(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let rich = json!({ "b": [null, true, 1.1, -0.0, u64::MAX, i64::MIN], "a": "é\0\u{1f600}", "": {} });
    for (name, json) in [("null", Value::Null), ("rich", rich), ("", json!(0)), ("' % é", json!([]))] {
        s.commit(values(&lease, vec![put(name, json.clone())])).await?;
        assert_eq!(value(s, &lease, name).await?, Some(json));
    }
    Ok(())
}

pub(super) async fn values_belong_to_their_session(s: &StoreUnderTest<'_>) -> RuleResult {
    let (here, there) = (s.begin("here").await?.lease, s.begin("there").await?.lease);
    s.commit(values(&here, vec![put("a", json!("here"))])).await?;
    assert_eq!(value(s, &there, "a").await?, None);
    assert!(s.value_names(there.session, String::new(), ALL).await?.is_empty());
    s.commit(values(&there, vec![put("a", json!("there"))])).await?;
    assert_eq!(value(s, &here, "a").await?, Some(json!("here")));
    s.end(&here).await?;
    s.delete(here.session, NOW).await?;
    assert_eq!(value(s, &there, "a").await?, Some(json!("there")));
    Ok(())
}

pub(super) async fn values_outlive_the_turn_that_set_them(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.commit(values(&lease, vec![put("a", json!(1))])).await?;
    s.end(&lease).await?;
    assert_eq!(value(s, &lease, "a").await?, Some(json!(1)));
    Ok(())
}

/// Returns all values of a session.
async fn all_values(s: &StoreUnderTest<'_>, session: SessionId) -> Result<Vec<(String, Value)>, Error> {
    let mut all = Vec::new();
    for name in s.value_names(session, String::new(), ALL).await? {
        let value = s.value(session, name.clone()).await?;
        all.push((name, value.expect("it was listed")));
    }
    Ok(all)
}

fn fork(from: SessionId, at: Option<Seq>) -> ForkRequest {
    ForkRequest { from, at, to: ForkTo::Session { fresh: session_id(), key: None }, now: NOW }
}

pub(super) async fn fork_at_a_head_copies_current_values(s: &StoreUnderTest<'_>) -> RuleResult {
    let parent = s.fresh_session().await?;
    let early = s.whole_turn(parent, "one").await?;
    s.fork(ForkRequest { to: ForkTo::Head("draft".to_owned()), ..fork(parent, None) }).await?;
    let work = s.begin_in(parent, "two").await?;
    let set = vec![put("a", json!({ "n": 1 })), put("' % é", json!(null)), put("b", json!(2))];
    s.commit(values(&work.lease, set)).await?;
    s.commit(values(&work.lease, vec![remove("b")])).await?;
    s.end(&work.lease).await?;
    let stored = vec![("' % é".to_owned(), json!(null)), ("a".to_owned(), json!({ "n": 1 }))];
    let tip = s.session(parent).await?.heads.into_iter().find(|(name, _)| name == "main");
    let tip = tip.and_then(|(_, node)| node).expect("main has moved").seq;
    // Values belong to the session, not to one of its heads.
    for at in [None, Some(tip), Some(early.seq)] {
        let child = s.fork(fork(parent, at)).await?;
        assert_eq!(all_values(s, child).await?, stored);
        let work = s.begin_in(child, "three").await?;
        s.commit(values(&work.lease, vec![put("a", json!("mine")), remove("' % é")])).await?;
        s.end(&work.lease).await?;
        assert_eq!(all_values(s, parent).await?, stored);
        let grandchild = s.fork(fork(child, None)).await?;
        assert_eq!(all_values(s, grandchild).await?, [("a".to_owned(), json!("mine"))]);
    }
    Ok(())
}

pub(super) async fn fork_before_the_values_has_none(s: &StoreUnderTest<'_>) -> RuleResult {
    let parent = s.fresh_session().await?;
    let early = s.whole_turn(parent, "one").await?;
    let work = s.begin_in(parent, "two").await?;
    s.commit(values(&work.lease, vec![put("a", json!(1))])).await?;
    s.end(&work.lease).await?;
    let child = s.fork(fork(parent, Some(early.seq))).await?;
    assert_eq!(all_values(s, child).await?, []);
    Ok(())
}

pub(super) async fn values_are_listed_by_prefix_and_name(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let names = ["b", "a_1", "a%", "A_1", "ab", "a", "a_", "é", "\u{10ffff}x", "a_2"];
    s.commit(values(&lease, names.iter().map(|name| put(name, json!(0))).collect())).await?;
    for (prefix, limit, expected) in [
        ("a_", ALL, vec!["a_", "a_1", "a_2"]),
        ("a%", ALL, vec!["a%"]),
        ("A", ALL, vec!["A_1"]),
        ("a", 3, vec!["a", "a%", "a_"]),
        ("é", ALL, vec!["é"]),
        ("\u{10ffff}", ALL, vec!["\u{10ffff}x"]),
        ("*", ALL, vec![]),
        ("a", 0, vec![]),
        ("", ALL, vec!["A_1", "a", "a%", "a_", "a_1", "a_2", "ab", "b", "é", "\u{10ffff}x"]),
    ] {
        assert_eq!(s.value_names(lease.session, prefix.to_owned(), limit).await?, expected, "`{prefix}`");
    }
    Ok(())
}

pub(super) async fn store_status_reports_engine_place_and_schema(s: &StoreUnderTest<'_>) -> RuleResult {
    let status = s.status().await?;
    assert!(!status.engine.is_empty() && !status.place.is_empty() && status.schema > 0);
    Ok(())
}
