//! Who asks, what they may do, and in which organisation (R12.8).
//!
//! Whoever reaches a database does so with an [`Access`]: the organisation whose rows are shown, the [`Principal`] who
//! answers for what is done, and the [`Scopes`] that bound it. An [`ApiKey`] is how a program outside proves that it has
//! one.
use crate::id::{KeyId, OrgId, SessionId};
use crate::message::{Name, shown};
use crate::{Error, Hash, Kind};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Who does something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Principal {
    /// A person.
    Person(Name),
    /// A program.
    Service(Name),
    /// The agent of a session. It never approves anything, whatever its scopes say.
    Agent(SessionId),
}

impl Principal {
    /// The program that embeds Outlast, where it says nothing else.
    pub fn program() -> Self {
        Self::Service(Name::ours("outlast"))
    }

    /// The name alone, as it stands in lists of who may approve.
    pub fn name(&self) -> String {
        match self {
            Self::Person(name) | Self::Service(name) => name.to_string(),
            Self::Agent(session) => session.to_string(),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person(name) => write!(f, "person:{name}"),
            Self::Service(name) => write!(f, "service:{name}"),
            Self::Agent(session) => write!(f, "agent:{session}"),
        }
    }
}

impl FromStr for Principal {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once(':') {
            Some(("person", name)) => name.parse().map(Self::Person),
            Some(("service", name)) => name.parse().map(Self::Service),
            Some(("agent", session)) => Ok(Self::Agent(session.parse()?)),
            _ => {
                let detail = format!(
                    "expected who acts, like `person:ann`, `service:ci` or `agent:ses_…`, got `{}`",
                    shown(text)
                );
                Err(Error::new(Kind::InputInvalid, detail))
            }
        }
    }
}

impl TryFrom<String> for Principal {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Principal> for String {
    fn from(principal: Principal) -> Self {
        principal.to_string()
    }
}

/// One thing that may be done. Each stands above others, which whoever has it may do as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Look at sessions, turns and what waits.
    Read,
    /// Open sessions, send inputs, stop turns, finish what they wait for, fork and rewind. Above `read`.
    Run,
    /// Answer questions for approval. Above `read`.
    Approve,
    /// Settle calls of unknown outcome, let stuck turns try again, set budgets, keep agents, delete sessions. Above `run`.
    Operate,
    /// Make and revoke API keys, read the audit. Above everything.
    Admin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 5] = [Self::Read, Self::Run, Self::Approve, Self::Operate, Self::Admin];

    /// How it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Approve => "approve",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// It and those it stands above.
    const fn bits(self) -> u8 {
        let below = match self {
            Self::Read => 0,
            Self::Run | Self::Approve => Self::Read.bit(),
            Self::Operate => Self::Read.bit() | Self::Run.bit(),
            Self::Admin => Scopes::ALL.0,
        };
        self.bit() | below
    }
}

impl FromStr for Scope {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|scope| scope.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::new(Kind::InputInvalid, format!("expected a scope ({names}), got `{}`", shown(text)))
        })
    }
}

/// What somebody may do: some scopes, and with each those it stands above.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Scopes(u8);

impl Scopes {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Everything.
    pub const ALL: Self = Self((1 << Scope::ALL.len()) - 1);

    /// Whether it may be done.
    pub const fn allow(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// What either of the two may do.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What both of the two may do.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the other may do all of it.
    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
}

impl From<Scope> for Scopes {
    fn from(scope: Scope) -> Self {
        Self(scope.bits())
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        scopes.into_iter().map(Self::from).fold(Self::NONE, Self::or)
    }
}

impl fmt::Display for Scopes {
    /// Those that no other one stands above, like `run,approve`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let had = || Scope::ALL.into_iter().filter(|scope| self.allow(*scope));
        let highest =
            had().filter(|scope| !had().any(|above| above != *scope && above.bits() & scope.bit() != 0));
        let names: Vec<&str> = highest.map(Scope::name).collect();
        f.write_str(&names.join(","))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}

impl FromStr for Scopes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.split(',').filter(|name| !name.is_empty()).map(str::parse::<Scope>).collect()
    }
}

impl TryFrom<String> for Scopes {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Scopes> for String {
    fn from(scopes: Scopes) -> Self {
        scopes.to_string()
    }
}

/// Whose rows are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Those of every organisation: for workers, and for whoever operates the database.
    Everything,
    /// Those of one organisation.
    Org(OrgId),
}

impl Reach {
    /// Whether what belongs to this organisation is shown.
    pub fn covers(self, org: OrgId) -> bool {
        match self {
            Self::Everything => true,
            Self::Org(own) => own == org,
        }
    }

