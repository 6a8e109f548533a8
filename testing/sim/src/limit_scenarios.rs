//! Scenarios for the limits of turns: budgets, untrusted text, hooks, payments and rate limits. Each has its own agent.
use crate::hooks;
use crate::scenario::{Scenario, ScriptedReply, UserActionKind, UserActionTrigger};
use outlast_vocab::budget::{Budget, Percent};
use outlast_vocab::label::TrustGuard;
use outlast_vocab::package::Package;
use outlast_vocab::rate::{RateLimit, RatePeriod};
use std::num::NonZeroU32;

/// The number of calls that the agent with a small budget may make.
const CALLS: u64 = 4;

/// Returns all of these scenarios.
pub(crate) fn scenarios_with_limits() -> Vec<Scenario> {
    use ScriptedReply::{Call, Say};
    const READ_THEN_PAY: [ScriptedReply; 3] = [Call(&[("look", "a")]), Call(&[("pay", "b")]), Say("done")];
    const ENDED: UserActionTrigger = UserActionTrigger::Recorded("turn.ended", 1);
    vec![
        Scenario::new("budget", vec![Call(&[("put", "a")]), Say("one"), Call(&[("pay", "b")]), Say("two")])
            .then(ENDED, UserActionKind::SendInput("more"))
            .agent(|agent| agent.budgets.agent = Some(calls(CALLS)))
            .racing(),
        Scenario::new(
            "budget that is raised",
            vec![Call(&[("put", "a")]), Call(&[("pay", "b")]), Say("done")],
        )
        .then(UserActionTrigger::Parked, UserActionKind::Raise)
        .agent(|agent| {
            agent.budgets.agent = Some(Budget { pause_at: Percent::try_from(50).ok(), ..calls(CALLS) });
        }),
        // The turn ends in any case, whether it parks before the budget is raised, after it, or not at all.
        Scenario::new(
            "budget that is raised at any time",
            vec![Call(&[("put", "a")]), Call(&[("pay", "b")]), Say("done")],
        )
        .then(UserActionTrigger::Acked(0), UserActionKind::Raise)
        .agent(|agent| {
            agent.budgets.agent = Some(Budget { pause_at: Percent::try_from(50).ok(), ..calls(CALLS) });
        })
        .racing(),
        Scenario::new("untrusted text and an approval", READ_THEN_PAY.into())
            .then(UserActionTrigger::Parked, UserActionKind::Approve(true))
            .agent(|agent| agent.guard = TrustGuard::Guarded),
        Scenario::new(
            "untrusted text of an earlier turn",
            vec![Call(&[("look", "a")]), Say("one"), Call(&[("pay", "b")]), Say("done")],
        )
        .then(ENDED, UserActionKind::SendInput("more"))
        .then(UserActionTrigger::Parked, UserActionKind::Approve(false))
        .agent(|agent| agent.guard = TrustGuard::Guarded),
        Scenario::new("untrusted text and a strict guard", READ_THEN_PAY.into())
            .agent(|agent| agent.guard = TrustGuard::Strict),
        // The output of these hooks differs on every run, so a resumed turn must read the recorded output.
        Scenario::new("hooks that change things", vec![Call(&[("put", "a"), ("pay", "b")]), Say("done")])
            .agent(|agent| agent.hooks = hooks::uses())
            .racing(),
        Scenario::new("payment", vec![Call(&[("buy", "cake"), ("buy", "tea")]), Say("done")]).agent(as_it_is),
        Scenario::new("payment that is released", vec![Call(&[("browse", "cake")]), Say("done")])
            .agent(as_it_is),
        Scenario::new("payment of unknown outcome", vec![Call(&[("order", "cake")]), Say("done")])
            .agent(as_it_is)
            .deadly(),
        Scenario::new(
            "rate",
            vec![Call(&[("put", "a"); 3]), Call(&[("pay", "b"), ("pay", "c")]), Say("done")],
        )
        .agent(|agent| agent.rates = vec![slow()]),
    ]
}

/// Leaves the agent unchanged. Setting an agent reserves a whole world for the scenario.
fn as_it_is(_: &mut Package) {}

fn calls(most: u64) -> Budget {
    Budget { calls: Some(most), ..Budget::default() }
}

/// Returns a rate limit of one call in two seconds for everything.
fn slow() -> RateLimit {
    let name = "slow".parse().expect("a rate's name");
    RateLimit::new(name, "*", NonZeroU32::new(30).expect("at least one"), RatePeriod::Minute)
}
