//! Implements `OrgStore`.
pub use crate::{Backend, rules};
pub use outlast_ports::ResultFuture;
pub use outlast_ports::orgs::{OrgStore, SealedApiKey};
pub use outlast_ports::page::Page;
pub use outlast_views::{AuditRange, AuditRow, KeyView, Org};
pub use outlast_vocab::Millis;
pub use outlast_vocab::access::{Access, ApiKey};
pub use outlast_vocab::id::{KeyId, OrgId};

#[doc(hidden)]
#[macro_export]
macro_rules! implement_orgs {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::orgs::*;

            impl$(<$param: $bound>)? OrgStore for $store {
                fn create_org(&self, org: Org) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::create_org(rows, &org))
                }

                fn org(&self, id: OrgId) -> ResultFuture<'_, Org> {
                    self.read(move |rows| rules::org(rows, id))
                }

                fn org_by_name(&self, name: String) -> ResultFuture<'_, Org> {
                    self.read(move |rows| rules::org_by_name(rows, &name))
                }

                fn orgs(&self) -> ResultFuture<'_, Vec<Org>> {
                    self.read(|rows| rows.orgs(None, usize::MAX))
                }

                fn orgs_after(
                    &self,
                    after: Option<String>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<Org, String>> {
                    self.read(move |rows| rules::orgs_after(rows, after.as_deref(), limit))
                }

                fn create_key(&self, key: SealedApiKey, now: Millis) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::create_key(rows, key, now))
                }

                fn revoke_key(&self, id: KeyId, now: Millis) -> ResultFuture<'_, KeyView> {
                    self.write(move |rows| rules::revoke_key(rows, id, now))
                }

                fn keys(&self) -> ResultFuture<'_, Vec<KeyView>> {
                    self.read(|rows| Ok(rules::keys(rows, None, usize::MAX)?.items))
                }

                fn keys_after(
                    &self,
                    after: Option<KeyId>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<KeyView, KeyId>> {
                    self.read(move |rows| rules::keys(rows, after, limit))
                }

                fn authenticate(&self, key: ApiKey, now: Millis) -> ResultFuture<'_, Access> {
                    self.read(move |rows| rules::authenticate(rows, &key, now))
                }

                fn audit(&self, range: AuditRange) -> ResultFuture<'_, Vec<AuditRow>> {
                    self.read(move |rows| rules::audit(rows, range))
                }
            }
        };
    };
}
