//! Hooks: user code that runs at named points of a turn.
//!
//! A [`HookStage`] is a type that defines what a hook sees there and what it may change. Implement [`Hook`], or write a
//! closure. [`HookAt`] is a hook with its name and options. The runtime decides when, in which order and for how long
//! hooks run.
use crate::ResultFuture;
use outlast_vocab::Error;
use outlast_vocab::hook::{
    AnswerHookInput, AnswerPatch, CallHookInput, CallPatch, CheckpointHookInput, CheckpointPatch,
    ContextHookInput, ContextPatch, EndHookInput, ErrorHookInput, HookCall, HookPatch, HookPoint, HookUse,
    ModelHookInput, ModelPatch, NoPatch, OnFailure, ReplyHookInput, ReplyPatch, ResultHookInput, ResultPatch,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A point of a turn: defines what a hook sees there, and what it may change.
pub trait HookStage: Send + Sync + 'static {
    /// The name of the point.
    const POINT: HookPoint;
    /// What a hook sees.
    type Seen: Clone + Serialize + Send + Sync + 'static;
    /// What a hook may change.
    type Patch: Clone + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Applies a patch to what was seen, so that the next hook sees the change.
    fn apply(seen: &mut Self::Seen, patch: &Self::Patch);

    /// Converts a patch for the journal. Returns `None` if the record of the effect already contains the change.
    fn to_journal(patch: Self::Patch) -> Option<HookPatch>;

    /// Returns the patch of this point from the journal.
    fn from_journal(patch: &HookPatch) -> Option<Self::Patch>;

    /// Returns the value that a patch overwrites, if it must be recorded because no other record contains it.
    fn lost(_: &Self::Seen) -> Option<Value> {
        None
    }

    /// Returns whether this patch is final, so that later hooks do not run.
    fn is_final(_: &Self::Patch) -> bool {
        false
    }
}

/// Journals the patches of this point under its name.
macro_rules! recorded_patch {
    ($name:ident, $patch:ty) => {
        fn to_journal(patch: $patch) -> Option<HookPatch> {
            Some(HookPatch::$name(patch))
        }

        fn from_journal(patch: &HookPatch) -> Option<$patch> {
            match patch {
                HookPatch::$name(patch) => Some(patch.clone()),
                _ => None,
            }
        }
    };
}

/// Journals no patches of this point.
macro_rules! not_kept {
    ($patch:ty) => {
        fn to_journal(_: $patch) -> Option<HookPatch> {
            None
        }

        fn from_journal(_: &HookPatch) -> Option<$patch> {
            None
        }
    };
}

macro_rules! points {
    ($($(#[$doc:meta])* $name:ident: $seen:ty => $patch:ty { $($item:item)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl HookStage for $name {
            const POINT: HookPoint = HookPoint::$name;
            type Seen = $seen;
            type Patch = $patch;

            $($item)*
        }
    )*};
}

points! {
    /// Before the conversation is shown to the model: may add prompt text and messages to this one call.
    BeforeContext: ContextHookInput => ContextPatch {
        fn apply(seen: &mut ContextHookInput, patch: &ContextPatch) {
            patch.apply(seen);
        }

        recorded_patch! { BeforeContext, ContextPatch }
    }

    /// Before the model is asked: may change what it is told first, and how it is to generate.
    BeforeModel: ModelHookInput => ModelPatch {
        fn apply(seen: &mut ModelHookInput, patch: &ModelPatch) {
            patch.apply(seen);
        }

        recorded_patch! { BeforeModel, ModelPatch }
    }

    /// After the model has replied: may change the text of its reply.
    AfterModel: ReplyHookInput => ReplyPatch {
        fn apply(seen: &mut ReplyHookInput, patch: &ReplyPatch) {
            seen.text.clone_from(&patch.text);
        }

        recorded_patch! { AfterModel, ReplyPatch }

        fn lost(seen: &ReplyHookInput) -> Option<Value> {
            Some(json!(seen.text))
        }
    }

    /// Before a call is looked at: may change its arguments, which are held to the tool's schema and the rules then, or
    /// refuse it.
    BeforeTool: CallHookInput => CallPatch {
        fn apply(seen: &mut CallHookInput, patch: &CallPatch) {
            if let CallPatch::Arguments(arguments) = patch {
                seen.arguments = arguments.clone();
            }
        }

        recorded_patch! { BeforeTool, CallPatch }

        fn is_final(patch: &CallPatch) -> bool {
            matches!(patch, CallPatch::Refuse(_))
        }
    }

    /// After a call has its result: may change what the model is told of it.
    AfterTool: ResultHookInput => ResultPatch {
        fn apply(seen: &mut ResultHookInput, patch: &ResultPatch) {
            seen.result = patch.to_result();
        }

        recorded_patch! { AfterTool, ResultPatch }

        fn lost(seen: &ResultHookInput) -> Option<Value> {
            Some(json!(seen.result))
        }
    }

    /// Before an answer completes the turn: may send the model back to work.
    BeforeCompletion: AnswerHookInput => AnswerPatch {
        fn apply(_: &mut AnswerHookInput, _: &AnswerPatch) {}

        not_kept! { AnswerPatch }

        fn is_final(_: &AnswerPatch) -> bool {
            true
        }
    }

    /// Where something may join the turn: may add messages.
    AtCheckpoint: CheckpointHookInput => CheckpointPatch {
        fn apply(_: &mut CheckpointHookInput, _: &CheckpointPatch) {}

        not_kept! { CheckpointPatch }
    }

    /// After the turn is over: observes.
    AfterEnd: EndHookInput => NoPatch {
        fn apply(_: &mut EndHookInput, patch: &NoPatch) {
            match *patch {}
        }

        not_kept! { NoPatch }
    }

    /// After a model call, a tool call or the turn failed, or the turn got stuck: observes.
    OnError: ErrorHookInput => NoPatch {
        fn apply(_: &mut ErrorHookInput, patch: &NoPatch) {
            match *patch {}
        }

        not_kept! { NoPatch }
    }
}

