//! Overload: the server rejects excess requests, keeps what it accepted, and does not grow.
use crate::stage::{Stage, agent};
use outlast::vocab::Limits;
use outlast::vocab::record::TurnEnd;
use outlast_vocab::TurnId;
use outlast_vocab::limits::ServerLimits;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The number of clients, ten times the number of connections.
const CLIENTS: usize = 320;

/// The size of a padded body.
const PADDING: usize = 1 << 20;

/// Returns the resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Returns the status and body of an answer, or 0 if the connection was closed without one.
fn post(address: SocketAddr, body: &[u8]) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let head = format!(
        "POST /v1/turns HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    // A rejected client gets its answer before the whole body is sent, so writing may fail.
    let _ = stream.write_all(body);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    Ok((status.unwrap_or(0), body))
}

/// The answers that clients got.
#[derive(Default)]
struct SeenAnswers {
    statuses: BTreeMap<(u16, String), usize>,
    receipts: Vec<TurnId>,
}

fn client(number: usize, address: SocketAddr, until: Instant, seen: &Mutex<SeenAnswers>) {
    let mut padded = format!("{{\"session_key\": \"{}\", \"text\": \"hello\"}}", number % 8).into_bytes();
    if number.is_multiple_of(4) {
        padded.resize(PADDING, b' ');
    }
    while Instant::now() < until {
        let Ok((status, body)) = post(address, &padded) else { continue };
        let answer: Value = serde_json::from_str(&body).unwrap_or_default();
        let mut seen = seen.lock().unwrap();
        let code = answer["code"].as_str().unwrap_or_default().to_owned();
        *seen.statuses.entry((status, code)).or_default() += 1;
        if (200..300).contains(&status) {
            seen.receipts.push(answer["turn"].as_str().unwrap().parse().unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn overload_refuses_excess_and_loses_no_accepted_input() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Limits { queued_inputs: 4, ..Limits::default() };
    let builder = agent(&dir.path().join("outlast.db")).limits(queue);
    let limits = ServerLimits {
        connections: CLIENTS / 10,
        requests_at_once: 16,
        bodies_bytes: 4 << 20,
        ..ServerLimits::default()
    };
    let stage = Stage::built(builder, |policy| policy, limits).await;
    let (address, seen) = (stage.address, Arc::new(Mutex::new(SeenAnswers::default())));
    let (over, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let before = resident();
    let watching = std::thread::spawn({
        let (over, most) = (over.clone(), most.clone());
        move || {
            while !over.load(Ordering::SeqCst) {
                most.fetch_max(resident(), Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    });
    let until = Instant::now() + Duration::from_secs(5);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let seen = seen.clone();
            let small = std::thread::Builder::new().stack_size(256 << 10);
            small.spawn(move || client(number, address, until, &seen)).unwrap()
        })
        .collect();
    let joined = tokio::task::spawn_blocking(move || {
        clients.into_iter().try_for_each(|client| client.join().map(drop))
    });
    joined.await.unwrap().unwrap();
    over.store(true, Ordering::SeqCst);
    watching.join().unwrap();

    let SeenAnswers { statuses, receipts } = std::mem::take(&mut *seen.lock().unwrap());
    let codes: Vec<(u16, &str)> = statuses.keys().map(|(status, code)| (*status, code.as_str())).collect();
    let allowed = [(0, ""), (202, ""), (429, "queue.full"), (503, "server.busy")];
    assert!(codes.iter().all(|seen| allowed.contains(seen)), "{statuses:?}");
    assert!([(202, ""), (503, "server.busy")].iter().all(|seen| codes.contains(seen)), "{statuses:?}");
    for turn in &receipts {
        let end = stage.outlast.runtime().outcome(*turn).await.unwrap();
        assert!(matches!(end, TurnEnd::Answered { .. }), "{turn}: {end:?}");
    }
    // A quarter of this limit is for the bodies of the clients, which run in this process.
    let grown = most.load(Ordering::SeqCst).saturating_sub(before) >> 20;
    assert!(grown < 256, "{grown} MiB, {statuses:?}");
    // Afterwards, the server works as before.
    assert_eq!(stage.say("later", "hello").await["end"]["how"], "answered");
    stage.stop().await;
}

#[tokio::test]
async fn excess_session_input_is_refused_and_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Limits { queued_inputs: 2, ..Limits::default() };
    let builder = agent(&dir.path().join("outlast.db")).limits(queue);
    let stage = Stage::built(builder, |policy| policy, ServerLimits::default()).await;
    let parked = stage.park("ann", "later").await;
    let input = json!({ "session_key": "ann", "text": "hello" });
    let send = || stage.post("/v1/turns", &input);
    assert_eq!([send().await.status, send().await.status], [202, 202]);
    let refused = send().await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "queue.full"));
    assert_eq!((refused.header("retry-after"), &refused.json()["class"]), (Some("1"), &json!("retry")));
    let turns = stage.get(&format!("/v1/sessions/{}/turns", parked["session"].as_str().unwrap())).await.ok();
    assert_eq!(turns["items"].as_array().unwrap().len(), 3);
    stage.stop().await;
}

#[tokio::test]
async fn excess_connection_is_refused_with_retry_after() {
    let limits = ServerLimits { connections: 2, ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let waits = || tokio::spawn(stage.request("GET", "/v1/events?wait=3").send());
    let waiting = [waits(), waits()];
    let refused = loop {
        let answer = stage.get("/v1/sessions").await;
        if answer.status != 200 {
            break answer;
        }
    };
    assert_eq!((refused.status, refused.code().as_str()), (503, "server.busy"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.json()["detail"], "connections is limited to 2, and so many are open");
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().status, 200);
    }
    assert_eq!(stage.get("/v1/sessions").await.status, 200);
    stage.stop().await;
}

/// Connects, and sends part of a request.
fn connected(address: SocketAddr, sent: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(sent).unwrap();
    stream
}

#[tokio::test]
async fn idle_connections_make_room_for_new_clients() {
    // Timeouts must not close the idle connections, so theirs is an hour. A busy machine may need more than a
    // second to close one.
    let limits = ServerLimits {
        connections: 8,
        connection_wait: Duration::from_secs(20),
        header_wait: Duration::from_hours(1),
        ..ServerLimits::default()
    };
    let stage = Stage::with(|policy| policy, limits).await;
    let address = stage.address;
    let whole = format!("GET /health/live HTTP/1.1\r\nhost: {address}\r\n\r\n").into_bytes();
    // Some send nothing, some send part of a head, and some were answered and kept alive.
    let mut streams: Vec<TcpStream> = Vec::new();
    for number in 0..24 {
        let sent = match number % 3 {
            0 => &b""[..],
            1 => &whole[..20],
            _ => &whole[..],
        };
        streams.push(connected(address, sent));
    }
    let began = Instant::now();
    for _ in 0..16 {
        assert_eq!(stage.get("/v1/sessions").await.status, 200);
    }
    assert!(began.elapsed() < Duration::from_secs(20), "took {:?}", began.elapsed());
    // The longest idle connection was closed.
    assert_eq!(streams[0].read(&mut [0; 1]).unwrap(), 0);
    stage.stop().await;
}

/// Connects and sends requests whose answers do not fit into the buffers of both sides. Reads no answer.
async fn never_reads(address: SocketAddr) -> tokio::net::TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let request = format!("GET /openapi.json HTTP/1.1\r\nhost: {address}\r\n\r\n");
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.repeat(200).as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn evicted_client_that_never_reads_is_cut_off() {
    let limits = ServerLimits {
        connections: 1,
        connection_wait: Duration::from_secs(20),
        header_wait: Duration::from_hours(1),
        ..ServerLimits::default()
    };
    let stage = Stage::with(|policy| policy, limits).await;
    let silent = never_reads(stage.address).await;
    assert_eq!(stage.get("/v1/sessions").await.status, 200);
    drop(silent);
    stage.stop().await;
}

#[tokio::test]
async fn ambiguous_requests_are_refused() {
    let stage = Stage::new().await;
    let address = stage.address;
    let ask = |request: String| {
        tokio::task::spawn_blocking(move || {
            let mut stream = connected(address, request.as_bytes());
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        })
    };
    let live = format!("GET /health/live HTTP/1.1\r\nhost: {address}\r\n\r\n");
    for (request, status, detail) in [
        (
            format!("GET /health/live HTTP/1.1\nhost: {address}\n\n"),
            400,
            "a header line of the request ends in CR or LF alone; expected both",
        ),
        (
            format!(
                "POST /v1/turns HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: 5\r\n\
                 transfer-encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
            400,
            "the request has two lengths; expected `content-length` or `transfer-encoding`, once",
        ),
        (
            format!(
                "GET http://evil.example/health/live HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
            ),
            403,
            "the request is for `evil.example`, but its header `host` names",
        ),
    ] {
        let alone = ask(request.clone()).await.unwrap();
        assert!(alone.starts_with(&format!("HTTP/1.1 {status} ")), "{alone}");
        assert!(alone.contains(detail), "{alone}");
        // Requests before it are answered first.
        let behind = ask(format!("{live}{live}{request}")).await.unwrap();
        let statuses: Vec<&str> = behind.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
        assert_eq!(statuses, ["200", "200", &status.to_string()], "{behind}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn excess_request_is_refused_but_health_check_answers() {
    let limits = ServerLimits { requests_at_once: 1, ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let waiting = tokio::spawn(stage.request("GET", "/v1/events?wait=2").send());
    let refused = loop {
        let answer = stage.get("/v1/sessions").await;
        if answer.status != 200 {
            break answer;
        }
    };
    assert_eq!((refused.status, refused.code().as_str()), (503, "server.busy"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(stage.get("/health/live").await.status, 200);
    assert_eq!(stage.get("/health/ready").await.status, 200);
    assert_eq!(waiting.await.unwrap().status, 200);
    assert_eq!(stage.get("/v1/sessions").await.status, 200);
    stage.stop().await;
}

/// Attaches a file that does not fit into the buffers of both sides of a connection. Returns its path.
async fn large_file(stage: &Stage) -> String {
    let large = "x".repeat(30 << 20);
    let form = format!(
        "--B\r\ncontent-disposition: form-data; name=\"input\"\r\n\r\n{{\"text\": \"hello\"}}\r\n--B\r\n\
         content-disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\ncontent-type: text/plain\r\n\r\n{large}\r\n--B--\r\n"
    );
    let sent = stage.request("POST", "/v1/turns?wait=20").bytes("multipart/form-data; boundary=B", form);
    let session = sent.send().await.ok()["session"].as_str().unwrap().to_owned();
    let list = format!("/v1/sessions/{session}/attachments");
    let id = stage.get(&list).await.ok()["items"][0]["id"].as_str().unwrap().to_owned();
    format!("{list}/{id}")
}

#[tokio::test]
async fn download_that_is_never_read_is_cut_off() {
    let limits = ServerLimits {
        connections: 1,
        connection_wait: Duration::from_secs(20),
        write_wait: Duration::from_millis(200),
        ..ServerLimits::default()
    };
    let stage = Stage::with(|policy| policy, limits).await;
    let file = large_file(&stage).await;
    let silent = stage.request("GET", &file).download().await;
    assert_eq!(stage.get("/v1/sessions").await.status, 200);
    let (bytes, is_whole) = silent.rest().await;
    assert!(!is_whole, "{bytes} bytes came");
    stage.stop().await;
}

#[tokio::test]
async fn downloads_of_a_caller_are_limited() {
    let limits = ServerLimits { streams_per_caller: 2, ..ServerLimits::default() };
    let stage = Stage::with(|policy| policy, limits).await;
    let file = large_file(&stage).await;
    let export = file.split_once("/attachments").unwrap().0.to_owned() + "/export";
    let open = [stage.request("GET", &file).download().await, stage.request("GET", &export).download().await];
    for path in [&file, &export] {
        let refused = stage.get(path).await;
        assert_eq!((refused.status, refused.code().as_str()), (429, "caller.busy"));
    }
    drop(open);
    while stage.get("/metrics").await.body.contains("outlast_streams_open 2") {}
    stage.stop().await;
}
