//! Responses of providers: server-sent events, and the events of each API.
use crate::rehearsal::contract;
use bytes::Bytes;
use futures_util::task::noop_waker_ref;
use futures_util::{Stream, stream};
use outlast_providers::sse::{SseBody, SseEvents, SseItem};
use outlast_providers::{Api, decode};
use outlast_vocab::message::CallArguments;
use outlast_vocab::stream::ModelEvent;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Splits a body into chunks whose lengths depend on its bytes, so that libFuzzer can search for bad split points.
fn in_chunks(data: &[u8]) -> SseBody<'static> {
    let mut chunks = Vec::new();
    let mut rest = data;
    let mut length = 1;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(length.min(rest.len()));
        length = 1 + usize::from(chunk[0] % 64);
        chunks.push(Ok(Bytes::copy_from_slice(chunk)));
        rest = after;
    }
    Box::pin(stream::iter(chunks))
}

fn in_one_chunk(data: &[u8]) -> SseBody<'static> {
    Box::pin(stream::iter([Ok(Bytes::copy_from_slice(data))]))
}

/// Returns all items of a stream that never waits.
fn collect_ready_items<T>(mut stream: Pin<Box<dyn Stream<Item = T> + Send + '_>>) -> Vec<T> {
    let mut items = Vec::new();
    while let Poll::Ready(Some(item)) = stream.as_mut().poll_next(&mut Context::from_waker(noop_waker_ref()))
    {
        items.push(item);
    }
    items
}

/// Reads any bytes as a body. The events do not depend on the split points.
pub(crate) fn sse(data: &[u8]) {
    let hear = |body| {
        let item = collect_ready_items(Box::pin(SseEvents::of(body)));
        let said = item.into_iter().filter(|item| !matches!(item, Ok(SseItem::KeepAlive)));
        said.map(|item| item.map_err(|error| error.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(hear(in_chunks(data)), hear(in_one_chunk(data)));
}

pub(crate) fn openai_chat(data: &[u8]) {
    api(Api::OpenAi, data);
}

pub(crate) fn openai_responses(data: &[u8]) {
    api(Api::OpenAiResponses, data);
}

pub(crate) fn anthropic(data: &[u8]) {
    api(Api::Anthropic, data);
}

pub(crate) fn gemini(data: &[u8]) {
    api(Api::Gemini, data);
}

/// Reads any bytes as the response of an API. A reply ends once and last, or with one error. Calls are complete before
/// the end and have unique ids. Nothing depends on the split points.
fn api(api: Api, data: &[u8]) {
    let tools = [contract("pay"), contract("now")];
    let said = |body| {
        let pieces = collect_ready_items(decode(api, &tools, body));
        let events = pieces.into_iter().filter(|piece| !matches!(piece, Ok(ModelEvent::KeepAlive)));
        events.map(|piece| piece.map_err(|error| error.to_string())).collect::<Vec<_>>()
    };
    let pieces = said(in_one_chunk(data));
    assert_eq!(said(in_chunks(data)), pieces);
    let Some((last, before)) = pieces.split_last() else {
        panic!("a reply that says nothing ends with an error")
    };
    assert!(matches!(last, Err(_) | Ok(ModelEvent::End(_))), "{last:?} is no end");
    let mut ids = Vec::new();
    for piece in before {
        match piece {
            Ok(ModelEvent::Call(call)) => {
                assert!(!ids.contains(&&call.id), "{} is used twice", call.id);
                ids.push(&call.id);
                if let CallArguments::Broken(text) = &call.arguments {
                    assert!(serde_json::from_str::<serde_json::Value>(text).is_err(), "`{text}` is whole");
                }
            }
            Ok(ModelEvent::End(_)) | Err(_) => panic!("something follows the end"),
            Ok(_) => {}
        }
    }
}
