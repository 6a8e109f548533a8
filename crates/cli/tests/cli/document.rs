//! Tests the server against its OpenAPI document: schemathesis sends valid and invalid requests.
use crate::place::Place;
use crate::serve::Server;
use std::path::Path;
use std::process::Command;

/// A key with all scopes and a person, so that no request fails with a missing permission.
const KEY: [&str; 14] = [
    "keys", "create", "fuzz", "--person", "--scope", "read", "--scope", "run", "--scope", "approve",
    "--scope", "operate", "--scope", "admin",
];

/// Do not wait for events.
const SETTINGS: &str = "[parameters]\n\"query.wait\" = 0\n";

/// Checks that do not apply.
///
/// A well-formed value may still be refused: the server creates cursors, and a message may not exist. The
/// server may also accept numbers that do not fit into a signed 64-bit integer.
const UNASKED: &str = "positive_data_acceptance,negative_data_rejection,ensure_resource_availability";

#[test]
fn fuzzed_requests_get_documented_responses() {
    let place = Place::with_script("any\nsay yes");
    assert!(place.output(&["run", "hello", "--script", "script.txt"]).status.success());
    let key = String::from_utf8(place.output(&KEY).stdout).unwrap();
    place.write("schemathesis.toml", SETTINGS);
    // Schemathesis tries a wrong key on every route, and each must be refused as a wrong key, not by the
    // limit.
    place.write("outlast.toml", "[server]\nwrong_keys_per_minute = 1000000\n");
    let server = Server::run(&place, "127.0.0.1:0", &["--script", "script.txt", "--require-key"]);
    let program = "../../target/needs/schemathesis/bin/schemathesis";
    let run = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(program))
        .current_dir(place.path())
        .args(["run", &format!("http://{}/openapi.json", server.address)])
        .args(["--header", &format!("Authorization: Bearer {}", key.trim())])
        .args(["--checks", "all", "--exclude-checks", UNASKED, "--request-timeout", "30"])
        .args(["--max-examples", "10", "--seed", "1", "--no-color"])
        .output()
        .expect("`cargo xtask test` installs schemathesis");
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{output}");
    for phase in ["Examples", "Coverage", "Fuzzing", "Stateful"] {
        assert!(output.contains(&format!("✅ {phase}")), "{output}");
    }
    server.kill();
}
