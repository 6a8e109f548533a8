//! Writes rows: the implementation of `Rows`. Columns that never change are written once, by the insert.
use super::column::{self, count, id};
use super::{RowCache, Tables};
use outlast_ledger::rows::{
    AttachmentRow, BudgetAccountRow, ClaimRow, ConfigRow, DeliveryRow, ExternalContentRow, GrantRow, KeyRow,
    NoticeRow, PINNED_USES, PartialRow, PendingPaymentRow, RecordAddress, RecordBody, RecordRow,
    ReservationRow, ResolutionRow, Rows, SessionNo, SessionRow, SinkRow, TurnRow, VoteRow,
};
use outlast_ports::attachment_upload::SweepCounter;
use outlast_ports::sink::OutputPosition;
use outlast_ports::turns::{Fence, TurnNo};
use outlast_views::{AuditRow, BlobLocation, Org, RateView, Vote};
use outlast_vocab::approval::SentNotices;
use outlast_vocab::id::{GrantId, OrgId, SessionId, WorkerId};
use outlast_vocab::message::Attachment;
use outlast_vocab::rate::RateState;
use outlast_vocab::record::{ClaimRef, Seq};
use outlast_vocab::wait::Wait;
use outlast_vocab::{Error, Hash, Kind, Millis, ReplayKey};
use rusqlite::params;
use serde::Serialize;

/// The number of records after which the words of messages are indexed. Indexing one message at a time costs
/// ten times as much.
const INDEX_BATCH_RECORDS: u64 = 512;

