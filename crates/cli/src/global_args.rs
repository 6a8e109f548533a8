//! Opens the database or the server that a command works on.
use crate::backend::CommandBackend;
use crate::cedar;
use crate::config_file::ConfigFile;
use crate::terminal;
use clap::Args;
use outlast::contents::ContentStorage;
use outlast::objects::ObjectContents;
use outlast::orgs;
use outlast::runtime::attachments::name_of;
use outlast::sqlite::{SqliteOptions, SqliteStore};
use outlast::store::Store;
use outlast::vocab::WorkerId;
use outlast::vocab::access::{Access, Principal};
use outlast::{Builder, Error, Kind, OrgId, Outlast};
use outlast_client::{Client, ClientApiKey};
use std::env;
use std::path::PathBuf;
use std::sync::Arc;

/// Global flags: the database or server, the organisation, durability, and the output format.
#[derive(Args)]
pub(crate) struct GlobalArgs {
    /// Use this server instead of a database file: `https://agents.example.com`. The API key comes from `$OUTLAST_KEY`
    /// or `--key-file`
    #[arg(long, global = true, env = "OUTLAST_SERVER", value_name = "URL")]
    pub(crate) server: Option<String>,
    /// File with the API key for the server
    #[arg(long, global = true, env = "OUTLAST_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Print results as JSON, one line each
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Database file
    #[arg(
        long = "data",
        global = true,
        env = "OUTLAST_DATA",
        value_name = "FILE",
        default_value = "./outlast.db"
    )]
    pub(crate) path: PathBuf,
    /// Where attachments are stored: `file:///path` or `s3://bucket/prefix`; default: `store` of `[attachments]` in the
    /// configuration, or the database
    #[arg(long, global = true, env = "OUTLAST_ATTACHMENTS", value_name = "URL")]
    attachments: Option<String>,
    /// Write faster, but a power loss may lose the latest writes
    #[arg(long, global = true)]
    pub(crate) unsafe_durability: bool,
    /// Organisation to work in, by name or id; default: `default`
    #[arg(long, global = true, env = "OUTLAST_ORG", value_name = "ORG")]
    pub(crate) org: Option<String>,
}

/// The environment variable with the API key of a server.
///
/// There is no flag for the key, because arguments are visible in process lists.
const KEY: &str = "OUTLAST_KEY";

impl GlobalArgs {
    /// Prints that a worker has to continue the work. Prints nothing for a server, which drives its turns
    /// itself.
    pub(crate) fn note_work(&self, what: &str) {
        if self.server.is_none() {
            terminal::note(&format!("· {what} once a worker runs; start one with `outlast work`"));
        }
    }

    /// Opens the database or the server.
    pub(crate) async fn backend(&self) -> Result<CommandBackend, Error> {
        self.backend_as(terminal_user()).await
    }

    /// Like [`Self::backend`], in the name of `by`. A server identifies the caller by its key instead.
    pub(crate) async fn backend_as(&self, by: Principal) -> Result<CommandBackend, Error> {
        match self.client()? {
            Some(client) => Ok(CommandBackend::Server(client)),
            None => Ok(CommandBackend::File(self.open_by(by).await?)),
        }
    }

    /// Like [`Self::backend`], for all organisations of a database file unless one is named.
    pub(crate) async fn backend_for_all_orgs(&self) -> Result<CommandBackend, Error> {
        match self.client()? {
            Some(client) => Ok(CommandBackend::Server(client)),
            None => Ok(CommandBackend::File(self.open_for_all_orgs().await?)),
        }
    }

    /// Opens the database for all organisations, or the server. A server identifies the operator by its key.
    pub(crate) fn operator_backend(&self) -> Result<CommandBackend, Error> {
        match self.client()? {
            Some(client) => Ok(CommandBackend::Server(client)),
            None => Ok(CommandBackend::File(self.operator()?)),
        }
    }

    /// Returns a client for the server, if one is named.
    pub(crate) fn client(&self) -> Result<Option<Client>, Error> {
        if let (Some(_), Some(org)) = (&self.server, &self.org) {
            let detail =
                format!("the API key determines the organisation; remove `--org {org}` (OUTLAST_ORG)");
            return Err(Error::new(Kind::InputInvalid, detail));
        }
        self.client_of_any()
    }

    /// Like [`Self::client`], for requests that name the organisation themselves.
    pub(crate) fn client_of_any(&self) -> Result<Option<Client>, Error> {
        let Some(address) = &self.server else { return Ok(None) };
        let key = self.key()?;
        let client = Client::at(address, key.as_ref())?;
        if key.is_some() && client.is_unencrypted() {
            terminal::note(&format!(
                "! the key goes to {address} unencrypted, where others can read it; use https"
            ));
        }
        Ok(Some(client))
    }

    /// Returns a client for the server with another key.
    pub(crate) fn client_with(&self, key: &ClientApiKey) -> Result<Option<Client>, Error> {
        self.server.as_deref().map(|address| Client::at(address, Some(key))).transpose()
    }

    fn key(&self) -> Result<Option<ClientApiKey>, Error> {
        if let Some(path) = &self.key_file {
            let text = std::fs::read_to_string(path).map_err(|cause| {
                let detail = format!("the key file {} cannot be read: {cause}", path.display());
                Error::new(Kind::IoFailed, detail).because(cause)
            })?;
            return Ok(Some(ClientApiKey::new(text.trim())));
        }
        Ok(env::var(KEY).ok().filter(|key| !key.is_empty()).map(|key| ClientApiKey::new(key.trim())))
    }

