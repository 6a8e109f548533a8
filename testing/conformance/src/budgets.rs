//! Budgets: a turn never waits for an amount that is available, and is never woken for one that is not.
use super::RuleResult;
use super::store_under_test::{NOW, StoreUnderTest, commit};
use outlast_ports::budget::{
    AwaitedBudget, BudgetReservation, BudgetSettlement, BudgetShortfall, BudgetUpdate, BudgetWait,
    OpenReservation, PriceKnowledge, ReservationResult,
};
use outlast_ports::turns::{Commit, Lease, TurnAfterCommit, TurnTransition};
use outlast_views::{BudgetSetBy, EffectiveBudget, SessionState};
use outlast_vocab::budget::{
    Budget, BudgetAccount, BudgetDeficit, Budgets, Measure, Percent, Period, UsageAmount,
};
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Millis, ReplayKey};
use std::time::Duration;

/// A budget of a hundred calls that pauses turns when it is used up.
fn hundred_calls() -> Budget {
    Budget { calls: Some(100), pause_at: Percent::try_from(100).ok(), ..Budget::default() }
}

fn budget_update(agent: &str) -> BudgetUpdate {
    BudgetUpdate {
        agent: agent.to_owned(),
        budgets: Budgets { agent: Some(hundred_calls()), ..Budgets::default() },
        settled: Vec::new(),
        reservation: None,
        waits: Vec::new(),
        run_time: Duration::ZERO,
        conversation_cost: None,
    }
}

fn calls(calls: u64) -> UsageAmount {
    UsageAmount { calls, ..UsageAmount::ZERO }
}

fn key() -> ReplayKey {
    ReplayKey::turn(0).model(0)
}

fn hold(most: u64) -> BudgetReservation {
    BudgetReservation::new(key(), calls(most), PriceKnowledge::Known)
}

async fn reserve(
    s: &StoreUnderTest<'_>,
    lease: &Lease,
    agent: &str,
    most: u64,
) -> Result<Option<ReservationResult>, Error> {
    let metering = Some(BudgetUpdate { reservation: Some(hold(most)), ..budget_update(agent) });
    Ok(s.commit(Commit { budget_update: metering, ..commit(lease, Vec::new(), TurnTransition::Continue) })
        .await?
        .hold_result)
}

async fn settle(s: &StoreUnderTest<'_>, lease: &Lease, agent: &str, used: u64) -> RuleResult {
    let settled = vec![BudgetSettlement::new(key(), calls(used))];
    let metering = Some(BudgetUpdate { settled, ..budget_update(agent) });
    s.commit(Commit { budget_update: metering, ..commit(lease, Vec::new(), TurnTransition::Continue) })
        .await
        .map(drop)
}

/// Parks the turn until this amount is available.
async fn park(
    s: &StoreUnderTest<'_>,
    lease: &Lease,
    agent: &str,
    most: u64,
) -> Result<TurnAfterCommit, Error> {
    let wait = Wait { key: key().budget(0), kind: WaitKind::Budget, deadline: None };
    let budget_waits = vec![BudgetWait { wait: wait.key.clone(), reservation: hold(most) }];
    let metering = Some(BudgetUpdate { waits: budget_waits, ..budget_update(agent) });
    let then = TurnTransition::Park(vec![wait]);
    Ok(s.commit(Commit { budget_update: metering, ..commit(lease, Vec::new(), then) }).await?.after)
}

async fn state(s: &StoreUnderTest<'_>, lease: &Lease) -> Result<SessionState, Error> {
    Ok(s.session(lease.session).await?.state)
}

