//! The offers of a server: tools, resources and prompts.
use super::{McpConnection, with_timeout};
use crate::content::{self, ResourceBody};
use crate::pins::{TOOLS_PER_SERVER, ToolDefinition, lookalike_key};
use outlast_ports::tool::failed;
use outlast_vocab::{Error, Kind};
use rmcp::model::{
    GetPromptRequestParams, PaginatedRequestParams, Prompt, PromptArgument, ReadResourceRequestParams,
    Resource, ResourceContents, ResourceTemplate, Role,
};
use rmcp::service::{Peer, RoleClient, ServiceError};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The name of our tool that reads resources. A server with resources need not have a tool for them.
pub(crate) const READ_RESOURCE: &str = "read_resource";

/// The maximum number of resources, templates or prompts of one server.
const LISTED_MAX: usize = TOOLS_PER_SERVER;

/// Everything that a server offers.
#[derive(Debug)]
pub struct ServerListing {
    /// The server's title.
    pub title: String,
    /// Its tools, plus one that reads its resources if it has any.
    pub tools: Vec<ToolDefinition>,
    /// The addresses of its resources.
    pub resources: Vec<String>,
    /// Its prompts with their arguments.
    pub prompts: Vec<String>,
}

/// A message of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptLine {
    /// The speaker: `user` or `assistant`.
    pub role: &'static str,
    /// The text of the message.
    pub text: String,
}

impl ToolDefinition {
    /// Returns the definition of the tool that reads resources.
    pub(crate) fn read_resource() -> Self {
        let uri = json!({"type": "string", "description": "The address of a resource."});
        let input = [
            ("type", json!("object")),
            ("properties", json!({ "uri": uri })),
            ("additionalProperties", json!(false)),
        ];
        let description =
            "Reads a resource of this server by its address. Without an address it lists the resources.";
        Self {
            name: READ_RESOURCE.to_owned(),
            title: None,
            description: Some(description.to_owned()),
            input: input.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            output: None,
            annotations: None,
        }
    }
}

impl McpConnection {
    /// Lists everything that the server offers now.
    pub async fn list(&self) -> Result<ServerListing, Error> {
        let title = self.service.peer().peer_info().and_then(|info| info.server_info.clone());
        let title = title.map_or_else(String::new, |info| format!("{} {}", info.name, info.version));
        let mut tools = self.tools().await?;
        // A server without any of these may not know the method.
        let resources = self.with_request_timeout(self.resources()).await.unwrap_or_default();
        let templates = self.with_request_timeout(self.templates()).await.unwrap_or_default();
        if resources.is_empty() && templates.is_empty() {
            tools.retain(|tool| !tool.is_ours());
        }
        let prompts = self.with_request_timeout(self.prompts()).await.unwrap_or_default();
        Ok(ServerListing {
            title,
            tools,
            resources: resources.into_iter().map(|resource| resource.uri).collect(),
            prompts: prompts.iter().map(prompt_usage).collect(),
        })
    }

    /// Reads a resource.
    pub async fn read(&self, uri: &str) -> Result<Vec<ResourceBody>, Error> {
        let read = self.bounded_by_caller(self.contents(uri));
        let contents = with_timeout(&self.shared.server, read).await?;
        contents.iter().map(|contents| ResourceBody::of(&self.shared.server, contents)).collect()
    }

    /// Returns the messages of a prompt with these arguments.
    pub async fn prompt(
        &self,
        name: &str,
        arguments: BTreeMap<String, String>,
    ) -> Result<Vec<PromptLine>, Error> {
        let arguments: Map<String, Value> =
            arguments.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
        let asked = GetPromptRequestParams::new(name).with_arguments(arguments);
        let prompt = self.bounded_by_caller(self.service.get_prompt(asked));
        let prompt = with_timeout(&self.shared.server, prompt).await?;
        let line = |message: &rmcp::model::PromptMessage| PromptLine {
            role: if matches!(message.role, Role::User) { "user" } else { "assistant" },
            text: content::text(std::slice::from_ref(&message.content)),
        };
        Ok(prompt.messages.iter().map(line).collect())
    }

    /// Returns the contents of a resource.
    pub(crate) async fn contents(&self, uri: &str) -> Result<Vec<ResourceContents>, ServiceError> {
        Ok(self.service.read_resource(ReadResourceRequestParams::new(uri)).await?.contents)
    }

