//! Directories and buckets pass the conformance suite of contents. Further tests cover their specific failures.
mod bucket;
mod folder;
mod server;

use outlast_conformance::RuleFuture;

/// Runs a rule in a tokio runtime.
fn run(rule: RuleFuture<'_>) {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("the system gives threads")
        .block_on(rule);
}
