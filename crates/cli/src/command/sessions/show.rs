//! `outlast sessions show`: prints the messages of a session with their numbers, its state, waits and heads.
use super::{session_json, tree};
use crate::backend::CommandBackend;
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::question;
use crate::terminal::{self, OutputLine, TextStyle};
use clap::Args;
use outlast::store::{HistoryTurn, LastEnd, LastTurn, MAIN_HEAD, SessionView, TurnState, TurnView};
use outlast::vocab::effect::{Command, ModelOutcome, Outcome};
use outlast::vocab::message::text_of;
use outlast::vocab::record::{EffectPerformed, EffectRequested, Fact, Record, Seq, TurnEnd, TurnEndKind};
use outlast::{Error, Kind, Limits, SessionId};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The maximum size of the shown records without `--all`, in bytes.
const SHOWN_BYTES: usize = 256 << 10;

/// The width of a message number.
const INDENT: &str = "      ";

/// Shows a session.
#[derive(Args)]
pub(crate) struct SessionShowArgs {
    /// Session, by id or key
    session: String,
    /// Head whose messages are shown
    #[arg(long, value_name = "NAME", default_value = MAIN_HEAD)]
    head: String,
    /// Show all messages, even of a long session
    #[arg(long)]
    all: bool,
    /// Show the turns as a tree instead
    #[arg(long)]
    tree: bool,
}

impl SessionShowArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let backend = data.backend().await?;
        let session = backend.find(&self.session).await?;
        if data.json {
            let mut line = session_json(&session);
            line["forks"] = json!(backend.forks(session.id).await?);
            terminal::json(&line);
        } else {
            about(&backend, &session).await?;
        }
        if self.tree {
            return if data.json {
                turns(&backend, &session).await
            } else {
                tree::draw(&backend, &session).await
            };
        }
        self.messages(&backend, &session, if data.json { message_json } else { message_line }).await
    }

    async fn messages(
        &self,
        backend: &CommandBackend,
        session: &SessionView,
        say: ItemPrinter,
    ) -> Result<(), Error> {
        let head = session.heads.iter().find(|(name, _)| *name == self.head).ok_or_else(|| {
            let detail = format!("session {} has no head `{}`", session.id, self.head);
            Error::new(Kind::NodeNotFound, detail)
        })?;
        let bytes = if self.all { usize::MAX } else { SHOWN_BYTES };
        let mut past = match head.1 {
            Some(node) => backend.history(node, bytes).await?,
            None => Vec::new(),
        };
        past.reverse();
        let first = past.first().and_then(|turn| turn.records.first()).and_then(|record| record.turn);
        if let Some(first) = first
            && backend.turn(first).await?.parent.is_some()
        {
            terminal::note("· earlier messages are omitted; `--all` shows them");
        }
        for HistoryTurn { records, last_in_branch: cut } in &past {
            if let Some(id) = records.first().and_then(|record| record.turn) {
                let view = backend.turn(id).await?;
                say(SessionItem::Turn(&view, session.id));
            }
            messages(records, *cut, say);
        }
        let newest = u32::try_from(Limits::default().queued_inputs + 1).unwrap_or(u32::MAX);
        let from = session.turns.saturating_sub(newest);
        for view in backend.turns(session.id, from, newest as usize).await? {
            if view.state != TurnState::Ended {
                say(SessionItem::Turn(&view, session.id));
                messages(&backend.turn_records(view.id).await?, Seq(u64::MAX), say);
            }
        }
        Ok(())
    }
}

