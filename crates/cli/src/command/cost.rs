//! `outlast cost`: sums the costs of models and tools by session, agent, model, source, tool or day.
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::{Args, ValueEnum};
use outlast::Error;
use outlast::views::{CostDimension, CostTotals};
use outlast::vocab::cost::Cost as Money;
use outlast::vocab::effect::Usage;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Display;

/// Sum up the cost of models and tools.
#[derive(Args)]
pub(crate) struct CostArgs {
    /// How to group the costs
    #[arg(long, value_enum, default_value_t = CostGrouping::Model)]
    by: CostGrouping,
    /// Count only this session, by id or key
    #[arg(long)]
    session: Option<String>,
    /// Print the output as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum CostGrouping {
    /// Each session
    Session,
    /// Each agent
    Agent,
    /// Each model
    Model,
    /// The conversation, its summaries, and each tool that calls models
    Source,
    /// Each tool that calls models or has a price
    Tool,
    /// Each day, in UTC
    Day,
    /// Each turn
    Turn,
}

impl CostArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let backend = data.backend().await?;
        let session = match &self.session {
            Some(session) => Some(backend.find(session).await?.id),
            None => None,
        };
        let by = match self.by {
            CostGrouping::Session => CostDimension::Session,
            CostGrouping::Agent => CostDimension::Agent,
            CostGrouping::Model => CostDimension::Model,
            CostGrouping::Source => CostDimension::Source,
            CostGrouping::Tool => CostDimension::Tool,
            CostGrouping::Day => CostDimension::Day,
            CostGrouping::Turn => CostDimension::Turn,
        };
        let spent = backend.spent(session, by).await?;
        if self.json {
            for (name, spent) in &spent {
                let CostTotals { replies, usage, cost, unpriced, estimated, estimated_usage } = spent;
                let mut line = json!({"name": name, "replies": replies, "usage": usage, "cost": cost, "unpriced": unpriced});
                if *estimated != Money::ZERO {
                    line["estimated"] = json!(estimated);
                }
                if *estimated_usage != Usage::default() {
                    line["estimated_usage"] = json!(estimated_usage);
                }
                terminal::json(&line);
            }
        } else {
            table(&spent, self.by);
        }
        Ok(())
    }
}

fn table(spent: &BTreeMap<String, CostTotals>, by: CostGrouping) {
    if spent.is_empty() {
        terminal::note(match by {
            CostGrouping::Tool => "· no tool has called a model, and no tool with a price was called",
            _ => "· no model has replied yet",
        });
        return;
    }
    let width = spent.keys().map(|name| name.chars().count()).max().unwrap_or(0).max(5);
    terminal::say(&format!("{:width$}  REPLIES  INPUT       FROM CACHE  OUTPUT      COST", "NAME"));
    for (name, totals) in spent {
        let CostTotals { replies, usage, cost, estimated, estimated_usage, .. } = totals;
        let cached = usage.cache_read;
        let read = marked(usage.input + usage.cache_write, estimated_usage.input > 0);
        let said = marked(usage.output + usage.reasoning, estimated_usage.output > 0);
        let cost = marked(format!("${cost}"), *estimated > Money::ZERO);
        terminal::say(&format!("{name:width$}  {replies:<7}  {read:<10}  {cached:<10}  {said:<10}  {cost}"));
    }
    let total: Money = spent.values().map(|spent| spent.cost).sum();
    let unpriced: u64 = spent.values().map(|spent| spent.unpriced).sum();
    let unpriced = usize::try_from(unpriced).unwrap_or(usize::MAX);
    let without = if unpriced == 0 {
        String::new()
    } else {
        format!(", and {} without a known price", formatting::count(unpriced, "reply", "replies"))
    };
    let estimated: Money = spent.values().map(|spent| spent.estimated).sum();
    let estimated = if estimated == Money::ZERO {
        String::new()
    } else {
        format!(", of which ${estimated} is an estimate")
    };
    terminal::note(&format!("· ${total} in all{estimated}{without}"));
    if spent.values().any(|spent| spent.estimated_usage != Usage::default()) {
        terminal::note("· ~ includes an estimate, because a provider did not report the usage of a call");
    }
}

/// Marks an amount that includes an estimate.
fn marked(amount: impl Display, is_estimate: bool) -> String {
    format!("{}{amount}", if is_estimate { "~" } else { "" })
}
