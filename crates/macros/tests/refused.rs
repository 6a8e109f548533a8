//! Wrong uses of `#[tool]` do not compile, and the compiler says what to do. Each file in `refused` is one mistake,
//! with the expected compiler output beside it. `TRYBUILD=overwrite` rewrites the output.

#[test]
fn macro_errors_explain_how_to_fix_them() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
