//! `outlast agents delete`: deletes an agent, harness or capability. Its versions stay in the database.
use crate::agent::sources::AgentSources;
use crate::backend::CommandBackend;
use crate::config_file::ConfigFile;
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::Args;
use outlast::configs::{ConfigKind, StoredConfig};
use outlast::store::Store;
use outlast::{Error, Kind};
use serde_json::json;

/// Deletes an agent, a harness or a capability from the database.
#[derive(Args)]
pub(super) struct AgentDeleteArgs {
    /// Name of the agent, harness or capability
    name: String,
    /// Kind of the configuration: agent, harness or capability
    #[arg(long, default_value = "agent")]
    kind: ConfigKind,
}

impl AgentDeleteArgs {
    pub(super) async fn run(&self, configuration: &ConfigFile, data: &GlobalArgs) -> Result<(), Error> {
        let Self { name, kind } = self;
        let backend = data.backend().await?;
        if let CommandBackend::File(store) = &backend {
            self.check(AgentSources::read(configuration)?, store.as_ref()).await?;
        }
        backend.delete_config(*kind, name).await?;
        if data.json {
            terminal::json(&json!({ "kind": kind.name(), "name": name, "deleted": true }));
        } else {
            terminal::say(&format!("{kind} {name} is deleted; its versions are kept"));
        }
        Ok(())
    }

    /// Refuses to delete a configuration that an agent needs. A server checks the same.
    async fn check(&self, written: AgentSources, store: &dyn Store) -> Result<(), Error> {
        let mut configs = Vec::new();
        for kind in ConfigKind::ALL {
            configs.extend(store.configs(kind, usize::MAX).await?);
        }
        let is_it = |config: &StoredConfig| config.kind == self.kind && config.name == self.name;
        let left = configs.iter().filter(|config| !is_it(config)).cloned().collect();
        let (before, after) = (written.clone().with_configs(configs), written.with_configs(left));
        for agent in after.names() {
            if let (Ok(_), Err(error)) = (before.named(agent, None), after.named(agent, None)) {
                let detail = format!("the agent `{agent}` could no longer be built: {}", error.detail());
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
        }
        Ok(())
    }
}
