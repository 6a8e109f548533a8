//! Runs the official MCP conformance suite against the server.
//!
//! Its scenarios need tools, resources and prompts with certain names. The test program adds them to its
//! agents, as any program can. Transport, authentication, lists and elicitation are those of the server. No
//! scenario is expected to fail.
#![expect(deprecated, reason = "the revision that the suite speaks has logging and sampling")]
use outlast::prelude::*;
use outlast::vocab::access::Access;
use outlast_server::Server;
use outlast_server::mcp::{McpExtension, rmcp};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, ElicitRequestParams,
    GetPromptRequestParams, GetPromptResponse, InputRequiredResult, InputResponses, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, LoggingMessageNotificationParam,
    PaginatedRequestParams, ProgressNotificationParam, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams,
    UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::oneshot;

/// A red pixel and a short silence.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg==";
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA==";

/// The tools, resources and prompts that the suite expects.
struct ConformanceServer {
    /// Whether clients may subscribe to resources, as in revisions before the newest.
    subscribes: bool,
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|cause| ErrorData::internal_error(cause.to_string(), None))
}

/// Converts a final result. The newest revision marks it as complete; clients of older revisions do not see
/// the mark.
fn done<T: DeserializeOwned>(mut value: Value) -> Result<T, ErrorData> {
    value["resultType"] = "complete".into();
    read(value)
}

fn texts(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// Tools of the newest revision without parameters. They answer in rounds, or check rules of the revision.
const NEWER: [&str; 11] = [
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
    "test_streaming_elicitation",
    "test_missing_capability",
    "test_logging_tool",
];

/// Returns a request to the client, in the format of the newest revision.
fn asks(key: &str) -> Value {
    let form = |message: &str, name: &str, kind: &str| {
        let schema =
            json!({ "type": "object", "properties": { name: { "type": kind } }, "required": [name] });
        json!({ "method": "elicitation/create", "params": { "mode": "form", "message": message, "requestedSchema": schema } })
    };
    let sample = |text: &str| {
        let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
        json!({ "method": "sampling/createMessage", "params": { "messages": [message], "maxTokens": 100 } })
    };
    match key {
        "user_name" | "step1" => form("What is your name?", "name", "string"),
        "step2" => form("What is your favorite color?", "color", "string"),
        "user_context" => form("What context should the prompt use?", "context", "string"),
        "capital_question" => sample("What is the capital of France?"),
        "greeting" => sample("Generate a greeting"),
        "client_roots" => json!({ "method": "roots/list", "params": {} }),
        _ => form("Please confirm", "ok", "boolean"),
    }
}

/// Returns what a tool or prompt requests, round by round.
fn rounds(name: &str) -> &'static [&'static [&'static str]] {
    match name {
        "test_input_required_result_elicitation" | "test_streaming_elicitation" => &[&["user_name"]],
        "test_input_required_result_sampling" | "test_input_required_result_capabilities" => {
            &[&["capital_question"]]
        }
        "test_input_required_result_list_roots" => &[&["client_roots"]],
        "test_input_required_result_multiple_inputs" => &[&["user_name", "greeting", "client_roots"]],
        "test_input_required_result_multi_round" => &[&["step1"], &["step2"]],
        "test_input_required_result_prompt" => &[&["user_context"]],
        _ => &[&["confirm"]],
    }
}

/// Returns the next round, or the answers of the client after the last one.
fn round(
    name: &str,
    responses: Option<&InputResponses>,
    state: Option<&str>,
) -> Result<Result<InputRequiredResult, String>, ErrorData> {
    let all = rounds(name);
    let named = |round: usize| format!("{name}/{round}");
    let at = match state {
        None => 0,
        Some(state) => (0..all.len())
            .find(|round| named(*round) == state)
            .ok_or_else(|| ErrorData::invalid_params("the state is not one of ours", None))?,
    };
    let documented = |key: &&str| {
        responses.and_then(|documented| documented.get(*key)).filter(|documented| documented.is_object())
    };
    let next = if all[at].iter().all(|key| documented(key).is_some()) { at + 1 } else { at };
    let Some(wanted) = all.get(next) else {
        return Ok(Err(format!("state-ok {}", json!(responses))));
    };
    let asked: Value =
        wanted.iter().map(|key| ((*key).to_owned(), asks(key))).collect::<serde_json::Map<_, _>>().into();
    read(json!({ "resultType": "input_required", "inputRequests": asked, "requestState": named(next) }))
        .map(Ok)
}

fn schemas() -> Vec<(&'static str, Value)> {
    let none = json!({ "type": "object", "properties": {} });
    let one = |name: &str| json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name] });
    let new = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": { "type": "object", "properties": { "street": { "type": "string" }, "city": { "type": "string" } } } },
        "properties": { "name": { "type": "string" }, "address": { "$ref": "#/$defs/address" } },
        "additionalProperties": false
    });
    let newer = NEWER.iter().map(|name| (*name, none.clone())).collect::<Vec<_>>();
    let old = [
        ("test_simple_text", none.clone()),
        ("test_image_content", none.clone()),
        ("test_audio_content", none.clone()),
        ("test_embedded_resource", none.clone()),
        ("test_multiple_content_types", none.clone()),
        ("test_tool_with_logging", none.clone()),
        ("test_error_handling", none.clone()),
        ("test_tool_with_progress", none.clone()),
        ("test_sampling", one("prompt")),
        ("test_elicitation", one("message")),
        ("test_elicitation_sep1034_defaults", none.clone()),
        ("test_elicitation_sep1330_enums", none.clone()),
        ("test_reconnection", none),
        ("json_schema_2020_12_tool", new),
    ];
    [old.to_vec(), newer].concat()
}

