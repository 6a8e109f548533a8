//! Filters rows to those of one organisation.
//!
//! Almost every row belongs to a session, and a session to an organisation. A row is visible if its session is. The
//! visible sessions are cached for the unit of work, so the filter never reads a row twice.
//!
//! Rows without a session are decided one by one in this module. Content addressed by hash is visible once a visible
//! row refers to it. The tables of workers and sinks appear empty.
use crate::rows::{
    AttachmentRow, BudgetAccountRow, ClaimRow, ConfigRow, DeliveryRow, ExternalContentRow, GrantRow, KeyRow,
    NoticeRow, PartialRow, PendingPaymentRow, ReadRows, RecordAddress, RecordBody, RecordRange, RecordRow,
    ReservationRow, ResolutionRow, Rows, SessionNo, SessionRow, SinkRow, TurnRow, VoteRow,
};
use outlast_ports::attachment_upload::SweepCounter;
use outlast_ports::outbox::DeliveryPosition;
use outlast_ports::sink::OutputPosition;
use outlast_ports::turns::{Fence, TurnNo};
use outlast_views::{AuditRange, AuditRow, ConfigKind, Org, RateView, SessionState};
use outlast_vocab::access::{Access, OrgVisibility};
use outlast_vocab::id::{AttachmentId, CallId, GrantId, KeyId, OrgId, SessionId, TurnId, WorkerId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::record::{ClaimRef, Seq, TurnEndKind};
use outlast_vocab::search_terms::SearchTerms;
use outlast_vocab::wait::{CompletionKey, Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Hash, Kind, Millis};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut, Range};

/// Rows filtered for this access.
pub(super) struct VisibleRows<'a, R> {
    rows: R,
    access: &'a Access,
    /// The rows that this unit of work found to be visible.
    seen: RefCell<SeenIds>,
}

#[derive(Default)]
struct SeenIds {
    sessions: BTreeSet<SessionNo>,
    turns: BTreeSet<TurnNo>,
    contents: BTreeSet<Hash>,
}

impl<'a, R> VisibleRows<'a, R> {
    pub(super) fn new(rows: R, access: &'a Access) -> Self {
        Self { rows, access, seen: RefCell::default() }
    }

    fn sees_all_orgs(&self) -> bool {
        self.access.reach == OrgVisibility::Everything
    }

    fn covers(&self, org: OrgId) -> bool {
        self.access.reach.covers(org)
    }

    /// Returns the narrower of two reaches. No caller combines two different organisations.
    fn narrow(&self, of: OrgVisibility) -> OrgVisibility {
        match self.access.reach {
            OrgVisibility::Everything => of,
            own @ OrgVisibility::Org(_) => own,
        }
    }

    fn session_seen(&self, row: SessionRow) -> Option<SessionRow> {
        let visible = self.covers(row.org);
        if visible {
            self.seen.borrow_mut().sessions.insert(row.no);
        }
        visible.then_some(row)
    }

    fn turn_seen(&self, row: TurnRow) -> TurnRow {
        self.seen.borrow_mut().turns.insert(row.no);
        row
    }

    fn record_seen(&self, row: &RecordRow) {
        if let RecordBody::Blob(content) = row.body {
            self.seen.borrow_mut().contents.insert(content);
        }
    }

    fn attachment_seen(&self, row: AttachmentRow) -> AttachmentRow {
        self.seen.borrow_mut().contents.insert(row.attachment.content);
        row
    }

    fn is_content_visible(&self, content: Hash) -> bool {
        self.sees_all_orgs() || self.seen.borrow().contents.contains(&content)
    }

    /// Returns rows that only the operator of the database sees. Others get the empty default.
    fn operator_only<T: Default>(&self, rows: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if self.sees_all_orgs() { rows() } else { Ok(T::default()) }
    }
}

