//! Links that decide approval requests: signed for each approver, and valid for anyone who holds one.
//!
//! A link carries one person's vote. It opens a request with the scope `approve`, in the request's
//! organisation and in that person's name. Viewing a link decides nothing.
use crate::worker::Runtime;
use outlast_ports::sink::{ApprovalRequest, ApproverLinks};
use outlast_views::{ApprovalQuestion, ResolveResult, VoteOutcome};
use outlast_vocab::access::{Access, OrgVisibility, Principal, Scope};
use outlast_vocab::approval::approval_id;
use outlast_vocab::approval_link::{ApprovalLink, LinkAnswer, PublicUrl};
use outlast_vocab::id::TurnId;
use outlast_vocab::policy::{Approval, ApprovalVerdict};
use outlast_vocab::record::Fact;
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Error, Kind, Millis};
use serde::Deserialize;

/// The recipients of links.
pub(crate) struct LinkRecipients<'a> {
    /// The turn that requests approval.
    pub(crate) turn: TurnId,
    /// When the links expire.
    pub(crate) expires: Millis,
    /// The sink that receives them. If anyone may approve, the vote is recorded in its name.
    pub(crate) sink: &'a str,
}

impl LinkRecipients<'_> {
    /// Returns a link to approve and a link to deny for each recipient.
    pub(crate) fn links(
        &self,
        request: &ApprovalRequest,
        server: &PublicUrl,
        secret: &[u8; 32],
    ) -> Vec<ApproverLinks> {
        let named = request.who.iter().filter_map(|name| name.parse().ok().map(Principal::Person));
        let mut all: Vec<Principal> = named.collect();
        if request.who.is_empty() {
            all.extend(self.sink.parse().ok().map(Principal::Service));
        }
        let address = |by: &Principal, says| {
            let (turn, question, expires) = (self.turn, request.id, self.expires);
            server.link(&ApprovalLink { turn, question, answer: says, by: by.clone(), expires }.sign(secret))
        };
        let links = |by| ApproverLinks {
            approve: address(&by, LinkAnswer::Approve),
            deny: address(&by, LinkAnswer::Deny),
            by,
        };
        all.into_iter().map(links).collect()
    }
}

/// An opened link: its request, and the vote it carries.
pub struct OpenedApprovalLink {
    runtime: Runtime,
    /// The vote.
    pub says: LinkAnswer,
    /// The voter.
    pub by: Principal,
    /// The request in its current state.
    pub question: ApprovalQuestion,
}

impl OpenedApprovalLink {
    /// Casts the vote. `reason` is shown to the model if the vote is a denial.
    pub async fn decide(self, reason: Option<String>) -> Result<VoteOutcome, Error> {
        let verdict = match self.says {
            LinkAnswer::Approve => ApprovalVerdict::Approve,
            LinkAnswer::Deny => {
                ApprovalVerdict::Deny { reason: reason.unwrap_or_else(|| "no reason was given".to_owned()) }
            }
        };
        let approval = Approval::new(self.by.name(), verdict);
        match self.runtime.approve(self.question.id, approval).await? {
            VoteOutcome::Decided(ResolveResult { first, is_yours: false }) => Err(used(&how(&first))),
            voted => Ok(voted),
        }
    }
}

impl Runtime {
    /// Opens a link that decides an approval request. Opening it decides nothing.
    pub async fn open_link(&self, text: &str) -> Result<OpenedApprovalLink, Error> {
        let link = ApprovalLink::open(text, &self.store().secret().await?)?;
        if self.now() >= link.expires {
            return Err(Error::new(Kind::LinkExpired, "this link has expired"));
        }
        let asks = match self.store().turn(link.turn).await {
            Err(error) if error.kind() == Kind::TurnNotFound => Err(gone()),
            turn => turn,
        }?;
        let org = self.store().session(asks.session).await?.org;
        let access = Access {
            visibility: OrgVisibility::Org(org),
            by: link.by.clone(),
            scopes: Scope::Approve.into(),
        };
        let runtime = self.serving(access);
        let question = match runtime.approvals().find(link.question).await {
            Err(error) if error.kind() == Kind::ApprovalNotFound => match runtime.decided(&link).await? {
                Some(how) => Err(used(&how)),
                None => Err(error),
            },
            found => found,
        }?;
        let ApprovalLink { answer: says, by, .. } = link;
        if question.decided {
            return Err(used("it is decided"));
        }
        if says == LinkAnswer::Approve && question.votes.iter().any(|vote| vote.by == by.name()) {
            return Err(used(&format!("{} has already approved it; it requires more approvals", by.name())));
        }
        Ok(OpenedApprovalLink { runtime, says, by, question })
    }

    /// Describes how the request of a link was decided.
    async fn decided(&self, link: &ApprovalLink) -> Result<Option<String>, Error> {
        let records = self.store().turn_records(link.turn).await?;
        let decided = records.iter().find_map(|record| match &record.fact {
            Fact::Resolved { key, resolution } if approval_id(link.turn, key) == link.question => {
                Some(how(resolution))
            }
            _ => None,
        });
        let ended = records.iter().any(|record| matches!(record.fact, Fact::Ended { .. }));
        Ok(decided.or_else(|| ended.then(|| "the turn of this approval has ended".to_owned())))
    }
}

fn gone() -> Error {
    Error::new(Kind::ApprovalNotFound, "the session of this approval was deleted")
}

fn used(how: &str) -> Error {
    Error::new(Kind::LinkUsed, format!("it is already decided: {how}"))
}

/// Describes a decision.
fn how(resolution: &Resolution) -> String {
    let approval = match resolution {
        Resolution::Ok(approval) => Approval::deserialize(approval).ok(),
        Resolution::Timeout => return "the request expired".to_owned(),
        Resolution::Err(_) | Resolution::Cancelled => return "the request was cancelled".to_owned(),
    };
    match approval.map(|Approval { by, verdict, .. }| (by, verdict)) {
        Some((by, ApprovalVerdict::Approve | ApprovalVerdict::ApproveForSession)) => {
            format!("{by} approved it")
        }
        Some((by, ApprovalVerdict::Edit { .. })) => format!("{by} approved it with other arguments"),
        Some((by, ApprovalVerdict::Deny { reason })) => format!("{by} denied it: {reason}"),
        None => "it is decided".to_owned(),
    }
}
