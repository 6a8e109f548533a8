//! Exports, imports and re-runs of sessions, and verification of their hash chains.
use crate::Client;
use crate::http::{error_chain, parse_json, with_json};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt};
use outlast_vocab::{Error, Kind, SessionId};
use reqwest::{Body, Method};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::pin::Pin;

/// A session export in progress.
pub struct ExportDownload {
    /// The number of records in the file.
    pub records: u64,
    /// The bytes of the file as a stream. A lost connection is an error.
    pub bytes: Pin<Box<dyn Stream<Item = Result<Bytes, Error>> + Send>>,
}

/// The result of an import.
#[derive(Clone, Debug, Deserialize)]
pub struct ImportSummary {
    /// The session.
    pub session: SessionId,
    /// The number of unfinished turns in the file, which are now closed.
    pub closed: u64,
    /// The number of turns in the file.
    pub turns: u64,
    /// The number of records in the file.
    pub records: u64,
}

/// The settings of a re-run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RerunSettings {
    /// The start: a turn or an effect; the beginning if absent.
    pub from: Option<String>,
    /// The agent; the server's first one if absent.
    pub agent: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// A prompt that replaces the agent's prompt.
    pub prompt: Option<String>,
    /// Whether to repeat repeatable calls.
    pub live: bool,
    /// Whether to make at-most-once calls.
    pub run_at_most_once: bool,
}

#[derive(Deserialize)]
struct ChainVerificationJson {
    records: Option<u64>,
    damage: Option<ChainDamageJson>,
}

#[derive(Deserialize)]
struct ChainDamageJson {
    code: String,
    detail: String,
}

impl Client {
    /// Exports a session as a file.
    pub async fn export(&self, session: SessionId) -> Result<ExportDownload, Error> {
        let path = ["v1", "sessions", &session.to_string(), "export"];
        // No timeout, because files can be large.
        let response = self.send_without_timeout(self.request(Method::GET, &path, &[])).await?;
        let records =
            response.headers().get("outlast-records").and_then(|said| said.to_str().ok()?.parse().ok());
        let bytes = response.bytes_stream().map_err(|cause| {
            let detail = format!("the file broke off: {}", error_chain(&cause.without_url()));
            Error::new(Kind::ServerUnreachable, detail)
        });
        Ok(ExportDownload { records: records.unwrap_or(0), bytes: bytes.boxed() })
    }

    /// Imports a session from a file, under this key or the one in the file.
    pub async fn import(
        &self,
        file: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
        key: Option<&str>,
    ) -> Result<ImportSummary, Error> {
        let query: Vec<_> = key.iter().map(|key| ("key", (*key).to_owned())).collect();
        let request = self.request(Method::POST, &["v1", "import"], &query);
        let request = request.header("content-type", "application/x-ndjson").body(Body::wrap_stream(file));
        parse_json(self.send_without_timeout(request).await?).await
    }

    /// Re-runs a session. Returns the recorded and the new course of each turn.
    pub async fn rerun(&self, session: SessionId, again: &RerunSettings) -> Result<Value, Error> {
        let path = ["v1", "sessions", &session.to_string(), "rerun"];
        // No timeout, because models can be slow.
        parse_json(
            self.send_without_timeout(with_json(self.request(Method::POST, &path, &[]), again)?).await?,
        )
        .await
    }

    /// Verifies the hash chain of a session and returns the number of records. Damage is an error.
    pub async fn verify(&self, session: SessionId) -> Result<u64, Error> {
        let path = ["v1", "sessions", &session.to_string(), "verify"];
        let found: ChainVerificationJson =
            parse_json(self.send_without_timeout(self.request(Method::GET, &path, &[])).await?).await?;
        if let Some(ChainDamageJson { code, detail }) = found.damage {
            let at =
                outlast_vocab::ErrorPlace { session: Some(session), ..outlast_vocab::ErrorPlace::default() };
            return Err(Error::new(code.parse().unwrap_or(Kind::RecordCorrupt), detail).at(at));
        }
        found.records.ok_or_else(|| {
            Error::new(
                Kind::ServerAnswerInvalid,
                format!("the server says nothing of the records of {session}"),
            )
        })
    }
}
