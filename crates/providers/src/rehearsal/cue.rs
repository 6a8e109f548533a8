//! A reply as cues, and the player that turns them into a stream.
//!
//! The player knows time and nothing else; what is said was decided before it begins.
use futures_util::stream;
use outlast_ports::clock::Clock;
use outlast_ports::model::EventStream;
use outlast_vocab::Error;
use outlast_vocab::stream::ModelEvent;
use std::borrow::Cow;
use std::future::pending;
use std::time::Duration;

/// One thing to do in a reply.
#[derive(Debug)]
pub(super) enum Cue<'a> {
    /// Speak this, word by word.
    Say(Cow<'a, str>),
    /// Give this piece as it is.
    Give(ModelEvent),
    /// Be silent for a while.
    Pause(Duration),
    /// Be silent for ever; whoever listens has to give up.
    Stall,
    /// Fail.
    Fail(Error),
}

/// Plays cues in order, with a pause before each word.
pub(super) fn play<'a>(cues: Vec<Cue<'a>>, clock: &'a dyn Clock, pace: Duration) -> EventStream<'a> {
    let player = Player { cues: cues.into_iter(), text: Cow::Borrowed(""), spoken: 0, clock, pace };
    Box::pin(stream::unfold(player, Player::next))
}

struct Player<'a> {
    cues: std::vec::IntoIter<Cue<'a>>,
    text: Cow<'a, str>,
    /// Bytes of `text` that were given.
    spoken: usize,
    clock: &'a dyn Clock,
    pace: Duration,
}

impl Player<'_> {
    async fn next(mut self) -> Option<(Result<ModelEvent, Error>, Self)> {
        loop {
            if let Some(word) = self.word() {
                self.pause(self.pace).await;
                return Some((Ok(ModelEvent::Text(word)), self));
            }
            match self.cues.next()? {
                Cue::Say(text) => (self.text, self.spoken) = (text, 0),
                Cue::Give(event) => return Some((Ok(event), self)),
                Cue::Pause(pause) => self.pause(pause).await,
                Cue::Stall => pending().await,
                Cue::Fail(error) => return Some((Err(error), self)),
            }
        }
    }

    /// The next word with the space behind it.
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
