//! Tests a failing disk: the store stops, and a fresh start finds every acknowledged write.
use crate::place::{NOW, Place, accept, open_session, sessions};
use outlast_ports::inbox::{Inbox, SessionTarget};
use outlast_ports::journal::Journal;
use outlast_ports::queries::Queries;
use outlast_store::SqliteStore;
use outlast_vocab::{Kind, SessionId};
use std::fs;
use std::process::Command;

const CHILD: &str = "OUTLAST_TEST_DISK";

/// Runs in the child process: writes until the disk fails, then checks what is left.
async fn write_until_it_fails() {
    let store = SqliteStore::open("outlast.db".as_ref()).unwrap();
    let mut acknowledged = Vec::new();
    let error = loop {
        match accept(&store, &"long ".repeat(200), None).await {
            Ok(accepted) => acknowledged.push(accepted.session.to_string()),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), Kind::StoreFailed);
    // The next write would fit, but the state of the disk is unknown.
    let later = store.open(SessionTarget::New(SessionId::from_u128(1)), NOW).await;
    let later = later.unwrap_err();
    assert_eq!(later.kind(), Kind::StoreFailed);
    assert!(later.detail().starts_with("the store stopped after the disk failed: "), "{later}");
    assert_eq!(sessions(&store).await, acknowledged.len());
    fs::write("acknowledged", acknowledged.join("\n")).unwrap();
}

#[tokio::test]
async fn store_loses_nothing_after_disk_failure_and_restart() {
    if std::env::var(CHILD).is_ok() {
        return write_until_it_fails().await;
    }
    let place = Place::new();
    // A file size limit makes every write beyond it fail, like a failing disk.
    let mut child = Command::new("sh");
    child.args(["-c", "trap '' XFSZ; ulimit -f 4000; exec \"$0\" --exact \"$1\""]);
    child.arg(std::env::current_exe().unwrap());
    child.arg("disk::store_loses_nothing_after_disk_failure_and_restart");
    let output = child.env(CHILD, "").current_dir(place.folder()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let acknowledged = fs::read_to_string(place.folder().join("acknowledged")).unwrap();
    assert!(acknowledged.lines().count() > 10);
    let store = place.open();
    for session in acknowledged.lines() {
        assert_eq!(store.verify(session.parse().unwrap()).await.unwrap(), 2);
    }
    assert_eq!(store.sessions(None, usize::MAX).await.unwrap().len(), acknowledged.lines().count());
    open_session(&store).await;
}