/// An item of a printed session.
#[derive(Clone, Copy)]
enum SessionItem<'a> {
    /// The start of a turn. The id is the session that is shown.
    Turn(&'a TurnView, SessionId),
    /// A message: its record, author and text.
    Message(&'a Record, &'a str, &'a str),
}

/// Prints an item.
type ItemPrinter = fn(SessionItem<'_>);

fn message_line(said: SessionItem<'_>) {
    match said {
        SessionItem::Turn(view, session) => turn(view, session),
        SessionItem::Message(record, who, what) => OutputLine::new()
            .ink(TextStyle::Faint, &format!("#{:<4} ", record.seq.0))
            .ink(TextStyle::Bold, who)
            .text(&format!(" {}", indented(what)))
            .say(),
    }
}

/// Indents all lines after the first. Empty lines stay empty.
fn indented(text: &str) -> String {
    text.replace('\n', &format!("\n{INDENT}")).replace(&format!("\n{INDENT}\n"), "\n\n")
}

fn message_json(said: SessionItem<'_>) {
    match said {
        SessionItem::Turn(view, _) => terminal::json(&turn_json(view)),
        SessionItem::Message(record, who, what) => terminal::json(&json!({
            "turn": record.turn, "seq": record.seq, "at": record.at, "who": who, "text": what,
        })),
    }
}

fn turn_json(turn: &TurnView) -> Value {
    let TurnView { id, session, index, state, parent, span: (first, last), end, retry_of, .. } = turn;
    let state = match state {
        TurnState::Queued => "queued",
        TurnState::Active => "active",
        TurnState::Ended => "ended",
    };
    json!({
        "turn": id, "session": session, "index": index, "state": state, "parent": parent, "first": first,
        "last": last, "end": end, "retry_of": retry_of,
    })
}

/// Prints every turn as one JSON line, so that programs can build the tree.
async fn turns(backend: &CommandBackend, session: &SessionView) -> Result<(), Error> {
    for turn in backend.turns(session.id, 0, session.turns as usize).await? {
        terminal::json(&turn_json(&turn));
    }
    Ok(())
}

/// Prints the details of a session, without its messages.
async fn about(backend: &CommandBackend, session: &SessionView) -> Result<(), Error> {
    let key = session.key.as_ref().map(|key| format!(" `{key}`")).unwrap_or_default();
    let turns = formatting::count(session.turns as usize, "turn", "turns");
    OutputLine::new()
        .ink(TextStyle::Bold, &format!("{}{key}", session.id))
        .text(&format!(" {}, {turns}, updated {}", session.state.name(), formatting::when(session.updated)))
        .say();
    if let Some(LastTurn { id, end: LastEnd::Ended(kind) }) = session.last_turn
        && kind != TurnEndKind::Answered
        && let Some(end) = backend.turn(id).await?.end
    {
        terminal::say(&format!("last turn {id} {}", formatting::end(&end)));
    }
    if let Some(node) = session.forked_from {
        terminal::say(&format!("forked from {}", formatting::place(Some(node))));
    }
    for fork in backend.forks(session.id).await? {
        terminal::say(&format!("fork {fork}"));
    }
    for (name, node) in &session.heads {
        terminal::say(&format!("head {name} at {}", formatting::place(*node)));
    }
    if let Some(active) = session.active {
        for wait in question::waits(backend, active, &session.waits).await? {
            terminal::say(&format!("{active} {wait}"));
        }
    }
    Ok(())
}

/// Prints the id and the state of a turn.
fn turn(turn: &TurnView, session: SessionId) {
    let state = match (&turn.end, turn.state) {
        (Some(TurnEnd::Answered { .. }), _) => "answered".to_owned(),
        (Some(end), _) => formatting::end(end),
        (None, TurnState::Queued) => "waits for the turn before it".to_owned(),
        (None, _) => "under way".to_owned(),
    };
    // The message numbers of an inherited turn belong to the original session.
    let place = if turn.session == session { String::new() } else { format!(", in {}", turn.session) };
    let retry = turn.retry_of.map(|original| format!(", retry of {original}")).unwrap_or_default();
    OutputLine::new().ink(TextStyle::Faint, &format!("{} {state}{place}{retry}", turn.id)).say();
}

/// Prints the messages of a turn up to `cut`, with the numbers that fork and rewind accept.
///
/// Results of calls that were made before the cut belong to the branch, even if they are recorded after it.
fn messages(records: &[Record], cut: Seq, say: ItemPrinter) {
    let mut tools: BTreeMap<(Seq, u32), String> = BTreeMap::new();
    for record in records {
        match &record.fact {
            Fact::Asked(EffectRequested { command: Command::ToolBatch(batch), .. }) => {
                let calls = (0..).zip(&batch.calls);
                tools.extend(calls.map(|(child, call)| ((record.seq, child), call.tool().to_string())));
            }
            Fact::Performed(EffectPerformed { outcome: Outcome::ModelCall(_), .. })
            | Fact::Interrupted(_)
                if record.seq > cut =>
            {
                return;
            }
            _ => {}
        }
        let Some((who, what)) = message(&record.fact, &tools) else { continue };
        say(SessionItem::Message(record, who, &what));
    }
}

/// Returns the author and text of a fact, if it is a message.
fn message<'a>(fact: &Fact, tools: &'a BTreeMap<(Seq, u32), String>) -> Option<(&'a str, String)> {
    let tool = |asked, child| tools.get(&(asked, child)).map_or("tool", String::as_str);
    Some(match fact {
        Fact::Accepted(accepted) => ("user", text_of(&accepted.parts).into_owned()),
        Fact::Performed(EffectPerformed {
            outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)), ..
        }) => {
            let text = Some(text_of(&reply.parts).into_owned()).filter(|text| !text.is_empty());
            let calls = reply.calls.iter().map(|ask| format!("[{}]", formatting::call(ask)));
            ("assistant", text.into_iter().chain(calls).collect::<Vec<_>>().join("\n"))
        }
        Fact::Interrupted(interrupted) if !interrupted.text.is_empty() => {
            ("assistant", interrupted.marked_text())
        }
        Fact::Performed(EffectPerformed { outcome: Outcome::Checkpoint(joined), .. })
            if !joined.inputs.is_empty() =>
        {
            let inputs = joined.inputs.iter().map(|input| text_of(&input.parts).into_owned());
            ("user", inputs.collect::<Vec<_>>().join("\n"))
        }
        Fact::Performed(EffectPerformed { key, outcome: Outcome::AwaitEvent(resolution), .. })
            if key.as_str().ends_with("/completion") =>
        {
            ("outside", formatting::resolution(resolution))
        }
        Fact::Answered(answered) => match &answered.outcome {
            Outcome::ToolCall(outcome) => {
                (tool(answered.claim.asked, answered.claim.child), formatting::outcome(outcome))
            }
            _ => return None,
        },
        Fact::Settled(settled) => {
            (tool(settled.claim.asked, settled.claim.child), formatting::verdict(&settled.verdict))
        }
        _ => return None,
    })
}
