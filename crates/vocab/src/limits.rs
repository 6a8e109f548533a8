//! All limits of the system, with their names and defaults.
use crate::{Error, Kind};
use std::num::NonZeroU32;
use std::time::Duration;

/// The most bytes of a record's body that stay in its row. Larger bodies go to the blob store. Not a setting,
/// because two processes on one database must agree on it.
pub const INLINE_BYTES: usize = 16 << 10;

/// Worker deaths without progress after which a turn is a suspect and runs only alone. Not a setting, like
/// the three limits below: two processes on one database must agree on them.
pub const SUSPECT_DEATHS: u32 = 3;

/// Consecutive worker deaths while a turn ran alone, after which it is sealed.
pub const SEALED_DEATHS: u32 = 4;

/// How long a death first counts against a suspect that runs alone. Doubles with each death.
pub const TRIAL_FIRST: Duration = Duration::from_secs(5);

/// The longest time for which a death counts against a suspect that runs alone.
pub const TRIAL_MOST: Duration = Duration::from_mins(10);

/// The most bytes of a stored agent, harness or capability, as JSON.
pub const CONFIG_BYTES: usize = 4 << 20;

/// The most bytes of one line of a model's stream.
pub const STREAM_LINE_BYTES: usize = 8 << 20;

/// The most bytes of a model's stream.
pub const STREAM_BYTES: usize = 64 << 20;

/// The most bytes of a text in a span, if contents are exported at all.
pub const TELEMETRY_CONTENT_BYTES: usize = 16 << 10;

/// The most spans in one request.
pub const TELEMETRY_SPANS: usize = 500;

/// The most failed attempts of a model call in one record. If there are more, the last ones are recorded.
pub const ATTEMPTS_RECORDED: usize = 16;

/// The most models, and the most tools, that metrics distinguish. All others are counted together.
pub const METRIC_NAMES: usize = 64;

/// The fewest characters of a sink value for which an appearance in trusted text proves its origin.
pub const VALUE_CHARS_LEAST: usize = 6;

/// The most bytes of records of earlier turns that are searched for text that the user typed.
pub const TYPED_HISTORY_BYTES: usize = 4 << 20;

/// The most bytes of an archive that is imported, replayed or re-run.
pub const ARCHIVE_BYTES: u64 = 1 << 30;

/// The most bytes of one line of an archive.
pub const ARCHIVE_LINE_BYTES: usize = 64 << 20;

/// The most parts of an external JSON Schema, with its references and repetitions expanded. Not a setting,
/// like the next five limits: a replay in another process must decide like the first run.
pub const SCHEMA_SIZE: u64 = 20_000;

/// The most parts of the schemas of all tools of an agent together, counted as for [`SCHEMA_SIZE`].
pub const CATALOGUE_SIZE: u64 = 200_000;

/// The largest schema that is compiled inline. Larger ones are compiled on a separate thread.
pub const SCHEMA_SIZE_INLINE: u64 = 500;

/// The deepest nesting of references and combinations that apply to the same value.
pub const SCHEMA_NESTING: u64 = 128;

/// The most steps of the validation of one value against a schema. A million steps take about 0.1 s.
pub const VALIDATION_STEPS: u64 = 10_000_000;

/// The most characters, classes and groups of a regular expression in a schema, with its counted repetitions
/// expanded.
pub const PATTERN_SIZE: u64 = 10_000;

/// The most steps of all redactions of a text: characters of the patterns times bytes of the text, for each
/// match.
pub const REDACTION_STEPS: u64 = 4_000_000_000;

/// The most steps of redactions that run inline. Longer ones run on a separate thread.
pub const REDACTION_STEPS_INLINE: u64 = 1_000_000;

/// The most steps of a validation that runs inline. Longer ones run on a separate thread.
pub const VALIDATION_STEPS_INLINE: u64 = 20_000;

