//! Authenticates the caller of a request and limits what its handler can reach.
//!
//! The handler gets a `Runtime` that reaches only the caller's organisation, so it cannot leak data of
//! others.
use crate::HttpState;
use crate::admission_control::RequestPermits;
use crate::key_watch::RequestKey;
use crate::problem::ApiError;
use crate::rate_limit::RequestQuota;
use crate::request_auth;
use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use outlast_runtime::Runtime;
use outlast_vocab::access::{Access, ApiKey, OrgVisibility, Principal, Scope};
use outlast_vocab::{Error, Kind, OrgId};
use std::marker::PhantomData;
use std::net::IpAddr;

/// The address of the client, in the extensions of a request.
#[derive(Clone, Copy)]
pub struct Peer(pub IpAddr);

/// Marks requests of clients that were written for the API of another provider, in their extensions.
#[derive(Clone, Copy)]
pub struct CompatClient {
    /// Whether it may send its key as `x-api-key`.
    pub sends_x_api_key: bool,
}

/// An authenticated caller that has a scope. The first argument of every handler, so that access is checked
/// before anything else is parsed.
pub struct Caller<S> {
    /// A handle of the worker that is limited to this caller.
    pub runtime: Runtime,
    /// Whether the caller authenticated with an API key.
    has_key: bool,
    scope: PhantomData<S>,
}

/// The scope that a route requires.
pub trait RequiredScope {
    /// The scope.
    const SCOPE: Scope;
}

macro_rules! scopes {
    ($($(#[$doc:meta])* $name:ident = $scope:ident;)*) => {$(
        $(#[$doc])*
        pub enum $name {}

        impl RequiredScope for $name {
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
    pub fn acting_as(self, by: Option<&str>) -> Result<Self, Error> {
        let Some(by) = by else { return Ok(self) };
        let access = self.runtime.access().clone();
        if access.by.name() == by {
            return Ok(self);
        }
        if self.has_key {
            let detail = format!("{} cannot act in the name of `{by}`", access.by);
            return Err(Error::new(Kind::ApprovalForbidden, detail));
        }
        let runtime = self.runtime.serving(access.by(Principal::Person(by.parse()?)));
        Ok(Self { runtime, ..self })
    }
}

/// An authenticated caller and its API key.
struct AuthenticatedAccess {
    access: Access,
    key: Option<ApiKey>,
}

impl<S> Caller<S> {
    /// Returns a worker handle that reaches every organisation, in the caller's name. Only keys of the
    /// default organisation, which operates the server, get one; `what` starts the error message for others.
    pub fn operator(&self, shared: &HttpState, what: &str) -> Result<Runtime, Error> {
        let access = self.runtime.access();
        if access.visibility.home() != OrgId::DEFAULT {
            return Err(Error::new(
                Kind::AccessDenied,
                format!("{what}; they are for the default one's keys"),
            ));
        }
        Ok(shared.runtime.serving(Access { visibility: OrgVisibility::Everything, ..access.clone() }))
    }
}

impl<State, S> FromRequestParts<State> for Caller<S>
where
    State: Send + Sync,
    HttpState: FromRef<State>,
    S: RequiredScope,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &State) -> Result<Self, ApiError> {
        let shared = HttpState::from_ref(state);
        let AuthenticatedAccess { access, key } = match authenticate(parts, &shared).await {
            Err(error) if error.kind() == Kind::KeyInvalid && has_key_header(&parts.headers) => {
                shared.invalid_keys.count(parts.extensions.get::<Peer>().map(|Peer(address)| *address))?;
                return Err(error.into());
            }
            admitted => admitted?,
        };
        shared.quotas.count(key.as_ref().map(|key| key.id), parts.extensions.get::<RequestQuota>())?;
        let proved = key.is_some();
        if let (Some(key), Some(pass)) = (key, parts.extensions.get::<RequestKey>()) {
            pass.record(key);
        }
        access.require(S::SCOPE)?;
        if let Some(permits) = parts.extensions.get::<RequestPermits>() {
            permits.attach_caller(shared.caller_requests.open(&access, &shared.limits)?);
        }
        Ok(Self { runtime: shared.runtime.serving(access), has_key: proved, scope: PhantomData })
    }
}

async fn authenticate(parts: &Parts, shared: &HttpState) -> Result<AuthenticatedAccess, Error> {
    let compat = parts.extensions.get::<CompatClient>();
    let key = match request_auth::key(&parts.headers)? {
        None if compat.is_some_and(|client| client.sends_x_api_key) => {
            request_auth::x_api_key(&parts.headers)?
        }
        key => key,
    };
    match (key, shared.origin_policy.without_key(&parts.headers)) {
        // Clients of other providers always send a key. If this server requires none, ignore keys that are
        // not ours.
        (Some(key), Ok(access)) if compat.is_some() && !request_auth::is_outlast_key(key) => {
            Ok(AuthenticatedAccess { access: access.clone(), key: None })
        }
        (Some(key), _) => {
            let access = shared.runtime.admit(key).await?;
            Ok(AuthenticatedAccess { access, key: Some(key.parse()?) })
        }
        (None, access) => Ok(AuthenticatedAccess { access: access?.clone(), key: None }),
    }
}

/// Returns whether a request contains a key. A request without one is not an attempt to guess a key.
fn has_key_header(headers: &HeaderMap) -> bool {
    headers.contains_key(header::AUTHORIZATION) || headers.contains_key("x-api-key")
}
