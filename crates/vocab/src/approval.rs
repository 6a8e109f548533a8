//! Approval questions: who must approve a call, and what an approval for the rest of a session covers.
use crate::id::{ApprovalId, GrantId, SessionId, TurnId};
use crate::key::ReplayKey;
use crate::label::Labels;
use crate::message::{RuleId, ToolName};
use crate::policy::{ApprovalRequirement, RecordedDecision};
use crate::{Hash, Millis, canonical_json};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

impl ApprovalRequirement {
    /// Returns the number of approvals that are needed.
    pub fn approvals_needed(&self) -> usize {
        self.approvals.map_or(1, NonZeroU32::get) as usize
    }

    /// Returns the people who may answer. An empty list means everyone.
    pub fn approvers(&self, given: SentNotices) -> Vec<&str> {
        let others = self.escalate.iter().filter(|_| given.escalated).flat_map(|escalation| &escalation.to);
        self.who.iter().chain(others).map(String::as_str).collect()
    }

    /// Returns the time of the next notice, for a question asked at `since` after the notices in `given`.
    pub fn next_notice(&self, since: Millis, given: SentNotices, reminders_most: u32) -> Option<Millis> {
        let reminder = self.remind.filter(|_| given.reminded < reminders_most);
        let reminder =
            reminder.map(|remind| since.after(remind.saturating_mul(given.reminded.saturating_add(1))));
        [self.escalates_at(since, given), reminder].into_iter().flatten().min()
    }

    /// Returns the time of the escalation, if it has not happened yet.
    pub fn escalates_at(&self, since: Millis, given: SentNotices) -> Option<Millis> {
        let escalation = self.escalate.as_ref().filter(|_| !given.escalated);
        escalation.map(|escalation| since.after(escalation.after))
    }

    /// Returns the number of reminders due by now.
    pub fn reminders_due(&self, since: Millis, now: Millis, reminders_most: u32) -> u32 {
        let Some(remind) = self.remind else { return 0 };
        let due = since.until(now).as_millis().checked_div(remind.as_millis()).unwrap_or(u128::MAX);
        u32::try_from(due).unwrap_or(u32::MAX).min(reminders_most)
    }

    /// Joins two questions into one that satisfies both. Only people whom both accept may answer, the higher
    /// number of approvals is needed, and the shorter timeout applies. The error says why no person could
    /// answer.
    pub fn join(&self, other: &Self) -> Result<Self, String> {
        let expires = sooner(self.expires, other.expires);
        let remind = sooner(self.remind, other.remind);
        let names: BTreeSet<&String> = [self, other].into_iter().flat_map(Self::names).collect();
        let approvers: Vec<(&String, Duration)> = names
            .iter()
            .filter_map(|name| {
                Some((*name, self.may_approve_after(name)?.max(other.may_approve_after(name)?)))
            })
            .collect();
        let (at_once, later): (Vec<_>, Vec<_>) =
            approvers.into_iter().partition(|(_, after)| after.is_zero());
        if at_once.is_empty() && !names.is_empty() {
            let (one, another) = (self.who.join(", "), other.who.join(", "));
            return Err(format!(
                "one rule requires an approval by {one} and another by {another}, but no one is both"
            ));
        }
        let who_of = |people: Vec<(&String, Duration)>| -> Vec<String> {
            people.into_iter().map(|(name, _)| name.clone()).collect()
        };
        let after = later.iter().map(|(_, after)| *after).max();
        let escalate = after.filter(|after| expires.is_none_or(|expires| *after < expires));
        let joined = Self {
            who: who_of(at_once),
            expires,
            approvals: self.approvals.max(other.approvals),
            each_time: self.each_time || other.each_time,
            remind: remind.filter(|remind| expires.is_none_or(|expires| *remind < expires)),
            escalate: escalate.map(|after| Box::new(Escalation { after, to: who_of(later) })),
            reason: match (&self.reason, &other.reason) {
                (Some(one), Some(another)) if one != another => Some(format!("{one}; {another}").into()),
                (one, another) => one.as_ref().or(another.as_ref()).cloned(),
            },
        };
        joined.check().map(|()| joined)
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        self.who.iter().chain(self.escalate.iter().flat_map(|escalation| &escalation.to))
    }

