//! Calls tools in tests as the runtime does, with values and steps in memory.
use crate::{FileRoot, WallClock};
use outlast_ports::ResultFuture;
use outlast_ports::attachment_upload::Upload;
use outlast_ports::clock::VirtualClock;
use outlast_ports::contents::byte_range;
use outlast_ports::service::{
    CallAttachments, CallCancellation, CallEvents, CallModels, CallPayments, CallPermissions, CallProgress,
    CallSteps, CallTools, CallValues, Services,
};
use outlast_ports::tool::{Call, ToolProvider, ToolRunOutcome, Toolbox};
use outlast_views::{AttachmentView, BlobLocation};
use outlast_vocab::id::AttachmentId;
use outlast_vocab::label::Labels;
use outlast_vocab::overlay::NetworkAllowList;
use outlast_vocab::policy::PolicyAction;
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::{CallId, Error, Kind, Millis, SessionId, TurnId};
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::ready;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// All built-in tools, with the clock at 2026-07-03T10:20:30.456Z.
pub(crate) struct ToolTester {
    toolbox: Toolbox,
    scope: Arc<MemoryCallScope>,
}

impl ToolTester {
    /// Creates the tools with files below this directory.
    pub(crate) fn with_files(root: &Path) -> Self {
        let clock = Arc::new(VirtualClock::at(Millis(1_783_074_030_456)));
        let services = Services::default().grant(WallClock(clock)).grant(FileRoot::open(root).unwrap());
        let mut toolbox = Toolbox::new(services);
        crate::Builtin::ALL.iter().try_for_each(|group| group.add_to(&mut toolbox)).unwrap();
        crate::files(&mut toolbox).unwrap();
        Self { toolbox, scope: Arc::default() }
    }

    /// Creates the tools without any files.
    pub(crate) fn new() -> Self {
        Self::with_files(tempfile::tempdir().unwrap().path())
    }

    /// Stores an attachment and returns its id.
    pub(crate) fn attach(&self, media_type: &str, bytes: &[u8]) -> String {
        let file = Upload::new(media_type.to_owned().try_into().unwrap(), None, bytes).unwrap();
        let id = file.attachment.id.to_string();
        self.scope.attach(file).unwrap();
        id
    }

    /// Calls a tool for the first time, without recorded steps.
    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Result<Value, Error> {
        self.scope.steps.lock().unwrap().clear();
        self.call_with_steps(tool, arguments)
    }

    fn call_with_steps(&self, tool: &str, arguments: Value) -> Result<Value, Error> {
        let (id, session, turn) = (CallId::from_u128(1), SessionId::from_u128(2), TurnId::from_u128(3));
        let tool = tool.parse().unwrap();
        let class = self.toolbox.contract(&tool).unwrap().class;
        let model_id = "call_0".parse().unwrap();
        let prepared = PreparedCall {
            id,
            model_id,
            tool,
            class,
            arguments,
            payload: None,
            ruling: None,
            labels: Labels::default(),
            provenance: outlast_vocab::label::Provenance::default(),
        };
        let call = Call { id, session, turn, attempt: 1, attempts: 1, payload: None };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        match runtime.block_on(self.toolbox.execute(&prepared, call, self.scope.clone()))? {
            ToolRunOutcome::Completed(value) => Ok(value),
            ToolRunOutcome::Pending => Ok(Value::from("pending")),
        }
    }

    /// Returns a tool's preview of a call.
    pub(crate) fn preview(&self, tool: &str, arguments: &Value) -> String {
        let tool = tool.parse().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        match runtime.block_on(self.toolbox.preview(&tool, arguments)) {
            Ok(preview) => format!("{}\n", preview.as_deref().unwrap_or("(it cannot tell)")),
            Err(error) => format!("{error}\n"),
        }
    }

    /// Calls a tool and formats its result or error as one line.
    pub(crate) fn show(&self, tool: &str, arguments: Value) -> String {
        shown(self.call(tool, arguments))
    }

    /// Repeats the last call as after a crash, with its recorded steps.
    pub(crate) fn repeat(&self, tool: &str, arguments: Value) -> String {
        shown(self.call_with_steps(tool, arguments))
    }
}

fn shown(said: Result<Value, Error>) -> String {
    match said {
        Ok(value) => format!("{value}\n"),
        Err(error) => format!("{error}\n"),
    }
}

/// Values, attachments and steps in memory.
#[derive(Default)]
pub(crate) struct MemoryCallScope {
    values: Mutex<BTreeMap<String, Value>>,
    files: Mutex<BTreeMap<AttachmentId, Upload>>,
    steps: Mutex<BTreeMap<String, Value>>,
}

impl CallSteps for MemoryCallScope {
    fn step<'a>(&'a self, name: &'a str, _: Value, run: ResultFuture<'a, Value>) -> ResultFuture<'a, Value> {
        let recorded = self.steps.lock().unwrap().get(name).cloned();
        Box::pin(async move {
            if let Some(value) = recorded {
                return Ok(value);
            }
            let value = run.await?;
            self.steps.lock().unwrap().insert(name.to_owned(), value.clone());
            Ok(value)
        })
    }
}

impl CallValues for MemoryCallScope {
    fn value<'a>(&'a self, name: &'a str) -> ResultFuture<'a, Option<Value>> {
        Box::pin(ready(Ok(self.values.lock().unwrap().get(name).cloned())))
    }

    fn value_names<'a>(&'a self, prefix: &'a str) -> ResultFuture<'a, Vec<String>> {
        let values = self.values.lock().unwrap();
        let names = values.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
        Box::pin(ready(Ok(names)))
    }

    fn set_value(&self, name: &str, value: Option<Value>) -> Result<(), Error> {
        let mut values = self.values.lock().unwrap();
        match value {
            Some(value) => values.insert(name.to_owned(), value),
            None => values.remove(name),
        };
        Ok(())
    }
}

impl CallAttachments for MemoryCallScope {
    fn attach(&self, file: Upload) -> Result<(), Error> {
        self.files.lock().unwrap().insert(file.attachment.id, file);
        Ok(())
    }

    fn attachment(&self, id: AttachmentId) -> ResultFuture<'_, Upload> {
        let found = self.files.lock().unwrap().get(&id).cloned();
        let missing = || Error::new(Kind::AttachmentNotFound, format!("no attachment {id}"));
        Box::pin(ready(found.ok_or_else(missing)))
    }

    fn attachment_info(&self, id: AttachmentId) -> ResultFuture<'_, AttachmentView> {
        Box::pin(async move {
            let Upload { attachment, bytes } = self.attachment(id).await?;
            Ok(AttachmentView { attachment, bytes: bytes.len() as u64, location: BlobLocation::Database })
        })
    }

    fn attachment_range(&self, id: AttachmentId, range: Range<u64>) -> ResultFuture<'_, Vec<u8>> {
        Box::pin(async move { Ok(byte_range(&self.attachment(id).await?.bytes, range).to_vec()) })
    }
}

impl CallPermissions for MemoryCallScope {
    fn check_action(&self, _: PolicyAction) -> ResultFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }

    fn network(&self) -> Result<NetworkAllowList, Error> {
        Ok(NetworkAllowList::default())
    }
}

// Built-in tools use nothing else.
impl CallEvents for MemoryCallScope {}
impl CallProgress for MemoryCallScope {}
impl CallModels for MemoryCallScope {}
impl CallTools for MemoryCallScope {}
impl CallPayments for MemoryCallScope {}
impl CallCancellation for MemoryCallScope {}
