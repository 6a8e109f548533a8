//! The session tree: fork, rewind, retry, delete.
use super::RuleResult;
use super::store_under_test::{
    ALL, LATER, NOW, StoreUnderTest, answer, by_key, call, joined, next_turn, reclaimed, refused, reply,
    session_id, settled, value_resolution, wait, wait_key,
};
use outlast_ports::branches::ForkRequest;
use outlast_ports::inbox::{AcceptRequest, RetryRequest};
use outlast_ports::turns::TurnTransition;
use outlast_views::{ForkTo, LastEnd, SessionState};
use outlast_vocab::id::{SessionId, TurnId};
use outlast_vocab::record::{Fact, NodeRef, OutcomeVerdict, Seq, TurnEnd, TurnEndKind};
use outlast_vocab::{Error, Hash, Kind, Limits};

/// Returns the inputs of a branch's turns, newest first.
async fn inputs(s: &StoreUnderTest<'_>, node: NodeRef) -> Result<Vec<String>, Error> {
    let turns = s.history(node, ALL).await?;
    let input = |fact: &Fact| match fact {
        Fact::Accepted(accepted) => outlast_vocab::message::text_of(&accepted.parts).into_owned(),
        other => panic!("a turn begins with its input, not with {}", other.name()),
    };
    Ok(turns.iter().map(|turn| input(&turn.records[0].fact)).collect())
}

/// Returns the position of the main head.
async fn head(s: &StoreUnderTest<'_>, session: SessionId) -> Result<Option<NodeRef>, Error> {
    let view = s.session(session).await?;
    Ok(view.heads.into_iter().find(|(name, _)| name == "main").expect("every session has it").1)
}

fn into_session(from: SessionId, at: Option<Seq>) -> ForkRequest {
    let to = ForkTo::Session { fresh: session_id(), key: None };
    ForkRequest { from, at, to, now: NOW }
}

fn into_head(from: SessionId, at: Option<Seq>, name: &str) -> ForkRequest {
    ForkRequest { from, at, to: ForkTo::Head(name.to_owned()), now: NOW }
}

pub(super) async fn fork_sees_earlier_messages_without_copying_records(s: &StoreUnderTest<'_>) -> RuleResult {
    let parent = s.fresh_session().await?;
    let (one, _) = (s.whole_turn(parent, "one").await?, s.whole_turn(parent, "two").await?);
    let before = s.session_snapshot(parent).await?;
    let fork = s.fork(ForkRequest { now: LATER, ..into_session(parent, Some(one.seq)) }).await?;
    assert_ne!(fork, parent);
    assert_eq!(s.session_snapshot(parent).await?, before);
    let records = s.all(fork).await?;
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].fact, Fact::Opened { key: None, forked_from: Some(one) });
    assert_eq!((records[0].seq, records[0].at), (Seq(1), LATER));
    let view = s.session(fork).await?;
    assert_eq!((view.state, view.turns, view.forked_from), (SessionState::Idle, 0, Some(one)));
    assert_eq!(head(s, fork).await?, Some(one));
    assert_eq!(inputs(s, one).await?, ["one"]);
    assert_eq!(s.verify(fork).await?, 1);
    Ok(())
}

/// Runs a turn that ends without an answer.
async fn failed_turn(s: &StoreUnderTest<'_>, session: SessionId, text: &str) -> Result<TurnId, Error> {
    let lease = s.begin_in(session, text).await?.lease;
    let end = TurnEnd::Cancelled { reason: "enough".to_owned() };
    s.write(&lease, vec![reply("half")], TurnTransition::End(end)).await?;
    Ok(lease.turn)
}

fn retry_of(s: &StoreUnderTest<'_>, turn: TurnId, fork: Option<SessionId>) -> RetryRequest {
    let fresh = TurnId::from_u128(session_id().to_u128());
    RetryRequest { turn, fresh, fork, now: NOW, lease_request: Some(s.lease_request()), queued_most: 9 }
}

