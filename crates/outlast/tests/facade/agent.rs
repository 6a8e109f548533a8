//! End-to-end tests of the rehearsal agent with the built-in tools on SQLite.
use outlast::clock::VirtualClock;
use outlast::prelude::*;
use outlast::providers::Rehearsal;
use outlast::runtime::worker::system::SystemClock;
use outlast::store::{ForkRequest, ForkTo};
use outlast::tools::{FileRoot, WallClock};
use outlast::vocab::Millis;
use outlast::vocab::effect::Command;
use outlast::vocab::record::{EffectRequested, Fact, Seq};
use outlast::{Builder, SessionId};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// 2026-07-03T10:20:30Z.
const NOW: Millis = Millis(1_783_074_030_000);

fn agent(path: &Path) -> Builder {
    let rehearsal = Rehearsal::agent(Arc::new(SystemClock)).with_word_delay(Duration::ZERO);
    // Granted later, so it replaces the clock of `builtin_tools`.
    let clock = WallClock(Arc::new(VirtualClock::at(NOW)));
    Outlast::at(path).provider(rehearsal).builtin_tools().service(clock)
}

async fn ask(outlast: &Outlast, text: &str) -> String {
    outlast.session("ann").send(text).await.unwrap().answer().await.unwrap()
}

/// Returns the tools of each batch, in the order of the model's calls.
async fn batches(outlast: &Outlast, session: SessionId) -> Vec<Vec<String>> {
    let records = outlast.store().records(session, Seq(0), 1_000).await.unwrap();
    let tools = |record: outlast::vocab::record::Record| match record.fact {
        Fact::Asked(EffectRequested { command: Command::ToolBatch(batch), .. }) => {
            Some(batch.calls.iter().map(|call| call.tool().to_string()).collect())
        }
        _ => None,
    };
    records.into_iter().filter_map(tools).collect()
}

#[tokio::test]
async fn two_questions_run_two_tools_in_one_batch() {
    let dir = tempfile::tempdir().unwrap();
    let outlast = agent(&dir.path().join("outlast.db")).start().await.unwrap();
    let turn = outlast.session("ann").send("what time is it and add 2 and 3").await.unwrap();
    assert_eq!(turn.answer().await.unwrap(), "It is 10:20:30 UTC on 2026-07-03. 2 + 3 is 5.");
    assert_eq!(batches(&outlast, turn.session()).await, [["clock", "calculator"]]);
    outlast.shut_down().await;
}

#[tokio::test]
async fn memory_survives_turns_and_reopening_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outlast.db");
    let outlast = agent(&path).start().await.unwrap();
    assert_eq!(ask(&outlast, "what is my name?").await, "I do not remember your name.");
    assert_eq!(ask(&outlast, "remember my name is Ann").await, "I will remember that your name is Ann.");
    assert_eq!(ask(&outlast, "what is my name?").await, "Your name is Ann.");
    outlast.shut_down().await;

    let outlast = agent(&path).start().await.unwrap();
    assert_eq!(ask(&outlast, "what is my name?").await, "Your name is Ann.");
    let other_user = outlast.session("bob").send("what is my name?").await.unwrap();
    assert_eq!(other_user.answer().await.unwrap(), "I do not remember your name.");
    assert_eq!(ask(&outlast, "forget my name").await, "I have forgotten your name.");
    outlast.shut_down().await;

    let outlast = agent(&path).start().await.unwrap();
    assert_eq!(ask(&outlast, "what is my name?").await, "I do not remember your name.");
    outlast.shut_down().await;
}

#[tokio::test]
async fn fork_inherits_the_memory_of_its_session() {
    let dir = tempfile::tempdir().unwrap();
    let outlast = agent(&dir.path().join("outlast.db")).start().await.unwrap();
    assert_eq!(ask(&outlast, "remember my name is Ann").await, "I will remember that your name is Ann.");
    let from = outlast.store().session_by_key("ann".into()).await.unwrap().id;
    let (fresh, now) = (outlast.runtime().fresh_session(), outlast.runtime().now());
    let fork = ForkRequest { from, at: None, to: ForkTo::Session { fresh, key: Some("fork".into()) }, now };
    outlast.store().fork(fork).await.unwrap();
    assert_eq!(ask(&outlast, "forget my name").await, "I have forgotten your name.");
    let forked = outlast.session("fork").send("what is my name?").await.unwrap();
    assert_eq!(forked.answer().await.unwrap(), "Your name is Ann.");
    outlast.shut_down().await;
}

#[cfg(unix)]
#[tokio::test]
async fn file_tools_stay_below_the_root() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(dir.path().join("secret.txt"), "secret").unwrap();
    std::os::unix::fs::symlink(dir.path().join("secret.txt"), root.join("link.txt")).unwrap();
    std::os::unix::fs::symlink(dir.path(), root.join("out")).unwrap();
    let outlast = agent(&dir.path().join("outlast.db")).files(FileRoot::open(&root).unwrap());
    let outlast = outlast.start().await.unwrap();

    assert_eq!(ask(&outlast, "write hello to notes/today.txt").await, "I wrote 5 bytes to notes/today.txt.");
    assert_eq!(ask(&outlast, "read notes/today.txt").await, "notes/today.txt says:\nhello");
    assert_eq!(ask(&outlast, "list files").await, "I see: link.txt, notes/, out.");
    let outside = dir.path().join("secret.txt").display().to_string();
    for path in ["../secret.txt", &outside, "notes/../../secret.txt"] {
        let expected = format!(
            "I could not use file_read: expected a path like `notes/today.txt`, without `..`, got {path:?} (tool.args_invalid)."
        );
        assert_eq!(ask(&outlast, &format!("read {path}")).await, expected);
    }
    for path in ["link.txt", "out/secret.txt"] {
        let expected = format!(
            "I could not use file_read: `{path}` is a symbolic link or goes through one; file tools do not follow links (tool.failed)."
        );
        assert_eq!(ask(&outlast, &format!("read {path}")).await, expected);
    }
    assert_eq!(
        ask(&outlast, "write gone to out/secret.txt").await,
        "I could not use file_write: `out/secret.txt` is a symbolic link or goes through one; file tools do not follow links (tool.failed)."
    );
    assert_eq!(
        ask(&outlast, "write gone to ../secret.txt").await,
        "I could not use file_write: expected a path like `notes/today.txt`, without `..`, got \"../secret.txt\" \
         (tool.args_invalid)."
    );
    assert_eq!(fs::read_to_string(dir.path().join("secret.txt")).unwrap(), "secret");
    outlast.shut_down().await;
}
