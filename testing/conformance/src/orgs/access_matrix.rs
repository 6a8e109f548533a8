//! Calls every method of a store with one set of ids.
use crate::payment_outbox::{backoff, payment};
use crate::store_under_test::{ALL, NOW, commit, keyed, started, value_resolution};
use outlast_ports::BoxFuture;
use outlast_ports::archive::{ImportRequest, RecordPage, RerunAudit};
use outlast_ports::attachment_upload::DeletionRequest;
use outlast_ports::branches::{ForkRequest, MAIN_HEAD};
use outlast_ports::inbox::{AcceptRequest, RetryRequest, SessionTarget};
use outlast_ports::journal::FeedCursor;
use outlast_ports::orgs::SealedApiKey;
use outlast_ports::outbox::{CollectRequest, DeliveryAttempt, FeedStart, SinkSubscription};
use outlast_ports::search::SearchQuery;
use outlast_ports::sink::OutputPosition;
use outlast_ports::store::Store;
use outlast_ports::turns::{Lease, LeaseRequest, TurnTransition};
use outlast_ports::votes::VoteRequest;
use outlast_views::{AuditRange, ConfigKind, ForkTo, Org};
use outlast_vocab::access::{ApiKey, Principal, Scopes};
use outlast_vocab::budget::BudgetAccount;
use outlast_vocab::id::{AttachmentId, CallId, DeliveryId, GrantId, KeyId, OrgId, SessionId, TurnId};
use outlast_vocab::payment::PaymentState;
use outlast_vocab::policy::{Approval, ApprovalVerdict as Word};
use outlast_vocab::record::{NodeRef, OutcomeVerdict, Seq};
use outlast_vocab::search_terms::SearchTerms;
use outlast_vocab::wait::WaitKind;
use outlast_vocab::{Error, Failure, Hash, Kind, Millis, ReplayKey};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// One id of every kind of object.
#[derive(Clone, Debug)]
pub(super) struct SampleIds {
    pub session: SessionId,
    pub key: String,
    pub turn: TurnId,
    pub waiting: TurnId,
    pub owing_turn: TurnId,
    pub place: ReplayKey,
    pub call: CallId,
    pub attachment: AttachmentId,
    pub content: Hash,
    pub message: NodeRef,
    pub lease: Lease,
    pub delivery: DeliveryId,
    pub moment: OutputPosition,
    pub org: OrgId,
    pub org_name: String,
    pub api_key: KeyId,
    pub grant: GrantId,
}

impl SampleIds {
    /// Removes these ids from a text, so that answers about different ids can be compared.
    fn without_ids(&self, text: &str) -> String {
        let ids = [
            self.session.to_string(),
            self.lease.session.to_string(),
            self.turn.to_string(),
            self.waiting.to_string(),
            self.owing_turn.to_string(),
            self.call.to_string(),
            self.attachment.to_string(),
            self.content.to_string(),
            self.delivery.to_string(),
            self.org.to_string(),
            self.api_key.to_string(),
            self.grant.to_string(),
            format!("`{}`", self.key),
            format!("`{}`", self.org_name),
        ];
        ids.iter().fold(text.to_owned(), |text, id| text.replace(id, "…"))
    }

    fn records(&self) -> RecordPage {
        RecordPage { session: self.session, after: Seq(0), to: Seq(9), limit: ALL }
    }

    fn lease_request(&self) -> LeaseRequest {
        LeaseRequest { worker: self.lease.worker, until: Millis(9_000) }
    }

    fn attempt(&self) -> DeliveryAttempt {
        DeliveryAttempt { sink: "crm".to_owned(), turn: self.turn, position: self.moment, attempt: 1 }
    }

    fn deletion_mark(&self) -> DeletionRequest {
        let (contents, worker) = (vec![self.content], self.lease.worker);
        DeletionRequest { contents, worker, now: Millis(9_000), lasts: Duration::ZERO }
    }
}

fn words() -> SearchTerms {
    SearchTerms::parse("hi").expect("it is a word")
}

fn subscription() -> SinkSubscription {
    SinkSubscription::to_ends("crm", FeedStart::Beginning)
}

type StoreMethodCall = fn(Arc<dyn Store>, SampleIds) -> BoxFuture<'static, Result<String, Error>>;

macro_rules! asks {
    ($($name:ident => |$store:ident, $ids:ident| $call:expr;)*) => {
        /// All methods, with the code that calls each.
        const ASKS: &[(&str, StoreMethodCall)] = &[$(
            (stringify!($name), |$store, $ids| Box::pin(async move {
                $call.await.map(|answer| format!("{answer:?}"))
            })),
        )*];
    };
}

