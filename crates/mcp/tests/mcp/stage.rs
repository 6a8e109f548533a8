//! A server that a test scripts, and an agent that has its tools.
use outlast::prelude::*;
use outlast::providers::Rehearsal;
use outlast::runtime::system::SystemClock;
use outlast::vocab::policy::Policy;
use outlast_mcp::{Link, McpTools, Pins, Server, Settings, Streams, Way};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

/// What a server answers to a request of this method with these parameters; nothing if it lets it wait.
pub(crate) type Answers = fn(method: &str, params: &Value) -> Option<Value>;

/// A server within the test, and what it heard so far.
#[derive(Clone)]
pub(crate) struct Stub {
    answers: Answers,
    heard: Arc<Mutex<Vec<Value>>>,
}

impl Stub {
    pub(crate) fn new(answers: Answers) -> Self {
        Self { answers, heard: Arc::default() }
    }

    /// What it says to a message: whatever the test says, and what every server says. An answer `{"asks": …}` is a question
    /// to the user; what the user says is the result then.
    pub(crate) fn reply(&self, message: &Value) -> Option<Value> {
        self.heard.lock().unwrap().push(message.clone());
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

    /// Messages of this method, in the order they came.
    pub(crate) fn heard(&self, method: &str) -> Vec<Value> {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|message| message["method"] == method).cloned().collect()
    }

    /// Waits until so many messages of this method have come.
    pub(crate) async fn hears(&self, method: &str, times: usize) -> Vec<Value> {
        for _ in 0..2_000 {
            let heard = self.heard(method);
            if heard.len() >= times {
                return heard;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("`{method}` was not heard {times} times: {:?}", self.heard.lock().unwrap());
    }

    /// It within this program.
    pub(crate) fn in_memory(&self) -> Way {
        let stub = self.clone();
        Way::Streams(Streams::new(move || {
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            tokio::spawn(stub.clone().serve(theirs));
            ours
        }))
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

/// A list with these tools, which take anything.
pub(crate) fn tools(names: &[&str]) -> Value {
    let listed = names.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
    json!({ "tools": listed.collect::<Vec<_>>() })
}

/// An agent that plays a script with everything the server offers, unasked. The server is called `stub`.
pub(crate) async fn agent(way: Way, settings: Settings, script: &str) -> Outlast {
    let server = Server { name: "stub".to_owned(), way, settings };
    let mut pins = Pins::default();
    let offered = Link::open(&server, &pins).await.unwrap().list().await.unwrap();
    pins.accept("stub", offered.tools).unwrap();
    let model = Rehearsal::scripted(script.parse().unwrap(), Arc::new(SystemClock));
    let tools = McpTools::new(vec![server], &pins).unwrap();
    let rule = json!({ "id": "tried", "tool": "*", "then": "allow" });
    let policy = Policy { rules: vec![serde_json::from_value(rule).unwrap()] };
    Outlast::ephemeral().provider(model).tools(tools).policy(policy).start().await.unwrap()
}
