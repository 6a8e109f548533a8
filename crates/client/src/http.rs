//! One server: its address, the key it is asked with, and how its errors read.
//!
//! No proxy is taken from the environment and no redirect is followed: it would carry the key elsewhere.
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, Url, redirect};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// How long connecting may take, TLS among it.
const CONNECT: Duration = Duration::from_secs(10);

/// How long an answer may take. Longer than the server waits for what a request asks it to wait for.
const ANSWER: Duration = Duration::from_secs(90);

/// Bytes of an answer that are read.
const ANSWER_BYTES: usize = 256 << 20;

/// An API key. It shows itself nowhere.
#[derive(Clone)]
pub struct Key(String);

impl Key {
    /// Keeps a key.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}

/// A server, and who asks it.
#[derive(Clone, Debug)]
pub struct Client {
    base: Url,
    http: reqwest::Client,
    has_key: bool,
}

/// What stands behind the question mark.
pub(crate) type Query<'a> = [(&'a str, String)];

/// A problem as the server tells it (RFC 9457).
#[derive(Deserialize)]
struct Problem {
    code: String,
    detail: String,
    policy: Option<String>,
}

impl Client {
    /// The server at an address. It is not asked anything yet.
    pub fn at(address: &str, key: Option<&Key>) -> Result<Self, Error> {
        let base = base(address)?;
        // The default of the process, unless the program has chosen one: the HTTP client comes without.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .no_proxy()
            .redirect(redirect::Policy::none())
            .tcp_nodelay(true)
            .default_headers(headers(key)?)
            .user_agent(concat!("outlast/", env!("CARGO_PKG_VERSION")));
        // A server in the clear needs no certificates, and works where there are none.
        if base.scheme() == "http" {
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(|cause| {
            let detail = format!(
                "no connection can be made to {base}: {}; are the certificates of the system installed \
                 (`ca-certificates`, or `SSL_CERT_FILE`)?",
                chain(&cause)
            );
            Error::new(Kind::ConfigInvalid, detail)
        })?;
        Ok(Self { base, http, has_key: key.is_some() })
    }

    /// Where it is.
    pub fn address(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Whether it is asked with a key, by which the server knows in whose name.
    pub fn has_key(&self) -> bool {
        self.has_key
    }

    /// Whether what is sent can be read on the way: it is not encrypted, and leaves the machine.
    pub fn is_in_the_clear(&self) -> bool {
        let host = self.base.host_str().unwrap_or_default();
        let here = host == "localhost"
            || host
                .trim_matches(['[', ']'])
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        self.base.scheme() == "http" && !here
    }

    /// A request for a path, given in its parts: each is one name, whatever is in it.
    pub(crate) fn request(&self, method: Method, path: &[&str], query: &Query<'_>) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.http.request(method, url)
    }

    /// Reads something.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &Query<'_>,
    ) -> Result<T, Error> {
        read(self.send(self.request(Method::GET, path, query)).await?).await
    }

    /// Sends JSON and reads the answer.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<T, Error> {
        read(self.send(with_json(self.request(Method::POST, path, &[]), body)?).await?).await
    }

    /// Deletes something and reads the answer.
    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, Error> {
        read(self.send(self.request(Method::DELETE, path, &[])).await?).await
    }

    /// Sends a request whose answer is to come within a bound, and tells errors of the server as ours.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        self.answered(request.timeout(ANSWER)).await
    }

    /// The same without a bound, for what streams.
    pub(crate) async fn answered(&self, request: RequestBuilder) -> Result<Response, Error> {
        let response = request.send().await.map_err(|cause| self.unreachable(cause))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.problem(response).await)
    }

    /// The error that a connection broke with.
    pub(crate) fn unreachable(&self, cause: reqwest::Error) -> Error {
        let detail = format!("{} does not answer: {}", self.address(), chain(&cause.without_url()));
        Error::new(Kind::ServerUnreachable, detail)
    }

    async fn problem(&self, response: Response) -> Error {
        let status = response.status();
        let id =
            response.headers().get("x-request-id").and_then(|id| id.to_str().ok()).map(ToOwned::to_owned);
        let body = bytes(response).await.unwrap_or_default();
        let Ok(Problem { code, detail, policy }) = serde_json::from_slice(&body) else {
            let said = String::from_utf8_lossy(&body);
            let detail = format!(
                "expected a problem of an Outlast server, got {status} `{}` from {}",
                shown(said.trim()),
                self.address()
            );
            return Error::new(Kind::ServerAnswerInvalid, detail);
        };
        let detail = match &id {
            Some(id) if status.is_server_error() => format!("{detail} {id}"),
            _ => detail,
        };
        let error = match code.parse::<Kind>() {
            Ok(kind) => Error::new(kind, detail),
            // A newer server has codes of its own.
            Err(_) => Error::new(Kind::ServerAnswerInvalid, format!("{code}: {detail}")),
        };
        let error = match policy {
            Some(policy) => error.decided_by(policy),
            None => error,
        };
        match id {
            Some(id) => error.asked_by(id),
            None => error,
        }
    }
}

