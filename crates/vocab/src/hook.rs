//! Hooks as data: where they run, how an agent uses them, what they see, and what they may change (R11.3).
//!
//! What a hook sees is also what it changes: a patch is applied to what was seen, so the next hook of the same point sees
//! what the one before it left. Running them is the runtime's business (`runtime::hooks`).
use crate::effect::{Boundary, Generation, StopReason};
use crate::error::Failure;
use crate::id::{SessionId, TurnId};
use crate::key::ReplayKey;
use crate::message::{HookName, Message, ModelCallId, ModelName, PluginName, ToolName, ToolResult, ToolUse};
use crate::record::End;
use crate::{Error, Hash, Kind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// Where in a turn a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    /// Before the conversation is shown to the model.
    BeforeContext,
    /// Before the model is asked.
    BeforeModel,
    /// After the model has replied.
    AfterModel,
    /// Before a call is looked at, and so before it is claimed.
    BeforeTool,
    /// After a call has its result.
    AfterTool,
    /// Before an answer completes the turn.
    BeforeCompletion,
    /// Where something may join the turn: after tools ran, and before an answer completes it.
    AtCheckpoint,
    /// After the turn is over.
    AfterEnd,
    /// After something failed.
    OnError,
}

impl HookPoint {
    /// Every point, in the order of a turn.
    pub const ALL: &'static [Self] = &[
        Self::BeforeContext,
        Self::BeforeModel,
        Self::AfterModel,
        Self::BeforeTool,
        Self::AfterTool,
        Self::BeforeCompletion,
        Self::AtCheckpoint,
        Self::AfterEnd,
        Self::OnError,
    ];

    /// How the point is written everywhere.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BeforeContext => "before_context",
            Self::BeforeModel => "before_model",
            Self::AfterModel => "after_model",
            Self::BeforeTool => "before_tool",
            Self::AfterTool => "after_tool",
            Self::BeforeCompletion => "before_completion",
            Self::AtCheckpoint => "at_checkpoint",
            Self::AfterEnd => "after_end",
            Self::OnError => "on_error",
        }
    }

    /// Whether there is anything left to change at this point.
    pub const fn may_patch(self) -> bool {
        !matches!(self, Self::AfterEnd | Self::OnError)
    }
}

impl fmt::Display for HookPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What becomes of an effect whose hook fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// It fails too.
    #[default]
    Fail,
    /// It goes on as if there were no hook. Only for hooks that observe.
    Ignore,
}

/// A hook as an agent uses it. An agent's hooks of one point run in the order in which it names them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookUse {
    /// Which hook.
    pub name: HookName,
    /// Where it runs.
    pub point: HookPoint,
    /// How long it may take; the runtime's limit when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Duration>,
    /// Whether it only looks. A patch of such a hook is a failure of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observes: bool,
    /// What becomes of the effect if it fails.
    #[serde(default, skip_serializing_if = "crate::effect::is_default")]
    pub on_failure: OnFailure,
    /// The plug-in it is of, whose own it is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginName>,
    /// Whether nobody outside has a say in what it tells the model (R11.4).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted: bool,
    /// The fingerprint of what runs, where that is said beside the use: a program and its words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_of: Option<Hash>,
}

impl HookUse {
    /// A hook that may change what the point lets it change, or that looks on where nothing is left to change.
    pub fn new(name: HookName, point: HookPoint) -> Self {
        let observes = !point.may_patch();
        let on_failure = if observes { OnFailure::Ignore } else { OnFailure::Fail };
        Self {
            name,
            point,
            deadline: None,
            observes,
            on_failure,
            plugin: None,
            trusted: false,
            made_of: None,
        }
    }

