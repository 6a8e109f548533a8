//! Who asks, as the handle that serves them: what a handler cannot reach it cannot give away (R12.8).
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

/// A caller that has a scope. The first argument of every handler: who may not ask is told so before anything else is looked at.
pub(crate) struct Caller<S> {
    /// The worker, as this caller has it.
    pub(crate) runtime: Runtime,
    /// Whether the caller proved who they are.
    proved: bool,
    scope: PhantomData<S>,
}

/// What a route takes.
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
    /// Looks.
    Reads = Read;
    /// Sends inputs and stops turns.
    Runs = Run;
    /// Answers questions for approval.
    Approves = Approve;
    /// Looks after turns, budgets and agents.
    Operates = Operate;
    /// Makes keys and reads the audit.
    Administers = Admin;
}

impl<S> Caller<S> {
    /// In whose name something is done: the caller's own. Who came without a key may name somebody, as at the terminal.
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

/// A caller who was let in, and the key that proves who they are.
struct Admitted {
    access: Access,
    key: Option<ApiKey>,
}

impl<S> Caller<S> {
    /// The worker over every organisation, in the caller's name. For keys of the default organisation, whose the server is;
    /// `what` says why others are refused.
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
        // Clients of other providers cannot come without a key; where nobody needs one, any that is none of ours is none.
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

/// Whether a request tries a key. One that brings none guesses nothing.
fn brings_key(headers: &HeaderMap) -> bool {
    headers.contains_key(header::AUTHORIZATION) || headers.contains_key("x-api-key")
}