/// Returns the schema of a tool's question.
fn form(tool: &str) -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    match tool {
        "test_elicitation" => json!({
            "type": "object",
            "properties": { "username": text("User's response"), "email": text("User's email address") },
            "required": ["username", "email"]
        }),
        "test_elicitation_sep1034_defaults" => json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "default": "John Doe" },
                "age": { "type": "integer", "default": 30 },
                "score": { "type": "number", "default": 95.5 },
                "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
                "verified": { "type": "boolean", "default": true }
            }
        }),
        _ => {
            let options = ["option1", "option2", "option3"];
            let titled = |word: &str| {
                let names = ["First", "Second", "Third"];
                let one = |(name, number): (&str, usize)| json!({ "const": format!("value{number}"), "title": format!("{name} {word}") });
                names.into_iter().zip(1..).map(one).collect::<Value>()
            };
            json!({
                "type": "object",
                "properties": {
                    "untitledSingle": { "type": "string", "enum": options },
                    "titledSingle": { "type": "string", "oneOf": titled("Option") },
                    "legacyEnum": {
                        "type": "string",
                        "enum": ["opt1", "opt2", "opt3"],
                        "enumNames": ["Option One", "Option Two", "Option Three"]
                    },
                    "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
                    "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } }
                }
            })
        }
    }
}

