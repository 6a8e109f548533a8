//! libFuzzer on `outlast_fuzz`: an expression for the calculator.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("calculator", data));
