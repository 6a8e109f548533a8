//! `outlast serve`: the HTTP API and a worker in one process, on one port.
use crate::agent::AgentArgs;
use crate::agent::sources::AgentSources;
use crate::command::no_threads;
use crate::global_args::{GlobalArgs, terminal_user};
use crate::socket_handover::{InheritedSocket, SocketOffer};
use crate::terminal;
use clap::Args;
use outlast::rerun::Rerun;
use outlast::runtime::worker::system::WorkerThreads;
use outlast::server::rerun::{RerunRequest, Rerunner};
use outlast::server::{OriginPolicy, Server};
use outlast::store::Store;
use outlast::telemetry::exposition;
use outlast::vocab::access::Access;
use outlast::vocab::approval_link::PublicUrl;
use outlast::vocab::limits::ServerLimits;
use outlast::{Error, Kind, Outlast};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Cursor;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The open file limit that a server requests: more than its maximum number of connections.
const FILES: u64 = 65_536;

/// Serves the HTTP API and runs turns, until SIGTERM or Ctrl-C.
#[derive(Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on; an address that other machines can reach requires API keys (`outlast keys create`)
    #[arg(
        long,
        env = "OUTLAST_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:7777",
        value_parser = address
    )]
    listen: SocketAddr,
    /// Take over from the running server with the same address and database, without refusing a connection; it stops
    /// once this one answers
    #[arg(long)]
    take_over: bool,
    /// Require an API key, even from this machine
    #[arg(long)]
    require_key: bool,
    /// Additional host name to accept, as a proxy passes it on; repeatable
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Origin whose pages may send requests, like `https://console.example.com`; repeatable
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    #[command(flatten)]
    agent: AgentArgs,
}

impl ServeArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        // Install the handlers first, so that an early signal is not lost.
        let mut stop = StopSignals::new()?;
        let taken = self.take_over.then(|| InheritedSocket::from(&data.path, self.listen)).transpose()?;
        let threads = WorkerThreads::of_this_machine().map_err(no_threads)?;
        let outlast = self.agent.start_on(threads, data).await?;
        let served = match self.server(&outlast, taken.as_ref()).await {
            Ok(server) => serve(server, data, taken, &mut stop).await,
            Err(error) => Err(error),
        };
        outlast.shut_down().await;
        served
    }

    /// Creates the server, on the socket of the old server if it takes over.
    async fn server(&self, outlast: &Outlast, taken: Option<&InheritedSocket>) -> Result<Server, Error> {
        let runtime = outlast.runtime();
        let local = Access::to(runtime.access().visibility.home()).by(terminal_user());
        let server = match taken {
            Some(taken) => Server::from_socket(runtime, taken.socket()?, local).await?,
            None => Server::bind(runtime, self.listen, local).await?,
        };
        let settings = self.agent.options.configuration.server()?;
        let url = settings.public_url()?;
        let usual = ServerLimits::default();
        let limits = ServerLimits {
            requests_per_minute: settings.requests_per_minute,
            wrong_keys_per_minute: settings.wrong_keys_per_minute.unwrap_or(usual.wrong_keys_per_minute),
            repeat_window: settings
                .repeat_window_s
                .map_or(usual.repeat_window, |seconds| Duration::from_secs(seconds.into())),
            ..usual
        };
        let limits = limits.within_files(raise_files());
        let server = server
            .origin_policy(|policy| self.configure_access(policy, url.as_ref()))
            .limits(limits)
            .worker_metrics(exposition);
        let first = runtime.agents().iter().find(|agent| agent.first).map(|agent| agent.name.clone());
        let sources = Arc::new(AgentSources::read(&self.agent.options.configuration)?);
        Ok(server.rerunner(rerunner(self.agent.clone(), first, sources, outlast.store().clone())))
    }

    fn configure_access(&self, policy: OriginPolicy, url: Option<&PublicUrl>) -> OriginPolicy {
        let without_key = policy.without_key.filter(|_| !self.require_key);
        let mut hosts = policy.hosts;
        hosts.extend(self.allow_host.iter().cloned());
        // An empty list allows every host name and must stay empty.
        if !hosts.is_empty() {
            hosts.extend(url.map(|url| url.host().to_owned()));
        }
        OriginPolicy { without_key, hosts, origins: self.allow_origin.clone() }
    }
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "expected IP:PORT, like 127.0.0.1:7777")
}

