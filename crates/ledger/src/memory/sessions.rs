//! Sessions and their heads.
use super::{Tables, page};
use crate::rows::{
    ContentRows, RecordAddress, RecordBody, SessionNo, SessionQueries, SessionRow, SessionRows,
    SessionWrites, taken,
};
use outlast_ports::turns::TurnNo;
use outlast_views::BlobLocation;
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::id::{OrgId, SessionId, TurnId};
use outlast_vocab::record::{Seq, TurnEndKind};
use std::collections::BTreeMap;

impl SessionRows for Tables {
    fn session(&self, no: SessionNo) -> Result<Option<SessionRow>, Error> {
        Ok(self.sessions.get(&no).cloned())
    }

    fn session_by_id(&self, id: SessionId) -> Result<Option<SessionRow>, Error> {
        Ok(self.session_ids.get(&id).and_then(|no| self.sessions.get(no)).cloned())
    }

    fn session_by_key(&self, org: OrgId, key: &str) -> Result<Option<SessionRow>, Error> {
        Ok(self.session_keys.get(&(org, key.to_owned())).and_then(|no| self.sessions.get(no)).cloned())
    }

    fn forks(&self, of: SessionNo) -> Result<Vec<SessionId>, Error> {
        let forked =
            |row: &&SessionRow| row.forked_from.is_some_and(|node| node.session == of) && row.no != of;
        Ok(self.sessions.values().filter(forked).map(|row| row.id).collect())
    }

    fn heads(&self, session: SessionNo) -> Result<Vec<(String, Option<RecordAddress>)>, Error> {
        let ours = self.heads.iter().filter(|((no, _), _)| *no == session);
        Ok(ours.map(|((_, name), node)| (name.clone(), *node)).collect())
    }

    fn head(&self, session: SessionNo, name: &str) -> Result<Option<Option<RecordAddress>>, Error> {
        Ok(self.heads.get(&(session, name.to_owned())).copied())
    }
}

impl SessionQueries for Tables {
    fn sessions(
        &self,
        of: OrgVisibility,
        before: Option<SessionNo>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, Error> {
        let end = before.unwrap_or(SessionNo(i64::MAX));
        let earlier = self.sessions.range(..end).rev().map(|(_, row)| row);
        Ok(page(earlier.filter(|row| of.covers(row.org)), limit))
    }

    fn count_last_ended(&self, end: TurnEndKind, limit: usize) -> Result<usize, Error> {
        let ended = |row: &&SessionRow| row.last_ended.is_some_and(|last| last.end == end);
        Ok(self.sessions.values().filter(ended).take(limit).count())
    }
}

impl SessionWrites for Tables {
    fn insert_session(&mut self, row: &SessionRow) -> Result<SessionNo, Error> {
        if self.session_ids.contains_key(&row.id) {
            return Err(taken(row.id));
        }
        self.last.session += 1;
        let no = SessionNo(self.last.session);
        self.set(|tables| &mut tables.session_ids, row.id, Some(no));
        if let Some(key) = &row.key {
            self.set(|tables| &mut tables.session_keys, (row.org, key.clone()), Some(no));
        }
        self.set(|tables| &mut tables.sessions, no, Some(SessionRow { no, ..row.clone() }));
        Ok(no)
    }

    fn put_session(&mut self, row: &SessionRow) -> Result<(), Error> {
        self.set(|tables| &mut tables.sessions, row.no, Some(row.clone()));
        Ok(())
    }

    fn delete_session(&mut self, no: SessionNo) -> Result<(), Error> {
        let turns: BTreeMap<TurnNo, TurnId> =
            self.turns.values().filter(|turn| turn.session == no).map(|turn| (turn.no, turn.id)).collect();
        let ours = |turn: &TurnNo| turns.contains_key(turn);
        self.remove_where(|tables| &mut tables.resolutions, |(turn, _), _| ours(turn));
        self.remove_where(|tables| &mut tables.waits, |turn, _| ours(turn));
        self.remove_where(|tables| &mut tables.votes, |(turn, ..), _| ours(turn));
        self.remove_where(|tables| &mut tables.notices, |(turn, _), _| ours(turn));
        self.remove_where(|tables| &mut tables.partials, |(turn, _), _| ours(turn));
        self.remove_where(|tables| &mut tables.deliveries, |(_, turn, _), _| ours(turn));
        self.remove_where(|tables| &mut tables.turn_order, |_, turn| ours(turn));
        for (turn, id) in turns {
            self.set(|tables| &mut tables.turn_ids, id, None);
            self.set(|tables| &mut tables.turns, turn, None);
        }
        let records: Vec<(Seq, u64)> = self
            .log_order
            .range((no, Seq(0))..=(no, Seq(u64::MAX)))
            .map(|((_, seq), position)| (*seq, *position))
            .collect();
        for (seq, position) in records {
            if let Some(RecordBody::Blob(hash)) = self.log.get(&position).map(|row| row.body.clone()) {
                self.release_blob(hash);
            }
            self.set(|tables| &mut tables.log_order, (no, seq), None);
            self.set(|tables| &mut tables.log, position, None);
        }
        for row in self.attachments(no, None, usize::MAX)? {
            match row.location {
                BlobLocation::Database => self.release_blob(row.attachment.content),
                BlobLocation::Outside => self.release_outside(row.attachment.content),
            }
            self.set(|tables| &mut tables.attachments, (no, row.attachment.id), None);
        }
        self.remove_where(|tables| &mut tables.grants, |_, row| row.session == no);
        self.remove_where(|tables| &mut tables.claims, |(session, _), _| *session == no);
        self.remove_where(|tables| &mut tables.values, |(session, _), _| *session == no);
        self.remove_where(|tables| &mut tables.heads, |(session, _), _| *session == no);
        if let Some(row) = self.sessions.get(&no).cloned() {
            self.set(|tables| &mut tables.session_ids, row.id, None);
            if let Some(key) = row.key {
                self.set(|tables| &mut tables.session_keys, (row.org, key), None);
            }
            self.set(|tables| &mut tables.sessions, no, None);
        }
        Ok(())
    }

    fn put_head(&mut self, session: SessionNo, name: &str, node: Option<RecordAddress>) -> Result<(), Error> {
        self.set(|tables| &mut tables.heads, (session, name.to_owned()), Some(node));
        Ok(())
    }
}