    /// Refuses what contradicts itself.
    pub fn check(&self) -> Result<(), Error> {
        let Self { name, point, .. } = self;
        let wrong = match (self.point.may_patch(), self.observes, self.on_failure) {
            _ if self.deadline == Some(Duration::ZERO) => "needs a deadline above zero".to_owned(),
            (false, _, OnFailure::Fail) => {
                format!("runs at {point}, where nothing is left that could fail; leave `on_failure` away")
            }
            (false, false, _) => format!("runs at {point}, where it can only observe"),
            (true, false, OnFailure::Ignore) => {
                "may change things, so its failure cannot be ignored; let it observe, or let its failure count".to_owned()
            }
            _ => return Ok(()),
        };
        Err(Error::new(Kind::ConfigInvalid, format!("the hook `{name}` {wrong}")))
    }
}

/// The facts of one run of a hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookCall {
    /// Which hook.
    pub hook: HookName,
    /// Where it runs.
    pub point: HookPoint,
    /// The agent.
    pub agent: String,
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The effect it runs for: the same in every run.
    pub key: ReplayKey,
    /// What the plug-in that it is of has in this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginFacts>,
}

/// What a plug-in has in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginFacts {
    /// What it keeps there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
    /// What the turn's input carries for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
}

/// What a model is about to be shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextSeen {
    /// What it is told before the first message.
    pub system: String,
    /// The messages of this turn.
    pub messages: Vec<Message>,
}

/// Adds to what a model is shown in one call. Nothing of it is part of the conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextPatch {
    /// Text behind what the model is told before the first message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Messages behind those of this turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
}

impl ContextPatch {
    /// Adds it.
    pub fn apply(&self, seen: &mut ContextSeen) {
        if let Some(text) = &self.system {
            seen.system.push_str("\n\n");
            seen.system.push_str(text);
        }
        seen.messages.extend(self.messages.iter().map(Message::user));
    }
}

/// How a model is about to be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSeen {
    /// Which model.
    pub model: ModelName,
    /// What it is told before the first message.
    pub system: String,
    /// How it is to generate.
    pub options: Generation,
}

/// Changes how a model is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPatch {
    /// What it is told before the first message instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// How it is to generate instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Generation>,
}

impl ModelPatch {
    /// Makes the change.
    pub fn apply(&self, seen: &mut ModelSeen) {
        if let Some(system) = &self.system {
            seen.system.clone_from(system);
        }
        if let Some(options) = &self.options {
            seen.options = options.clone();
        }
    }
}

/// What a model has replied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplySeen {
    /// Its text.
    pub text: String,
    /// The tools it asks for.
    pub calls: Vec<ToolUse>,
    /// Why it stopped.
    pub stop: StopReason,
}

/// Changes the text of a reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplyPatch {
    /// What it says instead.
    pub text: String,
}

/// A call that a model, or a tool, asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSeen {
    /// The id that was given to the call.
    pub call: ModelCallId,
    /// The tool.
    pub tool: ToolName,
    /// Its arguments, as they were asked for.
    pub arguments: Value,
}

/// Changes or refuses a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallPatch {
    /// It is made with these arguments, if they fit the tool's schema and the rules.
    Arguments(Value),
    /// It is not made; the model is told this.
    Refuse(String),
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultSeen {
    /// The tool.
    pub tool: ToolName,
    /// The arguments it was made with.
    pub arguments: Value,
    /// What it gave.
    pub result: ToolResult,
}

/// Changes the result of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultPatch {
    /// It gave this.
    Ok(Value),
    /// It failed, for this reason.
    Failed(String),
    /// What it gave is not shown, for this reason.
    Hidden(String),
}

impl ResultPatch {
    /// The result instead.
    pub fn to_result(&self) -> ToolResult {
        match self {
            Self::Ok(value) => ToolResult::Ok(value.clone()),
            Self::Failed(reason) => ToolResult::Err(Failure::new(Kind::ToolFailed, reason.clone())),
            Self::Hidden(reason) => {
                let detail = format!("the call was made, but its result cannot be shown: {reason}");
                ToolResult::Err(Failure::new(Kind::HookFailed, detail))
            }
        }
    }
}

