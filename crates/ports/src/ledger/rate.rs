//! Rate limits. The write that claims a call also counts it, so concurrent processes never exceed a limit.
use super::append;
use crate::page::{Page, rows_for};
use crate::rate::{Pacing, RateView, Want, full};
use crate::rows::{ReadRows, Rows, SessionRow, TurnRow};
use outlast_vocab::id::OrgId;
use outlast_vocab::rate::{Asks, Pace, Paced, Rate, Standing, Taken, take};
use outlast_vocab::record::Fact;
use outlast_vocab::{Error, Kind, Millis};

/// Applies the rate limits to calls, in order. A call that waits or is refused has not begun, and the journal records
/// it.
pub(super) fn pace(
    rows: &mut dyn Rows,
    session: &mut SessionRow,
    turn: &mut TurnRow,
    wants: &[Want],
    now: Millis,
) -> Result<Vec<Pacing>, Error> {
    let mut pacings = Vec::with_capacity(wants.len());
    for want in wants {
        let (said, pacing) = match (let_out(rows, session.org, want, now)?, want.asks) {
            (Taken::Goes, Asks::First) => (None, Pacing::Goes(now)),
            (Taken::Goes, Asks::Again) => {
                let rate = want.rates.first().map(|rate| rate.name.clone());
                (rate.map(|rate| (rate, Pace::Goes)), Pacing::Goes(now))
            }
            (Taken::Waits(until, rate), _) => (Some((rate, Pace::Waits { until })), Pacing::Waits(until)),
            (Taken::Full(free, rate), _) => {
                let failure = full(&rate, free, now);
                (Some((rate, Pace::Refused { failure: failure.clone() })), Pacing::Refused(failure))
            }
        };
        if let Some((rate, pace)) = said {
            let fact = Fact::Paced(Paced { key: want.key.clone(), rate, pace });
            append(rows, session, Some(&mut *turn), fact.into(), now)?;
        }
        pacings.push(pacing);
    }
    Ok(pacings)
}

fn let_out(rows: &mut dyn Rows, org: OrgId, want: &Want, now: Millis) -> Result<Taken, Error> {
    let known = want.rates.iter().map(|rate| {
        let row = rows.rate(org, rate.name.as_str())?;
        Ok(row.unwrap_or_else(|| RateView::unasked(org, rate.name.as_str())))
    });
    let known = known.collect::<Result<Vec<RateView>, Error>>()?;
    let mut books: Vec<(&Rate, Standing)> =
        want.rates.iter().zip(&known).map(|(rate, row)| (rate, row.standing)).collect();
    let taken = take(&mut books, want.asks, now, want.wait_most)
        .ok_or_else(|| Error::new(Kind::Internal, format!("{} falls under no rate", want.key)))?;
    let (out, turned_away) = match &taken {
        Taken::Goes => (1, 0),
        Taken::Waits(..) => (0, 0),
        Taken::Full(..) => (0, 1),
    };
    for ((rate, standing), row) in books.into_iter().zip(known) {
        let (taken, refused) = (row.taken + out, row.refused + turned_away);
        let (every, burst) = (rate.every(), rate.burst.get());
        rows.put_rate(&RateView { every, burst, standing, taken, refused, asked: now, ..row })?;
    }
    Ok(taken)
}

/// Returns all rate limits that were ever used.
pub fn rates(
    rows: &dyn ReadRows,
    after: Option<&(OrgId, String)>,
    limit: usize,
) -> Result<Page<RateView, (OrgId, String)>, Error> {
    let after = after.map(|(org, name)| (*org, name.as_str()));
    let rates = rows.rates(rows.access().reach, after, rows_for(limit))?;
    Page::of(rates, limit, |rate| (rate.org, rate.name.clone()), |rate| Ok(Some(rate)))
}
