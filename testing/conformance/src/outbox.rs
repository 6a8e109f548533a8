//! The outbox of outputs: none is lost, each has one id, and a worker holds one only for a limited time.
use super::RuleResult;
use super::store_under_test::{ALL, NOW, StoreUnderTest, answer, joined, refused};
use outlast_ports::outbox::{CollectRequest, DeliveryAttempt, DueDelivery, FeedStart, SinkSubscription};
use outlast_ports::sink::{OutputEvent, OutputPosition, SinkOutput};
use outlast_ports::turns::{LeaseRequest, TurnTransition};
use outlast_views::CancelOutcome;
use outlast_vocab::id::{DeliveryId, OrgId, TurnId};
use outlast_vocab::record::TurnEnd;
use outlast_vocab::{Error, Failure, Kind, Millis};

const ATTEMPTS: u32 = 3;

fn wants(name: &str, begins: FeedStart) -> SinkSubscription {
    SinkSubscription::to_ends(name, begins)
}

/// Subscribes a sink that starts now.
async fn sink(s: &StoreUnderTest<'_>, name: &str) -> Result<SinkSubscription, Error> {
    let subscription = wants(name, FeedStart::Now);
    s.subscribe(vec![subscription.clone()], NOW).await?;
    Ok(subscription)
}

async fn collect_by(
    s: &StoreUnderTest<'_>,
    by: LeaseRequest,
    of: &SinkSubscription,
    now: Millis,
) -> Result<Vec<DueDelivery>, Error> {
    let LeaseRequest { worker, until } = by;
    let subscription = of.clone();
    s.collect(CollectRequest { subscription, worker, now, until, limit: ALL, attempts: ATTEMPTS }).await
}

async fn collect(
    s: &StoreUnderTest<'_>,
    of: &SinkSubscription,
    now: Millis,
) -> Result<Vec<DueDelivery>, Error> {
    collect_by(s, s.lease_request(), of, now).await
}

fn turns(due: &[DueDelivery]) -> Vec<TurnId> {
    due.iter().map(|due| due.output.turn).collect()
}

fn attempt(of: &SinkSubscription, due: &DueDelivery) -> DeliveryAttempt {
    let SinkOutput { turn, position: moment, attempt, .. } = due.output;
    DeliveryAttempt { sink: of.name.clone(), turn, position: moment, attempt }
}

fn failure() -> Failure {
    Failure::new(Kind::DeliveryFailed, "it answered 500")
}

/// Creates a turn that ended.
async fn ended(s: &StoreUnderTest<'_>) -> Result<TurnId, Error> {
    let work = s.begin("hi").await?;
    s.end(&work.lease).await?;
    Ok(work.lease.turn)
}

pub(super) async fn new_sink_starts_with_later_outputs(s: &StoreUnderTest<'_>) -> RuleResult {
    let before = ended(s).await?;
    let now = sink(s, "now").await?;
    let all = wants("all", FeedStart::Beginning);
    s.subscribe(vec![all.clone()], NOW).await?;
    let after = ended(s).await?;
    assert_eq!(turns(&collect(s, &now, NOW).await?), [after]);
    assert_eq!(turns(&collect(s, &all, NOW).await?), [before, after]);
    // A known sink keeps its position, even if it is subscribed again with another start.
    s.subscribe(vec![wants("now", FeedStart::Beginning)], NOW).await?;
    assert_eq!(collect(s, &now, NOW).await?, []);
    Ok(())
}

pub(super) async fn output_reports_how_its_turn_ended(s: &StoreUnderTest<'_>) -> RuleResult {
    let of = sink(s, "a").await?;
    let work = s.begin("hi").await?;
    let (session, turn) = (work.lease.session, work.lease.turn);
    assert_eq!(collect(s, &of, NOW).await?, []);
    s.end(&work.lease).await?;
    let due = collect(s, &of, Millis(1_500)).await?;
    let id = DeliveryId::derived(&[b"a", &turn.to_u128().to_be_bytes()]);
    let (about, sent) = (OutputEvent::Ended(answer("bye")), Millis(1_500));
    let seq = s.session(session).await?.last.seq;
    let (org, moment) = (OrgId::DEFAULT, OutputPosition { seq, nth: 0 });
    let output = SinkOutput {
        id,
        org,
        session,
        key: None,
        turn,
        position: moment,
        at: NOW,
        event: about,
        attempt: 1,
        sent,
    };
    assert_eq!(due, [DueDelivery { output, attempts_since_retry: 1 }]);
    Ok(())
}

pub(super) async fn sink_gets_subscribed_turn_ends_without_joined_inputs(
    s: &StoreUnderTest<'_>,
) -> RuleResult {
    let all = sink(s, "all").await?;
    let cancelled =
        SinkSubscription { ends: Some(vec!["cancelled".to_owned()]), ..sink(s, "cancelled").await? };
    let work = s.begin("hi").await?;
    let joins = s.queue_to_join(work.lease.session, "and").await?;
    let waits = s.queue(work.lease.session, "then").await?;
    assert_eq!(s.cancel(waits, "no".to_owned(), NOW).await?, CancelOutcome::EndedBeforeStart);
    s.add(&work.lease, vec![joined(&[joins])]).await?;
    s.write(&work.lease, vec![], TurnTransition::End(TurnEnd::Refused { text: "no".to_owned() })).await?;
    assert_eq!(turns(&collect(s, &all, NOW).await?), [work.lease.turn, waits]);
    assert_eq!(turns(&collect(s, &cancelled, NOW).await?), [waits]);
    Ok(())
}

