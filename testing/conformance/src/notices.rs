//! Reminders and escalations of approval requests: each is sent once.
use super::RuleResult;
use super::store_under_test::{ALL, NOW, StoreUnderTest, answer, reclaimed, refused, session_id, settled};
use super::votes::{approval_key, call_needing_approval, input_of_clerk};
use outlast_ports::inbox::{AcceptRequest, SessionTarget};
use outlast_ports::outbox::{CollectRequest, DeliveryAttempt, FeedStart, SinkSubscription};
use outlast_ports::sink::{ApprovalNotice, OutputEvent, SinkOutput};
use outlast_ports::turns::{Lease, LeaseRequest, TurnTransition};
use outlast_ports::votes::{SentNotice, VoteRequest};
use outlast_views::{ApprovalProgress, SinkTopic, VoteOutcome};
use outlast_vocab::approval::{Escalation, SentNotices, approval_id};
use outlast_vocab::id::DeliveryId;
use outlast_vocab::policy::{Approval, ApprovalRequirement, ApprovalVerdict};
use outlast_vocab::record::{ClaimRef, Fact};
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Hash, Kind, Millis, ReplayKey};
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

/// The maximum number of reminders of one request.
const MOST: u32 = 3;
/// When the requests expire.
const DEADLINE: Millis = Millis(1_000_000);

/// Ann gets a reminder every ten seconds. After 25 seconds, Bob may approve too.
fn ask() -> ApprovalRequirement {
    let escalate = Escalation { after: Duration::from_secs(25), to: vec!["bob".to_owned()] };
    let escalate = Some(Box::new(escalate));
    ApprovalRequirement {
        who: vec!["ann".to_owned()],
        remind: Some(Duration::from_secs(10)),
        escalate,
        ..ApprovalRequirement::default()
    }
}

fn after(seconds: u64) -> Millis {
    NOW.after(Duration::from_secs(seconds))
}

struct TurnWithNotices<'a> {
    s: &'a StoreUnderTest<'a>,
    lease: Lease,
    key: ReplayKey,
    claim: ClaimRef,
}

async fn wait_for<'a>(
    s: &'a StoreUnderTest<'a>,
    ask: ApprovalRequirement,
) -> Result<TurnWithNotices<'a>, Error> {
    let (session, call) = (session_id(), call_needing_approval(ask));
    let accept = AcceptRequest { target: SessionTarget::New(session), ..s.driven(session, "pay") };
    let lease = s.begin_as(input_of_clerk(accept)).await?.lease;
    let key = approval_key(&call, 0);
    let claim = s.ask(&lease, &[call]).await?[0];
    let question = TurnWithNotices { s, lease, key, claim };
    question.park(&question.lease).await?;
    Ok(question)
}

impl TurnWithNotices<'_> {
    async fn park(&self, lease: &Lease) -> Result<(), Error> {
        let wait = Wait { key: self.key.clone(), kind: WaitKind::Approval, deadline: Some(DEADLINE) };
        self.s.park(lease, vec![wait]).await.map(drop)
    }

    /// Returns the notices that are sent at this time.
    async fn notices_sent_at(&self, seconds: u64) -> Result<Vec<String>, Error> {
        let before = self.s.all(self.lease.session).await?.len();
        let noticed = self.s.send_due_notices(after(seconds), MOST, ALL).await?;
        let records = self.s.all(self.lease.session).await?;
        let last = records.last().expect("a session has records").seq;
        let expected: Vec<SentNotice> =
            noticed.iter().map(|_| SentNotice { session: self.lease.session, last }).collect();
        assert_eq!(noticed, expected);
        let said = records[before..].iter().map(|record| match &record.fact {
            Fact::Reminded { key, number } if *key == self.key => format!("reminder {number}"),
            Fact::Escalated { key, to } if *key == self.key => format!("escalated to {}", to.join(" ")),
            other => other.name().to_owned(),
        });
        Ok(said.collect())
    }

    async fn approve(&self, by: &str) -> Result<VoteOutcome, Error> {
        let (turn, key, approval) =
            (self.lease.turn, self.key.clone(), Approval::new(by, ApprovalVerdict::Approve));
        self.s.vote(VoteRequest { turn, key, edited: None, approval, session_grants_max: 1, now: NOW }).await
    }

    async fn next(&self) -> Result<Option<Millis>, Error> {
        Ok(self.s.agenda(self.s.lease_request().worker, NOW).await?.next_notice)
    }
}

