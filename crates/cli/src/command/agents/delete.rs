//! `outlast agents delete`: deletes an agent, harness or capability. Its versions stay in the database.
use crate::agent::staff::Staff;
use crate::data::Data;
use crate::desk::Desk;
use crate::providers::Configuration;
use crate::terminal;
use clap::Args;
use outlast::configs::{ConfigKind, StoredConfig};
use outlast::store::Store;
use outlast::{Error, Kind};
use serde_json::json;

/// Deletes an agent, a harness or a capability from the database.
#[derive(Args)]
pub(super) struct Delete {
    /// Name of the agent, harness or capability
    name: String,
    /// Kind of the configuration: agent, harness or capability
    #[arg(long, default_value = "agent")]
    kind: ConfigKind,
}

impl Delete {
    pub(super) async fn run(&self, configuration: &Configuration, data: &Data) -> Result<(), Error> {
        let Self { name, kind } = self;
        let desk = data.desk().await?;
        if let Desk::File(store) = &desk {
            self.check(Staff::read(configuration)?, store.as_ref()).await?;
        }
        desk.delete_config(*kind, name).await?;
        if data.json {
            terminal::json(&json!({ "kind": kind.name(), "name": name, "deleted": true }));
        } else {
            terminal::say(&format!("{kind} {name} is deleted; its versions stay"));
        }
        Ok(())
    }

    /// Refuses to delete a configuration that an agent needs. A server checks the same.
    async fn check(&self, written: Staff, store: &dyn Store) -> Result<(), Error> {
        let mut kept = Vec::new();
        for kind in ConfigKind::ALL {
            kept.extend(store.configs(kind, usize::MAX).await?);
        }
        let is_it = |config: &StoredConfig| config.kind == self.kind && config.name == self.name;
        let left = kept.iter().filter(|config| !is_it(config)).cloned().collect();
        let (before, after) = (written.clone().and_kept(kept), written.and_kept(left));
        for agent in after.names() {
            if let (Ok(_), Err(error)) = (before.named(agent, None), after.named(agent, None)) {
                let detail = format!("the agent `{agent}` could not be made any more: {}", error.detail());
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
        }
        Ok(())
    }
}