pub(super) async fn retry_replaces_its_original_turn(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let one = s.whole_turn(session, "one").await?;
    let original = failed_turn(s, session, "two").await?;
    let accepted = s.retry(retry_of(s, original, None)).await?;
    assert!(!accepted.duplicate);
    let again = s.retry(retry_of(s, original, None)).await?;
    assert_eq!((again.turn, again.duplicate, again.place), (accepted.turn, true, accepted.place));
    let work = accepted.work.expect("the session is free");
    assert_eq!((work.parent, work.index), (Some(one), 2));
    let view = s.turn(accepted.turn).await?;
    assert_eq!((view.retry_of, view.parent), (Some(original), Some(one)));
    s.write(&work.lease, vec![reply("whole")], TurnTransition::End(answer("whole"))).await?;
    let stands = head(s, session).await?.expect("it has messages");
    assert_eq!(inputs(s, stands).await?, ["two", "one"]);
    // A turn with an answer cannot be retried.
    let again = s.retry(retry_of(s, original, None)).await?;
    assert_eq!((again.turn, again.duplicate), (accepted.turn, true));
    refused(s.retry(retry_of(s, accepted.turn, None)).await, Kind::TurnNotRetryable);
    let last = s.session(session).await?.last_turn.expect("turns have ended");
    assert_eq!((last.id, last.end), (accepted.turn, LastEnd::Ended(TurnEndKind::Answered)));
    s.verify(session).await?;
    Ok(())
}

pub(super) async fn retry_of_an_earlier_turn_needs_a_fork(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let one = s.whole_turn(session, "one").await?;
    let original = failed_turn(s, session, "two").await?;
    s.whole_turn(session, "three").await?;
    let before = s.session_snapshot(session).await?;
    refused(s.retry(retry_of(s, original, None)).await, Kind::TurnSuperseded);
    let fork = session_id();
    let accepted = s.retry(retry_of(s, original, Some(fork))).await?;
    assert_eq!((accepted.session, accepted.duplicate), (fork, false));
    assert_eq!(s.session_snapshot(session).await?, before);
    let work = accepted.work.expect("the session is new");
    assert_eq!((work.parent, work.index), (Some(one), 0));
    assert_eq!(s.session(fork).await?.forked_from, Some(one));
    // The retry is found, even if it is in another session.
    let again = s.retry(retry_of(s, original, None)).await?;
    assert_eq!((again.session, again.turn, again.duplicate), (fork, accepted.turn, true));
    s.end(&work.lease).await?;
    s.verify(fork).await?;
    Ok(())
}

pub(super) async fn fork_and_parent_continue_independently(s: &StoreUnderTest<'_>) -> RuleResult {
    let parent = s.fresh_session().await?;
    let one = s.whole_turn(parent, "one").await?;
    let fork = s.fork(into_session(parent, Some(one.seq))).await?;
    let work = s.begin_in(fork, "left").await?;
    assert_eq!((work.index, work.parent), (0, Some(one)));
    s.end(&work.lease).await?;
    s.whole_turn(parent, "right").await?;
    let (left, right) = (head(s, fork).await?, head(s, parent).await?);
    assert_eq!(inputs(s, left.expect("it moved")).await?, ["left", "one"]);
    assert_eq!(inputs(s, right.expect("it moved")).await?, ["right", "one"]);
    Ok(())
}

pub(super) async fn a_fork_can_be_forked(s: &StoreUnderTest<'_>) -> RuleResult {
    let parent = s.fresh_session().await?;
    s.whole_turn(parent, "one").await?;
    let child = s.fork(into_session(parent, None)).await?;
    s.whole_turn(child, "two").await?;
    let grandchild = s.fork(into_session(child, None)).await?;
    let last = s.whole_turn(grandchild, "three").await?;
    assert_eq!(inputs(s, last).await?, ["three", "two", "one"]);
    Ok(())
}

pub(super) async fn fork_starts_at_the_main_head_by_default(s: &StoreUnderTest<'_>) -> RuleResult {
    let parent = s.fresh_session().await?;
    let empty = s.fork(into_session(parent, None)).await?;
    assert_eq!((head(s, empty).await?, s.session(empty).await?.forked_from), (None, None));
    let one = s.whole_turn(parent, "one").await?;
    s.whole_turn(parent, "two").await?;
    s.rewind(parent, "main".to_owned(), Some(one.seq), NOW).await?;
    let fork = s.fork(into_session(parent, None)).await?;
    assert_eq!(head(s, fork).await?, Some(one));
    Ok(())
}

