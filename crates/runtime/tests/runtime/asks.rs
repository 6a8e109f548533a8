//! Requests to models beyond the conversation: attachments, model calls of tools, continued replies.
use crate::common::*;
use futures_util::stream;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::attachment_upload::Upload;
use outlast_ports::clock::Clock;
use outlast_ports::inbox::SessionTarget;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest};
use outlast_ports::service::{Attachments, Models, Services, Tools};
use outlast_ports::store::Store;
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, Toolbox, done};
use outlast_runtime::{Input, RuntimeConfig};
use outlast_vocab::effect::{DirectCall, StopReason};
use outlast_vocab::event::{Event, LiveEventKind};
use outlast_vocab::message::{CallArguments, Message, ModelName, Part, ToolUse, text_of};
use outlast_vocab::record::{Fact, TurnEnd};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Error, Kind, Limits, Millis, SessionId};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A model that says `one two three four ` and can continue any prefix of it. Its first streams break off.
struct SlowSpeaker {
    words: &'static [&'static str],
    /// After how many words each stream breaks off. Later streams are complete.
    cuts: Mutex<Vec<usize>>,
    /// The prefix that it was asked to continue, call by call.
    prompts: Arc<Mutex<Vec<String>>>,
}

impl ModelProvider for SlowSpeaker {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        let info = ModelCapabilities { can_continue: true, ..ModelCapabilities::of_window(1 << 20) };
        (model.as_str() == "test/script").then_some(info)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        self.prompts.lock().unwrap().push(request.partial_text.to_owned());
        let said = request.partial_text.split_inclusive(' ').count();
        let rest = self.words[said..].iter().map(|word| Ok(ModelEvent::Text((*word).to_owned())));
        let cut = self.cuts.lock().unwrap().pop();
        match cut {
            Some(after) => Box::pin(stream::iter(rest.take(after))),
            None => Box::pin(stream::iter(rest.chain([Ok(ModelEvent::End(StopReason::End))]))),
        }
    }
}

fn speaker(cuts: Vec<usize>) -> (impl FnOnce(&mut RuntimeConfig), Arc<Mutex<Vec<String>>>) {
    let prompts: Arc<Mutex<Vec<String>>> = Arc::default();
    let received = prompts.clone();
    let change = move |config: &mut RuntimeConfig| {
        let words = &["one ", "two ", "three ", "four "];
        config.models = vec![Arc::new(SlowSpeaker { words, cuts: Mutex::new(cuts), prompts })];
        config.limits = Limits { keep_bytes: 8, ..Limits::default() };
    };
    (change, received)
}