impl<R: Deref<Target: ReadRows>> VisibleRows<'_, R> {
    fn is_visible(&self, session: SessionNo) -> Result<bool, Error> {
        let known = self.sees_all_orgs() || self.seen.borrow().sessions.contains(&session);
        Ok(known || self.session(session)?.is_some())
    }

    fn is_turn_visible(&self, turn: TurnNo) -> Result<bool, Error> {
        let known = self.sees_all_orgs() || self.seen.borrow().turns.contains(&turn);
        Ok(known || self.turn(turn)?.is_some())
    }

    /// Returns rows of a session, or the empty default if the session is not visible.
    fn of<T: Default>(
        &self,
        session: SessionNo,
        rows: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.is_visible(session)? { rows() } else { Ok(T::default()) }
    }

    /// Returns rows of a turn, or the empty default if the turn is not visible.
    fn of_turn<T: Default>(&self, turn: TurnNo, rows: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if self.is_turn_visible(turn)? { rows() } else { Ok(T::default()) }
    }

    /// Returns a turn if its session is visible.
    fn visible_turn(&self, turn: Option<TurnRow>) -> Result<Option<TurnRow>, Error> {
        let Some(turn) = turn else { return Ok(None) };
        Ok(self.is_visible(turn.session)?.then(|| self.turn_seen(turn)))
    }

    fn may_write(&self, session: SessionNo) -> Result<(), Error> {
        if self.is_visible(session)? { Ok(()) } else { Err(invisible_row_error()) }
    }

    fn may_write_turn(&self, turn: TurnNo) -> Result<(), Error> {
        if self.is_turn_visible(turn)? { Ok(()) } else { Err(invisible_row_error()) }
    }
}

/// Returns the error for a write to an invisible row. The ledger learns of rows only by reading, so this is a bug.
fn invisible_row_error() -> Error {
    Error::new(Kind::Internal, "a write was about to change what belongs to another organisation")
}

