//! libFuzzer on `outlast_fuzz`: a rehearsal script.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("script", data));
