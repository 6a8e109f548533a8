//! `outlast budgets`: lists and sets budgets, with what was used of them.
use crate::data::Data;
use crate::desk::Desk;
use crate::terminal;
use clap::{Args, Subcommand, ValueEnum};
use outlast::budget::{Limit, LimitBy, PurseView};
use outlast::vocab::budget::{Amount, Budget, Percent, Period, Purse};
use outlast::vocab::cost::Cost;
use outlast::{Error, Kind};
use serde_json::json;
use std::time::Duration;

/// List budgets with their use, or set one
#[derive(Args)]
pub(crate) struct Budgets {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// Set a budget, overriding the limit of its agent; turns paused by it continue
    Set(Set),
    /// Reset a budget to the limit of its agent
    Clear {
        /// Whose budget: `agent:NAME`, or the id of a turn, session or organisation
        of: Purse,
    },
}

#[derive(Args)]
struct Set {
    /// Whose budget: `agent:NAME`, or the id of a turn, session or organisation
    of: Purse,
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
    per: Option<Every>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Every {
    /// Every day
    Day,
    /// Every month
    Month,
}

impl Budgets {
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        match self.what {
            None => {
                let purses = data.desk().await?.budgets().await?;
                if data.json {
                    list_json(&purses);
                } else {
                    list(&purses);
                }
                Ok(())
            }
            Some(What::Set(set)) => {
                let (of, budget) = set.budget()?;
                desk_for(&of, data).await?.set_budget(&of, Some(budget)).await?;
                terminal::note(&format!("✓ {of} is set; turns that wait for it go on where a worker runs"));
                Ok(())
            }
            Some(What::Clear { of }) => {
                desk_for(&of, data).await?.set_budget(&of, None).await?;
                let stands =
                    if matches!(of, Purse::Org(_)) { "is not bounded" } else { "is as its agent says" };
                terminal::note(&format!("✓ {of} {stands}"));
                Ok(())
            }
        }
    }
}

/// Opens the database or the server to set a budget. Only the operator may set the budget of an organisation.
async fn desk_for(of: &Purse, data: &Data) -> Result<Desk, Error> {
    match of {
        Purse::Org(_) => data.desk_widely().await,
        Purse::Turn(_) | Purse::Session(_) | Purse::Agent(_) => data.desk().await,
    }
}

impl Set {
    fn budget(self) -> Result<(Purse, Budget), Error> {
        let Self { of, tokens, money, calls, time_s, warn_at, pause_at, per } = self;
        let per = per.map(|every| match every {
            Every::Day => Period::Day,
            Every::Month => Period::Month,
        });
        let budget =
            Budget { tokens, money, calls, time: time_s.map(Duration::from_secs), warn_at, pause_at, per };
        if budget.is_empty() {
            let detail = "a budget bounds something; expected --tokens, --money, --calls or --time-s";
            return Err(Error::new(Kind::InputInvalid, detail));
        }
        Ok((of, budget))
    }
}

fn list_json(purses: &[PurseView]) {
    for PurseView { org, name, set, limit, spent, held, lost } in purses {
        let (limit, by) = limit.as_ref().map(|Limit { budget, by }| (budget, by)).unzip();
        terminal::json(&json!({
            "org": org, "name": name, "set": set, "limit": limit, "limit_by": by,
            "spent": spent, "held": held, "lost": lost,
        }));
    }
}

fn list(purses: &[PurseView]) {
    if purses.is_empty() {
        terminal::note("· nothing that has a budget was used yet, and none is set here");
        return;
    }
    let width = purses.iter().map(|purse| purse.name.chars().count()).max().unwrap_or(0).max(4);
    terminal::say(&format!("{:width$}  SPENT                          RESERVED             LIMIT", "NAME"));
    for PurseView { name, limit, spent, held, lost, .. } in purses {
        let (spent, held) = (shown(spent), shown(held));
        let limit = limit.as_ref().map_or_else(|| "none".to_owned(), said);
        terminal::say(&format!("{name:width$}  {spent:<29}  {held:<19}  {limit}"));
        if *lost != Amount::ZERO {
            terminal::say(&format!(
                "{:width$}    of this {} lost: reserved, and never settled",
                "",
                shown(lost)
            ));
        }
    }
}

fn shown(amount: &Amount) -> String {
    let Amount { tokens, money, calls, millis } = amount;
    let mut parts = vec![format!("{tokens} tokens"), format!("{calls} calls")];
    if *money != Cost::ZERO {
        parts.insert(0, format!("${money}"));
    }
    if *millis > 0 {
        parts.push(format!("{} s", millis / 1_000));
    }
    if *amount == Amount::ZERO { "nothing".to_owned() } else { parts.join(", ") }
}

/// Formats a limit and who set it.
fn said(Limit { budget, by }: &Limit) -> String {
    let by = match by {
        LimitBy::Operator => "set by an operator",
        LimitBy::Agent => "as its agent says",
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