impl Rows for Tables<'_> {
    fn insert_session(&mut self, row: &SessionRow) -> Result<SessionNo, Error> {
        let (forked_session, forked_seq) = column::node(row.forked_from);
        let no = self.insert(
            row.id,
            "INSERT INTO sessions (id, key, created, updated, state, fence, worker, lease_until, wake_at, last_seq,
             last_hash, turns, active, queued, deaths, forked_session, forked_seq, org, imported, cost, deaths_alone,
             trial, last_turn, last_end, foreign_seq)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
             ?22, ?23, ?24, ?25)",
            params![
                id(row.id.to_u128()),
                row.key,
                count(row.created.0),
                count(row.updated.0),
                column::session_state(row.state),
                count(row.fence.0),
                row.worker.map(|worker| id(worker.to_u128())),
                count(row.lease_until.0),
                row.wake_at.map(|at| count(at.0)),
                count(row.last_seq.0),
                row.last_hash.as_bytes(),
                row.turns,
                row.active.map(|turn| turn.0),
                row.queued,
                row.guard.deaths,
                forked_session,
                forked_seq,
                id(row.org.to_u128()),
                count(row.imported.0),
                row.cost.map(|cost| count(cost.picodollars())),
                row.guard.alone,
                column::trial(row.guard.trial),
                row.last_ended.map(|last| last.turn.0),
                row.last_ended.map(|last| last.end.name()),
                count(row.foreign.0),
            ],
        )?;
        Ok(SessionNo(no))
    }

    fn put_session(&mut self, row: &SessionRow) -> Result<(), Error> {
        self.run(
            "UPDATE sessions SET updated = ?2, state = ?3, fence = ?4, worker = ?5, lease_until = ?6, wake_at = ?7,
             last_seq = ?8, last_hash = ?9, turns = ?10, active = ?11, queued = ?12, deaths = ?13, cost = ?14,
             deaths_alone = ?15, trial = ?16, last_turn = ?17, last_end = ?18, foreign_seq = ?19 WHERE no = ?1",
            params![
                row.no.0,
                count(row.updated.0),
                column::session_state(row.state),
                count(row.fence.0),
                row.worker.map(|worker| id(worker.to_u128())),
                count(row.lease_until.0),
                row.wake_at.map(|at| count(at.0)),
                count(row.last_seq.0),
                row.last_hash.as_bytes(),
                row.turns,
                row.active.map(|turn| turn.0),
                row.queued,
                row.guard.deaths,
                row.cost.map(|cost| count(cost.picodollars())),
                row.guard.alone,
                column::trial(row.guard.trial),
                row.last_ended.map(|last| last.turn.0),
                row.last_ended.map(|last| last.end.name()),
                count(row.foreign.0),
            ],
        )?;
        self.update_cache(|held| held.put_session(row));
        Ok(())
    }

    fn delete_session(&mut self, no: SessionNo) -> Result<(), Error> {
        // Children before their parents, and counted rows before the rows that count them.
        for sql in [
            "DELETE FROM waits WHERE turn IN (SELECT no FROM turns WHERE session = ?1)",
            "DELETE FROM resolutions WHERE turn IN (SELECT no FROM turns WHERE session = ?1)",
            "DELETE FROM partials WHERE turn IN (SELECT no FROM turns WHERE session = ?1)",
            "DELETE FROM deliveries WHERE turn IN (SELECT no FROM turns WHERE session = ?1)",
            "DELETE FROM holds WHERE turn IN (SELECT no FROM turns WHERE session = ?1)",
            "DELETE FROM votes WHERE turn IN (SELECT no FROM turns WHERE session = ?1)",
            "DELETE FROM notices WHERE turn IN (SELECT no FROM turns WHERE session = ?1)",
            "DELETE FROM grants WHERE session = ?1",
            "DELETE FROM turns WHERE session = ?1",
            "UPDATE blobs SET uses = uses - (SELECT count(*) FROM attachments
             WHERE session = ?1 AND outside = 0 AND content = blobs.hash)
             WHERE hash IN (SELECT content FROM attachments WHERE session = ?1 AND outside = 0)",
            "UPDATE outside SET uses = uses - (SELECT count(*) FROM attachments
             WHERE session = ?1 AND outside = 1 AND attachments.content = outside.content)
             WHERE content IN (SELECT content FROM attachments WHERE session = ?1 AND outside = 1)",
            "UPDATE blobs SET uses = uses - (SELECT count(*) FROM records WHERE session = ?1 AND blob = blobs.hash)
             WHERE hash IN (SELECT blob FROM records WHERE session = ?1 AND blob IS NOT NULL)",
            "DELETE FROM blobs WHERE uses = 0
             AND (hash IN (SELECT blob FROM records WHERE session = ?1 AND blob IS NOT NULL)
                  OR hash IN (SELECT content FROM attachments WHERE session = ?1 AND outside = 0))",
            "DELETE FROM attachments WHERE session = ?1",
            "DELETE FROM records WHERE session = ?1",
            "DELETE FROM claims WHERE session = ?1",
            "DELETE FROM session_values WHERE session = ?1",
            "DELETE FROM heads WHERE session = ?1",
            "DELETE FROM sessions WHERE no = ?1",
        ] {
            self.run(sql, [no.0])?;
        }
        self.update_cache(RowCache::clear);
        Ok(())
    }

    fn extend_leases(&mut self, worker: WorkerId, until: Millis) -> Result<Vec<(SessionId, Fence)>, Error> {
        self.update_cache(RowCache::clear);
        self.all(
            "UPDATE sessions SET lease_until = ?2 WHERE state = 2 AND worker = ?1 RETURNING id, fence",
            params![id(worker.to_u128()), count(until.0)],
            |row| Ok((SessionId::from_u128(column::read_id(row, 0)?), Fence(column::read_count(row, 1)?))),
        )
    }

    fn put_head(&mut self, session: SessionNo, name: &str, node: Option<RecordAddress>) -> Result<(), Error> {
        let (node_session, node_seq) = column::node(node);
        self.run(
            "INSERT INTO heads (session, name, node_session, node_seq) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (session, name) DO UPDATE SET node_session = ?3, node_seq = ?4",
            params![session.0, name, node_session, node_seq],
        )?;
        Ok(())
    }

    fn insert_turn(&mut self, row: &TurnRow) -> Result<TurnNo, Error> {
        let (parent_session, parent_seq) = column::node(row.parent);
        let no = self.insert(
            row.id,
            "INSERT INTO turns (id, session, place, key, input, delivery, head, state, accepted, last_node,
             parent_session, parent_seq, ended, cancelled, commits, waited_us, retry_of)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
            params![
                id(row.id.to_u128()),
                row.session.0,
                row.index,
                row.key,
                row.input.as_bytes(),
                column::delivery(row.delivery),
                row.head,
                column::turn_state(row.state),
                count(row.accepted.0),
                count(row.last_node.0),
                parent_session,
                parent_seq,
                row.ended.map(|seq| count(seq.0)),
                row.cancelled,
                row.writes.map(|writes| count(writes.commits)),
                row.writes.map(|writes| column::micros(writes.waited)),
                row.retry_of.map(|turn| turn.0),
            ],
        )?;
        self.update_cache(|held| held.put_turn(&TurnRow { no: TurnNo(no), ..row.clone() }));
        Ok(TurnNo(no))
    }

    fn put_turn(&mut self, row: &TurnRow) -> Result<(), Error> {
        let (parent_session, parent_seq) = column::node(row.parent);
        self.run(
            "UPDATE turns SET state = ?2, last_node = ?3, parent_session = ?4, parent_seq = ?5, ended = ?6,
             cancelled = ?7, commits = ?8, waited_us = ?9, retry_of = ?10 WHERE no = ?1",
            params![
                row.no.0,
                column::turn_state(row.state),
                count(row.last_node.0),
                parent_session,
                parent_seq,
                row.ended.map(|seq| count(seq.0)),
                row.cancelled,
                row.writes.map(|writes| count(writes.commits)),
                row.writes.map(|writes| column::micros(writes.waited)),
                row.retry_of.map(|turn| turn.0),
            ],
        )?;
        self.update_cache(|held| held.put_turn(row));
        Ok(())
    }

    fn append(&mut self, row: &RecordRow) -> Result<(), Error> {
        let (body, blob) = match &row.body {
            RecordBody::Inline(body) => (Some(body.as_slice()), None),
            RecordBody::Blob(hash) => (None, Some(hash.as_bytes())),
        };
        self.run(
            "INSERT INTO records (session, seq, turn, at, node, hash, body, blob)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                row.session.0,
                count(row.seq.0),
                row.turn.map(|turn| turn.0),
                count(row.at.0),
                row.node,
                row.hash.as_bytes(),
                body,
                blob,
            ],
        )?;
        Ok(())
    }

    fn index_words(&mut self, session: &SessionRow, seq: Seq, words: &str) -> Result<(), Error> {
        self.run(
            "INSERT INTO heard (pos, place, words)
             VALUES ((SELECT pos FROM records WHERE session = ?1 AND seq = ?2), ?3, ?4)",
            params![session.no.0, count(seq.0), column::place(session), words],
        )?;
        let span = "SELECT max(pos) - (SELECT min(pos) FROM heard) FROM heard";
        let waiting = self.one(span, [], |row| column::read_count(row, 0))?.unwrap_or(0);
        if waiting >= INDEX_BATCH_RECORDS {
            self.run("INSERT INTO said (rowid, place, words) SELECT pos, place, words FROM heard", [])?;
            self.run("DELETE FROM heard", [])?;
        }
        Ok(())
    }

    fn unindex_words(&mut self, session: &SessionRow, seq: Seq, words: &str) -> Result<(), Error> {
        let position = "SELECT pos FROM records WHERE session = ?1 AND seq = ?2";
        let position = self.one(position, params![session.no.0, count(seq.0)], |row| row.get::<_, i64>(0))?;
        if self.run("DELETE FROM heard WHERE pos = ?1", [position])? == 0 {
            // The index stores no text, so a deletion must contain the words.
            self.run(
                "INSERT INTO said (said, rowid, place, words) VALUES ('delete', ?1, ?2, ?3)",
                params![position, column::place(session), words],
            )?;
        }
        Ok(())
    }

    fn put_claim(&mut self, row: &ClaimRow) -> Result<(), Error> {
        self.run(
            "INSERT INTO claims (session, asked, child, turn, call, fence, unknown, since, org)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, CASE WHEN ?7 THEN (SELECT org FROM sessions WHERE no = ?1) END)
             ON CONFLICT (session, asked, child)
             DO UPDATE SET turn = ?4, call = ?5, fence = ?6, unknown = ?7, since = ?8, org = excluded.org",
            params![
                row.session.0,
                count(row.claim.asked.0),
                row.claim.child,
                row.turn.0,
                id(row.call.to_u128()),
                count(row.fence.0),
                row.unknown,
                count(row.since.0),
            ],
        )?;
        Ok(())
    }

    fn delete_claim(&mut self, session: SessionNo, claim: ClaimRef) -> Result<(), Error> {
        self.run(
            "DELETE FROM claims WHERE session = ?1 AND asked = ?2 AND child = ?3",
            params![session.0, count(claim.asked.0), claim.child],
        )?;
        Ok(())
    }

    fn put_wait(&mut self, turn: TurnNo, wait: &Wait) -> Result<(), Error> {
        self.run(
            "INSERT INTO waits (turn, key, kind, wait) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (turn, key) DO UPDATE SET kind = ?3, wait = ?4",
            params![turn.0, wait.key.as_str(), column::wait_kind(wait.kind), json(wait)?],
        )?;
        Ok(())
    }

    fn delete_waits(&mut self, turn: TurnNo) -> Result<(), Error> {
        self.run("DELETE FROM waits WHERE turn = ?1", [turn.0])?;
        Ok(())
    }

    fn insert_resolution(&mut self, row: &ResolutionRow) -> Result<(), Error> {
        self.run(
            "INSERT INTO resolutions (turn, key, resolution) VALUES (?1, ?2, ?3)",
            params![row.turn.0, row.key.as_str(), json(&row.resolution)?],
        )?;
        Ok(())
    }

    fn put_value(&mut self, session: SessionNo, name: &str, json: Option<&str>) -> Result<(), Error> {
        match json {
            Some(json) => self.run(
                "INSERT INTO session_values (session, name, json) VALUES (?1, ?2, ?3)
                 ON CONFLICT (session, name) DO UPDATE SET json = ?3",
                params![session.0, name, json],
            ),
            None => self
                .run("DELETE FROM session_values WHERE session = ?1 AND name = ?2", params![session.0, name]),
        }?;
        Ok(())
    }

    fn put_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error> {
        self.run(
            "INSERT INTO blobs (hash, bytes, uses) VALUES (?1, ?2, 1)
             ON CONFLICT (hash) DO UPDATE SET uses = blobs.uses + 1",
            params![hash.as_bytes(), bytes],
        )?;
        Ok(())
    }

    fn pin_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error> {
        self.run(
            "INSERT INTO blobs (hash, bytes, uses) VALUES (?1, ?2, ?3)
             ON CONFLICT (hash) DO UPDATE SET uses = blobs.uses + ?3 WHERE blobs.uses < ?3",
            params![hash.as_bytes(), bytes, count(PINNED_USES)],
        )?;
        Ok(())
    }

    fn insert_attachment(&mut self, row: &AttachmentRow) -> Result<(), Error> {
        let Attachment { id: attachment, content, media_type, name } = &row.attachment;
        self.run(
            "INSERT INTO attachments (session, id, content, media_type, name, bytes, outside)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                row.session.0,
                id(attachment.to_u128()),
                content.as_bytes(),
                media_type.as_str(),
                name,
                count(row.bytes),
                row.location == BlobLocation::Outside,
            ],
        )?;
        Ok(())
    }

    fn put_external_content(&mut self, row: &ExternalContentRow) -> Result<(), Error> {
        self.run(
            "INSERT INTO outside (content, uses, worker, since) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (content) DO UPDATE SET uses = ?2, worker = ?3, since = ?4",
            params![
                row.content.as_bytes(),
                count(row.uses),
                row.deletion.map(|condemned| id(condemned.worker.to_u128())),
                row.deletion.map(|condemned| count(condemned.since.0)),
            ],
        )?;
        Ok(())
    }

    fn delete_external_content(&mut self, content: Hash) -> Result<(), Error> {
        self.run("DELETE FROM outside WHERE content = ?1", [content.as_bytes()])?;
        Ok(())
    }

    fn put_sweep_counter(&mut self, sweeps: SweepCounter) -> Result<(), Error> {
        self.run("UPDATE meta SET value = ?1 WHERE name = 'sweeps'", [sweeps.0.to_be_bytes()])?;
        Ok(())
    }

    fn put_budget_account(&mut self, row: &BudgetAccountRow) -> Result<(), Error> {
        let BudgetAccountRow {
            org,
            name,
            operator_budget: set,
            agent_budget: brought,
            spent,
            reserved: held,
            lost,
            conversation_cost: standing,
        } = row;
        self.run(
            "INSERT INTO purses (name, budget, spent, held, lost, standing, org, brought)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (org, name) DO UPDATE
             SET budget = ?2, spent = ?3, held = ?4, lost = ?5, standing = ?6, brought = ?8",
            params![
                name,
                set.as_ref().map(json).transpose()?,
                json(spent)?,
                json(held)?,
                json(lost)?,
                json(standing)?,
                id(org.to_u128()),
                brought.as_ref().map(json).transpose()?,
            ],
        )?;
        Ok(())
    }

    fn delete_budget_account(&mut self, org: OrgId, name: &str) -> Result<(), Error> {
        self.run("DELETE FROM purses WHERE org = ?1 AND name = ?2", params![id(org.to_u128()), name])?;
        Ok(())
    }

    fn put_rate(&mut self, row: &RateView) -> Result<(), Error> {
        let RateView {
            org,
            name,
            every,
            burst,
            state: RateState { next, queue_end: line },
            taken,
            refused,
            asked,
        } = row;
        self.run(
            "INSERT INTO rates (org, name, every_us, burst, next_us, line_us, taken, refused, asked)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (org, name) DO UPDATE SET
                 every_us = ?3, burst = ?4, next_us = ?5, line_us = ?6, taken = ?7, refused = ?8, asked = ?9",
            params![
                id(org.to_u128()),
                name,
                count(*every),
                burst,
                count(*next),
                count(*line),
                count(*taken),
                count(*refused),
                count(asked.0),
            ],
        )?;
        Ok(())
    }

    fn put_reservation(&mut self, row: &ReservationRow) -> Result<(), Error> {
        let ReservationRow { turn, key, amount_max: most, accounts: purses } = row;
        self.run(
            "INSERT INTO holds (turn, key, most, purses) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (turn, key) DO UPDATE SET most = ?3, purses = ?4",
            params![turn.0, json(key)?, json(most)?, json(purses)?],
        )?;
        Ok(())
    }

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

    fn put_pending_payment(&mut self, row: &PendingPaymentRow) -> Result<(), Error> {
        let PendingPaymentRow { turn, payment, since, attempts, due_at, failure } = row;
        self.run(
            "INSERT INTO owed (turn, key, payment, since, attempts, due_at, failure) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (turn, key) DO UPDATE SET payment = ?3, since = ?4, attempts = ?5, due_at = ?6, failure = ?7",
            params![
                turn.0,
                payment.key.as_str(),
                json(payment)?,
                count(since.0),
                attempts,
                count(due_at.0),
                json(failure)?,
            ],
        )?;
        Ok(())
    }

    fn delete_pending_payment(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.run("DELETE FROM owed WHERE turn = ?1 AND key = ?2", params![turn.0, key.as_str()])?;
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

    fn delete_reservation(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.run("DELETE FROM holds WHERE turn = ?1 AND key = ?2", params![turn.0, json(key)?])?;
        Ok(())
    }

    fn insert_config(&mut self, row: &ConfigRow) -> Result<(), Error> {
        let ConfigRow { org, kind, name, version, fingerprint, body, at } = row;
        self.run(
            "INSERT INTO configs (org, kind, name, version, fingerprint, body, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![id(org.to_u128()), kind.name(), name, version, fingerprint.as_bytes(), body, count(at.0)],
        )?;
        Ok(())
    }

    fn put_sink(&mut self, row: &SinkRow) -> Result<(), Error> {
        let SinkRow { name, since, cursor, delivered } = row;
        self.run(
            "INSERT INTO sinks (name, since, cursor, delivered) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (name) DO UPDATE SET since = ?2, cursor = ?3, delivered = ?4",
            params![name, count(since.0), count(*cursor), count(*delivered)],
        )?;
        Ok(())
    }

    fn put_delivery(&mut self, row: &DeliveryRow) -> Result<(), Error> {
        let DeliveryRow {
            sink,
            turn,
            position: moment,
            attempts,
            attempts_forgiven: forgiven,
            due_at,
            worker,
            failure,
        } = row;
        self.run(
            "INSERT INTO deliveries (sink, turn, attempts, forgiven, due_at, worker, failure, seq, nth)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (sink, turn, seq, nth)
             DO UPDATE SET attempts = ?3, forgiven = ?4, due_at = ?5, worker = ?6, failure = ?7",
            params![
                sink,
                turn.0,
                attempts,
                forgiven,
                due_at.map(|at| count(at.0)),
                worker.map(|worker| id(worker.to_u128())),
                failure.as_ref().map(json).transpose()?,
                count(moment.seq.0),
                moment.nth,
            ],
        )?;
        Ok(())
    }

    fn delete_delivery(&mut self, sink: &str, turn: TurnNo, moment: OutputPosition) -> Result<(), Error> {
        self.run(
            "DELETE FROM deliveries WHERE sink = ?1 AND turn = ?2 AND seq = ?3 AND nth = ?4",
            params![sink, turn.0, count(moment.seq.0), moment.nth],
        )?;
        Ok(())
    }

    fn insert_org(&mut self, org: &Org) -> Result<(), Error> {
        self.run(
            "INSERT INTO orgs (id, name, created) VALUES (?1, ?2, ?3)",
            params![id(org.id.to_u128()), org.name.as_str(), count(org.created.0)],
        )?;
        Ok(())
    }

    fn put_key(&mut self, row: &KeyRow) -> Result<(), Error> {
        self.run(
            "INSERT INTO api_keys (id, org, principal, scopes, seal, created, expires, revoked)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (id)
             DO UPDATE SET org = ?2, principal = ?3, scopes = ?4, seal = ?5, created = ?6, expires = ?7, revoked = ?8",
            params![
                id(row.id.to_u128()),
                id(row.org.to_u128()),
                row.by.to_string(),
                row.scopes.to_string(),
                row.seal.as_bytes(),
                count(row.created.0),
                row.expires.map(|at| count(at.0)),
                row.revoked.map(|at| count(at.0)),
            ],
        )?;
        Ok(())
    }

    fn append_audit(&mut self, row: &AuditRow) -> Result<(), Error> {
        let AuditRow { no: _, at, org, by, act, subject, detail } = row;
        self.run(
            "INSERT INTO audit (at, org, principal, act, subject, detail, reached) VALUES (?1, ?2, ?3, ?4, ?5, ?6,
             max(?1, coalesce((SELECT reached FROM audit ORDER BY no DESC LIMIT 1), 0)))",
            params![count(at.0), id(org.to_u128()), by.to_string(), act, subject, detail],
        )?;
        Ok(())
    }

    fn put_partial(&mut self, row: &PartialRow) -> Result<(), Error> {
        let PartialRow { turn, key, attempt, start, text } = row;
        self.run(
            "INSERT INTO partials (turn, start, key, attempt, text) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (turn, start) DO UPDATE SET key = ?3, attempt = ?4, text = ?5",
            params![turn.0, count(*start as u64), json(key)?, attempt, text],
        )?;
        Ok(())
    }

    fn delete_partials(&mut self, turn: TurnNo) -> Result<(), Error> {
        self.run("DELETE FROM partials WHERE turn = ?1", [turn.0])?;
        Ok(())
    }
}

fn json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value)
        .map_err(|cause| Error::new(Kind::Internal, "a value cannot be written as JSON").because(cause))
}
