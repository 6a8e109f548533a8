//! `outlast approvals`: calls that wait for somebody's word, over all sessions (R11.2).
mod inbox;
mod shown;

use crate::data::Data;
use crate::input;
use crate::terminal;
use crate::words;
use clap::{Args, Subcommand};
use outlast::clock::Clock;
use outlast::runtime::approvals::Approvals as Inbox;
use outlast::runtime::system::SystemClock;
use outlast::store::Store;
use outlast::vocab::access::Principal;
use outlast::vocab::id::{ApprovalId, GrantId};
use outlast::vocab::policy::{Approval, Verdict};
use outlast::vocab::wait::Resolution;
use outlast::votes::Voted;
use outlast::{Error, Limits};
use serde::Deserialize;
use std::io::{self, IsTerminal};
use std::sync::Arc;

/// Shows calls that wait for an approval and lets somebody decide them, or decides one.
#[derive(Args)]
pub(crate) struct Approvals {
    #[command(subcommand)]
    what: Option<What>,
    /// Print a list, also on a terminal
    #[arg(long = "list")]
    plain: bool,
    #[command(flatten)]
    list: List,
    #[command(flatten)]
    who: Who,
}

#[derive(Subcommand)]
enum What {
    /// List them
    List(List),
    /// Let one run, exactly as it is shown
    Approve(Approve),
    /// Do not let one run; the model is told why
    Deny(Deny),
    /// List what is approved for the rest of sessions
    Grants(List),
    /// Ask again from the next call on
    Revoke(Revoke),
}

#[derive(Args)]
struct List {
    /// Print one line of JSON for each
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Approve {
    /// Which
    approval: ApprovalId,
    /// Let it run with these arguments instead
    #[arg(long, value_name = "JSON", conflicts_with = "session")]
    arguments: Option<String>,
    /// Let calls like it run for the rest of the session too
    #[arg(long)]
    session: bool,
    #[command(flatten)]
    who: Who,
}

#[derive(Args)]
struct Deny {
    /// Which
    approval: ApprovalId,
    /// Why
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    who: Who,
}

#[derive(Args)]
struct Revoke {
    /// Which
    grant: GrantId,
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

impl Who {
    /// The database as they have it.
    async fn open(&self, data: &Data) -> Result<Arc<dyn Store>, Error> {
        data.open_by(Principal::Person(self.by.parse()?)).await
    }
}

impl Approvals {
    /// Does it.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        match self.what {
            None if self.plain || self.list.json || !is_a_terminal() => self.list.questions(data).await,
            None => inbox::run(self.who.open(data).await?, self.who.by).await,
            Some(What::List(list)) => list.questions(data).await,
            Some(What::Approve(Approve { approval, arguments, session, who })) => {
                let verdict = match arguments {
                    Some(json) => Verdict::Edit { arguments: input::json("--arguments", &json)? },
                    None if session => Verdict::ApproveForSession,
                    None => Verdict::Approve,
                };
                decide(data, approval, who, verdict).await
            }
            Some(What::Deny(Deny { approval, reason, who })) => {
                decide(data, approval, who, Verdict::Deny { reason }).await
            }
            Some(What::Grants(list)) => list.grants(data).await,
            Some(What::Revoke(Revoke { grant, who })) => revoke(data, grant, &who).await,
        }
    }
}

/// Whether somebody looks at what is printed and can press keys.
fn is_a_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

impl List {
    async fn questions(&self, data: &Data) -> Result<(), Error> {
        let questions = Inbox::new(data.open().await?).pending(Limits::default().page_rows).await?;
        if self.json {
            for question in &questions {
                terminal::json(&shown::question_json(question));
            }
            return Ok(());
        }
        if questions.is_empty() {
            terminal::note("· nothing waits for an approval");
            return Ok(());
        }
        for question in &questions {
            terminal::say(&shown::question(question));
        }
        terminal::note(
            "· then: outlast approvals approve ID [--arguments JSON | --session] | deny ID --reason WHY",
        );
        Ok(())
    }

    async fn grants(&self, data: &Data) -> Result<(), Error> {
        let grants = Inbox::new(data.open().await?).grants(Limits::default().page_rows).await?;
        if self.json {
            for grant in &grants {
                terminal::json(&shown::grant_json(grant));
            }
            return Ok(());
        }
        if grants.is_empty() {
            terminal::note("· nothing is approved for the rest of a session");
            return Ok(());
        }
        for grant in &grants {
            terminal::say(&shown::grant(grant));
        }
        terminal::note("· then: outlast approvals revoke ID");
        Ok(())
    }
}

async fn decide(data: &Data, id: ApprovalId, who: Who, verdict: Verdict) -> Result<(), Error> {
    let inbox = Inbox::new(who.open(data).await?);
    let voted = inbox.decide(id, Approval::new(who.by, verdict), SystemClock.now()).await?;
    terminal::say(&said(&voted));
    if let Voted::Decided(_) = voted {
        terminal::note("· the turn goes on where a worker runs; `outlast work` is one");
    }
    Ok(())
}

/// What became of a word.
fn said(voted: &Voted) -> String {
    let resolved = match voted {
        Voted::Counted { votes, of } => return format!("counted: {votes} of {of} approvals"),
        Voted::Decided(resolved) => resolved,
    };
    let said = match &resolved.first {
        Resolution::Ok(word) => {
            Approval::deserialize(word).map_or_else(|_| word.to_string(), |said| words::approval(&said))
        }
        other => words::resolution(other),
    };
    if resolved.yours { format!("decided: {said}") } else { format!("too late: {said}") }
}

async fn revoke(data: &Data, id: GrantId, who: &Who) -> Result<(), Error> {
    let grant = Inbox::new(who.open(data).await?).revoke(id, SystemClock.now()).await?;
    terminal::say(&format!("revoked: somebody is asked again about `{}` in {}", grant.tool, grant.session));
    Ok(())
}