pub(super) async fn fork_can_start_in_the_middle_of_turn(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("one").await?;
    let parent = work.lease.session;
    let half = s.add(&work.lease, vec![reply("half"), reply("whole")]).await?.places[0].seq;
    let fork = s.fork(into_session(parent, Some(half))).await?;
    let at = head(s, fork).await?.expect("it was forked there");
    assert_eq!(at, NodeRef { session: parent, seq: half });
    assert_eq!(s.history(at, ALL).await?[0].last_in_branch, half);
    s.end(&work.lease).await?;
    assert_eq!(s.begin_in(fork, "other").await?.parent, Some(at));
    Ok(())
}

pub(super) async fn fork_cannot_settle_claims_of_its_parent(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("one").await?;
    let claim = s.ask(&work.lease, &[call("send")]).await?[0];
    let fork = s.fork(into_session(work.lease.session, Some(claim.asked))).await?;
    let branch = s.begin_in(fork, "two").await?;
    for fact in [settled(claim), reclaimed(claim)] {
        refused(s.add(&branch.lease, vec![fact]).await, Kind::ClaimMismatch);
    }
    s.end(&branch.lease).await?;
    s.add(&work.lease, vec![settled(claim)]).await?;
    s.end(&work.lease).await?;
    Ok(())
}

pub(super) async fn unknown_call_is_listed_once_despite_forks(s: &StoreUnderTest<'_>) -> RuleResult {
    let parent = s.fresh_session().await?;
    let call = call("send");
    s.call_of_unknown_outcome(parent, &call, NOW).await?;
    s.fork(into_session(parent, None)).await?;
    assert_eq!(s.unknown(ALL).await?.len(), 1);
    assert_eq!(s.settle(call.id, OutcomeVerdict::DidNotHappen, NOW).await?, parent);
    Ok(())
}

pub(super) async fn head_names_and_fork_keys_are_bounded(s: &StoreUnderTest<'_>) -> RuleResult {
    let parent = s.fresh_session().await?;
    let most = Limits::default().key_bytes;
    let before = s.snapshot().await?;
    refused(s.fork(into_head(parent, None, &"h".repeat(most + 1))).await, Kind::LimitExceeded);
    let to = ForkTo::Session { fresh: session_id(), key: Some("k".repeat(most + 1)) };
    refused(s.fork(ForkRequest { to, ..into_session(parent, None) }).await, Kind::LimitExceeded);
    assert_eq!(s.snapshot().await?, before);
    s.fork(into_head(parent, None, &"h".repeat(most))).await?;
    Ok(())
}

pub(super) async fn fork_key_must_be_new_and_finds_it(s: &StoreUnderTest<'_>) -> RuleResult {
    let parent = s.open(by_key("parent"), NOW).await?;
    let fork = |key: &str| {
        let to = ForkTo::Session { fresh: session_id(), key: Some(key.to_owned()) };
        s.fork(ForkRequest { to, ..into_session(parent, None) })
    };
    let child = fork("child").await?;
    assert_eq!(s.session_by_key("child".to_owned()).await?.id, child);
    let before = s.snapshot().await?;
    for taken in ["parent", "child"] {
        refused(fork(taken).await, Kind::InputKeyReused);
    }
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}

pub(super) async fn fork_cannot_reuse_a_session_id(s: &StoreUnderTest<'_>) -> RuleResult {
    let parent = s.fresh_session().await?;
    let before = s.snapshot().await?;
    let to = ForkTo::Session { fresh: parent, key: None };
    refused(s.fork(ForkRequest { to, ..into_session(parent, None) }).await, Kind::InputKeyReused);
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}

pub(super) async fn fork_point_must_be_a_message(s: &StoreUnderTest<'_>) -> RuleResult {
    let parent = s.fresh_session().await?;
    let last = s.whole_turn(parent, "one").await?;
    let other = s.fresh_session().await?;
    s.whole_turn(other, "longer").await?;
    s.whole_turn(other, "still").await?;
    let before = s.snapshot().await?;
    let ended = last.seq.0 + 1;
    for seq in [0, 1, ended, ended + 1, u64::MAX] {
        refused(s.fork(into_session(parent, Some(Seq(seq)))).await, Kind::NodeNotFound);
        refused(s.fork(into_head(parent, Some(Seq(seq)), "b")).await, Kind::NodeNotFound);
        refused(s.rewind(parent, "main".to_owned(), Some(Seq(seq)), NOW).await, Kind::NodeNotFound);
    }
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}

