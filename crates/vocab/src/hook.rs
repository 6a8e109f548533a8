//! Hooks as data: where they run, how an agent uses them, what they see, and what they may change.
//!
//! A hook changes what it sees: its patch is applied to the value it saw, so the next hook at the same point
//! sees the result. `runtime::hooks` runs them.
use crate::effect::{Boundary, Generation, StopReason};
use crate::error::Failure;
use crate::id::{SessionId, TurnId};
use crate::key::ReplayKey;
use crate::message::{HookName, Message, ModelCallId, ModelName, PluginName, ToolName, ToolResult, ToolUse};
use crate::record::TurnEnd;
use crate::{Error, Hash, Kind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// A point of a turn at which hooks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    /// Before the context of a model call is built.
    BeforeContext,
    /// Before a model call.
    BeforeModel,
    /// After a model reply.
    AfterModel,
    /// Before a tool call is checked and claimed.
    BeforeTool,
    /// After a tool call has its result.
    AfterTool,
    /// Before an answer completes the turn.
    BeforeCompletion,
    /// At a checkpoint: after tools ran, and before an answer completes the turn.
    AtCheckpoint,
    /// After the end of the turn.
    AfterEnd,
    /// After an error.
    OnError,
}

impl HookPoint {
    /// All points, in the order of a turn.
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

    /// Returns the name of the point, which is the same everywhere.
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

    /// Returns whether a hook can change anything at this point.
    pub const fn may_patch(self) -> bool {
        !matches!(self, Self::AfterEnd | Self::OnError)
    }
}

impl fmt::Display for HookPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The treatment of an effect whose hook fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The effect fails too.
    #[default]
    Fail,
    /// The effect continues without the hook. Only for hooks that observe.
    Ignore,
}

/// A hook as an agent uses it. The hooks of an agent at one point run in the order in which it lists them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookUse {
    /// The name of the hook.
    pub name: HookName,
    /// The point at which it runs.
    pub point: HookPoint,
    /// The timeout of the hook. Defaults to the limit of the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Duration>,
    /// Whether the hook only observes. A patch from such a hook is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observes: bool,
    /// What happens to the effect if the hook fails.
    #[serde(default, skip_serializing_if = "crate::effect::is_default")]
    pub on_failure: OnFailure,
    /// The plug-in that the hook belongs to, whose state it receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginName>,
    /// Whether its messages to the model are trusted: no external party influences them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted: bool,
    /// The fingerprint of the program and its arguments, if they are configured separately from the use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_of: Option<Hash>,
}

impl HookUse {
    /// Creates a use of a hook that may patch, or one that observes if the point has nothing to patch.
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

    /// Returns an error if the settings contradict each other.
    pub fn check(&self) -> Result<(), Error> {
        let Self { name, point, .. } = self;
        let wrong = match (self.point.may_patch(), self.observes, self.on_failure) {
            _ if self.deadline == Some(Duration::ZERO) => "needs a deadline above zero".to_owned(),
            (false, _, OnFailure::Fail) => {
                format!("runs at {point}, where nothing can fail; remove `on_failure`")
            }
            (false, false, _) => format!("runs at {point}, where it can only observe"),
            (true, false, OnFailure::Ignore) => {
                "may change things, so its failure cannot be ignored; set `observe`, or let its failure fail the turn".to_owned()
            }
            _ => return Ok(()),
        };
        Err(Error::new(Kind::ConfigInvalid, format!("the hook `{name}` {wrong}")))
    }
}

/// The metadata of one hook run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookCall {
    /// The hook.
    pub hook: HookName,
    /// The point at which it runs.
    pub point: HookPoint,
    /// The agent.
    pub agent: String,
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The effect that it runs for. The same in every run.
    pub key: ReplayKey,
    /// The data of its plug-in in this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginHookFacts>,
}

/// The data of a plug-in in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginHookFacts {
    /// The state that the plug-in stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
    /// The data for the plug-in in the turn's input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
}

/// The context of the next model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextHookInput {
    /// The system prompt.
    pub system: String,
    /// The messages of this turn.
    pub messages: Vec<Message>,
}

/// Adds to the context of one model call. The additions do not become part of the conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextPatch {
    /// Text that is appended to the system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Messages that are appended to those of this turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
}

impl ContextPatch {
    /// Applies the additions.
    pub fn apply(&self, seen: &mut ContextHookInput) {
        if let Some(text) = &self.system {
            seen.system.push_str("\n\n");
            seen.system.push_str(text);
        }
        seen.messages.extend(self.messages.iter().map(Message::user));
    }
}

