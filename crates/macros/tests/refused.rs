//! Wrong uses of `#[tool]` do not compile, and the compiler says what to do. Each file in `refused` is one mistake,
//! with the expected compiler output beside it. `TRYBUILD=overwrite` rewrites the output.

#[test]
fn every_mistake_is_refused_with_what_to_do() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
