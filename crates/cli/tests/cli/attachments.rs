//! Tests of attachments outside the database, in a directory and in a bucket: attach, save, sweep, and errors
//! for missing content.
#[path = "../../../objects/tests/objects/server.rs"]
mod server;

use crate::place::Place;
use expect_test::expect;
use server::Server;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Creates a place with a directory for attachments, and a file that is too large for the database.
fn with_folder() -> Place {
    let place = Place::with_script("any\nsay I see.");
    let address = format!("file://{}", place.path().join("files").display());
    place.write("outlast.toml", &format!("[attachments]\nstore = \"{address}\"\n"));
    place.write("large.txt", &"twelve words".repeat(3 << 20));
    place
}

/// Returns the doctor's lines about attachments, without messages of the operating system.
fn report(place: &Place, doctor: &[&str]) -> String {
    let text = place.show(&place.output(doctor));
    let report =
        |line: &&str| ["attachments", "wrong", "nothing", "exit"].iter().any(|name| line.starts_with(name));
    let lines = text.lines().filter(report).map(|line| line.split(" content: ").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the only stored content.
fn content(place: &Place) -> PathBuf {
    let mut at = place.path().join("files");
    while at.is_dir() {
        at = fs::read_dir(&at).unwrap().next().unwrap().unwrap().path();
    }
    at
}

#[test]
fn large_attachment_is_stored_outside_saved_and_swept() {
    let place = with_folder();
    place.check(
        "run 'what is this?' --session ann --attach large.txt --script script.txt
         attachments ann
         attachments --sweep --grace 0
         attachments ann --save att_f8db813e1c1864e69e670305aae9cac3 --to copy.txt
         sessions delete ann --yes
         attachments --sweep
         attachments --sweep --grace 0
         attachments --sweep --grace 0",
        &expect![[r#"
            $ run 'what is this?' --session ann --attach large.txt --script script.txt
            I see.
            $ attachments ann
            att_f8db813e1c1864e69e670305aae9cac3 text/plain 37748736 bytes outside large.txt
            $ attachments --sweep --grace 0
            1 content checked, 0 deleted
            $ attachments ann --save att_f8db813e1c1864e69e670305aae9cac3 --to copy.txt
            | · 37748736 bytes saved
            $ sessions delete ann --yes
            ses_1 deleted
            $ attachments --sweep
            1 content checked, 0 deleted
            $ attachments --sweep --grace 0
            1 content checked, 1 deleted
            $ attachments --sweep --grace 0
            0 contents checked, 0 deleted
        "#]],
    );
    let read = |name: &str| fs::read(place.path().join(name)).unwrap();
    assert!(read("copy.txt") == read("large.txt"));
}

#[test]
fn sweep_removes_attachment_of_a_killed_process() {
    let place = with_folder();
    assert!(Command::new("mkfifo").arg(place.path().join("pipe")).status().unwrap().success());
    let args = ["run", "see", "--session", "ann", "--attach", "pipe", "--script", "script.txt"];
    let mut killed = place.command(&args).spawn().unwrap();
    let mut pipe = fs::File::options().write(true).open(place.path().join("pipe")).unwrap();
    // Write more than one chunk, so that the first is on disk. The pipe buffers the rest.
    pipe.write_all(&vec![b'x'; 20 << 20]).unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let half = content(&place);
    assert!(half.display().to_string().contains("/incoming/"), "{}", half.display());
    place.check(
        "sessions list
         attachments --sweep
         attachments --sweep --grace 0",
        &expect![[r#"
            $ sessions list
            | · there are no sessions
            $ attachments --sweep
            0 contents checked, 0 deleted
            $ attachments --sweep --grace 0
            0 contents checked, 0 deleted
        "#]],
    );
    assert!(!half.exists());
}

#[test]
fn corrupted_attachment_is_not_saved() {
    let place = with_folder();
    place.write("note.txt", "twelve words");
    place.output(&["run", "see", "--session", "ann", "--attach", "note.txt", "--script", "script.txt"]);
    fs::write(content(&place), "twelve wörds").unwrap();
    place.check(
        "attachments ann --save att_a3d047118c74ee8db807fd9513e993db --to copy.txt
         attachments ann --save att_a3d047118c74ee8db807fd9513e993db --to copy.txt --config absent.toml",
        &expect![[r#"
            $ attachments ann --save att_a3d047118c74ee8db807fd9513e993db --to copy.txt
            | error[attachment.corrupt]: the content b4badca85c64a56a29b17ffaa5c4b31660c5530a820484da3493f69f610e65cc has 12 bytes, but 12 bytes that do not match it were read
            |   read on with: outlast explain attachment.corrupt
            exit 1
            $ attachments ann --save att_a3d047118c74ee8db807fd9513e993db --to copy.txt --config absent.toml
            | error[io.failed]: the configuration absent.toml cannot be read: No such file or directory (os error 2)
            |   read on with: outlast explain io.failed
            exit 1
        "#]],
    );
    assert!(!place.path().join("copy.txt").exists());
}

#[test]
fn missing_attachment_store_is_rejected_before_any_write() {
    let place = Place::with_script("any\nsay I see.");
    place.write("note.txt", "twelve words");
    place.check(
        "run see --attach note.txt --script script.txt --attachments file:///no/such/folder
         run see --attach note.txt --script script.txt --attachments files
         sessions list",
        &expect![[r#"
            $ run see --attach note.txt --script script.txt --attachments file:///no/such/folder
            | error[attachment.unavailable]: /no/such/folder cannot be used for attachments: No such file or directory (os error 2)
            |   read on with: outlast explain attachment.unavailable
            exit 1
            $ run see --attach note.txt --script script.txt --attachments files
            | error[config.invalid]: expected `file:///path` or `s3://bucket/prefix` as the store of attachments, got `files`
            |   read on with: outlast explain config.invalid
            exit 1
            $ sessions list
            | · there are no sessions
        "#]],
    );
    expect![[r#"
        wrong config.invalid: expected `file:///path` or `s3://bucket/prefix` as the store of attachments, got `gs://bucket`: outlast explain config.invalid
        exit 1"#]]
    .assert_eq(&report(&place, &["doctor", "--attachments", "gs://bucket"]));
}

#[test]
fn s3_stores_attachments_and_outages_are_reported() {
    let server = Server::start();
    let place = Place::with_script("any\nsay I see.");
    place.write("note.txt", "twelve words");
    place.hide(&server.endpoint(), "ENDPOINT");
    for (name, value) in [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_ENDPOINT_URL", &server.endpoint()),
        ("OUTLAST_ATTACHMENTS", "s3://files/agents"),
    ] {
        place.set(name, value);
    }
    place.check(
        "run 'what is this?' --session ann --attach note.txt --script script.txt
         attachments ann
         attachments ann --save att_a3d047118c74ee8db807fd9513e993db --to copy.txt",
        &expect![[r#"
            $ run 'what is this?' --session ann --attach note.txt --script script.txt
            I see.
            $ attachments ann
            att_a3d047118c74ee8db807fd9513e993db text/plain 12 bytes outside note.txt
            $ attachments ann --save att_a3d047118c74ee8db807fd9513e993db --to copy.txt
            | · 12 bytes saved
        "#]],
    );
    assert_eq!(fs::read_to_string(place.path().join("copy.txt")).unwrap(), "twelve words");
    let doctor = || report(&place, &["doctor"]);
    expect![[r#"
        attachments s3://files/agents at ENDPOINT
        nothing is wrong"#]]
    .assert_eq(&doctor());
    drop(server);
    expect![[r#"
        attachments s3://files/agents at ENDPOINT
        wrong attachment.unavailable: s3://files/agents at ENDPOINT cannot store or read
        exit 1"#]]
    .assert_eq(&doctor());
    let refused =
        place.output(&["run", "see", "--session", "bob", "--attach", "note.txt", "--script", "script.txt"]);
    assert!(place.show(&refused).contains("error[attachment.unavailable]: s3://files/agents at ENDPOINT "));
    assert!(!place.output(&["sessions", "show", "bob"]).status.success());
}

#[test]
fn attachment_behind_a_symbolic_link_is_refused() {
    let place = Place::with_script("any\nsay I see.");
    place.write("secret.txt", "secret");
    fs::create_dir(place.path().join("work")).unwrap();
    std::os::unix::fs::symlink("../secret.txt", place.path().join("work/report.txt")).unwrap();
    std::os::unix::fs::symlink("work", place.path().join("shortcut")).unwrap();
    place.write("work/plain.txt", "plain");
    let absolute = place.path().canonicalize().unwrap().join("work/report.txt");
    for path in
        ["work/report.txt", "shortcut/plain.txt", "./work/../shortcut/plain.txt", absolute.to_str().unwrap()]
    {
        let output = place.output(&["run", "see", "--attach", path, "--script", "script.txt"]);
        assert!(!output.status.success());
        let report = String::from_utf8(output.stderr).unwrap();
        assert!(
            report.contains("is a symbolic link or goes through one") && report.contains("io.failed"),
            "{report}"
        );
    }
    let plain = place.output(&["run", "see", "--attach", "work/../work/plain.txt", "--script", "script.txt"]);
    assert!(plain.status.success(), "{}", place.show(&plain));
}

#[test]
fn output_of_a_command_is_attached() {
    let place = Place::with_script("any\nsay I see.");
    let outlast = place.command(&["run", "see", "--session", "ann", "--script", "script.txt"]);
    let mut bash = Command::new("bash");
    bash.args(["-c", "\"$@\" --attach <(printf plain)", "bash"]).arg(outlast.get_program());
    bash.args(outlast.get_args()).current_dir(place.path());
    for (name, value) in outlast.get_envs() {
        match value {
            Some(value) => bash.env(name, value),
            None => bash.env_remove(name),
        };
    }
    let output = bash.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", place.show(&output));
    let report = place.show(&place.output(&["attachments", "ann"]));
    assert!(report.contains("text/plain 5 bytes"), "{report}");
}
