//! Authenticates the caller of a request and limits what its handler can reach.
//!
//! The handler gets a `Runtime` that reaches only the caller's organisation, so it cannot leak data of
//! others.
use crate::door;
use crate::keys::Pass;
use crate::problem::Failed;
use crate::quota::Told;
use crate::room::Room;
use crate::server::Peer;
use crate::shared::Shared;
use crate::wire::refusal::{is_wire, takes_x_api_key};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use outlast_runtime::Runtime;
use outlast_vocab::access::{Access, ApiKey, Principal, Reach, Scope};
use outlast_vocab::{Error, Kind, OrgId};
use std::marker::PhantomData;

/// An authenticated caller that has a scope. The first argument of every handler, so that access is checked
/// before anything else is parsed.
pub(crate) struct Caller<S> {
    /// A handle of the worker that is limited to this caller.
    pub(crate) runtime: Runtime,
    /// Whether the caller authenticated with an API key.
    proved: bool,
    scope: PhantomData<S>,
}

/// The scope that a route requires.
pub(crate) trait Needs {
    const SCOPE: Scope;
}

macro_rules! scopes {
    ($($(#[$doc:meta])* $name:ident = $scope:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) enum $name {}

        impl Needs for $name {
            const SCOPE: Scope = Scope::$scope;
        }
    )*};
}

scopes! {
    /// May read.
    Reads = Read;
    /// May send inputs and cancel turns.
    Runs = Run;
    /// May decide approvals.
    Approves = Approve;
    /// May manage turns, budgets and agents.
    Operates = Operate;
    /// May create keys and read the audit.
    Administers = Admin;
}

impl<S> Caller<S> {
    /// Returns the caller, acting in the name of `by`. Without a key the caller may name any person, as in
    /// the terminal. With a key it can only name its own principal.
    pub(crate) fn named(self, by: Option<&str>) -> Result<Self, Error> {
        let Some(by) = by else { return Ok(self) };
        let access = self.runtime.access().clone();
        if access.by.name() == by {
            return Ok(self);
        }
        if self.proved {
            let detail = format!("{} cannot speak in the name of `{by}`", access.by);
            return Err(Error::new(Kind::ApprovalForbidden, detail));
        }
        let runtime = self.runtime.serving(access.by(Principal::Person(by.parse()?)));
        Ok(Self { runtime, ..self })
    }
}

/// An authenticated caller and its API key.
struct Admitted {
    access: Access,
    key: Option<ApiKey>,
}

impl<S> Caller<S> {
    /// Returns a worker handle that reaches every organisation, in the caller's name. Only keys of the
    /// default organisation, which operates the server, get one; `what` starts the error message for others.
    pub(crate) fn operator(&self, shared: &Shared, what: &str) -> Result<Runtime, Error> {
        let access = self.runtime.access();
        if access.reach.home() != OrgId::DEFAULT {
            return Err(Error::new(
                Kind::AccessDenied,
                format!("{what}; they are for the default one's keys"),
            ));
        }
        Ok(shared.runtime.serving(Access { reach: Reach::Everything, ..access.clone() }))
    }
}

impl<S: Needs> FromRequestParts<Shared> for Caller<S> {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Failed> {
        let Admitted { access, key } = match admitted(parts, shared).await {
            Err(error) if error.kind() == Kind::KeyInvalid && brings_key(&parts.headers) => {
                shared.strangers.count(parts.extensions.get::<Peer>().map(|Peer(address)| *address))?;
                return Err(error.into());
            }
            admitted => admitted?,
        };
        shared.quotas.count(key.as_ref().map(|key| key.id), parts.extensions.get::<Told>())?;
        let proved = key.is_some();
        if let (Some(key), Some(pass)) = (key, parts.extensions.get::<Pass>()) {
            pass.with(key);
        }
        access.need(S::SCOPE)?;
        if let Some(room) = parts.extensions.get::<Room>() {
            room.of(shared.asking.open(&access, &shared.limits)?);
        }
        Ok(Self { runtime: shared.runtime.serving(access), proved, scope: PhantomData })
    }
}

async fn admitted(parts: &Parts, shared: &Shared) -> Result<Admitted, Error> {
    let path = parts.uri.path();
    let key = match door::key(&parts.headers)? {
        None if takes_x_api_key(path) => door::x_api_key(&parts.headers)?,
        key => key,
    };
    match (key, shared.door.without_key(&parts.headers)) {
        // Clients of other providers always send a key. If this server requires none, ignore keys that are
        // not ours.
        (Some(key), Ok(access)) if is_wire(path) && !door::is_ours(key) => {
            Ok(Admitted { access: access.clone(), key: None })
        }
        (Some(key), _) => {
            let access = shared.runtime.admit(key).await?;
            Ok(Admitted { access, key: Some(key.parse()?) })
        }
        (None, access) => Ok(Admitted { access: access?.clone(), key: None }),
    }
}

/// Returns whether a request contains a key. A request without one is not an attempt to guess a key.
fn brings_key(headers: &HeaderMap) -> bool {
    headers.contains_key(header::AUTHORIZATION) || headers.contains_key("x-api-key")
}
