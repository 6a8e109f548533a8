//! Attachment contents outside the database: uploaded before they are referenced, deleted after, and never lost in
//! between.
use crate::asks::{Viewer, Views, answered, life_end, picture, with_tools};
use crate::common::*;
use bytes::Bytes;
use futures_util::future::{join_all, join3};
use futures_util::{TryStreamExt, stream};
use outlast_ledger::memory::MemoryStore;
use outlast_ports::ResultFuture;
use outlast_ports::attachment_upload::{AttachmentUpload, DeletionRequest, ExternalContentStore};
use outlast_ports::clock::Clock;
use outlast_ports::content_queries::ContentQueries;
use outlast_ports::contents::{
    ByteStream, ContentEntry, ContentListing, ContentStorage, MemoryContents, StoredContent, collect_bytes,
    single_chunk,
};
use outlast_ports::inbox::SessionTarget;
use outlast_ports::queries::Queries;
use outlast_ports::store::Store;
use outlast_random::SeededRandom;
use outlast_runtime::attachments::{Attachments, SweepReport, read_from};
use outlast_runtime::{Input, RuntimeConfig};
use outlast_views::BlobLocation;
use outlast_vocab::message::MediaType;
use outlast_vocab::record::Fact;
use outlast_vocab::{Error, Hash, Kind, Limits, Millis, SessionId, WorkerId};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A machine with a database and a content store, both of which outlive its processes.
struct Place {
    memory: MemoryStore,
    contents: Arc<MemoryContents>,
    clock: Arc<PausedClock>,
    lives: AtomicU64,
    viewer: Arc<Viewer>,
}

impl Place {
    fn new() -> Self {
        let clock = PausedClock::new();
        let contents = Arc::new(MemoryContents::new(clock.clone()));
        Self { memory: MemoryStore::new(), contents, clock, lives: AtomicU64::new(0), viewer: Arc::default() }
    }

    /// Starts a process that reads attachments, on this store.
    async fn live_on(&self, store: Arc<dyn Store>, limits: Limits) -> Life {
        let number = u128::from(self.lives.fetch_add(1, Ordering::Relaxed) + 1);
        let change = |config: &mut RuntimeConfig| {
            config.models = vec![Arc::new(Views(self.viewer.clone()))];
            config.contents = Some(self.contents.clone());
            config.clock = self.clock.clone();
            config.limits = limits;
        };
        live_with(store, vec![], Arc::default(), number, change).await.unwrap()
    }

    async fn live(&self) -> Life {
        self.live_on(Arc::new(self.memory.clone()), Limits::default()).await
    }

    fn attachments(&self, limits: Limits) -> Attachments {
        Attachments::new(Arc::new(self.memory.clone()), Some(self.contents.clone()), limits)
    }

    async fn there(&self) -> Vec<Hash> {
        let all: Vec<ContentEntry> = self.contents.list().try_collect().await.unwrap();
        all.into_iter().map(|found| found.content).collect()
    }

    fn shown(&self) -> Vec<Option<usize>> {
        self.viewer.0.lock().unwrap().clone()
    }
}

fn see(bytes: &[u8]) -> Input {
    Input { files: vec![picture(bytes).into()], ..input("see") }
}

fn refused<T>(answer: Result<T, Error>) -> Kind {
    answer.map(drop).unwrap_err().kind()
}

#[tokio::test(start_paused = true)]
async fn externally_stored_content_reaches_model() {
    let place = Place::new();
    let life = place.live().await;
    assert_eq!(life_end(&life, see(b"a picture")).await, answered("seen"));
    assert_eq!(place.shown(), [Some(9)]);
    let view = life.runtime.store().attachments(SESSION, 10).await.unwrap().remove(0);
    assert_eq!((view.bytes, view.location), (9, BlobLocation::Outside));
    assert_eq!(place.there().await, [view.attachment.content]);
    assert_eq!(refused(life.runtime.store().blob(view.attachment.content).await), Kind::BlobNotFound);
    let attachments = life.runtime.attachments();
    assert_eq!(attachments.read(SESSION, view.attachment.id, 2..5).await.unwrap(), b"pic");
    assert_eq!(attachments.read(SESSION, view.attachment.id, 7..99).await.unwrap(), b"re");
    assert_eq!(attachments.read(SESSION, view.attachment.id, 99..100).await.unwrap(), b"");
}

