//! Approvals by several people, and approvals for the rest of a session.
use crate::common::*;
use crate::points;
use crate::policy::{approvals, claimed, done, paid, question, rule, ruled, say, under};
use outlast_ledger::Backend;
use outlast_ledger::memory::MemoryStore;
use outlast_ledger::rows::{QueryRows, Rows};
use outlast_ports::BoxFuture;
use outlast_ports::inbox::SessionTarget;
use outlast_ports::journal::Journal;
use outlast_ports::store::StoreStatus;
use outlast_ports::votes::VoteStore;
use outlast_runtime::policy::approvals::Approvals;
use outlast_runtime::{Input, RuntimeConfig};
use outlast_views::{ApprovalQuestion, BlockingWait, Unblocker, VoteOutcome};
use outlast_vocab::approval::Escalation;
use outlast_vocab::id::ApprovalId;
use outlast_vocab::label::TrustGuard;
use outlast_vocab::policy::{
    Approval, ApprovalRequirement, ApprovalVerdict, Policy, PolicyDecision, PolicyPoint, Rule,
};
use outlast_vocab::record::{Fact, Seq};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Error, Kind, Millis, TurnId};
use serde_json::{Value, json};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

fn two_of_three() -> PolicyDecision {
    let who = ["ann", "bob", "cleo"].map(str::to_owned).to_vec();
    PolicyDecision::Ask(ApprovalRequirement {
        who,
        approvals: NonZeroU32::new(2),
        ..ApprovalRequirement::default()
    })
}

fn anybody() -> PolicyDecision {
    PolicyDecision::Ask(ApprovalRequirement::default())
}

fn money(then: PolicyDecision) -> Vec<Rule> {
    vec![rule("money", "pay", then)]
}

fn twice() -> Vec<Line> {
    vec![call("pay", "7"), Line::Say("done"), call("pay", "8"), Line::Say("done")]
}