fn nothing() -> Vec<String> {
    Vec::new()
}

pub(super) async fn each_due_reminder_is_sent_once(s: &StoreUnderTest<'_>) -> RuleResult {
    let question = wait_for(s, ask()).await?;
    assert_eq!(question.next().await?, Some(after(10)));
    assert_eq!(question.notices_sent_at(9).await?, nothing());
    assert_eq!(question.notices_sent_at(10).await?, ["reminder 1"]);
    assert_eq!(question.notices_sent_at(10).await?, nothing());
    assert_eq!(question.next().await?, Some(after(20)));
    assert_eq!(question.notices_sent_at(20).await?, ["reminder 2"]);
    assert_eq!(question.next().await?, Some(after(25)));
    assert_eq!(question.notices_sent_at(26).await?, ["escalated to bob"]);
    assert_eq!(question.next().await?, Some(after(30)));
    let given = s.approval_progress(question.lease.turn, question.key.clone()).await?.given;
    assert_eq!(given, SentNotices { reminded: 2, escalated: true });
    assert_eq!(s.verify(question.lease.session).await?, s.all(question.lease.session).await?.len() as u64);
    Ok(())
}

pub(super) async fn missed_reminders_collapse_into_one(s: &StoreUnderTest<'_>) -> RuleResult {
    let question = wait_for(s, ask()).await?;
    assert_eq!(question.notices_sent_at(29).await?, ["escalated to bob", "reminder 2"]);
    assert_eq!(question.notices_sent_at(29).await?, nothing());
    assert_eq!(question.next().await?, Some(after(30)));
    Ok(())
}

pub(super) async fn reminders_stop_at_their_limit(s: &StoreUnderTest<'_>) -> RuleResult {
    let question = wait_for(s, ApprovalRequirement { escalate: None, ..ask() }).await?;
    assert_eq!(question.notices_sent_at(500).await?, ["reminder 3"]);
    assert_eq!(question.next().await?, None);
    assert_eq!(question.notices_sent_at(600).await?, nothing());
    Ok(())
}

pub(super) async fn escalation_contacts_can_approve_only_after_escalation(
    s: &StoreUnderTest<'_>,
) -> RuleResult {
    let question = wait_for(s, ask()).await?;
    refused(question.approve("bob").await, Kind::ApprovalForbidden);
    question.notices_sent_at(25).await?;
    refused(question.approve("eve").await, Kind::ApprovalForbidden);
    assert!(matches!(question.approve("bob").await?, VoteOutcome::Decided(_)));
    assert_eq!(question.next().await?, None);
    assert_eq!(question.notices_sent_at(100).await?, nothing());
    Ok(())
}

pub(super) async fn reminders_pause_while_the_turn_runs(s: &StoreUnderTest<'_>) -> RuleResult {
    let question = wait_for(s, ask()).await?;
    assert_eq!(question.notices_sent_at(10).await?, ["reminder 1"]);
    // A worker drives the turn for a moment, and a reminder becomes due in that time.
    let lease = s.claim_only_turn(s.lease_request(), DEADLINE).await?.lease;
    assert_eq!(question.notices_sent_at(20).await?, nothing());
    assert_eq!(question.next().await?, None);
    question.park(&lease).await?;
    assert_eq!(question.notices_sent_at(21).await?, ["reminder 2"]);
    assert_eq!(question.notices_sent_at(22).await?, nothing());
    Ok(())
}

