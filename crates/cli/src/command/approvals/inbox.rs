//! The approval inbox on a terminal: every waiting call, with all details that the decision needs.
//!
//! Keys apply to the question on the screen. If it is decided or changed elsewhere, nothing is selected. So a
//! key never decides a question that the person has not seen.
mod editor;
mod view;

use super::said;
use crate::desk::Desk;
use crate::terminal::visible;
use outlast::runtime::costs::{By, Spent};
use outlast::vocab::cost::Cost;
use outlast::vocab::id::ApprovalId;
use outlast::vocab::policy::Verdict;
use outlast::{Error, Kind, SessionId, TurnId};
use outlast_client::Pending;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io;
use std::time::Duration;

/// How long to wait for a key before the questions are read again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Shows the inbox until the user leaves it.
pub(super) async fn run(desk: Desk, by: String) -> Result<(), Error> {
    let clerk = Clerk { desk, by };
    let mut state = State::default();
    clerk.look(&mut state).await?;
    state.go(1);
    let mut terminal = ratatui::try_init().map_err(|cause| no_terminal(&cause))?;
    let left = clerk.serve(&mut terminal, &mut state).await;
    ratatui::restore();
    left
}

fn no_terminal(cause: &io::Error) -> Error {
    Error::new(Kind::IoFailed, format!("the terminal cannot be used: {cause}; try `outlast approvals list`"))
}

/// Records decisions in the name of a person.
struct Clerk {
    desk: Desk,
    by: String,
}

/// The state of the screen.
#[derive(Default)]
struct State {
    questions: Vec<Pending>,
    /// The question that is shown in full.
    selected: Option<ApprovalId>,
    /// The number of lines by which it is scrolled.
    scrolled: u16,
    mode: Mode,
    /// The result of the last key.
    told: String,
    costs: Option<Costs>,
}

/// The cost of a question's turn and session.
struct Costs {
    of: (SessionId, TurnId),
    turn: Cost,
    session: Cost,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Looking,
    /// Typing the reason for a denial.
    Denying(String),
    /// Reading the list of keys.
    Helping,
}

/// The action that a key requests.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Nothing,
    Leave,
    Say(Verdict),
    Edit,
}

impl Clerk {
    async fn serve(&self, terminal: &mut DefaultTerminal, state: &mut State) -> Result<(), Error> {
        loop {
            terminal.draw(|frame| view::draw(frame, state, &self.by)).map_err(|cause| no_terminal(&cause))?;
            let wish = match next_key().await? {
                Some(key) => state.press(key),
                None => Wish::Nothing,
            };
            match wish {
                Wish::Nothing => {}
                Wish::Leave => return Ok(()),
                Wish::Say(verdict) => state.told = self.say(state, verdict).await,
                Wish::Edit => {
                    state.told = self.edit(terminal, state).await?;
                }
            }
            self.look(state).await?;
        }
    }

    /// Reads the questions again.
    async fn look(&self, state: &mut State) -> Result<(), Error> {
        state.take(self.desk.pending().await?);
        let Some(of) = state.shown().map(|question| (question.session, question.turn)) else {
            state.costs = None;
            return Ok(());
        };
        if state.costs.as_ref().is_none_or(|costs| costs.of != of) {
            let spent = self.desk.spent(Some(of.0), By::Turn).await?;
            let turn = spent.get(&of.1.to_string()).map(|spent: &Spent| spent.cost).unwrap_or_default();
            state.costs = Some(Costs { of, turn, session: spent.values().map(|spent| spent.cost).sum() });
        }
        Ok(())
    }

    /// Votes on the shown question, and returns a description of the result.
    async fn say(&self, state: &State, verdict: Verdict) -> String {
        let Some(question) = state.shown() else { return String::new() };
        match self.desk.decide(question.id, &self.by, verdict).await {
            Ok(voted) => format!("{}: {}", question.tool, said(&voted)),
            Err(error) => error.to_string(),
        }
    }

    /// Opens the arguments in the user's editor, and approves the edited version.
    async fn edit(&self, terminal: &mut DefaultTerminal, state: &State) -> Result<String, Error> {
        let Some(question) = state.shown() else { return Ok(String::new()) };
        ratatui::restore();
        let edited = editor::edit(&question.arguments);
        *terminal = ratatui::try_init().map_err(|cause| no_terminal(&cause))?;
        let arguments = match edited {
            Ok(Some(arguments)) => arguments,
            Ok(None) => return Ok("nothing was changed, so nothing was decided".to_owned()),
            Err(error) => return Ok(error.to_string()),
        };
        if let Err(error) = self.desk.takes(question.id, &arguments).await {
            return Ok(error.to_string());
        }
        Ok(self.say(state, Verdict::Edit { arguments }).await)
    }
}

