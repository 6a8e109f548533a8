//! The VFS operations that SQLite performs on the machine, each for a process or one of its open handles. For a dead
//! process, all operations fail with an input/output error and change nothing.
use crate::faults::{ChangeFailure, ChangeOutcome, CrashMode, NumberedChangeKind};
use crate::file::first_sectors;
use crate::file_locks::FileLockLevel;
use crate::machine::{FileId, HandleId, MachineHandle, OpenFileNode, ProcessId, SimMachine};
use crate::wal_shared_memory::{self, Region, ShmLockMode};
use rusqlite::ffi;
use std::ops::Range;

/// An SQLite result code other than `SQLITE_OK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SqliteCode(pub(crate) i32);

pub(crate) type VfsResult<T = ()> = Result<T, SqliteCode>;

/// How to open a file.
#[derive(Clone, Copy)]
pub(crate) enum OpenMode {
    /// The file must exist.
    Existing,
    /// The file must not exist.
    CreateNew,
    OpenOrCreate,
}

impl SimMachine {
    /// Opens a file. A file without a name is private and deleted when it is closed.
    pub(crate) fn open_file(
        &mut self,
        process: ProcessId,
        name: Option<&str>,
        how: OpenMode,
    ) -> VfsResult<HandleId> {
        self.check_alive(process, SqliteCode(ffi::SQLITE_IOERR))?;
        let found = name.and_then(|name| self.names.get(name).copied());
        let file = match (found, how) {
            (Some(file), OpenMode::Existing | OpenMode::OpenOrCreate) => file,
            (None, OpenMode::CreateNew | OpenMode::OpenOrCreate) => self.create(process, name)?,
            (Some(_), OpenMode::CreateNew) | (None, OpenMode::Existing) => {
                return Err(SqliteCode(ffi::SQLITE_CANTOPEN));
            }
        };
        Ok(self.open(process, file))
    }

    fn create(&mut self, process: ProcessId, name: Option<&str>) -> VfsResult<FileId> {
        let verdict = self.count_process_change(process, NumberedChangeKind::Create);
        let refused = change_result(verdict, SqliteCode(ffi::SQLITE_CANTOPEN));
        let Some(name) = name else {
            return refused.map(|()| self.add(OpenFileNode::default()));
        };
        if verdict.is_applied() {
            let file = self.add(OpenFileNode::default());
            self.names.insert(name.to_owned(), file);
        }
        refused.map(|()| self.names[name])
    }

    pub(crate) fn delete(&mut self, process: ProcessId, name: &str) -> VfsResult {
        self.check_alive(process, SqliteCode(ffi::SQLITE_IOERR_DELETE))?;
        let file = *self.names.get(name).ok_or(SqliteCode(ffi::SQLITE_IOERR_DELETE_NOENT))?;
        let verdict = self.count_process_change(process, NumberedChangeKind::Delete);
        if verdict.is_applied() {
            self.names.remove(name);
            if self.handles.values().all(|handle| handle.file != file) {
                self.nodes.remove(&file);
            }
        }
        change_result(verdict, SqliteCode(ffi::SQLITE_IOERR_DELETE))
    }

    /// Returns whether a file exists and is not empty, like SQLite's VFS for Unix.
    pub(crate) fn exists(&self, process: ProcessId, name: &str) -> VfsResult<bool> {
        self.check_alive(process, SqliteCode(ffi::SQLITE_IOERR_ACCESS))?;
        Ok(self.file(name).is_some_and(|file| file.len() > 0))
    }

    /// Returns whether a file exists, empty or not.
    pub(crate) fn is_writable(&self, process: ProcessId, name: &str) -> VfsResult<bool> {
        self.check_alive(process, SqliteCode(ffi::SQLITE_IOERR_ACCESS))?;
        Ok(self.file(name).is_some())
    }

