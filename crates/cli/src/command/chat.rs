//! `outlast chat`: a conversation in the terminal.
//!
//! Ctrl-C cancels the running turn, not the program. Ctrl-D leaves. A line that ends with a backslash
//! continues on the next line. While the agent waits for an answer to its question, the next line is that
//! answer.
use super::sessions;
use crate::agent::AgentArgs;
use crate::backend::CommandBackend;
use crate::conversation_printer::ConversationPrinter;
use crate::follow::{TurnOutput, WaitBehavior, follow};
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::question::{self, OpenQuestion};
use crate::session_selector::SessionSelector;
use crate::terminal;
use crate::turn_backend::{FollowedTurn, OutgoingInput, TurnBackend};
use clap::Args;
use outlast::vocab::record::Seq;
use outlast::vocab::wait::Resolution;
use outlast::{Error, Kind, Limits, SessionId};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Editor, Helper};
use std::path::PathBuf;

const PROMPT: &str = "you> ";

/// The number of sessions that `/sessions` lists.
const LISTED: usize = 20;

const HELP: &str = "\
/sessions   list sessions
/events     list the events of this session
/fork N     continue in a new session, forked after message N
/help       show this help
/quit       quit, like Ctrl-D
A line that ends with \\ continues on the next line. Ctrl-C cancels the current turn.
If the agent asks a question, the next line answers it; a number selects an option.";

/// Chats with an agent in the terminal.
#[derive(Args)]
pub(crate) struct ChatArgs {
    /// Session, by id or by a key that you choose; default: a new session
    session: Option<String>,
    #[command(flatten)]
    agent: AgentArgs,
}

impl ChatArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let named = self.session.as_deref().map(SessionSelector::parse).transpose()?;
        let host = self.agent.host(data).await?;
        let talked = talk(&host, named, data).await;
        host.shut_down().await;
        talked
    }
}

async fn talk(host: &TurnBackend, named: Option<SessionSelector>, data: &GlobalArgs) -> Result<(), Error> {
    // The first input creates the session, so a visit without input leaves nothing behind.
    let mut session = named;
    let mut keyboard = LineReader::open(data)?;
    terminal::note("· /help lists the commands");
    greet(&host.backend(), session.as_ref()).await?;
    loop {
        let input;
        (keyboard, input) = keyboard.next().await?;
        match input {
            KeyboardInput::Line(line) => match act(host, &mut session, &line).await {
                Ok(ChatFlow::GoOn) => {}
                Ok(ChatFlow::Leave) => break,
                Err(error) if error.kind() == Kind::TurnCancelled => terminal::note("· cancelled"),
                // A failed turn or command does not end the conversation.
                Err(error) => terminal::print_error(&error),
            },
            KeyboardInput::Interrupt => terminal::note("· nothing to cancel; Ctrl-D quits"),
            KeyboardInput::End => break,
        }
    }
    keyboard.keep_history();
    Ok(())
}

/// Prints what an existing session waits for.
async fn greet(backend: &CommandBackend, session: Option<&SessionSelector>) -> Result<(), Error> {
    let Some(view) = (match session {
        Some(named) => backend.find_named(named).await?,
        None => None,
    }) else {
        return Ok(());
    };
    if let Some(active) = view.active {
        for wait in question::waits(backend, active, &view.waits).await? {
            terminal::note(&format!("· {active} {wait}"));
        }
    }
    Ok(())
}

enum ChatFlow {
    GoOn,
    Leave,
}

async fn act(
    host: &TurnBackend,
    session: &mut Option<SessionSelector>,
    line: &str,
) -> Result<ChatFlow, Error> {
    let backend = host.backend();
    let mut words = line.split_whitespace();
    match (words.next(), words.next()) {
        (None, _) => {}
        (Some("/quit"), _) => return Ok(ChatFlow::Leave),
        (Some("/help"), _) => terminal::say(HELP),
        (Some("/sessions"), _) => sessions::list(&backend, LISTED).await?,
        (Some("/events"), _) => events(&backend, known(&backend, session.as_ref()).await?).await?,
        (Some("/fork"), at) => {
            let fork = fork(&backend, known(&backend, session.as_ref()).await?, at).await?;
            *session = Some(SessionSelector::Id(fork));
            terminal::note(&format!("· session {fork}"));
        }
        (Some(word), _) if word.starts_with('/') => {
            let detail = format!("expected one of the commands that /help lists, got `{word}`");
            return Err(Error::new(Kind::InputInvalid, detail));
        }
        _ => say(host, session, line).await?,
    }
    Ok(ChatFlow::GoOn)
}

