//! Services for tools, found by type and checked once at start-up.
//!
//! A tool names the services that it needs in [`crate::tool::Tool::Needs`], and gets no others. Some services live as
//! long as the program ([`Service`]). Others belong to one call ([`Steps`], [`Timer`], [`Events`], [`Completion`],
//! [`Progress`], [`Values`], [`Attachments`], [`Models`], [`Tools`], [`Agent`], [`Cancellation`]).
mod call_scope;

pub use call_scope::{
    CallAttachments, CallCancellation, CallEvents, CallModels, CallPayments, CallPermissions, CallProgress,
    CallScope, CallSteps, CallTools, CallValues, UnavailableScope,
};

use crate::attachment_upload::Upload;
use crate::tool::schema_of;
use outlast_views::AttachmentView;
use outlast_vocab::effect::{DirectCall, Generation, Reply};
use outlast_vocab::id::AttachmentId;
use outlast_vocab::message::{Attachment, MediaType, Message, text_of};
use outlast_vocab::overlay::NetworkAllowList;
use outlast_vocab::policy::PolicyAction;
use outlast_vocab::wait::{CompletionKey, Resolution};
use outlast_vocab::{Error, Hash, Kind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::any::{Any, TypeId, type_name};
use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;

/// The services that this deployment grants. Built at start-up and immutable after that.
#[derive(Clone, Default)]
pub struct Services {
    by_type: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    made_of: HashMap<TypeId, Hash>,
}

impl Services {
    /// Grants a service to every tool that names its type.
    #[must_use]
    pub fn grant<T: Send + Sync + 'static>(mut self, service: T) -> Self {
        self.by_type.insert(TypeId::of::<T>(), Arc::new(service));
        self
    }

    /// Sets the fingerprint of a service, for properties that no contract contains, such as what it can reach. A tool
    /// that needs the service counts as another tool if the fingerprint changes.
    #[must_use]
    pub fn with_fingerprint<T: Send + Sync + 'static>(mut self, means: Hash) -> Self {
        self.made_of.insert(TypeId::of::<T>(), means);
        self
    }

    pub(crate) fn find<T: Send + Sync + 'static>(&self) -> Result<Service<T>, Error> {
        let found = self.by_type.get(&TypeId::of::<T>()).cloned().and_then(|any| any.downcast::<T>().ok());
        found.map(Service).ok_or_else(|| {
            let detail = format!("a tool needs the service `{}`, which was not provided", type_name::<T>());
            Error::new(Kind::ServiceMissing, detail)
        })
    }
}

/// The services that a tool needs: one, or a tuple.
pub trait Needs: Sized + Send {
    /// Checks at start-up whether all services are granted.
    fn check(services: &Services) -> Result<(), Error>;

    /// Returns the fingerprints of the services, where set ([`Services::with_fingerprint`]).
    fn fingerprints(_services: &Services) -> Vec<Hash> {
        Vec::new()
    }

    /// Creates the services for one call.
    fn gather(services: &Services, scope: &Arc<dyn CallScope>) -> Result<Self, Error>;
}

/// A service that lives as long as the program.
pub struct Service<T>(Arc<T>);

impl<T> Deref for Service<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send + Sync + 'static> Needs for Service<T> {
    fn check(services: &Services) -> Result<(), Error> {
        services.find::<T>().map(drop)
    }

    fn fingerprints(services: &Services) -> Vec<Hash> {
        services.made_of.get(&TypeId::of::<T>()).copied().into_iter().collect()
    }

    fn gather(services: &Services, _: &Arc<dyn CallScope>) -> Result<Self, Error> {
        services.find()
    }
}

macro_rules! tuples {
    ($(($($name:ident),*);)*) => {$(
        impl<$($name: Needs),*> Needs for ($($name,)*) {
            fn check(_services: &Services) -> Result<(), Error> {
                $($name::check(_services)?;)*
                Ok(())
            }

            fn fingerprints(_services: &Services) -> Vec<Hash> {
                <[Vec<Hash>]>::concat(&[$($name::fingerprints(_services)),*])
            }

            #[allow(clippy::unused_unit, reason = "the empty tuple gathers nothing")]
            fn gather(_services: &Services, _scope: &Arc<dyn CallScope>) -> Result<Self, Error> {
                Ok(($($name::gather(_services, _scope)?,)*))
            }
        }
    )*};
}

