//! Approval requests: who decides them, and what is approved for the rest of a session.
use super::Rule;
use super::scene::{ALL, NOW, Scene, asked, call, input, performed, refused, session_id};
use outlast_ports::store::{Accept, Lease, Resolved, Target, Then};
use outlast_ports::votes::{Ballot, Grant, Voted};
use outlast_vocab::approval::{Covered, Granted};
use outlast_vocab::effect::AwaitEvent;
use outlast_vocab::id::GrantId;
use outlast_vocab::label::{Labels, Source};
use outlast_vocab::package::{Package, Pinned};
use outlast_vocab::policy::{Approval, Ask, Decision, Point, Ruling, Verdict, approved_facts, approved_form};
use outlast_vocab::record::{Fact, Ruled};
use outlast_vocab::tool::{Contract, PreparedCall};
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Hash, Kind, Millis, ReplayKey, canon};
use serde_json::{Value, json};
use std::num::NonZeroU32;
use std::time::Duration;

/// The pinned package of a turn with a tool `pay`.
pub(super) fn pinned() -> Pinned {
    let package = Package::new("clerk", "test/model".parse().expect("it fits"), "");
    Pinned { package, contracts: Some(vec![pay()]) }
}

fn pay() -> Contract {
    Contract::new("pay".parse().expect("it fits"), "Pays.", json!({}))
}

fn policy() -> Hash {
    Hash::of(b"policy")
}

/// A call of `pay` that needs approval by a rule.
pub(super) fn asking(ask: Ask) -> PreparedCall {
    let (rule, decision) = ("money".parse().expect("it fits"), Decision::Ask(ask));
    PreparedCall { ruling: Some(Ruling::new(rule, policy(), decision)), ..call("pay") }
}

/// The key of a call's approval, by the call's index in its batch.
pub(super) fn place_of(call: &PreparedCall, index: usize) -> ReplayKey {
    let form = approved_form(call, canon::fingerprint(&pay()), policy());
    ReplayKey::turn(0).tools(0).child(index, call.model_id.as_str()).approval(&form)
}

/// An input for an agent with the tool `pay`.
pub(super) fn input_of_clerk(accept: Accept) -> Accept {
    let pinned = pinned();
    Accept { package: Some(pinned.fingerprint()), blobs: pinned.to_blobs(), ..accept }
}

/// A turn that waits for approval.
struct Asked<'a> {
    s: &'a Scene<'a>,
    lease: Lease,
    key: ReplayKey,
}

fn of(names: &[&str], approvals: u32) -> Ask {
    let who = names.iter().map(|name| (*name).to_owned()).collect();
    Ask { who, approvals: NonZeroU32::new(approvals), ..Ask::default() }
}

async fn wait_for<'a>(s: &'a Scene<'a>, call: PreparedCall) -> Result<Asked<'a>, Error> {
    let session = session_id();
    let accept = Accept { target: Target::New(session), ..s.driven(session, "pay") };
    let lease = s.begin_as(input_of_clerk(accept)).await?.lease;
    let key = place_of(&call, 0);
    s.add(&lease, vec![asked(&[call])]).await?;
    s.park(&lease, vec![Wait { key: key.clone(), kind: WaitKind::Approval, deadline: None }]).await?;
    Ok(Asked { s, lease, key })
}

impl Asked<'_> {
    async fn say(&self, by: &str, verdict: Verdict) -> Result<Voted, Error> {
        self.say_to(None, by, verdict).await
    }

    async fn say_to(&self, edited: Option<&Value>, by: &str, verdict: Verdict) -> Result<Voted, Error> {
        self.say_at(NOW, edited, by, verdict).await
    }

    async fn say_at(
        &self,
        now: Millis,
        edited: Option<&Value>,
        by: &str,
        verdict: Verdict,
    ) -> Result<Voted, Error> {
        let (turn, key, approval) = (self.lease.turn, self.key.clone(), Approval::new(by, verdict));
        let edited = edited.map(canon::fingerprint);
        self.s.vote(Ballot { turn, key, edited, approval, grants_most: 2, now }).await
    }

    async fn voters(&self) -> Result<Vec<String>, Error> {
        let votes = self.s.standing(self.lease.turn, self.key.clone()).await?.votes;
        Ok(votes.into_iter().map(|vote| vote.by).collect())
    }
}

fn word(approval: &Approval) -> Resolution {
    Resolution::Ok(serde_json::to_value(approval).expect("an approval is JSON"))
}