    /// Returns the time after which a person may approve, or `None` if they may not.
    fn may_approve_after(&self, name: &String) -> Option<Duration> {
        if self.who.is_empty() || self.who.contains(name) {
            return Some(Duration::ZERO);
        }
        self.escalate.as_ref().filter(|escalation| escalation.to.contains(name)).map(|later| later.after)
    }

    /// Returns an error that describes a contradiction in the question, for its author.
    pub fn check(&self) -> Result<(), String> {
        let (needed, named) = (self.approvals_needed(), self.who.iter().collect::<BTreeSet<_>>().len());
        if needed > 1 && named < needed {
            return Err(format!(
                "`approvals` is {needed}, so `who` must name at least {needed} people, and it names {named}"
            ));
        }
        self.check_reminders()?;
        self.escalate.as_deref().map_or(Ok(()), |escalation| self.check_escalation(escalation))
    }

    fn check_reminders(&self) -> Result<(), String> {
        match (self.remind, self.expires) {
            (Some(Duration::ZERO), _) => Err("`remind_s` must be more than 0".to_owned()),
            (Some(remind), Some(expires)) if remind >= expires => Err(format!(
                "`remind_s` is {}, but an unanswered request is denied after {} (`expires_s`); it must be less",
                remind.as_secs(),
                expires.as_secs()
            )),
            _ => Ok(()),
        }
    }

    fn check_escalation(&self, escalation: &Escalation) -> Result<(), String> {
        let Escalation { after, to } = escalation;
        if self.who.is_empty() {
            return Err("`escalate_to` has no effect if anyone may approve; set `who`".to_owned());
        }
        if to.iter().all(|name| self.who.contains(name)) {
            return Err("`escalate_to` must name someone who is not in `who`".to_owned());
        }
        match self.expires {
            Some(expires) if *after >= expires => Err(format!(
                "`escalate_s` is {}, but an unanswered request is denied after {} (`expires_s`); it must be less",
                after.as_secs(),
                expires.as_secs()
            )),
            _ => Ok(()),
        }
    }
}

fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// Returns the id of the question behind a wait. The wait names the form that is approved, so another form is
/// another question.
pub fn approval_id(turn: TurnId, wait: &ReplayKey) -> ApprovalId {
    ApprovalId::derived(&[&turn.to_u128().to_be_bytes(), wait.as_str().as_bytes()])
}

/// Additional approvers after a timeout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Escalation {
    /// The timeout.
    pub after: Duration,
    /// The additional approvers.
    pub to: Vec<String>,
}

/// The notices given so far for a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentNotices {
    /// The number of reminders due by the last one.
    pub reminded: u32,
    /// Whether the question has been escalated.
    pub escalated: bool,
}

/// The scope of an approval for the rest of a session: calls of this version of a tool that this rule of this
/// policy asks about. If any of these changes, a person is asked again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantScope {
    /// The tool.
    pub tool: ToolName,
    /// The fingerprint of its definition.
    pub definition: Hash,
    /// The rule.
    pub rule: RuleId,
    /// The version of the policy.
    pub policy: Hash,
    /// The fingerprint of the question, if a policy engine took part. The engine may ask one person about
    /// this call and another person about the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Hash>,
}

impl GrantScope {
    /// Returns the scope of an approval of a call that this ruling asks about.
    pub fn by(tool: ToolName, definition: Hash, ruling: &RecordedDecision) -> Self {
        let ask = ruling.whole.map(|_| canonical_json::fingerprint(&ruling.decision));
        Self { tool, definition, rule: ruling.rule.clone(), policy: ruling.version(), ask }
    }

    /// Returns the fingerprint of the scope.
    pub fn fingerprint(&self) -> Hash {
        canonical_json::fingerprint(self)
    }

