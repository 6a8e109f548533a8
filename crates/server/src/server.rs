//! The server: accepts connections, answers requests, and shuts down gracefully.
use crate::api::router;
use crate::connections::{ActiveRequest, IdleConnections};
use crate::cost_cache::CostCache;
use crate::head_parser::{HeadCheckedStream, HeadRejection, rejection_response};
use crate::mcp::{McpEndpoint, McpExtension};
use crate::metrics::HttpMetrics;
use crate::rerun::{RerunLimiter, Rerunner};
use crate::server_state::{ServerState, ServerStateInner};
use crate::session_broadcast::SessionBroadcasts;
use crate::unread_body::TrackedBody;
use crate::write_timeout::WriteTimeoutStream;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use futures_util::StreamExt;
use futures_util::future::{self, Either};
use futures_util::stream::FuturesUnordered;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use outlast_http::admission_control::AdmissionControl;
use outlast_http::caller::Peer;
use outlast_http::caller_limits::{CallerRequestLimiter, StreamLimiter};
use outlast_http::key_watch::WatchedKeys;
use outlast_http::open_requests::OpenRequests;
use outlast_http::problem::{self, BUSY_RETRY_AFTER};
use outlast_http::rate_limit::{InvalidKeyLimiter, RequestRateLimiter};
use outlast_http::request_auth::OriginPolicy;
use outlast_http::{HttpState, HttpStateInner};
use outlast_ports::metrics::MetricsSnapshot;
use outlast_runtime::Runtime;
use outlast_vocab::access::Access;
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::{Error, Kind, OrgId};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// How long to wait before accepting again after an error of the operating system, such as too many open
/// files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// How long a rejected client may take to read the answer.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum number of clients that are being rejected with an answer, and of clients that wait for a slot.
/// Further ones are closed without an answer.
const MAX_REJECTIONS: usize = 64;

/// How long an evicted idle connection may take to close.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a connection must be idle before it can be evicted.
const MIN_IDLE: Duration = Duration::from_millis(50);

/// How long a connection may take to send its first request during shutdown. Every accepted connection is
/// answered.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// A server that is bound to its address but does not answer yet.
pub struct Server {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    home: OrgId,
    origin_policy: OriginPolicy,
    limits: ServerLimits,
    worker_metrics: Option<fn(&MetricsSnapshot) -> String>,
    mcp_extension: Option<McpExtension>,
    rerunner: Option<Rerunner>,
}

impl Server {
    /// Binds to an address.
    ///
    /// Fails if other machines can reach the address and the database contains no valid API key. Without
    /// keys, either no caller or every caller could use the server.
    pub async fn bind(runtime: &Runtime, address: SocketAddr, local: Access) -> Result<Self, Error> {
        let runtime = runtime.serving(Access::operator());
        check_keys(&runtime, address).await?;
        let unbound = |cause: std::io::Error| {
            Error::new(Kind::IoFailed, format!("cannot listen on {address}: {cause}")).because(cause)
        };
        let listener = TcpListener::bind(address).await.map_err(unbound)?;
        let address = listener.local_addr().map_err(unbound)?;
        Ok(Self::with_listener(runtime, listener, address, local))
    }

    /// Like [`Server::bind`], on a socket that is already listening, such as that of a process which this one
    /// replaces.
    pub async fn from_socket(
        runtime: &Runtime,
        socket: std::net::TcpListener,
        local: Access,
    ) -> Result<Self, Error> {
        let runtime = runtime.serving(Access::operator());
        let useless = |cause: std::io::Error| {
            Error::new(Kind::IoFailed, format!("the socket cannot be used: {cause}")).because(cause)
        };
        let address = socket.local_addr().map_err(useless)?;
        check_keys(&runtime, address).await?;
        socket.set_nonblocking(true).map_err(useless)?;
        let listener = TcpListener::from_std(socket).map_err(useless)?;
        Ok(Self::with_listener(runtime, listener, address, local))
    }

    fn with_listener(runtime: Runtime, listener: TcpListener, address: SocketAddr, local: Access) -> Self {
        let home = local.visibility.home();
        let (origin_policy, limits) = (OriginPolicy::for_address(address, local), ServerLimits::default());
        let (worker_metrics, mcp_extension, rerunner) = (None, None, None);
        Self {
            runtime,
            listener,
            address,
            home,
            origin_policy,
            limits,
            worker_metrics,
            mcp_extension,
            rerunner,
        }
    }