fn decided(approval: &Approval, yours: bool) -> Voted {
    Voted::Decided(Resolved { first: word(approval), yours })
}

fn counted(votes: usize, of: usize) -> Voted {
    Voted::Counted { votes, of }
}

pub(super) async fn a_question_takes_as_many_votes_as_it_says_and_the_last_one_decides(
    s: &Scene<'_>,
) -> Rule {
    let question = wait_for(s, asking(of(&["ann", "bob", "cleo"], 2))).await?;
    assert_eq!(question.say("ann", Verdict::Approve).await?, counted(1, 2));
    assert_eq!(s.claimable(Millis(u64::MAX)).await?, []);
    assert_eq!(question.voters().await?, ["ann"]);
    let word = Approval { with: vec!["ann".to_owned()], ..Approval::new("cleo", Verdict::Approve) };
    assert_eq!(question.say("cleo", Verdict::Approve).await?, decided(&word, true));
    assert!(question.voters().await?.is_empty());
    assert_eq!(s.claimable(NOW).await?, [question.lease.turn]);
    assert_eq!(question.say("bob", Verdict::Approve).await?, decided(&word, false));
    Ok(())
}

pub(super) async fn each_person_has_one_vote(s: &Scene<'_>) -> Rule {
    let question = wait_for(s, asking(of(&["ann", "bob"], 2))).await?;
    for _ in 0..3 {
        assert_eq!(question.say("ann", Verdict::Approve).await?, counted(1, 2));
    }
    assert_eq!(question.voters().await?, ["ann"]);
    Ok(())
}

pub(super) async fn one_denial_denies(s: &Scene<'_>) -> Rule {
    let question = wait_for(s, asking(of(&["ann", "bob", "cleo"], 3))).await?;
    question.say("ann", Verdict::Approve).await?;
    let no = Verdict::Deny { reason: "too much".to_owned() };
    let word = Approval::new("ann", no.clone());
    assert_eq!(question.say("ann", no).await?, decided(&word, true));
    assert!(question.voters().await?.is_empty());
    Ok(())
}

pub(super) async fn an_edit_voids_the_votes_before_it_and_is_the_first_for_what_it_says(
    s: &Scene<'_>,
) -> Rule {
    let question = wait_for(s, asking(of(&["ann", "bob", "cleo"], 2))).await?;
    question.say("ann", Verdict::Approve).await?;
    let less = json!({ "to": "you", "euros": 1 });
    let edit = Verdict::Edit { arguments: less.clone() };
    assert_eq!(question.say("bob", edit.clone()).await?, counted(1, 2));
    assert_eq!(question.voters().await?, ["bob"]);
    // A person who saw other arguments has not approved these.
    refused(question.say("cleo", Verdict::Approve).await, Kind::ApprovalNotFound);
    refused(
        question.say_to(Some(&json!({ "euros": 2 })), "cleo", Verdict::Approve).await,
        Kind::ApprovalNotFound,
    );
    assert_eq!(question.say_to(Some(&less), "bob", Verdict::Approve).await?, counted(1, 2));
    let word = Approval { with: vec!["bob".to_owned()], ..Approval::new("ann", edit) };
    assert_eq!(question.say_to(Some(&less), "ann", Verdict::Approve).await?, decided(&word, true));
    Ok(())
}

pub(super) async fn who_is_not_named_has_no_vote(s: &Scene<'_>) -> Rule {
    let question = wait_for(s, asking(of(&["ann", "bob"], 2))).await?;
    for verdict in [Verdict::Approve, Verdict::Deny { reason: "no".to_owned() }] {
        refused(question.say("eve", verdict).await, Kind::ApprovalForbidden);
    }
    assert!(question.voters().await?.is_empty());
    Ok(())
}

pub(super) async fn nobody_approves_what_nobody_asks_about(s: &Scene<'_>) -> Rule {
    let lease = s.begin("hi").await?.lease;
    let key = place_of(&call("pay"), 0);
    let question = Asked { s, lease, key };
    refused(question.say("ann", Verdict::Approve).await, Kind::ApprovalNotFound);
    let yes = word(&Approval::new("ann", Verdict::Approve));
    let resolved = s.resolve(question.lease.turn, question.key, yes, NOW).await;
    refused(resolved, Kind::ApprovalNotFound);
    Ok(())
}

