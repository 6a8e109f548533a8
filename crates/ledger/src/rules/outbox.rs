//! The outbox of outputs for sinks. [`outlast_ports::outbox`] explains why none is lost.
use super::orgs::{AuditedAction, audit_action};
use super::outputs::{moments, output_event};
use super::{lookup, required_row, turn_by_no};
use crate::page_rows::{page_from_rows, rows_to_read};
use crate::rows::{DeliveryRow, LATEST, QueryRows, ReadRows, Rows, SinkRow, SinkRows};
use outlast_ports::outbox::{
    CollectRequest, DeliveryAttempt, DeliveryPosition, DeliverySchedule, DueDelivery, FeedStart,
    SinkSubscription,
};
use outlast_ports::page::Page;
use outlast_ports::sink::{OutputPosition, SinkOutput};
use outlast_views::{DeliveryView, SinkTopic, SinkView};
use outlast_vocab::access::{AuditAction, OrgVisibility};
use outlast_vocab::id::{DeliveryId, SessionId, TurnId};
use outlast_vocab::{Error, Failure, Kind, Millis};

/// Records scanned in one transaction.
const SCANNED: usize = 500;

/// Running deliveries that are searched for those of dead workers.
const RUNNING_SEARCHED: usize = 1_000;

/// Registers new sinks.
pub fn subscribe(rows: &mut dyn Rows, subscriptions: &[SinkSubscription], now: Millis) -> Result<(), Error> {
    rows.access().require_operator()?;
    for SinkSubscription { name, begins, .. } in subscriptions {
        if rows.sink(name)?.is_none() {
            let cursor = match begins {
                FeedStart::Now => rows.feed_end()?,
                FeedStart::Beginning => 0,
            };
            rows.put_sink(&SinkRow { name: name.clone(), since: now, cursor, delivered: 0 })?;
        }
    }
    Ok(())
}

/// Returns whether there is something to deliver to a sink, and when.
pub fn delivery_schedule(rows: &dyn ReadRows, sink: &str, now: Millis) -> Result<DeliverySchedule, Error> {
    let cursor = find(rows, sink)?.cursor;
    let next = rows.next_delivery(sink)?;
    let is_due = next.is_some_and(|next| next <= now)
        || rows.feed_end()? > cursor
        || !orphaned_deliveries(rows, sink)?.is_empty();
    Ok(DeliverySchedule { is_due, next })
}

/// Returns the deliveries that dead workers hold.
fn orphaned_deliveries(rows: &dyn ReadRows, sink: &str) -> Result<Vec<DeliveryRow>, Error> {
    let mut orphaned = Vec::new();
    for row in rows.deliveries_taken(sink, RUNNING_SEARCHED)? {
        if let Some(worker) = row.worker
            && rows.is_dead(worker)?
        {
            orphaned.push(row);
        }
    }
    Ok(orphaned)
}

/// Scans the feed since the last call, and takes the deliveries that are due.
pub fn collect(rows: &mut dyn Rows, collect: &CollectRequest) -> Result<Vec<DueDelivery>, Error> {
    let CollectRequest { subscription, now, limit, .. } = collect;
    scan(rows, subscription, *now)?;
    let mut free = orphaned_deliveries(rows, &subscription.name)?;
    let on_time = rows.deliveries_due(&subscription.name, *now, *limit)?;
    free.extend(on_time.into_iter().filter(|row| !free.contains(row)).collect::<Vec<_>>());
    let mut due = Vec::new();
    for row in free.into_iter().take(*limit) {
        due.extend(take(rows, collect, row)?);
    }
    Ok(due)
}

/// Adds a delivery for every wanted output after the cursor of a sink, and moves the cursor.
fn scan(rows: &mut dyn Rows, subscription: &SinkSubscription, now: Millis) -> Result<(), Error> {
    let sink = find(rows, &subscription.name)?;
    let page = rows.feed(OrgVisibility::Everything, sink.cursor, SCANNED)?;
    let Some((cursor, _)) = page.last() else { return Ok(()) };
    let cursor = *cursor;
    for (_, record) in page {
        let Some(no) = record.turn else { continue };
        let session = required_row("session", rows.session(record.session)?)?;
        // Imported records were delivered where they were written.
        if record.seq <= session.imported {
            continue;
        }
        for moment in moments(rows, subscription, &session, &turn_by_no(rows, no)?, record)? {
            rows.put_delivery(&DeliveryRow {
                sink: sink.name.clone(),
                turn: no,
                position: moment,
                attempts: 0,
                attempts_forgiven: 0,
                due_at: Some(now.min(LATEST)),
                worker: None,
                failure: None,
            })?;
        }
    }
    rows.put_sink(&SinkRow { cursor, ..sink })
}

/// Takes one delivery. Gives it up if all its attempts were started.
fn take(
    rows: &mut dyn Rows,
    collect: &CollectRequest,
    row: DeliveryRow,
) -> Result<Option<DueDelivery>, Error> {
    let tries = row.attempts.saturating_sub(row.attempts_forgiven);
    if tries >= collect.attempts {
        let detail = format!("it was attempted {tries} times, and the worker died each time");
        let failure = row.failure.clone().or(Some(Failure::new(Kind::DeliveryFailed, detail)));
        rows.put_delivery(&DeliveryRow { due_at: None, worker: None, failure, ..row })?;
        return Ok(None);
    }
    let attempts = row.attempts.saturating_add(1);
    let (worker, due_at) = (Some(collect.worker), Some(collect.until.min(LATEST)));
    let row = DeliveryRow { attempts, due_at, worker, ..row };
    rows.put_delivery(&row)?;
    let output = output(rows, &row, collect.now)?;
    Ok(Some(DueDelivery { output, attempts_since_retry: tries + 1 }))
}

