//! The machine as an SQLite VFS, through its C interface. This is the only module with unsafe code. It converts
//! pointers and numbers into Rust types, and leaves all decisions to `vfs_ops`.
//!
//! A registered VFS is never freed, because SQLite keeps its address in every connection that was opened with it. If
//! its mount is gone, the VFS is reused for the next mount.
#![allow(unsafe_code)]

mod io;
mod seed;

use crate::machine::{ProcessId, SharedMachine, lock};
use crate::vfs_ops::{OpenMode, SqliteCode, VfsResult};
use io::OpenFile;
use rusqlite::ffi;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use seed::seed_sqlite;

/// The maximum length of a file name in bytes.
const NAME_MAX: c_int = 512;

/// The start of 1970 as a Julian day, in milliseconds.
const JULIAN_1970: i64 = 210_866_760_000_000;
const DAY: f64 = 86_400_000.0;

/// The process that a VFS serves.
#[derive(Clone)]
pub(crate) struct VfsProcess {
    pub(crate) machine: SharedMachine,
    pub(crate) id: ProcessId,
}

/// An SQLite VFS for one process.
pub(crate) struct RegisteredVfs {
    slot: &'static VfsSlot,
}

/// An entry in SQLite's list of VFSs.
struct VfsSlot {
    name: CString,
    vfs: AtomicPtr<ffi::sqlite3_vfs>,
    served_process: Mutex<Option<VfsProcess>>,
}

impl RegisteredVfs {
    /// Registers a VFS for the process.
    pub(crate) fn new(process: VfsProcess) -> Self {
        let mut withdrawn = unregistered_slots();
        let free = withdrawn.iter().rposition(|slot| slot.free_if_idle());
        let slot = free.map_or_else(VfsSlot::new, |free| withdrawn.swap_remove(free));
        *slot.lock_served_process() = Some(process);
        // SAFETY: `VfsSlot::new` created the VFS, which is complete and never freed. SQLite synchronises its list itself.
        let code = unsafe { ffi::sqlite3_vfs_register(slot.vfs.load(Ordering::Relaxed), 0) };
        assert_eq!(code, ffi::SQLITE_OK, "SQLite takes any VFS that has a name");
        Self { slot }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.slot.name.to_str().expect("the name is made of letters and digits")
    }

    /// Unregisters the name, so no new connection can use it. Open connections keep working.
    pub(crate) fn unregister_vfs(&self) {
        // SAFETY: the VFS is registered and never freed.
        let code = unsafe { ffi::sqlite3_vfs_unregister(self.slot.vfs.load(Ordering::Relaxed)) };
        assert_eq!(code, ffi::SQLITE_OK, "SQLite knows every VFS that is registered");
        self.slot.free_if_idle();
        unregistered_slots().push(self.slot);
    }
}

/// The slots whose mounts are gone.
fn unregistered_slots() -> MutexGuard<'static, Vec<&'static VfsSlot>> {
    static WITHDRAWN: Mutex<Vec<&'static VfsSlot>> = Mutex::new(Vec::new());
    WITHDRAWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl VfsSlot {
    fn new() -> &'static Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("outlast-disk-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name).expect("the name has no zero byte");
        let slot: &'static Self = Box::leak(Box::new(Self {
            name,
            vfs: AtomicPtr::new(ptr::null_mut()),
            served_process: Mutex::new(None),
        }));
        let vfs = Box::leak(Box::new(ffi::sqlite3_vfs {
            iVersion: 2,
            szOsFile: c_int::try_from(size_of::<OpenFile>()).expect("a few words"),
            mxPathname: NAME_MAX,
            pNext: ptr::null_mut(),
            zName: slot.name.as_ptr(),
            pAppData: ptr::from_ref(slot).cast_mut().cast(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xDlOpen: Some(dl_open),
            xDlError: Some(dl_error),
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: None,
            xCurrentTimeInt64: Some(current_time_int64),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        }));
        slot.vfs.store(vfs, Ordering::Relaxed);
        slot
    }

    fn lock_served_process(&self) -> MutexGuard<'_, Option<VfsProcess>> {
        self.served_process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the process, whose mount is gone, if it has no open connections. Returns whether the slot is free.
    fn free_if_idle(&self) -> bool {
        let mut serves = self.lock_served_process();
        serves.take_if(|process| lock(&process.machine).remove_if_closed(process.id));
        serves.is_none()
    }
}

/// Converts an answer to an SQLite result code.
fn to_sqlite_code(ask: impl FnOnce() -> VfsResult) -> c_int {
    ask().map_or_else(|SqliteCode(code)| code, |()| ffi::SQLITE_OK)
}

/// Converts a number from SQLite that is never negative.
fn number<T: TryInto<usize>>(value: T) -> VfsResult<usize> {
    value.try_into().map_err(|_| SqliteCode(ffi::SQLITE_IOERR))
}

/// Returns the process of a VFS.
///
/// # Safety
/// `vfs` was created by `VfsSlot::new`.
unsafe fn process(vfs: *mut ffi::sqlite3_vfs) -> VfsResult<VfsProcess> {
    // SAFETY: `VfsSlot::new` stored a slot there that is never freed, and only shared references to it exist.
    let slot = unsafe { &*(*vfs).pAppData.cast::<VfsSlot>() };
    slot.lock_served_process().clone().ok_or(SqliteCode(ffi::SQLITE_IOERR))
}

