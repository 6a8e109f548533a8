//! Every bound of the system, with its name and default in one place (R4.11).
use crate::{Error, Kind};
use std::num::NonZeroU32;
use std::time::Duration;

/// Bytes of a record's body that stay in its row; larger ones go to the blob store (R3.12). Not a setting: two processes
/// on one database must agree on it.
pub const INLINE_BYTES: usize = 16 << 10;

/// Worker deaths without progress after which a turn is a suspect and runs only alone. Not a setting, like the three limits
/// below: two processes on one database must agree on them.
pub const SUSPECT_DEATHS: u32 = 3;

/// Worker deaths in a row while a turn ran alone, after which it is sealed.
pub const SEALED_DEATHS: u32 = 4;

/// How long a death counts against a suspect that runs alone, the first time; doubled with each death.
pub const TRIAL_FIRST: Duration = Duration::from_secs(5);

/// The longest time for which a death counts against a suspect that runs alone.
pub const TRIAL_MOST: Duration = Duration::from_mins(10);

/// Bytes of an agent, a harness or a capability that is kept in the database, as JSON.
pub const CONFIG_BYTES: usize = 4 << 20;

/// Bytes of one line of a model's stream.
pub const STREAM_LINE_BYTES: usize = 8 << 20;

/// Bytes of one model's stream.
pub const STREAM_BYTES: usize = 64 << 20;

/// Bytes of one text that goes out with a span, where contents go out at all.
pub const TELEMETRY_CONTENT_BYTES: usize = 16 << 10;

/// Spans that are sent in one request.
pub const TELEMETRY_SPANS: usize = 500;

/// Failed attempts of a model call that one record tells of; where there are more, the last ones.
pub const ATTEMPTS_TOLD: usize = 16;

/// Models, and tools, that metrics tell apart; what comes after them is counted together.
pub const METRIC_NAMES: usize = 64;

/// Characters that a sink value must have at least so that its appearance in trusted text says where it comes from.
pub const VALUE_CHARS_LEAST: usize = 6;

/// Bytes of records of earlier turns that are read for what the user typed there.
pub const TYPED_HISTORY_BYTES: usize = 4 << 20;

/// Bytes of one archive of a session that is imported, replayed or run again.
pub const ARCHIVE_BYTES: u64 = 1 << 30;

/// Bytes of one line of an archive.
pub const ARCHIVE_LINE_BYTES: usize = 64 << 20;

/// Parts of a JSON Schema from outside, with its references and repetitions written out. Not a setting, as the next three are not:
/// a replay in another process must decide as the first run did.
pub const SCHEMA_SIZE: u64 = 20_000;

/// References and combinations that may apply to one place of a value, one within the other.
pub const SCHEMA_NESTING: u64 = 128;

/// Steps that the validation of one value against a schema may take. A million take about 0.1 s.
pub const VALIDATION_STEPS: u64 = 10_000_000;

/// Characters, classes and groups of one regular expression of a schema, with its counted repetitions written out.
pub const PATTERN_SIZE: u64 = 10_000;

/// Steps of all redactions of one text: characters of the patterns times bytes of the text, for each match.
pub const REDACTION_STEPS: u64 = 4_000_000_000;

/// Steps of redactions that run where they are asked for. Longer ones run on a thread of their own.
pub const REDACTION_STEPS_INLINE: u64 = 1_000_000;

/// Steps of a validation that runs where it is asked for. A longer one runs on a thread of its own.
pub const VALIDATION_STEPS_INLINE: u64 = 20_000;

