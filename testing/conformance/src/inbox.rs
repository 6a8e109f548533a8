//! Accepting inputs: idempotency keys, receipts, and which worker gets the lease at once.
use super::RuleResult;
use super::store_under_test::{
    NOW, StoreUnderTest, by_key, expect_gapless, input, keyed, next_turn, refused, session_id,
};
use futures_util::future::join_all;
use outlast_ports::inbox::{AcceptRequest, SessionTarget};
use outlast_ports::turns::Fence;
use outlast_views::{SessionState, TurnState};
use outlast_vocab::id::{AttachmentId, TurnId};
use outlast_vocab::message::{Attachment, MediaType, Part};
use outlast_vocab::record::{Fact, InputDelivery, Seq, TurnAccepted};
use outlast_vocab::{Hash, Kind, SessionId, WorkerId};

pub(super) async fn repeated_key_returns_first_turn_as_duplicate(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let first = s.accept(keyed(session, "k", "hi")).await?;
    let before = s.snapshot().await?;
    let again = s.accept(keyed(session, "k", "hi")).await?;
    assert_eq!((first.duplicate, again.duplicate), (false, true));
    assert_eq!((again.session, again.turn, again.place), (session, first.turn, first.place));
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}

pub(super) async fn repeated_key_with_different_input_is_refused(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    s.accept(keyed(session, "k", "hi")).await?;
    let before = s.snapshot().await?;
    refused(s.accept(keyed(session, "k", "ho")).await, Kind::InputKeyReused);
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}

pub(super) async fn a_key_belongs_to_its_session(s: &StoreUnderTest<'_>) -> RuleResult {
    let (here, there) = (s.fresh_session().await?, s.fresh_session().await?);
    let first = s.accept(keyed(here, "k", "hi")).await?;
    let other = s.accept(keyed(there, "k", "ho")).await?;
    assert!(!other.duplicate && other.turn != first.turn);
    Ok(())
}

pub(super) async fn inputs_without_a_key_are_never_duplicates(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let first = s.accept(input(session, "hi")).await?;
    let second = s.accept(input(session, "hi")).await?;
    assert!(!second.duplicate && second.turn != first.turn);
    Ok(())
}

pub(super) async fn duplicate_input_starts_no_second_turn(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let accept = || AcceptRequest { lease_request: Some(s.lease_request()), ..keyed(session, "k", "hi") };
    let work = s.begin_as(accept()).await?;
    s.end(&work.lease).await?;
    let again = s.accept(accept()).await?;
    assert!(again.duplicate && again.work.is_none());
    assert_eq!(again.turn, work.lease.turn);
    assert_eq!(s.session(session).await?.state, SessionState::Idle);
    Ok(())
}

pub(super) async fn concurrent_equal_inputs_are_accepted_once(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let answers = join_all((0..4).map(|_| s.accept(keyed(session, "k", "hi")))).await;
    let answers: Vec<_> = answers.into_iter().collect::<Result<_, _>>()?;
    assert_eq!(answers.iter().filter(|answer| !answer.duplicate).count(), 1);
    assert!(answers.iter().all(|answer| (answer.turn, answer.place) == (answers[0].turn, answers[0].place)));
    assert_eq!(s.facts(session).await?, ["session.opened", "turn.accepted"]);
    Ok(())
}

pub(super) async fn opening_by_key_twice_gives_the_same_session(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.open(by_key("me"), NOW).await?;
    let before = s.snapshot().await?;
    assert_eq!(s.open(by_key("me"), NOW).await?, session);
    assert_eq!(s.snapshot().await?, before);
    let accept = AcceptRequest { target: by_key("me"), ..input(session, "hi") };
    assert_eq!(s.accept(accept).await?.session, session);
    assert_eq!(s.session_by_key("me".to_owned()).await?.id, session);
    assert_ne!(s.open(by_key("you"), NOW).await?, session);
    Ok(())
}

pub(super) async fn input_opens_its_session_by_key(s: &StoreUnderTest<'_>) -> RuleResult {
    let accept = AcceptRequest { target: by_key("me"), ..input(session_id(), "hi") };
    let accepted = s.accept(accept).await?;
    assert_eq!(s.session_by_key("me".to_owned()).await?.id, accepted.session);
    assert_eq!(s.facts(accepted.session).await?, ["session.opened", "turn.accepted"]);
    Ok(())
}

