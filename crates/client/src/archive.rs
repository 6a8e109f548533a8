//! Sessions as files: taken out, taken in, run again, and their hash chains recomputed.
use crate::Client;
use crate::http::{chain, read, with_json};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt};
use outlast_vocab::{Error, Kind, SessionId};
use reqwest::{Body, Method};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::pin::Pin;

/// A session on its way into a file.
pub struct Exported {
    /// How many records the file will have.
    pub records: u64,
    /// The bytes of the file, as they come. What breaks off is an error.
    pub bytes: Pin<Box<dyn Stream<Item = Result<Bytes, Error>> + Send>>,
}

/// A session that was taken in.
#[derive(Clone, Debug, Deserialize)]
pub struct TakenIn {
    /// The session.
    pub session: SessionId,
    /// How many turns were not over in the file, and are closed now.
    pub closed: u64,
    /// Turns of the file.
    pub turns: u64,
    /// Records of the file.
    pub records: u64,
}

/// What is to be different when a session is run again.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Again {
    /// From where: a turn or an effect; from the beginning without it.
    pub from: Option<String>,
    /// Which agent answers; the server's first one without it.
    pub agent: Option<String>,
    /// Which model answers.
    pub model: Option<String>,
    /// What the model is told in place of the agent's prompt.
    pub prompt: Option<String>,
    /// Whether calls that may be repeated are made anew.
    pub live: bool,
    /// Whether calls that must happen at most once are made.
    pub run_at_most_once: bool,
}

#[derive(Deserialize)]
struct Verified {
    records: Option<u64>,
    damage: Option<Damage>,
}

#[derive(Deserialize)]
struct Damage {
    code: String,
    detail: String,
}

impl Client {
    /// A session as a file.
    pub async fn export(&self, session: SessionId) -> Result<Exported, Error> {
        let path = ["v1", "sessions", &session.to_string(), "export"];
        // Files take as long as they take.
        let response = self.answered(self.request(Method::GET, &path, &[])).await?;
        let records =
            response.headers().get("outlast-records").and_then(|said| said.to_str().ok()?.parse().ok());
        let bytes = response.bytes_stream().map_err(|cause| {
            let detail = format!("the file broke off: {}", chain(&cause.without_url()));
            Error::new(Kind::ServerUnreachable, detail)
        });
        Ok(Exported { records: records.unwrap_or(0), bytes: bytes.boxed() })
    }

    /// Takes the session of a file in, under a key or the one in the file.
    pub async fn import(
        &self,
        file: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
        key: Option<&str>,
    ) -> Result<TakenIn, Error> {
        let query: Vec<_> = key.iter().map(|key| ("key", (*key).to_owned())).collect();
        let request = self.request(Method::POST, &["v1", "import"], &query);
        let request = request.header("content-type", "application/x-ndjson").body(Body::wrap_stream(file));
        read(self.answered(request).await?).await
    }

    /// Runs a session again, and gives both courses of each turn.
    pub async fn rerun(&self, session: SessionId, again: &Again) -> Result<Value, Error> {
        let path = ["v1", "sessions", &session.to_string(), "rerun"];
        // Models take as long as they take.
        read(self.answered(with_json(self.request(Method::POST, &path, &[]), again)?).await?).await
    }

    /// Recomputes the hash chain of a session and gives the number of its records. Damage is an error.
    pub async fn verify(&self, session: SessionId) -> Result<u64, Error> {
        let path = ["v1", "sessions", &session.to_string(), "verify"];
        let found: Verified = read(self.answered(self.request(Method::GET, &path, &[])).await?).await?;
        if let Some(Damage { code, detail }) = found.damage {
            let at = outlast_vocab::At { session: Some(session), ..outlast_vocab::At::default() };
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
