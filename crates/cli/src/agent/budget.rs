//! The `[budget]` table of an agent: limits on what its turns may use.
use outlast::vocab::budget::{Budget, Budgets, Percent, Period};
use outlast::vocab::cost::Cost;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::time::Duration;

/// Budgets of each turn, of each session, and of all turns together.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[agents.NAME.budget]")]
pub(super) struct BudgetTable {
    /// The most tokens of one reply, which Outlast reserves; default: 8192, at most a quarter of the context window.
    reply_tokens: Option<NonZeroU32>,
    /// Limits of one turn.
    turn: Option<BoundsTable>,
    /// Limits of one session.
    session: Option<BoundsTable>,
    /// Limits of all turns of the agent together.
    agent: Option<BoundsTable>,
}

/// A budget. It needs at least one limit.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[agents.NAME.budget.turn]")]
struct BoundsTable {
    /// Maximum number of tokens.
    tokens: Option<u64>,
    /// Maximum cost in dollars, like `2.50`.
    #[schemars(with = "Option<String>")]
    money: Option<Cost>,
    /// Maximum number of model and tool calls.
    calls: Option<u64>,
    /// Maximum running time in seconds, without time spent waiting.
    time_s: Option<u64>,
    /// Percentage at which a warning is sent.
    #[schemars(with = "Option<u8>", range(min = 1, max = 100))]
    warn_at: Option<Percent>,
    /// Percentage at which turns pause until the budget is raised.
    #[schemars(with = "Option<u8>", range(min = 1, max = 100))]
    pause_at: Option<Percent>,
    /// Period after which the usage resets, in UTC; not for a turn.
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
                    "the budget of the {name} has no limit; set `tokens`, `money`, `calls` or `time_s`"
                ));
            }
            Ok(budget)
        };
        if self.turn.as_ref().is_some_and(|turn| turn.per.is_some()) {
            return Err("a turn's budget has no period; remove `per`".to_owned());
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
