//! libFuzzer on `outlast_fuzz`: the facts of a turn.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("history", data));
