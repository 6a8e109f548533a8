//! A tool that is written wrong does not compile, and the compiler says what to do. Each file in `refused` is one mistake;
//! its neighbour is what the compiler says. `TRYBUILD=overwrite` writes those anew.

#[test]
fn every_mistake_is_refused_with_what_to_do() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