pub(super) async fn opening_an_unknown_id_is_refused(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    assert_eq!(s.open(SessionTarget::Id(session), NOW).await?, session);
    refused(s.open(SessionTarget::Id(session_id()), NOW).await, Kind::SessionNotFound);
    refused(s.accept(input(session_id(), "hi")).await, Kind::SessionNotFound);
    assert_eq!(s.sessions(None, 9).await?.len(), 1);
    Ok(())
}

pub(super) async fn new_session_cannot_reuse_a_session_id(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.open(by_key("me"), NOW).await?;
    s.whole_turn(session, "hi").await?;
    let before = s.snapshot().await?;
    refused(s.open(SessionTarget::New(session), NOW).await, Kind::InputKeyReused);
    let stolen = SessionTarget::Key { key: "you".to_owned(), fresh: session };
    refused(s.open(stolen, NOW).await, Kind::InputKeyReused);
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}

pub(super) async fn new_turn_cannot_reuse_a_turn_id(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let turn = s.queue(session, "hi").await?;
    let before = s.snapshot().await?;
    refused(s.accept(AcceptRequest { turn, ..input(session, "ho") }).await, Kind::InputKeyReused);
    assert_eq!(s.snapshot().await?, before);
    Ok(())
}

/// An input of a request without a key.
fn of_request(session: SessionId, request: &str, worker: WorkerId) -> AcceptRequest {
    let request = Some(Hash::of(request.as_bytes()));
    let accepted = TurnAccepted { request, worker: Some(worker), ..TurnAccepted::text("hi") };
    AcceptRequest { accepted, ..input(session, "hi") }
}

pub(super) async fn turns_of_requests_are_listed_in_order(s: &StoreUnderTest<'_>) -> RuleResult {
    let (session, worker) = (s.fresh_session().await?, s.lease_request().worker);
    let empty = s.request_turns(None, 2).await?;
    assert_eq!((empty.turns, empty.has_more), (vec![], false));
    let mut turns = Vec::new();
    for request in ["a", "b", "a"] {
        let accepted = s.accept(of_request(session, request, worker)).await?;
        turns.push((accepted.turn, Hash::of(request.as_bytes())));
    }
    let newest = s.request_turns(None, 2).await?;
    assert_eq!((newest.turns.as_slice(), newest.has_more), (&turns[1..], false));
    let first = s.request_turns(Some(empty.through), 2).await?;
    assert_eq!((first.turns.as_slice(), first.has_more), (&turns[..2], true));
    let rest = s.request_turns(Some(first.through), 2).await?;
    assert_eq!((rest.turns.as_slice(), rest.has_more), (&turns[2..], false));
    let nothing = s.request_turns(Some(rest.through), 2).await?;
    assert_eq!((nothing.turns.as_slice(), nothing.through), (&[][..], rest.through));
    Ok(())
}

pub(super) async fn only_requests_without_a_key_are_listed(s: &StoreUnderTest<'_>) -> RuleResult {
    let (session, worker) = (s.fresh_session().await?, s.lease_request().worker);
    s.accept(input(session, "hi")).await?;
    s.accept(keyed(session, "k", "hi")).await?;
    let mut both = of_request(session, "a", worker);
    both.accepted.key = Some("k2".to_owned());
    s.accept(both).await?;
    assert_eq!(s.request_turns(None, 9).await?.turns, []);
    let request = s.accept(of_request(session, "a", worker)).await?;
    assert_eq!(s.request_turns(None, 9).await?.turns, [(request.turn, Hash::of(b"a"))]);
    // Equal requests are separate turns: the store does not know whether their clients are connected.
    let equal = s.accept(of_request(session, "a", worker)).await?;
    assert!(!equal.duplicate && equal.turn != request.turn);
    Ok(())
}

