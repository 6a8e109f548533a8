//! Exact numbers: fractions of 128-bit integers. A result that does not fit is an error and is never rounded.
use std::fmt;

/// The number of significant digits to show of an infinite decimal.
const DIGITS_SHOWN: usize = 20;

/// The largest exponent. Larger ones are rejected without computing the power.
const EXPONENT_MOST: i128 = 10_000;

/// A fraction in lowest terms; the denominator is positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExactNumber {
    numerator: i128,
    denominator: i128,
}

/// Why an operation has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArithmeticFailure {
    /// The result needs more than 128 bits.
    TooLarge,
    /// The right side is zero.
    DivisionByZero,
    /// The exponent is a fraction.
    FractionalExponent,
}

type Result<T> = std::result::Result<T, ArithmeticFailure>;

fn fits<T>(value: Option<T>) -> Result<T> {
    value.ok_or(ArithmeticFailure::TooLarge)
}

impl ExactNumber {
    const ZERO: Self = Self { numerator: 0, denominator: 1 };
    const ONE: Self = Self { numerator: 1, denominator: 1 };

    fn new(numerator: i128, denominator: i128) -> Result<Self> {
        let common = gcd(numerator.unsigned_abs(), denominator.unsigned_abs());
        let common = fits(i128::try_from(common).ok())?;
        let sign = denominator.signum();
        let numerator = fits((numerator / common).checked_mul(sign))?;
        Ok(Self { numerator, denominator: fits((denominator / common).checked_mul(sign))? })
    }

    /// Parses digits, of which the last `decimals` are after the point.
    pub(super) fn from_digits(digits: &str, decimals: usize) -> Result<Self> {
        let numerator = fits(digits.parse().ok())?;
        let decimals = fits(u32::try_from(decimals).ok())?;
        Self::new(numerator, fits(10_i128.checked_pow(decimals))?)
    }

    pub(super) fn negate(self) -> Result<Self> {
        Ok(Self { numerator: fits(self.numerator.checked_neg())?, ..self })
    }

    pub(super) fn add(self, other: Self) -> Result<Self> {
        let common = gcd(self.denominator.unsigned_abs(), other.denominator.unsigned_abs());
        let common = fits(i128::try_from(common).ok())?;
        let left = fits(self.numerator.checked_mul(other.denominator / common))?;
        let right = fits(other.numerator.checked_mul(self.denominator / common))?;
        let denominator = fits((self.denominator / common).checked_mul(other.denominator))?;
        Self::new(fits(left.checked_add(right))?, denominator)
    }

    pub(super) fn subtract(self, other: Self) -> Result<Self> {
        self.add(other.negate()?)
    }

    pub(super) fn multiply(self, other: Self) -> Result<Self> {
        // Reduce crosswise first, so that an intermediate product does not overflow if the result fits.
        let left = Self::new(self.numerator, other.denominator)?;
        let right = Self::new(other.numerator, self.denominator)?;
        let numerator = fits(left.numerator.checked_mul(right.numerator))?;
        Ok(Self { numerator, denominator: fits(left.denominator.checked_mul(right.denominator))? })
    }

    pub(super) fn divide(self, other: Self) -> Result<Self> {
        if other == Self::ZERO {
            return Err(ArithmeticFailure::DivisionByZero);
        }
        self.multiply(Self::new(other.denominator, other.numerator)?)
    }

    /// Returns the remainder of a division, with the sign of the left operand.
    pub(super) fn remainder(self, other: Self) -> Result<Self> {
        let quotient = self.divide(other)?;
        let whole = Self { numerator: quotient.numerator / quotient.denominator, denominator: 1 };
        self.subtract(other.multiply(whole)?)
    }

    pub(super) fn power(self, exponent: Self) -> Result<Self> {
        if exponent.denominator != 1 {
            return Err(ArithmeticFailure::FractionalExponent);
        }
        let times = exponent.numerator;
        if !(-EXPONENT_MOST..=EXPONENT_MOST).contains(&times) {
            return Err(ArithmeticFailure::TooLarge);
        }
        let base = if times < 0 { Self::ONE.divide(self)? } else { self };
        let times = u32::try_from(times.unsigned_abs()).expect("the bound of exponents fits");
        // A power of a fraction in lowest terms is in lowest terms.
        let numerator = fits(base.numerator.checked_pow(times))?;
        Ok(Self { numerator, denominator: fits(base.denominator.checked_pow(times))? })
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

impl fmt::Display for ExactNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (numerator, denominator) = (self.numerator.unsigned_abs(), self.denominator.unsigned_abs());
        if self.numerator < 0 {
            f.write_str("-")?;
        }
        let (whole, mut rest) = (numerator / denominator, numerator % denominator);
        write!(f, "{whole}")?;
        if rest == 0 {
            return Ok(());
        }
        f.write_str(".")?;
        let mut shown = usize::from(whole > 0);
        while rest > 0 && shown < DIGITS_SHOWN {
            let (digit, left) = next_digit(rest, denominator);
            write!(f, "{digit}")?;
            shown += usize::from(shown > 0 || digit > 0);
            rest = left;
        }
        if rest > 0 {
            f.write_str("…")?;
        }
        Ok(())
    }
}

/// Returns the quotient and remainder of ten times `rest`. The product may overflow, so it is built from doublings: 10
/// = 2 * (2 * 2 + 1).
fn next_digit(rest: u128, denominator: u128) -> (u8, u128) {
    let reduce = |digit: u8, left: u128| match left.checked_sub(denominator) {
        Some(less) => (digit + 1, less),
        None => (digit, left),
    };
    let double = |(digit, left): (u8, u128)| reduce(digit * 2, left * 2);
    let (digit, left) = double(double((0, rest)));
    double(reduce(digit, left + rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_fractions_print_correct_digits() {
        let largest = i128::MAX;
        let shown = ExactNumber { numerator: largest - 1, denominator: largest }.to_string();
        assert_eq!(shown, "0.99999999999999999999…");
        let shown = ExactNumber { numerator: 1, denominator: largest }.to_string();
        assert_eq!(shown, "0.0000000000000000000000000000000000000058774717541114375398…");
    }

    #[test]
    fn smallest_integer_cannot_be_negated() {
        let smallest = ExactNumber { numerator: i128::MIN, denominator: 1 };
        assert_eq!(smallest.negate(), Err(ArithmeticFailure::TooLarge));
        assert_eq!(ExactNumber::ONE.divide(smallest), Err(ArithmeticFailure::TooLarge));
        assert_eq!(smallest.to_string(), "-170141183460469231731687303715884105728");
    }
}
