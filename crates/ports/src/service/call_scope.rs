//! What the runtime offers to a running call, one trait per concern. Tools do not see these traits; they use the
//! services built on them ([`crate::service`]).
//!
//! [`CallScope`] is the sum of the traits. A new concern is a new trait in that sum. Each method fails unless an
//! implementation offers it, so a scope for tests implements only what its tools use.
use crate::attachment_upload::Upload;
use crate::{BoxFuture, ResultFuture};
use outlast_views::AttachmentView;
use outlast_vocab::effect::{DirectCall, Reply};
use outlast_vocab::id::AttachmentId;
use outlast_vocab::message::{ModelName, PluginName, ToolName};
use outlast_vocab::overlay::NetworkAllowList;
use outlast_vocab::payment::{AuthorityPaymentState, PaymentOrder};
use outlast_vocab::policy::PolicyAction;
use outlast_vocab::wait::{CompletionKey, Resolution};
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::future::{pending, ready};
use std::ops::Range;
use std::time::Duration;

/// Everything that the runtime offers to a running call.
pub trait CallScope:
    CallSteps
    + CallEvents
    + CallProgress
    + CallValues
    + CallAttachments
    + CallModels
    + CallTools
    + CallPermissions
    + CallPayments
    + CallCancellation
{
}

impl<S> CallScope for S where
    S: CallSteps
        + CallEvents
        + CallProgress
        + CallValues
        + CallAttachments
        + CallModels
        + CallTools
        + CallPermissions
        + CallPayments
        + CallCancellation
{
}

fn unavailable<'a, T: Send + 'a>() -> ResultFuture<'a, T> {
    Box::pin(ready(Err(unavailable_error())))
}

fn unavailable_error() -> Error {
    Error::new(Kind::HostNotDurable, "only a running call can use this")
}

/// Durable steps and sleeps.
pub trait CallSteps: Send + Sync {
    /// Runs a step once. If the tool runs again, this returns the recorded value and drops `run`.
    fn step<'a>(
        &'a self,
        _name: &'a str,
        _input: Value,
        _run: ResultFuture<'a, Value>,
    ) -> ResultFuture<'a, Value> {
        unavailable()
    }

    /// Sleeps, across restarts.
    fn sleep(&self, _pause: Duration) -> ResultFuture<'_, ()> {
        unavailable()
    }
}

/// Events and completions that come from outside.
pub trait CallEvents: Send + Sync {
    /// Waits until this custom key is resolved, across restarts.
    fn event<'a>(&'a self, _custom: &'a str, _within: Option<Duration>) -> ResultFuture<'a, Resolution> {
        unavailable()
    }

    /// Returns the key with which an external system resolves [`CallEvents::event`].
    fn event_key(&self, _custom: &str) -> Result<CompletionKey, Error> {
        Err(unavailable_error())
    }

    /// Returns the key with which an external system completes this call, after the tool has returned `pending`.
    fn completion_key(&self) -> Result<CompletionKey, Error> {
        Err(unavailable_error())
    }
}

/// Reports to subscribers. Best effort: they never fail the tool.
pub trait CallProgress: Send + Sync {
    /// Reports progress to subscribers.
    fn progress(&self, _note: String) {}

    /// Sends a part of the tool's output to subscribers.
    fn output(&self, _text: String) {}
}

/// Values of the session, and the data of plug-ins.
pub trait CallValues: Send + Sync {
    /// Returns a value of the session, including writes of this call.
    fn value<'a>(&'a self, _name: &'a str) -> ResultFuture<'a, Option<Value>> {
        unavailable()
    }

    /// Returns the names of the session's values that start with `prefix`.
    fn value_names<'a>(&'a self, _prefix: &'a str) -> ResultFuture<'a, Vec<String>> {
        unavailable()
    }

    /// Writes a value of the session. It commits with the result of the call.
    fn set_value(&self, _name: &str, _value: Option<Value>) -> Result<(), Error> {
        Err(unavailable_error())
    }

    /// Returns the state of a plug-in in the session, including writes of this call.
    fn plugin_state<'a>(&'a self, _plugin: &'a PluginName) -> ResultFuture<'a, Option<Value>> {
        unavailable()
    }

