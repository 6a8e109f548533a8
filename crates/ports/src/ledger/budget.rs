//! Updates budget accounts as part of other writes. [`crate::budget`] explains reservations.
use super::orgs::{Deed, note};
use super::turn::settle_wait;
use crate::budget::{Awaited, Limit, LimitBy};
use crate::budget::{FirstCall, Held, Hold, IfHeld, Metering, Price, PurseView, Settlement, Short, Wish};
use crate::page::{Page, rows_for};
use crate::rows::{HoldRow, PurseRow, ReadRows, Rows, SessionRow, TurnNo, TurnRow};
use outlast_vocab::access::{Act, Reach, Scope};
use outlast_vocab::budget::{Amount, Budget, Fit, Lacks, Measure, Period, Purse};
use outlast_vocab::id::OrgId;
use outlast_vocab::wait::{Resolution, WaitKind};
use outlast_vocab::{Error, Kind, Millis, ReplayKey, TurnId, canon};
use serde_json::Value;

/// A budget that applies to a turn.
struct Counted {
    purse: Purse,
    budget: Budget,
    row: PurseRow,
    /// Whether the agent declares another budget than before, and that budget applies.
    renewed: bool,
}

/// Settles finished effects, counts the run time, and reserves for the next effect.
pub(super) fn meter(
    rows: &mut dyn Rows,
    session: &SessionRow,
    turn: &TurnRow,
    metering: &Metering,
    now: Millis,
) -> Result<Option<Held>, Error> {
    for Settlement { key, used, lost } in &metering.settled {
        if let Some(row) = hold_of(rows, turn, key)? {
            settle(rows, session.org, &row, used.map(|used| (used, *lost)), now)?;
        }
    }
    let time = Amount::time(metering.driven);
    for mut one in counted(rows, session, turn, metering, now)? {
        if one.budget.time.is_some() && time != Amount::ZERO {
            one.row.spent = one.row.spent + time;
            book(rows, &one, now)?;
        }
    }
    if let Some(standing) = metering.standing {
        let mut row = purse_row(rows, session.org, &Purse::Session(session.id).to_string())?;
        if row.standing != standing {
            row.standing = standing;
            rows.put_purse(&row)?;
        }
    }
    metering.hold.as_ref().map(|hold| reserve(rows, session, turn, metering, hold, now)).transpose()
}

/// Reserves for the first effect of a turn that begins with its input. Adds the amount for reading the earlier
/// conversation.
pub(super) fn meter_first(
    rows: &mut dyn Rows,
    session: &SessionRow,
    turn: &TurnRow,
    first: &FirstCall,
    now: Millis,
) -> Result<Held, Error> {
    let before = purse_row(rows, session.org, &Purse::Session(session.id).to_string())?.standing;
    let hold = Hold::new(ReplayKey::turn(turn.index).model(0), first.most + before, first.price);
    reserve(rows, session, turn, &first.metering, &hold, now)
}

/// Reserves an amount in all budgets, or in none if one of them lacks room.
fn reserve(
    rows: &mut dyn Rows,
    session: &SessionRow,
    turn: &TurnRow,
    metering: &Metering,
    hold: &Hold,
    now: Millis,
) -> Result<Held, Error> {
    let Hold { key, most, if_held, .. } = hold.clone();
    match hold_of(rows, turn, &key)? {
        Some(HoldRow { most, .. }) if if_held == IfHeld::Stands => {
            return Ok(Held::Yes { most, low: Vec::new() });
        }
        Some(row) => settle(rows, session.org, &row, None, now)?,
        None => {}
    }
    let counted = counted(rows, session, turn, metering, now)?;
    let low = match fit(&counted, hold, now) {
        Ok(low) => low,
        Err(short) => return Ok(Held::No(short.1)),
    };
    let mut purses = Vec::with_capacity(counted.len());
    for mut one in counted {
        one.row.held = one.row.held + most;
        book(rows, &one, now)?;
        purses.push(one.row.name);
    }
    rows.put_hold(&HoldRow { turn: turn.no, key, most, purses })?;
    Ok(Held::Yes { most, low })
}

