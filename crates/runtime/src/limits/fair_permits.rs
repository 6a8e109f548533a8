//! Permits for long work, shared fairly between organisations.
//!
//! Organisations that wait take turns, however much each of them waits for. So the wait of one does not grow with the
//! work of another.
use outlast_vocab::OrgId;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The organisation that work is done for. `None` on a host that stores nothing, and for work that belongs to no turn.
pub(crate) type WorkOwner = Option<OrgId>;

/// A limited number of permits.
#[derive(Clone)]
pub(crate) struct FairPermits(Arc<Mutex<PermitQueue>>);

struct PermitQueue {
    /// Free permits. Zero while an owner waits.
    free: usize,
    /// Who waits, by organisation, in the order in which the organisations get the next permits.
    waiting: VecDeque<WaitingOwner>,
}

struct WaitingOwner {
    owner: WorkOwner,
    requests: VecDeque<oneshot::Sender<FairPermit>>,
}

/// A permit. Dropping it passes it on.
pub(crate) struct FairPermit {
    /// `None` after the permit was passed on.
    permits: Option<FairPermits>,
}

impl FairPermits {
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(PermitQueue { free: count, waiting: VecDeque::new() })))
    }

    /// Waits for a permit. Dropping the future gives the place in the queue up.
    pub(crate) async fn acquire(&self, owner: WorkOwner) -> FairPermit {
        loop {
            let granted = {
                let mut queue = self.lock();
                if queue.free > 0 {
                    queue.free -= 1;
                    return self.permit();
                }
                queue.push(owner)
            };
            if let Ok(permit) = granted.await {
                return permit;
            }
        }
    }

    fn permit(&self) -> FairPermit {
        FairPermit { permits: Some(self.clone()) }
    }

    fn lock(&self) -> MutexGuard<'_, PermitQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PermitQueue {
    fn push(&mut self, owner: WorkOwner) -> oneshot::Receiver<FairPermit> {
        let (request, granted) = oneshot::channel();
        match self.waiting.iter_mut().find(|waiting| waiting.owner == owner) {
            Some(waiting) => waiting.requests.push_back(request),
            None => self.waiting.push_back(WaitingOwner { owner, requests: VecDeque::from([request]) }),
        }
        granted
    }

    /// Removes the next request. Its organisation moves to the end of the queue.
    fn pop(&mut self) -> Option<oneshot::Sender<FairPermit>> {
        let mut first = self.waiting.pop_front()?;
        let request = first.requests.pop_front();
        if !first.requests.is_empty() {
            self.waiting.push_back(first);
        }
        request
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        let Some(permits) = self.permits.take() else { return };
        loop {
            let next = {
                let mut queue = permits.lock();
                let Some(next) = queue.pop() else {
                    queue.free += 1;
                    return;
                };
                next
            };
            match next.send(permits.permit()) {
                Ok(()) => return,
                // This one has given up. Its permit must not be passed on here again.
                Err(mut unwanted) => unwanted.permits = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const A: WorkOwner = Some(OrgId::from_u128(1));
    const B: WorkOwner = Some(OrgId::from_u128(2));

    #[test]
    fn waiting_organisations_take_turns() {
        let permits = FairPermits::new(1);
        let held = permits.acquire(A).now_or_never();
        assert!(held.is_some());
        let mut waiting: Vec<_> =
            [A, A, A, B].map(|owner| Box::pin(permits.acquire(owner))).into_iter().enumerate().collect();
        for (_, request) in &mut waiting {
            assert!(request.as_mut().now_or_never().is_none());
        }
        let (mut held, mut order) = (held, Vec::new());
        while !waiting.is_empty() {
            drop(held.take());
            let got = waiting
                .iter_mut()
                .enumerate()
                .find_map(|(at, (number, request))| Some((at, *number, request.as_mut().now_or_never()?)));
            let (at, number, permit) = got.expect("the permit was passed on");
            drop(waiting.remove(at));
            held = Some(permit);
            order.push(number);
        }
        assert_eq!(order, [0, 3, 1, 2]);
    }

    #[test]
    fn abandoned_request_loses_no_permit() {
        let permits = FairPermits::new(1);
        let held = permits.acquire(A).now_or_never().unwrap();
        let mut abandoned = Box::pin(permits.acquire(A));
        let mut granted = Box::pin(permits.acquire(B));
        assert!(abandoned.as_mut().now_or_never().is_none() && granted.as_mut().now_or_never().is_none());
        drop(abandoned);
        drop(held);
        // It was granted a permit and never took it.
        drop(granted);
        assert!(permits.acquire(A).now_or_never().is_some());
    }
}