    /// The organisation that new sessions belong to, and whose keys of sessions are meant.
    pub const fn home(self) -> OrgId {
        match self {
            Self::Everything => OrgId::DEFAULT,
            Self::Org(own) => own,
        }
    }
}

/// With what somebody reaches a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Whose rows are shown.
    pub reach: Reach,
    /// Who answers for what is done.
    pub by: Principal,
    /// What may be done.
    pub scopes: Scopes,
}

impl Access {
    /// Everything, in every organisation, by the program itself.
    pub fn operator() -> Self {
        Self { reach: Reach::Everything, by: Principal::program(), scopes: Scopes::ALL }
    }

    /// Everything in one organisation, by the program itself.
    pub fn to(org: OrgId) -> Self {
        Self { reach: Reach::Org(org), ..Self::operator() }
    }

    /// The same, by somebody else.
    #[must_use]
    pub fn by(self, by: Principal) -> Self {
        Self { by, ..self }
    }

    /// The other as far as this one goes. Of two organisations the other's is named; nothing belongs to both, so nothing
    /// is shown.
    #[must_use]
    pub fn narrowed(&self, to: Self) -> Self {
        let reach = match to.reach {
            Reach::Everything => self.reach,
            Reach::Org(_) => to.reach,
        };
        Self { reach, by: to.by, scopes: to.scopes.and(self.scopes) }
    }

    /// Refuses what the scopes do not hold.
    pub fn need(&self, scope: Scope) -> Result<(), Error> {
        if self.scopes.allow(scope) {
            return Ok(());
        }
        let detail =
            format!("this takes the scope `{}`, and {} has `{}`", scope.name(), self.by, self.scopes);
        Err(Error::new(Kind::AccessDenied, detail))
    }

    /// Refuses who is not the operator of the database.
    pub fn need_everything(&self) -> Result<(), Error> {
        match self.reach {
            Reach::Everything => Ok(()),
            Reach::Org(org) => {
                let detail =
                    format!("this is for the operator of the database, and {} serves {org}", self.by);
                Err(Error::new(Kind::AccessDenied, detail))
            }
        }
    }
}

/// What a person or a program did to what others did, as the audit names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Asked a turn to stop.
    Cancel,
    /// Asked a turn to stop and to take back what it did.
    Abort,
    /// Finished a call or an event that a turn waits for.
    Resolve,
    /// Let a stuck turn try again.
    Retry,
    /// Let a call run as it was shown.
    Approve,
    /// Kept a call from running.
    Deny,
    /// Let a call run with other arguments.
    Edit,
    /// Let a call run, and those like it for the rest of its session.
    Grant,
    /// Ended what was approved for the rest of a session.
    RevokeGrant,
    /// Said how a call of unknown outcome went.
    Settle,
    /// Branched a session.
    Fork,
    /// Moved a head back.
    Rewind,
    /// Deleted a session.
    Delete,
    /// Took a session in from a file.
    Import,
    /// Ran a session again, beside itself.
    Rerun,
    /// Ran a session again with calls that are real.
    RerunLive,
    /// Gave outputs that were given up another chance.
    Redeliver,
    /// Set a budget, or went back to what its agent says.
    SetBudget,
    /// Kept a version of an agent, a harness or a capability.
    PutConfig,
    /// Deleted an agent, a harness or a capability.
    DeleteConfig,
    /// Made an organisation.
    CreateOrg,
    /// Made an API key.
    CreateKey,
    /// Revoked an API key.
    RevokeKey,
}

impl Act {
    /// How it stands in the audit; the same in every version.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cancel => "turn.cancel",
            Self::Abort => "turn.abort",
            Self::Resolve => "wait.resolve",
            Self::Retry => "turn.retry",
            Self::Approve => "approval.approve",
            Self::Deny => "approval.deny",
            Self::Edit => "approval.edit",
            Self::Grant => "approval.grant",
            Self::RevokeGrant => "approval.revoke",
            Self::Settle => "call.settle",
            Self::Fork => "session.fork",
            Self::Rewind => "session.rewind",
            Self::Delete => "session.delete",
            Self::Import => "session.import",
            Self::Rerun => "session.rerun",
            Self::RerunLive => "session.rerun_live",
            Self::Redeliver => "sink.retry",
            Self::SetBudget => "budget.set",
            Self::PutConfig => "config.put",
            Self::DeleteConfig => "config.delete",
            Self::CreateOrg => "org.create",
            Self::CreateKey => "key.create",
            Self::RevokeKey => "key.revoke",
        }
    }

    /// What it takes.
    pub const fn needs(self) -> Scope {
        match self {
            Self::Cancel | Self::Abort | Self::Resolve | Self::Fork | Self::Rewind | Self::Rerun => {
                Scope::Run
            }
            Self::Approve | Self::Deny | Self::Edit | Self::Grant | Self::RevokeGrant => Scope::Approve,
            Self::Settle
            | Self::Retry
            | Self::Delete
            | Self::Import
            | Self::RerunLive
            | Self::Redeliver
            | Self::SetBudget
            | Self::PutConfig
            | Self::DeleteConfig => Scope::Operate,
            Self::CreateOrg | Self::CreateKey | Self::RevokeKey => Scope::Admin,
        }
    }
}