impl ConformanceServer {
    /// Asks the user of the client and returns the outcome.
    async fn ask(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Value, ErrorData> {
        let message = request.arguments.as_ref().and_then(|arguments| arguments.get("message")?.as_str());
        let asked = json!({ "mode": "form", "message": message.unwrap_or("Say."), "requestedSchema": form(&request.name) });
        let asked: ElicitRequestParams = read(asked)?;
        let failed = |cause: rmcp::service::ServiceError| ErrorData::internal_error(cause.to_string(), None);
        let answer = context.peer.create_elicitation(asked).await.map_err(failed)?;
        let action = json!(answer.action);
        Ok(texts(&format!("Elicitation completed: action={action}, content={}", json!(answer.content))))
    }

    /// Requests a reply from the client's model.
    async fn sample(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Value, ErrorData> {
        let prompt = request.arguments.as_ref().and_then(|arguments| arguments.get("prompt").cloned());
        let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
        let asked = read(json!({ "messages": [message], "maxTokens": 100 }))?;
        let failed = |cause: rmcp::service::ServiceError| ErrorData::internal_error(cause.to_string(), None);
        let said = context.peer.create_message(asked).await.map_err(failed)?;
        Ok(texts(&format!("LLM response: {}", json!(said)["content"]["text"].as_str().unwrap_or_default())))
    }

    async fn log(&self, context: &RequestContext<RoleServer>) -> Result<Value, ErrorData> {
        for said in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
            let line: LoggingMessageNotificationParam = read(json!({ "level": "info", "data": said }))?;
            let _ = context.peer.notify_logging_message(line).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(texts("logged"))
    }

    async fn advance(&self, context: &RequestContext<RoleServer>) -> Value {
        for percent in [0.0, 50.0, 100.0] {
            if let Some(token) = context.meta.get_progress_token() {
                let progress = ProgressNotificationParam::new(token, percent).with_total(100.0);
                let _ = context.peer.notify_progress(progress).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        texts("done")
    }
}

impl ServerHandler for ConformanceServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_prompts().enable_completions().enable_tools();
        let mut capabilities = capabilities.enable_resources().build();
        if self.subscribes {
            capabilities.resources.get_or_insert_default().subscribe = Some(true);
        }
        capabilities.logging = Some(serde_json::Map::new());
        ServerConfig::new(capabilities)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = |(name, schema): (&str, Value)| json!({ "name": name, "description": "For the suite.", "inputSchema": schema });
        done(json!({ "tools": schemas().into_iter().map(tool).collect::<Vec<_>>() }))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let resource = |uri: &str, kind: &str, text: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "text": text } });
        let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
        let name = request.name.as_ref();
        if name.starts_with("test_input_required") || name == "test_streaming_elicitation" {
            let (responses, state) = (request.input_responses.as_ref(), request.request_state.as_deref());
            return Ok(match round(name, responses, state)? {
                Ok(asks) => asks.into(),
                Err(said) => done::<rmcp::model::CallToolResult>(texts(&said))?.into(),
            });
        }
        let result = match name {
            "test_missing_capability" => {
                let needed = json!({ "requiredCapabilities": { "sampling": {} } });
                let capable = context.client_capabilities().is_some_and(|can| can.sampling.is_some());
                if !capable {
                    let code = rmcp::model::ErrorCode(-32021);
                    return Err(ErrorData::new(code, "it takes a client that samples", Some(needed)));
                }
                texts("Here.")
            }
            "test_simple_text" => texts("This is a simple text response for testing."),
            "test_image_content" => json!({ "content": [image] }),
            "test_audio_content" => {
                json!({ "content": [{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }] })
            }
            "test_embedded_resource" => {
                let text = "This is an embedded resource content.";
                json!({ "content": [resource("test://embedded-resource", "text/plain", text)] })
            }
            "test_multiple_content_types" => {
                let data = resource(
                    "test://mixed-content-resource",
                    "application/json",
                    r#"{"test":"data","value":123}"#,
                );
                let text = json!({ "type": "text", "text": "Multiple content types test:" });
                json!({ "content": [text, image, data] })
            }
            "test_tool_with_logging" => self.log(&context).await?,
            "test_error_handling" => {
                let mut result = texts("This tool intentionally returns an error for testing");
                result["isError"] = true.into();
                result
            }
            "test_tool_with_progress" => self.advance(&context).await,
            "test_sampling" => self.sample(&request, &context).await?,
            "test_reconnection" | "json_schema_2020_12_tool" | "test_logging_tool" => texts("Here."),
            name if name.starts_with("test_elicitation") => self.ask(&request, &context).await?,
            name => return Err(ErrorData::invalid_params(format!("there is no tool `{name}`"), None)),
        };
        done::<rmcp::model::CallToolResult>(result).map(Into::into)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resource = |(name, kind): (&str, &str)| json!({ "uri": format!("test://{name}"), "name": name, "description": "For the suite.", "mimeType": kind });
        let all = [
            ("static-text", "text/plain"),
            ("static-binary", "image/png"),
            ("watched-resource", "text/plain"),
        ];
        done(json!({ "resources": all.into_iter().map(resource).collect::<Vec<_>>() }))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = json!({ "uriTemplate": "test://template/{id}/data", "name": "template", "description": "For the suite." });
        done(json!({ "resourceTemplates": [template] }))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
        let contents = match (uri, id) {
            ("test://static-text", _) => {
                json!({ "uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource." })
            }
            ("test://static-binary", _) => json!({ "uri": uri, "mimeType": "image/png", "blob": PNG }),
            ("test://watched-resource", _) => {
                json!({ "uri": uri, "mimeType": "text/plain", "text": "Watched." })
            }
            (_, Some(id)) => {
                let text = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") })
                    .to_string();
                json!({ "uri": uri, "mimeType": "application/json", "text": text })
            }
            _ => {
                return Err(ErrorData::resource_not_found(
                    format!("there is no `{uri}`"),
                    Some(json!({ "uri": uri })),
                ));
            }
        };
        done::<rmcp::model::ReadResourceResult>(json!({ "contents": [contents] })).map(Into::into)
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompt = |(name, arguments): (&str, &[&str])| {
            let argument =
                |name: &&str| json!({ "name": name, "description": "Any text.", "required": true });
            let arguments: Vec<Value> = arguments.iter().map(argument).collect();
            json!({ "name": name, "description": "For the suite.", "arguments": arguments })
        };
        let all: [(&str, &[&str]); 5] = [
            ("test_simple_prompt", &[]),
            ("test_input_required_result_prompt", &[]),
            ("test_prompt_with_arguments", &["arg1", "arg2"]),
            ("test_prompt_with_embedded_resource", &["resourceUri"]),
            ("test_prompt_with_image", &[]),
        ];
        done(json!({ "prompts": all.into_iter().map(prompt).collect::<Vec<_>>() }))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let argument = |name: &str| {
            let said = request.arguments.as_ref().and_then(|arguments| arguments.get(name)?.as_str());
            said.unwrap_or_default().to_owned()
        };
        let user = |content: Value| json!({ "role": "user", "content": content });
        let text = |text: &str| user(json!({ "type": "text", "text": text }));
        if request.name == "test_input_required_result_prompt" {
            let (responses, state) = (request.input_responses.as_ref(), request.request_state.as_deref());
            return Ok(match round(&request.name, responses, state)? {
                Ok(asks) => asks.into(),
                Err(said) => {
                    done::<rmcp::model::GetPromptResult>(json!({ "messages": [text(&said)] }))?.into()
                }
            });
        }
        let messages = match request.name.as_str() {
            "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
            "test_prompt_with_arguments" => {
                vec![text(&format!(
                    "Prompt with arguments: arg1='{}', arg2='{}'",
                    argument("arg1"),
                    argument("arg2")
                ))]
            }
            "test_prompt_with_embedded_resource" => {
                let said = "Embedded resource content for testing.";
                let resource =
                    json!({ "uri": argument("resourceUri"), "mimeType": "text/plain", "text": said });
                let resource = user(json!({ "type": "resource", "resource": resource }));
                vec![resource, text("Please process the embedded resource above.")]
            }
            "test_prompt_with_image" => {
                let image = user(json!({ "type": "image", "data": PNG, "mimeType": "image/png" }));
                vec![image, text("Please analyze the image above.")]
            }
            name => return Err(ErrorData::invalid_params(format!("there is no prompt `{name}`"), None)),
        };
        done::<rmcp::model::GetPromptResult>(json!({ "messages": messages })).map(Into::into)
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        done(json!({ "completion": { "values": ["paris", "park", "party"], "total": 3, "hasMore": false } }))
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }
}

