//! Resolves names once per connection, so that the connection goes to the checked addresses.
use super::rules::EgressRules;
use outlast_ports::ResultFuture;
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Resolves names to addresses.
pub trait NameResolver: Send + Sync + 'static {
    /// Returns all addresses of a name, in the order in which to try them.
    fn addresses<'a>(&'a self, name: &'a str) -> ResultFuture<'a, Vec<IpAddr>>;
}

/// Uses the resolver of the operating system.
pub struct SystemNameResolver;

impl NameResolver for SystemNameResolver {
    fn addresses<'a>(&'a self, name: &'a str) -> ResultFuture<'a, Vec<IpAddr>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await.map_err(|cause| {
                Error::new(Kind::EgressUnreachable, format!("`{}` cannot be resolved: {cause}", shown(name)))
                    .because(cause)
            })?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// The only resolver of the client. It returns checked addresses only.
pub(super) struct CheckedResolver {
    pub(super) rules: Arc<EgressRules>,
    pub(super) lookup: Arc<dyn NameResolver>,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (rules, lookup) = (self.rules.clone(), self.lookup.clone());
        Box::pin(async move {
            let name = name.as_str();
            let addresses = lookup.addresses(name).await?;
            if addresses.is_empty() {
                let detail = format!("`{}` has no address", shown(name));
                return Err(Error::new(Kind::EgressUnreachable, detail).into());
            }
            rules.check_addresses(name, &addresses)?;
            // Port 0 means the port of the URL.
            let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}
