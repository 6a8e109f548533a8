//! Calls that can be undone. A trip is a flight and a hotel, or nothing: the tool undoes the calls of the tools it ran.
//! An aborted turn undoes all its calls, newest first.
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use outlast::serde_json::{Value, json};
use outlast::vocab::event::Event;
use outlast::vocab::record::Fact;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The bookings.
#[derive(Clone, Default)]
struct Bookings(Arc<Mutex<Vec<String>>>);

/// Books something.
#[tool(idempotent, undo = "unbook")]
async fn book(what: String, bookings: Service<Bookings>) -> Result<Value, Error> {
    if what == "hotel" {
        return Err(failed("the hotel is full"));
    }
    bookings.0.lock().expect("nobody panics").push(what.clone());
    // The undo tool receives the result.
    Ok(json!({ "what": what }))
}

/// Takes a booking back.
#[tool(idempotent)]
async fn unbook(what: String, bookings: Service<Bookings>) -> Result<String, Error> {
    bookings.0.lock().expect("nobody panics").retain(|booked| *booked != what);
    Ok(format!("{what} is not booked any more"))
}

/// Books a flight and a hotel, or neither.
#[tool(idempotent, durable)]
async fn trip(tools: Tools) -> Result<String, Error> {
    tools.call("book", json!({ "what": "flight" })).await?;
    match tools.call("book", json!({ "what": "hotel" })).await {
        Ok(_) => Ok("booked".to_owned()),
        Err(error) => {
            tools.undo().await?;
            Err(error)
        }
    }
}

/// Waits for a word that never comes.
#[tool(idempotent, durable)]
async fn ask(_completion: Completion) -> Result<ToolRunOutcome, Error> {
    Ok(ToolRunOutcome::Pending)
}

/// Tries a trip, then books a car and aborts while the turn waits.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let script: Script = "call trip {}\n---\ncall book {\"what\": \"car\"}\n---\ncall ask {}".parse()?;
    let bookings = Bookings::default();
    let booked = || bookings.0.lock().expect("nobody panics").join(", ");
    let outlast = Outlast::at(dir.join("undo.db"))
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .service(bookings.clone())
        .tool(book)
        .tool(unbook)
        .tool(trip)
        .tool(ask)
        .start()
        .await?;
    let turn = outlast.new_session().send("book me a trip").await?;
    let mut events = turn.events();
    while !matches!(events.next().await?, Event::Durable(record) if matches!(record.fact, Fact::Parked { .. }))
    {
    }
    let before = booked();
    turn.abort("the trip is off").await?;
    let end = turn.outcome().await?;
    outlast.shut_down().await;
    Ok(format!("booked: {before}; {}: {}", end.name(), booked()))
}

/// Runs it in the current directory.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}
