//! Delivers answers: names their turn in headers, and notes whether the client got them.
use super::compat_error::{CompatError, CompatResult};
use super::repeat::OUTLAST_REPEAT;
use super::segment_event::{SegmentEnd, SegmentOutcome};
use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use outlast_http::open_requests::{ClientConnection, DeliveredEnd};
use outlast_vocab::TurnId;
use serde_json::Value;
use std::convert::Infallible;
use std::time::Duration;

/// The turn of an answer.
const OUTLAST_TURN: HeaderName = HeaderName::from_static("outlast-turn");

/// For how many seconds a repeated request joins the turn.
const OUTLAST_REPEAT_WINDOW: HeaderName = HeaderName::from_static("outlast-repeat-window");

/// How a request relates to the turn that answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestRelation {
    /// It started the turn.
    Started,
    /// It repeats the request that started the turn.
    Joined,
    /// It continued the turn with results of calls.
    Continued,
}

/// The delivery of an answer.
pub(crate) struct AnswerDelivery {
    turn: TurnId,
    relation: RequestRelation,
    repeats: Option<RepeatTracking>,
}

/// Tracks whether the client of a request that can be repeated gets its answer.
pub(crate) struct RepeatTracking {
    pub(crate) connection: ClientConnection,
    pub(crate) window: Duration,
}

impl AnswerDelivery {
    /// Delivers the answer of a turn.
    pub(crate) fn new(turn: TurnId, relation: RequestRelation) -> Self {
        Self { turn, relation, repeats: None }
    }

    /// Lets a repeated request join the turn, if this one gets no answer.
    #[must_use]
    pub(crate) fn tracked(self, by: RepeatTracking) -> Self {
        Self { repeats: Some(by), ..self }
    }

    /// Returns a complete answer, or the error, as a response.
    pub(crate) fn respond(self, answer: CompatResult<Value>, end: DeliveredEnd) -> Response {
        match answer {
            Ok(answer) => self.whole(&answer, end),
            Err(error) => self.error(error),
        }
    }

    fn whole(mut self, answer: &Value, end: DeliveredEnd) -> Response {
        let text = answer.to_string();
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (CONTENT_LENGTH, HeaderValue::from(text.len())),
        ];
        let mut response = (headers, ()).into_response();
        self.add_headers(&mut response);
        // The server takes the only piece when it writes the answer. If the client is gone, it takes none.
        let piece = stream::once(async move {
            self.delivered(end);
            Ok::<_, Infallible>(text)
        });
        *response.body_mut() = Body::from_stream(piece);
        response
    }

    fn error(mut self, error: CompatError) -> Response {
        let mut response = error.after_acceptance().into_response();
        self.add_headers(&mut response);
        // A repeated request joins whether the client got the error or not.
        self.delivered(DeliveredEnd::NoAnswer);
        response
    }

    /// Adds the headers that name the turn.
    pub(crate) fn add_headers(&self, response: &mut Response) {
        let headers = response.headers_mut();
        if let Ok(turn) = HeaderValue::from_str(&self.turn.to_string()) {
            headers.insert(OUTLAST_TURN, turn);
        }
        match self.relation {
            RequestRelation::Started => headers.insert(OUTLAST_REPEAT, HeaderValue::from_static("new")),
            RequestRelation::Joined => headers.insert(OUTLAST_REPEAT, HeaderValue::from_static("joined")),
            RequestRelation::Continued => None,
        };
        if let Some(RepeatTracking { window, .. }) = &self.repeats {
            headers.insert(OUTLAST_REPEAT_WINDOW, HeaderValue::from(window.as_secs()));
        }
    }

    /// Notes that the answer was handed to the connection. If the delivery is dropped before, the connection broke.
    pub(crate) fn delivered(&mut self, end: DeliveredEnd) {
        if let Some(RepeatTracking { connection, .. }) = self.repeats.take() {
            connection.delivered(end);
        }
    }
}

/// Returns whether a client that got this end of a segment has an answer.
pub(crate) fn delivered_end(end: Option<&SegmentEnd>) -> DeliveredEnd {
    match end.map(|end| &end.outcome) {
        Some(
            SegmentOutcome::Answered
            | SegmentOutcome::ClientCalls
            | SegmentOutcome::Refused
            | SegmentOutcome::Length,
        ) => DeliveredEnd::Answer,
        Some(SegmentOutcome::Cancelled(_) | SegmentOutcome::Failed(_)) | None => DeliveredEnd::NoAnswer,
    }
}
