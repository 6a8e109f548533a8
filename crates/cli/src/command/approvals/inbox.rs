//! The approval inbox on a terminal: every waiting call, with all details that the decision needs.
//!
//! Keys apply to the question on the screen. If it is decided or changed elsewhere, nothing is selected. So a
//! key never decides a question that the person has not seen.
mod editor;
mod view;

use super::vote_summary;
use crate::backend::CommandBackend;
use crate::terminal::escape_control;
use outlast::views::{CostDimension, CostTotals};
use outlast::vocab::cost::Cost;
use outlast::vocab::id::ApprovalId;
use outlast::vocab::policy::ApprovalVerdict;
use outlast::{Error, Kind, SessionId, TurnId};
use outlast_client::api::waits::ApprovalResource;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io;
use std::time::Duration;

/// How long to wait for a key before the questions are read again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Shows the inbox until the user leaves it.
pub(super) async fn run(backend: CommandBackend, by: String) -> Result<(), Error> {
    let inbox = InboxController { backend, by };
    let mut state = InboxState::default();
    inbox.refresh(&mut state).await?;
    state.go(1);
    let mut terminal = ratatui::try_init().map_err(|cause| no_terminal(&cause))?;
    let left = inbox.serve(&mut terminal, &mut state).await;
    ratatui::restore();
    left
}

fn no_terminal(cause: &io::Error) -> Error {
    Error::new(Kind::IoFailed, format!("the terminal cannot be used: {cause}; try `outlast approvals list`"))
}

/// Records decisions in the name of a person.
struct InboxController {
    backend: CommandBackend,
    by: String,
}

/// The state of the screen.
#[derive(Default)]
struct InboxState {
    questions: Vec<ApprovalResource>,
    /// The question that is shown in full.
    selected: Option<ApprovalId>,
    /// The number of lines by which it is scrolled.
    scrolled: u16,
    mode: InboxMode,
    /// The result of the last key.
    message: String,
    costs: Option<QuestionCosts>,
}

/// The cost of a question's turn and session.
struct QuestionCosts {
    of: (SessionId, TurnId),
    turn: Cost,
    session: Cost,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum InboxMode {
    #[default]
    Looking,
    /// Typing the reason for a denial.
    Denying(String),
    /// Reading the list of keys.
    Helping,
}

/// The action that a key requests.
#[derive(Debug, PartialEq, Eq)]
enum InboxAction {
    Nothing,
    Leave,
    Say(ApprovalVerdict),
    Edit,
}

impl InboxController {
    async fn serve(&self, terminal: &mut DefaultTerminal, state: &mut InboxState) -> Result<(), Error> {
        loop {
            terminal.draw(|frame| view::draw(frame, state, &self.by)).map_err(|cause| no_terminal(&cause))?;
            let action = match next_key().await? {
                Some(key) => state.press(key),
                None => InboxAction::Nothing,
            };
            match action {
                InboxAction::Nothing => {}
                InboxAction::Leave => return Ok(()),
                InboxAction::Say(verdict) => state.message = self.vote(state, verdict).await,
                InboxAction::Edit => {
                    state.message = self.edit(terminal, state).await?;
                }
            }
            self.refresh(state).await?;
        }
    }

    /// Reads the questions again.
    async fn refresh(&self, state: &mut InboxState) -> Result<(), Error> {
        state.take(self.backend.pending().await?);
        let Some(of) = state.shown().map(|question| (question.session, question.turn)) else {
            state.costs = None;
            return Ok(());
        };
        if state.costs.as_ref().is_none_or(|costs| costs.of != of) {
            let spent = self.backend.spent(Some(of.0), CostDimension::Turn).await?;
            let turn = spent.get(&of.1.to_string()).map(|spent: &CostTotals| spent.cost).unwrap_or_default();
            state.costs =
                Some(QuestionCosts { of, turn, session: spent.values().map(|spent| spent.cost).sum() });
        }
        Ok(())
    }

    /// Votes on the shown question, and returns a description of the result.
    async fn vote(&self, state: &InboxState, verdict: ApprovalVerdict) -> String {
        let Some(question) = state.shown() else { return String::new() };
        match self.backend.decide(question.id, &self.by, verdict).await {
            Ok(voted) => format!("{}: {}", question.tool, vote_summary(&voted)),
            Err(error) => error.to_string(),
        }
    }

