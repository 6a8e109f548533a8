//! `outlast budgets`: lists and sets budgets, with what was used of them.
use crate::backend::CommandBackend;
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::{Args, Subcommand, ValueEnum};
use outlast::budget::{BudgetAccountView, BudgetSetBy, EffectiveBudget};
use outlast::vocab::budget::{Budget, BudgetAccount, Percent, Period, UsageAmount};
use outlast::vocab::cost::Cost;
use outlast::{Error, Kind};
use serde_json::json;
use std::time::Duration;

/// List budgets with their use, or set one
#[derive(Args)]
pub(crate) struct BudgetsArgs {
    #[command(subcommand)]
    what: Option<BudgetsCommand>,
}

#[derive(Subcommand)]
enum BudgetsCommand {
    /// Set a budget, overriding the limit of its agent; turns paused by it continue
    Set(BudgetSetArgs),
    /// Reset a budget to the limit of its agent
    Clear {
        /// Whose budget: `agent:NAME`, or the id of a turn, session or organisation
        of: BudgetAccount,
    },
}

#[derive(Args)]
struct BudgetSetArgs {
    /// Whose budget: `agent:NAME`, or the id of a turn, session or organisation
    of: BudgetAccount,
    /// Maximum number of input and output tokens
    #[arg(long)]
    tokens: Option<u64>,
    /// Maximum cost in dollars, like `2.50`
    #[arg(long)]
    money: Option<Cost>,
    /// Maximum number of model and tool calls
    #[arg(long)]
    calls: Option<u64>,
    /// Maximum running time of turns in seconds
    #[arg(long)]
    time_s: Option<u64>,
    /// Percentage at which a warning is sent
    #[arg(long, value_name = "PERCENT")]
    warn_at: Option<Percent>,
    /// Percentage at which turns pause until the budget is raised
    #[arg(long, value_name = "PERCENT")]
    pause_at: Option<Percent>,
    /// Period after which the usage resets, in UTC; default: never
    #[arg(long, value_enum)]
    per: Option<BudgetPeriod>,
}

#[derive(Clone, Copy, ValueEnum)]
enum BudgetPeriod {
    /// Every day
    Day,
    /// Every month
    Month,
}

impl BudgetsArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        match self.what {
            None => {
                let budgets = data.backend().await?.budgets().await?;
                if data.json {
                    list_json(&budgets);
                } else {
                    list(&budgets);
                }
                Ok(())
            }
            Some(BudgetsCommand::Set(set)) => {
                let (of, budget) = set.budget()?;
                backend_for(&of, data).await?.set_budget(&of, Some(budget)).await?;
                terminal::note(&format!("✓ {of} is set; a worker continues the turns that wait for it"));
                Ok(())
            }
            Some(BudgetsCommand::Clear { of }) => {
                backend_for(&of, data).await?.set_budget(&of, None).await?;
                let stands = if matches!(of, BudgetAccount::Org(_)) {
                    "has no limit"
                } else {
                    "is reset to the limits of its agent"
                };
                terminal::note(&format!("✓ {of} {stands}"));
                Ok(())
            }
        }
    }
}

/// Opens the database or the server to set a budget. Only the operator may set the budget of an organisation.
async fn backend_for(of: &BudgetAccount, data: &GlobalArgs) -> Result<CommandBackend, Error> {
    match of {
        BudgetAccount::Org(_) => data.backend_for_all_orgs().await,
        BudgetAccount::Turn(_) | BudgetAccount::Session(_) | BudgetAccount::Agent(_) => data.backend().await,
    }
}

impl BudgetSetArgs {
    fn budget(self) -> Result<(BudgetAccount, Budget), Error> {
        let Self { of, tokens, money, calls, time_s, warn_at, pause_at, per } = self;
        let per = per.map(|every| match every {
            BudgetPeriod::Day => Period::Day,
            BudgetPeriod::Month => Period::Month,
        });
        let budget =
            Budget { tokens, money, calls, time: time_s.map(Duration::from_secs), warn_at, pause_at, per };
        if budget.is_empty() {
            let detail = "a budget needs a limit; expected --tokens, --money, --calls or --time-s";
            return Err(Error::new(Kind::InputInvalid, detail));
        }
        Ok((of, budget))
    }
}

fn list_json(budgets: &[BudgetAccountView]) {
    for BudgetAccountView {
        org,
        name,
        operator_budget: set,
        effective: limit,
        spent,
        reserved: held,
        lost,
    } in budgets
    {
        let (limit, by) = limit.as_ref().map(|EffectiveBudget { budget, by }| (budget, by)).unzip();
        terminal::json(&json!({
            "org": org, "name": name, "set": set, "limit": limit, "limit_by": by,
            "spent": spent, "held": held, "lost": lost,
        }));
    }
}

fn list(budgets: &[BudgetAccountView]) {
    if budgets.is_empty() {
        terminal::note("· no budget has been used or set yet");
        return;
    }
    let width = budgets.iter().map(|budget| budget.name.chars().count()).max().unwrap_or(0).max(4);
    terminal::say(&format!("{:width$}  SPENT                          RESERVED             LIMIT", "NAME"));
    for BudgetAccountView { name, effective: limit, spent, reserved: held, lost, .. } in budgets {
        let (spent, held) = (shown(spent), shown(held));
        let limit = limit.as_ref().map_or_else(|| "none".to_owned(), said);
        terminal::say(&format!("{name:width$}  {spent:<29}  {held:<19}  {limit}"));
        if *lost != UsageAmount::ZERO {
            terminal::say(&format!(
                "{:width$}    of this {} lost: reserved, but never settled",
                "",
                shown(lost)
            ));
        }
    }
}

fn shown(amount: &UsageAmount) -> String {
    let UsageAmount { tokens, money, calls, millis } = amount;
    let mut parts = vec![format!("{tokens} tokens"), format!("{calls} calls")];
    if *money != Cost::ZERO {
        parts.insert(0, format!("${money}"));
    }
    if *millis > 0 {
        parts.push(format!("{} s", millis / 1_000));
    }
    if *amount == UsageAmount::ZERO { "nothing".to_owned() } else { parts.join(", ") }
}

/// Formats a limit and who set it.
fn said(EffectiveBudget { budget, by }: &EffectiveBudget) -> String {
    let by = match by {
        BudgetSetBy::Operator => "set by an operator",
        BudgetSetBy::Agent => "as its agent says",
    };
    format!("{} ({by})", bounds(budget))
}

fn bounds(budget: &Budget) -> String {
    let Budget { tokens, money, calls, time, warn_at, pause_at, per } = budget;
    let parts = [
        money.map(|money| format!("${money}")),
        tokens.map(|tokens| format!("{tokens} tokens")),
        calls.map(|calls| format!("{calls} calls")),
        time.map(|time| format!("{} s", time.as_secs())),
        warn_at.map(|share| format!("warns at {} %", u8::from(share))),
        pause_at.map(|share| format!("pauses at {} %", u8::from(share))),
        per.map(|per| match per {
            Period::Day => "every day".to_owned(),
            Period::Month => "every month".to_owned(),
        }),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
