//! A reply as a list of cues, and the player that turns them into a stream.
//!
//! The player only handles time. The content is decided before it starts.
use futures_util::stream;
use outlast_ports::clock::Clock;
use outlast_ports::model::EventStream;
use outlast_vocab::Error;
use outlast_vocab::stream::ModelEvent;
use std::borrow::Cow;
use std::future::pending;
use std::time::Duration;

/// One action in a reply.
#[derive(Debug)]
pub(super) enum ReplyAction<'a> {
    /// Emit this text word by word.
    Say(Cow<'a, str>),
    /// Emit this event.
    Emit(ModelEvent),
    /// Pause.
    Pause(Duration),
    /// Stop without ending the stream; the reader has to time out.
    Stall,
    /// Fail.
    Fail(Error),
}

/// Plays cues in order, with a delay before each word.
pub(super) fn play<'a>(cues: Vec<ReplyAction<'a>>, clock: &'a dyn Clock, pace: Duration) -> EventStream<'a> {
    let player =
        ReplyPlayer { cues: cues.into_iter(), text: Cow::Borrowed(""), spoken: 0, clock, word_delay: pace };
    Box::pin(stream::unfold(player, ReplyPlayer::next))
}

struct ReplyPlayer<'a> {
    cues: std::vec::IntoIter<ReplyAction<'a>>,
    text: Cow<'a, str>,
    /// The bytes of `text` that were emitted.
    spoken: usize,
    clock: &'a dyn Clock,
    word_delay: Duration,
}

impl ReplyPlayer<'_> {
    async fn next(mut self) -> Option<(Result<ModelEvent, Error>, Self)> {
        loop {
            if let Some(word) = self.word() {
                self.pause(self.word_delay).await;
                return Some((Ok(ModelEvent::Text(word)), self));
            }
            match self.cues.next()? {
                ReplyAction::Say(text) => (self.text, self.spoken) = (text, 0),
                ReplyAction::Emit(event) => return Some((Ok(event), self)),
                ReplyAction::Pause(pause) => self.pause(pause).await,
                ReplyAction::Stall => pending().await,
                ReplyAction::Fail(error) => return Some((Err(error), self)),
            }
        }
    }

    /// Returns the next word with the space after it.
    fn word(&mut self) -> Option<String> {
        let word = self.text[self.spoken..].split_inclusive(char::is_whitespace).next()?;
        self.spoken += word.len();
        Some(word.to_owned())
    }

    async fn pause(&self, pause: Duration) {
        if !pause.is_zero() {
            self.clock.sleep(pause).await;
        }
    }
}
