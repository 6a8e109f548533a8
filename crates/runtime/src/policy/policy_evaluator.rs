//! Evaluates the policy of an agent: its rules, then the program's policy engine.
//!
//! The stricter decision applies. If the engine fails, the action is denied.
use crate::agents::agent_resolver::AgentResolver;
use crate::agents::resolved_agent::ResolvedAgent;
use crate::turn::cancel::CancelSignal;
use futures_util::FutureExt;
use futures_util::future::{Either, poll_immediate, select};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use outlast_kernel::label::guard;
use outlast_kernel::policy::{combine_decisions, judge, names_all, rules_overriding};
use outlast_kernel::turn_cost::TurnCost;
use outlast_ports::clock::Clock;
use outlast_ports::policy::{EngineDecision, PolicyEngine};
use outlast_validation::{compile_regex, expanded_size};
use outlast_vocab::message::RuleId;
use outlast_vocab::package::Package;
use outlast_vocab::policy::{
    ApprovalRequirement, Day, LocalTime, Policy, PolicyDecision, PolicyFacts, PolicyPoint, RecordedDecision,
    Redaction, Rule, TurnCircumstances,
};
use outlast_vocab::tool::ToolContract;
use outlast_vocab::{Error, Hash, Kind, Millis, OrgId, canonical_json};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The rule name in records when the guard against untrusted text decides.
const GUARD: &str = "guard";

/// The rule name in records when the policy engine fails.
const ENGINE: &str = "engine";

/// The rule name in records when a tool's contract requires approval and nothing else decides.
const TOOL: &str = "tool.approval";

/// What decides in addition to the rules.
#[derive(Clone)]
pub(crate) struct PolicyEvaluator {
    engine: Option<Arc<dyn PolicyEngine>>,
    /// The policy points at which the engine decides.
    points: Vec<PolicyPoint>,
    clock: Arc<dyn Clock>,
    deadline: Duration,
    /// How often a decision may be deferred.
    pub(super) deferrals_max: u32,
    /// The time zones that rules use.
    zones: BTreeMap<String, TimeZone>,
}

impl std::fmt::Debug for PolicyEvaluator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PolicyEvaluator").field("engine", &self.engine.is_some()).finish_non_exhaustive()
    }
}

impl PolicyEvaluator {
    /// Creates the evaluator of a package. An invalid rule is rejected here, not when it is first used.
    pub(crate) fn new(package: &Package, resolver: &AgentResolver) -> Result<Self, Error> {
        package.policy.check()?;
        check_names(package)?;
        let mut zones = BTreeMap::new();
        for rule in &package.policy.rules {
            if let Some(times) = &rule.times {
                zones.insert(times.zone.clone(), zone(rule, &times.zone)?);
            }
            if let PolicyDecision::Modify { redact, .. } = &rule.then {
                for redaction in redact {
                    check_pattern(redaction).map_err(|what| invalid(rule, &what))?;
                }
            }
        }
        let (engine, clock) = (resolver.policy_engine.clone(), resolver.clock.clone());
        let points = engine.as_deref().map(|engine| points_of(engine, &package.agent)).unwrap_or_default();
        let (deadline, deferrals_max) = (resolver.limits.policy_deadline, resolver.limits.judged_again);
        Ok(Self { engine, points, clock, deadline, deferrals_max, zones })
    }

    /// Returns the combined version of the rules and the engine.
    pub(crate) fn version(&self, rules: &Policy) -> Hash {
        match &self.engine {
            None => rules.version(),
            Some(engine) => canonical_json::fingerprint(&(rules.version(), engine.version())),
        }
    }

    /// Returns the current time.
    pub(super) fn now(&self) -> Millis {
        self.clock.now()
    }

    fn times(&self, now: Millis) -> BTreeMap<String, LocalTime> {
        let shown = |(name, zone): (&String, &TimeZone)| Some((name.clone(), local(now, zone)?));
        self.zones.iter().filter_map(shown).collect()
    }

    /// Asks the engine. `whole` is the combined version of the policy. A failure denies.
    async fn ask(&self, facts: &PolicyFacts<'_>, whole: Hash) -> Option<RecordedDecision> {
        let engine = self.engine.as_ref().filter(|_| self.points.contains(&facts.at))?;
        let judged = match self.within_deadline(engine.as_ref(), facts).await {
            Ok(judged) => judged?,
            Err(reason) => return failed(engine.version(), reason),
        };
        let EngineDecision { rule, decision } = judged;
        let sense = decision.check_at(facts.at).and_then(|()| match &decision {
            PolicyDecision::Modify { redact, .. } => redact.iter().try_for_each(check_pattern),
            PolicyDecision::Ask(ask) => ask.check(),
            _ => Ok(()),
        });
        match sense {
            Ok(()) => Some(RecordedDecision {
                whole: Some(whole),
                ..RecordedDecision::new(rule, engine.version(), decision)
            }),
            Err(what) => failed(engine.version(), format!("the policy engine decided by `{rule}`: {what}")),
        }
    }

