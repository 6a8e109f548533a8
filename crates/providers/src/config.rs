//! Reads the providers from environment variables and from `[providers.NAME]` in a file.
//!
//! Other parts of the program read the other tables of the file.
use crate::model_table::ModelOverrides;
use crate::registry::IncompleteProvider;
use crate::remote_provider::{KeyRateLimits, RemoteSettings};
use crate::{Api, RemoteProvider, Secret};
use outlast_vocab::cost::Prices;
use outlast_vocab::{Error, Kind};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::Path;
use toml::Spanned;

/// The maximum size of the file in bytes.
const FILE_BYTES: u64 = 1 << 20;

/// The names of the providers from the environment.
const FROM_ENVIRONMENT: [(&str, Api); 5] = [
    ("openai", Api::OpenAi),
    ("openai-responses", Api::OpenAiResponses),
    ("anthropic", Api::Anthropic),
    ("gemini", Api::Gemini),
    ("local", Api::OpenAiCompatible),
];

/// A provider as configured.
pub(crate) enum ProviderEntry {
    Ready(Box<RemoteProvider>),
    Missing(IncompleteProvider),
}

impl ProviderEntry {
    /// Returns the name of the provider.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Ready(remote) => remote.name(),
            Self::Missing(missing) => &missing.name,
        }
    }
}

/// Reads an environment variable, from the process or from a test.
pub(crate) type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

fn set(variable: EnvLookup<'_>, name: &str) -> Option<String> {
    variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// Returns the providers of the environment.
pub(crate) fn environment(variable: EnvLookup<'_>) -> Result<Vec<ProviderEntry>, Error> {
    FROM_ENVIRONMENT.iter().map(|(name, api)| from_environment(name, *api, variable)).collect()
}

fn from_environment(name: &str, api: Api, variable: EnvLookup<'_>) -> Result<ProviderEntry, Error> {
    let base_url = set(variable, api.base_url_variable()).or_else(|| api.home().map(str::to_owned));
    let key = set(variable, api.key_variable());
    let missing = |what: String| {
        Ok(ProviderEntry::Missing(IncompleteProvider { name: name.to_owned(), api, remedy: what }))
    };
    let Some(base_url) = base_url else {
        return missing(format!(
            "set {} to the address of an OpenAI-compatible server, like `http://127.0.0.1:8080/v1`",
            api.base_url_variable()
        ));
    };
    if api.needs_key() && key.is_none() {
        return missing(format!("set {}", api.key_variable()));
    }
    let settings = RemoteSettings {
        name: name.to_owned(),
        api,
        base_url,
        key: key.map(Secret::new),
        key_name: format!("the key in {}", api.key_variable()),
        model_overrides: BTreeMap::new(),
        supports_prefill: None,
        rate_limits: KeyRateLimits::default(),
    };
    let remote = RemoteProvider::with(settings).map_err(|detail| {
        let detail = format!("{}: {detail}", api.base_url_variable());
        Error::new(Kind::ConfigInvalid, detail)
    })?;
    Ok(ProviderEntry::Ready(Box::new(remote)))
}

#[derive(Deserialize)]
struct FileTable {
    #[serde(default)]
    providers: BTreeMap<String, Spanned<ProviderTable>>,
}

/// A model provider.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[providers.NAME]")]
pub struct ProviderTable {
    /// The API of the provider.
    kind: Api,
    /// The address of the server; default: the address of the API's vendor.
    base_url: Option<String>,
    /// The environment variable that contains the key, as `{ env = "VARIABLE" }`; default: the API's usual variable.
    #[serde(default, deserialize_with = "key_table")]
    api_key: Option<KeyTable>,
    /// Whether its models can continue a partial reply.
    goes_on: Option<bool>,
    /// Requests per minute that its key allows, over all models.
    requests_per_minute: Option<NonZeroU32>,
    /// Tokens per minute that its key allows, over all models.
    tokens_per_minute: Option<NonZeroU64>,
    /// Properties of its models, by name.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ModelOverrides>")]
    models: BTreeMap<String, Spanned<ModelOverrides>>,
}

/// The location of a key. Do not write the key itself into a file.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct KeyTable {
    /// The environment variable that contains the key.
    env: String,
}