/// The limits of a runtime. Change one with struct update syntax:
/// `Limits { model_calls: 5, ..Limits::default() }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of text in one input.
    pub input_bytes: usize,
    /// Attachments of one input.
    pub attachments_per_input: usize,
    /// Bytes of one attachment whose content is in the database or in memory.
    pub attachment_bytes: usize,
    /// Bytes of one attachment whose content is outside the database.
    pub outside_bytes: usize,
    /// The age after which unreferenced content outside the database is deleted.
    pub content_grace: Duration,
    /// How often a worker looks for unreferenced content outside the database.
    pub sweep_every: Duration,
    /// How long a deletion may stay unfinished after its process died.
    pub deletion_lasts: Duration,
    /// Bytes of attachments in one model call. Older attachments are left out.
    pub shown_file_bytes: usize,
    /// Bytes of attachments that the arguments of one call may refer to.
    pub projected_bytes: usize,
    /// Bytes of recently used attachments that are cached in memory.
    pub recent_file_bytes: usize,
    /// Inputs in the queue of one session.
    pub queued_inputs: usize,
    /// Bytes of a caller's key (session key, idempotency key, event key, step name).
    pub key_bytes: usize,
    /// Model calls in one turn.
    pub model_calls: u32,
    /// How often an answer that does not match its contract is sent back to the model.
    pub output_repairs: u32,
    /// Bytes of the JSON Schema of an answer.
    pub schema_bytes: usize,
    /// Attempts of one model call in quick succession. If all of them fail, the turn waits for its provider.
    pub model_attempts: u32,
    /// How long a turn waits for a provider that is down before it fails. An agent can override it.
    pub provider_wait: Duration,
    /// If a sender waits on an open connection and its turn may wait less than this for its provider, the turn fails at
    /// once when the provider refuses the key or the account. Every other turn waits for a person.
    pub refusal_wait: Duration,
    /// First pause before a provider that is down is probed. Doubles each time.
    pub provider_pause_first: Duration,
    /// Longest pause before a provider that is down is probed, unless it asks for a longer one.
    pub provider_pause_most: Duration,
    /// Time between two turns that wake up after their provider has recovered.
    pub provider_wake_apart: Duration,
    /// Fallback models of an agent.
    pub fallback_models: usize,
    /// Silence after which a model's stream is cut off.
    pub model_stall: Duration,
    /// How long a model's stream may stay open without new content before it is cut off.
    pub model_idle: Duration,
    /// Bytes of a streamed reply after which it is saved, if the model can continue it.
    pub keep_bytes: usize,
    /// Time after which a streamed reply is saved, if the model can continue it.
    pub keep_every: Duration,
    /// Bytes in one model reply.
    pub reply_bytes: usize,
    /// Tokens of one reply, unless the agent sets another limit or a quarter of the context window is smaller.
    pub reply_tokens: u32,
    /// How often the estimate of a context window is lowered until a request fits.
    pub context_rounds: u32,
    /// Tool calls in one reply.
    pub tools_per_reply: usize,
    /// Client-side tools of one input.
    pub client_tools: usize,
    /// Tool calls of a turn that run at the same time.
    pub parallel_tools: usize,
    /// Timeout of a tool whose contract sets none.
    pub tool_deadline: Duration,
    /// Timeout of a hook whose agent sets none.
    pub hook_deadline: Duration,
    /// Timeout of a policy engine.
    pub policy_deadline: Duration,
    /// How often a deferred action is judged again before it is denied.
    pub judged_again: u32,
    /// Hooks of one agent.
    pub hooks_per_agent: usize,
    /// Bytes of one hook's patch.
    pub hook_patch_bytes: usize,
    /// Timeout of a request to the payment authority.
    pub payment_deadline: Duration,
    /// First pause before a failed notification of the payment authority is repeated. Doubles each time.
    pub payment_first: Duration,
    /// Longest pause before a failed notification of the payment authority is repeated.
    pub payment_most: Duration,
    /// How long a call waits for a rate limit that sets no wait.
    pub rate_wait: Duration,
    /// How long a call may take to start after its rate limits admitted it. After that, it must be admitted
    /// again.
    pub rate_grace: Duration,
    /// Timeout of a request to the rate limiter.
    pub limiter_deadline: Duration,
    /// Rate limits of one agent.
    pub rates_per_agent: usize,
    /// How long running tools may take to finish after a cancellation.
    pub cancel_grace: Duration,
    /// Bytes of a tool result that a model reads in full. A larger result is attached, and the model reads
    /// its beginning.
    pub result_shown_bytes: usize,
    /// Bytes of the beginning of an attached result.
    pub preview_bytes: usize,
    /// Bytes of one tool result.
    pub result_bytes: usize,
    /// Direct model calls and nested tool calls in one call.
    pub nested_per_call: u32,
    /// Durable steps in one call.
    pub steps_per_call: usize,
    /// Nesting depth of JSON from a model, a tool or a user.
    pub json_depth: usize,
    /// Bytes of history in a model call, unless the model's context window is smaller.
    pub view_bytes: usize,
    /// Bytes of conversations of recently driven sessions that are cached in memory.
    pub recent_bytes: usize,
    /// Packages of overlays and of older turns that are cached in memory.
    pub packages_kept: usize,
    /// How long a wait stays in memory before the turn parks.
    pub wait_in_memory: Duration,
    /// First pause before a retry. Doubles each time.
    pub backoff_first: Duration,
    /// Longest pause before a retry.
    pub backoff_most: Duration,
    /// First pause before a stuck turn checks whether it can continue. Doubles each time.
    pub stuck_first: Duration,
    /// Longest pause before a stuck turn checks again.
    pub stuck_most: Duration,
    /// How long a worker may be silent before another worker takes its session.
    pub lease: Duration,
    /// How long a turn may block its thread without yielding to the scheduler before it is considered hung.
    pub turn_hang: Duration,
    /// How long a suspect turn waits for its worker to become idle. After that, the worker asks its other
    /// turns to pause.
    pub suspect_wait: Duration,
    /// How long a worker waits for its other turns to pause before it postpones the suspect.
    pub suspect_drain: Duration,
    /// Sessions that one process drives at the same time.
    pub sessions_at_once: usize,
    /// Attempts to deliver an output before it is given up.
    pub delivery_attempts: u32,
    /// Timeout of one delivery attempt.
    pub delivery_deadline: Duration,
    /// First pause before an output is delivered again. Doubles each time.
    pub delivery_first: Duration,
    /// Longest pause before an output is delivered again, whatever the other side asks for.
    pub delivery_most: Duration,
    /// Outputs that one process delivers to one sink at the same time.
    pub deliveries_at_once: usize,
    /// Live frames that are buffered for a slow reader. If more arrive, the reader gets a `missed` event.
    pub live_frames: usize,
    /// Rows in one page of a listing.
    pub page_rows: usize,
    /// Values stored in one session.
    pub values_per_session: usize,
    /// Grants in one session.
    pub grants_per_session: usize,
    /// Reminders for one approval question.
    pub reminders_per_question: u32,
    /// Lifetime of an approval link whose question does not expire earlier.
    pub link_lasts: Duration,
    /// Bytes of one value.
    pub value_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            input_bytes: 1 << 20,
            attachments_per_input: 16,
            attachment_bytes: 32 << 20,
            outside_bytes: 1 << 30,
            content_grace: Duration::from_hours(24),
            sweep_every: Duration::from_hours(1),
            deletion_lasts: Duration::from_mins(5),
            shown_file_bytes: 64 << 20,
            projected_bytes: 16 << 20,
            recent_file_bytes: 32 << 20,
            queued_inputs: 100,
            key_bytes: 256,
            model_calls: 50,
            output_repairs: 3,
            schema_bytes: 64 << 10,
            model_attempts: 5,
            provider_wait: Duration::from_hours(24),
            refusal_wait: Duration::from_mins(15),
            provider_pause_first: Duration::from_secs(2),
            provider_pause_most: Duration::from_hours(1),
            provider_wake_apart: Duration::from_millis(100),
            fallback_models: 8,
            model_stall: Duration::from_mins(1),
            model_idle: Duration::from_mins(5),
            keep_bytes: 2 << 10,
            keep_every: Duration::from_secs(1),
            reply_bytes: 4 << 20,
            reply_tokens: 8_192,
            context_rounds: 8,
            tools_per_reply: 64,
            client_tools: 128,
            parallel_tools: 8,
            tool_deadline: Duration::from_mins(2),
            hook_deadline: Duration::from_secs(10),
            policy_deadline: Duration::from_secs(2),
            judged_again: 1_000,
            hooks_per_agent: 32,
            hook_patch_bytes: 1 << 20,
            payment_deadline: Duration::from_secs(30),
            payment_first: Duration::from_secs(5),
            payment_most: Duration::from_hours(1),
            rate_wait: Duration::from_hours(1),
            rate_grace: Duration::from_secs(1),
            limiter_deadline: Duration::from_secs(2),
            rates_per_agent: 32,
            cancel_grace: Duration::from_secs(2),
            result_shown_bytes: 32 << 10,
            preview_bytes: 2 << 10,
            result_bytes: 16 << 20,
            nested_per_call: 100,
            steps_per_call: 1_000,
            json_depth: 64,
            view_bytes: 512 << 10,
            recent_bytes: 4 << 20,
            packages_kept: 64,
            wait_in_memory: Duration::from_secs(2),
            backoff_first: Duration::from_millis(200),
            backoff_most: Duration::from_secs(30),
            stuck_first: Duration::from_secs(5),
            stuck_most: Duration::from_mins(10),
            lease: Duration::from_secs(15),
            turn_hang: Duration::from_mins(1),
            suspect_wait: Duration::from_mins(1),
            suspect_drain: Duration::from_mins(3),
            sessions_at_once: 1_024,
            delivery_attempts: 15,
            delivery_deadline: Duration::from_secs(30),
            delivery_first: Duration::from_secs(5),
            delivery_most: Duration::from_hours(3),
            deliveries_at_once: 16,
            live_frames: 1_024,
            page_rows: 1_000,
            values_per_session: 10_000,
            grants_per_session: 1_000,
            reminders_per_question: 100,
            link_lasts: Duration::from_hours(7 * 24),
            value_bytes: 64 << 10,
        }
    }
}

