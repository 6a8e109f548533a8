//! Listens, answers, and shuts down without losing anything.
use crate::accounts::Accounts;
use crate::api::router;
use crate::connections::{Active, IdleConnections};
use crate::door::Door;
use crate::head::{Inspected, Refusal};
use crate::keys::Keys;
use crate::mcp::{Endpoint, More};
use crate::metrics::Metrics;
use crate::problem::{COME_AGAIN, Problem, refused_head};
use crate::quota::{Quotas, Strangers};
use crate::relay::Relays;
use crate::rerun::{Rerunner, Reruns};
use crate::room::Rooms;
use crate::shared::{Inner, Shared};
use crate::streams::{Asking, Streams};
use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, future};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use outlast_ports::metrics::Snapshot;
use outlast_runtime::Runtime;
use outlast_vocab::access::Access;
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::{Error, Kind, OrgId};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// How long it waits before it accepts again, after the machine refused to (no file handles left).
const BREATH: Duration = Duration::from_millis(50);

/// How long somebody who came too late may take to read that.
const TURNED_AWAY: Duration = Duration::from_secs(1);

/// How many are told so at the same time; any more are closed without a word. As many may wait for a place.
const TOLD_AT_ONCE: usize = 64;

/// How long an idle connection may take to close when it makes room for another one.
const EVICTED: Duration = Duration::from_secs(1);

/// How long a connection must be idle before it makes room for another one.
const IDLE_LEAST: Duration = Duration::from_millis(50);

/// How long a connection may still send its first request when the server stops: who was let in is answered.
const FIRST_REQUEST: Duration = Duration::from_secs(2);

/// From where a request comes.
#[derive(Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// A server that is bound to its address and does not answer yet.
pub struct Server {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    home: OrgId,
    door: Door,
    limits: ServerLimits,
    exposition: Option<fn(&Snapshot) -> String>,
    more: Option<More>,
    rerunner: Option<Rerunner>,
}

impl Server {
    /// Binds to an address. One that other machines reach needs API keys in the database: without any, nobody could come in, and
    /// without asking for them, everybody could (S32).
    pub async fn bind(runtime: &Runtime, address: SocketAddr, local: Access) -> Result<Self, Error> {
        let runtime = runtime.serving(Access::operator());
        check_keys(&runtime, address).await?;
        let unbound = |cause: std::io::Error| {
            Error::new(Kind::IoFailed, format!("cannot listen on {address}: {cause}")).because(cause)
        };
        let listener = TcpListener::bind(address).await.map_err(unbound)?;
        let address = listener.local_addr().map_err(unbound)?;
        Ok(Self::at(runtime, listener, address, local))
    }

    /// The same on a socket that listens already, such as that of a process whose place this one takes.
    pub async fn on(runtime: &Runtime, socket: std::net::TcpListener, local: Access) -> Result<Self, Error> {
        let runtime = runtime.serving(Access::operator());
        let useless = |cause: std::io::Error| {
            Error::new(Kind::IoFailed, format!("the socket is of no use: {cause}")).because(cause)
        };
        let address = socket.local_addr().map_err(useless)?;
        check_keys(&runtime, address).await?;
        socket.set_nonblocking(true).map_err(useless)?;
        let listener = TcpListener::from_std(socket).map_err(useless)?;
        Ok(Self::at(runtime, listener, address, local))
    }

    fn at(runtime: Runtime, listener: TcpListener, address: SocketAddr, local: Access) -> Self {
        let home = local.reach.home();
        let (door, limits) = (Door::at(address, local), ServerLimits::default());
        let (exposition, more, rerunner) = (None, None, None);
        Self { runtime, listener, address, home, door, limits, exposition, more, rerunner }
    }

