//! Admission control: limits the concurrent requests and the bytes of their bodies.
//!
//! Requests above a limit are rejected before they start. [`crate::caller_limits`] limits event streams.
use crate::caller_limits::CallerSlot;
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::{Error, Kind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The limits that all requests share.
pub struct AdmissionControl {
    requests: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    requests_most: usize,
    bytes_most: usize,
}

/// A request in progress. Dropping it releases everything that it holds.
pub struct AdmittedRequest(RequestPermits);

/// The resources of one request, for code that acquires more for it.
#[derive(Clone)]
pub struct RequestPermits {
    bytes: Arc<Semaphore>,
    bytes_most: usize,
    held: Arc<Mutex<HeldPermits>>,
}

#[derive(Default)]
struct HeldPermits {
    _request: Option<OwnedSemaphorePermit>,
    body: Option<OwnedSemaphorePermit>,
    caller: Option<CallerSlot>,
}

impl AdmissionControl {
    /// Creates the limits.
    pub fn new(limits: &ServerLimits) -> Self {
        let (requests_most, bytes_most) = (limits.requests_at_once, limits.bodies_bytes);
        let sized = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self { requests: sized(requests_most), bytes: sized(bytes_most), requests_most, bytes_most }
    }

    /// Admits a request, unless too many are in progress.
    pub fn admit(&self) -> Result<AdmittedRequest, Error> {
        let most = self.requests_most;
        let full = |_| {
            let detail = format!("requests_at_once is limited to {most}, and so many are in progress");
            Error::new(Kind::ServerBusy, detail)
        };
        let request = self.requests.clone().try_acquire_owned().map_err(full)?;
        Ok(self.admitted(HeldPermits { _request: Some(request), ..HeldPermits::default() }))
    }

    /// Admits a request regardless of the limit. Health checks must work on a busy server, too.
    pub fn admit_always(&self) -> AdmittedRequest {
        self.admitted(HeldPermits::default())
    }

    fn admitted(&self, held: HeldPermits) -> AdmittedRequest {
        let held = Arc::new(Mutex::new(held));
        AdmittedRequest(RequestPermits { bytes: self.bytes.clone(), bytes_most: self.bytes_most, held })
    }
}

impl AdmittedRequest {
    /// Returns the handle to acquire more resources.
    pub fn permits(&self) -> RequestPermits {
        self.0.clone()
    }
}

impl Drop for AdmittedRequest {
    fn drop(&mut self) {
        // The request's extensions, and the clones of this handle in them, may outlive the request.
        drop(std::mem::take(&mut *self.0.held()));
    }
}

impl RequestPermits {
    fn held(&self) -> MutexGuard<'_, HeldPermits> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires space for received bytes of the body. A large announced length alone takes nothing from
    /// others.
    pub fn acquire_body_bytes(&self, bytes: usize) -> Result<(), Error> {
        let full = || {
            let detail = format!(
                "bodies_bytes is limited to {}, and the bodies in progress use it up",
                self.bytes_most
            );
            Error::new(Kind::ServerBusy, detail)
        };
        let bytes = u32::try_from(bytes).map_err(|_| full())?;
        let more = self.bytes.clone().try_acquire_many_owned(bytes).map_err(|_| full())?;
        let mut held = self.held();
        match &mut held.body {
            Some(body) => body.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }

    /// Attaches the caller's own permit to the request.
    pub fn attach_caller(&self, caller: CallerSlot) {
        self.held().caller = Some(caller);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission_control() -> AdmissionControl {
        AdmissionControl::new(&ServerLimits {
            requests_at_once: 2,
            bodies_bytes: 100,
            ..ServerLimits::default()
        })
    }

    #[test]
    fn excess_request_is_refused_until_another_ends() {
        let control = admission_control();
        let (one, _two) = (control.admit().unwrap(), control.admit().unwrap());
        let refused = control.admit().err().unwrap().to_string();
        assert_eq!(refused, "server.busy: requests_at_once is limited to 2, and so many are in progress");
        drop(control.admit_always());
        assert!(control.admit().is_err());
        drop(one);
        assert!(control.admit().is_ok());
    }

    #[test]
    fn body_bytes_stay_reserved_until_the_request_ends() {
        let control = admission_control();
        let (one, two) = (control.admit().unwrap(), control.admit().unwrap());
        let permits = one.permits();
        permits.acquire_body_bytes(60).unwrap();
        permits.acquire_body_bytes(30).unwrap();
        let refused = two.permits().acquire_body_bytes(20).unwrap_err().to_string();
        assert_eq!(
            refused,
            "server.busy: bodies_bytes is limited to 100, and the bodies in progress use it up"
        );
        drop(one);
        two.permits().acquire_body_bytes(100).unwrap();
    }
}
