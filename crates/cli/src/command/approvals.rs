//! `outlast approvals`: calls that wait for somebody's word, over all sessions (R11.2).
use crate::data::Data;
use crate::input;
use crate::terminal;
use crate::words;
use clap::{Args, Subcommand};
use outlast::clock::Clock;
use outlast::runtime::approvals::{Approvals as Inbox, Question};
use outlast::runtime::system::SystemClock;
use outlast::vocab::access::Principal;
use outlast::vocab::id::ApprovalId;
use outlast::vocab::policy::{Approval, Verdict};
use outlast::vocab::wait::Resolution;
use outlast::{Error, Limits};
use serde::Deserialize;

/// Lists calls that wait for an approval, or decides one.
#[derive(Args)]
pub(crate) struct Approvals {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// List them
    List,
    /// Let one run, exactly as it is shown
    Approve(Approve),
    /// Do not let one run; the model is told why
    Deny(Deny),
}

#[derive(Args)]
struct Approve {
    /// Which
    approval: String,
    /// Let it run with these arguments instead
    #[arg(long, value_name = "JSON")]
    arguments: Option<String>,
    #[command(flatten)]
    who: Who,
}

#[derive(Args)]
struct Deny {
    /// Which
    approval: String,
    /// Why
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    who: Who,
}

/// Who decides.
#[derive(Args)]
struct Who {
    /// In whose name; the user's name if nobody is named
    #[arg(
        long = "by",
        value_name = "NAME",
        env = "USER",
        default_value = "operator",
        hide_env_values = true
    )]
    by: String,
}

impl Approvals {
    /// Does it.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        match self.what {
            None | Some(What::List) => list(data).await,
            Some(What::Approve(Approve { approval, arguments, who })) => {
                let verdict = match arguments {
                    Some(json) => Verdict::Edit { arguments: input::json("--arguments", &json)? },
                    None => Verdict::Approve,
                };
                decide(data, &approval, Approval { by: who.by, verdict }).await
            }
            Some(What::Deny(Deny { approval, reason, who })) => {
                let verdict = Verdict::Deny { reason };
                decide(data, &approval, Approval { by: who.by, verdict }).await
            }
        }
    }
}

async fn list(data: &Data) -> Result<(), Error> {
    let questions = Inbox::new(data.open().await?).pending(Limits::default().page_rows).await?;
    if questions.is_empty() {
        terminal::note("· nothing waits for an approval");
        return Ok(());
    }
    for question in &questions {
        terminal::say(&shown(question));
    }
    terminal::note("· then: outlast approvals approve ID [--arguments JSON] | deny ID --reason WHY");
    Ok(())
}

/// A question with everything that somebody needs to decide it.
fn shown(question: &Question) -> String {
    let Question { id, session, turn, call, ask, since, wait, .. } = question;
    let rule = call.ruling.as_ref().map(|ruling| ruling.rule.as_str()).unwrap_or_default();
    let who = if ask.who.is_empty() { "anybody".to_owned() } else { ask.who.join(" or ") };
    let until = wait.deadline.map(|at| format!(" until {}", words::when(at))).unwrap_or_default();
    let labels = &call.labels;
    let labels = if labels.is_empty() {
        String::new()
    } else {
        format!("\n  untrusted text may have asked for it: {labels}")
    };
    format!(
        "{id}\n  {} {}{labels}\n  asked {} in {session}, {turn}; rule `{rule}` wants {who}{until}",
        call.tool,
        call.arguments,
        words::when(*since),
    )
}

async fn decide(data: &Data, id: &str, approval: Approval) -> Result<(), Error> {
    let id: ApprovalId = id.parse()?;
    let store = data.open_by(Principal::Person(approval.by.parse()?)).await?;
    let resolved = Inbox::new(store).decide(id, approval, SystemClock.now()).await?;
    let said = match &resolved.first {
        Resolution::Ok(word) => {
            Approval::deserialize(word).map_or_else(|_| word.to_string(), |said| words::approval(&said))
        }
        other => words::resolution(other),
    };
    terminal::say(&if resolved.yours { format!("decided: {said}") } else { format!("too late: {said}") });
    terminal::note("· the turn goes on where a worker runs; `outlast work` is one");
    Ok(())
}
