//! What SQLite asks of the machine: the operations of a VFS, each for a process or one of its open handles. A dead process
//! gets an input/output error for everything and changes nothing.
use crate::faults::{Death, Failure, Kind, Verdict};
use crate::file::first_sectors;
use crate::locks::Level;
use crate::machine::{FileId, Handle, HandleId, Machine, Node, ProcessId};
use crate::shm::{self, Hold, Region};
use rusqlite::ffi;
use std::ops::Range;

/// An answer that is not `SQLITE_OK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

pub(crate) type Answer<T = ()> = Result<T, Code>;

/// How a file is opened.
#[derive(Clone, Copy)]
pub(crate) enum How {
    /// It must be there.
    Find,
    /// It must not be there yet.
    Create,
    FindOrCreate,
}

impl Machine {
    /// Opens a file. One without a name is found by nobody else, and is gone when it is closed.
    pub(crate) fn open_file(&mut self, process: ProcessId, name: Option<&str>, how: How) -> Answer<HandleId> {
        self.alive(process, Code(ffi::SQLITE_IOERR))?;
        let found = name.and_then(|name| self.names.get(name).copied());
        let file = match (found, how) {
            (Some(file), How::Find | How::FindOrCreate) => file,
            (None, How::Create | How::FindOrCreate) => self.create(process, name)?,
            (Some(_), How::Create) | (None, How::Find) => return Err(Code(ffi::SQLITE_CANTOPEN)),
        };
        Ok(self.open(process, file))
    }

    fn create(&mut self, process: ProcessId, name: Option<&str>) -> Answer<FileId> {
        let verdict = self.judge(process, Kind::Create);
        let refused = answer(verdict, Code(ffi::SQLITE_CANTOPEN));
        let Some(name) = name else {
            return refused.map(|()| self.add(Node::default()));
        };
        if verdict.happens() {
            let file = self.add(Node::default());
            self.names.insert(name.to_owned(), file);
        }
        refused.map(|()| self.names[name])
    }

    pub(crate) fn delete(&mut self, process: ProcessId, name: &str) -> Answer {
        self.alive(process, Code(ffi::SQLITE_IOERR_DELETE))?;
        let file = *self.names.get(name).ok_or(Code(ffi::SQLITE_IOERR_DELETE_NOENT))?;
        let verdict = self.judge(process, Kind::Delete);
        if verdict.happens() {
            self.names.remove(name);
            if self.handles.values().all(|handle| handle.file != file) {
                self.nodes.remove(&file);
            }
        }
        answer(verdict, Code(ffi::SQLITE_IOERR_DELETE))
    }

    /// Whether there is such a file. Like on Unix, an empty one is not worth mentioning.
    pub(crate) fn exists(&self, process: ProcessId, name: &str) -> Answer<bool> {
        self.alive(process, Code(ffi::SQLITE_IOERR_ACCESS))?;
        Ok(self.file(name).is_some_and(|file| file.len() > 0))
    }

    /// Whether there is such a file, empty or not.
    pub(crate) fn is_writable(&self, process: ProcessId, name: &str) -> Answer<bool> {
        self.alive(process, Code(ffi::SQLITE_IOERR_ACCESS))?;
        Ok(self.file(name).is_some())
    }

