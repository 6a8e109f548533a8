//! The outbox of outputs for sinks. [`crate::outbox`] explains why none is lost.
use super::orgs::{Deed, note};
use super::outputs::{about, moments};
use super::{lookup, referred, turn_by_no};
use crate::outbox::{
    Attempt, Begins, Collect, DeliveryPlace, DeliveryView, Due, Outlook, SinkView, Subscription,
};
use crate::page::{Page, rows_for};
use crate::rows::{DeliveryRow, LATEST, ReadRows, Rows, SinkRow};
use crate::sink::{Moment, Output, Topic};
use outlast_vocab::access::{Act, Reach};
use outlast_vocab::id::{DeliveryId, SessionId, TurnId};
use outlast_vocab::{Error, Failure, Kind, Millis};

/// Records scanned in one transaction.
const SCANNED: usize = 500;

/// Running deliveries that are searched for those of dead workers.
const LOOKED_AT: usize = 1_000;

/// Registers new sinks.
pub fn subscribe(rows: &mut dyn Rows, subscriptions: &[Subscription], now: Millis) -> Result<(), Error> {
    rows.access().need_everything()?;
    for Subscription { name, begins, .. } in subscriptions {
        if rows.sink(name)?.is_none() {
            let cursor = match begins {
                Begins::Now => rows.feed_end()?,
                Begins::Beginning => 0,
            };
            rows.put_sink(&SinkRow { name: name.clone(), since: now, cursor, delivered: 0 })?;
        }
    }
    Ok(())
}

/// Returns whether there is something to deliver to a sink, and when.
pub fn outlook(rows: &dyn ReadRows, sink: &str, now: Millis) -> Result<Outlook, Error> {
    let cursor = find(rows, sink)?.cursor;
    let next = rows.next_delivery(sink)?;
    let is_due =
        next.is_some_and(|next| next <= now) || rows.feed_end()? > cursor || !left(rows, sink)?.is_empty();
    Ok(Outlook { is_due, next })
}

/// Returns the deliveries that dead workers hold.
fn left(rows: &dyn ReadRows, sink: &str) -> Result<Vec<DeliveryRow>, Error> {
    let mut taken = rows.deliveries_taken(sink, LOOKED_AT)?;
    taken.retain(|row| row.worker.is_some_and(|worker| rows.is_dead(worker)));
    Ok(taken)
}

/// Scans the feed since the last call, and takes the deliveries that are due.
pub fn collect(rows: &mut dyn Rows, collect: &Collect) -> Result<Vec<Due>, Error> {
    let Collect { subscription, now, limit, .. } = collect;
    scan(rows, subscription, *now)?;
    let mut free = left(rows, &subscription.name)?;
    let on_time = rows.deliveries_due(&subscription.name, *now, *limit)?;
    free.extend(on_time.into_iter().filter(|row| !free.contains(row)).collect::<Vec<_>>());
    let mut due = Vec::new();
    for row in free.into_iter().take(*limit) {
        due.extend(take(rows, collect, row)?);
    }
    Ok(due)
}

/// Adds a delivery for every wanted output after the cursor of a sink, and moves the cursor.
fn scan(rows: &mut dyn Rows, subscription: &Subscription, now: Millis) -> Result<(), Error> {
    let sink = find(rows, &subscription.name)?;
    let page = rows.feed(Reach::Everything, sink.cursor, SCANNED)?;
    let Some((cursor, _)) = page.last() else { return Ok(()) };
    let cursor = *cursor;
    for (_, record) in page {
        let Some(no) = record.turn else { continue };
        let session = referred("session", rows.session(record.session)?)?;
        // Imported records were delivered where they were written.
        if record.seq <= session.imported {
            continue;
        }
        for moment in moments(rows, subscription, (&session, &turn_by_no(rows, no)?), record)? {
            rows.put_delivery(&DeliveryRow {
                sink: sink.name.clone(),
                turn: no,
                moment,
                attempts: 0,
                forgiven: 0,
                due_at: Some(now.min(LATEST)),
                worker: None,
                failure: None,
            })?;
        }
    }
    rows.put_sink(&SinkRow { cursor, ..sink })
}

/// Takes one delivery. Gives it up if all its attempts were started.
fn take(rows: &mut dyn Rows, collect: &Collect, row: DeliveryRow) -> Result<Option<Due>, Error> {
    let tries = row.attempts.saturating_sub(row.forgiven);
    if tries >= collect.attempts {
        let detail = format!("it was begun {tries} times, and no worker lived to say how that went");
        let failure = row.failure.clone().or(Some(Failure::new(Kind::DeliveryFailed, detail)));
        rows.put_delivery(&DeliveryRow { due_at: None, worker: None, failure, ..row })?;
        return Ok(None);
    }
    let attempts = row.attempts.saturating_add(1);
    let (worker, due_at) = (Some(collect.worker), Some(collect.until.min(LATEST)));
    let row = DeliveryRow { attempts, due_at, worker, ..row };
    rows.put_delivery(&row)?;
    let output = output(rows, &row, collect.now)?;
    Ok(Some(Due { output, tries: tries + 1 }))
}

fn output(rows: &dyn ReadRows, row: &DeliveryRow, sent: Millis) -> Result<Output, Error> {
    let turn = turn_by_no(rows, row.turn)?;
    let session = referred("session", rows.session(turn.session)?)?;
    let at = referred("record", lookup::one(rows, turn.session, row.moment.seq)?)?.at;
    let about = about(rows, (&session, &turn), row.moment)?;
    Ok(Output {
        id: id(&row.sink, turn.id, row.moment, about.topic()),
        org: session.org,
        session: session.id,
        key: session.key,
        turn: turn.id,
        moment: row.moment,
        at,
        about,
        attempt: row.attempts,
        sent,
    })
}

