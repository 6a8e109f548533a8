//! The journal: records by cursor, the feed over all sessions, the hash chain.
use super::RuleResult;
use super::store_under_test::{
    ALL, NOW, StoreUnderTest, asked, call, commit, expect_gapless, input, model_call, performed, read, reply,
    session_id, settled, started, value_resolution, wait, wait_key,
};
use outlast_ports::branches::ForkRequest;
use outlast_ports::journal::{FeedCursor, FeedRecord};
use outlast_ports::turns::{Commit, Fence, Lease, TurnTransition};
use outlast_views::{ForkTo, WriteCount};
use outlast_vocab::effect::{DurableStep, ModelFailure, ModelOutcome, Sleep, SleepOutcome, StepOutcome};
use outlast_vocab::id::SessionId;
use outlast_vocab::record::{
    AttemptsFailed, ClaimRef, EffectRequested, Fact, FailedAttempt, Record, RepairedCall, Seq, TurnResumed,
    chain_hash,
};
use outlast_vocab::{Error, Failure, Hash, Kind, Millis, ReplayKey};
use serde_json::json;
use std::time::Duration;

/// Reads the whole feed in pages of this size.
async fn feed(s: &StoreUnderTest<'_>, mut after: FeedCursor, page: usize) -> Result<Vec<FeedRecord>, Error> {
    let mut all = Vec::new();
    loop {
        let found = s.feed(after, page).await?;
        assert!(found.len() <= page);
        let Some(last) = found.last() else { return Ok(all) };
        assert!(last.cursor > after, "a page ends after it begins");
        after = last.cursor;
        all.extend(found);
    }
}

fn of(session: SessionId, feed: &[FeedRecord]) -> Vec<Record> {
    feed.iter().filter(|found| found.session == session).map(|found| found.record.clone()).collect()
}

pub(super) async fn facts_round_trip_unchanged(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let step = DurableStep { name: "charge".to_owned(), input: json!({ "amount": 12.5, "n": u64::MAX }) };
    let key = ReplayKey::turn(0).step("é/%");
    let failure = ModelFailure { failure: Failure::new(Kind::ModelCut, "cut"), streamed: true };
    let sleep = Sleep { until: Millis(u64::MAX) };
    let (worker, since) = (lease.worker, NOW);
    let (reason, model) = (failure.failure.clone(), Some("test/script".parse()?));
    let again = FailedAttempt { attempt: 2, from: NOW, until: NOW, failure: reason, model };
    let facts = vec![
        Fact::Resumed(TurnResumed { worker, lease: u64::MAX, since }),
        started(),
        Fact::Tried(AttemptsFailed { key: ReplayKey::turn(0).model(0), attempts: vec![again] }),
        Fact::Asked(EffectRequested { key: ReplayKey::turn(0).sleep(1), command: sleep.clone().into() }),
        performed(key.clone(), step.clone(), StepOutcome::Value(json!([null, "\u{1f600}\0"]))),
        performed(key, step, StepOutcome::Failed(Failure::new(Kind::ToolFailed, "no"))),
        performed(ReplayKey::turn(0).model(0), model_call(), ModelOutcome::Failed(failure)),
        performed(ReplayKey::turn(0).sleep(0), sleep, SleepOutcome {}),
        read("a", value_resolution()),
        Fact::Repaired { calls: vec![RepairedCall { call: call("x").model_id, restored: false }] },
        Fact::Stuck { failure: Failure::new(Kind::JournalDiverged, "asks for another tool") },
        asked(&[call("a"), call("b")]),
    ];
    let now = Millis(u64::from(u32::MAX) * 3);
    let write = Commit { now, ..commit(&lease, facts.clone(), TurnTransition::Continue) };
    let places = s.commit(write).await?.places;
    let records = s.turn_records(lease.turn).await?;
    assert_eq!(records[1..].iter().map(|record| record.fact.clone()).collect::<Vec<_>>(), facts);
    assert_eq!(records[1..].iter().map(Record::place).collect::<Vec<_>>(), places);
    assert!(records[1..].iter().all(|record| (record.turn, record.at) == (Some(lease.turn), now)));
    Ok(())
}

