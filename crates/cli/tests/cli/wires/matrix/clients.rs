//! The clients, and what is expected of each.
use self::Column::{
    Abort, Cancel, Error, ForcedTool, Image, KillBeforeAnswer, KillMidStream, ModelError, MultiTurn, Options,
    ParallelTools, Plain, Restart, Streaming, Structured, Tools,
};

/// A column of the published tables: a capability, or a scenario of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Column {
    Plain,
    Streaming,
    Tools,
    ParallelTools,
    Structured,
    MultiTurn,
    Image,
    Options,
    ForcedTool,
    Abort,
    Error,
    ModelError,
    Cancel,
    KillMidStream,
    KillBeforeAnswer,
    Restart,
}

pub(super) const CAPABILITIES: [Column; 11] =
    [Plain, Streaming, Tools, ParallelTools, Structured, MultiTurn, Image, Options, ForcedTool, Abort, Error];

pub(super) const SCENARIOS: [Column; 5] = [ModelError, Cancel, KillMidStream, KillBeforeAnswer, Restart];

impl Column {
    /// The name that the programs print.
    pub(super) fn name(self) -> &'static str {
        match self {
            Plain => "plain",
            Streaming => "streaming",
            Tools => "tools",
            ParallelTools => "parallel_tools",
            Structured => "structured",
            MultiTurn => "multi_turn",
            Image => "image",
            Options => "options",
            ForcedTool => "forced_tool",
            Abort => "abort",
            Error => "error",
            ModelError => "model_error",
            Cancel => "cancel",
            KillMidStream => "kill_mid_stream",
            KillBeforeAnswer => "kill_before_answer",
            Restart => "restart",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Python,
    JavaScript,
}

/// A client with one API, and what does not work.
pub(super) struct Client {
    pub(super) title: &'static str,
    pub(super) language: Language,
    /// A file of `testing/clients`.
    pub(super) program: &'static str,
    /// The API or the provider package that the program uses.
    pub(super) variant: &'static str,
    /// The package whose version is published.
    pub(super) package: &'static str,
    /// The page in `docs/guide` without its ending, if the client works.
    pub(super) page: Option<&'static str>,
    /// Columns that do not work yet, each with a part of what the program reports.
    gaps: &'static [(Column, &'static str)],
    /// Columns that the client does not have, each with the reason.
    absent: &'static [(Column, &'static str)],
}

impl Client {
    pub(super) fn gap(&self, column: Column) -> Option<&'static str> {
        find(self.gaps, column)
    }

    pub(super) fn absent(&self, column: Column) -> Option<&'static str> {
        find(self.absent, column)
    }
}

fn find(cells: &'static [(Column, &'static str)], column: Column) -> Option<&'static str> {
    cells.iter().find(|(cell, _)| *cell == column).map(|(_, reason)| *reason)
}

// Gaps that several clients share.
const OPTIONS: (Column, &str) = (Options, "is not supported");
const CHOICE: (Column, &str) = (ForcedTool, "`tool_choice` is not supported");
const STRUCTURED_BY_CHOICE: (Column, &str) = (Structured, "`tool_choice` is not supported");
const IMAGE_URLS: (Column, &str) = (Image, "URLs are not fetched");
const IMAGE_URL_SOURCES: (Column, &str) = (Image, "only data in the request itself is supported");

pub(super) const OPENAI_PYTHON_RESPONSES: Client = Client {
    title: "OpenAI SDK for Python, Responses",
    language: Language::Python,
    program: "openai_sdk.py",
    variant: "responses",
    package: "openai",
    page: Some("clients/openai-sdk"),
    gaps: &[OPTIONS, CHOICE, IMAGE_URLS],
    absent: &[],
};

pub(super) const OPENAI_PYTHON_CHAT: Client = Client {
    title: "OpenAI SDK for Python, Chat Completions",
    language: Language::Python,
    program: "openai_sdk.py",
    variant: "chat",
    package: "openai",
    page: Some("clients/openai-sdk"),
    gaps: &[OPTIONS, CHOICE, IMAGE_URLS],
    absent: &[],
};

pub(super) const OPENAI_JS_RESPONSES: Client = Client {
    title: "OpenAI SDK for JavaScript, Responses",
    language: Language::JavaScript,
    program: "openai.mjs",
    variant: "responses",
    package: "openai",
    page: Some("clients/openai-sdk"),
    gaps: &[OPTIONS, CHOICE, IMAGE_URLS],
    absent: &[],
};

pub(super) const OPENAI_JS_CHAT: Client = Client {
    title: "OpenAI SDK for JavaScript, Chat Completions",
    language: Language::JavaScript,
    program: "openai.mjs",
    variant: "chat",
    package: "openai",
    page: Some("clients/openai-sdk"),
    gaps: &[OPTIONS, CHOICE, IMAGE_URLS],
    absent: &[],
};