    /// Opens the arguments in the user's editor, and approves the edited version.
    async fn edit(&self, terminal: &mut DefaultTerminal, state: &InboxState) -> Result<String, Error> {
        let Some(question) = state.shown() else { return Ok(String::new()) };
        ratatui::restore();
        let edited = editor::edit(&question.arguments);
        *terminal = ratatui::try_init().map_err(|cause| no_terminal(&cause))?;
        let arguments = match edited {
            Ok(Some(arguments)) => arguments,
            Ok(None) => return Ok("the arguments were not changed, so nothing was decided".to_owned()),
            Err(error) => return Ok(error.to_string()),
        };
        if let Err(error) = self.backend.takes(question.id, &arguments).await {
            return Ok(error.to_string());
        }
        Ok(self.vote(state, ApprovalVerdict::Edit { arguments }).await)
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

impl InboxState {
    /// Replaces the questions. Clears the selection if its question is gone.
    fn take(&mut self, questions: Vec<ApprovalResource>) {
        self.questions = questions;
        if self.selected.is_some() && self.shown().is_none() {
            self.selected = None;
            if self.message.is_empty() {
                "it was already decided, or changed by someone else".clone_into(&mut self.message);
            }
        }
    }

    fn at(&self) -> Option<usize> {
        self.questions.iter().position(|question| Some(question.id) == self.selected)
    }

    fn shown(&self) -> Option<&ApprovalResource> {
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
    fn press(&mut self, key: KeyEvent) -> InboxAction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { InboxAction::Leave } else { InboxAction::Nothing };
        }
        self.message.clear();
        match std::mem::take(&mut self.mode) {
            InboxMode::Helping => InboxAction::Nothing,
            InboxMode::Denying(reason) => self.type_reason(reason, key.code),
            InboxMode::Looking => self.look_at(key.code),
        }
    }

    fn look_at(&mut self, key: KeyCode) -> InboxAction {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return InboxAction::Leave,
            KeyCode::Char('?') => self.mode = InboxMode::Helping,
            KeyCode::Char('j') | KeyCode::Down => self.go(1),
            KeyCode::Char('k') | KeyCode::Up => self.go(-1),
            KeyCode::Char('J') | KeyCode::PageDown => self.scrolled = self.scrolled.saturating_add(5),
            KeyCode::Char('K') | KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(5),
            KeyCode::Char('a' | 's' | 'd' | 'e') if self.shown().is_none() => {
                "no call is selected; select one with j and k".clone_into(&mut self.message);
            }
            KeyCode::Char('a') => return InboxAction::Say(ApprovalVerdict::Approve),
            KeyCode::Char('s') => return InboxAction::Say(ApprovalVerdict::ApproveForSession),
            KeyCode::Char('d') => self.mode = InboxMode::Denying(String::new()),
            KeyCode::Char('e') => return InboxAction::Edit,
            _ => {}
        }
        InboxAction::Nothing
    }

    fn type_reason(&mut self, mut reason: String, key: KeyCode) -> InboxAction {
        match key {
            KeyCode::Esc => return InboxAction::Nothing,
            KeyCode::Enter if !reason.trim().is_empty() => {
                return InboxAction::Say(ApprovalVerdict::Deny { reason: reason.trim().to_owned() });
            }
            KeyCode::Backspace => {
                reason.pop();
            }
            KeyCode::Char(c) => reason.push(c),
            _ => {}
        }
        self.mode = InboxMode::Denying(reason);
        InboxAction::Nothing
    }
}

/// Returns the text on one line, with hidden characters made visible. Ratatui draws text as it is.
fn plain(text: &str) -> String {
    escape_control(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(state: &mut InboxState, keys: &str) -> Vec<InboxAction> {
        let code = |key| match key {
            '\n' => KeyCode::Enter,
            '\u{8}' => KeyCode::Backspace,
            '\u{1b}' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        keys.chars().map(|key| state.press(KeyEvent::new(code(key), KeyModifiers::NONE))).collect()
    }

    #[test]
    fn keys_do_nothing_without_a_selected_approval() {
        let mut state = InboxState::default();
        for action in press(&mut state, "asdejk\n") {
            assert_eq!(action, InboxAction::Nothing);
        }
        assert_eq!(state.mode, InboxMode::Looking);
    }

    #[test]
    fn denial_needs_a_reason_and_can_be_cancelled() {
        let mut state = InboxState { mode: InboxMode::Denying(String::new()), ..InboxState::default() };
        assert_eq!(press(&mut state, "\n"), [InboxAction::Nothing]);
        assert_eq!(
            press(&mut state, "nox\u{8}\n").pop(),
            Some(InboxAction::Say(ApprovalVerdict::Deny { reason: "no".to_owned() }))
        );
        let mut state = InboxState { mode: InboxMode::Denying("half".to_owned()), ..InboxState::default() };
        assert_eq!(press(&mut state, "\u{1b}"), [InboxAction::Nothing]);
        assert_eq!(state.mode, InboxMode::Looking);
    }
}
