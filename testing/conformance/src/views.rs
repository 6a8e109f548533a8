//! Views of sessions and turns, with pagination and errors for missing objects.
use super::RuleResult;
use super::store_under_test::{
    ALL, LATER, NOW, StoreUnderTest, call, next_turn, refused, session_id, wait_until,
};
use outlast_ports::branches::ForkRequest;
use outlast_ports::inbox::SessionTarget;
use outlast_ports::journal::FeedCursor;
use outlast_views::{ForkTo, SessionState, TurnState};
use outlast_vocab::id::{SessionId, TurnId};
use outlast_vocab::record::{OutcomeVerdict, Seq};
use outlast_vocab::{Error, Kind};

pub(super) async fn session_view_reports_its_state(s: &StoreUnderTest<'_>) -> RuleResult {
    let key = SessionTarget::Key { key: "me".to_owned(), fresh: session_id() };
    let session = s.open(key, NOW).await?;
    let state = |session| async move { Ok::<_, Error>(s.session(session).await?.state) };
    assert_eq!(state(session).await?, SessionState::Idle);
    s.queue(session, "hi").await?;
    assert_eq!(state(session).await?, SessionState::Ready);
    let lease = s.claim_only_turn(s.lease_request(), NOW).await?.lease;
    assert_eq!(state(session).await?, SessionState::Leased);
    s.park(&lease, vec![wait_until("a", LATER)]).await?;
    assert_eq!(state(session).await?, SessionState::Parked);
    s.cancel(lease.turn, "enough".to_owned(), LATER).await?;
    let view = s.session(session).await?;
    assert_eq!((view.id, view.key.as_deref(), view.turns), (session, Some("me"), 1));
    assert_eq!((view.created, view.updated, view.wake_at), (NOW, LATER, None));
    assert_eq!(view.last, s.all(session).await?.pop().expect("it has records").place());
    Ok(())
}

pub(super) async fn sessions_are_paged_newest_first(s: &StoreUnderTest<'_>) -> RuleResult {
    let mut opened: Vec<SessionId> = Vec::new();
    for _ in 0..5 {
        opened.push(s.fresh_session().await?);
    }
    opened.reverse();
    let ids = |before, limit| async move {
        let page = s.sessions(before, limit).await?;
        Ok::<_, Error>(page.into_iter().map(|view| view.id).collect::<Vec<_>>())
    };
    assert_eq!(ids(None, ALL).await?, opened);
    assert_eq!(ids(None, 2).await?, opened[..2]);
    assert_eq!(ids(Some(opened[1]), 2).await?, opened[2..4]);
    assert_eq!(ids(Some(opened[3]), 2).await?, opened[4..]);
    assert_eq!(ids(Some(opened[4]), 2).await?, []);
    s.whole_turn(opened[4], "hi").await?;
    assert_eq!(ids(None, ALL).await?, opened);
    refused(s.sessions(Some(session_id()), 2).await, Kind::SessionNotFound);
    Ok(())
}

pub(super) async fn turns_are_listed_in_acceptance_order(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("0").await?.lease;
    let session = lease.session;
    let mut turns = vec![lease.turn];
    for _ in 0..3 {
        turns.push(s.queue(session, "more").await?);
    }
    s.cancel(turns[2], "no".to_owned(), NOW).await?;
    next_turn(s.end(&lease).await?);
    let all = s.turns(session, 0, ALL).await?;
    assert_eq!(all.iter().map(|turn| turn.id).collect::<Vec<TurnId>>(), turns);
    assert_eq!(all.iter().map(|turn| turn.index).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let states = [TurnState::Ended, TurnState::Active, TurnState::Ended, TurnState::Queued];
    assert_eq!(all.iter().map(|turn| turn.state).collect::<Vec<_>>(), states);
    assert_eq!(all.iter().map(|turn| turn.end.is_some()).collect::<Vec<_>>(), [true, false, true, false]);
    for (from, limit, expected) in [(0, 2, 0..2), (2, 1, 2..3), (3, ALL, 3..4), (4, 2, 4..4), (0, 0, 0..0)] {
        let page = s.turns(session, from, limit).await?;
        assert_eq!(page.iter().map(|turn| turn.id).collect::<Vec<TurnId>>(), turns[expected]);
    }
    for turn in all {
        let alone = s.turn(turn.id).await?;
        assert_eq!(format!("{alone:?}"), format!("{turn:?}"));
        assert_eq!(alone.session, session);
    }
    assert!(s.turns(session, u32::MAX, ALL).await?.is_empty());
    Ok(())
}

pub(super) async fn unknown_ids_and_keys_are_not_found(s: &StoreUnderTest<'_>) -> RuleResult {
    s.begin("somebody").await?;
    let before = s.snapshot().await?;
    let (session, turn) = (session_id(), TurnId::from_u128(u128::MAX));
    let missing = Kind::SessionNotFound;
    refused(s.session(session).await, missing);
    refused(s.session_by_key("nobody".to_owned()).await, missing);
    refused(s.records(session, Seq(0), 1).await, missing);
    refused(s.turns(session, 0, 1).await, missing);
    refused(s.joinable(session).await, missing);
    refused(s.verify(session).await, missing);
    refused(s.value(session, "a".to_owned()).await, missing);
    refused(s.value_names(session, String::new(), 1).await, missing);
    refused(s.rewind(session, "main".to_owned(), None, NOW).await, missing);
    refused(s.delete(session, NOW).await, missing);
    let to = ForkTo::Head("draft".to_owned());
    refused(s.fork(ForkRequest { from: session, at: None, to, now: NOW }).await, missing);
    refused(s.turn(turn).await, Kind::TurnNotFound);
    refused(s.turn_records(turn).await, Kind::TurnNotFound);
    refused(s.settle(call("x").id, OutcomeVerdict::DidNotHappen, NOW).await, Kind::ClaimNotFound);
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}

pub(super) async fn empty_store_has_no_work(s: &StoreUnderTest<'_>) -> RuleResult {
    assert!(s.sessions(None, ALL).await?.is_empty());
    assert!(s.claim(s.lease_request(), LATER, ALL).await?.is_empty());
    assert!(s.renew(s.lease_request()).await?.is_empty());
    assert!(s.unknown(ALL).await?.is_empty());
    assert_eq!(s.next_wake().await?, None);
    assert!(s.feed(FeedCursor(0), ALL).await?.is_empty());
    Ok(())
}
