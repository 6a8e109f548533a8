//! The APIs that can be spoken, and where they are when nobody says otherwise.
use schemars::JsonSchema;
use serde::Deserialize;

/// How a provider is spoken to.
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
    /// Chat Completions as other servers speak them: llama.cpp, Ollama, vLLM, `LiteLLM`.
    #[serde(rename = "openai-compatible")]
    OpenAiCompatible,
}

impl Api {
    /// Every API.
    pub const ALL: &'static [Self] =
        &[Self::OpenAi, Self::OpenAiResponses, Self::Anthropic, Self::Gemini, Self::OpenAiCompatible];

    /// How it is written in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::OpenAiCompatible => "openai-compatible",
        }
    }

    /// Where it is; nowhere for servers of one's own.
    pub const fn home(self) -> Option<&'static str> {
        match self {
            Self::OpenAi | Self::OpenAiResponses => Some("https://api.openai.com/v1"),
            Self::Anthropic => Some("https://api.anthropic.com"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com"),
            Self::OpenAiCompatible => None,
        }
    }

    /// Whether it answers nobody without a key.
    pub const fn needs_key(self) -> bool {
        !matches!(self, Self::OpenAiCompatible)
    }

    /// The variable that usually holds the key.
    pub const fn key_variable(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiResponses => "OPENAI_API_KEY",
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::Gemini => "GEMINI_API_KEY",
            Self::OpenAiCompatible => "LOCAL_API_KEY",
        }
    }

    /// The variable that usually holds the address.
    pub const fn base_url_variable(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiResponses => "OPENAI_BASE_URL",
            Self::Anthropic => "ANTHROPIC_BASE_URL",
            Self::Gemini => "GEMINI_BASE_URL",
            Self::OpenAiCompatible => "LOCAL_BASE_URL",
        }
    }

    /// Where a request for a reply of this model goes, below the base.
    pub(crate) fn reply_path(self, model: &str) -> String {
        match self {
            Self::OpenAi | Self::OpenAiCompatible => "/chat/completions".to_owned(),
            Self::OpenAiResponses => "/responses".to_owned(),
            Self::Anthropic => "/v1/messages".to_owned(),
            Self::Gemini => format!("/v1beta/models/{model}:streamGenerateContent?alt=sse"),
        }
    }

    /// Where models are listed, below the base.
    pub(crate) const fn models_path(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiResponses | Self::OpenAiCompatible => "/models",
            Self::Anthropic => "/v1/models?limit=1000",
            Self::Gemini => "/v1beta/models?pageSize=1000",
        }
    }
}
