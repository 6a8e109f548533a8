//! Organisations: data of other organisations is invisible, every action is audited, and an API key gives access to one
//! organisation.
mod access_matrix;

use super::payment_outbox::payment;
use super::store_under_test::{
    ALL, NOW, StoreUnderTest, answer, answered, asked, by_key, call, commit, input, keyed, refused, reply,
    session_id, started, value_resolution, wait, wait_key,
};
use super::votes::{approval_key, call_needing_approval, input_of_clerk};
use super::{Fixture, RuleResult, SharedFixture, fresh};
use access_matrix::SampleIds;
use outlast_ports::ResultFuture;
use outlast_ports::attachment_upload::Upload;
use outlast_ports::branches::{ForkRequest, MAIN_HEAD};
use outlast_ports::inbox::{AcceptRequest, SessionTarget};
use outlast_ports::orgs::SealedApiKey;
use outlast_ports::outbox::{CollectRequest, FeedStart, SinkSubscription};
use outlast_ports::page::Page;
use outlast_ports::store::Store;
use outlast_ports::turns::{Commit, Lease, TurnTransition, ValueWrite};
use outlast_ports::votes::VoteRequest;
use outlast_views::{
    AuditRange, ConfigKind, DeliveryView, ForkTo, KeyView, Org, SessionGrant, StoredConfig, UnknownCall,
};
use outlast_vocab::access::{Access, ApiKey, Principal, Scope, Scopes};
use outlast_vocab::budget::{Budget, BudgetAccount};
use outlast_vocab::effect::ToolOutcome;
use outlast_vocab::id::{CallId, GrantId, KeyId, OrgId, SessionId, TurnId};
use outlast_vocab::message::MediaType;
use outlast_vocab::payment::{Payment, PaymentState};
use outlast_vocab::policy::{Approval, ApprovalRequirement, ApprovalVerdict as Word};
use outlast_vocab::record::{ClaimRef, Fact, NodeRef, OutcomeVerdict, Seq, TurnStarted};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Hash, Kind, Millis, ReplayKey};
use serde_json::json;
use std::ops::Deref;
use std::sync::Arc;

/// A store under test with operator access, from which stores of other callers are derived.
pub(super) struct OrgsUnderTest<'a> {
    scene: StoreUnderTest<'a>,
    all: Arc<dyn Store>,
}

impl<'a> From<&'a dyn SharedFixture> for OrgsUnderTest<'a> {
    fn from(on: &'a dyn SharedFixture) -> Self {
        let fixture: &dyn Fixture = on;
        Self { scene: fixture.into(), all: on.open_again() }
    }
}

impl<'a> Deref for OrgsUnderTest<'a> {
    type Target = StoreUnderTest<'a>;

    fn deref(&self) -> &StoreUnderTest<'a> {
        &self.scene
    }
}

