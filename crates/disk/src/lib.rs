//! A disk that exists only in memory, on which the real SQLite runs. Every change to it is counted, can fail, and can be
//! cut by a crash, so that a test can try all of them.
//!
//! [`Disk`] is the disk with the machine it is in; [`Disk::mount`] starts a process there, a [`Mount`], whose name is
//! given to SQLite as the VFS. Everything is decided by the caller: there is no randomness, no clock and no thread in
//! here, so the same calls give the same disk. (SQLite's own random numbers are the exception; they are in the salts of
//! its log. [`seed_sqlite`] repeats them too.)
//!
//! ```
//! use outlast_disk::{Death, Disk, Fate};
//! use rusqlite::{Connection, OpenFlags};
//!
//! let disk = Disk::new();
//! let mount = disk.mount();
//! let conn = Connection::open_with_flags_and_vfs("app.db", OpenFlags::default(), mount.vfs())?;
//! conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE notes (text)")?;
//!
//! // The process dies in the middle of the next commit, then the power goes and takes with it what was not synced.
//! mount.die_at(mount.changes() + 1, Death::Before);
//! assert!(conn.execute("INSERT INTO notes VALUES ('lost')", []).is_err());
//! disk.lose_power(&mut |_| Fate::Dropped);
//!
//! let mount = disk.mount();
//! let conn = Connection::open_with_flags_and_vfs("app.db", OpenFlags::default(), mount.vfs())?;
//! assert_eq!(conn.query_row("SELECT count(*) FROM notes", [], |row| row.get(0)), Ok(0));
//! # Ok::<(), rusqlite::Error>(())
//! ```
//!
//! # What is modelled
//!
//! - **Processes.** All mounts of a disk share files, SQLite's locks and the memory of its WAL mode. A process that is
//!   killed loses its locks and none of its writes.
//! - **Power loss.** Each write and truncate since the last sync of its file is kept, dropped or torn at sectors of 512
//!   bytes, independently of the others and so in any order.
//! - **Errors.** A change fails once or from there on, with the code that SQLite's own VFS on Unix would give.
//! - **Failed syncs, as on Linux.** The pages count as clean afterwards: everybody goes on reading what was written, but
//!   no later sync makes it durable, even one that succeeds. Only what is written anew can become durable.
//! - **A full disk.** The part of a write that has room arrives, the rest is `SQLITE_FULL`.
//!
//! # What is not
//!
//! - Creating and deleting a file is durable at once, as if every folder were synced with it. There are no folders.
//! - A sector holds the old bytes or the new, never garbage, and bytes beside a write do not change
//!   (`SQLITE_IOCAP_POWERSAFE_OVERWRITE`, which SQLite assumes on Unix). A file whose length arrived before its bytes is
//!   seen only where a later write of it was kept: the gap is zeros.
//! - Pages of a failed sync never fall out of the system's memory while it runs; they are lost only with the power.
//! - Reads, locks and shared memory do not fail while the process lives. Memory-mapped files are not offered.
//! - What a process half wrote to the shared memory when it died: SQLite tidies up when it hears of the error, and until
//!   it has, no other process may write (see [`Mount::kill`]).
mod disk;
mod faults;
mod file;
mod locks;
mod machine;
mod mount;
mod ops;
mod shm;
mod vfs;

pub use disk::{Disk, Snapshot};
pub use faults::{Death, Failure};
pub use file::{Fate, Unsynced, What};
pub use mount::Mount;
pub use vfs::seed_sqlite;
