//! The rehearsal model: plays a script, or follows a few rules without one.
//!
//! Its reply only depends on the messages and tools of the request, so a turn that another process resumes gets the
//! same replies. [`script`] describes the format of scripts and the one exception to this.
mod agent;
mod obedient;
mod reply_actions;
mod reply_draft;
pub mod script;
#[cfg(test)]
mod test_conversation;

use outlast_ports::clock::Clock;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest};
use outlast_vocab::message::ModelName;
use reply_actions::{ReplyAction, play};
use script::Script;
use std::sync::Arc;
use std::time::Duration;

/// The prefix of its model names; the rest is arbitrary.
const PREFIX: &str = "rehearsal/";

/// The default delay per word without a script: readable, and clearly a stream.
const WORD_DELAY: Duration = Duration::from_millis(15);

/// The default context window in bytes.
const WINDOW_BYTES: usize = 64 << 10;

/// A model that needs no key and no network. It serves every name with the prefix `rehearsal/`.
///
/// # Example
///
/// ```
/// # mod outlast {
/// #     pub use {outlast_ports::clock, outlast_ports::model, outlast_providers as providers};
/// #     pub use {outlast_vocab as vocab, outlast_vocab::Error};
/// # }
/// use outlast::clock::VirtualClock;
/// use outlast::model::ModelProvider;
/// use outlast::providers::{Rehearsal, Script};
/// use outlast::vocab::Millis;
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), outlast::Error> {
/// // The first reply calls a tool. The second one uses its result.
/// let script: Script = "call add {\"a\": 2, \"b\": 3}\n---\nsay It is {{result add}}.".parse()?;
/// let clock = Arc::new(VirtualClock::at(Millis(0)));
/// let model = Rehearsal::scripted(script, clock); // for `Builder::provider`
/// assert!(model.info(&"rehearsal/agent".parse()?).is_some());
/// assert!(model.info(&"openai/gpt-5".parse()?).is_none());
/// # Ok(())
/// # }
/// ```
pub struct Rehearsal {
    mode: RehearsalMode,
    clock: Arc<dyn Clock>,
    word_delay: Duration,
    window_bytes: usize,
}

enum RehearsalMode {
    Agent,
    Script(Script),
}

impl Rehearsal {
    /// Creates a model that follows rules: it uses the built-in tools if asked, and otherwise introduces itself. It
    /// emits a word every 15 ms.
    ///
    /// Under the name `rehearsal/obedient` it instead follows every instruction that it reads, to test how an agent is
    /// guarded.
    pub fn agent(clock: Arc<dyn Clock>) -> Self {
        Self { mode: RehearsalMode::Agent, clock, word_delay: WORD_DELAY, window_bytes: WINDOW_BYTES }
    }

    /// Creates a model that plays a script without a delay per word. A script has its own delays.
    pub fn scripted(script: Script, clock: Arc<dyn Clock>) -> Self {
        Self {
            mode: RehearsalMode::Script(script),
            clock,
            word_delay: Duration::ZERO,
            window_bytes: WINDOW_BYTES,
        }
    }

    /// Sets the delay before each word. With zero, it never uses the clock.
    #[must_use]
    pub fn with_word_delay(mut self, pace: Duration) -> Self {
        self.word_delay = pace;
        self
    }

    /// Sets the context window. A script that counts turns needs the whole conversation: see [`script`].
    #[must_use]
    pub fn with_window(mut self, window_bytes: usize) -> Self {
        self.window_bytes = window_bytes;
        self
    }
}

impl ModelProvider for Rehearsal {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        let name = model.as_str().strip_prefix(PREFIX)?;
        let known = match &self.mode {
            RehearsalMode::Script(script) => script.known_window(),
            RehearsalMode::Agent => None,
        };
        let window = known.into_iter().chain([self.window_bytes]).min()?;
        (!name.is_empty()).then_some(ModelCapabilities::of_window(window))
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        let cues = match &self.mode {
            RehearsalMode::Agent if request.call.model.as_str() == obedient::NAME => obedient::reply(request),
            RehearsalMode::Agent => agent::reply(request),
            RehearsalMode::Script(script) => {
                script.reply(request).unwrap_or_else(|error| vec![ReplyAction::Fail(error)])
            }
        };
        play(cues, self.clock.as_ref(), self.word_delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::{Either, select};
    use futures_util::{FutureExt, StreamExt};
    use outlast_ports::clock::VirtualClock;
    use outlast_vocab::Millis;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;
    use test_conversation::{TestConversation, block_on};

    fn clock() -> Arc<VirtualClock> {
        Arc::new(VirtualClock::at(Millis(0)))
    }

    #[test]
    fn rehearsal_serves_only_names_with_its_prefix() {
        let rehearsal = Rehearsal::agent(clock()).with_window(10);
        let served = |name: &str| rehearsal.info(&name.parse().unwrap());
        assert_eq!(served("rehearsal/small"), Some(ModelCapabilities::of_window(10)));
        assert_eq!(served("rehearsal/"), None);
        assert_eq!(served("other/rehearsal/small"), None);
    }

    #[test]
    fn rehearsal_streams_words_at_its_pace() {
        let clock = clock();
        let script = "say one two\nsay three".parse().unwrap();
        let rehearsal = Rehearsal::scripted(script, clock.clone()).with_word_delay(Duration::from_millis(20));
        let stage = TestConversation::new().user("hi");
        let pieces = async {
            let note = |piece| (clock.now().0, test_conversation::show(&piece));
            rehearsal.stream(stage.request()).map(note).collect::<Vec<_>>().await
        };
        let time = poll_fn(|task| {
            if let Some(next) = clock.next_sleeper() {
                clock.advance(clock.now().until(next));
            }
            task.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        let want = [
            (20, "text \"one \""),
            (40, "text \"two\\n\""),
            (60, "text \"three\""),
            (60, "usage 9 -> 4"),
            (60, "end End"),
        ];
        let Either::Left((pieces, _)) = block_on(select(pin!(pieces), time)) else { unreachable!() };
        assert_eq!(pieces, want.map(|(at, piece)| (at, piece.to_owned())));
    }

    #[test]
    fn delay_follows_the_clock_and_stall_never_ends() {
        let clock = clock();
        let script = "say one\ndelay 50ms\nsay two\nstall".parse().unwrap();
        let rehearsal = Rehearsal::scripted(script, clock.clone());
        let stage = TestConversation::new().user("hi");
        let mut stream = rehearsal.stream(stage.request());
        let mut next =
            || stream.next().now_or_never().map(|piece| piece.map(|piece| test_conversation::show(&piece)));
        assert_eq!(next(), Some(Some("text \"one\"".to_owned())));
        assert_eq!(next(), None);
        assert_eq!(clock.next_sleeper(), Some(Millis(50)));
        clock.advance(Duration::from_millis(50));
        assert_eq!(next(), Some(Some("text \"\\n\"".to_owned())));
        assert_eq!(next(), Some(Some("text \"two\"".to_owned())));
        assert_eq!(next(), None);
        assert_eq!(clock.next_sleeper(), None);
    }
}
