//! An in-memory disk under the real SQLite. Every change is counted, can fail, and can be interrupted by a crash, so a
//! test can try all of these cases.
//!
//! A [`Disk`] is the disk with its machine. [`Disk::mount`] starts a process on the machine, a [`Mount`]. Pass the name
//! of the mount to SQLite as the VFS. The caller decides everything: this crate has no randomness, clock or threads, so
//! the same calls give the same disk. The only exception are SQLite's own random numbers, which it uses as salts in its
//! log. [`seed_sqlite`] makes those repeatable too.
//!
//! ```
//! use outlast_disk::{CrashMode, Disk, PowerLossEffect};
//! use rusqlite::{Connection, OpenFlags};
//!
//! let disk = Disk::new();
//! let mount = disk.mount();
//! let conn = Connection::open_with_flags_and_vfs("app.db", OpenFlags::default(), mount.vfs())?;
//! conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE notes (text)")?;
//!
//! // The process dies during the next commit. Then the power fails, and unsynced changes are lost.
//! mount.crash_at_change(mount.changes() + 1, CrashMode::Before);
//! assert!(conn.execute("INSERT INTO notes VALUES ('lost')", []).is_err());
//! disk.lose_power(&mut |_| PowerLossEffect::Dropped);
//!
//! let mount = disk.mount();
//! let conn = Connection::open_with_flags_and_vfs("app.db", OpenFlags::default(), mount.vfs())?;
//! assert_eq!(conn.query_row("SELECT count(*) FROM notes", [], |row| row.get(0)), Ok(0));
//! # Ok::<(), rusqlite::Error>(())
//! ```
//!
//! # What is modelled
//!
//! - **Processes.** All mounts of a disk share its files, SQLite's locks and the shared memory of its WAL mode. A
//!   killed process loses its locks, but not its writes.
//! - **Power loss.** Each write and truncate since the last sync of its file is kept, dropped or torn at sectors of 512
//!   bytes. The changes are independent, so they can be lost in any order.
//! - **Errors.** A change fails once or permanently, with the code that SQLite's own VFS on Unix would return.
//! - **Failed syncs, as on Linux.** The pages are marked clean afterwards. All processes still read what was written,
//!   but no later sync makes it durable, even if it succeeds. Only bytes that are written again can become durable.
//! - **A full disk.** The part of a write that fits is written. The rest fails with `SQLITE_FULL`.
//!
//! # What is not modelled
//!
//! - Creating and deleting a file is durable at once, as if the directory were synced too. There are no directories.
//! - A sector contains the old bytes or the new ones, never garbage, and bytes next to a write do not change
//!   (`SQLITE_IOCAP_POWERSAFE_OVERWRITE`, which SQLite assumes on Unix). If a file's length arrives before its bytes,
//!   that is visible only if a later write was kept: the gap is zeros.
//! - Pages of a failed sync are never evicted from the system's cache while it runs. Only a power loss drops them.
//! - Reads, locks and shared memory do not fail while the process runs. Memory-mapped files are not supported.
//! - Partial writes to the shared memory by a process that dies. SQLite cleans up when it gets the error, and until
//!   then no other process may write (see [`Mount::kill`]).
mod disk;
mod faults;
mod file;
mod file_locks;
mod machine;
mod mount;
mod vfs;
mod vfs_ops;
mod wal_shared_memory;

pub use disk::{Disk, DiskSnapshot};
pub use faults::{ChangeFailure, CrashMode};
pub use file::{PowerLossEffect, UnsyncedChange, UnsyncedChangeKind};
pub use mount::Mount;
pub use vfs::seed_sqlite;
