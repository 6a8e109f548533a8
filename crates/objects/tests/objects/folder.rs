//! Tests with a directory.
use outlast_conformance::{ContentsFixture, RuleFuture};
use outlast_objects::ObjectContents;
use outlast_ports::contents::{ContentStorage, single_chunk};
use outlast_vocab::{Hash, Kind, Millis};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DATABASE: &str = "0123456789abcdef";

struct Folder {
    folder: tempfile::TempDir,
    objects: ObjectContents,
}

fn open(folder: &Path) -> ObjectContents {
    ObjectContents::open(&format!("file://{}", folder.display()), DATABASE).unwrap()
}

fn fresh() -> Folder {
    let folder = tempfile::tempdir().unwrap();
    let objects = open(&folder.path().join("files"));
    Folder { folder, objects }
}

impl Folder {
    fn root(&self) -> PathBuf {
        self.folder.path().join("files").join(DATABASE)
    }

    fn path(&self, content: Hash) -> PathBuf {
        let hex = content.to_string();
        self.root().join("contents").join(&hex[..2]).join(hex)
    }
}

impl ContentsFixture for Folder {
    fn contents(&self) -> &dyn ContentStorage {
        &self.objects
    }

    fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Millis(u64::try_from(since.as_millis()).unwrap())
    }

    fn corrupt(&self, content: Hash, bytes: &[u8]) {
        fs::write(self.path(content), bytes).unwrap();
    }

    fn run(&self, rule: RuleFuture<'_>) {
        crate::run(rule);
    }
}

outlast_conformance::contents_conformance!(fresh);

#[tokio::test]
async fn content_is_shared_between_processes_but_not_databases() {
    let folder = fresh();
    let stored = folder.objects.put(single_chunk("hello"), 100).await.unwrap();
    let again = open(&folder.folder.path().join("files"));
    assert!(again.info(stored.content).await.unwrap().is_some());
    let address = format!("file://{}", folder.folder.path().join("files").display());
    let other = ObjectContents::open(&address, "another").unwrap();
    assert_eq!(other.info(stored.content).await.unwrap(), None);
}

#[tokio::test]
async fn repeated_put_renews_the_modification_time() {
    let folder = fresh();
    let stored = folder.objects.put(single_chunk("hello"), 100).await.unwrap();
    let long_ago = UNIX_EPOCH + Duration::from_secs(1_000);
    fs::File::options()
        .write(true)
        .open(folder.path(stored.content))
        .unwrap()
        .set_modified(long_ago)
        .unwrap();
    assert_eq!(folder.objects.info(stored.content).await.unwrap().unwrap().written, Millis(1_000_000));
    folder.objects.put(single_chunk("hello"), 100).await.unwrap();
    assert!(folder.objects.info(stored.content).await.unwrap().unwrap().written > Millis(1_000_000));
}

#[tokio::test]
async fn old_partial_writes_of_dead_processes_are_removed() {
    let folder = fresh();
    let stored = folder.objects.put(single_chunk("hello"), 100).await.unwrap();
    let beside = PathBuf::from(format!("{}#1", folder.path(stored.content).display()));
    let incoming = folder.root().join("incoming");
    fs::create_dir(&incoming).unwrap();
    let left = [beside, incoming.join("00ff"), incoming.join("00ff#1")];
    for path in &left {
        fs::write(path, "half").unwrap();
    }
    folder.objects.remove_partial_uploads(Millis(1_000)).await.unwrap();
    assert!(left.iter().all(|path| path.exists()));
    folder.objects.remove_partial_uploads(Millis(folder.now().0 + 60_000)).await.unwrap();
    assert!(left.iter().all(|path| !path.exists()));
    assert!(folder.objects.info(stored.content).await.unwrap().is_some());
}

#[cfg(unix)]
#[tokio::test]
async fn created_folder_is_private_to_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let folder = fresh();
    for made in [folder.folder.path().join("files"), folder.root()] {
        assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[test]
fn folder_with_missing_parent_is_refused_with_path() {
    let error = ObjectContents::open("file:///no/such/folder", DATABASE).err().unwrap();
    assert_eq!(error.kind(), Kind::AttachmentUnavailable);
    assert!(error.detail().starts_with("/no/such/folder cannot be used for attachments: "), "{error}");
}

#[tokio::test]
async fn replaced_folder_is_reported_as_unavailable() {
    let folder = fresh();
    fs::remove_dir_all(folder.root()).unwrap();
    fs::write(folder.root(), "no folder").unwrap();
    let error = folder.objects.put(single_chunk("hello"), 100).await.unwrap_err();
    assert_eq!(error.kind(), Kind::AttachmentUnavailable);
}
