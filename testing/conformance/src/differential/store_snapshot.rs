//! Reads all data of a store as text.
use super::known_ids::KnownIds;
use super::store_request::{StoreRequest, send_all};
use super::value_generators::BLOBS;
use crate::Fixture;
use crate::store_under_test::{ALL, StoreUnderTest};
use outlast_vocab::{Error, Hash};
use std::fmt::Write;

/// Returns the current data of a store, or an error that it must not give.
pub(super) fn store_snapshot_of(on: &dyn Fixture, known: &KnownIds) -> Result<String, String> {
    let mut looked = Ok(String::new());
    on.run(Box::pin(async { looked = read_everything(&on.into()).await }));
    let mut text = looked.map_err(|error| error.to_string())?;
    // These may be errors, because missing objects are not found.
    let turns = known.turns.iter().copied();
    let asks: Vec<StoreRequest> = turns
        .flat_map(|turn| {
            [StoreRequest::Turn(turn), StoreRequest::TurnRecords(turn), StoreRequest::CancelReason(turn)]
        })
        .chain(BLOBS.iter().map(|blob| StoreRequest::Blob(Hash::of(blob))))
        .chain(known.workers.iter().map(|worker| StoreRequest::Agenda(*worker, known.now)))
        .chain(["one", "two"].map(|sink| StoreRequest::Deliveries(sink.to_owned(), ALL)))
        .chain([
            StoreRequest::Feed(0, ALL),
            StoreRequest::Sweeps,
            StoreRequest::Left(ALL),
            StoreRequest::Sinks,
            StoreRequest::Budgets(ALL),
            StoreRequest::Rates(ALL),
        ])
        .collect();
    for answer in send_all(on, &asks) {
        writeln!(text, "{} {}", answer.name, answer.text).expect("a String takes every write");
    }
    Ok(text)
}

/// Returns the data that every healthy store can read.
async fn read_everything(s: &StoreUnderTest<'_>) -> Result<String, Error> {
    let mut text = s.snapshot().await?;
    for session in s.sessions(None, ALL).await? {
        let records = s.verify(session.id).await?;
        writeln!(text, "{} has {records} records", session.id).expect("a String takes every write");
        for node in session.heads.into_iter().filter_map(|(_, node)| node) {
            writeln!(text, "{:?}", s.history(node, ALL).await?).expect("a String takes every write");
        }
    }
    Ok(text)
}
