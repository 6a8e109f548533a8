//! The health of model providers: which are down, and which call may probe them.
//!
//! A provider is down after several failures in a row, from at least two sessions, without an answer in between.
//! Failures of a single session may be caused by its request.
//!
//! While a provider is down, one call at a time goes out as a probe, with growing pauses. All other calls of the models
//! that failed wait. Sessions take turns with the probe. The first answer of a failed model ends the outage. Then the turns
//! that waited call the provider one after the other, whether they were woken or their deadlines have passed.
//!
//! This state is in the memory of one process. The waits of turns are in their journals ([`crate::turn::model`]), so after a
//! restart the first waiting turn becomes the probe.
use super::wake_up_queue::WakeUpQueue;
use crate::turn::model_request::jittered;
use outlast_ports::clock::Entropy;
use outlast_vocab::message::ModelName;
use outlast_vocab::{Failure, Limits, Millis, SessionId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The health of all providers that were called.
#[derive(Debug, Default)]
pub struct ProviderHealth {
    providers: Mutex<HashMap<String, ProviderState>>,
    /// Providers that answer again and whose waiting turns have not been woken yet.
    recovered: Mutex<BTreeSet<String>>,
    rings: Notify,
}

/// The health of one provider.
#[derive(Debug, Default)]
struct ProviderState {
    /// Failures since the last answer.
    failures: u32,
    /// The sessions whose calls failed since the last answer, at most two.
    failed_sessions: BTreeSet<SessionId>,
    /// The models that failed since the last answer.
    failed_models: BTreeSet<ModelName>,
    /// Whether it has answered a call of this process.
    has_answered: bool,
    outage: Option<Outage>,
    /// The calls of turns that have waited for it.
    wake_ups: WakeUpQueue,
}

/// An outage of a provider.
#[derive(Debug)]
struct Outage {
    since: Millis,
    /// The models that failed. Other models of the provider may still answer.
    models: BTreeSet<ModelName>,
    /// The number of failed probes.
    probes: u32,
    next_probe: Millis,
    /// Until when it is listed if no call probes.
    listed_until: Millis,
    /// The session whose call is the current probe.
    probing: Option<SessionId>,
    /// The number of calls that wait for the next probe.
    waiting: u32,
    last_failure: Option<Failure>,
}

/// A call that asks for a permit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PermitRequest<'a> {
    /// The provider.
    pub(crate) provider: &'a str,
    /// The model.
    pub(crate) model: &'a ModelName,
    /// The session that makes the call.
    pub(crate) session: SessionId,
    /// How often its turn has waited for the provider.
    pub(crate) waited: u32,
    /// Whether it may probe early, because a person asked for it or because the provider has answered other calls.
    pub(crate) is_due: bool,
}

/// A rejected permit: the call has to wait.
#[derive(Clone, Debug)]
pub(crate) struct ProviderPause {
    /// How long to wait.
    pub(crate) pause: Duration,
    /// The last failure of the provider, if this process has seen one.
    pub(crate) last_failure: Option<Failure>,
}

/// A permit for one call. If it is dropped without a result, the next call may probe.
#[derive(Debug)]
#[must_use]
pub(crate) struct Permit<'a> {
    health: &'a ProviderHealth,
    request: PermitRequest<'a>,
    probes: bool,
}

/// An outage of a provider, for display and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutageView {
    /// The provider.
    pub provider: String,
    /// When the outage began.
    pub since: Millis,
    /// When the next probe is due.
    pub next_probe: Millis,
    /// The last failure.
    pub last_failure: Option<Failure>,
}

