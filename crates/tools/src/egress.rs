//! The way out for tools: resolve → filter → pin → connect.
//!
//! [`Rules`] say what may be reached: by default every public host on the usual ports, nothing else. A URL is checked, its
//! host is looked up once ([`Lookup`]), all of its addresses are checked, and the connection goes to one of those; TLS and
//! the `Host` header keep the name. Redirects are followed here, a few, each checked anew. Proxies of the environment do
//! not exist for it. [`Caps`] bound bytes, time and hops.
//!
//! [`Egress::get`] is what tools use; a tool of yours asks for `Service<Egress>`.
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

/// Headers that prove who asks. They go to the host they were given for and to no other.
const CREDENTIALS: &[HeaderName] = &[header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];

/// The bounds of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Bytes of the body, decoded. What is beyond is not read.
    pub bytes: usize,
    /// How many times larger a body may become when it is decoded.
    pub ratio: usize,
    /// Redirects that are followed.
    pub redirects: usize,
    /// How long it may take to be connected.
    pub connect: Duration,
    /// How long the other side may be silent.
    pub idle: Duration,
    /// How long everything may take.
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

/// The way out, under rules.
#[derive(Clone)]
pub struct Egress {
    client: Client,
    rules: Arc<Rules>,
    caps: Caps,
    /// Whose policy is asked about every request.
    agent: Option<Agent>,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Where it came from in the end.
    pub url: String,
    /// The status.
    pub status: u16,
    /// What it is, as the other side says: `text/html; charset=utf-8`.
    pub content_type: Option<String>,
    /// The body, decoded.
    pub body: Vec<u8>,
    /// Whether there was more than is kept.
    pub cut: bool,
}

/// What came back when something was posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The status. A redirect is one like any other.
    pub status: u16,
    /// When to come back, as the other side says.
    pub retry_after: Option<String>,
    /// The body, decoded, up to the bound.
    pub body: Vec<u8>,
}

impl Egress {
    /// A way out under these rules.
    pub fn new(rules: Rules) -> Result<Self, Error> {
        Self::with(rules, Caps::default(), Arc::new(SystemLookup))
    }

    /// A way out that looks names up in its own way.
    pub fn with(rules: Rules, caps: Caps, lookup: Arc<dyn Lookup>) -> Result<Self, Error> {
        // Whoever is first in the process decides on the cryptography; there is one kind in it.
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

    /// The same way out for the agent of a turn: narrowed to what it lets be reached, and its policy is asked about every request,
    /// those that follow a redirect too.
    pub fn for_agent(&self, agent: &Agent) -> Result<Self, Error> {
        let rules = Arc::new(Rules::clone(&self.rules).within(&agent.network()?)?);
        Ok(Self { rules, agent: Some(agent.clone()), ..self.clone() })
    }

    /// What may be reached.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The client underneath, for protocols of their own. It looks up and connects under the rules, and follows no
    /// redirect; a URL must be checked with [`Rules::check`] first, because an address in it is not looked up.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Gets what is at a URL.
    pub async fn get(&self, url: &str, headers: HeaderMap) -> Result<Fetched, Error> {
        let url = self.rules.check(url)?;
        let told = without_secrets(&url);
        self.in_time(&told, self.follow(url, headers)).await
    }

    /// Posts a body to a URL. No redirect is followed: what was posted is for this URL alone.
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

/// A request as a policy sees it.
fn request(method: &str, url: &Url) -> Deed {
    Deed::Egress {
        scheme: url.scheme().to_owned(),
        host: url.host_str().unwrap_or_default().to_owned(),
        port: url.port_or_known_default().unwrap_or_default(),
        method: method.to_owned(),
        path: url.path().to_owned(),
    }
}

/// A header of an answer.
fn text(response: &Response, name: &HeaderName) -> Option<String> {
    response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Where the other side sends us, if it does.
fn location(response: &Response) -> Option<&[u8]> {
    let redirects = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    response.headers().get(header::LOCATION).filter(|_| redirects).map(HeaderValue::as_bytes)
}

/// What our own look-up said, or else that the other side cannot be reached.
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

/// The cause at the end of the chain: the others only say that there was one.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
