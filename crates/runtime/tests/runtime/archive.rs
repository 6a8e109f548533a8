//! Export and import of sessions: complete or not at all, and nothing in an archive is performed again.
use crate::common::*;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::attachment_upload::Upload;
use outlast_ports::branches::ForkRequest;
use outlast_ports::inbox::SessionTarget;
use outlast_ports::outbox::{CollectRequest, FeedStart, SinkSubscription};
use outlast_ports::store::Store;
use outlast_runtime::Input;
use outlast_runtime::archive::{Export, import};
use outlast_runtime::attachments::Attachments;
use outlast_runtime::replay::replay;
use outlast_views::ForkTo;
use outlast_vocab::archive::{ArchiveChecksum, ArchiveLine as Written, ArchiveTotals};
use outlast_vocab::record::{Seq, TurnEnd};
use outlast_vocab::{Error, Kind, Limits, Millis, SessionId};
use std::io::Cursor;
use std::sync::Arc;

fn attachments(store: &Arc<dyn Store>) -> Attachments {
    Attachments::new(store.clone(), None, Limits::default())
}

pub(crate) async fn exported(store: &Arc<dyn Store>, session: SessionId) -> String {
    let mut export = Export::begin(store.clone(), attachments(store), session, Millis(9)).await.unwrap();
    let mut text = String::new();
    while let Some(piece) = export.piece().await.unwrap() {
        text.push_str(&piece);
    }
    let (written, of) = export.progress();
    assert_eq!(written, of);
    text
}

pub(crate) async fn taken_in(
    text: &str,
    store: &Arc<dyn Store>,
) -> Result<outlast_ports::archive::ImportResult, Error> {
    let from = Cursor::new(text.as_bytes().to_vec());
    import(store.as_ref(), &attachments(store), from, None, Millis(7)).await
}

/// Asserts that a finished session reads back byte for byte and that its turns replay.
pub(crate) async fn reads_back(store: Arc<dyn Store>) {
    let text = exported(&store, SESSION).await;
    let other: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let imported = taken_in(&text, &other).await.unwrap();
    assert_eq!((imported.session, imported.closed), (SESSION, 0));
    other.verify(SESSION).await.unwrap();
    assert_eq!(exported(&other, SESSION).await, unsigned(&text));
    assert_eq!(other.unknown(100).await.unwrap().len(), store.unknown(100).await.unwrap().len());
    let replayed =
        replay(Arc::new(MemoryStore::new()), Cursor::new(text.into_bytes()), None, &Limits::default())
            .await
            .unwrap();
    assert_eq!(replayed.divergence(), None, "{replayed:#?}");
}

/// Records one turn with a call that stores a value, and an attachment.
async fn recorded() -> Arc<dyn Store> {
    let (memory, life) = fresh(vec![call("keep", ""), call("pay", "a"), Line::Say("done")]).await;
    let file = Upload::new("text/plain".to_owned().try_into().unwrap(), None, vec![7; 500_000]).unwrap();
    let first = Input { files: vec![file.into()], key: Some("one".into()), ..input("go") };
    let turn = life.runtime.submit(first).await.unwrap().turn;
    life.end(turn).await;
    life.die(&memory).await;
    Arc::new(memory)
}

fn lines(text: &str) -> Vec<Written> {
    let mut seal = ArchiveChecksum::default();
    text.lines().map(|line| seal.read(line).unwrap()).collect()
}

/// Returns the archive without the signatures of the database that wrote it.
pub(crate) fn unsigned(text: &str) -> String {
    let mut lines = lines(text);
    for line in &mut lines {
        if let Written::Session(session) = line {
            session.signature = None;
        }
    }
    sealed(&lines)
}

/// Returns the archive with something other than the records changed, and the signature kept.
pub(crate) fn tampered(text: &str) -> String {
    let mut lines = lines(text);
    for line in &mut lines {
        if let Written::Session(session) = line {
            session.updated = Millis(session.updated.0 + 1);
        }
    }
    sealed(&lines)
}

fn sealed(lines: &[Written]) -> String {
    let (mut text, mut seal) = (String::new(), ArchiveChecksum::default());
    for line in lines {
        seal.write(line, &mut text);
    }
    text
}