/// The bounds a runtime works under. Change one with struct update syntax: `Limits { model_calls: 5, ..Limits::default() }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of text in one input.
    pub input_bytes: usize,
    /// Attachments of one input.
    pub attachments_per_input: usize,
    /// Bytes of one attachment whose content lies in the database, or is held in memory.
    pub attachment_bytes: usize,
    /// Bytes of one attachment whose content lies outside the database.
    pub outside_bytes: usize,
    /// How old content outside the database must be before it is deleted because nothing refers to it.
    pub content_grace: Duration,
    /// How often a worker looks for content outside the database that nothing refers to.
    pub sweep_every: Duration,
    /// How long a process that died may have left the deletion of content under way.
    pub deletion_lasts: Duration,
    /// Bytes of attachments that a model is shown in one call; older ones stay out.
    pub shown_file_bytes: usize,
    /// Bytes of attachments that the arguments of one call may stand for.
    pub projected_bytes: usize,
    /// Bytes of attachments kept in memory because a model was shown them a moment ago.
    pub recent_file_bytes: usize,
    /// Inputs that may wait for one session.
    pub queued_inputs: usize,
    /// Bytes of a caller's key (session key, idempotency key, event key, step name).
    pub key_bytes: usize,
    /// Model calls in one turn.
    pub model_calls: u32,
    /// How often a turn's answer that does not fit its contract is sent back to the model.
    pub output_repairs: u32,
    /// Bytes of the JSON Schema that an answer must fit.
    pub schema_bytes: usize,
    /// Attempts of one model call that follow each other quickly. If all of them fail, the turn waits for its provider.
    pub model_attempts: u32,
    /// How long a turn waits for a provider that is down before it fails, where its agent says nothing.
    pub provider_wait: Duration,
    /// How long a turn must be allowed to wait for its provider so that it waits for a person to mend a key or an account. One that
    /// may wait less fails at once.
    pub refusal_wait: Duration,
    /// First pause before a provider that is down is probed; doubled each time.
    pub provider_pause_first: Duration,
    /// Longest pause before a provider that is down is probed, unless it asks for a longer one.
    pub provider_pause_most: Duration,
    /// Time between two turns that wake up because their provider answers again.
    pub provider_wake_apart: Duration,
    /// Models that an agent may fall back to.
    pub fallback_models: usize,
    /// Silence in a model's stream before it is cut.
    pub model_stall: Duration,
    /// How long a model's stream may be alive without bringing anything new before it is cut.
    pub model_idle: Duration,
    /// Bytes of a streamed reply after which it is kept, where the model can go on behind it.
    pub keep_bytes: usize,
    /// Time after which a streamed reply is kept, where the model can go on behind it.
    pub keep_every: Duration,
    /// Bytes in one model reply.
    pub reply_bytes: usize,
    /// Tokens that are reserved for one reply, and asked for at most, where a budget counts and says nothing else.
    pub reply_tokens: u32,
    /// Tool calls in one reply.
    pub tools_per_reply: usize,
    /// Tools that the sender of an input runs.
    pub client_tools: usize,
    /// Tool calls that run at the same time in one turn.
    pub parallel_tools: usize,
    /// How long a tool may run when its contract says nothing.
    pub tool_deadline: Duration,
    /// How long a hook may take when its agent says nothing.
    pub hook_deadline: Duration,
    /// How long a policy engine may take to decide.
    pub policy_deadline: Duration,
    /// How often what a rule puts off is judged again before it is denied.
    pub judged_again: u32,
    /// Hooks of one agent.
    pub hooks_per_agent: usize,
    /// Bytes of what one hook changes.
    pub hook_patch_bytes: usize,
    /// How long one request to the payment authority may take.
    pub payment_deadline: Duration,
    /// First pause before the payment authority is told again what it did not take; doubled each time.
    pub payment_first: Duration,
    /// Longest pause before the payment authority is told again.
    pub payment_most: Duration,
    /// How long a call waits for its turn where its rate says nothing.
    pub rate_wait: Duration,
    /// How long a call may take to begin once its rates let it go; after that it asks them again.
    pub rate_grace: Duration,
    /// How long one question to the limiter may take.
    pub limiter_deadline: Duration,
    /// Rates of one agent.
    pub rates_per_agent: usize,
    /// How long running tools get to finish after a cancel.
    pub cancel_grace: Duration,
    /// Bytes of a tool result that a model is shown whole; a larger one is attached, and the model is shown its beginning.
    pub result_shown_bytes: usize,
    /// Bytes of the beginning of a result that is attached.
    pub preview_bytes: usize,
    /// Bytes of one tool result.
    pub result_bytes: usize,
    /// Questions to models, and calls of other tools, in one call.
    pub nested_per_call: u32,
    /// Durable steps in one call.
    pub steps_per_call: usize,
    /// Nesting of JSON from a model, a tool or a user.
    pub json_depth: usize,
    /// Bytes of history that a model is shown, unless its own window is smaller.
    pub view_bytes: usize,
    /// Bytes of conversations kept in memory for sessions that were driven a moment ago.
    pub recent_bytes: usize,
    /// Packages of overlays and of older turns kept in memory.
    pub packages_kept: usize,
    /// How long a wait is held in memory before the turn parks.
    pub wait_in_memory: Duration,
    /// First pause before something is tried again; doubled each time.
    pub backoff_first: Duration,
    /// Longest pause before something is tried again.
    pub backoff_most: Duration,
    /// First pause after which a stuck turn looks again whether it can go on; doubled each time.
    pub stuck_first: Duration,
    /// Longest pause after which a stuck turn looks again.
    pub stuck_most: Duration,
    /// How long a worker may be silent before another takes its session.
    pub lease: Duration,
    /// How long a turn may block its thread, without coming back to the scheduler, before it counts as hung.
    pub turn_hang: Duration,
    /// How long a suspect turn waits until its worker is idle; after that, the worker asks its other turns to pause.
    pub suspect_wait: Duration,
    /// How long a worker waits for its other turns to pause before it postpones the suspect.
    pub suspect_drain: Duration,
    /// Sessions that one process drives at the same time.
    pub sessions_at_once: usize,
    /// Attempts to deliver an output before it is given up.
    pub delivery_attempts: u32,
    /// How long one attempt to deliver an output may take.
    pub delivery_deadline: Duration,
    /// First pause before an output is delivered again; doubled each time.
    pub delivery_first: Duration,
    /// Longest pause before an output is delivered again, whatever the other side asks for.
    pub delivery_most: Duration,
    /// Outputs that one process delivers to one sink at the same time.
    pub deliveries_at_once: usize,
    /// Live frames kept for a slow reader before it is told that it missed some.
    pub live_frames: usize,
    /// Rows in one page of a listing.
    pub page_rows: usize,
    /// Values kept in one session.
    pub values_per_session: usize,
    /// Approvals for the rest of a session that one session may have.
    pub grants_per_session: usize,
    /// Reminders of one question for approval.
    pub reminders_per_question: u32,
    /// How long a link counts that decides a question which nothing ends earlier.
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

