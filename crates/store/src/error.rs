//! The one table from what SQLite says to what Outlast says.
use outlast_vocab::{Error, Failure, Kind};
use rusqlite::{ErrorCode, ffi};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a failure of SQLite means.
pub(crate) fn failure(cause: rusqlite::Error) -> Error {
    let (kind, what) = meaning(&cause);
    Error::new(kind, format!("{what}: {cause}")).because(cause)
}

fn meaning(cause: &rusqlite::Error) -> (Kind, &'static str) {
    use rusqlite::Error as Cause;
    match cause {
        Cause::SqliteFailure(code, _) => match code.code {
            ErrorCode::DiskFull => (Kind::StoreFull, "the database cannot grow"),
            // The index of the log is made anew by whoever opens the database first, and grows with the log.
            _ if code.extended_code == ffi::SQLITE_IOERR_SHMSIZE => {
                (Kind::StoreFull, "there is no room for the index of the database's log")
            }
            ErrorCode::SystemIoFailure => (Kind::StoreFailed, "the disk did not do what it was told"),
            ErrorCode::DatabaseCorrupt => (Kind::StoreCorrupt, "the database is damaged"),
            ErrorCode::NotADatabase => (Kind::StoreCorrupt, "the file is no SQLite database"),
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied => {
                (Kind::StoreReadOnly, "the database cannot be written")
            }
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
                (Kind::StoreBusy, "another process kept the database locked")
            }
            // What was opened once is there: the system has no descriptor to spare, or hides the folder for a while. A first
            // opening says more (`connect::cannot_open`).
            ErrorCode::CannotOpen => (Kind::StoreBusy, "the system did not open a file of the database"),
            ErrorCode::TooBig => (Kind::LimitExceeded, "a row is larger than SQLite takes"),
            _ => (Kind::Internal, "SQLite refused a statement of ours"),
        },
        Cause::FromSqlConversionFailure(..)
        | Cause::IntegralValueOutOfRange(..)
        | Cause::InvalidColumnType(..)
        | Cause::Utf8Error(..) => (Kind::StoreCorrupt, "a row does not have the form it was written in"),
        Cause::QueryReturnedNoRows => (Kind::StoreCorrupt, "a row that every database has is missing"),
        Cause::InvalidPath(_) | Cause::NulError(_) => (Kind::IoFailed, "the path cannot be opened"),
        _ => (Kind::Internal, "SQLite refused a statement of ours"),
    }
}

/// Runs what somebody else wrote. A panic in it is an error for its caller, not the end of the thread.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::new(Kind::Internal, format!("a unit of work panicked: {}", message(&*panic))))
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

/// The store stopped because the disk failed; this is what every later write gets.
pub(crate) fn stopped(first: &Failure) -> Failure {
    Failure::new(Kind::StoreFailed, format!("the store stopped after the disk failed: {first}"))
}

/// A thread of the store is gone, which only a bug of ours can do.
pub(crate) fn gone() -> Error {
    Error::new(Kind::Internal, "a thread of the store has ended before its queue")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sqlite_says_has_one_meaning() {
        let says = |code| failure(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)).kind();
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
            failure(odd).to_string(),
            "store.corrupt: a row does not have the form it was written in: Integer -1 out of range at index 3"
        );
    }

    #[test]
    fn a_panic_is_an_error_that_says_what_it_said() {
        let error = caught::<()>(|| panic!("seven {}", 8)).unwrap_err();
        assert_eq!(error.to_string(), "internal: a unit of work panicked: seven 8");
    }
}
