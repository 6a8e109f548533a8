//! libFuzzer on `outlast_fuzz`: ids, hashes, names and codes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("id", data));
