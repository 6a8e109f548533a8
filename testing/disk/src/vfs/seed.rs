//! Makes SQLite's own random numbers repeatable.
use super::number;
use rusqlite::ffi;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{ptr, slice};

/// Restarts SQLite's own random numbers, such as the salts of its logs, from this seed. They are global to the program,
/// so a run is repeatable only if no other thread uses SQLite meanwhile.
pub fn seed_sqlite(seed: u64) {
    static SEEDER: Mutex<Option<AtomicPtr<ffi::sqlite3_vfs>>> = Mutex::new(None);
    let mut seeder = SEEDER.lock().unwrap_or_else(PoisonError::into_inner);
    let seeder = seeder.get_or_insert_with(new_seeder).load(Ordering::Relaxed);
    SEED.store(seed, Ordering::Relaxed);
    // SQLite asks its default VFS for a seed, so this VFS is the default for a moment. A file opened in this moment
    // uses the system's VFS, because this VFS differs from it only in its randomness.
    let mut first = 0_u8;
    // SAFETY: the VFS is complete and never freed. SQLite synchronises its VFS list and its random generator itself.
    // `first` has room for the one byte that triggers the seeding.
    unsafe {
        ffi::sqlite3_vfs_register(seeder, 1);
        ffi::sqlite3_randomness(0, ptr::null_mut());
        ffi::sqlite3_randomness(1, (&raw mut first).cast());
        ffi::sqlite3_vfs_unregister(seeder);
    }
}

static SEED: AtomicU64 = AtomicU64::new(0);

/// Creates a copy of the system's VFS with seeded randomness.
fn new_seeder() -> AtomicPtr<ffi::sqlite3_vfs> {
    // SAFETY: after initialisation, SQLite has a default VFS that is complete and never freed. A copy that is never
    // freed either works the same.
    unsafe {
        ffi::sqlite3_initialize();
        let mut vfs = *ffi::sqlite3_vfs_find(ptr::null());
        vfs.zName = c"outlast-disk-seeder".as_ptr();
        vfs.xRandomness = Some(seeded_randomness);
        AtomicPtr::new(Box::leak(Box::new(vfs)))
    }
}

unsafe extern "C" fn seeded_randomness(_: *mut ffi::sqlite3_vfs, amount: c_int, into: *mut c_char) -> c_int {
    let Ok(count) = number(amount) else { return 0 };
    let seed = SEED.load(Ordering::Relaxed).to_le_bytes();
    // SAFETY: SQLite provides `amount` bytes, which are initialised before they become a slice.
    let into = unsafe {
        into.write_bytes(0, count);
        slice::from_raw_parts_mut(into.cast::<u8>(), count)
    };
    for (byte, seed) in into.iter_mut().zip(seed) {
        *byte = seed;
    }
    amount
}
