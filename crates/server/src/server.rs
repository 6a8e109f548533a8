//! Listens, answers, and shuts down without losing anything.
use crate::api::router;
use crate::door::Door;
use crate::mcp::{Endpoint, More};
use crate::metrics::Metrics;
use crate::quota::Quotas;
use crate::rerun::{Rerunner, Reruns};
use crate::shared::{Inner, Shared};
use crate::streams::Streams;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use outlast_ports::metrics::Snapshot;
use outlast_runtime::Runtime;
use outlast_vocab::access::Access;
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::{Error, Kind};
use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// How long it waits before it accepts again, after the machine refused to (no file handles left).
const BREATH: Duration = Duration::from_millis(50);

/// A server that is bound to its address and does not answer yet.
pub struct Server {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
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
        let (door, limits) = (Door::at(address, local), ServerLimits::default());
        let (exposition, more, rerunner) = (None, None, None);
        Self { runtime, listener, address, door, limits, exposition, more, rerunner }
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

    /// Answers until `stop` comes back. Then it accepts nothing new, ends streams, and lets requests come to their end. The
    /// worker goes on; shutting that down is for whoever started it.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let Self { runtime, listener, door, limits, exposition, more, rerunner, .. } = self;
        let (stopping, stops) = watch::channel(false);
        let secret = runtime.store().secret().await?;
        let shared = Shared::new(Inner {
            runtime,
            door,
            limits: limits.clone(),
            secret,
            metrics: Metrics::default(),
            streams: Streams::default(),
            mcp: Endpoint::new(secret, &limits, more),
            quotas: Quotas::new(limits.requests_per_minute),
            reruns: Reruns::new(rerunner, limits.reruns),
            exposition,
            stopping: stops,
        });
        let line = Line {
            service: TowerToHyperService::new(router(shared.clone())),
            graceful: GracefulShutdown::new(),
            room: Arc::new(Semaphore::new(limits.connections)),
            limits: limits.clone(),
        };
        tokio::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = line.accept(&listener) => line.answer(accepted),
            }
        }
        drop(listener);
        stopping.send_replace(true);
        shared.mcp.close();
        tokio::select! {
            () = line.graceful.shutdown() => {}
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
    graceful: GracefulShutdown,
    room: Arc<Semaphore>,
    limits: ServerLimits,
}

impl Line {
    /// The next connection, once there is room for one.
    async fn accept(&self, listener: &TcpListener) -> Accepted {
        let Ok(room) = self.room.clone().acquire_owned().await else { return std::future::pending().await };
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return Accepted { stream, _room: room },
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    }

    /// Answers a connection in a task of its own, which ends with the connection or at the shutdown.
    fn answer(&self, accepted: Accepted) {
        let Accepted { stream, _room: room } = accepted;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "small answers may be held up");
        }
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_wait)
            .max_buf_size(self.limits.header_bytes)
            .max_headers(self.limits.headers)
            .serve_connection(TokioIo::new(stream), self.service.clone());
        let watched = self.graceful.watch(connection);
        tokio::spawn(async move {
            let _room = room;
            if let Err(error) = watched.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
}

struct Accepted {
    stream: TcpStream,
    _room: tokio::sync::OwnedSemaphorePermit,
}
