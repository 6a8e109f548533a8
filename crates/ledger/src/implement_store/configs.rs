//! Implements `ConfigStore`.
pub use crate::{Backend, rules};
pub use outlast_ports::ResultFuture;
pub use outlast_ports::configs::ConfigStore;
pub use outlast_ports::page::Page;
pub use outlast_views::{ConfigKind, StoredConfig};
pub use outlast_vocab::Millis;
pub use serde_json::Value;

#[doc(hidden)]
#[macro_export]
macro_rules! implement_configs {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::configs::*;

            impl$(<$param: $bound>)? ConfigStore for $store {
                fn put_config(
                    &self,
                    kind: ConfigKind,
                    name: String,
                    body: Value,
                    now: Millis,
                ) -> ResultFuture<'_, StoredConfig> {
                    self.write(move |rows| rules::put_config(rows, kind, &name, &body, now))
                }

                fn replace_config(
                    &self,
                    kind: ConfigKind,
                    name: String,
                    body: Value,
                    last: u32,
                    now: Millis,
                ) -> ResultFuture<'_, StoredConfig> {
                    self.write(move |rows| rules::replace_config(rows, kind, &name, &body, last, now))
                }

                fn delete_config(
                    &self,
                    kind: ConfigKind,
                    name: String,
                    last: Option<u32>,
                    now: Millis,
                ) -> ResultFuture<'_, StoredConfig> {
                    self.write(move |rows| rules::delete_config(rows, kind, &name, last, now))
                }

                fn config(&self, kind: ConfigKind, name: String) -> ResultFuture<'_, Option<StoredConfig>> {
                    self.read(move |rows| rules::config(rows, kind, &name))
                }

                fn configs(&self, kind: ConfigKind, limit: usize) -> ResultFuture<'_, Vec<StoredConfig>> {
                    self.read(move |rows| Ok(rules::configs(rows, kind, None, limit)?.items))
                }

                fn configs_after(
                    &self,
                    kind: ConfigKind,
                    after: Option<String>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<StoredConfig, String>> {
                    self.read(move |rows| rules::configs(rows, kind, after.as_deref(), limit))
                }

                fn config_versions(
                    &self,
                    kind: ConfigKind,
                    name: String,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<StoredConfig>> {
                    self.read(move |rows| Ok(rules::config_versions(rows, kind, &name, None, limit)?.items))
                }

                fn config_versions_before(
                    &self,
                    kind: ConfigKind,
                    name: String,
                    before: Option<u32>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<StoredConfig, u32>> {
                    self.read(move |rows| rules::config_versions(rows, kind, &name, before, limit))
                }
            }
        };
    };
}
