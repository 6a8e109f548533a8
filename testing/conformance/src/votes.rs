//! Approval requests: who decides them, and what is approved for the rest of a session.
use super::RuleResult;
use super::store_under_test::{ALL, NOW, StoreUnderTest, asked, call, input, performed, refused, session_id};
use outlast_ports::inbox::{AcceptRequest, SessionTarget};
use outlast_ports::turns::{Lease, TurnTransition};
use outlast_ports::votes::VoteRequest;
use outlast_views::{ResolveResult, SessionGrant, VoteOutcome};
use outlast_vocab::approval::{AppliedGrant, GrantScope};
use outlast_vocab::effect::AwaitEvent;
use outlast_vocab::id::GrantId;
use outlast_vocab::label::{Labels, UntrustedSource};
use outlast_vocab::package::{Package, PinnedPackage};
use outlast_vocab::policy::{
    Approval, ApprovalRequirement, ApprovalVerdict, PolicyDecision, PolicyPoint, RecordedDecision,
    approved_call_fingerprint, approved_facts_fingerprint,
};
use outlast_vocab::record::{Fact, PolicyDecided, TurnAccepted};
use outlast_vocab::tool::{PreparedCall, ToolContract};
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Hash, Kind, Millis, ReplayKey, canonical_json};
use serde_json::{Value, json};
use std::num::NonZeroU32;
use std::time::Duration;

/// The pinned package of a turn with a tool `pay`.
pub(super) fn pinned() -> PinnedPackage {
    let package = Package::new("clerk", "test/model".parse().expect("it fits"), "");
    PinnedPackage { package, contracts: Some(vec![pay()]) }
}

fn pay() -> ToolContract {
    ToolContract::new("pay".parse().expect("it fits"), "Pays.", json!({}))
}

fn policy() -> Hash {
    Hash::of(b"policy")
}

/// A call of `pay` that needs approval by a rule.
pub(super) fn call_needing_approval(ask: ApprovalRequirement) -> PreparedCall {
    let (rule, decision) = ("money".parse().expect("it fits"), PolicyDecision::Ask(ask));
    PreparedCall { ruling: Some(RecordedDecision::new(rule, policy(), decision)), ..call("pay") }
}

/// The key of a call's approval, by the call's index in its batch.
pub(super) fn approval_key(call: &PreparedCall, index: usize) -> ReplayKey {
    let form = approved_call_fingerprint(call, canonical_json::fingerprint(&pay()), policy());
    ReplayKey::turn(0).tools(0).child(index, call.model_id.as_str()).approval(&form)
}

/// An input for an agent with the tool `pay`.
pub(super) fn input_of_clerk(accept: AcceptRequest) -> AcceptRequest {
    let pinned = pinned();
    let accepted = TurnAccepted { package: Some(pinned.fingerprint()), ..accept.accepted };
    AcceptRequest { accepted, blobs: pinned.to_blobs(), ..accept }
}

/// A turn that waits for approval.
struct TurnAwaitingApproval<'a> {
    s: &'a StoreUnderTest<'a>,
    lease: Lease,
    key: ReplayKey,
}

fn requirement(names: &[&str], approvals: u32) -> ApprovalRequirement {
    let who = names.iter().map(|name| (*name).to_owned()).collect();
    ApprovalRequirement { who, approvals: NonZeroU32::new(approvals), ..ApprovalRequirement::default() }
}

async fn wait_for<'a>(
    s: &'a StoreUnderTest<'a>,
    call: PreparedCall,
) -> Result<TurnAwaitingApproval<'a>, Error> {
    let session = session_id();
    let accept = AcceptRequest { target: SessionTarget::New(session), ..s.driven(session, "pay") };
    let lease = s.begin_as(input_of_clerk(accept)).await?.lease;
    let key = approval_key(&call, 0);
    s.add(&lease, vec![asked(&[call])]).await?;
    s.park(&lease, vec![Wait { key: key.clone(), kind: WaitKind::Approval, deadline: None }]).await?;
    Ok(TurnAwaitingApproval { s, lease, key })
}