impl OrgsUnderTest<'_> {
    /// Creates an organisation.
    async fn org(&self, name: &str) -> Result<OrgId, Error> {
        let id = OrgId::from_u128(fresh());
        self.create_org(Org { id, name: name.parse()?, created: NOW }).await?;
        Ok(id)
    }

    /// Returns the store with this access.
    fn serving(&self, access: Access) -> Arc<dyn Store> {
        self.all.clone().serving(access)
    }

    /// Returns the store with full access to this organisation.
    fn within(&self, org: OrgId) -> Arc<dyn Store> {
        self.serving(Access::to(org))
    }

    /// Returns the store with only this scope in this organisation.
    fn limited(&self, org: OrgId, scope: Scope) -> Arc<dyn Store> {
        self.serving(Access { scopes: scope.into(), ..Access::to(org) })
    }

    /// Starts a turn in a new session of an organisation, leased to the scene's worker.
    async fn begin_for(&self, org: OrgId, accept: AcceptRequest) -> Result<Lease, Error> {
        let accepted = self
            .within(org)
            .accept(AcceptRequest { lease_request: Some(self.lease_request()), ..accept })
            .await?;
        Ok(accepted.work.expect("the session is new, so its worker gets it").lease)
    }

    /// Creates some data of every kind in an organisation: ended, waiting, unknown, attached and delivered.
    async fn create_sample_data(&self, org: OrgId) -> Result<SampleIds, Error> {
        let file = Upload::new(MediaType::try_from("text/plain".to_owned())?, None, b"a file".as_slice())?;
        let package = b"{\"a\":\"package\"}".to_vec();
        let accept = AcceptRequest {
            target: by_key("theirs"),
            files: vec![file.clone().into()],
            blobs: vec![package.clone()],
            ..keyed(session_id(), "idempotent", &"long ".repeat(10_000))
        };
        let lease = self.begin_for(org, accept).await?;
        let began = Fact::Started(TurnStarted {
            kernel: 1,
            package: Hash::of(&package),
            head: MAIN_HEAD.to_owned(),
            parent: None,
            labels: None,
        });
        let values = vec![ValueWrite { name: "note".to_owned(), value: Some(json!("kept")) }];
        let then = TurnTransition::End(answer("bye"));
        self.commit(Commit { values, ..commit(&lease, vec![began, reply("bye")], then) }).await?;
        let message = self.session(lease.session).await?.heads[0].1.expect("the turn moved its head");

        let parked = self.begin_for(org, input_of_clerk(new_input("wait"))).await?;
        let held = PreparedCall {
            model_id: "call".parse()?,
            ..call_needing_approval(ApprovalRequirement::default())
        };
        let granted = call_needing_approval(ApprovalRequirement::default());
        let key = approval_key(&granted, 1);
        self.add(&parked, vec![asked(&[held, granted])]).await?;
        let approval = Approval::new("ann", Word::ApproveForSession);
        self.vote(VoteRequest {
            turn: parked.turn,
            key,
            edited: None,
            approval,
            session_grants_max: 1,
            now: NOW,
        })
        .await?;
        let grant = self.session_grants(parked.session).await?[0].id;
        let approval = Wait { key: approval_place(), kind: WaitKind::Approval, deadline: None };
        self.park(&parked, vec![wait("go"), approval]).await?;

        let (sent, owes) = self.create_unknown_call(org).await?;

        let subscription = SinkSubscription::to_ends("crm", FeedStart::Beginning);
        self.subscribe(vec![subscription.clone()], NOW).await?;
        let (worker, until) = (self.lease_request().worker, self.lease_request().until);
        let due = self
            .collect(CollectRequest { subscription, worker, now: NOW, until, limit: ALL, attempts: 3 })
            .await?;

        let (_, key) = self.key(org, Scope::Run, None).await?;
        Ok(SampleIds {
            session: lease.session,
            key: "theirs".to_owned(),
            turn: lease.turn,
            waiting: parked.turn,
            owing_turn: owes,
            place: wait_key("go"),
            call: sent,
            attachment: file.attachment.id,
            content: file.attachment.content,
            message,
            lease: parked,
            delivery: due[0].output.id,
            moment: due[0].output.position,
            org,
            org_name: self.within(org).org(org).await?.name.to_string(),
            api_key: key,
            grant,
        })
    }

    /// Creates a call with an unknown outcome, and returns it with the turn that owes its payment.
    async fn create_unknown_call(&self, org: OrgId) -> Result<(CallId, TurnId), Error> {
        let lease = self.begin_for(org, new_input("send it")).await?;
        let sent = call("send");
        let asked = self.add(&lease, vec![asked(std::slice::from_ref(&sent))]).await?.places[0].seq;
        let pending = Fact::Payment(payment(PaymentState::Settling));
        let facts = vec![answered(ClaimRef { asked, child: 0 }, ToolOutcome::Unknown), pending];
        self.write(&lease, facts, TurnTransition::End(answer("nobody knows"))).await?;
        Ok((sent.id, lease.turn))
    }

    /// Approves a call of an organisation for the rest of its session.
    async fn grant(&self, org: OrgId) -> RuleResult {
        let lease = self.begin_for(org, input_of_clerk(new_input("wait"))).await?;
        let held = call_needing_approval(ApprovalRequirement::default());
        let (turn, key) = (lease.turn, approval_key(&held, 0));
        self.add(&lease, vec![asked(&[held])]).await?;
        let approval = Approval::new("ann", Word::ApproveForSession);
        self.vote(VoteRequest { turn, key, edited: None, approval, session_grants_max: 1, now: NOW })
            .await
            .map(drop)
    }

    /// Creates an API key of an organisation. Returns the key and its id.
    async fn key(&self, org: OrgId, scope: Scope, expires: Option<Millis>) -> Result<(ApiKey, KeyId), Error> {
        let id = KeyId::from_u128(fresh());
        let key = ApiKey::new(id, [7; 32]);
        let (seal, by) = (key.seal(&self.secret().await?), "service:ci".parse()?);
        self.create_key(SealedApiKey { id, org, by, scopes: scope.into(), seal, expires }, NOW).await?;
        Ok((key, id))
    }

    /// Returns the audit entries of an organisation, one line each.
    async fn audit_lines(&self, org: OrgId) -> Result<Vec<String>, Error> {
        let done = self.within(org).audit(EVERYTHING).await?;
        Ok(done.into_iter().map(|row| format!("{} {} {}", row.by, row.act, row.detail)).collect())
    }
}

const EVERYTHING: AuditRange = AuditRange { after: 0, since: Millis(0), limit: ALL };

fn new_input(text: &str) -> AcceptRequest {
    AcceptRequest { target: SessionTarget::New(session_id()), ..input(session_id(), text) }
}

fn approval_place() -> ReplayKey {
    ReplayKey::turn(0).tools(0).child(0, "call").approval(&Hash::of(b"form"))
}

