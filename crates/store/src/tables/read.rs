//! Reads rows: the implementation of `ReadRows`.
use super::column::{self, count, id, limit};
use super::{RowCache, Tables};
use crate::error::from_sqlite;
use outlast_ledger::rows::{
    AttachmentRow, BudgetAccountRow, ClaimRow, ConfigRow, DeliveryRow, ExternalContentRow, GrantRow, KeyRow,
    LATEST, NoticeRow, PartialRow, PendingPaymentRow, ReadRows, RecordAddress, RecordRange, RecordRow,
    ReservationRow, SessionNo, SessionRow, SinkRow, TurnRow, VoteRow,
};
use outlast_ports::attachment_upload::SweepCounter;
use outlast_ports::outbox::DeliveryPosition;
use outlast_ports::sink::OutputPosition;
use outlast_ports::turns::TurnNo;
use outlast_views::{AuditRange, AuditRow, ConfigKind, Org, RateView, SessionState};
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::{AttachmentId, CallId, GrantId, KeyId, OrgId, SessionId, TurnId, WorkerId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::record::{ClaimRef, TurnEndKind};
use outlast_vocab::search_terms::SearchTerms;
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Hash, Millis};
use rusqlite::{MAIN_DB, Row, params};
use std::ops::Range;

// The state is a literal in each statement, because SQLite uses a partial index only then.
pub(super) const BY_KEY: &str = column::session!("WHERE org = ?1 AND key = ?2");
pub(super) const SESSIONS_OF: &str = column::session!("WHERE org = ?1 AND no < ?2 ORDER BY no DESC LIMIT ?3");
const IDLE: &str = column::session!("WHERE state = 0 AND no > ?1 ORDER BY no LIMIT ?2");
pub(super) const READY: &str = column::session!("WHERE state = 1 AND no > ?1 ORDER BY no LIMIT ?2");
pub(super) const LEASED: &str = column::session!("WHERE state = 2 AND no > ?1 ORDER BY no LIMIT ?2");
const PARKED: &str = column::session!("WHERE state = 3 AND no > ?1 ORDER BY no LIMIT ?2");
pub(super) const HELD: &str = column::session!("WHERE state = 4 AND no > ?1 ORDER BY no LIMIT ?2");
pub(super) const DUE: &str =
    column::session!("WHERE state = 3 AND wake_at <= ?1 ORDER BY wake_at, no LIMIT ?2");
pub(super) const SUSPECT_DUE: &str = column::session!(
    "INDEXED BY sessions_wake WHERE state = 4 AND wake_at <= ?1 AND deaths <= ?2 ORDER BY wake_at, no LIMIT 1"
);
pub(super) const TRIALS: &str = "SELECT no, worker FROM sessions INDEXED BY sessions_trial WHERE trial > 0 AND trial < 3 AND state = 2 AND worker IS NOT NULL ORDER BY no";
const LAST_ENDED: &str = "SELECT count(*) FROM (SELECT 1 FROM sessions INDEXED BY sessions_last_end
     WHERE last_end = ?1 AND last_end <> 'answered' LIMIT ?2)";
pub(super) const LAST_RETRY: &str = column::turn!("WHERE retry_of = ?1 ORDER BY no DESC LIMIT 1");
pub(super) const NEXT_WAKE: &str =
    "SELECT wake_at FROM sessions WHERE wake_at IS NOT NULL ORDER BY wake_at LIMIT 1";
pub(super) const QUEUED: &str = column::turn!("WHERE session = ?1 AND state = 0 ORDER BY place LIMIT ?2");
pub(super) const DELIVERIES_DUE: &str =
    column::outgoing!("WHERE sink = ?1 AND due_at <= ?2 ORDER BY due_at, turn, seq, nth LIMIT ?3");
pub(super) const DELIVERIES_TAKEN: &str = column::outgoing!(
    "INDEXED BY deliveries_taken WHERE sink = ?1 AND worker IS NOT NULL ORDER BY turn, seq, nth LIMIT ?2"
);
pub(super) const NEXT_DELIVERY: &str =
    "SELECT due_at FROM deliveries WHERE sink = ?1 AND due_at IS NOT NULL ORDER BY due_at LIMIT 1";