impl TurnAwaitingApproval<'_> {
    async fn vote(&self, by: &str, verdict: ApprovalVerdict) -> Result<VoteOutcome, Error> {
        self.vote_on(None, by, verdict).await
    }

    async fn vote_on(
        &self,
        edited: Option<&Value>,
        by: &str,
        verdict: ApprovalVerdict,
    ) -> Result<VoteOutcome, Error> {
        self.vote_at(NOW, edited, by, verdict).await
    }

    async fn vote_at(
        &self,
        now: Millis,
        edited: Option<&Value>,
        by: &str,
        verdict: ApprovalVerdict,
    ) -> Result<VoteOutcome, Error> {
        let (turn, key, approval) = (self.lease.turn, self.key.clone(), Approval::new(by, verdict));
        let edited = edited.map(canonical_json::fingerprint);
        self.s.vote(VoteRequest { turn, key, edited, approval, session_grants_max: 2, now }).await
    }

    async fn voters(&self) -> Result<Vec<String>, Error> {
        let votes = self.s.approval_progress(self.lease.turn, self.key.clone()).await?.votes;
        Ok(votes.into_iter().map(|vote| vote.by).collect())
    }
}

fn resolution_of(approval: &Approval) -> Resolution {
    Resolution::Ok(serde_json::to_value(approval).expect("an approval is JSON"))
}

fn decided(approval: &Approval, yours: bool) -> VoteOutcome {
    VoteOutcome::Decided(ResolveResult { first: resolution_of(approval), is_yours: yours })
}

fn counted(votes: usize, of: usize) -> VoteOutcome {
    VoteOutcome::MoreNeeded { votes, of }
}

pub(super) async fn last_required_vote_decides_the_approval(s: &StoreUnderTest<'_>) -> RuleResult {
    let question = wait_for(s, call_needing_approval(requirement(&["ann", "bob", "cleo"], 2))).await?;
    assert_eq!(question.vote("ann", ApprovalVerdict::Approve).await?, counted(1, 2));
    assert_eq!(s.claimable(Millis(u64::MAX)).await?, []);
    assert_eq!(question.voters().await?, ["ann"]);
    let word = Approval { with: vec!["ann".to_owned()], ..Approval::new("cleo", ApprovalVerdict::Approve) };
    assert_eq!(question.vote("cleo", ApprovalVerdict::Approve).await?, decided(&word, true));
    assert!(question.voters().await?.is_empty());
    assert_eq!(s.claimable(NOW).await?, [question.lease.turn]);
    assert_eq!(question.vote("bob", ApprovalVerdict::Approve).await?, decided(&word, false));
    Ok(())
}

pub(super) async fn each_person_has_one_vote(s: &StoreUnderTest<'_>) -> RuleResult {
    let question = wait_for(s, call_needing_approval(requirement(&["ann", "bob"], 2))).await?;
    for _ in 0..3 {
        assert_eq!(question.vote("ann", ApprovalVerdict::Approve).await?, counted(1, 2));
    }
    assert_eq!(question.voters().await?, ["ann"]);
    Ok(())
}

pub(super) async fn one_denial_denies_the_call(s: &StoreUnderTest<'_>) -> RuleResult {
    let question = wait_for(s, call_needing_approval(requirement(&["ann", "bob", "cleo"], 3))).await?;
    question.vote("ann", ApprovalVerdict::Approve).await?;
    let no = ApprovalVerdict::Deny { reason: "too much".to_owned() };
    let word = Approval::new("ann", no.clone());
    assert_eq!(question.vote("ann", no).await?, decided(&word, true));
    assert!(question.voters().await?.is_empty());
    Ok(())
}

pub(super) async fn edit_discards_earlier_votes_and_counts_as_one(s: &StoreUnderTest<'_>) -> RuleResult {
    let question = wait_for(s, call_needing_approval(requirement(&["ann", "bob", "cleo"], 2))).await?;
    question.vote("ann", ApprovalVerdict::Approve).await?;
    let less = json!({ "to": "you", "euros": 1 });
    let edit = ApprovalVerdict::Edit { arguments: less.clone() };
    assert_eq!(question.vote("bob", edit.clone()).await?, counted(1, 2));
    assert_eq!(question.voters().await?, ["bob"]);
    // A person who saw other arguments has not approved these.
    refused(question.vote("cleo", ApprovalVerdict::Approve).await, Kind::ApprovalNotFound);
    refused(
        question.vote_on(Some(&json!({ "euros": 2 })), "cleo", ApprovalVerdict::Approve).await,
        Kind::ApprovalNotFound,
    );
    assert_eq!(question.vote_on(Some(&less), "bob", ApprovalVerdict::Approve).await?, counted(1, 2));
    let word = Approval { with: vec!["bob".to_owned()], ..Approval::new("ann", edit) };
    assert_eq!(question.vote_on(Some(&less), "ann", ApprovalVerdict::Approve).await?, decided(&word, true));
    Ok(())
}

