//! libFuzzer on `outlast_fuzz`: a completion key.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("completion_key", data));