tuples! { (); (A); (A, B); (A, B, C); (A, B, C, D); (A, B, C, D, E); }

macro_rules! per_call {
    ($($(#[$doc:meta])* $name:ident($offers:ident);)*) => {$(
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(Arc<dyn $offers>);

        impl Needs for $name {
            fn check(_: &Services) -> Result<(), Error> { Ok(()) }

            fn gather(_: &Services, scope: &Arc<dyn CallScope>) -> Result<Self, Error> {
                let scope = Arc::clone(scope);
                Ok(Self(scope))
            }
        }
    )*};
}

per_call! {
    /// Durable steps: what was answered is not run again when the tool runs again.
    Steps(CallSteps);
    /// Sleeps that survive restarts.
    Timer(CallSteps);
    /// Events with custom keys that an external system resolves.
    Events(CallEvents);
    /// The key with which an external system completes this call.
    Completion(CallEvents);
    /// Notes for listeners on how far the tool is.
    Progress(CallProgress);
    /// The session's values; writes commit with the call's answer.
    Values(CallValues);
    /// The session's attachments; what is put commits with the call's answer.
    Attachments(CallAttachments);
    /// Models, asked outside the conversation.
    Models(CallModels);
    /// The agent's other tools.
    Tools(CallTools);
    /// The agent that answers the turn: what its policy permits, what it lets be reached, its documents.
    Agent(CallPermissions);
    /// Whether the turn was cancelled.
    Cancellation(CallCancellation);
}

impl Steps {
    /// Runs a step once. The name must be unique in the call. The input is part of the step's identity.
    pub async fn run<I, T, F>(&self, name: &str, input: &I, run: F) -> Result<T, Error>
    where
        I: Serialize + Sync,
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, Error>> + Send,
    {
        let input = json(input)?;
        let run = Box::pin(async { run.await.and_then(|value| json(&value)) });
        let value = self.0.step(name, input, run).await?;
        serde_json::from_value(value).map_err(|cause| {
            let detail = format!("step `{name}` was recorded with a value of another type: {cause}");
            Error::new(Kind::JournalDiverged, detail)
        })
    }
}

fn json(value: &impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(value)
        .map_err(|cause| Error::new(Kind::ToolFailed, format!("a value cannot be written as JSON: {cause}")))
}

impl Timer {
    /// Sleeps, across restarts. A long sleep parks the turn. After it, the tool runs again from its start.
    pub async fn sleep(&self, pause: Duration) -> Result<(), Error> {
        self.0.sleep(pause).await
    }
}

impl Events {
    /// Returns the key with which an external system resolves the wait for `custom`. It is the same in every run.
    pub fn key(&self, custom: &str) -> Result<CompletionKey, Error> {
        self.0.event_key(custom)
    }

    /// Waits until `custom` is resolved, or until `within` has passed.
    pub async fn wait(&self, custom: &str, within: Option<Duration>) -> Result<Resolution, Error> {
        self.0.event(custom, within).await
    }
}

impl Completion {
    /// Returns the key with which an external system completes this call. Hand it out, then return
    /// [`crate::tool::ToolRunOutcome::Pending`].
    pub fn key(&self) -> Result<CompletionKey, Error> {
        self.0.completion_key()
    }
}

impl Progress {
    /// Reports progress to subscribers.
    pub fn note(&self, note: impl Into<String>) {
        self.0.progress(note.into());
    }

    /// Sends a part of the tool's output to subscribers.
    pub fn output(&self, text: impl Into<String>) {
        self.0.output(text.into());
    }
}

/// An argument that refers to an attachment of the session. A tool with such an argument gets the reference. For all
/// other arguments, a reference is replaced by the attachment's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachmentRef(pub AttachmentId);

impl<'de> Deserialize<'de> for AttachmentRef {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let id = AttachmentId::referred_to(&text).map_or_else(|| text.parse(), Ok);
        id.map(Self).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for AttachmentRef {
    fn schema_name() -> Cow<'static, str> {
        "Attached".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "attachment" })
    }
}