pub(super) async fn turn_of_a_request_tells_its_acceptor_and_end(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let rival = s.rival();
    let accept =
        AcceptRequest { lease_request: Some(s.lease_request()), ..of_request(session, "a", rival.worker) };
    let work = s.begin_as(accept).await?;
    let turn = work.lease.turn;
    s.bury(rival);
    let gone = s.request_turn_state(turn).await?;
    assert_eq!((gone.is_acceptor_running, gone.ended), (false, None));
    s.end(&work.lease).await?;
    assert_eq!(s.request_turn_state(turn).await?.ended, Some(NOW));
    refused(s.request_turn_state(TurnId::from_u128(u128::MAX)).await, Kind::TurnNotFound);
    // The process of an input that names none may still run.
    let plain = s.queue(session, "ho").await?;
    assert!(s.request_turn_state(plain).await?.is_acceptor_running);
    Ok(())
}

pub(super) async fn input_receipt_is_the_position_of_its_record(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let accepted = s.accept(keyed(session, "k", "hi")).await?;
    let record = s.all(session).await?.pop().expect("it was written");
    assert_eq!((record.place(), record.turn, record.at), (accepted.place, Some(accepted.turn), NOW));
    Ok(())
}

pub(super) async fn an_input_reads_back_as_it_was_given(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.begin("before").await?.lease.session;
    let attachment = Attachment {
        id: AttachmentId::from_u128(u128::MAX),
        content: Hash::of(b"png"),
        media_type: MediaType::try_from("image/png".to_owned())?,
        name: Some("chart.png".to_owned()),
    };
    let parts = vec![
        Part::text("line\n\0 \"quoted\" \u{1f600} é \u{10ffff}"),
        Part::Reasoning { text: String::new(), signature: Some("s".to_owned()) },
        Part::Attachment { attachment },
    ];
    let (key, delivery) = (Some("ключ %_'".to_owned()), InputDelivery::Join);
    let fact = TurnAccepted { parts, key, delivery, ..TurnAccepted::text("") };
    let accepted = s.accept(AcceptRequest { accepted: fact.clone(), ..input(session, "") }).await?;
    assert_eq!(s.turn_records(accepted.turn).await?[0].fact, Fact::Accepted(fact.clone()));
    assert_eq!(s.joinable(session).await?, [(accepted.turn, fact.parts)]);
    Ok(())
}

pub(super) async fn accepting_input_leases_an_idle_session_atomically(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let accepted = s.accept(s.driven(session, "hi")).await?;
    let work = accepted.work.expect("the session is idle");
    assert_eq!((work.lease.session, work.lease.turn), (session, accepted.turn));
    assert_eq!((work.lease.worker, work.lease.fence), (s.lease_request().worker, Fence(1)));
    assert_eq!((work.index, work.head.as_str(), work.parent, work.guard.deaths), (0, "main", None, 0));
    assert_eq!(work.records, s.turn_records(accepted.turn).await?);
    let view = s.session(session).await?;
    assert_eq!((view.state, view.active), (SessionState::Leased, Some(accepted.turn)));
    assert_eq!(view.worker, Some(s.lease_request().worker));
    assert_eq!(s.facts(session).await?, ["session.opened", "turn.accepted"]);
    assert_eq!(s.claimable(NOW).await?, []);
    Ok(())
}

pub(super) async fn unclaimed_input_waits_for_a_worker(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let accepted = s.accept(input(session, "hi")).await?;
    assert!(accepted.work.is_none());
    let view = s.session(session).await?;
    assert_eq!((view.state, view.active, view.turns), (SessionState::Ready, None, 1));
    assert_eq!(s.claimable(NOW).await?, [accepted.turn]);
    Ok(())
}

pub(super) async fn an_input_for_a_busy_session_is_queued(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    let session = work.lease.session;
    let accepted = s.accept(AcceptRequest { lease_request: Some(s.rival()), ..input(session, "ho") }).await?;
    assert!(accepted.work.is_none());
    assert_eq!(s.turn(accepted.turn).await?.state, TurnState::Queued);
    let view = s.session(session).await?;
    assert_eq!((view.active, view.worker), (Some(work.lease.turn), Some(s.lease_request().worker)));
    assert_eq!(s.claimable(NOW).await?, []);
    Ok(())
}

pub(super) async fn new_input_does_not_overtake_queued_ones(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let first = s.queue(session, "first").await?;
    let second = s.accept(s.driven(session, "second")).await?;
    assert!(second.work.is_none());
    let work = s.claim_only_turn(s.lease_request(), NOW).await?;
    assert_eq!(work.lease.turn, first);
    assert_eq!(next_turn(s.end(&work.lease).await?).lease.turn, second.turn);
    Ok(())
}