/// The bounds of the HTTP server. Change one with struct update syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Bytes of a request's body, attachments apart.
    pub body_bytes: usize,
    /// How long a request's body may take to arrive, attachments apart.
    pub body_wait: Duration,
    /// Bytes of a request's line and headers.
    pub header_bytes: usize,
    /// Headers of a request.
    pub headers: usize,
    /// How long a request's headers may take to arrive.
    pub header_wait: Duration,
    /// Connections at the same time. One more waits for [`ServerLimits::connection_wait`] and is then told to come again.
    pub connections: usize,
    /// How long a new connection waits for the place of an idle one.
    pub connection_wait: Duration,
    /// Requests that are answered at the same time. A stream counts as one until it begins.
    pub requests_at_once: usize,
    /// Requests of one caller that are answered at the same time, those that wait for a turn among them.
    pub requests_per_caller: usize,
    /// Bytes of bodies that are held at the same time.
    pub bodies_bytes: usize,
    /// Streams of events at the same time; fewer than connections, so that they leave some to others.
    pub streams: usize,
    /// Streams of events that one caller has at the same time.
    pub streams_per_caller: usize,
    /// Bytes of a session's events that are kept for streams that are a little behind; the newest event is kept whatever its size.
    pub relay_bytes: usize,
    /// How often a stream of events says that it is alive.
    pub heartbeat: Duration,
    /// How long a request may wait for a turn's end or for events.
    pub wait_most: Duration,
    /// How long a request on another provider's API may wait for its answer, which has no word for `later`.
    pub wire_wait: Duration,
    /// How long a turn on another provider's API waits for a model provider that is down, where its agent says nothing. Shorter than
    /// [`ServerLimits::wire_wait`], so that the client is answered.
    pub wire_provider_wait: Duration,
    /// Entries of one page.
    pub entries: usize,
    /// Sessions that one search looks at.
    pub searched: usize,
    /// How long requests get to end when the server shuts down.
    pub drain: Duration,
    /// Sessions of MCP clients at the same time.
    pub mcp_sessions: usize,
    /// Sessions that one MCP client's caller has at the same time.
    pub mcp_sessions_per_caller: usize,
    /// How long such a session may rest.
    pub mcp_idle: Duration,
    /// How long a call over MCP waits for its turn.
    pub mcp_wait: Duration,
    /// Requests that one key may send in a minute; as many as it likes without a number.
    pub requests_per_minute: Option<NonZeroU32>,
    /// Wrong keys that one address may send in a minute before it is told to wait.
    pub wrong_keys_per_minute: NonZeroU32,
    /// Sessions that are run again at the same time.
    pub reruns: usize,
    /// Bytes of a session that is run again, as a file.
    pub rerun_bytes: usize,
    /// Sessions whose hash chain is recomputed at the same time.
    pub verifications: usize,
    /// Sums of what was spent that are kept of one organisation, and turns of it that run.
    pub cost_entries: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            body_bytes: 8 << 20,
            body_wait: Duration::from_secs(30),
            header_bytes: 32 << 10,
            headers: 64,
            header_wait: Duration::from_secs(10),
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

/// Files that a server needs beside its connections: the database, contents, tools, and who is being told to come again.
const FILES_KEPT: usize = 256;

impl ServerLimits {
    /// [`ServerLimits::wire_provider_wait`] in seconds.
    pub fn wire_provider_wait_s(&self) -> u32 {
        u32::try_from(self.wire_provider_wait.as_secs()).unwrap_or(u32::MAX)
    }

    /// The same for a process that may have so many files open: each connection is one of them.
    #[must_use]
    pub fn within_files(self, files: usize) -> Self {
        let connections = self.connections.min(files.saturating_sub(FILES_KEPT).max(4));
        let streams = self.streams.min(connections / 4 * 3);
        let streams_per_caller = self.streams_per_caller.min(streams / 3 * 2);
        Self { connections, streams, streams_per_caller, ..self }
    }
}

/// Refuses `found` when it is over the bound, in the words that every limit uses.
pub fn check(name: &'static str, found: usize, most: usize) -> Result<(), Error> {
    if found <= most {
        return Ok(());
    }
    Err(Error::new(Kind::LimitExceeded, format!("{name} is limited to {most}, but this needs {found}")))
}

/// Refuses JSON that is nested deeper than `most`.
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
    fn a_server_has_no_more_connections_than_files_and_its_streams_leave_some_to_others() {
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
