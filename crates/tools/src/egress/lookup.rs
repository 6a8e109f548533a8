//! Looks names up, once per connection: what was checked is what is connected to.
use super::rules::Rules;
use outlast_ports::Answer;
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Finds the addresses of a name.
pub trait Lookup: Send + Sync + 'static {
    /// All addresses of a name, in the order they should be tried.
    fn addresses<'a>(&'a self, name: &'a str) -> Answer<'a, Vec<IpAddr>>;
}

/// Asks the operating system.
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn addresses<'a>(&'a self, name: &'a str) -> Answer<'a, Vec<IpAddr>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await.map_err(|cause| {
                Error::new(Kind::EgressUnreachable, format!("`{}` cannot be looked up: {cause}", shown(name)))
                    .because(cause)
            })?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// The only look-up of the client: it gives nothing that was not checked.
pub(super) struct Checked {
    pub(super) rules: Arc<Rules>,
    pub(super) lookup: Arc<dyn Lookup>,
}

impl Resolve for Checked {
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
            // Port 0 stands for the one in the URL.
            let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}