/// An approval in this name.
fn yes_by(name: &str) -> Resolution {
    let approval = Approval::new(name, Word::Approve);
    Resolution::Ok(serde_json::to_value(approval).expect("an approval is JSON"))
}

fn ann() -> Principal {
    "person:ann".parse().expect("it is a principal")
}

pub(super) async fn session_belongs_to_organisation_of_its_opener(s: &OrgsUnderTest<'_>) -> RuleResult {
    let acme = s.org("acme").await?;
    let session = s.within(acme).open(SessionTarget::New(session_id()), NOW).await?;
    assert_eq!(s.session(session).await?.org, acme);
    let ours = s.fresh_session().await?;
    assert_eq!(s.session(ours).await?.org, OrgId::DEFAULT);
    let lease = s.begin_for(acme, new_input("hi")).await?;
    assert_eq!(s.session(lease.session).await?.org, acme);
    Ok(())
}

pub(super) async fn session_keys_are_separate_per_organisation(s: &OrgsUnderTest<'_>) -> RuleResult {
    let (acme, bolt) = (s.org("acme").await?, s.org("bolt").await?);
    let mut opened = Vec::new();
    for handle in [s.within(acme), s.within(bolt), s.within(OrgId::DEFAULT)] {
        let session = handle.open(by_key("me"), NOW).await?;
        assert_eq!(handle.open(by_key("me"), NOW).await?, session);
        assert_eq!(handle.session_by_key("me".to_owned()).await?.id, session);
        opened.push(session);
    }
    assert_eq!(s.session_by_key("me".to_owned()).await?.id, opened[2]);
    opened.dedup();
    assert_eq!(opened.len(), 3);
    Ok(())
}

pub(super) async fn items_of_other_organisations_are_not_found(s: &OrgsUnderTest<'_>) -> RuleResult {
    let (acme, bolt) = (s.org("acme").await?, s.org("bolt").await?);
    let before = access_matrix::answers(&s.within(bolt), &SampleIds::absent()).await;
    let theirs = s.create_sample_data(acme).await?;
    let picture = s.snapshot().await?;
    assert_eq!(access_matrix::answers(&s.within(bolt), &theirs).await, before);
    assert_eq!(access_matrix::answers(&s.within(bolt), &SampleIds::absent()).await, before);
    assert_eq!(s.snapshot().await?, picture, "nothing has changed");
    assert_eq!(s.audit_lines(bolt).await?, ["service:outlast org.create bolt"]);
    Ok(())
}

pub(super) async fn agents_are_separate_per_organisation_and_scope_limited(
    s: &OrgsUnderTest<'_>,
) -> RuleResult {
    let (acme, bolt) = (s.org("acme").await?, s.org("bolt").await?);
    let (clerk, body) = ("clerk".to_owned(), |text: &str| serde_json::json!({ "system": text }));
    for (org, text) in [(acme, "for acme"), (bolt, "for bolt")] {
        let stored = s.within(org).put_config(ConfigKind::Agent, clerk.clone(), body(text), NOW).await?;
        assert_eq!(stored.version, 1);
    }
    for (org, text) in [(acme, "for acme"), (bolt, "for bolt")] {
        let handle = s.within(org);
        let found = handle.config(ConfigKind::Agent, clerk.clone()).await?.expect("it was kept");
        assert_eq!(found.body, body(text));
        assert_eq!(handle.configs(ConfigKind::Agent, ALL).await?, std::slice::from_ref(&found));
        assert_eq!(handle.config_versions(ConfigKind::Agent, clerk.clone(), ALL).await?, [found]);
    }
    assert_eq!(s.configs(ConfigKind::Agent, ALL).await?, []);
    let reader = s.limited(acme, Scope::Read);
    refused(reader.put_config(ConfigKind::Agent, clerk, body("mine"), NOW).await, Kind::AccessDenied);
    Ok(())
}

pub(super) async fn access_matrix_covers_every_store_method(_s: &OrgsUnderTest<'_>) -> RuleResult {
    assert_eq!(access_matrix::called_methods(), access_matrix::store_methods());
    Ok(())
}

pub(super) async fn lists_and_the_feed_show_one_organisation(s: &OrgsUnderTest<'_>) -> RuleResult {
    let (acme, bolt) = (s.org("acme").await?, s.org("bolt").await?);
    let theirs = s.create_sample_data(acme).await?;
    let ours = s.create_sample_sessions(bolt).await?;
    let handle = s.within(bolt);
    let listed: Vec<SessionId> =
        handle.sessions(None, ALL).await?.into_iter().map(|session| session.id).collect();
    assert_eq!(listed, ours);
    for record in handle.feed(outlast_ports::journal::FeedCursor(0), ALL).await? {
        assert!(ours.contains(&record.session));
    }
    let theirs_shown = s.within(acme).unknown(ALL).await?;
    assert_eq!(theirs_shown.iter().map(|call| call.call).collect::<Vec<_>>(), [theirs.call]);
    assert!(handle.unknown(ALL).await?.is_empty());
    assert!(handle.waiting(WaitKind::Approval, ALL).await?.is_empty());
    assert_eq!(s.within(acme).waiting(WaitKind::Approval, ALL).await?[0].turn, theirs.waiting);
    assert_eq!(handle.orgs().await?.into_iter().map(|org| org.id).collect::<Vec<_>>(), [bolt]);
    Ok(())
}