asks! {
    accept => |s, ids| s.accept(AcceptRequest { target: SessionTarget::Id(ids.session), ..keyed(ids.session, "idempotent", "hi") });
    retry => |s, ids| s.retry(RetryRequest { turn: ids.turn, fresh: TurnId::from_u128(99), fork: None, now: NOW, lease_request: None, queued_most: 9 });
    open => |s, ids| s.open(SessionTarget::Id(ids.session), NOW);
    cancel => |s, ids| s.cancel(ids.waiting, "stop".to_owned(), NOW);
    abort => |s, ids| s.abort(ids.waiting, "stop".to_owned(), NOW);
    resolve => |s, ids| s.resolve(ids.waiting, ids.place, value_resolution(), NOW);
    completion_key => |s, ids| s.completion_key(ids.waiting, ids.place);
    claim => |s, ids| s.claim(ids.lease_request(), Millis(9_000), ALL);
    renew => |s, ids| s.renew(ids.lease_request());
    commit => |s, ids| s.commit(commit(&ids.lease, vec![started()], TurnTransition::Continue));
    release_lease => |s, ids| s.release_lease(ids.lease, NOW);
    claim_suspect => |s, ids| s.claim_suspect(ids.lease_request(), std::time::Duration::MAX, Millis(9_000));
    begin_trial => |s, ids| s.begin_trial(ids.lease);
    end_trial => |s, ids| s.end_trial(ids.lease);
    report_hang => |s, ids| s.report_hang(ids.lease);
    records => |s, ids| s.records(ids.session, Seq(0), ALL);
    turn_records => |s, ids| s.turn_records(ids.turn);
    feed => |s, _ids| s.feed(FeedCursor(0), ALL);
    feed_end => |s, _ids| s.feed_end();
    history => |s, ids| s.history(ids.message, ALL);
    joinable => |s, ids| s.joinable(ids.session);
    verify => |s, ids| s.verify(ids.session);
    sessions => |s, ids| s.sessions(Some(ids.session), ALL);
    session => |s, ids| s.session(ids.session);
    session_by_key => |s, ids| s.session_by_key(ids.key);
    turn => |s, ids| s.turn(ids.turn);
    turns => |s, ids| s.turns(ids.session, 0, ALL);
    unknown => |s, _ids| s.unknown(ALL);
    unknown_after => |s, ids| s.unknown_after(Some((Millis(0), ids.call)), ALL);
    waiting => |s, _ids| s.waiting(WaitKind::Approval, ALL);
    cancel_reason => |s, ids| s.cancel_reason(ids.waiting);
    has_work => |s, ids| s.has_work(ids.lease_request().worker, Millis(9_000));
    next_wake => |s, _ids| s.next_wake();
    agenda => |s, ids| s.agenda(ids.lease_request().worker, Millis(9_000));
    load => |s, _ids| s.load();
    request_turns => |s, _ids| s.request_turns(None, ALL);
    request_turn_state => |s, ids| s.request_turn_state(ids.turn);
    changes => |s, _ids| async move { s.changes().await.map(|_| "a number") };
    status => |s, _ids| async move { s.status().await.map(|status| status.engine) };
    fork => |s, ids| s.fork(ForkRequest { from: ids.session, at: None, to: ForkTo::Head("mine".to_owned()), now: NOW });
    rewind => |s, ids| s.rewind(ids.session, MAIN_HEAD.to_owned(), None, NOW);
    delete => |s, ids| s.delete(ids.session, NOW);
    forks => |s, ids| s.forks(ids.session);
    outlines => |s, ids| s.outlines(ids.session);
    export_records => |s, ids| s.export_records(ids.records(), BTreeSet::new());
    note_rerun => |s, ids| s.note_rerun(RerunAudit { session: ids.session, is_live: true, detail: String::new(), now: NOW });
    import => |s, _ids| s.import(ImportRequest { from: Box::new(std::io::empty()), key: None, outside: BTreeMap::new(), is_comparison: false, now: NOW });
    settle => |s, ids| s.settle(ids.call, OutcomeVerdict::DidNotHappen, NOW);
    blob => |s, ids| s.blob(ids.content);
    package => |s, ids| s.package(ids.turn);
    attached => |s, ids| s.attached(ids.session, ids.attachment, 0..9);
    attachment => |s, ids| s.attachment(ids.session, ids.attachment);
    attachments => |s, ids| s.attachments(ids.session, ALL);
    attachments_after => |s, ids| s.attachments_after(ids.session, Some(AttachmentId::from_u128(0)), ALL);
    partial_reply => |s, ids| s.partial_reply(ids.turn);
    value => |s, ids| s.value(ids.session, "note".to_owned());
    value_names => |s, ids| s.value_names(ids.session, String::new(), ALL);
    secret => |s, _ids| s.secret();
    sweeps => |s, _ids| s.sweeps();
    unreferenced => |s, _ids| s.unreferenced(ALL);
    filter_unreferenced => |s, ids| s.filter_unreferenced(vec![ids.content]);
    mark_for_deletion => |s, ids| s.mark_for_deletion(ids.deletion_mark());
    unmark_for_deletion => |s, ids| s.unmark_for_deletion(ids.deletion_mark());
    forget_deleted => |s, ids| s.forget_deleted(vec![ids.content], ids.lease_request().worker);
    subscribe => |s, _ids| s.subscribe(vec![subscription()], NOW);
    delivery_schedule => |s, _ids| s.delivery_schedule("crm".to_owned(), NOW);
    collect => |s, ids| {
        let (subscription, LeaseRequest { worker, until }) = (subscription(), ids.lease_request());
        s.collect(CollectRequest { subscription, worker, now: NOW, until, limit: ALL, attempts: 3 })
    };
    delivered => |s, ids| s.delivered(ids.attempt());
    undelivered => |s, ids| s.undelivered(ids.attempt(), Failure::new(Kind::DeliveryFailed, "no"), None);
    sinks => |s, _ids| s.sinks();
    deliveries => |s, _ids| s.deliveries("crm".to_owned(), ALL);
    deliveries_after => |s, _ids| s.deliveries_after("crm".to_owned(), None, ALL);
    redeliver => |s, ids| s.redeliver("crm".to_owned(), Some(ids.delivery), NOW);
    find => |s, ids| s.find(SearchQuery { terms: words(), session: Some(ids.session), before: None, limit: ALL });
    budgets => |s, _ids| s.budgets(ALL);
    budgets_after => |s, _ids| s.budgets_after(Some((OrgId::DEFAULT, String::new())), ALL);
    rates => |s, _ids| s.rates(ALL);
    rates_after => |s, _ids| s.rates_after(Some((OrgId::DEFAULT, String::new())), ALL);
    budgets_are_set => |s, _ids| s.budgets_are_set();
    awaited_budgets => |s, ids| s.awaited_budgets(ids.waiting);
    open_reservations => |s, ids| s.open_reservations(ids.waiting);
    set_budget => |s, ids| s.set_budget(BudgetAccount::Session(ids.session), None, NOW);
    put_config => |s, _ids| s.put_config(ConfigKind::Agent, "a/b".to_owned(), json!({}), NOW);
    replace_config => |s, _ids| s.replace_config(ConfigKind::Agent, "a/b".to_owned(), json!({}), 0, NOW);
    delete_config => |s, ids| s.delete_config(ConfigKind::Agent, ids.key, None, NOW);
    config => |s, ids| s.config(ConfigKind::Agent, ids.key);
    configs => |s, _ids| s.configs(ConfigKind::Harness, ALL);
    configs_after => |s, _ids| s.configs_after(ConfigKind::Harness, Some("a".to_owned()), ALL);
    config_versions => |s, ids| s.config_versions(ConfigKind::Agent, ids.key, ALL);
    config_versions_before => |s, ids| s.config_versions_before(ConfigKind::Agent, ids.key, Some(9), ALL);
    vote => |s, ids| {
        let (turn, key, approval) = (ids.waiting, ids.place, Approval::new("outlast", Word::Approve));
        s.vote(VoteRequest { turn, key, edited: None, approval, session_grants_max: 1, now: NOW })
    };
    approval_progress => |s, ids| s.approval_progress(ids.waiting, ids.place);
    send_due_notices => |s, _ids| s.send_due_notices(Millis(9_000), 1, ALL);
    pending_payments => |s, _ids| s.pending_payments(ALL);
    next_payment_due => |s, _ids| s.next_payment_due();
    take_due_payments => |s, _ids| s.take_due_payments(backoff(), Millis(9_000), ALL);
    record_payment_result => |s, ids| s.record_payment_result(ids.owing_turn, payment(PaymentState::Settled { receipt: "1".to_owned() }), NOW);
    record_payment_failure => |s, ids| s.record_payment_failure(ids.owing_turn, payment(PaymentState::Settling).key, Failure::new(Kind::PaymentUnavailable, "no"));
    session_grants => |s, ids| s.session_grants(ids.lease.session);
    grants => |s, _ids| s.grants(ALL);
    grants_after => |s, _ids| s.grants_after(Some((Millis(9_000), GrantId::from_u128(0))), ALL);
    revoke_grant => |s, ids| s.revoke_grant(ids.grant, NOW);
    create_org => |s, ids| s.create_org(Org { id: ids.org, name: "new".parse()?, created: NOW });
    org => |s, ids| s.org(ids.org);
    org_by_name => |s, ids| s.org_by_name(ids.org_name);
    orgs => |s, _ids| s.orgs();
    orgs_after => |s, _ids| s.orgs_after(Some(String::new()), ALL);
    create_key => |s, ids| {
        let (by, scopes, seal) = (Principal::program(), Scopes::ALL, Hash::ZERO);
        s.create_key(SealedApiKey { id: ids.api_key, org: ids.org, by, scopes, seal, expires: None }, NOW)
    };
    revoke_key => |s, ids| s.revoke_key(ids.api_key, NOW);
    keys => |s, _ids| s.keys();
    keys_after => |s, _ids| s.keys_after(Some(KeyId::from_u128(0)), ALL);
    authenticate => |s, ids| s.authenticate(ApiKey::new(ids.api_key, [7; 32]), NOW);
    audit => |s, _ids| s.audit(AuditRange { after: 0, since: Millis(0), limit: ALL });
}

