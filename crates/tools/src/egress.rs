//! Outbound HTTP for tools, protected against SSRF: resolve → filter → pin → connect.
//!
//! - [`Rules`] define the allowed targets. By default, these are all public hosts on the usual ports.
//! - The URL is checked, its host is resolved once ([`Lookup`]), and all its addresses are checked. The connection goes
//!   to one of the checked addresses; TLS and the `Host` header keep the name.
//! - A limited number of redirects is followed, and each is checked like a new URL.
//! - Proxy settings of the environment are ignored.
//! - [`Caps`] limit bytes, time and redirects.
//!
//! Tools use [`Egress::get`]. Your own tool can request `Service<Egress>`.
mod address;
mod body;
mod lookup;
mod rules;
#[cfg(test)]
mod tests;

pub use address::Scope;
pub use lookup::{Lookup, SystemLookup};
pub use rules::{HostRule, Network, Rules, URL_BYTES};

use body::{Body, Taken};
use lookup::Checked;
use outlast_ports::service::Agent;
use outlast_vocab::message::shown;
use outlast_vocab::policy::Deed;
use outlast_vocab::{Error, Kind, limits};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use rules::without_secrets;
use std::sync::Arc;
use std::time::Duration;

/// Headers with credentials. They are only sent to the host that they were given for.
const CREDENTIALS: &[HeaderName] = &[header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];

/// The limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The maximum size of the decoded body in bytes. The rest is not read.
    pub bytes: usize,
    /// The maximum ratio of decoded to received bytes.
    pub ratio: usize,
    /// The maximum number of redirects.
    pub redirects: usize,
    /// The timeout for connecting.
    pub connect: Duration,
    /// The timeout between two reads.
    pub idle: Duration,
    /// The timeout of the whole request.
    pub total: Duration,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            bytes: 1 << 20,
            ratio: 200,
            redirects: 5,
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(10),
            total: Duration::from_secs(30),
        }
    }
}

/// An HTTP client that enforces egress rules.
#[derive(Clone)]
pub struct Egress {
    client: Client,
    rules: Arc<Rules>,
    caps: Caps,
    /// The agent whose policy is asked about every request.
    agent: Option<Agent>,
}

/// The response to a GET request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The URL after all redirects.
    pub url: String,
    /// The HTTP status.
    pub status: u16,
    /// The `Content-Type` header, such as `text/html; charset=utf-8`.
    pub content_type: Option<String>,
    /// The decoded body.
    pub body: Vec<u8>,
    /// Whether the body was cut at the limit.
    pub cut: bool,
}

/// The response to a POST request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The HTTP status. Redirects are not followed.
    pub status: u16,
    /// The `Retry-After` header.
    pub retry_after: Option<String>,
    /// The decoded body, up to the limit.
    pub body: Vec<u8>,
}

impl Egress {
    /// Creates a client with these rules.
    pub fn new(rules: Rules) -> Result<Self, Error> {
        Self::with(rules, Caps::default(), Arc::new(SystemLookup))
    }

