//! Opens a database file, or refuses it.
//!
//! Only SQLite opens the file itself. If we opened and closed a second descriptor, the process would drop all
//! locks that SQLite holds on the file. So this module reads metadata only, never the file.
use crate::error::from_sqlite;
use crate::schema;
use crate::sqlite::SqliteOptions;
use outlast_vocab::{Error, Kind};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The oldest safe version. Earlier ones can corrupt a database in WAL mode.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// Prepared statements that a connection caches: enough for all of ours.
const CACHED_STATEMENTS: usize = 96;

/// The page cache of a connection in kibibytes, which SQLite expects as a negative number.
const WRITER_CACHE: i64 = -8_192;
const READER_CACHE: i64 = -1_024;

/// The location of a database.
pub(crate) struct DatabaseLocation {
    pub(crate) path: PathBuf,
    /// The name of the SQLite VFS, if it is not the default one.
    pub(crate) vfs: Option<String>,
}

impl DatabaseLocation {
    fn open(&self, access: OpenFlags) -> rusqlite::Result<Connection> {
        // Only one thread at a time uses a connection.
        let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        match &self.vfs {
            None => Connection::open_with_flags(&self.path, flags),
            Some(disk) => Connection::open_with_flags_and_vfs(&self.path, flags, disk.as_str()),
        }
    }

    /// Returns the size of the database in bytes: its file and its log.
    pub(crate) fn bytes(&self) -> u64 {
        file_bytes(&self.path) + file_bytes(&sibling_path(&self.path, "-wal"))
    }
}

/// Opens the file for the writer. Creates it, migrates its schema, or refuses it without changing it.
pub(crate) fn writer(place: &DatabaseLocation, options: &SqliteOptions) -> Result<Connection, Error> {
    let path = &place.path;
    assert!(
        rusqlite::version_number() >= SQLITE_VERSION_MIN,
        "SQLite {} is linked, but 3.51.3 or newer is needed",
        rusqlite::version()
    );
    if place.vfs.is_none() {
        check_location(path)?;
    }
    let mut conn = place
        .open(OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)
        .map_err(|cause| cannot_open(place, cause))?;
    // A refused file must not change, so its log must not be checkpointed when we close it.
    checkpoint_on_close(&conn, false)?;
    let prepared = prepare(&mut conn, place, options);
    if prepared.is_err() && file_bytes(&sibling_path(path, "-wal")) == 0 {
        checkpoint_on_close(&conn, true)?;
    }
    prepared.map(|()| conn)
}

fn prepare(conn: &mut Connection, place: &DatabaseLocation, options: &SqliteOptions) -> Result<(), Error> {
    let path = &place.path;
    conn.busy_timeout(options.busy_timeout).map_err(from_sqlite)?;
    if conn.is_readonly("main").map_err(from_sqlite)? {
        let detail = format!("{} can be read but not written by this user", path.display());
        return Err(Error::new(Kind::StoreReadOnly, detail));
    }
    schema::check(conn, path).map_err(|error| with_path(path, error))?;
    if place.vfs.is_none() {
        make_private(path)?;
    }
    enable_wal(conn, place, options.busy_timeout)?;
    let synchronous = if options.unsafe_durability { "NORMAL" } else { "FULL" };
    set(conn, "synchronous", synchronous)?;
    set(conn, "foreign_keys", "ON")?;
    set(conn, "cache_size", WRITER_CACHE)?;
    keep_temp_in_memory(conn)?;
    // The writer decides when to checkpoint.
    conn.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(())).map_err(from_sqlite)?;
    cache_statements(conn)?;
    schema::migrate(conn, path)?;
    reset_wal(conn, options.busy_timeout)
}