impl OrgsUnderTest<'_> {
    /// Creates sessions with ended turns in an organisation. Returns them newest first.
    async fn create_sample_sessions(&self, org: OrgId) -> Result<Vec<SessionId>, Error> {
        let mut sessions = Vec::new();
        for text in ["one", "two"] {
            let lease = self.begin_for(org, new_input(text)).await?;
            self.end(&lease).await?;
            sessions.insert(0, lease.session);
        }
        Ok(sessions)
    }
}

pub(super) async fn content_is_accessible_by_reference_not_by_hash(s: &OrgsUnderTest<'_>) -> RuleResult {
    let (acme, bolt) = (s.org("acme").await?, s.org("bolt").await?);
    let theirs = s.create_sample_data(acme).await?;
    let own = s.within(acme);
    assert_eq!(own.attached(theirs.session, theirs.attachment, 0..ALL as u64).await?, b"a file");
    assert_eq!(own.package(theirs.turn).await?, b"{\"a\":\"package\"}");
    assert!(own.turn_records(theirs.turn).await?.len() > 2, "a body in the blobs is read");
    for handle in [own, s.within(bolt)] {
        refused(handle.blob(theirs.content).await, Kind::BlobNotFound);
        refused(handle.blob(Hash::of(b"{\"a\":\"package\"}")).await, Kind::BlobNotFound);
    }
    Ok(())
}

pub(super) async fn fork_belongs_to_the_organisation_of_its_parent(s: &OrgsUnderTest<'_>) -> RuleResult {
    let (acme, bolt) = (s.org("acme").await?, s.org("bolt").await?);
    let theirs = s.create_sample_data(acme).await?;
    let to = || ForkTo::Session { fresh: session_id(), key: Some("branch".to_owned()) };
    let fork = |at| ForkRequest { from: theirs.session, at, to: to(), now: NOW };
    refused(s.within(bolt).fork(fork(None)).await, Kind::SessionNotFound);
    refused(s.within(bolt).fork(fork(Some(theirs.message.seq))).await, Kind::SessionNotFound);
    // The operator forks it within the organisation, and the key belongs to that organisation.
    let branch = s.fork(fork(Some(theirs.message.seq))).await?;
    assert_eq!(s.session(branch).await?.org, acme);
    assert_eq!(s.within(acme).session_by_key("branch".to_owned()).await?.id, branch);
    let last = s.within(acme).session(branch).await?.heads[0].1.expect("it begins at a message");
    assert_eq!(s.within(acme).history(last, ALL).await?.len(), 1);
    Ok(())
}

pub(super) async fn worker_operations_require_operator_access(s: &OrgsUnderTest<'_>) -> RuleResult {
    let acme = s.org("acme").await?;
    let lease = s.begin_for(acme, new_input("hi")).await?;
    let handle = s.within(acme);
    let write = || commit(&lease, vec![started()], TurnTransition::Continue);
    refused(handle.commit(write()).await, Kind::AccessDenied);
    refused(handle.claim(s.rival(), Millis(9_000), ALL).await, Kind::AccessDenied);
    refused(handle.secret().await, Kind::AccessDenied);
    refused(handle.sinks().await, Kind::AccessDenied);
    // Callers can get keys that the secret signs for their own turns.
    handle.completion_key(lease.turn, wait_key("go")).await?.check(&s.secret().await?)?;
    s.commit(write()).await?;
    s.end(&lease).await?;
    Ok(())
}

pub(super) async fn handle_access_is_never_widened(s: &OrgsUnderTest<'_>) -> RuleResult {
    let (acme, bolt) = (s.org("acme").await?, s.org("bolt").await?);
    let theirs = s.within(bolt).open(by_key("theirs"), NOW).await?;
    let reader = s.limited(acme, Scope::Read);
    for wider in [Access::operator(), Access::to(acme), Access::to(bolt)] {
        let handle = reader.clone().serving(wider);
        refused(handle.session(theirs).await, Kind::SessionNotFound);
        refused(handle.open(by_key("new"), NOW).await, Kind::AccessDenied);
        refused(
            handle.create_org(Org { id: OrgId::from_u128(fresh()), ..Org::default() }).await,
            Kind::AccessDenied,
        );
    }
    // A store limited to two different organisations sees nothing and can write nothing.
    let neither = s.within(acme).serving(Access::to(bolt));
    refused(neither.session(theirs).await, Kind::SessionNotFound);
    assert!(neither.sessions(None, ALL).await?.is_empty());
    refused(neither.open(SessionTarget::New(session_id()), NOW).await, Kind::Internal);
    Ok(())
}