pub(super) async fn a_refused_input_opens_no_session(s: &StoreUnderTest<'_>) -> RuleResult {
    let accept =
        AcceptRequest { target: by_key("me"), head: "elsewhere".to_owned(), ..input(session_id(), "hi") };
    refused(s.accept(accept).await, Kind::NodeNotFound);
    refused(s.session_by_key("me".to_owned()).await, Kind::SessionNotFound);
    assert!(s.sessions(None, 9).await?.is_empty());
    Ok(())
}

pub(super) async fn queued_inputs_are_limited(s: &StoreUnderTest<'_>) -> RuleResult {
    let work = s.begin("hi").await?;
    let accept = |key| AcceptRequest { queued_most: 2, ..keyed(work.lease.session, key, "more") };
    s.accept(accept("1")).await?;
    s.accept(accept("2")).await?;
    let before = s.snapshot().await?;
    let error = s.accept(accept("3")).await.expect_err("two may wait");
    let expected = format!(
        "queue.full: queued_inputs is limited to 2, and so many are queued for {}",
        work.lease.session
    );
    assert_eq!(error.to_string(), expected);
    assert_eq!(s.snapshot().await?, before);
    assert!(s.accept(accept("2")).await?.duplicate);
    s.end(&work.lease).await?;
    s.accept(accept("3")).await?;
    Ok(())
}

pub(super) async fn input_for_a_taken_position_is_refused(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let second = |key| AcceptRequest { index: Some(1), ..keyed(session, key, "next") };
    refused(s.accept(second("early")).await, Kind::SessionMoved);
    s.whole_turn(session, "hi").await?;
    let answers = join_all(["a", "b", "c"].map(|key| s.accept(second(key)))).await;
    let taken = answers.iter().position(Result::is_ok).expect("one is the second turn");
    for (place, answer) in answers.into_iter().enumerate() {
        if place != taken {
            refused(answer, Kind::SessionMoved);
        }
    }
    // The key belongs to the turn that this input started.
    assert!(s.accept(second(["a", "b", "c"][taken])).await?.duplicate);
    assert_eq!(s.turns(session, 0, 9).await?.len(), 2);
    Ok(())
}

pub(super) async fn idempotency_key_is_bound_to_its_request(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let asked =
        |request: &[u8]| AcceptRequest { request: Some(Hash::of(request)), ..keyed(session, "k", "hi") };
    let first = s.accept(asked(b"one")).await?;
    assert_eq!(s.accept(asked(b"one")).await?.turn, first.turn);
    refused(s.accept(asked(b"two")).await, Kind::InputKeyReused);
    refused(s.accept(keyed(session, "k", "hi")).await, Kind::InputKeyReused);
    Ok(())
}

pub(super) async fn concurrent_inputs_get_positions_without_gaps(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let answers = join_all((0..8).map(|_| s.accept(s.driven(session, "hi")))).await;
    let answers: Vec<_> = answers.into_iter().collect::<Result<_, _>>()?;
    assert_eq!(answers.iter().filter(|answer| answer.work.is_some()).count(), 1);
    let records = s.all(session).await?;
    assert_eq!(records.len(), 9);
    expect_gapless(&records);
    let turns: Vec<TurnId> = s.turns(session, 0, 9).await?.iter().map(|turn| turn.id).collect();
    let accepted: Vec<TurnId> = records.iter().filter_map(|record| record.turn).collect();
    assert_eq!(turns, accepted);
    Ok(())
}

pub(super) async fn refused_write_leaves_concurrent_writes_intact(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    s.accept(keyed(session, "k", "hi")).await?;
    let inputs = [("a", "1"), ("k", "other"), ("b", "2"), ("k", "another"), ("c", "3")];
    let answers = join_all(inputs.map(|(key, text)| s.accept(keyed(session, key, text)))).await;
    let kinds: Vec<_> =
        answers.into_iter().map(|answer| answer.map(drop).map_err(|error| error.kind())).collect();
    let reused = Err(Kind::InputKeyReused);
    assert_eq!(kinds, [Ok(()), reused, Ok(()), reused, Ok(())]);
    assert_eq!(s.session(session).await?.last.seq, Seq(5));
    assert_eq!(s.verify(session).await?, 5);
    Ok(())
}