pub(super) async fn a_completion_key_is_no_way_around_the_votes(s: &Scene<'_>) -> Rule {
    let question = wait_for(s, asking(of(&["ann", "bob"], 2))).await?;
    for by in ["ann", "eve"] {
        let yes = word(&Approval::new(by, Verdict::Approve));
        let resolved = s.resolve(question.lease.turn, question.key.clone(), yes, NOW).await;
        refused(resolved, Kind::ApprovalForbidden);
    }
    assert!(question.voters().await?.is_empty());
    Ok(())
}

pub(super) async fn votes_on_a_question_whose_time_is_over_are_gone(s: &Scene<'_>) -> Rule {
    let question = wait_for(s, asking(of(&["ann", "bob"], 2))).await?;
    question.say("ann", Verdict::Approve).await?;
    s.cancel(question.lease.turn, "stop".to_owned(), NOW).await?;
    let lease = s.take(s.taker(), NOW).await?.lease;
    let effect = AwaitEvent { key: question.key.clone(), deadline: None };
    s.add(&lease, vec![performed(question.key.clone(), effect, Resolution::Timeout)]).await?;
    assert!(question.voters().await?.is_empty());
    let word = Voted::Decided(Resolved { first: Resolution::Timeout, yours: false });
    assert_eq!(question.say("bob", Verdict::Approve).await?, word);
    Ok(())
}

pub(super) async fn a_vote_after_the_deadline_is_too_late(s: &Scene<'_>) -> Rule {
    let (before, deadline) = (NOW.after(Duration::from_secs(1)), NOW.after(Duration::from_secs(2)));
    let too_late = Voted::Decided(Resolved { first: Resolution::Timeout, yours: false });
    for by_key in [false, true] {
        let session = session_id();
        let accept = Accept { target: Target::New(session), ..s.driven(session, "pay") };
        let lease = s.begin_as(input_of_clerk(accept)).await?.lease;
        let call = asking(of(&["ann", "bob"], 2));
        let key = place_of(&call, 0);
        s.add(&lease, vec![asked(&[call])]).await?;
        let wait = Wait { key: key.clone(), kind: WaitKind::Approval, deadline: Some(deadline) };
        s.park(&lease, vec![wait]).await?;
        let question = Asked { s, lease, key };
        assert_eq!(question.say_at(before, None, "ann", Verdict::Approve).await?, counted(1, 2));
        if by_key {
            let yes = word(&Approval::new("bob", Verdict::Approve));
            let (turn, key) = (question.lease.turn, question.key.clone());
            let resolved = s.resolve(turn, key, yes, deadline).await?;
            assert_eq!(resolved, Resolved { first: Resolution::Timeout, yours: false });
        }
        assert_eq!(question.say_at(deadline, None, "bob", Verdict::Approve).await?, too_late);
        // The expiry is recorded, so an earlier clock of the next voter does not matter.
        assert_eq!(question.say_at(before, None, "bob", Verdict::Approve).await?, too_late);
        assert!(question.voters().await?.is_empty());
    }
    Ok(())
}

pub(super) async fn what_is_no_call_has_no_arguments_to_change(s: &Scene<'_>) -> Rule {
    let lease = s.begin("hi").await?.lease;
    let (at, facts) = (ReplayKey::turn(0), json!({ "input": "hi" }));
    let ruling = Ruling::new("money".parse().expect("it fits"), policy(), Decision::Ask(Ask::default()));
    let ruled = Ruled::new(at.clone(), Point::Turn, ruling, &facts, Labels::default());
    let key = at.approval(&approved_facts(Point::Turn, &facts, policy()));
    s.add(&lease, vec![Fact::Ruled(ruled)]).await?;
    s.park(&lease, vec![Wait { key: key.clone(), kind: WaitKind::Approval, deadline: None }]).await?;
    let question = Asked { s, lease, key };
    let edit = Verdict::Edit { arguments: json!({ "input": "ho" }) };
    refused(question.say("ann", edit).await, Kind::ApprovalForbidden);
    let yes = Approval::new("ann", Verdict::Approve);
    assert_eq!(question.say("ann", Verdict::Approve).await?, decided(&yes, true));
    Ok(())
}