impl<R: Deref<Target: ReadRows>> ReadRows for VisibleRows<'_, R> {
    fn access(&self) -> &Access {
        self.access
    }

    fn session(&self, no: SessionNo) -> Result<Option<SessionRow>, Error> {
        Ok(self.rows.session(no)?.and_then(|row| self.session_seen(row)))
    }

    fn session_by_id(&self, id: SessionId) -> Result<Option<SessionRow>, Error> {
        Ok(self.rows.session_by_id(id)?.and_then(|row| self.session_seen(row)))
    }

    fn session_by_key(&self, org: OrgId, key: &str) -> Result<Option<SessionRow>, Error> {
        Ok(self.rows.session_by_key(org, key)?.and_then(|row| self.session_seen(row)))
    }

    fn sessions(
        &self,
        of: OrgVisibility,
        before: Option<SessionNo>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, Error> {
        let rows = self.rows.sessions(self.narrow(of), before, limit)?;
        Ok(rows.into_iter().filter_map(|row| self.session_seen(row)).collect())
    }

    fn sessions_in(
        &self,
        state: SessionState,
        after: SessionNo,
        limit: usize,
    ) -> Result<Vec<SessionRow>, Error> {
        self.operator_only(|| self.rows.sessions_in(state, after, limit))
    }

    fn count_last_ended(&self, end: TurnEndKind, limit: usize) -> Result<usize, Error> {
        self.operator_only(|| self.rows.count_last_ended(end, limit))
    }

    fn sessions_due(&self, now: Millis, limit: usize) -> Result<Vec<SessionRow>, Error> {
        self.operator_only(|| self.rows.sessions_due(now, limit))
    }

    fn next_wake(&self) -> Result<Option<Millis>, Error> {
        self.operator_only(|| self.rows.next_wake())
    }

    fn forks(&self, of: SessionNo) -> Result<Vec<SessionId>, Error> {
        self.of(of, || self.rows.forks(of))
    }

    fn heads(&self, session: SessionNo) -> Result<Vec<(String, Option<RecordAddress>)>, Error> {
        self.of(session, || self.rows.heads(session))
    }

    fn head(&self, session: SessionNo, name: &str) -> Result<Option<Option<RecordAddress>>, Error> {
        self.of(session, || self.rows.head(session, name))
    }

    fn suspect_due(&self, now: Millis, most_deaths: u32) -> Result<Option<SessionRow>, Error> {
        self.operator_only(|| self.rows.suspect_due(now, most_deaths))
    }

    fn trials(&self) -> Result<Vec<(SessionNo, WorkerId)>, Error> {
        // Session numbers and worker ids that no user sees. They decide whether a worker may take an input
        // immediately.
        self.rows.trials()
    }

    fn turn(&self, no: TurnNo) -> Result<Option<TurnRow>, Error> {
        self.visible_turn(self.rows.turn(no)?)
    }

    fn turn_by_id(&self, id: TurnId) -> Result<Option<TurnRow>, Error> {
        self.visible_turn(self.rows.turn_by_id(id)?)
    }

    fn turn_by_key(&self, session: SessionNo, key: &str) -> Result<Option<TurnRow>, Error> {
        self.of(session, || Ok(self.rows.turn_by_key(session, key)?.map(|row| self.turn_seen(row))))
    }

    fn turns(&self, session: SessionNo, from: u32, limit: usize) -> Result<Vec<TurnRow>, Error> {
        let rows = self.of(session, || self.rows.turns(session, from, limit))?;
        Ok(rows.into_iter().map(|row| self.turn_seen(row)).collect())
    }

    fn queued(&self, session: SessionNo, limit: usize) -> Result<Vec<TurnRow>, Error> {
        let rows = self.of(session, || self.rows.queued(session, limit))?;
        Ok(rows.into_iter().map(|row| self.turn_seen(row)).collect())
    }

    fn last_retry(&self, of: TurnNo) -> Result<Option<TurnRow>, Error> {
        self.visible_turn(self.rows.last_retry(of)?)
    }

    fn records(&self, range: RecordRange) -> Result<Vec<RecordRow>, Error> {
        let rows = self.of(range.session, || self.rows.records(range))?;
        for row in &rows {
            self.record_seen(row);
        }
        Ok(rows)
    }

    fn feed(&self, of: OrgVisibility, after: u64, limit: usize) -> Result<Vec<(u64, RecordRow)>, Error> {
        let mut visible = Vec::new();
        for (position, row) in self.rows.feed(self.narrow(of), after, limit)? {
            if self.is_visible(row.session)? {
                self.record_seen(&row);
                visible.push((position, row));
            }
        }
        Ok(visible)
    }

    fn search(
        &self,
        of: OrgVisibility,
        session: Option<SessionNo>,
        wanted: &SearchTerms,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, RecordRow)>, Error> {
        let mut visible = Vec::new();
        for (position, row) in self.rows.search(self.narrow(of), session, wanted, before, limit)? {
            if self.is_visible(row.session)? {
                self.record_seen(&row);
                visible.push((position, row));
            }
        }
        Ok(visible)
    }

    fn feed_end(&self) -> Result<u64, Error> {
        self.operator_only(|| self.rows.feed_end())
    }

    fn feed_length(&self, after: u64) -> Result<u64, Error> {
        self.operator_only(|| self.rows.feed_length(after))
    }

    fn claim(&self, session: SessionNo, claim: ClaimRef) -> Result<Option<ClaimRow>, Error> {
        self.of(session, || self.rows.claim(session, claim))
    }

    fn claims(&self, session: SessionNo, turn: TurnNo) -> Result<Vec<ClaimRow>, Error> {
        self.of(session, || self.rows.claims(session, turn))
    }

    fn unknown(
        &self,
        of: OrgVisibility,
        after: Option<(Millis, CallId)>,
        limit: usize,
    ) -> Result<Vec<ClaimRow>, Error> {
        let mut visible = Vec::new();
        for row in self.rows.unknown(self.narrow(of), after, limit)? {
            if self.is_visible(row.session)? {
                visible.push(row);
            }
        }
        Ok(visible)
    }

    fn waits(&self, turn: TurnNo) -> Result<Vec<Wait>, Error> {
        self.of_turn(turn, || self.rows.waits(turn))
    }

    fn waiting(&self, of: OrgVisibility, kind: WaitKind, limit: usize) -> Result<Vec<(TurnNo, Wait)>, Error> {
        let mut visible = Vec::new();
        for (turn, wait) in self.rows.waiting(self.narrow(of), kind, limit)? {
            if self.is_turn_visible(turn)? {
                visible.push((turn, wait));
            }
        }
        Ok(visible)
    }

    fn resolution(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<Resolution>, Error> {
        self.of_turn(turn, || self.rows.resolution(turn, key))
    }

    fn value(&self, session: SessionNo, name: &str) -> Result<Option<String>, Error> {
        self.of(session, || self.rows.value(session, name))
    }

    fn value_names(&self, session: SessionNo, prefix: &str, limit: usize) -> Result<Vec<String>, Error> {
        self.of(session, || self.rows.value_names(session, prefix, limit))
    }

    fn attachment(&self, session: SessionNo, id: AttachmentId) -> Result<Option<AttachmentRow>, Error> {
        let row = self.of(session, || self.rows.attachment(session, id))?;
        Ok(row.map(|row| self.attachment_seen(row)))
    }

    fn attachments(
        &self,
        session: SessionNo,
        after: Option<AttachmentId>,
        limit: usize,
    ) -> Result<Vec<AttachmentRow>, Error> {
        let rows = self.of(session, || self.rows.attachments(session, after, limit))?;
        Ok(rows.into_iter().map(|row| self.attachment_seen(row)).collect())
    }

    fn rate(&self, org: OrgId, name: &str) -> Result<Option<RateView>, Error> {
        if self.covers(org) { self.rows.rate(org, name) } else { Ok(None) }
    }

    fn rates(
        &self,
        of: OrgVisibility,
        after: Option<(OrgId, &str)>,
        limit: usize,
    ) -> Result<Vec<RateView>, Error> {
        self.rows.rates(self.narrow(of), after, limit)
    }

    fn purse(&self, org: OrgId, name: &str) -> Result<Option<BudgetAccountRow>, Error> {
        if self.covers(org) { self.rows.purse(org, name) } else { Ok(None) }
    }

    fn config(&self, org: OrgId, kind: ConfigKind, name: &str) -> Result<Option<ConfigRow>, Error> {
        if self.covers(org) { self.rows.config(org, kind, name) } else { Ok(None) }
    }

    fn configs(
        &self,
        org: OrgId,
        kind: ConfigKind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConfigRow>, Error> {
        if self.covers(org) { self.rows.configs(org, kind, after, limit) } else { Ok(Vec::new()) }
    }

    fn config_versions(
        &self,
        org: OrgId,
        of: (ConfigKind, &str),
        before: Option<u32>,
        limit: usize,
    ) -> Result<Vec<ConfigRow>, Error> {
        if self.covers(org) { self.rows.config_versions(org, of, before, limit) } else { Ok(Vec::new()) }
    }

    fn budget_accounts(
        &self,
        of: OrgVisibility,
        after: Option<(OrgId, &str)>,
        limit: usize,
    ) -> Result<Vec<BudgetAccountRow>, Error> {
        self.rows.budget_accounts(self.narrow(of), after, limit)
    }

    // Whether budgets are set at all does not reveal the budgets of other organisations.
    fn budgets_are_set(&self) -> Result<bool, Error> {
        self.rows.budgets_are_set()
    }

    fn reservations(&self, turn: TurnNo) -> Result<Vec<ReservationRow>, Error> {
        self.of_turn(turn, || self.rows.reservations(turn))
    }

    fn votes(&self, turn: TurnNo) -> Result<Vec<VoteRow>, Error> {
        self.of_turn(turn, || self.rows.votes(turn))
    }

    fn notices(&self, turn: TurnNo) -> Result<Vec<NoticeRow>, Error> {
        self.of_turn(turn, || self.rows.notices(turn))
    }

    fn notices_due(&self, now: Millis, limit: usize) -> Result<Vec<NoticeRow>, Error> {
        self.operator_only(|| self.rows.notices_due(now, limit))
    }

    fn next_notice(&self) -> Result<Option<Millis>, Error> {
        self.operator_only(|| self.rows.next_notice())
    }

    fn pending_payment(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<PendingPaymentRow>, Error> {
        self.of_turn(turn, || self.rows.pending_payment(turn, key))
    }

    fn owed(&self, of: OrgVisibility, limit: usize) -> Result<Vec<PendingPaymentRow>, Error> {
        let mut visible = Vec::new();
        for row in self.rows.owed(self.narrow(of), limit)? {
            if self.is_turn_visible(row.turn)? {
                visible.push(row);
            }
        }
        Ok(visible)
    }

    fn payments_due(&self, now: Millis, limit: usize) -> Result<Vec<PendingPaymentRow>, Error> {
        self.operator_only(|| self.rows.payments_due(now, limit))
    }

    fn next_payment_due(&self) -> Result<Option<Millis>, Error> {
        self.operator_only(|| self.rows.next_payment_due())
    }

    fn grant(&self, id: GrantId) -> Result<Option<GrantRow>, Error> {
        match self.rows.grant(id)? {
            Some(row) if self.is_visible(row.session)? => Ok(Some(row)),
            _ => Ok(None),
        }
    }

    fn session_grants(&self, session: SessionNo) -> Result<Vec<GrantRow>, Error> {
        self.of(session, || self.rows.session_grants(session))
    }

    fn grants(
        &self,
        of: OrgVisibility,
        after: Option<(Millis, GrantId)>,
        limit: usize,
    ) -> Result<Vec<GrantRow>, Error> {
        let mut visible = Vec::new();
        for row in self.rows.grants(self.narrow(of), after, limit)? {
            if self.is_visible(row.session)? {
                visible.push(row);
            }
        }
        Ok(visible)
    }

    fn partials(&self, turn: TurnNo) -> Result<Vec<PartialRow>, Error> {
        self.of_turn(turn, || self.rows.partials(turn))
    }

    fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, Error> {
        if self.is_content_visible(hash) { self.rows.blob(hash) } else { Ok(None) }
    }

    fn blob_range(&self, hash: Hash, range: Range<u64>) -> Result<Option<Vec<u8>>, Error> {
        if self.is_content_visible(hash) { self.rows.blob_range(hash, range) } else { Ok(None) }
    }

    fn package(&self, fingerprint: Hash) -> Result<Option<Vec<u8>>, Error> {
        self.rows.package(fingerprint)
    }

    // An input that attaches content counts its uses. This does not reveal who else uses the content.
    fn outside(&self, content: Hash) -> Result<Option<ExternalContentRow>, Error> {
        self.rows.outside(content)
    }

    fn unreferenced_content(&self, limit: usize) -> Result<Vec<Hash>, Error> {
        self.operator_only(|| self.rows.unreferenced_content(limit))
    }

    fn sweeps(&self) -> Result<SweepCounter, Error> {
        self.rows.sweeps()
    }

    fn sink(&self, name: &str) -> Result<Option<SinkRow>, Error> {
        self.operator_only(|| self.rows.sink(name))
    }

    fn sinks(&self) -> Result<Vec<SinkRow>, Error> {
        self.operator_only(|| self.rows.sinks())
    }

    fn delivery(
        &self,
        sink: &str,
        turn: TurnNo,
        moment: OutputPosition,
    ) -> Result<Option<DeliveryRow>, Error> {
        self.operator_only(|| self.rows.delivery(sink, turn, moment))
    }

    fn deliveries(
        &self,
        sink: &str,
        after: Option<DeliveryPosition>,
        limit: usize,
    ) -> Result<Vec<DeliveryRow>, Error> {
        self.operator_only(|| self.rows.deliveries(sink, after, limit))
    }

    fn deliveries_due(&self, sink: &str, now: Millis, limit: usize) -> Result<Vec<DeliveryRow>, Error> {
        self.operator_only(|| self.rows.deliveries_due(sink, now, limit))
    }

    fn deliveries_taken(&self, sink: &str, limit: usize) -> Result<Vec<DeliveryRow>, Error> {
        self.operator_only(|| self.rows.deliveries_taken(sink, limit))
    }

    fn next_delivery(&self, sink: &str) -> Result<Option<Millis>, Error> {
        self.operator_only(|| self.rows.next_delivery(sink))
    }

    fn count_deliveries(&self, sink: &str) -> Result<(u64, u64), Error> {
        self.operator_only(|| self.rows.count_deliveries(sink))
    }

    fn org(&self, id: OrgId) -> Result<Option<Org>, Error> {
        Ok(self.rows.org(id)?.filter(|org| self.covers(org.id)))
    }

    fn org_by_name(&self, name: &str) -> Result<Option<Org>, Error> {
        Ok(self.rows.org_by_name(name)?.filter(|org| self.covers(org.id)))
    }

    fn orgs(&self, after: Option<&str>, limit: usize) -> Result<Vec<Org>, Error> {
        let OrgVisibility::Org(only) = self.access.reach else { return self.rows.orgs(after, limit) };
        let visible = self.rows.org(only)?.filter(|org| after.is_none_or(|after| org.name.as_str() > after));
        Ok(visible.into_iter().take(limit).collect())
    }

    fn key(&self, id: KeyId) -> Result<Option<KeyRow>, Error> {
        Ok(self.rows.key(id)?.filter(|row| self.covers(row.org)))
    }

    fn keys(&self, of: OrgVisibility, after: Option<KeyId>, limit: usize) -> Result<Vec<KeyRow>, Error> {
        self.rows.keys(self.narrow(of), after, limit)
    }

    fn audit(&self, of: OrgVisibility, range: AuditRange) -> Result<Vec<AuditRow>, Error> {
        self.rows.audit(self.narrow(of), range)
    }

    // The secret signs keys of every organisation.
    fn secret(&self) -> Result<[u8; 32], Error> {
        self.access.require_operator()?;
        self.rows.secret()
    }

    fn sign_session(&self, org: OrgId, fingerprint: Hash) -> Result<Hash, Error> {
        self.rows.sign_session(org, fingerprint)
    }

    fn sign(&self, turn: TurnId, wait: ReplayKey) -> Result<CompletionKey, Error> {
        self.rows.sign(turn, wait)
    }

    fn is_dead(&self, worker: WorkerId) -> bool {
        self.rows.is_dead(worker)
    }
}

impl<R: DerefMut<Target: Rows>> Rows for VisibleRows<'_, R> {
    fn insert_session(&mut self, row: &SessionRow) -> Result<SessionNo, Error> {
        if !self.covers(row.org) {
            return Err(invisible_row_error());
        }
        let no = self.rows.insert_session(row)?;
        self.seen.get_mut().sessions.insert(no);
        Ok(no)
    }

    fn put_session(&mut self, row: &SessionRow) -> Result<(), Error> {
        self.may_write(row.no)?;
        self.rows.put_session(row)
    }

    fn delete_session(&mut self, no: SessionNo) -> Result<(), Error> {
        self.may_write(no)?;
        self.rows.delete_session(no)
    }

    fn extend_leases(&mut self, worker: WorkerId, until: Millis) -> Result<Vec<(SessionId, Fence)>, Error> {
        self.access.require_operator()?;
        self.rows.extend_leases(worker, until)
    }

    fn put_head(&mut self, session: SessionNo, name: &str, node: Option<RecordAddress>) -> Result<(), Error> {
        self.may_write(session)?;
        self.rows.put_head(session, name, node)
    }

    fn insert_turn(&mut self, row: &TurnRow) -> Result<TurnNo, Error> {
        self.may_write(row.session)?;
        let no = self.rows.insert_turn(row)?;
        self.seen.get_mut().turns.insert(no);
        Ok(no)
    }

    fn put_turn(&mut self, row: &TurnRow) -> Result<(), Error> {
        self.may_write(row.session)?;
        self.rows.put_turn(row)
    }

    fn index_words(&mut self, session: &SessionRow, seq: Seq, words: &str) -> Result<(), Error> {
        self.may_write(session.no)?;
        self.rows.index_words(session, seq, words)
    }

    fn unindex_words(&mut self, session: &SessionRow, seq: Seq, words: &str) -> Result<(), Error> {
        self.may_write(session.no)?;
        self.rows.unindex_words(session, seq, words)
    }

    fn append(&mut self, row: &RecordRow) -> Result<(), Error> {
        self.may_write(row.session)?;
        self.rows.append(row)
    }

    fn put_claim(&mut self, row: &ClaimRow) -> Result<(), Error> {
        self.may_write(row.session)?;
        self.rows.put_claim(row)
    }

    fn delete_claim(&mut self, session: SessionNo, claim: ClaimRef) -> Result<(), Error> {
        self.may_write(session)?;
        self.rows.delete_claim(session, claim)
    }

    fn put_wait(&mut self, turn: TurnNo, wait: &Wait) -> Result<(), Error> {
        self.may_write_turn(turn)?;
        self.rows.put_wait(turn, wait)
    }

    fn delete_waits(&mut self, turn: TurnNo) -> Result<(), Error> {
        self.may_write_turn(turn)?;
        self.rows.delete_waits(turn)
    }

    fn insert_resolution(&mut self, row: &ResolutionRow) -> Result<(), Error> {
        self.may_write_turn(row.turn)?;
        self.rows.insert_resolution(row)
    }

    fn put_value(&mut self, session: SessionNo, name: &str, json: Option<&str>) -> Result<(), Error> {
        self.may_write(session)?;
        self.rows.put_value(session, name, json)
    }

    fn put_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error> {
        self.rows.put_blob(hash, bytes)
    }

    fn pin_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error> {
        self.rows.pin_blob(hash, bytes)
    }

    fn insert_attachment(&mut self, row: &AttachmentRow) -> Result<(), Error> {
        self.may_write(row.session)?;
        self.rows.insert_attachment(row)
    }

    fn put_external_content(&mut self, row: &ExternalContentRow) -> Result<(), Error> {
        self.rows.put_external_content(row)
    }

    fn delete_external_content(&mut self, content: Hash) -> Result<(), Error> {
        self.access.require_operator()?;
        self.rows.delete_external_content(content)
    }

    fn put_sweep_counter(&mut self, sweeps: SweepCounter) -> Result<(), Error> {
        self.access.require_operator()?;
        self.rows.put_sweep_counter(sweeps)
    }

    fn put_sink(&mut self, row: &SinkRow) -> Result<(), Error> {
        self.access.require_operator()?;
        self.rows.put_sink(row)
    }

    fn put_delivery(&mut self, row: &DeliveryRow) -> Result<(), Error> {
        self.access.require_operator()?;
        self.rows.put_delivery(row)
    }

    fn delete_delivery(&mut self, sink: &str, turn: TurnNo, moment: OutputPosition) -> Result<(), Error> {
        self.access.require_operator()?;
        self.rows.delete_delivery(sink, turn, moment)
    }

    fn insert_org(&mut self, org: &Org) -> Result<(), Error> {
        self.access.require_operator()?;
        self.rows.insert_org(org)
    }

    fn put_key(&mut self, row: &KeyRow) -> Result<(), Error> {
        if !self.covers(row.org) {
            return Err(invisible_row_error());
        }
        self.rows.put_key(row)
    }

    fn append_audit(&mut self, row: &AuditRow) -> Result<(), Error> {
        if !self.covers(row.org) {
            return Err(invisible_row_error());
        }
        self.rows.append_audit(row)
    }

    fn insert_config(&mut self, row: &ConfigRow) -> Result<(), Error> {
        if self.covers(row.org) { self.rows.insert_config(row) } else { Err(invisible_row_error()) }
    }

    fn put_rate(&mut self, row: &RateView) -> Result<(), Error> {
        if self.covers(row.org) { self.rows.put_rate(row) } else { Err(invisible_row_error()) }
    }

    fn put_budget_account(&mut self, row: &BudgetAccountRow) -> Result<(), Error> {
        if self.covers(row.org) { self.rows.put_budget_account(row) } else { Err(invisible_row_error()) }
    }

    fn delete_budget_account(&mut self, org: OrgId, name: &str) -> Result<(), Error> {
        if self.covers(org) { self.rows.delete_budget_account(org, name) } else { Err(invisible_row_error()) }
    }

    fn put_reservation(&mut self, row: &ReservationRow) -> Result<(), Error> {
        self.may_write_turn(row.turn)?;
        self.rows.put_reservation(row)
    }

    fn delete_reservation(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.may_write_turn(turn)?;
        self.rows.delete_reservation(turn, key)
    }

    fn put_vote(&mut self, row: &VoteRow) -> Result<(), Error> {
        self.may_write_turn(row.turn)?;
        self.rows.put_vote(row)
    }

    fn delete_vote(&mut self, row: &VoteRow) -> Result<(), Error> {
        self.may_write_turn(row.turn)?;
        self.rows.delete_vote(row)
    }

    fn put_notice(&mut self, row: &NoticeRow) -> Result<(), Error> {
        self.may_write_turn(row.turn)?;
        self.rows.put_notice(row)
    }

    fn delete_notice(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.may_write_turn(turn)?;
        self.rows.delete_notice(turn, key)
    }

    fn put_pending_payment(&mut self, row: &PendingPaymentRow) -> Result<(), Error> {
        self.may_write_turn(row.turn)?;
        self.rows.put_pending_payment(row)
    }

    fn delete_pending_payment(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error> {
        self.may_write_turn(turn)?;
        self.rows.delete_pending_payment(turn, key)
    }

    fn put_grant(&mut self, row: &GrantRow) -> Result<(), Error> {
        self.may_write(row.session)?;
        self.rows.put_grant(row)
    }

    fn delete_grant(&mut self, id: GrantId) -> Result<(), Error> {
        if self.grant(id)?.is_some() { self.rows.delete_grant(id) } else { Err(invisible_row_error()) }
    }

    fn put_partial(&mut self, row: &PartialRow) -> Result<(), Error> {
        self.may_write_turn(row.turn)?;
        self.rows.put_partial(row)
    }

    fn delete_partials(&mut self, turn: TurnNo) -> Result<(), Error> {
        self.may_write_turn(turn)?;
        self.rows.delete_partials(turn)
    }
}
