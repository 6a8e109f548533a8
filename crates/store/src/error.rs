//! Maps SQLite errors to Outlast errors.
use outlast_vocab::{Error, Failure, Kind};
use rusqlite::{ErrorCode, ffi};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Converts an error of SQLite.
pub(crate) fn from_sqlite(cause: rusqlite::Error) -> Error {
    let (kind, what) = kind_of(&cause);
    Error::new(kind, format!("{what}: {cause}")).because(cause)
}

fn kind_of(cause: &rusqlite::Error) -> (Kind, &'static str) {
    use rusqlite::Error as Cause;
    match cause {
        Cause::SqliteFailure(code, _) => match code.code {
            ErrorCode::DiskFull => (Kind::StoreFull, "the database cannot grow"),
            // The first process that opens the database creates the index of the log anew, and the index
            // grows with the log.
            _ if code.extended_code == ffi::SQLITE_IOERR_SHMSIZE => {
                (Kind::StoreFull, "no space for the index of the write-ahead log")
            }
            ErrorCode::SystemIoFailure => (Kind::StoreFailed, "a disk operation failed"),
            ErrorCode::DatabaseCorrupt => (Kind::StoreCorrupt, "the database is damaged"),
            ErrorCode::NotADatabase => (Kind::StoreCorrupt, "the file is no SQLite database"),
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied => {
                (Kind::StoreReadOnly, "the database cannot be written")
            }
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
                (Kind::StoreBusy, "another process kept the database locked")
            }
            // The file could be opened before, so the system has no free descriptor or hides the directory
            // temporarily. `connect::cannot_open` gives more details when a database is first opened.
            ErrorCode::CannotOpen => {
                (Kind::StoreBusy, "the operating system could not open a file of the database")
            }
            ErrorCode::TooBig => (Kind::LimitExceeded, "a row is larger than SQLite allows"),
            _ => (Kind::Internal, "SQLite rejected a statement"),
        },
        Cause::FromSqlConversionFailure(..)
        | Cause::IntegralValueOutOfRange(..)
        | Cause::InvalidColumnType(..)
        | Cause::Utf8Error(..) => (Kind::StoreCorrupt, "a row has an unexpected format"),
        Cause::QueryReturnedNoRows => (Kind::StoreCorrupt, "a row that every database has is missing"),
        Cause::InvalidPath(_) | Cause::NulError(_) => (Kind::IoFailed, "the path cannot be opened"),
        _ => (Kind::Internal, "SQLite rejected a statement"),
    }
}

/// Runs work of a caller. A panic in it becomes an error for the caller and does not end the thread.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::new(Kind::Internal, format!("a unit of work panicked: {}", message(&*panic))))
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

/// Returns the error of every write after the store stopped because the disk failed.
pub(crate) fn store_stopped(first: &Failure) -> Failure {
    Failure::new(Kind::StoreFailed, format!("the store stopped after the disk failed: {first}"))
}

/// Returns the error for a thread of the store that ended early, which only a bug can cause.
pub(crate) fn thread_ended() -> Error {
    Error::new(Kind::Internal, "a thread of the store has ended before its queue")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sqlite_code_maps_to_one_kind() {
        let says = |code| from_sqlite(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)).kind();
        assert_eq!(says(ffi::SQLITE_FULL), Kind::StoreFull);
        assert_eq!(says(ffi::SQLITE_IOERR_SHMSIZE), Kind::StoreFull);
        assert_eq!(says(ffi::SQLITE_IOERR), Kind::StoreFailed);
        assert_eq!(says(ffi::SQLITE_IOERR_FSYNC), Kind::StoreFailed);
        assert_eq!(says(ffi::SQLITE_IOERR_SHORT_READ), Kind::StoreFailed);
        assert_eq!(says(ffi::SQLITE_CORRUPT), Kind::StoreCorrupt);
        assert_eq!(says(ffi::SQLITE_NOTADB), Kind::StoreCorrupt);
        assert_eq!(says(ffi::SQLITE_READONLY), Kind::StoreReadOnly);
        assert_eq!(says(ffi::SQLITE_READONLY_DIRECTORY), Kind::StoreReadOnly);
        assert_eq!(says(ffi::SQLITE_PERM), Kind::StoreReadOnly);
        assert_eq!(says(ffi::SQLITE_BUSY), Kind::StoreBusy);
        assert_eq!(says(ffi::SQLITE_BUSY_SNAPSHOT), Kind::StoreBusy);
        assert_eq!(says(ffi::SQLITE_PROTOCOL), Kind::StoreBusy);
        assert_eq!(says(ffi::SQLITE_CANTOPEN), Kind::StoreBusy);
        assert_eq!(says(ffi::SQLITE_TOOBIG), Kind::LimitExceeded);
        assert_eq!(says(ffi::SQLITE_CONSTRAINT_UNIQUE), Kind::Internal);
        let odd = rusqlite::Error::IntegralValueOutOfRange(3, -1);
        assert_eq!(
            from_sqlite(odd).to_string(),
            "store.corrupt: a row has an unexpected format: Integer -1 out of range at index 3"
        );
    }

    #[test]
    fn panic_becomes_an_error_with_its_message() {
        let error = catch_panic::<()>(|| panic!("seven {}", 8)).unwrap_err();
        assert_eq!(error.to_string(), "internal: a unit of work panicked: seven 8");
    }
}
