//! libFuzzer on `outlast_fuzz`: an envelope.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("envelope", data));
