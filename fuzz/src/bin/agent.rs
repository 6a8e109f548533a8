//! libFuzzer on `outlast_fuzz`: what is said to the rehearsal model.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("agent", data));