pub(crate) fn answered(text: &str) -> TurnEnd {
    TurnEnd::Answered { text: text.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn broken_reply_resumes_where_model_supports_it() {
    let (change, prompts) = speaker(vec![1, 2]);
    let life = live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, change).await.unwrap();
    let (accepted, mut events) = life.runtime.submit_watched(input("count")).await.unwrap();
    assert_eq!(life.end(accepted.turn).await, answered("one two three four "));
    assert_eq!(*prompts.lock().unwrap(), ["", "one two ", "one two three "]);
    // Subscribers end up with the same text, because each attempt repeats all of it.
    let mut received = String::new();
    loop {
        match events.next().await.unwrap() {
            Event::Live(frame) => match frame.what {
                LiveEventKind::Text { offset, text, .. } => {
                    assert_eq!(offset, received.len());
                    received.push_str(&text);
                }
                LiveEventKind::Retracted { .. } => received.clear(),
                _ => {}
            },
            Event::Durable(record) if matches!(record.fact, Fact::Ended { .. }) => break,
            _ => {}
        }
    }
    assert_eq!(received, "one two three four ");
    assert_eq!(life.runtime.store().partial_reply(accepted.turn).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn reply_interrupted_by_crash_resumes_after_saved_text() {
    let (mut finished_early, mut went_on) = (0, 0);
    for write in 1..6 {
        let memory = MemoryStore::new();
        let crashing_store = CrashingStore::new(memory.clone(), CrashPoint::AfterWrite(write));
        let pulse = crashing_store.pulse();
        let (change, _) = speaker(vec![]);
        let first = live_with(Arc::new(crashing_store), vec![], Arc::default(), 1, change).await.unwrap();
        let done = tokio::select! {
            turn = async { life_end(&first, keyed_input("k", "count")).await } => Some(turn),
            () = pulse.stopped() => None,
        };
        first.die(&memory).await;
        if done.is_some() {
            finished_early += 1;
            continue;
        }
        let (change, prompts) = speaker(vec![]);
        let second = live_with(Arc::new(memory), vec![], Arc::default(), 2, change).await.unwrap();
        assert_eq!(life_end(&second, keyed_input("k", "count")).await, answered("one two three four "));
        went_on += usize::from(prompts.lock().unwrap().iter().any(|said| !said.is_empty()));
    }
    assert!(went_on >= 2 && finished_early >= 1, "{went_on} went on, {finished_early} were done");
}

pub(crate) async fn life_end(life: &Life, input: Input) -> TurnEnd {
    let turn = life.runtime.submit(input).await.unwrap().turn;
    life.end(turn).await
}

/// A provider whose cache fails.
struct Changed;

impl ModelProvider for Changed {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        (model.as_str() == "test/script").then_some(ModelCapabilities::of_window(1 << 20))
    }

    fn stream<'a>(&'a self, _: ModelRequest<'a>) -> EventStream<'a> {
        let said = ModelEvent::Text("hi".to_owned());
        let events =
            [ModelEvent::PromptChanged("message 3".to_owned()), said, ModelEvent::End(StopReason::End)];
        Box::pin(stream::iter(events.map(Ok)))
    }
}

#[tokio::test(start_paused = true)]
async fn event_reports_where_prompt_cache_broke() {
    let change = |config: &mut RuntimeConfig| config.models = vec![Arc::new(Changed)];
    let life = live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, change).await.unwrap();
    let (accepted, mut events) = life.runtime.submit_watched(input("hi")).await.unwrap();
    assert_eq!(life.end(accepted.turn).await, answered("hi"));
    let at = loop {
        if let Event::Live(frame) = events.next().await.unwrap()
            && let LiveEventKind::PromptChanged { at, .. } = frame.what
        {
            break at;
        }
    };
    assert_eq!(at, "message 3");
}

/// A stream that sends only pings.
struct Pings;

impl ModelProvider for Pings {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        (model.as_str() == "test/script").then_some(ModelCapabilities::of_window(1 << 20))
    }

    fn stream<'a>(&'a self, _: ModelRequest<'a>) -> EventStream<'a> {
        Box::pin(stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Some((Ok(ModelEvent::KeepAlive), ()))
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn stream_without_new_content_is_cut() {
    let change = |config: &mut RuntimeConfig| {
        config.models = vec![Arc::new(Pings)];
        config.limits = Limits { provider_wait: Duration::ZERO, model_attempts: 1, ..Limits::default() };
    };
    let life = live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, change).await.unwrap();
    let turn = life.send("go").await;
    let TurnEnd::Failed { failure } = life.end(turn).await else { panic!("it must fail") };
    assert_eq!(failure.to_string(), "model.stalled: the stream returned nothing new for 300000 ms");
}

/// Records the attachments in requests: the size of each, or `None` if it was missing.
#[derive(Default)]
pub(crate) struct Viewer(pub(crate) Mutex<Vec<Option<usize>>>);

pub(crate) struct Views(pub(crate) Arc<Viewer>);

impl ModelProvider for Views {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        let knows = matches!(model.as_str(), "test/script" | "test/viewer");
        knows.then_some(ModelCapabilities::of_window(1 << 20))
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        let parts = request.messages().flat_map(|message| match message {
            Message::User { parts } => parts.as_slice(),
            _ => &[],
        });
        let seen = parts.filter_map(|part| match part {
            Part::Attachment { attachment } => Some(request.files.get(attachment.content).map(<[u8]>::len)),
            _ => None,
        });
        *self.0.0.lock().unwrap() = seen.collect();
        Box::pin(stream::iter([Ok(ModelEvent::Text("seen".into())), Ok(ModelEvent::End(StopReason::End))]))
    }
}

pub(crate) fn picture(bytes: &[u8]) -> Upload {
    Upload::new("image/png".to_owned().try_into().unwrap(), Some("p.png".into()), bytes).unwrap()
}

#[tokio::test(start_paused = true)]
async fn attachment_reaches_model_or_is_shown_missing() {
    let viewer: Arc<Viewer> = Arc::default();
    let shown = viewer.clone();
    let change = move |config: &mut RuntimeConfig| config.models = vec![Arc::new(Views(viewer))];
    let life = live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, change).await.unwrap();
    let files = vec![picture(b"a picture").into(), picture(b"another").into()];
    assert_eq!(life_end(&life, Input { files, ..input("what is this?") }).await, answered("seen"));
    assert_eq!(*shown.0.lock().unwrap(), [Some(9), Some(7)]);
    // The next turn includes it too. A reference without stored bytes is marked as missing.
    let gone = Part::Attachment { attachment: picture(b"never stored").attachment };
    assert_eq!(life_end(&life, Input { parts: vec![gone], ..input("") }).await, answered("seen"));
    assert_eq!(*shown.0.lock().unwrap(), [Some(9), Some(7), None]);
    // The journal stores only the reference.
    let Fact::Accepted(accepted) = &life.facts().await[1] else { panic!("an input") };
    assert_eq!(accepted.parts.len(), 3);
}