/// Runs at a point of every turn.
///
/// A hook may run more than once for one effect, until that effect is recorded. After that, its patch is read from the
/// journal. The runtime stops a hook at its deadline. A panic counts as a failure of the hook.
///
/// A closure is a hook. Implement the trait for a hook that has its own state.
///
/// # Example
///
/// ```
/// # mod outlast {
/// #     pub use {outlast_ports::ResultFuture, outlast_ports::hook, outlast_vocab as vocab, outlast_vocab::Error};
/// # }
/// use outlast::ResultFuture;
/// use outlast::hook::{BeforeTool, Hook, HookAt};
/// use outlast::vocab::hook::{CallHookInput, CallPatch, HookCall};
///
/// /// Refuses payments over an amount.
/// struct Cap {
///     euros: u64,
/// }
///
/// impl Hook<BeforeTool> for Cap {
///     fn run(&self, _: HookCall, call: CallHookInput) -> ResultFuture<'_, Option<CallPatch>> {
///         Box::pin(async move {
///             let is_large = call.arguments["euros"].as_u64() > Some(self.euros);
///             Ok(is_large.then(|| CallPatch::Refuse("ask a person first".to_owned())))
///         })
///     }
/// }
///
/// # fn main() -> Result<(), outlast::Error> {
/// let cap = HookAt::new::<BeforeTool>("cap", Cap { euros: 100 })?; // for `Builder::hook`
/// # drop(cap);
/// # Ok(())
/// # }
/// ```
pub trait Hook<P: HookStage>: Send + Sync {
    /// Inspects what is there, and returns a patch, if any.
    fn run(&self, call: HookCall, seen: P::Seen) -> ResultFuture<'_, Option<P::Patch>>;
}

impl<P, F, R> Hook<P> for F
where
    P: HookStage,
    F: Fn(HookCall, P::Seen) -> R + Send + Sync,
    R: Future<Output = Result<Option<P::Patch>, Error>> + Send + 'static,
{
    fn run(&self, call: HookCall, seen: P::Seen) -> ResultFuture<'_, Option<P::Patch>> {
        Box::pin(self(call, seen))
    }
}

/// A hook with its name and options.
#[derive(Clone)]
pub struct HookAt {
    /// Its name, its point and its options.
    pub usage: HookUse,
    /// The hook as `Arc<dyn Hook<P>>`, where `P` is its point.
    hook: Arc<dyn Any + Send + Sync>,
}

impl HookAt {
    /// Creates a hook that may change what its point allows.
    pub fn new<P: HookStage>(name: impl Into<String>, hook: impl Hook<P> + 'static) -> Result<Self, Error> {
        let usage = HookUse::new(name.into().try_into()?, P::POINT);
        let hook: Arc<dyn Hook<P>> = Arc::new(hook);
        Ok(Self { usage, hook: Arc::new(hook) })
    }

    /// Sets the deadline.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Self {
        self.usage.deadline = Some(deadline);
        self
    }

    /// Makes the hook read-only: it cannot patch.
    #[must_use]
    pub fn observing(mut self) -> Self {
        self.usage.observes = true;
        self
    }

    /// Marks what the hook tells the model as trusted, so it gets no label. Use it only if outsiders cannot influence
    /// the text.
    #[must_use]
    pub fn trusted(mut self) -> Self {
        self.usage.trusted = true;
        self
    }

    /// Sets what happens to the effect if the hook fails.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.usage.on_failure = on_failure;
        self
    }

    /// Returns the hook, if `P` is its point.
    pub fn hook<P: HookStage>(&self) -> Option<&Arc<dyn Hook<P>>> {
        self.hook.downcast_ref()
    }
}
