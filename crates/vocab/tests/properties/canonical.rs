//! Tests of canonical JSON: the examples of RFC 8785, the deliberate differences, and properties of every
//! value.
use crate::pieces::json_value;
use outlast_vocab::canonical_json;
use proptest::prelude::*;
use serde_json::{Number, Value, json};

#[track_caller]
fn check(json: &str, canonical: &str) {
    let value: Value = serde_json::from_str(json).unwrap();
    assert_eq!(canonical_json::to_string(&value), canonical);
}

/// The bits of a double and its form in appendix B of the RFC.
const DOUBLES: &[(u64, &str)] = &[
    (0x0000_0000_0000_0000, "0"),
    (0x8000_0000_0000_0000, "0"),
    (0x0000_0000_0000_0001, "5e-324"),
    (0x8000_0000_0000_0001, "-5e-324"),
    (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
    (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
    (0x4340_0000_0000_0000, "9007199254740992"),
    (0xc340_0000_0000_0000, "-9007199254740992"),
    (0x4430_0000_0000_0000, "295147905179352830000"),
    (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
    (0x44b5_2d02_c7e1_4af6, "1e+23"),
    (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
    (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
    (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
    (0x444b_1ae4_d6e2_ef50, "1e+21"),
    (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
    (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
    (0x41b3_de43_5555_5553, "333333333.3333332"),
    (0x41b3_de43_5555_5554, "333333333.33333325"),
    (0x41b3_de43_5555_5555, "333333333.3333333"),
    (0x41b3_de43_5555_5556, "333333333.3333334"),
    (0x41b3_de43_5555_5557, "333333333.33333343"),
    (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
    (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
];

#[test]
fn doubles_match_the_rfc_table() {
    for (bits, spelling) in DOUBLES {
        assert_eq!(canonical_json::to_string(&f64::from_bits(*bits)), *spelling, "{bits:016x}");
    }
}

#[test]
fn non_finite_numbers_cannot_occur_in_values() {
    for bits in [0x7fff_ffff_ffff_ffff, 0x7ff0_0000_0000_0000, 0xfff0_0000_0000_0000] {
        assert_eq!(Number::from_f64(f64::from_bits(bits)), None);
    }
    assert!(serde_json::from_str::<Value>("1e309").is_err());
}

#[test]
fn rfc_sample_yields_its_bytes() {
    let sample = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let canonical = concat!(
        r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
        "\"string\":\"\u{20ac}$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}",
    );
    check(sample, canonical);
}

#[test]
fn members_sort_as_in_the_rfc_example() {
    let names = r#"{
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\ud83d\ude00": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis"
    }"#;
    let sorted = concat!(
        "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",",
        "\"\u{f6}\":\"Latin Small Letter O With Diaeresis\",\"\u{20ac}\":\"Euro Sign\",",
        "\"\u{1f600}\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
    );
    check(names, sorted);
}

#[test]
fn sixty_four_bit_integers_are_exact_unlike_rfc() {
    // The RFC converts each of these pairs to one double.
    check("[9007199254740992, 9007199254740993]", "[9007199254740992,9007199254740993]");
    check("[18446744073709551614, 18446744073709551615]", "[18446744073709551614,18446744073709551615]");
    check("[-9223372036854775807, -9223372036854775808]", "[-9223372036854775807,-9223372036854775808]");
}

#[test]
fn larger_integer_becomes_double_when_parsed() {
    // A reader of the value gets the double, so two of these with the same form are the same call.
    check("[18446744073709551616, 18446744073709551617]", "[18446744073709552000,18446744073709552000]");
    check("295147905179352825856", "295147905179352830000");
}

#[test]
fn large_double_may_look_like_nearby_integer() {
    check("9223372036854775808.0", "9223372036854776000");
    check("9223372036854776000", "9223372036854776000");
    check("9223372036854775808", "9223372036854775808");
}

/// Returns the value as JSON text with its members in descending order.
fn backwards(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(backwards).collect::<Vec<_>>().join(",")),
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by(|(a, _), (b, _)| b.cmp(a));
            let member = |(name, value): (&String, &Value)| format!("{} : {}", json!(name), backwards(value));
            format!("{{{}}}", sorted.into_iter().map(member).collect::<Vec<_>>().join(" , "))
        }
        leaf => leaf.to_string(),
    }
}

/// Returns whether two values are equal: integers exactly, and a double equal to the integer with its value.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) if one.is_f64() || other.is_f64() => {
            one.as_f64() == other.as_f64()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, one)| other.get(name).is_some_and(|other| same(one, other)))
        }
        (one, other) => one == other,
    }
}

proptest! {
    #[test]
    fn canonical_json_reads_back_as_the_same_value(value in json_value()) {
        let read: Value = serde_json::from_str(&canonical_json::to_string(&value)).unwrap();
        prop_assert!(same(&read, &value), "{read} is not {value}");
    }

    #[test]
    fn doubles_in_common_range_have_no_exponent(bits in any::<u64>()) {
        let double = f64::from_bits(bits);
        prop_assume!(double.is_finite());
        let spelling = canonical_json::to_string(&double);
        let plain = double == 0.0 || (1e-6..1e21).contains(&double.abs());
        prop_assert_eq!(!spelling.contains('e'), plain, "{}", spelling);
        prop_assert_eq!(spelling.parse(), Ok(double));
    }

    #[test]
    fn canonical_json_is_its_own_canonical_form(value in json_value()) {
        let once = canonical_json::to_string(&value);
        let read: Value = serde_json::from_str(&once).unwrap();
        prop_assert_eq!(canonical_json::to_string(&read), once);
    }

    #[test]
    fn canonical_json_ignores_order_and_whitespace(value in json_value()) {
        let other: Value = serde_json::from_str(&backwards(&value)).unwrap();
        prop_assert_eq!(canonical_json::fingerprint(&other), canonical_json::fingerprint(&value));
    }

    #[test]
    fn two_integers_never_share_a_canonical_form(a in any::<u64>(), b in any::<u64>(), c in any::<i64>()) {
        prop_assert_eq!(canonical_json::to_string(&a) == canonical_json::to_string(&b), a == b);
        prop_assert_eq!(canonical_json::to_string(&a) == canonical_json::to_string(&c), i128::from(a) == i128::from(c));
    }
}