// Starts at the first row that can have the requested time, and reads nothing if there is no such row.
pub(super) const AUDIT: &str = column::act!(
    "WHERE no > max(?1, coalesce((SELECT no - 1 FROM audit WHERE reached >= ?2 ORDER BY reached, no LIMIT 1),
                                 9223372036854775807))
     AND at >= ?2 ORDER BY no LIMIT ?3"
);
pub(super) const AUDIT_OF: &str = column::act!(
    "WHERE org = ?4
     AND no > max(?1, coalesce((SELECT no - 1 FROM audit WHERE reached >= ?2 ORDER BY reached, no LIMIT 1),
                               9223372036854775807))
     AND at >= ?2 ORDER BY no LIMIT ?3"
);

// A list starts after its cursor, or after a value before every possible key.
pub(super) const UNKNOWN: &str =
    column::claim!("WHERE unknown = 1 AND (since, call) > (?1, ?2) ORDER BY since, call LIMIT ?3");
pub(super) const UNKNOWN_OF: &str = column::claim!(
    "WHERE unknown = 1 AND org = ?4 AND (since, call) > (?1, ?2) ORDER BY since, call LIMIT ?3"
);
pub(super) const ATTACHMENTS: &str =
    column::attachment!("WHERE session = ?1 AND id > ?2 ORDER BY id LIMIT ?3");
pub(super) const PURSES: &str = column::purse!("WHERE (org, name) > (?1, ?2) ORDER BY org, name LIMIT ?3");
pub(super) const PURSES_OF: &str = column::purse!("WHERE org = ?1 AND name > ?2 ORDER BY name LIMIT ?3");
pub(super) const RATES: &str = column::rate!("WHERE (org, name) > (?1, ?2) ORDER BY org, name LIMIT ?3");
pub(super) const RATES_OF: &str = column::rate!("WHERE org = ?1 AND name > ?2 ORDER BY name LIMIT ?3");
pub(super) const GRANTS: &str =
    column::grant!("WHERE at <= ?1 AND (at < ?1 OR id > ?2) ORDER BY at DESC, id LIMIT ?3");
pub(super) const GRANTS_OF: &str =
    column::grant!("WHERE org = ?4 AND at <= ?1 AND (at < ?1 OR id > ?2) ORDER BY at DESC, id LIMIT ?3");
pub(super) const NEXT_CONFIG: &str =
    "SELECT name FROM configs WHERE org = ?1 AND kind = ?2 AND name > ?3 ORDER BY name LIMIT 1";
pub(super) const VERSIONS: &str = column::config!(
    "WHERE org = ?1 AND kind = ?2 AND name = ?3 AND version < ?4 ORDER BY version DESC LIMIT ?5"
);
pub(super) const DELIVERIES: &str =
    column::outgoing!("WHERE sink = ?1 AND (turn, seq, nth) > (?2, ?3, ?4) ORDER BY turn, seq, nth LIMIT ?5");
pub(super) const ORGS: &str = column::org!("WHERE name > ?1 ORDER BY name LIMIT ?2");
pub(super) const KEYS: &str = column::key!("WHERE id > ?1 ORDER BY id LIMIT ?2");
pub(super) const KEYS_OF: &str = column::key!("WHERE org = ?3 AND id > ?1 ORDER BY id LIMIT ?2");

/// Returns the bytes of the id after which a list starts.
fn id_lower_bound(after: Option<u128>) -> Vec<u8> {
    after.map(|after| id(after).to_vec()).unwrap_or_default()
}

/// Returns the owners whose messages are searched, as in the index.
fn owner_terms(of: OrgVisibility, session: Option<SessionNo>) -> impl Iterator<Item = String> {
    let org = match of {
        OrgVisibility::Org(org) => Some(format!("o{:032x}", org.to_u128())),
        OrgVisibility::Everything => None,
    };
    org.into_iter().chain(session.map(|SessionNo(no)| format!("s{no}")))
}

/// Returns the search query in the syntax of the index. Words contain no character with a special meaning.
fn match_expression(of: OrgVisibility, session: Option<SessionNo>, wanted: &SearchTerms) -> String {
    let whose = owner_terms(of, session).map(|whose| format!("place : \"{whose}\""));
    let words: Vec<String> = wanted.words().iter().map(|word| format!("\"{word}\"")).collect();
    let words = format!("words : ({} *)", words.join(" AND "));
    whose.chain([words]).collect::<Vec<_>>().join(" AND ")
}