pub(super) async fn unlisted_person_cannot_vote(s: &StoreUnderTest<'_>) -> RuleResult {
    let question = wait_for(s, call_needing_approval(requirement(&["ann", "bob"], 2))).await?;
    for verdict in [ApprovalVerdict::Approve, ApprovalVerdict::Deny { reason: "no".to_owned() }] {
        refused(question.vote("eve", verdict).await, Kind::ApprovalForbidden);
    }
    assert!(question.voters().await?.is_empty());
    Ok(())
}

pub(super) async fn vote_without_open_approval_is_refused(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let key = approval_key(&call("pay"), 0);
    let question = TurnAwaitingApproval { s, lease, key };
    refused(question.vote("ann", ApprovalVerdict::Approve).await, Kind::ApprovalNotFound);
    let yes = resolution_of(&Approval::new("ann", ApprovalVerdict::Approve));
    let resolved = s.resolve(question.lease.turn, question.key, yes, NOW).await;
    refused(resolved, Kind::ApprovalNotFound);
    Ok(())
}

pub(super) async fn resolving_directly_cannot_bypass_the_votes(s: &StoreUnderTest<'_>) -> RuleResult {
    let question = wait_for(s, call_needing_approval(requirement(&["ann", "bob"], 2))).await?;
    for by in ["ann", "eve"] {
        let yes = resolution_of(&Approval::new(by, ApprovalVerdict::Approve));
        let resolved = s.resolve(question.lease.turn, question.key.clone(), yes, NOW).await;
        refused(resolved, Kind::ApprovalForbidden);
    }
    assert!(question.voters().await?.is_empty());
    Ok(())
}

pub(super) async fn expired_approval_drops_its_votes(s: &StoreUnderTest<'_>) -> RuleResult {
    let question = wait_for(s, call_needing_approval(requirement(&["ann", "bob"], 2))).await?;
    question.vote("ann", ApprovalVerdict::Approve).await?;
    s.cancel(question.lease.turn, "stop".to_owned(), NOW).await?;
    let lease = s.claim_only_turn(s.lease_request(), NOW).await?.lease;
    let effect = AwaitEvent { key: question.key.clone(), deadline: None };
    s.add(&lease, vec![performed(question.key.clone(), effect, Resolution::Timeout)]).await?;
    assert!(question.voters().await?.is_empty());
    let word = VoteOutcome::Decided(ResolveResult { first: Resolution::Timeout, is_yours: false });
    assert_eq!(question.vote("bob", ApprovalVerdict::Approve).await?, word);
    Ok(())
}

pub(super) async fn a_vote_after_the_deadline_is_too_late(s: &StoreUnderTest<'_>) -> RuleResult {
    let (before, deadline) = (NOW.after(Duration::from_secs(1)), NOW.after(Duration::from_secs(2)));
    let too_late = VoteOutcome::Decided(ResolveResult { first: Resolution::Timeout, is_yours: false });
    for by_key in [false, true] {
        let session = session_id();
        let accept = AcceptRequest { target: SessionTarget::New(session), ..s.driven(session, "pay") };
        let lease = s.begin_as(input_of_clerk(accept)).await?.lease;
        let call = call_needing_approval(requirement(&["ann", "bob"], 2));
        let key = approval_key(&call, 0);
        s.add(&lease, vec![asked(&[call])]).await?;
        let wait = Wait { key: key.clone(), kind: WaitKind::Approval, deadline: Some(deadline) };
        s.park(&lease, vec![wait]).await?;
        let question = TurnAwaitingApproval { s, lease, key };
        assert_eq!(question.vote_at(before, None, "ann", ApprovalVerdict::Approve).await?, counted(1, 2));
        if by_key {
            let yes = resolution_of(&Approval::new("bob", ApprovalVerdict::Approve));
            let (turn, key) = (question.lease.turn, question.key.clone());
            let resolved = s.resolve(turn, key, yes, deadline).await?;
            assert_eq!(resolved, ResolveResult { first: Resolution::Timeout, is_yours: false });
        }
        assert_eq!(question.vote_at(deadline, None, "bob", ApprovalVerdict::Approve).await?, too_late);
        // The expiry is recorded, so an earlier clock of the next voter does not matter.
        assert_eq!(question.vote_at(before, None, "bob", ApprovalVerdict::Approve).await?, too_late);
        assert!(question.voters().await?.is_empty());
    }
    Ok(())
}

