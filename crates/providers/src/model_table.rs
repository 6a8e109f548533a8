//! The known properties of models: context windows, prices, features. The table is `models.toml`; the user's file
//! extends and overrides it.
use crate::Api;
use crate::claude::ClaudeVersion;
use outlast_vocab::cost::{Prices, PricesPerMillion};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The context window of an unknown model in tokens.
const WINDOW_TOKENS: u32 = 32_000;

/// The properties of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ModelTable", title = "[providers.NAME.models.MODEL]")]
pub(crate) struct ModelOverrides {
    /// The size of the context window in tokens.
    pub(crate) window_tokens: Option<u32>,
    /// The most tokens of one reply that the model supports.
    pub(crate) reply_tokens: Option<u32>,
    /// Prices in dollars per million tokens.
    #[schemars(schema_with = "price")]
    pub(crate) price: Option<PricesPerMillion>,
    /// Whether the model reasons before it answers.
    pub(crate) thinks: Option<bool>,
    /// Whether the model can continue a partial reply.
    pub(crate) goes_on: Option<bool>,
}

fn price(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let dollars =
        |description: &str| schemars::json_schema!({ "type": "string", "description": description });
    schemars::json_schema!({
        "type": "object",
        "properties": {
            "input": dollars("The price of input tokens, like `1.25`."),
            "output": dollars("The price of output and reasoning tokens."),
            "cache_read": dollars("The price of tokens read from the prompt cache; default: `input`."),
            "cache_write": dollars("The price of tokens written to the prompt cache; default: `input`."),
        },
        "required": ["input", "output"],
        "additionalProperties": false,
    })
}

/// The properties of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelTraits {
    /// The context window in tokens.
    pub(crate) window_tokens: u32,
    /// The most tokens of one reply, if known.
    pub(crate) reply_tokens: Option<u32>,
    /// The prices of tokens.
    pub(crate) prices: Option<Prices>,
    /// Whether it thinks before it answers.
    pub(crate) thinks: bool,
    /// Whether it can continue a reply that has begun (prefill).
    pub(crate) supports_prefill: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelRow {
    /// The date of the provider's page.
    #[serde(rename = "as_of")]
    _as_of: String,
    window_tokens: u32,
    price: PricesPerMillion,
}

type KnownModels = BTreeMap<String, BTreeMap<String, ModelRow>>;

static TABLE: LazyLock<KnownModels> =
    LazyLock::new(|| toml::from_str(include_str!("models.toml")).expect("the built-in table is well formed"));

/// Returns the properties of a model, with the user's overrides. A learned window applies unless a smaller one is
/// known.
pub(crate) fn traits(
    api: Api,
    model: &str,
    said: Option<&ModelOverrides>,
    learned: Option<u32>,
) -> ModelTraits {
    let none = ModelOverrides::default();
    let said = said.unwrap_or(&none);
    let known = known(api, model);
    let prices = said.price.or_else(|| known.map(|row| row.price));
    let window = said.window_tokens.or_else(|| known.map(|row| row.window_tokens));
    ModelTraits {
        window_tokens: window.into_iter().chain(learned).min().unwrap_or(WINDOW_TOKENS),
        reply_tokens: said.reply_tokens.or_else(|| reply_tokens(api, model)),
        prices: prices.and_then(|price| Prices::try_from(price).ok()),
        thinks: said.thinks.unwrap_or_else(|| thinks(api, model)),
        supports_prefill: said
            .goes_on
            .unwrap_or_else(|| api == Api::Anthropic && ClaudeVersion::of(model).supports_prefill()),
    }
}

/// Returns the row of a model: that of its name, or of the longest name that it extends with a date.
fn known(api: Api, model: &str) -> Option<&'static ModelRow> {
    let rows = TABLE.get(match api {
        Api::OpenAi | Api::OpenAiResponses => "openai",
        Api::Anthropic => "anthropic",
        Api::Gemini => "gemini",
        Api::OpenAiCompatible => return None,
    })?;
    let continues = |name: &str| {
        let rest = model.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
        // A date or a build, not the next version.
        let is_numbered = |rest: &str| rest.bytes().take_while(u8::is_ascii_digit).count() >= 3;
        rest.is_some_and(|rest| rest == "latest" || rest.starts_with("preview") || is_numbered(rest))
    };
    rows.get(model).or_else(|| {
        let found = rows.iter().filter(|(name, _)| continues(name));
        found.max_by_key(|(name, _)| name.len()).map(|(_, row)| row)
    })
}

/// Returns the most tokens of one reply for the older models that reject a higher limit.
fn reply_tokens(api: Api, model: &str) -> Option<u32> {
    match api {
        Api::OpenAi | Api::OpenAiResponses => {
            let old = ["gpt-3.5", "gpt-4-turbo", "gpt-4-0125", "gpt-4-1106", "gpt-4o-2024-05-13"];
            old.iter().any(|old| model.starts_with(old)).then_some(4_096)
        }
        Api::Anthropic => ClaudeVersion::of(model).reply_tokens(),
        Api::Gemini | Api::OpenAiCompatible => None,
    }
}

fn thinks(api: Api, model: &str) -> bool {
    match api {
        Api::OpenAi | Api::OpenAiResponses => {
            !["gpt-3", "gpt-4", "chatgpt"].iter().any(|old| model.starts_with(old))
                && !model.contains("-chat")
        }
        Api::Anthropic => true,
        Api::Gemini => !["gemini-1", "gemini-2.0", "gemma"].iter().any(|old| model.starts_with(old)),
        Api::OpenAiCompatible => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::effect::Usage;

    #[test]
    fn every_model_table_row_has_a_token_price() {
        for (provider, rows) in TABLE.iter() {
            assert!(!rows.is_empty(), "{provider}");
            for (model, row) in rows {
                assert!(Prices::try_from(row.price).is_ok(), "{provider}/{model}");
                assert!(row.window_tokens > 1_000, "{provider}/{model}");
            }
        }
    }

    #[test]
    fn dated_model_name_matches_only_its_base_model() {
        let window = |model| known(Api::OpenAi, model).map(|row| row.window_tokens);
        assert!(window("gpt-5-2025-08-07").is_some());
        assert_eq!(window("gpt-5-2025-08-07"), window("gpt-5"));
        assert_eq!(window("gpt-5-9"), None);
        assert_eq!(window("gpt-5-unheard-of"), None);
        assert_eq!(window("gpt-50"), None);
    }

    #[test]
    fn user_model_settings_override_the_table() {
        let row: ModelOverrides = toml::from_str(
            "window_tokens = 9000\nthinks = false\nprice = { input = \"1\", output = \"2\", cache_read = \"0.5\" }",
        )
        .unwrap();
        let traits = traits(Api::OpenAi, "gpt-5", Some(&row), None);
        let usage = Usage { input: 1_000_000, output: 1_000_000, cache_read: 2_000_000, ..Usage::default() };
        assert_eq!((traits.window_tokens, traits.thinks), (9_000, false));
        assert_eq!(traits.prices.unwrap().of(&usage).to_string(), "4");
    }
}
