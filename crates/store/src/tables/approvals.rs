//! Approval requests: votes, notices, and approvals for the rest of a session.
use super::Tables;
use super::column::{
    count, id, id_lower_bound, json, limit, read_count, read_hash, read_id, read_json, read_optional_count,
    read_parsed,
};
use outlast_ledger::rows::{
    ApprovalQueries, ApprovalRows, ApprovalWrites, GrantRow, NoticeQueue, NoticeRow, SessionNo, VoteRow,
};
use outlast_ports::turns::TurnNo;
use outlast_views::Vote;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::approval::SentNotices;
use outlast_vocab::id::GrantId;
use outlast_vocab::key::ReplayKey;
use outlast_vocab::{Error, Millis};
use rusqlite::{Row, params};

/// The columns of an approval notice.
macro_rules! notice {
    ($rest:literal) => {
        concat!("SELECT turn, key, since, ask, reminded, escalated, due_at FROM notices ", $rest)
    };
}

/// The columns of a grant.
macro_rules! grant {
    ($rest:literal) => {
        concat!("SELECT id, session, form, tool, rule, labels, granters, at FROM grants ", $rest)
    };
}

pub(super) const GRANTS: &str =
    grant!("WHERE at <= ?1 AND (at < ?1 OR id > ?2) ORDER BY at DESC, id LIMIT ?3");
pub(super) const GRANTS_OF: &str =
    grant!("WHERE org = ?4 AND at <= ?1 AND (at < ?1 OR id > ?2) ORDER BY at DESC, id LIMIT ?3");

impl ApprovalRows for Tables<'_> {
    fn votes(&self, turn: TurnNo) -> Result<Vec<VoteRow>, Error> {
        let sql = "SELECT turn, key, voter, at, verdict FROM votes WHERE turn = ?1 ORDER BY key, voter";
        self.all(sql, [turn.0], read_vote)
    }

    fn notices(&self, turn: TurnNo) -> Result<Vec<NoticeRow>, Error> {
        let sql = notice!("WHERE turn = ?1 ORDER BY key");
        self.all(sql, [turn.0], read_notice)
    }

    fn grant(&self, grant: GrantId) -> Result<Option<GrantRow>, Error> {
        let sql = grant!("WHERE id = ?1");
        self.one(sql, [id(grant.to_u128())], read_grant)
    }

    fn session_grants(&self, session: SessionNo) -> Result<Vec<GrantRow>, Error> {
        let sql = grant!("WHERE session = ?1 ORDER BY id");
        self.all(sql, [session.0], read_grant)
    }
}

impl NoticeQueue for Tables<'_> {
    fn notices_due(&self, now: Millis, most: usize) -> Result<Vec<NoticeRow>, Error> {
        let sql = notice!("WHERE due_at <= ?1 ORDER BY due_at, turn, key LIMIT ?2");
        self.all(sql, params![count(now.0), limit(most)], read_notice)
    }

    fn next_notice(&self) -> Result<Option<Millis>, Error> {
        let sql = "SELECT due_at FROM notices WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1";
        self.one(sql, [], |row| read_count(row, 0).map(Millis))
    }
}

impl ApprovalQueries for Tables<'_> {
    fn grants(
        &self,
        of: OrgVisibility,
        after: Option<(Millis, GrantId)>,
        most: usize,
    ) -> Result<Vec<GrantRow>, Error> {
        let at = after.map_or(i64::MAX, |(at, _)| count(at.0));
        let (grant, most) = (id_lower_bound(after.map(|(_, grant)| grant.to_u128())), limit(most));
        match of {
            OrgVisibility::Everything => self.all(GRANTS, params![at, grant, most], read_grant),
            OrgVisibility::Org(org) => {
                self.all(GRANTS_OF, params![at, grant, most, id(org.to_u128())], read_grant)
            }
        }
    }
}

impl ApprovalWrites for Tables<'_> {
    fn put_vote(&mut self, row: &VoteRow) -> Result<(), Error> {
        let VoteRow { turn, key, vote: Vote { by, at, verdict } } = row;
        self.run(
            "INSERT INTO votes (turn, key, voter, at, verdict) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (turn, key, voter) DO UPDATE SET at = ?4, verdict = ?5",
            params![turn.0, json(key)?, by, count(at.0), json(verdict)?],
        )?;
        Ok(())
    }

    fn delete_vote(&mut self, row: &VoteRow) -> Result<(), Error> {
        let VoteRow { turn, key, vote } = row;
        self.run(
            "DELETE FROM votes WHERE turn = ?1 AND key = ?2 AND voter = ?3",
            params![turn.0, json(key)?, vote.by],
        )?;
        Ok(())
    }

    fn put_notice(&mut self, row: &NoticeRow) -> Result<(), Error> {
        let NoticeRow { turn, key, since, ask, given: SentNotices { reminded, escalated }, due_at } = row;
        self.run(
            "INSERT INTO notices (turn, key, since, ask, reminded, escalated, due_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (turn, key) DO UPDATE SET since = ?3, ask = ?4, reminded = ?5, escalated = ?6, due_at = ?7",
            params![
                turn.0,
                json(key)?,
                count(since.0),
                json(ask)?,
                reminded,
                escalated,
                due_at.map(|at| count(at.0)),
            ],
        )?;
        Ok(())
    }

    fn delete_notice(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.run("DELETE FROM notices WHERE turn = ?1 AND key = ?2", params![turn.0, json(key)?])?;
        Ok(())
    }

    fn put_grant(&mut self, row: &GrantRow) -> Result<(), Error> {
        self.run(
            "INSERT INTO grants (id, session, form, tool, rule, labels, granters, at, org)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, (SELECT org FROM sessions WHERE no = ?2))
             ON CONFLICT (id) DO UPDATE SET form = ?3, tool = ?4, rule = ?5, labels = ?6, granters = ?7, at = ?8",
            params![
                id(row.id.to_u128()),
                row.session.0,
                row.form.as_bytes(),
                row.tool.as_str(),
                row.rule.as_str(),
                json(&row.labels)?,
                json(&row.by)?,
                count(row.at.0),
            ],
        )?;
        Ok(())
    }

    fn delete_grant(&mut self, grant: GrantId) -> Result<(), Error> {
        self.run("DELETE FROM grants WHERE id = ?1", [id(grant.to_u128())])?;
        Ok(())
    }
}

fn read_vote(row: &Row<'_>) -> rusqlite::Result<VoteRow> {
    let vote = Vote { by: row.get(2)?, at: Millis(read_count(row, 3)?), verdict: read_json(row, 4)? };
    Ok(VoteRow { turn: TurnNo(row.get(0)?), key: read_json(row, 1)?, vote })
}

fn read_notice(row: &Row<'_>) -> rusqlite::Result<NoticeRow> {
    Ok(NoticeRow {
        turn: TurnNo(row.get(0)?),
        key: read_json(row, 1)?,
        since: Millis(read_count(row, 2)?),
        ask: read_json(row, 3)?,
        given: SentNotices { reminded: row.get(4)?, escalated: row.get(5)? },
        due_at: read_optional_count(row, 6)?.map(Millis),
    })
}

fn read_grant(row: &Row<'_>) -> rusqlite::Result<GrantRow> {
    Ok(GrantRow {
        id: GrantId::from_u128(read_id(row, 0)?),
        session: SessionNo(row.get(1)?),
        form: read_hash(row, 2)?,
        tool: read_parsed(row, 3)?,
        rule: read_parsed(row, 4)?,
        labels: read_json(row, 5)?,
        by: read_json(row, 6)?,
        at: Millis(read_count(row, 7)?),
    })
}