    /// Replaces the state of a plug-in in the session. It commits with the result of the call.
    fn set_plugin_state(&self, _plugin: &PluginName, _state: Value) -> Result<(), Error> {
        Err(unavailable_error())
    }

    /// Returns the data that the turn's input carries for a plug-in.
    fn plugin_input(&self, _plugin: &PluginName) -> Option<Value> {
        None
    }
}

/// Attachments of the session.
pub trait CallAttachments: Send + Sync {
    /// Adds an attachment to the session. It commits with the result of the call.
    fn attach(&self, _file: Upload) -> Result<(), Error> {
        Err(unavailable_error())
    }

    /// Returns an attachment of the session with its bytes, including attachments of this call.
    fn attachment(&self, _id: AttachmentId) -> ResultFuture<'_, Upload> {
        unavailable()
    }

    /// Returns the metadata of an attachment.
    fn attachment_info(&self, _id: AttachmentId) -> ResultFuture<'_, AttachmentView> {
        unavailable()
    }

    /// Returns a range of an attachment's bytes, truncated at its end.
    fn attachment_range(&self, _id: AttachmentId, _range: Range<u64>) -> ResultFuture<'_, Vec<u8>> {
        unavailable()
    }
}

/// Models, outside the conversation.
pub trait CallModels: Send + Sync {
    /// Returns the model of the turn.
    fn model(&self) -> Result<ModelName, Error> {
        Err(unavailable_error())
    }

    /// Calls a model outside the conversation, once. If the tool runs again, this returns the recorded reply.
    fn direct(&self, _call: DirectCall) -> ResultFuture<'_, Reply> {
        unavailable()
    }
}

/// Other tools of the agent.
pub trait CallTools: Send + Sync {
    /// Runs another tool of the agent, once.
    fn tool<'a>(&'a self, _tool: &'a ToolName, _arguments: Value) -> ResultFuture<'a, Value> {
        unavailable()
    }

    /// Undoes the tool calls that this call has made so far, newest first.
    fn undo_tools(&self) -> ResultFuture<'_, ()> {
        unavailable()
    }
}

/// What the call may do: the policy, the network and the documents of the agent.
pub trait CallPermissions: Send + Sync {
    /// Checks whether the policy allows the call to do this.
    fn check_action(&self, _action: PolicyAction) -> ResultFuture<'_, ()> {
        unavailable()
    }

    /// Returns the network access rules of the turn's agent.
    fn network(&self) -> Result<NetworkAllowList, Error> {
        Err(unavailable_error())
    }

    /// Returns a document of the turn's agent.
    fn document(&self, _path: &str) -> Result<String, Error> {
        Err(unavailable_error())
    }
}

/// Payments.
pub trait CallPayments: Send + Sync {
    /// Reserves money under a name that is unique in the call. The same name returns the same payment.
    fn reserve_payment<'a>(
        &'a self,
        _name: &'a str,
        _order: PaymentOrder,
    ) -> ResultFuture<'a, AuthorityPaymentState> {
        unavailable()
    }

    /// Pays the reservation with this name. Returns the receipt.
    fn settle_payment<'a>(&'a self, _name: &'a str) -> ResultFuture<'a, String> {
        unavailable()
    }

    /// Releases the reservation with this name.
    fn release_payment<'a>(&'a self, _name: &'a str, _reason: &'a str) -> ResultFuture<'a, ()> {
        unavailable()
    }
}

/// Cancellation of the turn.
pub trait CallCancellation: Send + Sync {
    /// Completes when the turn is cancelled.
    fn cancelled(&self) -> BoxFuture<'_, ()> {
        Box::pin(pending())
    }
}

/// A scope that offers nothing, for calls that do not run: previews and tests.
pub struct UnavailableScope;

impl CallSteps for UnavailableScope {}
impl CallEvents for UnavailableScope {}
impl CallProgress for UnavailableScope {}
impl CallValues for UnavailableScope {}
impl CallAttachments for UnavailableScope {}
impl CallModels for UnavailableScope {}
impl CallTools for UnavailableScope {}
impl CallPermissions for UnavailableScope {}
impl CallPayments for UnavailableScope {}
impl CallCancellation for UnavailableScope {}