/// Attaches a picture, and asks the viewer about it and about the picture with these bytes.
struct Describe;

impl Tool for Describe {
    type Args = Text;
    type Needs = (Attachments, Models);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("describe", "Describes pictures.").idempotent().durable()
    }

    async fn run(
        &self,
        (attachments, models): Self::Needs,
        _: Call,
        args: Text,
    ) -> Result<ToolRunOutcome, Error> {
        let made = attachments.put("image/png", None, *b"new")?;
        let given = picture(args.text.as_bytes()).attachment;
        let parts = [given, made].map(|attachment| Part::Attachment { attachment }).to_vec();
        let question = models.question("")?;
        let model = "test/viewer".parse()?;
        let reply =
            models.call(DirectCall { model, messages: vec![Message::User { parts }], ..question }).await?;
        done(text_of(&reply.parts))
    }
}

/// Starts a worker whose model calls `describe` for a picture with these bytes.
async fn describing(bytes: &'static str) -> (Life, Arc<Viewer>) {
    let viewer: Arc<Viewer> = Arc::default();
    let views = Views(viewer.clone());
    let change = move |config: &mut RuntimeConfig| {
        let mut toolbox = Toolbox::new(Services::default());
        toolbox.add(Describe).unwrap();
        config.package = package(&toolbox);
        config.tools = vec![Arc::new(toolbox)];
        config.models.push(Arc::new(views));
    };
    let lines = vec![call("describe", bytes), Line::Say("done")];
    let store = Arc::new(MemoryStore::new());
    (live_with(store, lines, Arc::default(), 1, change).await.unwrap(), viewer)
}

#[tokio::test(start_paused = true)]
async fn attachments_of_direct_call_reach_the_model() {
    let (life, viewer) = describing("a picture").await;
    let files = vec![picture(b"a picture").into()];
    assert_eq!(life_end(&life, Input { files, ..input("look") }).await, answered("done"));
    assert_eq!(*viewer.0.lock().unwrap(), [Some(9), Some(3)]);
    assert_eq!(life.last_shown()[2], "seen");
}

#[tokio::test(start_paused = true)]
async fn direct_call_refuses_attachment_of_another_session() {
    let (life, viewer) = describing("theirs").await;
    let other = SessionTarget::Key { key: "other".into(), fresh: SessionId::from_u128(78) };
    let files = vec![picture(b"theirs").into()];
    let theirs = Input { files, ..Input::text(other, "mine") };
    let TurnEnd::Answered { .. } = life_end(&life, theirs).await else { panic!("it must end") };
    assert_eq!(life_end(&life, input("look")).await, answered("done"));
    let id = picture(b"theirs").attachment.id;
    assert_eq!(
        life.last_shown()[2],
        format!("error attachment.not_found: session {SESSION} has no attachment {id}")
    );
    // Only the turn of the other session has shown it.
    assert_eq!(*viewer.0.lock().unwrap(), [Some(6), Some(3)]);
}

