//! `outlast serve`: the HTTP API and a worker in one process, on one port.
use crate::agent::Agent;
use crate::agent::staff::Staff;
use crate::data::{Data, who};
use crate::terminal;
use clap::Args;
use outlast::rerun::Rerun;
use outlast::server::rerun::{Again, Rerunner};
use outlast::server::{Door, Server};
use outlast::telemetry::exposition;
use outlast::vocab::access::Access;
use outlast::vocab::limits::ServerLimits;
use outlast::vocab::link::PublicUrl;
use outlast::{Error, Kind, Outlast};
use std::io::Cursor;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Serves the HTTP API and drives turns, until SIGTERM or Ctrl-C.
#[derive(Args)]
pub(crate) struct Serve {
    /// Where to listen; an address that other machines reach takes API keys (`outlast keys create`)
    #[arg(long, env = "OUTLAST_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:7777")]
    listen: SocketAddr,
    /// Let nobody in without an API key, not even from this machine
    #[arg(long)]
    require_key: bool,
    /// A name that the server also answers to, as a proxy passes it on; may be given several times
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// A site whose pages may ask, like `https://console.example.com`; may be given several times
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    #[command(flatten)]
    agent: Agent,
}

impl Serve {
    /// Does it.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        // Before anything is started: a signal that comes early counts too.
        let mut stop = Stop::new()?;
        let staff = Arc::new(self.agent.staff(data).await?);
        let outlast = self.agent.start(data).await?;
        let served = self.serve(&outlast, staff, &mut stop).await;
        outlast.shut_down().await;
        served
    }

    async fn serve(&self, outlast: &Outlast, staff: Arc<Staff>, stop: &mut Stop) -> Result<(), Error> {
        let org = outlast.runtime().access().reach.home();
        let server = Server::bind(outlast.runtime(), self.listen, Access::to(org).by(who())).await?;
        let told = self.agent.play.configuration.server()?;
        let url = told.public_url()?;
        let limits =
            ServerLimits { requests_per_minute: told.requests_per_minute, ..ServerLimits::default() };
        let server =
            server.door(|door| self.at_the_door(door, url.as_ref())).limits(limits).exposition(exposition);
        let server = server.rerunner(rerunner(self.agent.clone(), staff));
        terminal::note(&format!("· http://{}, until Ctrl-C", server.address()));
        server.serve(stop.comes()).await
    }

    fn at_the_door(&self, door: Door, url: Option<&PublicUrl>) -> Door {
        let without_key = door.without_key.filter(|_| !self.require_key);
        let mut hosts = door.hosts;
        hosts.extend(self.allow_host.iter().cloned());
        // A server that answers to any name goes on doing so.
        if !hosts.is_empty() {
            hosts.extend(url.map(|url| url.host().to_owned()));
        }
        Door { without_key, hosts, origins: self.allow_origin.clone() }
    }
}

/// Runs sessions again with the agents of the configuration. Nothing that is asked for names a file of this machine.
fn rerunner(agent: Agent, staff: Arc<Staff>) -> Rerunner {
    Arc::new(move |again: Again| {
        let (agent, staff) = (agent.clone(), staff.clone());
        Box::pin(async move {
            let Again { archive, from, agent: who, model, prompt, live, run_at_most_once } = again;
            let model = model.map(|model| model.parse()).transpose()?;
            let builder = agent.otherwise(who, model)?.build(Outlast::ephemeral(), &staff)?;
            let builder = prompt.iter().fold(builder, |builder, prompt| builder.system(prompt.as_str()));
            let rerun = Rerun::of(Cursor::new(archive));
            let rerun = rerun.from(from.as_deref().map(str::parse).transpose()?.unwrap_or_default());
            let rerun = if live { rerun.live() } else { rerun };
            let rerun = if run_at_most_once { rerun.run_at_most_once() } else { rerun };
            let compared = rerun.with(builder).await?;
            let mut answer = serde_json::to_value(&compared)
                .map_err(|cause| Error::new(Kind::Internal, "a comparison is no JSON").because(cause))?;
            answer["changed"] = compared.changed().into();
            Ok(answer)
        })
    })
}

/// The signals that end the server.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn new() -> Result<Self, Error> {
        let taken = |kind| {
            signal(kind).map_err(|cause| {
                Error::new(Kind::IoFailed, format!("signals cannot be taken: {cause}")).because(cause)
            })
        };
        Ok(Self { terminate: taken(SignalKind::terminate())?, interrupt: taken(SignalKind::interrupt())? })
    }

    /// Comes back with the first of them.
    async fn comes(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
