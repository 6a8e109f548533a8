//! The `[budget]` table of an agent: limits on what its turns may use.
use outlast::vocab::budget::{Budget, Budgets, Percent, Period};
use outlast::vocab::cost::Cost;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::time::Duration;

/// What each turn, each session and all turns together may use.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[agents.NAME.budget]")]
pub(super) struct BudgetTable {
    /// Tokens that one reply may have.
    reply_tokens: Option<NonZeroU32>,
    /// What one turn may use.
    turn: Option<BoundsTable>,
    /// What one session may use.
    session: Option<BoundsTable>,
    /// What all turns of the agent may use.
    agent: Option<BoundsTable>,
}

/// What may be used; one bound at least.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[agents.NAME.budget.turn]")]
struct BoundsTable {
    /// Tokens.
    tokens: Option<u64>,
    /// Dollars, like `2.50`.
    #[schemars(with = "Option<String>")]
    money: Option<Cost>,
    /// Calls of models and tools.
    calls: Option<u64>,
    /// Seconds of work.
    time_s: Option<u64>,
    /// Percent at which it is told that little is left.
    #[schemars(with = "Option<u8>", range(min = 1, max = 100))]
    warn_at: Option<Percent>,
    /// Percent at which turns wait until somebody raises it.
    #[schemars(with = "Option<u8>", range(min = 1, max = 100))]
    pause_at: Option<Percent>,
    /// After which time it begins anew; not for a turn.
    #[schemars(with = "Option<String>", extend("enum" = [Period::Day, Period::Month]))]
    per: Option<Period>,
}

impl BudgetTable {
    /// Converts the table to budgets. The error says what is wrong.
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