#[tokio::test(start_paused = true)]
async fn streamed_content_is_attached_in_any_store() {
    let place = Place::new();
    let media_type = || MediaType::try_from("image/png".to_owned()).unwrap();
    let bytes: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_be_bytes).collect();
    for (contents, lies) in [
        (None, BlobLocation::Database),
        (Some(place.contents.clone() as Arc<dyn ContentStorage>), BlobLocation::Outside),
    ] {
        let session = SessionId::from_u128(u128::from(lies == BlobLocation::Database));
        let attachments =
            Attachments::new(Arc::new(place.memory.clone()), contents.clone(), Limits::default());
        let file = attachments.keep(media_type(), None, read_from(bytes.as_slice())).await.unwrap();
        let change = |config: &mut RuntimeConfig| config.contents = contents;
        let life = live_with(
            Arc::new(place.memory.clone()),
            vec![Line::Say("ok")],
            Arc::default(),
            1 + session.to_u128(),
            change,
        );
        let life = life.await.unwrap();
        let sent = Input { files: vec![file.clone()], ..Input::text(SessionTarget::New(session), "see") };
        life_end(&life, sent).await;
        let (view, pieces) = attachments.open(session, file.attachment().id).await.unwrap();
        assert_eq!((view.location, view.bytes), (lies, 4_000_000));
        assert!(collect_bytes(pieces, "test", 4_000_000).await.unwrap() == bytes);
        life.die(&MemoryStore::new()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn failed_content_upload_refuses_input_and_writes_nothing() {
    let place = Place::new();
    let life = place.live().await;
    place.contents.set_reachable(false);
    assert_eq!(refused(life.runtime.submit(see(b"a picture")).await), Kind::AttachmentUnavailable);
    assert!(life.runtime.store().sessions(None, 10).await.unwrap().is_empty());
    place.contents.set_reachable(true);
    assert_eq!(life_end(&life, see(b"a picture")).await, answered("seen"));
}

#[tokio::test(start_paused = true)]
async fn turn_waits_until_content_is_readable() {
    let place = Place::new();
    let limits = Limits { recent_file_bytes: 0, ..Limits::default() };
    let life = place.live_on(Arc::new(place.memory.clone()), limits).await;
    life_end(&life, see(b"a picture")).await;
    place.contents.set_reachable(false);
    let turn = life.send("and now?").await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(life.runtime.store().turn(turn).await.unwrap().end.is_none());
    place.contents.set_reachable(true);
    assert_eq!(life.end(turn).await, answered("seen"));
    assert_eq!(place.shown(), [Some(9)]);
}

#[tokio::test(start_paused = true)]
async fn content_that_is_gone_is_shown_as_missing() {
    let place = Place::new();
    let limits = Limits { recent_file_bytes: 0, ..Limits::default() };
    let life = place.live_on(Arc::new(place.memory.clone()), limits).await;
    life_end(&life, see(b"a picture")).await;
    place.contents.delete(Hash::of(b"a picture")).await.unwrap();
    let turn = life.send("and now?").await;
    assert_eq!(life.end(turn).await, answered("seen"));
    assert_eq!(place.shown(), [None]);
}

#[tokio::test(start_paused = true)]
async fn altered_content_stops_turn_until_restored() {
    let place = Place::new();
    let limits = Limits { recent_file_bytes: 0, ..Limits::default() };
    let life = place.live_on(Arc::new(place.memory.clone()), limits).await;
    life_end(&life, see(b"a picture")).await;
    place.contents.corrupt(Hash::of(b"a picture"), "b picture");
    let turn = life.send("and now?").await;
    life.until("turn.stuck").await;
    let Some(Fact::Stuck { failure }) =
        life.facts().await.into_iter().find(|fact| fact.name() == "turn.stuck")
    else {
        panic!("it is stuck")
    };
    assert_eq!(failure.code, Kind::AttachmentCorrupt);
    place.contents.put(single_chunk("a picture"), 100).await.unwrap();
    assert_eq!(life.end(turn).await, answered("seen"));
    assert_eq!(place.shown(), [Some(9)]);
}

#[tokio::test(start_paused = true)]
async fn external_content_has_its_own_limit() {
    let place = Place::new();
    let limits = Limits { attachment_bytes: 3, outside_bytes: 5, ..Limits::default() };
    let life = place.live_on(Arc::new(place.memory.clone()), limits).await;
    assert_eq!(life_end(&life, see(b"fives")).await, answered("seen"));
    let error = life.runtime.submit(see(b"sixths")).await.map(drop).unwrap_err();
    assert_eq!(error.to_string(), "limit.exceeded: outside_bytes is limited to 5, but this needs 6");
    let keep = |bytes: &'static [u8]| async move {
        let media_type = MediaType::try_from("image/png".to_owned()).unwrap();
        place
            .attachments(Limits { outside_bytes: 5, ..Limits::default() })
            .keep(media_type, None, single_chunk(bytes))
            .await
    };
    let attachments = life.runtime.attachments();
    assert_eq!(refused(keep(b"sixths").await), Kind::LimitExceeded);
    // Contents outside the database need not fit into memory, nor into what a tool reads at once.
    let id = picture(b"fives").attachment.id;
    assert_eq!(refused(attachments.read(SESSION, id, 0..5).await), Kind::LimitExceeded);
    assert_eq!(attachments.read(SESSION, id, 1..4).await.unwrap(), b"ive");
}

#[tokio::test(start_paused = true)]
async fn tool_attachment_waits_until_external_store_accepts() {
    let place = Place::new();
    let witness: Arc<Witness> = Arc::default();
    let tools = with_tools(&witness);
    let (contents, clock) = (place.contents.clone(), place.clock.clone());
    let change = move |config: &mut RuntimeConfig| {
        tools(config);
        config.contents = Some(contents);
        config.clock = clock;
    };
    let lines = vec![call("long", "word "), Line::Say("done")];
    let life = live_with(Arc::new(place.memory.clone()), lines, witness, 1, change).await.unwrap();
    place.contents.set_reachable(false);
    let turn = life.send("go").await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(life.names().await.last(), Some(&"effect.asked"));
    place.contents.set_reachable(true);
    assert_eq!(life.end(turn).await, answered("done"));
    let view = life.runtime.store().attachments(SESSION, 10).await.unwrap().remove(0);
    assert_eq!((view.location, view.bytes), (BlobLocation::Outside, 50_000));
    assert_eq!(place.there().await, [view.attachment.content]);
}

#[tokio::test(start_paused = true)]
async fn orphaned_content_is_deleted_after_a_day() {
    let place = Place::new();
    let crashing_store = CrashingStore::new(place.memory.clone(), CrashPoint::Before(0));
    let pulse = crashing_store.pulse();
    let life = place.live_on(Arc::new(crashing_store), Limits::default()).await;
    tokio::select! {
        _ = life.runtime.submit(see(b"a picture")) => panic!("nobody hears of it"),
        () = pulse.stopped() => {}
    }
    life.die(&place.memory).await;
    assert!(place.memory.sessions(None, 10).await.unwrap().is_empty());
    let life = place.live().await;
    assert_eq!(life.runtime.sweep().await.unwrap(), SweepReport { looked_at: 1, deleted: 0 });
    assert_eq!(place.there().await.len(), 1);
    // The worker sweeps every hour.
    tokio::time::sleep(Duration::from_hours(25)).await;
    assert_eq!(place.there().await, []);
}

#[tokio::test(start_paused = true)]
async fn content_is_deleted_with_last_session_despite_crashes() {
    for death in [
        CrashPoint::Never,
        CrashPoint::Before(0),
        CrashPoint::AfterWrite(0),
        CrashPoint::Before(1),
        CrashPoint::AfterWrite(1),
    ] {
        let place = Place::new();
        let life = place.live().await;
        life_end(&life, see(b"a picture")).await;
        life.runtime.store().delete(SESSION, life.runtime.now()).await.unwrap();
        life.die(&place.memory).await;
        tokio::time::sleep(Duration::from_hours(24)).await;

        let crashing_store = CrashingStore::new(place.memory.clone(), death);
        let pulse = crashing_store.pulse();
        let life = place.live_on(Arc::new(crashing_store), Limits::default()).await;
        tokio::select! {
            biased;
            () = pulse.stopped() => {}
            swept = life.runtime.sweep() => assert_eq!(swept.unwrap(), SweepReport { looked_at: 1, deleted: 1 }),
        }
        life.die(&place.memory).await;

        // An operation of the dead process may still be running for a moment. Then it is completed or rolled back.
        tokio::time::sleep(Limits::default().deletion_lasts).await;
        let life = place.live().await;
        if matches!(death, CrashPoint::AfterWrite(0)) {
            assert_eq!(life_end(&life, see(b"a picture")).await, answered("seen"));
            assert_eq!((place.shown(), place.there().await.len()), (vec![Some(9)], 1), "{death:?}");
        } else {
            life.runtime.sweep().await.unwrap();
            assert_eq!(
                (place.there().await, place.memory.unreferenced(10).await.unwrap()),
                (vec![], vec![]),
                "{death:?}"
            );
        }
    }
}

/// A content store with slow answers, so that other operations run in between.
struct Slow {
    inner: Arc<MemoryContents>,
    random: Mutex<SeededRandom>,
}

impl Slow {
    async fn dawdle(&self) {
        let turns = {
            let mut random = self.random.lock().unwrap();
            // Usually almost no delay, sometimes a long one.
            let most = if random.percent(33) { 60 } else { 4 };
            random.below(most)
        };
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }
}

impl ContentStorage for Slow {
    fn place(&self) -> String {
        self.inner.place()
    }

    fn put<'a>(&'a self, pieces: ByteStream<'a>, most: usize) -> ResultFuture<'a, StoredContent> {
        Box::pin(async move {
            self.dawdle().await;
            let stored = self.inner.put(pieces, most).await;
            self.dawdle().await;
            stored
        })
    }

    fn get(&self, content: Hash, range: Range<u64>) -> ResultFuture<'_, ByteStream<'_>> {
        self.inner.get(content, range)
    }

    fn info(&self, content: Hash) -> ResultFuture<'_, Option<ContentEntry>> {
        Box::pin(async move {
            let found = self.inner.info(content).await;
            self.dawdle().await;
            found
        })
    }

    fn delete(&self, content: Hash) -> ResultFuture<'_, ()> {
        Box::pin(async move {
            self.dawdle().await;
            let deleted = self.inner.delete(content).await;
            self.dawdle().await;
            deleted
        })
    }

    fn list(&self) -> ContentListing<'_> {
        let all = stream::once(async {
            self.dawdle().await;
            self.inner.list()
        });
        Box::pin(futures_util::StreamExt::flatten(all))
    }

    fn remove_partial_uploads(&self, before: Millis) -> ResultFuture<'_, ()> {
        self.inner.remove_partial_uploads(before)
    }
}

