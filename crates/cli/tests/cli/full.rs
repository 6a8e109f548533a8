//! Tests of a full disk and of a limit on file size: a clear error, and no loss of acknowledged data.
use crate::place::Place;
use expect_test::{Expect, expect};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output};

const SMALL_DISK: &str = "OUTLAST_TEST_SMALL_DISK";

/// Runs a test of this file again in a namespace in which it can mount a small disk without privileges.
///
/// If namespaces are not allowed, as in some containers, the test is skipped with a message. Then only the
/// limit on file size is tested.
fn with_a_small_disk(test: &str) {
    let apart = ["--user", "--map-root-user", "--mount"];
    let may_mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", "/mnt"];
    let tried = Command::new("unshare").args(apart).args(may_mount).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        eprintln!("no disk can be mounted here, so none can be filled");
        return;
    }
    let mut again = Command::new("unshare");
    again.args(apart).arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    let output = again.env(SMALL_DISK, "").output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A place on a disk of one megabyte.
struct SmallDisk(Place);

impl SmallDisk {
    fn new() -> Self {
        let place = Place::new();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(place.path());
        assert!(mount.status().unwrap().success());
        Self(place)
    }

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }

    /// Fills the disk until `kib` KiB are free.
    fn leave(&self, kib: usize) {
        self.empty();
        let mut filler = OpenOptions::new().append(true).create(true).open(self.filler()).unwrap();
        let mut bytes = 0;
        while let Ok(more) = filler.write(&[0; 1 << 10]) {
            bytes += more;
        }
        filler.set_len((bytes - (kib << 10)) as u64).unwrap();
    }

    fn empty(&self) {
        let _there_was_one = fs::remove_file(self.filler());
    }

    #[track_caller]
    fn check(&self, commands: &str, want: &Expect) {
        self.0.check(commands, want);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // If this fails, the mount disappears with the namespace, and only an empty directory is left.
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// Returns the standard error and the exit code.
fn shown(place: &Place, output: Output) -> String {
    place.show(&Output { stdout: Vec::new(), ..output })
}

#[test]
fn full_disk_loses_nothing_and_recovers_with_space() {
    if std::env::var(SMALL_DISK).is_err() {
        return with_a_small_disk("full::full_disk_loses_nothing_and_recovers_with_space");
    }
    let disk = SmallDisk::new();
    let long = "L".repeat(100 << 10);
    disk.0.set_script(&format!("when three\nsay {long}\nany\nsay Fine."));
    disk.check(
        "run one --session ann --script script.txt",
        &expect![[r#"
            $ run one --session ann --script script.txt
            Fine.
        "#]],
    );
    disk.leave(0);
    disk.check(
        "run two --session ann --script script.txt",
        &expect![[r#"
            $ run two --session ann --script script.txt
            | error[store.full]: no space for the index of the write-ahead log: disk I/O error
            |   read on with: outlast explain store.full
            exit 1
        "#]],
    );
    // Space for only a part of what the start and the input need.
    for kib in [4, 12, 20, 32, 40, 48] {
        disk.leave(kib);
        let refused = disk.0.output(&["run", "two", "--session", "ann", "--script", "script.txt"]);
        let code = String::from_utf8_lossy(&refused.stderr).starts_with("error[store.full]: ");
        assert!(code && refused.status.code() == Some(1), "{kib} KiB: {}", disk.0.show(&refused));
    }
    // None of those inputs was recorded, and the first one is complete.
    disk.empty();
    disk.check(
        "verify ann
         sessions show ann",
        &expect![[r#"
            $ verify ann
            ses_1 intact: 5 records
            $ sessions show ann
            ses_1 `ann` idle, 1 turn, updated TIME
            head main at #4 of ses_1
            trn_1 answered
            #2    user one
            #4    assistant Fine.
        "#]],
    );

    // Space for the input but not for the answer: the input is kept.
    disk.leave(160);
    let cut = disk.0.output(&["run", "three", "--session", "ann", "--script", "script.txt"]);
    expect![[r#"
        | · the input is stored; run `outlast work` once the disk has free space
        | error[store.full]: the database cannot grow: database or disk is full (in trn_2)
        |   read on with: outlast explain store.full
        exit 1
    "#]]
    .assert_eq(&shown(&disk.0, cut));
    disk.check(
        "verify ann",
        &expect![[r#"
            $ verify ann
            ses_1 intact: 6 records
        "#]],
    );
    disk.empty();
    disk.check(
        "work --script script.txt
         run four --session ann --script script.txt
         verify ann",
        &expect![[r#"
            $ work --script script.txt
            ses_1 #10 turn.ended answered: "LLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLL…"
            | · no turn can continue now
            $ run four --session ann --script script.txt
            Fine.
            | · the conversation grew too long for the model: its beginning is summarised
            | · the conversation grew too long for the model: long texts are cut
            $ verify ann
            ses_1 intact: 16 records
        "#]],
    );
}

#[test]
fn file_size_limit_returns_an_error() {
    let place = Place::with_script("any\nsay Fine.");
    place.check(
        "run one --session ann --script script.txt",
        &expect![[r#"
        $ run one --session ann --script script.txt
        Fine.
    "#]],
    );
    fs::write(place.path().join("long.txt"), "long ".repeat(40_000)).unwrap();
    let mut limited = Command::new("sh");
    let run = "ulimit -f 80; exec \"$0\" run - --session ann --script script.txt < long.txt";
    limited.args(["-c", run, env!("CARGO_BIN_EXE_outlast")]).current_dir(place.path());
    let output = limited.env_remove("OUTLAST_DATA").output().unwrap();
    expect![[r#"
        | error[store.failed]: a disk operation failed: disk I/O error
        |   read on with: outlast explain store.failed
        exit 1
    "#]]
    .assert_eq(&place.show(&output));
    place.check(
        "run two --session ann --script script.txt
         sessions show ann
         verify ann",
        &expect![[r#"
            $ run two --session ann --script script.txt
            Fine.
            $ sessions show ann
            ses_1 `ann` idle, 2 turns, updated TIME
            head main at #8 of ses_1
            trn_1 answered
            #2    user one
            #4    assistant Fine.
            trn_2 answered
            #6    user two
            #8    assistant Fine.
            $ verify ann
            ses_1 intact: 9 records
        "#]],
    );
}