/// Raises the limit on open files to the maximum that the system allows, and returns it.
///
/// The soft limit of a shell is low for programs that use `select`. A server needs one file per connection.
fn raise_files() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let most = maximum.map_or(FILES, |most| most.min(FILES));
    let wanted = Rlimit { current: Some(most), maximum };
    let had = current.unwrap_or(u64::MAX);
    let has = if had < most && setrlimit(Resource::Nofile, wanted).is_ok() { most } else { had };
    usize::try_from(has).unwrap_or(usize::MAX)
}

/// Serves until a signal arrives or another process takes over.
async fn serve(
    server: Server,
    data: &GlobalArgs,
    taken: Option<InheritedSocket>,
    stop: &mut StopSignals,
) -> Result<(), Error> {
    let (address, socket) = (server.address(), server.socket());
    // First polled when the server accepts connections.
    let stopped = async {
        if let Some(taken) = taken {
            taken.answers();
        }
        // The path of the offer is free only after the old process stopped offering.
        let offer = SocketOffer::of(socket, &data.path);
        terminal::note(&format!("· http://{address}, until Ctrl-C"));
        match offer {
            Ok(offer) => {
                tokio::select! {
                    () = stop.comes() => {}
                    () = offer.taken() => terminal::note("· another process has taken the socket over"),
                }
                // Before the remaining requests finish: a process that asks now is refused at once.
                offer.end();
            }
            Err(error) => {
                tracing::warn!(%error, "the socket cannot be offered to another process");
                stop.comes().await;
            }
        }
    };
    server.serve(stopped).await
}

/// Returns the function that runs sessions again with the agents of the configuration and the database.
///
/// A request cannot name a file of this machine.
fn rerunner(
    agent: AgentArgs,
    first: Option<String>,
    sources: Arc<AgentSources>,
    store: Arc<dyn Store>,
) -> Rerunner {
    Arc::new(move |again: RerunRequest| {
        let (agent, first, sources, store) = (agent.clone(), first.clone(), sources.clone(), store.clone());
        Box::pin(async move {
            let sources = AgentSources::clone(&sources).with_stored_in(store.as_ref()).await?;
            let RerunRequest {
                org,
                within,
                archive,
                from,
                agent: who,
                model,
                prompt,
                live,
                run_at_most_once,
            } = again;
            let model = model.map(|model| model.parse()).transpose()?;
            // The first agent may come from a file, which its name alone does not find.
            let who = who.filter(|who| first.as_ref() != Some(who));
            let builder = agent.with_agent_and_model(who, model)?.in_memory_builder(&sources)?;
            let builder = prompt.iter().fold(builder, |builder, prompt| builder.system(prompt.as_str()));
            let rerun = Rerun::new(Cursor::new(archive)).as_org(org).timeout(within);
            let rerun = rerun.from(from.as_deref().map(str::parse).transpose()?.unwrap_or_default());
            let rerun = if live { rerun.live() } else { rerun };
            let rerun = if run_at_most_once { rerun.run_at_most_once() } else { rerun };
            let compared = rerun.run_with(builder).await?;
            let mut answer = serde_json::to_value(&compared).map_err(|cause| {
                Error::new(Kind::Internal, "a comparison cannot be written as JSON").because(cause)
            })?;
            answer["changed"] = compared.changed().into();
            Ok(answer)
        })
    })
}

/// The signals that stop the server.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn new() -> Result<Self, Error> {
        let taken = |kind| {
            signal(kind).map_err(|cause| {
                Error::new(Kind::IoFailed, format!("signals cannot be handled: {cause}")).because(cause)
            })
        };
        Ok(Self { terminate: taken(SignalKind::terminate())?, interrupt: taken(SignalKind::interrupt())? })
    }

    /// Waits for the first signal.
    async fn comes(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
