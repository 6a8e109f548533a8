//! libFuzzer on `outlast_fuzz`: an event stream.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("sse", data));
