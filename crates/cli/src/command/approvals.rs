//! `outlast approvals`: lists and decides the calls of all sessions that wait for an approval.
mod inbox;
mod shown;

use crate::data::Data;
use crate::desk::Desk;
use crate::input;
use crate::terminal;
use crate::words;
use clap::{Args, Subcommand};
use outlast::Error;
use outlast::vocab::access::Principal;
use outlast::vocab::id::{ApprovalId, GrantId};
use outlast::vocab::policy::{Approval, Verdict};
use outlast::vocab::wait::Resolution;
use outlast::votes::Voted;
use serde::Deserialize;
use std::io::{self, IsTerminal};

/// Show calls that wait for an approval, and approve or deny them.
#[derive(Args)]
pub(crate) struct Approvals {
    #[command(subcommand)]
    what: Option<What>,
    /// Print a list instead of the inbox on a terminal
    #[arg(long = "list")]
    plain: bool,
    #[command(flatten)]
    who: Who,
}

#[derive(Subcommand)]
enum What {
    /// List the calls that wait for an approval
    List,
    /// Approve a call, exactly as it is shown
    Approve(Approve),
    /// Deny a call; the model receives the reason
    Deny(Deny),
    /// List approvals for the rest of sessions (grants)
    Grants,
    /// Revoke a grant; the next call needs an approval again
    Revoke(Revoke),
}

#[derive(Args)]
struct Approve {
    /// Id of the approval
    approval: ApprovalId,
    /// Approve the call with these arguments instead
    #[arg(long, value_name = "JSON", conflicts_with = "session")]
    arguments: Option<String>,
    /// Also approve similar calls for the rest of the session
    #[arg(long)]
    session: bool,
    #[command(flatten)]
    who: Who,
}

#[derive(Args)]
struct Deny {
    /// Id of the approval
    approval: ApprovalId,
    /// Reason for the denial
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    who: Who,
}

#[derive(Args)]
struct Revoke {
    /// Id of the grant
    grant: GrantId,
    #[command(flatten)]
    who: Who,
}

/// The person who decides.
#[derive(Args)]
struct Who {
    /// Name of the person who decides; default: the name of the user
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
    /// Opens the database or the server in the name of this person.
    async fn desk(&self, data: &Data) -> Result<Desk, Error> {
        data.desk_by(Principal::Person(input::name("--by", &self.by)?)).await
    }
}

impl Approvals {
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        match self.what {
            None if self.plain || data.json || !is_a_terminal() => questions(data).await,
            None => inbox::run(self.who.desk(data).await?, self.who.by).await,
            Some(What::List) => questions(data).await,
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
            Some(What::Grants) => grants(data).await,
            Some(What::Revoke(Revoke { grant, who })) => revoke(data, grant, &who).await,
        }
    }
}

/// Returns whether a person sees the output and can press keys.
fn is_a_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

async fn questions(data: &Data) -> Result<(), Error> {
    let questions = data.desk().await?.pending().await?;
    if data.json {
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
        // Hidden characters could conceal part of what is approved.
        let shown = shown::question(question);
        shown.lines().for_each(|line| terminal::say(&terminal::visible(line)));
    }
    terminal::note(
        "· then: outlast approvals approve ID [--arguments JSON | --session] | deny ID --reason WHY",
    );
    Ok(())
}

async fn grants(data: &Data) -> Result<(), Error> {
    let grants = data.desk().await?.grants().await?;
    if data.json {
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

async fn decide(data: &Data, id: ApprovalId, who: Who, verdict: Verdict) -> Result<(), Error> {
    let voted = who.desk(data).await?.decide(id, &who.by, verdict).await?;
    if data.json {
        terminal::json(&shown::voted_json(&voted));
        return Ok(());
    }
    terminal::say(&said(&voted));
    if let Voted::Decided(_) = voted {
        data.note_work("the turn goes on");
    }
    Ok(())
}

/// Describes the result of a vote.
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
    let grant = who.desk(data).await?.revoke_grant(id).await?;
    if data.json {
        terminal::json(&shown::grant_json(&grant));
        return Ok(());
    }
    terminal::say(&format!("revoked: somebody is asked again about `{}` in {}", grant.tool, grant.session));
    Ok(())
}
