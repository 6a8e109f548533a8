//! `outlast orgs`: lists and creates the organisations of a database.
use crate::data::Data;
use crate::desk::Desk;
use crate::terminal;
use crate::words;
use clap::{Args, Subcommand};
use outlast::clock::{Clock, Entropy};
use outlast::orgs::Org;
use outlast::runtime::system::{SystemClock, SystemEntropy};
use outlast::vocab::message::Name;
use outlast::{Error, OrgId};

/// Lists organisations, or creates one.
#[derive(Args)]
pub(crate) struct Orgs {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// List the organisations
    List,
    /// Create an organisation
    Create {
        /// Name of the organisation
        name: Name,
    },
}

impl Orgs {
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        match self.what {
            None | Some(What::List) => list(data).await,
            Some(What::Create { name }) => create(data, name).await,
        }
    }
}

async fn list(data: &Data) -> Result<(), Error> {
    let orgs = match data.operators_desk()? {
        Desk::File(store) => store.orgs().await?,
        Desk::Server(client) => client.orgs().await?,
    };
    let rows: Vec<Vec<String>> = orgs
        .into_iter()
        .map(|Org { id, name, created }| {
            let made =
                if id == OrgId::DEFAULT { "with the database".to_owned() } else { words::when(created) };
            vec![name.to_string(), id.to_string(), made]
        })
        .collect();
    terminal::table(&["NAME", "ORGANISATION", "MADE"], &rows);
    Ok(())
}

async fn create(data: &Data, name: Name) -> Result<(), Error> {
    let created = SystemClock.now();
    let id = OrgId::fresh(created, SystemEntropy.for_id());
    match data.client()? {
        None => {
            // The first organisation may be created before the database exists.
            let store = data.made_widely()?;
            store.create_org(Org { id, name: name.clone(), created }).await?;
            terminal::say(&id.to_string());
            terminal::note(&format!("· `--org {name}` or OUTLAST_ORG means it from now on"));
        }
        Some(client) => {
            terminal::say(&client.create_org(&name).await?.id.to_string());
            terminal::note(&format!("· `outlast keys create NAME --org {name}` lets somebody in"));
        }
    }
    Ok(())
}
