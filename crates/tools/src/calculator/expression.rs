//! Parses and evaluates an expression in one pass.
//!
//! ```text
//! sum     = product (("+" | "-") product)*
//! product = signed (("*" | "/" | "%") signed)*
//! signed  = "-" signed | "+" signed | power
//! power   = atom ("^" signed)?
//! atom    = digits ("." digits)? | "." digits | "(" sum ")"
//! ```
//! For example, `-2 ^ 2` is -4 and `2 ^ 3 ^ 2` is 512, as in mathematics.
use super::number::{ArithmeticFailure, ExactNumber};
use outlast_ports::tool::failed;
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind, limits};

/// The maximum length of an expression in bytes.
const EXPRESSION_BYTES: usize = 1_000;

/// The maximum nesting of parentheses, signs and powers.
const DEPTH_MOST: usize = 64;

/// Evaluates an expression.
pub(super) fn evaluate(text: &str) -> Result<ExactNumber, Error> {
    limits::check("expression_bytes", text.len(), EXPRESSION_BYTES)?;
    let mut reader = ExpressionParser { text, at: 0, depth: 0 };
    let value = reader.sum()?;
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.expected("an operator or the end")),
    }
}

struct ExpressionParser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

type Operation = fn(ExactNumber, ExactNumber) -> Result<ExactNumber, ArithmeticFailure>;