/// An answer that would complete the turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerSeen {
    /// What it says.
    pub answer: String,
}

/// Sends the model back to work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerPatch {
    /// What it is told.
    pub send_back: String,
}

/// A place where something may join the turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSeen {
    /// Which boundary.
    pub boundary: Boundary,
    /// The answer that would complete the turn, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// Messages that join the turn. Before an answer completes the turn, they send the model back to work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointPatch {
    /// What the model is told.
    pub messages: Vec<String>,
}

/// A turn that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndSeen {
    /// How.
    pub end: End,
}

/// Something that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorSeen {
    /// What.
    pub failure: Failure,
}

/// The patch of a point where nothing is left to change: there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoPatch {}

/// What a hook changed, as the journal keeps it. That an answer was sent back is kept in what joined the turn there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Patch {
    /// What a model is shown.
    BeforeContext(ContextPatch),
    /// How a model is asked.
    BeforeModel(ModelPatch),
    /// What a model replied.
    AfterModel(ReplyPatch),
    /// A call.
    BeforeTool(CallPatch),
    /// The result of a call.
    AfterTool(ResultPatch),
}

impl Patch {
    /// Where the hook ran.
    pub const fn point(&self) -> HookPoint {
        match self {
            Self::BeforeContext(_) => HookPoint::BeforeContext,
            Self::BeforeModel(_) => HookPoint::BeforeModel,
            Self::AfterModel(_) => HookPoint::AfterModel,
            Self::BeforeTool(_) => HookPoint::BeforeTool,
            Self::AfterTool(_) => HookPoint::AfterTool,
        }
    }

    /// Whether the model reads something of it. Other arguments and options are not read.
    pub const fn tells(&self) -> bool {
        match self {
            Self::BeforeModel(patch) => patch.system.is_some(),
            Self::BeforeTool(patch) => matches!(patch, CallPatch::Refuse(_)),
            Self::BeforeContext(_) | Self::AfterModel(_) | Self::AfterTool(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(point: HookPoint, observes: bool, on_failure: OnFailure) -> HookUse {
        HookUse { observes, on_failure, ..HookUse::new("audit".parse().unwrap(), point) }
    }

    #[test]
    fn only_the_failure_of_a_hook_that_observes_can_be_ignored() {
        for point in HookPoint::ALL.iter().copied() {
            assert!(HookUse::new("audit".parse().unwrap(), point).check().is_ok(), "{point}");
            let fails = hook(point, true, OnFailure::Fail).check().is_ok();
            assert_eq!(fails, point.may_patch(), "{point}");
            assert!(hook(point, true, OnFailure::Ignore).check().is_ok(), "{point}");
            let error = hook(point, false, OnFailure::Ignore).check().unwrap_err();
            assert_eq!(error.kind(), Kind::ConfigInvalid, "{point}");
        }
        let error = hook(HookPoint::BeforeTool, false, OnFailure::Ignore).check().unwrap_err();
        assert_eq!(
            error.detail(),
            "the hook `audit` may change things, so its failure cannot be ignored; let it observe, or let its failure count"
        );
        let never =
            HookUse { deadline: Some(Duration::ZERO), ..hook(HookPoint::OnError, true, OnFailure::Ignore) };
        assert_eq!(never.check().unwrap_err().detail(), "the hook `audit` needs a deadline above zero");
    }

    #[test]
    fn what_a_program_answers_is_a_patch_of_its_point() {
        let call: CallPatch = serde_json::from_str(r#"{"refuse": "not today"}"#).unwrap();
        assert_eq!(call, CallPatch::Refuse("not today".to_owned()));
        assert!(serde_json::from_str::<CallPatch>(r#"{"refuse": "no", "arguments": {}}"#).is_err());
        assert!(serde_json::from_str::<ContextPatch>(r#"{"sytem": "a"}"#).is_err());
        assert!(serde_json::from_str::<NoPatch>("{}").is_err());
    }
}