pub(super) async fn sink_gets_each_approval_once_and_every_notice(s: &StoreUnderTest<'_>) -> RuleResult {
    let all =
        SinkSubscription { on: SinkTopic::ALL.into(), ..SinkSubscription::to_ends("all", FeedStart::Now) };
    let reminders = BTreeSet::from([SinkTopic::ApprovalReminded]);
    let reminders =
        SinkSubscription { on: reminders, ..SinkSubscription::to_ends("reminders", FeedStart::Now) };
    s.subscribe(vec![all.clone(), reminders.clone()], NOW).await?;
    let question = wait_for(s, ask()).await?;
    question.notices_sent_at(10).await?;
    // A worker drives the turn for a moment, and it waits for the same answer again.
    let lease = s.claim_only_turn(s.lease_request(), DEADLINE).await?.lease;
    question.park(&lease).await?;
    question.notices_sent_at(26).await?;
    let LeaseRequest { worker, until } = s.lease_request();
    let collect = |subscription, limit| CollectRequest {
        subscription,
        worker,
        now: DEADLINE,
        until,
        limit,
        attempts: 3,
    };
    let due = s.collect(collect(all, ALL)).await?;
    let id = approval_id(question.lease.turn, &question.key);
    let said = due.iter().map(|due| match &due.output.event {
        OutputEvent::Approval(notice, asking) => {
            assert_eq!(
                (asking.id, asking.expires, asking.form),
                (id, Some(DEADLINE), form_of(&question.key))
            );
            (notice.clone(), asking.who.join(" "))
        }
        OutputEvent::Ended(end) => panic!("nothing ended: {end:?}"),
    });
    let (ann, both) = ("ann".to_owned(), "ann bob".to_owned());
    let to = vec!["bob".to_owned()];
    assert_eq!(
        said.collect::<Vec<_>>(),
        [
            (ApprovalNotice::Requested, ann.clone()),
            (ApprovalNotice::Reminded { number: 1 }, ann),
            (ApprovalNotice::Escalated { to }, both.clone()),
            (ApprovalNotice::Reminded { number: 2 }, both),
        ]
    );
    let ids: BTreeSet<DeliveryId> = due.iter().map(|due| due.output.id).collect();
    assert_eq!(ids.len(), due.len());
    let views = s.deliveries("all".to_owned(), ALL).await?;
    assert_eq!(views.iter().map(|view| view.id).collect::<BTreeSet<_>>(), ids);
    for due in due {
        let SinkOutput { turn, position: moment, attempt, .. } = due.output;
        s.delivered(DeliveryAttempt { sink: "all".to_owned(), turn, position: moment, attempt }).await?;
    }
    assert_eq!(s.deliveries("all".to_owned(), ALL).await?, []);
    assert_eq!(s.collect(collect(reminders, ALL)).await?.len(), 2);
    Ok(())
}

fn form_of(key: &ReplayKey) -> Hash {
    key.approved_form().expect("the key of a question names what is approved")
}

pub(super) async fn cancelled_turn_leaves_no_open_approval(s: &StoreUnderTest<'_>) -> RuleResult {
    let question = wait_for(s, ApprovalRequirement { approvals: NonZeroU32::new(2), ..ask() }).await?;
    question.notices_sent_at(10).await?;
    question.approve("ann").await?;
    s.cancel(question.lease.turn, "stop".to_owned(), NOW).await?;
    let lease = s.claim_only_turn(s.lease_request(), NOW).await?.lease;
    assert_eq!(question.notices_sent_at(50).await?, nothing());
    let facts = vec![reclaimed(question.claim), settled(question.claim)];
    s.write(&lease, facts, TurnTransition::End(answer("bye"))).await?;
    assert_eq!(s.approval_progress(lease.turn, question.key.clone()).await?, ApprovalProgress::default());
    Ok(())
}