/// Checkpoints the log that an earlier process left, so that our log starts empty.
///
/// After a failed sync, the system may show log frames that are not on the disk, and a later sync does not
/// write them. When SQLite recovers the log, it treats these frames as committed. Anything we wrote after
/// them would be lost with them, acknowledged or not. If another process has the file open, it knows its own
/// log, and the log stays.
///
/// The disk may still hold the old log without those frames, and would apply it over the newer file after a
/// power loss. Our first commit changes the header of the log on disk, before we return anything that was
/// read from the file.
fn reset_wal(conn: &Connection, busy_timeout: Duration) -> Result<(), Error> {
    conn.busy_timeout(Duration::ZERO).map_err(from_sqlite)?;
    let moved = conn.query_one("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(from_sqlite);
    let moved = moved.and_then(|()| {
        let version: i64 =
            conn.query_one("PRAGMA user_version", [], |row| row.get(0)).map_err(from_sqlite)?;
        set(conn, "user_version", version)
    });
    conn.busy_timeout(busy_timeout).map_err(from_sqlite)?;
    match moved {
        // The database can still be read.
        Err(error) if matches!(error.kind(), Kind::StoreFull | Kind::StoreBusy) => Ok(()),
        moved => moved,
    }
}

/// Opens the file for a reader. The writer has opened it before, so it exists and has our schema.
pub(crate) fn reader(place: &DatabaseLocation, busy_timeout: Duration) -> Result<Connection, Error> {
    let conn = place.open(OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(from_sqlite)?;
    checkpoint_on_close(&conn, false)?;
    conn.busy_timeout(busy_timeout).map_err(from_sqlite)?;
    set(&conn, "cache_size", READER_CACHE)?;
    keep_temp_in_memory(&conn)?;
    cache_statements(&conn)?;
    Ok(conn)
}

/// Keeps SQLite's temporary data in memory. So no conversation is written to another directory, and no unit
/// fails because a temporary file cannot be created. Units and pages limit the size of this data.
fn keep_temp_in_memory(conn: &Connection) -> Result<(), Error> {
    set(conn, "temp_store", "MEMORY")
}

/// Caches prepared statements. Without the planner's stability guarantee, SQLite prepares a statement again
/// whenever a bound value could change its plan, which costs more than running it.
fn cache_statements(conn: &Connection) -> Result<(), Error> {
    conn.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(from_sqlite)?;
    Ok(())
}

/// Sets whether the last connection to close checkpoints the log and removes it.
pub(crate) fn checkpoint_on_close(conn: &Connection, on: bool) -> Result<(), Error> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !on).map_err(from_sqlite)?;
    Ok(())
}

/// Returns the path of a file with the database's name and an additional suffix.
pub(crate) fn sibling_path(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn file_bytes(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}

fn set(conn: &Connection, name: &str, value: impl rusqlite::ToSql) -> Result<(), Error> {
    conn.pragma_update(None, name, value).map_err(from_sqlite)
}

/// Returns a specific error where SQLite would only say "unable to open".
fn check_location(path: &Path) -> Result<(), Error> {
    if path.is_dir() {
        return Err(Error::new(Kind::IoFailed, format!("{} is a directory, not a database", path.display())));
    }
    match path.parent() {
        Some(parent) if !parent.is_dir() => {
            let detail =
                format!("{} cannot be opened: {} is not a directory", path.display(), parent.display());
            Err(Error::new(Kind::IoFailed, detail))
        }
        _ => Ok(()),
    }
}

/// Adds the path, which SQLite omits, to an error of opening the file.
fn with_path(path: &Path, error: Error) -> Error {
    match error.kind() {
        Kind::StoreCorrupt | Kind::IoFailed if !error.detail().starts_with(&*path.to_string_lossy()) => {
            Error::new(error.kind(), format!("{}: {}", path.display(), error.detail())).because(error)
        }
        _ => error,
    }
}

/// Explains why SQLite cannot open a file. SQLite does not say why, so we try to create a file next to it.
fn cannot_open(place: &DatabaseLocation, cause: rusqlite::Error) -> Error {
    if cause.sqlite_error_code() != Some(ErrorCode::CannotOpen) {
        return from_sqlite(cause);
    }
    let path = &place.path;
    let kind = if place.vfs.is_some() { Kind::IoFailed } else { open_failure_kind(path) };
    Error::new(kind, format!("{} cannot be opened: {cause}", path.display())).because(cause)
}

fn open_failure_kind(path: &Path) -> Kind {
    let probe = sibling_path(path, "-probe");
    let asked = OpenOptions::new().write(true).create_new(true).open(&probe);
    if asked.is_ok() {
        // The file was only a probe. If it stays behind, it does no harm.
        let _removed = fs::remove_file(&probe);
    }
    asked.map_or_else(|refused| io_error_kind(&refused), |_| Kind::IoFailed)
}

/// Maps the system's error of creating a file to a kind.
pub(crate) fn io_error_kind(cause: &io::Error) -> Kind {
    match cause.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Kind::StoreReadOnly,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::StoreFull,
        _ => Kind::IoFailed,
    }
}

/// Makes a new database readable by its owner only, because it holds conversations and a secret. The log and
/// its index get the same permissions.
#[cfg(unix)]
fn make_private(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    if file_bytes(path) > 0 {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(|cause| {
        Error::new(
            Kind::IoFailed,
            format!("{} cannot be made accessible only to its owner: {cause}", path.display()),
        )
        .because(cause)
    })
}

#[cfg(not(unix))]
fn make_private(_: &Path) -> Result<(), Error> {
    Ok(())
}

/// Enables the write-ahead log. If two processes do this to a new file at once, SQLite returns busy without
/// the configured wait, so we wait here.
fn enable_wal(conn: &Connection, place: &DatabaseLocation, patience: Duration) -> Result<(), Error> {
    let begun = Instant::now();
    loop {
        let set = conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match set.map_err(|cause| cannot_open(place, cause)) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let detail = format!(
                    "the file system of {} does not support a write-ahead log (SQLite uses `{mode}`)",
                    place.path.display()
                );
                return Err(Error::new(Kind::IoFailed, detail));
            }
            Err(busy) if busy.kind() == Kind::StoreBusy && begun.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error),
        }
    }
}