/// Parses the location of a key. A wrong value may be the key itself, so no error shows it.
fn key_table<'de, D: Deserializer<'de>>(from: D) -> Result<Option<KeyTable>, D::Error> {
    let table = toml::Table::deserialize(from).ok();
    let env = table
        .filter(|table| table.len() == 1)
        .and_then(|table| table.get("env")?.as_str().map(str::to_owned));
    let wrong = || D::Error::custom("expected `{ env = \"VARIABLE\" }`, the variable that holds the key");
    env.map(|env| Some(KeyTable { env })).ok_or_else(wrong)
}

/// Returns the providers of a file.
pub(crate) fn file(path: &Path, variable: EnvLookup<'_>) -> Result<Vec<ProviderEntry>, Error> {
    let unread = |cause| {
        let detail = format!("the configuration {} cannot be read: {cause}", path.display());
        Error::new(Kind::IoFailed, detail).because(cause)
    };
    let bytes = std::fs::metadata(path).map_err(unread)?.len();
    if bytes > FILE_BYTES {
        let detail = format!("{}: expected at most {FILE_BYTES} bytes, found {bytes}", path.display());
        return Err(Error::new(Kind::ConfigInvalid, detail));
    }
    let text = std::fs::read_to_string(path).map_err(unread)?;
    ProviderFile { path, text: &text }.providers(variable)
}

/// A file while it is parsed. Errors name the file and the line.
struct ProviderFile<'a> {
    path: &'a Path,
    text: &'a str,
}

