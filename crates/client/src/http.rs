//! The HTTP connection to one server: address, key and errors.
//!
//! Proxy settings of the environment are ignored. Redirects are not followed, because they would send the key
//! elsewhere.
use outlast_api::problem::Problem;
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, Url, redirect};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// The timeout for connecting, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout for an answer. It is longer than the longest wait that a request can ask the server for.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);

/// The maximum size of an answer in bytes.
const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// An API key. It never appears in output.
#[derive(Clone)]
pub struct ClientApiKey(String);

impl ClientApiKey {
    /// Wraps a key.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }
}

impl fmt::Debug for ClientApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}

/// A client of one server.
#[derive(Clone, Debug)]
pub struct Client {
    base: Url,
    http: reqwest::Client,
    has_key: bool,
}

impl Client {
    /// Creates a client without connecting to the server.
    pub fn at(address: &str, key: Option<&ClientApiKey>) -> Result<Self, Error> {
        let base = parse_base_url(address)?;
        // Sets the process default, unless the program has already set one. The HTTP client has none.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .no_proxy()
            .redirect(redirect::Policy::none())
            .tcp_nodelay(true)
            .default_headers(default_headers(key)?)
            .user_agent(concat!("outlast/", env!("CARGO_PKG_VERSION")));
        // Plain HTTP needs no certificates and works without any.
        if base.scheme() == "http" {
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(|cause| {
            let detail = format!(
                "no connection can be made to {base}: {}; are the certificates of the system installed \
                 (`ca-certificates`, or `SSL_CERT_FILE`)?",
                error_chain(&cause)
            );
            Error::new(Kind::ConfigInvalid, detail)
        })?;
        Ok(Self { base, http, has_key: key.is_some() })
    }

    /// Returns the address of the server.
    pub fn address(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Returns whether the client has a key, which identifies the caller.
    pub fn has_key(&self) -> bool {
        self.has_key
    }

    /// Returns whether requests can be read in transit: they are not encrypted and leave the machine.
    pub fn is_unencrypted(&self) -> bool {
        let host = self.base.host_str().unwrap_or_default();
        let here = host == "localhost"
            || host
                .trim_matches(['[', ']'])
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        self.base.scheme() == "http" && !here
    }

    /// Creates a request for a path, given in segments. Each segment is escaped.
    ///
    /// # Panics
    /// If the query is not a flat structure of plain values.
    pub(crate) fn request(&self, method: Method, path: &[&str], query: &impl Serialize) -> RequestBuilder {
        let query = serde_urlencoded::to_string(query).expect("parameters of the API are flat");
        self.request_with_query(method, path, &query)
    }

    /// Creates a request for a path and an encoded query.
    pub(crate) fn request_with_query(&self, method: Method, path: &[&str], query: &str) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.pop_if_empty().extend(path);
        }
        url.set_query((!query.is_empty()).then_some(query));
        self.http.request(method, url)
    }

