//! Access control: who makes a request, what they may do, and in which organisation.
//!
//! Every request to a database carries an [`Access`]: the organisation whose rows are visible, the
//! [`Principal`] responsible for the request, and the [`Scopes`] that limit it. An external program proves
//! its access with an [`ApiKey`].
use crate::id::{KeyId, OrgId, SessionId};
use crate::message::{Name, shown};
use crate::{Error, Hash, Kind};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The identity behind a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Principal {
    /// A person.
    Person(Name),
    /// A program.
    Service(Name),
    /// The agent of a session. It can never approve anything, whatever its scopes.
    Agent(SessionId),
}

impl Principal {
    /// Returns the default principal of a program that embeds Outlast.
    pub fn program() -> Self {
        Self::Service(Name::ours("outlast"))
    }

    /// Returns the bare name, as it appears in lists of approvers.
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
                    "expected a caller like `person:ann`, `service:ci` or `agent:ses_…`, got `{}`",
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

/// A permission. A scope includes the scopes below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// View sessions, turns and waits.
    Read,
    /// Open sessions, send inputs, cancel turns, resolve waits, fork and rewind. Includes `read`.
    Run,
    /// Answer approval questions. Includes `read`.
    Approve,
    /// Settle calls of unknown outcome, retry stuck turns, set budgets, store agents, delete sessions.
    /// Includes `run`.
    Operate,
    /// Create and revoke API keys, read the audit log. Includes every scope.
    Admin,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 5] = [Self::Read, Self::Run, Self::Approve, Self::Operate, Self::Admin];

    /// Returns the name used in configuration and on the wire.
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

    /// Returns the bits of this scope and of the scopes it includes.
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

/// A set of scopes, with every scope that they include.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Scopes(u8);

impl Scopes {
    /// No scope.
    pub const NONE: Self = Self(0);
    /// Every scope.
    pub const ALL: Self = Self((1 << Scope::ALL.len()) - 1);

    /// Returns whether the set includes a scope.
    pub const fn allow(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// Returns the union of two sets.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the intersection of two sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns whether the other set includes all of these scopes.
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
    /// Writes the scopes that no other scope in the set includes, like `run,approve`.
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

/// The organisations whose rows are visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrgVisibility {
    /// All organisations: for workers and the operator of the database.
    Everything,
    /// One organisation.
    Org(OrgId),
}

impl OrgVisibility {
    /// Returns whether the rows of an organisation are visible.
    pub fn covers(self, org: OrgId) -> bool {
        match self {
            Self::Everything => true,
            Self::Org(own) => own == org,
        }
    }

    /// Returns the organisation of new sessions, in which session keys are looked up.
    pub const fn home(self) -> OrgId {
        match self {
            Self::Everything => OrgId::DEFAULT,
            Self::Org(own) => own,
        }
    }
}

/// The access of one request to a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The organisations whose rows are visible.
    pub visibility: OrgVisibility,
    /// The principal responsible for the request.
    pub by: Principal,
    /// What the request may do.
    pub scopes: Scopes,
}

impl Access {
    /// Returns full access to every organisation, as the program itself.
    pub fn operator() -> Self {
        Self { visibility: OrgVisibility::Everything, by: Principal::program(), scopes: Scopes::ALL }
    }

    /// Returns full access to one organisation, as the program itself.
    pub fn to(org: OrgId) -> Self {
        Self { visibility: OrgVisibility::Org(org), ..Self::operator() }
    }

    /// Returns the same access for another principal.
    #[must_use]
    pub fn by(self, by: Principal) -> Self {
        Self { by, ..self }
    }

    /// Returns `to`, limited to the scopes and organisations of this access. If both name an organisation,
    /// the result names the one of `to`. If the two differ, nothing belongs to both, so nothing is visible.
    #[must_use]
    pub fn limit_to(&self, to: Self) -> Self {
        let visibility = match to.visibility {
            OrgVisibility::Everything => self.visibility,
            OrgVisibility::Org(_) => to.visibility,
        };
        Self { visibility, by: to.by, scopes: to.scopes.and(self.scopes) }
    }

    /// Returns an error if the scopes do not include this one.
    pub fn require(&self, scope: Scope) -> Result<(), Error> {
        if self.scopes.allow(scope) {
            return Ok(());
        }
        let detail =
            format!("this requires the scope `{}`, but {} has `{}`", scope.name(), self.by, self.scopes);
        Err(Error::new(Kind::AccessDenied, detail))
    }

