//! Two processes on one store: each sees the writes of the other, and leases decide which one may write.
use super::store_under_test::{
    ALL, LATER, NOW, StoreUnderTest, UNTIL, by_key, expect_gapless, input, keyed, refused, reply,
    value_resolution, wait, wait_until,
};
use super::{Fixture, RuleResult, SharedFixture};
use futures_util::future::{join, join_all};
use outlast_ports::journal::FeedCursor;
use outlast_ports::store::Store;
use outlast_ports::turns::TurnAfterCommit;
use outlast_vocab::Kind;
use outlast_vocab::record::Seq;
use std::ops::Deref;
use std::sync::Arc;

/// A store under test, and the same data opened by another process.
pub(super) struct SharedStores<'a> {
    here: StoreUnderTest<'a>,
    there: Arc<dyn Store>,
}

impl<'a> From<&'a dyn SharedFixture> for SharedStores<'a> {
    fn from(on: &'a dyn SharedFixture) -> Self {
        let fixture: &dyn Fixture = on;
        Self { here: fixture.into(), there: on.open_again() }
    }
}

impl<'a> Deref for SharedStores<'a> {
    type Target = StoreUnderTest<'a>;

    fn deref(&self) -> &StoreUnderTest<'a> {
        &self.here
    }
}

pub(super) async fn one_process_reads_writes_of_the_other(s: &SharedStores<'_>) -> RuleResult {
    let session = s.open(by_key("me"), NOW).await?;
    let last = s.whole_turn(session, &"long ".repeat(20_000)).await?;
    assert_eq!(s.there.records(session, Seq(0), ALL).await?, s.all(session).await?);
    assert_eq!(s.there.session_by_key("me".to_owned()).await?.id, session);
    assert_eq!(s.there.history(last, ALL).await?.len(), 1);
    assert_eq!(s.there.verify(session).await?, 4);
    assert_eq!(s.there.secret().await?, s.secret().await?);
    assert_eq!(s.there.feed(FeedCursor(0), ALL).await?, s.feed(FeedCursor(0), ALL).await?);
    Ok(())
}

pub(super) async fn idempotency_keys_are_shared_between_processes(s: &SharedStores<'_>) -> RuleResult {
    let session = s.open(by_key("me"), NOW).await?;
    assert_eq!(s.there.open(by_key("me"), NOW).await?, session);
    let first = s.accept(keyed(session, "k", "hi")).await?;
    let again = s.there.accept(keyed(session, "k", "hi")).await?;
    assert_eq!((again.duplicate, again.turn), (true, first.turn));
    refused(s.there.accept(keyed(session, "k", "ho")).await, Kind::InputKeyReused);
    Ok(())
}

pub(super) async fn only_one_of_two_processes_gets_a_session(s: &SharedStores<'_>) -> RuleResult {
    for _ in 0..8 {
        let session = s.fresh_session().await?;
        s.queue(session, "hi").await?;
    }
    let (here, there) = join(s.claim(s.lease_request(), NOW, ALL), s.there.claim(s.rival(), NOW, ALL)).await;
    let mut taken: Vec<_> = here?.into_iter().chain(there?).map(|work| work.lease.session).collect();
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 8);
    Ok(())
}

pub(super) async fn a_process_that_lost_its_lease_writes_nothing(s: &SharedStores<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let taken = s.there.claim(s.rival(), UNTIL, ALL).await?;
    assert_eq!(taken.len(), 1);
    let before = s.snapshot().await?;
    refused(s.add(&lease, vec![reply("late")]).await, Kind::LeaseLost);
    assert_eq!(s.snapshot().await?, before);
    assert!(s.renew(s.lease_request()).await?.is_empty());
    Ok(())
}

pub(super) async fn other_process_can_resolve_a_wait(s: &SharedStores<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.park(&lease, vec![wait("a")]).await?;
    assert!(s.there.resolve(lease.turn, wait("a").key, value_resolution(), NOW).await?.is_yours);
    assert_eq!(s.claimable(NOW).await?, [lease.turn]);
    Ok(())
}

pub(super) async fn wait_resolved_by_other_process_does_not_park(s: &SharedStores<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.there.resolve(lease.turn, wait("a").key, value_resolution(), NOW).await?;
    assert!(matches!(s.park(&lease, vec![wait("a")]).await?, TurnAfterCommit::Ready));
    Ok(())
}

pub(super) async fn other_process_can_cancel_a_turn(s: &SharedStores<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.there.cancel(lease.turn, "enough".to_owned(), NOW).await?;
    assert_eq!(s.add(&lease, vec![reply("a")]).await?.cancelled.as_deref(), Some("enough"));
    Ok(())
}

pub(super) async fn concurrent_process_writes_leave_no_gaps(s: &SharedStores<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let here = join_all((0..16).map(|_| s.accept(input(session, "here"))));
    let there = join_all((0..16).map(|_| s.there.accept(input(session, "there"))));
    let (here, there) = join(here, there).await;
    for accepted in here.into_iter().chain(there) {
        accepted?;
    }
    let records = s.all(session).await?;
    assert_eq!(records.len(), 33);
    expect_gapless(&records);
    assert_eq!(s.there.verify(session).await?, 33);
    let feed = s.there.feed(FeedCursor(0), ALL).await?;
    assert_eq!(feed.into_iter().map(|found| found.record).collect::<Vec<_>>(), records);
    Ok(())
}

pub(super) async fn write_advances_change_counter_of_other_process(s: &SharedStores<'_>) -> RuleResult {
    let before = s.there.changes().await?;
    assert_eq!(s.there.changes().await?, before);
    s.begin("hi").await?;
    let after = s.there.changes().await?;
    assert_ne!(after, before);
    assert_eq!(s.there.changes().await?, after);
    Ok(())
}

pub(super) async fn other_process_finds_parked_turn_due(s: &SharedStores<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    s.park(&lease, vec![wait_until("a", LATER)]).await?;
    assert_eq!(s.there.next_wake().await?, Some(LATER));
    assert_eq!(s.there.claim(s.rival(), LATER, ALL).await?.len(), 1);
    assert_eq!(s.next_wake().await?, None);
    Ok(())
}