pub(super) async fn only_call_approvals_accept_changed_arguments(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let (at, facts) = (ReplayKey::turn(0), json!({ "input": "hi" }));
    let ruling = RecordedDecision::new(
        "money".parse().expect("it fits"),
        policy(),
        PolicyDecision::Ask(ApprovalRequirement::default()),
    );
    let ruled = PolicyDecided::new(at.clone(), PolicyPoint::Turn, ruling, &facts, Labels::default());
    let key = at.approval(&approved_facts_fingerprint(PolicyPoint::Turn, &facts, policy()));
    s.add(&lease, vec![Fact::Ruled(ruled)]).await?;
    s.park(&lease, vec![Wait { key: key.clone(), kind: WaitKind::Approval, deadline: None }]).await?;
    let question = TurnAwaitingApproval { s, lease, key };
    let edit = ApprovalVerdict::Edit { arguments: json!({ "input": "ho" }) };
    refused(question.vote("ann", edit).await, Kind::ApprovalForbidden);
    let yes = Approval::new("ann", ApprovalVerdict::Approve);
    assert_eq!(question.vote("ann", ApprovalVerdict::Approve).await?, decided(&yes, true));
    Ok(())
}

pub(super) async fn session_approval_is_bound_to_its_requirement(s: &StoreUnderTest<'_>) -> RuleResult {
    let whole = Hash::of(b"rules and engine");
    let coded = |ask: ApprovalRequirement| {
        let (rule, decision) = ("coded".parse().expect("it fits"), PolicyDecision::Ask(ask));
        let ruling =
            RecordedDecision { whole: Some(whole), ..RecordedDecision::new(rule, policy(), decision) };
        PreparedCall { ruling: Some(ruling), ..call("pay") }
    };
    let session = session_id();
    let accept = AcceptRequest { target: SessionTarget::New(session), ..s.driven(session, "pay") };
    let lease = s.begin_as(input_of_clerk(accept)).await?.lease;
    let (small, large) = (coded(requirement(&["ann"], 1)), coded(requirement(&["cfo"], 1)));
    let definition = canonical_json::fingerprint(&pay());
    let form = approved_call_fingerprint(&small, definition, whole);
    let key = ReplayKey::turn(0).tools(0).child(0, small.model_id.as_str()).approval(&form);
    s.add(&lease, vec![asked(std::slice::from_ref(&small))]).await?;
    s.park(&lease, vec![Wait { key: key.clone(), kind: WaitKind::Approval, deadline: None }]).await?;
    TurnAwaitingApproval { s, lease, key }.vote("ann", ApprovalVerdict::ApproveForSession).await?;
    let grant = s.session_grants(session).await?.pop().expect("it was approved for the session");
    let covers = |call: &PreparedCall| {
        let ruling = call.ruling.as_ref().expect("it is asked about");
        grant.covers(GrantScope::by(call.tool.clone(), definition, ruling).fingerprint(), &Labels::default())
    };
    assert!(covers(&small));
    // The same rule of the engine asks another person about this call.
    assert!(!covers(&large));
    Ok(())
}