#[tokio::test(start_paused = true)]
async fn oversized_attachment_is_refused_with_both_numbers() {
    let change = |config: &mut RuntimeConfig| {
        config.limits = Limits { attachment_bytes: 3, attachments_per_input: 1, ..Limits::default() };
    };
    let life = live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, change).await.unwrap();
    let send = |files| life.runtime.submit(Input { files, ..input("see") });
    let large = send(vec![picture(b"four").into()]).await.unwrap_err();
    assert_eq!(large.to_string(), "limit.exceeded: attachment_bytes is limited to 3, but this needs 4");
    let many = send(vec![picture(b"1").into(), picture(b"2").into()]).await.unwrap_err();
    assert_eq!(many.to_string(), "limit.exceeded: attachments_per_input is limited to 1, but this needs 2");
    assert_eq!(
        Upload::new("text/plain".to_owned().try_into().unwrap(), None, *b"").unwrap_err().kind(),
        Kind::AttachmentEmpty
    );
    assert!(life.runtime.store().session(SESSION).await.is_err());
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Age {
    age: u32,
}

/// Calls the model twice, once with an output type.
struct TypedModelCaller;

impl Tool for TypedModelCaller {
    type Args = Text;
    type Needs = Models;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("wonder", "Asks the model.").idempotent()
    }

    async fn run(&self, models: Models, _: Call, args: Text) -> Result<ToolRunOutcome, Error> {
        let text = models.ask(args.text).await?;
        let Age { age } = models.ask_as("how old?").await?;
        done(json!([text, age]))
    }
}

/// Calls other tools.
struct Delegate;

impl Tool for Delegate {
    type Args = Text;
    type Needs = Tools;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("delegate", "Runs another tool.").idempotent().durable()
    }

    async fn run(&self, tools: Tools, _: Call, args: Text) -> Result<ToolRunOutcome, Error> {
        let (tool, text) = args.text.split_once(' ').unwrap_or_default();
        done(tools.call(tool, json!({ "text": text })).await?)
    }
}

/// Returns the same word many times.
struct Long;

impl Tool for Long {
    type Args = Text;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("long", "Says a word often.").pure()
    }

    async fn run(&self, (): (), _: Call, args: Text) -> Result<ToolRunOutcome, Error> {
        done(args.text.repeat(10_000))
    }
}

/// Reads a whole attachment.
struct ReadMore;

impl Tool for ReadMore {
    type Args = Text;
    type Needs = Attachments;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("read_more", "Reads on.").pure()
    }

    async fn run(&self, attachments: Attachments, _: Call, args: Text) -> Result<ToolRunOutcome, Error> {
        done(attachments.get(args.text.parse()?).await?.bytes.len())
    }
}

pub(crate) fn with_tools(witness: &Arc<Witness>) -> impl FnOnce(&mut RuntimeConfig) + use<> {
    let witness = witness.clone();
    move |config| {
        let mut toolbox = Toolbox::new(Services::default());
        toolbox.add(TypedModelCaller).unwrap();
        toolbox.add(Delegate).unwrap();
        toolbox.add(Long).unwrap();
        toolbox.add(ReadMore).unwrap();
        toolbox.add(Look(witness.clone())).unwrap();
        toolbox.add(Keep(witness.clone())).unwrap();
        toolbox.add(Pay(witness)).unwrap();
        config.package = package(&toolbox);
        config.tools = vec![Arc::new(toolbox)];
    }
}

async fn tooled(lines: Vec<Line>) -> Life {
    let witness: Arc<Witness> = Arc::default();
    let change = with_tools(&witness);
    live_with(Arc::new(MemoryStore::new()), lines, witness, 1, change).await.unwrap()
}

/// Answers the model calls of tools, which have no tools. The script plays the conversation.
struct Answers(Arc<Script>, Arc<Mutex<Vec<String>>>);

