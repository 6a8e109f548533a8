//! `[budget]` of an agent's file: what its turns may use.
use outlast::vocab::budget::{Budget, Budgets, Percent, Period};
use outlast::vocab::cost::Cost;
use serde::Deserialize;
use std::num::NonZeroU32;
use std::time::Duration;

/// What each turn, each session and all turns together may use.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BudgetTable {
    reply_tokens: Option<NonZeroU32>,
    turn: Option<BoundsTable>,
    session: Option<BoundsTable>,
    agent: Option<BoundsTable>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BoundsTable {
    tokens: Option<u64>,
    money: Option<Cost>,
    calls: Option<u64>,
    time_s: Option<u64>,
    warn_at: Option<Percent>,
    pause_at: Option<Percent>,
    per: Option<Period>,
}

impl BudgetTable {
    /// The budgets, or what is wrong with them.
    pub(super) fn budgets(&self) -> Result<Budgets, String> {
        let of = |name: &str, table: &Option<BoundsTable>| {
            let budget = table.as_ref().map(BoundsTable::budget);
            if budget.as_ref().is_some_and(Budget::is_empty) {
                return Err(format!(
                    "the budget of the {name} bounds nothing; expected `tokens`, `money`, `calls` or `time_s`"
                ));
            }
            Ok(budget)
        };
        if self.turn.as_ref().is_some_and(|turn| turn.per.is_some()) {
            return Err("a turn's budget does not begin anew; leave `per` away".to_owned());
        }
        Ok(Budgets {
            turn: of("turn", &self.turn)?,
            session: of("session", &self.session)?,
            agent: of("agent", &self.agent)?,
            reply_tokens: self.reply_tokens.map(NonZeroU32::get),
        })
    }
}

impl BoundsTable {
    fn budget(&self) -> Budget {
        let Self { tokens, money, calls, time_s, warn_at, pause_at, per } = self;
        Budget {
            tokens: *tokens,
            money: *money,
            calls: *calls,
            time: time_s.map(Duration::from_secs),
            warn_at: *warn_at,
            pause_at: *pause_at,
            per: *per,
        }
    }
}
