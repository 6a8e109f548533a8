//! libFuzzer on `outlast_fuzz`: a JSON Schema and a value.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("validation", data));