impl ReadRows for Tables<'_> {
    fn session(&self, no: SessionNo) -> Result<Option<SessionRow>, Error> {
        let find = || self.one(column::session!("WHERE no = ?1"), [no.0], column::read_session);
        self.cached_or(|held| held.session(no), find, RowCache::put_session)
    }

    fn session_by_id(&self, session: SessionId) -> Result<Option<SessionRow>, Error> {
        let sql = column::session!("WHERE id = ?1");
        let find = || self.one(sql, [id(session.to_u128())], column::read_session);
        self.cached_or(|held| held.session_by_id(session), find, RowCache::put_session)
    }

    fn session_by_key(&self, org: OrgId, key: &str) -> Result<Option<SessionRow>, Error> {
        self.one(BY_KEY, params![id(org.to_u128()), key], column::read_session)
    }

    fn sessions(
        &self,
        of: OrgVisibility,
        before: Option<SessionNo>,
        most: usize,
    ) -> Result<Vec<SessionRow>, Error> {
        let (before, most) = (before.map_or(i64::MAX, |no| no.0), limit(most));
        match of {
            OrgVisibility::Everything => {
                let sql = column::session!("WHERE no < ?1 ORDER BY no DESC LIMIT ?2");
                self.all(sql, params![before, most], column::read_session)
            }
            OrgVisibility::Org(org) => {
                self.all(SESSIONS_OF, params![id(org.to_u128()), before, most], column::read_session)
            }
        }
    }

    fn sessions_in(
        &self,
        state: SessionState,
        after: SessionNo,
        most: usize,
    ) -> Result<Vec<SessionRow>, Error> {
        let sql = match state {
            SessionState::Idle => IDLE,
            SessionState::Ready => READY,
            SessionState::Leased => LEASED,
            SessionState::Parked => PARKED,
            SessionState::Held => HELD,
        };
        self.all(sql, params![after.0, limit(most)], column::read_session)
    }

    fn count_last_ended(&self, end: TurnEndKind, most: usize) -> Result<usize, Error> {
        let count = self.one(LAST_ENDED, params![end.name(), limit(most)], |row| row.get::<_, i64>(0))?;
        Ok(count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0))
    }

    fn sessions_due(&self, now: Millis, most: usize) -> Result<Vec<SessionRow>, Error> {
        self.all(DUE, params![count(now.0), limit(most)], column::read_session)
    }

    fn suspect_due(&self, now: Millis, most_deaths: u32) -> Result<Option<SessionRow>, Error> {
        self.one(SUSPECT_DUE, params![count(now.0), most_deaths], column::read_session)
    }

    fn trials(&self) -> Result<Vec<(SessionNo, WorkerId)>, Error> {
        let read =
            |row: &Row<'_>| Ok((SessionNo(row.get(0)?), WorkerId::from_u128(column::read_id(row, 1)?)));
        self.all(TRIALS, [], read)
    }

    fn next_wake(&self) -> Result<Option<Millis>, Error> {
        Ok(self.one(NEXT_WAKE, [], |row| column::read_count(row, 0))?.map(Millis))
    }

    fn forks(&self, of: SessionNo) -> Result<Vec<SessionId>, Error> {
        let sql = "SELECT id FROM sessions WHERE forked_session = ?1 ORDER BY no";
        self.all(sql, [of.0], |row| column::read_id(row, 0).map(SessionId::from_u128))
    }

    fn heads(&self, session: SessionNo) -> Result<Vec<(String, Option<RecordAddress>)>, Error> {
        let sql = "SELECT name, node_session, node_seq FROM heads WHERE session = ?1 ORDER BY name";
        self.all(sql, [session.0], |row| Ok((row.get(0)?, column::read_node(row, 1)?)))
    }

    fn head(&self, session: SessionNo, name: &str) -> Result<Option<Option<RecordAddress>>, Error> {
        let sql = "SELECT node_session, node_seq FROM heads WHERE session = ?1 AND name = ?2";
        self.one(sql, params![session.0, name], |row| column::read_node(row, 0))
    }

    fn turn(&self, no: TurnNo) -> Result<Option<TurnRow>, Error> {
        let find = || self.one(column::turn!("WHERE no = ?1"), [no.0], column::read_turn);
        self.cached_or(|held| held.turn(no), find, RowCache::put_turn)
    }

    fn turn_by_id(&self, turn: TurnId) -> Result<Option<TurnRow>, Error> {
        self.one(column::turn!("WHERE id = ?1"), [id(turn.to_u128())], column::read_turn)
    }

    fn turn_by_key(&self, session: SessionNo, key: &str) -> Result<Option<TurnRow>, Error> {
        let sql = column::turn!("WHERE session = ?1 AND key = ?2");
        self.one(sql, params![session.0, key], column::read_turn)
    }

    fn turns(&self, session: SessionNo, from: u32, most: usize) -> Result<Vec<TurnRow>, Error> {
        let sql = column::turn!("WHERE session = ?1 AND place >= ?2 ORDER BY place LIMIT ?3");
        self.all(sql, params![session.0, from, limit(most)], column::read_turn)
    }

    fn queued(&self, session: SessionNo, most: usize) -> Result<Vec<TurnRow>, Error> {
        self.all(QUEUED, params![session.0, limit(most)], column::read_turn)
    }

    fn last_retry(&self, of: TurnNo) -> Result<Option<TurnRow>, Error> {
        self.one(LAST_RETRY, [of.0], column::read_turn)
    }

    fn records(&self, range: RecordRange) -> Result<Vec<RecordRow>, Error> {
        let RecordRange { session, turn, nodes_only, from, to, limit: most } = range;
        let sql = column::record!(
            "WHERE session = ?1 AND seq BETWEEN ?2 AND ?3 AND (?4 IS NULL OR turn = ?4) AND node >= ?5
             ORDER BY seq LIMIT ?6"
        );
        let turn = turn.map(|turn| turn.0);
        let params = params![session.0, count(from.0), count(to.0), turn, i64::from(nodes_only), limit(most)];
        self.all(sql, params, |row| column::read_record(row).map(|(_, record)| record))
    }

    fn feed(&self, of: OrgVisibility, after: u64, most: usize) -> Result<Vec<(u64, RecordRow)>, Error> {
        let (after, most) = (count(after), limit(most));
        match of {
            OrgVisibility::Everything => {
                let sql = column::record!("WHERE pos > ?1 ORDER BY pos LIMIT ?2");
                self.all(sql, params![after, most], column::read_record)
            }
            OrgVisibility::Org(org) => {
                let sql = column::record!(
                    "WHERE pos > ?1 AND (SELECT org FROM sessions WHERE no = records.session) = ?3
                     ORDER BY pos LIMIT ?2"
                );
                self.all(sql, params![after, most, id(org.to_u128())], column::read_record)
            }
        }
    }

    fn search(
        &self,
        of: OrgVisibility,
        session: Option<SessionNo>,
        wanted: &SearchTerms,
        before: u64,
        most: usize,
    ) -> Result<Vec<(u64, RecordRow)>, Error> {
        let before = count(before.min(LATEST.0));
        let mut found = Vec::new();
        // Messages that are not indexed yet are newer than all indexed ones.
        let heard = "SELECT pos, place, words FROM heard WHERE pos < ?1 ORDER BY pos DESC";
        let heard = self.all(heard, [before], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let heard = heard.into_iter().filter(|(_, place, words): &(i64, String, String)| {
            owner_terms(of, session).all(|whose| place.split(' ').any(|part| part == whose))
                && wanted.fits(words)
        });
        for (position, ..) in heard.take(most) {
            found.extend(self.one(column::record!("WHERE pos = ?1"), [position], column::read_record)?);
        }
        let sql = column::record!(
            "WHERE pos IN (SELECT rowid FROM said WHERE said MATCH ?1 AND rowid < ?2 ORDER BY rowid DESC LIMIT ?3)
             ORDER BY pos DESC"
        );
        let query = match_expression(of, session, wanted);
        found.extend(self.all(
            sql,
            params![query, before, limit(most - found.len())],
            column::read_record,
        )?);
        Ok(found)
    }

    fn feed_end(&self) -> Result<u64, Error> {
        let end = self.one("SELECT max(pos) FROM records", [], |row| column::read_optional_count(row, 0))?;
        Ok(end.flatten().unwrap_or(0))
    }

    fn feed_length(&self, after: u64) -> Result<u64, Error> {
        let sql = "SELECT count(*) FROM records WHERE pos > ?1";
        Ok(self.one(sql, [count(after)], |row| column::read_count(row, 0))?.unwrap_or(0))
    }

    fn claim(&self, session: SessionNo, claim: ClaimRef) -> Result<Option<ClaimRow>, Error> {
        let sql = column::claim!("WHERE session = ?1 AND asked = ?2 AND child = ?3");
        self.one(sql, params![session.0, count(claim.asked.0), claim.child], column::read_claim)
    }

    fn claims(&self, session: SessionNo, turn: TurnNo) -> Result<Vec<ClaimRow>, Error> {
        let sql = column::claim!("WHERE session = ?1 AND turn = ?2 ORDER BY asked, child");
        self.all(sql, params![session.0, turn.0], column::read_claim)
    }

    fn unknown(
        &self,
        of: OrgVisibility,
        after: Option<(Millis, CallId)>,
        most: usize,
    ) -> Result<Vec<ClaimRow>, Error> {
        let since = after.map_or(-1, |(since, _)| count(since.0));
        let (call, most) = (id_lower_bound(after.map(|(_, call)| call.to_u128())), limit(most));
        match of {
            OrgVisibility::Everything => self.all(UNKNOWN, params![since, call, most], column::read_claim),
            OrgVisibility::Org(org) => {
                self.all(UNKNOWN_OF, params![since, call, most, id(org.to_u128())], column::read_claim)
            }
        }
    }

    fn waits(&self, turn: TurnNo) -> Result<Vec<Wait>, Error> {
        let sql = "SELECT wait FROM waits WHERE turn = ?1 ORDER BY no";
        self.all(sql, [turn.0], |row| column::read_json(row, 0))
    }

    fn waiting(&self, of: OrgVisibility, kind: WaitKind, most: usize) -> Result<Vec<(TurnNo, Wait)>, Error> {
        let (kind, most) = (column::wait_kind(kind), limit(most));
        let read = |row: &Row<'_>| Ok((TurnNo(row.get(0)?), column::read_json(row, 1)?));
        match of {
            OrgVisibility::Everything => {
                let sql = "SELECT turn, wait FROM waits WHERE kind = ?1
                           ORDER BY turn, no LIMIT ?2";
                self.all(sql, params![kind, most], read)
            }
            OrgVisibility::Org(org) => {
                let sql = "SELECT turn, wait FROM waits WHERE kind = ?1
                           AND (SELECT org FROM turns JOIN sessions ON sessions.no = turns.session
                                WHERE turns.no = waits.turn) = ?3
                           ORDER BY turn, no LIMIT ?2";
                self.all(sql, params![kind, most, id(org.to_u128())], read)
            }
        }
    }

    fn resolution(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<Resolution>, Error> {
        let sql = "SELECT resolution FROM resolutions WHERE turn = ?1 AND key = ?2";
        self.one(sql, params![turn.0, key.as_str()], |row| column::read_json(row, 0))
    }

    fn value(&self, session: SessionNo, name: &str) -> Result<Option<String>, Error> {
        let sql = "SELECT json FROM session_values WHERE session = ?1 AND name = ?2";
        self.one(sql, params![session.0, name], |row| row.get(0))
    }

    fn value_names(&self, session: SessionNo, prefix: &str, most: usize) -> Result<Vec<String>, Error> {
        let sql = "SELECT name FROM session_values WHERE session = ?1 AND name >= ?2 ORDER BY name LIMIT ?3";
        let mut statement = self.prepared(sql)?;
        let params = params![session.0, prefix, limit(most)];
        let names = statement.query_map(params, |row| row.get::<_, String>(0)).map_err(from_sqlite)?;
        let begins =
            |name: &rusqlite::Result<String>| name.as_ref().map_or(true, |name| name.starts_with(prefix));
        names.take_while(begins).collect::<rusqlite::Result<_>>().map_err(from_sqlite)
    }

    fn attachment(
        &self,
        session: SessionNo,
        attachment: AttachmentId,
    ) -> Result<Option<AttachmentRow>, Error> {
        let sql = column::attachment!("WHERE session = ?1 AND id = ?2");
        self.one(sql, params![session.0, id(attachment.to_u128())], column::read_attachment)
    }

    fn attachments(
        &self,
        session: SessionNo,
        after: Option<AttachmentId>,
        most: usize,
    ) -> Result<Vec<AttachmentRow>, Error> {
        let after = id_lower_bound(after.map(AttachmentId::to_u128));
        self.all(ATTACHMENTS, params![session.0, after, limit(most)], column::read_attachment)
    }

    fn purse(&self, org: OrgId, name: &str) -> Result<Option<BudgetAccountRow>, Error> {
        let sql = column::purse!("WHERE org = ?1 AND name = ?2");
        self.one(sql, params![id(org.to_u128()), name], column::read_budget_account)
    }

    fn budget_accounts(
        &self,
        of: OrgVisibility,
        after: Option<(OrgId, &str)>,
        most: usize,
    ) -> Result<Vec<BudgetAccountRow>, Error> {
        let (from, name) = after.map_or((None, ""), |(org, name)| (Some(org), name));
        match (of, from) {
            (OrgVisibility::Everything, _) => {
                let org = id_lower_bound(from.map(OrgId::to_u128));
                self.all(PURSES, params![org, name, limit(most)], column::read_budget_account)
            }
            // All names of an organisation come before those of the next.
            (OrgVisibility::Org(org), Some(from)) if from > org => Ok(Vec::new()),
            (OrgVisibility::Org(org), from) => {
                let name = if from == Some(org) { name } else { "" };
                self.all(
                    PURSES_OF,
                    params![id(org.to_u128()), name, limit(most)],
                    column::read_budget_account,
                )
            }
        }
    }

    fn rate(&self, org: OrgId, name: &str) -> Result<Option<RateView>, Error> {
        let sql = column::rate!("WHERE org = ?1 AND name = ?2");
        self.one(sql, params![id(org.to_u128()), name], column::read_rate)
    }

    fn rates(
        &self,
        of: OrgVisibility,
        after: Option<(OrgId, &str)>,
        most: usize,
    ) -> Result<Vec<RateView>, Error> {
        let (from, name) = after.map_or((None, ""), |(org, name)| (Some(org), name));
        match (of, from) {
            (OrgVisibility::Everything, _) => {
                let org = id_lower_bound(from.map(OrgId::to_u128));
                self.all(RATES, params![org, name, limit(most)], column::read_rate)
            }
            // All names of an organisation come before those of the next.
            (OrgVisibility::Org(org), Some(from)) if from > org => Ok(Vec::new()),
            (OrgVisibility::Org(org), from) => {
                let name = if from == Some(org) { name } else { "" };
                self.all(RATES_OF, params![id(org.to_u128()), name, limit(most)], column::read_rate)
            }
        }
    }

    fn budgets_are_set(&self) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM purses WHERE budget IS NOT NULL LIMIT 1";
        Ok(self.one(sql, [], |_| Ok(()))?.is_some())
    }

    fn reservations(&self, turn: TurnNo) -> Result<Vec<ReservationRow>, Error> {
        let sql = "SELECT turn, key, most, purses FROM holds WHERE turn = ?1 ORDER BY key";
        self.all(sql, [turn.0], column::read_reservation)
    }

    fn votes(&self, turn: TurnNo) -> Result<Vec<VoteRow>, Error> {
        let sql = "SELECT turn, key, voter, at, verdict FROM votes WHERE turn = ?1 ORDER BY key, voter";
        self.all(sql, [turn.0], column::read_vote)
    }

    fn notices(&self, turn: TurnNo) -> Result<Vec<NoticeRow>, Error> {
        let sql = column::notice!("WHERE turn = ?1 ORDER BY key");
        self.all(sql, [turn.0], column::read_notice)
    }

    fn notices_due(&self, now: Millis, most: usize) -> Result<Vec<NoticeRow>, Error> {
        let sql = column::notice!("WHERE due_at <= ?1 ORDER BY due_at, turn, key LIMIT ?2");
        self.all(sql, params![count(now.0), limit(most)], column::read_notice)
    }

    fn next_notice(&self) -> Result<Option<Millis>, Error> {
        let sql = "SELECT due_at FROM notices WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1";
        self.one(sql, [], |row| column::read_count(row, 0).map(Millis))
    }

    fn pending_payment(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<PendingPaymentRow>, Error> {
        let sql = column::owed!("WHERE turn = ?1 AND key = ?2");
        self.one(sql, params![turn.0, key.as_str()], column::read_pending_payment)
    }

    fn owed(&self, of: OrgVisibility, most: usize) -> Result<Vec<PendingPaymentRow>, Error> {
        match of {
            OrgVisibility::Everything => {
                let sql = column::owed!("ORDER BY since, turn, key LIMIT ?1");
                self.all(sql, [limit(most)], column::read_pending_payment)
            }
            OrgVisibility::Org(org) => {
                let sql = column::owed!(
                    "WHERE (SELECT org FROM sessions WHERE no = (SELECT session FROM turns WHERE no = owed.turn)) = ?1
                     ORDER BY since, turn, key LIMIT ?2"
                );
                self.all(sql, params![id(org.to_u128()), limit(most)], column::read_pending_payment)
            }
        }
    }

    fn payments_due(&self, now: Millis, most: usize) -> Result<Vec<PendingPaymentRow>, Error> {
        let sql = column::owed!("WHERE due_at <= ?1 ORDER BY due_at, turn, key LIMIT ?2");
        self.all(sql, params![count(now.0), limit(most)], column::read_pending_payment)
    }

    fn next_payment_due(&self) -> Result<Option<Millis>, Error> {
        let sql = "SELECT due_at FROM owed ORDER BY due_at LIMIT 1";
        self.one(sql, [], |row| column::read_count(row, 0).map(Millis))
    }

    fn grant(&self, grant: GrantId) -> Result<Option<GrantRow>, Error> {
        let sql = column::grant!("WHERE id = ?1");
        self.one(sql, [id(grant.to_u128())], column::read_grant)
    }

    fn session_grants(&self, session: SessionNo) -> Result<Vec<GrantRow>, Error> {
        let sql = column::grant!("WHERE session = ?1 ORDER BY id");
        self.all(sql, [session.0], column::read_grant)
    }

    fn grants(
        &self,
        of: OrgVisibility,
        after: Option<(Millis, GrantId)>,
        most: usize,
    ) -> Result<Vec<GrantRow>, Error> {
        let at = after.map_or(i64::MAX, |(at, _)| count(at.0));
        let (grant, most) = (id_lower_bound(after.map(|(_, grant)| grant.to_u128())), limit(most));
        match of {
            OrgVisibility::Everything => self.all(GRANTS, params![at, grant, most], column::read_grant),
            OrgVisibility::Org(org) => {
                self.all(GRANTS_OF, params![at, grant, most, id(org.to_u128())], column::read_grant)
            }
        }
    }

    fn partials(&self, turn: TurnNo) -> Result<Vec<PartialRow>, Error> {
        let sql = "SELECT turn, start, key, attempt, text FROM partials WHERE turn = ?1 ORDER BY start";
        self.all(sql, [turn.0], column::read_partial)
    }

    fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, Error> {
        self.one("SELECT bytes FROM blobs WHERE hash = ?1", [hash.as_bytes()], |row| row.get(0))
    }

    fn blob_range(&self, hash: Hash, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        let sql = "SELECT rowid FROM blobs WHERE hash = ?1";
        let Some(row) = self.one(sql, [hash.as_bytes()], |row| row.get(0))? else { return Ok(None) };
        // `substr` would read the whole value first.
        let blob = self.conn.blob_open(MAIN_DB, "blobs", "bytes", row, true).map_err(from_sqlite)?;
        let inside = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(blob.len());
        let (start, end) = (inside(range.start), inside(range.end));
        let mut bytes = vec![0; end.saturating_sub(start)];
        blob.read_at_exact(&mut bytes, start).map_err(from_sqlite)?;
        Ok(Some(bytes))
    }

    fn outside(&self, content: Hash) -> Result<Option<ExternalContentRow>, Error> {
        let sql = "SELECT content, uses, worker, since FROM outside WHERE content = ?1";
        self.one(sql, [content.as_bytes()], column::read_external_content)
    }

    fn unreferenced_content(&self, most: usize) -> Result<Vec<Hash>, Error> {
        let sql = "SELECT content FROM outside WHERE uses = 0 ORDER BY content LIMIT ?1";
        self.all(sql, [limit(most)], |row| column::read_hash(row, 0))
    }

    fn sweeps(&self) -> Result<SweepCounter, Error> {
        let number = self.one("SELECT value FROM meta WHERE name = 'sweeps'", [], |row| row.get(0))?;
        Ok(SweepCounter(number.map_or(0, u64::from_be_bytes)))
    }

    fn sink(&self, name: &str) -> Result<Option<SinkRow>, Error> {
        self.one(column::sink!("WHERE name = ?1"), [name], column::read_sink)
    }

    fn config(&self, org: OrgId, kind: ConfigKind, name: &str) -> Result<Option<ConfigRow>, Error> {
        Ok(self.config_versions(org, (kind, name), None, 1)?.pop())
    }

    fn configs(
        &self,
        org: OrgId,
        kind: ConfigKind,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<ConfigRow>, Error> {
        // Goes from name to name and skips all versions but the last.
        let mut found: Vec<ConfigRow> = Vec::new();
        while found.len() < most {
            let last = found.last().map_or(after.unwrap_or_default(), |config| config.name.as_str());
            let next: Option<String> =
                self.one(NEXT_CONFIG, params![id(org.to_u128()), kind.name(), last], |row| row.get(0))?;
            let Some(next) = next else { break };
            found.extend(self.config(org, kind, &next)?);
        }
        Ok(found)
    }

    fn config_versions(
        &self,
        org: OrgId,
        (kind, name): (ConfigKind, &str),
        before: Option<u32>,
        most: usize,
    ) -> Result<Vec<ConfigRow>, Error> {
        let before = before.map_or(i64::MAX, i64::from);
        let params = params![id(org.to_u128()), kind.name(), name, before, limit(most)];
        self.all(VERSIONS, params, column::read_config)
    }

    fn sinks(&self) -> Result<Vec<SinkRow>, Error> {
        self.all(column::sink!("ORDER BY name"), [], column::read_sink)
    }

    fn delivery(
        &self,
        sink: &str,
        turn: TurnNo,
        moment: OutputPosition,
    ) -> Result<Option<DeliveryRow>, Error> {
        let sql = column::outgoing!("WHERE sink = ?1 AND turn = ?2 AND seq = ?3 AND nth = ?4");
        let OutputPosition { seq, nth } = moment;
        self.one(sql, params![sink, turn.0, count(seq.0), nth], column::read_delivery_row)
    }

    fn deliveries(
        &self,
        sink: &str,
        after: Option<DeliveryPosition>,
        most: usize,
    ) -> Result<Vec<DeliveryRow>, Error> {
        let place =
            after.map_or((-1, -1, -1), |DeliveryPosition { turn, moment: OutputPosition { seq, nth } }| {
                (turn.0, count(seq.0), i64::from(nth))
            });
        let params = params![sink, place.0, place.1, place.2, limit(most)];
        self.all(DELIVERIES, params, column::read_delivery_row)
    }

    fn deliveries_due(&self, sink: &str, now: Millis, most: usize) -> Result<Vec<DeliveryRow>, Error> {
        self.all(DELIVERIES_DUE, params![sink, count(now.0), limit(most)], column::read_delivery_row)
    }

    fn deliveries_taken(&self, sink: &str, most: usize) -> Result<Vec<DeliveryRow>, Error> {
        self.all(DELIVERIES_TAKEN, params![sink, limit(most)], column::read_delivery_row)
    }

    fn next_delivery(&self, sink: &str) -> Result<Option<Millis>, Error> {
        Ok(self.one(NEXT_DELIVERY, [sink], |row| column::read_count(row, 0))?.map(Millis))
    }

    fn count_deliveries(&self, sink: &str) -> Result<(u64, u64), Error> {
        let sql = "SELECT count(due_at), count(*) - count(due_at) FROM deliveries WHERE sink = ?1";
        let counts =
            self.one(sql, [sink], |row| Ok((column::read_count(row, 0)?, column::read_count(row, 1)?)))?;
        Ok(counts.unwrap_or((0, 0)))
    }

    fn org(&self, org: OrgId) -> Result<Option<Org>, Error> {
        self.one(column::org!("WHERE id = ?1"), [id(org.to_u128())], column::read_org)
    }

    fn org_by_name(&self, name: &str) -> Result<Option<Org>, Error> {
        self.one(column::org!("WHERE name = ?1"), [name], column::read_org)
    }

    fn orgs(&self, after: Option<&str>, most: usize) -> Result<Vec<Org>, Error> {
        self.all(ORGS, params![after.unwrap_or_default(), limit(most)], column::read_org)
    }

    fn key(&self, key: KeyId) -> Result<Option<KeyRow>, Error> {
        self.one(column::key!("WHERE id = ?1"), [id(key.to_u128())], column::read_key)
    }

    fn keys(&self, of: OrgVisibility, after: Option<KeyId>, most: usize) -> Result<Vec<KeyRow>, Error> {
        let (after, most) = (id_lower_bound(after.map(KeyId::to_u128)), limit(most));
        match of {
            OrgVisibility::Everything => self.all(KEYS, params![after, most], column::read_key),
            OrgVisibility::Org(org) => {
                self.all(KEYS_OF, params![after, most, id(org.to_u128())], column::read_key)
            }
        }
    }

    fn audit(&self, of: OrgVisibility, range: AuditRange) -> Result<Vec<AuditRow>, Error> {
        let (after, since, most) = (count(range.after), count(range.since.0), limit(range.limit));
        match of {
            OrgVisibility::Everything => self.all(AUDIT, params![after, since, most], column::read_audit),
            OrgVisibility::Org(org) => {
                self.all(AUDIT_OF, params![after, since, most, id(org.to_u128())], column::read_audit)
            }
        }
    }

    fn secret(&self) -> Result<[u8; 32], Error> {
        Ok(self.shared.secret)
    }

    fn is_dead(&self, worker: WorkerId) -> bool {
        self.shared.workers.is_dead(worker)
    }
}
