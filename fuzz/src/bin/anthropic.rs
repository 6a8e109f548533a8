//! libFuzzer on `outlast_fuzz`: a stream of Messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("anthropic", data));