/// Sends a line as the answer to the open question, or else as an input.
async fn say(host: &TurnBackend, session: &mut Option<SessionSelector>, line: &str) -> Result<(), Error> {
    let backend = host.backend();
    let found = match session {
        Some(named) => backend.find_named(named).await?,
        None => None,
    };
    let followed = match &found {
        Some(view) if let Some(OpenQuestion { key, question }) = question::open(&backend, view).await? => {
            host.resolve(&key, Resolution::Ok(question.answer(line))).await?;
            FollowedTurn { session: view.id, turn: key.turn, events: host.events(view.id, view.last.seq) }
        }
        _ => {
            let outgoing = OutgoingInput { text: line.to_owned(), ..OutgoingInput::default() };
            host.send(session.clone(), outgoing).await?
        }
    };
    if session.is_none() {
        terminal::note(&format!("· session {}", followed.session));
    }
    *session = Some(SessionSelector::Id(followed.session));
    let mut view = if terminal::is_json() {
        TurnOutput::Frames
    } else {
        TurnOutput::Prose(ConversationPrinter::default())
    };
    follow(host, followed, &mut view, WaitBehavior::Leave).await
}

/// Returns the id of the session, once it has an input.
async fn known(backend: &CommandBackend, session: Option<&SessionSelector>) -> Result<SessionId, Error> {
    let found = match session {
        Some(named) => backend.find_named(named).await?,
        None => None,
    };
    let nothing = || Error::new(Kind::SessionNotFound, "this session has no messages yet");
    found.map(|session| session.id).ok_or_else(nothing)
}

async fn events(backend: &CommandBackend, session: SessionId) -> Result<(), Error> {
    let mut after = Seq(0);
    loop {
        let page = backend.records(session, after, Limits::default().page_rows).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.seq;
        for record in &page {
            terminal::say(&formatting::record(record));
        }
    }
}

async fn fork(backend: &CommandBackend, from: SessionId, at: Option<&str>) -> Result<SessionId, Error> {
    let number = at.map(str::parse).transpose().map_err(|_| {
        let detail = format!("expected a message's number after /fork, got `{}`", at.unwrap_or_default());
        Error::new(Kind::InputInvalid, detail)
    })?;
    backend.fork(from, number.map(Seq), None, None).await
}

/// Reads lines from a terminal with history, or from a pipe.
struct LineReader {
    editor: Editor<ContinuationValidator, FileHistory>,
    /// The history file, if there is one.
    history: Option<PathBuf>,
}

enum KeyboardInput {
    Line(String),
    Interrupt,
    End,
}

impl LineReader {
    fn open(data: &GlobalArgs) -> Result<Self, Error> {
        let mut editor = Editor::new().map_err(no_terminal)?;
        editor.set_helper(Some(ContinuationValidator));
        let mut keyboard = Self { editor, history: data.history() };
        if let Some(history) = &keyboard.history {
            // The first conversation has no history file.
            let _ = keyboard.editor.load_history(history);
        }
        Ok(keyboard)
    }

    /// Reads the next line on a separate thread, so that the worker keeps running.
    async fn next(self) -> Result<(Self, KeyboardInput), Error> {
        let waited = tokio::task::spawn_blocking(move || {
            let mut keyboard = self;
            let input = match keyboard.editor.readline(PROMPT) {
                Ok(line) => {
                    // Failing to add to the history is not an error.
                    let _ = keyboard.editor.add_history_entry(&line);
                    KeyboardInput::Line(joined(&line))
                }
                Err(ReadlineError::Interrupted) => KeyboardInput::Interrupt,
                Err(ReadlineError::Eof) => KeyboardInput::End,
                Err(cause) => return Err(no_terminal(cause)),
            };
            Ok((keyboard, input))
        });
        waited.await.map_err(|cause| {
            Error::new(Kind::Internal, format!("the thread that reads input stopped: {cause}"))
        })?
    }

    fn keep_history(&mut self) {
        let Some(history) = &self.history else { return };
        if let Err(cause) = self.editor.append_history(history) {
            terminal::note(&format!("· the history was not saved: {cause}"));
        }
    }
}

fn no_terminal(cause: ReadlineError) -> Error {
    Error::new(Kind::IoFailed, format!("the terminal cannot be read: {cause}")).because(cause)
}

/// Joins lines that end with a backslash into one input with several lines.
fn joined(line: &str) -> String {
    line.replace("\\\n", "\n")
}

/// Asks for another line after a backslash. It has no completion, hints or highlighting.
struct ContinuationValidator;

impl Helper for ContinuationValidator {}
impl Highlighter for ContinuationValidator {}

impl Completer for ContinuationValidator {
    type Candidate = String;
}

impl Hinter for ContinuationValidator {
    type Hint = String;
}

impl Validator for ContinuationValidator {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let goes_on = context.input().ends_with('\\');
        Ok(if goes_on { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}
