//! Payments as data: amount, payee, key and state.
use crate::cost::Cost;
use crate::id::PaymentId;
use crate::key::ReplayKey;
use crate::{Error, Kind};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// An exact amount in a currency, written like `12.50 EUR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Money {
    /// The amount. It has the decimals of a cost, whatever the currency.
    pub amount: Cost,
    /// The currency.
    pub currency: Currency,
}

/// A currency code of three capital letters, like `EUR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency([u8; 3]);

impl FromStr for Currency {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let letters: Option<[u8; 3]> = text.as_bytes().try_into().ok();
        letters.filter(|letters| letters.iter().all(u8::is_ascii_uppercase)).map(Self).ok_or_else(|| {
            Error::new(Kind::InputInvalid, format!("expected a currency like `EUR`, got `{text}`"))
        })
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|letter| write!(f, "{}", char::from(*letter)))
    }
}

impl FromStr for Money {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let Some((amount, currency)) = text.split_once(' ') else {
            return Err(Error::new(
                Kind::InputInvalid,
                format!("expected money like `12.50 EUR`, got `{text}`"),
            ));
        };
        Ok(Self { amount: amount.parse()?, currency: currency.parse()? })
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.amount, self.currency)
    }
}

impl TryFrom<String> for Money {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Money> for String {
    fn from(money: Money) -> Self {
        money.to_string()
    }
}

/// A payment order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentOrder {
    /// The payee, as the authority knows them.
    pub payee: String,
    /// The amount.
    pub amount: Money,
    /// The purpose, for people.
    pub purpose: String,
}

/// The state of a payment at its authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthorityPaymentState {
    /// The money is reserved.
    Reserved,
    /// It was paid.
    Settled {
        /// The authority's receipt.
        receipt: String,
    },
    /// The reservation is cancelled, and nothing was paid.
    Released,
}

/// A payment as a record stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payment {
    /// The replay key of the payment.
    pub key: ReplayKey,
    /// The idempotency key at the authority, derived from the replay key: the same in every run.
    pub id: PaymentId,
    /// The order.
    pub order: PaymentOrder,
    /// The state.
    pub state: PaymentState,
}

/// The state of a payment in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaymentState {
    /// The authority is about to be asked. Its answer is unknown.
    Asked,
    /// The authority has reserved the money.
    Reserved,
    /// The money is to be paid. The authority is notified until it accepts.
    Settling,
    /// The reservation is to be cancelled. The authority is notified until it accepts.
    Releasing {
        /// The reason.
        reason: String,
    },
    /// It was paid.
    Settled {
        /// The authority's receipt.
        receipt: String,
    },
    /// Nothing was paid.
    Released {
        /// The reason.
        reason: String,
    },
}

impl PaymentState {
    /// Returns whether it is undecided whether the payment is made.
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Asked | Self::Reserved)
    }

    /// Returns whether the authority has accepted the decision.
    pub const fn is_over(&self) -> bool {
        matches!(self, Self::Settled { .. } | Self::Released { .. })
    }

    /// Returns whether the payment is decided and the authority has not accepted that yet.
    pub const fn is_in_outbox(&self) -> bool {
        matches!(self, Self::Settling | Self::Releasing { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_exact_and_names_its_currency() {
        let money: Money = "12.50 EUR".parse().unwrap();
        assert_eq!(money.to_string(), "12.5 EUR");
        assert_eq!(serde_json::to_string(&money).unwrap(), "\"12.5 EUR\"");
        for wrong in ["12.50", "12,50 EUR", "-1 EUR", "1 eur", "1 EURO", "1  EUR"] {
            assert_eq!(wrong.parse::<Money>().unwrap_err().kind(), Kind::InputInvalid, "{wrong}");
        }
    }
}
