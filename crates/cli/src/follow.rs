//! Follows a turn until it ends or waits for a person. Ctrl-C cancels the turn, and a second Ctrl-C exits the
//! program.
use crate::conversation_printer::ConversationPrinter;
use crate::formatting;
use crate::question;
use crate::terminal;
use crate::turn_backend::{FollowedTurn, TurnBackend};
use outlast::clock::Clock;
use outlast::runtime::worker::system::SystemClock;
use outlast::store::SessionState;
use outlast::vocab::ErrorPlace;
use outlast::vocab::event::{Event, LiveEvent, LiveEventKind};
use outlast::vocab::record::Fact;
use outlast::vocab::wait::{Wait, WaitKind};
use outlast::{Error, Kind, SessionId, TurnId};
use std::time::Duration;

/// The exit code of a program that was interrupted, by shell convention.
const INTERRUPTED: i32 = 130;

/// A sleep shorter than this is not reported.
const SOON: Duration = Duration::from_secs(2);

/// The format of the output.
pub(crate) enum TurnOutput {
    /// One line of JSON per event.
    Frames,
    /// A conversation.
    Prose(ConversationPrinter),
}

impl TurnOutput {
    /// Ends the current line, so that a note starts on a new one.
    fn end_line(&self) {
        if let Self::Prose(prose) = self {
            prose.end_line();
        }
    }

    fn show(&mut self, session: SessionId, turn: TurnId, event: &Event) {
        match self {
            Self::Frames => terminal::json(&event.frame(session)),
            Self::Prose(prose) => {
                let whose = match event {
                    Event::Durable(record) => record.turn,
                    Event::Live(live) => Some(live.turn),
                    Event::Missed { .. } => None,
                };
                // The session may contain turns of other users.
                if whose == Some(turn) {
                    prose.show(event);
                }
            }
        }
    }
}

/// What to do when the turn waits for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitBehavior {
    /// Print the wait and return. The turn stays parked.
    Leave,
    /// Print the wait and continue to follow.
    Stay,
}

/// Follows the events of a turn. Returns an error if it ends without an answer, but not if it waits.
pub(crate) async fn follow(
    host: &TurnBackend,
    followed: FollowedTurn,
    view: &mut TurnOutput,
    at_wait: WaitBehavior,
) -> Result<(), Error> {
    let FollowedTurn { session, turn, mut events } = followed;
    let mut stop = Box::pin(interrupt());
    let mut asked_to_stop = false;
    let mut stuck = None;
    if let Some(waiting) = waiting(host, session, turn).await?.filter(|waiting| !waiting.ours) {
        terminal::note(&waiting.message);
        if at_wait == WaitBehavior::Leave {
            return Ok(());
        }
    }
    loop {
        let event = tokio::select! {
            // Ctrl-C comes first: the process handles the signal only after the first poll.
            biased;
            () = &mut stop => {
                if asked_to_stop {
                    std::process::exit(INTERRUPTED);
                }
                asked_to_stop = true;
                stop = Box::pin(interrupt());
                view.end_line();
                terminal::note("· stopping; press Ctrl-C again to exit immediately");
                host.cancel(turn, "interrupted at the terminal").await?;
                continue;
            }
            event = events.next() => event?,
        };
        view.show(session, turn, &event);
        if let Some(full) = full(&event) {
            view.end_line();
            if at_wait == WaitBehavior::Leave {
                terminal::note("· the input is stored; run `outlast work` once the disk has free space");
                return Err(full);
            }
            terminal::note("· the disk is full; the turn continues once there is free space");
        }
        let Event::Durable(record) = &event else { continue };
        let ours = record.turn == Some(turn);
        match &record.fact {
            Fact::Ended { end } if ours => {
                let at = ErrorPlace { session: Some(session), turn: Some(turn), ..ErrorPlace::default() };
                return end.clone().answer().map(drop).map_err(|error| error.at(at));
            }
            Fact::Stuck { failure } if ours => stuck = Some(failure.clone()),
            Fact::Parked { waits } if ours && is_long_sleep(waits) => {
                if let Some(until) = waits.iter().filter_map(|wait| wait.deadline).min() {
                    view.end_line();
                    terminal::note(&format!("· {turn} continues at {}", formatting::when(until)));
                }
            }
            Fact::Parked { waits } if waits.iter().all(|wait| wait.kind == WaitKind::Provider) => {
                view.end_line();
                for wait in waits {
                    terminal::note(&format!("· {turn} {}", formatting::wait(turn, "", wait, &[])));
                }
            }
            Fact::Parked { waits } => {
                let waiting = waiting(host, session, turn).await?;
                // An old wait was resolved in the meantime.
                let Some(waiting) = waiting.filter(|waiting| waiting.waits == *waits) else { continue };
                terminal::note(&waiting.message);
                if let Some(failure) = stuck.take().filter(|_| ours) {
                    let at = ErrorPlace { turn: Some(turn), ..ErrorPlace::default() };
                    return Err(Error::from(failure).at(at));
                }
                if at_wait == WaitBehavior::Leave {
                    return Ok(());
                }
            }
            _ => {}
        }
    }
}

/// Returns whether a turn only sleeps, and long enough that a user would notice.
fn is_long_sleep(waits: &[Wait]) -> bool {
    let soon = SystemClock.now().after(SOON);
    waits.iter().all(|wait| wait.kind == WaitKind::Sleep && wait.deadline.is_some_and(|until| until > soon))
}

/// Returns the error of a full disk, which a person has to free. A full disk also blocks our turn if it holds
/// an earlier one.
fn full(event: &Event) -> Option<Error> {
    match event {
        Event::Live(LiveEvent { turn, what: LiveEventKind::Held { failure } })
            if failure.code == Kind::StoreFull =>
        {
            let at = ErrorPlace { turn: Some(*turn), ..ErrorPlace::default() };
            Some(Error::from(failure.clone()).at(at))
        }
        _ => None,
    }
}

/// The current waits of a session.
struct SessionWaits {
    waits: Vec<Wait>,
    /// Whether they belong to the followed turn.
    ours: bool,
    /// The message for the user.
    message: String,
}

/// Returns the waits of a session that a person has to resolve. Sleeps are ignored, because they end on their
/// own.
async fn waiting(
    host: &TurnBackend,
    session: SessionId,
    turn: TurnId,
) -> Result<Option<SessionWaits>, Error> {
    let backend = host.backend();
    let session = backend.session(session).await?;
    let (SessionState::Parked, Some(active)) = (session.state, session.active) else { return Ok(None) };
    if session.waits.iter().all(|wait| wait.kind.ends_by_itself()) {
        return Ok(None);
    }
    let ours = active == turn;
    let waits = question::waits(&backend, active, &session.waits).await?;
    let mut lines = waits.iter().map(|wait| format!("· {active} {wait}")).collect::<Vec<_>>().join("\n");
    if !ours {
        lines = format!("{lines}\n· the input is stored; {turn} runs after it");
    }
    Ok(Some(SessionWaits { waits: session.waits, ours, message: lines }))
}

/// Waits for Ctrl-C.
pub(crate) async fn interrupt() {
    if tokio::signal::ctrl_c().await.is_err() {
        // Without a handler, Ctrl-C terminates the program as usual.
        std::future::pending::<()>().await;
    }
}
