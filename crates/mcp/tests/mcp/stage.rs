//! A scripted server, and an agent with its tools.
use outlast::prelude::*;
use outlast::providers::Rehearsal;
use outlast::runtime::worker::system::SystemClock;
use outlast::tools::egress::{Egress, EgressLimits, EgressRules, Network, SystemNameResolver};
use outlast::vocab::policy::Policy;
use outlast_mcp::{
    HttpTransport, McpConnection, McpServerSettings, McpServerSpec, McpTools, NetworkCheck,
    PinnedDefinitions, ServerTransport, StreamTransport,
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::net::{TcpListener, TcpStream};

/// Returns a server's answer to a request; `None` leaves the request unanswered.
pub(crate) type Answers = fn(method: &str, params: &Value) -> Option<Value>;

/// A server within the test that records the messages it receives.
#[derive(Clone)]
pub(crate) struct Stub {
    answers: Answers,
    received: Arc<Mutex<Vec<Value>>>,
}

impl Stub {
    pub(crate) fn new(answers: Answers) -> Self {
        Self { answers, received: Arc::default() }
    }

    /// Returns the answer to a message: from the test's script, or the default of every server. An answer `{"asks": …}`
    /// is a question to the user, whose reply becomes the result.
    pub(crate) fn reply(&self, message: &Value) -> Option<Value> {
        self.received.lock().unwrap().push(message.clone());
        let (id, params) = (message.get("id")?, &message["params"]);
        let Some(method) = message["method"].as_str() else {
            let call: u64 = id.as_str()?.strip_prefix("question-")?.parse().ok()?;
            let said = json!([{"type": "text", "text": message["result"].to_string()}]);
            return Some(json!({"jsonrpc": "2.0", "id": call, "result": {"content": said}}));
        };
        let result = match (self.answers)(method, params) {
            None if method == "initialize" => json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "stub", "version": "1"},
            }),
            None if method == "tools/call" => return None,
            None => {
                let error = json!({"code": -32601, "message": "not here"});
                return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
            Some(result) if result.get("asks").is_some() => {
                let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
                let params = json!({"message": result["asks"], "requestedSchema": schema});
                let question = format!("question-{id}");
                return Some(
                    json!({"jsonrpc": "2.0", "id": question, "method": "elicitation/create", "params": params}),
                );
            }
            Some(result) => result,
        };
        Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }

    /// Returns the received messages of this method, in order.
    pub(crate) fn received(&self, method: &str) -> Vec<Value> {
        let received = self.received.lock().unwrap();
        received.iter().filter(|message| message["method"] == method).cloned().collect()
    }

    /// Waits until this many messages of this method have arrived.
    pub(crate) async fn hears(&self, method: &str, times: usize) -> Vec<Value> {
        for _ in 0..2_000 {
            let received = self.received(method);
            if received.len() >= times {
                return received;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("`{method}` was not heard {times} times: {:?}", self.received.lock().unwrap());
    }

    /// Returns a connection to the server within this program.
    pub(crate) fn in_memory(&self) -> ServerTransport {
        let stub = self.clone();
        ServerTransport::Streams(StreamTransport::new(move || {
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            tokio::spawn(stub.clone().serve(theirs));
            ours
        }))
    }

    /// Returns a connection over streamable HTTP, at a local address.
    pub(crate) async fn over_http(&self) -> ServerTransport {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        tokio::spawn(serve(listener, self.clone()));
        let rules = EgressRules::for_url(&url, Network::Any).unwrap();
        let egress =
            Egress::with(rules.clone(), EgressLimits::default(), Arc::new(SystemNameResolver)).unwrap();
        let there = url.clone();
        let within = NetworkCheck::new(move |network| rules.clone().within(network)?.check(&there).map(drop));
        ServerTransport::Http(HttpTransport {
            url,
            client: egress.client().clone(),
            bearer: None,
            network_check: within,
        })
    }

    async fn serve(self, stream: DuplexStream) {
        let (read, mut write) = tokio::io::split(stream);
        let mut lines = BufReader::new(read).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let Some(reply) = self.reply(&serde_json::from_str(&line).unwrap()) else { continue };
            if write.write_all(format!("{reply}\n").as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

/// Returns a list of these tools, which accept any arguments.
pub(crate) fn tools(names: &[&str]) -> Value {
    let listed = names.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
    json!({ "tools": listed.collect::<Vec<_>>() })
}

/// Returns an agent that plays a script with all tools of the server, without approvals. The server is called `stub`.
pub(crate) async fn agent(way: ServerTransport, settings: McpServerSettings, script: &str) -> Outlast {
    let server = McpServerSpec { name: "stub".to_owned(), transport: way, settings };
    let mut pins = PinnedDefinitions::default();
    let offered = McpConnection::open(&server, &pins).await.unwrap().list().await.unwrap();
    pins.accept("stub", offered.tools).unwrap();
    let model = Rehearsal::scripted(script.parse().unwrap(), Arc::new(SystemClock));
    let tools = McpTools::new(vec![server], &pins).unwrap();
    let rule = json!({ "id": "tried", "tool": "*", "then": "allow" });
    let policy = Policy { rules: vec![serde_json::from_value(rule).unwrap()] };
    Outlast::ephemeral().provider(model).tools(tools).policy(policy).start().await.unwrap()
}

/// Serves streamable HTTP with one request per connection.
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
        // A waiting call keeps its connection open.
        None if message.get("id").is_some() => std::future::pending().await,
        None if posted => {
            "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned()
        }
        None => "HTTP/1.1 405 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
    };
    stream.write_all(reply.as_bytes()).await.unwrap();
}