    /// Returns the socket, for a process that replaces this one.
    pub fn socket(&self) -> std::io::Result<std::net::TcpListener> {
        Ok(self.listener.as_fd().try_clone_to_owned()?.into())
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes which requests the server lets in.
    #[must_use]
    pub fn origin_policy(mut self, change: impl FnOnce(OriginPolicy) -> OriginPolicy) -> Self {
        self.origin_policy = change(self.origin_policy);
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: ServerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Adds the metrics of the worker to `/metrics`. `write` formats them for Prometheus.
    #[must_use]
    pub fn worker_metrics(mut self, write: fn(&MetricsSnapshot) -> String) -> Self {
        self.worker_metrics = Some(write);
        self
    }

    /// Offers MCP clients tools, resources and prompts in addition to the agents.
    #[must_use]
    pub fn mcp(mut self, more: McpExtension) -> Self {
        self.mcp_extension = Some(more);
        self
    }

    /// Lets callers run sessions again with the agents of this program.
    #[must_use]
    pub fn rerunner(mut self, by: Rerunner) -> Self {
        self.rerunner = Some(by);
        self
    }

    /// Answers requests until `stop` completes. Then it accepts no new connections, ends streams, and
    /// finishes requests, including the first request of each accepted connection. The worker keeps running:
    /// the caller shuts it down.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let Self {
            runtime,
            listener,
            home,
            origin_policy: policy,
            limits,
            worker_metrics: exposition,
            mcp_extension: more,
            rerunner,
            ..
        } = self;
        let (stopping, stops) = watch::channel(false);
        let secret = runtime.store().secret().await?;
        let http = HttpState::new(HttpStateInner {
            open_requests: OpenRequests::new(runtime.clone(), &limits),
            runtime,
            origin_policy: policy,
            limits: limits.clone(),
            streams: StreamLimiter::default(),
            caller_requests: CallerRequestLimiter::default(),
            invalid_keys: InvalidKeyLimiter::new(limits.wrong_keys_per_minute),
            quotas: RequestRateLimiter::new(limits.requests_per_minute),
            stopping: stops,
        });
        let shared = ServerState::new(ServerStateInner {
            http,
            home,
            secret,
            metrics: HttpMetrics::default(),
            broadcasts: SessionBroadcasts::default(),
            admission: AdmissionControl::new(&limits),
            keys: WatchedKeys::default(),
            mcp: McpEndpoint::new(secret, &limits, more),
            reruns: RerunLimiter::new(rerunner, limits.reruns),
            verifications: Semaphore::new(limits.verifications),
            cost_cache: CostCache::default(),
            worker_metrics: exposition,
        });
        let line = ConnectionHandler {
            service: TowerToHyperService::new(router(shared.clone())),
            stopping: watch::Sender::new(false),
            slots: Arc::new(Semaphore::new(limits.connections)),
            idle: IdleConnections::default(),
            limits: Arc::new(limits.clone()),
        };
        let looked_at = shared.keys.run_checks(&shared.http.runtime);
        tokio::pin!(stop, looked_at);
        let (mut turned_away, mut waiting) = (FuturesUnordered::new(), FuturesUnordered::new());
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                never = &mut looked_at => match never {},
                Some(()) = turned_away.next() => {}
                Some((stream, peer, permit)) = waiting.next() => match permit {
                    Some(slot) => line.spawn_connection(AcceptedConnection { stream, peer, slot }),
                    None => turned_away.push(reject_connection(stream, limits.connections)),
                },
                (stream, peer) = accept(&listener) => match line.slots.clone().try_acquire_owned() {
                    Ok(slot) => line.spawn_connection(AcceptedConnection { stream, peer, slot }),
                    Err(_) if waiting.len() < MAX_REJECTIONS => {
                        let permit = line.wait_for_slot();
                        waiting.push(async move { (stream, peer, permit.await) });
                    }
                    Err(_) if turned_away.len() < MAX_REJECTIONS => turned_away.push(reject_connection(stream, limits.connections)),
                    Err(_) => drop(stream),
                },
            }
        }
        drop(listener);
        while let Some((stream, peer, permit)) = waiting.next().await {
            if let Some(permit) = permit {
                line.spawn_connection(AcceptedConnection { stream, peer, slot: permit });
            }
        }
        stopping.send_replace(true);
        shared.mcp.close();
        let rejections = async { while turned_away.next().await.is_some() {} };
        tokio::select! {
            _ = future::join(line.stop(), rejections) => {}
            () = tokio::time::sleep(limits.drain) => tracing::warn!("requests were interrupted by the shutdown"),
        }
        Ok(())
    }
}

/// Rejects an address that other machines can reach if there is no valid API key.
async fn check_keys(runtime: &Runtime, address: SocketAddr) -> Result<(), Error> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let now = runtime.now();
    let keys = runtime.store().keys().await?;
    if keys.iter().any(|key| key.revoked.is_none() && key.expires.is_none_or(|end| now < end)) {
        return Ok(());
    }
    let detail = format!(
        "{address} can be reached from other machines, and there is no API key; create one with \
         `outlast keys create NAME --scope SCOPE`, or listen on 127.0.0.1"
    );
    Err(Error::new(Kind::ConfigInvalid, detail))
}

/// The service and the state of all connections.
struct ConnectionHandler {
    service: TowerToHyperService<axum::Router>,
    /// Tells the open connections to stop. Each of them subscribes.
    stopping: watch::Sender<bool>,
    slots: Arc<Semaphore>,
    idle: IdleConnections,
    limits: Arc<ServerLimits>,
}