/// Returns the name of a file.
///
/// # Safety
/// `name` is a NUL-terminated string that does not change during `'a`.
unsafe fn text<'a>(name: *const c_char) -> VfsResult<&'a str> {
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| SqliteCode(ffi::SQLITE_CANTOPEN))
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    let file = file.cast::<OpenFile>();
    // SAFETY: SQLite provides `szOsFile` bytes, which is the size of an `OpenFile`.
    unsafe { file.write(OpenFile::closed()) };
    to_sqlite_code(|| {
        // SAFETY: SQLite passes our own VFS.
        let process = unsafe { process(vfs) }?;
        let temporary = name.is_null() || flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0;
        // SAFETY: a name that is not null is a string that SQLite keeps while the file is open.
        let name = if temporary { None } else { Some(unsafe { text(name) }?) };
        let how = match (flags & ffi::SQLITE_OPEN_CREATE != 0, flags & ffi::SQLITE_OPEN_EXCLUSIVE != 0) {
            (true, true) => OpenMode::CreateNew,
            (true, false) => OpenMode::OpenOrCreate,
            (false, _) => OpenMode::Existing,
        };
        let id = lock(&process.machine).open_file(process.id, name, how)?;
        // SAFETY: as above. `flags_out` is null or points to a `c_int`.
        unsafe {
            file.write(OpenFile::of(process.machine, id));
            if let Some(flags_out) = flags_out.as_mut() {
                *flags_out = flags;
            }
        }
        Ok(())
    })
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, _sync_folder: c_int) -> c_int {
    to_sqlite_code(|| {
        // SAFETY: SQLite passes our own VFS and a name.
        let (process, name) = unsafe { (process(vfs)?, text(name)?) };
        lock(&process.machine).delete(process.id, name)
    })
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    question: c_int,
    answer: *mut c_int,
) -> c_int {
    to_sqlite_code(|| {
        // SAFETY: SQLite passes our own VFS and a name.
        let (process, name) = unsafe { (process(vfs)?, text(name)?) };
        let machine = lock(&process.machine);
        let is = if question == ffi::SQLITE_ACCESS_EXISTS {
            machine.exists(process.id, name)?
        } else {
            machine.is_writable(process.id, name)?
        };
        // SAFETY: SQLite provides a place for the answer.
        unsafe { *answer = c_int::from(is) };
        Ok(())
    })
}

/// Returns the name unchanged, because there are no directories.
unsafe extern "C" fn full_pathname(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    capacity: c_int,
    into: *mut c_char,
) -> c_int {
    to_sqlite_code(|| {
        // SAFETY: SQLite passes a NUL-terminated string.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
        if name.len() > number(capacity)? {
            return Err(SqliteCode(ffi::SQLITE_CANTOPEN));
        }
        // SAFETY: `into` has room for `capacity` bytes, and does not overlap `name`.
        unsafe { ptr::copy_nonoverlapping(name.as_ptr().cast(), into, name.len()) };
        Ok(())
    })
}

/// Fails, because extensions are not supported.
unsafe extern "C" fn dl_open(_: *mut ffi::sqlite3_vfs, _: *const c_char) -> *mut c_void {
    ptr::null_mut()
}

unsafe extern "C" fn dl_error(_: *mut ffi::sqlite3_vfs, capacity: c_int, into: *mut c_char) {
    if capacity > 0 {
        // SAFETY: there is room for the NUL of an empty string.
        unsafe { *into = 0 };
    }
}

/// Returns zeros. SQLite uses only its default VFS for randomness, and this is not the default.
unsafe extern "C" fn randomness(_: *mut ffi::sqlite3_vfs, amount: c_int, into: *mut c_char) -> c_int {
    let Ok(count) = number(amount) else { return 0 };
    // SAFETY: SQLite provides `amount` bytes.
    unsafe { into.write_bytes(0, count) };
    amount
}

/// Returns at once. On one thread, a file that is busy now is still busy after any sleep.
unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    microseconds
}

unsafe extern "C" fn current_time_int64(vfs: *mut ffi::sqlite3_vfs, now: *mut i64) -> c_int {
    to_sqlite_code(|| {
        // SAFETY: SQLite passes our own VFS.
        let time = lock(&unsafe { process(vfs) }?.machine).time;
        // SAFETY: SQLite provides a place for the time.
        unsafe { *now = JULIAN_1970.saturating_add(time) };
        Ok(())
    })
}

#[allow(clippy::cast_precision_loss, reason = "a time of day to the microsecond is all that a double holds")]
unsafe extern "C" fn current_time(vfs: *mut ffi::sqlite3_vfs, now: *mut f64) -> c_int {
    let mut millis = 0_i64;
    // SAFETY: SQLite passed the VFS, and both times have a place.
    unsafe {
        let code = current_time_int64(vfs, &raw mut millis);
        *now = millis as f64 / DAY;
        code
    }
}