pub(super) async fn turn_counts_its_writes_and_wait_time(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let micros = Duration::from_micros;
    let work = s.begin_in(session, "one").await?;
    let queued = s.accept(input(session, "two")).await?.turn;
    let writes = async |turn| Ok::<_, Error>(s.turn(turn).await?.writes);
    assert_eq!(writes(work.lease.turn).await?, Some(WriteCount { commits: 1, waited: micros(0) }));
    for waited in [700, 50] {
        s.commit(Commit {
            waited: micros(waited),
            ..commit(&work.lease, Vec::new(), TurnTransition::Continue)
        })
        .await?;
    }
    let late = Lease { fence: Fence(work.lease.fence.0 + 1), ..work.lease };
    let refused = Commit { waited: micros(9), ..commit(&late, Vec::new(), TurnTransition::Continue) };
    assert!(s.commit(refused).await.is_err());
    // Readers see the writes, and the next write counts them too.
    assert_eq!(writes(work.lease.turn).await?, Some(WriteCount { commits: 3, waited: micros(750) }));
    s.end(&work.lease).await?;
    assert_eq!(writes(work.lease.turn).await?, Some(WriteCount { commits: 4, waited: micros(750) }));
    assert_eq!(writes(queued).await?, Some(WriteCount { commits: 1, waited: micros(0) }));
    Ok(())
}

pub(super) async fn records_form_a_hash_chain(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    s.whole_turn(session, "one").await?;
    s.whole_turn(session, &"long ".repeat(20_000)).await?;
    let mut before = Hash::ZERO;
    for record in s.all(session).await? {
        let body = record.fact.encode();
        assert_eq!(record.hash, chain_hash(&before, record.seq, record.turn, record.at, &body));
        before = record.hash;
    }
    assert_eq!(s.session(session).await?.last.hash, before);
    Ok(())
}

pub(super) async fn a_healthy_session_verifies(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    assert_eq!(s.verify(session).await?, 1);
    for n in 0..100 {
        let input = s.accept(input(session, &format!("input {n}"))).await?;
        s.cancel(input.turn, "no".to_owned(), NOW).await?;
    }
    s.whole_turn(session, &"long ".repeat(20_000)).await?;
    assert_eq!(s.verify(session).await?, 304);
    Ok(())
}

pub(super) async fn records_are_read_from_any_cursor(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    s.whole_turn(session, "one").await?;
    s.whole_turn(session, "two").await?;
    let all = s.all(session).await?;
    expect_gapless(&all);
    assert_eq!(all.len(), 7);
    for after in 0..=7 {
        for limit in [0, 1, 3, 7, ALL] {
            let page = s.records(session, Seq(after as u64), limit).await?;
            assert_eq!(page, all.iter().skip(after).take(limit).cloned().collect::<Vec<_>>());
        }
    }
    Ok(())
}

pub(super) async fn reading_past_the_last_record_returns_nothing(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.begin("hi").await?.lease.session;
    for after in [3, u64::MAX - 1, u64::MAX] {
        assert_eq!(s.records(session, Seq(after), ALL).await?, []);
        assert_eq!(s.feed(FeedCursor(after), ALL).await?, []);
    }
    Ok(())
}

pub(super) async fn turn_records_exclude_other_turns(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("one").await?;
    let session = work.lease.session;
    let queued = s.queue(session, "two").await?;
    s.resolve(queued, wait_key("early"), value_resolution(), NOW).await?;
    s.end(&work.lease).await?;
    let all = s.all(session).await?;
    for turn in [work.lease.turn, queued] {
        let own: Vec<Record> = all.iter().filter(|record| record.turn == Some(turn)).cloned().collect();
        assert_eq!(s.turn_records(turn).await?, own);
    }
    Ok(())
}