/// Writes a budget account. If the agent's declaration changed, wakes the turns that pause for the budget.
fn book(rows: &mut dyn Rows, one: &Counted, now: Millis) -> Result<(), Error> {
    let Counted { purse, row, renewed, .. } = one;
    rows.put_purse(row)?;
    if !renewed {
        return Ok(());
    }
    // Each day or month of a budget has a separate name.
    let owner = purse.to_string();
    let is_its = |name: &String| {
        name.strip_prefix(&owner).is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
    };
    for (turn, wait) in rows.waiting(Reach::Org(row.org), WaitKind::Budget, usize::MAX)? {
        let wishes = rows.holds(turn)?;
        if wishes.iter().any(|wish| wish.key == wait.key && wish.purses.iter().any(is_its)) {
            wake(rows, turn, &wait.key, now)?;
        }
    }
    Ok(())
}

/// Returns the budgets that would have little left after the effect. If one does not have enough, returns the first
/// such budget as an error.
fn fit<'c>(
    counted: &'c [Counted],
    hold: &Hold,
    now: Millis,
) -> Result<Vec<Short>, Box<(&'c Counted, Short)>> {
    let mut low = Vec::new();
    for one in counted {
        let Counted { purse, budget, row, .. } = one;
        let used = row.spent + row.held;
        let until = budget.per.map(|period| period.end(now));
        let short = |lacks, pauses| Short { purse: purse.clone(), lacks, pauses, until };
        let lacks = |measure: Measure| budget.lacks(used, hold.most, measure);
        if budget.money.is_some() && hold.price == Price::Unknown {
            return Err(Box::new((one, short(Lacks::Price, false))));
        }
        match budget.fit(used, hold.most) {
            Fit::Fits => {}
            Fit::Low(measure) => low.push(short(lacks(measure), false)),
            Fit::Pauses(measure) => return Err(Box::new((one, short(lacks(measure), true)))),
            Fit::Over(measure) => return Err(Box::new((one, short(lacks(measure), false)))),
        }
    }
    Ok(low)
}

/// Books what an effect used and what is assumed as lost, and releases the rest of its reservation. If the usage is
/// unknown, the whole reservation is lost.
fn settle(
    rows: &mut dyn Rows,
    org: OrgId,
    hold: &HoldRow,
    known: Option<(Amount, Amount)>,
    now: Millis,
) -> Result<(), Error> {
    let (used, lost) = known.unwrap_or((hold.most, hold.most));
    for name in &hold.purses {
        let mut row = purse_row(rows, org, name)?;
        row.held = row.held.without(hold.most);
        row.spent = row.spent + used;
        row.lost = row.lost + lost;
        rows.put_purse(&row)?;
        if used != hold.most {
            wake_for(rows, &row, now)?;
        }
    }
    rows.delete_hold(hold.turn, &hold.key)
}

/// Wakes turns that pause for a budget which now has enough room.
///
/// A pausing turn has a row beside the reservations, under the key of its wait. The row states the maximum usage of
/// the budget at which the turn's effect fits. A wait without such a row, left by an older version, is always woken.
fn wake_for(rows: &mut dyn Rows, freed: &PurseRow, now: Millis) -> Result<(), Error> {
    for (turn, wait) in rows.waiting(Reach::Org(freed.org), WaitKind::Budget, usize::MAX)? {
        let wish = rows.holds(turn)?.into_iter().find(|wish| wish.key == wait.key);
        let fits = wish.is_none_or(|wish| {
            wish.purses.contains(&freed.name) && wish.most.covers(freed.spent + freed.held)
        });
        if fits {
            wake(rows, turn, &wait.key, now)?;
        }
    }
    Ok(())
}

/// Wakes a turn that pauses for a budget, unless its wait is already resolved.
fn wake(rows: &mut dyn Rows, turn: TurnNo, wait: &ReplayKey, now: Millis) -> Result<(), Error> {
    if rows.resolution(turn, wait)?.is_some() {
        return Ok(());
    }
    let turn = super::turn_by_no(rows, turn)?;
    settle_wait(rows, turn, wait, Resolution::Ok(Value::Null), now)
}