fn need(folder: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/needs").join(folder);
    let suite = root.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    assert!(suite.exists(), "{} is not there; `cargo xtask test` installs it", suite.display());
    suite
}

/// Runs a suite. Its output must contain `says`, because a suite that runs nothing would also succeed.
async fn check(wanted: ConformanceServer, suite: &str, scenarios: &[&str], says: &str) {
    let outlast = Outlast::ephemeral().start().await.unwrap();
    let ann = Access::to(outlast::OrgId::DEFAULT).by("person:ann".parse().unwrap());
    let server = Server::bind(outlast.runtime(), "127.0.0.1:0".parse().unwrap(), ann).await.unwrap();
    let (url, (stop, stopped)) = (format!("http://{}/mcp", server.address()), oneshot::channel::<()>());
    let task = tokio::spawn(server.mcp(McpExtension::new(wanted)).serve(async { drop(stopped.await) }));
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server");
    let run = Command::new("node")
        .arg("--import")
        .arg(tests.join("conformance.mjs"))
        .arg(need(suite))
        .args(["server", "--url", &url])
        .args(scenarios)
        .output();
    let output = run.await.unwrap();
    let documented = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{documented}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(documented.contains(says), "{documented}");
    drop(stop);
    task.await.unwrap().unwrap();
    outlast.shut_down().await;
}

#[tokio::test]
async fn mcp_conformance_suite_passes() {
    let wanted = ConformanceServer { subscribes: true };
    check(wanted, "mcp-conformance", &["--suite", "all"], "Total: 46 passed, 0 failed").await;
}

/// Runs everything that the revision requires. The suite also runs unscored scenarios: those of extensions
/// that this server does not have, and those that its own reference implementation does not pass yet.
#[tokio::test]
async fn newest_mcp_conformance_suite_passes() {
    let wanted = ConformanceServer { subscribes: false };
    let says = "✓ input-required-result-validate-input: 3 passed, 0 failed";
    check(wanted, "mcp-conformance-next", &["--requirements", "2026-07-28"], says).await;
}
