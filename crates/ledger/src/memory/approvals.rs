//! Approval requests: votes, notices, and approvals for the rest of a session.
use super::{Tables, VoteKey, page};
use crate::rows::{
    ApprovalQueries, ApprovalRows, ApprovalWrites, GrantRow, NoticeQueue, NoticeRow, SessionNo, VoteRow,
};
use outlast_ports::turns::TurnNo;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::GrantId;
use outlast_vocab::key::ReplayKey;
use outlast_vocab::{Error, Millis};
use std::cmp::Reverse;

impl ApprovalRows for Tables {
    fn votes(&self, turn: TurnNo) -> Result<Vec<VoteRow>, Error> {
        Ok(self.votes.values().filter(|row| row.turn == turn).cloned().collect())
    }

    fn notices(&self, turn: TurnNo) -> Result<Vec<NoticeRow>, Error> {
        Ok(self.notices.values().filter(|row| row.turn == turn).cloned().collect())
    }

    fn grant(&self, id: GrantId) -> Result<Option<GrantRow>, Error> {
        Ok(self.grants.get(&id).cloned())
    }

    fn session_grants(&self, session: SessionNo) -> Result<Vec<GrantRow>, Error> {
        Ok(self.grants.values().filter(|row| row.session == session).cloned().collect())
    }
}

impl NoticeQueue for Tables {
    fn notices_due(&self, now: Millis, limit: usize) -> Result<Vec<NoticeRow>, Error> {
        let due = |row: &&NoticeRow| row.due_at.is_some_and(|at| at <= now);
        let mut rows: Vec<&NoticeRow> = self.notices.values().filter(due).collect();
        rows.sort_by_key(|row| (row.due_at, row.turn, row.key.clone()));
        Ok(page(rows.into_iter(), limit))
    }

    fn next_notice(&self) -> Result<Option<Millis>, Error> {
        Ok(self.notices.values().filter_map(|row| row.due_at).min())
    }
}

impl ApprovalQueries for Tables {
    fn grants(
        &self,
        of: OrgVisibility,
        after: Option<(Millis, GrantId)>,
        limit: usize,
    ) -> Result<Vec<GrantRow>, Error> {
        let place = |row: &&GrantRow| (Reverse(row.at), row.id);
        let after = after.map(|(at, id)| (Reverse(at), id));
        let visible = |row: &&GrantRow| self.covers(of, row.session) && Some(place(row)) > after;
        let mut rows: Vec<&GrantRow> = self.grants.values().filter(visible).collect();
        rows.sort_by_key(place);
        Ok(page(rows.into_iter(), limit))
    }
}

impl ApprovalWrites for Tables {
    fn put_vote(&mut self, row: &VoteRow) -> Result<(), Error> {
        self.set(|tables| &mut tables.votes, vote_key(row), Some(row.clone()));
        Ok(())
    }

    fn delete_vote(&mut self, row: &VoteRow) -> Result<(), Error> {
        self.set(|tables| &mut tables.votes, vote_key(row), None);
        Ok(())
    }

    fn put_notice(&mut self, row: &NoticeRow) -> Result<(), Error> {
        self.set(|tables| &mut tables.notices, (row.turn, row.key.clone()), Some(row.clone()));
        Ok(())
    }

    fn delete_notice(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.set(|tables| &mut tables.notices, (turn, key.clone()), None);
        Ok(())
    }

    fn put_grant(&mut self, row: &GrantRow) -> Result<(), Error> {
        self.set(|tables| &mut tables.grants, row.id, Some(row.clone()));
        Ok(())
    }

    fn delete_grant(&mut self, id: GrantId) -> Result<(), Error> {
        self.set(|tables| &mut tables.grants, id, None);
        Ok(())
    }
}

fn vote_key(row: &VoteRow) -> VoteKey {
    (row.turn, row.key.clone(), row.vote.by.clone())
}
