//! Exports, imports and re-runs of sessions, and verification of their hash chains.
use crate::Client;
use crate::http::{error_chain, parse_json, with_json};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt};
use outlast_api::archive::{ChainDamage, ImportParams, ImportedSession, RerunChanges, VerificationResult};
use outlast_vocab::{Error, ErrorPlace, Kind, SessionId};
use reqwest::{Body, Method};
use serde_json::Value;
use std::pin::Pin;

/// A session export in progress.
pub struct ExportDownload {
    /// The number of records in the file.
    pub records: u64,
    /// The bytes of the file as a stream. A lost connection is an error.
    pub bytes: Pin<Box<dyn Stream<Item = Result<Bytes, Error>> + Send>>,
}

impl Client {
    /// Exports a session as a file.
    pub async fn export(&self, session: SessionId) -> Result<ExportDownload, Error> {
        let path = ["v1", "sessions", &session.to_string(), "export"];
        // No timeout, because files can be large.
        let response = self.send_without_timeout(self.request(Method::GET, &path, &())).await?;
        let records =
            response.headers().get("outlast-records").and_then(|said| said.to_str().ok()?.parse().ok());
        let bytes = response.bytes_stream().map_err(|cause| {
            let detail = format!("the download was interrupted: {}", error_chain(&cause.without_url()));
            Error::new(Kind::ServerUnreachable, detail)
        });
        Ok(ExportDownload { records: records.unwrap_or(0), bytes: bytes.boxed() })
    }

    /// Imports a session from a file, under this key or the one in the file.
    pub async fn import(
        &self,
        file: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
        key: Option<&str>,
    ) -> Result<ImportedSession, Error> {
        let params = ImportParams { key: key.map(ToOwned::to_owned) };
        let request = self.request(Method::POST, &["v1", "import"], &params);
        let request = request.header("content-type", "application/x-ndjson").body(Body::wrap_stream(file));
        parse_json(self.send_without_timeout(request).await?).await
    }

    /// Re-runs a session. Returns the recorded and the new course of each turn.
    pub async fn rerun(&self, session: SessionId, changes: &RerunChanges) -> Result<Value, Error> {
        let path = ["v1", "sessions", &session.to_string(), "rerun"];
        // No timeout, because models can be slow.
        let request = with_json(self.request(Method::POST, &path, &()), changes)?;
        parse_json(self.send_without_timeout(request).await?).await
    }

    /// Verifies the hash chain of a session and returns the number of records. Damage is an error.
    pub async fn verify(&self, session: SessionId) -> Result<u64, Error> {
        let path = ["v1", "sessions", &session.to_string(), "verify"];
        let request = self.request(Method::GET, &path, &());
        let found: VerificationResult = parse_json(self.send_without_timeout(request).await?).await?;
        if let Some(ChainDamage { code, detail }) = found.damage {
            let place = ErrorPlace { session: Some(session), ..ErrorPlace::default() };
            return Err(Error::new(code.parse().unwrap_or(Kind::RecordCorrupt), detail).at(place));
        }
        found.records.ok_or_else(|| {
            Error::new(
                Kind::ServerAnswerInvalid,
                format!("the server's response lacks the records of {session}"),
            )
        })
    }
}
