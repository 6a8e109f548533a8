//! Implements `SinkOutbox`.
pub use crate::{Backend, rules};
pub use outlast_ports::ResultFuture;
pub use outlast_ports::outbox::{
    CollectRequest, DeliveryAttempt, DeliveryPosition, DeliverySchedule, DueDelivery, SinkOutbox,
    SinkSubscription,
};
pub use outlast_ports::page::Page;
pub use outlast_views::{DeliveryView, SinkView};
pub use outlast_vocab::id::DeliveryId;
pub use outlast_vocab::{Failure, Millis};

#[doc(hidden)]
#[macro_export]
macro_rules! implement_outbox {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::outbox::*;

            impl$(<$param: $bound>)? SinkOutbox for $store {
                fn subscribe(
                    &self,
                    subscriptions: Vec<SinkSubscription>,
                    now: Millis,
                ) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::subscribe(rows, &subscriptions, now))
                }

                fn delivery_schedule(&self, sink: String, now: Millis) -> ResultFuture<'_, DeliverySchedule> {
                    self.read(move |rows| rules::delivery_schedule(rows, &sink, now))
                }

                fn collect(&self, collect: CollectRequest) -> ResultFuture<'_, Vec<DueDelivery>> {
                    self.write(move |rows| rules::collect(rows, &collect))
                }

                fn delivered(&self, attempt: DeliveryAttempt) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::delivered(rows, &attempt))
                }

                fn undelivered(
                    &self,
                    attempt: DeliveryAttempt,
                    failure: Failure,
                    again: Option<Millis>,
                ) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::undelivered(rows, &attempt, failure, again))
                }

                fn sinks(&self) -> ResultFuture<'_, Vec<SinkView>> {
                    self.read(|rows| rules::sinks(rows))
                }

                fn deliveries(&self, sink: String, limit: usize) -> ResultFuture<'_, Vec<DeliveryView>> {
                    self.read(move |rows| Ok(rules::deliveries(rows, &sink, None, limit)?.items))
                }

                fn deliveries_after(
                    &self,
                    sink: String,
                    after: Option<DeliveryPosition>,
                    limit: usize,
                ) -> ResultFuture<'_, Page<DeliveryView, DeliveryPosition>> {
                    self.read(move |rows| rules::deliveries(rows, &sink, after, limit))
                }

                fn redeliver(
                    &self,
                    sink: String,
                    only: Option<DeliveryId>,
                    now: Millis,
                ) -> ResultFuture<'_, u64> {
                    self.write(move |rows| rules::redeliver(rows, &sink, only, now))
                }
            }
        };
    };
}