/// The limits of the HTTP server. Change one with struct update syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Bytes of a request's body, not counting attachments.
    pub body_bytes: usize,
    /// How long a request's body may take to arrive, not counting attachments.
    pub body_wait: Duration,
    /// Bytes of a request's body that are read after its answer is ready, so that the connection stays usable.
    pub unread_body_bytes: usize,
    /// How long such a rest of a body may take to arrive. The answer waits for it.
    pub unread_body_wait: Duration,
    /// Bytes of a request's line and headers.
    pub header_bytes: usize,
    /// Headers of a request.
    pub headers: usize,
    /// How long a request's headers may take to arrive.
    pub header_wait: Duration,
    /// How long a client may take none of an answer's bytes before its connection is closed.
    pub write_wait: Duration,
    /// Connections at the same time. An additional one waits for [`ServerLimits::connection_wait`] and is
    /// then asked to retry.
    pub connections: usize,
    /// How long a new connection waits until an idle one can be closed.
    pub connection_wait: Duration,
    /// Requests that are answered at the same time. A stream counts as one until it begins.
    pub requests_at_once: usize,
    /// Requests of one caller that are answered at the same time, including those that wait for a turn.
    pub requests_per_caller: usize,
    /// Bytes of request bodies in memory at the same time.
    pub bodies_bytes: usize,
    /// Event streams and downloads at the same time. Fewer than connections, so that other requests can connect.
    pub streams: usize,
    /// Event streams and downloads of one caller at the same time.
    pub streams_per_caller: usize,
    /// Bytes of a session's events that are buffered for streams that lag behind. The newest event is always
    /// kept.
    pub relay_bytes: usize,
    /// How often an event stream sends a heartbeat.
    pub heartbeat: Duration,
    /// How long a request may wait for the end of a turn or for events.
    pub wait_most: Duration,
    /// How long a request on another provider's API may wait for its answer. Such an API has no response for
    /// "later".
    pub wire_wait: Duration,
    /// How long a turn on another provider's API waits for a model provider that is down, if its agent sets
    /// no wait. Shorter than [`ServerLimits::wire_wait`], so that the client gets an answer.
    pub wire_provider_wait: Duration,
    /// How long after its connection and its turn have ended a request on another provider's API can be repeated to
    /// join its turn. Repeated requests are not recognised if it is zero.
    pub repeat_window: Duration,
    /// Requests whose turns a repeated request may join.
    pub repeat_entries: usize,
    /// Entries of one page.
    pub entries: usize,
    /// Sessions that one search reads.
    pub searched: usize,
    /// How long requests may take to finish when the server shuts down.
    pub drain: Duration,
    /// Sessions of MCP clients at the same time.
    pub mcp_sessions: usize,
    /// Sessions of one MCP caller at the same time.
    pub mcp_sessions_per_caller: usize,
    /// How long an MCP session may be idle.
    pub mcp_idle: Duration,
    /// How long an MCP call waits for its turn.
    pub mcp_wait: Duration,
    /// Requests that one key may send per minute. Unlimited if `None`.
    pub requests_per_minute: Option<NonZeroU32>,
    /// Invalid keys that one address may send per minute before it must wait.
    pub wrong_keys_per_minute: NonZeroU32,
    /// Sessions that are re-run at the same time.
    pub reruns: usize,
    /// Bytes of the archive of a session that is re-run.
    pub rerun_bytes: usize,
    /// Sessions whose hash chain is recomputed at the same time.
    pub verifications: usize,
    /// Cost totals, and running turns, that are kept per organisation.
    pub cost_entries: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            body_bytes: 8 << 20,
            body_wait: Duration::from_secs(30),
            unread_body_bytes: 256 << 10,
            unread_body_wait: Duration::from_secs(2),
            header_bytes: 32 << 10,
            headers: 64,
            header_wait: Duration::from_secs(10),
            write_wait: Duration::from_mins(1),
            connections: 4_096,
            connection_wait: Duration::from_secs(1),
            requests_at_once: 1_024,
            requests_per_caller: 512,
            bodies_bytes: 256 << 20,
            streams: 3_072,
            streams_per_caller: 2_048,
            relay_bytes: 1 << 20,
            heartbeat: Duration::from_secs(15),
            wait_most: Duration::from_mins(1),
            wire_wait: Duration::from_secs(9 * 60 + 50),
            wire_provider_wait: Duration::from_secs(9 * 60 + 40),
            repeat_window: Duration::from_mins(2),
            repeat_entries: 65_536,
            entries: 500,
            searched: 10_000,
            drain: Duration::from_secs(5),
            mcp_sessions: 1_024,
            mcp_sessions_per_caller: 128,
            mcp_idle: Duration::from_hours(1),
            mcp_wait: Duration::from_mins(5),
            requests_per_minute: None,
            wrong_keys_per_minute: NonZeroU32::new(60).unwrap_or(NonZeroU32::MIN),
            reruns: 2,
            rerun_bytes: 64 << 20,
            verifications: 2,
            cost_entries: 250_000,
        }
    }
}

