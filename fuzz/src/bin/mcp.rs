//! libFuzzer on `outlast_fuzz`: what an MCP server says.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| outlast_fuzz::run("mcp", data));
