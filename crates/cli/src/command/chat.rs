//! `outlast chat`: a conversation in the terminal.
//!
//! Ctrl-C cancels the running turn, not the program. Ctrl-D leaves. A line that ends with a backslash
//! continues on the next line. While the agent waits for an answer to its question, the next line is that
//! answer.
use super::sessions;
use crate::agent::Agent;
use crate::data::Data;
use crate::desk::Desk;
use crate::find::Named;
use crate::follow::{AtWait, View, follow};
use crate::host::{Followed, Host, Outgoing};
use crate::prose::Prose;
use crate::question::{self, Open};
use crate::terminal;
use crate::words;
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
/events     what happened in this one
/fork N     go on in a new session that branches after message N
/help       this
/quit       leave; so does Ctrl-D
A line that ends with \\ goes on in the next one. Ctrl-C cancels the answer that is being given.
When the agent asks something, the next line is the answer; a number chooses an option.";

/// Chats with an agent in the terminal.
#[derive(Args)]
pub(crate) struct Chat {
    /// Session, by id or by a key that you choose; default: a new session
    session: Option<String>,
    #[command(flatten)]
    agent: Agent,
}

impl Chat {
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let named = self.session.as_deref().map(Named::parse).transpose()?;
        let host = self.agent.host(data).await?;
        let talked = talk(&host, named, data).await;
        host.leave().await;
        talked
    }
}

async fn talk(host: &Host, named: Option<Named>, data: &Data) -> Result<(), Error> {
    // The first input creates the session, so a visit without input leaves nothing behind.
    let mut session = named;
    let mut keyboard = Keyboard::open(data)?;
    terminal::note("· /help tells what you can do here");
    greet(&host.desk(), session.as_ref()).await?;
    loop {
        let heard;
        (keyboard, heard) = keyboard.next().await?;
        match heard {
            Heard::Line(line) => match act(host, &mut session, &line).await {
                Ok(Then::GoOn) => {}
                Ok(Then::Leave) => break,
                Err(error) if error.kind() == Kind::TurnCancelled => terminal::note("· cancelled"),
                // A failed turn or command does not end the conversation.
                Err(error) => terminal::complain(&error),
            },
            Heard::Interrupt => terminal::note("· nothing to cancel; Ctrl-D leaves"),
            Heard::End => break,
        }
    }
    keyboard.keep_history();
    Ok(())
}

/// Prints what an existing session waits for.
async fn greet(desk: &Desk, session: Option<&Named>) -> Result<(), Error> {
    let Some(view) = (match session {
        Some(named) => desk.find_named(named).await?,
        None => None,
    }) else {
        return Ok(());
    };
    if let Some(active) = view.active {
        for wait in question::waits(desk, active, &view.waits).await? {
            terminal::note(&format!("· {active} {wait}"));
        }
    }
    Ok(())
}

enum Then {
    GoOn,
    Leave,
}

async fn act(host: &Host, session: &mut Option<Named>, line: &str) -> Result<Then, Error> {
    let desk = host.desk();
    let mut words = line.split_whitespace();
    match (words.next(), words.next()) {
        (None, _) => {}
        (Some("/quit"), _) => return Ok(Then::Leave),
        (Some("/help"), _) => terminal::say(HELP),
        (Some("/sessions"), _) => sessions::list(&desk, LISTED).await?,
        (Some("/events"), _) => events(&desk, known(&desk, session.as_ref()).await?).await?,
        (Some("/fork"), at) => {
            let fork = fork(&desk, known(&desk, session.as_ref()).await?, at).await?;
            *session = Some(Named::Id(fork));
            terminal::note(&format!("· session {fork}"));
        }
        (Some(word), _) if word.starts_with('/') => {
            let detail = format!("expected one of the commands that /help lists, got `{word}`");
            return Err(Error::new(Kind::InputInvalid, detail));
        }
        _ => say(host, session, line).await?,
    }
    Ok(Then::GoOn)
}

