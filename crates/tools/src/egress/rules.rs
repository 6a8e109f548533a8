//! Rules for the URLs that a tool may request.
//!
//! A URL is parsed once, in the way that browsers parse it, and the parsed value is used for the connection. No second
//! parser can interpret it differently. `0x7f.1`, `2130706433`, `127.1`, full-width digits and a trailing dot are
//! normalised before the rules apply.
use super::address::AddressScope;
use outlast_ports::tool::failed;
use outlast_vocab::message::shown;
use outlast_vocab::overlay::NetworkAllowList;
use outlast_vocab::{Error, Kind, limits};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use url::{Host, Url};

/// The maximum length of a URL in bytes.
pub const URL_BYTES: usize = 8 << 10;

/// The networks in which a host may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The public network.
    Public,
    /// Also private networks and this machine.
    Any,
}

/// The allowed targets of requests.
#[derive(Clone, Debug, Default)]
pub struct EgressRules {
    /// The allowed hosts; all public hosts if absent.
    allow: Option<Vec<HostRule>>,
    /// Hosts that are allowed although they are not public.
    private: Vec<HostRule>,
    /// Further lists, each of which must contain the host.
    within: Vec<Vec<HostRule>>,
}

impl EgressRules {
    /// Allows every public host on the usual ports.
    pub fn public() -> Self {
        Self::default()
    }

    /// Allows only these hosts, plus those listed as private.
    #[must_use]
    pub fn only(mut self, hosts: impl IntoIterator<Item = HostRule>) -> Self {
        self.allow.get_or_insert_default().extend(hosts);
        self
    }

