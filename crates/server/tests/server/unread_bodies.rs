//! Requests that are answered before their body is read, over raw sockets.
use crate::stage::Stage;
use outlast_vocab::limits::ServerLimits;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const BODY: &str = r#"{"text": "hello"}"#;

/// Returns the head of an input with an invalid key. `more` are additional header lines.
fn head(address: SocketAddr, more: &str) -> String {
    format!(
        "POST /v1/turns HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer wrong\r\n\
         content-type: application/json\r\n{more}\r\n"
    )
}

/// Connects and sends the head of a request. Returns once its handler has answered.
async fn refused(stage: &Stage, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(stage.address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let key = stage.key("default", "operate").await;
    let counted = "outlast_http_requests_total{method=\"POST\",route=\"/v1/turns\",status=\"401\"} 1";
    loop {
        let metrics = stage.request("GET", "/metrics").key(&key).send().await;
        assert_eq!(metrics.status, 200);
        if metrics.body.contains(counted) {
            break;
        }
    }
    stream
}

/// Sends the rest, and returns what the server answers until it closes the connection.
async fn answers(mut stream: TcpStream, rest: String) -> String {
    let reading = tokio::task::spawn_blocking(move || {
        stream.write_all(rest.as_bytes()).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        answers
    });
    reading.await.unwrap()
}

fn statuses(answers: &str) -> Vec<&str> {
    answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect()
}

/// A second request, after which the connection ends.
fn next_request(address: SocketAddr) -> String {
    format!("GET /health/live HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")
}

#[tokio::test]
async fn refused_request_leaves_its_connection_usable() {
    let stage = Stage::keyed().await;
    let stream = refused(&stage, &head(stage.address, &format!("content-length: {}\r\n", BODY.len()))).await;
    let answers = answers(stream, format!("{BODY}{}", next_request(stage.address))).await;
    assert_eq!(statuses(&answers), ["401", "200"], "{answers}");
    stage.stop().await;
}

#[tokio::test]
async fn refused_chunked_request_leaves_its_connection_usable() {
    let stage = Stage::keyed().await;
    let stream = refused(&stage, &head(stage.address, "transfer-encoding: chunked\r\n")).await;
    let chunks = format!("{:x}\r\n{BODY}\r\n0\r\n\r\n", BODY.len());
    let answers = answers(stream, format!("{chunks}{}", next_request(stage.address))).await;
    assert_eq!(statuses(&answers), ["401", "200"], "{answers}");
    stage.stop().await;
}

#[tokio::test]
async fn oversized_unread_body_closes_its_connection() {
    let stage = Stage::keyed_with(ServerLimits { unread_body_bytes: 100, ..ServerLimits::default() }).await;
    let body = "x".repeat(1 << 20);
    let announced = format!("content-length: {}\r\n", body.len());
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for (more, body) in [(announced.as_str(), body), ("transfer-encoding: chunked\r\n", chunked)] {
        let mut stream = TcpStream::connect(stage.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(head(stage.address, more).as_bytes()).unwrap();
        // The server reads on until the client has its answer. A reset would discard it.
        let answers = answers(stream, body + &next_request(stage.address)).await;
        assert_eq!(statuses(&answers), ["401"], "{answers}");
        assert!(answers.contains("\r\nconnection: close\r\n"), "{answers}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn unread_body_that_never_arrives_closes_its_connection() {
    let limits = ServerLimits { unread_body_wait: Duration::from_millis(50), ..ServerLimits::default() };
    let stage = Stage::keyed_with(limits).await;
    let stream = refused(&stage, &head(stage.address, "content-length: 10\r\n")).await;
    let answers = answers(stream, String::new()).await;
    assert_eq!(statuses(&answers), ["401"], "{answers}");
    assert!(answers.contains("\r\nconnection: close\r\n"), "{answers}");
    stage.stop().await;
}

#[tokio::test]
async fn unread_body_is_not_asked_for() {
    let stage = Stage::keyed().await;
    let more = format!("content-length: {}\r\nexpect: 100-continue\r\n", BODY.len());
    let stream = refused(&stage, &head(stage.address, &more)).await;
    let answers = answers(stream, String::new()).await;
    assert_eq!(statuses(&answers), ["401"], "{answers}");
    assert!(answers.contains("\r\nconnection: close\r\n"), "{answers}");
    stage.stop().await;
}
