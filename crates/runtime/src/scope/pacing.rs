//! Waits of a call for its rate limits.
use super::{FromCall, Scope};
use crate::host::Tier;
use crate::pace::{Begins, want};
use futures_util::future::{Either, select};
use outlast_ports::rate::Want;
use outlast_vocab::message::ToolName;
use outlast_vocab::rate::Asks;
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Kind, Millis, ReplayKey};
use std::future::pending;
use std::pin::pin;
use tokio::sync::oneshot;

impl Scope {
    /// Waits until the rate limits of a call let it go out. Returns an error if they reject it. If a call was queued,
    /// its permit is recorded before it begins, so a call that is recorded as queued has not begun. A call that could
    /// not begin in time asks again.
    pub(crate) async fn let_go(&self, key: &ReplayKey, tool: &ToolName, begins: Begins) -> Result<(), Error> {
        let (rates, limits) = (&self.outfit.package.rates, &self.world.limits);
        let Some(asks) = want(rates, key.clone(), tool, limits) else { return Ok(()) };
        let mut begins = begins;
        loop {
            let now = self.world.clock.now();
            begins = match begins {
                Begins::Unasked => self.ask_rates(asks.clone()).await?,
                Begins::From(at) if at.after(limits.rate_grace) < now => Begins::Unasked,
                Begins::Now | Begins::From(_) => return Ok(()),
                Begins::Waits(until) if until > now => {
                    self.stand_in_line(key, now, until).await?;
                    Begins::Waits(until)
                }
                Begins::Waits(_) => self.ask_rates(Want { asks: Asks::Again, ..asks.clone() }).await?,
            }
        }
    }

    /// Returns when the call may go out again. Every retry counts against the rate limits.
    pub(crate) fn again(&self) -> Begins {
        if self.key.takes_back() { Begins::Now } else { Begins::Unasked }
    }

    async fn ask_rates(&self, asks: Want) -> Result<Begins, Error> {
        self.tell_settled().await;
        let (word, paced) = oneshot::channel();
        let _ = self.to_driver.send(FromCall::GoesOut(asks, word)).await;
        match paced.await {
            Ok(pacing) => Begins::of(pacing).map_err(Error::from),
            // The write failed and the turn with it. The driver drops this call.
            Err(_) => pending().await,
        }
    }

    /// Waits in memory if the wait is short, and parks the turn if it is long.
    async fn stand_in_line(&self, call: &ReplayKey, now: Millis, until: Millis) -> Result<(), Error> {
        let pause = now.until(until);
        if pause > self.world.limits.wait_in_memory && self.tier == Tier::Durable {
            let key = call.rate();
            return self.hold_still(Wait { key, kind: WaitKind::Sleep, deadline: Some(until) }).await;
        }
        match select(self.world.clock.sleep(pause), pin!(self.cancel.requested())).await {
            Either::Left(_) => Ok(()),
            Either::Right((reason, _)) => {
                let detail = format!("the turn was cancelled before the call went out: {reason}");
                Err(Error::new(Kind::ToolCancelled, detail))
            }
        }
    }
}
