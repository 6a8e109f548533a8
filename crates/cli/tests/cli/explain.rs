//! Tests of `outlast explain`.
use crate::place::Place;
use expect_test::expect;
use outlast::Kind;

#[test]
fn every_error_code_has_a_page() {
    let place = Place::new();
    for kind in Kind::ALL {
        let output = place.output(&["explain", kind.code()]);
        assert!(output.status.success(), "{}", kind.code());
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), kind.page().trim_end());
    }
}

#[test]
fn explain_without_a_code_lists_all_codes() {
    let text = String::from_utf8(Place::new().output(&["explain"]).stdout).unwrap();
    let rows: Vec<Vec<&str>> =
        text.lines().skip(1).map(|line| line.split_whitespace().take(2).collect()).collect();
    let all: Vec<Vec<&str>> = Kind::ALL.iter().map(|kind| vec![kind.code(), kind.class().name()]).collect();
    assert_eq!(rows, all);
}

#[test]
fn unknown_error_code_is_rejected() {
    Place::new().check(
        "explain no.such",
        &expect![[r#"
            $ explain no.such
            | error[input.invalid]: no error has the code `no.such`; `outlast explain` lists them
            |   read on with: outlast explain input.invalid
            exit 1
        "#]],
    );
}
