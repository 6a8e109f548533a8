//! Rate limits. The write that claims a call also counts it, so concurrent processes never exceed a limit.
use super::append;
use crate::page_rows::{page_from_rows, rows_to_read};
use crate::rows::{LimitQueries, LimitWrites, Rows, SessionRow, TurnRow};
use outlast_ports::page::Page;
use outlast_ports::rate::{AdmissionDecision, AdmissionRequest, rejection_of};
use outlast_views::RateView;
use outlast_vocab::id::OrgId;
use outlast_vocab::rate::{
    AdmissionAttempt, RateAdmission, RateLimit, RateLimitOutcome, RateLimited, RateState, admit,
};
use outlast_vocab::record::Fact;
use outlast_vocab::{Error, Kind, Millis};

/// Applies the rate limits to calls, in order. A call that waits or is refused has not begun, and the journal records
/// it.
pub(super) fn apply_rate_limits(
    rows: &mut dyn Rows,
    session: &mut SessionRow,
    turn: &mut TurnRow,
    requests: &[AdmissionRequest],
    now: Millis,
) -> Result<Vec<AdmissionDecision>, Error> {
    let mut decisions = Vec::with_capacity(requests.len());
    for request in requests {
        let (limited, decision) = match (request_admission(rows, session.org, request, now)?, request.attempt)
        {
            (RateAdmission::Admitted, AdmissionAttempt::First) => (None, AdmissionDecision::Admitted(now)),
            (RateAdmission::Admitted, AdmissionAttempt::Again) => {
                let rate = request.rates.first().map(|rate| rate.name.clone());
                (rate.map(|rate| (rate, RateLimitOutcome::Goes)), AdmissionDecision::Admitted(now))
            }
            (RateAdmission::Queued(until, rate), _) => {
                (Some((rate, RateLimitOutcome::Waits { until })), AdmissionDecision::Queued(until))
            }
            (RateAdmission::Rejected(free, rate), _) => {
                let failure = rejection_of(&rate, free, now);
                (
                    Some((rate, RateLimitOutcome::Refused { failure: failure.clone() })),
                    AdmissionDecision::Rejected(failure),
                )
            }
        };
        if let Some((rate, pace)) = limited {
            let fact = Fact::Paced(RateLimited { key: request.key.clone(), rate, pace });
            append(rows, session, Some(&mut *turn), fact.into(), now)?;
        }
        decisions.push(decision);
    }
    Ok(decisions)
}

fn request_admission(
    rows: &mut dyn LimitWrites,
    org: OrgId,
    request: &AdmissionRequest,
    now: Millis,
) -> Result<RateAdmission, Error> {
    let known = request.rates.iter().map(|rate| {
        let row = rows.rate(org, rate.name.as_str())?;
        Ok(row.unwrap_or_else(|| RateView::unused(org, rate.name.as_str())))
    });
    let known = known.collect::<Result<Vec<RateView>, Error>>()?;
    let mut states: Vec<(&RateLimit, RateState)> =
        request.rates.iter().zip(&known).map(|(rate, row)| (rate, row.state)).collect();
    let taken = admit(&mut states, request.attempt, now, request.wait_most)
        .ok_or_else(|| Error::new(Kind::Internal, format!("{} falls under no rate", request.key)))?;
    let (out, turned_away) = match &taken {
        RateAdmission::Admitted => (1, 0),
        RateAdmission::Queued(..) => (0, 0),
        RateAdmission::Rejected(..) => (0, 1),
    };
    for ((rate, standing), row) in states.into_iter().zip(known) {
        let (taken, refused) = (row.taken + out, row.refused + turned_away);
        let (every, burst) = (rate.every(), rate.burst.get());
        rows.put_rate(&RateView { every, burst, state: standing, taken, refused, asked: now, ..row })?;
    }
    Ok(taken)
}

/// Returns all rate limits that were ever used.
pub fn rates(
    rows: &dyn LimitQueries,
    after: Option<&(OrgId, String)>,
    limit: usize,
) -> Result<Page<RateView, (OrgId, String)>, Error> {
    let after = after.map(|(org, name)| (*org, name.as_str()));
    let rates = rows.rates(rows.access().visibility, after, rows_to_read(limit))?;
    page_from_rows(rates, limit, |rate| (rate.org, rate.name.clone()), |rate| Ok(Some(rate)))
}
