//! The fuzz targets. Each takes any bytes, parses them like untrusted input, and asserts invariants. A panic is a
//! finding.
//!
//! The targets are plain functions. They are called by libFuzzer (the workspace in `fuzz/`, `cargo xtask fuzz`), by the
//! test that replays the corpus, and by the program of this crate, which replays one file.
mod calculator;
mod canonical_spelling;
mod egress;
mod mcp;
mod planted;
mod providers;
mod records;
mod rehearsal;
mod validation;

/// A fuzz target.
pub struct FuzzTarget {
    /// The name; also of its corpus directory and its file in `fuzz/src/bin`.
    pub name: &'static str,
    /// The function.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "record", run: records::record },
    FuzzTarget { name: "history", run: records::history },
    FuzzTarget { name: "envelope", run: records::envelope },
    FuzzTarget { name: "canonical_json", run: canonical_spelling::canonical_json },
    FuzzTarget { name: "id", run: canonical_spelling::id },
    FuzzTarget { name: "completion_key", run: canonical_spelling::completion_key },
    FuzzTarget { name: "script", run: rehearsal::script },
    FuzzTarget { name: "agent", run: rehearsal::agent },
    FuzzTarget { name: "calculator", run: calculator::calculator },
    FuzzTarget { name: "sse", run: providers::sse },
    FuzzTarget { name: "openai_chat", run: providers::openai_chat },
    FuzzTarget { name: "openai_responses", run: providers::openai_responses },
    FuzzTarget { name: "anthropic", run: providers::anthropic },
    FuzzTarget { name: "gemini", run: providers::gemini },
    FuzzTarget { name: "url_policy", run: egress::url_policy },
    FuzzTarget { name: "mcp", run: mcp::mcp },
    FuzzTarget { name: "validation", run: validation::validation },
    FuzzTarget { name: "planted", run: planted::planted },
];

/// Runs the target of this name on these bytes. The programs in `fuzz/src/bin` call it.
///
/// # Panics
/// If there is no such target, or if the target finds something.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.unwrap_or_else(|| panic!("no fuzz target is called `{name}`")).run)(data);
}