    /// The socket, for a process that takes this one's place.
    pub fn socket(&self) -> std::io::Result<std::net::TcpListener> {
        Ok(self.listener.as_fd().try_clone_to_owned()?.into())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the rules at the door.
    #[must_use]
    pub fn door(mut self, change: impl FnOnce(Door) -> Door) -> Self {
        self.door = change(self.door);
        self
    }

    /// Sets the bounds.
    #[must_use]
    pub fn limits(mut self, limits: ServerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Lets `/metrics` also say what the worker counts, in the words of whoever writes it for Prometheus.
    #[must_use]
    pub fn exposition(mut self, write: fn(&Snapshot) -> String) -> Self {
        self.exposition = Some(write);
        self
    }

    /// Lets MCP clients have tools, resources and prompts beside the agents.
    #[must_use]
    pub fn mcp(mut self, more: More) -> Self {
        self.more = Some(more);
        self
    }

    /// Lets callers run sessions again, with whatever agents the program has.
    #[must_use]
    pub fn rerunner(mut self, by: Rerunner) -> Self {
        self.rerunner = Some(by);
        self
    }

    /// Answers until `stop` comes back. Then it accepts nothing new, ends streams, and lets requests come to their end, the first
    /// of each connection that it has accepted among them. The worker goes on; shutting that down is for whoever started it.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let Self { runtime, listener, home, door, limits, exposition, more, rerunner, .. } = self;
        let (stopping, stops) = watch::channel(false);
        let secret = runtime.store().secret().await?;
        let shared = Shared::new(Inner {
            runtime,
            home,
            door,
            limits: limits.clone(),
            secret,
            metrics: Metrics::default(),
            streams: Streams::default(),
            relays: Relays::default(),
            asking: Asking::default(),
            rooms: Rooms::new(&limits),
            keys: Keys::default(),
            strangers: Strangers::new(limits.wrong_keys_per_minute),
            mcp: Endpoint::new(secret, &limits, more),
            quotas: Quotas::new(limits.requests_per_minute),
            reruns: Reruns::new(rerunner, limits.reruns),
            verifications: Semaphore::new(limits.verifications),
            accounts: Accounts::default(),
            exposition,
            stopping: stops,
        });
        let line = Line {
            service: TowerToHyperService::new(router(shared.clone())),
            stopping: watch::Sender::new(false),
            room: Arc::new(Semaphore::new(limits.connections)),
            idle: IdleConnections::default(),
            limits: limits.clone(),
        };
        let looked_at = shared.keys.look(&shared.runtime);
        tokio::pin!(stop, looked_at);
        let (mut turned_away, mut waiting) = (FuturesUnordered::new(), FuturesUnordered::new());
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                never = &mut looked_at => match never {},
                Some(()) = turned_away.next() => {}
                Some((stream, peer, room)) = waiting.next() => match room {
                    Some(room) => line.answer(Accepted { stream, peer, room }),
                    None => turned_away.push(turn_away(stream, limits.connections)),
                },
                (stream, peer) = accept(&listener) => match line.room.clone().try_acquire_owned() {
                    Ok(room) => line.answer(Accepted { stream, peer, room }),
                    Err(_) if waiting.len() < TOLD_AT_ONCE => {
                        let room = line.wait_for_room();
                        waiting.push(async move { (stream, peer, room.await) });
                    }
                    Err(_) if turned_away.len() < TOLD_AT_ONCE => turned_away.push(turn_away(stream, limits.connections)),
                    Err(_) => drop(stream),
                },
            }
        }
        drop(listener);
        while let Some((stream, peer, room)) = waiting.next().await {
            if let Some(room) = room {
                line.answer(Accepted { stream, peer, room });
            }
        }
        stopping.send_replace(true);
        shared.mcp.close();
        let told = async { while turned_away.next().await.is_some() {} };
        tokio::select! {
            _ = future::join(line.stop(), told) => {}
            () = tokio::time::sleep(limits.drain) => tracing::warn!("requests were cut off at the shutdown"),
        }
        Ok(())
    }
}

/// Refuses an address that other machines reach while no key lets anybody in.
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
        "{address} can be reached from other machines, and there is no API key that lets anybody in; make one with \
         `outlast keys create NAME --scope SCOPE`, or listen on 127.0.0.1"
    );
    Err(Error::new(Kind::ConfigInvalid, detail))
}

/// Connections and who answers them.
struct Line {
    service: TowerToHyperService<axum::Router>,
    /// Whether connections come to their end; each open one listens.
    stopping: watch::Sender<bool>,
    room: Arc<Semaphore>,
    idle: IdleConnections,
    limits: ServerLimits,
}