    /// Fills `into` and what is missing at the end of the file with zeros.
    pub(crate) fn read(&self, handle: HandleId, offset: usize, into: &mut [u8]) -> Answer {
        let file = self.alive_file(handle, Code(ffi::SQLITE_IOERR_READ))?;
        let count = self.node(file).file.read(offset, into);
        if count < into.len() {
            into[count..].fill(0);
            return Err(Code(ffi::SQLITE_IOERR_SHORT_READ));
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, handle: HandleId, offset: usize, bytes: &[u8]) -> Answer {
        const REFUSED: Answer = Err(Code(ffi::SQLITE_IOERR_WRITE));
        const FULL: Answer = Err(Code(ffi::SQLITE_FULL));
        let (file, verdict) = self.change(handle, Kind::Write, Code(ffi::SQLITE_IOERR_WRITE))?;
        let (arrives, answer) = match verdict {
            Verdict::Done => (bytes, Ok(())),
            Verdict::Dies(Death::After) => (bytes, REFUSED),
            Verdict::Dies(Death::Torn { sectors }) | Verdict::Fails(Failure::ShortWrite { sectors }) => {
                (first_sectors(offset, bytes, sectors), REFUSED)
            }
            Verdict::Fails(Failure::Full) => (&[][..], FULL),
            Verdict::Fails(Failure::WriteError | Failure::SyncError) | Verdict::Dies(Death::Before) => {
                (&[][..], REFUSED)
            }
        };
        let fits = self.fitting(file, offset, arrives);
        if !fits.is_empty() {
            self.node_mut(file).file.write(offset, fits);
        }
        if fits.len() < arrives.len() { answer.and(FULL) } else { answer }
    }

    /// The part of these bytes for which there is room.
    fn fitting<'a>(&self, file: FileId, offset: usize, bytes: &'a [u8]) -> &'a [u8] {
        let Some(room) = self.room else { return bytes };
        let free = usize::try_from(room).unwrap_or(usize::MAX).saturating_sub(self.used());
        let end = self.node(file).file.len().saturating_add(free);
        &bytes[..bytes.len().min(end.saturating_sub(offset))]
    }

    pub(crate) fn truncate(&mut self, handle: HandleId, to: usize) -> Answer {
        const REFUSED: Code = Code(ffi::SQLITE_IOERR_TRUNCATE);
        let (file, verdict) = self.change(handle, Kind::Truncate, REFUSED)?;
        if verdict.happens() {
            self.node_mut(file).file.truncate(to);
        }
        answer(verdict, REFUSED)
    }

    pub(crate) fn sync(&mut self, handle: HandleId) -> Answer {
        const REFUSED: Code = Code(ffi::SQLITE_IOERR_FSYNC);
        let (file, verdict) = self.change(handle, Kind::Sync, REFUSED)?;
        let file = &mut self.node_mut(file).file;
        match verdict {
            Verdict::Done | Verdict::Dies(Death::After) => file.sync(),
            Verdict::Fails(_) => file.forsake(),
            Verdict::Dies(Death::Before | Death::Torn { .. }) => {}
        }
        answer(verdict, REFUSED)
    }

    pub(crate) fn size(&self, handle: HandleId) -> Answer<usize> {
        let file = self.alive_file(handle, Code(ffi::SQLITE_IOERR_FSTAT))?;
        Ok(self.node(file).file.len())
    }

    pub(crate) fn lock(&mut self, handle: HandleId, level: Level) -> Answer {
        let file = self.alive_file(handle, Code(ffi::SQLITE_IOERR_LOCK))?;
        let granted = self.node_mut(file).locks.raise(handle, level);
        if granted { Ok(()) } else { Err(Code(ffi::SQLITE_BUSY)) }
    }

    pub(crate) fn unlock(&mut self, handle: HandleId, level: Level) -> Answer {
        let file = self.alive_file(handle, Code(ffi::SQLITE_IOERR_UNLOCK))?;
        self.node_mut(file).locks.lower(handle, level);
        Ok(())
    }

    pub(crate) fn is_reserved(&self, handle: HandleId) -> Answer<bool> {
        let file = self.alive_file(handle, Code(ffi::SQLITE_IOERR_CHECKRESERVEDLOCK))?;
        Ok(self.node(file).locks.are_reserved())
    }

    /// A region of the shared memory; nothing if it is not there and shall not be made.
    pub(crate) fn map(
        &mut self,
        handle: HandleId,
        number: usize,
        bytes: usize,
        extend: bool,
    ) -> Answer<Option<Region>> {
        let file = self.alive_file(handle, Code(ffi::SQLITE_IOERR_SHMMAP))?;
        let shm = self.node_mut(file).shm.get_or_insert_default();
        shm.join(handle);
        if extend {
            shm.extend(number, bytes);
        }
        let region = shm.region(number);
        self.handle_mut(handle).mapped.extend(region.clone());
        Ok(region)
    }

    /// Locks the shared memory. A dead process that has not yet undone its transaction could still change that memory,
    /// so nobody may append to the log before its connection is closed or knows of its end.
    pub(crate) fn lock_shm(&mut self, handle: HandleId, slots: Range<usize>, hold: Hold) -> Answer {
        const REFUSED: Code = Code(ffi::SQLITE_IOERR_SHMLOCK);
        let file = self.alive_file(handle, REFUSED)?;
        if shm::are_for_writing(&slots)
            && self.handles.values().any(|other| other.file == file && other.died_writing)
        {
            return Err(REFUSED);
        }
        let shm = self.node_mut(file).shm.as_mut().filter(|shm| shm.is_used_by(handle)).ok_or(REFUSED)?;
        if shm.lock(handle, slots, hold) { Ok(()) } else { Err(Code(ffi::SQLITE_BUSY)) }
    }

    pub(crate) fn unlock_shm(&mut self, handle: HandleId, slots: Range<usize>) -> Answer {
        const REFUSED: Code = Code(ffi::SQLITE_IOERR_SHMLOCK);
        if shm::are_for_writing(&slots) {
            self.handle_mut(handle).died_writing = false;
        }
        let file = self.alive_file(handle, REFUSED)?;
        let shm = self.node_mut(file).shm.as_mut().ok_or(REFUSED)?;
        shm.unlock(handle, slots);
        Ok(())
    }

    pub(crate) fn unmap(&mut self, handle: HandleId) {
        let open = self.handle_mut(handle);
        open.mapped.clear();
        let file = open.file;
        if let Some(node) = self.nodes.get_mut(&file) {
            node.leave_shm(handle);
        }
    }

    fn change(&mut self, handle: HandleId, kind: Kind, if_dead: Code) -> Answer<(FileId, Verdict)> {
        let file = self.alive_file(handle, if_dead)?;
        let process = self.handle(handle).process;
        Ok((file, self.judge(process, kind)))
    }

    fn alive(&self, process: ProcessId, if_dead: Code) -> Answer {
        if self.is_dead(process) { Err(if_dead) } else { Ok(()) }
    }

    fn alive_file(&self, handle: HandleId, if_dead: Code) -> Answer<FileId> {
        let handle = self.handle(handle);
        self.alive(handle.process, if_dead)?;
        Ok(handle.file)
    }

    fn handle(&self, id: HandleId) -> &Handle {
        self.handles.get(&id).expect("a handle is used until it is closed")
    }

    fn handle_mut(&mut self, id: HandleId) -> &mut Handle {
        self.handles.get_mut(&id).expect("a handle is used until it is closed")
    }
}

fn answer(verdict: Verdict, refused: Code) -> Answer {
    if verdict.is_done() { Ok(()) } else { Err(refused) }
}
