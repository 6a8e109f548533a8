//! The simulated model: plays the script of a scenario, with faults.
//!
//! Its reply depends only on the conversation, so a call that is repeated after a crash gets the same reply. A mood is
//! a network fault that affects one request.
use crate::effect_recorder::{EffectRecorder, ObservedModelRequest};
use crate::plan::ProviderOutage;
use crate::scenario::{self, Scenario, ScriptedReply};
use crate::sim_time::ProcessClock;
use crate::task_scheduler::SimProcessNo;
use futures_util::stream;
use outlast_ports::clock::Clock;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest};
use outlast_vocab::effect::{StopReason, Usage};
use outlast_vocab::message::{CallArguments, Message, ModelName, ToolUse};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Error, Kind};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The error of a provider that is down.
const DOWN: &str = "503: down";

/// A fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimModelFault {
    /// Too many requests; retry after this many milliseconds.
    Busy(u64),
    /// The provider is down.
    Down,
    /// The stream ends after this many events without an end event.
    Cut(usize),
    /// The stream goes silent after this many events.
    Stall(usize),
    /// Each event takes this many milliseconds.
    Slow(u64),
    /// One event is sent twice.
    Twice(usize),
    /// Two events are sent in the wrong order.
    Swapped(usize),
}

impl SimModelFault {
    /// Returns its name in a report.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Busy(_) => "model: 429 with retry-after",
            Self::Down => "model: 5xx",
            Self::Cut(_) => "model: truncated stream",
            Self::Stall(_) => "model: stalled stream",
            Self::Slow(_) => "model: slow stream",
            Self::Twice(_) => "model: duplicated piece",
            Self::Swapped(_) => "model: reordered pieces",
        }
    }

    /// Returns whether the turn ends as it would without the fault.
    pub(crate) const fn passes(self) -> bool {
        !matches!(self, Self::Twice(_) | Self::Swapped(_))
    }
}

/// The maximum number of delayed events of a slow stream.
const SLOW_PIECES: usize = 64;

/// The model's name.
pub(crate) const NAME: &str = "sim/model";

/// The name of the fallback model, which another provider serves.
pub(crate) const FALLBACK: &str = "backup/model";

/// The model from the view of one process.
pub(crate) struct SimModel {
    pub(crate) life: SimProcessNo,
    pub(crate) clock: Arc<ProcessClock>,
    pub(crate) witness: Arc<EffectRecorder>,
    pub(crate) model_faults: Arc<BTreeMap<u64, SimModelFault>>,
    pub(crate) outages: Arc<Vec<ProviderOutage>>,
}

impl SimModel {
    /// Returns whether the provider of this model is down now.
    fn is_down(&self, model: &ModelName) -> bool {
        let now = self.clock.world_age_ms();
        self.outages.iter().any(|outage| outage.affects(model.as_str(), now))
    }
}

impl ModelProvider for SimModel {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        let info = ModelCapabilities { can_continue: true, ..ModelCapabilities::of_window(1 << 20) };
        [NAME, FALLBACK].contains(&model.as_str()).then_some(info)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        // A summary has no position in the session, so it is identified by the text that it summarises.
        let which = match request.call.at {
            Some(at) => format!("{at:?}"),
            None => request.turn.iter().map(Message::text).collect(),
        };
        let request_no = self.witness.asked(which.clone());
        let is_down = self.is_down(&request.call.model);
        self.witness.record_model_request(ObservedModelRequest {
            session: request.session,
            life: self.life,
            at_ms: self.clock.world_age_ms(),
        });
        let mood = self.model_faults.get(&request_no).copied().filter(|_| !is_down);
        let mut pieces: VecDeque<Result<ModelEvent, Error>> = match mood {
            Some(SimModelFault::Busy(after)) => {
                let busy = Error::new(Kind::ModelUnavailable, "429: too many requests");
                VecDeque::from([Err(busy.retry_after(Duration::from_millis(after)))])
            }
            Some(SimModelFault::Down) => down(),
            _ => {
                let is_restored = self.witness.is_restored(request.session);
                let pieces =
                    if is_down { down() } else { played(request, self.clock.world_age_ms(), is_restored) };
                if matches!(pieces.front(), Some(Err(error)) if is_asked_again(&request.call.model, error)) {
                    self.witness.uncount_request(&which);
                }
                pieces
            }
        };
        let mut silent_after = None;
        let mut pause = 0;
        match mood {
            Some(SimModelFault::Cut(after)) => pieces.truncate(after.min(pieces.len().saturating_sub(1))),
            Some(SimModelFault::Stall(after)) => {
                silent_after = Some(after.min(pieces.len().saturating_sub(1)));
            }
            Some(SimModelFault::Slow(millis)) => pause = millis,
            Some(SimModelFault::Twice(at)) => {
                if let Some(Ok(piece)) = pieces.get(at % pieces.len().max(1)) {
                    let again = Ok(piece.clone());
                    pieces.insert(at % pieces.len(), again);
                }
            }
            Some(SimModelFault::Swapped(at)) if pieces.len() > 1 => {
                let at = at % (pieces.len() - 1);
                pieces.swap(at, at + 1);
            }
            _ => {}
        }
        let playing = (pieces, 0_usize);
        Box::pin(stream::unfold(playing, move |(mut pieces, given)| async move {
            if silent_after == Some(given) {
                std::future::pending::<()>().await;
            }
            // A long answer with a delay on every word would exceed the time of a run.
            if pause > 0 && given < SLOW_PIECES {
                self.clock.sleep_until(self.clock.now().after(Duration::from_millis(pause))).await;
            }
            pieces.pop_front().map(|piece| (piece, (pieces, given + 1)))
        }))
    }
}

