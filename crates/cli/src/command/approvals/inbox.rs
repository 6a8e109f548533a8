//! The inbox on a terminal: every call that waits for an approval, with all that somebody needs to decide it.
//!
//! What a key does is done to the question that is shown. If that one is decided or changed elsewhere, nothing is selected any
//! more, so no key ever decides a question that nobody looked at.
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

/// How long a key is waited for before the questions are looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Shows the inbox until somebody leaves it.
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

/// Where decisions are made, and in whose name.
struct Clerk {
    desk: Desk,
    by: String,
}

/// What is on the screen.
#[derive(Default)]
struct State {
    questions: Vec<Pending>,
    /// The question that is shown whole.
    selected: Option<ApprovalId>,
    /// Lines of it that are scrolled away.
    scrolled: u16,
    mode: Mode,
    /// What the last key came to.
    told: String,
    costs: Option<Costs>,
}

/// What the turn and the session of a question have cost.
struct Costs {
    of: (SessionId, TurnId),
    turn: Cost,
    session: Cost,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Mode {
    /// Looking at questions.
    #[default]
    Looking,
    /// Typing why one is denied.
    Denying(String),
    /// Reading what keys do.
    Helping,
}

/// What a key asks for.
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

    /// Reads the questions anew.
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

    /// Says something to the question that is shown, and what that came to.
    async fn say(&self, state: &State, verdict: Verdict) -> String {
        let Some(question) = state.shown() else { return String::new() };
        match self.desk.decide(question.id, &self.by, verdict).await {
            Ok(voted) => format!("{}: {}", question.tool, said(&voted)),
            Err(error) => error.to_string(),
        }
    }

    /// Lets somebody change the arguments in their editor, and approves what they leave there.
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

/// The next key, if one comes soon.
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
    /// Takes over what waits now. A question that is not there any more is not shown any more.
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

    /// Goes so many questions on.
    fn go(&mut self, by: isize) {
        let last = self.questions.len().saturating_sub(1);
        let at = self.at().map_or(0, |at| at.saturating_add_signed(by).min(last));
        self.selected = self.questions.get(at).map(|question| question.id);
        self.scrolled = 0;
    }

    /// What a key does.
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

/// A text as it may be shown on a terminal that draws what it is given: on one line, nothing hidden.
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
