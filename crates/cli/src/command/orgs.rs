//! `outlast orgs`: lists and creates the organisations of a database.
use crate::backend::CommandBackend;
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::{Args, Subcommand};
use outlast::clock::{Clock, Entropy};
use outlast::orgs::Org;
use outlast::runtime::worker::system::{SystemClock, SystemEntropy};
use outlast::vocab::message::Name;
use outlast::{Error, OrgId};

/// Lists organisations, or creates one.
#[derive(Args)]
pub(crate) struct OrgsArgs {
    #[command(subcommand)]
    what: Option<OrgsCommand>,
}

#[derive(Subcommand)]
enum OrgsCommand {
    /// List the organisations
    List,
    /// Create an organisation
    Create {
        /// Name of the organisation
        name: Name,
    },
}

impl OrgsArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        match self.what {
            None | Some(OrgsCommand::List) => list(data).await,
            Some(OrgsCommand::Create { name }) => create(data, name).await,
        }
    }
}

async fn list(data: &GlobalArgs) -> Result<(), Error> {
    let orgs = match data.operator_backend()? {
        CommandBackend::File(store) => store.orgs().await?,
        CommandBackend::Server(client) => client.orgs().await?,
    };
    let rows: Vec<Vec<String>> = orgs
        .into_iter()
        .map(|Org { id, name, created }| {
            let made =
                if id == OrgId::DEFAULT { "with the database".to_owned() } else { formatting::when(created) };
            vec![name.to_string(), id.to_string(), made]
        })
        .collect();
    terminal::table(&["NAME", "ORGANISATION", "MADE"], &rows);
    Ok(())
}

async fn create(data: &GlobalArgs, name: Name) -> Result<(), Error> {
    let created = SystemClock.now();
    let id = OrgId::fresh(created, SystemEntropy.random_id_bytes());
    match data.client()? {
        None => {
            // The first organisation may be created before the database exists.
            let store = data.open_or_create_for_all_orgs()?;
            store.create_org(Org { id, name: name.clone(), created }).await?;
            terminal::say(&id.to_string());
            terminal::note(&format!("· `--org {name}` or OUTLAST_ORG selects it"));
        }
        Some(client) => {
            terminal::say(&client.create_org(name.clone()).await?.id.to_string());
            terminal::note(&format!("· `outlast keys create NAME --org {name}` creates a key for it"));
        }
    }
    Ok(())
}
