//! The values and attachments of the session, as a running call sees them: what is stored, and what it wrote itself.
use crate::attachments::attachment_references::AttachmentResolver;
use crate::calls::call_journal::CallWrites;
use crate::calls::tool_runner::ToolServices;
use crate::turn::inline_host::not_durable;
use outlast_ports::attachment_upload::Upload;
use outlast_ports::contents::byte_range;
use outlast_ports::plugin::is_reserved;
use outlast_ports::store::Store;
use outlast_ports::turns::ValueWrite;
use outlast_views::{AttachmentView, BlobLocation};
use outlast_vocab::id::AttachmentId;
use outlast_vocab::message::json_size;
use outlast_vocab::{Error, Kind, SessionId, limits};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The storage of the session. Writes of the call are committed with its answer.
pub(crate) struct CallStorage {
    services: Arc<ToolServices>,
    session: SessionId,
    /// The store. `None` on a host that keeps nothing.
    store: Option<Arc<dyn Store>>,
    written: Mutex<WrittenByCall>,
}

/// What the call has written so far.
#[derive(Default)]
struct WrittenByCall {
    values: Vec<ValueWrite>,
    files: Vec<Upload>,
}

impl CallStorage {
    /// Opens the storage for a call that has written nothing.
    pub(crate) fn new(
        services: Arc<ToolServices>,
        session: SessionId,
        store: Option<Arc<dyn Store>>,
    ) -> Self {
        Self { services, session, store, written: Mutex::default() }
    }

    /// Opens the storage for a call that this one makes.
    pub(crate) fn for_nested_call(&self) -> Self {
        Self::new(self.services.clone(), self.session, self.store.clone())
    }

    fn written(&self) -> MutexGuard<'_, WrittenByCall> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the store, if the host has one.
    pub(crate) fn store(&self) -> Option<&Arc<dyn Store>> {
        self.store.as_ref()
    }

    fn needs_store(&self, what: &str) -> Result<&Arc<dyn Store>, Error> {
        self.store.as_ref().ok_or_else(|| not_durable(what))
    }

    /// Forgets what an attempt wrote.
    pub(crate) fn discard(&self) {
        *self.written() = WrittenByCall::default();
    }

    /// Takes what the call wrote, to be committed with its answer.
    pub(crate) async fn take_written(&self) -> Result<CallWrites, Error> {
        let WrittenByCall { values, files } = std::mem::take(&mut *self.written());
        let added = values.iter().filter(|write| write.value.is_some()).count();
        if let (Some(store), 1..) = (&self.store, added) {
            let most = self.services.models.limits.values_per_session;
            let there = store.value_names(self.session, String::new(), most + 1).await?;
            let new =
                values.iter().filter(|write| write.value.is_some() && !there.contains(&write.name)).count();
            limits::check("values_per_session", there.len() + new, most)?;
        }
        Ok(CallWrites { values, files, undo: None })
    }

    /// Returns the attachments that arguments may refer to.
    pub(crate) fn held(&self) -> AttachmentResolver {
        self.services.attachments.of_session(self.store.as_ref(), self.session)
    }

    /// Returns the attachments that the call has added and that are not committed yet.
    pub(crate) fn unsaved_files(&self) -> Vec<Upload> {
        self.written().files.clone()
    }

    fn unsaved_file(&self, id: AttachmentId) -> Option<Upload> {
        self.written().files.iter().find(|file| file.attachment.id == id).cloned()
    }

    pub(super) fn attach(&self, file: Upload) -> Result<(), Error> {
        self.needs_store("keeping an attachment")?;
        limits::check("attachment_bytes", file.bytes.len(), self.services.models.limits.attachment_bytes)?;
        self.written().files.push(file);
        Ok(())
    }

    pub(super) async fn attachment(&self, id: AttachmentId) -> Result<Upload, Error> {
        if let Some(own) = self.unsaved_file(id) {
            return Ok(own);
        }
        let store = self.needs_store("reading an attachment")?;
        self.services.attachments.in_store(store).load(self.session, id).await
    }

    pub(super) async fn attachment_info(&self, id: AttachmentId) -> Result<AttachmentView, Error> {
        if let Some(Upload { attachment, bytes }) = self.unsaved_file(id) {
            let bytes = bytes.len() as u64;
            return Ok(AttachmentView { attachment, bytes, location: BlobLocation::Database });
        }
        let store = self.needs_store("looking at an attachment")?;
        self.services.attachments.in_store(store).info(self.session, id).await
    }

    pub(super) async fn attachment_range(
        &self,
        id: AttachmentId,
        range: Range<u64>,
    ) -> Result<Vec<u8>, Error> {
        if let Some(Upload { bytes, .. }) = self.unsaved_file(id) {
            return Ok(byte_range(&bytes, range).to_vec());
        }
        let store = self.needs_store("reading an attachment")?;
        self.services.attachments.in_store(store).read(self.session, id, range).await
    }

    pub(super) async fn value(&self, name: &str) -> Result<Option<Value>, Error> {
        let store = self.needs_store("reading a value")?;
        let written = self.written().values.iter().rev().find(|write| write.name == name).cloned();
        match written {
            Some(write) => Ok(write.value),
            None => store.value(self.session, name.to_owned()).await,
        }
    }

    pub(super) async fn value_names(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let store = self.needs_store("listing values")?;
        let most = self.services.models.limits.values_per_session;
        let stored = store.value_names(self.session, prefix.to_owned(), most).await?;
        let mut names: BTreeSet<String> = stored.into_iter().collect();
        for write in self.written().values.iter().filter(|write| write.name.starts_with(prefix)) {
            match write.value {
                Some(_) => names.insert(write.name.clone()),
                None => names.remove(&write.name),
            };
        }
        Ok(names.into_iter().filter(|name| !is_reserved(name)).collect())
    }

    pub(super) fn write_value(&self, name: &str, value: Option<Value>) -> Result<(), Error> {
        self.needs_store("writing a value")?;
        let limits = &self.services.models.limits;
        if name.is_empty() {
            return Err(Error::new(Kind::InputInvalid, "a value needs a name"));
        }
        limits::check("key_bytes", name.len(), limits.key_bytes)?;
        limits::check("value_bytes", value.as_ref().map_or(0, json_size), limits.value_bytes)?;
        self.written().values.push(ValueWrite { name: name.to_owned(), value });
        Ok(())
    }
}

/// Rejects names that are reserved for plug-in state.
pub(super) fn not_reserved(name: &str) -> Result<(), Error> {
    if !is_reserved(name) {
        return Ok(());
    }
    Err(Error::new(Kind::InputInvalid, "a value's name does not begin with a control character"))
}