/// An API key as its holder has it: `olk_`, the key's id, and 256 random bits that are shown once and kept nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Which key it is.
    pub id: KeyId,
    secret: [u8; 32],
}

impl ApiKey {
    /// The key with this id and these random bytes.
    pub const fn new(id: KeyId, secret: [u8; 32]) -> Self {
        Self { id, secret }
    }

    /// What a database keeps of it, under a secret of its own. It opens nothing.
    pub fn seal(&self, database: &[u8; 32]) -> Hash {
        let id = self.id.to_u128().to_be_bytes();
        Hash::signed(database, "outlast api key v1", [id.as_slice(), self.secret.as_slice()])
    }

    /// The key as its holder writes it. Whoever reads it can use it.
    pub fn reveal(&self) -> String {
        format!("olk_{:032x}{}", self.id.to_u128(), Hash::from_bytes(self.secret))
    }

    /// The one answer to every key that opens nothing.
    pub fn invalid() -> Error {
        Error::new(Kind::KeyInvalid, "the API key is not known, has expired or was revoked")
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({})", self.id)
    }
}

impl FromStr for ApiKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            let (id, secret) = text.strip_prefix("olk_")?.split_at_checked(32)?;
            let id = format!("{}_{id}", KeyId::NOUN.prefix).parse().ok()?;
            let secret: Hash = secret.parse().ok()?;
            Some(Self { id, secret: *secret.as_bytes() })
        };
        parse().ok_or_else(Self::invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_reads_back_as_it_is_written() {
        for text in ["person:ann b", "service:ci", "agent:ses_00000000000000000000000000000007", "person:a:b"]
        {
            assert_eq!(text.parse::<Principal>().unwrap().to_string(), text);
        }
        for text in ["", "ann", "person:", "robot:x", "agent:ann", "person:a\nb"] {
            let kind = text.parse::<Principal>().unwrap_err().kind();
            assert!(matches!(kind, Kind::InputInvalid | Kind::IdInvalid), "{text}");
        }
    }

    #[test]
    fn a_scope_holds_those_it_stands_above_and_no_others() {
        let held = |scope: Scope| {
            let held = Scope::ALL.into_iter().filter(|below| Scopes::from(scope).allow(*below));
            held.map(Scope::name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            Scope::ALL.map(held),
            ["read", "read run", "read approve", "read run operate", "read run approve operate admin"]
        );
        assert_eq!("approve,run".parse::<Scopes>().unwrap().to_string(), "run,approve");
        assert_eq!("".parse::<Scopes>().unwrap(), Scopes::NONE);
        assert_eq!(
            "write".parse::<Scopes>().unwrap_err().detail(),
            "expected a scope (read, run, approve, operate, admin), got `write`"
        );
    }

    #[test]
    fn what_a_database_keeps_of_an_api_key_does_not_hold_it() {
        let key = ApiKey::new(KeyId::from_u128(7), [0xab; 32]);
        let sealed = key.seal(&[1; 32]);
        assert_ne!(sealed.as_bytes(), &[0xab; 32]);
        assert_ne!(key.seal(&[2; 32]), sealed, "another database keeps another");
        assert_ne!(ApiKey::new(KeyId::from_u128(8), [0xab; 32]).seal(&[1; 32]), sealed);
        assert_eq!(format!("{key:?}"), "ApiKey(key_00000000000000000000000000000007)");
    }

    #[test]
    fn an_api_key_has_one_spelling_and_every_other_text_gets_the_same_answer() {
        let text = ApiKey::new(KeyId::from_u128(7), [0xab; 32]).reveal();
        assert_eq!(text.parse::<ApiKey>().unwrap().reveal(), text);
        let longer = format!("{text}0");
        for wrong in ["", "olk_", &text[1..], &text[..99], &longer, &text.to_uppercase()] {
            assert_eq!(wrong.parse::<ApiKey>().unwrap_err().to_string(), ApiKey::invalid().to_string());
        }
    }
}
