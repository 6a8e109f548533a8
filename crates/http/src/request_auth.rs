//! Checks the `Host`, `Origin` and API key headers of requests.
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use outlast_vocab::access::Access;
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind};
use std::net::SocketAddr;

/// The host names of the loopback interface.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Headers that proxies, load balancers and content delivery networks add to forwarded requests.
const PROXY_HEADERS: [&str; 14] = [
    "forwarded",
    "via",
    "x-real-ip",
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-original-host",
    "x-original-url",
    "x-rewrite-url",
    "x-proxyuser-ip",
    "x-remote-ip",
    "x-remote-addr",
    "client-ip",
    "x-arr-ssl",
];

/// Prefixes of such headers: generic ones, and those of Cloudflare, Fly.io, Fastly, Azure, Google Cloud, AWS,
/// Akamai, Vercel, Netlify, Render, Envoy and ngrok.
const PROXY_PREFIXES: [&str; 20] = [
    "x-forwarded-",
    "x-original-forwarded-",
    "cf-",
    "cdn-",
    "fly-",
    "fastly-",
    "x-azure-",
    "x-fd-",
    "x-appengine-",
    "x-goog-",
    "x-cloud-trace-",
    "x-amz-",
    "x-amzn-",
    "cloudfront-",
    "x-akamai-",
    "x-vercel-",
    "x-nf-",
    "x-envoy-",
    "ngrok-",
    "tailscale-",
];

/// Returns whether a header shows that a proxy forwarded the request.
fn is_proxy_header(name: &str) -> bool {
    PROXY_HEADERS.contains(&name)
        || name == "x-forwarded"
        || PROXY_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Which requests the server lets in.
#[derive(Clone, Debug)]
pub struct OriginPolicy {
    /// What a caller without an API key may do, if the request names a loopback host. With `None`, every
    /// request needs a key.
    pub without_key: Option<Access>,
    /// The host names that the server answers to. If empty, it answers to any name.
    pub hosts: Vec<String>,
    /// Other origins whose pages may call the server, like `https://console.example.com`.
    pub origins: Vec<String>,
}

impl OriginPolicy {
    /// Creates the rules for a server at this address. On a loopback address, it accepts only loopback host
    /// names, and `local` is the access without a key. On any other address, every request needs a key.
    pub fn for_address(address: SocketAddr, local: Access) -> Self {
        let here = address.ip().is_loopback();
        let hosts = if here { LOOPBACK.map(ToOwned::to_owned).to_vec() } else { Vec::new() };
        Self { without_key: here.then_some(local), hosts, origins: Vec::new() }
    }

    /// Rejects requests for another host name and requests from pages of other origins.
    pub fn check(&self, target: &Uri, headers: &HeaderMap) -> Result<(), Error> {
        let host = single_header(headers, &header::HOST)?.unwrap_or_default();
        // A proxy may route by the authority of the request target, while this server uses the header.
        if let Some(authority) = target.authority().filter(|named| !named.as_str().eq_ignore_ascii_case(host))
        {
            let (authority, host) = (shown(authority.as_str()), shown(host));
            let detail = format!("the request is for `{authority}`, but its header `host` names `{host}`");
            return Err(Error::new(Kind::OriginDenied, detail));
        }
        let name = without_port(host);
        if !self.hosts.is_empty() && !self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            let known = self.hosts.join(", ");
            let detail =
                format!("this server accepts requests for {known}, but the request is for `{}`", shown(host));
            return Err(Error::new(Kind::OriginDenied, detail));
        }
        match single_header(headers, &header::ORIGIN)? {
            Some(origin)
                if !is_same_origin(origin, host) && !self.origins.iter().any(|known| known == origin) =>
            {
                let detail = format!("pages of `{}` may not send requests to this server", shown(origin));
                Err(Error::new(Kind::OriginDenied, detail))
            }
            _ => Ok(()),
        }
    }

    /// Returns what a caller without an API key may do. Rejects requests with a proxy header or another host
    /// name than loopback: a proxy forwarded them, so the caller may be anyone.
    pub fn without_key(&self, headers: &HeaderMap) -> Result<&Access, Error> {
        let takes = |who: &str| {
            let detail = format!("{who} an API key: `authorization: Bearer olk_…`");
            Error::new(Kind::KeyInvalid, detail)
        };
        let access = self.without_key.as_ref().ok_or_else(|| takes("this server takes"))?;
        if let Some(name) = headers.keys().find(|name| is_proxy_header(name.as_str())) {
            return Err(takes(&format!("a request that a proxy forwarded (header `{name}`) requires")));
        }
        let host = single_header(headers, &header::HOST)?.unwrap_or_default();
        if is_loopback_host(without_port(host)) {
            return Ok(access);
        }
        let known = LOOPBACK.join(", ");
        Err(takes(&format!(
            "only requests for {known} are allowed without a key; one for `{}` requires",
            shown(host)
        )))
    }

    /// Returns the `Origin` of a request if it is one of the allowed ones.
    pub fn allowed_origin<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        self.origins.iter().any(|known| known.as_bytes() == origin.as_bytes()).then_some(origin)
    }
}