/// Adds a body of JSON.
pub(crate) fn with_json(request: RequestBuilder, body: &impl Serialize) -> Result<RequestBuilder, Error> {
    let body = serde_json::to_vec(body)
        .map_err(|cause| Error::new(Kind::InputInvalid, format!("what is to be sent is no JSON: {cause}")))?;
    Ok(request.header("content-type", "application/json").body(body))
}

/// The answer as a value.
pub(crate) async fn read<T: DeserializeOwned>(response: Response) -> Result<T, Error> {
    let body = bytes(response).await?;
    // An answer without a body is a unit.
    let body: &[u8] = if body.is_empty() { b"null" } else { &body };
    serde_json::from_slice(body).map_err(|cause| {
        let said = String::from_utf8_lossy(body);
        let detail = format!("the server's answer does not read: {cause}, in `{}`", shown(&said));
        Error::new(Kind::ServerAnswerInvalid, detail)
    })
}

async fn bytes(mut response: Response) -> Result<Vec<u8>, Error> {
    let mut read = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => read.extend_from_slice(&chunk),
            Ok(None) => return Ok(read),
            Err(cause) => {
                let detail = format!("the answer broke off: {}", chain(&cause.without_url()));
                return Err(Error::new(Kind::ServerUnreachable, detail));
            }
        }
        outlast_vocab::limits::check("answer_bytes", read.len(), ANSWER_BYTES)?;
    }
}

fn base(address: &str) -> Result<Url, Error> {
    let wrong = |why: &str| {
        let detail =
            format!("expected a server like `https://agents.example.com`, got `{}`{why}", shown(address));
        Error::new(Kind::InputInvalid, detail)
    };
    let base: Url = address.parse().map_err(|cause| wrong(&format!(": {cause}")))?;
    if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
        return Err(wrong(": neither http nor https"));
    }
    if !base.username().is_empty() || base.password().is_some() {
        // It is not repeated: it may be a secret.
        let detail = "expected a server without a user and a password; a key goes into OUTLAST_KEY or a file";
        return Err(Error::new(Kind::InputInvalid, detail));
    }
    if base.query().is_some() || base.fragment().is_some() {
        return Err(wrong(": it has a query or a fragment"));
    }
    Ok(base)
}

fn headers(key: Option<&Key>) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    if let Some(Key(key)) = key {
        let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| {
            Error::new(Kind::InputInvalid, "expected an API key like `olk_…`, got something else")
        })?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn StdError) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_http_or_https_and_carries_no_secret() {
        assert!(Client::at("http://127.0.0.1:7777", None).is_ok());
        assert_eq!(
            Client::at("https://agents.example.com/outlast/", None).unwrap().address(),
            "https://agents.example.com/outlast"
        );
        for wrong in ["", "localhost:7777", "ftp://x", "http://x?a=b", "http://x#a"] {
            assert_eq!(Client::at(wrong, None).unwrap_err().kind(), Kind::InputInvalid, "{wrong}");
        }
        let error = Client::at("http://ann:canary@x", None).unwrap_err();
        assert!(!error.to_string().contains("canary"), "{error}");
    }

    #[test]
    fn a_key_shows_itself_nowhere() {
        let key = Key::new("olk_canary");
        let client = Client::at("http://127.0.0.1:7777", Some(&key)).unwrap();
        assert!(!format!("{key:?} {client:?}").contains("canary"), "{client:?}");
        let error = Client::at("http://x", Some(&Key::new("olk_\ncanary"))).unwrap_err();
        assert!(!error.to_string().contains("canary"), "{error}");
    }

    #[test]
    fn only_what_leaves_the_machine_unencrypted_can_be_read_on_the_way() {
        let open = |address| Client::at(address, None).unwrap().is_in_the_clear();
        assert!(!open("http://127.0.0.1:1") && !open("http://[::1]:1") && !open("http://localhost"));
        assert!(!open("https://agents.example.com"));
        assert!(open("http://agents.example.com") && open("http://10.0.0.1"));
    }

    #[test]
    fn a_name_in_a_path_stays_one_name() {
        let client = Client::at("http://127.0.0.1:1/below", None).unwrap();
        let request = client.request(Method::GET, &["v1", "budgets", "agent:a/../b?c"], &[]).build().unwrap();
        assert_eq!(request.url().path(), "/below/v1/budgets/agent:a%2F..%2Fb%3Fc");
    }
}