/// Answers every question with this verdict in each of these names, until it is dropped.
async fn agree(life: &Life, names: &[&str], verdict: &ApprovalVerdict) -> ! {
    loop {
        for question in approvals(life).pending(10, life.runtime.now()).await.unwrap() {
            for name in names {
                // Another vote may have decided it, or the store may have crashed.
                let _ = say(life, &question, name, verdict.clone()).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn call_needing_two_approvals_runs_after_second() {
    let (_, life) = under(money(two_of_three()), paid()).await;
    let turn = life.send("go").await;
    let asked = question(&life).await;
    assert!(!say(&life, &asked, "ann", ApprovalVerdict::Approve).await.unwrap());
    assert!(!say(&life, &asked, "ann", ApprovalVerdict::Approve).await.unwrap());
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(life.witness.count("pay"), 0);
    let asked = question(&life).await;
    assert_eq!(asked.votes.iter().map(|vote| vote.by.as_str()).collect::<Vec<_>>(), ["ann"]);
    assert!(say(&life, &asked, "bob", ApprovalVerdict::Approve).await.unwrap());
    assert_eq!(life.end(turn).await, done());
    assert_eq!(life.witness.count("pay"), 1);
    let word = json!({ "by": "bob", "verdict": "approve", "with": ["ann"] });
    let decided = |fact: &Fact| matches!(fact, Fact::Resolved { resolution: Resolution::Ok(said), .. } if *said == word);
    assert!(life.facts().await.iter().any(decided));
}

#[tokio::test(start_paused = true)]
async fn edited_arguments_create_new_approval_request() {
    let (_, life) = under(money(two_of_three()), paid()).await;
    let turn = life.send("go").await;
    let first = question(&life).await;
    say(&life, &first, "ann", ApprovalVerdict::Approve).await.unwrap();
    let less = ApprovalVerdict::Edit { arguments: json!({ "text": "1" }) };
    say(&life, &first, "bob", less).await.unwrap();
    let edited = question(&life).await;
    assert_ne!(edited.id, first.id);
    assert_eq!(
        (&edited.call.arguments, &edited.original),
        (&json!({ "text": "1" }), &Some(json!({ "text": "7" })))
    );
    let stale = say(&life, &first, "cleo", ApprovalVerdict::Approve).await.unwrap_err();
    assert_eq!(stale.kind(), Kind::ApprovalNotFound);
    assert!(stale.to_string().contains(&edited.id.to_string()), "{stale}");
    assert!(say(&life, &edited, "ann", ApprovalVerdict::Approve).await.unwrap());
    assert_eq!(life.end(turn).await, done());
    assert_eq!(life.last_shown().pop().unwrap(), "paid 1");
}

#[tokio::test(start_paused = true)]
async fn edited_arguments_obey_the_depth_limit() {
    let rules = ruled(money(anybody()));
    let change = |config: &mut RuntimeConfig| {
        rules(config);
        config.limits.json_depth = 2;
    };
    let life = live_with(Arc::new(MemoryStore::new()), paid(), Arc::default(), 1, change).await.unwrap();
    let turn = life.send("go").await;
    let deep = ApprovalVerdict::Edit { arguments: json!({ "text": "7", "more": [[1]] }) };
    say(&life, &question(&life).await, "ann", deep).await.unwrap();
    assert_eq!(life.end(turn).await, done());
    assert_eq!(life.witness.count("pay"), 0);
    let message = life.last_shown().pop().unwrap();
    assert!(message.contains("json_depth is limited to 2, but this needs 3"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn agent_with_unanswerable_rule_does_not_start() {
    let who = vec!["ann".to_owned()];
    let then = PolicyDecision::Ask(ApprovalRequirement {
        who,
        approvals: NonZeroU32::new(2),
        ..ApprovalRequirement::default()
    });
    let change = ruled(money(then));
    let started = live_with(Arc::new(MemoryStore::new()), paid(), Arc::default(), 1, change).await;
    let Err(refused) = started else { panic!("it starts") };
    assert_eq!(refused.kind(), Kind::ConfigInvalid);
    assert!(refused.to_string().contains("`who` must name at least 2 people, and it names 1"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn session_approval_skips_asking_and_is_recorded() {
    let (_, life) = under(money(anybody()), twice()).await;
    let first = life.send("go").await;
    let asked = question(&life).await;
    say(&life, &asked, "ann", ApprovalVerdict::ApproveForSession).await.unwrap();
    assert_eq!(life.end(first).await, done());
    let second = life.send("again").await;
    assert_eq!(life.end(second).await, done());
    assert_eq!(life.witness.count("pay"), 2);
    let grants = approvals(&life).grants(10).await.unwrap();
    let rulings: Vec<_> = claimed(&life).await.into_iter().filter_map(|call| call.ruling).collect();
    assert_eq!(rulings[0].grant, None);
    let granted = rulings[1].grant.clone().unwrap();
    assert_eq!((granted.id, granted.by), (grants[0].id, vec!["ann".to_owned()]));
    // The approval does not cover another session.
    let other = Input::text(SessionTarget::New(life.runtime.fresh_session()), "go");
    life.runtime.submit(other).await.unwrap();
    until_asked(&life).await;
}

async fn until_asked(life: &Life) -> ApprovalQuestion {
    loop {
        if let Some(asked) = approvals(life).pending(10, life.runtime.now()).await.unwrap().pop() {
            return asked;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn revoked_session_approval_is_asked_again() {
    let (_, life) = under(money(anybody()), twice()).await;
    let first = life.send("go").await;
    let asked = question(&life).await;
    say(&life, &asked, "ann", ApprovalVerdict::ApproveForSession).await.unwrap();
    assert_eq!(life.end(first).await, done());
    let grant = approvals(&life).grants(10).await.unwrap().pop().unwrap();
    approvals(&life).revoke(grant.id, life.runtime.now()).await.unwrap();
    let second = life.send("again").await;
    let asked = until_asked(&life).await;
    assert_eq!(life.witness.count("pay"), 1);
    say(&life, &asked, "ann", ApprovalVerdict::Approve).await.unwrap();
    assert_eq!(life.end(second).await, done());
}

/// Approves `stepped` for the session, then restarts with another configuration. Returns how many questions are asked
/// then.
async fn asked_after(change: impl FnOnce(&mut RuntimeConfig)) -> usize {
    let lines = || vec![call("stepped", "7"), Line::Say("done"), call("stepped", "8"), Line::Say("done")];
    let rules = || ruled(vec![rule("money", "stepped", anybody())]);
    let memory = MemoryStore::new();
    let life = live_with(Arc::new(memory.clone()), lines(), Arc::default(), 1, rules()).await.unwrap();
    let turn = life.send("go").await;
    let asked = question(&life).await;
    say(&life, &asked, "ann", ApprovalVerdict::ApproveForSession).await.unwrap();
    assert_eq!(life.end(turn).await, done());
    life.die(&memory).await;
    let life = live_with(Arc::new(memory), lines(), Arc::default(), 2, |config| {
        rules()(config);
        change(config);
    });
    let life = life.await.unwrap();
    let turn = life.send("again").await;
    let questions = async {
        loop {
            let asked = approvals(&life).pending(10, life.runtime.now()).await.unwrap().len();
            if asked > 0 {
                return asked;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        asked = questions => asked,
        end = life.end(turn) => {
            assert_eq!(end, done());
            0
        }
    }
}

#[tokio::test(start_paused = true)]
async fn changed_tool_rule_or_policy_voids_session_approval() {
    assert_eq!(asked_after(|_| {}).await, 0);
    let reworded = |config: &mut RuntimeConfig| {
        let mut tools = toolbox(Arc::default(), false).unwrap();
        tools.add(ChangedContractTool(Arc::default())).unwrap();
        config.tools = vec![Arc::new(tools)];
    };
    assert_eq!(asked_after(reworded).await, 1);
    let renamed = |config: &mut RuntimeConfig| {
        config.package.policy = Policy { rules: vec![rule("cash", "stepped", anybody())] };
    };
    assert_eq!(asked_after(renamed).await, 1);
    let more = |config: &mut RuntimeConfig| {
        config.package.policy.rules.push(rule("fine", "look", PolicyDecision::Allow));
    };
    assert_eq!(asked_after(more).await, 1);
    let each_time = |config: &mut RuntimeConfig| {
        let then =
            PolicyDecision::Ask(ApprovalRequirement { each_time: true, ..ApprovalRequirement::default() });
        config.package.policy = Policy { rules: vec![rule("money", "stepped", then)] };
    };
    assert_eq!(asked_after(each_time).await, 1);
}

#[tokio::test(start_paused = true)]
async fn session_approval_excludes_untrusted_calls() {
    let lines =
        vec![call("pay", "7"), call("look", "around"), call("pay", "8"), call("pay", "9"), Line::Say("done")];
    let change = |config: &mut RuntimeConfig| {
        config.package.guard = TrustGuard::Guarded;
        ruled(money(anybody()))(config);
    };
    let life = live_with(Arc::new(MemoryStore::new()), lines, Arc::default(), 1, change).await.unwrap();
    let turn = life.send("go").await;
    let asked = question(&life).await;
    // The result of `pay` is untrusted, so later calls have labels that this one does not have.
    assert!(asked.call.labels.is_empty());
    say(&life, &asked, "ann", ApprovalVerdict::ApproveForSession).await.unwrap();
    let labelled = until_other(&life, &asked).await;
    assert!(!labelled.call.labels.is_empty());
    assert_eq!(life.witness.count("pay"), 1);
    say(&life, &labelled, "ann", ApprovalVerdict::ApproveForSession).await.unwrap();
    assert_eq!(life.end(turn).await, done());
    assert_eq!(life.witness.count("pay"), 3);
}

async fn until_other(life: &Life, than: &ApprovalQuestion) -> ApprovalQuestion {
    loop {
        let asked = approvals(life).pending(10, life.runtime.now()).await.unwrap();
        if let Some(other) = asked.into_iter().find(|asked| asked.id != than.id) {
            return other;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A store in which session approvals are revoked just before a write.
#[derive(Clone)]
struct Revoking {
    memory: MemoryStore,
    /// Writes until the revocation. Negative afterwards.
    left: Arc<AtomicI64>,
    /// Whether the call was already claimed under the approval when it was revoked.
    was_claimed: Arc<std::sync::Mutex<Option<bool>>>,
}

impl Revoking {
    fn revoke(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) != 0 {
            return;
        }
        let memory = self.memory.clone();
        let revoked = async move {
            let grant = memory.grants(1).await?.pop().expect("it is approved for the session");
            memory.revoke_grant(grant.id, Millis(0)).await?;
            let records = memory.records(SESSION, Seq(0), 1_000).await?;
            let text = |fact: &Fact| serde_json::to_string(fact).unwrap_or_default();
            Ok::<_, Error>(records.iter().any(|record| {
                matches!(record.fact, Fact::Asked(_)) && text(&record.fact).contains("\"grant\"")
            }))
        };
        // The memory store answers immediately.
        let claimed = futures_util::FutureExt::now_or_never(revoked).expect("memory answers at once");
        *self.was_claimed.lock().unwrap() = Some(claimed.unwrap());
    }
}

impl Backend for Revoking {
    fn write<T, F>(&self, unit: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Rows) -> Result<T, Error> + Send + 'static,
    {
        self.revoke();
        self.memory.write(unit)
    }

    fn read<T, F>(&self, query: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&dyn QueryRows) -> Result<T, Error> + Send + 'static,
    {
        self.memory.read(query)
    }

    fn changes(&self) -> BoxFuture<'_, Result<u64, Error>> {
        Backend::changes(&self.memory)
    }

    fn status(&self) -> BoxFuture<'_, Result<StoreStatus, Error>> {
        Backend::status(&self.memory)
    }
}

outlast_ledger::implement_store!(Revoking);

#[tokio::test(start_paused = true)]
async fn approval_revoked_before_claim_does_not_apply() {
    let mut asked_again = Vec::new();
    for write in 0.. {
        let store = Revoking {
            memory: MemoryStore::new(),
            left: Arc::new(AtomicI64::new(i64::MAX)),
            was_claimed: Arc::default(),
        };
        let change = ruled(money(anybody()));
        let life = live_with(Arc::new(store.clone()), twice(), Arc::default(), 1, change).await.unwrap();
        let first = life.send("go").await;
        let asked = question(&life).await;
        say(&life, &asked, "ann", ApprovalVerdict::ApproveForSession).await.unwrap();
        assert_eq!(life.end(first).await, done());
        store.left.store(write, Ordering::SeqCst);
        let second = life.send("again").await;
        let again = tokio::select! {
            _ = until_asked(&life) => true,
            end = life.end(second) => {
                assert_eq!(end, done());
                false
            }
        };
        let claimed = *store.was_claimed.lock().unwrap();
        let Some(claimed) = claimed else { break };
        assert_eq!(again, !claimed, "revoked before write {write}");
        asked_again.push(again);
        life.runtime.shut_down(Duration::ZERO).await;
    }
    assert!(asked_again.contains(&true) && asked_again.contains(&false), "{asked_again:?}");
}

/// Runs two turns whose calls need approval, with a crash at every write. Each call runs at most once, and only with
/// the approvals that it needs.
async fn survives(then: fn() -> PolicyDecision, names: &[&str], verdict: ApprovalVerdict) {
    let keyed = |text: &str| keyed_input(text, text);
    let lines = || vec![call("book", "7"), Line::Say("done"), call("book", "8"), Line::Say("done")];
    let rules = || ruled(vec![rule("money", "book", then())]);
    let mut deaths = 0;
    for death in (0..).flat_map(|write| [CrashPoint::Before(write), CrashPoint::AfterWrite(write)]) {
        let memory = MemoryStore::new();
        let crashing_store = CrashingStore::new(memory.clone(), death);
        let pulse = crashing_store.pulse();
        let witness: Arc<Witness> = Arc::default();
        let first = live_with(Arc::new(crashing_store), lines(), witness.clone(), 1, rules()).await.unwrap();
        let all = async {
            for text in ["one", "two"] {
                let turn = first.runtime.submit(keyed(text)).await.unwrap().turn;
                assert_eq!(first.end(turn).await, done());
            }
        };
        let finished = tokio::select! {
            () = all => true,
            () = pulse.stopped() => false,
            never = agree(&first, names, &verdict) => never,
        };
        if finished {
            break;
        }
        deaths += 1;
        first.die(&memory).await;
        let second = live_with(Arc::new(memory.clone()), lines(), witness.clone(), 2, rules()).await.unwrap();
        let all = async {
            for text in ["one", "two"] {
                let turn = second.runtime.submit(keyed(text)).await.unwrap().turn;
                assert_eq!(second.end(turn).await, done(), "{death:?}");
            }
        };
        tokio::select! {
            () = all => {}
            never = agree(&second, names, &verdict) => never,
        }
        assert!(witness.count("book") <= 2, "{death:?}: booked {} times", witness.count("book"));
        approved_as_often_as_it_takes(&second, names.len(), &death).await;
    }
    assert!(deaths > 12, "died {deaths} times");
}

async fn approved_as_often_as_it_takes(life: &Life, names: usize, death: &CrashPoint) {
    let resolved = life.facts().await.into_iter().filter_map(|fact| match fact {
        Fact::Resolved { resolution: Resolution::Ok(word), .. } => {
            serde_json::from_value::<Approval>(word).ok()
        }
        _ => None,
    });
    for approval in resolved {
        assert_eq!(approval.with.len() + 1, names, "{death:?}: {approval:?}");
    }
    let grants = life.runtime.store().grants(10).await.unwrap();
    assert!(grants.len() <= 1, "{death:?}: {grants:?}");
}

#[tokio::test(start_paused = true)]
async fn votes_survive_crash_at_every_write() {
    survives(two_of_three, &["bob", "cleo"], ApprovalVerdict::Approve).await;
}

#[tokio::test(start_paused = true)]
async fn session_approval_survives_crash_at_every_write() {
    survives(anybody, &["ann"], ApprovalVerdict::ApproveForSession).await;
}

#[tokio::test(start_paused = true)]
async fn voter_learns_how_many_approvals_remain() {
    let (_, life) = under(money(two_of_three()), paid()).await;
    life.send("go").await;
    let asked = question(&life).await;
    let voted = life.runtime.approve(asked.id, Approval::new("ann", ApprovalVerdict::Approve)).await.unwrap();
    assert_eq!(voted, VoteOutcome::MoreNeeded { votes: 1, of: 2 });
}

/// Reminds ann every ten minutes. After 25 minutes, bob may approve too.
fn reminding() -> PolicyDecision {
    let escalate = Escalation { after: Duration::from_mins(25), to: vec!["bob".to_owned()] };
    let (who, remind) = (vec!["ann".to_owned()], Some(Duration::from_mins(10)));
    PolicyDecision::Ask(ApprovalRequirement {
        who,
        remind,
        escalate: Some(Box::new(escalate)),
        ..ApprovalRequirement::default()
    })
}

async fn notices(life: &Life) -> Vec<String> {
    let said = life.facts().await.into_iter().filter_map(|fact| match fact {
        Fact::Reminded { number, .. } => Some(format!("reminder {number}")),
        Fact::Escalated { to, .. } => Some(format!("escalated to {}", to.join(" "))),
        _ => None,
    });
    said.collect()
}

#[tokio::test(start_paused = true)]
async fn parked_approval_sends_reminders_and_escalates() {
    let (_, life) = under(money(reminding()), paid()).await;
    let turn = life.send("go").await;
    let asked = question(&life).await;
    let early = say(&life, &asked, "bob", ApprovalVerdict::Approve).await.unwrap_err();
    assert_eq!(early.kind(), Kind::ApprovalForbidden);
    life.until("approval.escalated").await;
    tokio::time::sleep(Duration::from_mins(6)).await;
    assert_eq!(notices(&life).await, ["reminder 1", "reminder 2", "escalated to bob", "reminder 3"]);
    let asked = question(&life).await;
    assert_eq!(asked.approvers(), ["ann", "bob"]);
    assert!(say(&life, &asked, "bob", ApprovalVerdict::Approve).await.unwrap());
    assert_eq!(life.end(turn).await, done());
    tokio::time::sleep(Duration::from_hours(2)).await;
    assert_eq!(notices(&life).await.len(), 4);
    assert_eq!(life.script.calls.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn crash_neither_repeats_nor_loses_reminders() {
    let lines = || vec![call("book", "7"), Line::Say("done")];
    let rules = || ruled(vec![rule("money", "book", reminding())]);
    let mut deaths = 0;
    for death in (0..).flat_map(|write| [CrashPoint::Before(write), CrashPoint::AfterWrite(write)]) {
        let memory = MemoryStore::new();
        let crashing_store = CrashingStore::new(memory.clone(), death);
        let pulse = crashing_store.pulse();
        let witness: Arc<Witness> = Arc::default();
        let clock = PausedClock::new();
        let on = |config: &mut RuntimeConfig| {
            config.clock = clock.clone();
            rules()(config);
        };
        let first = live_with(Arc::new(crashing_store), lines(), witness.clone(), 1, on).await.unwrap();
        let all = async {
            let turn = first.runtime.submit(keyed_input("k", "go")).await.unwrap().turn;
            until_bob_approves(&first, turn).await;
        };
        let finished = tokio::select! {
            () = all => true,
            () = pulse.stopped() => false,
        };
        if finished {
            break;
        }
        deaths += 1;
        first.die(&memory).await;
        let second = live_with(Arc::new(memory), lines(), witness.clone(), 2, on).await.unwrap();
        let turn = second.runtime.submit(keyed_input("k", "go")).await.unwrap().turn;
        until_bob_approves(&second, turn).await;
        let given = ["reminder 1", "reminder 2", "escalated to bob", "reminder 3"];
        assert_eq!(notices(&second).await, given, "{death:?}");
        assert!(witness.count("book") <= 1, "{death:?}");
    }
    assert!(deaths > 10, "died {deaths} times");
}

/// Drives a turn until bob approves its call, after the third reminder.
async fn until_bob_approves(life: &Life, turn: TurnId) {
    let agreed = async {
        loop {
            for asked in approvals(life).pending(10, life.runtime.now()).await.unwrap() {
                if asked.given.reminded == 3 {
                    // The store may have crashed.
                    let _ = say(life, &asked, "bob", ApprovalVerdict::Approve).await;
                }
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    };
    tokio::select! {
        end = life.end(turn) => assert_eq!(end, done()),
        never = agreed => never,
    }
}

/// A store that counts reads.
#[derive(Clone)]
struct Counting {
    memory: MemoryStore,
    reads: Arc<AtomicI64>,
}

impl Backend for Counting {
    fn write<T, F>(&self, unit: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Rows) -> Result<T, Error> + Send + 'static,
    {
        self.memory.write(unit)
    }

    fn read<T, F>(&self, query: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&dyn QueryRows) -> Result<T, Error> + Send + 'static,
    {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.memory.read(query)
    }

    fn changes(&self) -> BoxFuture<'_, Result<u64, Error>> {
        Backend::changes(&self.memory)
    }

    fn status(&self) -> BoxFuture<'_, Result<StoreStatus, Error>> {
        Backend::status(&self.memory)
    }
}

outlast_ledger::implement_store!(Counting);

#[tokio::test(start_paused = true)]
async fn finding_approval_reads_no_other_request() {
    let (memory, life) = under(money(anybody()), paid()).await;
    let mut reads = Vec::new();
    for number in 1..=5 {
        let other = Input::text(SessionTarget::New(life.runtime.fresh_session()), "go");
        life.runtime.submit(other).await.unwrap();
        let last = loop {
            let asked = approvals(&life).pending(10, life.runtime.now()).await.unwrap();
            if asked.len() == number {
                break asked.last().unwrap().id;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let counting = Counting { memory: memory.clone(), reads: Arc::default() };
        let inbox = Approvals::new(&counting);
        assert_eq!(inbox.find(last).await.unwrap().id, last);
        reads.push(counting.reads.load(Ordering::SeqCst));
    }
    assert_eq!(reads, vec![reads[0]; 5]);
}

/// Returns what unblocks a session: the question, who may answer it, and the call.
async fn moved_by(life: &Life, turn: TurnId) -> (ApprovalId, Vec<String>, Option<(String, Value)>) {
    let session = life.runtime.store().turn(turn).await.unwrap().session;
    let BlockingWait { call, unblocked_by: mover, .. } =
        life.runtime.why(session).await.unwrap().waits.remove(0);
    let Unblocker::Approval { id, who } = mover else { panic!("it waits for {mover:?}") };
    (id, who, call)
}

#[tokio::test(start_paused = true)]
async fn why_names_approvers_of_unstarted_turn() {
    let asks = PolicyDecision::Ask(ApprovalRequirement {
        who: vec!["ann".to_owned()],
        ..ApprovalRequirement::default()
    });
    let life =
        points::under(vec![points::rule(PolicyPoint::Turn, asks)], points::lines(PolicyPoint::Turn)).await;
    let turn = life.send("go").await;
    let asked = question(&life).await;
    let what = Some(("turn".to_owned(), asked.call.arguments.clone()));
    assert_eq!(moved_by(&life, turn).await, (asked.id, vec!["ann".to_owned()], what));
}

#[tokio::test(start_paused = true)]
async fn why_names_escalated_approvers() {
    let (_, life) = under(money(reminding()), paid()).await;
    let turn = life.send("go").await;
    question(&life).await;
    assert_eq!(moved_by(&life, turn).await.1, ["ann"]);
    life.until("approval.escalated").await;
    assert_eq!(moved_by(&life, turn).await.1, ["ann", "bob"]);
}

#[tokio::test(start_paused = true)]
async fn why_names_edited_approval_request() {
    let (_, life) = under(money(two_of_three()), paid()).await;
    let turn = life.send("go").await;
    let first = question(&life).await;
    say(&life, &first, "bob", ApprovalVerdict::Edit { arguments: json!({ "text": "1" }) }).await.unwrap();
    let (id, _, call) = moved_by(&life, turn).await;
    assert_eq!(call, Some(("pay".to_owned(), json!({ "text": "1" }))));
    life.runtime.approve(id, Approval::new("ann", ApprovalVerdict::Approve)).await.unwrap();
    assert_eq!(life.end(turn).await, done());
}