pub(super) async fn session_approval_needs_every_voter_to_choose_it(s: &StoreUnderTest<'_>) -> RuleResult {
    for (first, grants) in [(ApprovalVerdict::ApproveForSession, 1), (ApprovalVerdict::Approve, 0)] {
        let question = wait_for(s, call_needing_approval(requirement(&["ann", "bob"], 2))).await?;
        question.vote("ann", first.clone()).await?;
        assert_eq!(s.session_grants(question.lease.session).await?, []);
        let word = Approval { with: vec!["ann".to_owned()], ..Approval::new("bob", first) };
        assert_eq!(question.vote("bob", ApprovalVerdict::ApproveForSession).await?, decided(&word, true));
        let found = s.session_grants(question.lease.session).await?;
        assert_eq!(found.len(), grants);
        for SessionGrant { session, tool, rule, by, at, .. } in found {
            assert_eq!((session, tool.as_str(), rule.as_str()), (question.lease.session, "pay", "money"));
            assert_eq!((by, at), (vec!["ann".to_owned(), "bob".to_owned()], NOW));
        }
    }
    assert_eq!(s.grants(ALL).await?.len(), 1);
    Ok(())
}

pub(super) async fn each_time_requirement_rejects_session_approval(s: &StoreUnderTest<'_>) -> RuleResult {
    let question = wait_for(
        s,
        call_needing_approval(ApprovalRequirement { each_time: true, ..ApprovalRequirement::default() }),
    )
    .await?;
    refused(question.vote("ann", ApprovalVerdict::ApproveForSession).await, Kind::ApprovalForbidden);
    assert_eq!(s.grants(ALL).await?, []);
    Ok(())
}

pub(super) async fn session_approval_excludes_a_redefined_tool(s: &StoreUnderTest<'_>) -> RuleResult {
    let held = call_needing_approval(ApprovalRequirement::default());
    let session = session_id();
    let accept = AcceptRequest { target: SessionTarget::New(session), ..s.driven(session, "pay") };
    let lease = s.begin_as(input_of_clerk(accept)).await?.lease;
    let form = approved_call_fingerprint(&held, Hash::of(b"another definition"), policy());
    let key = ReplayKey::turn(0).tools(0).child(0, held.model_id.as_str()).approval(&form);
    s.add(&lease, vec![asked(&[held])]).await?;
    let question = TurnAwaitingApproval { s, lease, key };
    refused(question.vote("ann", ApprovalVerdict::ApproveForSession).await, Kind::ApprovalForbidden);
    assert!(matches!(question.vote("ann", ApprovalVerdict::Approve).await?, VoteOutcome::Decided(_)));
    Ok(())
}

/// Creates a session in which `pay` is approved for the rest of it. Returns what claims under that approval contain.
async fn granted<'a>(s: &'a StoreUnderTest<'a>) -> Result<(TurnAwaitingApproval<'a>, AppliedGrant), Error> {
    let question = wait_for(s, call_needing_approval(ApprovalRequirement::default())).await?;
    question.vote("ann", ApprovalVerdict::ApproveForSession).await?;
    let found = s.session_grants(question.lease.session).await?.pop();
    let SessionGrant { id, by, at, covers_form: form, .. } = found.expect("it was approved for the session");
    Ok((question, AppliedGrant { id, by, at, form }))
}

fn call_under_grant(granted: AppliedGrant) -> PreparedCall {
    let held = call_needing_approval(ApprovalRequirement::default());
    let ruling =
        held.ruling.clone().map(|ruling| RecordedDecision { grant: Some(Box::new(granted)), ..ruling });
    PreparedCall { ruling, ..held }
}

pub(super) async fn claim_requires_a_valid_approval_of_its_session(s: &StoreUnderTest<'_>) -> RuleResult {
    let (question, grant) = granted(s).await?;
    let other = s.begin("hi").await?.lease;
    refused(s.add(&other, vec![asked(&[call_under_grant(grant.clone())])]).await, Kind::TurnRaced);
    let forged = AppliedGrant { form: Hash::of(b"another form"), ..grant.clone() };
    let lease = s.claim_only_turn(s.lease_request(), NOW).await?.lease;
    assert_eq!(lease.session, question.lease.session);
    refused(s.add(&lease, vec![asked(&[call_under_grant(forged)])]).await, Kind::TurnRaced);
    s.add(&lease, vec![asked(&[call_under_grant(grant.clone())])]).await?;
    let revoked = s.revoke_grant(grant.id, NOW).await?;
    assert_eq!((revoked.id, revoked.session), (grant.id, question.lease.session));
    let before = s.snapshot().await?;
    refused(s.add(&lease, vec![asked(&[call_under_grant(grant.clone())])]).await, Kind::TurnRaced);
    assert_eq!(s.snapshot().await?, before, "a claim that is refused writes nothing");
    refused(s.revoke_grant(grant.id, NOW).await, Kind::GrantNotFound);
    refused(s.revoke_grant(GrantId::from_u128(1), NOW).await, Kind::GrantNotFound);
    Ok(())
}