pub(super) async fn raised_budget_prevents_parking(s: &StoreUnderTest<'_>) -> RuleResult {
    let (runs, lease) = (s.begin("a").await?.lease, s.begin("b").await?.lease);
    reserve(s, &runs, "raised", 60).await?;
    let lacks = BudgetDeficit::Insufficient { measure: Measure::Calls, want: 50, used: 60, most: 100 };
    let account = BudgetAccount::Agent("raised".to_owned());
    let short =
        BudgetShortfall { account: account.clone(), reason: lacks, pauses_turns: true, renewed_at: None };
    assert_eq!(reserve(s, &lease, "raised", 50).await?, Some(ReservationResult::Exhausted(short)));
    let more = Budget { calls: Some(110), ..Budget::default() };
    s.set_budget(account, Some(more), NOW).await?;
    assert!(matches!(park(s, &lease, "raised", 50).await?, TurnAfterCommit::Ready));
    assert_eq!(state(s, &lease).await?, SessionState::Leased);
    Ok(())
}

pub(super) async fn open_reservations_are_listed_until_settled(s: &StoreUnderTest<'_>) -> RuleResult {
    let (runs, waits) = (s.begin("a").await?.lease, s.begin("b").await?.lease);
    reserve(s, &runs, "open", 90).await?;
    // A turn that waits for its budget has reserved nothing.
    park(s, &waits, "open", 20).await?;
    let open = OpenReservation { key: key(), amount_max: calls(90) };
    assert_eq!(
        (s.open_reservations(runs.turn).await?, s.open_reservations(waits.turn).await?),
        (vec![open], vec![])
    );
    settle(s, &runs, "open", 50).await?;
    assert_eq!(s.open_reservations(runs.turn).await?, vec![]);
    Ok(())
}

pub(super) async fn released_budget_wakes_turns_that_now_fit(s: &StoreUnderTest<'_>) -> RuleResult {
    let (runs, little, much) =
        (s.begin("a").await?.lease, s.begin("b").await?.lease, s.begin("c").await?.lease);
    reserve(s, &runs, "freed", 90).await?;
    assert!(matches!(park(s, &little, "freed", 20).await?, TurnAfterCommit::Parked));
    assert!(matches!(park(s, &much, "freed", 60).await?, TurnAfterCommit::Parked));
    let awaited = AwaitedBudget { wait: key().budget(0), account: BudgetAccount::Agent("freed".to_owned()) };
    assert_eq!(
        (s.awaited_budgets(much.turn).await?, s.awaited_budgets(runs.turn).await?),
        (vec![awaited], vec![])
    );
    settle(s, &runs, "freed", 50).await?;
    assert_eq!(state(s, &little).await?, SessionState::Ready);
    assert_eq!(state(s, &much).await?, SessionState::Parked);
    // Once the turn continues, nothing is left of its wait.
    let taken = s.claim_only_turn(s.rival(), NOW).await?.lease;
    assert_eq!(taken.turn, little.turn);
    reserve(s, &taken, "freed", 20).await?;
    settle(s, &taken, "freed", 5).await?;
    assert_eq!(state(s, &much).await?, SessionState::Parked);
    s.end(&taken).await?;
    let spent: Vec<UsageAmount> = s
        .budgets(100)
        .await?
        .into_iter()
        .filter(|row| row.name == "agent:freed")
        .map(|row| row.spent)
        .collect();
    assert_eq!(spent, [calls(55)]);
    Ok(())
}

pub(super) async fn woken_turn_stays_ready_after_another_budget_change(s: &StoreUnderTest<'_>) -> RuleResult {
    let (runs, lease) = (s.begin("a").await?.lease, s.begin("b").await?.lease);
    reserve(s, &runs, "twice", 60).await?;
    assert!(matches!(park(s, &lease, "twice", 50).await?, TurnAfterCommit::Parked));
    for more in [110, 111] {
        let budget = Budget { calls: Some(more), ..Budget::default() };
        s.set_budget(BudgetAccount::Agent("twice".to_owned()), Some(budget), NOW).await?;
    }
    assert_eq!(state(s, &lease).await?, SessionState::Ready);
    Ok(())
}

