//! `outlast watch`: shows running sessions live on a terminal, or as lines if the output is not a terminal.
//!
//! A [`rows::WatchRow`] describes a session. It is read again when the feed of all sessions reports a change.
//! [`live`] follows one session with its streaming text, and [`view`] draws. Keys are handled here, without a
//! terminal.
mod live;
mod rows;
mod view;

use crate::backend::CommandBackend;
use crate::follow::interrupt;
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::terminal::{self, one_line};
use clap::Args;
use live::{LiveSession, SessionFeed};
use outlast::{Error, Kind, SessionId};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rows::{WatchRow, WatchRows};
use std::io::{self, IsTerminal};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, timeout};

/// How often the feed of all sessions is read.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The timeout of a read, during which keys have no effect.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the key thread waits for a key before it checks whether its receiver is gone.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// The maximum length of the last message in a line, in characters.
const LETTERS: usize = 60;

/// Shows sessions that run, wait or have just ended, until `q` or Ctrl-C.
#[derive(Args)]
pub(crate) struct WatchArgs {
    /// Print the current state, one line per session, and exit
    #[arg(long)]
    once: bool,
}

impl WatchArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let backend = data.backend().await?;
        let mut rows = WatchRows::of(&backend).await?;
        if self.once {
            rows.all().for_each(|row| print(row, data.json));
            return Ok(());
        }
        if data.json || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return lines(&backend, &mut rows, data.json).await;
        }
        let mut terminal = ratatui::try_init().map_err(|cause| no_terminal(&cause))?;
        let watched = on_screen(&backend, rows, &mut terminal).await;
        ratatui::restore();
        watched
    }
}

fn no_terminal(cause: &io::Error) -> Error {
    Error::new(Kind::IoFailed, format!("the terminal cannot be used: {cause}; try `outlast watch --once`"))
}

/// Prints the sessions and all their changes as lines.
async fn lines(backend: &CommandBackend, rows: &mut WatchRows, json: bool) -> Result<(), Error> {
    rows.all().for_each(|row| print(row, json));
    let mut stop = Box::pin(interrupt());
    loop {
        tokio::select! {
            () = &mut stop => return Ok(()),
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
        for session in rows.refresh(backend).await? {
            if let Some(row) = rows.find(session) {
                print(row, json);
            }
        }
    }
}

fn print(row: &WatchRow, json: bool) {
    if json {
        terminal::json(row);
        return;
    }
    let WatchRow { session, state, agent, doing, tokens, cost, words, .. } = row;
    let agent = agent.as_deref().unwrap_or("-");
    let doing = if doing.is_empty() { String::new() } else { format!(" ({doing})") };
    let words = one_line(words, LETTERS);
    terminal::say(&format!(
        "{} {session} {state}{doing} {agent}, {tokens} tokens, ${cost}: {words}",
        formatting::when(row.updated)
    ));
}

/// The state of the screen.
#[derive(Default)]
struct WatchScreen {
    rows: Vec<WatchRow>,
    selected: usize,
    open: Option<LiveSession>,
    /// The number of lines by which the open session is scrolled back from its end.
    back: u16,
    /// The last error.
    message: String,
}

/// The action that a key requests.
#[derive(Debug, PartialEq, Eq)]
enum WatchAction {
    Nothing,
    Leave,
    Open(SessionId),
    Close,
}

impl WatchScreen {
    fn press(&mut self, key: KeyEvent) -> WatchAction {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return WatchAction::Leave;
        }
        match (key.code, &self.open) {
            (KeyCode::Char('q'), _) | (KeyCode::Esc, None) => return WatchAction::Leave,
            (KeyCode::Esc | KeyCode::Backspace | KeyCode::Left, Some(_)) => return WatchAction::Close,
            (KeyCode::Char('k') | KeyCode::Up | KeyCode::PageUp, Some(_)) => {
                self.back = self.back.saturating_add(5);
            }
            (KeyCode::Char('j') | KeyCode::Down | KeyCode::PageDown, Some(_)) => {
                self.back = self.back.saturating_sub(5);
            }
            (KeyCode::Char('j') | KeyCode::Down, None) => self.go(1),
            (KeyCode::Char('k') | KeyCode::Up, None) => self.go(-1),
            (KeyCode::Enter | KeyCode::Right, None) => {
                return self
                    .rows
                    .get(self.selected)
                    .map_or(WatchAction::Nothing, |row| WatchAction::Open(row.session));
            }
            _ => {}
        }
        WatchAction::Nothing
    }

    fn go(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }

    /// Replaces the rows. The selection stays on its session.
    fn take(&mut self, rows: Vec<WatchRow>) {
        let selected = self.rows.get(self.selected).map(|row| row.session);
        self.rows = rows;
        let at = selected.and_then(|session| self.rows.iter().position(|row| row.session == session));
        self.selected = at.unwrap_or(self.selected);
        self.go(0);
    }
}