pub(super) async fn session_approval_excludes_calls_with_more_labels(s: &StoreUnderTest<'_>) -> RuleResult {
    let labels = |tools: &[&str]| -> Labels {
        tools.iter().map(|tool| UntrustedSource::Tool(tool.parse().expect("it fits"))).collect()
    };
    let held = PreparedCall {
        labels: labels(&["web", "mail"]),
        ..call_needing_approval(ApprovalRequirement::default())
    };
    let question = wait_for(s, held.clone()).await?;
    question.vote("ann", ApprovalVerdict::ApproveForSession).await?;
    let grant =
        s.session_grants(question.lease.session).await?.pop().expect("it was approved for the session");
    let (tool, definition, policy) = (held.tool, canonical_json::fingerprint(&pay()), policy());
    let form = GrantScope { tool, definition, rule: grant.rule.clone(), policy, ask: None }.fingerprint();
    for (tools, covered) in
        [(&[][..], true), (&["web"], true), (&["web", "mail"], true), (&["web", "fs"], false)]
    {
        assert_eq!(grant.covers(form, &labels(tools)), covered, "{tools:?}");
    }
    assert!(!grant.covers(Hash::of(b"another form"), &Labels::default()));
    Ok(())
}

pub(super) async fn session_approvals_are_limited(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = session_id();
    let accept = AcceptRequest { target: SessionTarget::New(session), ..s.driven(session, "pay") };
    let lease = s.begin_as(input_of_clerk(accept)).await?.lease;
    let labelled = |tool: &str| PreparedCall {
        labels: [UntrustedSource::Tool(tool.parse().expect("it fits"))].into_iter().collect(),
        ..call_needing_approval(ApprovalRequirement::default())
    };
    let calls = [labelled("a"), labelled("b"), labelled("c")];
    s.add(&lease, vec![asked(&calls)]).await?;
    for (index, (held, fits)) in calls.iter().zip([true, true, false]).enumerate() {
        let question = TurnAwaitingApproval { s, lease, key: approval_key(held, index) };
        let said = question.vote("ann", ApprovalVerdict::ApproveForSession).await;
        match said {
            Ok(_) => assert!(fits),
            Err(error) => assert_eq!((error.kind(), fits), (Kind::LimitExceeded, false)),
        }
    }
    assert_eq!(s.session_grants(session).await?.len(), 2);
    Ok(())
}

pub(super) async fn deleting_a_session_removes_its_approvals(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = session_id();
    let accept = AcceptRequest { target: SessionTarget::New(session), ..input(session, "pay") };
    let lease = s
        .begin_as(input_of_clerk(AcceptRequest { lease_request: Some(s.lease_request()), ..accept }))
        .await?
        .lease;
    let (held, open) = (
        call_needing_approval(ApprovalRequirement::default()),
        call_needing_approval(requirement(&["ann", "bob"], 2)),
    );
    let keys = [approval_key(&held, 0), approval_key(&open, 1)];
    let claims = s.ask(&lease, &[held, open]).await?;
    for (key, verdict) in keys.into_iter().zip([ApprovalVerdict::ApproveForSession, ApprovalVerdict::Approve])
    {
        TurnAwaitingApproval { s, lease, key }.vote("ann", verdict).await?;
    }
    let facts = claims.into_iter().map(super::store_under_test::settled).collect();
    s.write(&lease, facts, TurnTransition::End(super::store_under_test::answer("bye"))).await?;
    s.delete(session, NOW).await?;
    assert_eq!(s.grants(ALL).await?, []);
    Ok(())
}
