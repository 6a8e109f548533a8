//! How a database file is opened, and what is refused.
//!
//! The file itself is only ever opened by SQLite. A second descriptor of ours would, when closed, drop the locks that
//! SQLite holds on it for the whole process; so everything here asks for metadata, never for the file.
use crate::error::failure;
use crate::schema;
use crate::sqlite::Options;
use outlast_vocab::{Error, Kind};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Older versions can damage a database in WAL mode.
const SQLITE_LEAST: i32 = 3_051_003;

/// Prepared statements that a connection keeps: all of ours.
const STATEMENTS_KEPT: usize = 96;

/// Kibibytes of pages that a connection may keep; SQLite reads a negative number as that.
const WRITER_CACHE: i64 = -8_192;
const READER_CACHE: i64 = -1_024;

/// Where a database is.
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    /// The name under which SQLite knows a disk that is not the system's.
    pub(crate) disk: Option<String>,
}

impl Place {
    fn open(&self, access: OpenFlags) -> rusqlite::Result<Connection> {
        // Each connection belongs to one thread at a time.
        let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        match &self.disk {
            None => Connection::open_with_flags(&self.path, flags),
            Some(disk) => Connection::open_with_flags_and_vfs(&self.path, flags, disk.as_str()),
        }
    }

    /// The bytes that the database takes: its file and its log.
    pub(crate) fn bytes(&self) -> u64 {
        file_bytes(&self.path) + file_bytes(&beside(&self.path, "-wal"))
    }
}

/// Opens the file for the writer: creates it, brings its schema up to date, or refuses it without a change.
pub(crate) fn writer(place: &Place, options: &Options) -> Result<Connection, Error> {
    let path = &place.path;
    assert!(
        rusqlite::version_number() >= SQLITE_LEAST,
        "SQLite {} is linked, but 3.51.3 or newer is needed",
        rusqlite::version()
    );
    if place.disk.is_none() {
        check_place(path)?;
    }
    let mut conn = place
        .open(OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)
        .map_err(|cause| cannot_open(place, cause))?;
    // A file that is refused must not change, so what its log holds stays there when we close it.
    checkpoint_on_close(&conn, false)?;
    let prepared = prepare(&mut conn, place, options);
    if prepared.is_err() && file_bytes(&beside(path, "-wal")) == 0 {
        checkpoint_on_close(&conn, true)?;
    }
    prepared.map(|()| conn)
}

fn prepare(conn: &mut Connection, place: &Place, options: &Options) -> Result<(), Error> {
    let path = &place.path;
    conn.busy_timeout(options.busy_timeout).map_err(failure)?;
    if conn.is_readonly("main").map_err(failure)? {
        let detail = format!("{} can be read but not written by this user", path.display());
        return Err(Error::new(Kind::StoreReadOnly, detail));
    }
    schema::check(conn, path).map_err(|error| named(path, error))?;
    if place.disk.is_none() {
        make_private(path)?;
    }
    write_ahead(conn, place, options.busy_timeout)?;
    let synchronous = if options.unsafe_durability { "NORMAL" } else { "FULL" };
    set(conn, "synchronous", synchronous)?;
    set(conn, "foreign_keys", "ON")?;
    set(conn, "cache_size", WRITER_CACHE)?;
    keep_to_memory(conn)?;
    // Checkpoints are the writer's business, at a time that suits it.
    conn.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(())).map_err(failure)?;
    keep_statements(conn)?;
    schema::migrate(conn, path)?;
    begin_log_anew(conn, options.busy_timeout)
}