impl Line {
    /// Answers a connection in a task of its own, which ends with the connection or at the shutdown.
    fn answer(&self, accepted: Accepted) {
        let Accepted { stream, peer, room } = accepted;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "small answers may be held up");
        }
        let (service, asked) = (self.service.clone(), Arc::new(Notify::new()));
        let (asks, is_stopping) = (asked.clone(), self.stopping.subscribe());
        let (connection, refusal, requests) =
            (self.idle.open(peer.ip()), Refusal::default(), AtomicU64::new(0));
        let (activity, refused) = (connection.clone(), refusal.clone());
        let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            asks.notify_one();
            let active = activity.begin();
            let refused = refused.of(requests.fetch_add(1, Ordering::Relaxed));
            request.extensions_mut().insert(Peer(peer.ip()));
            let answer = refused.is_none().then(|| service.call(request));
            let is_stopping = is_stopping.clone();
            async move {
                let mut answer = match (answer, refused) {
                    (Some(answer), _) => answer.await?,
                    (None, refused) => refused_head(refused),
                };
                if *is_stopping.borrow() || refused.is_some() {
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(answer.map(|body| ActiveBody { body, _active: active }))
            }
        });
        let stream = Inspected::new(stream, self.limits.header_bytes, refusal);
        let idle = connection;
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_wait)
            .max_buf_size(self.limits.header_bytes)
            .max_headers(self.limits.headers)
            .serve_connection(TokioIo::new(stream), service);
        let mut stopping = self.stopping.subscribe();
        tokio::spawn(async move {
            let _room = room;
            tokio::pin!(connection);
            // A connection that is told to end before it has a request is closed, although one may be on its way.
            let stops = async {
                // An error means that nobody can stop it any more, which is as good.
                let _ = stopping.wait_for(|stopping| *stopping).await;
                let _ = tokio::time::timeout(FIRST_REQUEST, asked.notified()).await;
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
                        // A client that does not read its last answer is cut off.
                        () = idle.stays_idle(EVICTED) => return,
                    }
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }

    /// Waits for a place, and asks idle connections to close meanwhile; none if there is no place in time.
    fn wait_for_room(&self) -> impl Future<Output = Option<OwnedSemaphorePermit>> + use<> {
        let (idle, room, wait) = (self.idle.clone(), self.room.clone(), self.limits.connection_wait);
        let evicting = async move {
            loop {
                idle.evict(IDLE_LEAST);
                tokio::time::sleep(IDLE_LEAST).await;
            }
        };
        async move {
            tokio::select! {
                biased;
                room = room.acquire_owned() => room.ok(),
                () = evicting => None,
                () = tokio::time::sleep(wait) => None,
            }
        }
    }

    /// Lets each connection end with the request it is at, and comes back when all have.
    async fn stop(self) {
        self.stopping.send_replace(true);
        self.stopping.closed().await;
    }
}

/// The body of an answer; its connection is active until the body was sent.
struct ActiveBody {
    body: Body,
    _active: Active,
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

struct Accepted {
    stream: TcpStream,
    peer: SocketAddr,
    room: OwnedSemaphorePermit,
}

/// The next connection, be there room for it or not: who is not told anything waits, and holds others up that way.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

/// Tells somebody for whom there is no room to come again.
async fn turn_away(mut stream: TcpStream, most: usize) {
    let told = async {
        let detail = format!("connections is limited to {most}, and so many are open");
        let problem = Problem::of(&Error::new(Kind::ServerBusy, detail));
        let body = serde_json::to_string(&problem).map_err(io::Error::other)?;
        let head = format!(
            "HTTP/1.1 {} Service Unavailable\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
             retry-after: {COME_AGAIN}\r\nconnection: close\r\n\r\n",
            Kind::ServerBusy.status(),
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).await?;
        stream.shutdown().await?;
        // To close before the request was read would throw the answer away on its way.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    if let Ok(Err(error)) = tokio::time::timeout(TURNED_AWAY, told).await {
        tracing::debug!(%error, "somebody was not told that there is no room");
    }
}