    /// Returns an error unless this is the operator of the database.
    pub fn require_operator(&self) -> Result<(), Error> {
        match self.visibility {
            OrgVisibility::Everything => Ok(()),
            OrgVisibility::Org(org) => {
                let detail =
                    format!("this requires an operator of the database, but {} belongs to {org}", self.by);
                Err(Error::new(Kind::AccessDenied, detail))
            }
        }
    }
}

/// An operation that the audit log records, as a person or program performed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditAction {
    /// Cancelled a turn.
    Cancel,
    /// Cancelled a turn and asked to undo its effects.
    Abort,
    /// Resolved a call or an event that a turn waits for.
    Resolve,
    /// Retried a stuck turn.
    Retry,
    /// Approved a call as it was shown.
    Approve,
    /// Denied a call.
    Deny,
    /// Approved a call with changed arguments.
    Edit,
    /// Approved a call, and similar calls for the rest of the session.
    Grant,
    /// Revoked an approval for the rest of a session.
    RevokeGrant,
    /// Settled the outcome of a call whose outcome was unknown.
    Settle,
    /// Forked a session.
    Fork,
    /// Moved a head back.
    Rewind,
    /// Deleted a session.
    Delete,
    /// Imported a session from a file.
    Import,
    /// Re-ran a session as a copy.
    Rerun,
    /// Re-ran a session with real calls.
    RerunLive,
    /// Retried deliveries that had been given up.
    Redeliver,
    /// Set a budget, or reset it to the agent's default.
    SetBudget,
    /// Stored a version of an agent, a harness or a capability.
    PutConfig,
    /// Deleted an agent, a harness or a capability.
    DeleteConfig,
    /// Created an organisation.
    CreateOrg,
    /// Created an API key.
    CreateKey,
    /// Revoked an API key.
    RevokeKey,
}

impl AuditAction {
    /// Returns the name in the audit log. It is the same in every version.
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

    /// Returns the scope that the operation requires.
    pub const fn required_scope(self) -> Scope {
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

/// An API key as its holder has it: `olk_`, the id of the key, and 256 random bits. The random bits are shown
/// once and stored nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// The id of the key.
    pub id: KeyId,
    secret: [u8; 32],
}

impl ApiKey {
    /// Creates a key from an id and random bytes.
    pub const fn new(id: KeyId, secret: [u8; 32]) -> Self {
        Self { id, secret }
    }

    /// Returns the hash that a database stores for the key, keyed with the secret of the database. It cannot
    /// be used as a key.
    pub fn seal(&self, database: &[u8; 32]) -> Hash {
        let id = self.id.to_u128().to_be_bytes();
        Hash::signed(database, "outlast api key v1", [id.as_slice(), self.secret.as_slice()])
    }

    /// Returns the key in its written form. Anyone who reads it can use it.
    pub fn reveal(&self) -> String {
        format!("olk_{:032x}{}", self.id.to_u128(), Hash::from_bytes(self.secret))
    }

    /// Returns the error for every invalid key. It does not say why the key is invalid.
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
    fn scope_includes_only_lower_scopes() {
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
    fn sealed_api_key_does_not_reveal_key() {
        let key = ApiKey::new(KeyId::from_u128(7), [0xab; 32]);
        let sealed = key.seal(&[1; 32]);
        assert_ne!(sealed.as_bytes(), &[0xab; 32]);
        assert_ne!(key.seal(&[2; 32]), sealed, "another database keeps another");
        assert_ne!(ApiKey::new(KeyId::from_u128(8), [0xab; 32]).seal(&[1; 32]), sealed);
        assert_eq!(format!("{key:?}"), "ApiKey(key_00000000000000000000000000000007)");
    }

    #[test]
    fn api_key_has_one_spelling_and_one_error() {
        let text = ApiKey::new(KeyId::from_u128(7), [0xab; 32]).reveal();
        assert_eq!(text.parse::<ApiKey>().unwrap().reveal(), text);
        let longer = format!("{text}0");
        for wrong in ["", "olk_", &text[1..], &text[..99], &longer, &text.to_uppercase()] {
            assert_eq!(wrong.parse::<ApiKey>().unwrap_err().to_string(), ApiKey::invalid().to_string());
        }
    }
}