async fn on_screen(
    backend: &CommandBackend,
    mut rows: WatchRows,
    terminal: &mut DefaultTerminal,
) -> Result<(), Error> {
    let mut keys = keys();
    let mut screen = WatchScreen::default();
    screen.take(rows.all().cloned().collect());
    let mut feed: Option<SessionFeed> = None;
    let mut clock = tokio::time::interval(LOOK_AGAIN);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        terminal.draw(|frame| view::draw(frame, &screen)).map_err(|cause| no_terminal(&cause))?;
        tokio::select! {
            key = keys.recv() => {
                let Some(key) = key else { return Ok(()) };
                match screen.press(key.map_err(|cause| no_terminal(&cause))?) {
                    WatchAction::Nothing => {}
                    WatchAction::Leave => return Ok(()),
                    WatchAction::Open(session) => {
                        (screen.open, screen.back) = (Some(LiveSession::of(session)), 0);
                        feed = Some(SessionFeed::of(backend, session));
                    }
                    WatchAction::Close => (screen.open, feed) = (None, None),
                }
            }
            received = next(feed.as_mut()) => match (received, &mut screen.open) {
                (Ok(events), Some(live)) => events.iter().for_each(|event| live.take(event)),
                (Ok(_), None) => {}
                (Err(error), _) => (screen.message, feed) = (error.to_string(), None),
            },
            _ = clock.tick() => match timeout(PATIENCE, rows.refresh(backend)).await.unwrap_or_else(|_| late()) {
                Ok(_) => {
                    screen.message.clear();
                    screen.take(rows.all().cloned().collect());
                }
                // The server may be restarting. The rows stay on the screen.
                Err(error) => screen.message = error.to_string(),
            },
        }
    }
}

/// Returns the error for a server that does not answer in time.
fn late<T>() -> Result<T, Error> {
    let detail = format!("no data for {} s; reconnecting", PATIENCE.as_secs());
    Err(Error::new(Kind::ServerUnreachable, detail))
}

/// Returns the next events of the open session. Without one, never returns.
async fn next(feed: Option<&mut SessionFeed>) -> Result<Vec<outlast::vocab::event::Event>, Error> {
    match feed {
        Some(feed) => feed.next().await,
        None => std::future::pending().await,
    }
}

/// Returns the pressed keys. A separate thread reads them, so no key is lost.
fn keys() -> mpsc::UnboundedReceiver<io::Result<KeyEvent>> {
    let (to_us, keys) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while !to_us.is_closed() {
            let key = match event::poll(KEY_WAIT) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(cause) => Err(cause),
            };
            let sent = match key {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => to_us.send(Ok(key)),
                Ok(_) => continue,
                Err(cause) => {
                    drop(to_us.send(Err(cause)));
                    return;
                }
            };
            if sent.is_err() {
                return;
            }
        }
    });
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(sessions: &[u128]) -> WatchScreen {
        let rows = sessions.iter().map(|session| WatchRow::known(SessionId::from_u128(*session))).collect();
        WatchScreen { rows, ..WatchScreen::default() }
    }

    fn press(screen: &mut WatchScreen, code: KeyCode) -> WatchAction {
        screen.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn selected_session_stays_selected_when_rows_move() {
        let mut watched = screen(&[1, 2, 3]);
        press(&mut watched, KeyCode::Char('j'));
        watched.take(screen(&[3, 9, 1, 2]).rows);
        assert_eq!(press(&mut watched, KeyCode::Enter), WatchAction::Open(SessionId::from_u128(2)));
        watched.take(screen(&[3]).rows);
        assert_eq!(press(&mut watched, KeyCode::Enter), WatchAction::Open(SessionId::from_u128(3)));
    }

    #[test]
    fn q_quits_everywhere_and_escape_goes_back() {
        let mut watched = screen(&[1]);
        assert_eq!(press(&mut watched, KeyCode::Char('q')), WatchAction::Leave);
        assert_eq!(press(&mut watched, KeyCode::Esc), WatchAction::Leave);
        watched.open = Some(LiveSession::of(SessionId::from_u128(1)));
        assert_eq!(press(&mut watched, KeyCode::Esc), WatchAction::Close);
        assert_eq!(press(&mut watched, KeyCode::Char('q')), WatchAction::Leave);
    }

    #[test]
    fn enter_does_nothing_in_an_empty_list() {
        assert_eq!(press(&mut screen(&[]), KeyCode::Enter), WatchAction::Nothing);
    }
}
