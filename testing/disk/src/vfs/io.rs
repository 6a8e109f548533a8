//! The operations of SQLite on an open file.
use super::{number, to_sqlite_code};
use crate::file_locks::FileLockLevel;
use crate::machine::{HandleId, SharedMachine, SimMachine, lock};
use crate::vfs_ops::{SqliteCode, VfsResult};
use crate::wal_shared_memory::{self, ShmLockMode};
use rusqlite::ffi;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{Ordering, fence};
use std::{ptr, slice};

/// The device characteristics of SQLite's own VFS on Unix: bytes next to a write do not change, and a part of a page
/// can be read.
const CHARACTERISTICS: c_int = ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE | ffi::SQLITE_IOCAP_SUBPAGE_READ;
const REPORTED_SECTOR_BYTES: c_int = 4096;

/// An open file as SQLite sees it. SQLite knows the first field, and this module the second.
#[repr(C)]
pub(super) struct OpenFile {
    base: ffi::sqlite3_file,
    handle: *mut VfsFileHandle,
}

struct VfsFileHandle {
    machine: SharedMachine,
    id: HandleId,
}

impl OpenFile {
    /// A file that could not be opened. SQLite ignores a file without methods.
    pub(super) fn closed() -> Self {
        Self { base: ffi::sqlite3_file { pMethods: ptr::null() }, handle: ptr::null_mut() }
    }

    /// An open file. `close` frees the handle.
    pub(super) fn of(machine: SharedMachine, id: HandleId) -> Self {
        let handle = Box::into_raw(Box::new(VfsFileHandle { machine, id }));
        Self { base: ffi::sqlite3_file { pMethods: &raw const METHODS }, handle }
    }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock_file),
    xUnlock: Some(unlock_file),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

fn level(number: c_int) -> VfsResult<FileLockLevel> {
    match number {
        ffi::SQLITE_LOCK_NONE => Ok(FileLockLevel::None),
        ffi::SQLITE_LOCK_SHARED => Ok(FileLockLevel::Shared),
        ffi::SQLITE_LOCK_RESERVED => Ok(FileLockLevel::Reserved),
        ffi::SQLITE_LOCK_PENDING => Ok(FileLockLevel::Pending),
        ffi::SQLITE_LOCK_EXCLUSIVE => Ok(FileLockLevel::Exclusive),
        _ => Err(SqliteCode(ffi::SQLITE_MISUSE)),
    }
}

/// Calls a function with the machine and the handle of an open file.
///
/// # Safety
/// `file` is an open `OpenFile`.
unsafe fn with_open_handle<T>(
    file: *mut ffi::sqlite3_file,
    ask: impl FnOnce(&mut SimMachine, HandleId) -> T,
) -> T {
    // SAFETY: `OpenFile::of` stored a handle there that lives until `close`, and only shared references to it exist.
    let handle = unsafe { &*(*file.cast::<OpenFile>()).handle };
    ask(&mut lock(&handle.machine), handle.id)
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes only open files, and only once.
    unsafe {
        with_open_handle(file, SimMachine::close);
        drop(Box::from_raw((*file.cast::<OpenFile>()).handle));
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    into: *mut c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    to_sqlite_code(|| {
        let (amount, offset) = (number(amount)?, number(offset)?);
        // SAFETY: SQLite provides `amount` bytes that are ours until we return. They are initialised before they become
        // a slice.
        let into = unsafe {
            into.write_bytes(0, amount);
            slice::from_raw_parts_mut(into.cast::<u8>(), amount)
        };
        // SAFETY: SQLite reads from a file that is open.
        unsafe { with_open_handle(file, |machine, id| machine.read(id, offset, into)) }
    })
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    to_sqlite_code(|| {
        let (amount, offset) = (number(amount)?, number(offset)?);
        // SAFETY: SQLite provides `amount` bytes that do not change until we return.
        let from = unsafe { slice::from_raw_parts(from.cast::<u8>(), amount) };
        // SAFETY: SQLite writes to a file that is open.
        unsafe { with_open_handle(file, |machine, id| machine.write(id, offset, from)) }
    })
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    to_sqlite_code(|| {
        let to = number(size)?;
        // SAFETY: SQLite truncates a file that is open.
        unsafe { with_open_handle(file, |machine, id| machine.truncate(id, to)) }
    })
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: SQLite syncs a file that is open.
    to_sqlite_code(|| unsafe { with_open_handle(file, SimMachine::sync) })
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    to_sqlite_code(|| {
        // SAFETY: SQLite asks for the size of a file that is open.
        let bytes = unsafe { with_open_handle(file, |machine, id| machine.size(id)) }?;
        // SAFETY: SQLite provides a place for the size.
        unsafe { *size = i64::try_from(bytes).expect("a file fits into memory") };
        Ok(())
    })
}

unsafe extern "C" fn lock_file(file: *mut ffi::sqlite3_file, want: c_int) -> c_int {
    to_sqlite_code(|| {
        let want = level(want)?;
        // SAFETY: SQLite locks a file that is open.
        unsafe { with_open_handle(file, |machine, id| machine.lock(id, want)) }
    })
}

unsafe extern "C" fn unlock_file(file: *mut ffi::sqlite3_file, to: c_int) -> c_int {
    to_sqlite_code(|| {
        let to = level(to)?;
        // SAFETY: SQLite unlocks a file that is open.
        unsafe { with_open_handle(file, |machine, id| machine.unlock(id, to)) }
    })
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, reserved: *mut c_int) -> c_int {
    to_sqlite_code(|| {
        // SAFETY: SQLite asks about a file that is open.
        let is = unsafe { with_open_handle(file, |machine, id| machine.is_reserved(id)) }?;
        // SAFETY: SQLite provides a place for the answer.
        unsafe { *reserved = c_int::from(is) };
        Ok(())
    })
}

/// Supports no control operations.
unsafe extern "C" fn file_control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    REPORTED_SECTOR_BYTES
}

unsafe extern "C" fn device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    CHARACTERISTICS
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    place: *mut *mut c_void,
) -> c_int {
    to_sqlite_code(|| {
        let (region, size) = (number(region)?, number(size)?);
        // SAFETY: SQLite maps the memory of a file that is open.
        let mapped =
            unsafe { with_open_handle(file, |machine, id| machine.map(id, region, size, extend != 0)) }?;
        // The handle keeps the memory until it is unmapped or closed. The memory consists of atomics, so writes through
        // a pointer from a shared reference are allowed.
        let address = mapped.map_or(ptr::null_mut(), |region| region.as_ptr().cast_mut().cast());
        // SAFETY: SQLite provides a place for the address.
        unsafe { *place = address };
        Ok(())
    })
}

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    to_sqlite_code(|| {
        let slots =
            wal_shared_memory::slots(number(first)?, number(count)?).ok_or(SqliteCode(ffi::SQLITE_MISUSE))?;
        let hold =
            if flags & ffi::SQLITE_SHM_SHARED != 0 { ShmLockMode::Shared } else { ShmLockMode::Exclusive };
        // SAFETY: SQLite locks the memory of a file that is open.
        unsafe {
            with_open_handle(file, |machine, id| {
                if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
                    machine.unlock_shm(id, slots)
                } else {
                    machine.lock_shm(id, slots, hold)
                }
            })
        }
    })
}

unsafe extern "C" fn shm_barrier(_: *mut ffi::sqlite3_file) {
    fence(Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, _delete: c_int) -> c_int {
    // SAFETY: SQLite unmaps the memory of a file that is open.
    unsafe { with_open_handle(file, SimMachine::unmap) };
    ffi::SQLITE_OK
}
