//! Reads all data of a store as text.
use super::ask::{Ask, put};
use super::known::Known;
use super::things::BLOBS;
use crate::Fixture;
use crate::scene::{ALL, Scene};
use outlast_vocab::{Error, Hash};
use std::fmt::Write;

/// Returns the current data of a store, or an error that it must not give.
pub(super) fn at(on: &dyn Fixture, known: &Known) -> Result<String, String> {
    let mut looked = Ok(String::new());
    on.run(Box::pin(async { looked = picture(&on.into()).await }));
    let mut text = looked.map_err(|error| error.to_string())?;
    // These may be errors, because missing objects are not found.
    let turns = known.turns.iter().copied();
    let asks: Vec<Ask> = turns
        .flat_map(|turn| [Ask::Turn(turn), Ask::TurnRecords(turn), Ask::CancelReason(turn)])
        .chain(BLOBS.iter().map(|blob| Ask::Blob(Hash::of(blob))))
        .chain(known.workers.iter().map(|worker| Ask::Agenda(*worker, known.now)))
        .chain(["one", "two"].map(|sink| Ask::Deliveries(sink.to_owned(), ALL)))
        .chain([
            Ask::Feed(0, ALL),
            Ask::Sweeps,
            Ask::Left(ALL),
            Ask::Sinks,
            Ask::Budgets(ALL),
            Ask::Rates(ALL),
        ])
        .collect();
    for answer in put(on, &asks) {
        writeln!(text, "{} {}", answer.name, answer.said).expect("a String takes every write");
    }
    Ok(text)
}

/// Returns the data that every healthy store can read.
async fn picture(s: &Scene<'_>) -> Result<String, Error> {
    let mut text = s.picture().await?;
    for session in s.sessions(None, ALL).await? {
        let records = s.verify(session.id).await?;
        writeln!(text, "{} has {records} records", session.id).expect("a String takes every write");
        for node in session.heads.into_iter().filter_map(|(_, node)| node) {
            writeln!(text, "{:?}", s.history(node, ALL).await?).expect("a String takes every write");
        }
    }
    Ok(text)
}
