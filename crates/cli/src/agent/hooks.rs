//! The `[[hooks]]` tables of an agent: programs that run at points of its turns.
use super::program::{ResolvedCommand, made_of};
use outlast::Error;
use outlast::hook::HookAt;
use outlast::tools::command::hook;
use outlast::vocab::hook::{HookPoint, HookUse, OnFailure};
use outlast::vocab::message::HookName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

/// A program that runs at a point of every turn.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[[agents.NAME.hooks]]")]
pub(crate) struct HookTable {
    /// The name of the hook.
    #[schemars(with = "String")]
    pub(super) name: HookName,
    /// The point where it runs.
    #[schemars(with = "String", extend("enum" = HookPoint::ALL))]
    pub(super) point: HookPoint,
    /// The program and its arguments.
    pub(super) command: Vec<String>,
    /// Timeout in seconds; default: 10.
    deadline_s: Option<NonZeroU32>,
    /// Whether it only observes and changes nothing; default: `true` at `after_end` and `on_error`, else `false`.
    observe: Option<bool>,
    /// What happens if it fails; default: `ignore` at `after_end` and `on_error`, else `fail`.
    #[schemars(with = "Option<String>", extend("enum" = [OnFailure::Fail, OnFailure::Ignore]))]
    on_failure: Option<OnFailure>,
    /// Whether the text that it gives the model can be trusted: no outsider can influence it.
    #[serde(default)]
    trusted: bool,
    /// Environment variables that the program may see.
    #[serde(default)]
    env: Vec<String>,
}

/// A hook whose program was found.
#[derive(Clone, Debug)]
pub(crate) struct HookProgram {
    usage: HookUse,
    words: ResolvedCommand,
}

impl HookTable {
    /// Finds the program. Refuses contradictory settings.
    pub(crate) fn hook(&self, home: &Path) -> Result<HookProgram, String> {
        let usual = HookUse::new(self.name.clone(), self.point);
        let usage = HookUse {
            deadline: self.deadline_s.map(|seconds| Duration::from_secs(seconds.get().into())),
            observes: self.observe.unwrap_or(usual.observes),
            on_failure: self.on_failure.unwrap_or(usual.on_failure),
            trusted: self.trusted,
            made_of: Some(made_of(&self.command, &self.env)),
            ..usual
        };
        usage.check().map_err(|error| error.detail().to_owned())?;
        let words = ResolvedCommand::find(&self.command, home).and_then(|words| words.passing_on(&self.env));
        let words = words.map_err(|what| format!("hook `{}`: {what}", self.name))?;
        Ok(HookProgram { usage, words })
    }
}

impl HookProgram {
    /// Returns the program with its arguments.
    pub(super) fn words(&self) -> &ResolvedCommand {
        &self.words
    }

    /// Returns the hook, to be run in `dir`.
    pub(crate) fn in_dir(&self, dir: &Path) -> Result<HookAt, Error> {
        let Self { usage, words } = self;
        let mut hook = hook(usage.name.as_str(), usage.point, words.in_dir(dir))?;
        hook.usage = usage.clone();
        Ok(hook)
    }
}