pub(super) async fn handle_without_scope_changes_nothing(s: &OrgsUnderTest<'_>) -> RuleResult {
    let acme = s.org("acme").await?;
    let theirs = s.create_sample_data(acme).await?;
    let picture = s.snapshot().await?;
    let reader = s.limited(acme, Scope::Read);
    reader.session(theirs.session).await?;
    refused(reader.accept(input(theirs.session, "hi")).await, Kind::AccessDenied);
    refused(reader.open(by_key("new"), NOW).await, Kind::AccessDenied);
    refused(reader.cancel(theirs.waiting, "stop".to_owned(), NOW).await, Kind::AccessDenied);
    refused(
        reader.resolve(theirs.waiting, theirs.place.clone(), value_resolution(), NOW).await,
        Kind::AccessDenied,
    );
    refused(reader.completion_key(theirs.waiting, theirs.place.clone()).await, Kind::AccessDenied);
    refused(reader.rewind(theirs.session, MAIN_HEAD.to_owned(), None, NOW).await, Kind::AccessDenied);
    refused(reader.audit(EVERYTHING).await, Kind::AccessDenied);
    refused(reader.keys().await, Kind::AccessDenied);
    refused(reader.revoke_key(theirs.api_key, NOW).await, Kind::AccessDenied);
    let runner = s.limited(acme, Scope::Run);
    refused(runner.delete(theirs.session, NOW).await, Kind::AccessDenied);
    refused(runner.settle(theirs.call, OutcomeVerdict::DidNotHappen, NOW).await, Kind::AccessDenied);
    refused(
        runner.resolve(theirs.waiting, approval_place(), yes_by("outlast"), NOW).await,
        Kind::AccessDenied,
    );
    refused(runner.revoke_grant(theirs.grant, NOW).await, Kind::AccessDenied);
    let powerless = s.serving(Access { scopes: Scopes::NONE, ..Access::to(acme) });
    refused(powerless.sessions(None, 1).await, Kind::AccessDenied);
    assert_eq!(s.snapshot().await?, picture);
    assert_eq!(
        s.audit_lines(acme).await?.len(),
        3,
        "the organisation and its key were made, a call was approved for its session, and nothing else was done"
    );
    s.limited(acme, Scope::Approve).resolve(theirs.waiting, approval_place(), yes_by("outlast"), NOW).await?;
    Ok(())
}

pub(super) async fn agents_cannot_approve_and_people_cannot_impersonate(s: &OrgsUnderTest<'_>) -> RuleResult {
    let acme = s.org("acme").await?;
    let theirs = s.create_sample_data(acme).await?;
    let decide = |by: Principal, word| {
        let handle = s.serving(Access::to(acme).by(by));
        async move { handle.resolve(theirs.waiting, approval_place(), word, NOW).await }
    };
    let agent = Principal::Agent(theirs.session);
    refused(decide(agent.clone(), yes_by(&agent.name())).await, Kind::AccessDenied);
    refused(decide(agent.clone(), yes_by("ann")).await, Kind::AccessDenied);
    refused(s.serving(Access::to(acme).by(agent)).revoke_grant(theirs.grant, NOW).await, Kind::AccessDenied);
    refused(decide("person:bob".parse()?, yes_by("ann")).await, Kind::ApprovalForbidden);
    assert!(decide(ann(), yes_by("ann")).await?.is_yours);
    Ok(())
}

pub(super) async fn records_name_the_acting_principal(s: &OrgsUnderTest<'_>) -> RuleResult {
    let acme = s.org("acme").await?;
    let theirs = s.create_sample_data(acme).await?;
    let handle = s.serving(Access::to(acme).by(ann()));
    handle.resolve(theirs.waiting, approval_place(), yes_by("ann"), NOW).await?;
    handle.resolve(theirs.waiting, theirs.place.clone(), value_resolution(), NOW).await?;
    handle.cancel(theirs.waiting, "enough".to_owned(), NOW).await?;
    handle.settle(theirs.call, OutcomeVerdict::DidNotHappen, NOW).await?;
    let to = ForkTo::Session { fresh: session_id(), key: None };
    let branch = handle.fork(ForkRequest { from: theirs.session, at: None, to, now: NOW }).await?;
    handle.rewind(theirs.session, MAIN_HEAD.to_owned(), None, NOW).await?;
    handle.delete(branch, NOW).await?;
    handle.revoke_key(theirs.api_key, NOW).await?;
    handle.revoke_grant(theirs.grant, NOW).await?;
    assert_eq!(
        s.audit_lines(acme).await?,
        [
            "service:outlast org.create acme".to_owned(),
            "service:outlast approval.grant by ann, for the rest of the session".to_owned(),
            "service:outlast key.create for service:ci, may run".to_owned(),
            "person:ann approval.approve by ann".to_owned(),
            format!("person:ann wait.resolve {} with a value", theirs.place),
            "person:ann turn.cancel enough".to_owned(),
            "person:ann call.settle it did not happen".to_owned(),
            format!("person:ann session.fork to {branch}"),
            "person:ann session.rewind the head `main` to its beginning".to_owned(),
            "person:ann session.delete ".to_owned(),
            "person:ann key.revoke of service:ci".to_owned(),
            "person:ann approval.revoke of `pay` under the rule `money`, which ann gave".to_owned(),
        ]
    );
    let numbers: Vec<u64> = handle.audit(EVERYTHING).await?.into_iter().map(|row| row.no).collect();
    let second = AuditRange { after: numbers[0], limit: 1, ..EVERYTHING };
    assert_eq!(handle.audit(second).await?[0].no, numbers[1]);
    let future = AuditRange { since: Millis(NOW.0 + 1), ..EVERYTHING };
    assert!(handle.audit(future).await?.is_empty());
    Ok(())
}

