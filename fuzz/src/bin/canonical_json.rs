//! libFuzzer on `outlast_fuzz`: canonical JSON.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("canonical_json", data));
