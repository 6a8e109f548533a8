//! Outbound HTTP for tools, protected against SSRF: resolve → filter → pin → connect.
//!
//! - [`EgressRules`] define the allowed targets. By default, these are all public hosts on the usual ports.
//! - The URL is checked, its host is resolved once ([`NameResolver`]), and all its addresses are checked. The connection goes
//!   to one of the checked addresses; TLS and the `Host` header keep the name.
//! - A limited number of redirects is followed, and each is checked like a new URL.
//! - Proxy settings of the environment are ignored.
//! - [`EgressLimits`] limit bytes, time and redirects.
//!
//! Tools use [`Egress::get`]. Your own tool can request `Service<Egress>`.
mod address;
mod body;
mod lookup;
mod rules;
#[cfg(test)]
mod tests;
mod url_secrets;

pub use address::AddressScope;
pub use lookup::{NameResolver, SystemNameResolver};
pub use rules::{EgressRules, HostRule, Network, URL_BYTES};
pub use url_secrets::secret_url_parts;

use body::{BodyProgress, DecodedBody};
use lookup::CheckedResolver;
use outlast_ports::service::Agent;
use outlast_vocab::message::shown;
use outlast_vocab::policy::PolicyAction;
use outlast_vocab::{Error, Kind, limits};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use rules::display_url;
use std::sync::Arc;
use std::time::Duration;

/// Headers with credentials. They are only sent to the host that they were given for.
const CREDENTIALS: &[HeaderName] = &[header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];

/// The limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EgressLimits {
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

impl Default for EgressLimits {
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
    rules: Arc<EgressRules>,
    limits: EgressLimits,
    /// The agent whose policy is asked about every request.
    agent: Option<Agent>,
}

/// The response to a GET request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetResponse {
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
pub struct PostResponse {
    /// The HTTP status. Redirects are not followed.
    pub status: u16,
    /// The `Retry-After` header.
    pub retry_after: Option<String>,
    /// The decoded body, up to the limit.
    pub body: Vec<u8>,
}

impl Egress {
    /// Creates a client with these rules.
    pub fn new(rules: EgressRules) -> Result<Self, Error> {
        Self::with(rules, EgressLimits::default(), Arc::new(SystemNameResolver))
    }

    /// Creates a client with its own limits and name resolution.
    pub fn with(
        rules: EgressRules,
        caps: EgressLimits,
        lookup: Arc<dyn NameResolver>,
    ) -> Result<Self, Error> {
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
            .dns_resolver(CheckedResolver { rules: rules.clone(), lookup })
            .build()
            .map_err(|cause| {
                let detail = format!(
                    "the HTTP client cannot be created: {}; are the certificates of the system installed?",
                    innermost(&cause)
                );
                Error::new(Kind::ConfigInvalid, detail).because(cause)
            })?;
        Ok(Self { client, rules, limits: caps, agent: None })
    }

    /// Returns a client for the agent of a turn. It is restricted to the turn's network access, and the agent's policy
    /// is asked about every request, including redirects.
    pub fn for_agent(&self, agent: &Agent) -> Result<Self, Error> {
        let rules = Arc::new(EgressRules::clone(&self.rules).within(&agent.network()?)?);
        Ok(Self { rules, agent: Some(agent.clone()), ..self.clone() })
    }

    /// Returns the rules.
    pub fn rules(&self) -> &EgressRules {
        &self.rules
    }

    /// Returns the underlying client, for other protocols. It resolves and connects under the rules and follows no
    /// redirects.
    ///
    /// Check each URL with [`EgressRules::check`] first, because an IP address in a URL is not resolved.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a GET request.
    pub async fn get(&self, url: &str, headers: HeaderMap) -> Result<GetResponse, Error> {
        let url = self.rules.check(url)?;
        let shown_url = display_url(&url);
        self.in_time(&shown_url, self.get_following_redirects(url, headers)).await
    }

    /// Sends a POST request. Redirects are not followed, because the body is only meant for this URL.
    pub async fn post(&self, url: &str, headers: HeaderMap, body: Vec<u8>) -> Result<PostResponse, Error> {
        let url = self.rules.check(url)?;
        let shown_url = display_url(&url);
        self.check_policy("POST", &url).await?;
        let posted = async {
            let asked = self.client.post(url.clone()).headers(headers).body(body).send().await;
            let response = asked.map_err(|cause| unreachable(&url, cause))?;
            let retry_after = text(&response, &header::RETRY_AFTER);
            let GetResponse { status, body, .. } = self.read_body(url, response).await?;
            Ok(PostResponse { status, retry_after, body })
        };
        self.in_time(&shown_url, posted).await
    }

    async fn in_time<T>(
        &self,
        shown_url: &str,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::time::timeout(self.limits.total, asked).await.unwrap_or_else(|_| {
            let most = self.limits.total.as_secs_f32();
            let detail = format!("`{}` took longer than {most} s", shown(shown_url));
            Err(Error::new(Kind::EgressUnreachable, detail))
        })
    }

    async fn get_following_redirects(
        &self,
        mut url: Url,
        mut headers: HeaderMap,
    ) -> Result<GetResponse, Error> {
        headers.entry(header::ACCEPT_ENCODING).or_insert(HeaderValue::from_static("gzip, deflate"));
        let mut redirects = 0;
        loop {
            self.check_policy("GET", &url).await?;
            let response = self.send(&url, &headers).await?;
            let Some(location) = location(&response) else { return self.read_body(url, response).await };
            redirects += 1;
            limits::check("redirects", redirects, self.limits.redirects)?;
            let next = self.rules.redirect(&url, location)?;
            if next.origin() != url.origin() {
                for name in CREDENTIALS {
                    headers.remove(name);
                }
            }
            url = next;
        }
    }

    async fn check_policy(&self, method: &str, url: &Url) -> Result<(), Error> {
        match &self.agent {
            Some(agent) => agent.permit(request(method, url)).await,
            None => Ok(()),
        }
    }

    async fn send(&self, url: &Url, headers: &HeaderMap) -> Result<Response, Error> {
        let asked = self.client.get(url.clone()).headers(headers.clone()).send().await;
        asked.map_err(|cause| unreachable(url, cause))
    }

    async fn read_body(&self, url: Url, mut response: Response) -> Result<GetResponse, Error> {
        let content_type = text(&response, &header::CONTENT_TYPE);
        let mut body = DecodedBody::new(text(&response, &header::CONTENT_ENCODING).as_deref(), self.limits)?;
        let status = response.status().as_u16();
        let mut cut = false;
        while let Some(piece) = response.chunk().await.map_err(|cause| unreachable(&url, cause))? {
            if body.take(&piece)? == BodyProgress::Full {
                cut = true;
                break;
            }
        }
        let body = if cut { body.into_partial() } else { body.finish()? };
        Ok(GetResponse { url: url.to_string(), status, content_type, body, cut })
    }
}

/// Describes a request for the policy.
fn request(method: &str, url: &Url) -> PolicyAction {
    PolicyAction::Egress {
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
    let what = if cause.is_timeout() { "sent nothing for too long".to_owned() } else { innermost(&cause) };
    let detail = format!("`{}` cannot be reached: {what}", shown(&display_url(url)));
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
