//! Payments as data: how much to whom, under which key, and how they stand (R11.6).
use crate::cost::Cost;
use crate::id::PaymentId;
use crate::key::ReplayKey;
use crate::{Error, Kind};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// An amount of some currency, exact, written like `12.50 EUR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Money {
    /// How much: the decimals are those of a cost, whatever the currency is.
    pub amount: Cost,
    /// Of what.
    pub currency: Currency,
}

/// Three capital letters, like `EUR`.
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

/// What is to be paid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// To whom, as the authority knows them.
    pub payee: String,
    /// How much.
    pub amount: Money,
    /// What for, for people.
    pub purpose: String,
}

/// How a payment stands at its authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The money is set aside.
    Reserved,
    /// It was paid.
    Settled {
        /// The authority's proof of it.
        receipt: String,
    },
    /// The money is free again, and nothing was paid.
    Released,
}

/// What a record says of a payment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payment {
    /// Which payment of which call.
    pub key: ReplayKey,
    /// The idempotency key towards the authority, derived from the place: the same in every run.
    pub id: PaymentId,
    /// What is to be paid.
    pub order: Order,
    /// How far it has come.
    pub state: PaymentState,
}

/// How far a payment has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaymentState {
    /// The authority is about to be asked; nobody knows yet what it says.
    Asked,
    /// The authority has set the money aside.
    Reserved,
    /// It is to be paid, and the authority is told so until it takes it.
    Settling,
    /// The money is to be freed, and the authority is told so until it takes it.
    Releasing {
        /// Why.
        reason: String,
    },
    /// It was paid.
    Settled {
        /// The authority's proof of it.
        receipt: String,
    },
    /// Nothing was paid.
    Released {
        /// Why.
        reason: String,
    },
}

impl PaymentState {
    /// Whether nobody has decided yet what becomes of it.
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Asked | Self::Reserved)
    }

    /// Whether its authority has taken what was decided of it.
    pub const fn is_over(&self) -> bool {
        matches!(self, Self::Settled { .. } | Self::Released { .. })
    }

    /// Whether it is decided what becomes of it, and its authority has not taken that yet.
    pub const fn is_owed(&self) -> bool {
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
