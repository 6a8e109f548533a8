//! `outlast rerun`: runs recorded sessions again with another model, prompt or tools, and compares the
//! results.
use crate::agent::AgentArgs;
use crate::archive_reader::ArchiveReader;
use crate::backend::CommandBackend;
use crate::global_args::GlobalArgs;
use crate::terminal::{self, OutputLine, TextStyle, one_line};
use clap::Args;
use outlast::archive::RerunAudit;
use outlast::clock::Clock;
use outlast::orgs::Org;
use outlast::rerun::{Rerun as Again, RerunReport, RerunStart, TraceCall, TurnComparison, TurnTrace};
use outlast::runtime::attachments::Attachments;
use outlast::runtime::worker::system::SystemClock;
use outlast::{Error, Export, Kind, Limits};
use outlast_client::Client;
use serde::Serialize;
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// The maximum length of an answer or a call, in characters.
const LETTERS: usize = 100;

/// Runs recorded sessions again, in memory. Writes only to the audit log, and only if calls are real.
#[derive(Args)]
pub(crate) struct RerunArgs {
    /// Sessions by id or key, or files from `outlast sessions export`
    #[arg(required = true, value_name = "SESSION|FILE")]
    sessions: Vec<String>,
    /// Where to start: a turn by number from 0 or by id, or an effect by its path; default: the beginning
    #[arg(long, value_name = "TURN|EFFECT", value_parser = point)]
    from: Option<String>,
    /// System prompt to use instead of the agent's
    #[arg(long, value_name = "TEXT", conflicts_with = "system")]
    prompt: Option<String>,
    /// File with the system prompt to use instead of the agent's
    #[arg(long, value_name = "FILE")]
    system: Option<PathBuf>,
    /// Make repeatable calls again, even if the recording has an answer
    #[arg(long)]
    live: bool,
    /// Make at-most-once calls for real if the recording has no answer
    #[arg(long)]
    run_at_most_once: bool,
    /// Print one line of JSON per session
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Validates a point. It stays text, because a server parses it itself.
fn point(text: &str) -> Result<String, Error> {
    text.parse::<RerunStart>().map(|_| text.to_owned())
}

/// The JSON output for one session.
#[derive(Serialize)]
struct RerunOutput<'a> {
    of: &'a str,
    changed: usize,
    #[serde(flatten)]
    compared: &'a RerunReport,
}

impl RerunArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let prompt = self.system_prompt()?;
        let mut all = Vec::new();
        for of in &self.sessions {
            let compared = self.one(data, of, prompt.as_deref()).await.map_err(|error| {
                Error::new(error.kind(), format!("{of}: {}", error.detail())).because(error)
            })?;
            if self.json {
                terminal::json(&RerunOutput { of, changed: compared.changed(), compared: &compared });
            } else {
                show(of, &compared);
            }
            all.push((of.clone(), compared));
        }
        if !self.json && all.len() > 1 {
            summary(&all);
        }
        Ok(())
    }

    fn system_prompt(&self) -> Result<Option<String>, Error> {
        let Some(path) = &self.system else { return Ok(self.prompt.clone()) };
        let text = std::fs::read_to_string(path).map_err(|cause| {
            let detail = format!("the prompt {} cannot be read: {cause}", path.display());
            Error::new(Kind::IoFailed, detail).because(cause)
        })?;
        Ok(Some(text.trim_end().to_owned()))
    }

    async fn one(&self, data: &GlobalArgs, of: &str, prompt: Option<&str>) -> Result<RerunReport, Error> {
        if let Some(client) = data.client()? {
            return self.there(client, of, prompt).await;
        }
        let sources = self.agent.sources(data).await?;
        let agent = self.agent.in_memory_builder(&sources)?;
        let agent = match prompt {
            Some(prompt) => agent.system(prompt),
            None => agent,
        };
        let (path, org) = (Path::new(of), selected_org(data).await?);
        if path.is_file() {
            return self.again(Again::new(ArchiveReader::open(path)?))?.as_org(org).run_with(agent).await;
        }
        let file = Cursor::new(self.exported(data, of).await?);
        self.again(Again::new(file))?.as_org(org).run_with(agent).await
    }

    /// Runs a session of a server again, with the server's agents.
    async fn there(&self, client: Client, of: &str, prompt: Option<&str>) -> Result<RerunReport, Error> {
        if Path::new(of).is_file() {
            let detail = "it is a local file, but a server reruns only its own sessions; remove `--server` \
                          (OUTLAST_SERVER), or import the file there";
            return Err(Error::new(Kind::CommandLocal, detail));
        }
        let (agent, model) = self.agent.server_agent_and_model()?;
        let again = outlast_client::api::archive::RerunChanges {
            from: self.from.clone(),
            agent,
            model: model.map(|model| model.to_string()),
            prompt: prompt.map(ToOwned::to_owned),
            live: self.live,
            run_at_most_once: self.run_at_most_once,
        };
        let session = CommandBackend::Server(client.clone()).find(of).await?.id;
        serde_json::from_value(client.rerun(session, &again).await?).map_err(|cause| {
            Error::new(Kind::ServerAnswerInvalid, format!("the server's comparison is invalid: {cause}"))
        })
    }

    /// Exports a session of the database into memory.
    async fn exported(&self, data: &GlobalArgs, named: &str) -> Result<Vec<u8>, Error> {
        let store = data.open().await?;
        let session = CommandBackend::File(store.clone()).find(named).await?.id;
        if self.live || self.run_at_most_once {
            // A rerun makes real calls but writes nothing to the session, so record it in the audit log.
            let (detail, now) = ("at the terminal".to_owned(), SystemClock.now());
            store.note_rerun(RerunAudit { session, is_live: true, detail, now }).await?;
        }
        let contents = data.contents(data.operator()?.as_ref(), &self.agent.options.configuration).await?;
        let attachments = Attachments::new(store.clone(), contents, Limits::default());
        let mut export = Export::begin(store, attachments, session, SystemClock.now()).await?;
        let mut file = Vec::new();
        while let Some(piece) = export.piece().await? {
            file.extend_from_slice(piece.as_bytes());
        }
        Ok(file)
    }

    fn again<R: std::io::Read + std::io::Seek + Send + 'static>(
        &self,
        again: Again<R>,
    ) -> Result<Again<R>, Error> {
        let point = self.from.as_deref().map(str::parse).transpose()?.unwrap_or_default();
        let again = again.from(point);
        let again = if self.live { again.live() } else { again };
        Ok(if self.run_at_most_once { again.run_at_most_once() } else { again })
    }
}

