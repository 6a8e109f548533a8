//! Links that decide questions for approval: made for those who are asked, opened by whoever has one (R11.2).
//!
//! A link is the word of one person, and nothing more: what it opens has the scope `approve` in the organisation of its question, in
//! that person's name. Looking at it decides nothing.
use crate::approvals::Question;
use crate::worker::Runtime;
use outlast_ports::sink::{Asking, Links};
use outlast_ports::store::Resolved;
use outlast_ports::votes::Voted;
use outlast_vocab::access::{Access, Principal, Reach, Scope};
use outlast_vocab::approval::question_id;
use outlast_vocab::id::TurnId;
use outlast_vocab::link::{ApprovalLink, PublicUrl, Says};
use outlast_vocab::policy::{Approval, Verdict};
use outlast_vocab::record::Fact;
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Error, Kind, Millis};

/// Whom links are made for.
pub(crate) struct Recipients<'a> {
    /// The turn that asks.
    pub(crate) turn: TurnId,
    /// Until when the links count.
    pub(crate) expires: Millis,
    /// The sink that gets them: where anybody may approve, it answers for who does.
    pub(crate) sink: &'a str,
}

impl Recipients<'_> {
    /// A yes and a no for each.
    pub(crate) fn links(&self, asking: &Asking, server: &PublicUrl, secret: &[u8; 32]) -> Vec<Links> {
        let named = asking.who.iter().filter_map(|name| name.parse().ok().map(Principal::Person));
        let mut all: Vec<Principal> = named.collect();
        if asking.who.is_empty() {
            all.extend(self.sink.parse().ok().map(Principal::Service));
        }
        let address = |by: &Principal, says| {
            let (turn, question, expires) = (self.turn, asking.id, self.expires);
            server.link(&ApprovalLink { turn, question, says, by: by.clone(), expires }.sign(secret))
        };
        let links = |by| Links { approve: address(&by, Says::Approve), deny: address(&by, Says::Deny), by };
        all.into_iter().map(links).collect()
    }
}

/// A link that was opened: what it is about, and whose word it is.
pub struct Linked {
    runtime: Runtime,
    /// What it says.
    pub says: Says,
    /// Whose word it is.
    pub by: Principal,
    /// The question, exactly as it stands.
    pub question: Question,
}

impl Linked {
    /// Says the word. `reason` is what the model is told of a no.
    pub async fn decide(self, reason: Option<String>) -> Result<Voted, Error> {
        let verdict = match self.says {
            Says::Approve => Verdict::Approve,
            Says::Deny => {
                Verdict::Deny { reason: reason.unwrap_or_else(|| "no reason was given".to_owned()) }
            }
        };
        let approval = Approval::new(self.by.name(), verdict);
        match self.runtime.approve(self.question.id, approval).await? {
            Voted::Decided(Resolved { first, yours: false }) => Err(used(&how(&first))),
            voted => Ok(voted),
        }
    }
}

impl Runtime {
    /// Opens a link that decides a question. Nothing is decided by that.
    pub async fn open_link(&self, text: &str) -> Result<Linked, Error> {
        let link = ApprovalLink::open(text, &self.store().secret().await?)?;
        if self.now() >= link.expires {
            return Err(Error::new(Kind::LinkExpired, "the time of this link is over"));
        }
        let asks = match self.store().turn(link.turn).await {
            Err(error) if error.kind() == Kind::TurnNotFound => Err(gone()),
            turn => turn,
        }?;
        let org = self.store().session(asks.session).await?.org;
        let access = Access { reach: Reach::Org(org), by: link.by.clone(), scopes: Scope::Approve.into() };
        let runtime = self.serving(access);
        let question = match runtime.approvals().find(link.question).await {
            Err(error) if error.kind() == Kind::ApprovalNotFound => match runtime.decided(&link).await? {
                Some(how) => Err(used(&how)),
                None => Err(error),
            },
            found => found,
        }?;
        let ApprovalLink { says, by, .. } = link;
        if question.decided {
            return Err(used("it is decided"));
        }
        if says == Says::Approve && question.votes.iter().any(|vote| vote.by == by.name()) {
            return Err(used(&format!("{} has approved it already; it takes more of them", by.name())));
        }
        Ok(Linked { runtime, says, by, question })
    }

    /// What was decided of the question of a link, in words.
    async fn decided(&self, link: &ApprovalLink) -> Result<Option<String>, Error> {
        let records = self.store().turn_records(link.turn).await?;
        let decided = records.iter().find_map(|record| match &record.fact {
            Fact::Resolved { key, resolution } if question_id(link.turn, key) == link.question => {
                Some(how(resolution))
            }
            _ => None,
        });
        let ended = records.iter().any(|record| matches!(record.fact, Fact::Ended { .. }));
        Ok(decided.or_else(|| ended.then(|| "the turn that asked is over".to_owned())))
    }
}

fn gone() -> Error {
    Error::new(Kind::ApprovalNotFound, "the session that asked was deleted")
}

fn used(how: &str) -> Error {
    Error::new(Kind::LinkUsed, format!("there is nothing left to decide: {how}"))
}

/// How a question was decided, in words.
fn how(resolution: &Resolution) -> String {
    let approval = match resolution {
        Resolution::Ok(word) => serde_json::from_value::<Approval>(word.clone()).ok(),
        Resolution::Timeout => return "nobody answered in time".to_owned(),
        Resolution::Err(_) | Resolution::Cancelled => return "it was called off".to_owned(),
    };
    match approval.map(|Approval { by, verdict, .. }| (by, verdict)) {
        Some((by, Verdict::Approve | Verdict::ApproveForSession)) => format!("{by} approved it"),
        Some((by, Verdict::Edit { .. })) => format!("{by} approved it with other arguments"),
        Some((by, Verdict::Deny { reason })) => format!("{by} denied it: {reason}"),
        None => "it is decided".to_owned(),
    }
}