    /// Sends a GET request and parses the answer.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &impl Serialize,
    ) -> Result<T, Error> {
        parse_json(self.send(self.request(Method::GET, path, query)).await?).await
    }

    /// Sends JSON and parses the answer.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<T, Error> {
        parse_json(self.send(with_json(self.request(Method::POST, path, &()), body)?).await?).await
    }

    /// Sends a DELETE request and parses the answer.
    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, Error> {
        parse_json(self.send(self.request(Method::DELETE, path, &())).await?).await
    }

    /// Sends a request with a timeout, and converts the server's errors.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        self.send_without_timeout(request.timeout(RESPONSE_TIMEOUT)).await
    }

    /// Sends a request without a timeout, for streams.
    pub(crate) async fn send_without_timeout(&self, request: RequestBuilder) -> Result<Response, Error> {
        let response = request.send().await.map_err(|cause| self.unreachable(cause))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.error_of_response(response).await)
    }

    /// Returns the error for a failed connection.
    pub(crate) fn unreachable(&self, cause: reqwest::Error) -> Error {
        let detail = format!("{} does not answer: {}", self.address(), error_chain(&cause.without_url()));
        Error::new(Kind::ServerUnreachable, detail)
    }

    async fn error_of_response(&self, response: Response) -> Error {
        let status = response.status();
        let id =
            response.headers().get("x-request-id").and_then(|id| id.to_str().ok()).map(ToOwned::to_owned);
        let body = read_body(response).await.unwrap_or_default();
        let Ok(Problem { code, detail, policy, .. }) = serde_json::from_slice(&body) else {
            let said = String::from_utf8_lossy(&body);
            let detail = format!(
                "expected a problem document of an Outlast server, got {status} `{}` from {}",
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
            // A newer server may have error codes that are unknown here.
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

/// Adds a JSON body.
pub(crate) fn with_json(request: RequestBuilder, body: &impl Serialize) -> Result<RequestBuilder, Error> {
    let body = serde_json::to_vec(body).map_err(|cause| {
        Error::new(Kind::InputInvalid, format!("the request cannot be written as JSON: {cause}"))
    })?;
    Ok(request.header("content-type", "application/json").body(body))
}

/// Parses the answer.
pub(crate) async fn parse_json<T: DeserializeOwned>(response: Response) -> Result<T, Error> {
    let body = read_body(response).await?;
    // An empty body is parsed as a unit.
    let body: &[u8] = if body.is_empty() { b"null" } else { &body };
    serde_json::from_slice(body).map_err(|cause| {
        let said = String::from_utf8_lossy(body);
        let detail = format!("the server's response is invalid: {cause}, in `{}`", shown(&said));
        Error::new(Kind::ServerAnswerInvalid, detail)
    })
}

async fn read_body(mut response: Response) -> Result<Vec<u8>, Error> {
    let mut read = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => read.extend_from_slice(&chunk),
            Ok(None) => return Ok(read),
            Err(cause) => {
                let detail = format!("the response was interrupted: {}", error_chain(&cause.without_url()));
                return Err(Error::new(Kind::ServerUnreachable, detail));
            }
        }
        outlast_vocab::limits::check("answer_bytes", read.len(), RESPONSE_BYTES_MAX)?;
    }
}

fn parse_base_url(address: &str) -> Result<Url, Error> {
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
        // The error omits the address, because it may contain a secret.
        let detail = "expected a server without a user and a password; a key goes into OUTLAST_KEY or a file";
        return Err(Error::new(Kind::InputInvalid, detail));
    }
    if base.query().is_some() || base.fragment().is_some() {
        return Err(wrong(": it has a query or a fragment"));
    }
    Ok(base)
}

fn default_headers(key: Option<&ClientApiKey>) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    if let Some(ClientApiKey(key)) = key {
        let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| {
            Error::new(Kind::InputInvalid, "expected an API key like `olk_…`, got something else")
        })?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// Formats an error and its causes in one line.
pub(crate) fn error_chain(error: &dyn StdError) -> String {
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
    fn server_address_needs_http_and_no_secrets() {
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
    fn api_key_never_appears_in_output() {
        let key = ClientApiKey::new("olk_canary");
        let client = Client::at("http://127.0.0.1:7777", Some(&key)).unwrap();
        assert!(!format!("{key:?} {client:?}").contains("canary"), "{client:?}");
        let error = Client::at("http://x", Some(&ClientApiKey::new("olk_\ncanary"))).unwrap_err();
        assert!(!error.to_string().contains("canary"), "{error}");
    }

    #[test]
    fn only_remote_http_counts_as_unencrypted() {
        let open = |address| Client::at(address, None).unwrap().is_unencrypted();
        assert!(!open("http://127.0.0.1:1") && !open("http://[::1]:1") && !open("http://localhost"));
        assert!(!open("https://agents.example.com"));
        assert!(open("http://agents.example.com") && open("http://10.0.0.1"));
    }

    #[test]
    fn path_segments_are_percent_encoded() {
        let client = Client::at("http://127.0.0.1:1/below", None).unwrap();
        let request = client.request(Method::GET, &["v1", "budgets", "agent:a/../b?c"], &()).build().unwrap();
        assert_eq!(request.url().path(), "/below/v1/budgets/agent:a%2F..%2Fb%3Fc");
    }
}