    /// Lists the resources for a model, one per line, followed by the address templates.
    pub(crate) async fn resource_directory(&self) -> Result<String, ServiceError> {
        let line = |uri: &str, name: &str, description: Option<&String>| match description {
            Some(description) => format!("{uri} {name}: {description}"),
            None => format!("{uri} {name}"),
        };
        let (resources, templates) = (self.resources().await?, self.templates().await.unwrap_or_default());
        let resources = resources.iter().map(|one| line(&one.uri, &one.name, one.description.as_ref()));
        let templates =
            templates.iter().map(|one| line(&one.uri_template, &one.name, one.description.as_ref()));
        Ok(resources.chain(templates).collect::<Vec<_>>().join("\n"))
    }

    /// Awaits an answer without a timeout, for callers that have their own deadline.
    pub(crate) async fn bounded_by_caller<T>(
        &self,
        asked: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, Error> {
        let server = &self.shared.server;
        asked.await.map_err(|cause| match cause {
            ServiceError::McpError(error) => {
                failed(format!("the MCP server `{server}` refuses: {}", self.redacted(&error.message)))
            }
            cause => Error::new(Kind::ToolUnavailable, self.failed(&cause).detail()),
        })
    }

    async fn resources(&self) -> Result<Vec<Resource>, ServiceError> {
        let mut pages = PagedList::default();
        while let Some(page) = pages.next() {
            let page = self.service.list_resources(Some(page)).await?;
            pages.add(page.resources, page.next_cursor);
        }
        Ok(pages.found)
    }

    async fn templates(&self) -> Result<Vec<ResourceTemplate>, ServiceError> {
        let mut pages = PagedList::default();
        while let Some(page) = pages.next() {
            let page = self.service.list_resource_templates(Some(page)).await?;
            pages.add(page.resource_templates, page.next_cursor);
        }
        Ok(pages.found)
    }

    async fn prompts(&self) -> Result<Vec<Prompt>, ServiceError> {
        let mut pages = PagedList::default();
        while let Some(page) = pages.next() {
            let page = self.service.list_prompts(Some(page)).await?;
            pages.add(page.prompts, page.next_cursor);
        }
        Ok(pages.found)
    }
}

/// Lists the tools of a server over all pages, plus the tool that reads resources if the server declares any.
pub(super) async fn all_tools(peer: &Peer<RoleClient>) -> Result<Vec<ToolDefinition>, ServiceError> {
    let mut pages = PagedList::default();
    while let Some(page) = pages.next() {
        let page = peer.list_tools(Some(page)).await?;
        pages.add(page.tools, page.next_cursor);
    }
    let mut tools: Vec<ToolDefinition> = pages.found.iter().map(ToolDefinition::of).collect();
    let has_resources = peer.peer_info().is_some_and(|info| info.capabilities.resources.is_some());
    if has_resources && !tools.iter().any(|tool| lookalike_key(&tool.name) == lookalike_key(READ_RESOURCE)) {
        tools.push(ToolDefinition::read_resource());
    }
    Ok(tools)
}

/// A paginated list. A list that does not end is cut off once it exceeds the maximum.
struct PagedList<T> {
    found: Vec<T>,
    cursor: Option<String>,
    asked: usize,
}

impl<T> Default for PagedList<T> {
    fn default() -> Self {
        Self { found: Vec::new(), cursor: None, asked: 0 }
    }
}

impl<T> PagedList<T> {
    /// Returns the request for the next page, if there is one.
    fn next(&self) -> Option<PaginatedRequestParams> {
        let wanted = self.asked == 0 || self.cursor.is_some();
        let bounded = self.asked < LISTED_MAX && self.found.len() <= LISTED_MAX;
        (wanted && bounded).then(|| PaginatedRequestParams::default().with_cursor(self.cursor.clone()))
    }

    fn add(&mut self, page: Vec<T>, cursor: Option<String>) {
        self.found.extend(page);
        self.cursor = cursor;
        self.asked += 1;
    }
}

/// Formats a prompt with its arguments, as in a command line.
fn prompt_usage(prompt: &Prompt) -> String {
    let argument = |argument: &PromptArgument| match argument.required {
        Some(true) => format!(" {}=…", argument.name),
        _ => format!(" [{}=…]", argument.name),
    };
    let arguments: String = prompt.arguments.iter().flatten().map(argument).collect();
    format!("{}{arguments}", prompt.name)
}
