//! The in-memory doubles pass the conformance suites of their ports: the virtual clock, contents, payments, rates, a
//! scripted model, a toolbox.
use futures_util::stream;
use outlast_conformance::{
    ClockFixture, ContentsFixture, LimiterFixture, ModelFixture, PaymentsFixture, ToolFixture, ToolRequest,
};
use outlast_ports::clock::{Clock, VirtualClock};
use outlast_ports::contents::{ContentStorage, MemoryContents};
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest};
use outlast_ports::payment::{InMemoryPaymentAuthority, PaymentAuthority};
use outlast_ports::rate::{LocalRateLimiter, RateLimiter};
use outlast_ports::tool::{Call, Tool, ToolProvider, ToolRunOutcome, ToolSpec, Toolbox, done};
use outlast_vocab::effect::StopReason;
use outlast_vocab::message::{CallArguments, Message, ModelName, ToolUse};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Error, Hash, Kind, Millis};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

struct InMemory(MemoryContents, Arc<VirtualClock>);

impl ContentsFixture for InMemory {
    fn contents(&self) -> &dyn ContentStorage {
        &self.0
    }

    fn now(&self) -> Millis {
        self.1.now()
    }

    fn corrupt(&self, content: Hash, bytes: &[u8]) {
        self.0.corrupt(content, bytes.to_vec());
    }
}

outlast_conformance::contents_conformance!(|| {
    let clock = Arc::new(VirtualClock::at(Millis(1_000)));
    InMemory(MemoryContents::new(clock.clone()), clock)
});

struct OneHundred(InMemoryPaymentAuthority);

impl PaymentsFixture for OneHundred {
    fn authority(&self) -> &dyn PaymentAuthority {
        &self.0
    }
}

outlast_conformance::payments_conformance!(|| OneHundred(InMemoryPaymentAuthority::with_money(["100 EUR"
    .parse()
    .unwrap()])));

struct OneProcess(LocalRateLimiter);

impl LimiterFixture for OneProcess {
    fn limiter(&self) -> &dyn RateLimiter {
        &self.0
    }
}

outlast_conformance::limiter_conformance!(|| OneProcess(LocalRateLimiter::default()));

struct StandsStill(VirtualClock);

impl ClockFixture for StandsStill {
    fn clock(&self) -> &dyn Clock {
        &self.0
    }

    fn advance(&self, time: Duration) {
        self.0.advance(time);
    }
}

outlast_conformance::clock_conformance!(|| StandsStill(VirtualClock::at(Millis(1_000))));

/// A model that greets, or reads the clock if it gets that tool.
struct Scripted;

impl ModelProvider for Scripted {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        (model.as_str() == "test/scripted").then_some(ModelCapabilities::of_window(1_000))
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        let model = &request.call.model;
        if self.info(model).is_none() {
            let unknown = Error::new(Kind::ModelUnknown, format!("nobody serves {model}"));
            return Box::pin(stream::iter([Err(unknown)]));
        }
        let pieces = match request.tools.first() {
            Some(tool) => {
                let id = "call_1".parse().expect("it fits");
                let arguments = CallArguments::Json(json!({}));
                let call = ToolUse::new(id, tool.name.clone(), arguments);
                vec![ModelEvent::Call(call), ModelEvent::End(StopReason::ToolUse)]
            }
            None => vec![ModelEvent::Text("hello".to_owned()), ModelEvent::End(StopReason::End)],
        };
        Box::pin(stream::iter(pieces.into_iter().map(Ok)))
    }
}

impl ModelFixture for Scripted {
    fn provider(&self) -> &dyn ModelProvider {
        self
    }

    fn model(&self) -> ModelName {
        "test/scripted".parse().expect("it fits")
    }

    fn question(&self) -> Vec<Message> {
        vec![Message::user("hi")]
    }

    fn tool_request(&self) -> ToolRequest {
        let tools = watch();
        let contracts = tools.manifests().into_iter().filter_map(|tool| tools.contract(&tool.name).cloned());
        ToolRequest { messages: vec![Message::user("what time is it?")], tools: contracts.collect() }
    }
}

outlast_conformance::model_conformance!(|| Scripted);

struct Watch;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

impl Tool for Watch {
    type Args = Nothing;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("watch", "Tells the time.\n\nIn no time zone.").pure()
    }

    async fn run(&self, (): (), _: Call, _: Nothing) -> Result<ToolRunOutcome, Error> {
        done("noon")
    }
}

fn watch() -> Toolbox {
    let mut tools = Toolbox::default();
    tools.add(Watch).expect("it needs nothing");
    tools
}

struct OneTool(Toolbox);

impl ToolFixture for OneTool {
    fn tools(&self) -> &dyn ToolProvider {
        &self.0
    }
}

outlast_conformance::tool_conformance!(|| OneTool(watch()));
