//! Waits of a call for its rate limits.
use super::ToolCallScope;
use crate::limits::tool_limits::{CallPermit, admission_request};
use crate::turn::host::HostTier;
use futures_util::future::{Either, select};
use outlast_ports::rate::AdmissionRequest;
use outlast_vocab::rate::AdmissionAttempt;
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Kind, Millis};
use std::pin::pin;

impl ToolCallScope {
    /// Waits until the rate limits of a call let it go out. Returns an error if they reject it. If a call was queued,
    /// its permit is recorded before it begins, so a call that is recorded as queued has not begun. A call that could
    /// not begin in time asks again.
    pub(crate) async fn wait_for_rate_limits(&self, begins: CallPermit) -> Result<(), Error> {
        let (rates, limits) = (&self.resolved_agent.package.rates, &self.services.models.limits);
        let Some(request) = admission_request(rates, self.call.key.clone(), &self.call.tool, limits) else {
            return Ok(());
        };
        let mut begins = begins;
        loop {
            let now = self.services.models.clock.now();
            begins = match begins {
                CallPermit::Unasked => self.ask_rates(request.clone()).await?,
                CallPermit::From(at) if at.after(limits.rate_grace) < now => CallPermit::Unasked,
                CallPermit::Now | CallPermit::From(_) => return Ok(()),
                CallPermit::Waits(until) if until > now => {
                    self.wait_in_queue(now, until).await?;
                    CallPermit::Waits(until)
                }
                CallPermit::Waits(_) => {
                    self.ask_rates(AdmissionRequest { attempt: AdmissionAttempt::Again, ..request.clone() })
                        .await?
                }
            }
        }
    }

    /// Returns when the call may go out again. Every retry counts against the rate limits.
    pub(crate) fn again(&self) -> CallPermit {
        if self.call.key.is_part_of_undo() { CallPermit::Now } else { CallPermit::Unasked }
    }

    async fn ask_rates(&self, request: AdmissionRequest) -> Result<CallPermit, Error> {
        CallPermit::of(self.journal.request_permit(request).await).map_err(Error::from)
    }

    /// Waits in memory if the wait is short, and parks the turn if it is long.
    async fn wait_in_queue(&self, now: Millis, until: Millis) -> Result<(), Error> {
        let pause = now.until(until);
        if pause > self.services.models.limits.wait_in_memory && self.journal.tier == HostTier::Durable {
            let key = self.call.key.rate();
            return self.journal.park(Wait { key, kind: WaitKind::Sleep, deadline: Some(until) }).await;
        }
        match select(self.services.models.clock.sleep(pause), pin!(self.cancel.requested())).await {
            Either::Left(_) => Ok(()),
            Either::Right((reason, _)) => {
                let detail = format!("the turn was cancelled before the call went out: {reason}");
                Err(Error::new(Kind::ToolCancelled, detail))
            }
        }
    }
}
