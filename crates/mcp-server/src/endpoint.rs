//! Streamable HTTP: the sessions of the protocol, each for whoever opened it, and no more than so many.
//!
//! Who may come in is decided before: an endpoint takes requests with the [`Guest`] they were let in as.
use crate::more::More;
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
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The header that names a session of the protocol.
const SESSION: &str = "mcp-session-id";

/// Whoever asks, as the handle that serves them.
#[derive(Clone)]
pub struct Guest(pub Runtime);

/// Where MCP is spoken over HTTP.
pub struct Endpoint {
    service: StreamableHttpService<McpServer, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    /// Who opened each session: nobody else goes on with it (S35).
    owners: Mutex<HashMap<SessionId, Access>>,
    most: usize,
    closing: Arc<AtomicBool>,
}

impl Endpoint {
    /// One that signs with this secret, and offers more than agents and sessions if a program has more.
    pub fn new(secret: [u8; 32], limits: &ServerLimits, more: Option<More>) -> Self {
        let mut manager = LocalSessionManager::default();
        let mut session = SessionConfig::default();
        session.keep_alive = Some(limits.mcp_idle);
        manager.session_config = session;
        let sessions = Arc::new(manager);
        // By which name and from which page a request may come is decided at the door.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_sse_keep_alive(Some(limits.heartbeat))
            .with_max_request_body_bytes(limits.body_bytes);
        let wait = limits.mcp_wait;
        let closing = Arc::<AtomicBool>::default();
        let closes = closing.clone();
        let make = move || Ok(McpServer::of_guests(secret, wait, closes.clone(), more.clone()));
        let service = StreamableHttpService::new(make, sessions.clone(), config);
        Self { service, sessions, owners: Mutex::default(), most: limits.mcp_sessions, closing }
    }

    /// Answers a request of this guest.
    pub async fn answer<B>(
        &self,
        guest: Guest,
        mut request: Request<B>,
    ) -> Result<Response<impl Body<Data = Bytes, Error = Infallible> + Send + Sync + 'static>, Error>
    where
        B: Body + Send + 'static,
        B::Error: Display,
    {
        let access = guest.0.access().clone();
        match session_of(request.headers())? {
            Some(session) => self.check_owner(&session, &access)?,
            None => self.make_room().await?,
        }
        request.extensions_mut().insert(guest);
        let response = self.service.handle(request).await;
        if let Some(session) = session_of(response.headers())? {
            self.owners().insert(session, access);
        }
        Ok(response)
    }

    /// Ends every stream. What calls have begun goes on without them.
    pub fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.service.config.cancellation_token.cancel();
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<SessionId, Access>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session of somebody else is one that was never given out.
    fn check_owner(&self, session: &SessionId, access: &Access) -> Result<(), Error> {
        let owned = self
            .owners()
            .get(session)
            .is_some_and(|owner| owner.reach == access.reach && owner.by == access.by);
        if owned {
            return Ok(());
        }
        Err(Error::new(Kind::RouteNotFound, "there is no such MCP session; open one with `initialize`"))
    }

    /// Forgets who opened sessions that are over, and refuses one more if there are too many.
    async fn make_room(&self) -> Result<(), Error> {
        let open: Vec<SessionId> = self.sessions.sessions.read().await.keys().cloned().collect();
        self.owners().retain(|session, _| open.contains(session));
        if open.len() < self.most {
            return Ok(());
        }
        let detail = format!("mcp_sessions is limited to {}, and so many are open", self.most);
        Err(Error::new(Kind::ServerBusy, detail))
    }
}

fn session_of(headers: &HeaderMap) -> Result<Option<SessionId>, Error> {
    let Some(said) = headers.get(SESSION) else { return Ok(None) };
    let said = said
        .to_str()
        .map_err(|_| Error::new(Kind::InputInvalid, format!("the header `{SESSION}` is not plain text")))?;
    Ok(Some(SessionId::from(said)))
}
