//! The fuzz targets. Each takes any bytes, parses them like untrusted input, and asserts invariants. A panic is a
//! finding.
//!
//! The targets are plain functions. They are called by libFuzzer (the workspace in `fuzz/`, `cargo xtask fuzz`), by the
//! test that replays the corpus, and by the program of this crate, which replays one file.
mod calculator;
mod egress;
mod mcp;
mod planted;
mod providers;
mod records;
mod rehearsal;
mod spelling;
mod validation;

/// A fuzz target.
pub struct Target {
    /// The name; also of its corpus directory and its file in `fuzz/src/bin`.
    pub name: &'static str,
    /// The function.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "record", run: records::record },
    Target { name: "history", run: records::history },
    Target { name: "envelope", run: records::envelope },
    Target { name: "canonical_json", run: spelling::canonical_json },
    Target { name: "id", run: spelling::id },
    Target { name: "completion_key", run: spelling::completion_key },
    Target { name: "script", run: rehearsal::script },
    Target { name: "agent", run: rehearsal::agent },
    Target { name: "calculator", run: calculator::calculator },
    Target { name: "sse", run: providers::sse },
    Target { name: "openai_chat", run: providers::openai_chat },
    Target { name: "openai_responses", run: providers::openai_responses },
    Target { name: "anthropic", run: providers::anthropic },
    Target { name: "gemini", run: providers::gemini },
    Target { name: "url_policy", run: egress::url_policy },
    Target { name: "mcp", run: mcp::mcp },
    Target { name: "validation", run: validation::validation },
    Target { name: "planted", run: planted::planted },
];

/// Runs the target of this name on these bytes. The programs in `fuzz/src/bin` call it.
///
/// # Panics
/// If there is no such target, or if the target finds something.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.unwrap_or_else(|| panic!("no fuzz target is called `{name}`")).run)(data);
}