pub(super) async fn agent_budget_raise_wakes_waiting_turns(s: &StoreUnderTest<'_>) -> RuleResult {
    let (runs, lease) = (s.begin("a").await?.lease, s.begin("b").await?.lease);
    reserve(s, &runs, "edited", 60).await?;
    assert!(matches!(park(s, &lease, "edited", 50).await?, TurnAfterCommit::Parked));
    let other = s.begin("c").await?.lease;
    reserve(s, &other, "edited", 1).await?;
    assert_eq!(state(s, &lease).await?, SessionState::Parked);
    settle(s, &other, "edited", 1).await?;
    let agent = Some(Budget { calls: Some(200), ..hundred_calls() });
    let budgets = Budgets { agent, ..Budgets::default() };
    let metering = Some(BudgetUpdate { budgets, reservation: Some(hold(1)), ..budget_update("edited") });
    s.commit(Commit { budget_update: metering, ..commit(&other, Vec::new(), TurnTransition::Continue) })
        .await?;
    assert_eq!(state(s, &lease).await?, SessionState::Ready);
    Ok(())
}

pub(super) async fn daily_budget_reports_its_renewal_time(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let daily = Budget { per: Some(Period::Day), ..hundred_calls() };
    s.set_budget(BudgetAccount::Agent("daily".to_owned()), Some(daily), NOW).await?;
    let Some(ReservationResult::Exhausted(short)) = reserve(s, &lease, "daily", 101).await? else {
        panic!("it does not fit")
    };
    assert_eq!(short.renewed_at, Some(Millis(86_400_000)));
    Ok(())
}

pub(super) async fn unknown_price_is_refused_under_a_money_limit(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let account = BudgetAccount::Agent("unpriced".to_owned());
    let money = Budget { money: Some("5".parse()?), ..Budget::default() };
    s.set_budget(account.clone(), Some(money), NOW).await?;
    let wanted = BudgetReservation::new(key(), calls(1), PriceKnowledge::Unknown);
    let metering = Some(BudgetUpdate { reservation: Some(wanted), ..budget_update("unpriced") });
    let held = s
        .commit(Commit { budget_update: metering, ..commit(&lease, Vec::new(), TurnTransition::Continue) })
        .await?
        .hold_result;
    let short =
        BudgetShortfall { account, reason: BudgetDeficit::Price, pauses_turns: false, renewed_at: None };
    assert_eq!(held, Some(ReservationResult::Exhausted(short)));
    Ok(())
}

/// Returns the listed limits of an agent, with their names.
async fn limits(
    s: &StoreUnderTest<'_>,
    agent: &str,
) -> Result<Vec<(String, Option<EffectiveBudget>)>, Error> {
    let own = format!("agent:{agent}");
    let rows = s.budgets(100).await?.into_iter().filter(|row| row.name.starts_with(&own));
    Ok(rows.map(|row| (row.name, row.effective)).collect())
}

pub(super) async fn effective_limit_is_listed_with_its_source(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    reserve(s, &lease, "bound", 5).await?;
    let own = || "agent:bound".to_owned();
    let agents = EffectiveBudget { budget: hundred_calls(), by: BudgetSetBy::Agent };
    assert_eq!(limits(s, "bound").await?, [(own(), Some(agents.clone()))]);
    let ten = Budget { calls: Some(10), ..Budget::default() };
    let set = |budget: &Budget| Some(EffectiveBudget { budget: *budget, by: BudgetSetBy::Operator });
    s.set_budget(BudgetAccount::Agent("bound".to_owned()), Some(ten), NOW).await?;
    assert_eq!(limits(s, "bound").await?, [(own(), set(&ten))]);
    let daily = Budget { per: Some(Period::Day), ..ten };
    s.set_budget(BudgetAccount::Agent("bound".to_owned()), Some(daily), NOW).await?;
    settle(s, &lease, "bound", 1).await?;
    reserve(s, &lease, "bound", 5).await?;
    let day = "agent:bound@1970-01-01".to_owned();
    assert_eq!(limits(s, "bound").await?, [(own(), set(&daily)), (day.clone(), set(&daily))]);
    s.set_budget(BudgetAccount::Agent("bound".to_owned()), None, NOW).await?;
    // The limit of the agent applies again once the operator's limit is removed.
    assert_eq!(limits(s, "bound").await?, [(own(), Some(agents)), (day, None)]);
    Ok(())
}