pub(super) async fn audit_cursors_work_despite_clock_moving_back(s: &OrgsUnderTest<'_>) -> RuleResult {
    let (acme, bolt) = (s.org("acme").await?, s.org("bolt").await?);
    let mut done = Vec::new();
    for (org, later) in [(acme, 10), (acme, 30), (bolt, 40), (acme, 20), (acme, 50), (bolt, 25)] {
        let (id, at) = (KeyId::from_u128(fresh()), Millis(NOW.0 + later));
        let seal = ApiKey::new(id, [7; 32]).seal(&s.secret().await?);
        let (by, scopes) = ("service:ci".parse()?, Scope::Run.into());
        s.create_key(SealedApiKey { id, org, by, scopes, seal, expires: None }, at).await?;
        done.push((org, at, id.to_string()));
    }
    for visibility in [None, Some(acme), Some(bolt)] {
        let store = visibility.map_or_else(|| s.all.clone(), |org| s.within(org));
        for since in [0, 10, 20, 25, 26, 40, 41, 50, 51].map(|later| Millis(NOW.0 + later)) {
            let shown =
                done.iter().filter(|(org, at, _)| visibility.is_none_or(|of| of == *org) && *at >= since);
            let shown: Vec<&str> = shown.map(|(.., key)| key.as_str()).collect();
            let (mut walked, mut after) = (Vec::new(), 0);
            while let [act] = &store.audit(AuditRange { after, since, limit: 1 }).await?[..] {
                after = act.no;
                walked.extend((act.act == "key.create").then(|| act.subject.clone()));
            }
            assert_eq!(walked, shown, "{visibility:?} since {since:?}");
        }
    }
    Ok(())
}

impl OrgsUnderTest<'_> {
    /// Creates several of everything that is listed.
    async fn furnish_richly(&self, org: OrgId) -> RuleResult {
        for _ in 0..2 {
            self.create_unknown_call(org).await?;
            self.grant(org).await?;
            self.key(org, Scope::Run, None).await?;
        }
        self.create_sample_data(org).await.map(drop)
    }
}

/// Reads all entries of a list with pages of one entry, and runs `between` after each.
async fn walked<'a, T, K>(
    page: impl Fn(Option<K>) -> ResultFuture<'a, Page<T, K>>,
    mut between: impl AsyncFnMut(&T) -> RuleResult,
) -> Result<Vec<T>, Error> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let Page { items, next } = page(after).await?;
        assert!(items.len() <= 1);
        for entry in &items {
            between(entry).await?;
        }
        all.extend(items);
        match next {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
}

/// Reads all entries of a list with pages of one entry.
async fn whole<'a, T, K>(page: impl Fn(Option<K>) -> ResultFuture<'a, Page<T, K>>) -> Result<Vec<T>, Error> {
    walked(page, async |_| Ok(())).await
}