pub(super) async fn what_an_engine_asks_is_approved_for_the_session_as_it_was_asked(s: &Scene<'_>) -> Rule {
    let whole = Hash::of(b"rules and engine");
    let coded = |ask: Ask| {
        let (rule, decision) = ("coded".parse().expect("it fits"), Decision::Ask(ask));
        let ruling = Ruling { whole: Some(whole), ..Ruling::new(rule, policy(), decision) };
        PreparedCall { ruling: Some(ruling), ..call("pay") }
    };
    let session = session_id();
    let accept = Accept { target: Target::New(session), ..s.driven(session, "pay") };
    let lease = s.begin_as(input_of_clerk(accept)).await?.lease;
    let (small, large) = (coded(of(&["ann"], 1)), coded(of(&["cfo"], 1)));
    let definition = canon::fingerprint(&pay());
    let form = approved_form(&small, definition, whole);
    let key = ReplayKey::turn(0).tools(0).child(0, small.model_id.as_str()).approval(&form);
    s.add(&lease, vec![asked(std::slice::from_ref(&small))]).await?;
    s.park(&lease, vec![Wait { key: key.clone(), kind: WaitKind::Approval, deadline: None }]).await?;
    Asked { s, lease, key }.say("ann", Verdict::ApproveForSession).await?;
    let grant = s.grants_in(session).await?.pop().expect("it was approved for the session");
    let covers = |call: &PreparedCall| {
        let ruling = call.ruling.as_ref().expect("it is asked about");
        grant.covers(Covered::by(call.tool.clone(), definition, ruling).form(), &Labels::default())
    };
    assert!(covers(&small));
    // The same rule of the engine asks another person about this call.
    assert!(!covers(&large));
    Ok(())
}

pub(super) async fn an_approval_for_the_session_takes_the_votes_of_all(s: &Scene<'_>) -> Rule {
    for (first, grants) in [(Verdict::ApproveForSession, 1), (Verdict::Approve, 0)] {
        let question = wait_for(s, asking(of(&["ann", "bob"], 2))).await?;
        question.say("ann", first.clone()).await?;
        assert_eq!(s.grants_in(question.lease.session).await?, []);
        let word = Approval { with: vec!["ann".to_owned()], ..Approval::new("bob", first) };
        assert_eq!(question.say("bob", Verdict::ApproveForSession).await?, decided(&word, true));
        let found = s.grants_in(question.lease.session).await?;
        assert_eq!(found.len(), grants);
        for Grant { session, tool, rule, by, at, .. } in found {
            assert_eq!((session, tool.as_str(), rule.as_str()), (question.lease.session, "pay", "money"));
            assert_eq!((by, at), (vec!["ann".to_owned(), "bob".to_owned()], NOW));
        }
    }
    assert_eq!(s.grants(ALL).await?.len(), 1);
    Ok(())
}

pub(super) async fn what_is_asked_each_time_is_not_approved_for_the_session(s: &Scene<'_>) -> Rule {
    let question = wait_for(s, asking(Ask { each_time: true, ..Ask::default() })).await?;
    refused(question.say("ann", Verdict::ApproveForSession).await, Kind::ApprovalForbidden);
    assert_eq!(s.grants(ALL).await?, []);
    Ok(())
}

pub(super) async fn a_tool_that_is_defined_anew_is_not_approved_for_the_session(s: &Scene<'_>) -> Rule {
    let held = asking(Ask::default());
    let session = session_id();
    let accept = Accept { target: Target::New(session), ..s.driven(session, "pay") };
    let lease = s.begin_as(input_of_clerk(accept)).await?.lease;
    let form = approved_form(&held, Hash::of(b"another definition"), policy());
    let key = ReplayKey::turn(0).tools(0).child(0, held.model_id.as_str()).approval(&form);
    s.add(&lease, vec![asked(&[held])]).await?;
    let question = Asked { s, lease, key };
    refused(question.say("ann", Verdict::ApproveForSession).await, Kind::ApprovalForbidden);
    assert!(matches!(question.say("ann", Verdict::Approve).await?, Voted::Decided(_)));
    Ok(())
}

/// Creates a session in which `pay` is approved for the rest of it. Returns what claims under that approval contain.
async fn granted<'a>(s: &'a Scene<'a>) -> Result<(Asked<'a>, Granted), Error> {
    let question = wait_for(s, asking(Ask::default())).await?;
    question.say("ann", Verdict::ApproveForSession).await?;
    let found = s.grants_in(question.lease.session).await?.pop();
    let Grant { id, by, at, form, .. } = found.expect("it was approved for the session");
    Ok((question, Granted { id, by, at, form }))
}

fn under(granted: Granted) -> PreparedCall {
    let held = asking(Ask::default());
    let ruling = held.ruling.clone().map(|ruling| Ruling { grant: Some(Box::new(granted)), ..ruling });
    PreparedCall { ruling, ..held }
}