    async fn within_deadline(
        &self,
        engine: &dyn PolicyEngine,
        facts: &PolicyFacts<'_>,
    ) -> Result<Option<EngineDecision>, String> {
        let judging = Box::pin(AssertUnwindSafe(async { engine.judge(*facts).await }).catch_unwind());
        match select(judging, self.clock.sleep(self.deadline)).await {
            Either::Left((Ok(Ok(judged)), _)) => Ok(judged),
            Either::Left((Ok(Err(error)), _)) => Err(format!("the policy engine failed: {}", error.detail())),
            Either::Left((Err(_), _)) => Err("the policy engine panicked".to_owned()),
            Either::Right(_) => {
                Err(format!("the policy engine did not answer within {} ms", self.deadline.as_millis()))
            }
        }
    }
}

/// Returns the points at which an engine decides for an agent. If the engine panics, it decides at that
/// point.
fn points_of(engine: &dyn PolicyEngine, agent: &str) -> Vec<PolicyPoint> {
    let decides =
        |at: &PolicyPoint| catch_unwind(AssertUnwindSafe(|| engine.decides_at(*at, agent))).unwrap_or(true);
    PolicyPoint::ALL.into_iter().filter(decides).collect()
}

/// Rejects a rule whose name is reserved in records.
fn check_names(package: &Package) -> Result<(), Error> {
    for (name, what) in [
        (GUARD, "decisions about untrusted text"),
        (ENGINE, "a policy engine that failed"),
        (TOOL, "a tool that requires approvals"),
    ] {
        if package.policy.rules.iter().any(|rule| rule.id.as_str() == name) {
            let detail = format!(
                "a rule of the agent `{}` is called `{name}`, a name that is reserved for {what}; use another name",
                package.agent
            );
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
    }
    Ok(())
}

fn failed(policy: Hash, reason: String) -> Option<RecordedDecision> {
    let rule = RuleId::try_from(ENGINE.to_owned()).ok()?;
    Some(RecordedDecision {
        failed: true,
        ..RecordedDecision::new(rule, policy, PolicyDecision::Deny { reason })
    })
}

fn invalid(rule: &Rule, what: &str) -> Error {
    Error::new(Kind::ConfigInvalid, format!("rule `{}`: {what}", rule.id))
}

fn zone(rule: &Rule, name: &str) -> Result<TimeZone, Error> {
    TimeZone::get(name)
        .map_err(|_| invalid(rule, &format!("expected a time zone like `Europe/Berlin`, got `{name}`")))
}

fn local(now: Millis, zone: &TimeZone) -> Option<LocalTime> {
    let now = Timestamp::from_millisecond(i64::try_from(now.0).ok()?).ok()?;
    let now: Zoned = now.to_zoned(zone.clone());
    let day = usize::try_from(now.weekday().to_monday_zero_offset()).ok()?;
    let minute = u16::try_from(now.hour()).ok()? * 60 + u16::try_from(now.minute()).ok()?;
    Some(LocalTime { day: *Day::ALL.get(day)?, minute })
}

fn check_pattern(redaction: &Redaction) -> Result<(), String> {
    let pattern = &redaction.pattern;
    let checked = compile_regex(pattern, false).and_then(|_| expanded_size(pattern));
    checked.map(drop).map_err(|what| format!("expected a regular expression, got `{pattern}`: {what}"))
}

impl ResolvedAgent {
    /// Whether the sources of what the model reads are tracked, because the guard, a rule or the engine may
    /// use them.
    pub(crate) fn keeps_labels(&self) -> bool {
        let Package { guard, policy, .. } = &self.package;
        !guard.is_open()
            || !self.evaluator.points.is_empty()
            || policy
                .rules
                .iter()
                .any(|rule| rule.untrusted.is_some() || !rule.labels.is_empty() || rule.provenance.is_some())
    }

    /// Whether a rule or the engine decides at this point.
    pub(crate) fn decides_at(&self, at: PolicyPoint) -> bool {
        self.evaluator.points.contains(&at) || self.package.policy.applies_at(at)
    }

    /// Returns the facts about a turn of this agent that hold now.
    pub fn circumstances(&self, org: Option<OrgId>, spending: TurnCost) -> TurnCircumstances {
        let (agent, spent) = (self.package.agent.clone(), spending.total());
        TurnCircumstances { agent, org, spent, times: self.evaluator.times(self.evaluator.now()) }
    }

    /// Evaluates the policy. `None` means that nothing decides. Every policy point passes through here.
    pub async fn rule(&self, facts: &PolicyFacts<'_>) -> Option<RecordedDecision> {
        let rule = judge(&self.package.policy, facts);
        let guarded = self.guarded(facts, rule);
        // Rules of a session or turn may only restrict, so they do not waive the tool's own approval.
        let left_open = guarded.is_none() && rule.is_none_or(|rule| rule.narrows);
        let rules = match guarded {
            Some(decision) => {
                let rule = RuleId::try_from(GUARD.to_owned()).ok()?;
                Some(RecordedDecision::new(rule, self.policy, decision))
            }
            None => rule.map(|rule| self.ruled(rule)),
        };
        let before = rule.map(|rule| rules_overriding(&self.package.policy, rule, facts)).unwrap_or_default();
        let rules =
            before.into_iter().fold(rules, |rules, rule| combine_decisions(rules, Some(self.ruled(rule))));
        let engine = self.evaluator.ask(facts, self.policy).await;
        let tool = (left_open && engine.is_none()).then(|| self.wants_approval(facts)).flatten();
        combine_decisions(combine_decisions(rules, engine), tool)
    }

    /// The decision of a rule.
    fn ruled(&self, rule: &Rule) -> RecordedDecision {
        RecordedDecision::new(rule.id.clone(), self.policy, rule.then.clone())
    }

    /// Returns an approval request if the tool's contract requires one.
    fn wants_approval(&self, facts: &PolicyFacts<'_>) -> Option<RecordedDecision> {
        let PolicyFacts { at: PolicyPoint::Tool, tool: Some(tool), .. } = facts else { return None };
        let wants = |contract: &ToolContract| contract.name == **tool && contract.approval;
        self.contracts.iter().any(wants).then_some(())?;
        let (rule, decision) =
            (RuleId::try_from(TOOL.to_owned()).ok()?, PolicyDecision::Ask(ApprovalRequirement::default()));
        Some(RecordedDecision::new(rule, self.policy, decision))
    }

    /// Runs a tool's preview or preparation before the call is claimed.
    ///
    /// It is bounded by the deadline and by cancellation of the turn. A panic becomes an error.
    pub(crate) async fn run_within_deadline<T>(
        &self,
        looking: impl Future<Output = Result<T, Error>> + Send,
        deadline: Duration,
        cancel: &CancelSignal,
    ) -> Result<T, Error> {
        let mut looking = Box::pin(AssertUnwindSafe(looking).catch_unwind());
        let looked = if let Some(looked) = poll_immediate(&mut looking).await {
            looked
        } else {
            tokio::select! {
                biased;
                looked = looking => looked,
                () = self.evaluator.clock.sleep(deadline) => {
                    let detail = format!("the tool did not check the call within {} ms", deadline.as_millis());
                    return Err(Error::new(Kind::ToolTimedOut, detail));
                }
                reason = cancel.requested() => return Err(Error::new(Kind::ToolCancelled, reason)),
            }
        };
        let panicked = |_| Error::new(Kind::ToolPanicked, "the tool panicked while it checked the call");
        looked.map_err(panicked)?
    }

    /// Decides what happens to a call that untrusted text may have caused.
    ///
    /// A matching rule for untrusted text decides instead, if it covers every source of that text.
    fn guarded(&self, facts: &PolicyFacts<'_>, rule: Option<&Rule>) -> Option<PolicyDecision> {
        let PolicyFacts { at: PolicyPoint::Tool, labels, provenance, .. } = facts else { return None };
        let has_last_word = |rule: &Rule| rule.untrusted == Some(true) && names_all(rule, labels);
        if labels.is_empty() || !provenance.is_tainted() || rule.is_some_and(has_last_word) {
            return None;
        }
        let decision = guard(self.package.guard, rule.map(|rule| &rule.then))?;
        Some(match decision {
            PolicyDecision::Deny { reason } => PolicyDecision::Deny {
                reason: format!("{reason}; it comes from {labels}; sinks: {provenance}"),
            },
            decision => decision,
        })
    }
}