pub(super) async fn input_that_never_began_is_not_a_node(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    s.whole_turn(session, "one").await?;
    let work = s.begin_in(session, "two").await?;
    let place = |turn| async move { Ok::<_, Error>(s.turn(turn).await?.span.0) };
    let joining = s.queue_to_join(session, "steer").await?;
    s.add(&work.lease, vec![joined(&[joining])]).await?;
    let (cancelled, queued) = (s.queue(session, "no").await?, s.queue(session, "later").await?);
    s.cancel(cancelled, "no".to_owned(), NOW).await?;
    for turn in [joining, cancelled, queued] {
        let at = Some(place(turn).await?);
        refused(s.fork(into_session(session, at)).await, Kind::NodeNotFound);
    }
    s.end(&next_turn(s.end(&work.lease).await?).lease).await?;
    for turn in [joining, cancelled] {
        let at = Some(place(turn).await?);
        refused(s.rewind(session, "main".to_owned(), at, NOW).await, Kind::NodeNotFound);
    }
    s.fork(into_session(session, Some(place(queued).await?))).await?;
    Ok(())
}

pub(super) async fn fork_into_a_head_stays_in_its_session(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let one = s.whole_turn(session, "one").await?;
    let two = s.whole_turn(session, "two").await?;
    assert_eq!(s.fork(into_head(session, Some(one.seq), "draft")).await?, session);
    let moved = s.all(session).await?.pop().expect("it was written").fact;
    assert_eq!(moved, Fact::HeadMoved { head: "draft".to_owned(), to: Some(one) });
    let on_draft = |text| AcceptRequest { head: "draft".to_owned(), ..s.driven(session, text) };
    let work = s.begin_as(on_draft("three")).await?;
    assert_eq!((work.head.as_str(), work.parent), ("draft", Some(one)));
    s.end(&work.lease).await?;
    let four = s.whole_turn_as(on_draft("four")).await?;
    assert_eq!(inputs(s, four).await?, ["four", "three", "one"]);
    let heads = vec![("draft".to_owned(), Some(four)), ("main".to_owned(), Some(two))];
    assert_eq!(s.session(session).await?.heads, heads);
    Ok(())
}

pub(super) async fn head_name_can_be_created_once(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let one = s.whole_turn(session, "one").await?;
    s.fork(into_head(session, None, "draft")).await?;
    let before = s.snapshot().await?;
    for name in ["main", "draft"] {
        refused(s.fork(into_head(session, Some(one.seq), name)).await, Kind::InputKeyReused);
    }
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}

pub(super) async fn rewind_moves_a_head_and_keeps_records(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let one = s.whole_turn(session, "one").await?;
    let two = s.whole_turn(session, "two").await?;
    let records = s.all(session).await?;
    s.rewind(session, "main".to_owned(), Some(one.seq), NOW).await?;
    assert_eq!(head(s, session).await?, Some(one));
    let mut after = s.all(session).await?;
    let moved = after.pop().expect("it was written").fact;
    assert_eq!(moved, Fact::HeadMoved { head: "main".to_owned(), to: Some(one) });
    assert_eq!(after, records);
    assert_eq!(inputs(s, two).await?, ["two", "one"]);
    let three = s.whole_turn(session, "three").await?;
    assert_eq!(inputs(s, three).await?, ["three", "one"]);
    s.rewind(session, "main".to_owned(), Some(two.seq), NOW).await?;
    assert_eq!(head(s, session).await?, Some(two));
    Ok(())
}

pub(super) async fn rewind_before_the_first_message_empties_the_head(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    s.whole_turn(session, "one").await?;
    s.rewind(session, "main".to_owned(), None, NOW).await?;
    assert_eq!(head(s, session).await?, None);
    let work = s.begin_in(session, "two").await?;
    assert_eq!((work.index, work.parent), (1, None));
    s.end(&work.lease).await?;
    assert_eq!(inputs(s, head(s, session).await?.expect("it moved")).await?, ["two"]);
    Ok(())
}

