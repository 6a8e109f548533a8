//! A simulated MCP server, used through the real client.
//!
//! The client's SDK spawns tasks on tokio. Each life has its own tokio runtime, which only runs when it is driven:
//! after a task that may have woken something in it was polled, it runs until everything in it waits ([`DrivenTokio`]). This
//! way the schedule controls the order here too. A server dies with the process that started it; its effects remain.
use crate::effect_recorder::EffectRecorder;
use crate::tools::{ToolEnvironment, yield_to_others};
use outlast_mcp::{
    McpServerSettings, McpServerSpec, McpTools, PinnedDefinitions, ServerTransport, StreamTransport,
    ToolDefinition,
};
use outlast_ports::ResultFuture;
use outlast_ports::service::CallScope;
use outlast_ports::spawner::Spawner;
use outlast_ports::tool::{Call, DecoratedTools, ToolDecorator, ToolProvider, ToolRunOutcome};
use outlast_vocab::tool::{EffectClass, PreparedCall};
use outlast_vocab::{CallId, Error, Kind};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::runtime::{Builder, Runtime};

const NAME: &str = "bank";

/// Its tools: one that must not be repeated, one that the operator declares pure, and one that asks the user.
const OFFERS: [&str; 3] = ["pay", "look", "ask"];

/// The key that answers its question, by which users name it.
pub(crate) const QUESTION: &str = "ask-0-0-0";

/// The id of its question.
const ASKS: &str = "q";

/// The buffer size of a stream in bytes.
const STREAM_BUFFER_BYTES: usize = 64 << 10;

/// How often to drive tokio: more often than anything here needs.
const ROUNDS: usize = 8;

/// Runs the client of the server, for one process.
pub(crate) struct SimMcpClient {
    inside: DrivenTokio,
    witness: Arc<EffectRecorder>,
}

impl SimMcpClient {
    /// Returns the tools of a server that is restarted for each connection.
    pub(crate) fn tools(
        around: &ToolEnvironment,
        spawner: Arc<dyn Spawner>,
    ) -> Result<DecoratedTools<Self>, Error> {
        let inside = DrivenTokio::new()?;
        let (to_server, world) = (inside.clone(), around.clone());
        let connect = move || {
            let (ours, theirs) = tokio::io::duplex(STREAM_BUFFER_BYTES);
            let served = serve(theirs, world.clone());
            spawner.spawn(Box::pin(to_server.clone().run_inside(served)));
            ours
        };
        let classes = [("look", EffectClass::Pure), ("ask", EffectClass::Idempotent)];
        let settings = McpServerSettings {
            classes: classes.map(|(tool, class)| (tool.to_owned(), class)).into(),
            ..McpServerSettings::default()
        };
        let server = McpServerSpec {
            name: NAME.to_owned(),
            transport: ServerTransport::Streams(StreamTransport::new(connect)),
            settings,
        };
        let mut pins = PinnedDefinitions::default();
        pins.accept(NAME, OFFERS.map(definition).into())?;
        let tools = McpTools::new(vec![server], &pins)?.with_process_name(&format!("life {}", around.life));
        let client = Self { inside, witness: around.witness.clone() };
        Ok(DecoratedTools::new(Arc::new(tools), client))
    }
}

fn definition(name: &str) -> ToolDefinition {
    let input = Map::from_iter([("type".to_owned(), json!("object"))]);
    ToolDefinition {
        name: name.to_owned(),
        title: None,
        description: None,
        input,
        output: None,
        annotations: None,
    }
}

impl ToolDecorator for SimMcpClient {
    fn execute<'a>(
        &'a self,
        tools: &'a dyn ToolProvider,
        prepared: &'a PreparedCall,
        call: Call,
        scope: Arc<dyn CallScope>,
    ) -> ResultFuture<'a, ToolRunOutcome> {
        Box::pin(async move {
            self.witness.sent(call.session, call.id);
            self.witness.record_completion_key(call.session, QUESTION, scope.event_key(QUESTION)?);
            self.inside.clone().run_inside(tools.execute(prepared, call, scope)).await
        })
    }
}

/// The tokio runtime of one life.
#[derive(Clone)]
struct DrivenTokio(Arc<Runtime>);

impl DrivenTokio {
    fn new() -> Result<Self, Error> {
        // Its time is paused. Only timeouts for unresponsive servers depend on it, and this server responds.
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime
            .map(|runtime| Self(Arc::new(runtime)))
            .map_err(|cause| Error::new(Kind::Internal, format!("tokio does not start: {cause}")))
    }

    /// Runs work inside the tokio runtime. Everything that it wakes there runs immediately.
    async fn run_inside<T>(self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|task| {
            let inside = self.0.enter();
            let polled = work.as_mut().poll(task);
            drop(inside);
            for _ in 0..ROUNDS {
                self.0.block_on(tokio::task::yield_now());
            }
            polled
        })
        .await
    }
}

/// Runs the server: answers messages in order until the client is gone.
async fn serve(stream: DuplexStream, around: ToolEnvironment) {
    let (read, mut write) = tokio::io::split(stream);
    let mut lines = BufReader::new(read).lines();
    let mut asking = BTreeMap::new();
    while let Ok(Some(line)) = lines.next_line().await {
        yield_to_others().await;
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        let Some(reply) = reply(&message, &around, &mut asking).await else { continue };
        yield_to_others().await;
        if write.write_all(format!("{reply}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Returns the answer to a message. Calls that wait for the user are stored by the id of the question.
async fn reply(
    message: &Value,
    around: &ToolEnvironment,
    asking: &mut BTreeMap<String, Value>,
) -> Option<Value> {
    let id = message.get("id")?;
    let answer = |result: Value| Some(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    match message["method"].as_str() {
        Some("initialize") => answer(json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": NAME, "version": "1"},
        })),
        Some("tools/list") => {
            let offers = OFFERS.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
            answer(json!({ "tools": offers }))
        }
        Some("tools/call") => {
            let params = &message["params"];
            let call: CallId = params["_meta"]["outlast/call"].as_str()?.parse().ok()?;
            let tool = params["name"].as_str()?;
            around.witness.record_server_execution(&format!("{NAME}.{tool}"), call);
            yield_to_others().await;
            if tool != "ask" {
                return answer(said(&format!("{tool}: {}", params["arguments"]["text"])));
            }
            let question = format!("{ASKS}{}", asking.len());
            asking.insert(question.clone(), id.clone());
            let who =
                json!({"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]});
            let params = json!({"message": "Who?", "requestedSchema": who});
            Some(json!({"jsonrpc": "2.0", "id": question, "method": "elicitation/create", "params": params}))
        }
        Some(_) => {
            let error = json!({"code": -32601, "message": "not here"});
            Some(json!({"jsonrpc": "2.0", "id": id, "error": error}))
        }
        None => {
            let call = asking.get(id.as_str()?)?;
            let who = &message["result"]["content"]["who"];
            Some(json!({"jsonrpc": "2.0", "id": call, "result": said(&format!("ask: {who}"))}))
        }
    }
}

fn said(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}
