//! The address of contents, as written in a configuration.
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use outlast_vocab::{Error, Kind};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// The connect timeout, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The read timeout, after which a bucket is unreachable.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a request is retried. A deletion must finish long before `deletion_lasts`.
const RETRY_WINDOW: Duration = Duration::from_secs(20);

/// A location for contents.
#[derive(Debug, PartialEq)]
pub(crate) enum ContentsAddress {
    /// `file:///path`
    Folder(PathBuf),
    /// `s3://bucket/prefix`
    Bucket(S3Bucket),
}

/// An S3-compatible bucket.
#[derive(Debug, PartialEq)]
pub(crate) struct S3Bucket {
    name: String,
    pub(crate) prefix: Path,
    endpoint: Option<String>,
}

impl FromStr for ContentsAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || {
            let detail = format!(
                "expected `file:///path` or `s3://bucket/prefix` as the store of attachments, got `{text}`"
            );
            Error::new(Kind::ConfigInvalid, detail)
        };
        if let Some(path) = text.strip_prefix("file://") {
            let path = PathBuf::from(path);
            return if path.is_absolute() { Ok(Self::Folder(path)) } else { Err(bad()) };
        }
        let rest = text.strip_prefix("s3://").ok_or_else(bad)?;
        let (place, endpoint) = match rest.split_once("?endpoint=") {
            Some((place, endpoint)) => (place, Some(endpoint.to_owned())),
            None => (rest, None),
        };
        let (name, prefix) = place.split_once('/').unwrap_or((place, ""));
        // A user and a password would appear in messages.
        if name.is_empty() || place.contains(['@', '?', ':']) {
            return Err(bad());
        }
        let prefix = Path::parse(prefix.trim_end_matches('/')).map_err(|_| bad())?;
        Ok(Self::Bucket(S3Bucket { name: name.to_owned(), prefix, endpoint }))
    }
}

impl S3Bucket {
    /// Returns a client for the bucket, and its name in messages. Sends no request.
    pub(crate) fn open(self) -> Result<(Arc<dyn ObjectStore>, String), Error> {
        let Self { name, prefix, endpoint } = self;
        // This fails if another provider is already installed in this process, which is fine.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(&name);
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
        let is_plain = endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        let client = ClientOptions::new()
            .with_allow_http(is_plain)
            .with_timeout_disabled()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_read_timeout(READ_TIMEOUT);
        let retry = RetryConfig { max_retries: 4, retry_timeout: RETRY_WINDOW, ..RetryConfig::default() };
        let store = builder.with_client_options(client).with_retry(retry).build().map_err(|cause| {
            let detail = format!("the bucket `{name}` cannot be used as it is configured: {cause}");
            Error::new(Kind::ConfigInvalid, detail).because(cause)
        })?;
        let at = endpoint.map(|endpoint| format!(" at {endpoint}")).unwrap_or_default();
        Ok((Arc::new(store), format!("s3://{name}/{prefix}{at}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_folder_or_a_bucket() {
        assert_eq!(
            "file:///srv/files".parse::<ContentsAddress>().unwrap(),
            ContentsAddress::Folder("/srv/files".into())
        );
        let bucket = |name: &str, prefix: &str, endpoint: Option<&str>| {
            let (name, endpoint) = (name.to_owned(), endpoint.map(ToOwned::to_owned));
            ContentsAddress::Bucket(S3Bucket { name, prefix: Path::parse(prefix).unwrap(), endpoint })
        };
        assert_eq!("s3://files".parse::<ContentsAddress>().unwrap(), bucket("files", "", None));
        assert_eq!("s3://files/a/b/".parse::<ContentsAddress>().unwrap(), bucket("files", "a/b", None));
        assert_eq!(
            "s3://files/a?endpoint=http://127.0.0.1:9000".parse::<ContentsAddress>().unwrap(),
            bucket("files", "a", Some("http://127.0.0.1:9000"))
        );
    }

    #[test]
    fn invalid_address_is_refused_with_expected_form() {
        for text in [
            "",
            "/srv/files",
            "file://files",
            "s3://",
            "s3:///a",
            "s3://key:secret@files",
            "s3://a?b=c",
            "gs://a",
        ] {
            let error = text.parse::<ContentsAddress>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "config.invalid: expected `file:///path` or `s3://bucket/prefix` as the store of attachments, got `{text}`"
                )
            );
        }
    }
}