impl ExpressionParser<'_> {
    fn sum(&mut self) -> Result<ExactNumber, Error> {
        let mut value = self.product()?;
        loop {
            let operation: Operation = match self.peek() {
                Some('+') => ExactNumber::add,
                Some('-') => ExactNumber::subtract,
                _ => return Ok(value),
            };
            value = self.apply(value, operation, Self::product)?;
        }
    }

    fn product(&mut self) -> Result<ExactNumber, Error> {
        let mut value = self.signed()?;
        loop {
            let operation: Operation = match self.peek() {
                Some('*' | '×') => ExactNumber::multiply,
                Some('/' | '÷') => ExactNumber::divide,
                Some('%') => ExactNumber::remainder,
                _ => return Ok(value),
            };
            value = self.apply(value, operation, Self::signed)?;
        }
    }

    fn signed(&mut self) -> Result<ExactNumber, Error> {
        match self.peek() {
            Some('-') => {
                let at = self.at;
                self.skip('-');
                self.nested(Self::signed)?.negate().map_err(|trouble| self.arithmetic_error(trouble, at))
            }
            Some('+') => {
                self.skip('+');
                self.nested(Self::signed)
            }
            _ => self.power(),
        }
    }

    fn power(&mut self) -> Result<ExactNumber, Error> {
        let base = self.operand()?;
        match self.peek() {
            Some('^') => self.apply(base, ExactNumber::power, |reader| reader.nested(Self::signed)),
            _ => Ok(base),
        }
    }

    fn operand(&mut self) -> Result<ExactNumber, Error> {
        match self.peek() {
            Some('(') => {
                self.skip('(');
                let value = self.nested(Self::sum)?;
                if self.peek() != Some(')') {
                    return Err(self.expected("an operator or `)`"));
                }
                self.skip(')');
                Ok(value)
            }
            _ => self.number(),
        }
    }

    fn number(&mut self) -> Result<ExactNumber, Error> {
        let rest = &self.text[self.at..];
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let whole = digits(rest);
        let decimals = rest[whole..].strip_prefix('.').map_or(0, digits);
        let length = if decimals > 0 { whole + 1 + decimals } else { whole };
        if length == 0 {
            return Err(self.expected("a number or `(`"));
        }
        let at = self.at;
        self.at += length;
        let spelled = rest[..length].replace('.', "");
        ExactNumber::from_digits(&spelled, decimals).map_err(|trouble| self.arithmetic_error(trouble, at))
    }

    /// Parses an operator and its right operand, and applies the operator.
    fn apply(
        &mut self,
        left: ExactNumber,
        operation: Operation,
        right: impl FnOnce(&mut Self) -> Result<ExactNumber, Error>,
    ) -> Result<ExactNumber, Error> {
        let at = self.at;
        self.at += self.text[at..].chars().next().map_or(0, char::len_utf8);
        let right = right(self)?;
        operation(left, right).map_err(|trouble| self.arithmetic_error(trouble, at))
    }

    fn nested(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<ExactNumber, Error>,
    ) -> Result<ExactNumber, Error> {
        self.depth += 1;
        limits::check("expression_depth", self.depth, DEPTH_MOST)?;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Skips spaces and returns the next character without consuming it.
    fn peek(&mut self) -> Option<char> {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        rest.chars().next()
    }

    fn skip(&mut self, c: char) {
        self.at += c.len_utf8();
    }

    fn expected(&self, what: &str) -> Error {
        let found = match &self.text[self.at..] {
            "" => "the end".to_owned(),
            rest => format!("`{}`", shown(rest)),
        };
        Error::new(Kind::ToolArgsInvalid, format!("expected {what}, found {found}"))
    }

    fn arithmetic_error(&self, trouble: ArithmeticFailure, at: usize) -> Error {
        let what = match trouble {
            ArithmeticFailure::TooLarge => "the exact result does not fit into 128 bits",
            ArithmeticFailure::DivisionByZero => "division by zero is not possible",
            ArithmeticFailure::FractionalExponent => "an exponent must be a whole number",
        };
        failed(format!("{what} (at `{}`)", shown(self.text[at..self.at].trim())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    #[track_caller]
    fn check(expressions: &[&str], want: &Expect) {
        let line = |text: &&str| match evaluate(text) {
            Ok(value) => format!("{text} = {value}\n"),
            Err(error) => format!("{text}: {error}\n"),
        };
        want.assert_eq(&expressions.iter().map(line).collect::<String>());
    }

    #[test]
    fn operators_follow_mathematical_precedence() {
        check(
            &[
                "2*(3+4)",
                "2+3*4",
                "10-4-3",
                "100/10/5",
                "2^3^2",
                "-2^2",
                "2^-2",
                "--3",
                "+3",
                "7%3",
                "-7%3",
                "7.5%2",
                "6 × 7 ÷ 2",
                " ( 1 ) ",
            ],
            &expect![[r"
                2*(3+4) = 14
                2+3*4 = 14
                10-4-3 = 3
                100/10/5 = 2
                2^3^2 = 512
                -2^2 = -4
                2^-2 = 0.25
                --3 = 3
                +3 = 3
                7%3 = 1
                -7%3 = -1
                7.5%2 = 1.5
                6 × 7 ÷ 2 = 21
                 ( 1 )  = 1
            "]],
        );
    }

    #[test]
    fn decimals_and_fractions_are_exact() {
        check(
            &[
                "0.1+0.2",
                "1/3",
                "1/3*3",
                "-2/3",
                "2/3+1/3",
                "1.50",
                ".5",
                "10/4",
                "1/7",
                "22/7",
                "1/2^70",
                "007",
                "170141183460469231731687303715884105727",
            ],
            &expect![[r"
                0.1+0.2 = 0.3
                1/3 = 0.33333333333333333333…
                1/3*3 = 1
                -2/3 = -0.66666666666666666666…
                2/3+1/3 = 1
                1.50 = 1.5
                .5 = 0.5
                10/4 = 2.5
                1/7 = 0.14285714285714285714…
                22/7 = 3.1428571428571428571…
                1/2^70 = 0.00000000000000000000084703294725430033906…
                007 = 7
                170141183460469231731687303715884105727 = 170141183460469231731687303715884105727
            "]],
        );
    }

    #[test]
    fn inexact_result_is_refused_with_a_reason() {
        check(
            &[
                "1/0",
                "5%(2-2)",
                "0^-1",
                "2^0.5",
                "2^127",
                "2^10001",
                "170141183460469231731687303715884105727+1",
                "999999999999999999999999999999999999999999",
                "0.00000000000000000000000000000000000000000001",
            ],
            &expect![[r"
                1/0: tool.failed: division by zero is not possible (at `/0`)
                5%(2-2): tool.failed: division by zero is not possible (at `%(2-2)`)
                0^-1: tool.failed: division by zero is not possible (at `^-1`)
                2^0.5: tool.failed: an exponent must be a whole number (at `^0.5`)
                2^127: tool.failed: the exact result does not fit into 128 bits (at `^127`)
                2^10001: tool.failed: the exact result does not fit into 128 bits (at `^10001`)
                170141183460469231731687303715884105727+1: tool.failed: the exact result does not fit into 128 bits (at `+1`)
                999999999999999999999999999999999999999999: tool.failed: the exact result does not fit into 128 bits (at `999999999999999999999999999999999999999999`)
                0.00000000000000000000000000000000000000000001: tool.failed: the exact result does not fit into 128 bits (at `0.00000000000000000000000000000000000000000001`)
            "]],
        );
    }

    #[test]
    fn invalid_expression_names_what_was_expected() {
        check(
            &["", "2+", "(2", "2)", "2 3", "1,000", "two", "2 ** 3", ".", "5.", "1e5", "2 + é", "()"],
            &expect![[r"
                : tool.args_invalid: expected a number or `(`, found the end
                2+: tool.args_invalid: expected a number or `(`, found the end
                (2: tool.args_invalid: expected an operator or `)`, found the end
                2): tool.args_invalid: expected an operator or the end, found `)`
                2 3: tool.args_invalid: expected an operator or the end, found `3`
                1,000: tool.args_invalid: expected an operator or the end, found `,000`
                two: tool.args_invalid: expected a number or `(`, found `two`
                2 ** 3: tool.args_invalid: expected a number or `(`, found `* 3`
                .: tool.args_invalid: expected a number or `(`, found `.`
                5.: tool.args_invalid: expected an operator or the end, found `.`
                1e5: tool.args_invalid: expected an operator or the end, found `e5`
                2 + é: tool.args_invalid: expected a number or `(`, found `é`
                (): tool.args_invalid: expected a number or `(`, found `)`
            "]],
        );
    }

    #[test]
    fn length_and_depth_are_bounded() {
        assert_eq!(evaluate(&format!("{}1", "1+".repeat(499))).unwrap().to_string(), "500");
        let nested = |depth: usize| evaluate(&format!("{}1{}", "(".repeat(depth), ")".repeat(depth)));
        assert_eq!(nested(DEPTH_MOST).unwrap().to_string(), "1");
        let log = [
            evaluate(&"1".repeat(EXPRESSION_BYTES + 1)).unwrap_err().to_string(),
            nested(DEPTH_MOST + 1).unwrap_err().to_string(),
            evaluate(&"-".repeat(500)).unwrap_err().to_string(),
            evaluate(&"1^".repeat(400)).unwrap_err().to_string(),
        ];
        expect![[r"
            limit.exceeded: expression_bytes is limited to 1000, but this needs 1001
            limit.exceeded: expression_depth is limited to 64, but this needs 65
            limit.exceeded: expression_depth is limited to 64, but this needs 65
            limit.exceeded: expression_depth is limited to 64, but this needs 65
        "]]
        .assert_eq(&(log.join("\n") + "\n"));
    }

    proptest! {
        #[test]
        fn calculator_never_panics_on_any_text(text in "[0-9+*/%^(). -]{0,40}") {
            drop(evaluate(&text));
        }

        #[test]
        fn integer_results_match_native_arithmetic(a in -1000_i64..1000, b in -1000_i64..1000, c in 1_i64..1000) {
            let text = format!("({a} + {b}) * {c} - {a} % {c}");
            let want = (a + b) * c - a % c;
            prop_assert_eq!(evaluate(&text).unwrap().to_string(), want.to_string());
        }
    }
}