pub(super) async fn collected_delivery_is_reserved_until_its_lease_expires(
    s: &StoreUnderTest<'_>,
) -> RuleResult {
    let of = sink(s, "a").await?;
    let turn = ended(s).await?;
    let one = s.lease_request();
    assert_eq!(turns(&collect_by(s, one, &of, NOW).await?), [turn]);
    let rival = s.rival();
    assert_eq!(collect_by(s, rival, &of, Millis(one.until.0 - 1)).await?, []);
    let again = collect_by(s, rival, &of, one.until).await?;
    assert_eq!(
        again.iter().map(|due| (due.output.attempt, due.attempts_since_retry)).collect::<Vec<_>>(),
        [(2, 2)]
    );
    Ok(())
}

pub(super) async fn another_worker_takes_deliveries_of_dead_worker(s: &StoreUnderTest<'_>) -> RuleResult {
    let of = sink(s, "a").await?;
    let turn = ended(s).await?;
    let (one, other) = (s.lease_request(), s.rival());
    assert_eq!(turns(&collect_by(s, one, &of, NOW).await?), [turn]);
    assert!(!s.delivery_schedule("a".to_owned(), NOW).await?.is_due);
    s.bury(one);
    assert!(s.delivery_schedule("a".to_owned(), NOW).await?.is_due);
    assert_eq!(turns(&collect_by(s, other, &of, NOW).await?), [turn]);
    Ok(())
}

pub(super) async fn delivered_output_is_never_due_again(s: &StoreUnderTest<'_>) -> RuleResult {
    let of = sink(s, "a").await?;
    ended(s).await?;
    let due = collect(s, &of, NOW).await?.remove(0);
    // The delivery took too long, and another worker has taken the output over.
    let again = collect_by(s, s.rival(), &of, s.lease_request().until).await?.remove(0);
    s.delivered(attempt(&of, &due)).await?;
    s.delivered(attempt(&of, &again)).await?;
    s.undelivered(attempt(&of, &again), failure(), Some(NOW)).await?;
    assert_eq!(collect(s, &of, Millis(u64::MAX)).await?, []);
    let view = s.sinks().await?.remove(0);
    assert_eq!((view.behind, view.due, view.dead, view.delivered), (0, 0, 0, 1));
    Ok(())
}

pub(super) async fn failed_delivery_is_due_at_its_retry_time(s: &StoreUnderTest<'_>) -> RuleResult {
    let of = sink(s, "a").await?;
    let turn = ended(s).await?;
    let due = collect(s, &of, NOW).await?.remove(0);
    s.undelivered(attempt(&of, &due), failure(), Some(Millis(1_700))).await?;
    assert_eq!(s.delivery_schedule("a".to_owned(), NOW).await?.next, Some(Millis(1_700)));
    assert_eq!(collect(s, &of, Millis(1_699)).await?, []);
    let again = collect(s, &of, Millis(1_700)).await?;
    assert_eq!((turns(&again), again[0].output.id), (vec![turn], due.output.id));
    // A report of an earlier attempt does not affect the current one.
    s.undelivered(attempt(&of, &due), failure(), Some(NOW)).await?;
    assert_eq!(collect(s, &of, Millis(1_701)).await?, []);
    Ok(())
}

pub(super) async fn dead_delivery_is_listed_until_redelivered(s: &StoreUnderTest<'_>) -> RuleResult {
    let of = sink(s, "a").await?;
    let turn = ended(s).await?;
    let due = collect(s, &of, NOW).await?.remove(0);
    s.undelivered(attempt(&of, &due), failure(), None).await?;
    assert_eq!(collect(s, &of, Millis(u64::MAX)).await?, []);
    let view = s.deliveries("a".to_owned(), ALL).await?.remove(0);
    assert_eq!((view.id, view.turn, view.attempts), (due.output.id, turn, 1));
    assert_eq!((view.due_at, view.failure), (None, Some(failure())));
    assert_eq!(s.sinks().await?.remove(0).dead, 1);
    assert_eq!(s.redeliver("a".to_owned(), None, NOW).await?, 1);
    let again = collect(s, &of, NOW).await?.remove(0);
    assert_eq!((again.output.id, again.output.attempt, again.attempts_since_retry), (due.output.id, 2, 1));
    // A delivery in progress is not disturbed.
    refused(s.redeliver("a".to_owned(), Some(view.id), NOW).await, Kind::DeliveryNotFound);
    refused(s.redeliver("b".to_owned(), None, NOW).await, Kind::DeliveryNotFound);
    Ok(())
}

pub(super) async fn delivery_that_kills_workers_becomes_dead(s: &StoreUnderTest<'_>) -> RuleResult {
    let of = sink(s, "a").await?;
    ended(s).await?;
    for _ in 0..ATTEMPTS {
        let lease_request = s.rival();
        assert_eq!(collect_by(s, lease_request, &of, NOW).await?.len(), 1);
        s.bury(lease_request);
    }
    assert_eq!(collect_by(s, s.rival(), &of, NOW).await?, []);
    assert_eq!(s.sinks().await?.remove(0).dead, 1);
    Ok(())
}

pub(super) async fn deleting_a_session_removes_its_deliveries(s: &StoreUnderTest<'_>) -> RuleResult {
    let of = sink(s, "a").await?;
    let work = s.begin("hi").await?;
    s.end(&work.lease).await?;
    let due = collect(s, &of, NOW).await?.remove(0);
    s.delete(work.lease.session, NOW).await?;
    assert_eq!(s.deliveries("a".to_owned(), ALL).await?, []);
    s.delivered(attempt(&of, &due)).await?;
    assert_eq!(turns(&collect(s, &of, Millis(u64::MAX)).await?), []);
    let next = ended(s).await?;
    assert_eq!(turns(&collect(s, &of, NOW).await?), [next]);
    Ok(())
}
