//! The HTTP client of one provider: its address, its key, and limits on responses.
//!
//! The client ignores proxy settings of the environment and does not decompress. It follows no redirects, which would
//! send the key elsewhere. Only connecting has a timeout here; the runtime decides how long to wait for a silent
//! stream.
use crate::sse::SseBody;
use crate::{Api, Secret};
use futures_util::stream;
use outlast_vocab::{Error, Kind};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Response, Url, redirect};
use std::error::Error as StdError;
use std::fmt::Write;
use std::sync::OnceLock;
use std::time::Duration;

/// The timeout for connecting, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How much of an error's body is read, in bytes.
const ERROR_BYTES: usize = 64 << 10;

/// How much of a list of models is read, in bytes.
pub(crate) const LIST_BYTES: usize = 8 << 20;

/// The version of the Messages API.
const ANTHROPIC_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// The address and credentials of a provider.
#[derive(Debug)]
pub(crate) struct Endpoint {
    base: Url,
    headers: HeaderMap,
    secret: Option<Secret>,
    // Created on first use: loading the system's certificates takes milliseconds that most commands never need.
    client: OnceLock<Client>,
}

impl Endpoint {
    /// Creates an endpoint without connecting to it.
    pub(crate) fn new(api: Api, base: &str, secret: Option<Secret>) -> Result<Self, String> {
        let base: Url = base.trim_end_matches('/').parse().map_err(|cause| {
            format!("expected an address like `https://api.example.com/v1`, got `{base}`: {cause}")
        })?;
        if !matches!(base.scheme(), "http" | "https") || base.host().is_none() || base.query().is_some() {
            return Err(format!("expected an http or https address without a query, got `{base}`"));
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err("expected an address without a user and password; keys go into `api_key`".to_owned());
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if api == Api::Anthropic {
            headers.insert(HeaderName::from_static("anthropic-version"), ANTHROPIC_VERSION);
        }
        if let Some(secret) = &secret {
            let (name, value) = match api {
                Api::OpenAi | Api::OpenAiResponses | Api::OpenAiCompatible => {
                    (AUTHORIZATION, format!("Bearer {}", secret.reveal()))
                }
                Api::Anthropic => (HeaderName::from_static("x-api-key"), secret.reveal().to_owned()),
                Api::Gemini => (HeaderName::from_static("x-goog-api-key"), secret.reveal().to_owned()),
            };
            let mut value = HeaderValue::try_from(value)
                .map_err(|_| "expected a key of characters that are allowed in a header".to_owned())?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(Self { base, headers, secret, client: OnceLock::new() })
    }

    /// Returns the address, which is safe to show.
    pub(crate) fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Returns the address without the version of the API.
    pub(crate) fn root(&self) -> &str {
        self.base().strip_suffix("/v1").unwrap_or(self.base())
    }

    /// Redacts the key in a text from outside.
    pub(crate) fn hide_key(&self, text: &str) -> String {
        self.secret.as_ref().map_or_else(|| text.to_owned(), |secret| secret.hide_in(text))
    }

    /// Sends a POST request and returns the response of any status.
    pub(crate) async fn post(&self, path: &str, body: Vec<u8>) -> Result<Response, Error> {
        let request = self.request(Method::POST, &format!("{}{path}", self.base()))?.body(body);
        request.send().await.map_err(|cause| self.unreachable(cause))
    }

    /// Sends a GET request with a timeout.
    pub(crate) async fn get(&self, path: &str, patience: Duration) -> Result<Response, Error> {
        self.get_from(self.base(), path, patience).await
    }

    /// Sends a GET request with a timeout to a path below [`base`](Self::base) or [`root`](Self::root).
    pub(crate) async fn get_from(
        &self,
        base: &str,
        path: &str,
        patience: Duration,
    ) -> Result<Response, Error> {
        let request = self.request(Method::GET, &format!("{base}{path}"))?.timeout(patience);
        request.send().await.map_err(|cause| self.unreachable(cause))
    }

    fn request(&self, method: Method, url: &str) -> Result<reqwest::RequestBuilder, Error> {
        let client = if let Some(client) = self.client.get() {
            client
        } else {
            let client = client(&self.base)?;
            self.client.get_or_init(|| client)
        };
        Ok(client.request(method, url).headers(self.headers.clone()))
    }

    fn unreachable(&self, cause: reqwest::Error) -> Error {
        let cause = cause.without_url();
        let detail = format!("{} cannot be reached: {}", self.base(), error_chain(&cause));
        Error::new(Kind::ModelUnavailable, self.hide_key(&detail))
    }
}

/// Returns the start of a body, up to a limit. A read error ends it early.
pub(crate) async fn read_start(mut response: Response, most: usize) -> Vec<u8> {
    let mut read = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let free = most - read.len();
        read.extend_from_slice(&chunk[..chunk.len().min(free)]);
        if read.len() == most {
            break;
        }
    }
    read
}

/// Returns the start of an error's body.
pub(crate) async fn error_body(response: Response) -> Vec<u8> {
    read_start(response, ERROR_BYTES).await
}

/// Returns the body as a stream.
pub(crate) fn body(response: Response) -> SseBody<'static> {
    Box::pin(stream::try_unfold(response, |mut response| async move {
        let chunk = response.chunk().await.map_err(|cause| error_chain(&cause.without_url()))?;
        Ok(chunk.map(|chunk| (chunk, response)))
    }))
}

fn client(base: &Url) -> Result<Client, Error> {
    // Sets the process default, unless the program has already set one. The HTTP client has none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .tcp_nodelay(true)
        .user_agent(concat!("outlast/", env!("CARGO_PKG_VERSION")));
    // Use the system's certificates, which include those of a company. Plain HTTP needs none and works without any.
    if base.scheme() == "http" {
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|cause| {
        let detail = format!(
            "no connection can be made to {base}: {}; are the certificates of the system installed \
             (`ca-certificates`, or `SSL_CERT_FILE`)?",
            error_chain(&cause)
        );
        Error::new(Kind::ConfigInvalid, detail)
    })
}

/// Formats an error and its causes in one line.
pub(crate) fn error_chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        write!(text, ": {inner}").expect("a String takes every write");
        cause = inner.source();
    }
    text
}
