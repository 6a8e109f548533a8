//! Updates budget accounts as part of other writes. [`outlast_ports::budget`] explains reservations.
use super::orgs::{AuditedAction, audit_action};
use super::turn::settle_wait;
use crate::page_rows::{page_from_rows, rows_to_read};
use crate::rows::{
    BudgetAccountRow, LimitQueries, LimitRows, LimitWrites, ReadRows, ReservationRow, Rows, SessionRow,
    TurnRow,
};
use outlast_ports::budget::{
    AwaitedBudget, BudgetReservation, BudgetSettlement, BudgetShortfall, BudgetUpdate, BudgetWait,
    ExistingReservation, FirstCallReservation, OpenReservation, PriceKnowledge, ReservationResult,
};
use outlast_ports::page::Page;
use outlast_ports::turns::TurnNo;
use outlast_views::{BudgetAccountView, BudgetSetBy, EffectiveBudget};
use outlast_vocab::access::{AuditAction, OrgVisibility, Scope};
use outlast_vocab::budget::{Budget, BudgetAccount, BudgetDeficit, BudgetFit, Measure, Period, UsageAmount};
use outlast_vocab::id::OrgId;
use outlast_vocab::wait::{Resolution, WaitKind};
use outlast_vocab::{Error, Kind, Millis, ReplayKey, TurnId, canonical_json};
use serde_json::Value;

/// A budget that applies to a turn.
struct AppliedBudget {
    account: BudgetAccount,
    budget: Budget,
    row: BudgetAccountRow,
    /// Whether the agent declares another budget than before, and that budget applies.
    renewed: bool,
}

/// Settles finished effects, counts the run time, and reserves for the next effect.
pub(super) fn update_accounts(
    rows: &mut dyn Rows,
    session: &SessionRow,
    turn: &TurnRow,
    budget_update: &BudgetUpdate,
    now: Millis,
) -> Result<Option<ReservationResult>, Error> {
    for BudgetSettlement { key, used, lost } in &budget_update.settled {
        if let Some(row) = reservation_of(rows, turn, key)? {
            settle(rows, session.org, &row, Some((*used, *lost)), now)?;
        }
    }
    let time = UsageAmount::time(budget_update.run_time);
    for mut one in applied_budgets(rows, session, turn, budget_update, now)? {
        if one.budget.time.is_some() && time != UsageAmount::ZERO {
            one.row.spent = one.row.spent + time;
            put_account(rows, &one, now)?;
        }
    }
    if let Some(standing) = budget_update.conversation_cost {
        let mut row = account_row(rows, session.org, &BudgetAccount::Session(session.id).to_string())?;
        if row.conversation_cost != standing {
            row.conversation_cost = standing;
            rows.put_budget_account(&row)?;
        }
    }
    budget_update
        .reservation
        .as_ref()
        .map(|hold| reserve(rows, session, turn, budget_update, hold, now))
        .transpose()
}

/// Reserves for the first effect of a turn that begins with its input. Adds the amount for reading the earlier
/// conversation.
pub(super) fn reserve_first_call(
    rows: &mut dyn Rows,
    session: &SessionRow,
    turn: &TurnRow,
    first: &FirstCallReservation,
    now: Millis,
) -> Result<ReservationResult, Error> {
    let before =
        account_row(rows, session.org, &BudgetAccount::Session(session.id).to_string())?.conversation_cost;
    let hold =
        BudgetReservation::new(ReplayKey::turn(turn.index).model(0), first.amount_max + before, first.price);
    reserve(rows, session, turn, &first.budget_update, &hold, now)
}

/// Reserves an amount in all budgets, or in none if one of them lacks room.
fn reserve(
    rows: &mut dyn Rows,
    session: &SessionRow,
    turn: &TurnRow,
    budget_update: &BudgetUpdate,
    hold: &BudgetReservation,
    now: Millis,
) -> Result<ReservationResult, Error> {
    let BudgetReservation { key, amount_max: most, existing: if_held, .. } = hold.clone();
    match reservation_of(rows, turn, &key)? {
        Some(ReservationRow { amount_max: most, .. }) if if_held == ExistingReservation::Reused => {
            return Ok(ReservationResult::Reserved { most, low: Vec::new() });
        }
        Some(row) => settle(rows, session.org, &row, None, now)?,
        None => {}
    }
    let counted = applied_budgets(rows, session, turn, budget_update, now)?;
    let low = match check_fit(&counted, hold, now) {
        Ok(low) => low,
        Err(short) => return Ok(ReservationResult::Exhausted(short.1)),
    };
    let mut accounts = Vec::with_capacity(counted.len());
    for mut one in counted {
        one.row.reserved = one.row.reserved + most;
        put_account(rows, &one, now)?;
        accounts.push(one.row.name);
    }
    rows.put_reservation(&ReservationRow { turn: turn.no, key, amount_max: most, accounts })?;
    Ok(ReservationResult::Reserved { most, low })
}

