//! The streamable HTTP transport: MCP sessions, each bound to the caller that opened it, with limits on their number.
//!
//! The endpoint does not authenticate. Each request comes with the [`McpCaller`] that the caller was authenticated as.
use crate::mcp_extension::McpExtension;
use crate::server::McpServer;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use outlast_runtime::Runtime;
use outlast_vocab::access::Access;
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::{Error, Kind};
use rmcp::transport::streamable_http_server::session::SessionId;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::Span;

/// The header with the id of an MCP session.
const SESSION: &str = "mcp-session-id";

/// An authenticated caller.
#[derive(Clone)]
pub struct McpCaller {
    /// The handle with the caller's rights.
    pub runtime: Runtime,
    /// The span of the request. An MCP session answers in a separate task, which has no span.
    pub span: Span,
}

/// An MCP endpoint over HTTP.
pub struct McpEndpoint {
    service: StreamableHttpService<McpServer, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    /// The caller that opened each session. Other callers cannot use the session.
    owners: Mutex<HashMap<SessionId, Access>>,
    sessions_max: usize,
    sessions_per_caller_max: usize,
    closing: Arc<AtomicBool>,
}

impl McpEndpoint {
    /// Creates an endpoint that signs cursors with this secret. `mcp_extension` adds tools and resources of the program.
    pub fn new(secret: [u8; 32], limits: &ServerLimits, more: Option<McpExtension>) -> Self {
        let mut manager = LocalSessionManager::default();
        let mut session = SessionConfig::default();
        session.keep_alive = Some(limits.mcp_idle);
        manager.session_config = session;
        let sessions = Arc::new(manager);
        // The HTTP server in front of this endpoint checks the host and the origin.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_sse_keep_alive(Some(limits.heartbeat))
            .with_max_request_body_bytes(limits.body_bytes);
        let wait = limits.mcp_wait;
        let closing = Arc::<AtomicBool>::default();
        let closes = closing.clone();
        let make = move || Ok(McpServer::per_request(secret, wait, closes.clone(), more.clone()));
        let service = StreamableHttpService::new(make, sessions.clone(), config);
        let (sessions_max, sessions_per_caller_max) = (limits.mcp_sessions, limits.mcp_sessions_per_caller);
        Self { service, sessions, owners: Mutex::default(), sessions_max, sessions_per_caller_max, closing }
    }

    /// Answers a request of this caller.
    pub async fn answer<B>(
        &self,
        caller: McpCaller,
        mut request: Request<B>,
    ) -> Result<Response<impl Body<Data = Bytes, Error = Infallible> + Send + Sync + 'static>, Error>
    where
        B: Body + Send + 'static,
        B::Error: Display,
    {
        let access = caller.runtime.access().clone();
        if let Some(session) = session_of(request.headers())? {
            self.check_owner(&session, &access)?;
        }
        request.extensions_mut().insert(caller);
        let response = self.service.handle(request).await;
        if let Some(session) = session_of(response.headers())? {
            self.owners().insert(session, access);
        }
        Ok(response)
    }

    /// Closes every stream. Running turns continue without them.
    pub fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.service.config.cancellation_token.cancel();
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<SessionId, Access>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rejects a session of another caller with the error for a session that does not exist.
    fn check_owner(&self, session: &SessionId, access: &Access) -> Result<(), Error> {
        if self.owners().get(session).is_some_and(|owner| is_same_caller(owner, access)) {
            return Ok(());
        }
        Err(Error::new(Kind::RouteNotFound, "there is no such MCP session; open one with `initialize`"))
    }

    /// Removes the owners of closed sessions. Returns an error if there are too many sessions, or too many of this
    /// caller.
    pub async fn check_limits(&self, access: &Access) -> Result<(), Error> {
        let open: HashSet<SessionId> = self.sessions.sessions.read().await.keys().cloned().collect();
        let own = {
            let mut owners = self.owners();
            owners.retain(|session, _| open.contains(session));
            owners.values().filter(|owner| is_same_caller(owner, access)).count()
        };
        let (most, most_own) = (self.sessions_max, self.sessions_per_caller_max);
        if open.len() >= most {
            let detail = format!("mcp_sessions is limited to {most}, and so many are open");
            return Err(Error::new(Kind::ServerBusy, detail));
        }
        if own >= most_own {
            let detail = format!("mcp_sessions_per_caller is limited to {most_own}, and so many are open");
            return Err(Error::new(Kind::CallerBusy, detail));
        }
        Ok(())
    }
}

fn is_same_caller(owner: &Access, access: &Access) -> bool {
    owner.visibility == access.visibility && owner.by == access.by
}

fn session_of(headers: &HeaderMap) -> Result<Option<SessionId>, Error> {
    let Some(said) = headers.get(SESSION) else { return Ok(None) };
    let said = said
        .to_str()
        .map_err(|_| Error::new(Kind::InputInvalid, format!("the header `{SESSION}` is not plain text")))?;
    Ok(Some(SessionId::from(said)))
}