impl ModelProvider for Answers {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        ScriptedModel(self.0.clone()).info(model)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        if !request.tools.is_empty() {
            let line = request.messages().count();
            let events = if line == 1 {
                let ask = ToolUse::new(
                    "c".parse().unwrap(),
                    "wonder".parse().unwrap(),
                    CallArguments::Json(json!({ "text": "why?" })),
                );
                vec![Ok(ModelEvent::Call(ask)), Ok(ModelEvent::End(StopReason::ToolUse))]
            } else {
                let prompts =
                    request.messages().last().map(|last| last.text().into_owned()).unwrap_or_default();
                vec![Ok(ModelEvent::Text(prompts)), Ok(ModelEvent::End(StopReason::End))]
            };
            return Box::pin(stream::iter(events));
        }
        let asked = request.messages().last().map(|last| last.text().into_owned()).unwrap_or_default();
        let answer = match asked.as_str() {
            "why?" => "because",
            "how old?" => "three",
            _ => "{\"age\": 3}",
        };
        self.1.lock().unwrap().push(asked);
        Box::pin(stream::iter([
            Ok(ModelEvent::Text(answer.to_owned())),
            Ok(ModelEvent::End(StopReason::End)),
        ]))
    }
}

#[tokio::test(start_paused = true)]
async fn tool_model_request_retries_until_answer_is_valid() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let witness: Arc<Witness> = Arc::default();
    let count = {
        let memory = MemoryStore::new();
        let crashing_store = CrashingStore::new(memory.clone(), CrashPoint::Never);
        let pulse = crashing_store.pulse();
        let life = answering(Arc::new(crashing_store), &asked, &witness, 1).await;
        let TurnEnd::Answered { text } = life_end(&life, input("go")).await else { panic!("an answer") };
        assert_eq!(text, "[\"because\",3]");
        pulse.writes()
    };
    let first: Vec<String> = std::mem::take(&mut *asked.lock().unwrap());
    assert_eq!((first.len(), &first[..2]), (3, &["why?".to_owned(), "how old?".to_owned()][..]));
    assert!(first[2].contains("- expected JSON, got `three`"), "{}", first[2]);
    // A model call that was answered before a crash is not repeated.
    for write in 0..count {
        let memory = MemoryStore::new();
        let crashing_store = CrashingStore::new(memory.clone(), CrashPoint::AfterWrite(write));
        let pulse = crashing_store.pulse();
        let life = answering(Arc::new(crashing_store), &asked, &witness, 1).await;
        tokio::select! {
            _ = life_end(&life, keyed_input("k", "go")) => {}
            () = pulse.stopped() => {}
        }
        life.die(&memory).await;
        let life = answering(Arc::new(memory), &asked, &witness, 2).await;
        assert_eq!(life_end(&life, keyed_input("k", "go")).await, answered("[\"because\",3]"));
        let times = std::mem::take(&mut *asked.lock().unwrap()).len();
        assert_eq!(times, 3, "after write {write}");
    }
}