/// Writes a budget account. If the agent's declaration changed, wakes the turns that pause for the budget.
fn put_account(rows: &mut dyn Rows, one: &AppliedBudget, now: Millis) -> Result<(), Error> {
    let AppliedBudget { account, row, renewed, .. } = one;
    rows.put_budget_account(row)?;
    if !renewed {
        return Ok(());
    }
    // Each day or month of a budget has a separate name.
    let owner = account.to_string();
    let is_its = |name: &String| {
        name.strip_prefix(&owner).is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
    };
    for (turn, wait) in rows.waiting(OrgVisibility::Org(row.org), WaitKind::Budget, usize::MAX)? {
        let reservations = rows.reservations(turn)?;
        if reservations
            .iter()
            .any(|reservation| reservation.key == wait.key && reservation.accounts.iter().any(is_its))
        {
            wake(rows, turn, &wait.key, now)?;
        }
    }
    Ok(())
}

/// Returns the budgets that would have little left after the effect. If one does not have enough, returns the first
/// such budget as an error.
fn check_fit<'c>(
    counted: &'c [AppliedBudget],
    hold: &BudgetReservation,
    now: Millis,
) -> Result<Vec<BudgetShortfall>, Box<(&'c AppliedBudget, BudgetShortfall)>> {
    let mut low = Vec::new();
    for one in counted {
        let AppliedBudget { account, budget, row, .. } = one;
        let used = row.spent + row.reserved;
        let until = budget.per.map(|period| period.end(now));
        let short = |lacks, pauses| BudgetShortfall {
            account: account.clone(),
            reason: lacks,
            pauses_turns: pauses,
            renewed_at: until,
        };
        let lacks = |measure: Measure| budget.lacks(used, hold.amount_max, measure);
        if budget.money.is_some() && hold.price == PriceKnowledge::Unknown {
            return Err(Box::new((one, short(BudgetDeficit::Price, false))));
        }
        match budget.fit(used, hold.amount_max) {
            BudgetFit::Fits => {}
            BudgetFit::Low(measure) => low.push(short(lacks(measure), false)),
            BudgetFit::Pauses(measure) => return Err(Box::new((one, short(lacks(measure), true)))),
            BudgetFit::Over(measure) => return Err(Box::new((one, short(lacks(measure), false)))),
        }
    }
    Ok(low)
}

/// Books what an effect used and what is assumed as lost, and releases the rest of its reservation. If the usage is
/// unknown, the whole reservation is lost.
fn settle(
    rows: &mut dyn Rows,
    org: OrgId,
    hold: &ReservationRow,
    known: Option<(UsageAmount, UsageAmount)>,
    now: Millis,
) -> Result<(), Error> {
    let (used, lost) = known.unwrap_or((hold.amount_max, hold.amount_max));
    for name in &hold.accounts {
        let mut row = account_row(rows, org, name)?;
        row.reserved = row.reserved.saturating_sub(hold.amount_max);
        row.spent = row.spent + used;
        row.lost = row.lost + lost;
        rows.put_budget_account(&row)?;
        if used != hold.amount_max {
            wake_waiting_turns(rows, &row, now)?;
        }
    }
    rows.delete_reservation(hold.turn, &hold.key)
}