/// Returns the answer of each method for these ids.
pub(super) async fn answers(store: &Arc<dyn Store>, ids: &SampleIds) -> Vec<String> {
    let mut answers = Vec::new();
    for (name, ask) in ASKS {
        let answer = ask(store.clone(), ids.clone()).await;
        let answer = answer.map_err(|error| error.to_string());
        answers.push(ids.without_ids(&format!("{name}: {answer:?}")));
    }
    answers
}

/// Returns the names of the methods that are called.
pub(super) fn called_methods() -> BTreeSet<&'static str> {
    ASKS.iter().map(|(name, _)| *name).collect()
}

/// Returns the names of all methods of a store, taken from the source of its traits.
pub(super) fn store_methods() -> BTreeSet<&'static str> {
    let sources = [
        include_str!("../../../../crates/ports/src/inbox.rs"),
        include_str!("../../../../crates/ports/src/turns.rs"),
        include_str!("../../../../crates/ports/src/journal.rs"),
        include_str!("../../../../crates/ports/src/queries.rs"),
        include_str!("../../../../crates/ports/src/branches.rs"),
        include_str!("../../../../crates/ports/src/content_queries.rs"),
        include_str!("../../../../crates/ports/src/attachment_upload.rs"),
        include_str!("../../../../crates/ports/src/outbox.rs"),
        include_str!("../../../../crates/ports/src/orgs.rs"),
        include_str!("../../../../crates/ports/src/budget.rs"),
        include_str!("../../../../crates/ports/src/configs.rs"),
        include_str!("../../../../crates/ports/src/rate.rs"),
        include_str!("../../../../crates/ports/src/payment_outbox.rs"),
        include_str!("../../../../crates/ports/src/votes.rs"),
        include_str!("../../../../crates/ports/src/archive.rs"),
        include_str!("../../../../crates/ports/src/search.rs"),
    ];
    for name in store_traits() {
        let head = format!("\npub trait {name}: Send + Sync {{");
        assert!(
            sources.iter().any(|source| source.contains(&head)),
            "add the source of `{name}` to this list"
        );
    }
    sources.into_iter().flat_map(trait_methods).collect()
}

/// Returns the traits that `Store` combines.
fn store_traits() -> impl Iterator<Item = &'static str> {
    let source = include_str!("../../../../crates/ports/src/store.rs");
    let (_, combined) = source.split_once("pub trait Store:").expect("the trait is in this file");
    let (combined, _) = combined.split_once('{').expect("it has a body");
    combined.split('+').map(str::trim)
}

/// Returns the methods of the store traits in a source file.
fn trait_methods(source: &'static str) -> Vec<&'static str> {
    let traits = source.split("\npub trait ").skip(1);
    let facets =
        traits.filter(|body| body.lines().next().is_some_and(|head| head.ends_with(": Send + Sync {")));
    let bodies = facets.map(|body| body.split("\n}").next().unwrap_or_default());
    let name = |line: &'static str| Some(line.strip_prefix("    fn ")?.split('(').next().unwrap_or_default());
    bodies.flat_map(|body| body.lines().filter_map(name)).collect()
}
