//! Implements `PaymentOutbox`.
pub use crate::{Backend, rules};
pub use outlast_ports::ResultFuture;
pub use outlast_ports::payment_outbox::{PaymentBackoff, PaymentOutbox};
pub use outlast_views::PendingPayment;
pub use outlast_vocab::payment::Payment;
pub use outlast_vocab::record::Seq;
pub use outlast_vocab::{Failure, Millis, ReplayKey, TurnId};

#[doc(hidden)]
#[macro_export]
macro_rules! implement_payment_outbox {
    ($store:ty $(, $param:ident: $bound:path)?) => {
        const _: () = {
            use $crate::implement_store::payment_outbox::*;

            impl$(<$param: $bound>)? PaymentOutbox for $store {
                fn pending_payments(&self, limit: usize) -> ResultFuture<'_, Vec<PendingPayment>> {
                    self.read(move |rows| rules::pending_payments(rows, limit))
                }

                fn next_payment_due(&self) -> ResultFuture<'_, Option<Millis>> {
                    self.read(|rows| rules::next_payment_due(rows))
                }

                fn take_due_payments(
                    &self,
                    pauses: PaymentBackoff,
                    now: Millis,
                    limit: usize,
                ) -> ResultFuture<'_, Vec<PendingPayment>> {
                    self.write(move |rows| rules::take_due_payments(rows, pauses, now, limit))
                }

                fn record_payment_result(&self, turn: TurnId, payment: Payment, now: Millis) -> ResultFuture<'_, Option<Seq>> {
                    self.write(move |rows| rules::record_payment_result(rows, turn, payment, now))
                }

                fn record_payment_failure(
                    &self,
                    turn: TurnId,
                    payment: ReplayKey,
                    failure: Failure,
                ) -> ResultFuture<'_, ()> {
                    self.write(move |rows| rules::record_payment_failure(rows, turn, &payment, failure))
                }
            }
        };
    };
}