/// Returns whether a host name is one of the loopback interface.
fn is_loopback_host(name: &str) -> bool {
    LOOPBACK.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Returns whether an origin is this server itself.
fn is_same_origin(origin: &str, host: &str) -> bool {
    let of = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    of.is_some_and(|of| of.eq_ignore_ascii_case(host))
}

/// Returns the API key of a request. Rejects a header that occurs twice or has another form.
pub fn key(headers: &HeaderMap) -> Result<Option<&str>, Error> {
    let Some(said) = single_header(headers, &header::AUTHORIZATION)? else { return Ok(None) };
    let key = said.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let wrong = || {
        Error::new(
            Kind::KeyInvalid,
            "expected an API key as `authorization: Bearer olk_…`, got something else",
        )
    };
    key.map(|(_, key)| Some(key.trim())).ok_or_else(wrong)
}

/// Returns the API key from the `x-api-key` header, which Anthropic clients send.
pub fn x_api_key(headers: &HeaderMap) -> Result<Option<&str>, Error> {
    single_header(headers, &header::HeaderName::from_static("x-api-key"))
}

/// Returns whether a key has the format of keys that this server issues.
pub fn is_outlast_key(key: &str) -> bool {
    key.starts_with("olk_")
}

/// Returns a header that must occur at most once. If it occurred twice, a proxy and this server could read
/// different values.
pub fn single_header<'h>(
    headers: &'h HeaderMap,
    name: &header::HeaderName,
) -> Result<Option<&'h str>, Error> {
    let mut all = headers.get_all(name).iter();
    let (Some(first), second) = (all.next(), all.next()) else { return Ok(None) };
    let wrong = |how: &str| Error::new(Kind::InputInvalid, format!("the header `{name}` {how}"));
    if second.is_some() {
        return Err(wrong("appears twice"));
    }
    first.to_str().map(Some).map_err(|_| wrong("is not plain text"))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin_policy() -> OriginPolicy {
        OriginPolicy::for_address("127.0.0.1:7777".parse().unwrap(), Access::operator())
    }

    fn check(policy: &OriginPolicy, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        policy.check(&Uri::from_static("/"), &headers).is_ok()
    }

    #[test]
    fn loopback_server_accepts_only_loopback_names() {
        for host in ["127.0.0.1:7777", "localhost", "LOCALHOST:1", "[::1]:7777"] {
            assert!(check(&origin_policy(), host, None), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:7777", "127.0.0.1.evil.example", "localhost.evil", "[::1"]
        {
            assert!(!check(&origin_policy(), host, None), "{host}");
        }
    }

    #[test]
    fn foreign_origins_are_denied() {
        let host = "127.0.0.1:7777";
        assert!(check(&origin_policy(), host, Some("http://127.0.0.1:7777")));
        for origin in
            ["null", "http://evil.example", "http://127.0.0.1:8080", "http://localhost:7777", "file://"]
        {
            assert!(!check(&origin_policy(), host, Some(origin)), "{origin}");
        }
        let open = OriginPolicy { origins: vec!["https://console.example".to_owned()], ..origin_policy() };
        assert!(check(&open, host, Some("https://console.example")));
        assert!(!check(&open, host, Some("https://console.example.evil")));
    }

    #[test]
    fn public_address_requires_a_key() {
        for address in ["0.0.0.0:7777", "192.0.2.1:80", "[::]:7777"] {
            assert!(
                OriginPolicy::for_address(address.parse().unwrap(), Access::operator()).without_key.is_none(),
                "{address}"
            );
        }
        assert!(origin_policy().without_key.is_some());
    }

    #[test]
    fn non_local_host_name_requires_a_key() {
        let proxied = "agents.example.com".to_owned();
        let policy =
            OriginPolicy { hosts: [origin_policy().hosts, vec![proxied]].concat(), ..origin_policy() };
        let come = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            policy.check(&Uri::from_static("/"), &headers).unwrap();
            policy.without_key(&headers).is_ok()
        };
        for host in ["127.0.0.1:7777", "LocalHost", "[::1]:7777"] {
            assert!(come(host), "{host}");
        }
        for host in ["agents.example.com", "AGENTS.example.com:443"] {
            assert!(!come(host), "{host}");
        }
        assert!(policy.without_key(&HeaderMap::new()).is_err());
        let mut passed_on = HeaderMap::new();
        passed_on.insert(header::HOST, "127.0.0.1:7777".parse().unwrap());
        assert!(policy.without_key(&passed_on).is_ok());
        passed_on.insert("x-forwarded-for", "203.0.113.9".parse().unwrap());
        assert_eq!(policy.without_key(&passed_on).unwrap_err().kind(), Kind::KeyInvalid);
    }

    #[test]
    fn authority_of_the_target_must_be_the_host() {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "localhost:7777".parse().unwrap());
        let check = |target: &str| origin_policy().check(&target.parse().unwrap(), &headers).is_ok();
        for target in ["/v1/turns", "http://localhost:7777/v1/turns", "http://LOCALHOST:7777/"] {
            assert!(check(target), "{target}");
        }
        for target in [
            "http://evil.example/v1/turns",
            "http://127.0.0.1:7777/",
            "http://a@localhost:7777/",
            "evil.example:443",
        ] {
            assert!(!check(target), "{target}");
        }
    }

    #[test]
    fn proxy_headers_require_a_key() {
        let with = |name: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, "127.0.0.1:7777".parse().unwrap());
            headers.insert(header::HeaderName::from_static(name), "1.1 proxy".parse().unwrap());
            origin_policy().without_key(&headers).map(drop).map_err(|error| error.kind())
        };
        for name in [
            "via",
            "forwarded",
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-forwarded-anything",
            "x-forwarded",
            "cf-ray",
            "cf-connecting-ip",
            "x-real-ip",
            "true-client-ip",
            "fly-client-ip",
            "fastly-client-ip",
            "x-azure-clientip",
            "x-amzn-trace-id",
            "x-envoy-external-address",
            "tailscale-user-login",
        ] {
            assert_eq!(with(name), Err(Kind::KeyInvalid), "{name}");
        }
        for name in ["accept", "user-agent", "x-request-id", "traceparent", "anthropic-version"] {
            assert_eq!(with(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn key_must_be_one_bearer_header() {
        let with = |said: &[&str]| {
            let mut headers = HeaderMap::new();
            for said in said {
                headers.append(header::AUTHORIZATION, said.parse().unwrap());
            }
            key(&headers).map(|key| key.map(ToOwned::to_owned)).map_err(|error| error.kind())
        };
        assert_eq!(with(&[]), Ok(None));
        assert_eq!(with(&["Bearer olk_1"]), Ok(Some("olk_1".to_owned())));
        assert_eq!(with(&["bearer olk_1"]), Ok(Some("olk_1".to_owned())));
        for wrong in ["olk_1", "Basic b2xr", "Bearer", ""] {
            assert_eq!(with(&[wrong]), Err(Kind::KeyInvalid), "{wrong}");
        }
        assert_eq!(with(&["Bearer olk_1", "Bearer olk_2"]), Err(Kind::InputInvalid));
    }
}