impl ConnectionHandler {
    /// Serves a connection in a new task, which ends with the connection or at shutdown.
    fn spawn_connection(&self, accepted: AcceptedConnection) {
        let AcceptedConnection { stream, peer, slot: permit } = accepted;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY cannot be set; small responses may be delayed");
        }
        let (service, asked) = (self.service.clone(), Arc::new(Notify::new()));
        let (asks, is_stopping) = (asked.clone(), self.stopping.subscribe());
        let (connection, refusal, requests) =
            (self.idle.open(peer.ip()), HeadRejection::default(), AtomicU64::new(0));
        let (activity, refused, limits) = (connection.clone(), refusal.clone(), self.limits.clone());
        let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            asks.notify_one();
            let (mut request, unread) = TrackedBody::of(request);
            let active = activity.begin();
            let refused = refused.fault_of(requests.fetch_add(1, Ordering::Relaxed));
            request.extensions_mut().insert(Peer(peer.ip()));
            let answer = match refused {
                None => Either::Left(service.call(request)),
                Some(fault) => Either::Right(future::ready(Ok(rejection_response(fault)))),
            };
            let (is_stopping, limits) = (is_stopping.clone(), limits.clone());
            async move {
                let mut answer = answer.await?;
                let is_read = unread.discard(&limits).await;
                if !is_read || *is_stopping.borrow() || refused.is_some() {
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(answer.map(|body| ActiveBody { body, _active: active }))
            }
        });
        let stream = WriteTimeoutStream::new(stream, self.limits.write_wait);
        let stream = HeadCheckedStream::new(stream, self.limits.header_bytes, refusal);
        let idle = connection;
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_wait)
            .max_buf_size(self.limits.header_bytes)
            .max_headers(self.limits.headers)
            .serve_connection(TokioIo::new(stream), service);
        let mut stopping = self.stopping.subscribe();
        tokio::spawn(async move {
            let _room = permit;
            tokio::pin!(connection);
            // A graceful shutdown closes a connection without a request at once, although one may be on its
            // way. So wait for it first.
            let stops = async {
                // An error means that the sender is gone and the server has stopped.
                let _ = stopping.wait_for(|stopping| *stopping).await;
                let _ = tokio::time::timeout(FIRST_REQUEST_TIMEOUT, asked.notified()).await;
            };
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = stops => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
                () = idle.evicted() => {
                    connection.as_mut().graceful_shutdown();
                    tokio::select! {
                        ended = connection => ended,
                        // Cut off a client that does not read its last answer.
                        () = idle.wait_until_idle(EVICTION_TIMEOUT) => return,
                    }
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }

    /// Waits for a free slot and evicts idle connections meanwhile. Returns `None` after the timeout.
    fn wait_for_slot(&self) -> impl Future<Output = Option<OwnedSemaphorePermit>> + use<> {
        let (idle, permit, wait) = (self.idle.clone(), self.slots.clone(), self.limits.connection_wait);
        let evicting = async move {
            loop {
                idle.evict_one(MIN_IDLE);
                tokio::time::sleep(MIN_IDLE).await;
            }
        };
        async move {
            tokio::select! {
                biased;
                permit = permit.acquire_owned() => permit.ok(),
                () = evicting => None,
                () = tokio::time::sleep(wait) => None,
            }
        }
    }

    /// Lets each connection finish its current request, and returns when all are closed.
    async fn stop(self) {
        self.stopping.send_replace(true);
        self.stopping.closed().await;
    }
}

/// The body of an answer. Its connection counts as active until the body is sent.
struct ActiveBody {
    body: Body,
    _active: ActiveRequest,
}

impl HttpBody for ActiveBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

struct AcceptedConnection {
    stream: TcpStream,
    peer: SocketAddr,
    slot: OwnedSemaphorePermit,
}

/// Accepts the next connection, even if no slot is free. A connection that is not accepted would hold up
/// those behind it.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Tells a client to retry later, because there are too many connections.
async fn reject_connection(mut stream: TcpStream, most: usize) {
    let rejections = async {
        let detail = format!("connections is limited to {most}, and so many are open");
        let problem = problem::of_error(&Error::new(Kind::ServerBusy, detail));
        let body = serde_json::to_string(&problem).map_err(io::Error::other)?;
        let head = format!(
            "HTTP/1.1 {} Service Unavailable\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
             retry-after: {BUSY_RETRY_AFTER}\r\nconnection: close\r\n\r\n",
            Kind::ServerBusy.status(),
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).await?;
        stream.shutdown().await?;
        // Closing before the request is read would discard the answer.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    if let Ok(Err(error)) = tokio::time::timeout(REJECTION_TIMEOUT, rejections).await {
        tracing::debug!(%error, "a client over the connection limit was not notified");
    }
}
