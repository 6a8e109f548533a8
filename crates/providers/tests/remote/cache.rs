//! The reports about a provider's prompt cache.
use crate::dialect::{Bit, reply};
use crate::stage::{call, hear, remote};
use outlast_playback::{Playback, ResponseScript};
use outlast_ports::model::ModelRequest;
use outlast_providers::Api;
use outlast_vocab::effect::StopReason;
use outlast_vocab::message::Message;
use outlast_vocab::stream::ModelEvent;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Collects the log lines of the providers.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("outlast_providers") && *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        writeln!(self.0.lock().unwrap(), "{}{}", event.metadata().level(), line.0).unwrap();
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if ["message", "changed", "usage.cache_read"].contains(&field.name()) {
            write!(self.0, " {}={value:?}", field.name()).unwrap();
        }
    }
}

#[test]
fn calls_report_cache_use_and_prompt_changes() {
    let server =
        Playback::of([ResponseScript::stream(reply(Api::Anthropic, &[Bit::Text("ok")], StopReason::End))]);
    let (provider, call) = (remote(Api::Anthropic, &server), call(Api::Anthropic));
    let log = Log::default();
    let mut reported: Vec<String> = Vec::new();
    tracing::subscriber::with_default(log.clone(), || {
        for (system, text) in [("Be brief.", "one"), ("Be brief.", "two"), ("Be long.", "two")] {
            let turn = [Message::user(text)];
            let pieces = hear(&provider, ModelRequest { system, turn: &turn, ..ModelRequest::empty(&call) });
            reported.extend(pieces.into_iter().filter_map(|piece| match piece {
                Ok(ModelEvent::PromptChanged(at)) => Some(at),
                _ => None,
            }));
        }
    });
    assert_eq!(reported, ["message 1", "the system prompt"]);
    let report = "DEBUG message=prompt cache usage.cache_read=30\n";
    let changed = |place: &str| {
        format!(
            "WARN message=the start of the prompt has changed, so the provider's cache covers only the part before the change usage.cache_read=30 changed={place:?}\n"
        )
    };
    let want = [report, report, &changed("message 1"), report, &changed("the system prompt")].concat();
    assert_eq!(*log.0.lock().unwrap(), want);
}