/// Attaches the same few contents repeatedly and deletes the sessions with them, except for the last one.
async fn attaches(runtime: &outlast_runtime::Runtime, who: u128) -> u32 {
    let mut refusals = 0;
    for round in 0..8 {
        let session = SessionId::from_u128(who * 100 + round);
        let bytes = [b"one".as_slice(), b"two"][usize::try_from((who + round) % 2).unwrap()];
        let sent =
            Input { files: vec![picture(bytes).into()], ..Input::text(SessionTarget::New(session), "see") };
        let turn = match runtime.submit(sent).await {
            Ok(accepted) => accepted.turn,
            Err(error) => {
                assert_eq!(error.kind(), Kind::AttachmentSwept);
                refusals += 1;
                continue;
            }
        };
        runtime.outcome(turn).await.unwrap();
        if round < 7 {
            while runtime.store().delete(session, runtime.now()).await.is_err() {
                tokio::task::yield_now().await;
            }
        }
    }
    refusals
}

#[tokio::test(start_paused = true)]
async fn concurrent_puts_and_sweeps_keep_referenced_content() {
    let (mut swept, mut refusals) = (0, 0);
    for seed in 0..40 {
        let place = Place::new();
        let slow =
            Arc::new(Slow { inner: place.contents.clone(), random: Mutex::new(SeededRandom::new(seed, 0)) });
        let limits = Limits {
            content_grace: Duration::ZERO,
            sweep_every: Duration::from_hours(99),
            ..Limits::default()
        };
        let change = |config: &mut RuntimeConfig| {
            config.models = vec![Arc::new(Views(place.viewer.clone()))];
            config.contents = Some(slow.clone());
            config.clock = place.clock.clone();
            config.limits = limits.clone();
        };
        let life =
            live_with(Arc::new(place.memory.clone()), vec![], Arc::default(), 1, change).await.unwrap();
        let sweeper = Attachments::new(Arc::new(place.memory.clone()), Some(slow.clone()), limits.clone());
        let over = AtomicBool::new(false);
        let sweeps = async |worker: u128| {
            let mut deleted = 0;
            while !over.load(Ordering::Relaxed) {
                for _ in 0..8 {
                    let swept = sweeper.sweep(WorkerId::from_u128(worker), place.clock.now()).await;
                    deleted += swept.unwrap().deleted;
                    tokio::task::yield_now().await;
                }
                // Paused time advances only while all tasks sleep.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            deleted
        };
        let attached = async {
            let all = join_all((1..4).map(|who| attaches(&life.runtime, who))).await;
            over.store(true, Ordering::Relaxed);
            all
        };
        let (all, one, other) = join3(attached, sweeps(90), sweeps(91)).await;
        swept += one + other;
        refusals += all.iter().sum::<u32>();
        let there: BTreeSet<Hash> = place.there().await.into_iter().collect();
        for session in place.memory.sessions(None, 100).await.unwrap() {
            for view in place.memory.attachments(session.id, 10).await.unwrap() {
                assert!(there.contains(&view.attachment.content), "seed {seed}: {view:?} is gone");
            }
        }
        sweeper.sweep(WorkerId::from_u128(90), place.clock.now()).await.unwrap();
        sweeper.sweep(WorkerId::from_u128(91), place.clock.now()).await.unwrap();
        assert_eq!(place.memory.unreferenced(10).await.unwrap(), [], "seed {seed}");
    }
    assert!(swept > 100, "the sweeps found only {swept}");
    assert!(refusals < 240, "{refusals} inputs were refused");
}

#[tokio::test(start_paused = true)]
async fn upload_is_refused_only_if_content_was_swept() {
    let place = Place::new();
    let life = place.live().await;
    let eager = place.attachments(Limits { content_grace: Duration::ZERO, ..Limits::default() });
    let sweep = || eager.sweep(WorkerId::from_u128(90), place.clock.now());
    let keep = |bytes: &'static [u8]| {
        let media_type = MediaType::try_from("image/png".to_owned()).unwrap();
        let attachments = life.runtime.attachments();
        async move {
            attachments
                .keep(media_type, None, Box::pin(stream::iter([Ok(Bytes::from(bytes))])))
                .await
                .unwrap()
        }
    };
    let send = |file: AttachmentUpload| life.runtime.submit(Input { files: vec![file], ..input("see") });

    let file = keep(b"swept").await;
    assert_eq!(sweep().await.unwrap().deleted, 1);
    assert_eq!(refused(send(file).await), Kind::AttachmentSwept);
    assert!(life.runtime.store().sessions(None, 10).await.unwrap().is_empty());

    place.contents.put(single_chunk("other"), 100).await.unwrap();
    let orphan = Hash::of(b"other");
    let file = keep(b"kept").await;
    let request = DeletionRequest {
        contents: vec![orphan],
        worker: WorkerId::from_u128(90),
        now: place.clock.now(),
        lasts: Duration::ZERO,
    };
    assert_eq!(place.memory.mark_for_deletion(request).await.unwrap(), [orphan]);
    assert!(send(file).await.is_ok());
}