pub(super) async fn paging_returns_the_whole_list_of_one_organisation(s: &OrgsUnderTest<'_>) -> RuleResult {
    let (acme, bolt) = (s.org("acme").await?, s.org("bolt").await?);
    for org in [acme, bolt] {
        s.furnish_richly(org).await?;
        for name in ["b", "a", "b"] {
            let (store, json) = (s.within(org), json!({ "system": fresh().to_string() }));
            store.put_config(ConfigKind::Agent, name.to_owned(), json, NOW).await?;
            let budget = Some(Budget { calls: Some(9), ..Budget::default() });
            store.set_budget(BudgetAccount::Agent(name.into()), budget, NOW).await?;
        }
    }
    for store in [s.all.clone(), s.within(acme), s.within(bolt)] {
        assert_eq!(whole(|after| store.unknown_after(after, 1)).await?, store.unknown(ALL).await?);
        assert_eq!(whole(|after| store.budgets_after(after, 1)).await?, store.budgets(ALL).await?);
        assert_eq!(whole(|after| store.grants_after(after, 1)).await?, store.grants(ALL).await?);
        assert_eq!(whole(|after| store.orgs_after(after, 1)).await?, store.orgs().await?);
        assert_eq!(whole(|after| store.keys_after(after, 1)).await?, store.keys().await?);
        let configs = whole(|after| store.configs_after(ConfigKind::Agent, after, 1)).await?;
        assert_eq!(configs, store.configs(ConfigKind::Agent, ALL).await?);
        for StoredConfig { name, .. } in configs {
            let page = |before| store.config_versions_before(ConfigKind::Agent, name.clone(), before, 1);
            let versions = store.config_versions(ConfigKind::Agent, name.clone(), ALL).await?;
            assert_eq!(whole(page).await?, versions);
        }
        for session in store.sessions(None, ALL).await? {
            let attached = whole(|after| store.attachments_after(session.id, after, 1)).await?;
            assert_eq!(attached, store.attachments(session.id, ALL).await?);
        }
    }
    let deliveries = whole(|after| s.all.deliveries_after("crm".to_owned(), after, 1)).await?;
    assert_eq!(deliveries, s.deliveries("crm".to_owned(), ALL).await?);
    assert!(deliveries.len() >= 6);
    Ok(())
}

pub(super) async fn changes_between_pages_hide_or_duplicate_no_item(s: &OrgsUnderTest<'_>) -> RuleResult {
    let acme = s.org("acme").await?;
    s.furnish_richly(acme).await?;
    let store = s.within(acme);
    // Each entry is removed before the next page is read.
    let lost: Vec<CallId> = store.unknown(ALL).await?.iter().map(|lost| lost.call).collect();
    let settle =
        async |lost: &UnknownCall| store.settle(lost.call, OutcomeVerdict::DidNotHappen, NOW).await.map(drop);
    let read = walked(|after| store.unknown_after(after, 1), settle).await?;
    assert_eq!(read.iter().map(|lost| lost.call).collect::<Vec<_>>(), lost);
    let given: Vec<GrantId> = store.grants(ALL).await?.iter().map(|grant| grant.id).collect();
    let revoke = async |grant: &SessionGrant| store.revoke_grant(grant.id, NOW).await.map(drop);
    let read = walked(|after| store.grants_after(after, 1), revoke).await?;
    assert_eq!(read.iter().map(|grant| grant.id).collect::<Vec<_>>(), given);
    assert_eq!((lost.len(), given.len()), (3, 3));
    // New entries appear at the end.
    let mut keys = 0;
    let make = async |_: &KeyView| {
        keys += 1;
        if keys < 3 {
            s.key(acme, Scope::Run, None).await?;
        }
        Ok(())
    };
    let read = walked(|after| store.keys_after(after, 1), make).await?;
    assert_eq!(read, store.keys().await?);
    // Sessions can be deleted, with their undelivered outputs, once the authority has confirmed the payments that they
    // owe.
    for pending in s.pending_payments(ALL).await? {
        let state = PaymentState::Settled { receipt: "taken".to_owned() };
        s.record_payment_result(pending.turn, Payment { state, ..pending.payment }, NOW).await?;
    }
    let delete = async |delivery: &DeliveryView| s.delete(delivery.session, NOW).await;
    let waiting: Vec<TurnId> =
        s.deliveries("crm".to_owned(), ALL).await?.iter().map(|delivery| delivery.turn).collect();
    let read = walked(|after| s.all.deliveries_after("crm".to_owned(), after, 1), delete).await?;
    assert_eq!(read.iter().map(|delivery| delivery.turn).collect::<Vec<_>>(), waiting);
    Ok(())
}

pub(super) async fn audit_omits_calls_without_effect(s: &OrgsUnderTest<'_>) -> RuleResult {
    let acme = s.org("acme").await?;
    let theirs = s.create_sample_data(acme).await?;
    let before = s.audit_lines(acme).await?;
    let handle = s.within(acme);
    handle.cancel(theirs.turn, "too late".to_owned(), NOW).await?;
    handle.resolve(theirs.turn, theirs.place.clone(), value_resolution(), NOW).await?;
    refused(
        handle.settle(CallId::from_u128(fresh()), OutcomeVerdict::DidNotHappen, NOW).await,
        Kind::ClaimNotFound,
    );
    refused(handle.delete(theirs.lease.session, NOW).await, Kind::SessionBusy);
    assert_eq!(s.audit_lines(acme).await?, before);
    Ok(())
}