    /// Creates a client with its own limits and name resolution.
    pub fn with(rules: Rules, caps: Caps, lookup: Arc<dyn Lookup>) -> Result<Self, Error> {
        // The first caller in a process installs the cryptography provider. There is only one kind, so the result is
        // ignored.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let rules = Arc::new(rules);
        let client = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .connect_timeout(caps.connect)
            .read_timeout(caps.idle)
            .user_agent(concat!("outlast/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Checked { rules: rules.clone(), lookup })
            .build()
            .map_err(|cause| {
                let detail = format!(
                    "no HTTP client can be made: {}; are the certificates of the system there?",
                    innermost(&cause)
                );
                Error::new(Kind::ConfigInvalid, detail).because(cause)
            })?;
        Ok(Self { client, rules, caps, agent: None })
    }

    /// Returns a client for the agent of a turn. It is restricted to the turn's network access, and the agent's policy
    /// is asked about every request, including redirects.
    pub fn for_agent(&self, agent: &Agent) -> Result<Self, Error> {
        let rules = Arc::new(Rules::clone(&self.rules).within(&agent.network()?)?);
        Ok(Self { rules, agent: Some(agent.clone()), ..self.clone() })
    }

    /// Returns the rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the underlying client, for other protocols. It resolves and connects under the rules and follows no
    /// redirects.
    ///
    /// Check each URL with [`Rules::check`] first, because an IP address in a URL is not resolved.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a GET request.
    pub async fn get(&self, url: &str, headers: HeaderMap) -> Result<Fetched, Error> {
        let url = self.rules.check(url)?;
        let told = without_secrets(&url);
        self.in_time(&told, self.follow(url, headers)).await
    }

    /// Sends a POST request. Redirects are not followed, because the body is only meant for this URL.
    pub async fn post(&self, url: &str, headers: HeaderMap, body: Vec<u8>) -> Result<Posted, Error> {
        let url = self.rules.check(url)?;
        let told = without_secrets(&url);
        self.permitted("POST", &url).await?;
        let posted = async {
            let asked = self.client.post(url.clone()).headers(headers).body(body).send().await;
            let response = asked.map_err(|cause| unreachable(&url, cause))?;
            let retry_after = text(&response, &header::RETRY_AFTER);
            let Fetched { status, body, .. } = self.take(url, response).await?;
            Ok(Posted { status, retry_after, body })
        };
        self.in_time(&told, posted).await
    }

    async fn in_time<T>(
        &self,
        told: &str,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::time::timeout(self.caps.total, asked).await.unwrap_or_else(|_| {
            let most = self.caps.total.as_secs_f32();
            let detail = format!("`{}` took longer than the {most} s it may", shown(told));
            Err(Error::new(Kind::EgressUnreachable, detail))
        })
    }

    async fn follow(&self, mut url: Url, mut headers: HeaderMap) -> Result<Fetched, Error> {
        headers.entry(header::ACCEPT_ENCODING).or_insert(HeaderValue::from_static("gzip, deflate"));
        let mut redirects = 0;
        loop {
            self.permitted("GET", &url).await?;
            let response = self.ask(&url, &headers).await?;
            let Some(location) = location(&response) else { return self.take(url, response).await };
            redirects += 1;
            limits::check("redirects", redirects, self.caps.redirects)?;
            let next = self.rules.redirect(&url, location)?;
            if next.origin() != url.origin() {
                for name in CREDENTIALS {
                    headers.remove(name);
                }
            }
            url = next;
        }
    }

    async fn permitted(&self, method: &str, url: &Url) -> Result<(), Error> {
        match &self.agent {
            Some(agent) => agent.permit(request(method, url)).await,
            None => Ok(()),
        }
    }

    async fn ask(&self, url: &Url, headers: &HeaderMap) -> Result<Response, Error> {
        let asked = self.client.get(url.clone()).headers(headers.clone()).send().await;
        asked.map_err(|cause| unreachable(url, cause))
    }

    async fn take(&self, url: Url, mut response: Response) -> Result<Fetched, Error> {
        let content_type = text(&response, &header::CONTENT_TYPE);
        let mut body = Body::new(text(&response, &header::CONTENT_ENCODING).as_deref(), self.caps)?;
        let status = response.status().as_u16();
        let mut cut = false;
        while let Some(piece) = response.chunk().await.map_err(|cause| unreachable(&url, cause))? {
            if body.take(&piece)? == Taken::Full {
                cut = true;
                break;
            }
        }
        let body = if cut { body.cut() } else { body.finish()? };
        Ok(Fetched { url: url.to_string(), status, content_type, body, cut })
    }
}

/// Describes a request for the policy.
fn request(method: &str, url: &Url) -> Deed {
    Deed::Egress {
        scheme: url.scheme().to_owned(),
        host: url.host_str().unwrap_or_default().to_owned(),
        port: url.port_or_known_default().unwrap_or_default(),
        method: method.to_owned(),
        path: url.path().to_owned(),
    }
}

/// Returns a header of a response as text.
fn text(response: &Response, name: &HeaderName) -> Option<String> {
    response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Returns the target of a redirect, if the response is one.
fn location(response: &Response) -> Option<&[u8]> {
    let redirects = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    response.headers().get(header::LOCATION).filter(|_| redirects).map(HeaderValue::as_bytes)
}

/// Returns the error of the checked name resolution, or else an error that the host cannot be reached.
fn unreachable(url: &Url, cause: reqwest::Error) -> Error {
    let mut ours: Option<&(dyn std::error::Error + 'static)> = Some(&cause);
    while let Some(error) = ours {
        if let Some(error) = error.downcast_ref::<Error>() {
            return Error::new(error.kind(), error.detail());
        }
        ours = error.source();
    }
    let what = if cause.is_timeout() { "was silent for too long".to_owned() } else { innermost(&cause) };
    let detail = format!("`{}` cannot be reached: {what}", shown(&without_secrets(url)));
    Error::new(Kind::EgressUnreachable, detail).because(cause.without_url())
}

/// Returns the root cause of an error. The outer errors add no information.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