/// Returns whether the turn has to pause for its reservations. The check and the registration are one write, so no
/// increase or release in between is missed.
pub(super) fn must_wait(
    rows: &mut dyn Rows,
    session: &SessionRow,
    turn: &TurnRow,
    metering: &Metering,
    now: Millis,
) -> Result<bool, Error> {
    let counted = counted(rows, session, turn, metering, now)?;
    let mut wishes = Vec::with_capacity(metering.wishes.len());
    for Wish { wait, hold } in &metering.wishes {
        let Err(found) = fit(&counted, hold, now) else { return Ok(false) };
        let (by, short) = *found;
        let most = match short.lacks {
            Lacks::Room { measure, want, most, .. } if short.pauses => {
                Amount::at_most(measure, most.saturating_sub(want))
            }
            // By now another budget is short, and turns do not pause for that one.
            Lacks::Room { .. } | Lacks::Price => return Ok(false),
        };
        let purses = vec![by.row.name.clone()];
        wishes.push(HoldRow { turn: turn.no, key: wait.clone(), most, purses });
    }
    wishes.iter().try_for_each(|wish| rows.put_hold(wish))?;
    Ok(true)
}

/// Deletes the rows that state what a turn paused for.
pub(super) fn forget_wishes(rows: &mut dyn Rows, turn: TurnNo) -> Result<(), Error> {
    let wishes: Vec<HoldRow> = rows.holds(turn)?.into_iter().filter(|hold| hold.key.is_budget()).collect();
    wishes.iter().try_for_each(|wish| rows.delete_hold(turn, &wish.key))
}

/// Closes the budget accounts of an ended turn. Open reservations count as used, even if budgets no longer apply.
pub(super) fn close(
    rows: &mut dyn Rows,
    session: &SessionRow,
    turn: &TurnRow,
    metered: bool,
    now: Millis,
) -> Result<(), Error> {
    let holds = rows.holds(turn.no)?;
    if holds.is_empty() && !metered {
        return Ok(());
    }
    for hold in holds {
        if hold.key.is_budget() {
            rows.delete_hold(turn.no, &hold.key)?;
        } else {
            settle(rows, session.org, &hold, None, now)?;
        }
    }
    rows.delete_purse(session.org, &Purse::Turn(turn.id).to_string())
}

/// Returns the budgets that apply to a turn: those of its agent, unless an operator overrides them, and those that an
/// operator added.
fn counted(
    rows: &dyn Rows,
    session: &SessionRow,
    turn: &TurnRow,
    metering: &Metering,
    now: Millis,
) -> Result<Vec<Counted>, Error> {
    let Metering { agent, budgets, .. } = metering;
    let purses = [
        (Purse::Turn(turn.id), &budgets.turn),
        (Purse::Session(session.id), &budgets.session),
        (Purse::Agent(agent.clone()), &budgets.agent),
        (Purse::Org(session.org), &None),
    ];
    let mut counted = Vec::new();
    for (purse, brought) in purses {
        let name = purse.to_string();
        let row = purse_row(rows, session.org, &name)?;
        let by_agent = row.set.is_none();
        let Some(budget) = row.set.clone().or_else(|| brought.clone()).filter(|budget| !budget.is_empty())
        else {
            continue;
        };
        let row = match budget.per {
            Some(period) => purse_row(rows, session.org, &format!("{name}@{}", period.at(now)))?,
            None => row,
        };
        // Turn and session budgets have a single running turn, which waits only for an operator to raise them.
        let shared = matches!(purse, Purse::Agent(_));
        let renewed = by_agent && shared && row.brought != *brought;
        let row = PurseRow { brought: brought.clone(), ..row };
        counted.push(Counted { purse, budget, row, renewed });
    }
    Ok(counted)
}

fn purse_row(rows: &dyn Rows, org: OrgId, name: &str) -> Result<PurseRow, Error> {
    Ok(rows.purse(org, name)?.unwrap_or_else(|| PurseRow::empty(org, name)))
}

fn hold_of(rows: &dyn Rows, turn: &TurnRow, key: &ReplayKey) -> Result<Option<HoldRow>, Error> {
    Ok(rows.holds(turn.no)?.into_iter().find(|hold| hold.key == *key))
}

