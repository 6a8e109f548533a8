//! Where everything is kept, and how commands reach it.
use crate::providers::Configuration;
use clap::Args;
use outlast::contents::Contents;
use outlast::objects::Objects;
use outlast::runtime::attachments::{Attachments, name_of};
use outlast::sqlite::{Options, Sqlite};
use outlast::store::Store;
use outlast::vocab::WorkerId;
use outlast::{Builder, Error, Kind, Limits, Outlast};
use std::path::PathBuf;
use std::sync::Arc;

/// Which database, and what an acknowledged write of this process survives.
#[derive(Args)]
pub(crate) struct Data {
    /// The database file
    #[arg(
        long = "data",
        global = true,
        env = "OUTLAST_DATA",
        value_name = "FILE",
        default_value = "./outlast.db"
    )]
    pub(crate) path: PathBuf,
    /// Where the contents of attachments lie: `file:///path` or `s3://bucket/prefix`; in the database without it
    #[arg(long, global = true, env = "OUTLAST_ATTACHMENTS", value_name = "URL")]
    attachments: Option<String>,
    /// Give up durability against power loss for speed
    #[arg(long, global = true)]
    pub(crate) unsafe_durability: bool,
}

impl Data {
    /// A runtime on the database, which is made if it is not there.
    pub(crate) fn builder(&self) -> Builder {
        let builder = Outlast::at(&self.path);
        if self.unsafe_durability { builder.unsafe_durability() } else { builder }
    }

    /// The same, with the contents of attachments and the sinks of the configuration.
    pub(crate) fn configured(&self, configuration: &Configuration) -> Result<Builder, Error> {
        let builder = self.builder();
        let builder = match self.address(configuration)? {
            Some(address) => builder.attachments(address),
            None => builder,
        };
        configuration.sinks()?.iter().try_fold(builder, |builder, sink| Ok(builder.sink(sink.outlet()?)))
    }

    /// The attachments of a database that was opened, and where their contents lie.
    pub(crate) async fn attachments(
        &self,
        store: Arc<dyn Store>,
        configuration: &Configuration,
        limits: Limits,
    ) -> Result<Attachments, Error> {
        let contents = self.contents(store.as_ref(), configuration).await?;
        Ok(Attachments::new(store, contents, limits))
    }

    /// Where contents lie outside the database, if they do.
    pub(crate) async fn contents(
        &self,
        store: &dyn Store,
        configuration: &Configuration,
    ) -> Result<Option<Arc<dyn Contents>>, Error> {
        let Some(address) = self.address(configuration)? else { return Ok(None) };
        Ok(Some(Arc::new(Objects::open(&address, &name_of(store).await?)?)))
    }

    fn address(&self, configuration: &Configuration) -> Result<Option<String>, Error> {
        match &self.attachments {
            Some(address) => Ok(Some(address.clone())),
            None => configuration.attachments(),
        }
    }

    /// The database for a look or a single write. It must be there, and no worker starts.
    pub(crate) fn open(&self) -> Result<Sqlite, Error> {
        self.open_as(None)
    }

    /// The same for a worker, whose life is shown to others.
    pub(crate) fn open_as(&self, worker: Option<WorkerId>) -> Result<Sqlite, Error> {
        if !self.path.exists() {
            let detail = format!(
                "there is no database at {}; `outlast run` makes one, `--data FILE` names another",
                self.path.display()
            );
            return Err(Error::new(Kind::IoFailed, detail));
        }
        let options = Options { unsafe_durability: self.unsafe_durability, worker, ..Options::default() };
        Sqlite::open_with(&self.path, options)
    }
}