/// The parameters of the next model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelHookInput {
    /// The model.
    pub model: ModelName,
    /// The system prompt.
    pub system: String,
    /// The generation options.
    pub options: Generation,
}

/// Changes the parameters of a model call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPatch {
    /// The new system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The new generation options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Generation>,
}

impl ModelPatch {
    /// Applies the change.
    pub fn apply(&self, seen: &mut ModelHookInput) {
        if let Some(system) = &self.system {
            seen.system.clone_from(system);
        }
        if let Some(options) = &self.options {
            seen.options = options.clone();
        }
    }
}

/// A model reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyHookInput {
    /// Its text.
    pub text: String,
    /// Its tool calls.
    pub calls: Vec<ToolUse>,
    /// Why it stopped.
    pub stop: StopReason,
}

/// Changes the text of a reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplyPatch {
    /// The new text.
    pub text: String,
}

/// A call that a model or a tool asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallHookInput {
    /// The id of the call, as its caller gave it.
    pub call: ModelCallId,
    /// The tool.
    pub tool: ToolName,
    /// The requested arguments.
    pub arguments: Value,
}

/// Changes or refuses a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallPatch {
    /// Makes the call with these arguments, if they match the tool's schema and the rules allow it.
    Arguments(Value),
    /// Refuses the call. The model reads this text.
    Refuse(String),
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultHookInput {
    /// The tool.
    pub tool: ToolName,
    /// The arguments of the call.
    pub arguments: Value,
    /// Its result.
    pub result: ToolResult,
}

/// Changes the result of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultPatch {
    /// Replaces the result.
    Ok(Value),
    /// Replaces the result with an error that has this reason.
    Failed(String),
    /// Hides the result, for this reason.
    Hidden(String),
}

impl ResultPatch {
    /// Returns the new result.
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
pub struct AnswerHookInput {
    /// The text of the answer.
    pub answer: String,
}

/// Sends the answer back to the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerPatch {
    /// The message to the model.
    pub send_back: String,
}

/// A point at which inputs and messages may join the turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointHookInput {
    /// The boundary.
    pub boundary: Boundary,
    /// The answer that would complete the turn, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// Messages that join the turn. If an answer is about to complete the turn, they send it back to the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointPatch {
    /// The messages to the model.
    pub messages: Vec<String>,
}

/// A finished turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndHookInput {
    /// How it ended.
    pub end: TurnEnd,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorHookInput {
    /// What went wrong.
    pub failure: Failure,
}

/// The patch of a point at which nothing can be changed. It has no values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoPatch {}

/// A change by a hook, as the journal stores it. An answer that was sent back is recorded at its checkpoint
/// instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "a change is made once for each effect and moved a few times")]
pub enum HookPatch {
    /// Changes the context of a model call.
    BeforeContext(ContextPatch),
    /// Changes the parameters of a model call.
    BeforeModel(ModelPatch),
    /// Changes a reply.
    AfterModel(ReplyPatch),
    /// Changes a call.
    BeforeTool(CallPatch),
    /// Changes the result of a call.
    AfterTool(ResultPatch),
}

impl HookPatch {
    /// Returns the point at which the hook ran.
    pub const fn point(&self) -> HookPoint {
        match self {
            Self::BeforeContext(_) => HookPoint::BeforeContext,
            Self::BeforeModel(_) => HookPoint::BeforeModel,
            Self::AfterModel(_) => HookPoint::AfterModel,
            Self::BeforeTool(_) => HookPoint::BeforeTool,
            Self::AfterTool(_) => HookPoint::AfterTool,
        }
    }

    /// Returns whether the model reads a part of the change. It does not read changed arguments and options.
    pub const fn reaches_model(&self) -> bool {
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
    fn only_observing_hook_failures_can_be_ignored() {
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
            "the hook `audit` may change things, so its failure cannot be ignored; set `observe`, or let its failure fail the turn"
        );
        let never =
            HookUse { deadline: Some(Duration::ZERO), ..hook(HookPoint::OnError, true, OnFailure::Ignore) };
        assert_eq!(never.check().unwrap_err().detail(), "the hook `audit` needs a deadline above zero");
    }

    #[test]
    fn program_reply_must_be_patch_of_point() {
        let call: CallPatch = serde_json::from_str(r#"{"refuse": "not today"}"#).unwrap();
        assert_eq!(call, CallPatch::Refuse("not today".to_owned()));
        assert!(serde_json::from_str::<CallPatch>(r#"{"refuse": "no", "arguments": {}}"#).is_err());
        assert!(serde_json::from_str::<ContextPatch>(r#"{"sytem": "a"}"#).is_err());
        assert!(serde_json::from_str::<NoPatch>("{}").is_err());
    }
}
