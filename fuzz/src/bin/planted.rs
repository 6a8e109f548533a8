//! libFuzzer on `outlast_fuzz`: the fault that proves that the search is guided.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("planted", data));
