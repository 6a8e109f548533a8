//! The supported APIs and their default addresses.
use schemars::JsonSchema;
use serde::Deserialize;

/// The API of a model provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    /// OpenAI Chat Completions.
    #[serde(rename = "openai")]
    OpenAi,
    /// OpenAI Responses.
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    /// Anthropic Messages.
    Anthropic,
    /// Google Gemini.
    Gemini,
    /// The Chat Completions API of other servers: llama.cpp, Ollama, vLLM, `LiteLLM`.
    #[serde(rename = "openai-compatible")]
    OpenAiCompatible,
}

impl Api {
    /// Every API.
    pub const ALL: &'static [Self] =
        &[Self::OpenAi, Self::OpenAiResponses, Self::Anthropic, Self::Gemini, Self::OpenAiCompatible];

    /// Returns the name of the API in configuration files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::OpenAiCompatible => "openai-compatible",
        }
    }

    /// Returns the default address; `None` for self-hosted servers.
    pub const fn home(self) -> Option<&'static str> {
        match self {
            Self::OpenAi | Self::OpenAiResponses => Some("https://api.openai.com/v1"),
            Self::Anthropic => Some("https://api.anthropic.com"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com"),
            Self::OpenAiCompatible => None,
        }
    }

    /// Returns whether the API requires a key.
    pub const fn needs_key(self) -> bool {
        !matches!(self, Self::OpenAiCompatible)
    }

    /// Returns the usual environment variable for the key.
    pub const fn key_variable(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiResponses => "OPENAI_API_KEY",
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::Gemini => "GEMINI_API_KEY",
            Self::OpenAiCompatible => "LOCAL_API_KEY",
        }
    }

    /// Returns the usual environment variable for the address.
    pub const fn base_url_variable(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiResponses => "OPENAI_BASE_URL",
            Self::Anthropic => "ANTHROPIC_BASE_URL",
            Self::Gemini => "GEMINI_BASE_URL",
            Self::OpenAiCompatible => "LOCAL_BASE_URL",
        }
    }

    /// Returns the path for a reply of this model, relative to the base.
    pub(crate) fn reply_path(self, model: &str) -> String {
        match self {
            Self::OpenAi | Self::OpenAiCompatible => "/chat/completions".to_owned(),
            Self::OpenAiResponses => "/responses".to_owned(),
            Self::Anthropic => "/v1/messages".to_owned(),
            Self::Gemini => format!("/v1beta/models/{model}:streamGenerateContent?alt=sse"),
        }
    }

    /// Returns the path of the model list, relative to the base.
    pub(crate) const fn models_path(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiResponses | Self::OpenAiCompatible => "/models",
            Self::Anthropic => "/v1/models?limit=1000",
            Self::Gemini => "/v1beta/models?pageSize=1000",
        }
    }
}