pub(super) const ANTHROPIC_PYTHON: Client = Client {
    title: "Anthropic SDK for Python",
    language: Language::Python,
    program: "anthropic_sdk.py",
    variant: "messages",
    package: "anthropic",
    page: Some("clients/anthropic-sdk"),
    gaps: &[OPTIONS, CHOICE, IMAGE_URL_SOURCES],
    absent: &[],
};

pub(super) const ANTHROPIC_JS: Client = Client {
    title: "Anthropic SDK for JavaScript",
    language: Language::JavaScript,
    program: "anthropic.mjs",
    variant: "messages",
    package: "@anthropic-ai/sdk",
    page: Some("clients/anthropic-sdk"),
    gaps: &[OPTIONS, CHOICE, IMAGE_URL_SOURCES],
    absent: &[],
};

pub(super) const AI_SDK_RESPONSES: Client = Client {
    title: "Vercel AI SDK, `openai`",
    language: Language::JavaScript,
    program: "ai_sdk.mjs",
    variant: "responses",
    package: "@ai-sdk/openai",
    page: Some("clients/ai-sdk"),
    gaps: &[
        OPTIONS,
        CHOICE,
        (MultiTurn, "`item_reference` are not supported"),
        (Restart, "took `` for the answer"),
    ],
    absent: &[],
};

pub(super) const AI_SDK_CHAT: Client = Client {
    title: "Vercel AI SDK, `openai.chat`",
    language: Language::JavaScript,
    program: "ai_sdk.mjs",
    variant: "chat",
    package: "@ai-sdk/openai",
    page: Some("clients/ai-sdk"),
    gaps: &[OPTIONS, CHOICE],
    absent: &[],
};

pub(super) const AI_SDK_COMPATIBLE: Client = Client {
    title: "Vercel AI SDK, `openai-compatible`",
    language: Language::JavaScript,
    program: "ai_sdk.mjs",
    variant: "compatible",
    package: "@ai-sdk/openai-compatible",
    page: Some("clients/ai-sdk"),
    gaps: &[OPTIONS, CHOICE],
    absent: &[],
};

pub(super) const AI_SDK_ANTHROPIC: Client = Client {
    title: "Vercel AI SDK, `anthropic`",
    language: Language::JavaScript,
    program: "ai_sdk.mjs",
    variant: "messages",
    package: "@ai-sdk/anthropic",
    page: Some("clients/ai-sdk"),
    gaps: &[OPTIONS, CHOICE, STRUCTURED_BY_CHOICE],
    absent: &[],
};

pub(super) const LANGCHAIN_PYTHON_OPENAI: Client = Client {
    title: "LangChain and LangGraph for Python, OpenAI",
    language: Language::Python,
    program: "langchain_agents.py",
    variant: "chat",
    package: "langchain-openai",
    page: Some("clients/langchain"),
    gaps: &[OPTIONS, CHOICE, STRUCTURED_BY_CHOICE, IMAGE_URLS],
    absent: &[],
};

pub(super) const LANGCHAIN_PYTHON_ANTHROPIC: Client = Client {
    title: "LangChain and LangGraph for Python, Anthropic",
    language: Language::Python,
    program: "langchain_agents.py",
    variant: "messages",
    package: "langchain-anthropic",
    page: Some("clients/langchain"),
    gaps: &[OPTIONS, CHOICE, STRUCTURED_BY_CHOICE, IMAGE_URL_SOURCES],
    absent: &[],
};

pub(super) const LANGCHAIN_JS_OPENAI: Client = Client {
    title: "LangChain and LangGraph for JavaScript, OpenAI",
    language: Language::JavaScript,
    program: "langchain.mjs",
    variant: "chat",
    package: "@langchain/openai",
    page: Some("clients/langchain"),
    gaps: &[OPTIONS, CHOICE],
    absent: &[],
};

pub(super) const LANGCHAIN_JS_ANTHROPIC: Client = Client {
    title: "LangChain and LangGraph for JavaScript, Anthropic",
    language: Language::JavaScript,
    program: "langchain.mjs",
    variant: "messages",
    package: "@langchain/anthropic",
    page: Some("clients/langchain"),
    gaps: &[OPTIONS, CHOICE, STRUCTURED_BY_CHOICE],
    absent: &[],
};

pub(super) const AGENTS_PYTHON: Client = Client {
    title: "OpenAI Agents SDK for Python",
    language: Language::Python,
    program: "openai_agents.py",
    variant: "responses",
    package: "openai-agents",
    page: Some("clients/openai-agents"),
    gaps: &[OPTIONS, CHOICE, IMAGE_URLS],
    absent: &[],
};

