//! Models whose context window is smaller than assumed.
use crate::common::*;
use futures_util::stream;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest, TOKEN_BYTES};
use outlast_ports::store::Store;
use outlast_runtime::RuntimeConfig;
use outlast_vocab::effect::StopReason;
use outlast_vocab::message::{Message, ModelName};
use outlast_vocab::record::{CompactionMethod, CompactionRecord, EffectPerformed, Fact, TurnEnd};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Error, Kind};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The window that the provider assumes, in bytes.
const ASSUMED: usize = 200_000;

/// The window of the small model, in bytes.
const WINDOW: usize = 12_000;

/// A model that rejects every request over its window. It answers `long …` with 1,500 bytes, and anything else with
/// `ok`.
#[derive(Clone)]
struct SmallWindow {
    window: usize,
    known: Arc<AtomicUsize>,
    /// Whether its provider learns the window from the error.
    learns: bool,
    /// Whether it can write summaries.
    summarises: bool,
    /// Whether the reserved reply counts, as for vLLM.
    counts_reply: bool,
    /// The size and the reply bound of each request.
    requests: Arc<Mutex<Vec<(usize, u32)>>>,
}

impl SmallWindow {
    fn of(window: usize) -> Self {
        let (known, requests) = (Arc::new(AtomicUsize::new(ASSUMED)), Arc::default());
        Self { window, known, learns: false, summarises: true, counts_reply: false, requests }
    }

    /// Returns the requests that it rejected.
    fn rejected(&self) -> usize {
        self.requests.lock().unwrap().iter().filter(|(size, _)| *size > self.window).count()
    }

    fn reply(&self, request: &ModelRequest<'_>) -> Vec<Result<ModelEvent, Error>> {
        let messages: usize = request.messages().map(Message::size).sum();
        let bound = request.call.options.tokens_most.expect("every reply is bounded");
        let reply = if self.counts_reply { bound as usize * TOKEN_BYTES } else { 0 };
        let size = request.system.len() + messages + reply;
        self.requests.lock().unwrap().push((size, bound));
        if size > self.window {
            if self.learns {
                self.known.store(self.window, Ordering::SeqCst);
            }
            return vec![Err(Error::new(Kind::ModelContextExceeded, "it is too long"))];
        }
        let is_summary = request.system.contains("summary");
        if is_summary && !self.summarises {
            return vec![Err(Error::new(Kind::ModelRejected, "no summaries"))];
        }
        let last = request.messages().last().map(|last| last.text().into_owned()).unwrap_or_default();
        let text = match last.as_str() {
            _ if is_summary => "in short".to_owned(),
            long if long.starts_with("long") => "y".repeat(1_500),
            _ => "ok".to_owned(),
        };
        vec![Ok(ModelEvent::Text(text)), Ok(ModelEvent::End(StopReason::End))]
    }
}

impl ModelProvider for SmallWindow {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        let known = self.known.load(Ordering::SeqCst);
        (model.as_str() == "test/script").then_some(ModelCapabilities::of_window(known))
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        Box::pin(stream::iter(self.reply(&request)))
    }
}

async fn life(store: Arc<dyn Store>, model: &SmallWindow, number: u128) -> Life {
    let change = |config: &mut RuntimeConfig| config.models = vec![Arc::new(model.clone())];
    live_with(store, vec![], Arc::default(), number, change).await.unwrap()
}

async fn say(life: &Life, number: usize, text: &str) -> TurnEnd {
    let turn = life.runtime.submit(keyed_input(&number.to_string(), text)).await.unwrap().turn;
    life.end(turn).await
}

fn answered(text: &str) -> TurnEnd {
    TurnEnd::Answered { text: text.to_owned() }
}

/// Returns a store with a session of about 60 KB.
async fn long_session() -> MemoryStore {
    let memory = MemoryStore::new();
    let life = life(Arc::new(memory.clone()), &SmallWindow::of(ASSUMED), 1).await;
    for number in 0..40 {
        say(&life, number, &format!("long {number}")).await;
    }
    assert!(compactions(&life).await.is_empty());
    life.die(&memory).await;
    memory
}

async fn compactions(life: &Life) -> Vec<CompactionRecord> {
    let compacted = life.facts().await.into_iter().filter_map(|fact| match fact {
        Fact::Compacted(compacted) => Some(compacted),
        _ => None,
    });
    compacted.collect()
}