impl ProviderFile<'_> {
    fn providers(&self, variable: EnvLookup<'_>) -> Result<Vec<ProviderEntry>, Error> {
        let table: FileTable = toml::from_str(self.text)
            .map_err(|error| self.invalid(error.span().map_or(0, |span| span.start), error.message()))?;
        table.providers.into_iter().map(|(name, provider)| self.provider(name, provider, variable)).collect()
    }

    fn provider(
        &self,
        name: String,
        table: Spanned<ProviderTable>,
        variable: EnvLookup<'_>,
    ) -> Result<ProviderEntry, Error> {
        let at = table.span().start;
        let ProviderTable {
            kind: api,
            base_url,
            api_key,
            goes_on,
            requests_per_minute,
            tokens_per_minute,
            models,
        } = table.into_inner();
        let key_variable = match &api_key {
            Some(key) => Some(key.env.as_str()),
            None if api.needs_key() => Some(api.key_variable()),
            None => None,
        };
        let key = key_variable.and_then(|name| set(variable, name));
        if let Some(wanted) = key_variable
            && key.is_none()
        {
            let what = format!("set {wanted} ({}:{})", self.path.display(), self.line(at));
            return Ok(ProviderEntry::Missing(IncompleteProvider { name, api, remedy: what }));
        }
        let Some(base_url) = base_url.or_else(|| api.home().map(str::to_owned)) else {
            return Err(self
                .invalid(at, &format!("provider `{name}`: expected `base_url`, the address of the server")));
        };
        let rows = models.into_iter().map(|(model, row)| {
            let price = row.get_ref().price.map(Prices::try_from).transpose();
            price.map_err(|error| {
                self.invalid(row.span().start, &format!("model `{model}`: {}", error.detail()))
            })?;
            Ok((model, row.into_inner()))
        });
        let rows = rows.collect::<Result<_, Error>>()?;
        let key_name = key_variable.map_or_else(|| "its key".to_owned(), |name| format!("the key in {name}"));
        let shown = format!("provider `{name}`");
        let pace = KeyRateLimits { requests_per_minute, tokens_per_minute };
        let settings = RemoteSettings {
            name,
            api,
            base_url,
            key: key.map(Secret::new),
            key_name,
            model_overrides: rows,
            supports_prefill: goes_on,
            rate_limits: pace,
        };
        let remote = RemoteProvider::with(settings)
            .map_err(|detail| self.invalid(at, &format!("{shown}: {detail}")))?;
        Ok(ProviderEntry::Ready(Box::new(remote)))
    }

    fn line(&self, at: usize) -> usize {
        self.text.get(..at).map_or(1, |before| before.matches('\n').count() + 1)
    }

    fn invalid(&self, at: usize, what: &str) -> Error {
        // Parser messages can have several lines; join them into one.
        let what = what.trim().replace('\n', ", ");
        Error::new(Kind::ConfigInvalid, format!("{}:{}: {what}", self.path.display(), self.line(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use std::fmt::Write;

    /// Checks the providers that result from a file and some variables.
    #[track_caller]
    fn check(text: &str, variables: &[(&str, &str)], want: &Expect) {
        let variable = |wanted: &str| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
        };
        let source = ProviderFile { path: Path::new("outlast.toml"), text };
        want.assert_eq(&show(source.providers(&variable)));
    }

    fn show(found: Result<Vec<ProviderEntry>, Error>) -> String {
        let found = match found {
            Ok(found) => found,
            Err(error) => return format!("{error}\n"),
        };
        let mut shown = String::new();
        for provider in found {
            match provider {
                ProviderEntry::Ready(remote) => {
                    writeln!(shown, "{} {} at {}", remote.name(), remote.api().name(), remote.base_url())
                }
                ProviderEntry::Missing(missing) => {
                    writeln!(shown, "{} is missing: {}", missing.name, missing.remedy)
                }
            }
            .unwrap();
        }
        shown
    }

    #[test]
    fn environment_providers_name_their_missing_variable() {
        let only = |name: &str| (name == "ANTHROPIC_API_KEY").then(|| "sk-canary".to_owned());
        expect![[r"
            openai is missing: set OPENAI_API_KEY
            openai-responses is missing: set OPENAI_API_KEY
            anthropic anthropic at https://api.anthropic.com
            gemini is missing: set GEMINI_API_KEY
            local is missing: set LOCAL_BASE_URL to the address of an OpenAI-compatible server, like `http://127.0.0.1:8080/v1`
        "]]
        .assert_eq(&show(environment(&only)));
        let all = |name: &str| {
            Some(if name.ends_with("_BASE_URL") {
                format!("http://{}/", name.to_lowercase().replace('_', "-"))
            } else {
                "key".to_owned()
            })
        };
        expect![[r"
            openai openai at http://openai-base-url
            openai-responses openai-responses at http://openai-base-url
            anthropic anthropic at http://anthropic-base-url
            gemini gemini at http://gemini-base-url
            local openai-compatible at http://local-base-url
        "]]
        .assert_eq(&show(environment(&all)));
        let wrong = |name: &str| Some(if name == "GEMINI_BASE_URL" { "gemini" } else { "" }.to_owned());
        let wrong_key =
            |name: &str| if name == "GEMINI_API_KEY" { Some("k".to_owned()) } else { wrong(name) };
        expect![[r"
            config.invalid: GEMINI_BASE_URL: expected an address like `https://api.example.com/v1`, got `gemini`: relative URL without a base
        "]]
        .assert_eq(&show(environment(&wrong_key)));
    }

    #[test]
    fn config_file_defines_providers_ignoring_other_tables() {
        check(
            "[agents.shop]\nname = \"x\"\n\n[providers.work]\nkind = \"openai\"\napi_key = { env = \"WORK_KEY\" }\n\n\
             [providers.home]\nkind = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:8080/v1\"\ngoes_on = true\nrequests_per_minute = 30\n\n\
             [providers.home.models.\"qwen3:8b\"]\nwindow_tokens = 8192\nprice = { input = \"0.1\", output = \"0.2\" }\n",
            &[("WORK_KEY", "k")],
            &expect![[r"
                home openai-compatible at http://127.0.0.1:8080/v1
                work openai at https://api.openai.com/v1
            "]],
        );
        check(
            "[providers.work]\nkind = \"openai\"\napi_key = { env = \"WORK_KEY\" }\n",
            &[],
            &expect![[r"
                work is missing: set WORK_KEY (outlast.toml:1)
            "]],
        );
    }

    #[test]
    fn all_models_of_a_provider_share_rate_limits() {
        let text = "[providers.a]\nkind = \"openai-compatible\"\nbase_url = \"http://x/v1\"\nrequests_per_minute = 30\n";
        let found = ProviderFile { path: Path::new("outlast.toml"), text }.providers(&|_| None).unwrap();
        let [ProviderEntry::Ready(remote)] = found.as_slice() else { panic!("it is configured") };
        let rate =
            |model: &str| outlast_ports::model::ModelProvider::rate(&**remote, &model.parse().unwrap());
        assert_eq!(rate("a/small"), rate("a/large"));
        assert_eq!(
            (rate("a/small").requests_per_minute, rate("a/small").tokens_per_minute),
            (Some(30), None)
        );
    }

    #[test]
    fn config_error_names_its_line() {
        let mut shown = String::new();
        for text in [
            "[providers.a]\nkind = \"opanai\"\n",
            "[providers.a]\nbase_url = \"http://x\"\n",
            "\n[providers.a]\nkind = \"openai-compatible\"\n",
            "[providers.a]\nkind = \"openai-compatible\"\nbase_url = \"x\"\n",
            "[providers.a]\nkind = \"openai\"\napi_key = \"sk-canary-never-shown\"\n",
            "[providers.a]\nkind = \"openai\"\nkey = { env = \"X\" }\n",
            "[providers.\"a b\"]\nkind = \"openai-compatible\"\nbase_url = \"http://x\"\n",
            "[providers.a]\nkind = \"openai-compatible\"\nbase_url = \"http://x\"\n[providers.a.models.m]\nprice = { input = \"0.0000001\", output = \"1\" }\n",
            "[providers.a]\nkind = \"openai-compatible\"\nbase_url = \"http://x\"\n[providers.a.models.m]\nwindow = 7\n",
            "[providers\n",
        ] {
            shown += &show(
                ProviderFile { path: Path::new("outlast.toml"), text }.providers(&|_| Some("k".to_owned())),
            );
        }
        expect![[r#"
            config.invalid: outlast.toml:2: unknown variant `opanai`, expected one of `openai`, `openai-responses`, `anthropic`, `gemini`, `openai-compatible`
            config.invalid: outlast.toml:1: missing field `kind`
            config.invalid: outlast.toml:2: provider `a`: expected `base_url`, the address of the server
            config.invalid: outlast.toml:1: provider `a`: expected an address like `https://api.example.com/v1`, got `x`: relative URL without a base
            config.invalid: outlast.toml:3: expected `{ env = "VARIABLE" }`, the variable that holds the key
            config.invalid: outlast.toml:3: unknown field `key`, expected one of `kind`, `base_url`, `api_key`, `goes_on`, `requests_per_minute`, `tokens_per_minute`, `models`
            config.invalid: outlast.toml:1: provider `a b`: expected a provider's name of 1 to 32 letters, digits, `-` and `_` that is not `rehearsal`, got `a b`
            config.invalid: outlast.toml:4: model `m`: expected a price per million tokens with at most 6 decimals, got `0.0000001`
            config.invalid: outlast.toml:5: unknown field `window`, expected one of `window_tokens`, `reply_tokens`, `price`, `thinks`, `goes_on`
            config.invalid: outlast.toml:1: unclosed table, expected `]`
        "#]].assert_eq(&shown);
    }
}