impl ProviderHealth {
    /// Grants a permit for a call, or returns how long it has to wait.
    pub(crate) fn admit<'a>(
        &'a self,
        request: PermitRequest<'a>,
        limits: &Limits,
        now: Millis,
    ) -> Result<Permit<'a>, ProviderPause> {
        let mut providers = self.lock();
        let state = providers.entry(request.provider.to_owned()).or_default();
        let waited_elsewhere = request.waited > 0 && !state.failed_sessions.contains(&request.session);
        if waited_elsewhere && !state.has_answered && state.outage.is_none() {
            // The turn waited in an earlier process, perhaps with many others, so its call is the probe.
            state.outage = Some(Outage::begin(request.model, request.waited, limits, now));
        }
        let affected = |outage: &&mut Outage| outage.models.contains(request.model);
        let Some(outage) = state.outage.as_mut().filter(affected) else {
            return Ok(Permit { health: self, request, probes: false });
        };
        let is_due = now >= outage.next_probe || request.is_due;
        if is_due && outage.probing.is_none_or(|session| session == request.session) {
            outage.probing = Some(request.session);
            return Ok(Permit { health: self, request, probes: true });
        }
        // While a probe is running, the time of the next one is not known.
        let next = outage.next_probe.max(now.after(limits.provider_pause_first));
        let pause = now.until(next) + limits.provider_wake_apart * outage.waiting;
        outage.waiting = outage.waiting.saturating_add(1);
        Err(ProviderPause { pause, last_failure: outage.last_failure.clone() })
    }

    /// Returns how long a turn that has waited for this provider and has a permit still has to wait before its call. If
    /// this is zero, the call counts as made. `elapsed` is the time of the monotonic clock.
    pub(crate) fn pace(
        &self,
        provider: &str,
        session: SessionId,
        limits: &Limits,
        elapsed: Duration,
    ) -> Duration {
        let mut providers = self.lock();
        let ProviderState { outage, wake_ups, .. } = providers.entry(provider.to_owned()).or_default();
        if outage.as_ref().is_some_and(|outage| outage.probing == Some(session)) {
            wake_ups.put_first(session, elapsed);
        }
        wake_ups.wait(session, limits.provider_wake_apart, elapsed)
    }

    /// Records that a provider answers again.
    pub(crate) fn recover(&self, provider: &str) {
        self.recovered.lock().unwrap_or_else(PoisonError::into_inner).insert(provider.to_owned());
        self.rings.notify_one();
    }

    /// Waits until a provider answers again, and returns its name. Cancel safe.
    pub(crate) async fn recovered(&self) -> String {
        loop {
            let first = self.recovered.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
            match first {
                Some(provider) => return provider,
                None => self.rings.notified().await,
            }
        }
    }

    /// Returns whether calls of some models of this provider have to wait.
    pub(crate) fn is_down(&self, provider: &str) -> bool {
        self.lock().get(provider).is_some_and(|state| state.outage.is_some())
    }

    /// Returns the current outages, by provider name. An outage is left out if its probe is long overdue: its turns
    /// were cancelled or answered by another process, so this process does not know whether it is over.
    pub(crate) fn outages(&self, now: Millis) -> Vec<OutageView> {
        let providers = self.lock();
        let is_current = |outage: &Outage| outage.probing.is_some() || now < outage.listed_until;
        let all = providers.iter().filter_map(|(name, state)| Some((name, state.outage.as_ref()?)));
        let down: BTreeMap<&String, &Outage> = all.filter(|(_, outage)| is_current(outage)).collect();
        let view = |(name, outage): (&String, &Outage)| OutageView {
            provider: name.clone(),
            since: outage.since,
            next_probe: outage.next_probe,
            last_failure: outage.last_failure.clone(),
        };
        down.into_iter().map(view).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ProviderState>> {
        self.providers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outage {
    fn begin(model: &ModelName, probes: u32, limits: &Limits, now: Millis) -> Self {
        Self {
            since: now,
            models: BTreeSet::from([model.clone()]),
            probes,
            next_probe: now,
            listed_until: now.after(limits.provider_pause_most),
            probing: None,
            waiting: 0,
            last_failure: None,
        }
    }
}

impl Permit<'_> {
    /// Returns whether the call probes a provider that is down.
    pub(crate) fn is_probe(&self) -> bool {
        self.probes
    }

    /// Records that the provider answered. Returns whether waiting turns should be woken: if the model had failed
    /// before, or if this is the first answer in this process. An answer of one model says nothing about others that
    /// fail.
    pub(crate) fn answered(mut self) -> bool {
        self.probes = false;
        let mut providers = self.health.lock();
        let state = providers.entry(self.request.provider.to_owned()).or_default();
        let is_first = !std::mem::replace(&mut state.has_answered, true);
        let affected = |outage: &Outage| outage.models.contains(self.request.model);
        let had_failed = state.failed_models.contains(self.request.model);
        if !had_failed && !state.outage.as_ref().is_some_and(affected) {
            return is_first;
        }
        let wake_ups = std::mem::take(&mut state.wake_ups);
        *state = ProviderState { has_answered: true, wake_ups, ..ProviderState::default() };
        true
    }

    /// Records a transient failure. If the provider is down, returns how long the call has to wait.
    pub(crate) fn failed(
        mut self,
        failure: Failure,
        asked_for: Option<Duration>,
        limits: &Limits,
        entropy: &dyn Entropy,
        now: Millis,
    ) -> Option<Duration> {
        let was_probe = std::mem::take(&mut self.probes);
        let mut providers = self.health.lock();
        let state = providers.entry(self.request.provider.to_owned()).or_default();
        state.failures = state.failures.saturating_add(1);
        if state.failed_sessions.len() < 2 {
            state.failed_sessions.insert(self.request.session);
        }
        state.failed_models.insert(self.request.model.clone());
        let begins = state.outage.is_none();
        if begins && (state.failures < limits.model_attempts || state.failed_sessions.len() < 2) {
            return None;
        }
        if begins {
            state.wake_ups.clear();
        }
        let (model, waited) = (self.request.model, self.request.waited);
        let outage = state.outage.get_or_insert_with(|| Outage::begin(model, waited, limits, now));
        outage.models.insert(model.clone());
        outage.last_failure = Some(failure);
        if begins || was_probe {
            outage.probes = outage.probes.saturating_add(1);
            let pause =
                jittered(limits.provider_pause_first, limits.provider_pause_most, outage.probes, entropy);
            outage.next_probe = now.after(pause.max(asked_for.unwrap_or_default()));
            outage.listed_until = outage.next_probe.after(limits.provider_pause_most);
            // The session that probed goes behind those that have waited.
            let behind = limits.provider_wake_apart * std::mem::take(&mut outage.waiting);
            outage.probing = None;
            return Some(now.until(outage.next_probe) + behind);
        }
        Some(now.until(outage.next_probe))
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if !self.probes {
            return;
        }
        if let Some(outage) =
            self.health.lock().get_mut(self.request.provider).and_then(|state| state.outage.as_mut())
        {
            outage.probing = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::Kind;

    struct NoJitter;

    impl Entropy for NoJitter {
        fn random(&self) -> [u8; 16] {
            [0xff; 16]
        }
    }

    struct Provider {
        health: ProviderHealth,
        limits: Limits,
        model: ModelName,
    }

    impl Provider {
        fn new() -> Self {
            let limits = Limits { model_attempts: 2, ..Limits::default() };
            Self { health: ProviderHealth::default(), limits, model: "it/big".parse().unwrap() }
        }

        fn admit(&self, session: u128, now: u64) -> Result<Permit<'_>, u128> {
            self.admit_as(self.request(session), now)
        }

        fn admit_as<'a>(&'a self, request: PermitRequest<'a>, now: u64) -> Result<Permit<'a>, u128> {
            let admitted = self.health.admit(request, &self.limits, Millis(now));
            admitted.map_err(|blocked| blocked.pause.as_millis())
        }

        fn request(&self, session: u128) -> PermitRequest<'_> {
            let session = SessionId::from_u128(session);
            PermitRequest { provider: "it", model: &self.model, session, waited: 0, is_due: false }
        }

        fn outages(&self, now: u64) -> Vec<OutageView> {
            self.health.outages(Millis(now))
        }

        fn fail(&self, permit: Permit<'_>, now: u64) -> Option<u128> {
            let failure = Failure::new(Kind::ModelUnavailable, "503");
            let pause = permit.failed(failure, None, &self.limits, &NoJitter, Millis(now));
            pause.map(|pause| pause.as_millis())
        }
    }

    #[test]
    fn one_failure_is_no_outage() {
        let provider = Provider::new();
        let permit = provider.admit(1, 0).unwrap();
        assert_eq!(provider.fail(permit, 0), None);
        assert!(provider.admit(2, 0).unwrap().answered());
        let permit = provider.admit(1, 0).unwrap();
        assert_eq!(provider.fail(permit, 0), None);
    }

    #[test]
    fn first_answer_and_answers_after_failures_wake_turns() {
        let provider = Provider::new();
        let answer = || provider.admit(1, 0).unwrap().answered();
        assert_eq!([answer(), answer()], [true, false]);
        provider.fail(provider.admit(2, 0).unwrap(), 0);
        assert_eq!([answer(), answer()], [true, false]);
    }

    #[test]
    fn answer_of_another_model_ends_no_outage() {
        let provider = Provider::new();
        let small: ModelName = "it/small".parse().unwrap();
        let answer = || {
            let other = PermitRequest { model: &small, ..provider.request(2) };
            provider.admit_as(other, 10).unwrap().answered()
        };
        assert!(answer(), "the first one");
        for session in [1, 3] {
            provider.fail(provider.admit(session, 0).unwrap(), 0);
            assert!(!answer());
        }
        assert!(provider.admit(1, 10).is_err());
    }

    #[test]
    fn outage_allows_one_probe_with_growing_pauses() {
        let provider = Provider::new();
        let (one, two) = (provider.admit(1, 0).unwrap(), provider.admit(2, 0).unwrap());
        assert_eq!((provider.fail(one, 0), provider.fail(two, 0)), (None, Some(2_000)));
        assert_eq!(provider.admit(3, 0).unwrap_err(), 2_000);
        let probe = provider.admit(2, 2_000).unwrap();
        assert!(provider.admit(1, 2_000).is_err());
        // Two sessions have waited, so the one that probed goes behind them.
        assert_eq!(provider.fail(probe, 2_010), Some(4_200));
        assert!(provider.admit(1, 6_000).is_err());
        let probe = provider.admit(1, 6_010).unwrap();
        assert!(probe.answered());
        assert!(!provider.admit(2, 6_011).unwrap().answered());
    }

    #[test]
    fn failing_request_delays_no_other_session() {
        let provider = Provider::new();
        for now in 0..10 {
            let permit = provider.admit(1, now).unwrap();
            assert_eq!(provider.fail(permit, now), None);
        }
        assert!(provider.admit(2, 10).unwrap().answered());
    }

    #[test]
    fn next_call_replaces_dropped_probe() {
        let provider = Provider::new();
        for session in [1, 3] {
            let permit = provider.admit(session, 0).unwrap();
            provider.fail(permit, 0);
        }
        drop(provider.admit(1, 2_000).unwrap());
        assert!(provider.admit(2, 2_000).unwrap().answered());
    }

    #[test]
    fn forced_call_probes_before_its_time() {
        let provider = Provider::new();
        for session in [1, 3] {
            let permit = provider.admit(session, 0).unwrap();
            provider.fail(permit, 0);
        }
        assert!(provider.admit(2, 10).is_err());
        let forced = PermitRequest { is_due: true, ..provider.request(2) };
        assert!(provider.admit_as(forced, 10).unwrap().answered());
    }

    #[test]
    fn outage_delays_no_other_model_of_provider() {
        let provider = Provider::new();
        for session in [1, 3] {
            let permit = provider.admit(session, 0).unwrap();
            provider.fail(permit, 0);
        }
        let small: ModelName = "it/small".parse().unwrap();
        let other = PermitRequest { model: &small, ..provider.request(2) };
        assert!(provider.admit_as(other, 10).is_ok());
    }

    #[test]
    fn first_turn_that_waited_probes_after_a_restart() {
        let provider = Provider::new();
        let waited = |session| PermitRequest { waited: 3, ..provider.request(session) };
        let probe = provider.admit_as(waited(1), 0).unwrap();
        assert!(provider.admit_as(waited(2), 0).is_err());
        // The pauses continue to grow from where they were.
        assert_eq!(provider.fail(probe, 0), Some(16_100));
    }

    #[test]
    fn one_session_alone_makes_no_outage() {
        let provider = Provider::new();
        for waited in 0..5 {
            let permit = provider.admit_as(PermitRequest { waited, ..provider.request(1) }, 0).unwrap();
            assert_eq!(provider.fail(permit, 0), None);
        }
        assert!(provider.outages(0).is_empty());
    }

    #[test]
    fn outage_without_due_probe_is_not_listed() {
        let provider = Provider::new();
        for session in [1, 3] {
            provider.fail(provider.admit(session, 0).unwrap(), 0);
        }
        // The probe is due after two seconds, and no turn is left to send it.
        let most = provider.limits.provider_pause_most.as_secs() * 1_000;
        assert_eq!([0, 2_000, 2_000 + most - 1].map(|now| provider.outages(now).len()), [1, 1, 1]);
        assert_eq!(provider.outages(2_000 + most), []);
        let probe = provider.admit(1, 2_000 + most).unwrap();
        assert_eq!(provider.outages(2_000 + most).len(), 1);
        drop(probe);
    }

    #[test]
    fn retry_after_of_provider_defers_probe() {
        let provider = Provider::new();
        let permit = provider.admit(1, 0).unwrap();
        provider.fail(permit, 0);
        let permit = provider.admit(2, 0).unwrap();
        let (failure, hour) = (Failure::new(Kind::ModelUnavailable, "429"), Duration::from_hours(2));
        let pause = permit.failed(failure, Some(hour), &provider.limits, &NoJitter, Millis(0));
        assert_eq!(pause, Some(hour));
    }
}