pub(super) const AGENTS_JS: Client = Client {
    title: "OpenAI Agents SDK for JavaScript",
    language: Language::JavaScript,
    program: "agents.mjs",
    variant: "responses",
    package: "@openai/agents",
    page: Some("clients/openai-agents"),
    gaps: &[OPTIONS, CHOICE],
    absent: &[],
};

pub(super) const PYDANTIC_AI_RESPONSES: Client = Client {
    title: "pydantic-ai, Responses",
    language: Language::Python,
    program: "pydantic_agents.py",
    variant: "responses",
    package: "pydantic-ai-slim",
    page: Some("clients/pydantic-ai"),
    gaps: &[
        OPTIONS,
        CHOICE,
        STRUCTURED_BY_CHOICE,
        IMAGE_URLS,
        (KillMidStream, "could not read the stream: AssertionError"),
    ],
    absent: &[],
};

pub(super) const PYDANTIC_AI_CHAT: Client = Client {
    title: "pydantic-ai, Chat Completions",
    language: Language::Python,
    program: "pydantic_agents.py",
    variant: "chat",
    package: "pydantic-ai-slim",
    page: Some("clients/pydantic-ai"),
    gaps: &[OPTIONS, CHOICE, STRUCTURED_BY_CHOICE, IMAGE_URLS],
    absent: &[],
};

pub(super) const PYDANTIC_AI_ANTHROPIC: Client = Client {
    title: "pydantic-ai, Anthropic",
    language: Language::Python,
    program: "pydantic_agents.py",
    variant: "messages",
    package: "pydantic-ai-slim",
    page: Some("clients/pydantic-ai"),
    gaps: &[OPTIONS, CHOICE, STRUCTURED_BY_CHOICE, IMAGE_URL_SOURCES],
    absent: &[],
};

pub(super) const CLAUDE_CODE: Client = Client {
    title: "Claude Code",
    language: Language::JavaScript,
    program: "claude_code.mjs",
    variant: "messages",
    package: "@anthropic-ai/claude-code",
    page: None,
    gaps: &[
        (Plain, "`context_management` is not supported"),
        (Streaming, "`context_management` is not supported"),
        (Tools, "`context_management` is not supported"),
        (ParallelTools, "`context_management` is not supported"),
        (Structured, "`context_management` is not supported"),
        (MultiTurn, "`context_management` is not supported"),
        (Image, "`context_management` is not supported"),
        (Options, "`context_management` is not supported"),
        (Abort, "`context_management` is not supported"),
        (Error, "`context_management` is not supported"),
        (ModelError, "charged never"),
        (Cancel, "charged never"),
        (KillMidStream, "charged never"),
        (KillBeforeAnswer, "charged never"),
        (Restart, "charged never"),
    ],
    absent: &[(ForcedTool, "its user cannot force a tool")],
};

pub(super) const CODEX: Client = Client {
    title: "Codex",
    language: Language::JavaScript,
    program: "codex.mjs",
    variant: "responses",
    package: "@openai/codex",
    page: None,
    gaps: &[
        (Plain, "`client_metadata` is not supported"),
        (Streaming, "`client_metadata` is not supported"),
        (Tools, "`client_metadata` is not supported"),
        (ParallelTools, "`client_metadata` is not supported"),
        (Structured, "`client_metadata` is not supported"),
        (MultiTurn, "`client_metadata` is not supported"),
        (Image, "`client_metadata` is not supported"),
        (Options, "`client_metadata` is not supported"),
        (Abort, "`client_metadata` is not supported"),
        (Error, "`client_metadata` is not supported"),
        (ModelError, "charged never"),
        (Cancel, "charged never"),
        (KillMidStream, "charged never"),
        (KillBeforeAnswer, "charged never"),
        (Restart, "charged never"),
    ],
    absent: &[(ForcedTool, "its user cannot force a tool")],
};

/// All clients, in the order of the page.
pub(super) const CLIENTS: [&Client; 21] = [
    &OPENAI_PYTHON_RESPONSES,
    &OPENAI_PYTHON_CHAT,
    &OPENAI_JS_RESPONSES,
    &OPENAI_JS_CHAT,
    &ANTHROPIC_PYTHON,
    &ANTHROPIC_JS,
    &AI_SDK_RESPONSES,
    &AI_SDK_CHAT,
    &AI_SDK_COMPATIBLE,
    &AI_SDK_ANTHROPIC,
    &LANGCHAIN_PYTHON_OPENAI,
    &LANGCHAIN_PYTHON_ANTHROPIC,
    &LANGCHAIN_JS_OPENAI,
    &LANGCHAIN_JS_ANTHROPIC,
    &AGENTS_PYTHON,
    &AGENTS_JS,
    &PYDANTIC_AI_RESPONSES,
    &PYDANTIC_AI_CHAT,
    &PYDANTIC_AI_ANTHROPIC,
    &CLAUDE_CODE,
    &CODEX,
];
