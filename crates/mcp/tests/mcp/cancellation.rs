//! A server hears when nobody waits for its answer any more.
use crate::stage::{Stub, agent, tools};
use outlast::Outlast;
use outlast::tools::egress::{Caps, Egress, Network, Rules, SystemLookup};
use outlast_mcp::{Http, Settings, Way};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A server whose one tool never answers.
fn silent() -> Stub {
    Stub::new(|method, _| (method == "tools/list").then(|| tools(&["wait"])))
}

const SCRIPT: &str = "call stub.wait {}\n---\nsay {{result 0}}";

/// What the server hears of a call whose turn is cancelled.
async fn cancelled(stub: &Stub, outlast: &Outlast) -> (Value, Value) {
    let turn = outlast.session("ann").send("go").await.unwrap();
    let call = stub.hears("tools/call", 1).await.remove(0);
    turn.cancel("enough").await.unwrap();
    turn.outcome().await.unwrap();
    (
        call["id"].clone(),
        stub.hears("notifications/cancelled", 1).await.remove(0)["params"]["requestId"].clone(),
    )
}

#[tokio::test]
async fn a_server_hears_that_a_call_passed_its_deadline() {
    let stub = silent();
    let settings = Settings { deadline: Some(Duration::from_millis(200)), ..Settings::default() };
    let outlast = agent(stub.in_memory(), settings, SCRIPT).await;
    let said = outlast.session("ann").send("go").await.unwrap().answer().await.unwrap();
    assert_eq!(said, "error tool.timed_out: the tool did not finish within 200 ms");
    let heard = stub.hears("notifications/cancelled", 1).await;
    assert_eq!(heard[0]["params"]["requestId"], stub.heard("tools/call")[0]["id"]);
}

#[tokio::test]
async fn a_server_hears_that_the_turn_of_a_call_was_cancelled() {
    let stub = silent();
    let outlast = agent(stub.in_memory(), Settings::default(), SCRIPT).await;
    let (call, heard) = cancelled(&stub, &outlast).await;
    assert_eq!(call, heard);
}

#[tokio::test]
async fn a_server_over_http_hears_that_the_turn_of_a_call_was_cancelled() {
    let stub = silent();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(serve(listener, stub.clone()));
    let rules = Rules::for_url(&url, Network::Any).unwrap();
    let egress = Egress::with(rules, Caps::default(), Arc::new(SystemLookup)).unwrap();
    let way = Way::Http(Http { url, client: egress.client().clone(), bearer: None });
    let outlast = agent(way, Settings::default(), SCRIPT).await;
    let (call, heard) = cancelled(&stub, &outlast).await;
    assert_eq!(call, heard);
}

/// The server over streamable HTTP: a request a connection.
async fn serve(listener: TcpListener, stub: Stub) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream, stub.clone()));
    }
}

async fn answer(stream: TcpStream, stub: Stub) {
    let mut stream = BufReader::new(stream);
    let (mut line, mut length, mut posted) = (String::new(), 0, false);
    while stream.read_line(&mut line).await.unwrap() > 2 {
        posted |= line.starts_with("POST");
        let header = line.to_ascii_lowercase();
        length =
            header.strip_prefix("content-length: ").map_or(length, |value| value.trim().parse().unwrap());
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let reply = match stub.reply(&message) {
        Some(reply) => {
            let reply = reply.to_string();
            let length = reply.len();
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{reply}"
            )
        }
        // A call that waits keeps its connection.
        None if message.get("id").is_some() => std::future::pending().await,
        None if posted => {
            "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned()
        }
        None => "HTTP/1.1 405 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
    };
    stream.write_all(reply.as_bytes()).await.unwrap();
}