pub(super) async fn feed_lists_every_record_in_commit_order(s: &StoreUnderTest<'_>) -> RuleResult {
    let (here, there) = (s.fresh_session().await?, s.fresh_session().await?);
    let mine = s.begin_in(here, "here").await?.lease;
    let theirs = s.begin_in(there, "there").await?.lease;
    s.add(&theirs, vec![reply("a"), reply("b")]).await?;
    s.end(&mine).await?;
    s.park(&theirs, vec![wait("a")]).await?;
    let all = feed(s, FeedCursor(0), ALL).await?;
    let order: Vec<(SessionId, u64)> = all.iter().map(|found| (found.session, found.record.seq.0)).collect();
    let (h, t) = (|seq| (here, seq), |seq| (there, seq));
    assert_eq!(order, [h(1), t(1), h(2), t(2), t(3), t(4), h(3), h(4), t(5)]);
    assert!(all.is_sorted_by(|one, other| one.cursor < other.cursor));
    for session in [here, there] {
        assert_eq!(of(session, &all), s.all(session).await?);
    }
    Ok(())
}

pub(super) async fn reading_the_feed_in_pages_gives_the_same(s: &StoreUnderTest<'_>) -> RuleResult {
    for text in ["one", "two"] {
        let session = s.fresh_session().await?;
        s.whole_turn(session, text).await?;
    }
    let all = feed(s, FeedCursor(0), ALL).await?;
    assert_eq!(all.len(), 8);
    for page in [1, 2, 3, 8] {
        assert_eq!(feed(s, FeedCursor(0), page).await?, all);
    }
    for (n, found) in all.iter().enumerate() {
        assert_eq!(s.feed(found.cursor, ALL).await?, all[n + 1..]);
    }
    Ok(())
}

pub(super) async fn feed_continues_after_session_deletion(s: &StoreUnderTest<'_>) -> RuleResult {
    let (remaining, gone) = (s.fresh_session().await?, s.fresh_session().await?);
    s.whole_turn(remaining, "one").await?;
    s.whole_turn(gone, "two").await?;
    let half = s.feed(FeedCursor(0), 3).await?[2].cursor;
    let end = feed(s, FeedCursor(0), ALL).await?[7].cursor;
    s.delete(gone, NOW).await?;
    let rest = s.feed(half, ALL).await?;
    assert_eq!(of(remaining, &rest), rest.iter().map(|found| found.record.clone()).collect::<Vec<_>>());
    assert_eq!(s.feed(end, ALL).await?, []);
    s.whole_turn(remaining, "three").await?;
    let new = s.feed(end, ALL).await?;
    assert_eq!(of(remaining, &new), s.records(remaining, Seq(4), ALL).await?);
    assert_eq!(new.len(), 3);
    Ok(())
}

pub(super) async fn refused_writes_are_not_in_the_feed(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let lease = s.begin_in(session, "hi").await?.lease;
    let stale = Lease { fence: Fence(0), ..lease };
    assert!(s.add(&stale, vec![reply("refused")]).await.is_err());
    let nobodys = ClaimRef { asked: Seq(1), child: 0 };
    assert!(s.add(&lease, vec![reply("refused"), settled(nobodys)]).await.is_err());
    s.add(&lease, vec![reply("kept")]).await?;
    assert_eq!(of(session, &feed(s, FeedCursor(0), 1).await?), s.all(session).await?);
    assert_eq!(s.facts(session).await?, ["session.opened", "turn.accepted", "effect.performed"]);
    Ok(())
}

pub(super) async fn each_fork_has_its_own_hash_chain(s: &StoreUnderTest<'_>) -> RuleResult {
    let parent = s.fresh_session().await?;
    s.whole_turn(parent, "one").await?;
    let to = ForkTo::Session { fresh: session_id(), key: None };
    let fork = s.fork(ForkRequest { from: parent, at: None, to, now: NOW }).await?;
    s.whole_turn(fork, "two").await?;
    expect_gapless(&s.all(fork).await?);
    assert_eq!((s.verify(parent).await?, s.verify(fork).await?), (4, 4));
    Ok(())
}