async fn answering(
    store: Arc<dyn Store>,
    asked: &Arc<Mutex<Vec<String>>>,
    witness: &Arc<Witness>,
    number: u128,
) -> Life {
    let asked = asked.clone();
    let tools = with_tools(witness);
    let change = move |config: &mut RuntimeConfig| {
        tools(config);
        config.models = vec![Arc::new(Answers(Script::new(vec![]), asked))];
    };
    live_with(store, vec![], witness.clone(), number, change).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn nested_calls_run_once_and_only_if_repeatable() {
    let life =
        tooled(vec![call("delegate", "look here"), call("delegate", "pay ann"), Line::Say("done")]).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    let shown = life.last_shown();
    assert_eq!(life.witness.count("look"), 1);
    assert_eq!(life.witness.count("pay"), 0);
    assert_eq!(
        shown[4],
        "error tool.failed: a tool that is idempotent may run again, so it cannot run `pay`, which is at_most_once"
    );
}

#[tokio::test(start_paused = true)]
async fn nested_call_writes_are_exactly_once_across_crashes() {
    let lines = || vec![call("delegate", "keep x"), Line::Say("done")];
    let count = |life: &Life| life.runtime.store().clone();
    let writes = {
        let crashing_store = CrashingStore::new(MemoryStore::new(), CrashPoint::Never);
        let pulse = crashing_store.pulse();
        let witness: Arc<Witness> = Arc::default();
        let change = with_tools(&witness);
        let life = live_with(Arc::new(crashing_store), lines(), witness, 1, change).await.unwrap();
        assert_eq!(life_end(&life, keyed_input("k", "go")).await, answered("done"));
        assert_eq!(count(&life).value(SESSION, "count".into()).await.unwrap(), Some(json!(1)));
        pulse.writes()
    };
    for death in (0..writes).flat_map(|write| [CrashPoint::Before(write), CrashPoint::AfterWrite(write)]) {
        let memory = MemoryStore::new();
        let crashing_store = CrashingStore::new(memory.clone(), death);
        let pulse = crashing_store.pulse();
        let witness: Arc<Witness> = Arc::default();
        let change = with_tools(&witness);
        let first = live_with(Arc::new(crashing_store), lines(), witness.clone(), 1, change).await.unwrap();
        tokio::select! {
            _ = life_end(&first, keyed_input("k", "go")) => {}
            () = pulse.stopped() => {}
        }
        first.die(&memory).await;
        let change = with_tools(&witness);
        let second = live_with(Arc::new(memory), lines(), witness, 2, change).await.unwrap();
        assert_eq!(life_end(&second, keyed_input("k", "go")).await, answered("done"));
        let value = count(&second).value(SESSION, "count".into()).await.unwrap();
        assert_eq!(value, Some(json!(1)), "{death:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn oversized_result_is_attached_and_readable_by_handle() {
    let life = tooled(vec![call("long", "word "), Line::Say("done")]).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    let shown: serde_json::Value = serde_json::from_str(&life.last_shown()[2]).unwrap();
    assert_eq!(shown["bytes"], 50_000);
    assert_eq!(shown["beginning"].as_str().unwrap().len(), 2_048);
    let id: String = shown["attachment"].as_str().unwrap().to_owned();
    let store = life.runtime.store();
    let attached = store.attachments(SESSION, 10).await.unwrap();
    assert_eq!(attached.iter().map(|view| view.attachment.id.to_string()).collect::<Vec<_>>(), [id]);
    assert_eq!(store.blob(attached[0].attachment.content).await.unwrap().len(), 50_000);
    // The journal stores the beginning and the reference.
    let bytes: usize = life.facts().await.iter().map(|fact| fact.encode().len()).sum();
    assert!(bytes < 10_000, "{bytes}");
}

/// A provider that accepts one request and then asks for a pause of ten seconds.
struct Busy {
    asked: Arc<Mutex<Vec<Millis>>>,
    clock: Arc<dyn Clock>,
}

impl ModelProvider for Busy {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        (model.as_str() == "test/script").then_some(ModelCapabilities::of_window(1 << 20))
    }

    fn stream<'a>(&'a self, _: ModelRequest<'a>) -> EventStream<'a> {
        let mut asked = self.asked.lock().unwrap();
        asked.push(self.clock.now());
        let events = if asked.len() == 2 {
            let busy = Error::new(Kind::ModelUnavailable, "429");
            vec![Err(busy.retry_after(Duration::from_secs(10)))]
        } else {
            vec![Ok(ModelEvent::Text("done".into())), Ok(ModelEvent::End(StopReason::End))]
        };
        Box::pin(stream::iter(events))
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_sharing_provider_key_back_off_together() {
    let asked: Arc<Mutex<Vec<Millis>>> = Arc::default();
    let received = asked.clone();
    let change = move |config: &mut RuntimeConfig| {
        config.models = vec![Arc::new(Busy { asked, clock: config.clock.clone() })];
    };
    let life = live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, change).await.unwrap();
    let mut turns = Vec::new();
    for number in 0..6 {
        let target = SessionTarget::New(SessionId::from_u128(1_000 + number));
        turns.push(life.runtime.submit(Input::text(target, "go")).await.unwrap().turn);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for turn in turns {
        assert_eq!(life.end(turn).await, answered("done"));
    }
    // One request was accepted and one was rejected. The other four waited until the provider was ready, then went out
    // one at a time.
    let asked = received.lock().unwrap().clone();
    assert_eq!(asked.len(), 7);
    let since: Vec<u64> =
        asked.iter().map(|at| u64::try_from(asked[1].until(*at).as_millis()).unwrap()).collect();
    assert_eq!(since[..2], [0, 0]);
    assert!(since[2..].iter().all(|millis| (9_990..12_000).contains(millis)), "{since:?}");
    assert!(since[2..].windows(2).all(|pair| pair[1] - pair[0] >= 90), "{since:?}");
}
