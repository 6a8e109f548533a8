//! libFuzzer on `outlast_fuzz`: a stream of Chat Completions.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("openai_chat", data));
