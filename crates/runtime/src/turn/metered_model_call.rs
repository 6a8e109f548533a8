//! One call of a model whose usage is metered: bounds and reserves what it may use, runs its attempts, and counts an
//! attempt that brought no complete reply as the most that it could use.
//!
//! Such an attempt is recorded ([`Fact::Interrupted`]) in the write that settles it, so that costs and budgets agree.
//! Every call of a model passes here: the calls of a turn, of compaction, and of tools. Only this module can send a
//! request ([`request_runner`]).
mod attempts;
mod request_runner;

use crate::agents::resolved_agent::ResolvedAgent;
use crate::calls::catalogue::CallingTurn;
use crate::delivery::live::ReplyPublisher;
use crate::limits::budget_meter::{most, price_of};
use crate::limits::reply_bound::reply_bound;
use crate::turn::cancel::CancelSignal;
use crate::turn::host::{BudgetReservations, HostTier, PartialReplies, TurnBudget, TurnJournal};
use crate::turn::model_client::ModelClient;
use crate::turn::model_request::{ModelRequestResult, ReplyAudience};
use crate::turn::partial_reply::ReplyRecorder;
use outlast_ports::budget::BudgetReservation;
use outlast_ports::model::{ModelCapabilities, ModelProvider, ModelRequest};
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::effect::{JournalPosition, ModelCall, Usage};
use outlast_vocab::record::{Fact, InterruptedReply, ReplyInterruption};
use outlast_vocab::{Error, ReplayKey};
use std::future::Future;

pub(crate) use attempts::{FailedAttempts, PastAttempts};

use request_runner::ModelRequestRunner;

/// What a metered call of a model needs from its caller.
pub(crate) trait ModelCallHost: BudgetReservations + PartialReplies {
    /// Whether budgets are tracked.
    fn is_metered(&self) -> bool;

    /// Returns the position of the last message written. `None` if the call is not part of the conversation.
    fn place(&self) -> Option<JournalPosition>;

    /// Settles a request that brought no complete reply as the most that it could use, and records it with the same
    /// write. Cancel safe.
    fn charge(&mut self, interrupted: InterruptedReply, most: UsageAmount)
    -> impl Future<Output = ()> + Send;
}

impl<H: TurnJournal + TurnBudget + PartialReplies> ModelCallHost for H {
    fn is_metered(&self) -> bool {
        TurnBudget::is_metered(self)
    }

    fn place(&self) -> Option<JournalPosition> {
        TurnJournal::place(self)
    }

    async fn charge(&mut self, interrupted: InterruptedReply, most: UsageAmount) {
        self.settle_assumed(&interrupted.key, most, most);
        self.buffer_fact(Fact::Interrupted(interrupted));
    }
}

/// A call of a model, and who makes it.
pub(crate) struct MeteredModelCall<'a> {
    pub(crate) client: &'a ModelClient,
    pub(crate) resolved_agent: &'a ResolvedAgent,
    pub(crate) caller: CallingTurn,
    /// The number of the lease. Attempt numbers keep growing across leases, so text of a dead process is never mixed
    /// with ours.
    pub(crate) lease: u64,
    pub(crate) cancel: &'a CancelSignal,
    pub(crate) key: &'a ReplayKey,
    /// The model call that waits if the provider is down. A summary waits as the call that needs it.
    pub(crate) waits_for: &'a ReplayKey,
    pub(crate) provider: &'a dyn ModelProvider,
    pub(crate) info: ModelCapabilities,
    /// Earlier attempts, from the journal.
    pub(crate) past: PastAttempts,
    /// Whether the last wait ended early because the provider answered another turn.
    pub(crate) recovered: bool,
    /// Whether a long pause parks the turn or is waited for in memory.
    pub(crate) tier: HostTier,
    pub(crate) audience: ReplyAudience,
    /// Whether the text of a cancelled reply is recorded.
    pub(crate) keeps_cancelled_text: bool,
}

/// The end of a metered call of a model.
pub(crate) struct ModelCallEnd {
    /// The call as it was made.
    pub(crate) call: ModelCall,
    /// The result. `None` if the turn was cancelled.
    pub(crate) result: Option<ModelRequestResult>,
}

impl<'a> MeteredModelCall<'a> {
    /// Makes the call. `partial_text` is what a dead process had received of the reply. Failed attempts are added to
    /// `tries`, even if the turn is cancelled.
    pub(crate) async fn ask<A: ModelCallHost>(
        self,
        request: ModelRequest<'_>,
        partial_text: String,
        host: &mut A,
        tries: &mut FailedAttempts,
    ) -> Result<ModelCallEnd, Error> {
        let Self { client, info, key, resolved_agent, .. } = self;
        let mut call = request.call.clone();
        let reply_tokens = reply_bound(&call.options, resolved_agent, &client.limits, info);
        call.options.tokens_most = Some(reply_tokens);
        let most = most(info, ModelRequest { call: &call, ..request }.bytes_max(), reply_tokens);
        if host.is_metered() {
            let reservation = BudgetReservation::new(key.clone(), most, price_of(info));
            if let Some(short) = host.reserve(reservation).await?.short {
                return Ok(ModelCallEnd { call, result: Some(ModelRequestResult::BudgetExhausted(short)) });
            }
        }
        // The position of the call is known once the buffered facts are written.
        call.at = host.place().filter(|_| self.audience != ReplyAudience::None);
        let recorder = ReplyRecorder::new(self.provider);
        let (past, patience) = (self.past, resolved_agent.provider_wait(&client.limits));
        let runner = ModelRequestRunner { call: &self, provider: &recorder, past, patience, most };
        let request = ModelRequest { call: &call, ..request };
        // Cancellation only stops reading the stream. Earlier writes are complete.
        let result = tokio::select! {
            biased;
            asked = runner.ask(request, partial_text, &mut *host, tries) => Some(asked?),
            _ = self.cancel.requested() => None,
        };
        if result.is_none() {
            match recorder.open_reply() {
                Some(text) => {
                    let cancelled = interrupted(key, &request, info, most);
                    let text = if self.keeps_cancelled_text { text } else { String::new() };
                    host.charge(InterruptedReply { text, ..cancelled }, most).await;
                }
                // The call never went out, or its last attempt has failed and is settled already.
                None => host.settle(key, UsageAmount::ZERO),
            }
        }
        Ok(ModelCallEnd { call, result })
    }

    /// Begins the reply for subscribers.
    fn begin_reply(&self) -> ReplyPublisher<'a> {
        let reply = self.client.hub.reply(self.caller);
        if self.audience != ReplyAudience::None {
            reply.begin(self.key);
        }
        reply
    }
}

/// Returns the record of a cancelled request, which is charged the most that it could use.
fn interrupted(
    key: &ReplayKey,
    request: &ModelRequest<'_>,
    info: ModelCapabilities,
    most: UsageAmount,
) -> InterruptedReply {
    let input = u64::try_from(request.bytes_max()).unwrap_or(u64::MAX);
    InterruptedReply {
        key: key.clone(),
        cause: ReplyInterruption::Cancelled,
        model: request.call.model.clone(),
        text: String::new(),
        usage: Usage { input, output: most.tokens.saturating_sub(input), ..Usage::default() },
        cost: info.prices.map(|_| most.money),
    }
}
