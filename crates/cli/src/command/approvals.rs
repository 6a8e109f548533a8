//! `outlast approvals`: lists and decides the calls of all sessions that wait for an approval.
mod approval_format;
mod inbox;

use crate::backend::CommandBackend;
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::input;
use crate::terminal;
use clap::{Args, Subcommand};
use outlast::Error;
use outlast::vocab::access::Principal;
use outlast::vocab::id::{ApprovalId, GrantId};
use outlast::vocab::policy::{Approval, ApprovalVerdict};
use outlast::vocab::wait::Resolution;
use outlast::votes::VoteOutcome;
use serde::Deserialize;
use std::io::{self, IsTerminal};

/// Show calls that wait for an approval, and approve or deny them.
#[derive(Args)]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    what: Option<ApprovalsCommand>,
    /// Print a list instead of the inbox on a terminal
    #[arg(long = "list")]
    plain: bool,
    #[command(flatten)]
    who: ApproverArgs,
}

#[derive(Subcommand)]
enum ApprovalsCommand {
    /// List the calls that wait for an approval
    List,
    /// Approve a call, exactly as it is shown
    Approve(ApproveArgs),
    /// Deny a call; the model receives the reason
    Deny(DenyArgs),
    /// List approvals for the rest of sessions (grants)
    Grants,
    /// Revoke a grant; the next call needs an approval again
    Revoke(GrantRevokeArgs),
}

#[derive(Args)]
struct ApproveArgs {
    /// Id of the approval
    approval: ApprovalId,
    /// Approve the call with these arguments instead
    #[arg(long, value_name = "JSON", conflicts_with = "session")]
    arguments: Option<String>,
    /// Also approve similar calls for the rest of the session
    #[arg(long)]
    session: bool,
    #[command(flatten)]
    who: ApproverArgs,
}

#[derive(Args)]
struct DenyArgs {
    /// Id of the approval
    approval: ApprovalId,
    /// Reason for the denial
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    who: ApproverArgs,
}

#[derive(Args)]
struct GrantRevokeArgs {
    /// Id of the grant
    grant: GrantId,
    #[command(flatten)]
    who: ApproverArgs,
}

/// The person who decides.
#[derive(Args)]
struct ApproverArgs {
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

impl ApproverArgs {
    /// Opens the database or the server in the name of this person.
    async fn backend(&self, data: &GlobalArgs) -> Result<CommandBackend, Error> {
        data.backend_as(Principal::Person(input::name("--by", &self.by)?)).await
    }
}

impl ApprovalsArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        match self.what {
            None if self.plain || data.json || !is_a_terminal() => questions(data).await,
            None => inbox::run(self.who.backend(data).await?, self.who.by).await,
            Some(ApprovalsCommand::List) => questions(data).await,
            Some(ApprovalsCommand::Approve(ApproveArgs { approval, arguments, session, who })) => {
                let verdict = match arguments {
                    Some(json) => ApprovalVerdict::Edit { arguments: input::json("--arguments", &json)? },
                    None if session => ApprovalVerdict::ApproveForSession,
                    None => ApprovalVerdict::Approve,
                };
                decide(data, approval, who, verdict).await
            }
            Some(ApprovalsCommand::Deny(DenyArgs { approval, reason, who })) => {
                decide(data, approval, who, ApprovalVerdict::Deny { reason }).await
            }
            Some(ApprovalsCommand::Grants) => grants(data).await,
            Some(ApprovalsCommand::Revoke(GrantRevokeArgs { grant, who })) => revoke(data, grant, &who).await,
        }
    }
}

/// Returns whether a person sees the output and can press keys.
fn is_a_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

async fn questions(data: &GlobalArgs) -> Result<(), Error> {
    let questions = data.backend().await?.pending().await?;
    if data.json {
        for question in &questions {
            terminal::json(&approval_format::question_json(question));
        }
        return Ok(());
    }
    if questions.is_empty() {
        terminal::note("· nothing waits for an approval");
        return Ok(());
    }
    for question in &questions {
        // Hidden characters could conceal part of what is approved.
        let shown = approval_format::question(question);
        shown.lines().for_each(|line| terminal::say(&terminal::escape_control(line)));
    }
    terminal::note(
        "· then: outlast approvals approve ID [--arguments JSON | --session] | deny ID --reason WHY",
    );
    Ok(())
}

async fn grants(data: &GlobalArgs) -> Result<(), Error> {
    let grants = data.backend().await?.grants().await?;
    if data.json {
        for grant in &grants {
            terminal::json(&approval_format::grant_json(grant));
        }
        return Ok(());
    }
    if grants.is_empty() {
        terminal::note("· nothing is approved for the rest of a session");
        return Ok(());
    }
    for grant in &grants {
        terminal::say(&approval_format::grant(grant));
    }
    terminal::note("· then: outlast approvals revoke ID");
    Ok(())
}

async fn decide(
    data: &GlobalArgs,
    id: ApprovalId,
    who: ApproverArgs,
    verdict: ApprovalVerdict,
) -> Result<(), Error> {
    let voted = who.backend(data).await?.decide(id, &who.by, verdict).await?;
    if data.json {
        terminal::json(&approval_format::voted_json(&voted));
        return Ok(());
    }
    terminal::say(&vote_summary(&voted));
    if let VoteOutcome::Decided(_) = voted {
        data.note_work("the turn continues");
    }
    Ok(())
}

/// Describes the result of a vote.
fn vote_summary(voted: &VoteOutcome) -> String {
    let resolved = match voted {
        VoteOutcome::MoreNeeded { votes, of } => return format!("counted: {votes} of {of} approvals"),
        VoteOutcome::Decided(resolved) => resolved,
    };
    let said = match &resolved.first {
        Resolution::Ok(word) => {
            Approval::deserialize(word).map_or_else(|_| word.to_string(), |said| formatting::approval(&said))
        }
        other => formatting::resolution(other),
    };
    if resolved.is_yours { format!("decided: {said}") } else { format!("too late: {said}") }
}

async fn revoke(data: &GlobalArgs, id: GrantId, who: &ApproverArgs) -> Result<(), Error> {
    let grant = who.backend(data).await?.revoke_grant(id).await?;
    if data.json {
        terminal::json(&approval_format::grant_json(&grant));
        return Ok(());
    }
    terminal::say(&format!(
        "revoked: the next such call of `{}` requires an approval, in {}",
        grant.tool, grant.session
    ));
    Ok(())
}
