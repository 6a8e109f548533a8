//! Tests of an MCP server that runs in a sandbox.
use super::{accept, plain, play};
use crate::place::Place;
use expect_test::expect;

#[test]
fn sandboxed_mcp_server_reaches_only_granted_paths() {
    let place =
        plain("tries", "sandbox = true\nread = [\"plain.py\", \"shown\"]\nwrite = [\"own\"]\nenv = []\n");
    std::fs::create_dir(place.path().join("shown")).unwrap();
    std::fs::create_dir(place.path().join("own")).unwrap();
    place.write("shown/a.txt", "a");
    accept(&place);
    play(
        &place,
        "call plain.environ {}\n---\nsay {{result 0}}",
        &expect![[r#"
        read what it may: yes
        read the agent: PermissionError
        read the journal: PermissionError
        list the directory: PermissionError
        write what it may: yes
        write what it may read: PermissionError
        write elsewhere: PermissionError
        connect: PermissionError
        look into others: PermissionError
        | · plain.environ {} (rule `servers`)
        | · plain.environ → read what it may: yes⏎read the agent: PermissionError⏎read the journal: …
    "#]],
    );
    place.check(
        "mcp list",
        &expect![[r#"
        $ mcp list
        SERVER  WAY                                       ACCEPTED
        plain   python3 DIR/./plain.py tries  3 tools
    "#]],
    );
}

#[test]
fn only_command_mcp_servers_accept_a_sandbox() {
    let place = Place::new();
    let mut log = String::new();
    for server in
        ["url = \"https://a.example/mcp\"\nsandbox = true\n", "command = [\"true\"]\nread = [\".\"]\n"]
    {
        place.write("agent.toml", &format!("name = \"a\"\n[mcp.a]\n{server}"));
        log += &place.show(&place.output(&["mcp", "list"]));
    }
    expect![[r#"
        | error[config.invalid]: agent.toml:2: MCP server `a`: only a `command` can have a `sandbox`
        |   read on with: outlast explain config.invalid
        exit 1
        | error[config.invalid]: agent.toml:2: MCP server `a`: `read` and `write` require `sandbox = true`
        |   read on with: outlast explain config.invalid
        exit 1
    "#]]
    .assert_eq(&log);
}