/// Returns whether a turn repeats a request that failed with this error. The rejection of a fallback model does not end
/// the turn: it waits for the first model and asks both again.
fn is_asked_again(model: &ModelName, error: &Error) -> bool {
    error.kind() == Kind::ModelUnavailable || model.as_str() == FALLBACK
}

/// Returns the response of a provider that is down.
fn down() -> VecDeque<Result<ModelEvent, Error>> {
    VecDeque::from([Err(Error::new(Kind::ModelUnavailable, DOWN))])
}

/// Returns the events of the next line of the conversation's script.
fn played(request: ModelRequest<'_>, age_ms: u64, is_restored: bool) -> VecDeque<Result<ModelEvent, Error>> {
    let first = request.messages().find(|message| matches!(message, Message::User { .. }));
    let scenario = first.and_then(|first| scenario_of(&first.text()));
    if request.system.contains("summary") {
        let short = format!("{}: in short", scenario.map_or("nothing", |scenario| scenario.name));
        return VecDeque::from([Ok(ModelEvent::Text(short)), Ok(ModelEvent::End(StopReason::End))]);
    }
    let said = request.messages().filter(|message| matches!(message, Message::Assistant { .. })).count();
    let line = scenario.and_then(|scenario| scenario.lines.get(said)).cloned();
    let usage = ModelEvent::Usage(Usage { input: 3, output: 2, ..Usage::default() });
    match line.unwrap_or(ScriptedReply::Say("nothing more to say")) {
        ScriptedReply::SayOnceUp(up_ms, _) | ScriptedReply::CallOnceUp(up_ms, _) if age_ms < up_ms => down(),
        ScriptedReply::SayOnceRestored(_) if !is_restored => down(),
        ScriptedReply::Say(text)
        | ScriptedReply::SayOnceUp(_, text)
        | ScriptedReply::SayOnceRestored(text) => {
            // Do not repeat the text that was received before an earlier attempt broke off.
            let rest = text.strip_prefix(request.partial_text).unwrap_or(text);
            let words = rest.split_inclusive(' ').map(|word| Ok(ModelEvent::Text(word.to_owned())));
            words.chain([Ok(usage), Ok(ModelEvent::End(StopReason::End))]).collect()
        }
        ScriptedReply::Call(calls) | ScriptedReply::CallOnceUp(_, calls) => {
            let ask = |(i, (tool, text)): (usize, (&str, &str))| {
                Ok(ModelEvent::Call(ToolUse::new(
                    format!("c{said}_{i}").parse().expect("a short id"),
                    tool.parse().expect("names of tools in scenarios are valid"),
                    CallArguments::Json(serde_json::json!({ "text": text })),
                )))
            };
            let asks = calls.iter().copied().enumerate().map(ask);
            asks.chain([Ok(usage), Ok(ModelEvent::End(StopReason::ToolUse))]).collect()
        }
        ScriptedReply::Fail(kind) => VecDeque::from([Err(Error::new(kind, "the script says so"))]),
    }
}

/// Returns the scenario of a conversation. Its first message names it, or the summary that replaced it, or the text to
/// summarise.
fn scenario_of(text: &str) -> Option<&'static Scenario> {
    let text = text.strip_prefix("user: ").unwrap_or(text);
    let text = text.strip_prefix("[What was said before, in short]\n").unwrap_or(text);
    let name = text.split(':').next()?;
    scenario::catalogue().iter().find(|scenario| scenario.name == name)
}
