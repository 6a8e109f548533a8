//! libFuzzer on `outlast_fuzz`: a stream of Responses.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("openai_responses", data));