    /// Fails if a server is named. For commands that need a database file.
    pub(crate) fn require_database_file(&self) -> Result<(), Error> {
        let Some(server) = &self.server else { return Ok(()) };
        let detail = format!(
            "this command works on a database file, but `--server {server}` (OUTLAST_SERVER) selects a server; run it where the file is, without `--server`"
        );
        Err(Error::new(Kind::CommandLocal, detail))
    }

    /// Fails if a server is named. For commands that use the configuration of this machine; `what` says so.
    pub(crate) fn only_here(&self, what: &str) -> Result<(), Error> {
        let Some(server) = &self.server else { return Ok(()) };
        let detail = format!(
            "{what}, but `--server {server}` (OUTLAST_SERVER) selects a server; remove it, or run the command on the server's machine"
        );
        Err(Error::new(Kind::CommandLocal, detail))
    }

    /// Returns the path of the input history, or `None` for a server.
    pub(crate) fn history(&self) -> Option<PathBuf> {
        let mut history = self.path.clone().into_os_string();
        history.push("-history");
        self.server.is_none().then(|| history.into())
    }

    /// Returns a builder for a runtime on the database. Starting it creates the database if necessary.
    pub(crate) fn builder(&self) -> Builder {
        let builder = Outlast::at(&self.path).acting_as(terminal_user());
        let builder = match &self.org {
            Some(org) => builder.org(org),
            None => builder,
        };
        if self.unsafe_durability { builder.unsafe_durability() } else { builder }
    }

    /// Like [`Self::builder`], with the attachment store, policies, telemetry and sinks of the configuration.
    pub(crate) fn configured(&self, configuration: &ConfigFile) -> Result<Builder, Error> {
        self.require_database_file()?;
        let builder = self.builder();
        let builder = match self.address(configuration)? {
            Some(address) => builder.attachments(address),
            None => builder,
        };
        let builder = match configuration.telemetry()? {
            Some(settings) => builder.telemetry(settings),
            None => builder,
        };
        let builder = cedar::add_policies(builder, configuration.document()?.as_ref())?;
        configuration.sinks()?.iter().try_fold(builder, |builder, sink| Ok(builder.sink(sink.outlet()?)))
    }

    /// Opens the attachment store outside of the database, if one is configured.
    pub(crate) async fn contents(
        &self,
        store: &dyn Store,
        configuration: &ConfigFile,
    ) -> Result<Option<Arc<dyn ContentStorage>>, Error> {
        let Some(address) = self.address(configuration)? else { return Ok(None) };
        Ok(Some(Arc::new(ObjectContents::open(&address, &name_of(store).await?)?)))
    }

    fn address(&self, configuration: &ConfigFile) -> Result<Option<String>, Error> {
        match &self.attachments {
            Some(address) => Ok(Some(address.clone())),
            None => configuration.attachments(),
        }
    }

    /// Opens an existing database for the selected organisation, without a worker.
    pub(crate) async fn open(&self) -> Result<Arc<dyn Store>, Error> {
        self.open_by(terminal_user()).await
    }

    /// Like [`Self::open`], in the name of `by`.
    pub(crate) async fn open_by(&self, by: Principal) -> Result<Arc<dyn Store>, Error> {
        let store = self.operator()?;
        let org = self.org_in(store.as_ref()).await?;
        Ok(store.serving(Access::to(org).by(by)))
    }

    /// Returns the selected organisation.
    pub(crate) async fn org_in(&self, store: &dyn Store) -> Result<OrgId, Error> {
        match &self.org {
            Some(named) => orgs::find_org(store, named).await,
            None => Ok(OrgId::DEFAULT),
        }
    }

    /// Opens an existing database for all organisations.
    pub(crate) fn operator(&self) -> Result<Arc<dyn Store>, Error> {
        let store: Arc<dyn Store> = Arc::new(self.open_as(None)?);
        Ok(store.serving(Access::operator().by(terminal_user())))
    }

    /// Opens an existing database for the named organisation, or for all.
    pub(crate) async fn open_for_all_orgs(&self) -> Result<Arc<dyn Store>, Error> {
        if self.org.is_some() { self.open().await } else { self.operator() }
    }

    /// Like [`Self::open`], but creates the database if necessary.
    pub(crate) async fn open_or_create(&self) -> Result<Arc<dyn Store>, Error> {
        self.make()?;
        self.open().await
    }

    /// Like [`Self::operator`], but creates the database if necessary.
    pub(crate) fn open_or_create_for_all_orgs(&self) -> Result<Arc<dyn Store>, Error> {
        self.make()?;
        self.operator()
    }

    fn make(&self) -> Result<(), Error> {
        self.require_database_file()?;
        if !self.path.exists() {
            let options =
                SqliteOptions { unsafe_durability: self.unsafe_durability, ..SqliteOptions::default() };
            drop(SqliteStore::open_with(&self.path, options)?);
        }
        Ok(())
    }

    /// Opens the database file. A worker registers itself there, so that other processes can see whether it
    /// is alive.
    pub(crate) fn open_as(&self, worker: Option<WorkerId>) -> Result<SqliteStore, Error> {
        self.require_database_file()?;
        if !self.path.exists() {
            let detail = format!(
                "there is no database at {}; `outlast run` creates one, `--data FILE` selects another",
                self.path.display()
            );
            return Err(Error::new(Kind::IoFailed, detail));
        }
        let options =
            SqliteOptions { unsafe_durability: self.unsafe_durability, worker, ..SqliteOptions::default() };
        SqliteStore::open_with(&self.path, options)
    }
}

/// Returns the user at the terminal.
pub(crate) fn terminal_user() -> Principal {
    let user = env::var("USER").ok().and_then(|user| user.parse().ok());
    let user = user.or_else(|| "operator".parse().ok());
    user.map_or_else(Principal::program, Principal::Person)
}