fn output(rows: &dyn ReadRows, row: &DeliveryRow, sent: Millis) -> Result<SinkOutput, Error> {
    let turn = turn_by_no(rows, row.turn)?;
    let session = required_row("session", rows.session(turn.session)?)?;
    let at = required_row("record", lookup::one(rows, turn.session, row.position.seq)?)?.at;
    let about = output_event(rows, &session, &turn, row.position)?;
    Ok(SinkOutput {
        id: id(&row.sink, turn.id, row.position, about.topic()),
        org: session.org,
        session: session.id,
        key: session.key,
        turn: turn.id,
        position: row.position,
        at,
        event: about,
        attempt: row.attempts,
        sent,
    })
}

/// Returns the id of an output for a sink, which never changes. A turn ends once, so its end needs no position.
fn id(sink: &str, turn: TurnId, moment: OutputPosition, topic: SinkTopic) -> DeliveryId {
    let OutputPosition { seq, nth } = moment;
    let turn = turn.to_u128().to_be_bytes();
    match topic {
        SinkTopic::TurnEnded => DeliveryId::derived(&[sink.as_bytes(), &turn]),
        _ => DeliveryId::derived(&[sink.as_bytes(), &turn, &seq.0.to_be_bytes(), &nth.to_be_bytes()]),
    }
}

/// Returns a delivery's id, session, turn and topic.
fn named(
    rows: &dyn ReadRows,
    row: &DeliveryRow,
) -> Result<(DeliveryId, SessionId, TurnId, SinkTopic), Error> {
    let turn = turn_by_no(rows, row.turn)?;
    let session = required_row("session", rows.session(turn.session)?)?;
    let topic = output_event(rows, &session, &turn, row.position)?.topic();
    Ok((id(&row.sink, turn.id, row.position, topic), session.id, turn.id, topic))
}

/// Confirms that an output was delivered. This holds even if the worker exceeded its time.
pub fn delivered(rows: &mut dyn Rows, attempt: &DeliveryAttempt) -> Result<(), Error> {
    let Some(row) = attempted_delivery(rows, attempt)? else { return Ok(()) };
    let sink = find(rows, &attempt.sink)?;
    rows.delete_delivery(&row.sink, row.turn, row.position)?;
    rows.put_sink(&SinkRow { delivered: sink.delivered + 1, ..sink })
}

/// Records why an attempt failed, and when the delivery is due again.
pub fn undelivered(
    rows: &mut dyn Rows,
    attempt: &DeliveryAttempt,
    failure: Failure,
    again: Option<Millis>,
) -> Result<(), Error> {
    match attempted_delivery(rows, attempt)? {
        Some(row) if row.attempts == attempt.attempt && row.worker.is_some() => {
            let due_at = again.map(|again| again.min(LATEST));
            rows.put_delivery(&DeliveryRow { due_at, worker: None, failure: Some(failure), ..row })
        }
        _ => Ok(()),
    }
}

/// Returns the delivery of an attempt. `None` if it was already delivered or its session is deleted.
fn attempted_delivery(rows: &dyn ReadRows, attempt: &DeliveryAttempt) -> Result<Option<DeliveryRow>, Error> {
    rows.access().require_operator()?;
    match rows.turn_by_id(attempt.turn)? {
        Some(turn) => rows.delivery(&attempt.sink, turn.no, attempt.position),
        None => Ok(None),
    }
}

/// Returns all sinks, by name.
pub fn sinks(rows: &dyn QueryRows) -> Result<Vec<SinkView>, Error> {
    rows.access().require_operator()?;
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
    after: Option<DeliveryPosition>,
    limit: usize,
) -> Result<Page<DeliveryView, DeliveryPosition>, Error> {
    find(rows, sink)?;
    let view = |row: DeliveryRow| {
        let (id, session, turn, topic) = named(rows, &row)?;
        let DeliveryRow { attempts, due_at, failure, .. } = row;
        Ok(Some(DeliveryView { id, session, turn, topic, attempts, due_at, failure }))
    };
    page_from_rows(rows.deliveries(sink, after, rows_to_read(limit))?, limit, DeliveryRow::place, view)
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
            rows.put_delivery(&DeliveryRow { attempts_forgiven: row.attempts, due_at, ..row })?;
            revived += 1;
        }
    }
    if revived > 0 {
        let detail = only.map_or_else(|| format!("{revived} outputs"), |only| only.to_string());
        let org = rows.access().visibility.home();
        audit_action(rows, AuditedAction { act: AuditAction::Redeliver, org, subject: &sink, detail }, now)?;
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
fn find(rows: &dyn SinkRows, sink: &str) -> Result<SinkRow, Error> {
    rows.access().require_operator()?;
    rows.sink(sink)?.ok_or_else(|| {
        let detail = format!("no sink is called `{sink}`; `outlast sinks` lists the sinks");
        Error::new(Kind::DeliveryNotFound, detail)
    })
}