#[tokio::test(start_paused = true)]
async fn session_archive_round_trips_values_and_attachments() {
    let store = recorded().await;
    reads_back(store.clone()).await;
    let other: Arc<dyn Store> = Arc::new(MemoryStore::new());
    taken_in(&exported(&store, SESSION).await, &other).await.unwrap();
    assert_eq!(other.value(SESSION, "count".into()).await.unwrap(), Some(1.into()));
    let file = other.attachments(SESSION, 10).await.unwrap().pop().unwrap();
    assert_eq!(other.attached(SESSION, file.attachment.id, 0..500_000).await.unwrap(), vec![7; 500_000]);
    assert_eq!(other.session_by_key("test".into()).await.unwrap().id, SESSION);
}

#[tokio::test(start_paused = true)]
async fn damaged_archive_is_refused_with_line_number() {
    let text = exported(&recorded().await, SESSION).await;
    let whole = lines(&text);
    let count = whole.len();
    let line_starts: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    let mut damages: Vec<(String, usize)> = Vec::new();
    for (number, start) in line_starts.iter().enumerate().take(count - 1) {
        damages.push((text[..*start].to_owned(), number + 2));
        damages.push((text[..start + 40].to_owned(), number + 2));
        let mut changed = text.clone().into_bytes();
        changed[start + 90] ^= 2;
        damages.push((String::from_utf8_lossy(&changed).into_owned(), number + 2));
        let mut fewer: Vec<&str> = text.lines().collect();
        fewer.remove(number);
        damages.push((fewer.join("\n") + "\n", number + 1));
    }
    damages.push((String::new(), 1));
    damages.push(("{}\n".to_owned(), 1));
    damages.push((format!("{text}{text}"), count + 1));
    damages.push((text.replace('\n', "\r\n"), 1));
    for (damaged, line) in damages {
        let other: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let error = taken_in(&damaged, &other).await.unwrap_err();
        assert_eq!(error.kind(), Kind::ArchiveInvalid, "{error}");
        assert!(error.detail().starts_with(&format!("line {line}:")), "expected line {line}: {error}");
        assert!(other.sessions(None, 10).await.unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn contradictory_archive_with_valid_checksums_is_refused() {
    let whole = lines(&exported(&recorded().await, SESSION).await);
    let place = |wanted: fn(&Written) -> bool| whole.iter().position(wanted).unwrap();
    let without = |wanted: fn(&Written) -> bool| {
        let mut fewer = whole.clone();
        fewer.remove(place(wanted));
        fewer
    };
    let with = |wanted: fn(&Written) -> bool, change: fn(&mut Written)| {
        let mut changed = whole.clone();
        change(&mut changed[place(wanted)]);
        changed
    };
    let is_turn = |line: &Written| matches!(line, Written::Turn(_));
    let is_session = |line: &Written| matches!(line, Written::Session(_));
    let is_record = |line: &Written| matches!(line, Written::Record(record) if record.seq == Seq(3));
    let is_end = |line: &Written| matches!(line, Written::End(_));
    let cases: Vec<(&str, Vec<Written>)> = vec![
        ("must stand here", without(is_record)),
        (
            "breaks the chain",
            with(is_record, |line| {
                let Written::Record(record) = line else { return };
                record.at = Millis(1);
            }),
        ),
        ("no turn of", without(is_turn)),
        ("does not stand before it", without(|line| matches!(line, Written::Package(_)))),
        ("are missing before this", without(|line| matches!(line, Written::Content(_)))),
        ("content without an attachment", without(|line| matches!(line, Written::Attachment(_)))),
        ("none has begun", without(is_session)),
        ("the first line must be the header", without(|line| matches!(line, Written::Archive(_)))),
        (
            "its counts do not match the file",
            with(is_end, |line| *line = Written::End(ArchiveTotals::default())),
        ),
        (
            "contradict each other",
            with(is_turn, |line| {
                let Written::Turn(turn) = line else { return };
                turn.ended = Some(Seq(900));
            }),
        ),
        (
            "did not end before it",
            with(is_turn, |line| {
                let Written::Turn(turn) = line else { return };
                turn.parent = Some(outlast_vocab::record::NodeRef { session: SESSION, seq: turn.accepted });
            }),
        ),
        (
            "are not where its turn says",
            with(is_turn, |line| {
                let Written::Turn(turn) = line else { return };
                turn.key = None;
            }),
        ),
        (
            "which does not exist",
            with(is_session, |line| {
                let Written::Session(session) = line else { return };
                let nowhere = outlast_vocab::record::NodeRef { session: SESSION, seq: Seq(1) };
                session.heads.insert("main".into(), Some(nowhere));
            }),
        ),
    ];
    for (what, damaged) in cases {
        let other: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let error = taken_in(&sealed(&damaged), &other).await.unwrap_err();
        assert_eq!(error.kind(), Kind::ArchiveInvalid);
        assert!(error.to_string().contains(what), "expected `{what}`: {error}");
        assert!(other.sessions(None, 10).await.unwrap().is_empty());
    }
    let newer = with(
        |line| matches!(line, Written::Archive(_)),
        |line| {
            let Written::Archive(header) = line else { return };
            header.format = 2;
        },
    );
    let error =
        taken_in(&sealed(&newer), &(Arc::new(MemoryStore::new()) as Arc<dyn Store>)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::ArchiveTooNew);
}

#[tokio::test(start_paused = true)]
async fn import_is_atomic_across_crashes() {
    let text = exported(&recorded().await, SESSION).await;
    for (death, there) in [(CrashPoint::Before(0), 0), (CrashPoint::AfterWrite(0), 1)] {
        let memory = MemoryStore::new();
        let crashing_store = CrashingStore::new(memory.clone(), death);
        let pulse = crashing_store.pulse();
        let store: Arc<dyn Store> = Arc::new(crashing_store);
        tokio::select! {
            _ = taken_in(&text, &store) => panic!("nobody hears from the dead"),
            () = pulse.stopped() => {}
        }
        let left: Arc<dyn Store> = Arc::new(memory);
        assert_eq!(left.sessions(None, 10).await.unwrap().len(), there);
        if there == 0 {
            taken_in(&text, &left).await.unwrap();
        }
        assert_eq!(exported(&left, SESSION).await, unsigned(&text));
    }
}

#[tokio::test(start_paused = true)]
async fn session_imports_once_and_taken_key_is_refused() {
    let text = exported(&recorded().await, SESSION).await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    taken_in(&text, &store).await.unwrap();
    assert_eq!(taken_in(&text, &store).await.unwrap_err().kind(), Kind::ArchiveExists);
    let other: Arc<dyn Store> = Arc::new(MemoryStore::new());
    other
        .open(SessionTarget::Key { key: "test".into(), fresh: SessionId::from_u128(5) }, Millis(1))
        .await
        .unwrap();
    assert_eq!(taken_in(&text, &other).await.unwrap_err().kind(), Kind::InputKeyReused);
    let from = Cursor::new(text.into_bytes());
    import(other.as_ref(), &attachments(&other), from, Some("copy".into()), Millis(7)).await.unwrap();
    assert_eq!(other.session_by_key("copy".into()).await.unwrap().id, SESSION);
}

#[tokio::test(start_paused = true)]
async fn import_closes_running_turn_without_driving_it() {
    let (memory, life) = fresh(vec![call("hangs", "a"), Line::Say("done")]).await;
    life.send("go").await;
    life.runtime.submit(keyed_input("two", "more")).await.unwrap();
    life.until("effect.asked").await;
    let text = exported(&(Arc::new(memory.clone()) as Arc<dyn Store>), SESSION).await;
    life.die(&memory).await;
    let copy = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::new(copy.clone());
    assert_eq!(taken_in(&text, &store).await.unwrap().closed, 2);
    store.verify(SESSION).await.unwrap();
    let witness: Arc<Witness> = Arc::default();
    let other = live(store.clone(), vec![Line::Say("again")], witness.clone(), 9).await;
    other.runtime.idle().await.unwrap();
    assert_eq!(
        (other.script.calls.load(std::sync::atomic::Ordering::SeqCst), witness.count("hangs")),
        (0, 0)
    );
    for turn in store.turns(SESSION, 0, 10).await.unwrap() {
        assert!(matches!(turn.end, Some(TurnEnd::Cancelled { .. })));
    }
    let unknown = store.unknown(10).await.unwrap();
    assert_eq!(unknown.iter().map(|call| call.tool.as_str()).collect::<Vec<_>>(), ["hangs"]);
    let turn = other.send("on").await;
    assert_eq!(other.end(turn).await, TurnEnd::Answered { text: "nothing more to say".into() });
    let replayed =
        replay(Arc::new(MemoryStore::new()), Cursor::new(text.into_bytes()), None, &Limits::default())
            .await
            .unwrap();
    assert_eq!(replayed.divergence(), None);
}

#[tokio::test(start_paused = true)]
async fn exported_fork_contains_ancestors_up_to_fork() {
    let (memory, life) = fresh(vec![Line::Say("one"), Line::Say("two"), Line::Say("three")]).await;
    let first = life.send("a").await;
    life.end(first).await;
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let at = store.turn(first).await.unwrap().span.1;
    let branch = SessionId::from_u128(88);
    let to = ForkTo::Session { fresh: branch, key: Some("branch".into()) };
    store.fork(ForkRequest { from: SESSION, at: Some(at), to, now: Millis(1) }).await.unwrap();
    let second = life.send("a secret that the branch does not know").await;
    life.end(second).await;
    let on_branch = Input::text(SessionTarget::Id(branch), "b");
    let third = life.runtime.submit(on_branch).await.unwrap().turn;
    life.end(third).await;
    let text = exported(&store, branch).await;
    assert!(!text.contains("secret"));
    let other: Arc<dyn Store> = Arc::new(MemoryStore::new());
    taken_in(&text, &other).await.unwrap();
    for session in [SESSION, branch] {
        other.verify(session).await.unwrap();
    }
    let said = async |store: &Arc<dyn Store>| {
        let head = store.session(branch).await.unwrap().heads[0].1.unwrap();
        store
            .history(head, usize::MAX)
            .await
            .unwrap()
            .into_iter()
            .flat_map(|turn| turn.records)
            .collect::<Vec<_>>()
    };
    assert_eq!(said(&other).await, said(&store).await);
    let replayed = replay(
        Arc::new(MemoryStore::new()),
        Cursor::new(text.clone().into_bytes()),
        None,
        &Limits::default(),
    )
    .await
    .unwrap();
    assert_eq!(replayed.divergence(), None);
    let whole: Arc<dyn Store> = Arc::new(MemoryStore::new());
    taken_in(&exported(&store, SESSION).await, &whole).await.unwrap();
    taken_in(&text, &whole).await.unwrap();
    assert_eq!(said(&whole).await, said(&store).await);
    life.die(&memory).await;
}

#[tokio::test(start_paused = true)]
async fn imported_session_outputs_are_not_redelivered() {
    let text = exported(&recorded().await, SESSION).await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let subscription = SinkSubscription::to_ends("log", FeedStart::Beginning);
    store.subscribe(vec![subscription.clone()], Millis(1)).await.unwrap();
    taken_in(&text, &store).await.unwrap();
    let worker = outlast_vocab::WorkerId::from_u128(3);
    let (now, until) = (Millis(100), Millis(200));
    let collect = CollectRequest { subscription, worker, now, until, limit: 10, attempts: 3 };
    assert!(store.collect(collect).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn archives_of_every_released_format_import_and_replay() {
    for text in [include_str!("../fixtures/archive-1.jsonl")] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let imported = taken_in(text, &store).await.unwrap();
        store.verify(imported.session).await.unwrap();
        let replayed = replay(
            Arc::new(MemoryStore::new()),
            Cursor::new(text.as_bytes().to_vec()),
            None,
            &Limits::default(),
        )
        .await
        .unwrap();
        // Turns of the session that it was forked from are included to be read, not to be replayed.
        let turns = store.turns(imported.session, 0, 100).await.unwrap();
        assert_eq!(replayed.turns.len(), turns.len());
        assert_eq!(replayed.divergence(), None);
        let mut seal = ArchiveChecksum::default();
        let again = lines(text).iter().fold(String::new(), |mut again, line| {
            seal.write(line, &mut again);
            again
        });
        assert_eq!(again, text);
    }
}
