//! A server over HTTP is subject to the network access of a turn.
use crate::stage::{Stub, agent, tools};
use outlast::vocab::overlay::{Overlay, Reach};
use outlast_mcp::Settings;
use serde_json::json;

#[tokio::test]
async fn a_turn_that_lets_less_be_reached_keeps_a_server_out_as_it_keeps_pages_out() {
    let stub = Stub::new(|method, _| match method {
        "tools/list" => Some(tools(&["look"])),
        "tools/call" => Some(json!({ "content": [{ "type": "text", "text": "seen" }] })),
        _ => None,
    });
    let outlast =
        agent(stub.over_http().await, Settings::default(), "call stub.look {}\n---\nsay {{result 0}}").await;
    let told = async |who: &str, network: Reach| {
        let less = Overlay { network, ..Overlay::default() };
        outlast.session(who).send("go").with(less).await.unwrap().answer().await.unwrap()
    };
    assert_eq!(told("ann", Reach::default()).await, "seen");
    for (who, network, only) in
        [("bob", Reach::only(["example.com"]), "example.com"), ("cleo", Reach::only([""; 0]), "none")]
    {
        let told = told(who, network).await;
        let denied = format!("the network of the agent is narrowed to: {only}");
        assert!(told.starts_with("error egress.denied") && told.contains(&denied), "{told}");
    }
    assert_eq!(stub.heard("tools/call").len(), 1);
}
