//! Tests of opening a file: it is created, migrated, or refused without a change.
use crate::place::{Place, accept, open_session, sessions};
use outlast_ports::content_queries::ContentQueries;
use outlast_ports::journal::Journal;
use outlast_ports::queries::Queries;
use outlast_ports::store::Durability;
use outlast_store::{SqliteOptions, SqliteStore};
use outlast_vocab::{Error, Kind};
use rusqlite::Connection;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

fn refused(path: &Path) -> Error {
    SqliteStore::open(path).err().expect("the file is refused")
}

/// Asserts that a file is refused with this kind and message, and does not change.
fn check_refused(place: &Place, kind: Kind, message: &str) {
    let before = place.files();
    let error = refused(&place.path());
    assert_eq!(error.to_string().replace(place.folder().to_str().unwrap(), ""), message);
    assert_eq!(error.kind(), kind);
    assert!(before == place.files(), "a file changed or appeared");
}

#[tokio::test]
async fn acknowledged_writes_survive_reopening_the_store() {
    let place = Place::new();
    let store = place.open();
    let accepted = accept(&store, "hi", None).await.unwrap();
    drop(store);
    assert_eq!(place.files().keys().collect::<Vec<_>>(), ["outlast.db"]);
    let store = place.open();
    let records = store.records(accepted.session, outlast_vocab::record::Seq(0), usize::MAX).await.unwrap();
    assert_eq!(records.last().map(outlast_vocab::record::Record::place), Some(accepted.place));
    assert_eq!(store.verify(accepted.session).await.unwrap(), 2);
}

#[tokio::test]
async fn status_reports_engine_path_schema_and_size() {
    let place = Place::new();
    let store = place.open();
    let status = store.status().await.unwrap();
    assert_eq!(status.engine, format!("SQLite {}", rusqlite::version()));
    assert_eq!(status.place, place.path().display().to_string());
    assert_eq!((status.schema, status.durability), (9, Durability::PowerLoss));
    let files = place.files();
    assert_eq!(status.bytes, (files["outlast.db"].len() + files["outlast.db-wal"].len()) as u64);
}

#[tokio::test]
async fn weaker_durability_needs_unsafe_flag_and_is_shown() {
    let place = Place::new();
    let options = SqliteOptions { unsafe_durability: true, ..SqliteOptions::default() };
    let store = SqliteStore::open_with(&place.path(), options).unwrap();
    open_session(&store).await;
    assert_eq!(store.status().await.unwrap().durability, Durability::ProcessDeath);
    drop(store);
    let store = place.open();
    assert_eq!(store.status().await.unwrap().durability, Durability::PowerLoss);
    assert_eq!(sessions(&store).await, 1);
}

#[tokio::test]
async fn secret_is_created_once_per_database() {
    let place = Place::new();
    let first = place.open().secret().await.unwrap();
    assert_eq!(place.open().secret().await.unwrap(), first);
    assert_ne!(Place::new().open().secret().await.unwrap(), first);
}

#[cfg(unix)]
#[tokio::test]
async fn new_database_is_private_to_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let store = place.open();
    open_session(&store).await;
    for name in place.files().keys() {
        let mode = fs::metadata(place.folder().join(name)).unwrap().permissions().mode();
        assert_eq!((name.as_str(), mode & 0o777), (name.as_str(), 0o600));
    }
}

#[test]
fn newer_schema_is_refused_unchanged() {
    let place = Place::new();
    drop(place.open());
    let conn = Connection::open(place.path()).unwrap();
    conn.pragma_update(None, "user_version", 1_000).unwrap();
    drop(conn);
    check_refused(
        &place,
        Kind::StoreTooNew,
        "store.too_new: /outlast.db has schema 1000, but this program knows up to 9; nothing was written",
    );
}

#[test]
fn newer_schema_with_leftover_wal_is_refused_unchanged() {
    let place = Place::new();
    drop(place.open());
    let conn = Connection::open(place.path()).unwrap();
    conn.pragma_update(None, "user_version", 1_000).unwrap();
    let crashed = Place::new();
    for (name, bytes) in place.files() {
        fs::write(crashed.folder().join(name), bytes).unwrap();
    }
    drop(conn);
    let before = crashed.files();
    assert_eq!(refused(&crashed.path()).kind(), Kind::StoreTooNew);
    assert!(before["outlast.db"] == crashed.files()["outlast.db"]);
    assert!(before["outlast.db-wal"] == crashed.files()["outlast.db-wal"]);
}

#[test]
fn database_of_another_program_is_refused_unchanged() {
    let place = Place::new();
    let conn = Connection::open(place.path()).unwrap();
    conn.execute_batch("CREATE TABLE theirs (x); PRAGMA application_id = 7").unwrap();
    drop(conn);
    check_refused(
        &place,
        Kind::StoreCorrupt,
        "store.corrupt: /outlast.db is an SQLite database, but not of Outlast (its application id is 7, not \
         1333097548); nothing was written",
    );
}