    /// Also allows these hosts on these ports although they are not public. Each must be named exactly.
    pub fn and_private(mut self, hosts: impl IntoIterator<Item = HostRule>) -> Result<Self, Error> {
        for host in hosts {
            if !matches!(host.host, HostPattern::Exact(_)) {
                let detail = format!("expected the exact name of a private host, got `{host}`");
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
            self.private.push(host);
        }
        Ok(self)
    }

    /// Restricts the rules to this network. A list that does not parse is an error, so that nothing is allowed by
    /// accident.
    pub fn within(mut self, network: &NetworkAllowList) -> Result<Self, Error> {
        for list in network.lists() {
            self.within.push(list.iter().map(|host| host.parse()).collect::<Result<_, Error>>()?);
        }
        Ok(self)
    }

    /// Allows only the host and port of this URL, in the given network.
    pub fn for_url(url: &str, network: Network) -> Result<Self, Error> {
        let refused = || {
            let detail = format!("expected a URL like `https://example.com/mcp`, got `{}`", shown(url));
            Error::new(Kind::ConfigInvalid, detail)
        };
        let parsed = Url::parse(url).map_err(|_| refused())?;
        let host = parsed.host_str().ok_or_else(refused)?;
        let rule = parsed.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let rule: HostRule = rule.parse()?;
        let rules = match network {
            Network::Public => Self::public().only([rule]),
            Network::Any => Self::public().only([]).and_private([rule])?,
        };
        rules.check(url)?;
        Ok(rules)
    }

    /// Parses a URL and checks everything that can be checked before its host is resolved.
    pub fn check(&self, text: &str) -> Result<Url, Error> {
        limits::check("url_bytes", text.len(), URL_BYTES)?;
        let url = Url::parse(text).map_err(|cause| {
            let detail =
                format!("expected a URL like `https://example.com/page`, got `{}`: {cause}", shown(text));
            Error::new(Kind::InputInvalid, detail)
        })?;
        self.check_url(url)
    }

    /// Checks a parsed URL.
    fn check_url(&self, mut url: Url) -> Result<Url, Error> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(denied(&url, "only `https:` and `http:` are supported"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(denied(&url, "a name or password in a URL is not sent; pass it in a header"));
        }
        url.set_fragment(None);
        let (host, port) = destination(&mut url)?;
        for list in &self.within {
            if !list.iter().any(|rule| rule.matches_host(&host) && rule.port.matches_port(&url, port)) {
                let hosts: Vec<String> = list.iter().map(ToString::to_string).collect();
                let only = if hosts.is_empty() { "none".to_owned() } else { hosts.join(", ") };
                return Err(denied(&url, &format!("the network of the agent is restricted to: {only}")));
            }
        }
        let listed: Vec<&HostRule> = self.private.iter().filter(|rule| rule.matches_host(&host)).collect();
        if !listed.is_empty() {
            // A private host is only allowed on its listed ports. Otherwise one allowed port would allow all others.
            if listed.iter().any(|rule| rule.port.matches_port(&url, port)) {
                return Ok(url);
            }
            return Err(denied(&url, &format!("this private host is not allowed on port {port}")));
        }
        if let Some(scope) =
            address(&host).map(AddressScope::of).filter(|scope| *scope != AddressScope::Public)
        {
            return Err(denied(&url, &format!("this address is {}", scope.name())));
        }
        match &self.allow {
            Some(rules)
                if !rules
                    .iter()
                    .any(|rule| rule.matches_host(&host) && rule.port.matches_port(&url, port)) =>
            {
                let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
                Err(denied(&url, &format!("only these hosts are allowed: {}", rules.join(", "))))
            }
            None if !PortPattern::Default.matches_port(&url, port) => {
                Err(denied(&url, &format!("port {port} is allowed only for hosts that are listed with it")))
            }
            _ => Ok(url),
        }
    }

    /// Checks a redirect like any other URL. It must not lead from HTTPS to HTTP.
    pub(super) fn redirect(&self, from: &Url, location: &[u8]) -> Result<Url, Error> {
        limits::check("url_bytes", location.len(), URL_BYTES)?;
        let next = std::str::from_utf8(location).ok().and_then(|location| from.join(location).ok());
        let next = next
            .ok_or_else(|| failed(format!("`{}` redirects to an invalid URL", shown(&display_url(from)))))?;
        if from.scheme() == "https" && next.scheme() == "http" {
            return Err(denied(&next, "a redirect from an encrypted connection leads to an unencrypted one"));
        }
        self.check_url(next)
    }

    /// Checks the addresses of a name. One forbidden address denies all of them, because the owner of the name controls
    /// which one is connected to.
    pub(super) fn check_addresses(&self, name: &str, addresses: &[IpAddr]) -> Result<(), Error> {
        let host = Host::Domain(name.to_owned());
        let is_private = self.private.iter().any(|rule| rule.matches_host(&host));
        let refused = addresses.iter().map(|address| AddressScope::of(*address)).find(|scope| {
            let allowed =
                if is_private { scope.can_be_private_host() } else { *scope == AddressScope::Public };
            !allowed
        });
        match refused {
            None => Ok(()),
            // The error omits the address, which would reveal the structure of the network.
            Some(scope) => Err(Error::new(
                Kind::EgressDenied,
                format!("`{}` resolves to an address that is {}", shown(name), scope.name()),
            )),
        }
    }
}

/// Returns the host without a trailing dot, and the port.
fn destination(url: &mut Url) -> Result<(Host, u16), Error> {
    if let Some(Host::Domain(name)) = url.host()
        && let Some(bare) = name.strip_suffix('.')
    {
        let bare = bare.to_owned();
        url.set_host(Some(&bare)).map_err(|_| denied(url, "this is not a valid host name"))?;
    }
    let host = url.host().map(|host| host.to_owned());
    let host = host.ok_or_else(|| denied(url, "it has no host"))?;
    if !is_host(&host) {
        return Err(denied(url, "this is not a valid host name"));
    }
    let port = url.port_or_known_default().ok_or_else(|| denied(url, "it has no port"))?;
    Ok((host, port))
}

/// Returns whether this is an address or a valid host name.
fn is_host(host: &Host) -> bool {
    match host {
        Host::Domain(name) => name.split('.').all(|label| (1..=63).contains(&label.len())),
        Host::Ipv4(_) | Host::Ipv6(_) => true,
    }
}

fn address(host: &Host) -> Option<IpAddr> {
    match host {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(IpAddr::V4(*address)),
        Host::Ipv6(address) => Some(IpAddr::V6(*address)),
    }
}

fn denied(url: &Url, why: &str) -> Error {
    Error::new(Kind::EgressDenied, format!("`{}` is not reached: {why}", shown(&display_url(url))))
}

/// Returns the URL for messages, without user name, password and query, which may contain secrets.
pub(super) fn display_url(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    match url.host_str() {
        Some(host) => format!("{}://{host}{port}{}", url.scheme(), url.path()),
        None => format!("{}:", url.scheme()),
    }
}

/// An allowed host: `example.com`, `*.example.com` (its subdomains) or `*` (any). A suffix `:8080` or `:*` allows other
/// ports than the usual one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRule {
    host: HostPattern,
    port: PortPattern,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    Any,
    SubdomainsOf(String),
    Exact(Host),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortPattern {
    /// 80 for `http:`, 443 for `https:`.
    Default,
    Number(u16),
    Any,
}

impl PortPattern {
    fn matches_port(self, url: &Url, port: u16) -> bool {
        match self {
            Self::Any => true,
            Self::Number(this) => this == port,
            Self::Default => url.port().is_none(),
        }
    }
}

impl HostRule {
    fn matches_host(&self, host: &Host) -> bool {
        match (&self.host, host) {
            (HostPattern::Any, _) => true,
            (HostPattern::SubdomainsOf(parent), Host::Domain(name)) => {
                name.strip_suffix(parent.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            (HostPattern::SubdomainsOf(_), _) => false,
            (HostPattern::Exact(this), host) => this == host,
        }
    }
}

impl FromStr for HostRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = || {
            let detail = format!(
                "expected a host like `example.com`, `*.example.com` or `example.com:8080`, got `{}`",
                shown(text)
            );
            Error::new(Kind::ConfigInvalid, detail)
        };
        let (host, port) = match text.rsplit_once(':') {
            // The last group of an IPv6 address is not a port.
            Some((host, _)) if host.starts_with('[') && !host.ends_with(']') => (text, PortPattern::Default),
            Some((host, "*")) => (host, PortPattern::Any),
            Some((host, port)) => (host, PortPattern::Number(port.parse().map_err(|_| refused())?)),
            None => (text, PortPattern::Default),
        };
        let named = |host: &str| {
            let host = Host::parse(host.strip_suffix('.').unwrap_or(host)).ok();
            host.filter(is_host).ok_or_else(refused)
        };
        let who = match host.strip_prefix("*.") {
            _ if host == "*" => HostPattern::Any,
            Some(parent) => match named(parent)? {
                Host::Domain(parent) if !parent.contains('*') => HostPattern::SubdomainsOf(parent),
                _ => return Err(refused()),
            },
            None => match named(host)? {
                Host::Domain(name) if name.contains('*') => return Err(refused()),
                host => HostPattern::Exact(host),
            },
        };
        Ok(Self { host: who, port })
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            HostPattern::Any => f.write_str("*")?,
            HostPattern::SubdomainsOf(parent) => write!(f, "*.{parent}")?,
            HostPattern::Exact(host) => write!(f, "{host}")?,
        }
        match self.port {
            PortPattern::Default => Ok(()),
            PortPattern::Number(port) => write!(f, ":{port}"),
            PortPattern::Any => f.write_str(":*"),
        }
    }
}

impl serde::Serialize for HostRule {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for HostRule {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(|error: Error| serde::de::Error::custom(error.detail()))
    }
}