/// Wakes turns that pause for a budget which now has enough room.
///
/// A pausing turn has a row beside the reservations, under the key of its wait. The row states the maximum usage of
/// the budget at which the turn's effect fits. A wait without such a row, left by an older version, is always woken.
fn wake_waiting_turns(rows: &mut dyn Rows, freed: &BudgetAccountRow, now: Millis) -> Result<(), Error> {
    for (turn, wait) in rows.waiting(OrgVisibility::Org(freed.org), WaitKind::Budget, usize::MAX)? {
        let reservation =
            rows.reservations(turn)?.into_iter().find(|reservation| reservation.key == wait.key);
        let fits = reservation.is_none_or(|reservation| {
            reservation.accounts.contains(&freed.name)
                && reservation.amount_max.covers(freed.spent + freed.reserved)
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
    rows: &mut dyn LimitWrites,
    session: &SessionRow,
    turn: &TurnRow,
    budget_update: &BudgetUpdate,
    now: Millis,
) -> Result<bool, Error> {
    let counted = applied_budgets(rows, session, turn, budget_update, now)?;
    let mut reservations = Vec::with_capacity(budget_update.waits.len());
    for BudgetWait { wait, reservation: hold } in &budget_update.waits {
        let Err(found) = check_fit(&counted, hold, now) else { return Ok(false) };
        let (by, short) = *found;
        let most = match short.reason {
            BudgetDeficit::Insufficient { measure, want, most, .. } if short.pauses_turns => {
                UsageAmount::at_most(measure, most.saturating_sub(want))
            }
            // By now another budget is short, and turns do not pause for that one.
            BudgetDeficit::Insufficient { .. } | BudgetDeficit::Price => return Ok(false),
        };
        let accounts = vec![by.row.name.clone()];
        reservations.push(ReservationRow { turn: turn.no, key: wait.clone(), amount_max: most, accounts });
    }
    reservations.iter().try_for_each(|reservation| rows.put_reservation(reservation))?;
    Ok(true)
}

/// Deletes the rows that state what a turn paused for.
pub(super) fn delete_budget_waits(rows: &mut dyn LimitWrites, turn: TurnNo) -> Result<(), Error> {
    let reservations: Vec<ReservationRow> =
        rows.reservations(turn)?.into_iter().filter(|hold| hold.key.is_budget()).collect();
    reservations.iter().try_for_each(|reservation| rows.delete_reservation(turn, &reservation.key))
}

/// Closes the budget accounts of an ended turn. Open reservations count as used, even if budgets no longer apply.
pub(super) fn close(
    rows: &mut dyn Rows,
    session: &SessionRow,
    turn: &TurnRow,
    metered: bool,
    now: Millis,
) -> Result<(), Error> {
    let holds = rows.reservations(turn.no)?;
    if holds.is_empty() && !metered {
        return Ok(());
    }
    for hold in holds {
        if hold.key.is_budget() {
            rows.delete_reservation(turn.no, &hold.key)?;
        } else {
            settle(rows, session.org, &hold, None, now)?;
        }
    }
    rows.delete_budget_account(session.org, &BudgetAccount::Turn(turn.id).to_string())
}

/// Returns the budgets that apply to a turn: those of its agent, unless an operator overrides them, and those that an
/// operator added.
fn applied_budgets(
    rows: &dyn LimitRows,
    session: &SessionRow,
    turn: &TurnRow,
    budget_update: &BudgetUpdate,
    now: Millis,
) -> Result<Vec<AppliedBudget>, Error> {
    let BudgetUpdate { agent, budgets, .. } = budget_update;
    let accounts = [
        (BudgetAccount::Turn(turn.id), &budgets.turn),
        (BudgetAccount::Session(session.id), &budgets.session),
        (BudgetAccount::Agent(agent.clone()), &budgets.agent),
        (BudgetAccount::Org(session.org), &None),
    ];
    let mut counted = Vec::new();
    for (account, brought) in accounts {
        let name = account.to_string();
        let row = account_row(rows, session.org, &name)?;
        let by_agent = row.operator_budget.is_none();
        let Some(budget) = row.operator_budget.or(*brought).filter(|budget| !budget.is_empty()) else {
            continue;
        };
        let row = match budget.per {
            Some(period) => account_row(rows, session.org, &format!("{name}@{}", period.at(now)))?,
            None => row,
        };
        // Turn and session budgets have a single running turn, which waits only for an operator to raise them.
        let shared = matches!(account, BudgetAccount::Agent(_));
        let renewed = by_agent && shared && row.agent_budget != *brought;
        let row = BudgetAccountRow { agent_budget: *brought, ..row };
        counted.push(AppliedBudget { account, budget, row, renewed });
    }
    Ok(counted)
}

fn account_row(rows: &dyn LimitRows, org: OrgId, name: &str) -> Result<BudgetAccountRow, Error> {
    Ok(rows.budget_account(org, name)?.unwrap_or_else(|| BudgetAccountRow::empty(org, name)))
}

fn reservation_of(
    rows: &dyn LimitRows,
    turn: &TurnRow,
    key: &ReplayKey,
) -> Result<Option<ReservationRow>, Error> {
    Ok(rows.reservations(turn.no)?.into_iter().find(|hold| hold.key == *key))
}

/// Returns all accounts that were ever used or set.
pub fn budgets(
    rows: &dyn LimitQueries,
    after: Option<&(OrgId, String)>,
    limit: usize,
) -> Result<Page<BudgetAccountView, (OrgId, String)>, Error> {
    let view = |row: BudgetAccountRow| {
        let limit = effective_budget(rows, &row)?;
        let BudgetAccountRow {
            org,
            name,
            operator_budget: set,
            spent,
            reserved: held,
            lost,
            agent_budget: _,
            conversation_cost: _,
        } = row;
        let is_shown = set.is_some() || spent + held + lost != UsageAmount::ZERO;
        Ok(is_shown.then_some(BudgetAccountView {
            org,
            name,
            operator_budget: set,
            effective: limit,
            spent,
            reserved: held,
            lost,
        }))
    };
    let after = after.map(|(org, name)| (*org, name.as_str()));
    let accounts = rows.budget_accounts(rows.access().visibility, after, rows_to_read(limit))?;
    page_from_rows(accounts, limit, |row| (row.org, row.name.clone()), view)
}

/// Returns the budget that applies to an account, and who set it. A daily or monthly budget has one account per
/// period. An operator's budget is stored in the owner's account.
fn effective_budget(rows: &dyn LimitRows, row: &BudgetAccountRow) -> Result<Option<EffectiveBudget>, Error> {
    let by = |by| move |budget| EffectiveBudget { budget, by };
    let brought = row.agent_budget.map(by(BudgetSetBy::Agent));
    let Some((owner, period)) = split_period(&row.name) else {
        return Ok(row.operator_budget.map(by(BudgetSetBy::Operator)).or(brought));
    };
    let set = rows
        .budget_account(row.org, owner)?
        .and_then(|owner| owner.operator_budget)
        .map(by(BudgetSetBy::Operator));
    Ok(set.or(brought).filter(|limit| limit.budget.per == Some(period)))
}

/// Splits the name of a daily or monthly account into the owner and the kind of period.
fn split_period(name: &str) -> Option<(&str, Period)> {
    let (owner, period) = name.rsplit_once('@')?;
    Some((owner, Period::named(period)?))
}

/// Returns the budgets that a turn pauses for.
pub fn awaited_budgets(rows: &dyn ReadRows, turn: TurnId) -> Result<Vec<AwaitedBudget>, Error> {
    rows.access().require(Scope::Read)?;
    let reservations =
        rows.reservations(super::turn_row(rows, turn)?.no)?.into_iter().filter(|hold| hold.key.is_budget());
    let awaited = |ReservationRow { key, accounts, .. }: ReservationRow| {
        let account = |name: &String| split_period(name).map_or(name.as_str(), |(owner, _)| owner).parse();
        let awaited = move |account| AwaitedBudget { wait: key.clone(), account };
        accounts.iter().map(account).map(|account| account.map(&awaited)).collect::<Vec<_>>()
    };
    reservations.flat_map(awaited).collect()
}

/// Returns the reservations of a turn that are not settled yet, by key.
pub fn open_reservations(rows: &dyn ReadRows, turn: TurnId) -> Result<Vec<OpenReservation>, Error> {
    rows.access().require(Scope::Read)?;
    let open = rows.reservations(super::turn_row(rows, turn)?.no)?.into_iter();
    let open = open.filter(|hold| !hold.key.is_budget());
    Ok(open.map(|ReservationRow { key, amount_max, .. }| OpenReservation { key, amount_max }).collect())
}

/// Sets a budget that overrides the agent's, or removes the override. Turns that pause for a budget try again.
pub fn set_budget(
    rows: &mut dyn Rows,
    account: &BudgetAccount,
    budget: Option<Budget>,
    now: Millis,
) -> Result<(), Error> {
    let org = org_of(rows, account)?;
    if matches!(account, BudgetAccount::Org(_)) {
        // Only the operator of the database limits an organisation. The organisation cannot lift the limit.
        rows.access().require_operator()?;
    }
    let detail = match &budget {
        Some(budget) => canonical_json::to_string(budget),
        None => "as its agent says".to_owned(),
    };
    audit_action(rows, AuditedAction { act: AuditAction::SetBudget, org, subject: account, detail }, now)?;
    let mut row = account_row(rows, org, &account.to_string())?;
    row.operator_budget = budget;
    rows.put_budget_account(&row)?;
    for (turn, wait) in rows.waiting(OrgVisibility::Org(org), WaitKind::Budget, usize::MAX)? {
        wake(rows, turn, &wait.key, now)?;
    }
    Ok(())
}

/// Returns the organisation that owns a budget. A caller without access gets a "not found" error.
fn org_of(rows: &dyn ReadRows, account: &BudgetAccount) -> Result<OrgId, Error> {
    match account {
        BudgetAccount::Turn(turn) => {
            let turn = super::turn_row(rows, *turn)?;
            Ok(super::required_row("session", rows.session(turn.session)?)?.org)
        }
        BudgetAccount::Session(session) => Ok(super::session_row(rows, *session)?.org),
        BudgetAccount::Agent(_) => Ok(rows.access().visibility.home()),
        BudgetAccount::Org(org) => match rows.org(*org)? {
            Some(org) => Ok(org.id),
            None => Err(Error::new(Kind::OrgNotFound, format!("no organisation has the id {org}"))),
        },
    }
}
