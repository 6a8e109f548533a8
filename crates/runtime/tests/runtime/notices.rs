//! Sinks are notified about pending approvals, exactly once per notice, even after crashes.
use crate::common::*;
use crate::policy::{approvals, rule, ruled, say};
use outlast_ledger::memory::MemoryStore;
use outlast_ports::ResultFuture;
use outlast_ports::sink::{ApprovalNotice, OutputEvent, Sink, SinkOutput, SubscribedSink};
use outlast_runtime::RuntimeConfig;
use outlast_views::SinkTopic;
use outlast_vocab::TurnId;
use outlast_vocab::approval::Escalation;
use outlast_vocab::id::DeliveryId;
use outlast_vocab::policy::{ApprovalRequirement, ApprovalVerdict, PolicyDecision};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The notices that the receiver got, by delivery id.
#[derive(Default)]
struct ReceivedNotices(Mutex<BTreeMap<DeliveryId, Vec<OutputEvent>>>);

impl ReceivedNotices {
    /// Returns the notices as text, with duplicate deliveries removed.
    fn words(&self) -> Vec<String> {
        let mut words: Vec<String> =
            self.0.lock().unwrap().values().map(|notices| word(&notices[0])).collect();
        words.sort();
        words
    }
}

fn word(about: &OutputEvent) -> String {
    match about {
        OutputEvent::Ended(end) => end.name().to_owned(),
        OutputEvent::Approval(ApprovalNotice::Requested, asking) => format!("asked {}", asking.who.join(" ")),
        OutputEvent::Approval(ApprovalNotice::Reminded { number }, _) => format!("reminder {number}"),
        OutputEvent::Approval(ApprovalNotice::Escalated { to }, _) => {
            format!("escalated to {}", to.join(" "))
        }
    }
}

struct NoticeSink(Arc<ReceivedNotices>);

impl Sink for NoticeSink {
    fn place(&self) -> String {
        "the test".to_owned()
    }

    fn deliver<'a>(&'a self, output: &'a SinkOutput) -> ResultFuture<'a, ()> {
        Box::pin(async move {
            self.0.0.lock().unwrap().entry(output.id).or_default().push(output.event.clone());
            Ok(())
        })
    }
}

/// Reminds ann after 20 seconds. After ten seconds, bob may approve too.
fn reminding() -> PolicyDecision {
    let escalate = Escalation { after: Duration::from_secs(10), to: vec!["bob".to_owned()] };
    let (who, remind) = (vec!["ann".to_owned()], Some(Duration::from_secs(20)));
    PolicyDecision::Ask(ApprovalRequirement {
        who,
        remind,
        escalate: Some(Box::new(escalate)),
        ..ApprovalRequirement::default()
    })
}

/// Drives a turn until bob approves its call, after the first reminder.
async fn until_bob_approves(life: &Life, turn: TurnId) {
    let agreed = async {
        loop {
            for asked in approvals(life).pending(10, life.runtime.now()).await.unwrap() {
                if asked.given.reminded == 1 {
                    // The store may have crashed.
                    let _ = say(life, &asked, "bob", ApprovalVerdict::Approve).await;
                }
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    tokio::select! {
        _ = life.end(turn) => {}
        never = agreed => never,
    }
}

async fn delivered(life: &Life) {
    loop {
        life.runtime.idle().await.unwrap();
        let sink = life.runtime.store().sinks().await.unwrap().remove(0);
        if (sink.due, sink.behind) == (0, 0) {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn approval_notices_keep_one_id_across_crashes() {
    let lines = || vec![call("book", "7"), Line::Say("done")];
    let mut deaths = 0;
    for death in (0..).flat_map(|write| [CrashPoint::Before(write), CrashPoint::AfterWrite(write)]) {
        let memory = MemoryStore::new();
        let crashing_store = CrashingStore::new(memory.clone(), death);
        let pulse = crashing_store.pulse();
        let (witness, clock, notices) =
            (Arc::default(), PausedClock::new(), Arc::<ReceivedNotices>::default());
        let on = |config: &mut RuntimeConfig| {
            config.clock = clock.clone();
            ruled(vec![rule("money", "book", reminding())])(config);
            let outlet = SubscribedSink::new("a", NoticeSink(notices.clone())).unwrap();
            config.sinks =
                vec![outlet.with_topics(SinkTopic::ALL.map(SinkTopic::name)).unwrap().from_the_beginning()];
        };
        let act = async |life: &Life| {
            let turn = life.runtime.submit(keyed_input("k", "go")).await.unwrap().turn;
            until_bob_approves(life, turn).await;
            delivered(life).await;
        };
        let first = async {
            let life =
                live_with(Arc::new(crashing_store), lines(), Arc::clone(&witness), 1, on).await.unwrap();
            act(&life).await;
        };
        let finished = tokio::select! {
            () = first => true,
            () = pulse.stopped() => false,
        };
        if !finished {
            deaths += 1;
            memory.bury(outlast_vocab::WorkerId::from_u128(1));
            let second = live_with(Arc::new(memory), lines(), witness, 2, on).await.unwrap();
            act(&second).await;
        }
        let words = ["answered", "asked ann", "escalated to bob", "reminder 1"];
        assert_eq!(notices.words(), words, "{death:?}");
        for said in notices.0.lock().unwrap().values() {
            assert!(said.iter().all(|about| *about == said[0]), "one id says one thing: {said:?}");
            assert!(said.len() == 1 || !finished, "only a death repeats an id: {said:?}");
        }
        if finished {
            break;
        }
    }
    assert!(deaths > 20, "died {deaths} times");
}
