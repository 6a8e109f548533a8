//! SQLite's own random numbers, made to repeat.
use super::number;
use rusqlite::ffi;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{ptr, slice};

/// Lets SQLite's own random numbers, such as the salts of its logs, begin anew from this seed. They belong to the whole
/// program, so a run repeats only if no other thread uses SQLite meanwhile.
pub fn seed_sqlite(seed: u64) {
    static SEEDER: Mutex<Option<AtomicPtr<ffi::sqlite3_vfs>>> = Mutex::new(None);
    let mut seeder = SEEDER.lock().unwrap_or_else(PoisonError::into_inner);
    let seeder = seeder.get_or_insert_with(new_seeder).load(Ordering::Relaxed);
    SEED.store(seed, Ordering::Relaxed);
    // SQLite asks its default VFS for a seed, so ours is that for a moment. Whoever opens a file in this moment gets the
    // system's, because ours differs from it in nothing else.
    let mut first = 0_u8;
    // SAFETY: the VFS is complete and never freed, SQLite guards its list and its generator itself, and there is a place
    // for the one byte that is drawn to have it seeded.
    unsafe {
        ffi::sqlite3_vfs_register(seeder, 1);
        ffi::sqlite3_randomness(0, ptr::null_mut());
        ffi::sqlite3_randomness(1, (&raw mut first).cast());
        ffi::sqlite3_vfs_unregister(seeder);
    }
}

static SEED: AtomicU64 = AtomicU64::new(0);

/// The system's VFS with our randomness.
fn new_seeder() -> AtomicPtr<ffi::sqlite3_vfs> {
    // SAFETY: SQLite has a default VFS once it is initialised, which is never freed and complete; a copy of it that is
    // never freed either works like it.
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
    // SAFETY: SQLite gives us `amount` bytes, which are written before they are a slice.
    let into = unsafe {
        into.write_bytes(0, count);
        slice::from_raw_parts_mut(into.cast::<u8>(), count)
    };
    for (byte, seed) in into.iter_mut().zip(seed) {
        *byte = seed;
    }
    amount
}