/// Files that a server needs in addition to its connections: the database, contents, tools, and connections
/// that are asked to retry.
const FILES_KEPT: usize = 256;

impl ServerLimits {
    /// Returns [`ServerLimits::wire_provider_wait`] in seconds.
    pub fn wire_provider_wait_s(&self) -> u32 {
        u32::try_from(self.wire_provider_wait.as_secs()).unwrap_or(u32::MAX)
    }

    /// Returns the limits for a process that may open this many files, of which each connection is one.
    #[must_use]
    pub fn within_files(self, files: usize) -> Self {
        let connections = self.connections.min(files.saturating_sub(FILES_KEPT).max(4));
        let streams = self.streams.min(connections / 4 * 3);
        let streams_per_caller = self.streams_per_caller.min(streams / 3 * 2);
        Self { connections, streams, streams_per_caller, ..self }
    }
}

/// Returns the standard limit error if `found` exceeds `most`.
pub fn check(name: &'static str, found: usize, most: usize) -> Result<(), Error> {
    if found <= most {
        return Ok(());
    }
    Err(Error::new(Kind::LimitExceeded, format!("{name} is limited to {most}, but this needs {found}")))
}

/// Returns an error if JSON is nested deeper than `most`.
pub fn check_depth(name: &'static str, value: &serde_json::Value, most: usize) -> Result<(), Error> {
    fn depth(value: &serde_json::Value) -> usize {
        match value {
            serde_json::Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
            serde_json::Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
            _ => 0,
        }
    }
    check(name, depth(value), most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_and_stream_limits_fit_open_files() {
        let usual = ServerLimits::default();
        assert!(usual.streams < usual.connections);
        assert_eq!(usual.clone().within_files(1 << 20), usual);
        let small = usual.clone().within_files(1_024);
        let expected = ServerLimits { connections: 768, streams: 576, streams_per_caller: 384, ..usual };
        assert_eq!(small, expected);
        assert_eq!(small.within_files(0).connections, 4);
    }

    #[test]
    fn an_exceeded_limit_states_both_numbers() {
        assert!(check("input_bytes", 10, 10).is_ok());
        let error = check("input_bytes", 11, 10).unwrap_err();
        assert_eq!(error.to_string(), "limit.exceeded: input_bytes is limited to 10, but this needs 11");
        let nested = serde_json::json!([[[1]]]);
        assert!(check_depth("json_depth", &nested, 3).is_ok());
        assert!(check_depth("json_depth", &nested, 2).is_err());
    }
}