/// Returns the organisation whose sessions run again. Without a database, it is the default one.
async fn selected_org(data: &GlobalArgs) -> Result<Org, Error> {
    if !data.path.exists() {
        return Ok(Org::default());
    }
    let store = data.operator()?;
    store.org(data.org_in(store.as_ref()).await?).await
}

fn show(of: &str, compared: &RerunReport) {
    OutputLine::new().ink(TextStyle::Bold, of).text(&format!(" {}", compared.session)).say();
    for turn in &compared.turns {
        show_turn(turn);
    }
    let RerunReport { reused, ran, not_made, recorded_cost, rerun_cost, .. } = compared;
    terminal::say(&format!("{reused} calls answered from the recording, {ran} made"));
    for call in not_made {
        OutputLine::new()
            .ink(TextStyle::Warning, "not made")
            .text(&format!(" {}", one_line(call, LETTERS)))
            .say();
    }
    terminal::say(&format!("cost ${recorded_cost} then, ${rerun_cost} now"));
}

fn show_turn(turn: &TurnComparison) {
    let TurnComparison { index, input, recorded, rerun } = turn;
    let line = OutputLine::new().text(&format!("turn {index} "));
    let line =
        if turn.is_same() { line.ink(TextStyle::Good, "same") } else { line.ink(TextStyle::Bad, "differs") };
    line.text(&format!(" {}", one_line(input, LETTERS))).say();
    for number in 0..recorded.calls.len().max(rerun.calls.len()) {
        let (then, now) = (recorded.calls.get(number), rerun.calls.get(number));
        side_by_side(&call(then), &call(now));
    }
    side_by_side(&answer(recorded), &answer(rerun));
}

/// Prints a value, or the old and the new one if they differ.
fn side_by_side(then: &str, now: &str) {
    if then == now {
        terminal::say(&format!("  = {then}"));
        return;
    }
    OutputLine::new().text("  ").ink(TextStyle::Bad, "-").text(&format!(" {then}")).say();
    OutputLine::new().text("  ").ink(TextStyle::Good, "+").text(&format!(" {now}")).say();
}

fn call(call: Option<&TraceCall>) -> String {
    let Some(TraceCall { tool, arguments, result }) = call else { return "no call".to_owned() };
    one_line(&format!("{tool} {arguments} → {result}"), LETTERS)
}

fn answer(course: &TurnTrace) -> String {
    match &course.answer {
        Some(answer) => format!("{}: {}", course.end, one_line(answer, LETTERS)),
        None => course.end.clone(),
    }
}

fn summary(all: &[(String, RerunReport)]) {
    let row = |(of, compared): &(String, RerunReport)| {
        let RerunReport { turns, recorded_cost, rerun_cost, reused, ran, not_made, .. } = compared;
        vec![
            of.clone(),
            turns.len().to_string(),
            compared.changed().to_string(),
            reused.to_string(),
            ran.to_string(),
            not_made.len().to_string(),
            format!("${recorded_cost}"),
            format!("${rerun_cost}"),
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    terminal::table(&["SESSION", "TURNS", "DIFFER", "REUSED", "MADE", "NOT MADE", "COST THEN", "NOW"], &rows);
}
