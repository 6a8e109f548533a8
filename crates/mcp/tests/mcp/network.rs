//! A server over HTTP is subject to the network access of a turn.
use crate::stage::{Stub, agent, tools};
use outlast::vocab::overlay::{NetworkAllowList, Overlay};
use outlast_mcp::McpServerSettings;
use serde_json::json;

#[tokio::test]
async fn turn_network_allow_list_also_blocks_mcp_servers() {
    let stub = Stub::new(|method, _| match method {
        "tools/list" => Some(tools(&["look"])),
        "tools/call" => Some(json!({ "content": [{ "type": "text", "text": "seen" }] })),
        _ => None,
    });
    let outlast = agent(
        stub.over_http().await,
        McpServerSettings::default(),
        "call stub.look {}\n---\nsay {{result 0}}",
    )
    .await;
    let outcome = async |who: &str, network: NetworkAllowList| {
        let less = Overlay { network, ..Overlay::default() };
        outlast.session(who).send("go").with_overlay(less).await.unwrap().answer().await.unwrap()
    };
    assert_eq!(outcome("ann", NetworkAllowList::default()).await, "seen");
    for (who, network, only) in [
        ("bob", NetworkAllowList::only(["example.com"]), "example.com"),
        ("cleo", NetworkAllowList::only([""; 0]), "none"),
    ] {
        let outcome = outcome(who, network).await;
        let denied = format!("the network of the agent is restricted to: {only}");
        assert!(outcome.starts_with("error egress.denied") && outcome.contains(&denied), "{outcome}");
    }
    assert_eq!(stub.received("tools/call").len(), 1);
}