    /// Returns the id of the grant for this scope, given in a session for a call with these labels.
    pub fn grant_in(&self, session: SessionId, labels: &Labels) -> GrantId {
        let (form, labels) = (self.fingerprint(), canonical_json::fingerprint(labels));
        GrantId::derived(&[&session.to_u128().to_be_bytes(), form.as_bytes(), labels.as_bytes()])
    }
}

/// A grant that allowed a call, as the record of the call stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedGrant {
    /// The id of the grant.
    pub id: GrantId,
    /// The people who gave it.
    pub by: Vec<String>,
    /// When it was given.
    pub at: Millis,
    /// The fingerprint of its scope.
    pub form: Hash,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(approvals: u32, who: &[&str]) -> ApprovalRequirement {
        let who = who.iter().map(|who| (*who).to_owned()).collect();
        ApprovalRequirement { who, approvals: NonZeroU32::new(approvals), ..ApprovalRequirement::default() }
    }

    #[test]
    fn more_approvals_than_approvers_are_refused() {
        for ask in [asks(1, &[]), asks(1, &["ann"]), asks(2, &["ann", "bob"]), asks(2, &["a", "b", "c"])] {
            assert_eq!(ask.check(), Ok(()));
        }
        for (ask, named) in [(asks(2, &[]), 0), (asks(2, &["ann"]), 1), (asks(2, &["ann", "ann"]), 1)] {
            let says =
                format!("`approvals` is 2, so `who` must name at least 2 people, and it names {named}");
            assert_eq!(ask.check(), Err(says));
        }
    }

    #[test]
    fn useless_reminders_and_escalations_are_refused() {
        let an_hour = Some(Duration::from_hours(1));
        let to = |after: u64, to: &[&str]| {
            let to = to.iter().map(|name| (*name).to_owned()).collect();
            Some(Box::new(Escalation { after: Duration::from_secs(after), to }))
        };
        let ann = asks(1, &["ann"]);
        let fine = ApprovalRequirement {
            expires: an_hour,
            remind: Some(Duration::from_mins(5)),
            escalate: to(60, &["bob"]),
            ..ann.clone()
        };
        assert_eq!(fine.check(), Ok(()));
        for (ask, says) in [
            (
                ApprovalRequirement { remind: Some(Duration::ZERO), ..ann.clone() },
                "`remind_s` must be more than 0",
            ),
            (
                ApprovalRequirement { expires: an_hour, remind: an_hour, ..ann.clone() },
                "`remind_s` is 3600, but an unanswered request is denied after 3600 (`expires_s`); it must be less",
            ),
            (
                ApprovalRequirement { expires: an_hour, escalate: to(7200, &["bob"]), ..ann.clone() },
                "`escalate_s` is 7200, but an unanswered request is denied after 3600 (`expires_s`); it must be less",
            ),
            (
                ApprovalRequirement { escalate: to(60, &["bob"]), ..asks(1, &[]) },
                "`escalate_to` has no effect if anyone may approve; set `who`",
            ),
            (
                ApprovalRequirement { escalate: to(60, &["ann"]), ..ann.clone() },
                "`escalate_to` must name someone who is not in `who`",
            ),
            (
                ApprovalRequirement { escalate: to(60, &[]), ..ann },
                "`escalate_to` must name someone who is not in `who`",
            ),
        ] {
            assert_eq!(ask.check(), Err(says.to_owned()));
        }
    }

    #[test]
    fn session_approval_covers_one_tool_rule_and_policy() {
        let covered = GrantScope {
            tool: "pay".parse().unwrap(),
            definition: Hash::of(b"definition"),
            rule: "money".parse().unwrap(),
            policy: Hash::of(b"policy"),
            ask: None,
        };
        let others = [
            GrantScope { tool: "send".parse().unwrap(), ..covered.clone() },
            GrantScope { definition: Hash::of(b"another"), ..covered.clone() },
            GrantScope { rule: "other".parse().unwrap(), ..covered.clone() },
            GrantScope { policy: Hash::of(b"another"), ..covered.clone() },
            GrantScope { ask: Some(Hash::of(b"ask")), ..covered.clone() },
        ];
        assert!(others.iter().all(|other| other.fingerprint() != covered.fingerprint()));
    }
}
