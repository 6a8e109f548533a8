//! Budgets: a turn never waits for an amount that is available, and is never woken for one that is not.
use super::Rule;
use super::scene::{NOW, Scene, commit};
use outlast_ports::budget::{Awaited, Held, Hold, Limit, LimitBy, Metering, Price, Settlement, Short, Wish};
use outlast_ports::store::{After, Commit, Lease, SessionState, Then};
use outlast_vocab::budget::{Amount, Budget, Budgets, Lacks, Measure, Percent, Period, Purse};
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Millis, ReplayKey};
use std::sync::Arc;
use std::time::Duration;

/// A budget of a hundred calls that pauses turns when it is used up.
fn hundred() -> Budget {
    Budget { calls: Some(100), pause_at: Percent::try_from(100).ok(), ..Budget::default() }
}

fn books(agent: &str) -> Metering {
    Metering {
        agent: agent.to_owned(),
        budgets: Arc::new(Budgets { agent: Some(hundred()), ..Budgets::default() }),
        settled: Vec::new(),
        hold: None,
        wishes: Vec::new(),
        driven: Duration::ZERO,
        standing: None,
    }
}

fn calls(calls: u64) -> Amount {
    Amount { calls, ..Amount::ZERO }
}

fn key() -> ReplayKey {
    ReplayKey::turn(0).model(0)
}

fn hold(most: u64) -> Hold {
    Hold::new(key(), calls(most), Price::Known)
}

async fn reserve(s: &Scene<'_>, lease: &Lease, agent: &str, most: u64) -> Result<Option<Held>, Error> {
    let metering = Some(Metering { hold: Some(hold(most)), ..books(agent) });
    Ok(s.commit(Commit { metering, ..commit(lease, Vec::new(), Then::GoOn) }).await?.held)
}

async fn settle(s: &Scene<'_>, lease: &Lease, agent: &str, used: u64) -> Rule {
    let settled = vec![Settlement::new(key(), Some(calls(used)))];
    let metering = Some(Metering { settled, ..books(agent) });
    s.commit(Commit { metering, ..commit(lease, Vec::new(), Then::GoOn) }).await.map(drop)
}

/// Parks the turn until this amount is available.
async fn park(s: &Scene<'_>, lease: &Lease, agent: &str, most: u64) -> Result<After, Error> {
    let wait = Wait { key: key().budget(0), kind: WaitKind::Budget, deadline: None };
    let wishes = vec![Wish { wait: wait.key.clone(), hold: hold(most) }];
    let metering = Some(Metering { wishes, ..books(agent) });
    let then = Then::Park(vec![wait]);
    Ok(s.commit(Commit { metering, ..commit(lease, Vec::new(), then) }).await?.after)
}

async fn state(s: &Scene<'_>, lease: &Lease) -> Result<SessionState, Error> {
    Ok(s.session(lease.session).await?.state)
}

pub(super) async fn a_budget_that_is_raised_before_a_turn_holds_still_for_it_keeps_it_awake(
    s: &Scene<'_>,
) -> Rule {
    let (runs, lease) = (s.begin("a").await?.lease, s.begin("b").await?.lease);
    reserve(s, &runs, "raised", 60).await?;
    let lacks = Lacks::Room { measure: Measure::Calls, want: 50, used: 60, most: 100 };
    let purse = Purse::Agent("raised".to_owned());
    let short = Short { purse: purse.clone(), lacks, pauses: true, until: None };
    assert_eq!(reserve(s, &lease, "raised", 50).await?, Some(Held::No(short)));
    let more = Budget { calls: Some(110), ..Budget::default() };
    s.set_budget(purse, Some(more), NOW).await?;
    assert!(matches!(park(s, &lease, "raised", 50).await?, After::Ready));
    assert_eq!(state(s, &lease).await?, SessionState::Leased);
    Ok(())
}

pub(super) async fn what_is_given_back_wakes_whom_it_is_enough_for(s: &Scene<'_>) -> Rule {
    let (runs, little, much) =
        (s.begin("a").await?.lease, s.begin("b").await?.lease, s.begin("c").await?.lease);
    reserve(s, &runs, "freed", 90).await?;
    assert!(matches!(park(s, &little, "freed", 20).await?, After::Parked));
    assert!(matches!(park(s, &much, "freed", 60).await?, After::Parked));
    let awaited = Awaited { wait: key().budget(0), purse: Purse::Agent("freed".to_owned()) };
    assert_eq!((s.awaited(much.turn).await?, s.awaited(runs.turn).await?), (vec![awaited], vec![]));
    settle(s, &runs, "freed", 50).await?;
    assert_eq!(state(s, &little).await?, SessionState::Ready);
    assert_eq!(state(s, &much).await?, SessionState::Parked);
    // Once the turn continues, nothing is left of its wait.
    let taken = s.take(s.rival(), NOW).await?.lease;
    assert_eq!(taken.turn, little.turn);
    reserve(s, &taken, "freed", 20).await?;
    settle(s, &taken, "freed", 5).await?;
    assert_eq!(state(s, &much).await?, SessionState::Parked);
    s.end(&taken).await?;
    let spent: Vec<Amount> = s
        .budgets(100)
        .await?
        .into_iter()
        .filter(|row| row.name == "agent:freed")
        .map(|row| row.spent)
        .collect();
    assert_eq!(spent, [calls(55)]);
    Ok(())
}

