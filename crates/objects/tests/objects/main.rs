//! Contents in a folder and in a bucket keep to the rules of their port, and what only these two can do wrong.
mod bucket;
mod folder;
mod server;

use outlast_ports::conformance::Running;

/// Places work inside a runtime of tokio.
fn run(rule: Running<'_>) {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("the system gives threads")
        .block_on(rule);
}