impl Attachments {
    /// Stores bytes as an attachment of the session. The result of the tool may refer to it by its id.
    pub fn put(
        &self,
        media_type: &str,
        name: Option<String>,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Result<Attachment, Error> {
        let file = Upload::new(MediaType::try_from(media_type.to_owned())?, name, bytes)?;
        let attachment = file.attachment.clone();
        self.0.attach(file)?;
        Ok(attachment)
    }

    /// Returns an attachment of the session with its bytes. Fails for attachments over `attachment_bytes`; read those
    /// by range.
    pub async fn get(&self, id: AttachmentId) -> Result<Upload, Error> {
        self.0.attachment(id).await
    }

    /// Returns the metadata of an attachment.
    pub async fn info(&self, id: AttachmentId) -> Result<AttachmentView, Error> {
        self.0.attachment_info(id).await
    }

    /// Returns a range of an attachment's bytes, truncated at its end. The other bytes are not read.
    pub async fn read(&self, id: AttachmentId, range: Range<u64>) -> Result<Vec<u8>, Error> {
        self.0.attachment_range(id, range).await
    }
}

impl Agent {
    /// Returns its network access rules. Tools that make connections must enforce them.
    pub fn network(&self) -> Result<NetworkAllowList, Error> {
        self.0.network()
    }

    /// Asks the policy whether the call may do this. On an error, the tool must not continue; the error is for the
    /// model.
    pub async fn permit(&self, action: PolicyAction) -> Result<(), Error> {
        self.0.check_action(action).await
    }

    /// Returns one of the agent's documents.
    pub fn document(&self, path: &str) -> Result<String, Error> {
        self.0.document(path)
    }
}

impl Models {
    /// Asks the model of the turn. Returns its answer as text.
    pub async fn ask(&self, text: impl Into<String>) -> Result<String, Error> {
        let reply = self.call(self.question(text)?).await?;
        Ok(text_of(&reply.parts).into_owned())
    }

    /// Asks the model of the turn for an answer of type `T`. An answer that does not fit is sent back with its errors.
    pub async fn ask_as<T: DeserializeOwned + JsonSchema>(
        &self,
        text: impl Into<String>,
    ) -> Result<T, Error> {
        let question = DirectCall { output: Some(schema_of::<T>()), ..self.question(text)? };
        let reply = self.call(question).await?;
        let answer = text_of(&reply.parts);
        serde_json::from_str(answer.trim()).map_err(|cause| {
            Error::new(
                Kind::OutputInvalid,
                format!("the answer matches its schema, but not the type: {cause}"),
            )
        })
    }

    /// Calls a model with full control over the request.
    pub async fn call(&self, question: DirectCall) -> Result<Reply, Error> {
        self.0.direct(question).await
    }

    /// Creates a request to the model of the turn, for struct update syntax.
    pub fn question(&self, text: impl Into<String>) -> Result<DirectCall, Error> {
        Ok(DirectCall {
            usage_source: "tool".to_owned(),
            model: self.0.model()?,
            system: String::new(),
            messages: vec![Message::user(text)],
            options: Generation::default(),
            output: None,
        })
    }
}

impl Tools {
    /// Runs another tool of the agent, once. If this tool runs again, the recorded result is returned. A tool that may
    /// run again cannot call one that must not.
    pub async fn call(&self, tool: &str, arguments: impl Serialize) -> Result<Value, Error> {
        self.0.tool(&tool.parse()?, json(&arguments)?).await
    }

    /// Undoes the tool calls that this call has made so far, newest first. Calls of tools without an undo are skipped.
    ///
    /// Each call is undone once, however often this tool runs.
    pub async fn undo(&self) -> Result<(), Error> {
        self.0.undo_tools().await
    }
}

impl Values {
    /// Returns a value of the session.
    pub async fn get(&self, name: &str) -> Result<Option<Value>, Error> {
        self.0.value(name).await
    }

    /// Returns the names of the session's values that start with `prefix`.
    pub async fn names(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.0.value_names(prefix).await
    }

    /// Writes a value of the session.
    pub fn set(&self, name: &str, value: Value) -> Result<(), Error> {
        self.0.set_value(name, Some(value))
    }

    /// Removes a value of the session.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        self.0.set_value(name, None)
    }
}

impl Cancellation {
    /// Completes when the turn is cancelled.
    pub async fn requested(&self) {
        self.0.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Mail;

    #[test]
    fn a_missing_service_is_named_at_start_up() {
        assert!(<(Service<Mail>, Steps)>::check(&Services::default().grant(Mail)).is_ok());
        let error = <(Steps, Service<Mail>)>::check(&Services::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "service.missing: a tool needs the service `outlast_ports::service::tests::Mail`, which was not provided"
        );
    }
}