/// Returns the next key, or `None` after [`LOOK_AGAIN`].
async fn next_key() -> Result<Option<KeyEvent>, Error> {
    let read = || -> io::Result<Option<KeyEvent>> {
        if !event::poll(LOOK_AGAIN)? {
            return Ok(None);
        }
        Ok(match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => Some(key),
            _ => None,
        })
    };
    let read = tokio::task::spawn_blocking(read).await;
    read.unwrap_or_else(|cause| Err(io::Error::other(cause))).map_err(|cause| no_terminal(&cause))
}

impl State {
    /// Replaces the questions. Clears the selection if its question is gone.
    fn take(&mut self, questions: Vec<Pending>) {
        self.questions = questions;
        if self.selected.is_some() && self.shown().is_none() {
            self.selected = None;
            if self.told.is_empty() {
                "it was decided or changed elsewhere".clone_into(&mut self.told);
            }
        }
    }

    fn at(&self) -> Option<usize> {
        self.questions.iter().position(|question| Some(question.id) == self.selected)
    }

    fn shown(&self) -> Option<&Pending> {
        self.at().map(|at| &self.questions[at])
    }

    /// Moves the selection by `by` questions.
    fn go(&mut self, by: isize) {
        let last = self.questions.len().saturating_sub(1);
        let at = self.at().map_or(0, |at| at.saturating_add_signed(by).min(last));
        self.selected = self.questions.get(at).map(|question| question.id);
        self.scrolled = 0;
    }

    /// Handles a key and returns the requested action.
    fn press(&mut self, key: KeyEvent) -> Wish {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Wish::Leave } else { Wish::Nothing };
        }
        self.told.clear();
        match std::mem::take(&mut self.mode) {
            Mode::Helping => Wish::Nothing,
            Mode::Denying(reason) => self.type_reason(reason, key.code),
            Mode::Looking => self.look_at(key.code),
        }
    }

    fn look_at(&mut self, key: KeyCode) -> Wish {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Wish::Leave,
            KeyCode::Char('?') => self.mode = Mode::Helping,
            KeyCode::Char('j') | KeyCode::Down => self.go(1),
            KeyCode::Char('k') | KeyCode::Up => self.go(-1),
            KeyCode::Char('J') | KeyCode::PageDown => self.scrolled = self.scrolled.saturating_add(5),
            KeyCode::Char('K') | KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(5),
            KeyCode::Char('a' | 's' | 'd' | 'e') if self.shown().is_none() => {
                "nothing is selected; j and k go to a question".clone_into(&mut self.told);
            }
            KeyCode::Char('a') => return Wish::Say(Verdict::Approve),
            KeyCode::Char('s') => return Wish::Say(Verdict::ApproveForSession),
            KeyCode::Char('d') => self.mode = Mode::Denying(String::new()),
            KeyCode::Char('e') => return Wish::Edit,
            _ => {}
        }
        Wish::Nothing
    }

    fn type_reason(&mut self, mut reason: String, key: KeyCode) -> Wish {
        match key {
            KeyCode::Esc => return Wish::Nothing,
            KeyCode::Enter if !reason.trim().is_empty() => {
                return Wish::Say(Verdict::Deny { reason: reason.trim().to_owned() });
            }
            KeyCode::Backspace => {
                reason.pop();
            }
            KeyCode::Char(c) => reason.push(c),
            _ => {}
        }
        self.mode = Mode::Denying(reason);
        Wish::Nothing
    }
}

/// Returns the text on one line, with hidden characters made visible. Ratatui draws text as it is.
fn plain(text: &str) -> String {
    visible(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(state: &mut State, keys: &str) -> Vec<Wish> {
        let code = |key| match key {
            '\n' => KeyCode::Enter,
            '\u{8}' => KeyCode::Backspace,
            '\u{1b}' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        keys.chars().map(|key| state.press(KeyEvent::new(code(key), KeyModifiers::NONE))).collect()
    }

    #[test]
    fn no_key_decides_where_nothing_is_selected() {
        let mut state = State::default();
        for wish in press(&mut state, "asdejk\n") {
            assert_eq!(wish, Wish::Nothing);
        }
        assert_eq!(state.mode, Mode::Looking);
    }

    #[test]
    fn a_denial_needs_a_reason_and_can_be_given_up() {
        let mut state = State { mode: Mode::Denying(String::new()), ..State::default() };
        assert_eq!(press(&mut state, "\n"), [Wish::Nothing]);
        assert_eq!(
            press(&mut state, "nox\u{8}\n").pop(),
            Some(Wish::Say(Verdict::Deny { reason: "no".to_owned() }))
        );
        let mut state = State { mode: Mode::Denying("half".to_owned()), ..State::default() };
        assert_eq!(press(&mut state, "\u{1b}"), [Wish::Nothing]);
        assert_eq!(state.mode, Mode::Looking);
    }
}