pub(super) async fn rewinding_one_head_leaves_the_others(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let one = s.whole_turn(session, "one").await?;
    s.fork(into_head(session, None, "draft")).await?;
    s.rewind(session, "draft".to_owned(), None, NOW).await?;
    let heads = vec![("draft".to_owned(), None), ("main".to_owned(), Some(one))];
    assert_eq!(s.session(session).await?.heads, heads);
    refused(s.rewind(session, "elsewhere".to_owned(), None, NOW).await, Kind::NodeNotFound);
    Ok(())
}

pub(super) async fn a_busy_session_is_neither_rewound_nor_deleted(s: &StoreUnderTest<'_>) -> RuleResult {
    let ready = s.fresh_session().await?;
    s.queue(ready, "hi").await?;
    let running = s.begin("hi").await?.lease.session;
    let parked = s.begin("hi").await?.lease;
    s.park(&parked, vec![wait("a")]).await?;
    let before = s.snapshot().await?;
    for session in [ready, running, parked.session] {
        refused(s.rewind(session, "main".to_owned(), None, NOW).await, Kind::SessionBusy);
        refused(s.delete(session, NOW).await, Kind::SessionBusy);
    }
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}

pub(super) async fn a_session_is_deleted_with_everything_in_it(s: &StoreUnderTest<'_>) -> RuleResult {
    let remaining = s.fresh_session().await?;
    s.whole_turn(remaining, "stay").await?;
    let before = s.snapshot().await?;
    let gone = s.open(by_key("me"), NOW).await?;
    s.call_of_unknown_outcome(gone, &call("send"), NOW).await?;
    let lease = s.begin_in(gone, "more").await?.lease;
    let turn = lease.turn;
    s.resolve(turn, wait_key("a"), value_resolution(), NOW).await?;
    s.end(&lease).await?;
    s.delete(gone, NOW).await?;
    assert_eq!(s.snapshot().await?, before);
    refused(s.session(gone).await, Kind::SessionNotFound);
    refused(s.session_by_key("me".to_owned()).await, Kind::SessionNotFound);
    refused(s.records(gone, Seq(0), ALL).await, Kind::SessionNotFound);
    refused(s.turn(turn).await, Kind::TurnNotFound);
    refused(s.turn_records(turn).await, Kind::TurnNotFound);
    refused(s.resolve(turn, wait_key("a"), value_resolution(), NOW).await, Kind::WaitNotFound);
    refused(s.delete(gone, NOW).await, Kind::SessionNotFound);
    assert_ne!(s.open(by_key("me"), NOW).await?, gone);
    Ok(())
}

pub(super) async fn session_can_be_deleted_only_after_its_forks(s: &StoreUnderTest<'_>) -> RuleResult {
    let parent = s.fresh_session().await?;
    s.whole_turn(parent, "one").await?;
    let child = s.fork(into_session(parent, None)).await?;
    let grandchild = s.fork(into_session(child, None)).await?;
    let before = s.snapshot().await?;
    refused(s.delete(parent, NOW).await, Kind::SessionHasForks);
    assert_eq!(s.snapshot().await?, before);
    s.delete(child, NOW).await?;
    refused(s.delete(parent, NOW).await, Kind::SessionHasForks);
    assert_eq!(inputs(s, head(s, grandchild).await?.expect("it is a fork")).await?, ["one"]);
    s.delete(grandchild, NOW).await?;
    s.delete(parent, NOW).await?;
    assert!(s.sessions(None, ALL).await?.is_empty());
    Ok(())
}

pub(super) async fn session_with_extra_heads_can_be_deleted(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    s.whole_turn(session, "one").await?;
    s.fork(into_head(session, None, "draft")).await?;
    s.delete(session, NOW).await?;
    assert!(s.sessions(None, ALL).await?.is_empty());
    Ok(())
}

pub(super) async fn deleting_a_session_removes_its_unshared_content(s: &StoreUnderTest<'_>) -> RuleResult {
    let text = "long ".repeat(20_000);
    let (one, two) = (s.fresh_session().await?, s.fresh_session().await?);
    for session in [one, two] {
        s.whole_turn(session, &text).await?;
    }
    let content = Hash::of(&s.all(one).await?[1].fact.encode());
    s.delete(one, NOW).await?;
    s.blob(content).await?;
    assert_eq!(s.verify(two).await?, 4);
    s.delete(two, NOW).await?;
    refused(s.blob(content).await, Kind::BlobNotFound);
    Ok(())
}