pub(super) async fn a_budget_may_be_set_again_before_who_waits_for_it_goes_on(s: &Scene<'_>) -> Rule {
    let (runs, lease) = (s.begin("a").await?.lease, s.begin("b").await?.lease);
    reserve(s, &runs, "twice", 60).await?;
    assert!(matches!(park(s, &lease, "twice", 50).await?, After::Parked));
    for more in [110, 111] {
        let budget = Budget { calls: Some(more), ..Budget::default() };
        s.set_budget(Purse::Agent("twice".to_owned()), Some(budget), NOW).await?;
    }
    assert_eq!(state(s, &lease).await?, SessionState::Ready);
    Ok(())
}

pub(super) async fn a_budget_that_its_agent_raises_wakes_who_waits_for_it(s: &Scene<'_>) -> Rule {
    let (runs, lease) = (s.begin("a").await?.lease, s.begin("b").await?.lease);
    reserve(s, &runs, "edited", 60).await?;
    assert!(matches!(park(s, &lease, "edited", 50).await?, After::Parked));
    let other = s.begin("c").await?.lease;
    reserve(s, &other, "edited", 1).await?;
    assert_eq!(state(s, &lease).await?, SessionState::Parked);
    settle(s, &other, "edited", 1).await?;
    let agent = Some(Budget { calls: Some(200), ..hundred() });
    let budgets = Arc::new(Budgets { agent, ..Budgets::default() });
    let metering = Some(Metering { budgets, hold: Some(hold(1)), ..books("edited") });
    s.commit(Commit { metering, ..commit(&other, Vec::new(), Then::GoOn) }).await?;
    assert_eq!(state(s, &lease).await?, SessionState::Ready);
    Ok(())
}

pub(super) async fn a_budget_of_a_day_says_when_it_begins_anew(s: &Scene<'_>) -> Rule {
    let lease = s.begin("hi").await?.lease;
    let daily = Budget { per: Some(Period::Day), ..hundred() };
    s.set_budget(Purse::Agent("daily".to_owned()), Some(daily), NOW).await?;
    let Some(Held::No(short)) = reserve(s, &lease, "daily", 101).await? else { panic!("it does not fit") };
    assert_eq!(short.until, Some(Millis(86_400_000)));
    Ok(())
}

pub(super) async fn what_nobody_knows_the_price_of_does_not_fit_where_money_is_bounded(
    s: &Scene<'_>,
) -> Rule {
    let lease = s.begin("hi").await?.lease;
    let purse = Purse::Agent("unpriced".to_owned());
    let money = Budget { money: Some("5".parse()?), ..Budget::default() };
    s.set_budget(purse.clone(), Some(money), NOW).await?;
    let wanted = Hold::new(key(), calls(1), Price::Unknown);
    let metering = Some(Metering { hold: Some(wanted), ..books("unpriced") });
    let held = s.commit(Commit { metering, ..commit(&lease, Vec::new(), Then::GoOn) }).await?.held;
    let short = Short { purse, lacks: Lacks::Price, pauses: false, until: None };
    assert_eq!(held, Some(Held::No(short)));
    Ok(())
}

/// Returns the listed limits of an agent, with their names.
async fn limits(s: &Scene<'_>, agent: &str) -> Result<Vec<(String, Option<Limit>)>, Error> {
    let own = format!("agent:{agent}");
    let rows = s.budgets(100).await?.into_iter().filter(|row| row.name.starts_with(&own));
    Ok(rows.map(|row| (row.name, row.limit)).collect())
}

pub(super) async fn the_limit_that_counts_is_listed_with_who_said_it(s: &Scene<'_>) -> Rule {
    let lease = s.begin("hi").await?.lease;
    reserve(s, &lease, "bound", 5).await?;
    let own = || "agent:bound".to_owned();
    let agents = Limit { budget: hundred(), by: LimitBy::Agent };
    assert_eq!(limits(s, "bound").await?, [(own(), Some(agents.clone()))]);
    let ten = Budget { calls: Some(10), ..Budget::default() };
    let set = |budget: &Budget| Some(Limit { budget: budget.clone(), by: LimitBy::Operator });
    s.set_budget(Purse::Agent("bound".to_owned()), Some(ten.clone()), NOW).await?;
    assert_eq!(limits(s, "bound").await?, [(own(), set(&ten))]);
    let daily = Budget { per: Some(Period::Day), ..ten };
    s.set_budget(Purse::Agent("bound".to_owned()), Some(daily.clone()), NOW).await?;
    settle(s, &lease, "bound", 1).await?;
    reserve(s, &lease, "bound", 5).await?;
    let day = "agent:bound@1970-01-01".to_owned();
    assert_eq!(limits(s, "bound").await?, [(own(), set(&daily)), (day.clone(), set(&daily))]);
    s.set_budget(Purse::Agent("bound".to_owned()), None, NOW).await?;
    // The limit of the agent applies again once the operator's limit is removed.
    assert_eq!(limits(s, "bound").await?, [(own(), Some(agents)), (day, None)]);
    Ok(())
}