/// Returns all accounts that were ever used or set.
pub fn budgets(
    rows: &dyn ReadRows,
    after: Option<&(OrgId, String)>,
    limit: usize,
) -> Result<Page<PurseView, (OrgId, String)>, Error> {
    let view = |row: PurseRow| {
        let limit = counts(rows, &row)?;
        let PurseRow { org, name, set, spent, held, lost, brought: _, standing: _ } = row;
        let is_shown = set.is_some() || spent + held + lost != Amount::ZERO;
        Ok(is_shown.then_some(PurseView { org, name, set, limit, spent, held, lost }))
    };
    let after = after.map(|(org, name)| (*org, name.as_str()));
    let purses = rows.purses(rows.access().reach, after, rows_for(limit))?;
    Page::of(purses, limit, |row| (row.org, row.name.clone()), view)
}

/// Returns the budget that applies to an account, and who set it. A daily or monthly budget has one account per
/// period. An operator's budget is stored in the owner's account.
fn counts(rows: &dyn ReadRows, row: &PurseRow) -> Result<Option<Limit>, Error> {
    let by = |by| move |budget| Limit { budget, by };
    let brought = row.brought.clone().map(by(LimitBy::Agent));
    let Some((owner, period)) = of_period(&row.name) else {
        return Ok(row.set.clone().map(by(LimitBy::Operator)).or(brought));
    };
    let set = rows.purse(row.org, owner)?.and_then(|owner| owner.set).map(by(LimitBy::Operator));
    Ok(set.or(brought).filter(|limit| limit.budget.per == Some(period)))
}

/// Splits the name of a daily or monthly account into the owner and the kind of period.
fn of_period(name: &str) -> Option<(&str, Period)> {
    let (owner, period) = name.rsplit_once('@')?;
    Some((owner, Period::named(period)?))
}

/// Returns the budgets that a turn pauses for.
pub fn awaited(rows: &dyn ReadRows, turn: TurnId) -> Result<Vec<Awaited>, Error> {
    rows.access().need(Scope::Read)?;
    let wishes = rows.holds(super::turn_row(rows, turn)?.no)?.into_iter().filter(|hold| hold.key.is_budget());
    let awaited = |HoldRow { key, purses, .. }: HoldRow| {
        let purse = |name: &String| of_period(name).map_or(name.as_str(), |(owner, _)| owner).parse();
        let awaited = move |purse| Awaited { wait: key.clone(), purse };
        purses.iter().map(purse).map(|purse| purse.map(&awaited)).collect::<Vec<_>>()
    };
    wishes.flat_map(awaited).collect()
}

/// Sets a budget that overrides the agent's, or removes the override. Turns that pause for a budget try again.
pub fn set_budget(
    rows: &mut dyn Rows,
    purse: &Purse,
    budget: Option<Budget>,
    now: Millis,
) -> Result<(), Error> {
    let org = org_of(rows, purse)?;
    if matches!(purse, Purse::Org(_)) {
        // Only the operator of the database limits an organisation. The organisation cannot lift the limit.
        rows.access().need_everything()?;
    }
    let detail = match &budget {
        Some(budget) => canon::to_string(budget),
        None => "as its agent says".to_owned(),
    };
    note(rows, Deed { act: Act::SetBudget, org, subject: purse, detail }, now)?;
    let mut row = purse_row(rows, org, &purse.to_string())?;
    row.set = budget;
    rows.put_purse(&row)?;
    for (turn, wait) in rows.waiting(Reach::Org(org), WaitKind::Budget, usize::MAX)? {
        wake(rows, turn, &wait.key, now)?;
    }
    Ok(())
}

/// Returns the organisation that owns a budget. A caller without access gets a "not found" error.
fn org_of(rows: &dyn Rows, purse: &Purse) -> Result<OrgId, Error> {
    match purse {
        Purse::Turn(turn) => {
            let turn = super::turn_row(rows, *turn)?;
            Ok(super::referred("session", rows.session(turn.session)?)?.org)
        }
        Purse::Session(session) => Ok(super::session_row(rows, *session)?.org),
        Purse::Agent(_) => Ok(rows.access().reach.home()),
        Purse::Org(org) => match rows.org(*org)? {
            Some(org) => Ok(org.id),
            None => Err(Error::new(Kind::OrgNotFound, format!("no organisation has the id {org}"))),
        },
    }
}