pub(super) async fn a_call_is_claimed_under_an_approval_of_its_own_session_that_still_counts(
    s: &Scene<'_>,
) -> Rule {
    let (question, grant) = granted(s).await?;
    let other = s.begin("hi").await?.lease;
    refused(s.add(&other, vec![asked(&[under(grant.clone())])]).await, Kind::TurnRaced);
    let forged = Granted { form: Hash::of(b"another form"), ..grant.clone() };
    let lease = s.take(s.taker(), NOW).await?.lease;
    assert_eq!(lease.session, question.lease.session);
    refused(s.add(&lease, vec![asked(&[under(forged)])]).await, Kind::TurnRaced);
    s.add(&lease, vec![asked(&[under(grant.clone())])]).await?;
    let revoked = s.revoke_grant(grant.id, NOW).await?;
    assert_eq!((revoked.id, revoked.session), (grant.id, question.lease.session));
    let before = s.picture().await?;
    refused(s.add(&lease, vec![asked(&[under(grant.clone())])]).await, Kind::TurnRaced);
    assert_eq!(s.picture().await?, before, "a claim that is refused writes nothing");
    refused(s.revoke_grant(grant.id, NOW).await, Kind::GrantNotFound);
    refused(s.revoke_grant(GrantId::from_u128(1), NOW).await, Kind::GrantNotFound);
    Ok(())
}

pub(super) async fn an_approval_for_the_session_covers_no_call_with_more_labels(s: &Scene<'_>) -> Rule {
    let labels = |tools: &[&str]| -> Labels {
        tools.iter().map(|tool| Source::Tool(tool.parse().expect("it fits"))).collect()
    };
    let held = PreparedCall { labels: labels(&["web", "mail"]), ..asking(Ask::default()) };
    let question = wait_for(s, held.clone()).await?;
    question.say("ann", Verdict::ApproveForSession).await?;
    let grant = s.grants_in(question.lease.session).await?.pop().expect("it was approved for the session");
    let (tool, definition, policy) = (held.tool, canon::fingerprint(&pay()), policy());
    let form = Covered { tool, definition, rule: grant.rule.clone(), policy, ask: None }.form();
    for (tools, covered) in
        [(&[][..], true), (&["web"], true), (&["web", "mail"], true), (&["web", "fs"], false)]
    {
        assert_eq!(grant.covers(form, &labels(tools)), covered, "{tools:?}");
    }
    assert!(!grant.covers(Hash::of(b"another form"), &Labels::default()));
    Ok(())
}

pub(super) async fn a_session_has_no_more_approvals_than_the_limit(s: &Scene<'_>) -> Rule {
    let session = session_id();
    let accept = Accept { target: Target::New(session), ..s.driven(session, "pay") };
    let lease = s.begin_as(input_of_clerk(accept)).await?.lease;
    let labelled = |tool: &str| PreparedCall {
        labels: [Source::Tool(tool.parse().expect("it fits"))].into_iter().collect(),
        ..asking(Ask::default())
    };
    let calls = [labelled("a"), labelled("b"), labelled("c")];
    s.add(&lease, vec![asked(&calls)]).await?;
    for (index, (held, fits)) in calls.iter().zip([true, true, false]).enumerate() {
        let question = Asked { s, lease: lease.clone(), key: place_of(held, index) };
        let said = question.say("ann", Verdict::ApproveForSession).await;
        match said {
            Ok(_) => assert!(fits),
            Err(error) => assert_eq!((error.kind(), fits), (Kind::LimitExceeded, false)),
        }
    }
    assert_eq!(s.grants_in(session).await?.len(), 2);
    Ok(())
}

pub(super) async fn what_is_approved_for_a_session_goes_with_it(s: &Scene<'_>) -> Rule {
    let session = session_id();
    let accept = Accept { target: Target::New(session), ..input(session, "pay") };
    let lease = s.begin_as(input_of_clerk(Accept { taker: Some(s.taker()), ..accept })).await?.lease;
    let (held, open) = (asking(Ask::default()), asking(of(&["ann", "bob"], 2)));
    let keys = [place_of(&held, 0), place_of(&open, 1)];
    let claims = s.ask(&lease, &[held, open]).await?;
    for (key, verdict) in keys.into_iter().zip([Verdict::ApproveForSession, Verdict::Approve]) {
        Asked { s, lease: lease.clone(), key }.say("ann", verdict).await?;
    }
    let facts = claims.into_iter().map(super::scene::settled).collect();
    s.write(&lease, facts, Then::End(super::scene::answer("bye"))).await?;
    s.delete(session, NOW).await?;
    assert_eq!(s.grants(ALL).await?, []);
    Ok(())
}