/// Returns the id of an output for a sink, which never changes. A turn ends once, so its end needs no position.
fn id(sink: &str, turn: TurnId, moment: Moment, topic: Topic) -> DeliveryId {
    let Moment { seq, nth } = moment;
    let turn = turn.to_u128().to_be_bytes();
    match topic {
        Topic::TurnEnded => DeliveryId::derived(&[sink.as_bytes(), &turn]),
        _ => DeliveryId::derived(&[sink.as_bytes(), &turn, &seq.0.to_be_bytes(), &nth.to_be_bytes()]),
    }
}

/// Returns a delivery's id, session, turn and topic.
fn named(rows: &dyn ReadRows, row: &DeliveryRow) -> Result<(DeliveryId, SessionId, TurnId, Topic), Error> {
    let turn = turn_by_no(rows, row.turn)?;
    let session = referred("session", rows.session(turn.session)?)?;
    let topic = about(rows, (&session, &turn), row.moment)?.topic();
    Ok((id(&row.sink, turn.id, row.moment, topic), session.id, turn.id, topic))
}

/// Confirms that an output was delivered. This holds even if the worker exceeded its time.
pub fn delivered(rows: &mut dyn Rows, attempt: &Attempt) -> Result<(), Error> {
    let Some(row) = tried(rows, attempt)? else { return Ok(()) };
    let sink = find(rows, &attempt.sink)?;
    rows.delete_delivery(&row.sink, row.turn, row.moment)?;
    rows.put_sink(&SinkRow { delivered: sink.delivered + 1, ..sink })
}

/// Records why an attempt failed, and when the delivery is due again.
pub fn undelivered(
    rows: &mut dyn Rows,
    attempt: &Attempt,
    failure: Failure,
    again: Option<Millis>,
) -> Result<(), Error> {
    match tried(rows, attempt)? {
        Some(row) if row.attempts == attempt.attempt && row.worker.is_some() => {
            let due_at = again.map(|again| again.min(LATEST));
            rows.put_delivery(&DeliveryRow { due_at, worker: None, failure: Some(failure), ..row })
        }
        _ => Ok(()),
    }
}

/// Returns the delivery of an attempt. `None` if it was already delivered or its session is deleted.
fn tried(rows: &dyn ReadRows, attempt: &Attempt) -> Result<Option<DeliveryRow>, Error> {
    rows.access().need_everything()?;
    match rows.turn_by_id(attempt.turn)? {
        Some(turn) => rows.delivery(&attempt.sink, turn.no, attempt.moment),
        None => Ok(None),
    }
}

/// Returns all sinks, by name.
pub fn sinks(rows: &dyn ReadRows) -> Result<Vec<SinkView>, Error> {
    rows.access().need_everything()?;
    let view = |SinkRow { name, since, cursor, delivered }: SinkRow| {
        let (due, dead) = rows.count_deliveries(&name)?;
        Ok(SinkView { since, behind: rows.feed_length(cursor)?, due, dead, delivered, name })
    };
    rows.sinks()?.into_iter().map(view).collect()
}

/// Returns the outputs that are not yet delivered to a sink, oldest first.
pub fn deliveries(
    rows: &dyn ReadRows,
    sink: &str,
    after: Option<DeliveryPlace>,
    limit: usize,
) -> Result<Page<DeliveryView, DeliveryPlace>, Error> {
    find(rows, sink)?;
    let view = |row: DeliveryRow| {
        let (id, session, turn, topic) = named(rows, &row)?;
        let DeliveryRow { attempts, due_at, failure, .. } = row;
        Ok(Some(DeliveryView { id, session, turn, topic, attempts, due_at, failure }))
    };
    Page::of(rows.deliveries(sink, after, rows_for(limit))?, limit, DeliveryRow::place, view)
}

/// Retries one delivery of a sink, or all that were given up, with all attempts again.
pub fn redeliver(
    rows: &mut dyn Rows,
    sink: &str,
    only: Option<DeliveryId>,
    now: Millis,
) -> Result<u64, Error> {
    find(rows, sink)?;
    let mut revived = 0;
    for row in rows.deliveries(sink, None, usize::MAX)? {
        let wanted = match only {
            Some(only) => named(rows, &row)?.0 == only,
            None => row.due_at.is_none(),
        };
        // A delivery that a worker holds is skipped, so that two workers never hold it.
        if wanted && row.worker.is_none() {
            let due_at = Some(now.min(LATEST));
            rows.put_delivery(&DeliveryRow { forgiven: row.attempts, due_at, ..row })?;
            revived += 1;
        }
    }
    if revived > 0 {
        let detail = only.map_or_else(|| format!("{revived} outputs"), |only| only.to_string());
        let org = rows.access().reach.home();
        note(rows, Deed { act: Act::Redeliver, org, subject: &sink, detail }, now)?;
    }
    match only {
        Some(only) if revived == 0 => {
            let detail = format!("the sink `{sink}` has no delivery {only} that waits or is dead");
            Err(Error::new(Kind::DeliveryNotFound, detail))
        }
        _ => Ok(revived),
    }
}

/// Returns a sink. Sinks belong to the operator, because they get the outputs of every organisation.
fn find(rows: &dyn ReadRows, sink: &str) -> Result<SinkRow, Error> {
    rows.access().need_everything()?;
    rows.sink(sink)?.ok_or_else(|| {
        let detail = format!("no sink is called `{sink}`; `outlast sinks` lists those that there are");
        Error::new(Kind::DeliveryNotFound, detail)
    })
}