pub(super) async fn organisation_names_are_unique(s: &OrgsUnderTest<'_>) -> RuleResult {
    let acme = s.org("acme").await?;
    refused(s.org("acme").await, Kind::InputKeyReused);
    refused(s.create_org(Org { id: acme, name: "other".parse()?, created: NOW }).await, Kind::InputKeyReused);
    refused(s.org("default").await, Kind::InputKeyReused);
    refused(s.org("org_acme").await, Kind::InputInvalid);
    assert_eq!(s.org_by_name("acme".to_owned()).await?.id, acme);
    refused(s.org_by_name("bolt".to_owned()).await, Kind::OrgNotFound);
    let names: Vec<String> = s.orgs().await?.into_iter().map(|org| org.name.to_string()).collect();
    assert_eq!(names, ["acme", "default"]);
    refused(
        s.within(acme).create_org(Org { id: OrgId::from_u128(fresh()), ..Org::default() }).await,
        Kind::AccessDenied,
    );
    Ok(())
}

pub(super) async fn api_key_works_until_expired_or_revoked(s: &OrgsUnderTest<'_>) -> RuleResult {
    let acme = s.org("acme").await?;
    let (key, id) = s.key(acme, Scope::Run, Some(Millis(2_000))).await?;
    let access = s.authenticate(key.clone(), NOW).await?;
    assert_eq!(access, Access { by: "service:ci".parse()?, scopes: Scope::Run.into(), ..Access::to(acme) });
    s.authenticate(key.clone(), Millis(1_999)).await?;
    refused(s.authenticate(key.clone(), Millis(2_000)).await, Kind::KeyInvalid);
    assert_eq!(s.within(acme).keys().await?[0].expires, Some(Millis(2_000)));
    s.within(acme).revoke_key(id, NOW).await?;
    refused(s.authenticate(key.clone(), NOW).await, Kind::KeyInvalid);
    let again = s.within(acme).revoke_key(id, Millis(1_500)).await?;
    assert_eq!(again.revoked, Some(NOW), "the first time counts");
    assert_eq!(s.audit_lines(acme).await?.iter().filter(|act| act.contains("key.revoke")).count(), 1);
    Ok(())
}

pub(super) async fn every_wrong_api_key_gets_the_same_error(s: &OrgsUnderTest<'_>) -> RuleResult {
    let acme = s.org("acme").await?;
    let (key, _) = s.key(acme, Scope::Run, None).await?;
    let whole = key.reveal();
    for at in 4..whole.len() {
        let other = if whole.as_bytes()[at] == b'0' { "1" } else { "0" };
        let forged: ApiKey = format!("{}{other}{}", &whole[..at], &whole[at + 1..]).parse()?;
        let error = s.authenticate(forged, NOW).await.expect_err("it is another key");
        assert_eq!(error.to_string(), ApiKey::invalid().to_string());
    }
    s.authenticate(key, NOW).await?;
    Ok(())
}

pub(super) async fn api_key_scopes_never_exceed_its_creator(s: &OrgsUnderTest<'_>) -> RuleResult {
    let (acme, bolt) = (s.org("acme").await?, s.org("bolt").await?);
    let new = |org, scopes| {
        let id = KeyId::from_u128(fresh());
        let seal = ApiKey::new(id, [1; 32]).seal(&[1; 32]);
        SealedApiKey { id, org, by: Principal::program(), scopes, seal, expires: None }
    };
    let admin = s.limited(acme, Scope::Admin);
    admin.create_key(new(acme, Scopes::ALL), NOW).await?;
    refused(admin.create_key(new(bolt, Scope::Read.into()), NOW).await, Kind::OrgNotFound);
    refused(admin.create_key(new(acme, Scopes::NONE), NOW).await, Kind::AccessDenied);
    for scope in [Scope::Read, Scope::Run, Scope::Approve, Scope::Operate] {
        for wanted in Scope::ALL {
            refused(
                s.limited(acme, scope).create_key(new(acme, wanted.into()), NOW).await,
                Kind::AccessDenied,
            );
        }
    }
    assert_eq!(s.within(acme).keys().await?.len(), 1);
    Ok(())
}

impl SampleIds {
    /// Returns ids that no object has.
    fn absent() -> Self {
        let (session, turn) = (session_id(), TurnId::from_u128(fresh()));
        let worker = outlast_vocab::WorkerId::from_u128(fresh());
        let hash = Hash::of(&fresh().to_be_bytes());
        Self {
            session,
            key: format!("key {}", fresh()),
            turn,
            waiting: turn,
            owing_turn: turn,
            place: wait_key("go"),
            call: CallId::from_u128(fresh()),
            attachment: outlast_vocab::id::AttachmentId::from_u128(fresh()),
            content: hash,
            message: NodeRef { session, seq: Seq(2) },
            lease: Lease { session, turn, worker, fence: outlast_ports::turns::Fence(1) },
            delivery: outlast_vocab::id::DeliveryId::from_u128(fresh()),
            moment: outlast_ports::sink::OutputPosition { seq: Seq(2), nth: 0 },
            org: OrgId::from_u128(fresh()),
            org_name: format!("org {}", fresh()),
            api_key: KeyId::from_u128(fresh()),
            grant: GrantId::from_u128(fresh()),
        }
    }
}