    /// Fills `into`. Bytes after the end of the file are zeros.
    pub(crate) fn read(&self, handle: HandleId, offset: usize, into: &mut [u8]) -> VfsResult {
        let file = self.alive_file(handle, SqliteCode(ffi::SQLITE_IOERR_READ))?;
        let count = self.node(file).file.read(offset, into);
        if count < into.len() {
            into[count..].fill(0);
            return Err(SqliteCode(ffi::SQLITE_IOERR_SHORT_READ));
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, handle: HandleId, offset: usize, bytes: &[u8]) -> VfsResult {
        const REFUSED: VfsResult = Err(SqliteCode(ffi::SQLITE_IOERR_WRITE));
        const FULL: VfsResult = Err(SqliteCode(ffi::SQLITE_FULL));
        let (file, verdict) =
            self.change(handle, NumberedChangeKind::Write, SqliteCode(ffi::SQLITE_IOERR_WRITE))?;
        let (arrives, answer) = match verdict {
            ChangeOutcome::Done => (bytes, Ok(())),
            ChangeOutcome::Dies(CrashMode::After) => (bytes, REFUSED),
            ChangeOutcome::Dies(CrashMode::Torn { sectors })
            | ChangeOutcome::Fails(ChangeFailure::ShortWrite { sectors }) => {
                (first_sectors(offset, bytes, sectors), REFUSED)
            }
            ChangeOutcome::Fails(ChangeFailure::Full) => (&[][..], FULL),
            ChangeOutcome::Fails(ChangeFailure::WriteError | ChangeFailure::SyncError)
            | ChangeOutcome::Dies(CrashMode::Before) => (&[][..], REFUSED),
        };
        let fits = self.part_that_fits(file, offset, arrives);
        if !fits.is_empty() {
            self.node_mut(file).file.write(offset, fits);
        }
        if fits.len() < arrives.len() { answer.and(FULL) } else { answer }
    }

    /// Returns the part of these bytes that fits on the disk.
    fn part_that_fits<'a>(&self, file: FileId, offset: usize, bytes: &'a [u8]) -> &'a [u8] {
        let Some(limit) = self.total_size_limit else { return bytes };
        let free = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(self.used());
        let end = self.node(file).file.len().saturating_add(free);
        &bytes[..bytes.len().min(end.saturating_sub(offset))]
    }

    pub(crate) fn truncate(&mut self, handle: HandleId, to: usize) -> VfsResult {
        const REFUSED: SqliteCode = SqliteCode(ffi::SQLITE_IOERR_TRUNCATE);
        let (file, verdict) = self.change(handle, NumberedChangeKind::Truncate, REFUSED)?;
        if verdict.is_applied() {
            self.node_mut(file).file.truncate(to);
        }
        change_result(verdict, REFUSED)
    }

    pub(crate) fn sync(&mut self, handle: HandleId) -> VfsResult {
        const REFUSED: SqliteCode = SqliteCode(ffi::SQLITE_IOERR_FSYNC);
        let (file, verdict) = self.change(handle, NumberedChangeKind::Sync, REFUSED)?;
        let file = &mut self.node_mut(file).file;
        match verdict {
            ChangeOutcome::Done | ChangeOutcome::Dies(CrashMode::After) => file.sync(),
            ChangeOutcome::Fails(_) => file.record_failed_sync(),
            ChangeOutcome::Dies(CrashMode::Before | CrashMode::Torn { .. }) => {}
        }
        change_result(verdict, REFUSED)
    }

    pub(crate) fn size(&self, handle: HandleId) -> VfsResult<usize> {
        let file = self.alive_file(handle, SqliteCode(ffi::SQLITE_IOERR_FSTAT))?;
        Ok(self.node(file).file.len())
    }

    pub(crate) fn lock(&mut self, handle: HandleId, level: FileLockLevel) -> VfsResult {
        let file = self.alive_file(handle, SqliteCode(ffi::SQLITE_IOERR_LOCK))?;
        let granted = self.node_mut(file).locks.raise(handle, level);
        if granted { Ok(()) } else { Err(SqliteCode(ffi::SQLITE_BUSY)) }
    }

    pub(crate) fn unlock(&mut self, handle: HandleId, level: FileLockLevel) -> VfsResult {
        let file = self.alive_file(handle, SqliteCode(ffi::SQLITE_IOERR_UNLOCK))?;
        self.node_mut(file).locks.lower(handle, level);
        Ok(())
    }

    pub(crate) fn is_reserved(&self, handle: HandleId) -> VfsResult<bool> {
        let file = self.alive_file(handle, SqliteCode(ffi::SQLITE_IOERR_CHECKRESERVEDLOCK))?;
        Ok(self.node(file).locks.are_reserved())
    }

    /// Returns a region of the shared memory, or `None` if it does not exist and must not be created.
    pub(crate) fn map(
        &mut self,
        handle: HandleId,
        number: usize,
        bytes: usize,
        extend: bool,
    ) -> VfsResult<Option<Region>> {
        let file = self.alive_file(handle, SqliteCode(ffi::SQLITE_IOERR_SHMMAP))?;
        let shm = self.node_mut(file).shm.get_or_insert_default();
        shm.join(handle);
        if extend {
            shm.extend(number, bytes);
        }
        let region = shm.region(number);
        self.handle_mut(handle).mapped.extend(region.clone());
        Ok(region)
    }

    /// Locks the shared memory. A dead process whose transaction is not rolled back could still change that memory.
    /// Appending to the log is refused until its connection is closed, or SQLite has noticed the death.
    pub(crate) fn lock_shm(&mut self, handle: HandleId, slots: Range<usize>, hold: ShmLockMode) -> VfsResult {
        const REFUSED: SqliteCode = SqliteCode(ffi::SQLITE_IOERR_SHMLOCK);
        let file = self.alive_file(handle, REFUSED)?;
        let node = self.nodes.get_mut(&file).expect("a living handle has a file");
        let shm = node.shm.as_mut().filter(|shm| shm.is_used_by(handle)).ok_or(REFUSED)?;
        let mut died_writing = self.handles.values().filter(|other| other.died_writing);
        if wal_shared_memory::are_for_writing(&slots)
            && died_writing.any(|other| shm.has_one_of(&other.mapped))
        {
            return Err(REFUSED);
        }
        if shm.lock(handle, slots, hold) { Ok(()) } else { Err(SqliteCode(ffi::SQLITE_BUSY)) }
    }

    pub(crate) fn unlock_shm(&mut self, handle: HandleId, slots: Range<usize>) -> VfsResult {
        const REFUSED: SqliteCode = SqliteCode(ffi::SQLITE_IOERR_SHMLOCK);
        if wal_shared_memory::are_for_writing(&slots) {
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

    fn change(
        &mut self,
        handle: HandleId,
        kind: NumberedChangeKind,
        if_dead: SqliteCode,
    ) -> VfsResult<(FileId, ChangeOutcome)> {
        let file = self.alive_file(handle, if_dead)?;
        let process = self.handle(handle).process;
        Ok((file, self.count_process_change(process, kind)))
    }

    fn check_alive(&self, process: ProcessId, if_dead: SqliteCode) -> VfsResult {
        if self.is_dead(process) { Err(if_dead) } else { Ok(()) }
    }

    fn alive_file(&self, handle: HandleId, if_dead: SqliteCode) -> VfsResult<FileId> {
        let handle = self.handle(handle);
        self.check_alive(handle.process, if_dead)?;
        Ok(handle.file)
    }

    fn handle(&self, id: HandleId) -> &MachineHandle {
        self.handles.get(&id).expect("a handle is used until it is closed")
    }

    fn handle_mut(&mut self, id: HandleId) -> &mut MachineHandle {
        self.handles.get_mut(&id).expect("a handle is used until it is closed")
    }
}

fn change_result(verdict: ChangeOutcome, refused: SqliteCode) -> VfsResult {
    if verdict.is_done() { Ok(()) } else { Err(refused) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::FailureDuration;
    use crate::file::SECTOR;

    /// Creates a machine with a process that has an empty file open.
    fn opened() -> (SimMachine, ProcessId, HandleId) {
        let mut machine = SimMachine::default();
        let process = machine.start();
        let handle = machine.open_file(process, Some("file"), OpenMode::CreateNew).unwrap();
        (machine, process, handle)
    }

    #[test]
    fn open_mode_decides_whether_a_file_is_created() {
        let (mut machine, process, _) = opened();
        let open = |machine: &mut SimMachine, name, how| machine.open_file(process, Some(name), how).err();
        assert_eq!(open(&mut machine, "file", OpenMode::Existing), None);
        assert_eq!(open(&mut machine, "file", OpenMode::OpenOrCreate), None);
        assert_eq!(open(&mut machine, "file", OpenMode::CreateNew), Some(SqliteCode(ffi::SQLITE_CANTOPEN)));
        assert_eq!(open(&mut machine, "other", OpenMode::Existing), Some(SqliteCode(ffi::SQLITE_CANTOPEN)));
        assert_eq!(open(&mut machine, "other", OpenMode::OpenOrCreate), None);
        assert_eq!(machine.faults(process).changes(), 2, "two files were made");
    }

    #[test]
    fn sqlite_treats_an_empty_file_as_missing() {
        let (mut machine, process, handle) = opened();
        assert_eq!(
            (machine.exists(process, "file"), machine.is_writable(process, "file")),
            (Ok(false), Ok(true))
        );
        machine.write(handle, 0, b"a").unwrap();
        assert_eq!(
            (machine.exists(process, "file"), machine.is_writable(process, "other")),
            (Ok(true), Ok(false))
        );
    }

    #[test]
    fn deleted_file_lives_until_last_handle_closes() {
        let (mut machine, process, handle) = opened();
        machine.write(handle, 0, b"abc").unwrap();
        machine.delete(process, "file").unwrap();
        assert_eq!(machine.delete(process, "file"), Err(SqliteCode(ffi::SQLITE_IOERR_DELETE_NOENT)));
        let mut read = [0; 3];
        machine.read(handle, 0, &mut read).unwrap();
        assert_eq!((&read, machine.used()), (b"abc", 3));
        machine.close(handle);
        assert_eq!(machine.used(), 0);
    }

    #[test]
    fn unnamed_file_vanishes_on_close_or_power_loss() {
        let (mut machine, process, _) = opened();
        for _ in 0..2 {
            let temporary = machine.open_file(process, None, OpenMode::CreateNew).unwrap();
            machine.write(temporary, 0, b"abc").unwrap();
            machine.close(temporary);
            assert_eq!(machine.used(), 0);
        }
        let temporary = machine.open_file(process, None, OpenMode::CreateNew).unwrap();
        machine.write(temporary, 0, b"abc").unwrap();
        machine.lose_power(&mut |_| unreachable!("nobody could find it again"));
        assert_eq!(machine.used(), 0);
        machine.close(temporary);
    }

    #[test]
    fn short_read_is_zero_filled_and_reported() {
        let (mut machine, _, handle) = opened();
        machine.write(handle, 0, b"abc").unwrap();
        let mut read = [1; 4];
        assert_eq!(machine.read(handle, 1, &mut read), Err(SqliteCode(ffi::SQLITE_IOERR_SHORT_READ)));
        assert_eq!(&read, b"bc\0\0");
        assert_eq!(machine.read(handle, 9, &mut read), Err(SqliteCode(ffi::SQLITE_IOERR_SHORT_READ)));
        assert_eq!(read, [0; 4]);
    }

    /// Returns how many of four written sectors exist after a death at that write.
    fn sectors_after(death: CrashMode) -> usize {
        let (mut machine, process, handle) = opened();
        machine.faults(process).plan_death(2, death);
        machine.write(handle, 0, &[]).unwrap();
        assert_eq!(machine.write(handle, 0, &[1; 4 * SECTOR]), Err(SqliteCode(ffi::SQLITE_IOERR_WRITE)));
        assert!(machine.is_dead(process));
        assert_eq!(machine.write(handle, 0, &[2; 4 * SECTOR]), Err(SqliteCode(ffi::SQLITE_IOERR_WRITE)));
        assert_eq!(machine.faults(process).changes(), 3, "the dead change nothing");
        machine.used() / SECTOR
    }

    #[test]
    fn crash_leaves_none_part_or_all_of_write() {
        let deaths = [CrashMode::Before, CrashMode::Torn { sectors: 3 }, CrashMode::After];
        assert_eq!(deaths.map(sectors_after), [0, 3, 4]);
    }

    #[test]
    fn crash_leaves_none_or_all_of_other_changes() {
        for (death, happens) in
            [(CrashMode::Before, false), (CrashMode::Torn { sectors: 9 }, false), (CrashMode::After, true)]
        {
            let after = |change: &dyn Fn(&mut SimMachine, ProcessId, HandleId) -> SqliteCode| {
                let (mut machine, process, handle) = opened();
                machine.write(handle, 0, b"abc").unwrap();
                machine.faults(process).plan_death(2, death);
                let code = change(&mut machine, process, handle);
                assert!(machine.is_dead(process));
                (machine, code)
            };
            let (machine, code) = after(&|machine, _, handle| machine.truncate(handle, 0).unwrap_err());
            assert_eq!((machine.used() == 0, code), (happens, SqliteCode(ffi::SQLITE_IOERR_TRUNCATE)));
            let (machine, code) = after(&|machine, process, _| machine.delete(process, "file").unwrap_err());
            assert_eq!(
                (machine.file("file").is_none(), code),
                (happens, SqliteCode(ffi::SQLITE_IOERR_DELETE))
            );
            let (machine, code) = after(&|machine, process, _| {
                machine.open_file(process, Some("new"), OpenMode::CreateNew).err().expect("it died")
            });
            assert_eq!((machine.file("new").is_some(), code), (happens, SqliteCode(ffi::SQLITE_CANTOPEN)));
            let (mut machine, code) = after(&|machine, _, handle| machine.sync(handle).unwrap_err());
            machine.lose_power(&mut |_| crate::PowerLossEffect::Dropped);
            assert_eq!((machine.used() == 3, code), (happens, SqliteCode(ffi::SQLITE_IOERR_FSYNC)));
        }
    }

    #[test]
    fn failed_write_leaves_the_planned_sectors() {
        for (failure, left, code) in [
            (ChangeFailure::Full, 0, ffi::SQLITE_FULL),
            (ChangeFailure::WriteError, 0, ffi::SQLITE_IOERR_WRITE),
            (ChangeFailure::ShortWrite { sectors: 3 }, 3, ffi::SQLITE_IOERR_WRITE),
        ] {
            let (mut machine, process, handle) = opened();
            machine.faults(process).plan_failure(0, failure, FailureDuration::Once);
            assert_eq!(machine.write(handle, 0, &[1; 4 * SECTOR]), Err(SqliteCode(code)));
            assert_eq!(machine.used() / SECTOR, left, "{failure:?}");
        }
    }

    #[test]
    fn size_limit_covers_growth_of_all_files() {
        let (mut machine, process, handle) = opened();
        let other = machine.open_file(process, Some("other"), OpenMode::CreateNew).unwrap();
        machine.total_size_limit = Some(10);
        machine.write(handle, 0, b"123456").unwrap();
        assert_eq!(machine.write(other, 0, b"123456"), Err(SqliteCode(ffi::SQLITE_FULL)));
        assert_eq!(machine.size(other), Ok(4));
        machine.write(handle, 0, b"654321").unwrap();
        machine.truncate(handle, 0).unwrap();
        machine.write(other, 4, b"56").unwrap();
    }
}