/// Moves what an earlier process left in the log into the file, so that ours begins anew.
///
/// After a sync that failed the system may show frames of the log that are not on the disk, and a later sync does not
/// bring them there. SQLite takes them for committed when it recovers the log; whatever we wrote behind them would be
/// lost with them, acknowledged or not. Another process that lives on the same file knows its own log: then it stays.
///
/// The disk may still hold the old log without those frames, and would put it over the newer file when power is lost. A first
/// commit of ours gives the log another beginning, on the disk too, before anybody is told what was read from the file.
fn begin_log_anew(conn: &Connection, busy_timeout: Duration) -> Result<(), Error> {
    conn.busy_timeout(Duration::ZERO).map_err(failure)?;
    let moved = conn.query_one("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(failure);
    let moved = moved.and_then(|()| {
        let version: i64 = conn.query_one("PRAGMA user_version", [], |row| row.get(0)).map_err(failure)?;
        set(conn, "user_version", version)
    });
    conn.busy_timeout(busy_timeout).map_err(failure)?;
    match moved {
        // What is there can still be read.
        Err(error) if matches!(error.kind(), Kind::StoreFull | Kind::StoreBusy) => Ok(()),
        moved => moved,
    }
}

/// Opens the file for a reader. The writer has opened it before, so it exists and has our schema.
pub(crate) fn reader(place: &Place, busy_timeout: Duration) -> Result<Connection, Error> {
    let conn = place.open(OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failure)?;
    checkpoint_on_close(&conn, false)?;
    conn.busy_timeout(busy_timeout).map_err(failure)?;
    set(&conn, "cache_size", READER_CACHE)?;
    keep_to_memory(&conn)?;
    keep_statements(&conn)?;
    Ok(conn)
}

/// What SQLite would put into temporary files stays in memory: no conversation lies about in another folder, and no unit
/// fails because such a file could not be made. What one holds is bounded as units and pages are.
fn keep_to_memory(conn: &Connection) -> Result<(), Error> {
    set(conn, "temp_store", "MEMORY")
}

/// Statements are prepared once. Without the planner's stability, SQLite prepares a statement again whenever a bound
/// value could have changed its plan, which costs more than running it.
fn keep_statements(conn: &Connection) -> Result<(), Error> {
    conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(failure)?;
    Ok(())
}

/// Whether the last connection to close moves the log into the file and removes it.
pub(crate) fn checkpoint_on_close(conn: &Connection, on: bool) -> Result<(), Error> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !on).map_err(failure)?;
    Ok(())
}

/// The file with the database's name and an ending of its own.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn file_bytes(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}

fn set(conn: &Connection, name: &str, value: impl rusqlite::ToSql) -> Result<(), Error> {
    conn.pragma_update(None, name, value).map_err(failure)
}

/// Says what SQLite would only call "unable to open".
fn check_place(path: &Path) -> Result<(), Error> {
    if path.is_dir() {
        return Err(Error::new(Kind::IoFailed, format!("{} is a directory, not a database", path.display())));
    }
    match path.parent() {
        Some(parent) if !parent.is_dir() => {
            let detail = format!("{} cannot be opened: {} is no directory", path.display(), parent.display());
            Err(Error::new(Kind::IoFailed, detail))
        }
        _ => Ok(()),
    }
}

/// An error on the way to the first byte, with the path that SQLite leaves out.
fn named(path: &Path, error: Error) -> Error {
    match error.kind() {
        Kind::StoreCorrupt | Kind::IoFailed if !error.detail().starts_with(&*path.to_string_lossy()) => {
            Error::new(error.kind(), format!("{}: {}", path.display(), error.detail())).because(error)
        }
        _ => error,
    }
}

/// SQLite says only that it cannot open a file; what the system says to a neighbour of it tells why.
fn cannot_open(place: &Place, cause: rusqlite::Error) -> Error {
    if cause.sqlite_error_code() != Some(ErrorCode::CannotOpen) {
        return failure(cause);
    }
    let path = &place.path;
    let kind = if place.disk.is_some() { Kind::IoFailed } else { why_not(path) };
    Error::new(kind, format!("{} cannot be opened: {cause}", path.display())).because(cause)
}

fn why_not(path: &Path) -> Kind {
    let probe = beside(path, "-probe");
    let asked = OpenOptions::new().write(true).create_new(true).open(&probe);
    if asked.is_ok() {
        // It was only a question; if the answer stays behind, nobody is hurt.
        let _removed = fs::remove_file(&probe);
    }
    asked.map_or_else(|refused| refusal(&refused), |_| Kind::IoFailed)
}

/// What it means that the system refuses to make a file.
pub(crate) fn refusal(cause: &io::Error) -> Kind {
    match cause.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Kind::StoreReadOnly,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::StoreFull,
        _ => Kind::IoFailed,
    }
}

/// A new database holds conversations and a secret: it is its owner's alone. The log and its index get the same rights.
#[cfg(unix)]
fn make_private(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    if file_bytes(path) > 0 {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(|cause| {
        Error::new(Kind::IoFailed, format!("{} cannot be made private: {cause}", path.display()))
            .because(cause)
    })
}

#[cfg(not(unix))]
fn make_private(_: &Path) -> Result<(), Error> {
    Ok(())
}

/// Turns the write-ahead log on. While two processes do that to a new file at once, SQLite calls it busy without waiting
/// as it was told to, so we wait.
fn write_ahead(conn: &Connection, place: &Place, patience: Duration) -> Result<(), Error> {
    let begun = Instant::now();
    loop {
        let set = conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match set.map_err(|cause| cannot_open(place, cause)) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let detail = format!(
                    "the file system of {} does not carry a write-ahead log (SQLite stays with `{mode}`)",
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