#[test]
fn non_database_file_is_refused_unchanged() {
    for text in ["hi".to_owned(), "not a database\n".repeat(1_000)] {
        let place = Place::new();
        fs::write(place.path(), text).unwrap();
        check_refused(
            &place,
            Kind::StoreCorrupt,
            "store.corrupt: /outlast.db: the file is no SQLite database: file is not a database",
        );
    }
}

#[test]
fn an_empty_file_becomes_a_database() {
    let place = Place::new();
    fs::write(place.path(), "").unwrap();
    drop(place.open());
    drop(place.open());
}

#[tokio::test]
async fn corrupt_page_is_reported_as_an_error() {
    let place = Place::new();
    let store = place.open();
    for _ in 0..200 {
        accept(&store, &"long ".repeat(100), None).await.unwrap();
    }
    drop(store);
    let mut bytes = fs::read(place.path()).unwrap();
    let pages = bytes.len() / 4_096;
    assert!(pages > 30);
    bytes[4_096 * 2..].fill(0xa5);
    fs::write(place.path(), bytes).unwrap();
    let error = match SqliteStore::open(&place.path()) {
        Ok(store) => store.sessions(None, usize::MAX).await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.kind(), Kind::StoreCorrupt);
}

#[test]
fn directory_errors_are_not_reported_as_corruption() {
    let place = Place::new();
    assert_eq!(refused(place.folder()).kind(), Kind::IoFailed);
    assert_eq!(refused(&place.folder().join("no/outlast.db")).kind(), Kind::IoFailed);
    drop(place.open());
    assert_eq!(refused(&place.path().join("outlast.db")).kind(), Kind::IoFailed);
    assert_eq!(place.files().len(), 1);
}

#[tokio::test]
async fn temporarily_unopenable_file_is_busy_and_loses_nothing() {
    let place = Place::new();
    let store = place.open();
    let accepted = accept(&store, "hi", None).await.unwrap();
    let elsewhere = place.folder().with_extension("away");
    fs::rename(place.folder(), &elsewhere).unwrap();
    let error = store.session(accepted.session).await.unwrap_err();
    fs::rename(&elsewhere, place.folder()).unwrap();
    let said = error.to_string();
    let expected = "store.busy: the operating system could not open a file of the database: unable to open database file";
    assert!(said.starts_with(expected), "{said}");
    assert_eq!(store.session(accepted.session).await.unwrap().id, accepted.session);
}

#[test]
fn special_file_names_are_taken_literally() {
    let place = Place::new();
    for name in ["file:a?mode=memory", ":memory:", "ü b#c%20.db"] {
        drop(SqliteStore::open(&place.folder().join(name)).unwrap());
        assert!(place.folder().join(name).is_file(), "{name}");
    }
}

#[test]
fn concurrent_opens_of_new_file_all_succeed() {
    const CHILD: &str = "OUTLAST_TEST_OPEN";
    if let Ok(path) = std::env::var(CHILD) {
        drop(SqliteStore::open(Path::new(&path)).unwrap());
        return;
    }
    for _ in 0..3 {
        let place = Place::new();
        let test = "files::concurrent_opens_of_new_file_all_succeed";
        let child = || {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", test]).env(CHILD, place.path()).stdout(Stdio::null()).spawn().unwrap()
        };
        let children: Vec<_> = (0..4).map(|_| child()).collect();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let path = place.path();
                std::thread::spawn(move || SqliteStore::open(&path).map(drop))
            })
            .collect();
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        drop(place.open());
    }
}

/// Runs itself again as an unprivileged user, because root may write everywhere.
#[cfg(unix)]
#[test]
fn unwritable_file_or_directory_is_read_only() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    const CHILD: &str = "OUTLAST_TEST_READ_ONLY";
    let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    if let Ok(path) = std::env::var(CHILD) {
        let [file, folder, new] = ["file/outlast.db", "folder/outlast.db", "folder/new.db"]
            .map(|name| refused(&Path::new(&path).join(name)).kind());
        assert_eq!([file, folder, new], [Kind::StoreReadOnly; 3]);
        return;
    }
    let place = Place::new();
    allow(place.folder(), 0o755);
    for name in ["file", "folder"] {
        let folder = place.folder().join(name);
        fs::create_dir(&folder).unwrap();
        drop(SqliteStore::open(&folder.join("outlast.db")).unwrap());
    }
    allow(&place.folder().join("file/outlast.db"), 0o444);
    allow(&place.folder().join("file"), 0o777);
    allow(&place.folder().join("folder/outlast.db"), 0o666);
    allow(&place.folder().join("folder"), 0o555);
    let before = fs::read(place.folder().join("file/outlast.db")).unwrap();

    let program = place.folder().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut child = Command::new(program);
    child.args(["--exact", "files::unwritable_file_or_directory_is_read_only"]);
    child.env(CHILD, place.folder()).current_dir("/").stdout(Stdio::null());
    let administrator =
        fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if administrator {
        child.uid(65_534).gid(65_534);
    }
    assert!(child.status().unwrap().success());
    assert!(before == fs::read(place.folder().join("file/outlast.db")).unwrap());
    allow(&place.folder().join("folder"), 0o755);
}
