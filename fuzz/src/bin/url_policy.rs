//! libFuzzer on `outlast_fuzz`: a URL, a rule of egress, an address.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("url_policy", data));
