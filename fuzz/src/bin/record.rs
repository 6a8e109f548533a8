//! libFuzzer on `outlast_fuzz`: a record's body.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("record", data));