/// Sends a line as the answer to the open question, or else as an input.
async fn say(host: &Host, session: &mut Option<Named>, line: &str) -> Result<(), Error> {
    let desk = host.desk();
    let found = match session {
        Some(named) => desk.find_named(named).await?,
        None => None,
    };
    let followed = match &found {
        Some(view) if let Some(Open { key, question }) = question::open(&desk, view).await? => {
            host.resolve(&key, Resolution::Ok(question.answer(line))).await?;
            Followed { session: view.id, turn: key.turn, events: host.events(view.id, view.last.seq) }
        }
        _ => {
            let outgoing = Outgoing { text: line.to_owned(), ..Outgoing::default() };
            host.send(session.clone(), outgoing).await?
        }
    };
    if session.is_none() {
        terminal::note(&format!("· session {}", followed.session));
    }
    *session = Some(Named::Id(followed.session));
    let mut view = if terminal::is_json() { View::Frames } else { View::Prose(Prose::default()) };
    follow(host, followed, &mut view, AtWait::Leave).await
}

/// Returns the id of the session, once it has an input.
async fn known(desk: &Desk, session: Option<&Named>) -> Result<SessionId, Error> {
    let found = match session {
        Some(named) => desk.find_named(named).await?,
        None => None,
    };
    let nothing = || Error::new(Kind::SessionNotFound, "nothing has been said in this session yet");
    found.map(|session| session.id).ok_or_else(nothing)
}

async fn events(desk: &Desk, session: SessionId) -> Result<(), Error> {
    let mut after = Seq(0);
    loop {
        let page = desk.records(session, after, Limits::default().page_rows).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.seq;
        for record in &page {
            terminal::say(&words::record(record));
        }
    }
}

async fn fork(desk: &Desk, from: SessionId, at: Option<&str>) -> Result<SessionId, Error> {
    let number = at.map(str::parse).transpose().map_err(|_| {
        let detail = format!("expected a message's number after /fork, got `{}`", at.unwrap_or_default());
        Error::new(Kind::InputInvalid, detail)
    })?;
    desk.fork(from, number.map(Seq), (None, None)).await
}

/// Reads lines from a terminal with history, or from a pipe.
struct Keyboard {
    editor: Editor<Multiline, FileHistory>,
    /// The history file, if there is one.
    history: Option<PathBuf>,
}

enum Heard {
    Line(String),
    Interrupt,
    End,
}

impl Keyboard {
    fn open(data: &Data) -> Result<Self, Error> {
        let mut editor = Editor::new().map_err(no_terminal)?;
        editor.set_helper(Some(Multiline));
        let mut keyboard = Self { editor, history: data.history() };
        if let Some(history) = &keyboard.history {
            // The first conversation has no history file.
            let _ = keyboard.editor.load_history(history);
        }
        Ok(keyboard)
    }

    /// Reads the next line on a separate thread, so that the worker keeps running.
    async fn next(self) -> Result<(Self, Heard), Error> {
        let waited = tokio::task::spawn_blocking(move || {
            let mut keyboard = self;
            let heard = match keyboard.editor.readline(PROMPT) {
                Ok(line) => {
                    // Failing to add to the history is not an error.
                    let _ = keyboard.editor.add_history_entry(&line);
                    Heard::Line(joined(&line))
                }
                Err(ReadlineError::Interrupted) => Heard::Interrupt,
                Err(ReadlineError::Eof) => Heard::End,
                Err(cause) => return Err(no_terminal(cause)),
            };
            Ok((keyboard, heard))
        });
        waited
            .await
            .map_err(|cause| Error::new(Kind::Internal, format!("the reader of lines died: {cause}")))?
    }

    fn keep_history(&mut self) {
        let Some(history) = &self.history else { return };
        if let Err(cause) = self.editor.append_history(history) {
            terminal::note(&format!("· the history was not kept: {cause}"));
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
struct Multiline;

impl Helper for Multiline {}
impl Highlighter for Multiline {}

impl Completer for Multiline {
    type Candidate = String;
}

impl Hinter for Multiline {
    type Hint = String;
}

impl Validator for Multiline {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let goes_on = context.input().ends_with('\\');
        Ok(if goes_on { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}