#[tokio::test(start_paused = true)]
async fn long_session_answers_on_model_with_small_window() {
    for (learns, summarises, rejections) in
        [(true, true, 1), (false, true, 3), (true, false, 1), (false, false, 3)]
    {
        let memory = long_session().await;
        let model = SmallWindow { learns, summarises, ..SmallWindow::of(WINDOW) };
        let life = life(Arc::new(memory), &model, 2).await;
        assert_eq!(say(&life, 100, "hi").await, answered("ok"), "{learns} {summarises}");
        assert!(model.rejected() <= rejections, "{learns} {summarises} {:?}", model.requests);
        assert_eq!(compactions(&life).await.is_empty(), !summarises);
        // The next input is not rejected again.
        assert_eq!(say(&life, 101, "hi").await, answered("ok"));
        assert!(model.rejected() <= rejections + usize::from(!learns && !summarises) * rejections);
    }
}

#[tokio::test(start_paused = true)]
async fn oversized_input_fails_and_next_input_works() {
    for (learns, summarises) in [(true, true), (false, true), (true, false), (false, false)] {
        let model = SmallWindow { learns, summarises, ..SmallWindow::of(WINDOW) };
        let life = life(Arc::new(MemoryStore::new()), &model, 1).await;
        assert_eq!(say(&life, 0, "hi").await, answered("ok"));
        let end = say(&life, 1, &"x".repeat(200_000)).await;
        let TurnEnd::Failed { failure } = end else { panic!("{end:?}") };
        assert_eq!(failure.code, Kind::ModelContextExceeded);
        let window = if learns { WINDOW } else { ASSUMED } / TOKEN_BYTES;
        let (_, numbers) = failure.detail.split_once("; the shortest request has about 67").unwrap();
        let end = format!(" tokens, and the context window of `test/script` has about {window}");
        assert!(numbers.ends_with(&end), "{failure:?}");
        for number in 2..5 {
            assert_eq!(say(&life, number, "hi").await, answered("ok"), "{learns} {summarises} {number}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn learned_window_shortens_reply_before_conversation() {
    let model = SmallWindow { learns: true, counts_reply: true, ..SmallWindow::of(WINDOW) };
    let life = life(Arc::new(MemoryStore::new()), &model, 1).await;
    assert_eq!(say(&life, 0, "hi").await, answered("ok"));
    let bounds: Vec<u32> = model.requests.lock().unwrap().iter().map(|(_, bound)| *bound).collect();
    // A quarter of the window, which holds 4,000 tokens.
    assert_eq!(bounds, [8_192, 1_000]);
    assert!(compactions(&life).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn learned_compaction_survives_crash_at_every_write() {
    let whole = {
        let memory = long_session().await;
        let mortal = CrashingStore::new(memory, CrashPoint::Never);
        let pulse = mortal.pulse();
        let life = life(Arc::new(mortal), &SmallWindow::of(WINDOW), 2).await;
        assert_eq!(say(&life, 100, "hi").await, answered("ok"));
        (pulse.writes(), shortened(&life).await)
    };
    assert!(!whole.1.is_empty());
    for write in 0..whole.0 {
        for death in [CrashPoint::Before(write), CrashPoint::AfterWrite(write)] {
            let memory = long_session().await;
            let mortal = CrashingStore::new(memory.clone(), death);
            let pulse = mortal.pulse();
            let first = life(Arc::new(mortal), &SmallWindow::of(WINDOW), 2).await;
            tokio::select! {
                _ = say(&first, 100, "hi") => {}
                () = pulse.stopped() => {}
            }
            first.die(&memory).await;
            let second = life(Arc::new(memory), &SmallWindow::of(WINDOW), 3).await;
            assert_eq!(say(&second, 100, "hi").await, answered("ok"), "{death:?}");
            assert_eq!(shortened(&second).await, whole.1, "{death:?}");
        }
    }
}

/// Returns the compactions without their replay keys, which must differ.
async fn shortened(life: &Life) -> Vec<(u32, CompactionMethod)> {
    let made = compactions(life).await;
    let keys: BTreeSet<_> = made.iter().map(|made| made.key.clone()).collect();
    assert_eq!(keys.len(), made.len());
    made.into_iter().map(|made| (made.here, made.shorter)).collect()
}

#[tokio::test(start_paused = true)]
async fn every_reply_is_bounded_and_recorded() {
    let life = life(Arc::new(MemoryStore::new()), &SmallWindow::of(ASSUMED), 1).await;
    say(&life, 0, "hi").await;
    let recorded = life.facts().await.into_iter().find_map(|fact| match fact {
        Fact::Performed(EffectPerformed { command, .. }) => Some(command),
        _ => None,
    });
    let Some(outlast_vocab::effect::Command::ModelCall(call)) = recorded else { panic!("{recorded:?}") };
    assert_eq!(call.options.tokens_most, Some(8_192));
}
